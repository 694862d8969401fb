//! Wakes the scheduler for a pod that it has lost sight of. Pure.
//!
//! From Kubernetes 1.32 on a pod that preempts can be forgotten: our placeholders have gone for it, the room is there, and the scheduler
//! looks at the pod again only after five minutes (kubernetes/kubernetes#141694). Two pods that preempt on one node at the same moment are
//! enough. Any pod that leaves a node makes it look again, so one more placeholder goes; where it is still needed it is made again.

use jiff::SignedDuration;

use crate::api::status::WorkloadState;
use crate::world::Pod;

use super::Action;
use super::draft::Draft;
use super::gates;
use super::scene::{Scene, Work};

/// A pod that preempts has its place within a second or two, the grace of a placeholder included.
const FIRST: SignedDuration = SignedDuration::from_secs(5);
/// After this time the scheduler looks again by itself.
const LAST: SignedDuration = SignedDuration::from_mins(5);

/// Takes a placeholder away where a moved pod has waited for a node for too long.
pub(super) fn scheduler(scene: &Scene<'_>, draft: &mut Draft) {
    for work in &scene.works {
        if work.state() == WorkloadState::Moving {
            for_pods_of(scene, draft, work);
        }
    }
}

fn for_pods_of(scene: &Scene<'_>, draft: &mut Draft, work: &Work<'_>) {
    let now = scene.world.now;
    let waits = |pod: &&&Pod| pod.node.is_none() && pod.unschedulable.is_some();
    let Some(since) = work
        .elsewhere
        .iter()
        .filter(waits)
        .filter_map(|p| p.created)
        .min()
    else {
        return;
    };
    if now.duration_since(since) > LAST {
        return;
    }
    let placed = |p: &&Pod| !p.terminating && !p.finished && gates::is_placed(scene, p);
    let own: Vec<_> = scene
        .placeholders_of(&work.reference.uid)
        .filter(placed)
        .collect();
    // Where there is still a place for each of those that wait, it was not given up: nothing has been forgotten yet.
    let bound = work.elsewhere.iter().filter(|p| p.node.is_some()).count();
    let waiting = work.elsewhere.len() - bound;
    let needed = work.replicas().saturating_sub(bound + waiting);
    // What is made again in this pass was taken in the one before.
    let makes = |action: &Action| matches!(action, Action::CreatePlaceholder(_));
    if own.len() > needed || draft.actions.iter().any(makes) {
        return;
    }
    let candidates = if own.is_empty() {
        scene.placeholders.iter().copied().filter(placed).collect()
    } else {
        own
    };
    let Some(newest) = candidates.iter().max_by_key(|p| (p.created, &p.reference)) else {
        return;
    };
    // Less and less often, for the pod may have another reason to wait: after 5, 10, 20, 40 s. When the last time was tells the age of
    // what was made again.
    let first = since.saturating_add(FIRST);
    let again = newest.created.map_or(Ok(since), |made| {
        made.saturating_add(made.duration_since(since))
    });
    let due = first.unwrap_or(now).max(again.unwrap_or(now));
    if due > now {
        draft.look_at(due);
        return;
    }
    let goes_already = |action: &Action| {
        let Action::DeletePlaceholder { pod } = action else {
            return false;
        };
        candidates.iter().any(|p| p.reference == *pod)
    };
    if !draft.actions.iter().any(goes_already) {
        draft.act(Action::DeletePlaceholder {
            pod: newest.reference.clone(),
        });
    }
}
