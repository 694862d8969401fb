//! Stopping a relocation by its own fields: suspend, a deadline, what a failure leaves behind, and its own end of life.

use k8s_openapi::jiff::Timestamp;
use lab::fixtures::{self, Pods};
use lab::judge::AuditEvent;

use crate::world::{PATIENCE, World, condition, is_ready, node_of, only_tells};

/// A database of two on an old node, with a spare node that has room when it is asked for.
async fn a_database(spare: bool) -> World {
    let world = World::start().await;
    world.nodes(&[("old", "3")]).await;
    let db = fixtures::stateful_set("db", 2)
        .requests("1", "64Mi")
        .ready_after(2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    if spare {
        world.nodes(&[("spare", "3")]).await;
    }
    world
}

async fn suspend(world: &World, name: &str, suspend: bool) {
    let patch = format!("{{\"spec\":{{\"suspend\":{suspend}}}}}");
    world
        .kubectl(&["patch", "nrel", name, "--type=merge", "-p", &patch])
        .await;
}

/// Suspended from the beginning it begins nothing; suspended in the middle, the pod on the move finishes and no other follows; and each
/// time it goes on when it is told to.
#[tokio::test(flavor = "multi_thread")]
async fn suspended_it_begins_nothing_and_goes_on_when_told() {
    let world = a_database(true).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await;

    let mut story = world
        .relocate("later", "{nodes: {names: [old]}, suspend: true}")
        .await;
    let suspended = story.stage("Suspended").await;
    assert!(suspended.status["startTime"].is_null(), "it has not begun");
    assert!(
        condition(&suspended, "Stalled").is_none(),
        "a person's will is no fault"
    );

    suspend(&world, "later", false).await;
    story.stage("Moving").await;
    world
        .pods_until("db-1 to come to the spare node", |pods| {
            let arrives = pods.iter().any(|p| node_of(p) == "spare" && !is_ready(p));
            arrives.then_some(())
        })
        .await;
    suspend(&world, "later", true).await;
    story.stage("Suspended").await;
    world
        .pods_until("db-1 to be Ready on the spare node", |pods| {
            let ready = pods.iter().any(|p| node_of(p) == "spare" && is_ready(p));
            ready.then_some(())
        })
        .await;
    let still = Timestamp::now();
    // The operator has seen that db-1 is Ready when it says that one pod has moved.
    story
        .until("one pod to have moved", |r| r.pods == "1/2")
        .await;
    let places = world.places("db").await;
    assert_eq!(
        places,
        [
            ("db-0".into(), "old".into()),
            ("db-1".into(), "spare".into())
        ]
    );
    let going_on = Timestamp::now();

    suspend(&world, "later", false).await;
    story.succeeds().await;
    let verdict = recording.stay_cordoned(&["old"]).judge(&world).await;
    verdict.is_clean();
    verdict.moved_once(2);
    let deeds: Vec<_> = verdict
        .writes_between(still, going_on)
        .into_iter()
        .filter(|w| !only_tells(w))
        .collect();
    assert!(deeds.is_empty(), "while suspended: {deeds:?}");
}

/// There is no room, and the deadline passes: it fails, says why, and everything is as before.
#[tokio::test(flavor = "multi_thread")]
async fn case_121_past_its_deadline_everything_is_put_back() {
    let world = a_database(false).await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;

    let spec = "{nodes: {names: [old]}, activeDeadlineSeconds: 5}";
    let mut story = world.relocate("in-time", spec).await;
    let end = story.follower.over(crate::world::PATIENCE).await.unwrap();
    assert_eq!(end.stage, "Failed");
    let (status, reason, message) = condition(&end, "Succeeded").unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "DeadlineExceeded")
    );
    assert!(message.contains("activeDeadlineSeconds"), "{message}");
    assert_eq!(
        before.differences(&world.snapshot().await),
        Vec::<String>::new()
    );
}

/// One of two nodes was cordoned by a person. That it was is in the status before anything is cordoned, and when the relocation has failed
/// it still is, and the other is not.
#[tokio::test(flavor = "multi_thread")]
async fn case_119_the_cordon_of_a_person_stays_when_it_fails() {
    let world = World::start().await;
    world.nodes(&[("old-1", "2"), ("old-2", "2")]).await;
    let db = fixtures::stateful_set("db", 4).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.kubectl(&["cordon", "old-1"]).await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1", "old-2"]).await;

    let spec = "{nodes: {names: [old-1, old-2]}, activeDeadlineSeconds: 5}";
    let mut story = world.relocate("in-time", spec).await;
    let end = story.follower.over(crate::world::PATIENCE).await.unwrap();
    assert_eq!(end.stage, "Failed");
    let was: Vec<_> = (0..2)
        .map(|n| end.status["nodes"][n]["wasUnschedulable"] == true)
        .collect();
    // Not there means that it was not.
    assert_eq!(was, [true, false]);
    assert!(world.is_cordoned("old-1").await);
    assert_eq!(
        before.differences(&world.snapshot().await),
        Vec::<String>::new()
    );

    let verdict = recording.judge(&world).await;
    let writes = verdict.writes();
    let recorded = |e: &&&AuditEvent| {
        let body = e.body.as_ref();
        let nodes = body.and_then(|b| b["status"]["nodes"].as_array());
        nodes.is_some_and(|nodes| nodes.iter().any(|n| n["wasUnschedulable"] == true))
    };
    let recorded = writes.iter().find(recorded).unwrap();
    let cordons: Vec<_> = writes
        .iter()
        .filter(|e| e.target() == "nodes")
        .filter(|e| e.body.as_ref().unwrap()["spec"]["unschedulable"] == true)
        .collect();
    let names: Vec<_> = cordons.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["old-2"], "old-1 is cordoned already");
    assert!(
        recorded.done <= cordons[0].at,
        "{recorded}, then {}",
        cordons[0]
    );
    verdict.is_clean();
}

/// The same with Hold: our cordon stays, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn case_121_with_hold_only_the_cordon_stays() {
    let world = a_database(false).await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;

    let spec = "{nodes: {names: [old]}, replacement: {timeoutSeconds: 30}, activeDeadlineSeconds: 5, onFailure: Hold}";
    let mut story = world.relocate("held", spec).await;
    let end = story.follower.over(crate::world::PATIENCE).await.unwrap();
    assert_eq!(end.stage, "Failed");
    let differences = before.differences(&world.snapshot().await);
    // A cordon is the field and the taint that Kubernetes sets by it.
    assert!(world.is_cordoned("old").await);
    let others: Vec<_> = differences
        .iter()
        .filter(|d| !d.starts_with("Node old: spec."))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

/// A finished relocation goes by itself when its time has come.
#[tokio::test(flavor = "multi_thread")]
async fn a_finished_relocation_goes_when_its_time_has_come() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let spec = "{nodes: {names: [never-was]}, ttlSecondsAfterFinished: 1}";
    let mut story = world.relocate("brief", spec).await;
    story.succeeds().await;
    story.follower.gone(PATIENCE).await.unwrap();
}
