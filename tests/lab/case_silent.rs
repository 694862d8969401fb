//! Nodes that fall silent and pods that do not stop: named, waited for, never forced, and gone on with when it is time.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lab::fixtures::{self, Pods};

use crate::world::{World, deeds, node_of};

const NEVER_ENDS: &str = "lab.relocator/never-ends";

/// The pods of `default` on a node, by name.
async fn pods_on(world: &World, node: &str) -> Vec<String> {
    let pods = world.list::<Pod>().await;
    let here = pods
        .iter()
        .filter(|p| node_of(p) == node && p.namespace().as_deref() == Some("default"));
    here.map(ResourceExt::name_any).collect()
}

/// Nothing that terminates on the node ends from now on, as when its kubelet is gone.
async fn nothing_ends_on(world: &World, node: &str) {
    for pod in pods_on(world, node).await {
        world
            .kubectl(&["label", "pod", &pod, &format!("{NEVER_ENDS}=true")])
            .await;
    }
}

async fn condition_ready(world: &World, kind: &str, name: &str, status: &str) {
    let patch =
        format!(r#"{{"status":{{"conditions":[{{"type":"Ready","status":"{status}"}}]}}}}"#);
    world
        .kubectl(&["patch", kind, name, "--subresource=status", "-p", &patch])
        .await;
}

/// The kubelet reports no more: what the node controller then says of the node and of its pods.
async fn falls_silent(world: &World, node: &str) {
    world
        .kubectl(&["annotate", "node", node, "kwok.x-k8s.io/node-"])
        .await;
    condition_ready(world, "node", node, "Unknown").await;
    for pod in pods_on(world, node).await {
        condition_ready(world, "pod", &pod, "False").await;
    }
}

/// The kubelet is back: it reports, and ends what was to end.
async fn answers_again(world: &World, node: &str) {
    for pod in pods_on(world, node).await {
        condition_ready(world, "pod", &pod, "True").await;
        world
            .kubectl(&["label", "pod", &pod, &format!("{NEVER_ENDS}-")])
            .await;
    }
    world
        .kubectl(&["annotate", "node", node, "kwok.x-k8s.io/node=fake"])
        .await;
}

/// db-0 and db-1 and a web pod on `old-1`, db-2 and db-3 on `old-2`, room on `spare`.
async fn a_database_over_two_nodes() -> World {
    let world = World::start().await;
    world.nodes(&[("old-1", "3")]).await;
    let db = fixtures::stateful_set("db", 2).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    let web = fixtures::deployment("web", 1).requests("1", "64Mi");
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    world.nodes(&[("old-2", "2")]).await;
    world
        .kubectl(&["scale", "statefulset", "db", "--replicas=4"])
        .await;
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    world
}

/// A pod has been asked to stop when its node falls silent: it may still run. It is waited for, its set stops, others go on.
#[tokio::test(flavor = "multi_thread")]
async fn case_125_a_node_falls_silent_while_its_pod_stops() {
    let world = a_database_over_two_nodes().await;
    nothing_ends_on(&world, "old-2").await;
    let _operator = world.operator().await;
    let nodes = ["old-1", "old-2"];
    let recording = world.record(&nodes).await.stay_cordoned(&nodes);

    let spec = "{nodes: {names: [old-1, old-2]}, afterDrain: Keep}";
    let mut story = world.relocate("move", spec).await;
    let leaves = |pods: &[Pod]| {
        let db_3 = pods.iter().find(|p| p.name_any() == "db-3")?;
        db_3.metadata.deletion_timestamp.clone()
    };
    world.pods_until("db-3 to be told to stop", leaves).await;
    falls_silent(&world, "old-2").await;
    let silent = Timestamp::now();

    let said = story.blocked("NodeUnreachable").await;
    assert!(said.contains("Node old-2"), "{said}");
    assert!(said.contains("nothing is forced"), "{said}");
    // The web tier goes on all the same. Then there is nothing left that could go on.
    let what = "the web tier to have moved, and no more to be done";
    let held = story
        .until(what, |r| r.pods == "1/5" && r.stage == "Blocked")
        .await;
    assert_eq!(held.blockers.len(), 1, "{:?}", held.blockers);
    let back = Timestamp::now();
    answers_again(&world, "old-2").await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "5/5");

    let verdict = recording.judge(&world).await;
    let meanwhile: Vec<_> = verdict
        .evictions()
        .iter()
        .filter(|e| (silent..=back).contains(&e.at))
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        meanwhile,
        Vec::<String>::new(),
        "of the database, on old-1 either"
    );
    // Once each, and none by any other way (see is_clean).
    assert_eq!(verdict.evicted(), ["db-3", "db-2", "db-1", "db-0"]);
    verdict.whole_when_it_succeeded("db-", 4);
    verdict.moved_once(5);
    verdict.is_clean();
}

/// A node that does not answer before anything has begun is not begun with.
#[tokio::test(flavor = "multi_thread")]
async fn case_125_a_silent_node_is_told_before_anything_is_touched() {
    let world = World::start().await;
    world.nodes(&[("old", "2")]).await;
    let db = fixtures::stateful_set("db", 2).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "2")]).await;
    falls_silent(&world, "old").await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let said = story.blocked("NodeUnreachable").await;
    assert!(said.contains("Node old"), "{said}");
    let back = Timestamp::now();
    answers_again(&world, "old").await;
    story.succeeds().await;

    let verdict = recording.judge(&world).await;
    let before = verdict.writes_between(verdict.history.started, back);
    assert_eq!(deeds(&before), Vec::<String>::new());
    verdict.moved_once(2);
    verdict.is_clean();
}

/// Something keeps a pod that is to go. It is named with what keeps it, and asked to go once; how long it takes is not ours to say.
#[tokio::test(flavor = "multi_thread")]
async fn case_34_a_pod_kept_by_a_finalizer_is_named_and_waited_for() {
    let world = World::start().await;
    world.nodes(&[("old", "2")]).await;
    let db = fixtures::stateful_set("db", 2)
        .requests("1", "64Mi")
        .grace(1);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "2")]).await;
    // KWOK takes finalizers away from what it ends, which no kubelet does: it is to leave this one alone.
    nothing_ends_on(&world, "old").await;
    let finalizer = r#"{"metadata":{"finalizers":["example.com/backup"]}}"#;
    world
        .kubectl(&["patch", "pod", "db-1", "-p", finalizer])
        .await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let what = "the pod to be waited for, with its finalizer";
    let waits = story
        .until(what, |r| r.message.contains("pod default/db-1 to stop"))
        .await;
    assert!(
        waits.message.contains("example.com/backup"),
        "{}",
        waits.message
    );
    assert_eq!(
        waits.blockers,
        Vec::<String>::new(),
        "it has its grace period"
    );
    let said = story.blocked("StuckTerminating").await;
    assert!(said.contains("Pod default/db-1"), "{said}");
    assert!(said.contains("example.com/backup"), "{said}");
    let blocked = story
        .until("nothing else to go on", |r| r.stage == "Blocked")
        .await;
    assert_eq!(blocked.blockers.len(), 1, "{:?}", blocked.blockers);

    let none = r#"{"metadata":{"finalizers":null}}"#;
    world.kubectl(&["patch", "pod", "db-1", "-p", none]).await;
    for pod in pods_on(&world, "old").await {
        world
            .kubectl(&["label", "pod", &pod, &format!("{NEVER_ENDS}-")])
            .await;
    }
    story.succeeds().await;
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.evicted(), ["db-1", "db-0"], "once each");
    verdict.moved_once(2);
    verdict.is_clean();
}
