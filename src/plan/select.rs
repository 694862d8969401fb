//! Which nodes are meant: `spec.nodes` against the nodes there are. Pure.

use std::collections::HashSet;

use kube::core::{Selector, SelectorExt};

use crate::api::keys;
use crate::api::relocation::NodeState;
use crate::world::Node;

use super::report::Finding;
use super::scene::Scene;

/// Labels by which installers mark the nodes of the control plane.
const CONTROL_PLANE: [&str; 3] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",
];

/// Labels and values of nodes behind which there is no machine: Fargate, virtual-kubelet.
const VIRTUAL: [(&str, &str); 2] = [
    ("eks.amazonaws.com/compute-type", "fargate"),
    ("type", "virtual-kubelet"),
];

/// The nodes that match all that is given, by name.
pub(super) fn matching<'a>(scene: &Scene<'a>) -> Result<Vec<&'a Node>, Vec<Finding>> {
    let wanted = &scene.spec.nodes;
    let cluster = scene.cluster;
    let mut blockers = Vec::new();
    if cluster.karpenter.is_none() {
        if !wanted.node_pools.is_empty() {
            blockers.push(Finding::karpenter_not_installed("spec.nodes.nodePools"));
        }
        if wanted.state == NodeState::Drifted {
            blockers.push(Finding::karpenter_not_installed("spec.nodes.state"));
        }
    }
    if let Some(karpenter) = &cluster.karpenter {
        for pool in &wanted.node_pools {
            let exists = karpenter.pools.values().any(|p| p.name == *pool)
                || cluster.nodes.values().any(|n| in_pool(n, pool));
            if !exists {
                blockers.push(Finding::unknown_node_pool(pool));
            }
        }
    }
    let selector = wanted.selector.clone().map(Selector::try_from).transpose();
    let selector = match selector {
        Ok(selector) => selector,
        Err(error) => {
            blockers.push(Finding::unreadable_selector(
                "spec.nodes.selector",
                &error.to_string(),
            ));
            None
        }
    };
    if !blockers.is_empty() {
        return Err(blockers);
    }
    let names: HashSet<&str> = wanted.names.iter().map(String::as_str).collect();
    let mut nodes: Vec<_> = cluster
        .nodes
        .values()
        .map(AsRef::as_ref)
        .filter(|n: &&Node| {
            (names.is_empty() || names.contains(n.name.as_str()))
                && selector.as_ref().is_none_or(|s| s.matches(&n.labels))
                && (wanted.node_pools.is_empty()
                    || wanted.node_pools.iter().any(|pool| in_pool(n, pool)))
                && wanted
                    .created_before
                    .as_ref()
                    .is_none_or(|t| n.created.is_some_and(|created| created < t.0))
                && (wanted.state == NodeState::Any
                    || scene.claim_of(&n.name).is_some_and(|c| c.drifted))
        })
        .collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(nodes)
}

fn in_pool(node: &Node, pool: &str) -> bool {
    [keys::NODEPOOL_LABEL, keys::PROVISIONER_NAME_LABEL]
        .iter()
        .any(|key| node.labels.get(*key).is_some_and(|v| v == pool))
}

/// Why a matching node must not be emptied, by us or now.
pub(super) fn refusal(scene: &Scene<'_>, node: &Node) -> Option<Finding> {
    if CONTROL_PLANE
        .iter()
        .any(|key| node.labels.contains_key(*key))
    {
        return Some(Finding::control_plane_node(&node.name));
    }
    if VIRTUAL
        .iter()
        .any(|(key, value)| node.labels.get(*key).is_some_and(|v| v == value))
    {
        return Some(Finding::virtual_node(&node.name));
    }
    if let Some(other) = node
        .marks
        .claimed_by
        .as_ref()
        .filter(|c| **c != scene.claim)
    {
        return Some(Finding::claimed_by_other(&node.name, &other.name));
    }
    if node.deleting || scene.claim_of(&node.name).is_some_and(|c| c.deleting) {
        return Some(Finding::node_deleting(&node.name));
    }
    None
}
