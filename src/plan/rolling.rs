//! Which owners other than Deployments can be restarted, when that is asked for: `StatefulSets`, and Rollouts of Argo. Pure.

use jiff::Timestamp;

use crate::api::relocation::WorkloadStrategy;
use crate::api::status::MoveStrategy;
use crate::world::{OtherOwner, Rollout, SetUpdate, StatefulSet};

use super::policy::Asked;
use super::report::Finding;
use super::scene::{Scene, Work};
use super::strategy::{Choice, choice};
use super::system;

/// How the pods of a `StatefulSet` move.
pub(super) fn stateful_set(
    scene: &Scene<'_>,
    work: &Work<'_>,
    set: &StatefulSet,
    asked: Asked,
) -> Choice {
    let one_by_one = "only the pods on selected nodes, highest ordinal first, one at a time";
    if asked.strategy != WorkloadStrategy::RolloutRestart {
        return choice(MoveStrategy::Evict, format!("a StatefulSet: {one_by_one}"));
    }
    if let Some(why) = set_cannot_restart(scene, set, work) {
        return choice(
            MoveStrategy::Evict,
            format!("{asked}, but {why}: {one_by_one}"),
        );
    }
    let parallel = if set.parallel {
        ", also with podManagementPolicy Parallel"
    } else {
        ""
    };
    choice(
        MoveStrategy::RolloutRestart,
        format!(
            "{asked}: all its {} pods are replaced, {} of them on selected nodes, one at a time{parallel}",
            set.replicas,
            work.left.len()
        ),
    )
}

/// Why a `StatefulSet` is not restarted.
pub(super) fn set_cannot_restart(
    scene: &Scene<'_>,
    set: &StatefulSet,
    work: &Work<'_>,
) -> Option<String> {
    if let Some(parent) = &set.controller {
        return Some(format!(
            "it belongs to {} {}, which could undo a restart",
            parent.kind, parent.name
        ));
    }
    match set.update {
        SetUpdate::OnDelete => {
            return Some("with updateStrategy OnDelete a restart would replace nothing".into());
        }
        SetUpdate::RollingUpdate { partition, .. } if partition > 0 => {
            return Some(format!(
                "a restart would leave out the ordinals below its partition of {partition}"
            ));
        }
        SetUpdate::RollingUpdate {
            max_unavailable, ..
        } if max_unavailable > 1 => {
            return Some(format!(
                "its maxUnavailable would let {max_unavailable} pods be missing at once"
            ));
        }
        SetUpdate::RollingUpdate { .. } => {}
    }
    budget_in_the_way(scene, work, 1)
}

/// A budget of the pods that could never spare so many: a rollout does not ask budgets.
fn budget_in_the_way(scene: &Scene<'_>, work: &Work<'_>, missing: i32) -> Option<String> {
    work.left
        .iter()
        .flat_map(|pod| scene.budgets_of(pod))
        .find(|budget| budget.observed && budget.spares_at_most() < missing)
        .map(|budget| {
            format!("a restart would take more pods away at once than {budget} ever allows")
        })
}

/// How the pods of a Rollout move. One that is paused waits, whatever is asked for: it is in the middle of an update that somebody looks at.
pub(super) fn rollout(
    scene: &Scene<'_>,
    work: &Work<'_>,
    owner: &OtherOwner,
    rollout: &Rollout,
    asked: Asked,
) -> Result<Choice, Finding> {
    if rollout.paused {
        return Err(Finding::rollout_paused(&owner.reference));
    }
    if asked.strategy != WorkloadStrategy::RolloutRestart {
        let why = "a Rollout: one pod at a time, its update untouched";
        return Ok(choice(MoveStrategy::Evict, why));
    }
    let now = scene.world.now;
    Ok(match rollout_cannot_restart(scene, rollout, work, now) {
        Some(why) => choice(MoveStrategy::Evict, format!("{asked}, but {why}")),
        None => choice(
            MoveStrategy::RolloutRestart,
            format!("{asked}: by spec.restartAt, its template untouched"),
        ),
    })
}

/// Why a Rollout is not restarted.
pub(super) fn rollout_cannot_restart(
    scene: &Scene<'_>,
    rollout: &Rollout,
    work: &Work<'_>,
    now: Timestamp,
) -> Option<String> {
    if rollout.restart_at.is_some_and(|at| at > now) {
        return Some("its spec.restartAt has a restart that is yet to come".into());
    }
    if system::one_by_one(work) && rollout.max_unavailable > 1 {
        return Some("the cluster lives on it, so its pods move one at a time".into());
    }
    let missing = i32::try_from(rollout.max_unavailable).unwrap_or(i32::MAX);
    budget_in_the_way(scene, work, missing)
}
