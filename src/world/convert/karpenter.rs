//! Karpenter's objects as world types. Pure and total.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{identity, time};
use crate::world::quantity::{self, Quantities};
use crate::world::{Generation, NodeClaim, NodeName, NodePool};

/// A `NodeClaim` of `karpenter.sh/v1`.
#[must_use]
pub fn node_claim(object: &DynamicObject) -> Option<NodeClaim> {
    claim(object, Generation::V1)
}

/// A `NodeClaim` of `karpenter.sh/v1beta1`.
#[must_use]
pub fn node_claim_v1beta1(object: &DynamicObject) -> Option<NodeClaim> {
    claim(object, Generation::V1Beta1)
}

/// A Machine of `karpenter.sh/v1alpha5`: its conditions have longer names.
#[must_use]
pub fn machine(object: &DynamicObject) -> Option<NodeClaim> {
    claim(object, Generation::V1Alpha5)
}

fn claim(object: &DynamicObject, generation: Generation) -> Option<NodeClaim> {
    let (name, uid) = identity(&object.metadata)?;
    let conditions = object
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let condition = |kind: &str, status: &str| {
        conditions.and_then(|list| {
            list.iter().find(|c| {
                let name = c.get("type").and_then(Value::as_str).unwrap_or_default();
                name.strip_prefix("Machine").unwrap_or(name) == kind
                    && c.get("status").and_then(Value::as_str) == Some(status)
            })
        })
    };
    let text = |c: &Value, field: &str| {
        c.get(field)
            .and_then(Value::as_str)
            .filter(|t| !t.is_empty())
            .map(str::to_owned)
    };
    Some(NodeClaim {
        name,
        uid,
        generation,
        node: object
            .data
            .pointer("/status/nodeName")
            .and_then(Value::as_str)
            .filter(|n| !n.is_empty())
            .map(NodeName::from),
        drifted: condition("Drifted", "True").is_some(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        // Before v1 a NodePool or a Provisioner says it, and do-not-disrupt keeps the node from it.
        expires: object
            .data
            .pointer("/spec/expireAfter")
            .and_then(Value::as_str)
            .and_then(|text| text.parse::<SignedDuration>().ok())
            .and_then(|after| {
                time(object.metadata.creation_timestamp.as_ref())?
                    .checked_add(after)
                    .ok()
            }),
        message: condition("Launched", "False")
            .or_else(|| condition("Launched", "Unknown"))
            .and_then(|c| text(c, "message")),
    })
}

/// A Provisioner of `karpenter.sh/v1alpha5`, which has no template around what its nodes are like.
#[must_use]
pub fn provisioner(object: &DynamicObject) -> Option<NodePool> {
    let (name, uid) = identity(&object.metadata)?;
    let at = |path: &str| object.data.pointer(path);
    Some(NodePool {
        name,
        uid,
        deleting: object.metadata.deletion_timestamp.is_some(),
        labels: read(at("/spec/labels")),
        requirements: read(at("/spec/requirements")),
        taints: read(at("/spec/taints")),
        limits: quantities(at("/spec/limits/resources")),
        used: quantities(at("/status/resources")),
    })
}

/// A `NodePool`, which is the same in `karpenter.sh/v1` and `v1beta1` as far as we read it.
#[must_use]
pub fn node_pool(object: &DynamicObject) -> Option<NodePool> {
    let (name, uid) = identity(&object.metadata)?;
    let at = |path: &str| object.data.pointer(path);
    Some(NodePool {
        name,
        uid,
        deleting: object.metadata.deletion_timestamp.is_some(),
        labels: read(at("/spec/template/metadata/labels")),
        requirements: read(at("/spec/template/spec/requirements")),
        taints: read(at("/spec/template/spec/taints")),
        limits: quantities(at("/spec/limits")),
        used: quantities(at("/status/resources")),
    })
}

/// What has that form; what has not is nothing.
fn read<T: DeserializeOwned + Default>(value: Option<&Value>) -> T {
    value
        .and_then(|v| serde_json::from_value(v.clone()).ok())
        .unwrap_or_default()
}

fn quantities(value: Option<&Value>) -> Quantities {
    // A number where a text is usual is a quantity too.
    let amounts: BTreeMap<String, Value> = read(value);
    let amounts = amounts.into_iter().filter_map(|(name, amount)| {
        let text = match amount {
            Value::String(text) => text,
            other => other.to_string(),
        };
        Some((name, quantity::parse(&text)?))
    });
    amounts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pool_tells_what_its_nodes_can_be() {
        let object = json!({
            "metadata": {"name": "apps", "uid": "u"},
            "spec": {"limits": {"cpu": 8, "memory": "1Gi"}, "template": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {
                    "requirements": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"], "minValues": 1}],
                    "taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}],
                },
            }},
            "status": {"resources": {"cpu": "4", "nodes": "1"}},
        });
        let pool = node_pool(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(pool.labels["team"], "a");
        assert_eq!(pool.requirements[0].key, "topology.kubernetes.io/zone");
        assert_eq!(pool.taints[0].key, "dedicated");
        assert_eq!(
            (pool.limits["cpu"], pool.used["cpu"]),
            (8_000, 4_000),
            "in thousandths"
        );
        let bare = json!({"metadata": {"name": "apps", "uid": "u"}});
        let bare = node_pool(&serde_json::from_value(bare).unwrap()).unwrap();
        assert_eq!((bare.limits.len(), bare.requirements.len()), (0, 0));
    }

    /// `MachineDrifted`, `MachineLaunched`: Karpenter v0.31, `pkg/apis/v1alpha5`.
    #[test]
    fn a_machine_and_its_provisioner_are_a_claim_and_a_pool() {
        let object = json!({
            "metadata": {"name": "m", "uid": "u"},
            "status": {"nodeName": "old", "conditions": [
                {"type": "MachineLaunched", "status": "False", "message": "no capacity"},
                {"type": "MachineDrifted", "status": "True"},
            ]},
        });
        let claim = machine(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(claim.generation, Generation::V1Alpha5);
        assert_eq!(claim.node, Some("old".into()));
        assert!(claim.drifted && !claim.deleting);
        assert_eq!(claim.message.as_deref(), Some("no capacity"));

        let object = json!({
            "metadata": {"name": "default", "uid": "u"},
            "spec": {
                "labels": {"team": "a"}, "limits": {"resources": {"cpu": "8"}},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}],
                "taints": [{"key": "dedicated", "effect": "NoSchedule"}],
            },
            "status": {"resources": {"cpu": "4"}},
        });
        let pool = provisioner(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(pool.labels["team"], "a");
        assert_eq!(pool.requirements[0].key, "karpenter.sh/capacity-type");
        assert_eq!(pool.taints[0].key, "dedicated");
        assert_eq!((pool.limits["cpu"], pool.used["cpu"]), (8_000, 4_000));
    }

    #[test]
    fn a_claim_expires_a_while_after_it_was_made() {
        let expires = |after: &str| {
            let object = json!({
                "metadata": {"name": "c", "uid": "u", "creationTimestamp": "2026-12-01T00:00:00Z"},
                "spec": {"expireAfter": after},
            });
            let claim = node_claim(&serde_json::from_value(object).unwrap()).unwrap();
            claim.expires.map(|at| at.to_string())
        };
        assert_eq!(expires("24h").as_deref(), Some("2026-12-02T00:00:00Z"));
        assert_eq!(expires("1h30m").as_deref(), Some("2026-12-01T01:30:00Z"));
        assert_eq!(expires("Never"), None);
    }
}
