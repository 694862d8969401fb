//! Pods that may not be near each other: their required anti-affinity, as their placeholders have it. Pure.

use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};

use crate::api::keys;
use crate::world::Pod;

use super::fits::HOSTNAME;
use super::scene::Work;

/// What the placeholder of the pod keeps away from.
///
/// It has none of the pod's labels, so that no budget, service or selector takes it for one. What keeps the pod away from its own kind
/// keeps the placeholders of its workload away from each other, by a label of ours; and each keeps away from the pods themselves as the
/// pod does. But in a zone, or anything else larger than a node, the pods that have yet to leave would be in the way until they have left:
/// there placeholders only keep away from each other.
pub(super) fn repels(work: &Work<'_>, pod: &Pod) -> Vec<PodAffinityTerm> {
    let mut all: Vec<PodAffinityTerm> = Vec::new();
    let mut add = |term: PodAffinityTerm| {
        if !all.contains(&term) {
            all.push(term);
        }
    };
    for term in &pod.shape.repels {
        let own_kind = selects(term, pod, pod);
        if own_kind {
            add(among_placeholders(work, &term.topology_key));
        }
        if !own_kind || term.topology_key == HOSTNAME {
            add(of_the_pod(term, pod));
        }
    }
    // The port of a node is for one of them.
    if pod.shape.host_ports {
        add(among_placeholders(work, HOSTNAME));
    }
    all
}

/// Whether a term of the one pod's affinity, or anti-affinity, selects the other pod.
///
/// Which namespaces a namespace selector selects is not known: it is taken for all of them.
pub(super) fn selects(term: &PodAffinityTerm, of: &Pod, other: &Pod) -> bool {
    let namespace = &other.reference.namespace;
    let named = term.namespaces.as_deref().unwrap_or_default();
    let in_reach = named.contains(namespace)
        || term.namespace_selector.is_some()
        || (named.is_empty() && *namespace == of.reference.namespace);
    in_reach && is_selected(term.label_selector.as_ref(), other)
}

/// Whether the labels of the pod are selected. No selector selects nothing.
pub(super) fn is_selected(selector: Option<&LabelSelector>, pod: &Pod) -> bool {
    let selector = selector
        .cloned()
        .map(Selector::try_from)
        .and_then(Result::ok);
    selector.is_some_and(|s| s.matches(&pod.labels))
}

/// Selects the placeholders of the workload.
pub(super) fn placeholders(work: &Work<'_>) -> LabelSelector {
    let label = (
        keys::WORKLOAD_UID_LABEL.to_owned(),
        work.reference.uid.to_string(),
    );
    LabelSelector {
        match_labels: Some([label].into()),
        match_expressions: None,
    }
}

pub(super) fn among_placeholders(work: &Work<'_>, topology: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(placeholders(work)),
        topology_key: topology.to_owned(),
        ..PodAffinityTerm::default()
    }
}

/// The term of the pod, as one of another namespace has it. What `matchLabelKeys` stand for is in the selector already.
pub(super) fn of_the_pod(term: &PodAffinityTerm, pod: &Pod) -> PodAffinityTerm {
    let mut term = term.clone();
    let unnamed = term.namespaces.as_ref().is_none_or(Vec::is_empty);
    if unnamed && term.namespace_selector.is_none() {
        term.namespaces = Some(vec![pod.reference.namespace.clone()]);
    }
    term.match_label_keys = None;
    term.mismatch_label_keys = None;
    term
}
