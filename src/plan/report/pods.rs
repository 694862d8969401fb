//! Findings about pods. Pure.

use jiff::SignedDuration;

use crate::api::status::Reason;
use crate::plan::treatment::Awaited;
use crate::world::{Budget, NodeName, Pod, PodRef, Unknown, WorkloadRef};

use super::Finding;

impl Finding {
    pub(in crate::plan) fn unmanaged_pod(pod: &PodRef) -> Self {
        Self::new(
            Reason::UnmanagedPod,
            format!("Pod {pod}"),
            "nothing would make it again if it were evicted: delete it, or move it by hand",
        )
    }

    pub(in crate::plan) fn owner_missing(pod: &PodRef, owner: &str) -> Self {
        Self::new(
            Reason::UnmanagedPod,
            format!("Pod {pod}"),
            format!(
                "its owner {owner} does not exist, so nothing would make it again if it were evicted: delete it, or move it by hand"
            ),
        )
    }

    pub(in crate::plan) fn owner_makes_nothing(pod: &PodRef, owner: &str) -> Self {
        Self::new(
            Reason::UnmanagedPod,
            format!("Pod {pod}"),
            format!(
                "its owner {owner} is of a kind that makes no pods, so nothing would make it again if it were evicted: delete it, move it by hand, or let a rule for kind Pod say what to do with it"
            ),
        )
    }

    pub(in crate::plan) fn owner_not_read(pod: &PodRef, owner: &str, unknown: &Unknown) -> Self {
        let remedy = if unknown.forbidden {
            ": grant `get` on its kind to the operator's service account, or move the pod by the means of that owner"
        } else {
            ""
        };
        Self::new(
            if unknown.forbidden {
                Reason::Forbidden
            } else {
                Reason::NotObserved
            },
            format!("Pod {pod}"),
            format!(
                "whether its owner {owner} exists could not be read, so the pod is left alone: {}{remedy}",
                unknown.why
            ),
        )
    }

    pub(in crate::plan) fn owner_not_looked_at(pod: &PodRef, owner: &str) -> Self {
        Self::new(
            Reason::NotObserved,
            format!("Pod {pod}"),
            format!("whether its owner {owner} exists has not been read yet"),
        )
    }

    pub(in crate::plan) fn local_data(pod: &Pod) -> Self {
        Self::new(
            Reason::LocalData,
            format!("Pod {}", pod.reference),
            format!(
                "its emptyDir volumes ({}) are lost when it moves, and spec.workloads.emptyDir is Block: save what is in them and delete the pod, or set Allow in a new relocation",
                pod.empty_dirs.join(", ")
            ),
        )
    }

    pub(in crate::plan) fn tolerates_cordon(pod: &PodRef) -> Self {
        Self::new(
            Reason::ToleratesCordon,
            format!("Pod {pod}"),
            "it tolerates node.kubernetes.io/unschedulable and would come back to the cordoned node: narrow its tolerations",
        )
    }

    pub(in crate::plan) fn pinned_to_node(pod: &PodRef) -> Self {
        Self::new(
            Reason::PinnedToNode,
            format!("Pod {pod}"),
            "its node selector or required affinity names hosts, so it could not run on another: change the selector",
        )
    }

    pub(in crate::plan) fn several_budgets(pod: &PodRef, budgets: &[String]) -> Self {
        Self::new(
            Reason::SeveralPdbs,
            format!("Pod {pod}"),
            format!(
                "more than one budget covers it ({}), and the eviction API refuses to choose: let one budget cover it",
                budgets.join(", ")
            ),
        )
    }

    pub(in crate::plan) fn budget_never_allows(pod: &PodRef, budget: &Budget) -> Self {
        Self::new(
            Reason::PdbNeverAllows,
            budget.to_string(),
            format!(
                "it desires {} healthy of {} pods and so never allows an eviction of {pod}: raise the replicas or loosen the budget",
                budget.desired_healthy, budget.expected_pods
            ),
        )
    }

    pub(in crate::plan) fn lead_guarded(pod: &PodRef, budget: &Budget) -> Self {
        Self::new(
            Reason::PdbNeverAllows,
            budget.to_string(),
            format!(
                "it never allows an eviction of {pod}, which leads the others of its owner: those move first, and {pod} when the lead has passed on, which some operators see to once the node is cordoned; otherwise ask its operator for a switchover"
            ),
        )
    }

    pub(in crate::plan) fn unhealthy_pod_guarded(pod: &PodRef, budget: &Budget) -> Self {
        Self::new(
            Reason::UnhealthyPodGuarded,
            format!("Pod {pod}"),
            format!(
                "it is not Ready, and {budget} keeps it while {} of the {} that it desires are healthy: mend the pods, or set the budget's unhealthyPodEvictionPolicy to AlwaysAllow",
                budget.current_healthy, budget.desired_healthy
            ),
        )
    }

    pub(in crate::plan) fn admission_deadlock(pod: &PodRef, webhook: &str) -> Self {
        Self::new(
            Reason::AdmissionDeadlock,
            format!("Pod {pod}"),
            format!(
                "it alone answers the admission webhook {webhook}, which fails closed and is asked about every pod, so its successor could never be created: exclude its namespace from the webhook, or give it a second replica"
            ),
        )
    }

    pub(in crate::plan) fn replacement_not_ready(pod: &Pod, workload: &WorkloadRef) -> Self {
        let why = match (&pod.node, &pod.unschedulable) {
            (Some(node), _) => format!("it is on node {node} and does not become Ready"),
            (None, Some(said)) if !said.is_empty() => format!("no node takes it: {said}"),
            (None, _) => "no node takes it".to_owned(),
        };
        Self::new(
            Reason::ReplacementNotReady,
            format!("Pod {}", pod.reference),
            format!(
                "{why}; nothing more of {workload} moves until it is Ready, and others go on: see to the pod, or delete the NodeRelocation"
            ),
        )
    }

    pub(in crate::plan) fn stuck_terminating(pod: &Pod) -> Self {
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
            Reason::StuckTerminating,
            format!("Pod {}", pod.reference),
            message,
        )
    }

    pub(in crate::plan) fn still_there(
        pod: &PodRef,
        what: &Awaited,
        limit: SignedDuration,
    ) -> Self {
        let seconds = limit.as_secs();
        let (reason, object, message) = match what {
            Awaited::Job(job) => (
                Reason::JobRunning,
                job.clone(),
                format!(
                    "its pod {pod} still runs after workloads.timeoutSeconds ({seconds} s): wait for it, end it, or raise workloads.timeoutSeconds"
                ),
            ),
            Awaited::ByRule => (
                Reason::WorkloadTimedOut,
                format!("Pod {pod}"),
                format!(
                    "a rule with strategy Wait leaves it to others, and it is still there after workloads.timeoutSeconds ({seconds} s): see to it, or raise workloads.timeoutSeconds"
                ),
            ),
        };
        Self::new(reason, object, message)
    }

    pub(in crate::plan) fn skipped(pod: &PodRef, node: &NodeName) -> Self {
        Self::new(
            Reason::PodSkipped,
            format!("Pod {pod}"),
            format!(
                "a rule with strategy Skip leaves it where it is, so node {node} is emptied but for it, and stays, cordoned"
            ),
        )
    }
}
