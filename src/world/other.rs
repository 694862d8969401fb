//! Owners of other kinds than those of apps/v1, as observed: Jobs, `ReplicationControllers`, custom resources.

use jiff::Timestamp;

use super::{OwnerReference, Uid, Unknown, WorkloadRef};

/// What a read of an owner by its name showed.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerSight {
    /// It exists under the UID that was looked for.
    Found(Box<OtherOwner>),
    /// There is none of that name, or one with another UID: the one that was meant is gone.
    Missing,
    /// Its kind is not served in the version that was named: whether it exists is not known, and will not be by asking again.
    Unserved(Unknown),
    /// Whether it exists is not known.
    Failed(Unknown),
}

/// An owner of which only what many kinds have in common is understood.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherOwner {
    pub reference: WorkloadRef,
    /// How many pods it is to have: `spec.replicas`, `spec.instances`, and for a Job what it still has to run at a time. `None` when it
    /// does not say.
    pub replicas: Option<u32>,
    /// What it says of its own health, where it says something; see [`Health`].
    pub health: Health,
    pub deleting: bool,
    /// What only a Job has.
    pub job: Option<Job>,
    /// What only a Rollout of Argo has.
    pub rollout: Option<Rollout>,
}

/// What an owner says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It says nothing that is understood.
    Unsaid,
    Healthy,
    /// It is not, in its own words.
    Unwell(String),
}

/// What only a Job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Failures that it may still have: `spec.backoffLimit` less `status.failed`.
    pub failures_left: u32,
    /// A rule of `spec.podFailurePolicy` ignores pods that were disrupted, so that an eviction is no failure.
    pub ignores_disruption: bool,
    /// Complete or Failed.
    pub finished: bool,
}

/// What only a Rollout of Argo (`argoproj.io`) has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    pub resource_version: String,
    /// `metadata.generation`: one more with each change of its spec.
    pub generation: i64,
    /// Paused by a person, or in a step of a canary or before a promotion.
    pub paused: bool,
    /// Pods that a restart may let be missing at a time: 1 or more.
    pub max_unavailable: u32,
    /// `spec.restartAt`: pods that were made before that are to be replaced.
    pub restart_at: Option<Timestamp>,
    /// `status.restartedAt`: the last restart that is finished.
    pub restarted_at: Option<Timestamp>,
}

impl Rollout {
    /// A restart was asked for and is not finished.
    #[must_use]
    pub fn is_restarting(&self) -> bool {
        self.restart_at
            .is_some_and(|at| self.restarted_at.is_none_or(|done| done < at))
    }
}

/// An owner to be read: whose, and in which namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerQuery {
    pub namespace: String,
    pub owner: OwnerReference,
}

impl OwnerQuery {
    /// The UID that is looked for.
    #[must_use]
    pub fn uid(&self) -> &Uid {
        &self.owner.uid
    }
}
