//! Writes are for what the relocation does. In a stable state there are none, and what goes on elsewhere in the cluster does not add any.

use std::fmt::Write;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use lab::fixtures::{self, Pods};
use lab::judge::{AuditEvent, Identity, read_audit_log};
use lab::{NotYet, wait_until};
use serde_json::json;

use crate::world::{PATIENCE, World};

/// Pods that have nothing to do with any relocation, on nodes that no pod of theirs fits on.
const UNRELATED: usize = 320;

async fn unrelated_pods(world: &World) {
    let nodes: Vec<_> = (0..4).map(|i| format!("noise-{i}")).collect();
    for name in &nodes {
        let node = fixtures::fake_node(name, "100", &[("room", "noise")]);
        world.lab.put(&node).await.unwrap();
    }
    let replicas = i32::try_from(UNRELATED).unwrap();
    let noise = fixtures::deployment("noise", replicas).on_nodes("room", "noise");
    world.lab.put(&noise).await.unwrap();
}

/// Changes each of the unrelated pods once. Returns how many there were.
async fn touch(world: &World, round: usize) -> usize {
    let pods: Api<Pod> = world.api().await;
    let noise = ListParams::default().labels("app=noise");
    let names: Vec<_> = pods.list(&noise).await.unwrap().items;
    let params = PatchParams::default();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"round": round.to_string()}}}));
    let patches = names.iter().map(|pod| {
        pods.patch(
            pod.metadata.name.as_deref().unwrap_or_default(),
            &params,
            &patch,
        )
    });
    // One that has gone meanwhile is a change as well.
    let touched: Vec<_> = futures::stream::iter(patches)
        .buffer_unordered(16)
        .collect()
        .await;
    touched.len()
}

/// The operator's requests since then.
async fn requests(world: &World, since: Timestamp) -> Vec<AuditEvent> {
    let mut all = read_audit_log(&world.lab.audit_log(), since).await.unwrap();
    all.retain(|e| Identity::relocator().made(e) && !e.is_lease());
    all
}

fn in_lines<'a>(events: impl IntoIterator<Item = &'a AuditEvent>) -> String {
    events.into_iter().fold(String::new(), |mut text, event| {
        let _infallible = writeln!(text, "{event}");
        text
    })
}

/// One relocation is blocked before it has begun, another waits for room. Then hundreds of pods come, and change.
#[tokio::test(flavor = "multi_thread")]
async fn blocked_or_waiting_it_writes_nothing_whatever_goes_on_elsewhere() {
    let world = World::start().await;
    // The last is a node that the database could run on, were there any room on it: without one nothing would begin.
    for (name, cpu, room) in [
        ("old-1", "4", "old-1"),
        ("old-2", "2", "old-2"),
        ("full", "0", "old-2"),
    ] {
        let node = fixtures::fake_node(name, cpu, &[("room", room)]);
        world.lab.put(&node).await.unwrap();
    }
    let legacy = fixtures::bare_pod("legacy").on_nodes("room", "old-1");
    world.lab.put(&legacy).await.unwrap();
    let db = fixtures::stateful_set("db", 2).requests("1", "64Mi");
    world.lab.put(&db.on_nodes("room", "old-2")).await.unwrap();
    world.settled().await;
    let _operator = world.operator().await;
    let mut blocked = world.relocate("blocked", "{nodes: {names: [old-1]}}").await;
    blocked.blocked("UnmanagedPod").await;
    let mut waits = world.relocate("waits", "{nodes: {names: [old-2]}}").await;
    // The first flood comes while it still writes; the second finds it where it stays.
    unrelated_pods(&world).await;
    let available = [
        "wait",
        "--for=condition=Available",
        "--timeout=2m",
        "deployment/noise",
    ];
    world.kubectl(&available).await;
    let what = "the scheduler to have said that there is no room, and the status to say so";
    waits
        .until(what, |r| {
            let has = |words| r.message.contains(words);
            r.stage == "Provisioning" && has("0 of 2 placeholders") && has("nodes are available")
        })
        .await;

    // The namespace and the priority class of the placeholders are read again in a pass of a relocation that has not begun, when the
    // last read is 5 s old. So the second read of them is in a pass that came after all the changes of the round before.
    let since = Timestamp::now();
    let mut round = 0;
    let (requests, touched) = wait_until("two more looks of the operator", PATIENCE, || {
        round += 1;
        let world = &world;
        async move {
            let touched = touch(world, round).await;
            let requests = requests(world, since).await;
            let looks = requests.iter().filter(|e| e.resource == "priorityclasses");
            match looks.count() {
                0..3 => Err(NotYet(in_lines(&requests))),
                _ => Ok((requests, touched * round)),
            }
        }
    })
    .await
    .unwrap();
    println!("{touched} changes, {} requests", requests.len());
    assert!(touched >= 2 * UNRELATED, "{touched}");
    let writes: Vec<_> = requests.iter().filter(|e| e.is_write()).collect();
    assert!(writes.is_empty(), "{}", in_lines(writes));
    for (story, stage) in [(&blocked, "Blocked"), (&waits, "Provisioning")] {
        assert_eq!(story.follower.last().unwrap().stage, stage);
    }
    blocked.deleted().await;
    waits.deleted().await;
}

