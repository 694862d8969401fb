//! The scheduler: resources, selectors, taints, priorities. Preempts as the real one does: the victims go, the pod waits for the room.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use jiff::Timestamp;
use relocator::world::quantity;
use serde_json::Value;

use super::{Controller, delete, is_finished, is_terminating, name, namespace, node_of, uid};
use crate::json::{at, condition, list, number, place, set, set_condition, text, unset};
use crate::resource::Resource;
use crate::store::Store;

pub(super) struct Scheduler;

const AGENT: &str = "kube-scheduler/v1";

/// Milli-CPUs that a pod asks for: in the simulation everything else is plenty.
pub(super) fn requests(pod: &Value) -> i128 {
    list(pod, &["spec", "containers"])
        .iter()
        .map(|c| quantity::parse(text(c, &["resources", "requests", "cpu"])).unwrap_or(0))
        .sum()
}

/// Whether the node's taints, labels and state let the pod onto it, room aside.
pub(super) fn admits(node: &Value, pod: &Value) -> bool {
    let tolerations = list(pod, &["spec", "tolerations"]);
    let tolerates = |key: &str| {
        tolerations.iter().any(|t| {
            let any = text(t, &["key"]).is_empty() && text(t, &["operator"]) == "Exists";
            any || text(t, &["key"]) == key
        })
    };
    let cordoned = at(node, &["spec", "unschedulable"]).as_bool() == Some(true);
    let selector = at(pod, &["spec", "nodeSelector"]).as_object();
    !is_terminating(node)
        && condition(node, "Ready") == "True"
        && (!cordoned || tolerates("node.kubernetes.io/unschedulable"))
        && list(node, &["spec", "taints"])
            .iter()
            .all(|t| tolerates(text(t, &["key"])))
        && selector
            .into_iter()
            .flatten()
            .all(|(k, v)| at(node, &["metadata", "labels", k]) == v)
}

/// What is free on each node, in milli-CPUs. Terminating pods still hold what they have.
fn free(store: &Store) -> BTreeMap<String, i128> {
    let mut free: BTreeMap<String, i128> = store
        .all(Resource::Nodes)
        .map(|n| {
            let cpu = quantity::parse(text(n, &["status", "allocatable", "cpu"]));
            (name(n).to_owned(), cpu.unwrap_or(0))
        })
        .collect();
    for pod in store.all(Resource::Pods).filter(|p| !is_finished(p)) {
        if let Some(free) = free.get_mut(node_of(pod)) {
            *free -= requests(pod);
        }
    }
    free
}

impl Controller for Scheduler {
    fn looks_at(&self) -> &'static [Resource] {
        &[Resource::Pods, Resource::Nodes]
    }

    fn run(&mut self, store: &mut Store, rng: &mut Rng) -> Option<Timestamp> {
        let mut waiting: Vec<Arc<Value>> = store
            .all(Resource::Pods)
            .filter(|p| node_of(p).is_empty() && !is_terminating(p) && !is_finished(p))
            .cloned()
            .collect();
        // By priority, then by age, as the scheduling queue orders them.
        waiting.sort_by_key(|p| {
            let age = text(p, &["metadata", "creationTimestamp"]).to_owned();
            (-number(p, &["spec", "priority"]), age, uid(p).to_owned())
        });
        let mut free = free(store);
        // Room that was made for pods which have not come yet is theirs.
        for pod in &waiting {
            let nominated = text(pod, &["status", "nominatedNodeName"]);
            if let Some(room) = free.get_mut(nominated) {
                *room -= requests(pod);
            }
        }
        for pod in waiting {
            let nominated = text(&pod, &["status", "nominatedNodeName"]).to_owned();
            if let Some(room) = free.get_mut(&nominated) {
                *room += requests(&pod);
            }
            let node = fitting(store, &free, &pod, &nominated, rng);
            if let Some(node) = node {
                if let Some(room) = free.get_mut(&node) {
                    *room -= requests(&pod);
                }
                bind(store, &pod, &node);
                continue;
            }
            let made = preempt(store, &free, &pod);
            if let Some(room) = made.as_ref().and_then(|node| free.get_mut(node)) {
                *room -= requests(&pod);
            }
            unschedulable(store, &pod, made.as_deref());
        }
        None
    }
}

/// A node with room: the nominated one first, then the one with the most, by the seed among equals.
fn fitting(
    store: &Store,
    free: &BTreeMap<String, i128>,
    pod: &Value,
    nominated: &str,
    rng: &mut Rng,
) -> Option<String> {
    let wanted = requests(pod);
    let mut open: Vec<(bool, i128, u32, &str)> = store
        .all(Resource::Nodes)
        .filter(|n| admits(n, pod))
        .filter_map(|n| {
            let room = free.get(name(n)).copied().filter(|room| *room >= wanted)?;
            Some((name(n) == nominated, room, rng.u32(..), name(n)))
        })
        .collect();
    open.sort_unstable();
    open.last().map(|(.., name)| (*name).to_owned())
}

fn bind(store: &mut Store, pod: &Value, node: &str) {
    let now = store.time();
    store.change(Resource::Pods, namespace(pod), name(pod), |p| {
        set(p, &["spec", "nodeName"], node);
        unset(p, &["status", "nominatedNodeName"]);
        set_condition(p, "PodScheduled", "True", "", &now);
    });
}

fn unschedulable(store: &mut Store, pod: &Value, nominated: Option<&str>) {
    let now = store.time();
    store.change(Resource::Pods, namespace(pod), name(pod), |p| {
        set_condition(p, "PodScheduled", "False", "Unschedulable", &now);
        let conditions = place(p, &["status", "conditions"]).as_array_mut();
        for condition in conditions
            .into_iter()
            .flatten()
            .filter(|c| text(c, &["type"]) == "PodScheduled")
        {
            set(
                condition,
                &["message"],
                "no node has room for it, admits it and is Ready",
            );
        }
        match nominated {
            Some(node) => set(p, &["status", "nominatedNodeName"], node),
            None if !at(p, &["status", "nominatedNodeName"]).is_null() => {
                unset(p, &["status", "nominatedNodeName"]);
            }
            None => {}
        }
    });
}

/// Takes away pods of a lower priority from one node, as few as make room. Returns the node.
fn preempt(store: &mut Store, free: &BTreeMap<String, i128>, pod: &Value) -> Option<String> {
    if text(pod, &["spec", "preemptionPolicy"]) == "Never" {
        return None;
    }
    let (wanted, priority) = (requests(pod), number(pod, &["spec", "priority"]));
    let mut best: Option<(usize, String, Vec<Arc<Value>>)> = None;
    for node in store.all(Resource::Nodes).filter(|n| admits(n, pod)) {
        let mut room = free.get(name(node)).copied().unwrap_or(0);
        let mut victims = Vec::new();
        let lower = store.all(Resource::Pods).filter(|p| {
            node_of(p) == name(node)
                && !is_finished(p)
                && number(p, &["spec", "priority"]) < priority
        });
        for victim in lower {
            if room >= wanted {
                break;
            }
            room += requests(victim);
            victims.push(Arc::clone(victim));
        }
        if room >= wanted
            && best
                .as_ref()
                .is_none_or(|(fewest, ..)| victims.len() < *fewest)
        {
            best = Some((victims.len(), name(node).to_owned(), victims));
        }
    }
    let (_, node, victims) = best?;
    for victim in victims.iter().filter(|v| !is_terminating(v)) {
        delete(store, Resource::Pods, victim, AGENT);
    }
    Some(node)
}
