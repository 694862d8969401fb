//! What becomes of emptied nodes, and how workloads of each kind get off them. Without Karpenter: the nodes stay.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lab::LabOptions;
use lab::fixtures::{self, Pods};
use lab::judge::{Cause, History, Kind};

use crate::world::{World, is_ready, node_of};

/// Pods that were bound to one of the nodes since the recording began, by name.
fn arrived_on(history: &History, nodes: &[&str]) -> Vec<String> {
    let bound = |c: &&lab::judge::Change| {
        let node = c.object.pod().and_then(|pod| pod.node.as_deref());
        c.cause != Cause::Initial && node.is_some_and(|node| nodes.contains(&node))
    };
    let was_there = |uid| {
        let initial = history.changes.iter().filter(|c| c.cause == Cause::Initial);
        initial.into_iter().any(|c| c.object.uid == uid)
    };
    let pods = history
        .changes
        .iter()
        .filter(|c| c.object.kind == Kind::Pod);
    let mut names: Vec<_> = pods
        .filter(bound)
        .filter(|c| !was_there(c.object.uid.clone()))
        .map(|c| c.object.to_string())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// A database over two nodes, of which somebody has cordoned one before. It moves without placeholders, there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_moves_one_by_one_and_the_nodes_are_kept() {
    let world = World::start().await;
    // Two pods of one CPU fill each of them.
    world.nodes(&[("old-1", "2"), ("old-2", "2")]).await;
    let db = fixtures::stateful_set("db", 4).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world
        .lab
        .put(&fixtures::max_unavailable("db", 1))
        .await
        .unwrap();
    world.settled().await;
    world.nodes(&[("third", "8")]).await;
    world.kubectl(&["cordon", "old-1"]).await;
    let _operator = world.operator().await;
    let recording = world
        .record(&["old-1", "old-2"])
        .await
        .stay_cordoned(&["old-2"]);

    let spec = "{nodes: {names: [old-1, old-2]}, replacement: {strategy: None}, afterDrain: Keep}";
    let mut story = world.relocate("keep", spec).await;
    let end = story.succeeds().await;
    assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("2/2", "4/4"));

    // Kept as they were emptied: cordoned, by whomever, and without a mark of ours (see is_clean).
    assert!(world.is_cordoned("old-1").await);
    assert!(world.is_cordoned("old-2").await);
    // A database that grows does not grow onto them.
    world
        .kubectl(&["scale", "statefulset", "db", "--replicas=5"])
        .await;
    world.settled().await;
    let places = world.places("db").await;
    assert_eq!(places.len(), 5);
    assert!(places.iter().all(|(_, node)| node == "third"), "{places:?}");

    let verdict = recording.judge(&world).await;
    let evicted: Vec<_> = verdict.evictions().iter().map(|e| e.name.clone()).collect();
    // As a StatefulSet updates itself, whichever of the two nodes the pod is on.
    assert_eq!(evicted, ["db-3", "db-2", "db-1", "db-0"]);
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    assert_eq!(
        arrived_on(&verdict.history, &["old-1", "old-2"]),
        Vec::<String>::new()
    );
    let placeholders = verdict.writes();
    let placeholders = placeholders
        .iter()
        .filter(|e| e.namespace == "relocator-placeholders");
    assert_eq!(placeholders.count(), 0, "replacement.strategy is None");
    verdict.is_clean();
}

/// A web tier of four, two of them on nodes that stay. Only the other two move, and the tier is never short of a pod.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_deployment_moves_and_the_nodes_take_pods_again() {
    let world = World::start().await;
    // Full with one pod each, so that two of the four are on nodes that stay.
    let nodes = ["old-1", "old-2", "stays-1", "stays-2"].map(|name| (name, "1"));
    world.nodes(&nodes).await;
    let web = fixtures::deployment("web", 4).requests("1", "64Mi");
    // Long enough for the moves to be seen one by one.
    world.lab.put(&web.ready_after(1)).await.unwrap();
    world.settled().await;
    let before = world.places("web").await;
    world.nodes(&[("spare", "8")]).await;
    world.kubectl(&["cordon", "old-1"]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1", "old-2"]).await;

    let spec = "{nodes: {names: [old-1, old-2]}, afterDrain: Uncordon}";
    let mut story = world.relocate("uncordon", spec).await;
    let end = story.succeeds().await;
    assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("2/2", "2/2"));

    assert!(
        world.is_cordoned("old-1").await,
        "a cordon that was there before is not ours to lift"
    );
    assert!(!world.is_cordoned("old-2").await);
    world.settled().await;
    let after = world.places("web").await;
    let stayed = |(_, node): &&(String, String)| node.starts_with("stays");
    assert_eq!(
        before.iter().filter(stayed).collect::<Vec<_>>(),
        after.iter().filter(stayed).collect::<Vec<_>>(),
        "pods on other nodes are left alone"
    );

    let verdict = recording.judge(&world).await;
    verdict.moved_once(2);
    verdict.is_clean();
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);

    // It takes pods again: nothing else has room for one that asks for it.
    let big = fixtures::bare_pod("big").on_nodes("kubernetes.io/hostname", "old-2");
    world.lab.put(&big).await.unwrap();
    let on = |pods: &[Pod]| {
        let big = pods
            .iter()
            .find(|p| p.metadata.name.as_deref() == Some("big"));
        big.filter(|pod| is_ready(pod)).map(node_of)
    };
    assert_eq!(world.pods_until("the pod on old-2", on).await, "old-2");
}

