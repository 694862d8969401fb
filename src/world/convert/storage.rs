//! Persistent volumes, their claims and classes as world types. Pure and total.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;

use super::identity;
use crate::world::{Attachment, CsiNode, MountedClaim, StorageClass, Volume, VolumeClaim};

/// The claims that a pod of that name mounts.
pub(super) fn mounted(pod: &str, spec: &core::PodSpec) -> Vec<MountedClaim> {
    let volumes = spec.volumes.iter().flatten();
    let claims = volumes.filter_map(|volume| {
        if let Some(source) = &volume.persistent_volume_claim {
            return Some(MountedClaim {
                name: source.claim_name.clone(),
                ephemeral: false,
            });
        }
        volume.ephemeral.as_ref().map(|_| MountedClaim {
            name: format!("{pod}-{}", volume.name),
            ephemeral: true,
        })
    });
    claims.collect()
}

/// A `PersistentVolumeClaim`.
#[must_use]
pub fn volume_claim(object: &core::PersistentVolumeClaim) -> Option<VolumeClaim> {
    let (name, uid) = identity(&object.metadata)?;
    let spec = object.spec.clone().unwrap_or_default();
    let modes = spec.access_modes.unwrap_or_default();
    let has = |mode: &str| modes.iter().any(|m| m == mode);
    Some(VolumeClaim {
        namespace: object.metadata.namespace.clone()?,
        name,
        uid,
        shared: (has("ReadWriteMany") || has("ReadOnlyMany")) && !has("ReadWriteOncePod"),
        volume: spec.volume_name.filter(|v| !v.is_empty()),
        class: spec.storage_class_name.filter(|c| !c.is_empty()),
    })
}

/// A `PersistentVolume`.
#[must_use]
pub fn volume(object: &core::PersistentVolume) -> Option<Volume> {
    let (name, uid) = identity(&object.metadata)?;
    let spec = object.spec.as_ref();
    Some(Volume {
        name,
        uid,
        nodes: spec
            .and_then(|s| s.node_affinity.as_ref())
            .and_then(|a| a.required.clone()),
        node_local: spec.is_some_and(|s| s.host_path.is_some() || s.local.is_some()),
        driver: spec
            .and_then(|s| s.csi.as_ref())
            .map(|csi| csi.driver.clone()),
    })
}

/// A `StorageClass`.
#[must_use]
pub fn storage_class(object: &storage::StorageClass) -> Option<StorageClass> {
    let (name, uid) = identity(&object.metadata)?;
    let topologies = object.allowed_topologies.as_ref();
    let nodes = topologies
        .filter(|terms| !terms.is_empty())
        .map(|terms| core::NodeSelector {
            node_selector_terms: terms.iter().map(term).collect(),
        });
    Some(StorageClass {
        name,
        uid,
        provisioner: object.provisioner.clone(),
        nodes,
    })
}

fn term(topology: &core::TopologySelectorTerm) -> core::NodeSelectorTerm {
    let expressions = topology.match_label_expressions.iter().flatten();
    let expressions = expressions.map(|e| core::NodeSelectorRequirement {
        key: e.key.clone(),
        operator: "In".to_owned(),
        values: Some(e.values.clone()),
    });
    core::NodeSelectorTerm {
        match_expressions: Some(expressions.collect()),
        match_fields: None,
    }
}

/// A `CSINode`.
#[must_use]
pub fn csi_node(object: &storage::CSINode) -> Option<CsiNode> {
    let (name, uid) = identity(&object.metadata)?;
    let drivers = object.spec.drivers.iter().map(|driver| {
        let count = driver.allocatable.as_ref().and_then(|a| a.count);
        // Less than none is none.
        let most = count.map(|n| usize::try_from(n).unwrap_or_default());
        (driver.name.clone(), most)
    });
    Some(CsiNode {
        name: name.as_str().into(),
        uid,
        drivers: drivers.collect(),
    })
}

/// A volume attachment.
#[must_use]
pub fn attachment(object: &storage::VolumeAttachment) -> Option<Attachment> {
    let (name, uid) = identity(&object.metadata)?;
    Some(Attachment {
        name,
        uid,
        node: object.spec.node_name.as_str().into(),
        volume: object.spec.source.persistent_volume_name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(modes: &Value) -> VolumeClaim {
        let object = json!({
            "metadata": {"name": "data", "namespace": "default", "uid": "u"},
            "spec": {"accessModes": modes, "volumeName": "", "storageClassName": "gp3"},
        });
        volume_claim(&serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn several_nodes_use_a_claim_only_where_a_mode_says_so() {
        assert!(!claim(&json!(["ReadWriteOnce"])).shared);
        assert!(!claim(&json!(["ReadWriteOncePod"])).shared);
        assert!(!claim(&json!([])).shared, "nothing is said");
        assert!(claim(&json!(["ReadWriteMany"])).shared);
        assert!(claim(&json!(["ReadWriteOnce", "ReadOnlyMany"])).shared);
        assert_eq!(claim(&json!([])).volume, None, "not bound");
    }

    #[test]
    fn a_pod_mounts_claims_and_ephemeral_ones_have_its_name() {
        let spec: core::PodSpec = serde_json::from_value(json!({"containers": [], "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "db-data"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "cache", "emptyDir": {}},
        ]}))
        .unwrap();
        let mounted = mounted("db-0", &spec);
        let names: Vec<_> = mounted
            .iter()
            .map(|c| (c.name.as_str(), c.ephemeral))
            .collect();
        assert_eq!(names, [("db-data", false), ("db-0-scratch", true)]);
    }

    #[test]
    fn a_volume_tells_which_nodes_can_use_it() {
        let read = |spec: Value| {
            let object = json!({"metadata": {"name": "pv", "uid": "u"}, "spec": spec});
            volume(&serde_json::from_value(object).unwrap()).unwrap()
        };
        let zonal = read(json!({
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": ["a"]},
            ]}]}},
        }));
        assert_eq!(zonal.driver.as_deref(), Some("ebs.csi.aws.com"));
        assert_eq!(zonal.nodes.unwrap().node_selector_terms.len(), 1);
        assert!(!zonal.node_local);
        assert!(read(json!({"hostPath": {"path": "/data"}})).node_local);
        assert!(read(json!({"local": {"path": "/data"}})).node_local);
    }

    #[test]
    fn a_class_makes_volumes_where_its_topologies_say() {
        let object = json!({
            "metadata": {"name": "gp3", "uid": "u"}, "provisioner": "ebs.csi.aws.com",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "b"]}]}],
        });
        let class = storage_class(&serde_json::from_value(object).unwrap()).unwrap();
        let nodes = class.nodes.unwrap();
        let [term] = &nodes.node_selector_terms[..] else {
            panic!("one term: {nodes:?}");
        };
        let expression = &term.match_expressions.as_ref().unwrap()[0];
        assert_eq!(expression.operator, "In");
        assert_eq!(expression.values, Some(vec!["a".into(), "b".into()]));
    }
}
