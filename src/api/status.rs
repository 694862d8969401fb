//! What has been reached: written by the operator alone. Pure: no kube client, no clock.

#![allow(
    clippy::doc_markdown,
    reason = "the comments are the text of `kubectl explain`, which shows backticks as they are"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds::{
    MAX_COUNT, MAX_FINDING_BYTES, MAX_FINDINGS, MAX_GENERATION, MAX_NODES, MAX_OBJECT_BYTES,
    MAX_WHY_BYTES, MAX_WORKLOADS,
};
use super::schema;

/// What has been reached. Written by the operator alone; nothing in it changes with the clock only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeRelocationStatus {
    /// The metadata.generation that this status speaks of; -1 (default) until the operator has seen the relocation.
    #[schemars(range(min = -1))]
    pub observed_generation: i64,

    /// When the nodes were selected. From then on most of spec is immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub start_time: Option<Time>,

    /// When the relocation ended, well or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub completion_time: Option<Time>,

    /// Ready: True only when the relocation finished well; its reason is the stage. Reconciling: there, and True, while
    /// it works. Stalled: there, and True, while it is blocked or has failed. Succeeded: Unknown until the end, then
    /// True or False.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// The selected nodes, as they were resolved at the start. At most 1000.
    // Atomic: as a map it would be in metadata.managedFields once more, node by node.
    #[schemars(length(max = MAX_NODES), extend("x-kubernetes-list-type" = "atomic"))]
    pub nodes: Vec<NodeStatus>,

    /// The workloads that have, or had, pods on selected nodes, and how each is moved. At most 1000, and with very many
    /// nodes fewer; moreWorkloads counts the rest.
    #[schemars(length(max = MAX_WORKLOADS), extend("x-kubernetes-list-type" = "atomic"))]
    pub workloads: Vec<WorkloadStatus>,

    /// Workloads that are not listed. Not there when all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_workloads: Option<MoreWorkloads>,

    /// What a person has to change before the relocation goes on. It goes on by itself once that is done. At most 100,
    /// and with very many nodes fewer; moreBlockers counts the rest.
    #[schemars(length(max = MAX_FINDINGS), extend("x-kubernetes-list-type" = "atomic"))]
    pub blockers: Vec<BlockerStatus>,

    /// How many blockers there are beyond those listed. Not there when all are listed.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(max = MAX_COUNT))]
    pub more_blockers: u32,

    /// What the plan costs, or what may go wrong, as it was known when the plan was made; nothing waits for it. At most
    /// 100, and with very many nodes fewer; moreWarnings counts the rest.
    #[schemars(length(max = MAX_FINDINGS), extend("x-kubernetes-list-type" = "atomic"))]
    pub warnings: Vec<WarningStatus>,

    /// How many warnings there are beyond those listed. Not there when all are listed.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(max = MAX_COUNT))]
    pub more_warnings: u32,

    /// How far the room on other nodes is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<ReplacementStatus>,

    /// How far the whole is, as the columns of kubectl get show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero_order(order: &i32) -> bool {
    *order == 0
}

impl Default for NodeRelocationStatus {
    /// As the schema has it: not yet seen, so that a fresh relocation is never taken for one that is done.
    fn default() -> Self {
        Self {
            observed_generation: -1,
            start_time: None,
            completion_time: None,
            conditions: Vec::new(),
            nodes: Vec::new(),
            workloads: Vec::new(),
            more_workloads: None,
            blockers: Vec::new(),
            more_blockers: 0,
            warnings: Vec::new(),
            more_warnings: 0,
            replacement: None,
            progress: None,
        }
    }
}

/// How far a node, or the relocation, has come. The order is the order of the work.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub enum Stage {
    /// Not yet looked at.
    #[default]
    Pending,
    /// Finding everything that can be known to fail; nothing is written but status.
    Planning,
    /// Claiming the nodes and keeping Karpenter off them and their pods.
    Protecting,
    /// Closing the selected nodes to new pods.
    Cordoning,
    /// Making room on other nodes.
    Provisioning,
    /// Moving the pods.
    Moving,
    /// Waiting until nothing is left but what stays, and until volumes are detached.
    Draining,
    /// Doing what `afterDrain` says.
    Removing,
    /// Taking back every mark, cordon and placeholder of ours.
    Restoring,
    /// Finished well.
    Succeeded,
    /// With spec.mode Plan: the plan is made, nothing stands in its way, and nothing is begun.
    Planned,
    /// Told to stop by spec.suspend.
    Suspended,
    /// Nothing can be done until a person has changed something; it goes on by itself then.
    Blocked,
    /// Undoing what can be undone.
    RollingBack,
    /// Finished, and not well.
    Failed,
}

