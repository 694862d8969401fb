//! What the cluster itself lives on moves with more care: pods of `kube-system`, Karpenter and the operator itself one at a time. Pure.

use crate::world::{RolloutStrategy, Uid};

use super::gates::Hold;
use super::report::Waiting;
use super::scene::{Scene, Work};

/// The namespace of what every cluster needs, such as DNS.
const NAMESPACE: &str = "kube-system";

/// One pod of the workload moves at a time, whatever it could spare.
pub(super) fn one_by_one(work: &Work<'_>) -> bool {
    work.reference.namespace == NAMESPACE || work.rank.is_needed()
}

/// Why the workload must not be restarted: more than one of its pods would move at a time.
pub(super) fn too_many_at_once(work: &Work<'_>, strategy: RolloutStrategy) -> bool {
    let at_once = match strategy {
        RolloutStrategy::Recreate => work.replicas(),
        RolloutStrategy::RollingUpdate {
            max_surge,
            max_unavailable,
        } => max_surge.saturating_add(max_unavailable) as usize,
    };
    one_by_one(work) && at_once > 1
}

/// Workloads of `kube-system` take turns.
///
/// `started` are the workloads that begin to move in this pass, which the world does not show yet.
pub(super) fn turn(scene: &Scene<'_>, work: &Work<'_>, started: &[Uid]) -> Result<(), Hold> {
    let others = || {
        let is_other = |w: &&Work<'_>| w.reference.uid != work.reference.uid;
        scene.works.iter().filter(is_other)
    };
    if work.reference.namespace == NAMESPACE {
        let moves = |w: &&Work<'_>| w.on_the_move() > 0 || started.contains(&w.reference.uid);
        let other = others()
            .filter(|w| w.reference.namespace == NAMESPACE)
            .find(moves);
        if let Some(other) = other {
            return Err(Hold::Wait(Waiting::Turn {
                workload: work.reference.clone(),
                shared: format!("namespace {NAMESPACE} with {}", other.reference),
            }));
        }
    }
    Ok(())
}
