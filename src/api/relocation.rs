//! The `NodeRelocation` resource: what a person asks for. Pure: no kube client.
//!
//! Every field has a default but `spec.nodes`, and every field here does what it says in this version.

#![allow(
    clippy::doc_markdown,
    reason = "the comments are the text of `kubectl explain`, which shows backticks as they are"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::batch_size::BatchSize;
pub use super::replacement::{Placement, Replacement, ReplacementStrategy};
use super::schema;
use super::status::NodeRelocationStatus;

/// What to relocate and how. Everything has a default but nodes.
#[derive(kube::CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "relocation.sh",
    version = "v1alpha1",
    kind = "NodeRelocation",
    plural = "noderelocations",
    shortname = "nrel",
    category = "relocation",
    category = "karpenter",
    status = "NodeRelocationStatus",
    derive = "PartialEq",
    doc = "NodeRelocation empties the selected nodes once: it makes room on other nodes first, moves every pod within its PodDisruptionBudget, and removes the nodes when they are empty. It runs to completion, as a Job does. Deleting it before the end puts back what can be put back.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "True when the relocation finished well."
    ),
    printcolumn(
        name = "Stage",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "How far the relocation has come: the stage of the node that is furthest behind."
    ),
    printcolumn(
        name = "Nodes",
        type_ = "string",
        json_path = ".status.progress.nodes",
        description = "Selected nodes that are done, of all."
    ),
    printcolumn(
        name = "Pods",
        type_ = "string",
        json_path = ".status.progress.pods",
        description = "Pods that have been moved, of all that have to be."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the relocation was created."
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        description = "What the relocation is doing or waiting for."
    ),
    printcolumn(
        name = "Started",
        type_ = "date",
        priority = 1,
        json_path = ".status.startTime",
        description = "Time since the nodes were selected."
    ),
    printcolumn(
        name = "Completed",
        type_ = "date",
        priority = 1,
        json_path = ".status.completionTime",
        description = "Time since the relocation ended."
    ),
    validation = (
        "size(self.metadata.name) <= 63",
        "metadata.name: at most 63 characters, since it is a label value on the placeholders"
    ),
    validation = fixed(".spec.nodes", "self.spec.nodes == oldSelf.spec.nodes"),
    validation = fixed(".spec.batchSize", "self.spec.batchSize == oldSelf.spec.batchSize"),
    validation = fixed(".spec.replacement.strategy", "self.spec.replacement.strategy == oldSelf.spec.replacement.strategy"),
    validation = fixed(".spec.replacement.image", "self.spec.replacement.image == oldSelf.spec.replacement.image"),
    validation = fixed(".spec.replacement.placement", "has(self.spec.replacement.placement) == has(oldSelf.spec.replacement.placement) && (!has(self.spec.replacement.placement) || self.spec.replacement.placement == oldSelf.spec.replacement.placement)"),
    validation = fixed(".spec.workloads.strategy", "self.spec.workloads.strategy == oldSelf.spec.workloads.strategy"),
    validation = fixed(".spec.workloads.settleSeconds", "self.spec.workloads.settleSeconds == oldSelf.spec.workloads.settleSeconds"),
    validation = fixed(".spec.workloads.rules", "has(self.spec.workloads.rules) == has(oldSelf.spec.workloads.rules) && (!has(self.spec.workloads.rules) || self.spec.workloads.rules == oldSelf.spec.workloads.rules)"),
    validation = fixed(".spec.workloads.unmanagedPods", "self.spec.workloads.unmanagedPods == oldSelf.spec.workloads.unmanagedPods"),
    validation = fixed(".spec.workloads.jobs", "self.spec.workloads.jobs == oldSelf.spec.workloads.jobs"),
    validation = fixed(".spec.workloads.emptyDir", "self.spec.workloads.emptyDir == oldSelf.spec.workloads.emptyDir"),
    validation = fixed(".spec.mode", "self.spec.mode == oldSelf.spec.mode"),
    validation = fixed(".spec.protection", "self.spec.protection == oldSelf.spec.protection"),
    validation = fixed(".spec.afterDrain", "self.spec.afterDrain == oldSelf.spec.afterDrain"),
)]
#[serde(rename_all = "camelCase")]
pub struct NodeRelocationSpec {
    /// Which nodes to empty: the selected nodes. At least one of names, selector, nodePools and createdBefore; all that are
    /// given must match. Resolved once, at the start, and then recorded in status.nodes with their UIDs: a node that matches later
    /// is not added. Immutable once started.
    pub nodes: NodeSelection,