/// A node that no Karpenter made is not ours to remove: its autoscaler does that, so it stays cordoned.
#[tokio::test(flavor = "multi_thread")]
async fn case_140_a_node_without_a_node_claim_stays_cordoned_for_its_autoscaler() {
    let world = World::start().await;
    world.nodes(&[("old-1", "8")]).await;
    let agent = fixtures::daemon_set("agent");
    world.lab.put(&agent).await.unwrap();
    // One pod whose budget never allows an eviction: it can only be moved by its own rollout.
    let session = fixtures::deployment("session", 1);
    world.lab.put(&session).await.unwrap();
    let budget = fixtures::min_available("session", 1);
    world.lab.put(&budget).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    world.settled().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);

    let mut story = world.relocate("leave", "{nodes: {names: [old-1]}}").await;
    let end = story.succeeds().await;
    assert!(end.message.contains("stay cordoned"), "{}", end.message);
    assert!(world.is_cordoned("old-1").await);
    // Pods of a DaemonSet do not count and are not moved.
    let agents = world.places("agent").await;
    assert_eq!(agents.len(), 2, "{agents:?}");

    let verdict = recording.judge(&world).await;
    verdict.moved_once(1);
    verdict.is_clean();
    assert_eq!(verdict.most_down("default/Deployment/session"), 0);
    assert_eq!(verdict.evictions().len(), 0, "its budget allows none");
}

/// From an autoscaler's node group to Karpenter: the old nodes have no `NodeClaim`, the new ones are Karpenter's. Nothing of Karpenter's is
/// asked of the old ones, and their autoscaler finds them cordoned.
#[tokio::test(flavor = "multi_thread")]
async fn case_140_a_node_group_moves_to_karpenter_and_is_left_to_its_autoscaler() {
    let world = World::with_karpenter(LabOptions::default()).await;
    fixtures::apply_node_pool(&world.lab).await.unwrap();
    let group = [
        ("eks.amazonaws.com/nodegroup", "apps"),
        ("NodeGroupName", "apps"),
    ];
    for name in ["asg-1", "asg-2"] {
        let node = fixtures::fake_node(name, "2", &group);
        world.lab.put(&node).await.unwrap();
        fixtures::wait_node_ready(&world.lab, name).await.unwrap();
    }
    let db = fixtures::stateful_set("db", 2)
        .requests("1", "64Mi")
        .on_nodes("NodeGroupName", "apps");
    world.lab.put(&db).await.unwrap();
    let web = fixtures::deployment("web", 2)
        .requests("1", "64Mi")
        .on_nodes("NodeGroupName", "apps");
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    let old = ["asg-1", "asg-2"];
    for (pod, node) in world.places("db").await {
        assert!(old.contains(&node.as_str()), "{pod} on {node}");
    }
    let _operator = world.operator().await;
    let recording = world.record(&old).await.stay_cordoned(&old);

    let spec = "{nodes: {selector: {matchLabels: {eks.amazonaws.com/nodegroup: apps}}}}";
    let mut story = world.relocate("to-karpenter", spec).await;
    let end = story.succeeds().await;
    assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("2/2", "4/4"));
    assert!(
        end.message.contains("2 without a NodeClaim stay cordoned"),
        "{}",
        end.message
    );
    for name in old {
        let node = world.node(name).await;
        assert!(world.is_cordoned(name).await, "{name}");
        let ours = node.annotations().keys();
        let ours: Vec<_> = ours.filter(|key| key.contains("relocation.sh")).collect();
        assert_eq!(ours, Vec::<&String>::new(), "{name}");
    }
    let verdict = recording.judge(&world).await;
    verdict.moved_once(4);
    verdict.is_clean();
    assert!(verdict.card.nodes.made >= 1, "{:?}", verdict.card.nodes);
    assert_eq!(verdict.card.nodes.removed, 0);
}

/// A load balancer takes a node out as soon as a label says so, with the pods that still serve on it. We never set one: of a node we write
/// annotations and the cordon.
#[tokio::test(flavor = "multi_thread")]
async fn case_122_of_a_node_only_annotations_and_the_cordon_are_written() {
    let world = World::start().await;
    world.nodes(&[("old", "2")]).await;
    let web = fixtures::deployment("web", 2);
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "2")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await;

    let spec = "{nodes: {names: [old]}, afterDrain: Uncordon}";
    world.relocate("move", spec).await.succeeds().await;
    let verdict = recording.judge(&world).await;
    let mut written: Vec<_> = verdict
        .writes()
        .iter()
        .filter(|e| e.resource == "nodes")
        .flat_map(|e| {
            assert_eq!((e.verb.as_str(), e.subresource.as_str()), ("patch", ""));
            let body = e.body.as_ref().unwrap();
            let metadata = body["metadata"].as_object().unwrap().keys();
            let spec = body["spec"].as_object().into_iter().flat_map(|s| s.keys());
            let metadata = metadata.map(|key| format!("metadata.{key}"));
            metadata
                .chain(spec.map(|key| format!("spec.{key}")))
                .collect::<Vec<_>>()
        })
        .collect();
    written.sort();
    written.dedup();
    assert_eq!(
        written,
        [
            "metadata.annotations",
            "metadata.resourceVersion",
            "metadata.uid",
            "spec.unschedulable"
        ]
    );
    verdict.moved_once(2);
    verdict.is_clean();
}
