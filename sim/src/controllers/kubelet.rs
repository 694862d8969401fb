//! The kubelets: pods start, get Ready and stop, each in its time, as long as their node is there and Ready.

use std::collections::BTreeMap;

use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Controller, after, earliest, is_finished, is_terminating, name, namespace, node_of, uid,
    volumes,
};
use crate::json::{at, condition, number, set, set_condition, text};
use crate::resource::Resource;
use crate::store::Store;

/// Pods that are on their way somewhere, and when they get there.
#[derive(Default)]
pub(super) struct Kubelet {
    due: BTreeMap<(String, Step), Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Ready,
    Finished,
    Stopped,
}

/// A time of the pod in seconds, by annotation; the default if it has none.
fn seconds(pod: &Value, key: &str, default: f64) -> f64 {
    text(pod, &["metadata", "annotations", key])
        .parse()
        .unwrap_or(default)
}

impl Controller for Kubelet {
    fn looks_at(&self) -> &'static [Resource] {
        &[Resource::Pods, Resource::Nodes, Resource::Attachments]
    }

    fn run(&mut self, store: &mut Store, rng: &mut Rng) -> Option<Timestamp> {
        let pods: Vec<_> = store
            .all(Resource::Pods)
            .filter(|p| !node_of(p).is_empty())
            .cloned()
            .collect();
        let mut next = None;
        let mut due = BTreeMap::new();
        for pod in pods {
            let alive = store
                .get(Resource::Nodes, "", node_of(&pod))
                .is_some_and(|n| condition(n, "Ready") == "True");
            if !alive {
                unready(store, &pod);
                continue;
            }
            let Some((step, wait)) = next_step(store, &pod) else {
                continue;
            };
            let key = (uid(&pod).to_owned(), step);
            let jitter = 0.3 * rng.f64();
            let when = self
                .due
                .remove(&key)
                .unwrap_or_else(|| after(store.now(), wait + jitter));
            if when <= store.now() {
                take(store, &pod, step);
            } else {
                next = earliest(next, Some(when));
                due.insert(key, when);
            }
        }
        self.due = due;
        next
    }
}

/// What becomes of the pod next, and how long that takes, in seconds.
fn next_step(store: &Store, pod: &Value) -> Option<(Step, f64)> {
    if is_terminating(pod) {
        let grace = number(pod, &["metadata", "deletionGracePeriodSeconds"]);
        let stops = seconds(pod, "sim/stop", 1.0);
        // No pod takes longer than its grace. Seconds fit.
        #[expect(clippy::cast_precision_loss, reason = "graces are small")]
        return Some((Step::Stopped, stops.min(grace as f64)));
    }
    if is_finished(pod) || !volumes::attached(store, pod) {
        return None;
    }
    let never = text(pod, &["metadata", "annotations", "sim/never-ready"]) == "true";
    if condition(pod, "Ready") != "True" && !never {
        return Some((Step::Ready, seconds(pod, "sim/ready", 2.0)));
    }
    let ends = seconds(pod, "sim/ends", f64::INFINITY);
    ends.is_finite().then_some((Step::Finished, ends))
}

fn take(store: &mut Store, pod: &Value, step: Step) {
    let now = store.time();
    match step {
        Step::Ready => store.change(Resource::Pods, namespace(pod), name(pod), |p| {
            set(p, &["status", "phase"], "Running");
            set_condition(p, "Ready", "True", "", &now);
        }),
        Step::Finished => store.change(Resource::Pods, namespace(pod), name(pod), |p| {
            set(p, &["status", "phase"], "Succeeded");
            set_condition(p, "Ready", "False", "PodCompleted", &now);
        }),
        Step::Stopped => store.remove(Resource::Pods, namespace(pod), name(pod), uid(pod)),
    }
}

/// The node is not there or not Ready: what runs on it is not known to serve (the node lifecycle controller says so).
fn unready(store: &mut Store, pod: &Value) {
    if condition(pod, "Ready") != "True" || at(pod, &["status"]) == &json!(null) {
        return;
    }
    let now = store.time();
    store.change(Resource::Pods, namespace(pod), name(pod), |p| {
        set_condition(p, "Ready", "False", "NodeNotReady", &now);
    });
}
