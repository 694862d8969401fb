//! Stages from Moving on: pods leave, each node goes on as soon as it is empty. Pure.

use crate::api::status::{MoveStrategy, Stage, WorkloadState, WorkloadStatus};
use crate::world::{Deployment, Pod, RolloutStrategy};

use super::draft::Draft;
use super::gates::{self, Hold};
use super::report::{Blocker, Waiting};
use super::scene::{Owner, Scene, Work};
use super::treatment::Treatment;
use super::{Action, drain, protect, provision, restore, strategy};

/// Moves what may move now, and takes each node as far as it can go.
pub(super) fn step(scene: &Scene<'_>, draft: &mut Draft) {
    adopt(scene, draft);
    if draft
        .status
        .nodes
        .iter()
        .any(|n| n.stage < Stage::Restoring)
    {
        protect::pods(scene, draft);
    }
    provision::maintain(scene, draft);
    let mut slots = (scene.spec.workloads.max_concurrent as usize)
        .saturating_sub(scene.works.iter().map(Work::on_the_move).sum());
    for work in &scene.works {
        let state = advance(scene, draft, work, &mut slots);
        if let Some(record) = draft
            .status
            .workloads
            .iter_mut()
            .find(|r| r.uid == work.reference.uid.as_str())
        {
            let left = u32::try_from(work.left.len()).unwrap_or(u32::MAX);
            // A workload that was scaled up between the plan and the cordon has more to move than was planned.
            record.pods = record.pods.max(left);
            record.moved = record.pods - left;
            record.state = state;
        }
    }
    leftover(scene, draft);
    drain::step(scene, draft);
    let furthest_behind = draft
        .status
        .nodes
        .iter()
        .map(|n| n.stage)
        .min()
        .unwrap_or(Stage::Restoring);
    draft.stage = furthest_behind;
    let all_moved = draft
        .status
        .workloads
        .iter()
        .all(|w| w.state == WorkloadState::Moved);
    if furthest_behind == Stage::Restoring && all_moved {
        restore::finish(scene, draft);
    }
}

/// Workloads that came after the plan, by a pod that landed on a selected node before the cordon, are planned now.
pub(super) fn adopt(scene: &Scene<'_>, draft: &mut Draft) {
    for work in scene.works.iter().filter(|w| w.record.is_none()) {
        match strategy::resolve(scene.cluster, scene.spec.workloads.strategy, work) {
            Ok(choice) => draft.status.workloads.push(WorkloadStatus {
                kind: work.reference.kind.to_string(),
                namespace: work.reference.namespace.clone(),
                name: work.reference.name.clone(),
                uid: work.reference.uid.to_string(),
                strategy: choice.strategy,
                why: choice.why,
                pods: u32::try_from(work.left.len()).unwrap_or(u32::MAX),
                moved: 0,
                state: WorkloadState::Pending,
            }),
            Err(blocker) => draft.block(blocker),
        }
    }
}

/// Pods that no workload moves: they block, or are waited for.
fn leftover(scene: &Scene<'_>, draft: &mut Draft) {
    for selected in &scene.nodes {
        let Some(node) = selected.node else { continue };
        for (_, treatment) in &selected.pods {
            match treatment {
                Treatment::Stuck(blocker) => draft.block(blocker.clone()),
                Treatment::Waits { job } => draft.wait(Waiting::Job {
                    job: job.clone(),
                    node: node.name.clone(),
                }),
                Treatment::Moves(_) | Treatment::Stays | Treatment::Finished => {}
            }
        }
    }
}

/// Records what holds a step up.
pub(super) fn hold(draft: &mut Draft, hold: Hold) {
    match hold {
        Hold::Wait(waiting) => draft.wait(waiting),
        Hold::Until(at, waiting) => {
            draft.look_at(at);
            draft.wait(waiting);
        }
        Hold::Block(blocker) => draft.block(blocker),
    }
}

fn advance(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    slots: &mut usize,
) -> WorkloadState {
    // A workload that is adopted in this pass starts in the next, when its strategy is recorded.
    let Some(record) = work.record else {
        return WorkloadState::Pending;
    };
    if record.state == WorkloadState::Moved && work.left.is_empty() {
        return WorkloadState::Moved;
    }
    if work.left.is_empty() {
        return arrive(draft, work);
    }
    let outcome = match (record.strategy, work.owner) {
        (MoveStrategy::RolloutRestart, Owner::Deployment(deployment)) => {
            restart(scene, draft, work, deployment, slots)
        }
        (MoveStrategy::RolloutRestart | MoveStrategy::Evict, _) => evict(scene, draft, work, slots),
    };
    match outcome {
        Ok(()) => WorkloadState::Moving,
        Err(reason) => {
            let blocked = matches!(reason, Hold::Block(_));
            hold(draft, reason);
            match (blocked, record.state) {
                (true, _) => WorkloadState::Blocked,
                (false, WorkloadState::Blocked) if work.on_the_move() > 0 => WorkloadState::Moving,
                (false, WorkloadState::Blocked) => WorkloadState::Pending,
                (false, state) => state,
            }
        }
    }
}

