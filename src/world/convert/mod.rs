//! Kubernetes objects as world types. Pure and total: what an object lacks becomes the value that forbids acting on it, or the
//! object is left out when it has no identity.

mod admission;
mod karpenter;
mod managed;
mod other;
mod storage;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Selector;

use super::{
    Budget, ClaimValue, DaemonSet, Deployment, Detached, GuardMark, Marks, Node, NodeName,
    OwnerReference, PlaceholderLabel, Pod, PodRef, ReplicaSet, RolloutStrategy, SetUpdate, Shape,
    StatefulSet, SurgeMark, Uid, WorkloadKind, WorkloadRef, quantity,
};
use crate::api::guards::Guard;
use crate::api::keys;
pub use admission::{mutating_webhooks, service, validating_webhooks};
pub use karpenter::{machine, node_claim, node_claim_v1beta1, node_pool, provisioner};
pub use other::other_owner;
pub use storage::{attachment, csi_node, storage_class, volume, volume_claim};

/// An object that has an identity: everything read from an API server has.
fn identity(meta: &ObjectMeta) -> Option<(String, Uid)> {
    Some((meta.name.clone()?, meta.uid.clone()?.into()))
}

fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|t| t.0)
}

fn count(n: Option<i32>) -> u32 {
    n.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
}

/// `replicas` is defaulted to 1 by the API server.
fn replicas(n: Option<i32>) -> u32 {
    n.map_or(1, |n| u32::try_from(n).unwrap_or(0))
}

fn annotation(meta: &ObjectMeta, key: &str) -> Option<String> {
    meta.annotations.as_ref()?.get(key).cloned()
}

fn marks(meta: &ObjectMeta) -> Marks {
    let claim = |key| annotation(meta, key).map(|text| ClaimValue::parse(&text));
    Marks {
        claimed_by: claim(keys::CLAIMED_BY),
        cordoned_by: claim(keys::CORDONED_BY),
        costed_by: claim(keys::COSTED_BY),
        deletion_cost: annotation(meta, keys::DELETION_COST),
        guards: Guard::ALL
            .into_iter()
            .map(|guard| {
                let mark = GuardMark {
                    value: annotation(meta, guard.key()),
                    by: claim(guard.mark()),
                };
                (guard, mark)
            })
            .filter(|(_, mark)| *mark != GuardMark::default())
            .collect(),
    }
}

fn controller(meta: &ObjectMeta) -> Option<OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|o| o.controller == Some(true))
        .map(|o| OwnerReference {
            api_version: o.api_version.clone(),
            kind: o.kind.clone(),
            name: o.name.clone(),
            uid: o.uid.as_str().into(),
        })
}

fn workload(kind: WorkloadKind, meta: &ObjectMeta) -> Option<WorkloadRef> {
    let (name, uid) = identity(meta)?;
    Some(WorkloadRef {
        kind,
        namespace: meta.namespace.clone()?,
        name,
        uid,
    })
}

fn observed(meta: &ObjectMeta, observed: Option<i64>) -> bool {
    observed.is_some() && observed >= meta.generation
}

/// A node.
#[must_use]
pub fn node(object: &core::Node) -> Option<Node> {
    let (name, uid) = identity(&object.metadata)?;
    let conditions = object.status.as_ref().and_then(|s| s.conditions.as_ref());
    Some(Node {
        name: name.into(),
        uid,
        resource_version: object.metadata.resource_version.clone()?,
        labels: object.metadata.labels.clone().unwrap_or_default(),
        taints: object
            .spec
            .as_ref()
            .and_then(|s| s.taints.clone())
            .unwrap_or_default(),
        unschedulable: object
            .spec
            .as_ref()
            .and_then(|s| s.unschedulable)
            .unwrap_or(false),
        ready: conditions.is_some_and(|list| {
            list.iter()
                .any(|c| c.type_ == "Ready" && c.status == "True")
        }),
        created: time(object.metadata.creation_timestamp.as_ref()),
        deleting: object.metadata.deletion_timestamp.is_some(),
        marks: marks(&object.metadata),
    })
}

/// Value of the `PriorityClass` `system-node-critical`, which every cluster has.
const NODE_CRITICAL: i32 = 2_000_001_000;

