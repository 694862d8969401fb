//! Pods of every kind of owner: of none, of a custom resource, of a Job; and what rules make of them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use lab::fixtures::{self, Pods};
use lab::judge::AuditEvent;
use lab::wait::{NotYet, wait_until};
use serde_json::json;

use crate::beside::{Custom, again_and_again, beside, keep, publish};
use crate::world::{PATIENCE, World, is_ready, node_of, only_tells};

/// Nothing makes it again, so it is left alone, unless a person says that it may go; then it goes, and its end was announced.
#[tokio::test(flavor = "multi_thread")]
async fn case_21_an_unmanaged_pod_goes_only_when_that_was_asked_for() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    world.lab.put(&fixtures::bare_pod("legacy")).await.unwrap();
    let db = fixtures::stateful_set("db", 1);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let mut blocked = world.relocate("blocked", "{nodes: {names: [old]}}").await;
    let said = blocked.blocked("UnmanagedPod").await;
    assert!(said.contains("Pod default/legacy"), "{said}");
    blocked.deleted().await;
    let spec = "{nodes: {names: [old]}, workloads: {unmanagedPods: Evict}}";
    let mut story = world.relocate("allowed", spec).await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "2/2");
    let warned = format!("{:?}", end.status["warnings"]);
    assert!(warned.contains("Pod default/legacy"), "{warned}");
    assert!(warned.contains("then it is gone"), "{warned}");

    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    let mut evicted = verdict.evicted();
    evicted.sort();
    assert_eq!(evicted, ["db-0", "legacy"]);
}

/// A pod of that custom resource.
fn owned(name: &str, owner: &OwnerReference) -> Pod {
    let mut pod = fixtures::bare_pod(name).label("app", "pg").ready_after(1);
    pod.metadata.owner_references = Some(vec![owner.clone()]);
    pod
}

/// Two pods of a custom resource, and one that claims to belong to one which is gone. Whether the first exists may not be read: it is left
/// alone, and the kind is named. When it may, its pods move one after the other; the orphan is nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn case_23_pods_of_a_custom_resource_move_when_it_is_seen_to_exist() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let kind = Custom::UNKNOWN;
    kind.define(&world).await;
    let owner = kind.create(&world, "pg", &json!({"instances": 2})).await;
    for name in ["pg-1", "pg-2"] {
        world.lab.put(&owned(name, &owner)).await.unwrap();
    }
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let names = ["pg-1", "pg-2"];
    let pods = world.api::<Pod>().await;

    let story = async {
        let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
        let said = story.blocked("Forbidden").await;
        assert!(
            said.contains("Cluster default/pg (db.example.com/v1)"),
            "{said}"
        );
        kind.may_be_read(&world).await;
        let end = story.succeeds().await;
        let workload = &end.status["workloads"][0];
        let listed = (
            &workload["kind"],
            &workload["apiVersion"],
            &workload["strategy"],
        );
        assert_eq!(
            listed,
            (
                &json!("Cluster"),
                &json!("db.example.com/v1"),
                &json!("Evict")
            )
        );
        assert_eq!(end.pods, "2/2");
    };
    let wanted = names.map(|name| owned(name, &owner));
    let operator = again_and_again(async || keep(&pods, &wanted).await);
    beside(operator, story).await;
    let places = world.places("pg").await;
    assert!(places.iter().all(|(_, node)| node == "spare"), "{places:?}");

    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    assert_eq!(verdict.evicted(), names);
    assert_eq!(verdict.card.double_moves, 0);
}

