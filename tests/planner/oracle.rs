//! The invariants of the design, asked before each action is carried out, of the world as it is then.

use relocator::api::status::Stage;
use relocator::plan::{Action, Restore};
use relocator::world::{Pod, Uid};

use crate::toy::Toy;

/// Panics, with the number of the invariant, when the action would break one.
pub(crate) fn allows(toy: &Toy, action: &Action) {
    let status = toy.status();
    let is_selected = |uid: &Uid| status.nodes.iter().any(|n| n.uid == uid.as_str());
    match action {
        Action::Evict { pod, .. } => {
            let Some(pod) = toy.cluster.pods.get(&pod.uid) else {
                return;
            };
            let node = pod
                .node
                .as_ref()
                .and_then(|n| toy.cluster.node_named(n))
                .expect("its node is there");
            assert!(
                is_selected(&node.uid),
                "2: {} is not on a selected node",
                pod.reference
            );
            assert!(
                node.unschedulable,
                "{} would come back to an open node",
                pod.reference
            );
            one_at_a_time(toy, pod);
            a_place_is_ready(toy, pod);
        }
        Action::Restart {
            workload,
            restarted_at,
            ..
        } => {
            let Some(deployment) = toy.cluster.deployments.get(&workload.uid) else {
                return;
            };
            let already = toy.cluster.replica_sets.values().any(|s| {
                s.controller.as_ref().is_some_and(|c| c.uid == workload.uid)
                    && s.restarted_at.as_ref() == Some(restarted_at)
            });
            assert!(
                !already || deployment.restarted_at.as_ref() == Some(restarted_at),
                "9: {workload} restarted twice"
            );
        }
        Action::DeleteNodeClaim { node, .. } => {
            let left: Vec<_> = toy
                .cluster
                .pods
                .values()
                .filter(|p| p.node.as_ref() == Some(node) && !p.finished)
                .filter(|p| p.controller.as_ref().is_none_or(|c| c.kind != "DaemonSet"))
                .map(|p| p.reference.to_string())
                .collect();
            assert!(left.is_empty(), "6: {node} is removed with {left:?}");
            // In the toy a volume has the name of its claim. What a DaemonSet's pod mounts is attached for as long as the node is there.
            let of_daemons: Vec<_> = toy
                .cluster
                .pods
                .values()
                .filter(|p| p.node.as_ref() == Some(node))
                .filter(|p| p.controller.as_ref().is_some_and(|c| c.kind == "DaemonSet"))
                .flat_map(|p| p.claims.iter().map(|c| Some(c.name.clone())))
                .collect();
            let mut attached = toy.cluster.attachments.values();
            assert!(
                !attached.any(|a| a.node == *node && !of_daemons.contains(&a.volume)),
                "6: {node} is removed with a volume"
            );
        }
        Action::Cordon { node } => {
            assert!(
                is_selected(&node.uid),
                "{} is cordoned and not selected",
                node.name
            );
            let record = status
                .nodes
                .iter()
                .find(|n| n.uid == node.uid.as_str())
                .unwrap();
            assert!(
                record.stage == Stage::Cordoning,
                "{} is cordoned before it is recorded whether it was",
                node.name
            );
        }
        Action::ClaimNode { node, .. } => {
            let owner = toy
                .cluster
                .nodes
                .get(&node.uid)
                .and_then(|n| n.marks.claimed_by.clone());
            let seen = toy
                .cluster
                .nodes
                .get(&node.uid)
                .is_some_and(|n| n.resource_version == node.resource_version);
            assert!(
                !seen || owner.is_none(),
                "11: {} is taken from {owner:?}",
                node.name
            );
        }
        Action::Restore(Restore::ReleaseNode {
            node,
            uncordon: true,
            ..
        }) => {
            let Some(node) = toy.cluster.nodes.get(&node.uid) else {
                return;
            };
            assert_eq!(
                node.marks.cordoned_by,
                Some(Toy::claim()),
                "8: {} was cordoned by somebody else",
                node.name
            );
        }
        _ => {}
    }
}

/// 4: a pod of a workload that is Ready leaves only when all the others are there.
fn one_at_a_time(toy: &Toy, pod: &Pod) {
    let controller = pod.controller.as_ref().expect("it has an owner");
    if controller.kind != "StatefulSet" || !pod.ready {
        return;
    }
    let set = &toy.cluster.stateful_sets[&controller.uid];
    let siblings = toy.cluster.pods.values().filter(|p| {
        p.controller
            .as_ref()
            .is_some_and(|c| c.uid == controller.uid)
    });
    let on_selected = |p: &Pod| {
        let node = p.node.as_ref().and_then(|n| toy.cluster.node_named(n));
        node.is_some_and(|n| toy.status().nodes.iter().any(|r| r.uid == n.uid.as_str()))
    };
    let (mut ready, mut sick) = (0, 0);
    for sibling in siblings {
        assert!(
            !sibling.terminating,
            "4: {} leaves while {} does",
            pod.reference, sibling.reference
        );
        if sibling.ready {
            ready += 1;
        } else if on_selected(sibling) {
            sick += 1;
        }
    }
    assert!(
        ready + sick >= set.replicas,
        "4: {} leaves while {ready} of {} are Ready",
        pod.reference,
        set.replicas
    );
}

/// 5: a placeholder of the workload has a node that is Ready and not selected, where placeholders are asked for.
fn a_place_is_ready(toy: &Toy, pod: &Pod) {
    if toy.relocation.spec.replacement.strategy
        != relocator::api::relocation::ReplacementStrategy::Mirror
    {
        return;
    }
    let controller = pod.controller.as_ref().expect("it has an owner");
    let workload = match toy
        .cluster
        .replica_sets
        .get(&controller.uid)
        .and_then(|s| s.controller.as_ref())
    {
        Some(parent) => parent.uid.clone(),
        None => controller.uid.clone(),
    };
    let placed = toy.placeholders().iter().any(|p| {
        let ours = p
            .placeholder
            .as_ref()
            .is_some_and(|l| l.workload == workload);
        ours && p
            .node
            .as_ref()
            .and_then(|n| toy.cluster.node_named(n))
            .is_some_and(|n| n.ready && !n.unschedulable)
    });
    assert!(
        placed,
        "5: {} leaves before a place is ready",
        pod.reference
    );
}

/// 7 and 8: nothing of ours is left, cordons of others are.
pub(crate) fn nothing_is_left(before: &Toy, after: &Toy, cordons_stay: bool) {
    assert!(after.placeholders().is_empty(), "7: placeholders");
    for node in after.cluster.nodes.values() {
        let old = before.cluster.nodes.get(&node.uid);
        let marks = old.map(|n| n.marks.clone()).unwrap_or_default();
        assert_eq!(node.marks, marks, "7: marks of {}", node.name);
        let was = old.is_some_and(|n| n.unschedulable);
        assert!(
            node.unschedulable || !was,
            "8: the cordon of {} is gone",
            node.name
        );
        assert!(
            !node.unschedulable || was || cordons_stay,
            "7: {} stays cordoned",
            node.name
        );
    }
    for pod in after.cluster.pods.values() {
        assert!(
            pod.marks.relocations().next().is_none() && pod.marks.costed_by.is_none(),
            "7: marks of {}",
            pod.reference
        );
    }
    for deployment in after.cluster.deployments.values() {
        assert!(
            deployment.surge.is_none(),
            "7: {} is surging",
            deployment.reference
        );
        let old = &before.cluster.deployments[&deployment.reference.uid];
        assert_eq!(
            deployment.replicas, old.replicas,
            "7: replicas of {}",
            deployment.reference
        );
    }
}
