//! Invariants 1, 2 and 4: how pods leave. Pure.
use std::collections::{BTreeMap, BTreeSet};

use crate::judge::Object;
use crate::judge::analysis::{Case, Deed, What, begins_to_leave, count};
use crate::judge::audit::AuditEvent;
use crate::judge::history::{Cause, Change, State};
use crate::judge::object::{Kind, Uid};

/// The program that deletes pods for their owners.
const CONTROLLERS: &str = "kube-controller-manager";

/// 1: no delete of pods by us outside the namespace of the placeholders, also not one that was refused; each eviction,
/// where its body is known, names the UID and has no grace period of ours.
pub(super) fn leave_by_eviction(case: &Case) -> Vec<String> {
    let mut out = Vec::new();
    for request in case.our_requests().filter(|e| e.resource == "pods") {
        let plain = matches!(request.verb.as_str(), "delete" | "deletecollection")
            && request.subresource.is_empty();
        if plain && request.namespace != case.input.placeholder_namespace {
            out.push(format!("a plain delete: {request}"));
        }
        if !request.is_eviction() {
            continue;
        }
        if request.is_by_name_alone() {
            out.push(format!("an eviction without preconditions.uid: {request}"));
        }
        let grace = request
            .body
            .as_ref()
            .and_then(|b| b.pointer("/deleteOptions/gracePeriodSeconds"))
            .filter(|g| !g.is_null());
        if let Some(grace) = grace {
            out.push(format!(
                "an eviction with a grace period of {grace} s: {request}"
            ));
        }
    }
    out
}

/// 2: each pod that we evicted was on a selected node; and no controller removed a pod of another node after we had
/// changed the owner's replica count (last of all who did) without a restart.
pub(super) fn only_selected_nodes(case: &Case) -> Vec<String> {
    let mut out = Vec::new();
    let mut state = State::default();
    let mut ours = OurOwners::default();
    let mut deeds = case.deeds.iter().peekable();
    for (index, change) in case.history.changes.iter().enumerate() {
        let object = &change.object;
        let deed = deeds.next_if(|d| d.index == index);
        if let Some(before) = state.get(object.kind, &object.uid) {
            ours.note(before, change, deed);
            let outside = object.kind == Kind::Pod && !case.on_selected(&state, before);
            if outside && let Some(deed) = deed.filter(|d| d.what == What::Evicted) {
                let node = before.pod().and_then(|p| p.node.as_deref());
                let place = node.map_or_else(
                    || "bound to no node".to_owned(),
                    |n| format!("on {n}, which was not selected"),
                );
                out.push(format!("{before} was {place}: {}", deed.request));
            }
            if outside && let Some(request) = ours.blamed(case, before, change) {
                out.push(format!(
                    "{before} was not on a selected node and was removed at {} after {request}",
                    change.at
                ));
            }
        }
        state.apply(change);
    }
    out
}

/// The owners that we restarted, and those of which we set the replica count last.
#[derive(Default)]
struct OurOwners<'a> {
    restarted: BTreeSet<&'a Uid>,
    scaled: BTreeMap<&'a Uid, &'a AuditEvent>,
}

impl<'a> OurOwners<'a> {
    fn note(&mut self, before: &Object, change: &'a Change, deed: Option<&Deed<'a>>) {
        let uid = &change.object.uid;
        let replicas = |o: &Object| o.workload().and_then(|w| w.replicas);
        match deed.map(|d| (d.what, d.request)) {
            Some((What::Restarted, _)) => {
                self.restarted.insert(uid);
            }
            Some((What::Scaled, request)) => {
                self.scaled.insert(uid, request);
            }
            _ if replicas(before) != replicas(&change.object) => {
                // Somebody else had the last word.
                self.scaled.remove(uid);
            }
            _ => {}
        }
    }

    /// The scaling of ours through which a controller removed a pod that was there at the start.
    fn blamed(&self, case: &Case, pod: &Object, change: &Change) -> Option<&'a AuditEvent> {
        if !begins_to_leave(pod, change) || case.start.get(Kind::Pod, &pod.uid).is_none() {
            return None;
        }
        let owner = case.owners.of_live(pod)?;
        let request = self.scaled.get(&owner.uid)?;
        let by_controller = case
            .writes_before(change)
            .any(|e| e.agent() == CONTROLLERS && e.verb == "delete");
        (by_controller && !self.restarted.contains(&owner.uid)).then_some(request)
    }
}

/// 4: when we evict a pod of a `StatefulSet`, all its others serve, or, where it does not serve itself, are at least there; no two pods of one ordinal exist; and no pod of one
/// that runs is gone without having stopped through a request of ours.
pub(super) fn one_of_a_stateful_set(case: &Case) -> Vec<String> {
    let mut out = Vec::new();
    let mut state = State::default();
    let mut deeds = case.deeds.iter().peekable();
    for (index, change) in case.history.changes.iter().enumerate() {
        let object = &change.object;
        let deed = deeds.next_if(|d| d.index == index);
        let of_set = object
            .controller()
            .is_some_and(|c| c.kind == Kind::StatefulSet.to_string());
        if object.kind == Kind::Pod && of_set {
            match state.get(Kind::Pod, &object.uid) {
                Some(pod) => {
                    if let Some(deed) = deed.filter(|d| d.what == What::Evicted) {
                        out.extend(not_alone(case, &state, pod, deed.request));
                    }
                    if change.cause == Cause::Deleted
                        && pod.is_ready_pod()
                        && let Some(request) = case.writes_before(change).find(|e| case.ours(e))
                    {
                        out.push(format!(
                            "{pod} ran and is gone without having stopped, so a second {} may run beside it: {request}",
                            pod.name
                        ));
                    }
                }
                None => out.extend(twin(&state, change)),
            }
        }
        state.apply(change);
    }
    out
}

/// The pods of a set that did not serve when another one was evicted.
fn not_alone(case: &Case, state: &State, pod: &Object, request: &AuditEvent) -> Option<String> {
    let owner = case.owners.of_live(pod)?;
    let wanted = case.wanted(state, &owner)?;
    let (serving, down): (Vec<_>, Vec<_>) = case
        .owners
        .pods(state, &owner)
        .filter(|p| p.uid != pod.uid)
        .partition(|p| p.is_ready_pod());
    // A pod that did not serve is no loss; then others that do not serve either may be left where they are, but none may be on its way.
    let staying = if pod.is_ready_pod() {
        0
    } else {
        down.iter().filter(|p| !p.terminating).count()
    };
    if serving.len() + staying + 1 >= count(wanted) {
        return None;
    }
    let down: Vec<_> = down
        .iter()
        .map(|p| {
            let how = if p.terminating {
                "terminating"
            } else {
                "not Ready"
            };
            format!("{} is {how}", p.name)
        })
        .collect();
    let down = if down.is_empty() {
        "the rest is missing".to_owned()
    } else {
        down.join(", ")
    };
    Some(format!(
        "only {} of the {} other pods of {owner} served ({down}): {request}",
        serving.len(),
        wanted.saturating_sub(1)
    ))
}

/// Another pod of the same name as one that is created.
fn twin(state: &State, change: &Change) -> Option<String> {
    let object = &change.object;
    let twin = state.named(Kind::Pod, &object.namespace, &object.name)?;
    (change.cause != Cause::Deleted).then(|| {
        format!(
            "{object} exists twice at {}: {} and {}",
            change.at, twin.uid, object.uid
        )
    })
}
