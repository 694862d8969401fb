//! How many volumes a node can have attached: a place is one only where the volumes of its pod can come too. Pure.
//!
//! A placeholder mounts nothing, so the scheduler counts no volumes for it, and Karpenter makes one node for more pods than the node can
//! attach volumes for. What is on a node too much is no place: it is made again, for other nodes than those that are full.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::api::keys;
use crate::world::{CsiNode, Node, NodeName, Pod, Shape, Uid};

use super::fits::{self, HOSTNAME};
use super::scene::{Scene, Work};
use super::volumes::Disk;

/// Label of a pod of a `StatefulSet`, with its name. The `StatefulSet` controller sets it.
const SET_POD_LABEL: &str = "statefulset.kubernetes.io/pod-name";

/// By driver.
type Disks<'a> = HashMap<&'a str, HashSet<Disk>>;

/// The volumes that nodes have attached, and can have.
#[derive(Default)]
pub(super) struct Attach<'a> {
    /// What has registered on a node.
    registered: HashMap<&'a NodeName, &'a CsiNode>,
    /// Of the open nodes that have a limit for volumes such as pods have that have to move: those of their pods, and those that come for our placeholders.
    taken: HashMap<&'a NodeName, Disks<'a>>,
    /// Placeholders whose pods could not have their volumes there.
    too_many: HashSet<&'a Uid>,
}

impl<'a> Attach<'a> {
    /// The node of the placeholder could not attach the volumes of its pod as well.
    pub(super) fn is_too_much(&self, placeholder: &Pod) -> bool {
        self.too_many.contains(&placeholder.reference.uid)
    }

    /// The node has room for these beside what it has.
    fn has_room(&self, node: &NodeName, disks: &Disks<'_>) -> bool {
        let Some(here) = self.registered.get(node) else {
            return true;
        };
        let taken = self.taken.get(node);
        disks.iter().all(|(driver, more)| {
            let Some(most) = here.drivers.get(*driver).copied().flatten() else {
                return true;
            };
            let there = taken.and_then(|t| t.get(driver));
            let new = more
                .iter()
                .filter(|d| !there.is_some_and(|t| t.contains(d)));
            there.map_or(0, HashSet::len) + new.count() <= most
        })
    }

    fn add(&mut self, node: &'a NodeName, disks: Disks<'a>) {
        let taken = self.taken.entry(node).or_default();
        for (driver, more) in disks {
            taken.entry(driver).or_default().extend(more);
        }
    }
}

fn by_driver<'a>(disks: impl Iterator<Item = (&'a str, Disk)>) -> Disks<'a> {
    let mut all = Disks::new();
    for (driver, disk) in disks {
        all.entry(driver).or_default().insert(disk);
    }
    all
}

/// The volumes of nodes, and the placeholders that are too many for them.
pub(super) fn attach<'a>(scene: &Scene<'a>) -> Attach<'a> {
    let volumes = scene.volumes();
    let pods = scene.works.iter().flat_map(Work::staying);
    let drivers: HashSet<_> = pods
        .flat_map(|pod| volumes.disks(pod, true))
        .map(|(driver, _)| driver)
        .collect();
    // Where no pod that has to move has a volume to attach, the nodes need not be looked through.
    if drivers.is_empty() {
        return Attach::default();
    }
    let nodes = scene.cluster.csi_nodes.values().map(AsRef::as_ref);
    let mut attach = Attach {
        registered: nodes.map(|n: &CsiNode| (&n.name, n)).collect(),
        ..Attach::default()
    };
    let is_limited = |node: &&CsiNode| {
        let open = |n: &Node| !n.unschedulable && !scene.is_selected(n);
        let mut limits = node.drivers.iter().filter(|(_, most)| most.is_some());
        scene.node(&node.name).is_some_and(open)
            && limits.any(|(driver, _)| drivers.contains(driver.as_str()))
    };
    let limited = attach.registered.values().copied().filter(is_limited);
    for node in limited.collect::<Vec<_>>() {
        let pods = scene.pods_on_node(&node.name).iter();
        let running = pods.filter(|p| !p.finished && p.placeholder.is_none());
        let mounted = running.flat_map(|p| volumes.disks(p, false));
        let attached = scene.attachments_of(&node.name).iter();
        let attached = attached.filter_map(|a| volumes.disk_of(a));
        let disks = mounted.chain(attached);
        let disks = disks.filter(|(driver, _)| drivers.contains(driver));
        attach.add(&node.name, by_driver(disks));
    }
    for work in &scene.works {
        for (placeholder, pod) in pairs(scene, work) {
            let Some(node) = &placeholder.node else {
                continue;
            };
            let disks = by_driver(scene.volumes().disks(pod, true));
            if attach.has_room(node, &disks) {
                attach.add(node, disks);
            } else {
                attach.too_many.insert(&placeholder.reference.uid);
            }
        }
    }
    attach
}

