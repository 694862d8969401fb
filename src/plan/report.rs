//! Blockers in words: one wording for status, events and logs. Pure. What comes by itself is in `waiting`.

use std::fmt;

use crate::api::keys;
use crate::api::status::BlockerReason;
use crate::world::{
    Budget, NodeClaim, NodeName, Pod, PodRef, Refusal, RefusalKind, Unknown, WorkloadRef,
};

use super::Action;
pub use super::waiting::Waiting;
pub(super) use super::waiting::sentence;

/// Something that a person has to change before the relocation goes on. It goes on by itself once that is done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blocker {
    pub reason: BlockerReason,
    /// What it is about, as `Kind namespace/name`.
    pub object: String,
    /// What blocks, and what a person can do.
    pub message: String,
}

impl Blocker {
    fn new(reason: BlockerReason, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason,
            object: object.into(),
            message: message.into(),
        }
    }

    pub(super) fn too_many_nodes(matching: usize, limit: u32) -> Self {
        Self::new(
            BlockerReason::TooManyNodes,
            "spec.nodes",
            format!(
                "{matching} nodes match and spec.nodes.limit is {limit}: narrow the selection or raise the limit; nothing is ever cut silently"
            ),
        )
    }

    pub(super) fn unreadable_selector(why: &str) -> Self {
        Self::new(
            BlockerReason::NotObserved,
            "spec.nodes.selector",
            format!("it cannot be read, so nothing is selected: {why}"),
        )
    }

    pub(super) fn unknown_node_pool(name: &str) -> Self {
        Self::new(
            BlockerReason::UnknownNodePool,
            format!("NodePool {name}"),
            format!(
                "spec.nodes.nodePools names {name}, but there is no NodePool of that name and no node carries its label: correct the name"
            ),
        )
    }

    pub(super) fn karpenter_not_installed(field: &str) -> Self {
        Self::new(
            BlockerReason::KarpenterNotInstalled,
            field,
            format!(
                "{field} needs Karpenter, but the cluster does not serve nodeclaims.karpenter.sh/v1: install Karpenter, or select by names or selector with state Any"
            ),
        )
    }

    pub(super) fn control_plane_node(name: &NodeName) -> Self {
        Self::new(
            BlockerReason::ControlPlaneNode,
            format!("Node {name}"),
            "it is a node of the control plane, which relocator never empties: narrow spec.nodes",
        )
    }

    pub(super) fn virtual_node(name: &NodeName) -> Self {
        Self::new(
            BlockerReason::VirtualNode,
            format!("Node {name}"),
            "it is a virtual or Fargate node, which stands for no machine that could be emptied: narrow spec.nodes",
        )
    }

    pub(super) fn node_deleting(name: &NodeName) -> Self {
        Self::new(
            BlockerReason::NodeDeleting,
            format!("Node {name}"),
            "the node or its NodeClaim is already being deleted by somebody else: wait until it is gone, or narrow spec.nodes",
        )
    }

    pub(super) fn claimed_by_other(name: &NodeName, other: &str) -> Self {
        Self::new(
            BlockerReason::NodeClaimedByOther,
            format!("Node {name}"),
            format!(
                "NodeRelocation {other} is working on it: this one goes on when that one has finished or is deleted"
            ),
        )
    }

    pub(super) fn unmanaged_pod(pod: &PodRef) -> Self {
        Self::new(
            BlockerReason::UnmanagedPod,
            format!("Pod {pod}"),
            "nothing would make it again if it were evicted: delete it, or move it by hand",
        )
    }

    pub(super) fn owner_missing(pod: &PodRef, owner: &str) -> Self {
        Self::new(
            BlockerReason::UnmanagedPod,
            format!("Pod {pod}"),
            format!(
                "its owner {owner} does not exist, so nothing would make it again if it were evicted: delete it, or move it by hand"
            ),
        )
    }

    pub(super) fn unsupported_owner(pod: &PodRef, owner: &str) -> Self {
        Self::new(
            BlockerReason::UnsupportedOwner,
            format!("Pod {pod}"),
            format!(
                "its owner {owner} is of a kind that relocator does not know how to treat: move the pod by the means of that owner"
            ),
        )
    }

    pub(super) fn tolerates_cordon(pod: &PodRef) -> Self {
        Self::new(
            BlockerReason::ToleratesCordon,
            format!("Pod {pod}"),
            "it tolerates node.kubernetes.io/unschedulable and would come back to the cordoned node: narrow its tolerations",
        )
    }

    pub(super) fn pinned_to_node(pod: &PodRef) -> Self {
        Self::new(
            BlockerReason::PinnedToNode,
            format!("Pod {pod}"),
            "its node selector or required affinity names hosts, so it could not run on another: change the selector",
        )
    }

    pub(super) fn budget_never_allows(pod: &PodRef, budget: &Budget) -> Self {
        Self::new(
            BlockerReason::PdbNeverAllows,
            budget.to_string(),
            format!(
                "it desires {} healthy of {} pods and so never allows an eviction of {pod}: raise the replicas or loosen the budget",
                budget.desired_healthy, budget.expected_pods
            ),
        )
    }

    pub(super) fn several_budgets(pod: &PodRef, budgets: &[String]) -> Self {
        Self::new(
            BlockerReason::SeveralPdbs,
            format!("Pod {pod}"),
            format!(
                "more than one budget covers it ({}), and the eviction API refuses to choose: let one budget cover it",
                budgets.join(", ")
            ),
        )
    }

    pub(super) fn owner_unhealthy(workload: &WorkloadRef, ready: usize, replicas: usize) -> Self {
        Self::new(
            BlockerReason::OwnerUnhealthy,
            workload.to_string(),
            format!(
                "{ready} of its {replicas} replicas are ready, and moving one more would make it worse: bring it back to full strength"
            ),
        )
    }

    pub(super) fn rollout_in_progress(workload: &WorkloadRef) -> Self {
        Self::new(
            BlockerReason::RolloutInProgress,
            workload.to_string(),
            "a rollout is running and a move would interfere: wait until it is finished, or undo it",
        )
    }

    pub(super) fn rollout_failed(workload: &WorkloadRef) -> Self {
        Self::new(
            BlockerReason::RolloutFailed,
            workload.to_string(),
            "its rollout has exceeded progressDeadlineSeconds; the pods that still run are left alone: repair it so that the rollout can finish",
        )
    }

    pub(super) fn owner_paused(workload: &WorkloadRef) -> Self {
        Self::new(
            BlockerReason::OwnerPaused,
            workload.to_string(),
            "it is paused and cannot be restarted: resume it, or choose workloads.strategy Evict",
        )
    }

    pub(super) fn restart_reverted(workload: &WorkloadRef) -> Self {
        Self::new(
            BlockerReason::RestartReverted,
            workload.to_string(),
            "the restart was undone by somebody else, and relocator does not repeat it: find who owns the pod template, or choose workloads.strategy Evict",
        )
    }

    pub(super) fn node_unreachable(name: &NodeName) -> Self {
        Self::new(
            BlockerReason::NodeUnreachable,
            format!("Node {name}"),
            "it is not Ready, so whether its pods still run is not known: nothing is forced, and their workloads wait until it is Ready again; delete the Node only when its machine is surely off",
        )
    }

    pub(super) fn replacement_not_ready(pod: &Pod, workload: &WorkloadRef) -> Self {
        let why = match (&pod.node, &pod.unschedulable) {
            (Some(node), _) => format!("it is on node {node} and does not become Ready"),
            (None, Some(said)) if !said.is_empty() => format!("no node takes it: {said}"),
            (None, _) => "no node takes it".to_owned(),
        };
        Self::new(
            BlockerReason::ReplacementNotReady,
            format!("Pod {}", pod.reference),
            format!(
                "{why}; nothing more of {workload} moves until it is Ready, and others go on: see to the pod, or delete the NodeRelocation"
            ),
        )
    }

    pub(super) fn stuck_terminating(pod: &Pod) -> Self {
        let node = match &pod.node {
            Some(node) => format!("node {node}"),
            None => "no node".to_owned(),
        };
        let message = if pod.finalizers.is_empty() {
            format!(
                "its grace period is over and {node} has not reported its end; it is waited for and never forced: look at the kubelet of {node}"
            )
        } else {
            format!(
                "its grace period is over and its finalizers keep it ({}); it is waited for and never forced: see to what has set them",
                pod.finalizers.join(", ")
            )
        };
        Self::new(
            BlockerReason::StuckTerminating,
            format!("Pod {}", pod.reference),
            message,
        )
    }

    pub(super) fn uncordoned(name: &NodeName) -> Self {
        Self::new(
            BlockerReason::Uncordoned,
            format!("Node {name}"),
            "somebody uncordoned it, so nothing more is moved, off it or to where it could land on it: cordon it to go on, or delete the NodeRelocation to stop",
        )
    }

    pub(super) fn claim_lost(name: &NodeName) -> Self {
        Self::new(
            BlockerReason::ClaimLost,
            format!("Node {name}"),
            "somebody removed the annotation relocation.sh/claimed-by, so nothing more is moved off it: delete the NodeRelocation to stop",
        )
    }

    pub(super) fn priority_class(value: Option<i32>) -> Self {
        let name = keys::PRIORITY_CLASS;
        Self::new(
            BlockerReason::PriorityClassMissing,
            format!("PriorityClass {name}"),
            match value {
                None => "it does not exist, and placeholders need it to give way: apply the manifests of relocator again, or choose replacement.strategy None".to_owned(),
                Some(value) => format!(
                    "its value is {value}, where {} is needed for placeholders to give way and still make nodes come: apply the manifests of relocator again",
                    keys::PRIORITY
                ),
            },
        )
    }

    pub(super) fn namespace_missing() -> Self {
        let name = keys::PLACEHOLDER_NAMESPACE;
        Self::new(
            BlockerReason::NamespaceMissing,
            format!("Namespace {name}"),
            "it does not exist, and placeholders live in it: apply the manifests of relocator again, or choose replacement.strategy None",
        )
    }

    pub(super) fn capacity(pod: &PodRef, scheduler: &str, claims: &[&NodeClaim]) -> Self {
        let provider: Vec<_> = claims
            .iter()
            .filter_map(|c| Some(format!("NodeClaim {}: {}", c.name, c.message.as_ref()?)))
            .collect();
        let provider = if provider.is_empty() {
            String::new()
        } else {
            format!("; {}", provider.join("; "))
        };
        Self::new(
            BlockerReason::CapacityUnavailable,
            format!("Pod {pod}"),
            format!("no place for it within replacement.timeoutSeconds: {scheduler}{provider}"),
        )
    }

    pub(super) fn deadline_exceeded(seconds: u32) -> Self {
        Self::new(
            BlockerReason::DeadlineExceeded,
            "spec.activeDeadlineSeconds",
            format!(
                "{seconds} s have passed since the start: what can be put back is put back; create another NodeRelocation to go on"
            ),
        )
    }

    pub(super) fn not_observed(unknown: &Unknown) -> Self {
        let reason = if unknown.forbidden {
            BlockerReason::Forbidden
        } else {
            BlockerReason::NotObserved
        };
        let remedy = if unknown.forbidden {
            ": grant it to the operator's service account"
        } else {
            ""
        };
        Self::new(
            reason,
            unknown.what.clone(),
            format!(
                "cannot be read, so nothing is decided: {}{remedy}",
                unknown.why
            ),
        )
    }

    /// A refused request that only a person can help with; `None` for one that is only to be tried again.
    pub(super) fn refused(action: &Action, refusal: &Refusal) -> Option<Self> {
        let (reason, message) = match refusal.kind {
            RefusalKind::Forbidden => (
                BlockerReason::Forbidden,
                format!(
                    "{}: grant it to the operator's service account",
                    refusal.message
                ),
            ),
            RefusalKind::SeveralBudgets => (
                BlockerReason::SeveralPdbs,
                format!("{}: let one budget cover it", refusal.message),
            ),
            RefusalKind::Denied => match action {
                Action::CreatePlaceholder(_) => (
                    BlockerReason::PlaceholderRefused,
                    format!("its placeholder was refused: {}", refusal.message),
                ),
                Action::Evict { .. } => (
                    BlockerReason::EvictionDenied,
                    format!("its eviction was denied: {}", refusal.message),
                ),
                _ => (
                    BlockerReason::RequestFails,
                    format!("refused: {}", refusal.message),
                ),
            },
            // A person is called when it has not gone away by itself.
            RefusalKind::Failed if refusal.attempts >= 3 => (
                BlockerReason::RequestFails,
                format!("{} attempts failed: {}", refusal.attempts, refusal.message),
            ),
            RefusalKind::Budget
            | RefusalKind::Throttled
            | RefusalKind::Outdated
            | RefusalKind::Failed => return None,
        };
        Some(Self::new(reason, refusal.object.clone(), message))
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.message)
    }
}