    /// How many of the selected nodes are emptied at a time: a number, or a percentage of them, rounded up. All are cordoned
    /// from the start; room is made, and pods move, for one batch of nodes after the other: when a node is gone or done
    /// with, the next one is taken in. Nodes that carry Karpenter or relocator come last. A restart moves all pods of its
    /// workload at once, so a Deployment that can surge does that instead. 1 to 1000, or 1% to 100%. Default: 100%. Immutable
    /// once started.
    #[serde(default)]
    pub batch_size: BatchSize,

    /// How room for the pods is made on other nodes, the replacements, before any pod moves.
    #[serde(default)]
    pub replacement: Replacement,

    /// How the pods move, and how many at a time.
    #[serde(default)]
    pub workloads: Workloads,

    /// Which pods Karpenter must leave alone meanwhile. Immutable once started.
    #[serde(default)]
    pub protection: Protection,

    /// What becomes of a selected node that is empty: only DaemonSet, static and finished pods are left, and no volume
    /// is attached. Delete (default): its NodeClaim is deleted, by UID, and with it the machine; a node without a
    /// NodeClaim stays cordoned, for its autoscaler to remove. Keep: it stays, cordoned. Uncordon: it stays and takes
    /// pods again; a cordon that was there before the relocation stays. Immutable once started.
    #[serde(default)]
    pub after_drain: AfterDrain,

    /// Whether anything is done. Execute (default): the plan is made and carried out. Plan: the plan is made and kept up to
    /// date in status (workloads with strategy and reason, blockers, warnings), and nothing else is written; with Execute
    /// later it starts. Immutable once started.
    #[serde(default)]
    pub mode: Mode,

    /// Stops the relocation where it is: nothing new is begun until it is false again; a pod on the move finishes, and
    /// what holds the nodes stays. Default false.
    #[serde(default)]
    pub suspend: bool,

    /// Seconds from the start, after which the relocation fails unless it has succeeded, and onFailure says what is left
    /// behind. 1 to 2592000 (30 days). Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub active_deadline_seconds: Option<u32>,

    /// Seconds from the end, after which the object is deleted. 0 to 31536000 (a year). Default: it stays. A GitOps tool
    /// applies it again then, which does nothing when the nodes are gone or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 31_536_000))]
    pub ttl_seconds_after_finished: Option<u32>,

    /// What a failure, a deadline or a deletion of this object leaves behind. Rollback (default): our own cordons are
    /// lifted. Hold: our cordons stay, so that nothing new lands on the nodes. In both cases all else is put back:
    /// placeholders, protection, claims, raised replica counts; pods that moved stay where they are.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// A rule by which a field keeps its value from the moment at which the relocation has started: the plan was made from
/// it, and what has been done can't be done differently any more. Timeouts and `maxConcurrent` are left out on purpose:
/// they are what people turn while it runs.
fn fixed(field: &str, unchanged: &str) -> kube::core::Rule {
    let name = field.trim_start_matches('.');
    kube::core::Rule::new(format!("!has(oldSelf.status) || !has(oldSelf.status.startTime) || {unchanged}"))
        .message(
            format!("{name} is immutable once the relocation has started: delete this NodeRelocation and create another one; suspend, onFailure, the timeouts and spec.workloads.maxConcurrent may still change")
                .as_str(),
        )
        .field_path(field)
        .reason(kube::core::Reason::FieldValueForbidden)
}

/// Which nodes to empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.names) || has(self.selector) || has(self.nodePools) || has(self.createdBefore)",
    "message": "spec.nodes: give at least one of spec.nodes.names, spec.nodes.selector, spec.nodes.nodePools and spec.nodes.createdBefore"
}]))]
pub struct NodeSelection {
    /// Names of Nodes, each once. 1 to 1000. Default: nodes of any name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_names")]
    pub names: Vec<String>,

    /// Labels of the Nodes. An empty selector is refused. Default: nodes with any labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_selector")]
    pub selector: Option<LabelSelector>,

    /// Names of Karpenter NodePools, each once; nodes of any of them match, by their label karpenter.sh/nodepool or
    /// karpenter.sh/provisioner-name. 1 to 100. Default: nodes of any pool, and of none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_pools")]
    pub node_pools: Vec<String>,

    /// Nodes made before this time, as their metadata.creationTimestamp says: an RFC 3339 time of the years 2000 to 2099, such
    /// as 2026-11-30T00:00:00Z. Default: nodes of any age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::created_before")]
    pub created_before: Option<Time>,