/// A set of pods that belongs to a database, whose budget would let one go at any time. When one pod has moved, the database says that it is
/// not whole, and its operator restarts another pod because of that. Until it says that it is well, no more leave.
#[tokio::test(flavor = "multi_thread")]
async fn case_18_68_the_next_pod_leaves_when_the_database_says_that_it_is_well() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let kind = Custom::CLOUD_NATIVE_PG;
    kind.define(&world).await;
    let owner = kind.create(&world, "shards", &json!({})).await;
    let clusters = kind.api(&world).await;
    let says = async |status: &str, message: &str| {
        let cluster = clusters.get("shards").await.unwrap();
        let ready = json!({"type": "Ready", "status": status, "message": message});
        let status = json!({"conditions": [ready]});
        publish(&clusters, &cluster, status).await.unwrap();
    };
    says("True", "").await;
    let mut set = fixtures::stateful_set("search", 3).ready_after(3);
    set.metadata.owner_references = Some(vec![owner]);
    world.lab.put(&set).await.unwrap();
    let budget = fixtures::min_available("search", 1);
    world.lab.put(&budget).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, afterDrain: Keep, workloads: {settleSeconds: 0}}";
    let mut story = world.relocate("move", spec).await;
    let pods = world.api::<Pod>().await;
    let left = async || {
        let pod = pods.get_opt("search-2").await?;
        let there = pod.is_some_and(|p| p.metadata.deletion_timestamp.is_none() && is_ready(&p));
        if there {
            Err(NotYet::because("search-2 is there"))
        } else {
            Ok(())
        }
    };
    wait_until("the first to leave", PATIENCE, left)
        .await
        .unwrap();
    says("False", "shards are relocating").await;
    let waits =
        "Cluster default/shards to be Ready by its own word: shards are relocating".to_owned();
    let what = "the database to be waited for";
    story.until(what, |r| r.message.contains(&waits)).await;
    // What its operator does about it.
    pods.delete("search-0", &DeleteParams::default())
        .await
        .unwrap();
    world.settled().await;
    story.until(what, |r| r.message.contains(&waits)).await;
    let well = Timestamp::now();
    says("True", "").await;
    let end = story.succeeds().await;

    assert_eq!(end.nodes, "1/1");
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.evicted(), ["search-2", "search-1"]);
    let last = verdict.evictions()[1].at;
    assert!(last > well, "{last} and {well}");
    assert_eq!(verdict.card.double_moves, 0);
    assert_eq!(verdict.most_down("default/StatefulSet/search"), 1);
    verdict.is_clean();
}

/// Its owner reference names a custom resource that exists, by a UID that does not.
#[tokio::test(flavor = "multi_thread")]
async fn case_23_an_owner_of_another_uid_makes_nothing_again() {
    let world = World::start().await;
    world.nodes(&[("old", "4"), ("spare", "4")]).await;
    let kind = Custom::UNKNOWN;
    kind.define(&world).await;
    kind.may_be_read(&world).await;
    let mut owner = kind.create(&world, "pg", &json!({"instances": 1})).await;
    "5a9d3a52-0000-4000-8000-000000000000".clone_into(&mut owner.uid);
    let mut forged = owned("forged", &owner);
    forged.spec.as_mut().unwrap().node_name = Some("old".to_owned());
    // The garbage collector takes away what belongs to nobody; a finalizer keeps it long enough to be looked at.
    forged.metadata.finalizers = Some(vec!["example.com/kept".to_owned()]);
    world.lab.put(&forged).await.unwrap();
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await;
    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let said = story.blocked("UnmanagedPod").await;
    assert!(said.contains("Pod default/forged"), "{said}");
    assert!(said.contains("does not exist"), "{said}");
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.evicted(), Vec::<String>::new());
}

fn job(name: &str, complete_after: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}, namespace: default}}, spec: {{template: {{metadata: \
         {{labels: {{app: {name}}}, annotations: {{pod-complete.stage.kwok.x-k8s.io/delay: {complete_after}}}}}, spec: {{restartPolicy: \
         Never, containers: [{{name: main, image: 'registry.k8s.io/pause:3.10'}}]}}}}}}}}"
    )
}

