//! What was observed, as plain data: no client, no clock, no decisions.
//!
//! Kubernetes objects become these types in [`convert`]; the conversions are total functions and never panic.
//! Whatever could not be read is not in here at all: see [`Sight::Unknown`].

mod admission;
pub mod convert;
mod karpenter;
mod leftovers;
mod other;
pub mod quantity;
mod refs;
mod refusal;
mod storage;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    NodeSelector, PodAffinityTerm, Taint, Toleration, TopologySpreadConstraint,
};
use kube::core::{Selector, SelectorExt};

use crate::api::guards::Guard;
use crate::api::relocation::NodeRelocation;
pub use admission::{Asked, Service, Webhook, Webhooks};
pub use karpenter::{Generation, Karpenter, NodeClaim, NodePool};
pub use leftovers::{Detached, Leftovers};
pub use other::{Health, Job, OtherOwner, OwnerQuery, OwnerSight, Rollout};
use quantity::Quantities;
pub use refs::{
    ActionKey, ClaimValue, NodeName, OwnerReference, PodRef, SurgeMark, Uid, WorkloadKind,
    WorkloadRef,
};
pub use refusal::{Refusal, RefusalKind};
pub use storage::{CsiNode, MountedClaim, StorageClass, Volume, VolumeClaim};
pub use workload::{
    DaemonSet, Deployment, Managed, ReplicaSet, RolloutStrategy, SetUpdate, StatefulSet,
};

/// Objects by UID. Shared: a pass works on the map as it was when the pass began.
pub type Objects<T> = Arc<BTreeMap<Uid, Arc<T>>>;

/// One look at the cluster on behalf of one relocation.
#[derive(Clone, Debug)]
pub struct World {
    /// When the look was taken. The planner knows no other clock.
    pub now: Timestamp,
    /// The relocation, as last read or written.
    pub relocation: NodeRelocation,
    /// The cluster, or why it is not known well enough to act.
    pub sight: Sight,
    /// Reads made for this pass that bypass every cache: nodes that look empty.
    pub fresh: BTreeMap<NodeName, Fresh>,
    /// What the placeholders need that is not a watched object. Read only while planning.
    pub setup: PlaceholderSetup,
    /// What the API server refused us lately. A hint to be polite and to report, never needed to be correct.
    pub refusals: BTreeMap<ActionKey, Refusal>,
}

impl World {
    /// A world of which nothing was looked at but the relocation.
    #[must_use]
    pub fn unseen(relocation: NodeRelocation, now: Timestamp) -> Self {
        Self {
            now,
            relocation,
            sight: Sight::Unknown(Vec::new()),
            fresh: BTreeMap::new(),
            setup: PlaceholderSetup::Unread,
            refusals: BTreeMap::new(),
        }
    }
}

/// The cluster as far as it is known.
#[derive(Clone, Debug)]
pub enum Sight {
    /// Everything that decisions rest on was read.
    Known(Arc<Cluster>),
    /// Something could not be read; nothing may be decided from the rest.
    Unknown(Vec<Unknown>),
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// What was to be read, for example `nodes`.
    pub what: String,
    /// Why it could not be read, in the API server's words.
    pub why: String,
    /// The API server refused the verb (403), as opposed to not having answered yet.
    pub forbidden: bool,
}

/// The objects that decisions rest on, keyed by UID.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// All nodes.
    pub nodes: Objects<Node>,
    /// All pods, our placeholders among them.
    pub pods: Objects<Pod>,
    /// All Deployments.
    pub deployments: Objects<Deployment>,
    /// All `ReplicaSets`.
    pub replica_sets: Objects<ReplicaSet>,
    /// All `StatefulSets`.
    pub stateful_sets: Objects<StatefulSet>,
    /// All `DaemonSets`.
    pub daemon_sets: Objects<DaemonSet>,
    /// All `PodDisruptionBudgets`.
    pub budgets: Objects<Budget>,
    /// All volume attachments.
    pub attachments: Objects<Attachment>,
    /// All admission webhooks, validating and mutating.
    pub webhooks: Objects<Webhooks>,
    /// All Services.
    pub services: Objects<Service>,
    /// All `PersistentVolumeClaims`.
    pub volume_claims: Objects<VolumeClaim>,
    /// All `PersistentVolumes`.
    pub volumes: Objects<Volume>,
    /// All `StorageClasses`.
    pub storage_classes: Objects<StorageClass>,
    /// All `CSINodes`.
    pub csi_nodes: Objects<CsiNode>,
    /// Owners of other kinds, by the UID that was looked for: those of pods that have to move, read one by one.
    pub owners: BTreeMap<Uid, OwnerSight>,
    /// Karpenter's objects; `None` when the cluster serves none of them.
    pub karpenter: Option<Karpenter>,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub name: NodeName,
    pub uid: Uid,
    pub resource_version: String,
    pub labels: BTreeMap<String, String>,
    /// `spec.taints`, the one of a cordon among them.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`: cordoned, by whomever.
    pub unschedulable: bool,
    /// Condition Ready is True.
    pub ready: bool,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    pub marks: Marks,
}