words!(
    Stage: Pending, Planning, Protecting, Cordoning, Provisioning, Moving, Draining, Removing, Restoring, Succeeded,
    Planned, Suspended, Blocked, RollingBack, Failed,
);

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 15] = [
        Self::Pending,
        Self::Planning,
        Self::Protecting,
        Self::Cordoning,
        Self::Provisioning,
        Self::Moving,
        Self::Draining,
        Self::Removing,
        Self::Restoring,
        Self::Succeeded,
        Self::Planned,
        Self::Suspended,
        Self::Blocked,
        Self::RollingBack,
        Self::Failed,
    ];

    /// What goes on in the stage, for people.
    #[must_use]
    pub const fn does(self) -> &'static str {
        match self {
            Self::Pending | Self::Planning => "finding out what has to be done",
            Self::Protecting => "claiming and protecting the selected nodes and their pods",
            Self::Cordoning => "cordoning the selected nodes",
            Self::Provisioning => "making places for the pods",
            Self::Moving => "moving pods",
            Self::Draining => "confirming that nothing is left on the nodes",
            Self::Removing => "removing the empty nodes",
            Self::Restoring => "taking away what was set for the time of the relocation",
            Self::Succeeded => "finished",
            Self::Planned => "planned; spec.mode is Plan, so nothing is begun",
            Self::Suspended => "suspended by spec.suspend: nothing new is begun",
            Self::Blocked => "blocked",
            Self::RollingBack => "putting back what can be put back",
            Self::Failed => "failed",
        }
    }
}

/// One selected node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Name of the Node.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// UID of the Node. A node of the same name and another UID is not this one, and is left alone.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,

    /// The Karpenter NodeClaim of the node. Not there when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_claim: Option<NodeClaimRef>,

    /// How far the node has come.
    pub stage: Stage,

    /// Pods on the node that still have to leave.
    #[serde(default)]
    #[schemars(range(max = MAX_COUNT))]
    pub pods_left: u32,

    /// True when the node was cordoned before the relocation would have cordoned it; such a cordon stays. Not there
    /// otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_unschedulable: bool,
}

/// A `NodeClaim`, by name and UID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeClaimRef {
    /// Name of the NodeClaim.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// UID of the NodeClaim: it is deleted by this, never by its name alone.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
}

/// One workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Kind of the workload, such as StatefulSet.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,

    /// API version of the workload. Not there for those of apps/v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub api_version: Option<String>,

    /// Namespace of the workload.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,

    /// Name of the workload.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// UID of the workload.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,

    /// How its pods move. RolloutRestart: by a rolling update of the workload itself. Surge: by as
    /// many replicas more, until those are Ready. Evict: by evictions, one at a time.
    pub strategy: MoveStrategy,

    /// Why this strategy was chosen.
    #[schemars(length(max = MAX_WHY_BYTES))]
    pub why: String,

    /// Pods that had to move at the start.
    #[schemars(range(max = MAX_COUNT))]
    pub pods: u32,

    /// Pods that it had in all when it was listed, for an owner that does not say how many it is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_COUNT))]
    pub size: Option<u32>,

    /// Its place in the order: workloads of a lower one move first. From spec.workloads.rules; 0 is not shown.
    #[serde(default, skip_serializing_if = "is_zero_order")]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: i32,

    /// Pods of those that have left the selected nodes and are Ready elsewhere.
    #[schemars(range(max = MAX_COUNT))]
    pub moved: u32,

    /// Replica count that a surge goes back to. Recorded before the count is raised, gone when it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_COUNT))]
    pub surged_from: Option<u32>,

    /// Generation of the workload just before its restart, recorded before that is asked for. A later one without our
    /// restart means that somebody has undone it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_GENERATION))]
    pub restarted_from: Option<i64>,

    /// When the first of its pods was moved, from which spec.workloads.timeoutSeconds counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub start_time: Option<Time>,

    /// How far the workload has come. Pending: not begun. Moving: a pod of it is on the move. Moved: all are moved and
    /// Ready. Blocked: something has to change first, see status.blockers.
    pub state: WorkloadState,
}

/// Workloads that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MoreWorkloads {
    /// Workloads that have moved and are listed no more.
    #[schemars(range(max = MAX_COUNT))]
    pub moved: u32,

    /// Pods of those.
    #[schemars(range(max = MAX_COUNT))]
    pub moved_pods: u32,

    /// Workloads that have to move and are not listed yet: their turn comes when others have moved.
    #[schemars(range(max = MAX_COUNT))]
    pub pending: u32,

    /// Pods of those.
    #[schemars(range(max = MAX_COUNT))]
    pub pending_pods: u32,
}

