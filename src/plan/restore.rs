//! Stage Restoring, and the undoing of everything: all that we set is taken away, and nothing else. Pure.

use crate::api::guards::Guard;
use crate::api::keys;
use crate::api::relocation::{AfterDrain, OnFailure};
use crate::api::status::Stage;
use crate::world::{ActionKey, ClaimValue, Cluster, Marks, Pod, PodRef, Uid, WorkloadRef};

use super::draft::Draft;
use super::index::Index;
use super::report::Waiting;
use super::scene::Scene;
use super::{Action, NodeHandle, PodHandle, surge};

/// One request that takes something of ours away. It names what it writes to and needs nothing of the relocation, which may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restore {
    /// Removes these marks from a node, with what they stand for where that is still ours. Precondition: UID and resourceVersion.
    ReleaseNode {
        node: NodeHandle,
        marks: NodeMarks,
        guards: Vec<Unguard>,
        uncordon: bool,
    },
    /// Removes what keeps autoscalers from a pod. Precondition: UID and resourceVersion.
    UnprotectPod {
        pod: PodHandle,
        guards: Vec<Unguard>,
    },
    /// Removes the deletion cost, if it still has our value, and our mark. Precondition: UID and resourceVersion.
    UncheapenPod { pod: PodHandle, still_ours: bool },
    /// Precondition: UID.
    DeletePlaceholder { pod: PodRef },
    /// Takes the mark of a surge away and sets the replica count, if one is given; `None`: the one that somebody else has set stays.
    /// Precondition: UID and resourceVersion.
    EndSurge {
        workload: WorkloadRef,
        resource_version: String,
        replicas: Option<u32>,
    },
}

/// The marks on a node that are of one relocation. Another one's are not touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMarks {
    /// `relocation.sh/claimed-by`.
    pub claim: bool,
    /// `relocation.sh/cordoned-by`.
    pub cordon: bool,
}

/// Our mark beside an annotation that keeps an autoscaler away: the mark goes, and with it the annotation where it still has our value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unguard {
    pub guard: Guard,
    pub still_ours: bool,
}

/// What takes away the annotations that the relocation of that UID has set.
pub(super) fn unguards(marks: &Marks, of: &Uid) -> Vec<Unguard> {
    let guards = marks.guarded_by(of).map(|(guard, mark)| Unguard {
        guard,
        still_ours: mark.value.as_deref() == Some(Guard::VALUE),
    });
    guards.collect()
}

impl Restore {
    /// As [`Action::key`].
    #[must_use]
    pub fn key(&self) -> ActionKey {
        ActionKey(match self {
            Self::ReleaseNode { node, .. } => format!("release {}", node.uid),
            Self::UnprotectPod { pod, .. } => format!("unprotect pod {}", pod.pod.uid),
            Self::UncheapenPod { pod, .. } => format!("uncheapen pod {}", pod.pod.uid),
            Self::DeletePlaceholder { pod } => format!("delete placeholder {}", pod.uid),
            Self::EndSurge { workload, .. } => format!("end surge {}", workload.uid),
        })
    }

    /// The object that is written to, in words: `Pod default/db-0`.
    #[must_use]
    pub fn object(&self) -> String {
        match self {
            Self::ReleaseNode { node, .. } => format!("Node {}", node.name),
            Self::UnprotectPod { pod, .. } | Self::UncheapenPod { pod, .. } => {
                format!("Pod {}", pod.pod)
            }
            Self::DeletePlaceholder { pod } => format!("Pod {pod}"),
            Self::EndSurge { workload, .. } => workload.to_string(),
        }
    }
}

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
                let kept = || scene.nodes.iter().filter(|n| n.node.is_some());
                let unclaimed = kept().filter(|n| n.record.node_claim.is_none()).count();
                // One with a pod that a rule leaves alone.
                let skipped = kept().count() - unclaimed;
                let stay = |count: usize, which: &str| {
                    (count > 0).then(|| format!(", {count} {which} stay cordoned"))
                };
                [
                    Some(format!("{} nodes removed", nodes - unclaimed - skipped)),
                    stay(unclaimed, "without a NodeClaim"),
                    stay(skipped, "with pods that a rule skips"),
                ]
                .into_iter()
                .flatten()
                .collect::<String>()
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
    let removal = removal(scene.cluster, &scene.claim.uid, uncordon);
    for restore in removal.restores {
        draft.restore(restore);
    }
    if removal.seen > 0 {
        draft.wait(Waiting::Release(removal.seen));
    }
    removal.seen == 0
}

