//! Workloads whose own rules of updating would take too much away at once, or that are in the middle of an update.

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentStrategy, RollingUpdateDeployment, RollingUpdateStatefulSetStrategy,
    StatefulSet, StatefulSetUpdateStrategy,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, Patch, PatchParams};
use lab::NEVER_READY_LABEL;
use lab::fixtures::{self, Pods};
use lab::judge::{Kind, State};
use serde_json::{Value, json};

use crate::world::{World, deeds};

/// How a workload was moved, and why, as its relocation has recorded it.
fn how(status: &Value, name: &str) -> (String, String) {
    let all = status["workloads"].as_array().unwrap();
    let it = all.iter().find(|w| w["name"] == name).unwrap();
    let text = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
    (text("strategy"), text("why"))
}

/// Asked for a restart, three sets go one pod at a time: one that makes its pods in parallel by its restart, for that is in order all the
/// same; one whose updates may take two pods at once by evictions, and so does one that has its pods replaced by hand alone.
#[tokio::test(flavor = "multi_thread")]
async fn case_59_no_two_pods_of_a_set_are_away_at_once_whatever_it_allows() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let set = |name: &str| -> StatefulSet {
        let mut set = fixtures::stateful_set(name, 3).ready_after(1);
        set.spec.as_mut().unwrap().pod_management_policy = Some("Parallel".to_owned());
        set
    };
    let updates = |kind: &str, at_once: Option<i32>| StatefulSetUpdateStrategy {
        type_: Some(kind.to_owned()),
        rolling_update: at_once.map(|n| RollingUpdateStatefulSetStrategy {
            max_unavailable: Some(IntOrString::Int(n)),
            partition: None,
        }),
    };
    let mut wide = set("wide");
    wide.spec.as_mut().unwrap().update_strategy = Some(updates("RollingUpdate", Some(2)));
    let mut by_hand = set("by-hand");
    by_hand.spec.as_mut().unwrap().update_strategy = Some(updates("OnDelete", None));
    for set in [set("parallel"), wide, by_hand] {
        world.lab.put(&set).await.unwrap();
    }
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, workloads: {strategy: RolloutRestart}}";
    let end = world.relocate("move", spec).await.succeeds().await;
    let (strategy, why) = how(&end.status, "parallel");
    assert_eq!(strategy, "RolloutRestart");
    assert!(
        why.contains("one at a time, also with podManagementPolicy Parallel"),
        "{why}"
    );
    let (strategy, why) = how(&end.status, "wide");
    assert_eq!(strategy, "Evict");
    assert!(
        why.contains("maxUnavailable would let 2 pods be missing at once"),
        "{why}"
    );
    let (strategy, why) = how(&end.status, "by-hand");
    assert_eq!(strategy, "Evict");
    assert!(
        why.contains("OnDelete a restart would replace nothing"),
        "{why}"
    );

    let verdict = recording.judge(&world).await;
    verdict.moved_once(9);
    verdict.is_clean();
    for name in ["parallel", "wide", "by-hand"] {
        assert_eq!(
            verdict.most_down(&format!("default/StatefulSet/{name}")),
            1,
            "{name}"
        );
    }
    let mut evicted = verdict.evicted();
    evicted.retain(|name| name.starts_with("wide"));
    assert_eq!(evicted, ["wide-2", "wide-1", "wide-0"]);
}

/// A Deployment of three with that strategy.
fn deployment(name: &str, strategy: DeploymentStrategy) -> Deployment {
    let mut deployment = fixtures::deployment(name, 3).ready_after(2);
    deployment.spec.as_mut().unwrap().strategy = Some(strategy);
    deployment
}

/// Asked for a restart, relocator does what loses least: of one that would stop all its pods at once evictions, one after the other, each
/// when there is a place; of one that takes before it makes, the restart, within its budget; and where that budget allows nothing, a surge.
#[tokio::test(flavor = "multi_thread")]
async fn case_44_47_a_restart_that_would_break_before_it_makes() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let recreate = DeploymentStrategy {
        type_: Some("Recreate".to_owned()),
        ..DeploymentStrategy::default()
    };
    let no_surge = DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: Some(IntOrString::Int(0)),
            max_unavailable: Some(IntOrString::Int(1)),
        }),
    };
    let workloads = [
        deployment("recreated", recreate),
        deployment("tight", no_surge.clone()),
        deployment("guarded", no_surge),
    ];
    for workload in workloads {
        world.lab.put(&workload).await.unwrap();
    }
    for budget in [
        fixtures::max_unavailable("tight", 1),
        fixtures::min_available("guarded", 3),
    ] {
        world.lab.put(&budget).await.unwrap();
    }
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, workloads: {strategy: RolloutRestart}}";
    let end = world.relocate("move", spec).await.succeeds().await;
    let (strategy, why) = how(&end.status, "recreated");
    assert_eq!(strategy, "Evict");
    assert!(why.contains("stop all its pods at once"), "{why}");
    assert_eq!(how(&end.status, "tight").0, "RolloutRestart");
    let (strategy, why) = how(&end.status, "guarded");
    assert_eq!(strategy, "Surge");
    assert!(why.contains("PodDisruptionBudget default/guarded"), "{why}");

    let verdict = recording.judge(&world).await;
    verdict.moved_once(9);
    // No pod left before there was a place for it, and no budget went below what it desires.
    verdict.is_clean();
    let most = |name: &str| verdict.most_down(&format!("default/Deployment/{name}"));
    assert_eq!(
        (most("recreated"), most("tight"), most("guarded")),
        (1, 1, 0)
    );
}

