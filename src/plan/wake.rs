//! Wakes the scheduler for a pod that it has lost sight of. Pure.
//!
//! From Kubernetes 1.32 on a pod that preempts can be forgotten: our placeholders have gone for it, the room is there, and the scheduler
//! looks at the pod again only after five minutes (kubernetes/kubernetes#141694). Two pods that preempt on one node at the same moment are
//! enough. Any pod that leaves a node makes it look again, so one more placeholder goes; where it is still needed it is made again.

use jiff::SignedDuration;

use crate::api::relocation::ReplacementStrategy;
use crate::api::status::WorkloadState;
use crate::world::Pod;
use crate::world::quantity::Quantities;

use super::draft::Draft;
use super::gates;
use super::provision;
use super::scene::{Scene, Work};
use super::{Action, Restore};

/// A pod that preempts has its place within a second or two, the grace of a placeholder included.
const FIRST: SignedDuration = SignedDuration::from_secs(5);
/// After this time the scheduler looks again by itself.
const LAST: SignedDuration = SignedDuration::from_mins(5);

/// Takes a placeholder away where a moved pod has waited for a node for too long.
pub(super) fn scheduler(scene: &Scene<'_>, draft: &mut Draft) {
    if scene.spec.replacement.strategy == ReplacementStrategy::None {
        return;
    }
    for work in &scene.works {
        if work.state() == WorkloadState::Moving {
            for_pods_of(scene, draft, work);
        }
    }
}

fn for_pods_of(scene: &Scene<'_>, draft: &mut Draft, work: &Work<'_>) {
    let now = scene.world.now;
    let waiting = work.elsewhere.iter().copied();
    let waiting = waiting.filter(|p| p.node.is_none() && p.unschedulable.is_some());
    let oldest = waiting.filter_map(|p| Some((p.created?, p)));
    let Some((since, pod)) = oldest.min_by_key(|(created, pod)| (*created, &pod.reference)) else {
        return;
    };
    if now.duration_since(since) > LAST {
        return;
    }
    let placed = |p: &&Pod| !p.terminating && !p.finished && gates::is_placed(scene, p);
    let own: Vec<_> = scene.placeholders_of(&work.reference.uid).collect();
    // Where one of its placeholders has no place either, it is room that is missing.
    if !own.iter().all(placed) {
        return;
    }
    // Where there is still a place for each of those that wait, it was not given up: nothing has been forgotten yet.
    let kept = own.iter().filter(|p| p.created <= Some(since)).count();
    let needed = work.replicas().saturating_sub(work.elsewhere.len());
    // What is made again in this pass was taken in the one before.
    let makes = |action: &Action| matches!(action, Action::CreatePlaceholder(_));
    if kept > needed || draft.actions.iter().any(makes) {
        return;
    }
    let candidates = if own.is_empty() {
        scene
            .placeholders
            .all
            .iter()
            .copied()
            .filter(placed)
            .collect()
    } else {
        own
    };
    let newest = candidates.iter().max_by_key(|p| (p.created, &p.reference));
    // Less and less often, for the pod may have another reason to wait: after 5, 10, 20, 40 s. When the last time was tells the age of
    // what was made again.
    let again = newest.and_then(|p| {
        let made = p.created?;
        made.checked_add(made.duration_since(since)).ok()
    });
    let due = since.saturating_add(FIRST).unwrap_or(now);
    let due = again.map_or(due, |again| due.max(again));
    if due > now {
        draft.look_at(due);
        return;
    }
    if let Some(newest) = newest {
        take(draft, newest);
    } else {
        // None is left: one that asks for nothing is made, to be taken.
        let mut placeholder = provision::placeholder(scene, work, pod);
        placeholder.shape.requests = Quantities::default();
        draft.act(Action::CreatePlaceholder(Box::new(placeholder)));
    }
}

fn take(draft: &mut Draft, placeholder: &Pod) {
    // Another that goes in this pass does as well.
    let goes =
        |action: &Action| matches!(action, Action::Restore(Restore::DeletePlaceholder { .. }));
    if !draft.actions.iter().any(goes) {
        draft.restore(Restore::DeletePlaceholder {
            pod: placeholder.reference.clone(),
        });
    }
}
