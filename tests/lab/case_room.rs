//! What a node has to have for a pod beyond what the scheduler counts for its placeholder: attachments of volumes, and room that is left
//! when its own `DaemonSet` pods have come.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use lab::LabOptions;
use lab::fixtures::{self, Pods};
use lab::judge::{History, Kind, State};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::case_volumes::{at_departures, disk, volume, with_disks};
use crate::world::World;

/// What the node part of the driver does on each node that comes: it registers, with two volumes at most.
async fn register(world: &World) -> JoinHandle<()> {
    let client = world.lab.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let registered: Api<CSINode> = Api::all(client);
    tokio::spawn(async move {
        let came = watcher(nodes, watcher::Config::default()).applied_objects();
        let each = came.try_for_each(|node| {
            let registered = registered.clone();
            async move {
                let object = json!({
                    "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node.name_any()},
                    "spec": {"drivers": [{
                        "name": "csi.example.com", "nodeID": node.name_any(), "allocatable": {"count": 2},
                    }]},
                });
                let object: CSINode = serde_json::from_value(object).unwrap();
                match registered.create(&PostParams::default(), &object).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(answer)) if answer.is_already_exists() => {}
                    Err(error) => panic!("CSINode of {}: {error}", node.name_any()),
                }
                Ok(())
            }
        });
        each.await.unwrap();
    })
}

/// How many placeholders each node had when the first pod began to leave.
fn places_kept(history: &History, pods: &str) -> BTreeMap<String, usize> {
    let mut departures = at_departures(history, pods, placeholders_by_node);
    departures.swap_remove(0).1
}

fn placeholders_by_node(state: &State) -> BTreeMap<String, usize> {
    let mut kept = BTreeMap::new();
    let placeholders = state.all(Kind::Pod);
    let placeholders =
        placeholders.filter(|p| p.namespace == "relocator-placeholders" && !p.terminating);
    for node in placeholders.filter_map(|p| p.pod()?.node.clone()) {
        *kept.entry(node).or_default() += 1;
    }
    kept
}

/// Three databases with a disk each come from one node to nodes that attach two disks at most, and have room for all three. Karpenter makes
/// one node for their placeholders, and the third is made again elsewhere before any of them leaves.
#[tokio::test(flavor = "multi_thread")]
async fn case_76_places_are_on_as_many_nodes_as_the_volumes_need() {
    let world = World::with_karpenter(LabOptions::default()).await;
    fixtures::apply_node_pool(&world.lab).await.unwrap();
    for pod in ["db-0", "db-1", "db-2"] {
        volume(&world, &format!("data-{pod}"), &disk(), None).await;
    }
    let db = fixtures::stateful_set("db", 3).on_nodes("NodeGroupName", "apps");
    world.lab.put(&with_disks(db)).await.unwrap();
    world.settled().await;
    let old: Vec<Node> = world.list().await;
    let [old] = &old[..] else {
        panic!("one node has room for all: {old:?}");
    };
    let old = old.name_any();
    let registering = register(&world).await;
    let _operator = world.operator().await;
    let recording = world.record(&[&old]).await;

    let mut story = world.relocate("move", "{nodes: {nodePools: [apps]}}").await;
    let end = story.succeeds().await;
    assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("1/1", "3/3"));
    registering.abort();
    let mut on: BTreeMap<String, usize> = BTreeMap::new();
    for (_, node) in world.places("db").await {
        *on.entry(node).or_default() += 1;
    }
    let verdict = recording.judge(&world).await;
    let kept = places_kept(&verdict.history, "db-");
    let mut places: Vec<_> = kept.values().copied().collect();
    places.sort_unstable();
    assert_eq!(places, [1, 2], "{kept:?}");
    assert!(on.keys().eq(kept.keys()), "{on:?} and places {kept:?}");
    assert!(on.values().all(|pods| *pods <= 2), "{on:?}");
    assert_eq!(verdict.card.nodes.made, 2, "{:?}", verdict.card.nodes);
    verdict.moved_once(3);
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    verdict.is_clean();
}

/// While the place of one pod is there and that of another is not, a `DaemonSet` comes and takes the room of the first. It is no place any
/// more, nothing leaves, and when there is room for both, each moves once.
#[tokio::test(flavor = "multi_thread")]
async fn case_81_a_place_that_a_daemon_set_takes_is_made_again_before_its_pod_leaves() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let db = fixtures::stateful_set("db", 2).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("small", "1")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, afterDrain: Keep}";
    let mut story = world.relocate("move", spec).await;
    let one = |r: &lab::operator::Relocation| r.message.contains("1 of 2 placeholders");
    story.until("one place to be there", one).await;
    let agent = fixtures::daemon_set("agent").requests("1", "64Mi");
    let agent = agent.on_nodes("kubernetes.io/hostname", "small");
    world.lab.put(&agent).await.unwrap();
    let none = |r: &lab::operator::Relocation| r.message.contains("0 of 2 placeholders");
    let waits = story.until("the place to be taken", none).await;
    assert_eq!(waits.stage, "Provisioning");
    world.nodes(&[("new-1", "1"), ("new-2", "1")]).await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "2/2");
    let places = world.places("agent").await;
    assert!(places.iter().all(|(_, node)| node == "small"), "{places:?}");

    let verdict = recording.judge(&world).await;
    let kept = places_kept(&verdict.history, "db-");
    let new = [("new-1".to_owned(), 1), ("new-2".to_owned(), 1)];
    assert_eq!(kept, new.into());
    assert_eq!(verdict.evicted(), ["db-1", "db-0"]);
    verdict.moved_once(2);
    verdict.is_clean();
}