/// How the pods of a workload move, once it has been decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum MoveStrategy {
    /// By a rolling update of the workload itself, started as by `kubectl rollout restart`.
    RolloutRestart,
    /// Make before break, without a rollout: as many replicas more, and when those are Ready the old pods go.
    Surge,
    /// By evictions, one at a time.
    Evict,
}

words!(MoveStrategy: RolloutRestart, Surge, Evict);

/// How far a workload has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadState {
    /// Not begun.
    #[default]
    Pending,
    /// A pod of it is on the move.
    Moving,
    /// All its pods are moved and Ready.
    Moved,
    /// Something has to change first.
    Blocked,
}

words!(WorkloadState: Pending, Moving, Moved, Blocked);

/// Something that a person has to change before the relocation goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockerStatus {
    /// What blocks, in one word.
    pub reason: Reason,

    /// What it is about, as Kind namespace/name.
    #[schemars(length(max = MAX_OBJECT_BYTES))]
    pub object: String,

    /// What blocks, and what a person can do.
    #[schemars(length(max = MAX_FINDING_BYTES))]
    pub message: String,

    /// Since when it blocks.
    #[schemars(schema_with = "schema::time")]
    pub since: Time,
}

/// Something that the plan costs, or that may go wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WarningStatus {
    /// What it is, in one word.
    pub reason: Reason,

    /// What it is about, as Kind namespace/name.
    #[schemars(length(max = MAX_OBJECT_BYTES))]
    pub object: String,

    /// What there is, and what a person can do.
    #[schemars(length(max = MAX_FINDING_BYTES))]
    pub message: String,
}

/// What blocks, or is warned of. Each says what a person can do; the relocation goes on by itself once that is done.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Reason {
    /// More nodes match than `spec.nodes.limit`. Narrow the selection or raise the limit.
    TooManyNodes,
    /// A name in `spec.nodes.nodePools` belongs to no `NodePool` and is on no node. Correct the name.
    UnknownNodePool,
    /// The selection needs Karpenter's `NodeClaim`s, and the cluster does not serve them. Install Karpenter, or select by
    /// names or selector with state Any.
    KarpenterNotInstalled,
    /// A selected node belongs to the control plane, which is never emptied. Narrow the selection.
    ControlPlaneNode,
    /// A selected node is virtual (virtual kubelet, Fargate): there is no machine to empty. Narrow the selection.
    VirtualNode,
    /// Another relocation holds the node. Wait until it ends, or delete it.
    NodeClaimedByOther,
    /// Nothing would create the pod again. Delete it, or give it an owner.
    UnmanagedPod,
    /// The `PodDisruptionBudget` allows no eviction even when all pods are healthy. Add a replica or relax the budget.
    PdbNeverAllows,
    /// Several `PodDisruptionBudget`s match the pod, and the Eviction API refuses such pods. Leave one.
    SeveralPdbs,
    /// A `PodDisruptionBudget` keeps a pod that is not Ready, because too few others are. Mend the pods, or set its
    /// `unhealthyPodEvictionPolicy` to `AlwaysAllow`.
    UnhealthyPodGuarded,
    /// A webhook that fails closed is answered by this pod alone, so that nothing could be created while it moves, not even its
    /// successor. Exclude its namespace from the webhook, or give it a second replica.
    AdmissionDeadlock,
    /// While the pod moves, a webhook that fails closed is not answered, and what it is asked about cannot be created.
    AdmissionDown,
    /// The workload has fewer Ready pods than replicas already. Mend it first.
    OwnerUnhealthy,
    /// Another rollout of the workload is running. Wait until it is over, or undo it.
    RolloutInProgress,
    /// The Deployment is paused and can't be restarted. Resume it, or choose strategy Evict.
    OwnerPaused,
    /// The pod tolerates the cordon and could land on a selected node again. Remove the toleration.
    ToleratesCordon,
    /// The pod can run on this node only (node name, hostname, node-local volume). Unpin or delete it.
    PinnedToNode,
    /// A volume of the pod is a disk or a directory of its node. Copy what is in it, or let its owner make it again elsewhere.
    NodeLocalVolume,
    /// No other node has the labels that the pod asks for, or lets it in, and no `NodePool` could make such a node.
    NoFeasibleNode,
    /// The nodes of the pods that have to move may exceed the limits of the only `NodePool`s that could make them. Raise the limits.
    NodePoolLimit,
    /// A placeholder can't stand for the pod, for it has what placeholders can't have. See the message.
    Unsupported,
    /// The `NodeClaim` of a selected node expires soon, and Karpenter then removes the node whatever is on it.
    NodeExpires,
    /// Volumes are still attached to a node long after its pods have left. See to its CSI driver.
    StillAttached,
    /// The pod keeps data in emptyDir volumes, which is lost when it moves. Save it, or set
    /// `spec.workloads.emptyDir` to Allow.
    LocalData,
    /// A Job has not finished within `spec.workloads.timeoutSeconds`. Wait for it or end it, or raise the timeout.
    JobRunning,
    /// A workload has not moved within `spec.workloads.timeoutSeconds`. See to it, or raise the timeout.
    WorkloadTimedOut,
    /// A rule says that relocator leaves the pod alone, so its node is emptied but for it, and kept.
    PodSkipped,
    /// Moving the workload takes it down for a moment.
    Downtime,
    /// The priority class of the placeholders is missing. Apply the manifests of relocator again.
    PriorityClassMissing,
    /// The namespace of the placeholders is missing. Apply the manifests of relocator again.
    NamespaceMissing,
    /// Admission refused a placeholder. Change the policy, the quota or `spec.replacement`.
    PlaceholderRefused,
    /// The placeholders found no room within `spec.replacement.timeoutSeconds`. Raise the limits of the `NodePool`, or
    /// look at what the scheduler and Karpenter say about the placeholder.
    CapacityUnavailable,
    /// The kubelet of a node does not report, so nobody knows whether its pods have stopped. Nothing is forced: their
    /// workloads wait until the node is Ready again, or its Node is deleted.
    NodeUnreachable,
    /// A pod is still there although its grace period is over. It is never forced: see to its finalizers, or its node.
    StuckTerminating,
    /// A pod that was moved has not become Ready on its new node, or has none.
    ReplacementNotReady,
    /// Somebody lifted the cordon of a selected node. Cordon it again, or delete the relocation.
    Uncordoned,
    /// Somebody undid the restart; it is not repeated. Find who owns the pod template, such as a GitOps tool.
    RestartReverted,
    /// A moved pod does not become Ready, or the rollout failed. Mend the workload.
    RolloutFailed,
    /// An admission webhook or policy denies the eviction. Do what it asks for.
    EvictionDenied,
    /// The operator lacks a permission; the message says which verb on what. Grant it.
    Forbidden,
    /// Something that has to be known could not be read. The message says what and why.
    NotObserved,
    /// A selected node, or its `NodeClaim`, is already being deleted by somebody else. Wait until it is gone.
    NodeDeleting,
    /// Somebody removed our claim from a selected node. Delete the relocation to stop.
    ClaimLost,
    /// `activeDeadlineSeconds` has passed since the start. Everything is put back; create another relocation.
    DeadlineExceeded,
    /// A request of ours keeps failing. The message has the API server's words.
    RequestFails,
}

