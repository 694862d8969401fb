//! Deleting the relocation before its end: what it set is gone, what others set is as it was, pods that moved stay.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lab::fixtures::{self, Pods};
use lab::{NotYet, wait_until};

use crate::world::{DO_NOT_DISRUPT, PATIENCE, SCALE_DOWN_DISABLED, World, is_ready, node_of};

/// A database of three on two nodes. Of these somebody has cordoned one and protected the other from its autoscaler before,
/// and a pod that belongs to its owner is protected by its owner.
async fn a_world_that_others_have_touched() -> World {
    let world = World::start().await;
    // The pods ask for one CPU each and fill both.
    world.nodes(&[("old-1", "2"), ("old-2", "2")]).await;
    // The last one comes to its place when the others have theirs, which leaves it one.
    let session = fixtures::deployment("session", 1)
        .requests("1", "64Mi")
        .annotate(DO_NOT_DISRUPT, "true");
    world.lab.put(&session).await.unwrap();
    world.settled().await;
    let db = fixtures::stateful_set("db", 3)
        .requests("1", "64Mi")
        .ready_after(2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.kubectl(&["cordon", "old-1"]).await;
    let protect = format!("{SCALE_DOWN_DISABLED}=true");
    world
        .kubectl(&["annotate", "node", "old-2", &protect])
        .await;
    world
}

const BOTH: &str = "{nodes: {names: [old-1, old-2]}}";

/// Nothing has moved yet: there is no room. Then nothing at all is different afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn in_provisioning_it_is_as_if_nothing_had_been() {
    let world = a_world_that_others_have_touched().await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1", "old-2"]).await;

    let mut story = world.relocate("too-soon", BOTH).await;
    let what = "all placeholders to be wanted and none to be placed";
    let waiting = story
        .until(what, |r| {
            let replacement = &r.status["replacement"];
            r.stage == "Provisioning" && replacement["placeholdersWanted"] == 4
        })
        .await;
    assert_eq!(waiting.status["replacement"]["placeholdersPlaced"], 0);
    // What is wanted is recorded before it is made.
    wait_until("four placeholders", PATIENCE, || async {
        let all: Vec<Pod> = world.list().await;
        let placeholders = all
            .iter()
            .filter(|pod| pod.namespace().as_deref() == Some("relocator-placeholders"));
        match placeholders.count() {
            4 => Ok(()),
            count => Err(NotYet(format!("there are {count}"))),
        }
    })
    .await
    .unwrap();
    // By now it has set all that can be undone, or the test would show nothing.
    let meanwhile = before.differences(&world.snapshot().await).join("\n");
    for set in [
        "Node old-2: spec.unschedulable",
        "Node old-1: metadata.annotations[relocation.sh/claimed-by]",
        "Node old-1: metadata.annotations[cluster-autoscaler.kubernetes.io/scale-down-disabled]",
        "Pod default/db-0: metadata.annotations[karpenter.sh/do-not-disrupt]",
        "Pod relocator-placeholders/",
    ] {
        assert!(meanwhile.contains(set), "no {set} in\n{meanwhile}");
    }

    story.deleted().await;
    let after = world.snapshot().await;
    assert_eq!(before.differences(&after), Vec::<String>::new());
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.card.moves, 0);
    verdict.is_clean();
}

/// One pod has moved, the next is on its way. They stay where they are; all else is as before.
#[tokio::test(flavor = "multi_thread")]
async fn in_moving_what_has_moved_stays_and_all_else_is_as_before() {
    let world = a_world_that_others_have_touched().await;
    world.nodes(&[("spare", "4")]).await;
    world.settled().await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1", "old-2"]).await;

    // One pod at a time over all workloads, so that it is clear which have moved by then.
    let spec = "{nodes: {names: [old-1, old-2]}, workloads: {maxConcurrent: 1, strategy: Evict}}";
    let mut story = world.relocate("no-more", spec).await;
    story.stage("Moving").await;
    let second_on_its_way = |pods: &[Pod]| {
        let on_spare: Vec<_> = pods.iter().filter(|p| node_of(p) == "spare").collect();
        let arrived = on_spare.iter().filter(|p| is_ready(p)).count();
        let names = || on_spare.iter().map(|p| p.name_any()).collect::<Vec<_>>();
        (arrived >= 1 && on_spare.len() > arrived).then(names)
    };
    let what = "one pod to have moved and another to be on its way";
    let stay = world.pods_until(what, second_on_its_way).await;
    story.deleted().await;
    world.settled().await;
    let verdict = recording.judge(&world).await;
    verdict.is_clean();

    // Each eviction is one move: nothing was moved back, and none was begun after the deletion for its own sake.
    let evicted: Vec<_> = verdict.evictions().iter().map(|e| e.name.clone()).collect();
    assert!(evicted.len() >= 2, "{evicted:?}");
    assert_eq!(verdict.card.moves as usize, evicted.len(), "{evicted:?}");
    let places = world.places("db").await;
    let places: Vec<_> = places
        .into_iter()
        .chain(world.places("session").await)
        .collect();
    for pod in stay {
        assert!(
            places.contains(&(pod.clone(), "spare".to_owned())),
            "{pod} in {places:?}"
        );
    }
    // A moved pod of a StatefulSet is another object of the same name; one of a Deployment has another name.
    let of_a_moved_pod = |difference: &&String| {
        let session = difference.starts_with("Pod default/session-")
            && (difference.ends_with(": gone") || difference.ends_with(": new"));
        let db = |pod| difference.starts_with(&format!("Pod default/{pod}: another object"));
        session || evicted.iter().any(db)
    };
    let differences = before.differences(&world.snapshot().await);
    let others: Vec<_> = differences.iter().filter(|d| !of_a_moved_pod(d)).collect();
    assert_eq!(others, Vec::<&String>::new());
    assert!(world.is_cordoned("old-1").await, "cordoned by a person");
    assert!(!world.is_cordoned("old-2").await, "cordoned by us");
    let old_2 = world.node("old-2").await;
    assert_eq!(
        old_2.annotations()[SCALE_DOWN_DISABLED],
        "true",
        "set by a person"
    );
}

/// More replicas than anybody asked for, for the moment: they go again, and so does what marks the pods that were to go.
#[tokio::test(flavor = "multi_thread")]
async fn in_the_middle_of_a_surge_the_replica_count_goes_back() {
    let world = World::start().await;
    // Full with two pods each, so that half of the four are on a node that stays.
    world.nodes(&[("old-1", "2"), ("stays", "2")]).await;
    // New pods are not Ready before the count has been seen, and long after.
    let web = fixtures::deployment("web", 4)
        .requests("1", "64Mi")
        .ready_after(4);
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1"]).await;

    let spec = "{nodes: {names: [old-1]}, workloads: {strategy: Surge}}";
    let mut story = world.relocate("surge", spec).await;
    story.stage("Moving").await;
    let replicas = |count: usize| {
        move |pods: &[Pod]| {
            let all = pods.iter().filter(|p| p.name_any().starts_with("web-"));
            (all.count() == count).then_some(())
        }
    };
    world.pods_until("two pods more", replicas(6)).await;
    story.deleted().await;
    world.settled().await;
    world.pods_until("four pods again", replicas(4)).await;

    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);
    // Which four of the six stay is the ReplicaSet's choice.
    let differences = before.differences(&world.snapshot().await);
    let others: Vec<_> = differences
        .iter()
        .filter(|d| {
            !(d.starts_with("Pod default/web-") && (d.ends_with(": gone") || d.ends_with(": new")))
        })
        .collect();
    assert_eq!(others, Vec::<&String>::new());
}
