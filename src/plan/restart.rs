//! Moving by a rollout restart: once, and only of a Deployment that is whole. Pure.

use crate::world::{Deployment, RolloutStrategy};

use super::draft::Draft;
use super::gates::{self, Hold};
use super::moving::{self, Slots};
use super::report::{Finding, Waiting};
use super::scene::{Scene, Work};
use super::{Action, evict};

/// Restarts the Deployment once, and waits until none of the pods that it had on selected nodes is left.
pub(super) fn step(
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
        if work.whole() {
            // The rollout is over and pods are here all the same: they came here before the cordon was seen. One by one, then.
            return evict::step(scene, draft, work, slots);
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
        return Err(Hold::Block(Finding::restart_reverted(&work.reference)));
    }
    if deployment.paused {
        return Err(Hold::Block(Finding::owner_paused(&work.reference)));
    }
    gates::predecessor_ready(work)?;
    for node in work
        .left
        .iter()
        .filter_map(|p| scene.node(p.node.as_ref()?))
    {
        gates::held(scene, node)?;
    }
    gates::all_closed(scene)?;
    gates::place(scene, work, work.left.len())?;
    let missing = deployment.strategy.missing(deployment.replicas);
    if missing > 0 {
        gates::restart_within_budgets(scene, work, missing)?;
    }
    gates::turn(scene, work, &slots.started)?;
    let at_once = match deployment.strategy {
        RolloutStrategy::Recreate => work.replicas(),
        RolloutStrategy::RollingUpdate {
            max_surge,
            max_unavailable,
        } => max_surge.saturating_add(max_unavailable) as usize,
    };
    moving::take(scene, slots, at_once.clamp(1, work.left.len().max(1)), work)?;
    draft.act(Action::Restart {
        workload: work.reference.clone(),
        resource_version: deployment.resource_version.clone(),
        restarted_at: value,
    });
    Ok(())
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
