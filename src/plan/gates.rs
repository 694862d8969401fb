//! The invariants of the design as functions: each says whether one step is allowed now, and if not, what it waits for. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::api::keys;
use crate::api::relocation::ReplacementStrategy;
use crate::world::{Budget, Deployment, Node, Pod, ReplicaSet, StatefulSet, Uid, WorkloadRef};

use super::index::Namespace;
use super::report::{Finding, Waiting};
use super::scene::{Scene, Selected, Work};
use super::{attach, fits, near, placement, rank, roles, system, wholeness};

/// Why a step is not allowed now.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Hold {
    /// It will be, by itself.
    Wait(Waiting),
    /// It will be at that time.
    Until(Timestamp, Waiting),
    /// It will be when somebody has done something.
    Block(Finding),
}

/// Invariants 8 and 11: only a node that is ours and cordoned is worked on.
pub(super) fn held(scene: &Scene<'_>, node: &Node) -> Result<(), Hold> {
    match &node.marks.claimed_by {
        Some(claim) if *claim == scene.claim => {}
        Some(other) => {
            return Err(Hold::Block(Finding::claimed_by_other(
                &node.name,
                &other.name,
            )));
        }
        None => return Err(Hold::Block(Finding::claim_lost(&node.name))),
    }
    if node.unschedulable {
        Ok(())
    } else {
        Err(Hold::Block(Finding::uncordoned(&node.name)))
    }
}

/// The node, or its `NodeClaim`, is being deleted.
pub(super) fn is_leaving(scene: &Scene<'_>, node: &Node) -> bool {
    node.deleting || scene.claim_of(&node.name).is_some_and(|c| c.deleting)
}

/// No selected node is open again, not even one that was emptied already: the scheduler would sooner put a moved pod there, where there is room, than
/// let it take the place of a placeholder, and the pod would have to move once more.
pub(super) fn all_closed(scene: &Scene<'_>) -> Result<(), Hold> {
    let open = |selected: &Selected<'_>| {
        let node = selected.node?;
        let open = !node.unschedulable && !is_leaving(scene, node);
        open.then(|| Hold::Block(Finding::uncordoned(&node.name)))
    };
    scene.nodes.iter().find_map(open).map_or(Ok(()), Err)
}

/// A node that pods can move to: Ready, initialized, not selected, not cordoned, not on its way out.
pub(super) fn can_host(scene: &Scene<'_>, node: &Node) -> bool {
    let initialized = !super::protect::is_karpenters(node)
        || node
            .labels
            .get(keys::INITIALIZED_LABEL)
            .is_some_and(|v| v == "true");
    node.ready
        && initialized
        && !is_leaving(scene, node)
        && !node.unschedulable
        && !scene.is_selected(node)
}

/// The placeholders of the workload that are bound to a node that pods can move to.
pub(super) fn placed(scene: &Scene<'_>, work: &Work<'_>) -> usize {
    places_of(scene, work).count()
}

/// The nodes of the placeholders of the workload that its pods can move to, each once for each placeholder.
fn places_of<'a>(scene: &Scene<'a>, work: &Work<'_>) -> impl Iterator<Item = &'a Node> {
    let placed = scene
        .placeholders_of(&work.reference.uid)
        .filter(|p| is_placed(scene, p));
    let nodes = placed.filter_map(|p| scene.node(p.node.as_ref()?));
    nodes.filter(|n| placement::admits(scene, work, n))
}

/// Bound to a node that pods can move to, with all that the node has to have first.
pub(super) fn is_placed(scene: &Scene<'_>, placeholder: &Pod) -> bool {
    placeholder
        .node
        .as_ref()
        .and_then(|n| scene.node(n))
        .is_some_and(|n| can_host(scene, n) && lacking(scene, placeholder, n).is_none())
}

/// What the node of the placeholder still lacks before its pod can come, as a sentence.
fn lacking(scene: &Scene<'_>, placeholder: &Pod, node: &Node) -> Option<String> {
    let name = &node.name;
    if let Some(daemon) = scene.daemon_to_come(name) {
        // It may yet push a placeholder out.
        let daemon = &daemon.reference;
        return Some(format!("pod {daemon} has yet to come to node {name}"));
    }
    let driver = attach::unregistered(scene, placeholder, node)?;
    Some(format!(
        "CSI driver {driver} has not registered on node {name}"
    ))
}

