//! Moving by a rollout restart: once, and only of an owner that is whole. Pure.

use jiff::Timestamp;

use crate::world::{Deployment, OtherOwner, Rollout, RolloutStrategy, StatefulSet};

use super::draft::Draft;
use super::gates::{self, Hold};
use super::moving::{self, Slots};
use super::report::{Finding, Waiting};
use super::scene::{Scene, Work};
use super::{Action, evict, rolling};

/// Restarts the Deployment once, and waits until none of the pods that it had on selected nodes is left.
pub(super) fn deployment(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    deployment: &Deployment,
    slots: &mut Slots,
) -> Result<(), Hold> {
    let value = restarted_at(scene);
    if deployment.restarted_at.as_ref() == Some(&value) {
        if deployment.deadline_exceeded {
            return Err(Hold::Block(Finding::rollout_failed(&work.reference)));
        }
        return restarted(scene, draft, work, slots);
    }
    let restarted_before = scene.cluster.replica_sets.values().any(|set| {
        set.controller
            .as_ref()
            .is_some_and(|c| c.uid == work.reference.uid)
            && set.restarted_at.as_ref() == Some(&value)
    });
    if restarted_before || is_undone(work, deployment.generation) {
        return Err(Hold::Block(Finding::restart_reverted(&work.reference)));
    }
    if deployment.paused {
        return Err(Hold::Block(Finding::owner_paused(&work.reference)));
    }
    gates::predecessor_ready(work)?;
    let missing = deployment.strategy.missing(deployment.replicas);
    let at_once = match deployment.strategy {
        RolloutStrategy::Recreate => work.replicas(),
        RolloutStrategy::RollingUpdate {
            max_surge,
            max_unavailable,
        } => max_surge.saturating_add(max_unavailable) as usize,
    };
    may_begin(scene, work, slots, missing, at_once)?;
    record(draft, work, deployment.generation);
    draft.act(Action::Restart {
        workload: work.reference.clone(),
        resource_version: deployment.resource_version.clone(),
        restarted_at: value,
    });
    Ok(())
}

/// Restarts the `StatefulSet` once: its own controller replaces one pod after the other. What is not Ready here goes before that by
/// eviction, for a rollout waits for it and would not begin.
pub(super) fn stateful_set(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    set: &StatefulSet,
    slots: &mut Slots,
) -> Result<(), Hold> {
    let value = restarted_at(scene);
    if set.restarted_at.as_ref() == Some(&value) {
        return restarted(scene, draft, work, slots);
    }
    if is_undone(work, set.generation) {
        return Err(Hold::Block(Finding::restart_reverted(&work.reference)));
    }
    let changed = rolling::set_cannot_restart(scene, set, work).is_some();
    if changed || work.staying().any(|p| !p.ready) {
        return evict::step(scene, draft, work, slots);
    }
    gates::predecessor_ready(work)?;
    may_begin(scene, work, slots, 1, 1)?;
    record(draft, work, set.generation);
    draft.act(Action::Restart {
        workload: work.reference.clone(),
        resource_version: set.resource_version.clone(),
        restarted_at: value,
    });
    Ok(())
}

/// Restarts the Rollout once by `spec.restartAt`: its controller replaces every pod that is older than that.
pub(super) fn rollout(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    owner: &OtherOwner,
    rollout: &Rollout,
    slots: &mut Slots,
) -> Result<(), Hold> {
    let started = started(scene);
    // Whole seconds, as Kubernetes writes a time: a finer one would be cut by whoever writes the object next.
    let value = started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let second = Timestamp::from_second(started.as_second()).unwrap_or(started);
    let since = |at: Option<Timestamp>| at.is_some_and(|at| at >= second);
    if since(rollout.restarted_at) || since(rollout.restart_at) {
        return restarted(scene, draft, work, slots);
    }
    if is_undone(work, rollout.generation) {
        return Err(Hold::Block(Finding::restart_reverted(&work.reference)));
    }
    if rollout.paused {
        return Err(Hold::Block(Finding::rollout_paused(&owner.reference)));
    }
    let now = scene.world.now;
    let changed = rolling::rollout_cannot_restart(scene, rollout, work, now).is_some();
    if changed || work.staying().any(|p| !p.ready) {
        return evict::step(scene, draft, work, slots);
    }
    gates::predecessor_ready(work)?;
    let at_once = rollout.max_unavailable;
    may_begin(scene, work, slots, at_once, at_once as usize)?;
    record(draft, work, rollout.generation);
    draft.act(Action::Restart {
        workload: work.reference.clone(),
        resource_version: rollout.resource_version.clone(),
        restarted_at: value,
    });
    Ok(())
}

/// After the restart: waits for its end. Pods that are here all the same came before the cordon was seen, and go one by one.
fn restarted(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    slots: &mut Slots,
) -> Result<(), Hold> {
    if work.whole() {
        return evict::step(scene, draft, work, slots);
    }
    draft.wait(Waiting::Restarted(work.reference.clone()));
    Ok(())
}

/// A restart that lets so many of its pods be `missing`, and moves so many `at_once`, may begin now.
fn may_begin(
    scene: &Scene<'_>,
    work: &Work<'_>,
    slots: &mut Slots,
    missing: u32,
    at_once: usize,
) -> Result<(), Hold> {
    for node in work
        .left
        .iter()
        .filter_map(|p| scene.node(p.node.as_ref()?))
    {
        gates::held(scene, node)?;
    }
    gates::all_closed(scene)?;
    gates::place(scene, work, work.left.len())?;
    if missing > 0 {
        gates::restart_within_budgets(scene, work, missing)?;
    }
    gates::turn(scene, work, &slots.started)?;
    moving::take(scene, slots, at_once.clamp(1, work.left.len().max(1)), work)
}

/// Records which generation is restarted, before that is asked for.
fn record(draft: &mut Draft, work: &Work<'_>, generation: i64) {
    let uid = work.reference.uid.as_str();
    if let Some(record) = draft.status.workloads.iter_mut().find(|r| r.uid == uid) {
        record.restarted_from = Some(generation);
    }
}

/// The restart was asked for, is not there, and the spec has changed more than once since: by our restart, and by who undid it. One
/// change alone is somebody else's that came before ours, which was refused then.
fn is_undone(work: &Work<'_>, generation: i64) -> bool {
    let before = work.record.and_then(|r| r.restarted_from);
    before.is_some_and(|before| generation > before.saturating_add(1))
}

/// When the relocation started.
fn started(scene: &Scene<'_>) -> Timestamp {
    let status = scene.world.relocation.status.as_ref();
    status
        .and_then(|s| s.start_time.as_ref())
        .map_or(scene.world.now, |t| t.0)
}

/// The value of the restart annotation: a time, as everybody who reads it expects, that follows from the relocation alone, so that a
/// second write of it changes nothing. The fraction of the second tells apart two relocations that started in the same one.
fn restarted_at(scene: &Scene<'_>) -> String {
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
        started(scene).strftime("%Y-%m-%dT%H:%M:%S"),
        hash % 1_000_000
    )
}
