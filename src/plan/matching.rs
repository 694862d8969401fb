//! Which placeholder is a place for which pod of its workload: they stand for each other, but for what binds a pod to some nodes.
//! Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelector;

use crate::world::{Pod, Uid};

use super::scene::{Scene, Work};
use super::{attach, fits, gates, near, provision};

/// The placeholders of a workload, and the pods that are left for them.
pub(super) struct Matched<'a> {
    /// Placeholders that are a place for a pod that is left, each for another.
    useful: BTreeSet<Uid>,
    /// Pods that are left without one.
    pub(super) without: Vec<&'a Pod>,
    placeholders: usize,
}

impl Matched<'_> {
    pub(super) fn is_useful(&self, placeholder: &Pod) -> bool {
        self.useful.contains(&placeholder.reference.uid)
    }

    /// Placeholders that are no place for any pod that is left and has none.
    pub(super) fn spare(&self) -> usize {
        self.placeholders - self.useful.len()
    }
}

/// Gives each pod that is to leave now a placeholder: one with a node sooner than one without, and its own sooner than another's.
pub(super) fn of<'a>(scene: &Scene<'_>, work: &Work<'a>, placeholders: &[&Pod]) -> Matched<'a> {
    let mut free: Vec<_> = placeholders
        .iter()
        .map(|p| (gates::is_placed(scene, p), *p))
        .collect();
    let mut matched = Matched {
        useful: BTreeSet::new(),
        without: Vec::new(),
        placeholders: free.len(),
    };
    for pod in work.leaving() {
        let bound_to = near::nodes(scene, work, pod);
        let own = |p: &Pod| provision::stands_for(p, pod);
        let fitting = free
            .iter()
            .enumerate()
            .filter(|(_, (_, p))| own(p) || is_place(scene, p, pod, bound_to.as_ref()));
        let best = fitting.max_by_key(|(_, (placed, p))| (*placed, own(p)));
        match best.map(|(index, _)| index) {
            Some(index) => {
                let (_, placeholder) = free.swap_remove(index);
                matched.useful.insert(placeholder.reference.uid.clone());
            }
            None => matched.without.push(pod),
        }
    }
    matched
}

/// Whether the pod could take the place of the placeholder, made for another pod of its workload.
fn is_place(
    scene: &Scene<'_>,
    placeholder: &Pod,
    pod: &Pod,
    bound_to: Option<&NodeSelector>,
) -> bool {
    let Some(nodes) = bound_to else {
        return true;
    };
    if let Some(node) = placeholder.node.as_ref().and_then(|n| scene.node(n)) {
        return fits::matches(nodes, node);
    }
    let wanted = fits::both(pod.shape.required_affinity.clone(), nodes);
    let asked = placeholder.shape.required_affinity.clone();
    attach::any_node(asked) == attach::any_node(Some(wanted))
}
