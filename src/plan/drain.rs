//! Stages Draining and Removing, node by node: empty by two reads of the API server, detached, then gone. Pure.

use jiff::SignedDuration;

use crate::api::relocation::AfterDrain;
use crate::api::status::{NodeStatus, Stage};
use crate::world::{Attachment, Fresh, Node, NodeClaim, NodeName, Uid};

use super::draft::Draft;
use super::gates;
use super::report::{Finding, Waiting};
use super::scene::{Scene, Selected};
use super::treatment::Treatment;
use super::{Action, Confirm, NodeMarks, Restore, moving, restore};

/// The nodes that look empty, of which nothing irreversible has been asked yet.
pub(super) fn to_confirm(scene: &Scene<'_>) -> Vec<Confirm> {
    let asks = |s: &Selected<'_>| {
        let node = s.node.filter(|_| gates::looks_empty(s))?.name.clone();
        match s.record.stage {
            Stage::Moving => Some(Confirm {
                node,
                attachments: false,
            }),
            Stage::Draining if attached(scene, s).is_empty() => Some(Confirm {
                node,
                attachments: true,
            }),
            Stage::Removing => {
                let to_be_deleted = claim(scene, s).is_some_and(|claim| !claim.deleting);
                to_be_deleted.then_some(Confirm {
                    node,
                    attachments: true,
                })
            }
            _ => None,
        }
    };
    scene.nodes.iter().filter_map(asks).collect()
}

/// Takes each node as far as it can go.
pub(super) fn step(scene: &Scene<'_>, draft: &mut Draft) {
    let mut records = std::mem::take(&mut draft.status.nodes);
    for (record, selected) in records.iter_mut().zip(&scene.nodes) {
        record.pods_left = u32::try_from(selected.left().count()).unwrap_or(u32::MAX);
        let next = next(scene, draft, selected);
        if next != record.stage {
            record.stage = next;
            draft.look_soon();
        }
    }
    let done = |record: &NodeStatus| record.stage == Stage::Restoring;
    // When all are done, everything is taken away together.
    if !records.iter().all(done) {
        let selected = records.iter().zip(&scene.nodes);
        for (_, selected) in selected.filter(|(record, _)| done(record)) {
            let_go(scene, draft, selected);
        }
    }
    draft.status.nodes = records;
}

/// Lets the autoscaler of the node have it, while other nodes are still being emptied: nobody is to pay for it any longer. It stays
/// claimed and cordoned. One with a `NodeClaim` is removed by us.
fn let_go(scene: &Scene<'_>, draft: &mut Draft, selected: &Selected<'_>) {
    let Some(node) = selected.node else { return };
    let to_go = after_drain(scene, selected) == AfterDrain::Delete;
    if !to_go || selected.record.node_claim.is_some() {
        return;
    }
    let guards = restore::unguards(&node.marks, &scene.claim.uid);
    if !guards.is_empty() {
        draft.restore(Restore::ReleaseNode {
            node: node.into(),
            marks: NodeMarks::default(),
            guards,
            uncordon: false,
        });
    }
}

/// The `NodeClaim` that is recorded for the node; `None` when it is gone or there never was one.
fn claim<'a>(scene: &Scene<'a>, selected: &Selected<'_>) -> Option<&'a NodeClaim> {
    let recorded = selected.record.node_claim.as_ref()?;
    let claims = &scene.cluster.karpenter.as_ref()?.claims;
    let claim = claims.get(&Uid::from(recorded.uid.as_str()));
    claim.map(AsRef::as_ref)
}

fn next(scene: &Scene<'_>, draft: &mut Draft, selected: &Selected<'_>) -> Stage {
    let record = selected.record;
    match record.stage {
        // Somebody else has removed it.
        Stage::Moving | Stage::Draining if selected.node.is_none() => Stage::Restoring,
        Stage::Moving => {
            if confirmed_empty(scene, draft, selected, false) {
                Stage::Draining
            } else {
                Stage::Moving
            }
        }
        // Somebody has put a pod there since: when that has gone, the node is read twice again.
        Stage::Draining if refilled(scene, selected) => Stage::Moving,
        Stage::Draining => {
            if confirmed_empty(scene, draft, selected, true) {
                // The read that confirms is also the one that the removal rests on.
                remove(scene, draft, selected)
            } else {
                Stage::Draining
            }
        }
        Stage::Removing => remove(scene, draft, selected),
        other => other,
    }
}

/// A pod that has to leave is there after all, as a read for this pass or the watch says.
fn refilled(scene: &Scene<'_>, selected: &Selected<'_>) -> bool {
    let node = selected.node.map(|n| &n.name);
    let read = match node.and_then(|name| scene.world.fresh.get(name)) {
        Some(Fresh::Read { pods, .. }) => pods.as_slice(),
        Some(Fresh::Failed(_)) | None => &[],
    };
    !gates::looks_empty(selected) || read.iter().any(|pod| scene.treatment(pod).counts())
}