/// The placeholders of a workload, each with a pod that it is for: its own, or one that has none. Those beyond are about to go.
fn pairs<'a>(scene: &Scene<'a>, work: &Work<'a>) -> Vec<(&'a Pod, &'a Pod)> {
    let mut placeholders: Vec<_> = scene.placeholders_of(&work.reference.uid).collect();
    placeholders.sort_by_key(|p| (p.created, &p.reference));
    let mut pods: BTreeMap<&Uid, &'a Pod> = work.staying().map(|p| (&p.reference.uid, p)).collect();
    let mut pairs = Vec::new();
    placeholders.retain(|placeholder| {
        let label = placeholder.placeholder.as_ref();
        let own = label.and_then(|label| pods.remove(&label.pod));
        pairs.extend(own.map(|pod| (*placeholder, pod)));
        own.is_none()
    });
    pairs.extend(placeholders.into_iter().zip(pods.into_values()));
    pairs
}

/// A driver of the pod's volumes that has registered on the node that the pod is on, and not yet on the one of its placeholder. Until
/// then, neither its limit is known nor could the pod's volumes be mounted.
pub(super) fn unregistered<'a>(
    scene: &Scene<'a>,
    placeholder: &Pod,
    node: &Node,
) -> Option<&'a str> {
    let pod = scene
        .cluster
        .pods
        .get(&placeholder.placeholder.as_ref()?.pod)?;
    let registered = &scene.attach().registered;
    let here = registered.get(pod.node.as_ref()?)?;
    let there = registered.get(&node.name);
    let mut drivers = scene.volumes().disks(pod, true).map(|(driver, _)| driver);
    drivers.find(|driver| {
        here.drivers.contains_key(*driver)
            && !there.is_some_and(|n| n.drivers.contains_key(*driver))
    })
}

/// What keeps the placeholder of the pod away from the nodes that could not attach the volumes of the pod as well.
///
/// Karpenter makes no node for a pod with an affinity to host names, not even one that says which not. So a node is told by a pod that is on
/// it and that a label tells from all others: a placeholder of ours, or one of a `StatefulSet`. Where there is neither, other nodes that
/// there are can still be told from it by its name.
pub(super) fn apart_from_full(scene: &Scene<'_>, pod: &Pod, shape: &mut Shape) {
    if pod.claims.is_empty() {
        return;
    }
    let attach = scene.attach();
    let disks = by_driver(scene.volumes().disks(pod, true));
    let full = attach.taken.keys().filter(|n| !attach.has_room(n, &disks));
    let full = full.filter_map(|name| scene.node(name));
    let mut ours = BTreeSet::new();
    let mut sets: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for node in full {
        let pods = scene.pods_on_node(&node.name).iter();
        let pods = pods.filter(|p| !p.terminating && !p.finished && !attach.is_too_much(p));
        let mut told: Vec<_> = pods.filter_map(|p| Some((alone(p)?, *p))).collect();
        told.sort_by_key(|(_, p)| (p.placeholder.is_some(), &p.reference));
        match told.first() {
            Some((label, pod)) if pod.placeholder.is_some() => drop(ours.insert(label.clone())),
            Some((label, pod)) => {
                let set = sets.entry(&pod.reference.namespace).or_default();
                set.insert(label.clone());
            }
            None => names.extend(node.labels.get(HOSTNAME).cloned()),
        }
    }
    if !ours.is_empty() {
        shape
            .repels
            .push(apart_from(keys::POD_UID_LABEL, ours, None));
    }
    for (namespace, pods) in sets {
        let term = apart_from(SET_POD_LABEL, pods, Some(namespace));
        shape.repels.push(term);
    }
    if !names.is_empty() {
        let requirement = NodeSelectorRequirement {
            key: HOSTNAME.to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(names.into_iter().collect()),
        };
        let others = NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: Some(vec![requirement]),
                match_fields: None,
            }],
        };
        shape.required_affinity = Some(fits::both(shape.required_affinity.take(), &others));
    }
}

/// The value of the label that no other pod of its namespace has.
fn alone(pod: &Pod) -> Option<String> {
    match &pod.placeholder {
        Some(placeholder) => Some(placeholder.pod.to_string()),
        None => pod.labels.get(SET_POD_LABEL).cloned(),
    }
}

fn apart_from(label: &str, values: BTreeSet<String>, namespace: Option<&str>) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: label.to_owned(),
                operator: "In".to_owned(),
                values: Some(values.into_iter().collect()),
            }]),
            match_labels: None,
        }),
        namespaces: namespace.map(|n| vec![n.to_owned()]),
        topology_key: HOSTNAME.to_owned(),
        ..PodAffinityTerm::default()
    }
}

/// The same without nodes that are kept from: those that were full come and go.
pub(super) fn any_node(selector: Option<NodeSelector>) -> Option<NodeSelector> {
    let mut selector = selector?;
    for term in &mut selector.node_selector_terms {
        if let Some(expressions) = &mut term.match_expressions {
            expressions.retain(|r| r.key != HOSTNAME || r.operator != "NotIn");
        }
    }
    Some(selector)
}