/// The annotations that matter to us, on a node or a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `relocation.sh/claimed-by`.
    pub claimed_by: Option<ClaimValue>,
    /// `relocation.sh/cordoned-by`: who set `spec.unschedulable`.
    pub cordoned_by: Option<ClaimValue>,
    /// The annotations that keep autoscalers away: those that are there, or have our mark beside them.
    pub guards: BTreeMap<Guard, GuardMark>,
    /// `relocation.sh/deletion-cost-by`: who set the deletion cost beside it.
    pub costed_by: Option<ClaimValue>,
    /// `controller.kubernetes.io/pod-deletion-cost`, whatever its value.
    pub deletion_cost: Option<String>,
}

/// An annotation that keeps an autoscaler away, as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardMark {
    /// Its value; `None` when only our mark is there.
    pub value: Option<String>,
    /// [`Guard::mark`]: who set it. `None`: not relocator.
    pub by: Option<ClaimValue>,
}

impl Marks {
    /// The value of the annotation, whoever set it.
    #[must_use]
    pub fn value_of(&self, guard: Guard) -> Option<&str> {
        self.guards.get(&guard)?.value.as_deref()
    }

    /// Those of the annotations that nobody has set.
    #[must_use]
    pub fn lacks(&self, guards: &[Guard]) -> Vec<Guard> {
        let unset = guards.iter().filter(|g| self.value_of(**g).is_none());
        unset.copied().collect()
    }

    /// The annotations that have the mark of that relocation.
    pub fn guarded_by(&self, relocation: &Uid) -> impl Iterator<Item = (Guard, &GuardMark)> {
        let ours = |mark: &GuardMark| mark.by.as_ref().is_some_and(|by| by.uid == *relocation);
        let guards = self.guards.iter();
        guards.filter_map(move |(guard, mark)| ours(mark).then_some((*guard, mark)))
    }

    /// Every relocation that has a mark here.
    pub fn relocations(&self) -> impl Iterator<Item = &ClaimValue> {
        let guards = self.guards.values().filter_map(|mark| mark.by.as_ref());
        let others = [&self.claimed_by, &self.cordoned_by, &self.costed_by];
        others.into_iter().flatten().chain(guards)
    }
}

/// A pod.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each asked for by name"
)]
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub reference: PodRef,
    pub resource_version: String,
    pub labels: BTreeMap<String, String>,
    pub node: Option<NodeName>,
    /// Succeeded or Failed: holds nothing any more.
    pub finished: bool,
    /// Nothing of it has run yet: phase Pending.
    pub pending: bool,
    /// Condition Ready is True and the pod is not terminating.
    pub ready: bool,
    /// Since when condition Ready has been True.
    pub ready_since: Option<Timestamp>,
    /// `metadata.deletionTimestamp` is set, or we have seen our eviction accepted.
    pub terminating: bool,
    /// `metadata.deletionTimestamp`: the end of its grace period, by which it is to have stopped.
    pub stops_by: Option<Timestamp>,
    /// `metadata.finalizers`: whoever has set them keeps the object until they are gone.
    pub finalizers: Vec<String>,
    pub created: Option<Timestamp>,
    pub controller: Option<OwnerReference>,
    /// Mirror of a static pod: the annotation and its own node as an owner, both.
    pub mirror: bool,
    /// The claims that it mounts, those of generic ephemeral volumes included.
    pub claims: Vec<MountedClaim>,
    /// Names of its emptyDir volumes: what is in them is lost when it moves.
    pub empty_dirs: Vec<String>,
    pub marks: Marks,
    /// Why the scheduler could not place it, in its own words.
    pub unschedulable: Option<String>,
    /// Which of our placeholders it is.
    pub placeholder: Option<PlaceholderLabel>,
    /// Of priority `system-node-critical`: the other pods of its node may need it.
    pub node_critical: bool,
    /// What the scheduler looks at.
    pub shape: Shape,
}

