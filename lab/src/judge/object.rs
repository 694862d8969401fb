//! What the judge keeps of a Kubernetes object: plain data, read from JSON. Pure: no client, no clock.
//!
//! Only what a verdict needs is kept, so that the history of a fleet fits in memory and an update that changes
//! nothing of it (a heartbeat, a container status) is no change at all.
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::json::{condition, list, number, string_map, text};
use super::quantity::{Amounts, amounts, pod_requests};

/// The UID of an object: names pass from one object to the next, UIDs do not.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub String);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// v1 Pod
    Pod,
    /// v1 Node
    Node,
    /// karpenter.sh/v1 `NodeClaim`; the CRD may be absent
    NodeClaim,
    /// apps/v1 Deployment
    Deployment,
    /// apps/v1 `ReplicaSet`
    ReplicaSet,
    /// apps/v1 `StatefulSet`
    StatefulSet,
    /// apps/v1 `DaemonSet`
    DaemonSet,
    /// policy/v1 `PodDisruptionBudget`
    PodDisruptionBudget,
    /// storage.k8s.io/v1 `VolumeAttachment`
    VolumeAttachment,
    /// v1 `PersistentVolumeClaim`
    PersistentVolumeClaim,
    /// relocation.sh/v1alpha1 `NodeRelocation`; the CRD may be absent
    NodeRelocation,
}

impl Kind {
    /// Every kind that is watched.
    pub const ALL: [Self; 11] = [
        Self::Pod,
        Self::Node,
        Self::NodeClaim,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::PodDisruptionBudget,
        Self::VolumeAttachment,
        Self::PersistentVolumeClaim,
        Self::NodeRelocation,
    ];

    /// Group, version, kind and plural.
    fn names(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::Node => ("", "v1", "Node", "nodes"),
            Self::NodeClaim => ("karpenter.sh", "v1", "NodeClaim", "nodeclaims"),
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::ReplicaSet => ("apps", "v1", "ReplicaSet", "replicasets"),
            Self::StatefulSet => ("apps", "v1", "StatefulSet", "statefulsets"),
            Self::DaemonSet => ("apps", "v1", "DaemonSet", "daemonsets"),
            Self::PodDisruptionBudget => (
                "policy",
                "v1",
                "PodDisruptionBudget",
                "poddisruptionbudgets",
            ),
            Self::VolumeAttachment => (
                "storage.k8s.io",
                "v1",
                "VolumeAttachment",
                "volumeattachments",
            ),
            Self::PersistentVolumeClaim => {
                ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
            }
            Self::NodeRelocation => (
                "relocation.sh",
                "v1alpha1",
                "NodeRelocation",
                "noderelocations",
            ),
        }
    }

    /// The plural under which the API server serves it, and under which the audit log names it.
    #[must_use]
    pub fn resource(self) -> &'static str {
        self.names().3
    }

    /// For a dynamic `kube::Api`.
    #[must_use]
    pub fn api_resource(self) -> ApiResource {
        let (group, version, kind, plural) = self.names();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().2)
    }
}

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    /// Its kind, as the reference says.
    pub kind: String,
    /// Its name, as the reference says.
    pub name: String,
    /// Its UID: what counts.
    pub uid: Uid,
    /// Whether it is the controller.
    pub controller: bool,
}

/// A watched object, cut down to what is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// `metadata.generation`; 0 where there is none.
    pub generation: i64,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `metadata.ownerReferences`.
    pub owners: Vec<OwnerReference>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// What is particular to the kind.
    pub detail: Detail,
}

/// What is kept of each kind beside the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// A pod.
    Pod(Pod),
    /// A node.
    Node(Node),
    /// A `NodeClaim`: the name of its node, empty until it has registered, and the raw spec.
    NodeClaim {
        /// `status.nodeName`.
        node: String,
        /// The raw spec.
        spec: Value,
    },
    /// A Deployment, `ReplicaSet`, `StatefulSet` or `DaemonSet`.
    Workload(Workload),
    /// A `PodDisruptionBudget`.
    Budget(Budget),
    /// A `VolumeAttachment`: the names of its node and its volume.
    Attachment {
        /// `spec.nodeName`.
        node: String,
        /// `spec.source.persistentVolumeName`; empty for an inline volume.
        volume: String,
    },
    /// A `PersistentVolumeClaim`: the name of its volume.
    VolumeClaim {
        /// `spec.volumeName`; empty until it is bound.
        volume: String,
    },
    /// A `NodeRelocation`: raw spec and status.
    Relocation {
        /// The raw spec.
        spec: Value,
        /// The raw status.
        status: Value,
    },
}

