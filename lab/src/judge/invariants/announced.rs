//! What the relocation has recorded of a workload is what is done with it, and how it is to move does not change on the way. Pure.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::judge::analysis::{Case, Deed, What};
use crate::judge::history::State;
use crate::judge::object::{Detail, Kind, Object, Uid};

/// 15: a workload is evicted, restarted or scaled only when a relocation has recorded before that it is to move in this way.
///
/// Two ways may go on by evictions: `Surge`, when somebody else has put the replica count back, and `RolloutRestart`, when pods have come
/// to a selected node before its cordon was seen. And a pod that is not Ready serves nobody: it may go first, to get well elsewhere.
pub(super) fn plan_is_kept(case: &Case) -> Vec<String> {
    let mut out = Vec::new();
    let mut state = State::default();
    // By relocation and workload.
    let mut recorded: BTreeMap<(Uid, String), String> = BTreeMap::new();
    let mut restarted: BTreeSet<Uid> = BTreeSet::new();
    let mut deeds = case.deeds.iter().peekable();
    for (index, change) in case.history.changes.iter().enumerate() {
        if let Some(deed) = deeds.next_if(|d| d.index == index) {
            if deed.what == What::Restarted {
                restarted.insert(change.object.uid.clone());
            }
            out.extend(unannounced(case, &state, &restarted, &change.object, deed));
        }
        for (workload, strategy) in listed(&change.object) {
            let key = (change.object.uid.clone(), workload.to_owned());
            let first = recorded.entry(key).or_insert_with(|| strategy.to_owned());
            if first != strategy && (first.as_str(), strategy) != ("Surge", "Evict") {
                out.push(format!(
                    "{} recorded {first} for workload {workload}, and then {strategy}",
                    change.object
                ));
            }
            strategy.clone_into(first);
        }
        state.apply(change);
    }
    out
}

/// What is wrong with a deed, as far as the relocations of that moment tell.
fn unannounced(
    case: &Case,
    state: &State,
    restarted: &BTreeSet<Uid>,
    object: &Object,
    deed: &Deed,
) -> Option<String> {
    let (workload, ways): (_, &[&str]) = match deed.what {
        What::Evicted => {
            let workload = case.owners.of(object)?.uid;
            let before = state.get(Kind::Pod, &object.uid);
            let ready = before.is_some_and(|pod| pod.is_ready_pod());
            if !ready || restarted.contains(&workload) {
                (workload, &["Evict", "Surge", "RolloutRestart"])
            } else {
                (workload, &["Evict", "Surge"])
            }
        }
        What::Restarted => (object.uid.clone(), &["RolloutRestart"]),
        What::Scaled => (object.uid.clone(), &["Surge"]),
        What::Deleted => return None,
    };
    let mut said = Vec::new();
    let mut cut = false;
    for relocation in state.all(Kind::NodeRelocation) {
        cut |= !status(relocation)["moreWorkloads"].is_null();
        said.extend(
            listed(relocation)
                .filter(|(uid, _)| *uid == workload.0)
                .map(|(_, strategy)| strategy.to_owned()),
        );
    }
    // A sweep scales back what relocations have left that are gone.
    let known = !said.is_empty() || (deed.what != What::Scaled && !cut);
    let kept = said
        .iter()
        .any(|strategy| ways.contains(&strategy.as_str()));
    (known && !kept).then(|| {
        format!(
            "{object}: what was recorded of its workload was {said:?}: {}",
            deed.request
        )
    })
}

/// The workloads that a relocation which has started has listed, with how each is to move.
fn listed(object: &Object) -> impl Iterator<Item = (&str, &str)> {
    let status = status(object);
    let started = !status["startTime"].is_null();
    let all = status["workloads"].as_array().filter(|_| started);
    all.into_iter()
        .flatten()
        .filter_map(|w| Some((w["uid"].as_str()?, w["strategy"].as_str()?)))
}

fn status(object: &Object) -> &Value {
    match &object.detail {
        Detail::Relocation { status, .. } => status,
        _ => &Value::Null,
    }
}
