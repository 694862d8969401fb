//! From node groups of another autoscaler to a `NodePool` of Karpenter, a part of the nodes at a time.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use lab::LabOptions;
use lab::fixtures::{self, Pods};
use lab::judge::{Cause, History, Kind};

use crate::world::World;

const GROUP: &str = "eks.amazonaws.com/nodegroup";

/// The most nodes that were being emptied at a time: from when the first of the pods that were there begins to leave until the last is
/// gone.
fn most_at_a_time(history: &History, nodes: &BTreeSet<String>) -> usize {
    let pods = history
        .changes
        .iter()
        .filter(|c| c.object.kind == Kind::Pod);
    let mut there: BTreeSet<(String, String)> = BTreeSet::new();
    let mut begun: BTreeSet<String> = BTreeSet::new();
    let mut most = 0;
    for change in pods {
        let object = &change.object;
        let Some(node) = object.pod().and_then(|pod| pod.node.clone()) else {
            continue;
        };
        if !nodes.contains(&node) {
            continue;
        }
        let pod = (node.clone(), object.uid.0.clone());
        if change.cause == Cause::Initial {
            there.insert(pod);
            continue;
        }
        assert!(
            there.contains(&pod),
            "{object} has come to {node}, which is closed"
        );
        if object.terminating || change.cause == Cause::Deleted {
            begun.insert(node);
            most = most.max(
                begun
                    .iter()
                    .filter(|node| there.iter().any(|(on, _)| on == *node))
                    .count(),
            );
        }
        if change.cause == Cause::Deleted {
            there.remove(&pod);
        }
    }
    assert_eq!(there, BTreeSet::new(), "all of them have gone");
    assert_eq!(&begun, nodes, "there was a pod on each");
    most
}

/// Thirty nodes of a group, which no object of Karpenter's speaks of, to a `NodePool`: a quarter of them, rounded up, at a time. The nodes
/// stay for their own autoscaler, cordoned.
#[tokio::test(flavor = "multi_thread")]
async fn thirty_nodes_of_a_group_go_to_a_node_pool_in_batches_of_a_quarter() {
    let world = World::with_karpenter(LabOptions::default()).await;
    let group: BTreeSet<_> = (0..30).map(|n| format!("group-{n:02}")).collect();
    for name in &group {
        let node = fixtures::fake_node(name, "2", &[(GROUP, "old")]);
        world.lab.put(&node).await.unwrap();
    }
    for name in &group {
        fixtures::wait_node_ready(&world.lab, name).await.unwrap();
    }
    // Two on each node, and there is no room for more.
    for name in ["db", "queue", "search"] {
        let set = fixtures::stateful_set(name, 6).requests("900m", "1Gi");
        world.lab.put(&set).await.unwrap();
        let budget = fixtures::max_unavailable(name, 1);
        world.lab.put(&budget).await.unwrap();
    }
    for name in ["web", "api", "worker"] {
        let deployment = fixtures::deployment(name, 14).requests("900m", "1Gi");
        world.lab.put(&deployment).await.unwrap();
    }
    world.settled().await;
    // Only now, so that none of them starts there.
    fixtures::apply_node_pool(&world.lab).await.unwrap();
    let _operator = world.operator().await;
    let old: Vec<_> = group.iter().map(String::as_str).collect();
    let recording = world.record(&old).await.stay_cordoned(&old);

    let spec = format!(
        "{{nodes: {{selector: {{matchLabels: {{{GROUP}: old}}}}}}, batchSize: 25%, replacement: {{placement: {{nodeSelector: {{karpenter.sh/nodepool: apps}}}}}}}}"
    );
    let mut story = world.relocate("to-karpenter", &spec).await;
    let end = story.succeeds().await;
    assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("30/30", "60/60"));

    let nodes: Vec<Node> = world.list().await;
    let pools = |node: &&Node| node.labels().get("karpenter.sh/nodepool").is_some();
    let new: BTreeSet<_> = nodes
        .iter()
        .filter(pools)
        .map(ResourceExt::name_any)
        .collect();
    for app in ["db", "queue", "search", "web", "api", "worker"] {
        for (pod, node) in world.places(app).await {
            assert!(new.contains(&node), "{pod} is on {node}");
        }
    }
    for name in &group {
        assert!(
            world.is_cordoned(name).await,
            "{name} stays, for its own autoscaler"
        );
    }
    let verdict = recording.judge(&world).await;
    verdict.moved_once(60);
    for app in ["web", "api", "worker"] {
        let down = verdict.most_down(&format!("default/Deployment/{app}"));
        assert_eq!(down, 0, "{app} surges");
    }
    // A quarter of thirty is seven and a half.
    let most = most_at_a_time(&verdict.history, &group);
    assert!((2..=8).contains(&most), "{most} nodes at a time");
    verdict.is_clean();
}