    /// Which of the matching nodes. Any (default): all of them. Drifted: only those whose NodeClaim has the condition
    /// Drifted=True, which Karpenter sets when a node no longer is what its NodePool asks for.
    #[serde(default)]
    pub state: NodeState,

    /// Most nodes that may match. When more do, nothing starts and the relocation is Blocked: the selection is never
    /// cut silently. 1 to 1000. Default: 50.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: u32,
}

fn default_limit() -> u32 {
    50
}

/// Which of the matching nodes are selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeState {
    /// All of them.
    #[default]
    Any,
    /// Only those whose `NodeClaim` has the condition Drifted=True.
    Drifted,
}

words!(NodeState: Any, Drifted);

/// How the pods move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Workloads {
    /// How the pods of a workload move. Auto (default): the gentlest way that the workload allows. A Deployment is
    /// restarted, as by kubectl rollout restart, when all its pods are on selected nodes and the restart loses none of
    /// them; else it surges, with as many replicas more for a moment; else it is restarted when half of its pods or more
    /// are on selected nodes, or its PodDisruptionBudget never allows an eviction; all other pods are evicted.
    /// RolloutRestart: every Deployment that can be restarted is, even when that moves more pods than necessary; a paused one
    /// is a blocker. Surge: every Deployment that can surge does. Evict: all pods are evicted, one at a time for each
    /// workload. What was chosen and why is in status.workloads. Immutable once started.
    pub strategy: WorkloadStrategy,

    /// Exceptions, by kind, namespace or labels of the pods: the first that matches a pod holds for it. 1 to 16. Default:
    /// no exceptions. Immutable once started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Vec<WorkloadRule>,

    /// Most pods that are on the move at a time, over all workloads of the relocation. 1 to 1000. Default: 10. It may
    /// change while the relocation runs.
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrent: u32,

    /// How long a workload settles, in seconds: the wait after a moved pod is Ready, before the next pod of the same
    /// workload moves. 0 to 86400. Default: 0. Immutable once started.
    #[schemars(range(min = 0, max = 86400))]
    pub settle_seconds: u32,

    /// How long one workload may take to move, in seconds from when its first pod moves, and how long a Job is waited for,
    /// in seconds from the start. After that nothing more of it is begun, it is a blocker, and others go on. 60 to 604800
    /// (a week). Default: 3600. It may change while the relocation runs.
    #[schemars(range(min = 60, max = 604_800))]
    pub timeout_seconds: u32,

    /// Pods that nothing would make again. Block (default): each is a blocker. Evict: those without a controller are
    /// evicted, and are gone for good; one whose controller is gone stays a blocker until Kubernetes itself has taken it
    /// away. Immutable once started.
    pub unmanaged_pods: UnmanagedPods,

    /// Pods of Jobs. Wait (default): they are left to finish. Evict: they are evicted, and the Job makes them again or
    /// fails, as its backoffLimit and podFailurePolicy say. Immutable once started.
    pub jobs: Jobs,

    /// Pods with data in emptyDir volumes, which is lost when they move. Allow (default): they move, and status.warnings
    /// names them. Block: each is a blocker. Immutable once started.
    pub empty_dir: EmptyDir,
}

impl Default for Workloads {
    fn default() -> Self {
        Self {
            strategy: WorkloadStrategy::Auto,
            rules: Vec::new(),
            max_concurrent: 10,
            settle_seconds: 0,
            timeout_seconds: 3600,
            unmanaged_pods: UnmanagedPods::Block,
            jobs: Jobs::Wait,
            empty_dir: EmptyDir::Allow,
        }
    }
}

/// How the pods that match move, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.strategy) || has(self.order)",
    "message": "spec.workloads.rules: give at least one of strategy and order"
}]))]
pub struct WorkloadRule {
    /// Which pods. All that is given must match.
    pub r#match: WorkloadMatch,

    /// How they move. Auto, RolloutRestart, Surge and Evict: as in spec.workloads.strategy, for the whole workload. Wait:
    /// their owner, or a person, moves them or lets them end; relocator waits until they are gone. Skip: they stay; their
    /// node is emptied but for them, and kept, cordoned. Default: as spec.workloads.strategy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RuleStrategy>,

    /// When they move: what has a lower order moves first, and what has a higher one does not begin before it has moved.
    /// Within a workload it orders the pods. -1000 to 1000. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: Option<i32>,
}