/// A pod.
#[must_use]
pub fn pod(object: &core::Pod) -> Option<Pod> {
    let meta = &object.metadata;
    let (name, uid) = identity(meta)?;
    let spec = object.spec.as_ref()?;
    let status = object.status.as_ref();
    let condition = |kind: &str| {
        status
            .and_then(|s| s.conditions.as_ref())
            .and_then(|list| list.iter().find(|c| c.type_ == kind))
    };
    let terminating = meta.deletion_timestamp.is_some();
    let ready = condition("Ready").filter(|c| c.status == "True");
    let claims = storage::mounted(&name, spec);
    let owned_by_its_node = meta.owner_references.iter().flatten().any(|o| {
        o.api_version == "v1" && o.kind == "Node" && Some(&o.name) == spec.node_name.as_ref()
    });
    Some(Pod {
        reference: PodRef {
            namespace: meta.namespace.clone()?,
            name,
            uid,
        },
        resource_version: meta.resource_version.clone()?,
        labels: meta.labels.clone().unwrap_or_default(),
        node: spec
            .node_name
            .as_deref()
            .filter(|n| !n.is_empty())
            .map(NodeName::from),
        finished: status
            .and_then(|s| s.phase.as_deref())
            .is_some_and(|p| matches!(p, "Succeeded" | "Failed")),
        pending: status
            .and_then(|s| s.phase.as_deref())
            .is_none_or(|p| p == "Pending"),
        ready: ready.is_some() && !terminating,
        ready_since: ready.and_then(|c| time(c.last_transition_time.as_ref())),
        terminating,
        stops_by: time(meta.deletion_timestamp.as_ref()),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
        created: time(meta.creation_timestamp.as_ref()),
        controller: controller(meta),
        mirror: owned_by_its_node && annotation(meta, "kubernetes.io/config.mirror").is_some(),
        claims,
        empty_dirs: spec
            .volumes
            .iter()
            .flatten()
            .filter(|v| v.empty_dir.is_some())
            .map(|v| v.name.clone())
            .collect(),
        marks: marks(meta),
        unschedulable: condition("PodScheduled")
            .filter(|c| c.status == "False" && c.reason.as_deref() == Some("Unschedulable"))
            .map(|c| c.message.clone().unwrap_or_default()),
        placeholder: placeholder(meta),
        node_critical: spec.priority_class_name.as_deref() == Some("system-node-critical")
            || spec.priority.is_some_and(|p| p >= NODE_CRITICAL),
        shape: shape(spec),
    })
}

/// A node of which only the metadata was read: it says nothing of a cordon.
#[must_use]
pub fn node_metadata(meta: ObjectMeta) -> Option<Node> {
    node(&core::Node {
        metadata: meta,
        ..core::Node::default()
    })
}

/// A pod of which only the metadata was read: on no node, not Ready, without requests.
#[must_use]
pub fn pod_metadata(meta: ObjectMeta) -> Option<Pod> {
    pod(&core::Pod {
        metadata: meta,
        spec: Some(core::PodSpec::default()),
        ..core::Pod::default()
    })
}

/// A placeholder without a relocation as its owner, unless it is on its way out.
#[must_use]
pub fn detached(meta: &ObjectMeta) -> Option<Detached> {
    let (name, uid) = identity(meta)?;
    let namespace = placeholder_namespace(meta)?;
    let relocation = meta.labels.as_ref()?.get(keys::RELOCATION_LABEL)?.clone();
    if relocation_owner(meta).is_some() || meta.deletion_timestamp.is_some() {
        return None;
    }
    let pod = PodRef {
        namespace: namespace.to_owned(),
        name,
        uid,
    };
    Some(Detached { pod, relocation })
}

fn placeholder_namespace(meta: &ObjectMeta) -> Option<&str> {
    let namespace = meta.namespace.as_deref();
    namespace.filter(|n| *n == keys::PLACEHOLDER_NAMESPACE)
}

fn relocation_owner(meta: &ObjectMeta) -> Option<&meta::OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|o| o.kind == keys::KIND && o.api_version.starts_with(keys::GROUP))
}

fn placeholder(meta: &ObjectMeta) -> Option<PlaceholderLabel> {
    placeholder_namespace(meta)?;
    let label = |key: &str| {
        meta.labels
            .as_ref()
            .and_then(|l| l.get(key))
            .map(|v| Uid::from(v.as_str()))
    };
    let owner = relocation_owner(meta)?;
    Some(PlaceholderLabel {
        relocation: owner.uid.as_str().into(),
        pod: label(keys::POD_UID_LABEL)?,
        workload: label(keys::WORKLOAD_UID_LABEL)?,
    })
}

