//! Workloads as observed.

use std::collections::BTreeMap;

use super::{OwnerReference, SurgeMark, Uid, WorkloadRef};

/// How a Deployment replaces its pods, with the percentages resolved for its replica count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutStrategy {
    Recreate,
    RollingUpdate {
        /// Pods that may exist above the replica count; rounded up.
        max_surge: u32,
        /// Pods that may be missing below the replica count; rounded down.
        max_unavailable: u32,
    },
}

impl RolloutStrategy {
    /// How many of so many replicas a rollout lets be missing.
    #[must_use]
    pub fn missing(self, replicas: u32) -> u32 {
        match self {
            Self::Recreate => replicas,
            Self::RollingUpdate {
                max_unavailable, ..
            } => max_unavailable.min(replicas),
        }
    }
}

/// A Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    pub reference: WorkloadRef,
    /// Labels of the pods that it makes.
    pub pod_labels: BTreeMap<String, String>,
    pub resource_version: String,
    /// `metadata.generation`: one more with each change of its spec.
    pub generation: i64,
    pub replicas: u32,
    pub updated: u32,
    pub available: u32,
    /// `status.replicas`: all its pods, old and new.
    pub existing: u32,
    /// The status belongs to the current spec.
    pub observed: bool,
    pub paused: bool,
    pub strategy: RolloutStrategy,
    /// Template annotation `kubectl.kubernetes.io/restartedAt`.
    pub restarted_at: Option<String>,
    /// Condition Progressing is False with `ProgressDeadlineExceeded`.
    pub deadline_exceeded: bool,
    pub controller: Option<OwnerReference>,
    /// The replica count is raised for the moment, by a relocation.
    pub surge: Option<SurgeMark>,
    /// Why its `ReplicaSet` cannot make pods: condition `ReplicaFailure`.
    pub failure: Option<String>,
    /// What a `GitOps` tool puts back.
    pub managed: Managed,
}

/// What of a Deployment is set by a `GitOps` tool, as its `managedFields` tell: a change of it does not last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    /// Its pod template.
    pub template: bool,
    /// Its replica count.
    pub replicas: bool,
}

impl Deployment {
    /// Every pod is of the current template and there is none but those: no rollout is running.
    #[must_use]
    pub fn rolled_out(&self) -> bool {
        self.observed && self.updated == self.replicas && self.existing == self.replicas
    }

    /// Paused, in the middle of a rollout or not, with all the pods that it is to have.
    #[must_use]
    pub fn rests_paused(&self) -> bool {
        self.paused && self.observed && self.existing == self.replicas
    }

    /// Rolled out and all of it available.
    #[must_use]
    pub fn whole(&self) -> bool {
        self.rolled_out() && self.available >= self.replicas
    }
}

/// A `ReplicaSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSet {
    pub reference: WorkloadRef,
    /// Labels of the pods that it makes.
    pub pod_labels: BTreeMap<String, String>,
    pub replicas: u32,
    /// `status.replicas`: the pods that it has.
    pub existing: u32,
    pub available: u32,
    pub observed: bool,
    pub controller: Option<OwnerReference>,
    /// As [`Deployment::restarted_at`], of the template that this set was made from.
    pub restarted_at: Option<String>,
}

/// How a `StatefulSet` replaces its pods when its template changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetUpdate {
    /// Only when somebody deletes them.
    OnDelete,
    /// By itself, the highest ordinal first.
    RollingUpdate {
        /// Pods of a lower ordinal are left as they are.
        partition: u32,
        /// Pods that may be missing at a time: 1 or more.
        max_unavailable: u32,
    },
}

/// A `StatefulSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatefulSet {
    pub reference: WorkloadRef,
    /// Labels of the pods that it makes.
    pub pod_labels: BTreeMap<String, String>,
    pub resource_version: String,
    /// `metadata.generation`: one more with each change of its spec.
    pub generation: i64,
    pub replicas: u32,
    pub available: u32,
    pub observed: bool,
    /// Nothing rolls: current and update revision are the same, or what the partition lets be updated is, or nothing rolls by itself
    /// (`OnDelete`).
    pub rolled_out: bool,
    pub update: SetUpdate,
    /// podManagementPolicy Parallel, which says how pods are made and taken away, and nothing of updates.
    pub parallel: bool,
    /// As [`Deployment::restarted_at`].
    pub restarted_at: Option<String>,
    pub controller: Option<OwnerReference>,
}

/// A `DaemonSet`: only that it exists matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSet {
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
}
