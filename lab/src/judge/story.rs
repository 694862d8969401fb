//! Hand-made histories for the tests: what the watches and the audit log of a run would have brought.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::audit::AuditEvent;
use super::history::{Cause, Change, History};
use super::input::JudgeInput;
use super::object::{Kind, Object};

pub(crate) const NS: &str = "shop";

/// Time zero of every story.
pub(crate) fn t(seconds: f64) -> Timestamp {
    let zero: Timestamp = "2026-11-30T22:00:00Z".parse().unwrap();
    zero + SignedDuration::from_secs_f64(seconds)
}

/// A run, told in order. Until `begins`, it is the state at the start.
pub(crate) struct Story {
    now: f64,
    began: bool,
    revision: u64,
    objects: BTreeMap<(Kind, String), Value>,
    changes: Vec<Change>,
    audit: Vec<AuditEvent>,
}

impl Story {
    /// Three nodes of 4 cpu: `old-a` and `old-b`, which are to be emptied, and `new-a`.
    pub(crate) fn new() -> Self {
        let mut story = Self {
            now: 0.0,
            began: false,
            revision: 100,
            objects: BTreeMap::new(),
            changes: Vec::new(),
            audit: Vec::new(),
        };
        for name in ["old-a", "old-b", "new-a"] {
            story.node(name, "4");
        }
        story
    }

    pub(crate) fn input() -> JudgeInput {
        JudgeInput {
            selected_nodes: ["old-a", "old-b"].map(str::to_owned).into(),
            ..JudgeInput::default()
        }
    }

    pub(crate) fn begins(&mut self) -> &mut Self {
        self.began = true;
        self
    }

    /// Goes on to this second after the start.
    pub(crate) fn at(&mut self, seconds: f64) -> &mut Self {
        self.now = seconds;
        self
    }

    pub(crate) fn ends(&self, seconds: f64) -> History {
        History::new(
            t(0.0),
            t(seconds),
            self.changes.clone(),
            self.audit.clone(),
            Vec::new(),
        )
    }

    /// An object is there from now on, or changes.
    pub(crate) fn put(&mut self, kind: Kind, object: Value) -> &mut Self {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let known = self.objects.insert((kind, name), object.clone()).is_some();
        let cause = match (self.began, known) {
            (false, _) => Cause::Initial,
            (true, true) => Cause::Modified,
            (true, false) => Cause::Added,
        };
        self.change(kind, cause, object)
    }

    /// A part of an object changes, as by a JSON merge patch.
    pub(crate) fn merge(&mut self, kind: Kind, name: &str, patch: &Value) -> &mut Self {
        let mut object = self.objects[&(kind, name.to_owned())].clone();
        merge(&mut object, patch);
        self.put(kind, object)
    }

    pub(crate) fn gone(&mut self, kind: Kind, name: &str) -> &mut Self {
        let object = self.objects.remove(&(kind, name.to_owned())).unwrap();
        self.change(kind, Cause::Deleted, object)
    }

    fn change(&mut self, kind: Kind, cause: Cause, mut object: Value) -> &mut Self {
        self.revision += 1;
        if object["metadata"]["uid"].is_null() {
            let name = object["metadata"]["name"].as_str().unwrap();
            object["metadata"]["uid"] = json!(uid(kind, name));
        }
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.changes.push(Change {
            at: t(self.now),
            revision: self.revision,
            cause,
            object: Arc::new(Object::read(kind, object)),
        });
        self
    }

