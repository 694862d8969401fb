//! Karpenter's objects, of every generation of its API, as plain data.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, Taint};

use super::quantity::Quantities;
use super::{NodeName, Objects, Uid};

/// A version of the API group `karpenter.sh`, with the names that its objects have there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// To v0.32: Provisioner and Machine.
    V1Alpha5,
    /// v0.32 to v0.37: `NodePool` and `NodeClaim`.
    V1Beta1,
    /// From v1.0 on: `NodePool` and `NodeClaim`.
    #[default]
    V1,
}

impl Generation {
    /// Newest first.
    pub const ALL: [Self; 3] = [Self::V1, Self::V1Beta1, Self::V1Alpha5];

    /// The version, as in `karpenter.sh/v1`.
    #[must_use]
    pub const fn version(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
            Self::V1Alpha5 => "v1alpha5",
        }
    }

    /// Kind and plural of what stands for one node.
    #[must_use]
    pub const fn claim(self) -> (&'static str, &'static str) {
        match self {
            Self::V1 | Self::V1Beta1 => ("NodeClaim", "nodeclaims"),
            Self::V1Alpha5 => ("Machine", "machines"),
        }
    }

    /// Kind and plural of what nodes are made by.
    #[must_use]
    pub const fn pool(self) -> (&'static str, &'static str) {
        match self {
            Self::V1 | Self::V1Beta1 => ("NodePool", "nodepools"),
            Self::V1Alpha5 => ("Provisioner", "provisioners"),
        }
    }
}

/// Karpenter's objects.
#[derive(Clone, Debug, Default)]
pub struct Karpenter {
    /// The oldest that is served: it decides which annotations Karpenter honours. Where v1 is served, older ones do not count.
    pub generation: Generation,
    /// All `NodeClaims` and Machines.
    pub claims: Objects<NodeClaim>,
    /// All `NodePools` and Provisioners.
    pub pools: Objects<NodePool>,
}

/// A Karpenter `NodeClaim`, or a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeClaim {
    pub name: String,
    pub uid: Uid,
    /// In which form it was read, and is deleted.
    pub generation: Generation,
    /// The node, once it has registered.
    pub node: Option<NodeName>,
    /// Condition Drifted is True.
    pub drifted: bool,
    pub deleting: bool,
    /// When Karpenter takes the node away whatever is on it: `spec.expireAfter` since its creation.
    pub expires: Option<Timestamp>,
    /// Why it is not ready yet, in Karpenter's words.
    pub message: Option<String>,
}

/// A Karpenter `NodePool`, or a Provisioner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePool {
    pub name: String,
    pub uid: Uid,
    pub deleting: bool,
    /// `spec.template.metadata.labels`: on each node that it makes.
    pub labels: BTreeMap<String, String>,
    /// `spec.template.spec.requirements`: what the other labels of its nodes may be.
    pub requirements: Vec<NodeSelectorRequirement>,
    /// `spec.template.spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.limits`: the most of each resource that its nodes may have together.
    pub limits: Quantities,
    /// `status.resources`: what its nodes have together now.
    pub used: Quantities,
}
