//! Decisions: from a [`World`] to a [`Plan`]. Pure: no client, no clock, no await, no randomness.
//!
//! The recorded stage (in status) says how far the relocation has got, the world says what is true now; together they give the next
//! stage and the actions. Nothing else is remembered, so planning again on the result of a plan does nothing.

mod apart;
mod attach;
mod batch;
mod deadline;
mod draft;
mod drain;
mod events;
mod evict;
mod fits;
pub mod gates;
mod index;
mod listed;
mod matching;
mod moving;
mod near;
mod owners;
mod parent;
mod placement;
mod planning;
mod policy;
mod preflight;
mod protect;
mod provision;
mod rank;
mod record;
pub mod report;
mod restart;
mod restore;
mod roles;
mod rolling;
mod scene;
mod select;
mod strategy;
mod stuck;
mod surge;
mod sweep;
mod system;
mod treatment;
mod volumes;
mod wake;
mod wholeness;

use std::time::Duration;

use crate::api::guards::Guard;
use crate::api::relocation::NodeRelocation;
use crate::api::status::{NodeRelocationStatus, Stage};
use crate::world::{
    ActionKey, Generation, NodeName, PodRef, Shape, Sight, SurgeMark, Uid, WorkloadRef, World,
};
use draft::Draft;
pub use events::{About, Note, notes};
pub use owners::owners_to_read;
pub use record::only_words_differ;
pub use restore::{NodeMarks, Restore, Unguard};
use scene::Scene;
pub use sweep::{Later, Leftover, Sweep, Why, gone, over, sweep};

/// What to record, then to do, then when to look again if nothing happens before.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The status to record before any action.
    pub status: NodeRelocationStatus,
    pub actions: Vec<Action>,
    /// Look again after this time even when nothing is heard; `None`: there is nothing to wait for.
    pub wake_after: Option<Duration>,
}

/// A node by the three things that a write to it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHandle {
    pub name: NodeName,
    pub uid: Uid,
    pub resource_version: String,
}

/// A pod by the things that a write to it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodHandle {
    pub pod: PodRef,
    pub resource_version: String,
}

/// A place to be kept for a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Placeholder {
    /// Deterministic, so that two leaders make the same one.
    pub name: String,
    pub pod: PodRef,
    pub workload: WorkloadRef,
    pub shape: Shape,
    pub image: String,
}

/// One request to the API server. Each carries the precondition that makes it harmless when the world has moved on.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Precondition: resourceVersion of the relocation.
    AddFinalizer,
    /// Precondition: resourceVersion of the relocation.
    RemoveFinalizer,
    /// Marks the node as ours and keeps autoscalers from it. Precondition: UID and resourceVersion.
    ClaimNode {
        node: NodeHandle,
        guards: Vec<Guard>,
    },
    /// Keeps autoscalers from a new node. Precondition: UID and resourceVersion.
    ProtectNode {
        node: NodeHandle,
        guards: Vec<Guard>,
    },
    /// Keeps autoscalers from a pod. Precondition: UID and resourceVersion.
    ProtectPod { pod: PodHandle, guards: Vec<Guard> },
    /// Precondition: UID and resourceVersion.
    Cordon { node: NodeHandle },
    /// Precondition: the name, which follows from the pod's UID.
    CreatePlaceholder(Box<Placeholder>),
    /// Precondition: UID.
    Evict { pod: PodRef, node: NodeName },
    /// Precondition: UID and resourceVersion.
    Restart {
        workload: WorkloadRef,
        resource_version: String,
        restarted_at: String,
    },
    /// Raises the replica count to that of the mark, and sets the mark. Precondition: UID and resourceVersion.
    Surge {
        workload: WorkloadRef,
        resource_version: String,
        mark: SurgeMark,
    },
    /// Sets a low deletion cost and our mark. Precondition: UID and resourceVersion.
    CheapenPod { pod: PodHandle },
    /// Takes something of ours away.
    Restore(Restore),
    /// Deletes the relocation, which is over. Precondition: UID and resourceVersion.
    DeleteRelocation,
    /// Precondition: UID.
    DeleteNodeClaim {
        name: String,
        uid: Uid,
        generation: Generation,
        node: NodeName,
    },
}

