//! Stage Restoring, and the undoing of everything: all that we set is taken away, and nothing else. Pure.

use crate::api::keys;
use crate::api::relocation::{AfterDrain, OnFailure};
use crate::api::status::Stage;
use crate::world::Pod;

use super::draft::Draft;
use super::report::Waiting;
use super::scene::Scene;
use super::{Action, surge};

/// Why everything is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undo {
    /// The relocation is being deleted.
    Deleted,
    /// The relocation has failed.
    Failed,
}

/// Everything has moved: takes away what is left of ours.
pub(super) fn finish(scene: &Scene<'_>, draft: &mut Draft) {
    draft.stage = Stage::Restoring;
    if take_away(scene, draft, scene.spec.after_drain == AfterDrain::Uncordon) {
        let nodes = scene.nodes.len();
        let (pods, _) = draft.status.pods();
        let end = match scene.spec.after_drain {
            AfterDrain::Delete => {
                let kept = scene.nodes.iter().filter(|n| n.node.is_some()).count();
                let removed = nodes - kept;
                if kept == 0 {
                    format!("{removed} nodes removed")
                } else {
                    format!("{removed} nodes removed, {kept} without a NodeClaim stay cordoned")
                }
            }
            AfterDrain::Keep => format!("{nodes} nodes emptied, they stay cordoned"),
            AfterDrain::Uncordon => format!("{nodes} nodes emptied and uncordoned"),
        };
        draft.succeed("Succeeded", format!("{pods} pods moved, {end}"));
    }
}

/// Undoes what can be undone; pods that moved stay where they are.
pub(super) fn undo(scene: &Scene<'_>, draft: &mut Draft, why: Undo) {
    draft.stage = Stage::RollingBack;
    if !take_away(scene, draft, scene.spec.on_failure == OnFailure::Rollback) {
        return;
    }
    match why {
        Undo::Failed => draft.fail(),
        Undo::Deleted => {
            let held = scene
                .world
                .relocation
                .metadata
                .finalizers
                .iter()
                .flatten()
                .any(|f| f == keys::FINALIZER);
            if held {
                draft.act(Action::RemoveFinalizer);
            }
        }
    }
}

/// Asks for the removal of every placeholder and mark of ours that is seen. True when there is none.
fn take_away(scene: &Scene<'_>, draft: &mut Draft, uncordon: bool) -> bool {
    let mut seen = 0;
    for placeholder in &scene.placeholders {
        seen += 1;
        if !placeholder.terminating {
            draft.act(Action::DeletePlaceholder {
                pod: placeholder.reference.clone(),
            });
        }
    }
    for node in scene.cluster.nodes.values() {
        let ours = |mark: &Option<_>| mark.as_ref() == Some(&scene.claim);
        let (claimed, protected, cordoned) = (
            ours(&node.marks.claimed_by),
            ours(&node.marks.protected_by),
            ours(&node.marks.cordoned_by),
        );
        if !(claimed || protected || cordoned) {
            continue;
        }
        // A node that is on its way out takes its marks along; opening it again would only invite pods to die with it.
        if node.deleting
            || scene
                .cluster
                .claim_of(&node.name)
                .is_some_and(|c| c.deleting)
        {
            continue;
        }
        seen += 1;
        draft.act(Action::ReleaseNode {
            node: node.as_ref().into(),
            unprotect: protected
                && node.marks.do_not_disrupt.as_deref() == Some(keys::DO_NOT_DISRUPT_VALUE),
            uncordon: uncordon && cordoned && node.unschedulable,
        });
    }
    for pod in scene
        .cluster
        .pods
        .values()
        .filter(|p| !p.terminating && p.marks.protected_by.as_ref() == Some(&scene.claim))
    {
        seen += 1;
        draft.act(Action::UnprotectPod {
            pod: pod.as_ref().into(),
            still_ours: pod.marks.do_not_disrupt.as_deref() == Some(keys::DO_NOT_DISRUPT_VALUE),
        });
    }
    seen += end_surges(scene, draft);
    if seen > 0 {
        draft.wait(Waiting::Release(seen));
    }
    seen == 0
}

/// Ends surges of ours, and takes the deletion costs away once no `ReplicaSet` needs them any more to choose. Returns how many are left.
fn end_surges(scene: &Scene<'_>, draft: &mut Draft) -> usize {
    let mut seen = 0;
    for deployment in scene.cluster.deployments.values() {
        if let Some(mark) = surge::ours(scene, deployment) {
            seen += 1;
            let back = (deployment.replicas == mark.to).then_some(mark.from);
            draft.act(surge::unmark(deployment, back));
        }
    }
    for pod in scene
        .cluster
        .pods
        .values()
        .filter(|p| !p.terminating && p.marks.costed_by.as_ref() == Some(&scene.claim))
    {
        seen += 1;
        if chosen_from(scene, pod) {
            continue;
        }
        draft.act(Action::UncheapenPod {
            pod: pod.as_ref().into(),
            still_ours: pod.marks.deletion_cost.as_deref() == Some(keys::DELETION_COST_VALUE),
        });
    }
    seen
}

/// The pod's `ReplicaSet` is about to remove pods.
fn chosen_from(scene: &Scene<'_>, pod: &Pod) -> bool {
    let Some(set) = pod
        .controller
        .as_ref()
        .and_then(|c| scene.cluster.replica_sets.get(&c.uid))
    else {
        return false;
    };
    let parent = set
        .controller
        .as_ref()
        .and_then(|c| scene.cluster.deployments.get(&c.uid));
    parent.is_some_and(|d| d.surge.is_some() || !d.observed)
        || !set.observed
        || set.existing > set.replicas
}
