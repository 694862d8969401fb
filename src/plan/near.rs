//! Pods that are to be near each other, or spread: where their places are, and which of their workloads moves first. Pure.
//!
//! A placeholder has none of its pod's labels, so what holds between pods is said anew between placeholders, by labels of ours. In a zone,
//! or anything else larger than a node, the pods that have yet to leave and those that stay count as well: there the place is in the zone
//! that the pod is in now, which is right as long as nothing else has changed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm,
    TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::api::keys;
use crate::world::{Node, Pod, Shape, Uid};

use super::fits::HOSTNAME;
use super::gates::Hold;
use super::report::Waiting;
use super::scene::{Scene, Work};
use super::{apart, fits, placement};

/// The nodes that the place of the pod has to be one of: those that its volumes can be used on, in the zone that it must not leave.
/// `None`: any.
pub(super) fn nodes(scene: &Scene<'_>, work: &Work<'_>, pod: &Pod) -> Option<NodeSelector> {
    let bound = scene.volumes().nodes(pod);
    let mut nodes = match bound {
        Some(bound) => Some(bound),
        None => scene
            .near()
            .nodes_of_partner
            .get(&work.reference.uid)
            .cloned(),
    };
    for key in kept(pod) {
        let node = pod.node.as_ref().and_then(|n| scene.node(n));
        let Some(value) = node.and_then(|n| n.labels.get(key)) else {
            continue;
        };
        let kept = fits::both(nodes.clone(), &in_one(key, value));
        if could_be(scene, pod, &kept) {
            nodes = Some(kept);
        }
    }
    nodes
}

/// The topologies, larger than a node, in which the pod has to come again where it is.
fn kept(pod: &Pod) -> BTreeSet<&str> {
    let shape = &pod.shape;
    let spread = shape.spread.iter().filter(|c| spreads_itself(c, pod));
    let terms = shape.repels.iter().chain(&shape.attracts);
    let terms = terms.filter(|t| apart::selects(t, pod, pod));
    let keys = spread.map(|c| c.topology_key.as_str());
    let keys = keys.chain(terms.map(|t| t.topology_key.as_str()));
    keys.filter(|key| *key != HOSTNAME).collect()
}

fn spreads_itself(constraint: &TopologySpreadConstraint, pod: &Pod) -> bool {
    apart::is_selected(constraint.label_selector.as_ref(), pod)
}

fn in_one(key: &str, value: &str) -> NodeSelector {
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: Some(vec![NodeSelectorRequirement {
                key: key.to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![value.to_owned()]),
            }]),
            match_fields: None,
        }],
    }
}

/// A node that stays, or one that a `NodePool` could make, is of that kind. Without Karpenter, an autoscaler makes nodes like those there are.
fn could_be(scene: &Scene<'_>, pod: &Pod, nodes: &NodeSelector) -> bool {
    let Some(karpenter) = &scene.cluster.karpenter else {
        return true;
    };
    let mut shape = Shape {
        required_affinity: Some(fits::both(pod.shape.required_affinity.clone(), nodes)),
        ..pod.shape.clone()
    };
    placement::apply(scene, &mut shape);
    let asks = fits::asks(&shape);
    let admits = |taints| fits::repelled_by(&shape, taints).is_none();
    let stays =
        |node: &Node| !node.deleting && !node.unschedulable && node.marks.claimed_by.is_none();
    let made = karpenter.pools.values().any(|pool| {
        !pool.deleting
            && admits(&pool.taints)
            && asks.as_ref().is_none_or(|a| fits::could_match(a, pool))
    });
    let mut there = scene.cluster.nodes.values().filter(|n| stays(n));
    made || there
        .any(|node| admits(&node.taints) && asks.as_ref().is_none_or(|a| fits::matches(a, node)))
}

