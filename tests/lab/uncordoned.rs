//! A person uncordons a node while its pods move: that is a word, and it holds.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lab::fixtures::{self, Pods};

use crate::world::{World, is_ready, node_of};

/// Nothing more leaves a node that somebody has uncordoned, until somebody cordons it again.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaves_an_uncordoned_node() {
    let world = World::start().await;
    world.nodes(&[("old-1", "3")]).await;
    // Long enough for a person to do something while a pod is on the move.
    let db = fixtures::stateful_set("db", 3)
        .requests("1", "64Mi")
        .ready_after(3);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "3")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);

    let spec = "{nodes: {names: [old-1]}, afterDrain: Keep}";
    let mut story = world.relocate("move", spec).await;
    story.stage("Moving").await;
    // The first of the three has its new place and is not ready there yet: no other may move now.
    let on_its_way = |pods: &[Pod]| {
        let db_2 = pods.iter().find(|p| p.name_any() == "db-2")?;
        (node_of(db_2) == "spare" && !is_ready(db_2)).then_some(())
    };
    world.pods_until("db-2 on its way", on_its_way).await;
    world.kubectl(&["uncordon", "old-1"]).await;
    let uncordoned = Timestamp::now();

    let said = story.blocked("Uncordoned").await;
    assert!(said.contains("Node old-1"), "{said}");
    // The pod that was on its way arrives, which is when the next one would go.
    let what = "db-2 to count as moved, and the others to be held";
    let held = story
        .until(what, |r| r.pods == "1/3" && r.stage == "Blocked")
        .await;
    assert!(held.blockers[0].starts_with("Uncordoned "), "{held:#?}");
    let places = world.places("db").await;
    let nodes: Vec<_> = places.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!(nodes, ["old-1", "old-1", "spare"]);

    let cordoned = Timestamp::now();
    world.kubectl(&["cordon", "old-1"]).await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");

    let verdict = recording.judge(&world).await;
    let times: Vec<_> = verdict
        .evictions()
        .iter()
        .map(|e| (e.at, e.name.clone()))
        .collect();
    let meanwhile = times
        .iter()
        .filter(|(at, _)| (uncordoned..=cordoned).contains(at));
    assert_eq!(meanwhile.collect::<Vec<_>>(), Vec::<&_>::new());
    let order: Vec<_> = times.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(order, ["db-2", "db-1", "db-0"]);
    verdict.moved_once(3);
    verdict.is_clean();
    // It is the person's cordon now as much as ours was; `Keep` leaves it in either case.
    assert!(world.is_cordoned("old-1").await);
}
