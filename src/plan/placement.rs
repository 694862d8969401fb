//! `replacement.placement`: where every placeholder is to land, beside what the pods ask for. Pure.
//!
//! A placeholder keeps a place that its pod can take, so a placement narrows what the pod asks for and never widens it: its tolerations
//! let placeholders onto nodes whose taints are to go, and such a node is a place only once the pod itself could come.

use crate::world::{Node, Pod, Shape};

use super::fits;
use super::report::Finding;
use super::scene::{Scene, Work};

/// Adds the placement to the shape of a placeholder. What the pod itself says of a label holds: where that is another value, the pod
/// could follow no placeholder that went by ours.
pub(super) fn apply(scene: &Scene<'_>, shape: &mut Shape) {
    narrow(scene, shape);
    let Some(placement) = &scene.spec.replacement.placement else {
        return;
    };
    for toleration in &placement.tolerations {
        if !shape.tolerations.contains(toleration) {
            shape.tolerations.push(toleration.clone());
        }
    }
}

/// Adds the labels of the placement alone: with those, it is what the pod itself has to find.
fn narrow(scene: &Scene<'_>, shape: &mut Shape) {
    let placement = scene.spec.replacement.placement.iter();
    for (key, value) in placement.flat_map(|p| &p.node_selector) {
        let own = shape.node_selector.entry(key.clone());
        own.or_insert_with(|| value.clone());
    }
}

/// The shape of a placeholder without what lets it go where its pod could not.
pub(super) fn as_the_pod(scene: &Scene<'_>, pod: &Pod, placeholder: &Shape) -> Shape {
    let mut shape = placeholder.clone();
    if scene.spec.replacement.placement.is_some() {
        shape.tolerations.clone_from(&pod.shape.tolerations);
    }
    shape
}

/// A label of the placement that the pod's own node selector wants to have another value.
pub(super) fn contradicts(scene: &Scene<'_>, pod: &Pod) -> Option<Finding> {
    let placement = scene.spec.replacement.placement.as_ref()?;
    let other = |(key, value): (&String, &String)| {
        let own = pod
            .shape
            .node_selector
            .get(key)
            .filter(|own| *own != value)?;
        Some(Finding::placement_contradicted(
            &pod.reference,
            &format!("{key}={own}"),
            &format!("{key}={value}"),
        ))
    };
    placement.node_selector.iter().find_map(other)
}

/// The taints of the node let a pod of the workload come, and not only its placeholder.
pub(super) fn admits(scene: &Scene<'_>, work: &Work<'_>, node: &Node) -> bool {
    let placement = scene.spec.replacement.placement.as_ref();
    placement.is_none_or(|p| p.tolerations.is_empty())
        || work
            .staying()
            .any(|pod| fits::repelled_by(&pod.shape, &node.taints).is_none())
}