/// Where volumes bind all pods of those alike that have to be near a workload.
fn nodes_of(scene: &Scene<'_>, partners: &BTreeSet<usize>) -> Option<NodeSelector> {
    let partners = partners.iter().filter_map(|index| scene.works.get(*index));
    let mut all = partners.filter_map(|other| {
        let mut nodes = other.staying().map(|pod| scene.volumes().nodes(pod));
        let first = nodes.next()??;
        nodes.all(|n| n.as_ref() == Some(&first)).then_some(first)
    });
    let first = all.next()?;
    all.all(|n| n == first).then_some(first)
}

/// The first term by which a pod has to be near the other.
fn attracts<'a>(pod: &'a Pod, other: &Pod) -> Option<&'a PodAffinityTerm> {
    let mut terms = pod.shape.attracts.iter();
    terms.find(|term| apart::selects(term, pod, other))
}

/// What the placeholder of the pod has to be near.
pub(super) fn attraction(scene: &Scene<'_>, work: &Work<'_>, pod: &Pod) -> Vec<PodAffinityTerm> {
    let mut all: Vec<PodAffinityTerm> = Vec::new();
    for term in &pod.shape.attracts {
        let own_kind = apart::selects(term, pod, pod);
        if own_kind && term.topology_key != HOSTNAME {
            continue;
        }
        let mut first = own_kind;
        let mut partners = BTreeSet::new();
        for other in &scene.works {
            let Some(theirs) = other.staying().find(|p| apart::selects(term, pod, p)) else {
                continue;
            };
            partners.insert(other.reference.uid.to_string());
            first |= attracts(theirs, pod).is_some();
        }
        let said = if partners.is_empty() {
            apart::of_the_pod(term, pod)
        } else {
            // One that may itself be the first of its kind: the scheduler lets it be, when its own labels are among those it asks for.
            if first {
                partners.insert(work.reference.uid.to_string());
            }
            among(partners, &term.topology_key)
        };
        if !all.contains(&said) {
            all.push(said);
        }
    }
    all
}

fn among(workloads: BTreeSet<String>, topology: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: keys::WORKLOAD_UID_LABEL.to_owned(),
                operator: "In".to_owned(),
                values: Some(workloads.into_iter().collect()),
            }]),
            match_labels: None,
        }),
        topology_key: topology.to_owned(),
        ..PodAffinityTerm::default()
    }
}

/// How the placeholders of the workload are spread among each other; where `nodes` keep each in a zone of its own, that is all.
pub(super) fn spread(
    work: &Work<'_>,
    pod: &Pod,
    nodes: Option<&NodeSelector>,
) -> Vec<TopologySpreadConstraint> {
    let is_kept = |key: &str| {
        let terms = nodes.into_iter().flat_map(|n| &n.node_selector_terms);
        let mut asked = terms.flat_map(|t| t.match_expressions.iter().flatten());
        key != HOSTNAME && asked.any(|r| r.key == key)
    };
    let own = pod.shape.spread.iter().filter(|c| spreads_itself(c, pod));
    own.filter(|c| !is_kept(&c.topology_key))
        .map(|constraint| TopologySpreadConstraint {
            label_selector: Some(apart::placeholders(work)),
            match_label_keys: None,
            ..constraint.clone()
        })
        .collect()
}

/// One more of the workload can be where the scheduler has to put it for the spread's sake, and not where its place is.
pub(super) fn is_spread(work: &Work<'_>) -> bool {
    let spread = |pod: &Pod| pod.shape.spread.iter().any(|c| spreads_itself(c, pod));
    work.staying().next().is_some_and(spread)
}

/// Which workloads of the relocation have to be near each other, found once a pass.
#[derive(Default)]
pub(super) struct Near {
    /// By workload, those that move before it, by their place in `Scene::works`.
    before: BTreeMap<Uid, Vec<usize>>,
    /// By workload, the nodes that volumes bind its partners to: its own places are there as well, where its own volumes say nothing.
    nodes_of_partner: BTreeMap<Uid, NodeSelector>,
}