/// The same relocation twice, the second time amid hundreds of pods that come and change.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_other_pods_does_not_add_writes() {
    let world = World::start().await;
    for room in ["calm", "flood"] {
        let labels = [("room", room)];
        let old = fixtures::fake_node(&format!("{room}-old"), "6", &labels);
        world.lab.put(&old).await.unwrap();
        let db = fixtures::stateful_set(&format!("{room}-db"), 4).ready_after(1);
        world.lab.put(&db.on_nodes("room", room)).await.unwrap();
        let web = fixtures::deployment(&format!("{room}-web"), 2).ready_after(1);
        world.lab.put(&web.on_nodes("room", room)).await.unwrap();
    }
    world.settled().await;
    for room in ["calm", "flood"] {
        let spare = fixtures::fake_node(&format!("{room}-spare"), "6", &[("room", room)]);
        world.lab.put(&spare).await.unwrap();
    }
    let _operator = world.operator().await;

    let mut writes = Vec::new();
    for room in ["calm", "flood"] {
        let since = Timestamp::now();
        let spec = format!("{{nodes: {{names: [{room}-old]}}, afterDrain: Keep}}");
        let mut story = world.relocate(room, &spec).await;
        if room == "flood" {
            unrelated_pods(&world).await;
        }
        let mut round = 0;
        while !story.follower.last().is_some_and(|r| r.is_over()) {
            if room == "flood" {
                round += 1;
                touch(&world, round).await;
            } else {
                story.succeeds().await;
            }
        }
        let end = story.follower.last().unwrap();
        assert_eq!(
            (end.stage.as_str(), end.pods.as_str()),
            ("Succeeded", "6/6")
        );
        let mut requests = requests(&world, since).await;
        requests.retain(|e| e.is_write() && e.at <= Timestamp::now());
        writes.push((room, round, requests));
    }
    let counts: Vec<_> = writes
        .iter()
        .map(|(room, round, w)| (*room, *round, w.len()))
        .collect();
    println!("{counts:?}");
    let (calm, flood) = (writes[0].2.len(), writes[1].2.len());
    assert!(writes[1].1 > 0, "or there was no flood");
    // Every write is a step of a pod, a node or the relocation, which are as many in both. Only the words of the status may be written a
    // few times more or less often, as steps fall together or apart: by a quarter, when a pass for each of hundreds of changes that wrote
    // something would make it many times as much.
    assert!(
        flood * 4 <= calm * 5,
        "{counts:?}\n{}\n---\n{}",
        in_lines(&writes[0].2),
        in_lines(&writes[1].2)
    );
}