/// A rollout that is stuck in the middle: nothing is touched, and the relocation says what it waits for. Undone, it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn case_50_a_rollout_that_runs_is_waited_for() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    world
        .lab
        .put(&fixtures::deployment("web", 2))
        .await
        .unwrap();
    world.settled().await;
    let deployments: Api<Deployment> = world.api().await;
    let label = |value: Value| {
        Patch::Merge(
            json!({"spec": {"template": {"metadata": {"labels": {NEVER_READY_LABEL: value}}}}}),
        )
    };
    let merge = PatchParams::default();
    deployments
        .patch("web", &merge, &label(json!("true")))
        .await
        .unwrap();
    world
        .pods_until("the first pod of the update", |pods| {
            (pods.len() == 3).then_some(())
        })
        .await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, workloads: {strategy: RolloutRestart}}";
    let mut story = world.relocate("move", spec).await;
    let said = story.blocked("RolloutInProgress").await;
    assert!(said.contains("Deployment default/web"), "{said}");
    let until = jiff::Timestamp::now();
    deployments
        .patch("web", &merge, &label(Value::Null))
        .await
        .unwrap();
    let end = story.succeeds().await;
    assert_eq!(how(&end.status, "web").0, "RolloutRestart");

    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    let before = verdict.writes_between(verdict.history.started, until);
    assert_eq!(deeds(&before), Vec::<String>::new());
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);
    let pods = world.places("web").await;
    assert!(
        pods.len() == 2 && pods.iter().all(|(_, node)| node == "spare"),
        "{pods:?}"
    );
}

/// On each of two nodes a helper of priority system-node-critical, which is of no `DaemonSet`, serves the pods beside it. It goes when those
/// are Ready elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn case_29_helpers_that_a_node_needs_leave_when_all_others_have_arrived() {
    let world = World::start().await;
    world.nodes(&[("old-a", "4"), ("old-b", "4")]).await;
    for number in 0..2 {
        let mut helper = fixtures::replica_set(&format!("helper-{number}"), 1).ready_after(1);
        let spec = helper.pods().1;
        spec.priority_class_name = Some("system-node-critical".to_owned());
        world.lab.put(&helper).await.unwrap();
    }
    world
        .lab
        .put(&fixtures::stateful_set("db", 2).ready_after(2))
        .await
        .unwrap();
    world
        .lab
        .put(&fixtures::deployment("web", 4).ready_after(2))
        .await
        .unwrap();
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    let _operator = world.operator().await;
    let old = ["old-a", "old-b"];
    let recording = world.record(&old).await.stay_cordoned(&old);

    let mut story = world
        .relocate("move", "{nodes: {names: [old-a, old-b]}}")
        .await;
    story
        .until("what the helpers wait for to be told", |r| {
            r.message
                .contains("it is of priority system-node-critical, and they may need it")
                || r.message.contains("other pods to have left")
        })
        .await;
    story.succeeds().await;

    let verdict = recording.judge(&world).await;
    verdict.moved_once(8);
    verdict.is_clean();
    // At the moment when the first helper begins to leave.
    let evictions = verdict.evictions();
    let is_helper = |name: &str| name.starts_with("helper");
    let first = evictions.iter().position(|e| is_helper(&e.name)).unwrap();
    assert!(
        evictions[first..].iter().all(|e| is_helper(&e.name)),
        "{evictions:?}"
    );
    let mut state = State::default();
    for change in &verdict.history.changes {
        let leaves = change.object.kind == Kind::Pod
            && is_helper(&change.object.name)
            && change.object.terminating;
        if leaves {
            break;
        }
        state.apply(change);
    }
    let others = state
        .all(Kind::Pod)
        .filter(|p| p.namespace == "default" && !is_helper(&p.name));
    let on_spare = |p: &lab::judge::Object| {
        p.is_ready_pod() && p.pod().unwrap().node.as_deref() == Some("spare")
    };
    let (there, behind): (Vec<_>, Vec<_>) = others.partition(|p| on_spare(p));
    assert!(behind.is_empty(), "{behind:?}");
    assert_eq!(there.len(), 6);
}
