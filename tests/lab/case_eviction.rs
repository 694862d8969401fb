//! What the API server is sent for an eviction.

use lab::fixtures::{self, Pods};
use serde_json::Value;

use crate::world::World;

/// Half an hour of grace is the pod's to use: the request names its UID, and no grace period of ours.
#[tokio::test(flavor = "multi_thread")]
async fn case_37_an_eviction_leaves_the_pod_its_grace_period() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let db = fixtures::stateful_set("db", 2).grace(1800).ends_after(1);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    world
        .relocate("move", "{nodes: {names: [old]}}")
        .await
        .succeeds()
        .await;

    let verdict = recording.judge(&world).await;
    verdict.moved_once(2);
    verdict.is_clean();
    let evictions = verdict.evictions();
    assert!(evictions.len() >= 2, "{evictions:#?}");
    for eviction in evictions {
        let body = eviction.body.as_ref().expect("the audit log has bodies");
        let options = &body["deleteOptions"];
        assert!(options["preconditions"]["uid"].is_string(), "{body}");
        let grace = options.get("gracePeriodSeconds");
        assert!(grace.is_none_or(Value::is_null), "{body}");
    }
}
