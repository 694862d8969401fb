//! Invariants 7, 9 and 10: what is written, and what is left of it. Pure.
use std::collections::{BTreeMap, BTreeSet};

use super::writes_between;
use crate::judge::analysis::{Case, What};
use crate::judge::history::Cause;
use crate::judge::left_behind::{GUARDS, left_behind};
use crate::judge::object::{Kind, Uid};

/// 7: nothing is left behind, and what kept an autoscaler away at the start mark and was changed by us has its value back.
pub(super) fn nothing_left_behind(case: &Case) -> Vec<String> {
    let mut out = left_behind(case);
    for object in case.start.everything() {
        let Some(end) = case.end.get(object.kind, &object.uid) else {
            continue;
        };
        let set = GUARDS.into_iter().filter_map(|key| {
            let was = object.annotations.get(key)?;
            (end.annotations.get(key) != Some(was)).then_some((key, was))
        });
        for (key, was) in set {
            // The change to the last value tells who is to blame.
            let mut value = Some(was);
            let mut blamed = None;
            for change in case.history.changes.iter().filter(|c| {
                c.object.uid == object.uid && c.cause == Cause::Modified && c.at > case.from
            }) {
                let to = change.object.annotations.get(key);
                if std::mem::replace(&mut value, to) != to {
                    let word = key.rsplit('/').next().unwrap_or(key);
                    blamed = case.our_write_of(change, word);
                }
            }
            if let Some(request) = blamed {
                let is = end.annotations.get(key);
                let is = is.map_or_else(|| "gone".to_owned(), |v| format!("{v:?}"));
                out.push(format!(
                    "{object}: annotation {key} was {was:?} and is {is}: {request}"
                ));
            }
        }
    }
    out
}

/// 9: we change the restart annotation of an owner at most once for each relocation that was seen.
pub(super) fn one_restart(case: &Case) -> Vec<String> {
    let relocations: BTreeSet<&Uid> = case
        .history
        .changes
        .iter()
        .filter(|c| c.object.kind == Kind::NodeRelocation)
        .map(|c| &c.object.uid)
        .collect();
    let allowed = relocations.len().max(1);
    let mut restarts: BTreeMap<&Uid, usize> = BTreeMap::new();
    let mut out = Vec::new();
    for deed in case.deeds.iter().filter(|d| d.what == What::Restarted) {
        let Some(change) = case.history.changes.get(deed.index) else {
            continue;
        };
        let n = restarts.entry(&change.object.uid).or_default();
        *n += 1;
        if *n > allowed {
            out.push(format!(
                "{} was restarted {n} times in {allowed} relocation(s): {}",
                change.object, deed.request
            ));
        }
    }
    out
}

/// 10: nothing is written by us in the times that are to be quiet.
pub(super) fn quiet(case: &Case) -> Vec<String> {
    case.input
        .quiet
        .iter()
        .flat_map(|q| writes_between(case.history, &case.input.relocator, q.from, q.to))
        .map(|e| format!("written while nothing was to do: {e}"))
        .collect()
}