/// What is kept of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// `spec.nodeName`; None until it is bound.
    pub node: Option<String>,
    /// Phase Succeeded or Failed.
    pub finished: bool,
    /// Running, condition Ready=True and not terminating: it serves.
    pub ready: bool,
    /// What the scheduler counts for it.
    pub requests: Amounts,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `spec.tolerations`, raw.
    pub tolerations: Value,
    /// The names of its `PersistentVolumeClaims`, those of generic ephemeral volumes included.
    pub claims: Vec<String>,
}

/// What is kept of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The raw spec, to compare before and after.
    pub spec: Value,
    /// Condition Ready=True.
    pub ready: bool,
    /// `status.allocatable`.
    pub allocatable: Amounts,
}

impl Node {
    /// `spec.unschedulable`: a cordon.
    #[must_use]
    pub fn cordoned(&self) -> bool {
        self.spec.get("unschedulable").and_then(Value::as_bool) == Some(true)
    }

    /// `spec.taints`.
    pub fn taints(&self) -> impl Iterator<Item = &Value> {
        list(&self.spec, "/taints").iter()
    }
}

/// What is kept of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// The raw spec, to compare before and after.
    pub spec: Value,
    /// `spec.replicas`; None for a `DaemonSet`.
    pub replicas: Option<u32>,
    /// Whether the controller has seen the latest spec and all pods are of it and available.
    pub rolled_out: bool,
}

/// The key that a restart writes on the pod template.
pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

impl Workload {
    /// Annotations of the pod template.
    #[must_use]
    pub fn template_annotations(&self) -> BTreeMap<String, String> {
        string_map(
            self.spec
                .pointer("/template/metadata/annotations")
                .unwrap_or(&Value::Null),
        )
    }

    /// The value of [`RESTARTED_AT`] on the pod template.
    #[must_use]
    pub fn restarted_at(&self) -> Option<String> {
        self.template_annotations().remove(RESTARTED_AT)
    }
}

/// What is kept of a `PodDisruptionBudget`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// The raw `spec.selector`; None selects nothing.
    pub selector: Option<Value>,
    /// Its `matchLabels`.
    pub match_labels: BTreeMap<String, String>,
    /// `status.desiredHealthy`; None until the disruption controller has written it.
    pub desired_healthy: Option<u32>,
}

impl Budget {
    /// Whether the selector matches these labels. No selector matches nothing, an empty one everything.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let Some(selector) = &self.selector else {
            return false;
        };
        self.match_labels
            .iter()
            .all(|(k, v)| labels.get(k) == Some(v))
            && list(selector, "/matchExpressions").iter().all(|e| {
                let have = labels.get(text(e, "/key"));
                let among =
                    have.is_some_and(|h| list(e, "/values").iter().any(|v| v.as_str() == Some(h)));
                match text(e, "/operator") {
                    "In" => among,
                    "NotIn" => !among,
                    "Exists" => have.is_some(),
                    "DoesNotExist" => have.is_none(),
                    _ => false,
                }
            })
    }
}

impl Object {
    /// Reads an object as a watch or a list gives it. Missing fields are empty; nothing here fails.
    #[must_use]
    pub fn read(kind: Kind, raw: DynamicObject) -> Self {
        let ObjectMeta {
            name,
            namespace,
            uid,
            generation,
            labels,
            annotations,
            finalizers,
            owner_references,
            deletion_timestamp,
            ..
        } = raw.metadata;
        let terminating = deletion_timestamp.is_some();
        let name = name.unwrap_or_default();
        let generation = generation.unwrap_or_default();
        Self {
            kind,
            namespace: namespace.unwrap_or_default(),
            uid: Uid(uid.unwrap_or_default()),
            generation,
            labels: labels.unwrap_or_default(),
            annotations: annotations.unwrap_or_default(),
            finalizers: finalizers.unwrap_or_default(),
            owners: owner_references
                .unwrap_or_default()
                .into_iter()
                .map(|o| OwnerReference {
                    kind: o.kind,
                    name: o.name,
                    uid: Uid(o.uid),
                    controller: o.controller == Some(true),
                })
                .collect(),
            terminating,
            detail: Detail::read(kind, &name, &raw.data, terminating, generation),
            name,
        }
    }

