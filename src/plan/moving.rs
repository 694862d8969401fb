//! Stages from Moving on: pods leave, each node goes on as soon as it is empty. Pure.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::status::{MoveStrategy, Stage, WorkloadState};
use crate::world::{Node, OtherOwner, Pod, Uid};

use super::draft::Draft;
use super::gates::Hold;
use super::report::{Finding, Waiting};
use super::scene::{Owner, Scene, Work};
use super::treatment::{Awaited, Treatment};
use super::{
    drain, evict, listed, protect, provision, restart, restore, stuck, surge, wake, wholeness,
};

/// Moves what may move now, and takes each node as far as it can go.
pub(super) fn step(scene: &Scene<'_>, draft: &mut Draft) {
    if all_done(draft) {
        // Some of what was set may be gone already: there is no way back, whatever lands on a node that was opened again.
        restore::finish(scene, draft);
        return;
    }
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
            if state == WorkloadState::Pending && work.due.is_empty() {
                // Its time begins anew with the next batch.
                record.start_time = None;
            }
            if state == WorkloadState::Moving && record.start_time.is_none() {
                record.start_time = Some(Time(scene.world.now));
            }
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
    if all_done(draft) {
        // What was to keep places and protection is taken away now.
        draft.actions.clear();
        restore::finish(scene, draft);
    }
}

/// Every node is done and every workload moved.
fn all_done(draft: &Draft) -> bool {
    let status = &draft.status;
    let pending = status.more_workloads.map_or(0, |more| more.pending);
    pending == 0
        && status.nodes.iter().all(|n| n.stage == Stage::Restoring)
        && status
            .workloads
            .iter()
            .all(|w| w.state == WorkloadState::Moved)
}

/// Pods that no workload moves: they block, or are waited for.
fn leftover(scene: &Scene<'_>, draft: &mut Draft) {
    for selected in &scene.nodes {
        let Some(node) = selected.node else { continue };
        for (pod, treatment) in &selected.pods {
            match treatment {
                Treatment::Stuck(blocker) => draft.block(blocker.clone()),
                Treatment::GivesWay => draft.wait(Waiting::GivesWay {
                    placeholder: pod.reference.clone(),
                    node: node.name.clone(),
                }),
                Treatment::Waits { what } => awaited(scene, draft, pod, node, what),
                Treatment::Moves | Treatment::Stays | Treatment::Skipped | Treatment::Finished => {}
            }
        }
    }
}

/// A pod that others end: waited for, and after a while a person is told.
fn awaited(scene: &Scene<'_>, draft: &mut Draft, pod: &Pod, node: &Node, what: &Awaited) {
    let limit = SignedDuration::from_secs(i64::from(scene.spec.workloads.timeout_seconds));
    let start = draft.status.start_time.as_ref().map(|t| t.0);
    match start.and_then(|at| at.checked_add(limit).ok()) {
        Some(due) if due <= scene.world.now => {
            draft.block(Finding::still_there(&pod.reference, what, limit));
        }
        due => {
            if let Some(due) = due {
                draft.look_at(due);
            }
            draft.wait(match what {
                Awaited::Job(job) => Waiting::Job {
                    job: job.clone(),
                    node: node.name.clone(),
                },
                Awaited::ByRule => Waiting::Owner {
                    pod: pod.reference.clone(),
                    node: node.name.clone(),
                },
            });
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
        _ => None,
    };
    surge::record(draft, work, surging.map(|mark| mark.from));
    if let (Owner::Deployment(deployment), Some(mark)) = (work.owner, surging) {
        surge::raised(scene, draft, work, deployment, mark);
        return WorkloadState::Moving;
    }
    if work.has_moved() {
        return WorkloadState::Moved;
    }
    if let Some(blocker) = stuck::holds(scene, draft, work) {
        draft.block(blocker);
        return WorkloadState::Blocked;
    }
    if let Owner::Unread(Some(unknown)) = work.owner {
        draft.block(Finding::not_observed(unknown));
        return WorkloadState::Blocked;
    }
    if matches!(work.owner, Owner::Other(_)) || work.parent.is_some() {
        // It is not watched: looked at again even when nothing is heard of its pods.
        if let Ok(again) = scene.world.now.checked_add(OWNER) {
            draft.look_at(again);
        }
    }
    if work.left.is_empty() {
        return arrive(draft, work);
    }
    if work.due.is_empty() {
        return match record.state {
            WorkloadState::Pending => WorkloadState::Pending,
            // What it has on nodes of a later batch has yet to move.
            _ => match arrive(draft, work) {
                WorkloadState::Moved => WorkloadState::Pending,
                state => state,
            },
        };
    }
    if let Err(hold) = in_time(scene, draft, work) {
        self::hold(draft, hold);
        return WorkloadState::Blocked;
    }
    let outcome = match (record.strategy, work.owner) {
        (MoveStrategy::RolloutRestart, Owner::Deployment(deployment)) => {
            restart::deployment(scene, draft, work, deployment, slots)
        }
        (MoveStrategy::RolloutRestart, Owner::StatefulSet(set)) => {
            restart::stateful_set(scene, draft, work, set, slots)
        }
        (
            MoveStrategy::RolloutRestart,
            Owner::Other(
                owner @ OtherOwner {
                    rollout: Some(rollout),
                    ..
                },
            ),
        ) => restart::rollout(scene, draft, work, owner, rollout, slots),
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

/// How often an owner that is not watched is looked at while its pods move.
const OWNER: SignedDuration = SignedDuration::from_secs(5);

/// `workloads.timeoutSeconds` since its first pod moved: what is on the move may still arrive, nothing more is begun.
fn in_time(scene: &Scene<'_>, draft: &mut Draft, work: &Work<'_>) -> Result<(), Hold> {
    let Some(start) = work.record.and_then(|r| r.start_time.as_ref()) else {
        return Ok(());
    };
    let seconds = scene.spec.workloads.timeout_seconds;
    let limit = SignedDuration::from_secs(i64::from(seconds));
    match start.0.checked_add(limit) {
        Ok(due) if due <= scene.world.now => {
            Err(Hold::Block(Finding::timed_out(&work.reference, seconds)))
        }
        Ok(due) => {
            draft.look_at(due);
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

/// Nothing is left on the selected nodes, or on those of this batch: it has moved once it is whole.
fn arrive(draft: &mut Draft, work: &Work<'_>) -> WorkloadState {
    if work.whole() {
        return WorkloadState::Moved;
    }
    if let Owner::Deployment(deployment) = work.owner
        && deployment.deadline_exceeded
    {
        draft.block(Finding::rollout_failed(&work.reference));
        return WorkloadState::Blocked;
    }
    if work.whole_itself()
        && let Some(waiting) = wholeness::unwell(work)
    {
        draft.wait(waiting);
        return WorkloadState::Moving;
    }
    let ready = work.elsewhere.iter().filter(|p| p.ready).count();
    draft.wait(wholeness::not_whole(work, ready));
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