impl Action {
    /// The same for every attempt of the same action, whatever the resourceVersion.
    #[must_use]
    pub fn key(&self) -> ActionKey {
        ActionKey(match self {
            Self::AddFinalizer => "add finalizer".to_owned(),
            Self::RemoveFinalizer => "remove finalizer".to_owned(),
            Self::DeleteRelocation => "delete relocation".to_owned(),
            Self::ClaimNode { node, .. } => format!("claim {}", node.uid),
            Self::ProtectNode { node, .. } => format!("protect node {}", node.uid),
            Self::ProtectPod { pod, .. } => format!("protect pod {}", pod.pod.uid),
            Self::Cordon { node } => format!("cordon {}", node.uid),
            Self::CreatePlaceholder(placeholder) => {
                format!("create placeholder {}", placeholder.name)
            }
            Self::Evict { pod, .. } => format!("evict {}", pod.uid),
            Self::Restart { workload, .. } => format!("restart {}", workload.uid),
            Self::Surge { workload, .. } => format!("surge {}", workload.uid),
            Self::CheapenPod { pod } => format!("cheapen pod {}", pod.pod.uid),
            Self::Restore(restore) => return restore.key(),
            Self::DeleteNodeClaim { uid, .. } => format!("delete node claim {uid}"),
        })
    }
}

/// Backstop for a watch event that never comes.
const RESYNC: Duration = Duration::from_secs(30);
/// While a node is being confirmed as empty, each look is a fresh read: no watch event is to be expected between two of them.
const SOON: Duration = Duration::from_millis(500);

/// Decides what to record and do next.
pub fn plan(world: &World) -> Plan {
    let relocation = &world.relocation;
    if is_over(relocation) {
        return draft::finished(world);
    }
    let mut draft = Draft::new(world);
    match &world.sight {
        Sight::Unknown(unknown) => draft.not_observed(unknown),
        Sight::Known(cluster) => {
            let scene = Scene::new(world, cluster);
            let recorded = recorded_stage(relocation);
            if relocation.metadata.deletion_timestamp.is_some() {
                restore::undo(&scene, &mut draft, restore::Undo::Deleted);
            } else {
                match recorded {
                    None => planning::step(&scene, &mut draft),
                    Some(Stage::RollingBack) => {
                        restore::undo(&scene, &mut draft, restore::Undo::Failed);
                    }
                    Some(_) if deadline::exceeded(world, &mut draft) => {}
                    Some(Stage::Protecting) => protect::claim(&scene, &mut draft),
                    Some(Stage::Cordoning) => protect::cordon(&scene, &mut draft),
                    Some(Stage::Provisioning) => provision::step(&scene, &mut draft),
                    Some(_) => moving::step(&scene, &mut draft),
                }
                draft.suspend(world);
            }
        }
    }
    draft.finish(world)
}

/// A node to be read from the API server itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirm {
    pub node: NodeName,
    /// The volumes attached to it are to be read as well as its pods.
    pub attachments: bool,
}

/// Nodes that look empty in what is cached: to be read from the API server itself before anything is concluded.
#[must_use]
pub fn to_confirm(world: &World) -> Vec<Confirm> {
    let Sight::Known(cluster) = &world.sight else {
        return Vec::new();
    };
    if is_over(&world.relocation) || world.relocation.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    drain::to_confirm(&Scene::of_nodes(world, cluster))
}

/// The relocation is waiting for its plan: what placeholders need is to be read.
#[must_use]
pub fn needs_setup(relocation: &NodeRelocation) -> bool {
    recorded_stage(relocation).is_none()
        && !is_over(relocation)
        && relocation.metadata.deletion_timestamp.is_none()
}

/// Finished, well or not: nothing more will be done.
#[must_use]
pub fn is_over(relocation: &NodeRelocation) -> bool {
    relocation
        .status
        .as_ref()
        .is_some_and(|s| s.completion_time.is_some())
}

/// Where the node furthest behind is; `None` before the start.
fn recorded_stage(relocation: &NodeRelocation) -> Option<Stage> {
    let status = relocation.status.as_ref()?;
    status.start_time.as_ref()?;
    Some(
        status
            .nodes
            .iter()
            .map(|n| n.stage)
            .min()
            .unwrap_or(Stage::Restoring),
    )
}
