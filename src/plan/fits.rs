//! Whether a node could take a pod, by labels and taints: room aside. As the scheduler has it for nodes, and as Karpenter has it for
//! nodes that a `NodePool` could make. Pure.

use std::cmp::Ordering;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};

use crate::api::keys;
use crate::world::{Node, NodePool, Shape};

/// Label of a node that has its name.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

/// What both ask for: each pair of alternatives becomes one.
pub(super) fn both(one: Option<NodeSelector>, other: &NodeSelector) -> NodeSelector {
    let Some(one) = one.filter(|one| one != other) else {
        return other.clone();
    };
    let mut terms = Vec::new();
    // A term that asks for nothing matches nothing, alone and together with others.
    for a in one.node_selector_terms.iter().filter(|t| !is_empty(t)) {
        for b in other.node_selector_terms.iter().filter(|t| !is_empty(t)) {
            let merged = NodeSelectorTerm {
                match_expressions: merge(
                    a.match_expressions.as_ref(),
                    b.match_expressions.as_ref(),
                ),
                match_fields: merge(a.match_fields.as_ref(), b.match_fields.as_ref()),
            };
            if !terms.contains(&merged) {
                terms.push(merged);
            }
        }
    }
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    NodeSelector {
        node_selector_terms: terms,
    }
}

fn is_empty(term: &NodeSelectorTerm) -> bool {
    let none = |list: &Option<Vec<NodeSelectorRequirement>>| list.iter().flatten().next().is_none();
    none(&term.match_expressions) && none(&term.match_fields)
}

fn merge(
    one: Option<&Vec<NodeSelectorRequirement>>,
    other: Option<&Vec<NodeSelectorRequirement>>,
) -> Option<Vec<NodeSelectorRequirement>> {
    let mut all: Vec<_> = one.into_iter().flatten().cloned().collect();
    for requirement in other.into_iter().flatten() {
        if !all.contains(requirement) {
            all.push(requirement.clone());
        }
    }
    (!all.is_empty()).then_some(all)
}

/// All that a pod asks of the labels of its node: its node selector and its required affinity as one.
pub(super) fn asks(shape: &Shape) -> Option<NodeSelector> {
    let by_label = shape
        .node_selector
        .iter()
        .map(|(key, value)| NodeSelectorRequirement {
            key: key.clone(),
            operator: "In".to_owned(),
            values: Some(vec![value.clone()]),
        });
    let by_label: Vec<_> = by_label.collect();
    let selector = (!by_label.is_empty()).then(|| NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: Some(by_label),
            match_fields: None,
        }],
    });
    match &shape.required_affinity {
        Some(affinity) => Some(both(selector, affinity)),
        None => selector,
    }
}

/// Whether a requirement of a node selector holds for a label that is there, or is not.
fn holds(requirement: &NodeSelectorRequirement, label: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let among = |label: &str| values.iter().any(|v| v == label);
    let compare = |label: &str| {
        let number = label.parse::<i64>().ok()?;
        let limit = values.first()?.parse::<i64>().ok()?;
        Some(number.cmp(&limit))
    };
    match requirement.operator.as_str() {
        "In" => label.is_some_and(among),
        "NotIn" => !label.is_some_and(among),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => label.and_then(compare).is_some_and(Ordering::is_gt),
        "Lt" => label.and_then(compare).is_some_and(Ordering::is_lt),
        _ => false,
    }
}

/// Whether the labels and the name of the node satisfy one of the alternatives.
pub(super) fn matches(selector: &NodeSelector, node: &Node) -> bool {
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| !is_empty(term) && unmet(term, node).next().is_none())
}

/// The requirements of a term that the node does not satisfy.
fn unmet<'a>(
    term: &'a NodeSelectorTerm,
    node: &'a Node,
) -> impl Iterator<Item = &'a NodeSelectorRequirement> {
    let labels = term.match_expressions.iter().flatten();
    let labels = labels.filter(|r| !holds(r, node.labels.get(&r.key).map(String::as_str)));
    // The only field there is: metadata.name.
    let fields = term.match_fields.iter().flatten();
    labels.chain(fields.filter(|r| !holds(r, Some(node.name.as_str()))))
}

/// Whether a toleration lets the pod onto a node with the taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let same_key = key == taint.key || (key.is_empty() && exists);
    let same_value = exists
        || toleration.value.as_deref().unwrap_or_default()
            == taint.value.as_deref().unwrap_or_default();
    same_key && (effect.is_empty() || effect == taint.effect) && same_value
}

/// The first of the taints that keeps the pod away. Those that come and go by themselves do not count.
pub(super) fn repelled_by<'a>(shape: &Shape, taints: &'a [Taint]) -> Option<&'a Taint> {
    let lasting = |t: &Taint| {
        let own = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];
        t.effect != "PreferNoSchedule"
            && !own.iter().any(|prefix| t.key.starts_with(prefix))
            && t.key != "karpenter.sh/unregistered"
    };
    taints
        .iter()
        .find(|taint| lasting(taint) && !shape.tolerations.iter().any(|t| tolerates(t, taint)))
}

