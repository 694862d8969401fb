//! Stages Protecting and Cordoning: the nodes become ours, then nothing new lands on them. Pure.

use crate::api::guards::Guard;
use crate::api::keys;
use crate::api::relocation::ProtectedPods;
use crate::api::status::Stage;
use crate::world::{Generation, Node, Pod};
use kube::core::{Selector, SelectorExt};

use super::draft::Draft;
use super::report::{Finding, Waiting};
use super::scene::Scene;
use super::treatment::Treatment;
use super::{Action, NodeHandle, PodHandle};

impl From<&Node> for NodeHandle {
    fn from(node: &Node) -> Self {
        Self {
            name: node.name.clone(),
            uid: node.uid.clone(),
            resource_version: node.resource_version.clone(),
        }
    }
}

impl From<&Pod> for PodHandle {
    fn from(pod: &Pod) -> Self {
        Self {
            pod: pod.reference.clone(),
            resource_version: pod.resource_version.clone(),
        }
    }
}

/// Marks every node as ours, in the order of their names: two relocations that want the same nodes can then not hold half each and wait
/// for each other.
pub(super) fn claim(scene: &Scene<'_>, draft: &mut Draft) {
    let mut missing = 0;
    for selected in &scene.nodes {
        let Some(node) = selected.node else { continue };
        match &node.marks.claimed_by {
            Some(claim) if *claim == scene.claim => {}
            Some(other) => {
                draft.block(Finding::claimed_by_other(&node.name, &other.name));
                return;
            }
            None => {
                missing += 1;
                draft.act(Action::ClaimNode {
                    node: node.into(),
                    guards: node.marks.lacks(of_node(scene, node)),
                });
            }
        }
    }
    let unprotected = pods(scene, draft);
    if missing == 0 && unprotected == 0 {
        record_cordons(scene, draft);
        draft.all_nodes_to(Stage::Cordoning);
    } else if missing > 0 {
        draft.wait(Waiting::Claims(missing));
    }
}

/// What keeps the autoscaler that made the node from it.
pub(super) fn of_node(scene: &Scene<'_>, node: &Node) -> &'static [Guard] {
    match generation(scene) {
        // Whoever made it: it is Cluster Autoscaler that could take it away, where there is one.
        _ if !is_karpenters(node) => &[Guard::ScaleDownDisabled],
        Generation::V1Alpha5 => &[Guard::DoNotDisrupt, Guard::DoNotConsolidate],
        Generation::V1Beta1 | Generation::V1 => &[Guard::DoNotDisrupt],
    }
}

/// What keeps autoscalers from a pod.
fn of_pod(scene: &Scene<'_>) -> &'static [Guard] {
    match generation(scene) {
        Generation::V1Alpha5 => &[Guard::DoNotDisrupt, Guard::DoNotEvict],
        Generation::V1Beta1 | Generation::V1 => &[Guard::DoNotDisrupt],
    }
}

fn generation(scene: &Scene<'_>) -> Generation {
    let karpenter = scene.cluster.karpenter.as_ref();
    karpenter.map_or(Generation::V1, |k| k.generation)
}

/// Annotates the pods that `protection` names and that nobody has annotated yet, on every selected node. Returns how many.
///
/// Called in every stage while pods are left, so that pods born meanwhile are covered.
pub(super) fn pods(scene: &Scene<'_>, draft: &mut Draft) -> usize {
    let protection = &scene.spec.protection;
    let selector = protection.selector.clone();
    let selector = selector.map(Selector::try_from).and_then(Result::ok);
    let is_chosen = |pod: &Pod| match protection.pods {
        ProtectedPods::None => false,
        ProtectedPods::All => true,
        ProtectedPods::Stateful => {
            let owner = pod.controller.as_ref();
            !pod.claims.is_empty()
                || owner.is_some_and(|c| c.kind == "StatefulSet")
                || selector.as_ref().is_some_and(|s| s.matches(&pod.labels))
        }
    };
    let guards = of_pod(scene);
    let mut unprotected = 0;
    for (pod, treatment) in scene.nodes.iter().flat_map(|n| &n.pods) {
        let stays = !treatment.counts() || *treatment == Treatment::GivesWay;
        if pod.terminating || stays || !is_chosen(pod) {
            continue;
        }
        let guards = pod.marks.lacks(guards);
        if !guards.is_empty() {
            unprotected += 1;
            let pod = (*pod).into();
            draft.act(Action::ProtectPod { pod, guards });
        }
    }
    unprotected
}

/// Records which nodes were cordoned before us; the cordon itself names the version of the node that this was read from.
fn record_cordons(scene: &Scene<'_>, draft: &mut Draft) {
    for (record, selected) in draft.status.nodes.iter_mut().zip(&scene.nodes) {
        if let Some(node) = selected.node {
            record.was_unschedulable = node.unschedulable;
        }
    }
}

/// Cordons every node that is not cordoned.
pub(super) fn cordon(scene: &Scene<'_>, draft: &mut Draft) {
    let mut missing = 0;
    for selected in &scene.nodes {
        let Some(node) = selected.node.filter(|n| !n.unschedulable) else {
            continue;
        };
        if node.marks.cordoned_by.as_ref() == Some(&scene.claim) {
            draft.block(Finding::uncordoned(&node.name));
        } else if node.marks.claimed_by.as_ref() != Some(&scene.claim) {
            draft.block(Finding::claim_lost(&node.name));
        } else {
            missing += 1;
            draft.act(Action::Cordon { node: node.into() });
        }
    }
    if missing > 0 {
        draft.wait(Waiting::Cordons(missing));
    } else if draft.blockers.is_empty() {
        draft.all_nodes_to(Stage::Provisioning);
    }
    pods(scene, draft);
}

/// Whether Karpenter, of whatever generation, manages the node.
pub(super) fn is_karpenters(node: &Node) -> bool {
    [keys::NODEPOOL_LABEL, keys::PROVISIONER_NAME_LABEL]
        .iter()
        .any(|key| node.labels.contains_key(*key))
}