/// Why a placeholder that has a node is no place, as a sentence.
pub(super) fn not_yet(scene: &Scene<'_>, placeholder: &Pod) -> Option<String> {
    let name = placeholder.node.as_ref()?;
    let Some(node) = scene.node(name) else {
        return Some(format!("node {name} is gone"));
    };
    if scene.attach().is_too_much(placeholder) {
        return Some(format!(
            "node {name} can't attach the volumes of its pod beside those that it has"
        ));
    }
    if is_lost(scene, placeholder) {
        return Some(format!("node {name} is closed or on its way out"));
    }
    if !node.ready {
        return Some(format!("node {name} is not Ready"));
    }
    if !can_host(scene, node) {
        return Some(format!("Karpenter has not initialized node {name}"));
    }
    lacking(scene, placeholder, node)
}

/// Bound to a node that is gone, on its way out, closed, one of those to be emptied, or one that could not attach its pod's volumes: no
/// place, and none will come of it.
pub(super) fn is_lost(scene: &Scene<'_>, placeholder: &Pod) -> bool {
    let Some(name) = &placeholder.node else {
        return false;
    };
    // One that another relocation has claimed, and not cordoned yet, is as good a place as it was: a placeholder made anew would only
    // land there again.
    scene
        .node(name)
        .is_none_or(|node| is_leaving(scene, node) || node.unschedulable || scene.is_selected(node))
        || scene.attach().is_too_much(placeholder)
}

/// Invariant 5: no pod leaves before a place for it is ready.
pub(super) fn place(scene: &Scene<'_>, work: &Work<'_>, needed: usize) -> Result<(), Hold> {
    let none = scene.spec.replacement.strategy == ReplacementStrategy::None || work.vanishes();
    if none || placed(scene, work) >= needed {
        Ok(())
    } else {
        Err(Hold::Wait(Waiting::Place(work.reference.clone())))
    }
}

/// As [`place`], for one pod: where something binds it to some nodes, such as its volumes, one of the places is on such a node.
pub(super) fn place_for(scene: &Scene<'_>, work: &Work<'_>, pod: &Pod) -> Result<(), Hold> {
    place(scene, work, 1)?;
    let mirrored = scene.spec.replacement.strategy != ReplacementStrategy::None;
    let Some(nodes) = near::nodes(scene, work, pod).filter(|_| mirrored) else {
        return Ok(());
    };
    if work.vanishes() {
        return Ok(());
    }
    if places_of(scene, work).any(|node| fits::matches(&nodes, node)) {
        Ok(())
    } else {
        Err(Hold::Wait(Waiting::Place(work.reference.clone())))
    }
}

/// How many pods of the workload have a place now.
pub(super) fn places(scene: &Scene<'_>, work: &Work<'_>) -> usize {
    match scene.spec.replacement.strategy {
        ReplacementStrategy::None => usize::MAX,
        ReplacementStrategy::Mirror => placed(scene, work),
    }
}

/// Invariants 3 and 4: a pod leaves only when the one before is Ready elsewhere and its owner has all its replicas.
///
/// Pods that are not Ready on a selected node do not hold up: being moved may be what they need.
pub(super) fn predecessor_ready(work: &Work<'_>) -> Result<(), Hold> {
    if let Some(stopping) = work.left.iter().find(|p| p.terminating) {
        return Err(Hold::Wait(Waiting::Stopping {
            pod: stopping.reference.clone(),
            finalizers: stopping.finalizers.clone(),
        }));
    }
    let ready = work
        .left
        .iter()
        .chain(&work.elsewhere)
        .filter(|p| p.ready)
        .count();
    let sick = work.staying().filter(|p| !p.ready).count();
    if sick == 0
        && work.whole_itself()
        && let Some(waiting) = wholeness::unwell(work)
    {
        return Err(Hold::Wait(waiting));
    }
    let whole = if sick == 0 {
        work.whole()
    } else {
        work.ending() == 0 && ready + sick >= work.replicas()
    };
    if whole {
        Ok(())
    } else {
        Err(Hold::Wait(wholeness::not_whole(work, ready)))
    }
}

