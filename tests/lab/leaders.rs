//! Two operators: one leads and writes, the other stands by, and takes over when the first is gone.

use std::collections::BTreeMap;
use std::fs;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use lab::fixtures::{self, Pods};
use lab::judge::AuditEvent;
use lab::operator::Operator;
use lab::{NotYet, wait_until};
use serde_json::Value;

use crate::world::{ACCOUNT, PATIENCE, Verdict, World, is_ready, node_of};

/// A database of three on an old node, room on another, and two operators, of which the first leads.
async fn two_operators() -> (World, Operator, Operator) {
    let world = World::start().await;
    world.nodes(&[("old-1", "3")]).await;
    let db = fixtures::stateful_set("db", 3)
        .requests("1", "64Mi")
        .ready_after(3);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "3")]).await;
    let leader = world.operator().await;
    let other = world.operator_as("relocator-stands-by").await;
    (world, leader, other)
}

async fn first_pod_moved(world: &World) {
    let one_moved = |pods: &[Pod]| {
        let moved = pods
            .iter()
            .any(|pod| node_of(pod) == "spare" && is_ready(pod));
        moved.then_some(())
    };
    world.pods_until("one pod to have moved", one_moved).await;
}

/// The leader is killed while a pod moves. Its lease runs out, the other one ends what it began.
#[tokio::test(flavor = "multi_thread")]
async fn case_135_the_one_that_stands_by_ends_what_a_killed_leader_began() {
    let (world, mut leader, mut other) = two_operators().await;
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);

    let mut story = world.relocate("move", "{nodes: {names: [old-1]}}").await;
    story.stage("Moving").await;
    first_pod_moved(&world).await;
    // The other one has been there all along: it has asked for the lease, and has not got it.
    other.check().unwrap();
    leader.process().kill().unwrap();

    other.wait_leading(&world.lab).await.unwrap();
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");

    let verdict = recording.judge(&world).await;
    verdict.moved_once(3);
    verdict.is_clean();
    handed_over_once(&world, &verdict);
}

/// The leader is stopped while a pod moves, for longer than its lease, and then goes on in the middle of what it did, not knowing that
/// another leads. It finds out before it writes anything.
#[tokio::test(flavor = "multi_thread")]
async fn case_135_a_leader_that_wakes_up_after_its_lease_writes_nothing_more() {
    let (world, mut leader, mut other) = two_operators().await;
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);

    let mut story = world.relocate("move", "{nodes: {names: [old-1]}}").await;
    story.stage("Moving").await;
    let on_its_way = |pods: &[Pod]| {
        let arrives = pods
            .iter()
            .any(|pod| node_of(pod) == "spare" && !is_ready(pod));
        arrives.then_some(())
    };
    world.pods_until("a pod on its way", on_its_way).await;
    leader.process().pause().unwrap();
    other.wait_leading(&world.lab).await.unwrap();
    // Two pods are still to be moved: there is enough that both could do.
    let left = world.places("db").await;
    let left = left.iter().filter(|(_, node)| node == "old-1");
    assert!(left.count() > 0, "the other one has done it all by now");
    leader.process().resume().unwrap();
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");
    wait_until(
        "the first one to end, which leads no more",
        PATIENCE,
        || {
            let ended = leader.ended().unwrap();
            async move { ended.ok_or_else(|| NotYet::because("it runs")) }
        },
    )
    .await
    .unwrap();

    let verdict = recording.judge(&world).await;
    verdict.moved_once(3);
    verdict.is_clean();
    assert_eq!(verdict.evictions().len(), 3, "one for each");
    handed_over_once(&world, &verdict);
}