/// Volumes that are to be detached from the node as far as the watches have told: while there are some, no fresh read is made in vain.
fn attached<'a>(scene: &Scene<'a>, selected: &Selected<'_>) -> Vec<&'a Attachment> {
    let node = name(selected.record);
    let attachments = scene.attachments_of(&node).iter().copied();
    scene.volumes().awaited(&node, attachments, &selected.pods)
}

/// A read made for this pass shows nothing but what stays; with `detached`, no volume attached either.
fn confirmed_empty(
    scene: &Scene<'_>,
    draft: &mut Draft,
    selected: &Selected<'_>,
    detached: bool,
) -> bool {
    let Some(node) = selected.node.filter(|_| gates::looks_empty(selected)) else {
        return false;
    };
    match scene.world.fresh.get(&node.name) {
        Some(Fresh::Read { pods, attachments }) => {
            if pods.iter().any(|pod| scene.treatment(pod).counts()) {
                draft.look_soon();
                return false;
            }
            let pods: Vec<_> = pods.iter().map(|p| (p, scene.treatment(p))).collect();
            let volumes = scene.volumes();
            let attached = volumes.awaited(&node.name, attachments.iter(), &pods);
            if detached && !attached.is_empty() {
                draft.look_soon();
                detach(scene, draft, node, &attached);
                return false;
            }
            true
        }
        Some(Fresh::Failed(unknown)) => {
            draft.block(Finding::not_observed(unknown));
            false
        }
        None => {
            let attached = attached(scene, selected);
            if detached && !attached.is_empty() {
                detach(scene, draft, node, &attached);
            } else {
                draft.wait(Waiting::SecondRead(node.name.clone()));
                draft.look_soon();
            }
            false
        }
    }
}

/// Volumes that are still attached hold up the removal of their node and nothing else. After a while a person is told.
fn detach(scene: &Scene<'_>, draft: &mut Draft, node: &Node, attached: &[&Attachment]) {
    let limit = SignedDuration::from_secs(i64::from(scene.spec.workloads.timeout_seconds));
    let start = draft.status.start_time.as_ref().map(|t| t.0);
    match start.and_then(|at| at.checked_add(limit).ok()) {
        Some(due) if due <= scene.world.now => {
            draft.block(Finding::still_attached(&node.name, attached, limit));
        }
        due => {
            if let Some(due) = due {
                draft.look_at(due);
            }
            draft.wait(Waiting::Detach {
                node: node.name.clone(),
                volumes: attached.len(),
            });
        }
    }
}

/// What is to become of the node. One with a pod that a rule leaves alone is not empty: it is kept.
fn after_drain(scene: &Scene<'_>, selected: &Selected<'_>) -> AfterDrain {
    let wanted = scene.spec.after_drain;
    if wanted != AfterDrain::Delete {
        return wanted;
    }
    let watched = selected.pods.iter().map(|(_, treatment)| treatment.clone());
    let node = selected.node.map(|n| &n.name);
    let read = match node.and_then(|name| scene.world.fresh.get(name)) {
        Some(Fresh::Read { pods, .. }) => pods.as_slice(),
        Some(Fresh::Failed(_)) | None => &[],
    };
    let mut all = watched.chain(read.iter().map(|pod| scene.treatment(pod)));
    if all.any(|treatment| treatment == Treatment::Skipped) {
        AfterDrain::Keep
    } else {
        AfterDrain::Delete
    }
}

fn name(record: &NodeStatus) -> NodeName {
    record.name.as_str().into()
}

fn remove(scene: &Scene<'_>, draft: &mut Draft, selected: &Selected<'_>) -> Stage {
    let record = selected.record;
    match (after_drain(scene, selected), &record.node_claim) {
        (AfterDrain::Keep | AfterDrain::Uncordon, _) | (AfterDrain::Delete, None) => {
            Stage::Restoring
        }
        (AfterDrain::Delete, Some(_)) => match (claim(scene, selected), selected.node) {
            // Somebody else has removed the node. What becomes of a claim without one is Karpenter's to say: nobody can see any more
            // whether its machine is empty.
            (
                None
                | Some(NodeClaim {
                    deleting: false, ..
                }),
                None,
            ) => Stage::Restoring,
            (Some(claim), Some(_)) if !claim.deleting && refilled(scene, selected) => Stage::Moving,
            (Some(claim), Some(node)) if !claim.deleting => {
                if let Err(hold) = gates::held(scene, node) {
                    moving::hold(draft, hold);
                } else if confirmed_empty(scene, draft, selected, true) {
                    draft.act(Action::DeleteNodeClaim {
                        name: claim.name.clone(),
                        uid: claim.uid.clone(),
                        generation: claim.generation,
                        node: node.name.clone(),
                    });
                }
                Stage::Removing
            }
            // Karpenter drains, ends the instance and removes both objects.
            (Some(_), _) | (None, Some(_)) => {
                draft.wait(Waiting::Gone(name(record)));
                Stage::Removing
            }
        },
    }
}
