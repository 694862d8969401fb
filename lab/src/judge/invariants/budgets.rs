//! Invariant 3: budgets hold, and owners that share one take turns. Pure.
use std::collections::{BTreeMap, BTreeSet};

use crate::judge::Object;
use crate::judge::analysis::{Case, Deed, What, begins_to_leave, count};
use crate::judge::audit::AuditEvent;
use crate::judge::history::{Change, State};
use crate::judge::object::{Kind, Uid};
use crate::judge::owners::{Owner, Owners, workload};

/// An owner that we set in motion and that is not whole again.
struct Moving<'a> {
    request: &'a AuditEvent,
    /// By its owner's rollout: restart or scale.
    rollout: bool,
}

/// 3: no pod that served left, through an eviction, restart or scaling of ours, so that its budget had fewer healthy pods
/// than its desiredHealthy at that time, unless a rollout or scaling took it and its owner has all the Ready pods without it that others than
/// we have asked of it: a count that somebody set below the budget is theirs; and none of these was begun for an owner while another one, of which a pod is
/// selected by the same budget, was not whole again after an earlier one: all its replicas Ready, the rollout over, the
/// replica count not above that of the start.
pub(super) fn budgets_hold(case: &Case) -> Vec<String> {
    let mut out = Vec::new();
    let mut state = State::default();
    let mut moving: BTreeMap<Owner, Moving> = BTreeMap::new();
    let mut asked: BTreeMap<Uid, u32> = BTreeMap::new();
    let mut deeds = case.deeds.iter().peekable();
    for (index, change) in case.history.changes.iter().enumerate() {
        let deed = deeds.next_if(|d| d.index == index);
        out.extend(below_budget(case, &state, change, deed, &moving, &asked));
        if deed.is_none_or(|d| d.what != What::Scaled) {
            asked.extend(count_asked(&state, &change.object));
        }
        let owner = owner_of(case, &change.object);
        if let (Some(deed), Some(owner)) = (deed, &owner) {
            for (other, earlier) in moving.iter().filter(|(o, _)| *o != owner) {
                if let Some(budget) = shared_budget(case, &state, owner, other) {
                    out.push(format!(
                        "{owner} was moved by {} while {other}, which shares {budget}, was not whole again after {}",
                        deed.request, earlier.request
                    ));
                }
            }
            let entry = moving.entry(owner.clone()).or_insert(Moving {
                request: deed.request,
                rollout: false,
            });
            entry.request = deed.request;
            entry.rollout |= deed.what != What::Evicted;
        }
        state.apply(change);
        if let Some(owner) = owner
            && moving
                .get(&owner)
                .is_some_and(|m| whole(case, &state, &owner, m))
        {
            moving.remove(&owner);
        }
    }
    out
}

/// The count of a workload that is new or that was set anew.
fn count_asked(before: &State, object: &Object) -> Option<(Uid, u32)> {
    let now = object.workload()?.replicas?;
    let before = before.get(object.kind, &object.uid);
    let was = before.and_then(|o| o.workload()?.replicas);
    (was != Some(now)).then(|| (object.uid.clone(), now))
}

/// The owner that a pod or workload is about.
fn owner_of(case: &Case, object: &Object) -> Option<Owner> {
    match object.kind {
        Kind::Pod => case.owners.of(object),
        Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet => Some(Owners::is(object)),
        _ => None,
    }
}

fn whole(case: &Case, state: &State, owner: &Owner, moving: &Moving) -> bool {
    let rolled_out = !moving.rollout
        || workload(state, owner)
            .and_then(Object::workload)
            .is_none_or(|w| {
                let at_start = case.baseline.get(owner).copied();
                w.rolled_out && at_start.is_none_or(|n| w.replicas.is_none_or(|now| now <= n))
            });
    rolled_out && case.has_all_replicas(state, owner)
}

fn below_budget(
    case: &Case,
    state: &State,
    change: &Change,
    deed: Option<&Deed>,
    moving: &BTreeMap<Owner, Moving>,
    asked: &BTreeMap<Uid, u32>,
) -> Vec<String> {
    let Some(pod) = state.get(Kind::Pod, &change.object.uid) else {
        return Vec::new();
    };
    if !begins_to_leave(pod, change) || !pod.is_ready_pod() {
        return Vec::new();
    }
    let request = match deed {
        Some(deed) => deed.request,
        None => match case.owners.of(pod).and_then(|o| moving.get(&o)) {
            Some(m) if m.rollout && !by_somebody_else(case, change) => m.request,
            _ => return Vec::new(),
        },
    };
    if deed.is_none() && is_surplus(case, state, pod, asked) {
        return Vec::new();
    }
    state
        .all(Kind::PodDisruptionBudget)
        .filter(|b| b.namespace == pod.namespace)
        .filter_map(|b| {
            let budget = b.budget().filter(|x| x.selects(&pod.labels))?;
            let desired = budget.desired_healthy?;
            let healthy = state
                .all(Kind::Pod)
                .filter(|p| p.namespace == b.namespace && p.uid != pod.uid && p.is_ready_pod())
                .filter(|p| budget.selects(&p.labels))
                .count();
            (healthy < count(desired)).then(|| {
                format!(
                    "{b} had {healthy} healthy pods of {desired} when {pod} left through {request}"
                )
            })
        })
        .collect()
}

/// Whether the owner of a Ready pod has as many others, Ready, as it was asked to have.
fn is_surplus(case: &Case, state: &State, pod: &Object, asked: &BTreeMap<Uid, u32>) -> bool {
    let owner = case.owners.of(pod);
    let asked = |owner: &Owner| asked.get(&owner.uid).copied();
    owner.is_some_and(|owner| {
        asked(&owner).is_some_and(|asked| case.ready(state, &owner) > count(asked))
    })
}

/// Whether a pod was removed by somebody who is neither us nor a controller.
fn by_somebody_else(case: &Case, change: &Change) -> bool {
    case.writes_before(change)
        .filter(|e| e.verb == "delete" || e.is_eviction())
        .any(|e| !case.ours(e) && e.agent() != "kube-controller-manager")
}

/// A budget that selects pods of both.
fn shared_budget(case: &Case, state: &State, a: &Owner, b: &Owner) -> Option<String> {
    if a.namespace != b.namespace {
        return None;
    }
    let labels = |o: &Owner| -> BTreeSet<_> {
        let pods = case
            .owners
            .pods(state, o)
            .chain(case.owners.pods(&case.start, o));
        pods.map(|p| p.labels.clone()).collect()
    };
    let (of_a, of_b) = (labels(a), labels(b));
    state
        .all(Kind::PodDisruptionBudget)
        .filter(|x| x.namespace == a.namespace)
        .find(|x| {
            x.budget().is_some_and(|budget| {
                of_a.iter().any(|l| budget.selects(l)) && of_b.iter().any(|l| budget.selects(l))
            })
        })
        .map(ToString::to_string)
}
