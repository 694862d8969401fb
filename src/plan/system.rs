//! What the cluster itself lives on moves with more care: pods of `kube-system` one at a time, and what nodes and moves come from,
//! Karpenter and the operator itself, last. Pure.

use crate::world::{Pod, RolloutStrategy, Uid};

use super::gates::{self, Hold};
use super::report::Waiting;
use super::scene::{Scene, Work};

/// The namespace of what every cluster needs, such as DNS.
const NAMESPACE: &str = "kube-system";

/// The label by which charts and manifests name an application; both Karpenter's chart and ours set it on their pods.
const NAME_LABEL: &str = "app.kubernetes.io/name";

/// Without these nothing is provisioned or moved, in the order in which they move. In any namespace, for both can be installed in any:
/// who is taken for one of them by mistake only moves later.
const NEEDED: [&str; 2] = ["karpenter", "relocator"];

/// Which of [`NEEDED`] the workload is.
fn needed(work: &Work<'_>) -> Option<usize> {
    let of_pod = |pod: &&Pod| {
        let name = pod.labels.get(NAME_LABEL)?;
        NEEDED.iter().position(|needed| needed == name)
    };
    let pods = work.left.iter().chain(&work.elsewhere);
    pods.copied().find_map(|pod| of_pod(&pod))
}

/// One pod of the workload moves at a time, whatever it could spare.
pub(super) fn one_by_one(work: &Work<'_>) -> bool {
    work.reference.namespace == NAMESPACE || needed(work).is_some()
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

/// Workloads of `kube-system` take turns; what is needed for moving waits until everything else has moved and no placeholder waits for
/// a node.
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
    let Some(rank) = needed(work) else {
        return Ok(());
    };
    let last = |until: String| {
        Err(Hold::Wait(Waiting::Last {
            workload: work.reference.clone(),
            until,
        }))
    };
    let before = |other: &&Work<'_>| match needed(other) {
        None => true,
        Some(theirs) => (theirs, &other.reference) < (rank, &work.reference),
    };
    let unmoved = others().filter(before).filter(|w| !w.has_moved()).count();
    if unmoved > 0 {
        return last(format!("{unmoved} other workloads to have moved"));
    }
    let pending = scene.cluster.pods.values().filter(|p| is_pending(scene, p));
    match pending.count() {
        0 => Ok(()),
        n => last(format!("{n} placeholders to have a ready node")),
    }
}

/// A placeholder, of whichever relocation, for which a node may have to be made.
fn is_pending(scene: &Scene<'_>, pod: &Pod) -> bool {
    let Some(label) = &pod.placeholder else {
        return false;
    };
    let ours = label.relocation == scene.claim.uid;
    !pod.terminating
        && !pod.finished
        && (pod.node.is_none() || (ours && !gates::is_placed(scene, pod)))
}
