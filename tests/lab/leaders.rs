//! Two operators: one leads and writes, the other stands by, and takes over when the first is gone.

use std::collections::BTreeMap;
use std::fs;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use lab::fixtures::{self, Pods};
use lab::judge::AuditEvent;
use serde_json::Value;

use crate::world::{ACCOUNT, World, is_ready, node_of};

/// The leader is killed while a pod moves. Its lease runs out, the other one ends what it began.
#[tokio::test(flavor = "multi_thread")]
async fn the_one_that_stands_by_ends_what_a_killed_leader_began() {
    let world = World::start().await;
    world.nodes(&[("old-1", "3")]).await;
    let db = fixtures::stateful_set("db", 3)
        .requests("1", "64Mi")
        .ready_after(1);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "3")]).await;
    let mut leader = world.operator().await;
    let mut other = world.operator_as("relocator-stands-by").await;
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);

    let mut story = world.relocate("move", "{nodes: {names: [old-1]}}").await;
    story.stage("Moving").await;
    let one_moved = |pods: &[Pod]| {
        let moved = pods
            .iter()
            .any(|pod| node_of(pod) == "spare" && is_ready(pod));
        moved.then_some(())
    };
    world.pods_until("one pod to have moved", one_moved).await;
    // The other one has been there all along: it has asked for the lease, and has not got it.
    other.check().unwrap();
    leader.process().kill().unwrap();
    let killed = Timestamp::now();

    other.wait_leading(&world.lab).await.unwrap();
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");

    let verdict = recording.judge(&world).await;
    verdict.moved_once(3);
    verdict.is_clean();
    // The two have one account and one user agent; what tells them apart is the token that each was started with.
    let tokens = tokens(&world);
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
            assert!(write.at <= killed, "{write}, after it was killed");
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
