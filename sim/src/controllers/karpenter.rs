//! Karpenter: nodes for pods that find no room, removal of empty nodes that may be disrupted, the end of `NodeClaims`. Source: the
//! documentation of Karpenter 1.x on scheduling, disruption and termination.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Controller, after, delete, earliest, is_finished, is_terminating, name, namespace, node_of,
    scheduler, uid,
};
use crate::json::{at, condition, list, set, set_condition, text};
use crate::resource::Resource;
use crate::store::Store;

/// CPUs of each node that it makes.
pub const CPUS: i128 = 4;
/// The label of the pool.
pub const NODEPOOL: &str = "karpenter.sh/nodepool";
/// The label of a node that has all it needs.
pub const INITIALIZED: &str = "karpenter.sh/initialized";

const AGENT: &str = "karpenter/v1";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const DISRUPTED: &str = "karpenter.sh/disrupted";
const FINALIZER: &str = "karpenter.sh/termination";

/// How long things take, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From a claim to its node.
    pub launch: f64,
    /// From the node to Ready, and again to initialized.
    pub boot: f64,
    /// How long a node is empty before it is removed.
    pub empty: f64,
    /// Whether there is capacity at all.
    pub capacity: bool,
}

pub(super) struct Karpenter {
    times: Times,
    made: u32,
    /// When it looks at the pods that wait: it gathers them for a moment first.
    batch: Option<Timestamp>,
    /// By UID: when the next thing happens to a claim or node.
    due: BTreeMap<String, Timestamp>,
}

impl Karpenter {
    pub(super) fn new(times: Times) -> Self {
        Self {
            times,
            made: 0,
            batch: None,
            due: BTreeMap::new(),
        }
    }

    /// True when so many seconds have passed since this was first asked for the key.
    fn passed(
        &mut self,
        key: &str,
        seconds: f64,
        store: &Store,
        rng: &mut Rng,
        next: &mut Option<Timestamp>,
    ) -> bool {
        let now = store.now();
        let wait = seconds * (0.7 + 0.6 * rng.f64());
        let due = *self
            .due
            .entry(key.to_owned())
            .or_insert_with(|| after(now, wait));
        if due <= now {
            self.due.remove(key);
            return true;
        }
        *next = earliest(*next, Some(due));
        false
    }
}

impl Controller for Karpenter {
    fn looks_at(&self) -> &'static [Resource] {
        &[
            Resource::Pods,
            Resource::Nodes,
            Resource::NodeClaims,
            Resource::Attachments,
        ]
    }

    fn run(&mut self, store: &mut Store, rng: &mut Rng) -> Option<Timestamp> {
        let mut next = None;
        self.provision(store, &mut next);
        let claims: Vec<_> = store.all(Resource::NodeClaims).cloned().collect();
        for claim in claims {
            if is_terminating(&claim) {
                self.terminate(store, &claim, rng, &mut next);
            } else {
                self.bring_up(store, &claim, rng, &mut next);
                self.remove_empty(store, &claim, rng, &mut next);
            }
        }
        next
    }
}

impl Karpenter {
    /// A claim for every four CPUs of pods that find no room on nodes that are there or on their way.
    fn provision(&mut self, store: &mut Store, next: &mut Option<Timestamp>) {
        let waiting: Vec<_> = store
            .all(Resource::Pods)
            .filter(|p| node_of(p).is_empty() && !is_terminating(p) && !is_finished(p))
            .filter(|p| condition(p, "PodScheduled") == "False")
            .filter(|p| text(p, &["status", "nominatedNodeName"]).is_empty())
            .filter(|p| {
                let selector = at(p, &["spec", "nodeSelector"]).as_object();
                selector
                    .into_iter()
                    .flatten()
                    .all(|(key, _)| key == NODEPOOL || key == "kubernetes.io/os")
            })
            .cloned()
            .collect();
        if waiting.is_empty() || !self.times.capacity {
            self.batch = None;
            return;
        }
        let due = *self.batch.get_or_insert_with(|| after(store.now(), 1.0));
        if due > store.now() {
            *next = earliest(*next, Some(due));
            return;
        }
        self.batch = None;
        let cpus = CPUS * 1000;
        let mut bins: Vec<i128> = store
            .all(Resource::NodeClaims)
            .filter(|c| !is_terminating(c) && text(c, &["status", "nodeName"]).is_empty())
            .map(|_| cpus)
            .collect();
        // Nodes that are there and not Ready yet will have room, too.
        let coming = store.all(Resource::Nodes).filter(|n| {
            !is_terminating(n)
                && at(n, &["metadata", "labels", INITIALIZED]).is_null()
                && at(n, &["metadata", "labels", NODEPOOL]).is_string()
        });
        bins.extend(coming.map(|_| cpus));
        let there = bins.len();
        for pod in waiting {
            let wanted = scheduler::requests(&pod);
            match bins.iter_mut().find(|room| **room >= wanted) {
                Some(room) => *room -= wanted,
                None => bins.push(cpus - wanted),
            }
        }
        for _ in there..bins.len() {
            self.made += 1;
            let claim = json!({
                "metadata": {"name": format!("apps-{}", self.made), "labels": {NODEPOOL: "apps"}, "finalizers": [FINALIZER]},
                "spec": {}, "status": {},
            });
            let _made = store.create(Resource::NodeClaims, claim);
        }
    }

