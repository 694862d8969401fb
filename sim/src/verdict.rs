//! What the judge is told of a run, and what of its verdict counts. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use lab::judge::{Cause, History, Object, Scorecard};
use serde_json::Value;

use crate::controllers::{Deed, Done};
use crate::fault::Lag;
use crate::json::{condition, list, text};
use crate::profile::Profile;
use crate::resource::Resource;
use crate::run::End;
use crate::scenario::Scenario;
use crate::store::Store;

pub(crate) fn history(store: &Store, began: Timestamp, before: usize) -> History {
    let mut there: BTreeMap<String, &crate::store::Change> = BTreeMap::new();
    for change in store.changes().iter().take(before) {
        let uid = text(&change.object, &["metadata", "uid"]).to_owned();
        if change.event == crate::store::Event::Deleted {
            there.remove(&uid);
        } else {
            there.insert(uid, change);
        }
    }
    let initial = there.into_values().map(|c| (Cause::Initial, c));
    let later = store.changes().iter().skip(before).map(|c| (c.cause(), c));
    let changes = initial
        .chain(later)
        .filter_map(|(cause, change)| {
            let kind = change.resource.judged()?;
            let object: DynamicObject =
                serde_json::from_value(Value::clone(&change.object)).ok()?;
            Some(lab::judge::Change {
                at: change.at,
                revision: change.revision,
                cause,
                object: Arc::new(Object::read(kind, object)),
            })
        })
        .collect();
    History::new(
        began,
        store.now(),
        changes,
        store.audit().to_vec(),
        Vec::new(),
    )
}

/// The nodes that any of the relocations ever recorded.
pub(crate) fn selected(store: &Store) -> BTreeSet<String> {
    store
        .changes()
        .iter()
        .filter(|c| c.resource == Resource::Relocations)
        .flat_map(|c| list(&c.object, &["status", "nodes"]))
        .map(|n| text(n, &["name"]).to_owned())
        .collect()
}

/// Nodes on which a cordon is meant to stay: of those that are kept so, and those that somebody cordoned.
pub(crate) fn expected_cordons(store: &Store, done: &[Done]) -> BTreeSet<String> {
    let by_somebody = done
        .iter()
        .filter(|d| d.deed == Deed::Cordon)
        .map(|d| d.object.clone());
    let mut last: BTreeMap<&str, &Value> = BTreeMap::new();
    for change in store
        .changes()
        .iter()
        .filter(|c| c.resource == Resource::Relocations)
    {
        last.insert(text(&change.object, &["metadata", "uid"]), &change.object);
    }
    let kept = last.into_values().filter(|r| {
        let succeeded = condition(r, "Succeeded") == "True";
        let keeps = match text(r, &["spec", "afterDrain"]) {
            // Delete: a node without a NodeClaim is left to its autoscaler.
            "Keep" | "Delete" => true,
            _ => false,
        };
        let holds = !succeeded && text(r, &["spec", "onFailure"]) == "Hold";
        (succeeded && keeps) || holds
    });
    let kept = kept
        .flat_map(|r| list(r, &["status", "nodes"]))
        .map(|n| text(n, &["name"]).to_owned());
    by_somebody.chain(kept).collect()
}