    /// The owner that has `controller: true`.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owners.iter().find(|o| o.controller)
    }

    /// The pod, if it is one.
    #[must_use]
    pub fn pod(&self) -> Option<&Pod> {
        match &self.detail {
            Detail::Pod(p) => Some(p),
            _ => None,
        }
    }

    /// The node, if it is one.
    #[must_use]
    pub fn node(&self) -> Option<&Node> {
        match &self.detail {
            Detail::Node(n) => Some(n),
            _ => None,
        }
    }

    /// The workload, if it is one.
    #[must_use]
    pub fn workload(&self) -> Option<&Workload> {
        match &self.detail {
            Detail::Workload(w) => Some(w),
            _ => None,
        }
    }

    /// The budget, if it is one.
    #[must_use]
    pub fn budget(&self) -> Option<&Budget> {
        match &self.detail {
            Detail::Budget(b) => Some(b),
            _ => None,
        }
    }

    /// A pod that serves.
    #[must_use]
    pub fn is_ready_pod(&self) -> bool {
        self.pod().is_some_and(|p| p.ready)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

impl Detail {
    fn read(kind: Kind, name: &str, data: &Value, terminating: bool, generation: i64) -> Self {
        let spec = data.get("spec").cloned().unwrap_or(Value::Null);
        let status = data.get("status").unwrap_or(&Value::Null);
        match kind {
            Kind::Pod => {
                let phase = text(status, "/phase");
                Self::Pod(Pod {
                    node: Some(text(&spec, "/nodeName").to_owned()).filter(|n| !n.is_empty()),
                    finished: matches!(phase, "Succeeded" | "Failed"),
                    ready: !terminating && phase == "Running" && condition(status, "Ready"),
                    requests: pod_requests(&spec),
                    node_selector: string_map(spec.get("nodeSelector").unwrap_or(&Value::Null)),
                    tolerations: spec.get("tolerations").cloned().unwrap_or(Value::Null),
                    claims: claims(&spec, name),
                })
            }
            Kind::Node => Self::Node(Node {
                ready: condition(status, "Ready"),
                allocatable: amounts(status.get("allocatable").unwrap_or(&Value::Null)),
                spec,
            }),
            Kind::NodeClaim => Self::NodeClaim {
                node: text(status, "/nodeName").to_owned(),
                spec,
            },
            Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::DaemonSet => {
                let replicas = number(&spec, "/replicas");
                Self::Workload(Workload {
                    rolled_out: rolled_out(kind, replicas, status, generation),
                    spec,
                    replicas,
                })
            }
            Kind::PodDisruptionBudget => Self::Budget(Budget {
                match_labels: string_map(
                    spec.pointer("/selector/matchLabels")
                        .unwrap_or(&Value::Null),
                ),
                selector: spec.get("selector").filter(|s| s.is_object()).cloned(),
                desired_healthy: number(status, "/desiredHealthy"),
            }),
            Kind::VolumeAttachment => Self::Attachment {
                node: text(&spec, "/nodeName").to_owned(),
                volume: text(&spec, "/source/persistentVolumeName").to_owned(),
            },
            Kind::PersistentVolumeClaim => Self::VolumeClaim {
                volume: text(&spec, "/volumeName").to_owned(),
            },
            Kind::NodeRelocation => Self::Relocation {
                spec,
                status: status.clone(),
            },
        }
    }
}

/// The claims that a pod mounts. That of a generic ephemeral volume is called after the pod and the volume.
fn claims(spec: &Value, pod: &str) -> Vec<String> {
    let claim = |volume: &Value| match text(volume, "/persistentVolumeClaim/claimName") {
        "" => volume
            .get("ephemeral")
            .map(|_| format!("{pod}-{}", text(volume, "/name"))),
        name => Some(name.to_owned()),
    };
    list(spec, "/volumes").iter().filter_map(claim).collect()
}

/// As `kubectl rollout status` decides it.
fn rolled_out(kind: Kind, replicas: Option<u32>, status: &Value, generation: i64) -> bool {
    let seen = status
        .get("observedGeneration")
        .and_then(Value::as_i64)
        .unwrap_or_default()
        >= generation;
    let count = |key: &str| number(status, key).unwrap_or_default();
    let wanted = replicas.unwrap_or_default();
    seen && match kind {
        Kind::Deployment => {
            count("/updatedReplicas") == wanted
                && count("/replicas") == wanted
                && count("/availableReplicas") == wanted
        }
        Kind::StatefulSet => {
            count("/readyReplicas") == wanted
                && (text(status, "/currentRevision") == text(status, "/updateRevision")
                    || count("/updatedReplicas") == wanted)
        }
        Kind::ReplicaSet => count("/readyReplicas") == wanted,
        _ => true,
    }
}
