//! How the pods of a workload move, and why. Pure.

use crate::api::relocation::WorkloadStrategy;
use crate::api::status::MoveStrategy;
use crate::world::{Deployment, RolloutStrategy};

use super::report::Finding;
use super::scene::{Owner, Scene, Work};
use super::{rolling, system};

/// How the pods of a workload move, with the reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) strategy: MoveStrategy,
    pub(super) why: String,
}

pub(super) fn choice(strategy: MoveStrategy, why: impl Into<String>) -> Choice {
    Choice {
        strategy,
        why: why.into(),
    }
}

/// Resolves what was asked for, by a rule or by `workloads.strategy`, for one workload.
pub(super) fn resolve(scene: &Scene<'_>, work: &Work<'_>) -> Result<Choice, Finding> {
    let kind = work.reference.kind.to_string();
    let asked = scene.policy.asked(&kind, work.left.iter().copied());
    let deployment = match work.owner {
        Owner::Deployment(deployment) => deployment,
        Owner::StatefulSet(set) => return Ok(rolling::stateful_set(scene, work, set, asked)),
        Owner::ReplicaSet(_) => {
            return Ok(choice(
                MoveStrategy::Evict,
                "a ReplicaSet without a Deployment cannot be restarted",
            ));
        }
        Owner::Other(owner) => {
            if let Some(rollout) = &owner.rollout {
                return rolling::rollout(scene, work, owner, rollout, asked);
            }
            let kind = &owner.reference.kind;
            let how = if kind.is_job() {
                "the Job makes an evicted pod again".to_owned()
            } else {
                format!("a {kind} is restarted by its own means only; one pod at a time")
            };
            return Ok(choice(MoveStrategy::Evict, how));
        }
        Owner::Nobody => {
            return Ok(choice(
                MoveStrategy::Evict,
                "nothing makes it again, and it may go all the same",
            ));
        }
        Owner::Unread(_) => {
            return Ok(choice(MoveStrategy::Evict, "its owner is not known closer"));
        }
        Owner::Gone => {
            return Ok(choice(
                MoveStrategy::Evict,
                "its owner is gone, and its pods go with it",
            ));
        }
    };
    match asked.strategy {
        WorkloadStrategy::Evict => Ok(choice(MoveStrategy::Evict, asked.to_string())),
        WorkloadStrategy::RolloutRestart => match cannot_restart(scene, deployment, work) {
            None => Ok(choice(MoveStrategy::RolloutRestart, asked.to_string())),
            Some(CannotRestart::Paused) => Err(Finding::owner_paused(&deployment.reference)),
            Some(reason @ (CannotRestart::AtOnce | CannotRestart::Budget(_)))
                if cannot_surge(deployment, work).is_none() && !deployment.managed.replicas =>
            {
                Ok(choice(
                    MoveStrategy::Surge,
                    format!("{asked}, but {}", reason.words()),
                ))
            }
            Some(other) => Ok(choice(
                MoveStrategy::Evict,
                format!("{asked}, but {}", other.words()),
            )),
        },
        WorkloadStrategy::Surge => Ok(match cannot_surge(deployment, work) {
            None => choice(MoveStrategy::Surge, asked.to_string()),
            Some(why) => choice(MoveStrategy::Evict, format!("{asked}, but {why}")),
        }),
        WorkloadStrategy::Auto => Ok(auto(scene, deployment, work)),
    }
}