    pub(crate) fn node(&mut self, name: &str, cpu: &str) -> &mut Self {
        self.put(
            Kind::Node,
            json!({"metadata": {"name": name}, "spec": {}, "status": {
                "allocatable": {"cpu": cpu, "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}]}}),
        )
    }

    pub(crate) fn cordon(&mut self, name: &str) -> &mut Self {
        self.merge(Kind::Node, name, &json!({"spec": {"unschedulable": true}}))
    }

    pub(crate) fn uncordon(&mut self, name: &str) -> &mut Self {
        self.merge(Kind::Node, name, &json!({"spec": {"unschedulable": null}}))
    }

    /// A Deployment that is rolled out, and its first `ReplicaSet`, `<name>-1`.
    pub(crate) fn deployment(&mut self, name: &str, replicas: u32) -> &mut Self {
        self.put(
            Kind::Deployment,
            json!({"metadata": {"name": name, "namespace": NS, "generation": 1},
                "spec": {"replicas": replicas},
                "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
                    "availableReplicas": replicas}}),
        );
        self.replica_set(name, 1)
    }

    pub(crate) fn replica_set(&mut self, deployment: &str, n: u32) -> &mut Self {
        self.put(
            Kind::ReplicaSet,
            json!({"metadata": {"name": format!("{deployment}-{n}"), "namespace": NS, "ownerReferences": [{
                "kind": "Deployment", "name": deployment, "uid": uid(Kind::Deployment, deployment), "controller": true,
                "apiVersion": "apps/v1"}]}, "spec": {}}),
        )
    }

    pub(crate) fn stateful_set(&mut self, name: &str, replicas: u32) -> &mut Self {
        self.put(
            Kind::StatefulSet,
            json!({"metadata": {"name": name, "namespace": NS, "generation": 1}, "spec": {"replicas": replicas},
                "status": {"observedGeneration": 1, "readyReplicas": replicas, "updatedReplicas": replicas}}),
        )
    }

    pub(crate) fn budget(&mut self, name: &str, labels: &Value, desired: u32) -> &mut Self {
        self.put(
            Kind::PodDisruptionBudget,
            json!({"metadata": {"name": name, "namespace": NS}, "spec": {"selector": {"matchLabels": labels}},
                "status": {"desiredHealthy": desired}}),
        )
    }

    /// A pod of 1 cpu. `id` is name and UID, or `name#n` for the nth pod of a name. Bound to `node` unless that is empty, and
    /// Ready if so said.
    pub(crate) fn pod(
        &mut self,
        id: &str,
        owner: (&str, &str),
        node: &str,
        ready: bool,
    ) -> &mut Self {
        let name = id.split('#').next().unwrap();
        let app = owner
            .1
            .trim_end_matches(|c: char| c == '-' || c.is_ascii_digit());
        self.put(
            Kind::Pod,
            json!({"metadata": {"name": name, "namespace": NS, "uid": id, "labels": {"app": app, "tier": "all"},
                "ownerReferences": [{"kind": owner.0, "name": owner.1, "uid": uid(owner.0, owner.1),
                    "controller": true, "apiVersion": "apps/v1"}]},
                "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
                "status": status(ready)}),
        )
    }

    pub(crate) fn becomes_ready(&mut self, pod: &str) -> &mut Self {
        self.merge(Kind::Pod, pod, &json!({"status": status(true)}))
    }

    pub(crate) fn is_bound(&mut self, pod: &str, node: &str) -> &mut Self {
        self.merge(Kind::Pod, pod, &json!({"spec": {"nodeName": node}}))
    }

    /// A pod begins to stop.
    pub(crate) fn stops(&mut self, pod: &str) -> &mut Self {
        let when = json!({"metadata": {"deletionTimestamp": "2026-11-30T22:00:00Z"}});
        self.merge(Kind::Pod, pod, &when)
    }

    pub(crate) fn placeholder(&mut self, name: &str, node: &str) -> &mut Self {
        self.put(
            Kind::Pod,
            json!({"metadata": {"name": name, "namespace": "relocator-placeholders", "uid": name},
                "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
                "status": status(true)}),
        )
    }

    /// A request of relocator's, answered at once. `what` is `verb resource[/subresource] name`.
    pub(crate) fn ours(&mut self, what: &str, body: Option<Value>) -> &mut Self {
        self.request("relocator", what, body)
    }

    /// A request of anybody's.
    pub(crate) fn request(&mut self, agent: &str, what: &str, body: Option<Value>) -> &mut Self {
        let mut words = what.split(' ');
        let (verb, target, name) = (
            words.next().unwrap(),
            words.next().unwrap(),
            words.next().unwrap_or_default(),
        );
        let (resource, subresource) = target.split_once('/').unwrap_or((target, ""));
        let namespace = match resource {
            "nodes" | "nodeclaims" => "",
            _ if name.starts_with("placeholder") => "relocator-placeholders",
            _ => NS,
        };
        let level = if body.is_some() {
            "Request"
        } else {
            "Metadata"
        };
        let line = json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1",
            "level": level,
            "auditID": format!("audit-{}", self.audit.len() + 1), "stage": "ResponseComplete", "verb": verb,
            "user": {"username": agent}, "userAgent": format!("{agent}/v1 (linux)"),
            "objectRef": {"resource": resource, "namespace": namespace, "name": name, "subresource": subresource},
            "requestObject": body.unwrap_or_default(), "responseStatus": {"code": 201},
            "requestReceivedTimestamp": t(self.now).to_string(), "stageTimestamp": t(self.now).to_string()});
        self.audit
            .push(AuditEvent::parse(&line.to_string()).unwrap());
        self
    }

    /// We evict a pod by its UID, and it begins to stop.
    pub(crate) fn evicted(&mut self, id: &str) -> &mut Self {
        let name = id.split('#').next().unwrap();
        let body = json!({"deleteOptions": {"preconditions": {"uid": id}}});
        self.ours(&format!("create pods/eviction {name}"), Some(body))
            .stops(name)
    }

    /// We restart a workload. It is rolled out again with [`Story::rolled_out`].
    pub(crate) fn restarted(&mut self, kind: Kind, name: &str, value: &str) -> &mut Self {
        let template =
            json!({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": value}}});
        let body = json!({"spec": {"template": template}});
        self.ours(
            &format!("patch {} {name}", kind.resource()),
            Some(body.clone()),
        );
        let next = self.objects[&(kind, name.to_owned())]["metadata"]["generation"]
            .as_i64()
            .unwrap()
            + 1;
        let mut change = body;
        change["metadata"] = json!({"generation": next});
        self.merge(kind, name, &change)
    }

    /// We set the replica count.
    pub(crate) fn scaled(&mut self, agent: &str, deployment: &str, replicas: u32) -> &mut Self {
        let body = json!({"spec": {"replicas": replicas}});
        self.request(
            agent,
            &format!("patch deployments/scale {deployment}"),
            Some(body.clone()),
        );
        self.merge(Kind::Deployment, deployment, &body)
    }

    pub(crate) fn rolled_out(&mut self, kind: Kind, name: &str) -> &mut Self {
        let generation = self.objects[&(kind, name.to_owned())]["metadata"]["generation"].clone();
        self.merge(
            kind,
            name,
            &json!({"status": {"observedGeneration": generation}}),
        )
    }
}

pub(crate) const WEB: (&str, &str) = ("ReplicaSet", "web-1");
pub(crate) const DB: (&str, &str) = ("StatefulSet", "db");

fn uid(kind: impl std::fmt::Display, name: &str) -> String {
    format!("{kind}:{name}")
}

fn status(ready: bool) -> Value {
    let word = if ready { "True" } else { "False" };
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": word}]})
}

fn merge(into: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) => {
            if !into.is_object() {
                *into = json!({});
            }
            for (key, value) in fields {
                if value.is_null() {
                    into.as_object_mut().unwrap().remove(key);
                } else {
                    merge(&mut into[key], value);
                }
            }
        }
        _ => *into = patch.clone(),
    }
}
