//! The controllers of a cluster, each just as much of the real one as a relocation can tell. They see the store itself, and act at
//! moments that the seed chooses.

mod adversary;
mod budgets;
mod collector;
mod gitops;
mod karpenter;
mod kubelet;
mod scheduler;
mod volumes;
mod workloads;

use std::collections::BTreeMap;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::json::{at, condition, text};
use crate::resource::Resource;
use crate::store::{Preconditions, Store};
pub use adversary::{Adversary, Deed, Done};
pub use gitops::MANAGED;
pub use karpenter::{CPUS, INITIALIZED, NODEPOOL, Times, node_object};

/// One controller.
trait Controller: Send {
    /// What it looks at: it runs when any of these has changed.
    fn looks_at(&self) -> &'static [Resource];

    /// One look, and what follows. Returns when to look again even if nothing changes.
    fn run(&mut self, store: &mut Store, rng: &mut Rng) -> Option<Timestamp>;
}

struct Running {
    controller: Box<dyn Controller>,
    /// The revision up to which it has seen everything.
    seen: u64,
    due: Option<Timestamp>,
}

impl Running {
    fn new(controller: Box<dyn Controller>) -> Self {
        Self {
            controller,
            seen: 0,
            due: None,
        }
    }
}

/// All controllers of a cluster.
pub struct Controllers {
    running: Vec<Running>,
    rng: Rng,
    /// Share of the looks that come a little later than they could.
    dawdling: f64,
}

impl Controllers {
    /// All of them, at the start.
    #[must_use]
    pub fn new(mut rng: Rng, times: Times, dawdling: f64) -> Self {
        let controllers: [Box<dyn Controller>; 11] = [
            Box::new(scheduler::Scheduler),
            Box::new(workloads::Deployments),
            Box::new(workloads::ReplicaSets),
            Box::new(workloads::StatefulSets),
            Box::new(workloads::DaemonSets),
            Box::new(budgets::Budgets),
            Box::new(volumes::Volumes::default()),
            Box::new(kubelet::Kubelet::default()),
            Box::new(karpenter::Karpenter::new(times)),
            Box::new(collector::Collector),
            Box::new(gitops::GitOps::default()),
        ];
        let running = controllers.into_iter().map(Running::new).collect();
        let rng = Rng::with_seed(rng.u64(..));
        Self {
            running,
            rng,
            dawdling,
        }
    }

    /// Lets the adversary in.
    pub fn admit(&mut self, adversary: Adversary) {
        self.running.push(Running::new(Box::new(adversary)));
    }

    /// Lets each controller that has something new to see, or to do by now, have one look, in an order that the seed chooses. Returns
    /// when the next one has something to do even if nothing changes.
    pub fn round(&mut self, store: &mut Store) -> Option<Timestamp> {
        const LATER: SignedDuration = SignedDuration::from_millis(30);
        self.rng.shuffle(&mut self.running);
        let mut next = None;
        for running in &mut self.running {
            let now = store.now();
            let news = store.touched(running.controller.looks_at()) > running.seen;
            if news || running.due.is_some_and(|due| due <= now) {
                if self.rng.f64() < self.dawdling {
                    let later = now.saturating_add(LATER).unwrap_or(now);
                    next = earliest(next, Some(later));
                    continue;
                }
                // Before the look: what it changes itself it may have to see again.
                running.seen = store.revision();
                running.due = running.controller.run(store, &mut self.rng);
            }
            next = earliest(next, running.due);
        }
        next
    }
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The time in so many seconds.
fn after(now: Timestamp, seconds: f64) -> Timestamp {
    let millis = SignedDuration::from_secs_f64(seconds);
    now.saturating_add(millis).unwrap_or(Timestamp::MAX)
}

// What pods are asked.

fn is_terminating(object: &Value) -> bool {
    !at(object, &["metadata", "deletionTimestamp"]).is_null()
}

fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True" && !is_terminating(pod)
}

fn node_of(pod: &Value) -> &str {
    text(pod, &["spec", "nodeName"])
}

fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

/// Deletes an object as a program would, so that the judge sees who it was.
pub fn delete(store: &mut Store, resource: Resource, object: &Value, agent: &str) {
    let (namespace, name) = (namespace(object).to_owned(), name(object).to_owned());
    let demanded = Preconditions {
        uid: Some(uid(object).to_owned()),
        resource_version: None,
    };
    let call = crate::server::Call {
        verb: crate::server::Verb::Delete,
        target: crate::server::Target::Objects(resource),
        namespace: namespace.clone(),
        name: name.clone(),
        subresource: String::new(),
        query: BTreeMap::new(),
        body: json!({"preconditions": {"uid": uid(object)}}),
    };
    let id = store.audit().len();
    let now = store.now();
    // Gone already, or another one by now: as well.
    let code = store
        .delete(resource, &namespace, &name, &demanded)
        .map_or_else(|refusal| refusal.code, |_| 200);
    store.log(call.audited(id, now, agent, code));
}

/// The agent of everything that kube-controller-manager does.
const MANAGER: &str = "kube-controller-manager/v1";
