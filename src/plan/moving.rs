//! Stages from Moving on: pods leave, each node goes on as soon as it is empty. Pure.

use crate::api::status::{MoveStrategy, Stage, WorkloadState};

use crate::world::Uid;

use super::draft::Draft;
use super::gates::Hold;
use super::report::{Blocker, Waiting};
use super::scene::{Owner, Scene, Work};
use super::treatment::Treatment;
use super::{drain, evict, listed, protect, provision, restart, restore, surge, wake};

/// Moves what may move now, and takes each node as far as it can go.
pub(super) fn step(scene: &Scene<'_>, draft: &mut Draft) {
    listed::adopt(scene, draft);
    if draft
        .status
        .nodes
        .iter()
        .any(|n| n.stage < Stage::Restoring)
    {
        protect::pods(scene, draft);
    }
    provision::maintain(scene, draft);
    wake::scheduler(scene, draft);
    let on_the_move: usize = scene.works.iter().map(Work::on_the_move).sum();
    let most = scene.spec.workloads.max_concurrent as usize;
    let mut slots = Slots {
        free: most.saturating_sub(on_the_move),
        started: Vec::new(),
    };
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
            let arriving = u32::try_from(work.missing()).unwrap_or(u32::MAX);
            let gone = record.pods - left;
            // What has moved has moved, also when another relocation takes a pod of the same workload after us.
            record.moved = gone.saturating_sub(arriving).max(record.moved).min(gone);
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
    slots: &mut Slots,
) -> WorkloadState {
    // A workload that is listed in this pass starts in the next, when its strategy is recorded.
    let Some(record) = work.record else {
        return WorkloadState::Pending;
    };
    let surging = match work.owner {
        Owner::Deployment(deployment) => surge::ours(scene, deployment),
        Owner::ReplicaSet(_) | Owner::StatefulSet(_) | Owner::Gone => None,
    };
    surge::record(draft, work, surging.map(|mark| mark.from));
    if surging.is_none() && work.left.is_empty() {
        return if record.state == WorkloadState::Moved {
            WorkloadState::Moved
        } else {
            arrive(draft, work)
        };
    }
    if let (Owner::Deployment(deployment), Some(mark)) = (work.owner, surging) {
        surge::raised(scene, draft, work, deployment, mark);
        return WorkloadState::Moving;
    }
    let outcome = match (record.strategy, work.owner) {
        (MoveStrategy::RolloutRestart, Owner::Deployment(deployment)) => {
            restart::step(scene, draft, work, deployment, slots)
        }
        (MoveStrategy::Surge, Owner::Deployment(deployment)) => {
            surge::raise(scene, draft, work, deployment, slots)
        }
        (MoveStrategy::RolloutRestart | MoveStrategy::Surge | MoveStrategy::Evict, _) => {
            evict::step(scene, draft, work, slots)
        }
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

/// What may still begin in this pass, and what has begun in it, which the world does not show yet.
pub(super) struct Slots {
    pub(super) free: usize,
    pub(super) started: Vec<Uid>,
}

/// Takes slots of `workloads.maxConcurrent`. Who needs more than there are in all goes alone.
pub(super) fn take(
    scene: &Scene<'_>,
    slots: &mut Slots,
    wanted: usize,
    work: &Work<'_>,
) -> Result<(), Hold> {
    let wanted = wanted.min(scene.spec.workloads.max_concurrent as usize);
    if slots.free >= wanted && slots.free > 0 {
        slots.free -= wanted;
        slots.started.push(work.reference.uid.clone());
        Ok(())
    } else {
        Err(Hold::Wait(Waiting::Slot(work.reference.clone())))
    }
}
