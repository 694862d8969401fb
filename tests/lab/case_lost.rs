//! Nodes that are lost, come back as others or are taken away by somebody else while they are emptied: nothing counts that is not there,
//! and the relocation goes on with what is.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use lab::fixtures::{self, NODE_POOL, Pods};
use lab::judge::Kind;
use lab::{LabOptions, NotYet, wait_until};

use crate::world::{PATIENCE, World, is_ready, node_of};

/// The machine is gone, and its Node with it. Its pods say that they are Ready until Kubernetes removes them, which takes a minute: the
/// end is not before their successors are there.
#[tokio::test(flavor = "multi_thread")]
async fn case_126_the_pods_of_a_machine_that_is_gone_are_not_taken_for_moved() {
    let world = World::start().await;
    world.nodes(&[("old", "2")]).await;
    let db = fixtures::stateful_set("db", 2)
        .requests("1", "64Mi")
        .ready_after(2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "2")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await;

    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let on_its_way = |pods: &[Pod]| {
        let db_1 = pods.iter().find(|p| p.name_any() == "db-1")?;
        (node_of(db_1) == "spare" && !is_ready(db_1)).then_some(())
    };
    world.pods_until("db-1 on its way", on_its_way).await;
    world.kubectl(&["delete", "node", "old"]).await;
    let what = "the pod to be named that is still said to be there";
    story
        .until(what, |r| {
            r.message
                .contains("pod default/db-0 to be removed, whose node old is gone")
        })
        .await;
    story.succeeds().await;

    let verdict = recording.judge(&world).await;
    verdict.whole_when_it_succeeded("db-", 2);
    assert_eq!(
        verdict.evicted(),
        ["db-1"],
        "db-0 was Kubernetes' to remove"
    );
    verdict.moved_once(2);
    verdict.is_clean();
}

/// The new node is lost with a pod that has just come to it. Its places do not count any more, and nothing leaves until there is another.
#[tokio::test(flavor = "multi_thread")]
async fn case_127_the_new_node_is_lost_and_moves_stop_until_there_is_another() {
    let world = World::start().await;
    world.nodes(&[("old", "3")]).await;
    let db = fixtures::stateful_set("db", 3)
        .requests("1", "64Mi")
        .ready_after(3);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare-1", "3")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let on_its_way = |pods: &[Pod]| {
        let db_2 = pods.iter().find(|p| p.name_any() == "db-2")?;
        (node_of(db_2) == "spare-1" && !is_ready(db_2)).then_some(())
    };
    world.pods_until("db-2 on its way", on_its_way).await;
    world.kubectl(&["delete", "node", "spare-1"]).await;
    let lost = Timestamp::now();
    // Their placeholders were on the lost node. Others ask for another one, long before Kubernetes would remove those.
    wait_until("two placeholders without a node", PATIENCE, || async {
        let all: Vec<Pod> = world.list().await;
        let places: Vec<_> = all
            .iter()
            .filter(|p| p.namespace().as_deref() == Some("relocator-placeholders"))
            .map(node_of)
            .collect();
        if places == ["", ""] {
            return Ok(());
        }
        Err(NotYet(format!("{places:?}")))
    })
    .await
    .unwrap();
    // A person knows that the machine is gone, and does not wait for Kubernetes.
    world
        .kubectl(&["delete", "pod", "db-2", "--force", "--grace-period=0"])
        .await;
    let again = |pods: &[Pod]| {
        let db_2 = pods.iter().find(|p| p.name_any() == "db-2")?;
        node_of(db_2).is_empty().then_some(())
    };
    world.pods_until("db-2 to wait for a node", again).await;
    let what = "no place to be there";
    story
        .until(what, |r| r.status["replacement"]["placeholdersPlaced"] == 0)
        .await;
    let found = Timestamp::now();
    world.nodes(&[("spare-2", "3")]).await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");

    let verdict = recording.judge(&world).await;
    let meanwhile: Vec<_> = verdict
        .evictions()
        .iter()
        .filter(|e| (lost..=found).contains(&e.at))
        .map(ToString::to_string)
        .collect();
    assert_eq!(meanwhile, Vec::<String>::new());
    assert_eq!(verdict.evicted(), ["db-2", "db-1", "db-0"]);
    verdict.whole_when_it_succeeded("db-", 3);
    assert_eq!(verdict.card.double_moves, 0, "{:#?}", verdict.card);
    verdict.is_clean();
}