/// What nobody could have known in time: somebody changed the world so shortly before that no watch had told of it.
///
/// Nor can two that act at the very same moment because both believe that they lead know of each other's other relocation or workload;
/// the lease is what keeps that from happening, and the lab is where the lease is tried.
pub(crate) fn excused(broken: &str, profile: &Profile, done: &[Done], store: &Store) -> bool {
    let of_turns =
        broken.starts_with("4:") || (broken.starts_with("3:") && broken.contains("which shares"));
    if !profile.turns && of_turns {
        return true;
    }
    // Left in deletion by others: people, or Karpenter that removes an empty node.
    if let Some(object) = broken.strip_suffix(": in deletion") {
        let name = object.rsplit(' ').next().unwrap_or_default();
        let deleted = |e: &lab::judge::AuditEvent| {
            e.verb == "delete" && e.name == name && e.agent() == "relocator"
        };
        return !store.audit().iter().any(deleted);
    }
    if done.is_empty() {
        return false;
    }
    let did = |deeds: &[Deed]| done.iter().any(|d| deeds.contains(&d.deed));
    // The judge takes a count that somebody else has raised for a surge that goes on for ever.
    if broken.starts_with("3:") && broken.contains("which shares") && did(&[Deed::Scale]) {
        return true;
    }
    // Who takes our mark off a node makes what was marked so his own.
    let stripped =
        |d: &&Done| d.deed == Deed::StripMarks && broken.contains(&format!("Node {}: ", d.object));
    let was_marked =
        broken.contains("annotation karpenter.sh/do-not-disrupt") || broken.ends_with(": cordon");
    if was_marked && done.iter().any(|d| stripped(&d)) {
        return true;
    }
    let invariant = broken.split(':').next().unwrap_or_default();
    if !matches!(invariant, "2" | "3" | "4" | "5" | "6") {
        return false;
    }
    let request = broken
        .rsplit("audit ")
        .next()
        .and_then(|rest| rest.split(')').next())
        .and_then(|id| id.parse::<usize>().ok())
        .and_then(|id| store.audit().get(id));
    let Some(request) = request else { return false };
    // A rollout goes on by itself, whatever becomes of the budget.
    let rollout =
        invariant == "3" && ["deployments", "statefulsets"].contains(&request.resource.as_str());
    if rollout && done.iter().any(|d| d.at > request.at) {
        return true;
    }
    let stale = match profile.watches.lag {
        Lag::None if profile.watches.dropped == 0.0 => SignedDuration::from_secs(2),
        _ => SignedDuration::from_secs(600),
    };
    done.iter().any(|d| {
        let age = request.at.duration_since(d.at);
        age.is_positive() && age < stale
    })
}

/// Invariant 5 cannot be judged: `replacement.strategy: None` is to be taken at its word; and of several relocations the judge does not
/// know which nodes were selected when, so that the place of one is a node to be emptied of another.
pub(crate) fn asks_for_no_places(scenario: &Scenario) -> bool {
    let none = |r: &Value| text(r, &["spec", "replacement", "strategy"]) == "None";
    scenario.relocations.len() > 1 || scenario.relocations.iter().any(|(_, r)| none(r))
}

/// What is wrong with the end.
pub(crate) fn against_the_end(
    scenario: &Scenario,
    profile: &Profile,
    end: &End,
    card: &Scorecard,
    done: &[Done],
) -> Vec<String> {
    let mut wrong = Vec::new();
    if let End::Never(words) = end {
        wrong.push(format!("14: it did not end: {words}"));
    }
    let succeeded = matches!(end, End::Over(words) if words.split(", ").all(|w| w == "Succeeded"));
    let one = scenario.relocations.len() == 1;
    // With several, a pod may be moved by one to a node that another is still to empty.
    if done.is_empty() && one && succeeded && card.double_moves > 0 {
        wrong.push(format!("{} pods were moved twice", card.double_moves));
    }
    // Not where there was nothing to do.
    let any = card.pods > 0;
    // Where the nodes are open again, pods come back to them.
    let opened = scenario
        .relocations
        .iter()
        .any(|(_, r)| text(r, &["spec", "afterDrain"]) == "Uncordon");
    if succeeded && done.is_empty() && scenario.must_succeed && !opened && any && !card.finished {
        wrong.push("it is over, and nodes are not empty or workloads not whole".to_owned());
    }
    let gone = *end == End::Over("gone".to_owned());
    let good = succeeded || gone || matches!(end, End::Never(_));
    if done.is_empty() && scenario.must_succeed && one && !good && profile.rate == 0.0 {
        wrong.push(format!(
            "nothing stood in its way, and it ended so: {end:?}"
        ));
    }
    wrong
}