/// Labels that the pieces of a cloud put on each node they make, whatever a `NodePool` says of them.
pub(super) fn comes_by_itself(key: &str) -> bool {
    const KNOWN: [&str; 6] = [
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "node.kubernetes.io/windows-build",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    ];
    // The providers have labels of their own, such as karpenter.k8s.aws/instance-cpu: what is not known must not be taken for impossible.
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    KNOWN.contains(&key)
        || is_topology(key)
        || domain.contains("karpenter")
        || domain.ends_with("k8s.aws")
        || domain == "eks.amazonaws.com"
}

/// A zone or a region, under the name that Kubernetes has for it or that of a CSI driver, such as `topology.ebs.csi.aws.com/zone`.
fn is_topology(key: &str) -> bool {
    let name = key.rsplit('/').next().unwrap_or(key);
    matches!(name, "zone" | "region" | "zone-id") && key.contains('/')
}

/// Whether a node that the pool makes could satisfy the requirement.
fn could_hold(pool: &NodePool, requirement: &NodeSelectorRequirement) -> bool {
    let key = requirement.key.as_str();
    if key == HOSTNAME {
        return !matches!(requirement.operator.as_str(), "In" | "DoesNotExist");
    }
    if key == keys::NODEPOOL_LABEL {
        return holds(requirement, Some(&pool.name));
    }
    if let Some(value) = pool.labels.get(key) {
        return holds(requirement, Some(value));
    }
    let own: Vec<_> = pool.requirements.iter().filter(|r| r.key == key).collect();
    let absent = own.iter().any(|r| r.operator == "DoesNotExist");
    if own.is_empty() || absent {
        return match requirement.operator.as_str() {
            "NotIn" | "DoesNotExist" => true,
            _ => !absent && comes_by_itself(key),
        };
    }
    let allowed = |value: &str| own.iter().all(|r| holds(r, Some(value)));
    let listed = own.iter().find(|r| r.operator == "In");
    if let Some(listed) = listed {
        let mut values = listed.values.iter().flatten();
        return values.any(|v| allowed(v) && holds(requirement, Some(v)));
    }
    match requirement.operator.as_str() {
        "In" => requirement.values.iter().flatten().any(|v| allowed(v)),
        // The label is there with some value that is not known.
        operator => operator != "DoesNotExist",
    }
}

/// Whether nodes that the pool makes could satisfy one of the alternatives.
pub(super) fn could_match(selector: &NodeSelector, pool: &NodePool) -> bool {
    selector.node_selector_terms.iter().any(|term| {
        !is_empty(term)
            && term.match_fields.iter().flatten().next().is_none()
            && term
                .match_expressions
                .iter()
                .flatten()
                .all(|r| could_hold(pool, r))
    })
}

/// What can be said of the places there are: the requirements of a term that not one of the nodes and pools satisfies, or all of them
/// where it is the combination that nothing has.
pub(super) fn missing<'a>(
    selector: &'a NodeSelector,
    nodes: &[&Node],
    pools: &[&NodePool],
) -> Vec<&'a NodeSelectorRequirement> {
    let of_term = |term: &'a NodeSelectorTerm| {
        let alone = |r: &NodeSelectorRequirement, fields: bool| NodeSelectorTerm {
            match_expressions: (!fields).then(|| vec![r.clone()]),
            match_fields: fields.then(|| vec![r.clone()]),
        };
        let has = |term: &NodeSelectorTerm| {
            let selector = NodeSelector {
                node_selector_terms: vec![term.clone()],
            };
            nodes.iter().any(|n| matches(&selector, n))
                || pools.iter().any(|p| could_match(&selector, p))
        };
        let labels = term.match_expressions.iter().flatten().map(|r| (r, false));
        let fields = term.match_fields.iter().flatten().map(|r| (r, true));
        let all: Vec<_> = labels.chain(fields).collect();
        let lacking: Vec<_> = all.iter().filter(|(r, f)| !has(&alone(r, *f))).collect();
        if lacking.is_empty() {
            all.iter().map(|(r, _)| *r).collect()
        } else {
            lacking.iter().map(|(r, _)| *r).collect::<Vec<_>>()
        }
    };
    let terms = selector.node_selector_terms.iter();
    terms.map(of_term).min_by_key(Vec::len).unwrap_or_default()
}

/// A requirement as people write it: `zone In [a, b]`.
pub(super) fn words(requirement: &NodeSelectorRequirement) -> String {
    let values = requirement.values.as_deref().unwrap_or_default();
    let key = &requirement.key;
    match (requirement.operator.as_str(), values) {
        ("In", [one]) => format!("{key}={one}"),
        (operator, []) => format!("{key} {operator}"),
        (operator, values) => format!("{key} {operator} [{}]", values.join(", ")),
    }
}
