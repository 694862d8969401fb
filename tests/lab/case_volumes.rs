//! Pods with persistent volumes. KWOK has no storage: the volumes are made by the test, and so is what attaches them to nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Volume};
use kube::ResourceExt;
use lab::LabOptions;
use lab::fixtures::{self, Pods};
use lab::judge::{History, Kind, State};
use serde_json::{Value, json};

use crate::world::{Verdict, World, deeds};

pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// A volume of this source, bound to a claim in `default`; with `nodes`, only those with a label of that value can use it.
pub(crate) async fn volume(
    world: &World,
    claim: &str,
    source: &Value,
    nodes: Option<(&str, &str)>,
) {
    let name = format!("disk-of-{claim}");
    let size = json!({"storage": "1Gi"});
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "claimRef": {"namespace": "default", "name": claim},
        },
    });
    let spec = volume["spec"].as_object_mut().unwrap();
    spec.extend(source.as_object().unwrap().clone());
    if let Some((key, value)) = nodes {
        let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
        let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
        spec.insert("nodeAffinity".to_owned(), affinity);
    }
    world.lab.apply(&volume.to_string()).await.unwrap();
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": {"requests": size},
        },
    });
    world.lab.apply(&object.to_string()).await.unwrap();
    let bound = [
        "wait",
        "--for=jsonpath={.status.phase}=Bound",
        "--timeout=2m",
        &format!("persistentvolumeclaim/{claim}"),
    ];
    world.kubectl(&bound).await;
}

/// A disk of a cloud.
pub(crate) fn disk() -> Value {
    json!({"csi": {"driver": "csi.example.com", "volumeHandle": "vol"}})
}

/// Each pod has the claim `data-NAME-ORDINAL`, which is there before it.
pub(crate) fn with_disks(mut set: StatefulSet) -> StatefulSet {
    let template = json!([{
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }]);
    let spec = set.spec.as_mut().unwrap();
    spec.volume_claim_templates = serde_json::from_value(template).unwrap();
    set
}

/// All its pods mount this one claim.
fn with_claim<W: Pods>(mut owner: W, claim: &str) -> W {
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
    let volume: Volume = serde_json::from_value(volume).unwrap();
    owner.pods().1.volumes.get_or_insert_default().push(volume);
    owner
}

/// What a CSI driver does when a pod with that claim comes to the node, and takes back when it has gone.
async fn attach(world: &World, claim: &str, node: &str) {
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": claim},
        "spec": {
            "attacher": "csi.example.com", "nodeName": node,
            "source": {"persistentVolumeName": format!("disk-of-{claim}")},
        },
    });
    world.lab.apply(&attachment.to_string()).await.unwrap();
}

async fn detach(world: &World, claim: &str) {
    world.kubectl(&["delete", "volumeattachment", claim]).await;
}

/// For each pod of an app that begins to leave, in the order of that: its name, and what is read from the cluster as it was then.
pub(crate) fn at_departures<T>(
    history: &History,
    pods: &str,
    read: impl Fn(&State) -> T,
) -> Vec<(String, T)> {
    let mut state = State::default();
    let mut seen = Vec::new();
    for change in &history.changes {
        let object = &change.object;
        let before = state.get(Kind::Pod, &object.uid);
        let leaves = object.namespace == "default"
            && object.name.starts_with(pods)
            && object.terminating
            && before.is_some_and(|pod| !pod.terminating);
        if leaves {
            seen.push((object.name.clone(), read(&state)));
        }
        state.apply(change);
    }
    seen
}

/// The zones in which a placeholder has a Ready node.
fn zones_of_placeholders(state: &State) -> Vec<String> {
    let placeholders = state.all(Kind::Pod);
    let placeholders = placeholders.filter(|p| p.namespace == "relocator-placeholders");
    let nodes = placeholders.filter_map(|p| p.pod()?.node.as_deref());
    let nodes = nodes.filter_map(|name| state.named(Kind::Node, "", name));
    let ready = nodes.filter(|node| node.node().is_some_and(|n| n.ready));
    let mut zones: Vec<_> = ready.map(|node| node.labels[ZONE].clone()).collect();
    zones.sort();
    zones
}

/// The zone of each pod of an app.
async fn zones(world: &World, app: &str) -> BTreeMap<String, String> {
    let mut zones = BTreeMap::new();
    for (pod, node) in world.places(app).await {
        let node = world.node(&node).await;
        zones.insert(pod, node.labels()[ZONE].clone());
    }
    zones
}

fn in_zones(pairs: [(&str, &str); 2]) -> BTreeMap<String, String> {
    pairs
        .map(|(pod, zone)| (pod.to_owned(), zone.to_owned()))
        .into()
}

