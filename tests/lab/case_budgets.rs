//! Budgets that hold pods back: shared by owners, tightened on the way, and pods of whose name another has been made meanwhile.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use lab::fixtures::{self, Pods};
use lab::judge::{Kind, State};
use serde_json::json;

use crate::world::{World, is_ready, node_of};

/// Two sets of one pod each, and a budget that wants one of the two. They take turns, and one of them serves at every moment.
#[tokio::test(flavor = "multi_thread")]
async fn case_04_owners_that_share_a_budget_take_turns() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    for name in ["left", "right"] {
        let set = fixtures::stateful_set(name, 1).label("pair", "yes");
        world.lab.put(&set.ready_after(2)).await.unwrap();
    }
    let mut budget = fixtures::min_available("pair", 1);
    let spec = budget.spec.as_mut().unwrap();
    spec.selector.as_mut().unwrap().match_labels =
        Some([("pair".to_owned(), "yes".to_owned())].into());
    world.lab.put(&budget).await.unwrap();
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
    let mut state = State::default();
    let mut most = 0;
    for change in &verdict.history.changes {
        state.apply(change);
        let pair = |name: &str| name.starts_with("left") || name.starts_with("right");
        let serving = state
            .all(Kind::Pod)
            .filter(|p| p.namespace == "default" && pair(&p.name) && p.is_ready_pod())
            .count();
        // Until both are seen for the first time, the recording has not begun.
        assert!(most < 2 || serving > 0, "none serves after {change:?}");
        most = most.max(serving);
    }
    assert_eq!(most, 2);
}

/// While an eviction waits for its budget, a person deletes the pod, and its set makes one of the same name on another node. That one has
/// nothing to do with the eviction.
#[tokio::test(flavor = "multi_thread")]
async fn case_12_the_pod_that_was_made_again_is_not_evicted() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let web = fixtures::stateful_set("web", 2).grace(1800).ends_after(1);
    world.lab.put(&web).await.unwrap();
    world
        .lab
        .put(&fixtures::max_unavailable("web", 1))
        .await
        .unwrap();
    world.settled().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    // It waits for places; meanwhile the budget is tightened until it never allows an eviction.
    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    story.stage("Provisioning").await;
    let budgets: Api<PodDisruptionBudget> = world.api().await;
    let merge = PatchParams::default();
    let wants = |max: i32| Patch::Merge(json!({"spec": {"maxUnavailable": max}}));
    budgets.patch("web", &merge, &wants(0)).await.unwrap();
    world.nodes(&[("spare", "4")]).await;
    let said = story.blocked("PdbNeverAllows").await;
    assert!(said.contains("PodDisruptionBudget default/web"), "{said}");

    let pods: Api<k8s_openapi::api::core::v1::Pod> = world.api().await;
    pods.delete("web-1", &DeleteParams::default())
        .await
        .unwrap();
    let made_again = world
        .pods_until("web-1 to be Ready on the other node", |pods| {
            let there = |p: &&k8s_openapi::api::core::v1::Pod| {
                p.name_any() == "web-1" && node_of(p) == "spare" && is_ready(p)
            };
            pods.iter().find(there).and_then(|p| p.meta().uid.clone())
        })
        .await;
    budgets.patch("web", &merge, &wants(1)).await.unwrap();
    story.succeeds().await;

    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    assert_eq!(verdict.evicted(), ["web-0"]);
    for eviction in verdict.evictions() {
        let uid = eviction.precondition_uid();
        assert!(uid.is_some_and(|uid| uid != made_again), "{eviction}");
        // Case 37: half an hour of grace is the pod's to use.
        let body = eviction.body.as_ref().unwrap();
        assert!(
            body.pointer("/deleteOptions/gracePeriodSeconds")
                .is_none_or(serde_json::Value::is_null),
            "{body}"
        );
    }
    let after: Vec<_> = world.places("web").await;
    let spare = |name: &str| (name.to_owned(), "spare".to_owned());
    assert_eq!(after, [spare("web-0"), spare("web-1")]);
}

/// What a node needs of its own, a driver of volumes for example, is there to the last, and the node is emptied all the same.
#[tokio::test(flavor = "multi_thread")]
async fn case_28_pods_of_a_daemon_set_are_never_evicted() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    world.lab.put(&fixtures::daemon_set("csi")).await.unwrap();
    world
        .lab
        .put(&fixtures::stateful_set("db", 2))
        .await
        .unwrap();
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    world.settled().await;
    let driver = async || {
        world
            .pods_until("the driver on the old node", |pods| {
                let its = |p: &&k8s_openapi::api::core::v1::Pod| {
                    p.name_any().starts_with("csi-") && node_of(p) == "old"
                };
                pods.iter().find(its).and_then(|p| p.meta().uid.clone())
            })
            .await
    };
    let before = driver().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    world
        .relocate("move", "{nodes: {names: [old]}}")
        .await
        .succeeds()
        .await;
    assert_eq!(driver().await, before);

    let verdict = recording.judge(&world).await;
    verdict.moved_once(2);
    verdict.is_clean();
    let mut evicted = verdict.evicted();
    evicted.sort();
    assert_eq!(evicted, ["db-0", "db-1"]);
}
