//! Two relocations at once: never on one node, and never two pods of a `StatefulSet`.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use lab::fixtures::{self, Pods};
use lab::{NotYet, wait_until};

use crate::world::{PATIENCE, World, condition};

const CLAIMED_BY: &str = "relocation.sh/claimed-by";

/// Two people ask for the same node. The first has it; the second waits, and then has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn case_123_the_second_relocation_of_a_node_waits_for_the_first() {
    let world = World::start().await;
    world.nodes(&[("old-1", "4")]).await;
    let db = fixtures::stateful_set("db", 2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);

    // There is no room yet, so the first one waits for it, holding the node.
    let spec = "{nodes: {names: [old-1]}, afterDrain: Keep}";
    let mut first = world.relocate("first", spec).await;
    first.stage("Provisioning").await;
    let mut second = world.relocate("second", spec).await;
    let said = second.blocked("NodeClaimedByOther").await;
    assert!(said.contains("Node old-1"), "{said}");
    assert!(said.contains("NodeRelocation first"), "{said}");
    let blocked = second.follower.last().unwrap();
    assert_eq!(blocked.stage, "Blocked");

    world.nodes(&[("spare", "4")]).await;
    first.succeeds().await;
    // Of itself, without anybody touching it: the node is empty, and kept.
    let end = second.succeeds().await;
    let (_, reason, message) = condition(&end, "Succeeded").unwrap();
    assert_eq!(reason, "NothingToDo", "{message}");
    assert_eq!(end.blockers, Vec::<String>::new());

    let verdict = recording.judge(&world).await;
    verdict.moved_once(2);
    verdict.is_clean();
}

/// Both are there in one moment. One of them gets the node, and keeps it over a crash; when that one is deleted the other gets it.
#[tokio::test(flavor = "multi_thread")]
async fn case_123_the_claim_outlives_a_crash_and_passes_on_at_a_deletion() {
    let world = World::start().await;
    world.nodes(&[("old-1", "4")]).await;
    let db = fixtures::stateful_set("db", 2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);
    let spec = "{nodes: {names: [old-1]}, afterDrain: Keep}";
    let one = world.relocate("one", spec).await;
    let two = world.relocate("two", spec).await;
    let mut operator = world.operator().await;

    let claim = async || {
        let holder = |node: &Node| node.annotations().get(CLAIMED_BY).cloned();
        let what = "the node to be claimed";
        wait_until(what, PATIENCE, || async {
            let node = world.node("old-1").await;
            holder(&node).ok_or_else(|| NotYet::because("it is not"))
        })
        .await
        .unwrap()
    };
    let held = claim().await;
    let (mut first, mut second) = if held.starts_with("one/") {
        (one, two)
    } else {
        (two, one)
    };
    let said = second.blocked("NodeClaimedByOther").await;
    assert!(
        said.contains(&format!("NodeRelocation {} ", first.name)),
        "{said}"
    );
    operator.process().kill().unwrap();
    let mut operator = world.operator_as(operator.identity()).await;
    operator.wait_leading(&world.lab).await.unwrap();
    // There is no room, so both wait: one for that, the other for the first.
    first.stage("Provisioning").await;
    assert_eq!(claim().await, held);

    first.deleted().await;
    second.stage("Provisioning").await;
    assert!(claim().await.starts_with(&format!("{}/", second.name)));
    world.nodes(&[("spare", "4")]).await;
    let end = second.succeeds().await;
    assert_eq!(end.pods, "2/2");
    assert_eq!(end.blockers, Vec::<String>::new());
    let verdict = recording.judge(&world).await;
    verdict.moved_once(2);
    // That the claim was given up in between is one of the invariants.
    verdict.is_clean();
}

/// The first has a place for one of its pods on a node that the second then empties: it gives the place up and asks for another. Neither
/// stands in the way of the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_on_a_node_that_another_relocation_empties_is_given_up() {
    let world = World::start().await;
    world.nodes(&[("old-1", "2")]).await;
    let db = fixtures::stateful_set("db", 2).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("old-2", "2")]).await;
    let web = fixtures::deployment("web", 1).requests("1", "64Mi");
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    let _operator = world.operator().await;
    let nodes = ["old-1", "old-2"];
    let recording = world.record(&nodes).await.stay_cordoned(&nodes);

    let spec = |node| format!("{{nodes: {{names: [{node}]}}, afterDrain: Keep}}");
    let mut first = world.relocate("first", &spec("old-1")).await;
    let placed = |places: u32| {
        move |r: &lab::operator::Relocation| {
            let replacement = &r.status["replacement"];
            replacement["placeholdersWanted"] == 2 && replacement["placeholdersPlaced"] == places
        }
    };
    first.until("one of two places, on old-2", placed(1)).await;
    let mut second = world.relocate("second", &spec("old-2")).await;
    first.until("the place on old-2 given up", placed(0)).await;
    world.nodes(&[("spare", "4")]).await;
    first.succeeds().await;
    let end = second.succeeds().await;
    assert_eq!(end.pods, "1/1");

    let verdict = recording.judge(&world).await;
    verdict.moved_once(3);
    verdict.is_clean();
}

/// Two nodes with halves of one database, each emptied by a relocation of its own, at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn two_relocations_never_take_two_pods_of_a_database() {
    let world = World::start().await;
    // Two pods of one CPU fill each of them: what leaves one can't land on the other.
    world.nodes(&[("old-1", "2"), ("old-2", "2")]).await;
    // No budget: nobody but relocator keeps count. Slow enough to be down for a while.
    let db = fixtures::stateful_set("db", 4)
        .requests("1", "64Mi")
        .ready_after(1)
        .ends_after(1);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    let _operator = world.operator().await;
    let nodes = ["old-1", "old-2"];
    let recording = world.record(&nodes).await.stay_cordoned(&nodes);

    // Both hold their node and wait for room, so that they move at the same time when it comes.
    let mut one = world
        .relocate("one", "{nodes: {names: [old-1]}, afterDrain: Keep}")
        .await;
    let mut two = world
        .relocate("two", "{nodes: {names: [old-2]}, afterDrain: Keep}")
        .await;
    one.stage("Provisioning").await;
    two.stage("Provisioning").await;
    world.nodes(&[("spare", "4")]).await;
    let moved = (one.succeeds().await.pods, two.succeeds().await.pods);
    assert_eq!(moved, ("2/2".to_owned(), "2/2".to_owned()));

    let verdict = recording.judge(&world).await;
    verdict.moved_once(4);
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    verdict.is_clean();
}
