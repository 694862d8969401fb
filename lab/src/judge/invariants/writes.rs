//! Invariants 7, 9 and 10: what is written, and what is left of it. Pure.
use std::collections::{BTreeMap, BTreeSet};

use super::writes_between;
use crate::judge::analysis::{Case, What};
use crate::judge::history::Cause;
use crate::judge::left_behind::left_behind;
use crate::judge::object::{Kind, Uid};

/// The one annotation of others that we also set.
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// 7: nothing is left behind, and a do-not-disrupt that was there at the start mark and that we changed has its value back.
pub(super) fn nothing_left_behind(case: &Case) -> Vec<String> {
    let mut out = left_behind(case);
    for object in case.start.everything() {
        let Some(was) = object.annotations.get(DO_NOT_DISRUPT) else {
            continue;
        };
        let Some(end) = case.end.get(object.kind, &object.uid) else {
            continue;
        };
        let is = end.annotations.get(DO_NOT_DISRUPT);
        if is == Some(was) {
            continue;
        }
        // The change to the last value tells who is to blame.
        let mut value = Some(was);
        let mut blamed = None;
        for change in case.history.changes.iter().filter(|c| {
            c.object.uid == object.uid && c.cause == Cause::Modified && c.at > case.from
        }) {
            let to = change.object.annotations.get(DO_NOT_DISRUPT);
            if std::mem::replace(&mut value, to) != to {
                blamed = case.our_write_of(change, "do-not-disrupt");
            }
        }
        if let Some(request) = blamed {
            out.push(format!(
                "{object}: annotation {DO_NOT_DISRUPT} was {was:?} and is {}: {request}",
                is.map_or_else(|| "gone".to_owned(), |v| format!("{v:?}"))
            ));
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
