//! Something stands in the way that is known before anything is touched: it is named, and the way is taken up by itself
//! once it is free.

use jiff::Timestamp;
use lab::fixtures;

use crate::world::{World, condition, deeds};

/// A person has left a pod that nothing would make again, between pods that can move.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_nothing_recreates_blocks_until_it_is_gone() {
    let world = World::start().await;
    world.nodes(&[("old-1", "8")]).await;
    world
        .lab
        .put(&fixtures::stateful_set("db", 2))
        .await
        .unwrap();
    world.lab.put(&fixtures::bare_pod("legacy")).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;
    // The node has no NodeClaim: it stays cordoned for its autoscaler.
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);

    let mut story = world.relocate("move", "{nodes: {names: [old-1]}}").await;
    let said = story.blocked("UnmanagedPod").await;
    assert!(said.contains("Pod default/legacy"), "{said}");
    let blocked = story.follower.last().unwrap();
    assert_eq!(blocked.stage, "Blocked");
    assert_eq!(blocked.blockers.len(), 1, "{:?}", blocked.blockers);
    assert_eq!(condition(&blocked, "Stalled").unwrap().0, "True");
    assert_eq!(condition(&blocked, "Reconciling"), None);
    // Nothing was touched: not the node, not the pods that could have moved.
    let meanwhile = world.snapshot().await;
    assert_eq!(before.differences(&meanwhile), Vec::<String>::new());

    let freed = Timestamp::now();
    world.kubectl(&["delete", "pod", "legacy"]).await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "2/2", "the database, and nothing else");
    assert_eq!(end.blockers, Vec::<String>::new());

    let verdict = recording.judge(&world).await;
    let while_blocked = verdict.writes_between(verdict.history.started, freed);
    assert_eq!(deeds(&while_blocked), Vec::<String>::new());
    verdict.is_clean();
    let moved = world.places("db").await;
    assert!(moved.iter().all(|(_, node)| node == "spare"), "{moved:?}");
}