/// A Job's pod is left to finish, and nothing of it is evicted.
#[tokio::test(flavor = "multi_thread")]
async fn case_25_a_job_is_left_to_finish() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    world.lab.apply(&job("report", "15s")).await.unwrap();
    let db = fixtures::stateful_set("db", 1);
    world.lab.put(&db).await.unwrap();
    world
        .pods_until("the Job to run", |pods: &[Pod]| {
            let runs = |p: &Pod| p.name_any().starts_with("report") && is_ready(p);
            pods.iter().any(runs).then_some(())
        })
        .await;
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    story
        .until("the Job to be waited for", |r| {
            r.message
                .contains("Job default/report to finish on node old")
        })
        .await;
    story.succeeds().await;
    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    assert_eq!(verdict.evicted(), ["db-0"]);
}

/// Told to evict it, relocator does, and says before what that may cost; the Job makes its pod again elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn case_25_a_job_is_evicted_when_that_was_asked_for() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    world.lab.apply(&job("report", "1h")).await.unwrap();
    let running = |node: &'static str| {
        move |pods: &[Pod]| {
            let runs =
                |p: &Pod| p.name_any().starts_with("report") && is_ready(p) && node_of(p) == node;
            pods.iter().any(runs).then_some(())
        }
    };
    world.pods_until("the Job to run", running("old")).await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let spec = "{nodes: {names: [old]}, workloads: {jobs: Evict}}";
    let mut story = world.relocate("move", spec).await;
    let end = story.succeeds().await;
    let warned = format!("{:?}", end.status["warnings"]);
    assert!(
        warned.contains("backoffLimit lets it have 6 more"),
        "{warned}"
    );
    world
        .pods_until("the Job to run elsewhere", running("spare"))
        .await;
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.card.broken_invariants, Vec::<String>::new());
    assert_eq!(verdict.evicted().len(), 1);
}

/// The plan tells everything and touches nothing; told to, the same relocation carries out just that.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_writes_nothing_but_its_status_and_is_what_is_done() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let db = fixtures::stateful_set("db", 2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("stays", "1")]).await;
    let web = fixtures::deployment("web", 2).requests("900m", "64Mi");
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let here = |places: Vec<(String, String)>| places.iter().filter(|(_, n)| n == "old").count();
    let web_here = here(world.places("web").await);
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, mode: Plan}";
    let mut story = world.relocate("move", spec).await;
    let planned = story.stage("Planned").await;
    assert!(planned.ready, "{}", planned.message);
    let list = |status: &serde_json::Value| -> Vec<String> {
        let workloads = status["workloads"].as_array().unwrap();
        let line = |w: &serde_json::Value| {
            format!(
                "{} {} {} {}",
                w["kind"], w["name"], w["strategy"], w["pods"]
            )
        };
        workloads.iter().map(line).collect()
    };
    let announced = list(&planned.status);
    assert_eq!(
        announced.len(),
        1 + usize::from(web_here > 0),
        "{announced:?}"
    );
    assert_eq!(planned.status["nodes"][0]["podsLeft"], 2 + web_here);
    let why = &planned.status["workloads"];
    assert!(why.to_string().contains("highest ordinal first"), "{why}");
    let so_far = recording.so_far();
    let deeds: Vec<_> = so_far
        .audit
        .iter()
        .filter(|e| e.agent() == "relocator" && e.is_write() && !e.is_lease())
        .filter(|e: &&AuditEvent| !only_tells(e))
        .map(ToString::to_string)
        .collect();
    assert_eq!(deeds, Vec::<String>::new());

    let execute = r#"{"spec": {"mode": "Execute"}}"#;
    world
        .kubectl(&["patch", "nrel", "move", "--type=merge", "--patch", execute])
        .await;
    let end = story.succeeds().await;
    assert_eq!(list(&end.status), announced);
    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    let moves = verdict.card.moves as usize;
    assert_eq!((moves, verdict.card.double_moves), (2 + web_here, 0));
    // Before it was told to, nothing but its status was written.
    let told = verdict
        .history
        .audit
        .iter()
        .find(|e| e.resource == "noderelocations" && e.verb == "patch");
    let told = told.unwrap().at;
    let writes = verdict.writes_between(verdict.history.started, told);
    let deeds: Vec<_> = writes
        .iter()
        .filter(|e| e.target() != "noderelocations/status")
        .collect();
    let deeds: Vec<_> = deeds
        .iter()
        .filter(|e| e.resource != "events")
        .map(ToString::to_string)
        .collect();
    assert_eq!(deeds, Vec::<String>::new());
}