fn shape(spec: &core::PodSpec) -> Shape {
    Shape {
        requests: quantity::pod_requests(spec),
        node_selector: spec.node_selector.clone().unwrap_or_default(),
        required_affinity: spec
            .affinity
            .as_ref()
            .and_then(|a| a.node_affinity.as_ref())
            .and_then(|a| {
                a.required_during_scheduling_ignored_during_execution
                    .clone()
            }),
        tolerations: spec.tolerations.clone().unwrap_or_default(),
        scheduler_name: spec.scheduler_name.clone(),
        repels: spec
            .affinity
            .as_ref()
            .and_then(|a| a.pod_anti_affinity.as_ref())
            .and_then(|a| {
                a.required_during_scheduling_ignored_during_execution
                    .clone()
            })
            .unwrap_or_default(),
        attracts: spec
            .affinity
            .as_ref()
            .and_then(|a| a.pod_affinity.as_ref())
            .and_then(|a| {
                a.required_during_scheduling_ignored_during_execution
                    .clone()
            })
            .unwrap_or_default(),
        spread: spec
            .topology_spread_constraints
            .iter()
            .flatten()
            .filter(|c| c.when_unsatisfiable == "DoNotSchedule")
            .cloned()
            .collect(),
        host_ports: spec.containers.iter().any(|c| {
            let ports = c.ports.iter().flatten();
            ports
                .into_iter()
                .any(|p| p.host_port.is_some_and(|port| port > 0))
        }),
        devices: spec
            .resource_claims
            .iter()
            .flatten()
            .map(|claim| claim.name.clone())
            .collect(),
    }
}

/// A percentage or number of `replicas`, as `intstr.GetScaledValueFromIntOrPercent` resolves it.
fn scaled(value: Option<&IntOrString>, replicas: u32, round_up: bool) -> u32 {
    match value {
        // Both are defaulted to 25% by the API server.
        None => scaled(Some(&IntOrString::String("25%".into())), replicas, round_up),
        Some(IntOrString::Int(n)) => u32::try_from(*n).unwrap_or(0),
        Some(IntOrString::String(text)) => {
            let percent: u64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent.saturating_mul(u64::from(replicas));
            let scaled = if round_up {
                product.div_ceil(100)
            } else {
                product / 100
            };
            u32::try_from(scaled).unwrap_or(u32::MAX)
        }
    }
}

fn rollout_strategy(strategy: Option<&apps::DeploymentStrategy>, replicas: u32) -> RolloutStrategy {
    if strategy.and_then(|s| s.type_.as_deref()) == Some("Recreate") {
        return RolloutStrategy::Recreate;
    }
    let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
    let max_surge = scaled(rolling.and_then(|r| r.max_surge.as_ref()), replicas, true);
    let max_unavailable = scaled(
        rolling.and_then(|r| r.max_unavailable.as_ref()),
        replicas,
        false,
    );
    RolloutStrategy::RollingUpdate {
        max_surge,
        // The Deployment controller lets one be missing when both round to nothing, or it could never move.
        max_unavailable: if max_surge == 0 {
            max_unavailable.max(1)
        } else {
            max_unavailable
        },
    }
}

fn set_update(strategy: Option<&apps::StatefulSetUpdateStrategy>, replicas: u32) -> SetUpdate {
    if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete") {
        return SetUpdate::OnDelete;
    }
    let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
    let max_unavailable = rolling
        .and_then(|r| r.max_unavailable.as_ref())
        .map_or(1, |value| scaled(Some(value), replicas, false));
    SetUpdate::RollingUpdate {
        partition: count(rolling.and_then(|r| r.partition)),
        // The StatefulSet controller lets one be missing at least (stateful_set_utils.getStatefulSetMaxUnavailable).
        max_unavailable: max_unavailable.max(1),
    }
}

fn restarted_at(template: Option<&core::PodTemplateSpec>) -> Option<String> {
    annotation(template?.metadata.as_ref()?, keys::RESTARTED_AT)
}

fn pod_labels(template: Option<&core::PodTemplateSpec>) -> BTreeMap<String, String> {
    template
        .and_then(|t| t.metadata.as_ref())
        .and_then(|m| m.labels.clone())
        .unwrap_or_default()
}

