//! The objects of a cluster at one moment, to prove that nothing else has changed. It only reads.
use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::Value;

use super::object::Kind;

/// What a snapshot holds. A `NodeClaim` is left out where the CRD is absent.
const KINDS: [Kind; 6] = [
    Kind::Node,
    Kind::NodeClaim,
    Kind::Pod,
    Kind::Deployment,
    Kind::StatefulSet,
    Kind::PodDisruptionBudget,
];

/// A list that failed.
#[derive(Debug, thiserror::Error)]
#[error("listing {} for a snapshot", .kind.resource())]
pub struct SnapshotError {
    kind: Kind,
    source: kube::Error,
}

/// What people and programs set on the objects of a cluster: labels, annotations, finalizers and spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterState {
    /// By kind, namespace and name, which is how people know them.
    objects: BTreeMap<(Kind, String, String), Snap>,
}

#[derive(Clone, Debug, PartialEq)]
struct Snap {
    uid: String,
    /// Path to value, flat.
    fields: BTreeMap<String, String>,
}

/// Takes a snapshot.
pub async fn snapshot(client: &Client) -> Result<ClusterState, SnapshotError> {
    let lists = try_join_all(KINDS.into_iter().map(|kind| {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.api_resource());
        async move {
            match api.list(&ListParams::default()).await {
                Ok(list) => Ok((kind, list.items)),
                Err(kube::Error::Api(s)) if s.code == 404 => Ok((kind, Vec::new())),
                Err(source) => Err(SnapshotError { kind, source }),
            }
        }
    }))
    .await?;
    let objects = lists
        .into_iter()
        .flat_map(|(kind, items)| items.into_iter().map(move |o| (kind, o)));
    Ok(ClusterState::of(objects))
}

impl ClusterState {
    /// From objects that were read already.
    pub fn of(objects: impl IntoIterator<Item = (Kind, DynamicObject)>) -> Self {
        let objects = objects
            .into_iter()
            .map(|(kind, o)| {
                let key = (
                    kind,
                    o.metadata.namespace.clone().unwrap_or_default(),
                    o.metadata.name.clone().unwrap_or_default(),
                );
                (key, Snap::of(&o))
            })
            .collect();
        Self { objects }
    }

    /// What differs in a later snapshot, each naming object and field: `Node old-a: spec.unschedulable was (absent), is true`.
    /// Left out is what the API server and the controllers own: resourceVersion, managedFields, generation, status, the
    /// revision of a Deployment, the ttl of a node, taints for its conditions; and the difference between empty and absent.
    #[must_use]
    pub fn differences(&self, later: &Self) -> Vec<String> {
        let mut out = Vec::new();
        let keys: BTreeSet<_> = self.objects.keys().chain(later.objects.keys()).collect();
        for key in keys {
            let (kind, namespace, name) = key;
            let object = if namespace.is_empty() {
                format!("{kind} {name}")
            } else {
                format!("{kind} {namespace}/{name}")
            };
            match (self.objects.get(key), later.objects.get(key)) {
                (Some(_), None) => out.push(format!("{object}: gone")),
                (None, Some(_)) => out.push(format!("{object}: new")),
                (Some(a), Some(b)) if a.uid != b.uid => {
                    out.push(format!("{object}: another object of that name"));
                }
                (Some(a), Some(b)) => out.extend(
                    a.differences(b)
                        .into_iter()
                        .map(|field| format!("{object}: {field}")),
                ),
                (None, None) => {}
            }
        }
        out
    }
}

/// Annotations that controllers write.
const CONTROLLERS_ANNOTATIONS: [&str; 3] = [
    "deployment.kubernetes.io/revision",
    // By the number of nodes in the cluster.
    "node.alpha.kubernetes.io/ttl",
    "volumes.kubernetes.io/controller-managed-attach-detach",
];
/// Labels that the node lifecycle controller copies, when it comes to it, from the ones that the kubelet sets.
const CONTROLLERS_LABELS: [&str; 2] = ["beta.kubernetes.io/arch", "beta.kubernetes.io/os"];
/// Taints that the node lifecycle controller sets by condition, and for `spec.unschedulable`, which is compared itself.
const CONDITION_TAINTS: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unschedulable",
];

impl Snap {
    fn of(object: &DynamicObject) -> Self {
        let mut fields = BTreeMap::new();
        let meta = &object.metadata;
        for (sort, map) in [("labels", &meta.labels), ("annotations", &meta.annotations)] {
            for (k, v) in map.iter().flatten() {
                let k = k.as_str();
                if !CONTROLLERS_ANNOTATIONS.contains(&k) && !CONTROLLERS_LABELS.contains(&k) {
                    fields.insert(format!("metadata.{sort}[{k}]"), format!("{v:?}"));
                }
            }
        }
        for finalizer in meta.finalizers.iter().flatten() {
            fields.insert(
                format!("metadata.finalizers[{finalizer}]"),
                "set".to_owned(),
            );
        }
        if meta.deletion_timestamp.is_some() {
            fields.insert("metadata.deletionTimestamp".to_owned(), "set".to_owned());
        }
        if let Some(spec) = object.data.get("spec") {
            flatten("spec", spec, &mut fields);
        }
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            fields,
        }
    }

    fn differences(&self, later: &Self) -> Vec<String> {
        let absent = "(absent)".to_owned();
        let keys: BTreeSet<_> = self.fields.keys().chain(later.fields.keys()).collect();
        keys.into_iter()
            .filter_map(|key| {
                let was = self.fields.get(key).unwrap_or(&absent);
                let is = later.fields.get(key).unwrap_or(&absent);
                (was != is).then(|| format!("{key} was {was}, is {is}"))
            })
            .collect()
    }
}

fn flatten(path: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (k, v) in map {
                // A key with dots in it (an annotation of a template) is set in brackets, to be read as one.
                let next = if k.contains(['.', '/']) {
                    format!("{path}[{k}]")
                } else {
                    format!("{path}.{k}")
                };
                flatten(&next, v, out);
            }
        }
        Value::Array(items) if path == "spec.taints" => {
            // A set: the order says nothing, and a taint that moved up is not another one.
            for taint in items {
                let part = |key: &str| taint.get(key).and_then(Value::as_str).unwrap_or_default();
                if !CONDITION_TAINTS.contains(&part("key")) {
                    out.insert(
                        format!("{path}[{}:{}]", part("key"), part("effect")),
                        format!("{:?}", part("value")),
                    );
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                flatten(&format!("{path}[{i}]"), item, out);
            }
        }
        Value::Null => {}
        // `unschedulable: false` is how an uncordon by some tools leaves it, absent how others do.
        Value::Bool(false) if path == "spec.unschedulable" => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.insert(path.to_owned(), value.to_string());
        }
    }
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