/// What makes a pod fit on a node: the part of a pod that a placeholder copies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Requests as the scheduler counts them, overhead included.
    pub requests: Quantities,
    pub node_selector: BTreeMap<String, String>,
    /// `requiredDuringSchedulingIgnoredDuringExecution` node affinity.
    pub required_affinity: Option<NodeSelector>,
    pub tolerations: Vec<Toleration>,
    pub scheduler_name: Option<String>,
    /// `requiredDuringSchedulingIgnoredDuringExecution` pod anti-affinity.
    pub repels: Vec<PodAffinityTerm>,
    /// `requiredDuringSchedulingIgnoredDuringExecution` pod affinity.
    pub attracts: Vec<PodAffinityTerm>,
    /// Topology spread constraints that keep a pod from being scheduled (`DoNotSchedule`).
    pub spread: Vec<TopologySpreadConstraint>,
    /// It has a port of its node: two of the kind can't be on one.
    pub host_ports: bool,
    /// Devices by dynamic resource allocation: `spec.resourceClaims`, by name.
    pub devices: Vec<String>,
}

/// What a placeholder says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceholderLabel {
    /// UID of the relocation that made it.
    pub relocation: Uid,
    /// The pod that it keeps a place for.
    pub pod: Uid,
    /// The workload of that pod.
    pub workload: Uid,
}

/// A `PodDisruptionBudget`.
#[derive(Clone, Debug)]
pub struct Budget {
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
    /// `None` selects nothing.
    pub selector: Option<Selector>,
    pub disruptions_allowed: i32,
    pub current_healthy: i32,
    pub desired_healthy: i32,
    pub expected_pods: i32,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`: pods that are not Ready may go whatever the others are like.
    pub always_allows_unhealthy: bool,
    /// The status belongs to the current spec.
    pub observed: bool,
}

impl Budget {
    /// Whether the budget covers the pod.
    #[must_use]
    pub fn covers(&self, pod: &Pod) -> bool {
        self.selects(&pod.reference.namespace, &pod.labels)
    }

    /// Whether the budget covers pods with these labels in that namespace.
    #[must_use]
    pub fn selects(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.selector.as_ref();
        self.namespace == namespace && selector.is_some_and(|s| s.matches(labels))
    }

    /// How many of its pods it could spare if all of them were healthy.
    #[must_use]
    pub fn spares_at_most(&self) -> i32 {
        self.expected_pods.saturating_sub(self.desired_healthy)
    }

    /// It keeps a pod that runs and is not Ready, because too few others are: with the default `unhealthyPodEvictionPolicy`,
    /// `IfHealthyBudget`.
    ///
    /// Source: `policy/v1` `PodDisruptionBudgetSpec`, and what the eviction API does with it.
    #[must_use]
    pub fn keeps_unhealthy(&self, pod: &Pod) -> bool {
        !pod.ready
            && !pod.pending
            && !pod.finished
            && !self.always_allows_unhealthy
            && self.disruptions_allowed < 1
            && (self.current_healthy < self.desired_healthy || self.desired_healthy == 0)
    }

    /// No eviction will ever be allowed, however healthy the pods are: it desires at least as many as it expects.
    #[must_use]
    pub fn never_allows(&self) -> bool {
        self.observed && self.expected_pods > 0 && self.desired_healthy >= self.expected_pods
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PodDisruptionBudget {}/{}", self.namespace, self.name)
    }
}

/// A volume attached to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub name: String,
    pub uid: Uid,
    pub node: NodeName,
    /// The persistent volume; `None` for an inline volume.
    pub volume: Option<String>,
}

/// What a fresh read of one node showed.
#[derive(Clone, Debug)]
pub enum Fresh {
    /// The pods bound to the node and, where they were asked for, the volumes attached to it, read from the API server in this pass.
    Read {
        pods: Vec<Pod>,
        attachments: Vec<Attachment>,
    },
    /// The read failed: nothing is known.
    Failed(Unknown),
}

/// What of a `PriorityClass` decides how its pods behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    pub value: i32,
    /// Its pods push out pods of lower priority, unless its preemptionPolicy is Never.
    pub preempts: bool,
    /// It holds for every pod that names no class.
    pub global_default: bool,
}

impl Priority {
    /// That of placeholders: they give way, push nobody out, and are the only pods of it.
    pub const OF_PLACEHOLDERS: Self = Self {
        value: crate::api::keys::PRIORITY,
        preempts: false,
        global_default: false,
    };
}

/// What placeholders need: a namespace and a priority class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlaceholderSetup {
    /// Not looked at in this pass.
    #[default]
    Unread,
    /// Looked at.
    Read {
        namespace: bool,
        /// The `PriorityClass`, if it exists.
        priority: Option<Priority>,
    },
    /// Could not be read.
    Failed(Unknown),
}

impl Cluster {
    /// The node of that name, if it exists now.
    #[must_use]
    pub fn node_named(&self, name: &NodeName) -> Option<&Arc<Node>> {
        self.nodes.values().find(|n| n.name == *name)
    }
}