    /// Launch, registration, readiness, initialization.
    fn bring_up(
        &mut self,
        store: &mut Store,
        claim: &Value,
        rng: &mut Rng,
        next: &mut Option<Timestamp>,
    ) {
        let node_name = text(claim, &["status", "nodeName"]);
        if node_name.is_empty() {
            if self.passed(
                &format!("launch {}", uid(claim)),
                self.times.launch,
                store,
                rng,
                next,
            ) {
                let node = format!("node-{}", name(claim));
                let _made = store.create(Resource::Nodes, node_object(&node, false));
                store.change(Resource::NodeClaims, "", name(claim), |c| {
                    set(c, &["status", "nodeName"], node);
                });
            }
            return;
        }
        let Some(node) = store.get(Resource::Nodes, "", node_name).cloned() else {
            return;
        };
        let now = store.time();
        if list(&node, &["status", "conditions"]).is_empty() {
            if self.passed(
                &format!("ready {}", uid(&node)),
                self.times.boot,
                store,
                rng,
                next,
            ) {
                store.change(Resource::Nodes, "", node_name, |n| {
                    set_condition(n, "Ready", "True", "", &now);
                });
            }
        } else if at(&node, &["metadata", "labels", INITIALIZED]).is_null()
            && condition(&node, "Ready") == "True"
            && self.passed(
                &format!("init {}", uid(&node)),
                self.times.boot,
                store,
                rng,
                next,
            )
        {
            store.change(Resource::Nodes, "", node_name, |n| {
                set(n, &["metadata", "labels", INITIALIZED], "true");
            });
        }
    }

    /// An empty node goes, unless it or a pod on it says no.
    fn remove_empty(
        &mut self,
        store: &mut Store,
        claim: &Arc<Value>,
        rng: &mut Rng,
        next: &mut Option<Timestamp>,
    ) {
        let Some(node) = store
            .get(Resource::Nodes, "", text(claim, &["status", "nodeName"]))
            .cloned()
        else {
            return;
        };
        let key = format!("empty {}", uid(&node));
        let said_no = |o: &Value| text(o, &["metadata", "annotations", DO_NOT_DISRUPT]) == "true";
        let initialized = at(&node, &["metadata", "labels", INITIALIZED]).is_string();
        let busy = store.all(Resource::Pods).any(|p| {
            node_of(p) == name(&node) && ((!of_daemon_set(p) && !is_finished(p)) || said_no(p))
        });
        if busy || said_no(&node) || !initialized {
            self.due.remove(&key);
        } else if self.passed(&key, self.times.empty, store, rng, next) {
            delete(store, Resource::NodeClaims, claim, AGENT);
        }
    }

    /// Taints the node, evicts its pods as their budgets and do-not-disrupt allow, then node and claim go.
    fn terminate(
        &mut self,
        store: &mut Store,
        claim: &Value,
        rng: &mut Rng,
        next: &mut Option<Timestamp>,
    ) {
        let node = store
            .get(Resource::Nodes, "", text(claim, &["status", "nodeName"]))
            .cloned();
        let Some(node) = node else {
            if self.passed(&format!("gone {}", uid(claim)), 1.0, store, rng, next) {
                store.change(Resource::NodeClaims, "", name(claim), |c| {
                    set(c, &["metadata", "finalizers"], json!([]));
                });
            }
            return;
        };
        let tainted = list(&node, &["spec", "taints"])
            .iter()
            .any(|t| text(t, &["key"]) == DISRUPTED);
        if !tainted {
            store.change(Resource::Nodes, "", name(&node), |n| {
                set(
                    n,
                    &["spec", "taints"],
                    json!([{"key": DISRUPTED, "effect": "NoSchedule"}]),
                );
            });
        }
        let pods: Vec<_> = store
            .all(Resource::Pods)
            .filter(|p| node_of(p) == name(&node) && !of_daemon_set(p) && !is_finished(p))
            .cloned()
            .collect();
        let attached = store
            .all(Resource::Attachments)
            .any(|a| text(a, &["spec", "nodeName"]) == name(&node));
        let patient = |o: &Value| text(o, &["metadata", "annotations", DO_NOT_DISRUPT]) == "true";
        for pod in pods.iter().filter(|p| !is_terminating(p) && !patient(p)) {
            if self.passed(&format!("evict {}", uid(pod)), 2.0, store, rng, next) {
                evict(store, pod);
            }
        }
        if pods.is_empty()
            && !attached
            && self.passed(&format!("end {}", uid(&node)), 2.0, store, rng, next)
        {
            store.remove(Resource::Nodes, "", name(&node), uid(&node));
        }
    }
}

fn evict(store: &mut Store, pod: &Value) {
    let call = crate::server::Call {
        verb: crate::server::Verb::Create,
        target: crate::server::Target::Objects(Resource::Pods),
        namespace: namespace(pod).to_owned(),
        name: name(pod).to_owned(),
        subresource: "eviction".to_owned(),
        query: BTreeMap::new(),
        body: json!({"deleteOptions": {"preconditions": {"uid": uid(pod)}}}),
    };
    let code = crate::server::answer(store, &call).map_or_else(|r| r.code, |_| 201);
    let event = call.audited(store.audit().len(), store.now(), AGENT, code);
    store.log(event);
}

fn of_daemon_set(pod: &Value) -> bool {
    list(pod, &["metadata", "ownerReferences"])
        .iter()
        .any(|o| text(o, &["kind"]) == "DaemonSet")
}

/// A node of the pool.
#[must_use]
pub fn node_object(name: &str, up: bool) -> Value {
    let mut node = json!({
        "metadata": {"name": name, "labels": {NODEPOOL: "apps", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {},
        "status": {"allocatable": {"cpu": CPUS.to_string(), "memory": "64Gi", "pods": "110"}},
    });
    if up {
        set(&mut node, &["metadata", "labels", INITIALIZED], "true");
        set_condition(&mut node, "Ready", "True", "", "2026-01-01T00:00:00Z");
    }
    node
}