/// `workloads.settleSeconds` since the last of its moved pods became Ready.
pub(super) fn settled(scene: &Scene<'_>, work: &Work<'_>) -> Result<(), Hold> {
    let settle = SignedDuration::from_secs(i64::from(scene.spec.workloads.settle_seconds));
    let started = scene
        .world
        .relocation
        .status
        .as_ref()
        .and_then(|s| s.start_time.as_ref())
        .map(|t| t.0);
    // Only pods that came since we began have been moved.
    let moved = work.elsewhere.iter().filter(|p| p.created >= started);
    let Some(last) = moved.filter_map(|p| p.ready_since).max() else {
        return Ok(());
    };
    let due = last.saturating_add(settle).unwrap_or(Timestamp::MAX);
    if due <= scene.world.now {
        Ok(())
    } else {
        Err(Hold::Until(due, Waiting::Settling(work.reference.clone())))
    }
}

/// The one that leads waits for those that follow it, also where each is a workload of its own under one controller.
fn followers(scene: &Scene<'_>, work: &Work<'_>) -> Result<(), Hold> {
    let leads = |work: &Work<'_>| work.staying().any(roles::leads);
    if work.parent.is_none() || !leads(work) {
        return Ok(());
    }
    let parent = |work: &Work<'_>| work.parent.map(|parent| parent.owner.uid.clone());
    let follows = |other: &Work<'_>| {
        other.rank == work.rank
            && parent(other).is_some()
            && parent(other) == parent(work)
            && leads(work)
            && !leads(other)
    };
    let earlier = |other: &&Work<'_>| follows(other) && !other.rests();
    match scene.works.iter().find(earlier) {
        None => Ok(()),
        Some(first) => Err(Hold::Wait(Waiting::Order {
            workload: work.reference.clone(),
            first: first.reference.to_string(),
            more: 0,
            why: "it leads the others of its owner",
        })),
    }
}

/// Invariant 3: workloads that share a budget take turns, whoever moves the other one; and so does what the cluster itself lives on.
///
/// `started` are the workloads that begin to move in this pass, which the world does not show yet.
pub(super) fn turn(scene: &Scene<'_>, work: &Work<'_>, started: &[Uid]) -> Result<(), Hold> {
    rank::turn(scene, work)?;
    near::turn(scene, work)?;
    followers(scene, work)?;
    system::turn(scene, work, started)?;
    let own = work.pods();
    let is_own = |pod: &Pod| own.iter().any(|p| p.reference.uid == pod.reference.uid);
    let waits = |shared: String| {
        Err(Hold::Wait(Waiting::Turn {
            workload: work.reference.clone(),
            shared,
        }))
    };
    let moving = |pod: &Pod| pod.terminating || (!pod.ready && !pod.finished);
    // All in one namespace, but for an owner that is in none itself.
    let namespaces: BTreeSet<_> = own.iter().map(|p| p.reference.namespace.as_str()).collect();
    for namespace in namespaces.into_iter().filter_map(|n| scene.namespace(n)) {
        for budget in &namespace.budgets {
            if !own.iter().any(|p| budget.covers(p)) {
                continue;
            }
            let mut covered = namespace.pods.iter().filter(|p| budget.covers(p));
            // Of those whose owner says nothing that is watched, their pods tell.
            let begins = |other: &Work<'_>| {
                started.contains(&other.reference.uid)
                    && other.pods().iter().any(|p| budget.covers(p))
            };
            // Pods that all serve are not enough: one that is gone has yet to come again, and a count that was lowered has yet to take some.
            if covered.any(|p| moving(p) && !is_own(p))
                || scene.works.iter().any(begins)
                || others_in_motion(scene, namespace, work, budget, started)
            {
                return waits(budget.to_string());
            }
        }
    }
    Ok(())
}