/// A database with a disk in each of two zones, on Karpenter's nodes. One node would have room for both placeholders, and Karpenter is free
/// to make it in either zone: each has to say where its disk is.
#[tokio::test(flavor = "multi_thread")]
async fn case_70_a_new_node_is_in_the_zone_of_the_volume_before_its_pod_leaves() {
    let world = World::with_karpenter(LabOptions::default()).await;
    fixtures::apply_node_pool(&world.lab).await.unwrap();
    let homes = in_zones([("db-0", "test-zone-b"), ("db-1", "test-zone-c")]);
    for (pod, zone) in &homes {
        volume(&world, &format!("data-{pod}"), &disk(), Some((ZONE, zone))).await;
    }
    let db = fixtures::stateful_set("db", 2).on_nodes("NodeGroupName", "apps");
    world.lab.put(&with_disks(db)).await.unwrap();
    world.settled().await;
    assert_eq!(zones(&world, "db").await, homes);
    let old: Vec<Node> = world.list().await;
    let old: Vec<_> = old.iter().map(ResourceExt::name_any).collect();
    assert_eq!(old.len(), 2, "{old:?}");
    let old: Vec<_> = old.iter().map(String::as_str).collect();
    let _operator = world.operator().await;
    let recording = world.record(&old).await;

    let mut story = world.relocate("move", "{nodes: {nodePools: [apps]}}").await;
    let end = story.succeeds().await;
    assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("2/2", "2/2"));
    assert_eq!(zones(&world, "db").await, homes);
    let verdict = recording.judge(&world).await;
    let kept = at_departures(&verdict.history, "db-", zones_of_placeholders);
    let order: Vec<_> = kept.iter().map(|(pod, _)| pod.as_str()).collect();
    assert_eq!(order, ["db-1", "db-0"]);
    for (pod, zones) in kept {
        assert!(
            zones.contains(&homes[&pod]),
            "{pod} left with places in {zones:?}"
        );
    }
    verdict.moved_once(2);
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    assert_eq!(verdict.card.nodes.made, 2, "{:?}", verdict.card.nodes);
    verdict.is_clean();
}

/// One pod has a disk in a zone, the other has none and asks to be in the zone of the first. Let go together, the free one could come first,
/// to another zone, and the one with the disk could never be near it again.
#[tokio::test(flavor = "multi_thread")]
async fn case_71_what_a_disk_binds_moves_before_what_wants_to_be_near_it() {
    let world = World::with_karpenter(LabOptions::default()).await;
    fixtures::apply_node_pool(&world.lab).await.unwrap();
    let home = "test-zone-b";
    volume(&world, "data-db-0", &disk(), Some((ZONE, home))).await;
    let db = fixtures::stateful_set("db", 1).on_nodes("NodeGroupName", "apps");
    world.lab.put(&with_disks(db)).await.unwrap();
    // By name, it would come first.
    let mut free = fixtures::stateful_set("a-free", 1).on_nodes("NodeGroupName", "apps");
    let near = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": ZONE},
    ]}});
    free.pods().1.affinity = serde_json::from_value(near).unwrap();
    world.lab.put(&free).await.unwrap();
    world.settled().await;
    let old: Vec<Node> = world.list().await;
    let old: Vec<_> = old.iter().map(ResourceExt::name_any).collect();
    let old: Vec<_> = old.iter().map(String::as_str).collect();
    let _operator = world.operator().await;
    let recording = world.record(&old).await;

    let mut story = world.relocate("move", "{nodes: {nodePools: [apps]}}").await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "2/2");
    for (app, pod) in [("db", "db-0"), ("a-free", "a-free-0")] {
        let zones = zones(&world, app).await;
        assert_eq!(zones, [(pod.to_owned(), home.to_owned())].into());
    }
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.evicted(), ["db-0", "a-free-0"]);
    for pod in ["db-0", "a-free-0"] {
        let kept = at_departures(&verdict.history, pod, zones_of_placeholders);
        let [(_, zones)] = &kept[..] else {
            panic!("{kept:?}");
        };
        assert!(zones.iter().all(|zone| zone == home), "{pod}: {zones:?}");
        assert!(!zones.is_empty(), "{pod} left without a place");
    }
    verdict.moved_once(2);
    verdict.is_clean();
}

