//! A Deployment that a real `HorizontalPodAutoscaler` holds in its bounds while it is moved by a surge.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use lab::fixtures::{self, Pods};
use lab::{LabOptions, Program};

use serde_json::json;

use crate::world::World;

/// The autoscaler of the Deployment `web`. There are no metrics in the lab: it acts on its bounds alone, as the controller does first of all
/// (reconcileAutoscaler in pkg/controller/podautoscaler/horizontal.go of Kubernetes).
fn autoscaler(most: u32) -> HorizontalPodAutoscaler {
    serde_json::from_value(json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
        },
    }))
    .unwrap()
}

/// Six pods of a Deployment, three of them on the old node, and an autoscaler that looks every second and allows that many pods.
async fn web_under_an_autoscaler(most: u32) -> World {
    let often = "--horizontal-pod-autoscaler-sync-period=1s".to_owned();
    let world = World::with(LabOptions {
        arguments: [(Program::ControllerManager, vec![often])].into(),
        ..LabOptions::default()
    })
    .await;
    world.nodes(&[("old", "3"), ("stays", "3")]).await;
    let web = fixtures::deployment("web", 6)
        .requests("1", "64Mi")
        .ready_after(2);
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    world.lab.put(&autoscaler(most)).await.unwrap();
    world
}

/// With room above the count the autoscaler lets a surge be, and nobody notices anything.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_with_room_lets_a_surge_be() {
    let world = web_under_an_autoscaler(12).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");
    assert_eq!(end.status["workloads"][0]["strategy"], "Surge");
    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    verdict.moved_once(3);
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);
    assert_eq!(world.places("web").await.len(), 6);
}

/// An autoscaler that is at its most takes the count back within seconds. That is no fight: its count holds, the rest goes by evictions, and
/// the record says why. No pod is down but the one that moves.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_at_its_most_takes_a_surge_back_and_the_pods_move_all_the_same() {
    let world = web_under_an_autoscaler(6).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");
    let workload = &end.status["workloads"][0];
    assert_eq!(workload["strategy"], "Evict", "{workload}");
    let why = workload["why"].as_str().unwrap();
    assert!(why.contains("put back to 6 by somebody else"), "{why}");
    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    assert_eq!(verdict.card.double_moves, 0, "{:#?}", verdict.card);
    assert!(verdict.most_down("default/Deployment/web") <= 1);
    let pods = world.places("web").await;
    assert_eq!(pods.len(), 6, "{pods:?}");
    assert!(pods.iter().all(|(_, node)| node != "old"), "{pods:?}");
}