/// What it takes to remove all that carries the mark of one relocation.
pub(super) struct Removal<'a> {
    pub(super) restores: Vec<Restore>,
    /// Pods that keep their deletion cost until their `ReplicaSet` has chosen by it.
    pub(super) chosen_from: Vec<&'a Pod>,
    /// Everything that is still there, what is on its way out included.
    pub(super) seen: usize,
}

/// Finds all that carries the mark of the relocation of that UID. `uncordon`: its cordons are lifted; otherwise only their marks go.
pub(super) fn removal<'a>(cluster: &'a Cluster, of: &Uid, uncordon: bool) -> Removal<'a> {
    let mut removal = Removal {
        restores: Vec::new(),
        chosen_from: Vec::new(),
        seen: 0,
    };
    let index = Index::new(cluster);
    let ours = |mark: &Option<ClaimValue>| mark.as_ref().is_some_and(|m| m.uid == *of);
    for placeholder in cluster.pods.values().filter(|p| {
        p.placeholder
            .as_ref()
            .is_some_and(|label| label.relocation == *of)
    }) {
        removal.seen += 1;
        if !placeholder.terminating {
            removal.restores.push(Restore::DeletePlaceholder {
                pod: placeholder.reference.clone(),
            });
        }
    }
    for node in cluster.nodes.values() {
        let marks = NodeMarks {
            claim: ours(&node.marks.claimed_by),
            cordon: ours(&node.marks.cordoned_by),
        };
        let guards = unguards(&node.marks, of);
        if marks == NodeMarks::default() && guards.is_empty() {
            continue;
        }
        // A node that is on its way out may stay so for as long as a pod wants: the marks go, but to open it again would only invite pods
        // to die with it.
        let leaving = node.deleting || index.claim_of(&node.name).is_some_and(|c| c.deleting);
        removal.seen += 1;
        removal.restores.push(Restore::ReleaseNode {
            node: node.as_ref().into(),
            marks,
            guards,
            uncordon: uncordon && marks.cordon && node.unschedulable && !leaving,
        });
    }
    for pod in cluster.pods.values().filter(|p| !p.terminating) {
        let guards = unguards(&pod.marks, of);
        if guards.is_empty() {
            continue;
        }
        removal.seen += 1;
        let pod = pod.as_ref().into();
        removal.restores.push(Restore::UnprotectPod { pod, guards });
    }
    end_surges(cluster, of, &mut removal);
    removal
}

/// Ends surges, and takes the deletion costs away once no `ReplicaSet` needs them any more to choose.
fn end_surges<'a>(cluster: &'a Cluster, of: &Uid, removal: &mut Removal<'a>) {
    for deployment in cluster.deployments.values() {
        if let Some(mark) = surge::of(of, deployment) {
            removal.seen += 1;
            let back = (deployment.replicas == mark.to).then_some(mark.from);
            removal.restores.push(surge::end(deployment, back));
        }
    }
    for pod in cluster.pods.values().filter(|p| {
        !p.terminating
            && p.marks
                .costed_by
                .as_ref()
                .is_some_and(|mark| mark.uid == *of)
    }) {
        removal.seen += 1;
        if chosen_from(cluster, pod) {
            removal.chosen_from.push(pod);
            continue;
        }
        removal.restores.push(Restore::UncheapenPod {
            pod: pod.as_ref().into(),
            still_ours: pod.marks.deletion_cost.as_deref() == Some(keys::DELETION_COST_VALUE),
        });
    }
}

/// The pod's `ReplicaSet` is about to remove pods.
fn chosen_from(cluster: &Cluster, pod: &Pod) -> bool {
    let Some(set) = pod
        .controller
        .as_ref()
        .and_then(|c| cluster.replica_sets.get(&c.uid))
    else {
        return false;
    };
    let parent = set
        .controller
        .as_ref()
        .and_then(|c| cluster.deployments.get(&c.uid));
    parent.is_some_and(|d| d.surge.is_some() || !d.observed)
        || !set.observed
        || set.existing > set.replicas
}