/// The leader is stopped between two of many writes, and goes on with the rest when another has long led. Not one of them is sent.
#[tokio::test(flavor = "multi_thread")]
async fn case_135_a_leader_stopped_between_two_writes_does_not_make_the_second() {
    const NODES: usize = 150;
    let world = World::start().await;
    let group = [("group", "old")];
    world
        .lab
        .put(&fixtures::fake_node("old-0", "1", &group))
        .await
        .unwrap();
    let db = fixtures::stateful_set("db", 1).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    // Empty ones, each of which is to be claimed, which is done one after the other.
    let names: Vec<_> = (0..NODES).map(|n| format!("old-{n}")).collect();
    for name in &names[1..] {
        let node = fixtures::fake_node(name, "1", &group);
        world.lab.put(&node).await.unwrap();
    }
    for name in &names {
        fixtures::wait_node_ready(&world.lab, name).await.unwrap();
    }
    world.nodes(&[("spare", "1")]).await;
    let mut leader = world.operator().await;
    let mut other = world.operator_as("relocator-stands-by").await;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let recording = world.record(&names).await.stay_cordoned(&names);

    let spec = "{nodes: {selector: {matchLabels: {group: old}}, limit: 200}, afterDrain: Keep}";
    let mut story = world.relocate("move", spec).await;
    let claimed = async || {
        let nodes: Vec<Node> = world.list().await;
        let key = "relocation.sh/claimed-by";
        nodes
            .iter()
            .filter(|n| n.annotations().contains_key(key))
            .count()
    };
    wait_until("the first claim", PATIENCE, || async {
        let some = claimed().await > 0;
        some.then_some(()).ok_or_else(|| NotYet::because("none"))
    })
    .await
    .unwrap();
    leader.process().pause().unwrap();
    let by_then = claimed().await;
    assert!(
        by_then < NODES,
        "it was stopped too late to have more to do"
    );
    other.wait_leading(&world.lab).await.unwrap();
    story.stage("Moving").await;
    leader.process().resume().unwrap();
    let end = story.succeeds().await;
    assert_eq!(end.nodes, format!("{NODES}/{NODES}"));
    wait_until(
        "the first one to end, which leads no more",
        PATIENCE,
        || {
            let ended = leader.ended().unwrap();
            async move { ended.ok_or_else(|| NotYet::because("it runs")) }
        },
    )
    .await
    .unwrap();

    let verdict = recording.judge(&world).await;
    println!("stopped after {by_then} of {NODES} claims");
    verdict.moved_once(1);
    verdict.is_clean();
    handed_over_once(&world, &verdict);
}

/// One wrote, and then the other: the first nothing after the second had the lease, the second nothing before.
///
/// The moment at which the first was stopped says nothing: what it had sent just before, the API server answers just after.
///
/// The two have one account and one user agent; what tells them apart is the token that each was started with.
fn handed_over_once(world: &World, verdict: &Verdict) {
    let tokens = tokens(world);
    let token = |event: &AuditEvent| tokens[&event.id].as_str();
    let writes = verdict.writes();
    let mut authors: Vec<_> = writes.iter().map(|write| token(write)).collect();
    authors.dedup();
    let [first, second] = authors[..] else {
        panic!("one wrote, and then the other, not {authors:?}");
    };
    assert_ne!(first, second);
    let took_over = verdict
        .history
        .audit
        .iter()
        .find(|e| {
            e.is_lease()
                && e.is_write()
                && e.succeeded()
                && tokens.get(&e.id).is_some_and(|t| t == second)
        })
        .unwrap();
    for write in writes {
        if token(write) == first {
            assert!(write.at <= took_over.at, "{write}, after {took_over}");
        } else {
            assert!(write.at >= took_over.at, "{write}, before {took_over}");
        }
    }
}

/// By audit id, the token with which the operators made their requests.
fn tokens(world: &World) -> BTreeMap<String, String> {
    let log = fs::read_to_string(world.lab.audit_log()).unwrap();
    let events = log.lines().map(serde_json::from_str::<Value>);
    let ours = events
        .filter_map(Result::ok)
        .filter(|event| event["user"]["username"] == ACCOUNT);
    ours.map(|event| {
        let token = &event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0];
        let token = token.as_str().expect("a token's id").to_owned();
        (event["auditID"].as_str().unwrap().to_owned(), token)
    })
    .collect()
}