/// There is room in the wrong zone only: nothing leaves. A person is told which zone is wanted, and when a node comes there, it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn case_70_room_in_another_zone_is_no_place() {
    let world = World::start().await;
    let zone = |zone: &'static str| [(ZONE, zone)];
    let old = fixtures::fake_node("old", "4", &zone("test-zone-a"));
    world.lab.put(&old).await.unwrap();
    let claim = "data-db-0";
    volume(&world, claim, &disk(), Some((ZONE, "test-zone-a"))).await;
    let db = with_disks(fixtures::stateful_set("db", 1));
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    let far = fixtures::fake_node("far", "4", &zone("test-zone-b"));
    world.lab.put(&far).await.unwrap();
    fixtures::wait_node_ready(&world.lab, "far").await.unwrap();
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, afterDrain: Keep}";
    let mut story = world.relocate("move", spec).await;
    let what = "the scheduler to have said that no node is in the zone";
    let waits = story
        .until(what, |r| {
            r.message.contains("didn't match Pod's node affinity")
        })
        .await;
    assert_eq!(waits.stage, "Provisioning");
    let warned = waits.status["warnings"].to_string();
    assert!(warned.contains("NoFeasibleNode"), "{warned}");
    assert!(
        warned.contains("topology.kubernetes.io/zone=test-zone-a"),
        "{warned}"
    );
    assert_eq!(world.places("db").await, [("db-0".into(), "old".into())]);
    let near = fixtures::fake_node("near", "4", &zone("test-zone-a"));
    world.lab.put(&near).await.unwrap();
    story.succeeds().await;
    assert_eq!(world.places("db").await, [("db-0".into(), "near".into())]);

    let verdict = recording.judge(&world).await;
    let kept = at_departures(&verdict.history, "db-", zones_of_placeholders);
    assert_eq!(kept, [("db-0".to_owned(), vec!["test-zone-a".to_owned()])]);
    verdict.moved_once(1);
    verdict.is_clean();
}

/// A disk of the node itself and a directory of it: both claims are named, and not a thing is touched.
#[tokio::test(flavor = "multi_thread")]
async fn case_72_volumes_of_the_node_itself_block_and_nothing_leaves() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let local = json!({"local": {"path": "/mnt/disk"}});
    let this_node = ("kubernetes.io/hostname", "old");
    volume(&world, "data-db-0", &local, Some(this_node)).await;
    let db = with_disks(fixtures::stateful_set("db", 1));
    world.lab.put(&db).await.unwrap();
    let directory = json!({"hostPath": {"path": "/var/lib/cache"}});
    volume(&world, "cache", &directory, None).await;
    let cache = with_claim(fixtures::deployment("cache", 1), "cache");
    world.lab.put(&cache).await.unwrap();
    let web = fixtures::deployment("web", 1);
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await;

    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    story.blocked("NodeLocalVolume").await;
    let blocked = story.until("to be blocked", |r| r.stage == "Blocked").await;
    let local: Vec<_> = blocked
        .blockers
        .iter()
        .filter_map(|b| b.strip_prefix("NodeLocalVolume PersistentVolumeClaim default/"))
        .filter_map(|b| b.split_once(": "))
        .collect();
    let mut claims: Vec<_> = local.iter().map(|(claim, _)| *claim).collect();
    claims.sort_unstable();
    assert_eq!(claims, ["cache", "data-db-0"], "{:?}", blocked.blockers);
    for (_, said) in local {
        assert!(said.contains("copy what is in it"), "{said}");
    }
    story.deleted().await;

    assert_eq!(
        before.differences(&world.snapshot().await),
        Vec::<String>::new()
    );
    let verdict = recording.judge(&world).await;
    let deeds = deeds(&verdict.writes());
    assert_eq!(deeds, Vec::<String>::new());
    verdict.is_clean();
}

/// The database has gone and its disk is still attached: the node waits for that, and not for the disk of the agent that stays on it. After
/// a while a person is told; when it is detached, the node goes.
#[tokio::test(flavor = "multi_thread")]
async fn case_74_a_node_is_not_removed_before_its_volumes_are_detached() {
    let world = World::with_karpenter(LabOptions::default()).await;
    fixtures::apply_node_pool(&world.lab).await.unwrap();
    for claim in ["data-db-0", "logs"] {
        volume(&world, claim, &disk(), None).await;
    }
    let agent = with_claim(fixtures::daemon_set("agent"), "logs");
    world.lab.put(&agent).await.unwrap();
    let db = fixtures::stateful_set("db", 1).on_nodes("NodeGroupName", "apps");
    world.lab.put(&with_disks(db)).await.unwrap();
    world.settled().await;
    let old: Vec<Node> = world.list().await;
    let [old] = &old[..] else {
        panic!("one node has room for both: {old:?}");
    };
    let old = old.name_any();
    for claim in ["data-db-0", "logs"] {
        attach(&world, claim, &old).await;
    }
    let _operator = world.operator().await;
    let recording = world.record(&[&old]).await;

    let mut story = world.relocate("move", "{nodes: {nodePools: [apps]}}").await;
    let waits = format!("1 volumes to detach from node {old}");
    // The node may look empty before the successor of its pod is Ready: then it has not moved yet.
    let draining = story
        .until("the volume alone to be waited for", |r| {
            r.message.contains(&waits) && r.pods == "1/1"
        })
        .await;
    assert_eq!(draining.stage, "Draining");
    let sooner = r#"{"spec": {"workloads": {"timeoutSeconds": 60}}}"#;
    world
        .kubectl(&["patch", "nrel", "move", "--type=merge", "--patch", sooner])
        .await;
    let said = story.blocked("StillAttached").await;
    assert!(said.contains(&format!("Node {old}")), "{said}");
    assert!(said.ends_with(": data-db-0"), "which: {said}");
    // It is cordoned, whole, and nobody has been asked to take it away.
    assert!(world.is_cordoned(&old).await);
    let claims = world.kubectl(&[
        "get",
        "nodeclaims",
        "-o",
        "jsonpath={.items[*].metadata.deletionTimestamp}",
    ]);
    assert_eq!(claims.await, "");
    detach(&world, "data-db-0").await;
    let end = story.succeeds().await;
    assert_eq!(end.nodes, "1/1");

    let verdict = recording.judge(&world).await;
    verdict.moved_once(1);
    // That the node was detached when its removal was asked for is one of the invariants.
    assert_eq!(verdict.card.nodes.removed, 1, "{:?}", verdict.card.nodes);
    verdict.is_clean();
}