/// A Deployment.
#[must_use]
pub fn deployment(object: &apps::Deployment) -> Option<Deployment> {
    let spec = object.spec.as_ref()?;
    let status = object.status.clone().unwrap_or_default();
    let replicas = replicas(spec.replicas);
    Some(Deployment {
        reference: workload(WorkloadKind::Deployment, &object.metadata)?,
        pod_labels: pod_labels(Some(&spec.template)),
        resource_version: object.metadata.resource_version.clone()?,
        generation: object.metadata.generation.unwrap_or_default(),
        replicas,
        updated: count(status.updated_replicas),
        available: count(status.available_replicas),
        existing: count(status.replicas),
        observed: observed(&object.metadata, status.observed_generation),
        paused: spec.paused.unwrap_or(false),
        strategy: rollout_strategy(spec.strategy.as_ref(), replicas),
        restarted_at: restarted_at(Some(&spec.template)),
        deadline_exceeded: status.conditions.iter().flatten().any(|c| {
            c.type_ == "Progressing"
                && c.status == "False"
                && c.reason.as_deref() == Some("ProgressDeadlineExceeded")
        }),
        controller: controller(&object.metadata),
        surge: object
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| SurgeMark::parse(labels.get(keys::SURGE_LABEL)?)),
        failure: status
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == "ReplicaFailure" && c.status == "True")
            .map(|c| c.message.clone().unwrap_or_default()),
        managed: managed::managed(&object.metadata),
    })
}

/// A `ReplicaSet`.
#[must_use]
pub fn replica_set(object: &apps::ReplicaSet) -> Option<ReplicaSet> {
    let spec = object.spec.as_ref()?;
    let status = object.status.clone().unwrap_or_default();
    Some(ReplicaSet {
        reference: workload(WorkloadKind::ReplicaSet, &object.metadata)?,
        pod_labels: pod_labels(spec.template.as_ref()),
        replicas: replicas(spec.replicas),
        existing: u32::try_from(status.replicas).unwrap_or(0),
        available: count(status.available_replicas),
        observed: observed(&object.metadata, status.observed_generation),
        controller: controller(&object.metadata),
        restarted_at: restarted_at(spec.template.as_ref()),
    })
}

/// A `StatefulSet`.
#[must_use]
pub fn stateful_set(object: &apps::StatefulSet) -> Option<StatefulSet> {
    let spec = object.spec.as_ref()?;
    let status = object.status.clone().unwrap_or_default();
    let replicas = replicas(spec.replicas);
    let update = set_update(spec.update_strategy.as_ref(), replicas);
    // As `kubectl rollout status` tells.
    let rolled_out = match update {
        SetUpdate::OnDelete => true,
        SetUpdate::RollingUpdate { partition, .. } => {
            let updated = count(status.updated_replicas);
            status.current_revision == status.update_revision
                || partition > 0 && updated >= replicas.saturating_sub(partition)
        }
    };
    Some(StatefulSet {
        reference: workload(WorkloadKind::StatefulSet, &object.metadata)?,
        pod_labels: pod_labels(Some(&spec.template)),
        resource_version: object.metadata.resource_version.clone()?,
        generation: object.metadata.generation.unwrap_or_default(),
        replicas,
        available: count(status.available_replicas),
        observed: observed(&object.metadata, status.observed_generation),
        rolled_out,
        update,
        parallel: spec.pod_management_policy.as_deref() == Some("Parallel"),
        restarted_at: restarted_at(Some(&spec.template)),
        controller: controller(&object.metadata),
    })
}

/// A `DaemonSet`.
#[must_use]
pub fn daemon_set(object: &apps::DaemonSet) -> Option<DaemonSet> {
    let (name, uid) = identity(&object.metadata)?;
    Some(DaemonSet {
        namespace: object.metadata.namespace.clone()?,
        name,
        uid,
    })
}

