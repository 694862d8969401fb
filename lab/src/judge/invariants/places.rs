//! Invariant 5: no pod leaves before a place for it is Ready. Pure.
use std::collections::BTreeMap;

use serde_json::Value;

use crate::judge::Object;
use crate::judge::analysis::{Case, What, count};
use crate::judge::history::{Cause, Change, State};
use crate::judge::json::text;
use crate::judge::object::{Detail, Kind, Pod};
use crate::judge::owners::Owner;
use crate::judge::quantity::{Amounts, add, covers, sub};

/// 5: when we evicted a pod, or restarted an owner that had pods on selected nodes, there was a place for it: a node that
/// is Ready, not cordoned, not in deletion, not selected, initialized if it is Karpenter's, that its node selector and
/// tolerations admit, with as much free as it requests. The room of placeholders is free, as they give way: so one bound
/// placeholder of its shape is a place, and equal free room is as well.
///
/// For evictions the room must, in sum, also do for those evicted before, of owners that go to the same nodes, whose
/// successors are bound nowhere yet. Required affinity, spread and volumes are not looked at: the judge is lenient there.
pub(super) fn place_is_ready(case: &Case) -> Vec<String> {
    let mut out = Vec::new();
    let mut state = State::default();
    let mut evicted: BTreeMap<Owner, Pod> = BTreeMap::new();
    let mut used = Used::default();
    let mut deeds = case.deeds.iter().peekable();
    for (index, change) in case.history.changes.iter().enumerate() {
        if let Some(deed) = deeds.next_if(|d| d.index == index) {
            let object = &change.object;
            match deed.what {
                What::Evicted => {
                    let before = state.get(Kind::Pod, &object.uid);
                    if let Some((pod, owner)) =
                        before.and_then(|o| Some((o.pod()?, case.owners.of(o)?)))
                    {
                        if let Some(why) = no_place(case, &state, pod, &used, &evicted) {
                            out.push(format!(
                                "{object} had no place to go ({why}): {}",
                                deed.request
                            ));
                        }
                        evicted.insert(owner, pod.clone());
                    }
                }
                What::Restarted => {
                    let owner = crate::judge::owners::Owners::is(object);
                    let leaving = case
                        .owners
                        .pods(&state, &owner)
                        .find(|p| case.on_selected(&state, p))
                        .and_then(Object::pod);
                    if let Some(pod) = leaving
                        && let Some(why) = no_place(case, &state, pod, &used, &BTreeMap::new())
                    {
                        out.push(format!(
                            "{object} was restarted without a place for its pods ({why}): {}",
                            deed.request
                        ));
                    }
                }
                What::Scaled | What::Deleted => {}
            }
        }
        used.apply(case, &state, change);
        state.apply(change);
    }
    out
}

/// What pods take on each node, placeholders and finished pods left out.
#[derive(Default)]
struct Used(BTreeMap<String, Amounts>);

impl Used {
    /// Goes on by one change, of which `state` is the one before.
    fn apply(&mut self, case: &Case, state: &State, change: &Change) {
        let object = &change.object;
        if object.kind != Kind::Pod || object.namespace == case.input.placeholder_namespace {
            return;
        }
        let before = state
            .get(Kind::Pod, &object.uid)
            .and_then(|o| takes(o.pod()?));
        let after = takes_after(change);
        if before == after {
            return;
        }
        if let Some((node, requests)) = before {
            sub(self.0.entry(node.to_owned()).or_default(), requests);
        }
        if let Some((node, requests)) = after {
            add(self.0.entry(node.to_owned()).or_default(), requests);
        }
    }

    fn on(&self, node: &str) -> impl Iterator<Item = (&String, &i128)> {
        self.0.get(node).into_iter().flatten()
    }
}

fn takes_after(change: &Change) -> Option<(&str, &Amounts)> {
    takes(
        change
            .object
            .pod()
            .filter(|_| change.cause != Cause::Deleted)?,
    )
}

/// The node on which a pod takes room, and how much.
fn takes(pod: &Pod) -> Option<(&str, &Amounts)> {
    let node = pod.node.as_deref().filter(|_| !pod.finished)?;
    Some((node, &pod.requests))
}

/// Why there is no place for a pod, if there is none.
fn no_place(
    case: &Case,
    state: &State,
    pod: &Pod,
    used: &Used,
    evicted: &BTreeMap<Owner, Pod>,
) -> Option<&'static str> {
    let good: Vec<_> = state
        .all(Kind::Node)
        .filter(|n| !case.selected.contains(&n.uid) && admits(n, pod))
        .collect();
    if good.is_empty() {
        return Some("no Ready node that was not selected admits it");
    }
    let mut total = Amounts::new();
    let mut fits = false;
    for node in good {
        let mut free = node
            .node()
            .map(|n| n.allocatable.clone())
            .unwrap_or_default();
        for (resource, amount) in used.on(&node.name) {
            let left = free.entry(resource.clone()).or_default();
            *left = (*left - amount).max(0);
        }
        fits |= covers(&free, &pod.requests);
        add(&mut total, &free);
    }
    if !fits {
        return Some("no such node has room for it");
    }
    let mut needed = pod.requests.clone();
    for (owner, shape) in evicted {
        if shape.node_selector != pod.node_selector || shape.tolerations != pod.tolerations {
            continue;
        }
        let bound = case
            .owners
            .pods(state, owner)
            .filter(|p| !p.terminating && p.pod().is_some_and(|p| p.node.is_some()))
            .count();
        let wanted = case.wanted(state, owner).map_or(0, count);
        for _ in bound..wanted {
            add(&mut needed, &shape.requests);
        }
    }
    (!covers(&total, &needed)).then_some("the room is wanted by pods evicted before it")
}

fn admits(object: &Object, pod: &Pod) -> bool {
    let Detail::Node(node) = &object.detail else {
        return false;
    };
    let karpenter = object.labels.contains_key("karpenter.sh/nodepool");
    let initialized = object
        .labels
        .get("karpenter.sh/initialized")
        .map(String::as_str);
    node.ready
        && !object.terminating
        && !node.cordoned()
        && (!karpenter || initialized == Some("true"))
        && pod
            .node_selector
            .iter()
            .all(|(k, v)| object.labels.get(k) == Some(v))
        && node.taints().all(|taint| {
            text(taint, "/effect") == "PreferNoSchedule" || tolerated(taint, &pod.tolerations)
        })
}

fn tolerated(taint: &Value, tolerations: &Value) -> bool {
    let same = |t: &Value, at: &str| text(t, at) == text(taint, at);
    tolerations.as_array().into_iter().flatten().any(|t| {
        let any_key = text(t, "/key").is_empty() && text(t, "/operator") == "Exists";
        let any_effect = text(t, "/effect").is_empty();
        (any_key || same(t, "/key"))
            && (any_effect || same(t, "/effect"))
            && (text(t, "/operator") == "Exists" || same(t, "/value"))
    })
}