/// By rule the cache moves before the database, the agent stays with its node, which is kept, and of the database the replica before the
/// primary, although that has the higher ordinal.
#[tokio::test(flavor = "multi_thread")]
async fn rules_order_skip_and_know_the_primary() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    for app in ["agent", "cache", "db"] {
        let set = fixtures::stateful_set(app, if app == "db" { 2 } else { 1 });
        world.lab.put(&set).await.unwrap();
    }
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    world
        .kubectl(&["label", "pod", "db-1", "role=primary"])
        .await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let spec = "{nodes: {names: [old]}, workloads: {rules: [
        {match: {selector: {matchLabels: {app: agent}}}, strategy: Skip},
        {match: {selector: {matchLabels: {app: cache}}}, order: -5},
        {match: {kinds: [StatefulSet], namespaces: [default], selector: {matchLabels: {role: primary}}}, order: 7}]}}";
    let mut story = world.relocate("move", spec).await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");
    let warned = format!("{:?}", end.status["warnings"]);
    assert!(warned.contains("Pod default/agent-0"), "{warned}");
    assert_eq!(
        world.places("agent").await,
        [("agent-0".to_owned(), "old".to_owned())]
    );
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.card.broken_invariants, Vec::<String>::new());
    assert_eq!(verdict.evicted(), ["cache-0", "db-0", "db-1"]);
}

/// What of the Deployment must be the same after a surge: its template and its `ReplicaSet`.
async fn sets(world: &World) -> Vec<String> {
    let api: Api<k8s_openapi::api::apps::v1::ReplicaSet> = world.api().await;
    let sets = api.list(&ListParams::default()).await.unwrap();
    let mut names: Vec<_> = sets.iter().map(ResourceExt::name_any).collect();
    names.sort();
    names
}

/// A Deployment of twelve with four pods on the selected node: those four move, none is missed at any time, and it is not rolled out.
#[tokio::test(flavor = "multi_thread")]
async fn a_surge_moves_four_of_twelve_and_nobody_notices() {
    surge_of_twelve(false).await;
}

/// The same, and in the middle somebody puts the replica count back, as a `GitOps` tool does.
#[tokio::test(flavor = "multi_thread")]
async fn a_surge_whose_count_is_put_back_moves_the_same_four() {
    surge_of_twelve(true).await;
}

async fn surge_of_twelve(put_back: bool) {
    let world = World::start().await;
    world.nodes(&[("old", "4"), ("stays", "8")]).await;
    let web = fixtures::deployment("web", 12)
        .requests("1", "64Mi")
        .ready_after(2);
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    let before = sets(&world).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    if put_back {
        world
            .pods_until("the count to be raised", |pods: &[Pod]| {
                let web = pods.iter().filter(|p| p.name_any().starts_with("web-"));
                (web.count() > 12).then_some(())
            })
            .await;
        world
            .kubectl(&["scale", "deployment", "web", "--replicas=12"])
            .await;
    }
    let end = story.succeeds().await;
    assert_eq!(end.pods, "4/4");
    let workload = &end.status["workloads"][0];
    // Raising it again would be a fight without an end: the rest goes by evictions, and the record says why.
    let how = if put_back { "Evict" } else { "Surge" };
    assert_eq!(workload["strategy"], how, "{workload}");
    assert_eq!(sets(&world).await, before);
    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    assert_eq!(verdict.card.double_moves, 0, "{:#?}", verdict.card);
    if !put_back {
        verdict.moved_once(4);
        assert_eq!(verdict.most_down("default/Deployment/web"), 0);
    }
    assert_eq!(node_counts(&world).await, (0, 12));
}

/// Pods of the Deployment on the old node, and in all.
async fn node_counts(world: &World) -> (usize, usize) {
    let pods = world.places("web").await;
    let old = pods.iter().filter(|(_, node)| node == "old").count();
    (old, pods.len())
}
