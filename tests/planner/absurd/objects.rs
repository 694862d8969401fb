//! The objects of a world as JSON, as the API server would send them, and what becomes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use relocator::world::{Cluster, Karpenter, Objects as ById, OwnerSight, Uid, Unknown, convert};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::recipe::{Answer, Change, Kind, Recipe, Work};

pub(super) const OURS: &str = "move/relocation-uid";
pub(super) const NODES: [&str; 4] = ["old-0", "old-1", "new-0", "other"];
const LONG_AGO: &str = "2027-01-15T07:00:00Z";

/// An object of a kind.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) kind: String,
    pub(super) value: Value,
}

impl Object {
    pub(super) fn text(&self, path: &str) -> &str {
        self.value
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(super) fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.value["metadata"]["annotations"][key].as_str()
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.value["metadata"]["labels"][key].as_str()
    }
}

/// All objects, in an order.
#[derive(Clone, Debug)]
pub(super) struct Objects(pub(super) Vec<Object>);

impl Objects {
    /// A cluster in which nothing is wrong.
    pub(super) fn sane(recipe: &Recipe) -> Self {
        let mut all = Self(Vec::new());
        for name in NODES {
            all.node(name);
        }
        for (number, work) in recipe.works.iter().enumerate() {
            all.work(&format!("w{number}"), work);
        }
        for (number, budget) in recipe.budgets.iter().enumerate() {
            let mut budget = budget.clone();
            budget["metadata"]["uid"] = json!(format!("budget-{number}"));
            all.add("PodDisruptionBudget", budget);
        }
        all
    }

    fn add(&mut self, kind: &str, value: Value) {
        self.0.push(Object {
            kind: kind.to_owned(),
            value,
        });
    }

    pub(super) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Object> {
        self.0.iter().filter(move |o| o.kind == kind)
    }

    pub(super) fn of_mut<'a>(&'a mut self, kind: &'a str) -> impl Iterator<Item = &'a mut Object> {
        self.0.iter_mut().filter(move |o| o.kind == kind)
    }