/// Which pods a rule is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.kinds) || has(self.namespaces) || has(self.selector)",
    "message": "spec.workloads.rules.match: give at least one of kinds, namespaces and selector"
}]))]
pub struct WorkloadMatch {
    /// Kinds of the workloads that own the pods, such as StatefulSet, Deployment, Job or Cluster; Pod for pods that nothing
    /// makes again. 1 to 20. Default: any kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::kinds")]
    pub kinds: Vec<String>,

    /// Namespaces of the pods. 1 to 50. Default: any namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::namespaces")]
    pub namespaces: Vec<String>,

    /// Labels of the pods. An empty selector is refused. Default: any labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::rule_selector")]
    pub selector: Option<LabelSelector>,
}

/// How the pods that a rule matches move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuleStrategy {
    /// The gentlest way that the workload allows.
    Auto,
    /// A rollout restart where the workload can be restarted, evictions otherwise.
    RolloutRestart,
    /// More replicas for a moment, where the workload can take them, evictions otherwise.
    Surge,
    /// Evictions, one at a time for each workload.
    Evict,
    /// Nothing is done: they are waited for.
    Wait,
    /// Nothing is done: they stay, and their node with them.
    Skip,
}

words!(RuleStrategy: Auto, RolloutRestart, Surge, Evict, Wait, Skip);

/// Pods that nothing would make again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnmanagedPods {
    /// Each is a blocker.
    #[default]
    Block,
    /// They are evicted.
    Evict,
}

words!(UnmanagedPods: Block, Evict);

/// Pods of Jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Jobs {
    /// They are left to finish.
    #[default]
    Wait,
    /// They are evicted.
    Evict,
}

words!(Jobs: Wait, Evict);

/// Pods with data in emptyDir volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EmptyDir {
    /// They move.
    #[default]
    Allow,
    /// Each is a blocker.
    Block,
}

words!(EmptyDir: Allow, Block);

/// Whether anything is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// The plan is carried out.
    #[default]
    Execute,
    /// The plan is made and nothing else.
    Plan,
}

words!(Mode: Execute, Plan);

/// How a person wants the pods to move; what came of it is a [`MoveStrategy`](super::status::MoveStrategy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadStrategy {
    /// The gentlest way that the workload allows.
    #[default]
    Auto,
    /// A rollout restart where the workload can be restarted, evictions otherwise.
    RolloutRestart,
    /// More replicas for a moment, where the workload can take them, evictions otherwise.
    Surge,
    /// Evictions, one at a time for each workload.
    Evict,
}

words!(WorkloadStrategy: Auto, RolloutRestart, Surge, Evict);

/// Which pods Karpenter must leave alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.selector) || self.pods == 'Stateful'",
    "message": "spec.protection.selector adds to the pods that spec.protection.pods Stateful protects: set spec.protection.pods to Stateful, or leave spec.protection.selector out",
    "fieldPath": ".selector"
}]))]
pub struct Protection {
    /// Which pods on the selected nodes carry karpenter.sh/do-not-disrupt until they are moved, so that Karpenter does
    /// not evict them meanwhile. Stateful (default): those of a StatefulSet, those with a PersistentVolumeClaim, and
    /// those that the selector matches. All: every pod that has to move. None: no pod. The nodes, old and new, always
    /// carry it while the relocation runs. One that was there before stays.
    pub pods: ProtectedPods,

    /// Labels of further pods to protect as stateful; only with pods Stateful. An empty selector is refused. Default:
    /// no further pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pod_selector")]
    pub selector: Option<LabelSelector>,
}

/// Which pods carry do-not-disrupt meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProtectedPods {
    /// Those of a `StatefulSet`, those with a `PersistentVolumeClaim`, and those that the selector matches.
    #[default]
    Stateful,
    /// Every pod that has to move.
    All,
    /// No pod.
    None,
}

words!(ProtectedPods: Stateful, All, None);

/// What becomes of a selected node that is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AfterDrain {
    /// Its `NodeClaim` is deleted; a node without one stays cordoned.
    #[default]
    Delete,
    /// It stays, cordoned.
    Keep,
    /// It stays and takes pods again.
    Uncordon,
}

words!(AfterDrain: Delete, Keep, Uncordon);

/// What a failure, a deadline or a deletion leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// Our own cordons are lifted.
    #[default]
    Rollback,
    /// Our own cordons stay.
    Hold,
}

words!(OnFailure: Rollback, Hold);
