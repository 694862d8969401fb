//! Batches: which of the selected nodes are being emptied now, and so which pods are to leave. Pure.
//!
//! All selected nodes are closed from the start, so a pod never lands in a later batch. The batch slides: when one of its nodes is gone,
//! or done with, the next one is taken in.

use std::collections::HashSet;

use crate::api::relocation::BatchSize;
use crate::api::status::{MoveStrategy, Stage, WorkloadStatus};
use crate::world::{NodeName, Pod};

use super::scene::Scene;

/// Says of each node whether it is one of the batch, and of each workload which of its pods are to leave now.
pub(super) fn divide(scene: &mut Scene<'_>) {
    let nodes = nodes(scene);
    for selected in &mut scene.nodes {
        selected.due = nodes.contains(selected.record.name.as_str());
    }
    let is_due = |pod: &&Pod| {
        pod.node
            .as_ref()
            .is_some_and(|n| nodes.contains(n.as_str()))
    };
    for work in &mut scene.works {
        let restarted = |record: &WorkloadStatus| record.strategy == MoveStrategy::RolloutRestart;
        if !(work.record.is_some_and(restarted) && work.left.iter().any(is_due)) {
            work.due.retain(is_due);
        }
    }
}

/// The first of the nodes that are not done with, as many as a batch has; those that carry what everything else needs, such as
/// Karpenter, come last.
fn nodes<'a>(scene: &Scene<'a>) -> HashSet<&'a str> {
    let size = scene.spec.batch_size.of(scene.nodes.len());
    let needed = scene.works.iter().filter(|work| work.rank.is_needed());
    let last: HashSet<_> = needed
        .flat_map(|work| &work.left)
        .filter_map(|pod| pod.node.as_ref())
        .map(NodeName::as_str)
        .collect();
    let open = scene.nodes.iter().map(|selected| selected.record);
    let open = open.filter(|record| record.stage < Stage::Restoring);
    let mut open: Vec<_> = open.map(|record| record.name.as_str()).collect();
    // Otherwise in the order of the record.
    open.sort_by_key(|name| last.contains(name));
    open.truncate(size);
    open.into_iter().collect()
}

impl BatchSize {
    /// How many of so many nodes; at least one.
    fn of(self, nodes: usize) -> usize {
        match self {
            Self::Nodes(count) => count.into(),
            // Rounded up, as Kubernetes rounds a percentage of pods that may be missing.
            Self::Percent(percent) => (nodes * usize::from(percent)).div_ceil(100),
        }
        .max(1)
    }

    /// Whether it could be that not all nodes are in one batch.
    pub(super) fn divides(self) -> bool {
        self != Self::Percent(100)
    }
}
