//! Findings about workloads. Pure.

use crate::api::status::Reason;
use crate::world::{Unknown, WorkloadRef};

use super::Finding;

impl Finding {
    pub(in crate::plan) fn owner_unhealthy(
        workload: &WorkloadRef,
        ready: usize,
        replicas: usize,
    ) -> Self {
        Self::new(
            Reason::OwnerUnhealthy,
            workload.to_string(),
            format!(
                "{ready} of its {replicas} replicas are ready, and moving one more would make it worse: bring it back to full strength"
            ),
        )
    }

    pub(in crate::plan) fn rollout_in_progress(workload: &WorkloadRef) -> Self {
        Self::new(
            Reason::RolloutInProgress,
            workload.to_string(),
            "a rollout is running and a move would interfere: wait until it is finished, or undo it",
        )
    }

    pub(in crate::plan) fn rollout_failed(workload: &WorkloadRef) -> Self {
        Self::new(
            Reason::RolloutFailed,
            workload.to_string(),
            "its rollout has exceeded progressDeadlineSeconds; the pods that still run are left alone: repair it so that the rollout can finish",
        )
    }

    pub(in crate::plan) fn owner_paused(workload: &WorkloadRef) -> Self {
        Self::new(
            Reason::OwnerPaused,
            workload.to_string(),
            "it is paused and cannot be restarted: resume it, or choose workloads.strategy Evict",
        )
    }

    pub(in crate::plan) fn restart_reverted(workload: &WorkloadRef) -> Self {
        Self::new(
            Reason::RestartReverted,
            workload.to_string(),
            "the restart was undone by somebody else, and relocator does not repeat it: find who owns the pod template, or choose workloads.strategy Evict",
        )
    }

    pub(in crate::plan) fn timed_out(workload: &WorkloadRef, seconds: u32) -> Self {
        Self::new(
            Reason::WorkloadTimedOut,
            workload.to_string(),
            format!(
                "it has not moved within workloads.timeoutSeconds ({seconds} s), so nothing more of it is begun: see what it waits for, and raise workloads.timeoutSeconds to go on"
            ),
        )
    }

    pub(in crate::plan) fn owner_unwell(workload: &WorkloadRef, said: &str) -> Self {
        Self::new(
            Reason::OwnerUnhealthy,
            workload.to_string(),
            format!(
                "it is not Ready by its own word, and moving a pod would make it worse: {said}"
            ),
        )
    }

    pub(in crate::plan) fn parent_unwell(workload: &WorkloadRef, parent: &str, said: &str) -> Self {
        Self::new(
            Reason::OwnerUnhealthy,
            parent,
            format!(
                "it owns {workload} and is not Ready by its own word, and moving a pod would make it worse: {said}"
            ),
        )
    }

    pub(in crate::plan) fn parent_unheard(
        workload: &WorkloadRef,
        parent: &str,
        unknown: &Unknown,
    ) -> Self {
        Self::new(
            if unknown.forbidden {
                Reason::Forbidden
            } else {
                Reason::NotObserved
            },
            parent,
            format!(
                "it owns {workload}, and whether it is well between two moves cannot be read, so only {workload} itself is waited for; to wait for it too, grant `get` on its kind to the operator's service account: {}",
                unknown.why
            ),
        )
    }

    pub(in crate::plan) fn rollout_paused(workload: &WorkloadRef) -> Self {
        Self::new(
            Reason::OwnerPaused,
            workload.to_string(),
            "it is paused in the middle of an update, which a move would disturb: promote, abort or resume it",
        )
    }

    pub(in crate::plan) fn gone_for_good(workload: &WorkloadRef) -> Self {
        Self::new(
            Reason::UnmanagedPod,
            workload.to_string(),
            "nothing makes it again: it is evicted, as was asked for, and then it is gone",
        )
    }

    pub(in crate::plan) fn counts_as_failure(workload: &WorkloadRef, left: u32) -> Self {
        Self::new(
            Reason::JobRunning,
            workload.to_string(),
            format!(
                "each of its pods that is evicted counts as a failure, of which backoffLimit lets it have {left} more: wait for the Job instead, or give it a podFailurePolicy that ignores DisruptionTarget"
            ),
        )
    }

    pub(in crate::plan) fn loses_local_data(workload: &WorkloadRef, volumes: &[&String]) -> Self {
        const SHOWN: usize = 5;
        let mut names: Vec<_> = volumes.iter().take(SHOWN).map(|v| v.as_str()).collect();
        if volumes.len() > SHOWN {
            names.push("...");
        }
        Self::new(
            Reason::LocalData,
            workload.to_string(),
            format!(
                "what its pods have in emptyDir volumes ({}) is lost when they move: save it, or set spec.workloads.emptyDir to Block",
                names.join(", ")
            ),
        )
    }

    pub(in crate::plan) fn admission_down(workload: &WorkloadRef, webhook: &str) -> Self {
        Self::new(
            Reason::AdmissionDown,
            workload.to_string(),
            format!(
                "it alone answers the admission webhook {webhook}, which fails closed: while it moves, the pods that the webhook is asked about cannot be created; a second replica avoids that"
            ),
        )
    }

    pub(in crate::plan) fn downtime(workload: &WorkloadRef) -> Self {
        Self::new(
            Reason::Downtime,
            workload.to_string(),
            "it is down from when its pod stops until the new one is ready, since the old one has to go first",
        )
    }
}