    fn node(&mut self, name: &str) {
        self.add("Node", json!({
            "metadata": {
                "name": name, "uid": format!("node-{name}"), "resourceVersion": "7", "creationTimestamp": LONG_AGO, "annotations": {},
                "labels": {"karpenter.sh/nodepool": "apps", "karpenter.sh/initialized": "true", "kubernetes.io/hostname": name},
            },
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
        self.add("NodeClaim", json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": format!("claim-{name}"), "uid": format!("claim-{name}"), "creationTimestamp": LONG_AGO},
            "spec": {"expireAfter": "720h"},
            "status": {"nodeName": name, "conditions": [{"type": "Drifted", "status": "True"}]},
        }));
        self.add("VolumeAttachment", json!({
            "metadata": {"name": format!("attachment-{name}"), "uid": format!("attachment-{name}")},
            "spec": {"attacher": "csi", "nodeName": name, "source": {"persistentVolumeName": "volume"}},
        }));
        if name == "other" {
            self.add("NodePool", json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "apps", "uid": "pool"},
                "spec": {"limits": {"cpu": "10"}, "template": {"metadata": {"labels": {}}, "spec": {"requirements": [], "taints": []}}},
                "status": {"resources": {"cpu": "1"}},
            }));
        }
    }

    fn work(&mut self, name: &str, work: &Work) {
        let Work {
            kind,
            namespace,
            places,
        } = work;
        let replicas = places.len();
        let meta = |kind: &str| {
            json!({
                "name": name, "namespace": namespace, "uid": format!("{kind}-{name}"), "resourceVersion": "7", "generation": 1, "labels": {},
            })
        };
        let labels = json!({"app": name, "all": "x"});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
        let status = json!({
            "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas,
            "readyReplicas": replicas, "currentRevision": "1", "updateRevision": "1",
        });
        let owner = |api: &str, kind: &str| {
            json!({
                "apiVersion": api, "kind": kind, "name": name, "uid": format!("{kind}-{name}"), "controller": true,
            })
        };
        let spec =
            json!({"replicas": replicas, "selector": {}, "serviceName": "s", "template": template});
        let mut custom = |api: &str, kind: &str, spec: Value, status: Value| {
            let mut meta = meta(kind);
            if kind == "Installation" {
                meta.as_object_mut().unwrap().remove("namespace");
            }
            self.add("Owner", json!({"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec, "status": status}));
            owner(api, kind)
        };
        let by = match kind {
            Kind::Database => custom(
                "db.example.com/v1",
                "Database",
                json!({"instances": replicas}),
                json!({}),
            ),
            Kind::ClusterWide => custom(
                "example.com/v1",
                "Installation",
                json!({"replicas": replicas}),
                json!({}),
            ),
            Kind::ReplicationController => custom(
                "v1",
                "ReplicationController",
                json!({"replicas": replicas}),
                json!({}),
            ),
            Kind::Job => custom(
                "batch/v1",
                "Job",
                json!({"parallelism": replicas, "completions": replicas}),
                json!({"active": replicas}),
            ),
            Kind::Rollout => custom(
                "argoproj.io/v1alpha1",
                "Rollout",
                json!({"replicas": replicas}),
                json!({"phase": "Healthy"}),
            ),
            Kind::OwnedByPod => custom("v1", "Pod", json!({}), json!({})),
            Kind::Bare => Value::Null,
            Kind::Static => {
                json!({"apiVersion": "v1", "kind": "Node", "name": NODES[places[0]], "uid": format!("node-{}", NODES[places[0]]), "controller": true})
            }
            Kind::Deployment => {
                self.add(
                    "Deployment",
                    json!({"metadata": meta("Deployment"), "spec": spec, "status": status}),
                );
                let mut set = meta("ReplicaSet");
                set["ownerReferences"] = json!([owner("apps/v1", "Deployment")]);
                self.add(
                    "ReplicaSet",
                    json!({"metadata": set, "spec": spec, "status": status}),
                );
                owner("apps/v1", "ReplicaSet")
            }
            Kind::ReplicaSet => {
                self.add(
                    "ReplicaSet",
                    json!({"metadata": meta("ReplicaSet"), "spec": spec, "status": status}),
                );
                owner("apps/v1", "ReplicaSet")
            }
            Kind::StatefulSet => {
                self.add(
                    "StatefulSet",
                    json!({"metadata": meta("StatefulSet"), "spec": spec, "status": status}),
                );
                owner("apps/v1", "StatefulSet")
            }
            Kind::DaemonSet => {
                let status = json!({"currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1});
                self.add(
                    "DaemonSet",
                    json!({"metadata": meta("DaemonSet"), "spec": spec, "status": status}),
                );
                owner("apps/v1", "DaemonSet")
            }
        };
        for (ordinal, place) in places.iter().enumerate() {
            let mirror = json!({"kubernetes.io/config.mirror": "x"});
            self.add("Pod", json!({
                "metadata": {
                    "name": format!("{name}-{ordinal}"), "namespace": namespace, "uid": format!("pod-{name}-{ordinal}"),
                    "resourceVersion": "7", "creationTimestamp": LONG_AGO, "labels": labels,
                    "annotations": if *kind == Kind::Static { mirror } else { json!({}) },
                    "ownerReferences": if by.is_null() { json!([]) } else { json!([by]) },
                },
                "spec": {
                    "nodeName": NODES[*place],
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}],
                    "volumes": [{"name": "cache", "emptyDir": {}}],
                    "tolerations": [{"key": "a", "operator": "Exists"}],
                },
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}]},
            }));
        }
    }

    /// A placeholder of ours for a pod of that workload.
    pub(super) fn placeholder(&mut self, pod: &str, workload: &str, node: Option<&str>) {
        let number = self.0.len();
        self.add("Pod", json!({
            "metadata": {
                "name": format!("placeholder-{number}"), "namespace": "relocator-placeholders", "uid": format!("placeholder-{number}"),
                "resourceVersion": "7", "creationTimestamp": LONG_AGO, "annotations": {},
                "labels": {"relocation.sh/pod-uid": pod, "relocation.sh/workload-uid": workload},
                "ownerReferences": [{"apiVersion": "relocation.sh/v1alpha1", "kind": "NodeRelocation", "name": "move", "uid": "relocation-uid"}],
            },
            "spec": {"nodeName": node, "containers": [], "priority": -10},
            "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
        }));
    }

    /// Makes the change. What the API server itself makes or bounds, names and UIDs, stays of a form that it would have.
    pub(super) fn change(&mut self, change: &Change) {
        let count = self.0.len();
        let at = |number: usize| number % count;
        match change {
            Change::Set {
                object,
                path,
                value,
            } => self.set(at(*object), *path, value.clone()),
            Change::Remove { object, path } => {
                let value = &mut self.0[at(*object)].value;
                let paths = paths(value);
                let path = &paths[path % paths.len()];
                let (parent, key) = path.rsplit_once('/').unwrap();
                match value.pointer_mut(parent) {
                    Some(Value::Object(fields)) => drop(fields.remove(&key.replace("~1", "/"))),
                    Some(Value::Array(items)) => drop(items.remove(key.parse().unwrap())),
                    _ => {}
                }
            }
            Change::Steal { object, path, from } => {
                let paths = paths(&self.0[at(*object)].value);
                let other = self.0[at(*from)].value.pointer(&paths[path % paths.len()]);
                if let Some(value) = other.cloned() {
                    self.set(at(*object), *path, value);
                }
            }
            Change::Own {
                object,
                owner,
                controller,
                alone,
            } => {
                let owner = &self.0[at(*owner)];
                let kind = if owner.kind == "Owner" {
                    owner.text("/kind")
                } else {
                    &owner.kind
                };
                let api = match owner.kind.as_str() {
                    "Owner" => owner.text("/apiVersion"),
                    "Pod" | "Node" | "Service" => "v1",
                    "PodDisruptionBudget" => "policy/v1",
                    _ => "apps/v1",
                };
                let reference = json!({
                    "apiVersion": api, "kind": kind, "name": owner.text("/metadata/name"), "uid": owner.uid(), "controller": controller,
                });
                let Some(meta) = meta(&mut self.0[at(*object)].value) else {
                    return;
                };
                match meta
                    .get_mut("ownerReferences")
                    .and_then(Value::as_array_mut)
                {
                    Some(references) if !alone => references.insert(0, reference),
                    _ => drop(meta.insert("ownerReferences".to_owned(), json!([reference]))),
                }
            }
            Change::Copy { object, uid } => {
                let mut copy = self.0[at(*object)].clone();
                let field = if *uid { "uid" } else { "name" };
                if let Some(meta) = meta(&mut copy.value) {
                    meta.insert(field.to_owned(), json!(format!("copy-{count}")));
                }
                self.0.push(copy);
            }
            Change::Bind { object, node } => {
                let pods = self.of("Pod").count();
                let pod = self.of_mut("Pod").nth(object % pods.max(1));
                let spec = pod.and_then(|p| p.value.get_mut("spec")?.as_object_mut());
                if let Some(spec) = spec {
                    spec.insert("nodeName".to_owned(), json!(node));
                }
            }
            Change::Delete { object } => {
                if let Some(meta) = meta(&mut self.0[at(*object)].value) {
                    let at = json!("2027-01-15T08:00:30Z");
                    meta.insert("deletionTimestamp".to_owned(), at);
                }
            }
        }
    }

    fn set(&mut self, object: usize, path: usize, value: Value) {
        let target = &mut self.0[object].value;
        let paths = paths(target);
        let path = &paths[path % paths.len()];
        let made_by_server = ["/metadata/name", "/metadata/namespace", "/metadata/uid"];
        let is_name = |text: &str| {
            (1..=63).contains(&text.len())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        };
        if made_by_server.contains(&path.as_str()) && !value.as_str().is_some_and(is_name) {
            return;
        }
        if let Some(there) = target.pointer_mut(path) {
            *there = value;
        }
    }

    /// Those that the API server could have sent, as the operator sees them. The rest goes.
    pub(super) fn cluster(&mut self, karpenter: bool) -> Cluster {
        let mut cluster = Cluster {
            nodes: self.take("Node", convert::node),
            pods: self.take("Pod", convert::pod),
            deployments: self.take("Deployment", convert::deployment),
            replica_sets: self.take("ReplicaSet", convert::replica_set),
            stateful_sets: self.take("StatefulSet", convert::stateful_set),
            daemon_sets: self.take("DaemonSet", convert::daemon_set),
            budgets: self.take("PodDisruptionBudget", convert::budget),
            attachments: self.take("VolumeAttachment", convert::attachment),
            ..Cluster::default()
        };
        let claims = self.take("NodeClaim", convert::node_claim);
        let pools = self.take("NodePool", convert::node_pool);
        cluster.karpenter = karpenter.then_some(Karpenter {
            claims,
            pools,
            ..Karpenter::default()
        });
        cluster
    }

    fn take<K: DeserializeOwned, T>(
        &mut self,
        kind: &str,
        convert: fn(&K) -> Option<T>,
    ) -> ById<T> {
        let mut found: BTreeMap<Uid, Arc<T>> = BTreeMap::new();
        self.0.retain(|object| {
            if object.kind != kind {
                return true;
            }
            let typed = serde_json::from_value::<K>(object.value.clone());
            let Some(converted) = typed.ok().as_ref().and_then(convert) else {
                return false;
            };
            // Of two with one UID the API server has only one.
            let new = !found.contains_key(&object.uid().into());
            if new {
                found.insert(object.uid().into(), Arc::new(converted));
            }
            new
        });
        Arc::new(found)
    }

    /// What a read of an owner would show.
    pub(super) fn owner(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        uid: &Uid,
        answer: Answer,
    ) -> OwnerSight {
        let unknown = Unknown {
            what: kind.to_owned(),
            why: "no answer".to_owned(),
            forbidden: answer == Answer::Unserved,
        };
        match answer {
            Answer::Missing => return OwnerSight::Missing,
            Answer::Failed => return OwnerSight::Failed(unknown),
            Answer::Unserved => return OwnerSight::Unserved(unknown),
            Answer::Honest => {}
        }
        let named = |o: &&Object| {
            o.text("/kind") == kind
                && o.text("/apiVersion") == api_version
                && o.text("/metadata/name") == name
                && o.uid() == uid.as_str()
        };
        let object = self.of("Owner").find(named);
        let typed = object.and_then(|o| serde_json::from_value(o.value.clone()).ok());
        let owner = typed.and_then(|o| convert::other_owner(api_version, kind, &o));
        owner.map_or(OwnerSight::Missing, |o| OwnerSight::Found(Box::new(o)))
    }
}

fn meta(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.as_object_mut()
}

/// All paths within a value, as JSON pointers.
fn paths(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        if !at.is_empty() {
            found.push(at.to_owned());
        }
        match value {
            Value::Object(fields) => {
                for (key, inner) in fields {
                    walk(inner, &format!("{at}/{}", key.replace('/', "~1")), found);
                }
            }
            Value::Array(items) => {
                for (index, inner) in items.iter().enumerate() {
                    walk(inner, &format!("{at}/{index}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, "", &mut found);
    found
}