/// The disks stay attached to the old nodes after their pods have left: that holds up the removal of the nodes, and not the next pod.
#[tokio::test(flavor = "multi_thread")]
async fn case_75_a_volume_that_stays_attached_does_not_hold_up_the_next_pod() {
    let world = World::start().await;
    world.nodes(&[("old-1", "1"), ("old-2", "1")]).await;
    for claim in ["data-db-0", "data-db-1"] {
        volume(&world, claim, &disk(), None).await;
    }
    let db = fixtures::stateful_set("db", 2).requests("1", "64Mi");
    world.lab.put(&with_disks(db)).await.unwrap();
    world.settled().await;
    for (pod, node) in world.places("db").await {
        attach(&world, &format!("data-{pod}"), &node).await;
    }
    world.nodes(&[("spare", "2")]).await;
    let _operator = world.operator().await;
    let nodes = ["old-1", "old-2"];
    let recording = world.record(&nodes).await.stay_cordoned(&nodes);

    let spec = "{nodes: {names: [old-1, old-2]}}";
    let mut story = world.relocate("move", spec).await;
    let attached = |r: &lab::operator::Relocation| {
        let waits = |node| {
            let what = format!("1 volumes to detach from node {node}");
            r.message.contains(&what)
        };
        r.pods == "2/2" && nodes.into_iter().any(waits)
    };
    story
        .until(
            "both pods to have moved, and a volume to be waited for",
            attached,
        )
        .await;
    let places = world.places("db").await;
    assert!(places.iter().all(|(_, node)| node == "spare"), "{places:?}");
    for claim in ["data-db-0", "data-db-1"] {
        detach(&world, claim).await;
    }
    story.succeeds().await;

    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.evicted(), ["db-1", "db-0"]);
    verdict.moved_once(2);
    verdict.is_clean();
}

/// A Deployment of one with a disk that is for one node at a time. Its rollout would wait for ever for a second pod that can't have the
/// disk: it is neither restarted nor raised, even where a restart is asked for. Its pod goes, and the next one comes.
#[tokio::test(flavor = "multi_thread")]
async fn case_45_a_deployment_with_a_disk_for_one_node_is_evicted() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    for app in ["shop", "wiki"] {
        volume(&world, app, &disk(), None).await;
        let deployment = with_claim(fixtures::deployment(app, 1), app);
        world.lab.put(&deployment).await.unwrap();
    }
    world.settled().await;
    let before: Vec<Deployment> = world.list().await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, workloads: {rules: [
        {match: {selector: {matchLabels: {app: wiki}}}, strategy: RolloutRestart}]}}";
    let mut story = world.relocate("move", spec).await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "2/2");
    for workload in end.status["workloads"].as_array().unwrap() {
        assert_eq!(workload["strategy"], "Evict", "{workload}");
        let why = workload["why"].as_str().unwrap();
        assert!(why.contains("ReadWriteOnce"), "{why}");
    }
    let verdict = recording.judge(&world).await;
    only_evicted(&verdict, 2);
    let after: Vec<Deployment> = world.list().await;
    let spec = |all: &[Deployment]| all.iter().map(|d| d.spec.clone()).collect::<Vec<_>>();
    assert_eq!(spec(&before), spec(&after));
    verdict.moved_once(2);
    verdict.is_clean();
}

fn only_evicted(verdict: &Verdict, pods: usize) {
    let writes = verdict.writes();
    let to_owners: Vec<_> = writes
        .iter()
        .filter(|e| e.resource == "deployments" || e.resource == "replicasets")
        .map(ToString::to_string)
        .collect();
    assert_eq!(to_owners, Vec::<String>::new());
    assert_eq!(verdict.evictions().len(), pods);
}
