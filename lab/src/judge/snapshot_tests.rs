#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

fn state(objects: &[(Kind, Value)]) -> ClusterState {
    ClusterState::of(
        objects
            .iter()
            .map(|(k, v)| (*k, serde_json::from_value(v.clone()).unwrap())),
    )
}

#[test]
fn object_and_field_are_named() {
    let before = state(&[
        (
            Kind::Node,
            json!({"metadata": {"name": "a", "uid": "1", "labels": {"zone": "x"}}, "spec": {"podCIDR": "10.0.0.0/24"}}),
        ),
        (
            Kind::Pod,
            json!({"metadata": {"name": "p", "namespace": "shop", "uid": "2"}}),
        ),
        (
            Kind::Pod,
            json!({"metadata": {"name": "q", "namespace": "shop", "uid": "3"}}),
        ),
        (
            Kind::Deployment,
            json!({"metadata": {"name": "web", "namespace": "shop", "uid": "4"}, "spec": {"replicas": 2}}),
        ),
    ]);
    let after = state(&[
        (
            Kind::Node,
            json!({"metadata": {"name": "a", "uid": "1", "labels": {"zone": "y"}, "finalizers": ["f"]},
            "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": true,
                "taints": [{"key": "relocation.sh/x", "effect": "NoSchedule"}]}}),
        ),
        (
            Kind::Pod,
            json!({"metadata": {"name": "p", "namespace": "shop", "uid": "9"}}),
        ),
        (
            Kind::Deployment,
            json!({"metadata": {"name": "web", "namespace": "shop", "uid": "4"}, "spec": {"replicas": 4,
            "template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}),
        ),
        (
            Kind::Pod,
            json!({"metadata": {"name": "r", "namespace": "shop", "uid": "5"}}),
        ),
    ]);
    assert_eq!(
        before.differences(&after),
        [
            "Pod shop/p: another object of that name",
            "Pod shop/q: gone",
            "Pod shop/r: new",
            "Node a: metadata.finalizers[f] was (absent), is set",
            "Node a: metadata.labels[zone] was \"x\", is \"y\"",
            "Node a: spec.taints[relocation.sh/x:NoSchedule] was (absent), is \"\"",
            "Node a: spec.unschedulable was (absent), is true",
            "Deployment shop/web: spec.replicas was 2, is 4",
            "Deployment shop/web: spec.template.metadata.annotations[kubectl.kubernetes.io/restartedAt] was (absent), is \"now\"",
        ]
    );
}

#[test]
fn what_controllers_own_is_left_out() {
    let before = state(&[(
        Kind::Node,
        json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "1", "annotations": {}},
        "spec": {"unschedulable": false}, "status": {"x": 1}}),
    )]);
    let after = state(&[(
        Kind::Node,
        json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "2", "generation": 3,
        "managedFields": [{"manager": "x"}], "annotations": {"deployment.kubernetes.io/revision": "2"},
        "labels": {"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux"}},
        "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": "2026-11-30T22:00:00Z"}]},
        "status": {"x": 2}}),
    )]);
    assert_eq!(before.differences(&after), Vec::<String>::new());
}