words!(
    Reason: TooManyNodes, UnknownNodePool, KarpenterNotInstalled, ControlPlaneNode, VirtualNode,
    NodeClaimedByOther, UnmanagedPod, PdbNeverAllows, SeveralPdbs, UnhealthyPodGuarded, AdmissionDeadlock, AdmissionDown, OwnerUnhealthy,
    RolloutInProgress, OwnerPaused, ToleratesCordon, PinnedToNode, NodeLocalVolume, NoFeasibleNode,
    NodePoolLimit, Unsupported, NodeExpires, StillAttached, LocalData, JobRunning, WorkloadTimedOut, PodSkipped, Downtime,
    PriorityClassMissing, NamespaceMissing,
    PlaceholderRefused, CapacityUnavailable, NodeUnreachable, StuckTerminating, ReplacementNotReady, Uncordoned, RestartReverted, RolloutFailed, EvictionDenied, Forbidden,
    NotObserved, NodeDeleting, ClaimLost, DeadlineExceeded, RequestFails,
);

/// How far the room on other nodes is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplacementStatus {
    /// Placeholders that are needed.
    #[schemars(range(max = MAX_COUNT))]
    pub placeholders_wanted: u32,

    /// Placeholders of those that are placed on a node that is Ready.
    #[schemars(range(max = MAX_COUNT))]
    pub placeholders_placed: u32,

    /// Nodes that came up for the placeholders.
    #[schemars(range(max = MAX_COUNT))]
    pub nodes_made: u32,
}

/// How far the whole is, such as `1/3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// Selected nodes that are done, of all, such as 1/3.
    #[schemars(length(max = 32))]
    pub nodes: String,

    /// Pods that have been moved, of all that have to be, such as 4/7.
    #[schemars(length(max = 32))]
    pub pods: String,
}