/// Nothing is left on the selected nodes: it has moved once it is whole.
fn arrive(draft: &mut Draft, work: &Work<'_>) -> WorkloadState {
    if work.whole() {
        return WorkloadState::Moved;
    }
    if let Owner::Deployment(deployment) = work.owner
        && deployment.deadline_exceeded
    {
        draft.block(Blocker::rollout_failed(&work.reference));
        return WorkloadState::Blocked;
    }
    let ready = work.elsewhere.iter().filter(|p| p.ready).count();
    draft.wait(Waiting::Whole {
        workload: work.reference.clone(),
        ready,
        replicas: work.replicas(),
    });
    WorkloadState::Moving
}

/// Evicts the next pod of the workload.
fn evict(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    slots: &mut usize,
) -> Result<(), Hold> {
    gates::predecessor_ready(work)?;
    gates::settled(scene, work)?;
    let Some(pod) = next_pod(work) else {
        return Ok(());
    };
    let node = pod.node.as_ref().and_then(|n| scene.node(n));
    let Some(node) = node else { return Ok(()) };
    gates::held(scene, node)?;
    gates::place(scene, work, 1)?;
    gates::budget(scene, pod)?;
    gates::turn(scene, work)?;
    take(slots, 1, work)?;
    draft.act(Action::Evict {
        pod: pod.reference.clone(),
        node: node.name.clone(),
    });
    Ok(())
}

/// Pods that are not Ready first, for they serve nobody; then the highest ordinal, as a `StatefulSet` updates; then by name.
fn next_pod<'a>(work: &Work<'a>) -> Option<&'a Pod> {
    let ordinal = |pod: &Pod| {
        pod.reference
            .name
            .rsplit_once('-')
            .and_then(|(_, n)| n.parse::<u32>().ok())
    };
    let stateful = matches!(work.owner, Owner::StatefulSet(_));
    work.staying().min_by_key(|pod| {
        (
            pod.ready,
            if stateful {
                std::cmp::Reverse(ordinal(pod))
            } else {
                std::cmp::Reverse(None)
            },
            pod.reference.clone(),
        )
    })
}

/// Restarts the Deployment once, and waits until none of the pods that it had on selected nodes is left.
fn restart(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    deployment: &Deployment,
    slots: &mut usize,
) -> Result<(), Hold> {
    let value = restarted_at(scene);
    if deployment.restarted_at.as_ref() == Some(&value) {
        if deployment.deadline_exceeded {
            return Err(Hold::Block(Blocker::rollout_failed(&work.reference)));
        }
        if work.whole() {
            // The rollout is over and pods are here all the same: they came here before the cordon was seen. One by one, then.
            return evict(scene, draft, work, slots);
        }
        draft.wait(Waiting::Restarted(work.reference.clone()));
        return Ok(());
    }
    let restarted_before = scene.cluster.replica_sets.values().any(|set| {
        set.controller
            .as_ref()
            .is_some_and(|c| c.uid == work.reference.uid)
            && set.restarted_at.as_ref() == Some(&value)
    });
    if restarted_before {
        return Err(Hold::Block(Blocker::restart_reverted(&work.reference)));
    }
    if deployment.paused {
        return Err(Hold::Block(Blocker::owner_paused(&work.reference)));
    }
    if !deployment.rolled_out() {
        return Err(Hold::Block(Blocker::rollout_in_progress(&work.reference)));
    }
    gates::predecessor_ready(work)?;
    for node in work
        .left
        .iter()
        .filter_map(|p| scene.node(p.node.as_ref()?))
    {
        gates::held(scene, node)?;
    }
    gates::place(scene, work, work.left.len())?;
    gates::turn(scene, work)?;
    let at_once = match deployment.strategy {
        RolloutStrategy::Recreate => work.replicas(),
        RolloutStrategy::RollingUpdate {
            max_surge,
            max_unavailable,
        } => max_surge.saturating_add(max_unavailable) as usize,
    };
    take(slots, at_once.clamp(1, work.left.len().max(1)), work)?;
    draft.act(Action::Restart {
        workload: work.reference.clone(),
        resource_version: deployment.resource_version.clone(),
        restarted_at: value,
    });
    Ok(())
}

/// Takes slots of `workloads.maxConcurrent`. A restart that needs more than there are in all goes when nothing else moves.
fn take(slots: &mut usize, wanted: usize, work: &Work<'_>) -> Result<(), Hold> {
    let limit_is_free = *slots > 0;
    if *slots >= wanted
        || (limit_is_free && wanted > *slots && work.on_the_move() == 0 && wanted_is_atomic(work))
    {
        *slots = slots.saturating_sub(wanted);
        Ok(())
    } else {
        Err(Hold::Wait(Waiting::Slot(work.reference.clone())))
    }
}

/// A restart cannot be divided: its own surge decides how many pods move at a time.
fn wanted_is_atomic(work: &Work<'_>) -> bool {
    work.record
        .is_some_and(|r| r.strategy == MoveStrategy::RolloutRestart)
}

/// The value of the restart annotation: a time, as everybody who reads it expects, that follows from the relocation alone, so that a
/// second write of it changes nothing. The fraction of the second tells apart two relocations that started in the same one.
fn restarted_at(scene: &Scene<'_>) -> String {
    let started = scene
        .world
        .relocation
        .status
        .as_ref()
        .and_then(|s| s.start_time.as_ref())
        .map_or(scene.world.now, |t| t.0);
    // FNV-1a, 64 bit.
    let hash = scene
        .claim
        .uid
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
    format!(
        "{}.{:06}Z",
        started.strftime("%Y-%m-%dT%H:%M:%S"),
        hash % 1_000_000
    )
}