/// The same with Karpenter: the new node is taken back, as a spot instance is, while the first pod is on its way to it. Karpenter makes
/// another one for the placeholders, and the moves go on there.
#[tokio::test(flavor = "multi_thread")]
async fn case_127_the_new_node_is_taken_back_and_karpenter_makes_another() {
    let world = World::with_karpenter(LabOptions::default()).await;
    fixtures::apply_node_pool(&world.lab).await.unwrap();
    let db = fixtures::stateful_set("db", 3)
        .requests("1", "64Mi")
        .on_nodes("NodeGroupName", "apps")
        .ready_after(3);
    world.lab.put(&db).await.unwrap();
    let budget = fixtures::max_unavailable("db", 1);
    world.lab.put(&budget).await.unwrap();
    world.settled().await;
    let old: Vec<Node> = world.list().await;
    let old: Vec<_> = old.iter().map(ResourceExt::name_any).collect();
    let names: Vec<_> = old.iter().map(String::as_str).collect();
    let _operator = world.operator().await;
    let recording = world.record(&names).await;

    let spec = format!("{{nodes: {{nodePools: [{NODE_POOL}]}}}}");
    let mut story = world.relocate("move", &spec).await;
    let on_its_way = |pods: &[Pod]| {
        let db_2 = pods.iter().find(|p| p.name_any() == "db-2")?;
        let node = node_of(db_2);
        (!node.is_empty() && !old.contains(&node)).then_some(node)
    };
    let new = world.pods_until("db-2 on its way", on_its_way).await;
    let claims = world
        .kubectl(&[
            "get",
            "nodeclaims",
            "-o",
            r#"jsonpath={range .items[*]}{.metadata.name} {.status.nodeName}{"\n"}{end}"#,
        ])
        .await;
    let claim = claims.lines().find_map(|line| {
        let (claim, node) = line.split_once(' ')?;
        (node == new).then_some(claim)
    });
    world
        .kubectl(&["delete", "nodeclaim", claim.unwrap(), "--wait=false"])
        .await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");

    let verdict = recording.judge(&world).await;
    // Whom Karpenter evicts from the node that it takes back is Karpenter's business.
    assert_eq!(verdict.evicted(), ["db-2", "db-1", "db-0"]);
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    verdict.whole_when_it_succeeded("db-", 3);
    assert_eq!(verdict.card.double_moves, 0, "{:#?}", verdict.card);
    verdict.is_clean();
}

/// A node is deleted and its kubelet registers again under the same name: that is another node, which nobody has asked to empty.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_returns_under_its_name_is_another_and_is_left_alone() {
    let world = World::start().await;
    world.nodes(&[("old-1", "2")]).await;
    let db = fixtures::stateful_set("db", 2).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1"]).await;

    // There is no room: it has cordoned the node and waits.
    let mut story = world.relocate("move", "{nodes: {names: [old-1]}}").await;
    let what = "placeholders to be wanted";
    story
        .until(what, |r| r.status["replacement"]["placeholdersWanted"] == 2)
        .await;
    let uid = world.node("old-1").await.uid();
    world.kubectl(&["delete", "node", "old-1"]).await;
    world.nodes(&[("old-1", "2")]).await;
    let registered = world.node("old-1").await;
    assert_ne!(registered.uid(), uid);
    story.succeeds().await;

    let now = world.node("old-1").await;
    assert_eq!(now.annotations(), registered.annotations());
    assert!(!world.is_cordoned("old-1").await);
    let places = world.places("db").await;
    assert!(places.iter().all(|(_, node)| node == "old-1"), "{places:?}");
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.evicted(), Vec::<String>::new());
    let of_the_new_one = verdict.history.changes.iter().filter(|c| {
        c.object.kind == Kind::Node && Some(&c.object.uid.0) == registered.uid().as_ref()
    });
    let ours = of_the_new_one.filter(|c| {
        let mut keys = c.object.annotations.keys();
        keys.any(|key| key.starts_with("relocation.sh/")) || c.object.node().unwrap().cordoned()
    });
    assert_eq!(ours.count(), 0, "not even for a moment");
    verdict.is_clean();
}

/// Karpenter is told to take a selected node away, as when it expires: it waits for the pods that must not be disrupted, and we move
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_expires_meanwhile_is_emptied_all_the_same() {
    let world = World::with_karpenter(LabOptions::default()).await;
    fixtures::apply_node_pool(&world.lab).await.unwrap();
    let db = fixtures::stateful_set("db", 3)
        .requests("1", "64Mi")
        .on_nodes("NodeGroupName", "apps")
        .ready_after(2);
    world.lab.put(&db).await.unwrap();
    world
        .lab
        .put(&fixtures::max_unavailable("db", 1))
        .await
        .unwrap();
    world.settled().await;
    let old: Vec<Node> = world.list().await;
    let old: Vec<_> = old.iter().map(ResourceExt::name_any).collect();
    let names: Vec<_> = old.iter().map(String::as_str).collect();
    let _operator = world.operator().await;
    let recording = world.record(&names).await;

    let spec = format!("{{nodes: {{nodePools: [{NODE_POOL}]}}}}");
    let mut story = world.relocate("move", &spec).await;
    let moving = story.stage("Moving").await;
    let claims: Vec<_> = moving.status["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["nodeClaim"]["name"].as_str().unwrap().to_owned())
        .collect();
    for claim in &claims {
        world
            .kubectl(&["delete", "nodeclaim", claim, "--wait=false"])
            .await;
    }
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");

    let verdict = recording.judge(&world).await;
    assert_eq!(
        verdict.evicted(),
        ["db-2", "db-1", "db-0"],
        "by us, one by one"
    );
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    verdict.whole_when_it_succeeded("db-", 3);
    assert_eq!(verdict.card.nodes.removed as usize, old.len());
    verdict.moved_once(3);
    verdict.is_clean();
}