/// What has to be near another moves after that, since it can only come where that is. But in anything larger than a node what volumes
/// bind to its place comes first: the other could come anywhere, and it could not follow.
pub(super) fn near(scene: &Scene<'_>) -> Near {
    let works = &scene.works;
    let samples: Vec<_> = works.iter().map(|w| w.staying().next()).collect();
    let asking = samples.iter().enumerate();
    let asking: Vec<_> = asking
        .filter_map(|(i, pod)| Some((i, pod.filter(|p| !p.shape.attracts.is_empty())?)))
        .collect();
    let mut pairs: BTreeMap<(usize, usize), bool> = BTreeMap::new();
    for (one, pod) in &asking {
        for (other, theirs) in samples.iter().enumerate() {
            let Some(theirs) = theirs.filter(|_| other != *one) else {
                continue;
            };
            if let Some(term) = attracts(pod, theirs) {
                pairs.insert((*one, other), term.topology_key != HOSTNAME);
            }
        }
    }
    if pairs.is_empty() {
        return Near::default();
    }
    let mut partners: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (one, other) in pairs.keys() {
        partners.entry(*one).or_default().insert(*other);
        partners.entry(*other).or_default().insert(*one);
    }
    let nodes_of_partner = partners.iter().filter_map(|(index, partners)| {
        let uid = works.get(*index)?.reference.uid.clone();
        Some((uid, nodes_of(scene, partners)?))
    });
    let nodes_of_partner = nodes_of_partner.collect();
    let bound = |work: &Work<'_>| work.staying().any(|p| scene.volumes().nodes(p).is_some());
    let bound: Vec<_> = works.iter().map(bound).collect();
    let is_bound = |index: usize| bound.get(index).copied().unwrap_or_default();
    let rank = |index: usize| works.get(index).map(|w| w.rank);
    let key = |index: usize| (!is_bound(index), works.get(index).map(|w| &w.reference));
    let mut edges: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for ((one, other), wide) in &pairs {
        // Between ranks, the rank decides.
        if rank(*one) != rank(*other) {
            continue;
        }
        let back = pairs.get(&(*other, *one));
        let wide = *wide && back.is_none_or(|wide| *wide);
        let differ = wide && is_bound(*one) != is_bound(*other);
        let one_waits = if differ {
            is_bound(*other)
        } else {
            back.is_none() || key(*other) < key(*one)
        };
        let (then, first) = if one_waits {
            (*one, *other)
        } else {
            (*other, *one)
        };
        edges.entry(then).or_default().insert(first);
    }
    let mut before = BTreeMap::new();
    for (then, firsts) in &edges {
        // Round in a circle, nobody would begin: there the one that is bound does.
        let counts = |first: &&usize| !reaches(&edges, **first, *then) || key(**first) < key(*then);
        let firsts: Vec<_> = firsts.iter().filter(counts).copied().collect();
        if let Some(work) = works.get(*then) {
            before.insert(work.reference.uid.clone(), firsts);
        }
    }
    Near {
        before,
        nodes_of_partner,
    }
}

fn reaches(edges: &BTreeMap<usize, BTreeSet<usize>>, from: usize, to: usize) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        let next = edges.get(&at).into_iter().flatten();
        open.extend(next.filter(|n| seen.insert(**n)));
    }
    false
}

/// Those that it has to be near, or that have to be near it and cannot follow, have moved.
pub(super) fn turn(scene: &Scene<'_>, work: &Work<'_>) -> Result<(), Hold> {
    let firsts = scene.near().before.get(&work.reference.uid);
    let mut firsts = firsts
        .into_iter()
        .flatten()
        .filter_map(|index| scene.works.get(*index))
        .filter(|first| !first.rests());
    let Some(first) = firsts.next() else {
        return Ok(());
    };
    let bound = |work: &Work<'_>| work.staying().any(|p| scene.volumes().nodes(p).is_some());
    Err(Hold::Wait(Waiting::Order {
        workload: work.reference.clone(),
        first: first.reference.to_string(),
        more: firsts.count(),
        why: if bound(first) && !bound(work) {
            "they have to be near each other, and volumes bind that one"
        } else {
            "they have to be near each other"
        },
    }))
}
