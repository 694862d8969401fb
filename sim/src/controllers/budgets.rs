//! The disruption controller. Source: `pkg/controller/disruption/disruption.go` of Kubernetes 1.37.

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Controller, is_ready, is_terminating, name, namespace};
use crate::json::{at, number, selects, set};
use crate::resource::Resource;
use crate::server::controller;
use crate::store::Store;

pub(super) struct Budgets;

/// How long an eviction that was granted counts while the pod does not begin to go (`DeletionTimeout`).
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

impl Controller for Budgets {
    fn looks_at(&self) -> &'static [Resource] {
        &[
            Resource::Pods,
            Resource::Budgets,
            Resource::Deployments,
            Resource::ReplicaSets,
            Resource::StatefulSets,
        ]
    }

    fn run(&mut self, store: &mut Store, _rng: &mut Rng) -> Option<Timestamp> {
        let budgets: Vec<_> = store.all(Resource::Budgets).cloned().collect();
        let mut next = None;
        for budget in budgets {
            let (status, recheck) = status(store, &budget);
            next = super::earliest(next, recheck);
            store.change(Resource::Budgets, namespace(&budget), name(&budget), |b| {
                set(b, &["status"], status);
            });
        }
        next
    }
}

fn status(store: &Store, budget: &Value) -> (Value, Option<Timestamp>) {
    let now = store.now();
    let mut recheck = None;
    let mut disrupted = serde_json::Map::new();
    let (mut healthy, mut expected) = (0, 0);
    let mut scales: Vec<(String, i64)> = Vec::new();
    let covered = store.all(Resource::Pods).filter(|p| {
        namespace(p) == namespace(budget)
            && selects(
                at(budget, &["spec", "selector"]),
                at(p, &["metadata", "labels"]),
            )
    });
    for pod in covered {
        if let Some((owner, replicas)) = scale(store, pod)
            && !scales.iter().any(|(seen, _)| *seen == owner)
        {
            scales.push((owner, replicas));
            expected += replicas;
        }
        let granted = at(budget, &["status", "disruptedPods", name(pod)]).as_str();
        let until = granted
            .and_then(|t| t.parse::<Timestamp>().ok())
            .and_then(|t| t.checked_add(DELETION_TIMEOUT).ok());
        // By name, as the real controller: the successor of a pod of a StatefulSet may inherit the entry.
        if !is_terminating(pod)
            && let Some(until) = until.filter(|until| *until > now)
        {
            disrupted.insert(name(pod).to_owned(), json!(granted));
            recheck = super::earliest(recheck, Some(until));
            continue;
        }
        if is_ready(pod) {
            healthy += 1;
        }
    }
    let desired = match at(budget, &["spec", "minAvailable"]).as_i64() {
        Some(wanted) => wanted,
        None => (expected - number(budget, &["spec", "maxUnavailable"])).max(0),
    };
    let allowed = if expected == 0 {
        0
    } else {
        (healthy - desired).max(0)
    };
    let status = json!({
        "observedGeneration": number(budget, &["metadata", "generation"]),
        "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected,
        "disruptionsAllowed": allowed, "disruptedPods": disrupted,
    });
    (status, recheck)
}

/// The workload of a pod that has a scale, and its replicas.
fn scale(store: &Store, pod: &Value) -> Option<(String, i64)> {
    let owner = controller(pod);
    let replicas = |o: &Value| number(o, &["spec", "replicas"]);
    if let Some(set) = store.with_uid(Resource::ReplicaSets, owner) {
        let parent = controller(set);
        return Some(match store.with_uid(Resource::Deployments, parent) {
            Some(deployment) => (parent.to_owned(), replicas(deployment)),
            None => (owner.to_owned(), replicas(set)),
        });
    }
    let set = store.with_uid(Resource::StatefulSets, owner)?;
    Some((owner.to_owned(), replicas(set)))
}