/// A `PodDisruptionBudget`. One whose selector cannot be read is taken to cover all pods of its namespace.
#[must_use]
pub fn budget(object: &PodDisruptionBudget) -> Option<Budget> {
    let (name, uid) = identity(&object.metadata)?;
    let status = object.status.clone().unwrap_or_default();
    let selector = object.spec.as_ref().and_then(|s| s.selector.clone());
    let selector = selector.map(|selector| Selector::try_from(selector).unwrap_or_default());
    Some(Budget {
        namespace: object.metadata.namespace.clone()?,
        name,
        uid,
        selector,
        disruptions_allowed: status.disruptions_allowed,
        current_healthy: status.current_healthy,
        desired_healthy: status.desired_healthy,
        expected_pods: status.expected_pods,
        always_allows_unhealthy: object
            .spec
            .as_ref()
            .and_then(|s| s.unhealthy_pod_eviction_policy.as_deref())
            == Some("AlwaysAllow"),
        observed: observed(&object.metadata, status.observed_generation),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn percentages_round_as_the_deployment_controller_rounds() {
        let strategy = |replicas, json| {
            let deployment: apps::Deployment = serde_json::from_value(json!({
                "metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "1"},
                "spec": {"replicas": replicas, "selector": {}, "template": {}, "strategy": json},
            }))
            .unwrap();
            super::deployment(&deployment).unwrap().strategy
        };
        let rolling = |max_surge, max_unavailable| RolloutStrategy::RollingUpdate {
            max_surge,
            max_unavailable,
        };
        // The default, 25% each: surge rounds up, unavailable rounds down.
        assert_eq!(strategy(6, json!({"type": "RollingUpdate"})), rolling(2, 1));
        assert_eq!(strategy(1, json!({"type": "RollingUpdate"})), rolling(1, 0));
        // Neither may move: the controller then lets one be missing (deployment/util.ResolveFenceposts).
        let fenced = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}});
        assert_eq!(strategy(3, fenced), rolling(0, 1));
        assert_eq!(
            strategy(3, json!({"type": "Recreate"})),
            RolloutStrategy::Recreate
        );
    }

    #[test]
    fn a_stateful_set_says_how_it_rolls_and_whether_it_does() {
        let set = |spec: Value, status: Value| {
            let mut object = json!({
                "metadata": {"name": "db", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1},
                "spec": {"replicas": 5, "serviceName": "db", "selector": {}, "template": {}, "updateStrategy": spec},
                "status": {"replicas": 5, "currentRevision": "a", "updateRevision": "b"},
            });
            let fields = object["status"].as_object_mut().unwrap();
            fields.extend(status.as_object().unwrap().clone());
            super::stateful_set(&serde_json::from_value(object).unwrap()).unwrap()
        };
        let rolling = |partition, max_unavailable| SetUpdate::RollingUpdate {
            partition,
            max_unavailable,
        };
        let plain = set(json!({"type": "RollingUpdate"}), json!({}));
        assert_eq!((plain.update, plain.rolled_out), (rolling(0, 1), false));
        // 50% of 5, rounded down; 10% of 5 would be none, and one is the least.
        let half = json!({"rollingUpdate": {"maxUnavailable": "50%"}});
        assert_eq!(set(half, json!({})).update, rolling(0, 2));
        let tenth = json!({"rollingUpdate": {"maxUnavailable": "10%"}});
        assert_eq!(set(tenth, json!({})).update, rolling(0, 1));
        // Two of five are to be updated: then it rests, though its revisions differ.
        let canary = json!({"rollingUpdate": {"partition": 3}});
        assert!(!set(canary.clone(), json!({"updatedReplicas": 1})).rolled_out);
        assert!(set(canary, json!({"updatedReplicas": 2})).rolled_out);
        let by_hand = set(json!({"type": "OnDelete"}), json!({}));
        assert_eq!(
            (by_hand.update, by_hand.rolled_out),
            (SetUpdate::OnDelete, true)
        );
    }

    /// As `kubectl delete --cascade=orphan` leaves it: without its owner, and so without the relocation's UID.
    #[test]
    fn a_placeholder_that_has_lost_its_owner_is_known_by_namespace_and_label() {
        let owner = json!([{"apiVersion": "relocation.sh/v1alpha1", "kind": "NodeRelocation", "name": "move", "uid": "r"}]);
        let labels = json!({"relocation.sh/relocation": "move"});
        let detached = |namespace, labels: &Value, owners: &Value| {
            let meta = json!({"name": "p", "namespace": namespace, "uid": "u", "labels": labels, "ownerReferences": owners});
            super::detached(&serde_json::from_value(meta).unwrap()).map(|d| d.relocation)
        };
        let (ours, none) = (keys::PLACEHOLDER_NAMESPACE, json!([]));
        assert_eq!(detached(ours, &labels, &none).as_deref(), Some("move"));
        assert_eq!(detached(ours, &labels, &owner), None, "it has its owner");
        assert_eq!(detached(ours, &json!({}), &none), None, "no label of ours");
        assert_eq!(detached("default", &labels, &none), None);
    }

    #[test]
    fn a_forged_mirror_annotation_is_not_believed() {
        let pod = |owner: Option<&str>, node: &str| {
            let owners: Vec<_> = owner
                .iter()
                .map(|k| json!({"apiVersion": "v1", "kind": k, "name": "n", "uid": "o"}))
                .collect();
            let object: core::Pod = serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "d", "uid": "u", "resourceVersion": "1", "ownerReferences": owners,
                             "annotations": {"kubernetes.io/config.mirror": "abc"}},
                "spec": {"containers": [], "nodeName": node},
            }))
            .unwrap();
            super::pod(&object).unwrap().mirror
        };
        assert!(pod(Some("Node"), "n"));
        assert!(!pod(Some("Node"), "another"), "not the one that it is on");
        assert!(!pod(None, "n"));
        assert!(!pod(Some("ReplicaSet"), "n"));
    }
}
