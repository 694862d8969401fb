//! What a sweep has read, as plain data: objects that carry marks, and the relocations that exist.

use std::collections::BTreeMap;

use super::{Cluster, PodRef, Uid};

/// Everything that carries a mark of ours, and the relocations that exist. The objects are older than the list of relocations, so that a
/// mark whose relocation is not in it belongs to one that exists no more, or is over, never to one that has just been made.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Nodes, pods and Deployments that carry a mark, and what else decides about those: `ReplicaSets` that choose by a deletion cost,
    /// their Deployments, `NodeClaims`. Of pods only what their metadata tells.
    pub cluster: Cluster,
    /// Placeholders without a relocation as their owner.
    pub detached: Vec<Detached>,
    /// The relocations that exist and may have marks, those in deletion included: their names by UID.
    pub relocations: BTreeMap<Uid, String>,
    /// The relocations that are over, of those that marks name: they have no use for a mark any more. Whether each lifts its cordons.
    pub over: BTreeMap<Uid, bool>,
}

/// A placeholder that has lost its owner reference, as `kubectl delete --cascade=orphan` leaves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    pub pod: PodRef,
    /// Name of the relocation that made it; nothing tells its UID any more.
    pub relocation: String,
}

impl Leftovers {
    /// Nothing carries a mark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cluster.nodes.is_empty()
            && self.cluster.pods.is_empty()
            && self.cluster.deployments.is_empty()
            && self.detached.is_empty()
    }
}
