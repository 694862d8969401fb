//! Pods that are to stop and do not, or to start elsewhere and do not: named, waited for, and never forced. Pure.
//!
//! A pod whose kubelet does not report may still run, and a second one of the same `StatefulSet` beside it would be worse than one that is
//! missing. So the workload stops, and others go on.

use jiff::SignedDuration;

use crate::world::{Node, Pod};

use super::draft::Draft;
use super::report::{Finding, Waiting};
use super::scene::{Scene, Work};

/// How long after the end of its grace period a pod may still be there: its kubelet kills what runs only then, and has to unmount and
/// to report after that.
const OVERDUE: SignedDuration = SignedDuration::from_secs(30);

/// How long a new pod may take to be Ready before a person is told: a node that has to be made and a large image take some minutes.
const LANDING: SignedDuration = SignedDuration::from_mins(10);

/// Why the workload has to stop: one of its pods is on a node that does not answer, or should have stopped and is still there.
///
/// Looks again when the next of its pods should have stopped, and says which ones are waited for because their node is gone.
pub(super) fn holds(scene: &Scene<'_>, draft: &mut Draft, work: &Work<'_>) -> Option<Finding> {
    let lists = [
        &work.left,
        &work.elsewhere,
        &work.ending_elsewhere,
        &work.remains,
    ];
    let pods = || lists.iter().copied().flatten().copied();
    let unreachable = pods()
        .filter_map(|pod| node(scene, pod))
        .find(|node| !node.ready);
    if let Some(node) = unreachable {
        return Some(Finding::node_unreachable(&node.name));
    }
    let mut overdue: Option<&Pod> = None;
    for pod in pods() {
        if let Some(name) = &pod.node
            && node(scene, pod).is_none()
        {
            draft.wait(Waiting::Orphan {
                pod: pod.reference.clone(),
                node: name.clone(),
            });
            continue;
        }
        let Some(due) = pod.stops_by.and_then(|at| at.checked_add(OVERDUE).ok()) else {
            continue;
        };
        if due > scene.world.now {
            draft.look_at(due);
        } else if overdue.is_none_or(|other| pod.reference < other.reference) {
            overdue = Some(pod);
        }
    }
    overdue
        .map(Finding::stuck_terminating)
        .or_else(|| landing(scene, draft, work))
}

/// A pod of the workload that came since the start and has not become Ready for so long that it hardly will by itself.
///
/// Looks again when the next of them will have taken so long.
pub(super) fn landing(scene: &Scene<'_>, draft: &mut Draft, work: &Work<'_>) -> Option<Finding> {
    let status = scene.world.relocation.status.as_ref();
    let started = status.and_then(|s| s.start_time.as_ref()).map(|t| t.0);
    let mut late: Option<&Pod> = None;
    for pod in work.elsewhere.iter().filter(|p| !p.ready) {
        let Some(created) = pod.created.filter(|c| Some(*c) >= started) else {
            continue;
        };
        let due = created.saturating_add(LANDING).unwrap_or(created);
        if due > scene.world.now {
            draft.look_at(due);
        } else if late.is_none_or(|other| pod.reference < other.reference) {
            late = Some(pod);
        }
    }
    late.map(|pod| Finding::replacement_not_ready(pod, &work.reference))
}

fn node<'a>(scene: &Scene<'a>, pod: &Pod) -> Option<&'a Node> {
    scene.node(pod.node.as_ref()?)
}