/// Another workload under the budget begins to move, or is about to make or to take away pods: a rollout, a surge, a replica that is
/// missing, a count that it has not followed yet.
fn others_in_motion(
    scene: &Scene<'_>,
    namespace: &Namespace<'_>,
    work: &Work<'_>,
    budget: &Budget,
    started: &[Uid],
) -> bool {
    let other = |reference: &WorkloadRef, labels: &BTreeMap<String, String>| {
        reference.uid != work.reference.uid && budget.selects(&reference.namespace, labels)
    };
    // The owner's own word and that of its pods come by two watches: the one that is behind must not be believed alone.
    let has = |reference: &WorkloadRef, replicas: u32| {
        scene.ready_of(&reference.uid) >= replicas as usize
    };
    let begins = |reference: &WorkloadRef| started.contains(&reference.uid);
    let deployment = |d: &&Deployment| {
        let rests = d.surge.is_none()
            && (d.rolled_out() || d.rests_paused())
            && has(&d.reference, d.replicas);
        other(&d.reference, &d.pod_labels) && (begins(&d.reference) || !rests)
    };
    let set = |r: &&ReplicaSet| {
        let rests = r.observed && r.existing == r.replicas && has(&r.reference, r.replicas);
        other(&r.reference, &r.pod_labels)
            && r.controller.is_none()
            && (begins(&r.reference) || !rests)
    };
    let stateful = |s: &&StatefulSet| {
        let rests = s.observed
            && s.rolled_out
            && s.available >= s.replicas
            && has(&s.reference, s.replicas);
        other(&s.reference, &s.pod_labels) && (begins(&s.reference) || !rests)
    };
    namespace.deployments.iter().any(deployment)
        || namespace.replica_sets.iter().any(set)
        || namespace.stateful_sets.iter().any(stateful)
}

/// Invariant 3: every budget of the workload can spare now as many pods as its restart lets be missing.
pub(super) fn restart_within_budgets(
    scene: &Scene<'_>,
    work: &Work<'_>,
    missing: u32,
) -> Result<(), Hold> {
    let missing = i32::try_from(missing).unwrap_or(i32::MAX);
    for pod in work.pods() {
        let mut covering = scene.budgets_of(pod);
        if let Some(budget) = covering.find(|b| !b.observed || b.disruptions_allowed < missing) {
            if budget.observed && budget.spares_at_most() < missing {
                return Err(Hold::Block(Finding::budget_never_allows(
                    &pod.reference,
                    budget,
                )));
            }
            return Err(Hold::Wait(Waiting::Budget {
                pod: pod.reference.clone(),
                budget: budget.to_string(),
                healthy: budget.current_healthy,
                desired: budget.desired_healthy,
            }));
        }
    }
    Ok(())
}

/// Invariant 3: the budget allows the eviction as far as is known. The API server decides; this only saves it from being asked in vain.
pub(super) fn budget(scene: &Scene<'_>, work: &Work<'_>, pod: &Pod) -> Result<(), Hold> {
    // What has never run is no loss: the eviction API does not ask any budget.
    if pod.pending {
        return Ok(());
    }
    let budgets: Vec<_> = scene.budgets_of(pod).collect();
    if budgets.len() > 1 {
        let names: Vec<_> = budgets.iter().map(ToString::to_string).collect();
        return Err(Hold::Block(Finding::several_budgets(
            &pod.reference,
            &names,
        )));
    }
    if let Some(budget) = budgets.first().filter(|b| b.keeps_unhealthy(pod)) {
        return Err(Hold::Block(Finding::unhealthy_pod_guarded(
            &pod.reference,
            budget,
        )));
    }
    let Some(budget) = budgets
        .first()
        .filter(|b| pod.ready && b.disruptions_allowed < 1)
    else {
        return Ok(());
    };
    Err(if budget.never_allows() && roles::leads_others(work, pod) {
        Hold::Block(Finding::lead_guarded(&pod.reference, budget))
    } else if budget.never_allows() {
        Hold::Block(Finding::budget_never_allows(&pod.reference, budget))
    } else {
        Hold::Wait(Waiting::Budget {
            pod: pod.reference.clone(),
            budget: budget.to_string(),
            healthy: budget.current_healthy,
            desired: budget.desired_healthy,
        })
    })
}

/// Invariant 6, the part that is in the cache: nothing that counts is left on the node. Fresh reads have the last word.
pub(super) fn looks_empty(selected: &Selected<'_>) -> bool {
    selected.left().next().is_none()
}