/// The first that fits: a restart that loses nothing, a surge, a restart that loses a little, evictions.
fn auto(scene: &Scene<'_>, deployment: &Deployment, work: &Work<'_>) -> Choice {
    let restartable = cannot_restart(scene, deployment, work);
    let (here, all) = (work.left.len(), work.left.len() + work.elsewhere.len());
    let surge = match deployment.strategy {
        RolloutStrategy::RollingUpdate {
            max_surge,
            max_unavailable,
        } if max_surge > 0 => Some(max_unavailable),
        RolloutStrategy::RollingUpdate { .. } | RolloutStrategy::Recreate => None,
    };
    let managed = deployment.managed;
    // A restart knows no nodes, and so no batches of them.
    let divided = scene.spec.batch_size.divides();
    if !divided && restartable.is_none() && here == all && surge == Some(0) && !managed.template {
        return choice(
            MoveStrategy::RolloutRestart,
            "all its pods are on selected nodes, and its restart makes before it breaks",
        );
    }
    let put_back = managed
        .replicas
        .then(|| "a GitOps tool sets its replica count, and would put it back".to_owned());
    let Some(cannot_surge) = cannot_surge(deployment, work).or(put_back) else {
        let which = if here == all {
            format!("all its {all}")
        } else {
            format!("{here} of its {all}")
        };
        return choice(
            MoveStrategy::Surge,
            format!(
                "{which} pods are on selected nodes, and as many more can run beside them for a while"
            ),
        );
    };
    if let Some(reason) = restartable {
        return choice(MoveStrategy::Evict, reason.words());
    }
    if surge.is_none() {
        return choice(
            MoveStrategy::Evict,
            "maxSurge is 0: a restart would take pods away before others are ready",
        );
    }
    if here * 2 >= all && !managed.template {
        return choice(
            MoveStrategy::RolloutRestart,
            format!(
                "{here} of its {all} pods are on selected nodes, and its restart surges; no surge of its own: {cannot_surge}"
            ),
        );
    }
    let closed = work
        .left
        .iter()
        .flat_map(|pod| scene.budgets_of(pod))
        .find(|b| b.never_allows());
    if let Some(budget) = closed {
        return choice(
            MoveStrategy::RolloutRestart,
            format!("{budget} never allows an eviction, and its restart surges"),
        );
    }
    if managed.template {
        return choice(
            MoveStrategy::Evict,
            format!(
                "no surge: {cannot_surge}; no restart: a GitOps tool sets its pod template, and might undo it"
            ),
        );
    }
    choice(
        MoveStrategy::Evict,
        format!("only {here} of its {all} pods are on selected nodes; no surge: {cannot_surge}"),
    )
}

/// Why the replica count of a Deployment cannot be raised for a while.
fn cannot_surge(deployment: &Deployment, work: &Work<'_>) -> Option<String> {
    if deployment.paused {
        return Some(CannotRestart::Paused.words());
    }
    if let Some(parent) = &deployment.controller {
        return Some(format!(
            "it belongs to {} {}, which could put the replica count back",
            parent.kind, parent.name
        ));
    }
    if work.volume_for_one {
        return Some(CannotRestart::Volume.words());
    }
    // Of a single pod, Recreate says that there are never two. Of more, that there are never two versions, and a surge has one.
    if deployment.strategy == RolloutStrategy::Recreate && deployment.replicas <= 1 {
        let why = "its strategy is Recreate and it has one replica: it never runs twice";
        return Some(why.to_owned());
    }
    let foreign = work
        .left
        .iter()
        .any(|p| p.marks.deletion_cost.is_some() && p.marks.costed_by.is_none());
    foreign.then(|| "somebody else sets the deletion cost of its pods".to_owned())
}

/// Why a Deployment cannot be restarted.
enum CannotRestart {
    Paused,
    Recreate,
    Volume,
    Owned(String),
    AtOnce,
    /// A budget that could not spare as many pods as the restart lets be missing.
    Budget(String),
}

impl CannotRestart {
    fn words(&self) -> String {
        match self {
            Self::Paused => "it is paused and cannot be restarted".into(),
            Self::Recreate => "its strategy is Recreate: a restart would stop all its pods at once".into(),
            Self::Volume => "its pods have persistent volumes (ReadWriteOnce), which a new pod could not have while the old one holds them".into(),
            Self::Owned(parent) => format!("it belongs to {parent}, which could undo a restart"),
            Self::Budget(budget) => format!("a restart would take more pods away at once than {budget} ever allows"),
            Self::AtOnce => "the cluster lives on it, so its pods move one at a time, and a restart would take more at once".into(),
        }
    }
}

fn cannot_restart(
    scene: &Scene<'_>,
    deployment: &Deployment,
    work: &Work<'_>,
) -> Option<CannotRestart> {
    if deployment.paused {
        return Some(CannotRestart::Paused);
    }
    if deployment.strategy == RolloutStrategy::Recreate {
        return Some(CannotRestart::Recreate);
    }
    if let Some(parent) = &deployment.controller {
        return Some(CannotRestart::Owned(format!(
            "{} {}",
            parent.kind, parent.name
        )));
    }
    if work.volume_for_one {
        return Some(CannotRestart::Volume);
    }
    if system::too_many_at_once(work, deployment.strategy) {
        return Some(CannotRestart::AtOnce);
    }
    let lost = i32::try_from(deployment.strategy.missing(deployment.replicas)).unwrap_or(i32::MAX);
    work.left
        .iter()
        .flat_map(|pod| scene.budgets_of(pod))
        .find(|budget| budget.observed && budget.spares_at_most() < lost)
        .map(|budget| CannotRestart::Budget(budget.to_string()))
}
