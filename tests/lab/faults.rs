//! What the operator leans on fails for a while, in the middle of the work: the end is the same, and meanwhile it says what it waits for.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use lab::fixtures::{self, Pods};
use lab::judge::{Identity, read_audit_log};
use lab::operator::{Operator, Relocation};
use lab::{NotYet, Program, wait_until};
use serde_json::json;

use crate::held::{Case, Stage};
use crate::shared::Shared;
use crate::world::{PATIENCE, Recording, Story, Verdict, World, is_ready, node_of};

/// A story in the lab of many, held in one stage, which in the end has moved every pod once, and has changed nothing else.
fn held_in(stage: Stage, name: &str, go_on: impl AsyncFnOnce(&mut Case<'_>, &mut Story<'_>)) {
    let shared = Shared::get();
    let mut case = Case {
        shared: &shared,
        name: name.to_owned(),
        holds: vec![stage],
    };
    shared.tell(name, async {
        case.set_up().await;
        let before = case.snapshot().await;
        let mut story = case.relocate().await;
        case.held(&mut story, stage).await;
        go_on(&mut case, &mut story).await;
        let end = story.succeeds().await;
        assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("3/3", "4/4"));
        case.whole().await;
        let after = case.snapshot().await;
        assert_eq!(case.differences(&before, &after), case.moved(0..3));
        story.deleted().await;
    });
}

/// A policy engine guards evictions, and is down.
#[test]
fn case_14_a_webhook_that_is_down_is_named_and_evictions_go_on_without_it() {
    held_in(Stage::Provisioning, "webhook-down", async |case, story| {
        let lab = &case.shared.world.lab;
        let webhook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "guard"},
            "webhooks": [{
                "name": "guard.policy.example",
                "clientConfig": {"service": {"namespace": "policy", "name": "guard"}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": case.name}},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }],
        });
        lab.apply(&webhook.to_string()).await.unwrap();
        // The API server learns of it a moment later.
        let pod = format!("{}-0", case.called("db"));
        let evict = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": case.name},
        });
        let path = format!(
            "/api/v1/namespaces/{}/pods/{pod}/eviction?dryRun=All",
            case.name
        );
        let client = lab.client().await.unwrap();
        wait_until("the webhook to be asked, in vain", PATIENCE, || async {
            let request = http::Request::post(&path).body(serde_json::to_vec(&evict).unwrap())?;
            match client.request_text(request).await {
                Err(kube::Error::Api(status))
                    if status.message.contains("guard.policy.example") =>
                {
                    Ok(())
                }
                other => Err(NotYet(format!("{other:?}"))),
            }
        })
        .await
        .unwrap();

        case.lift(Stage::Provisioning).await;
        // It is tried again, and the message says on what and why.
        let words = "failed calling webhook \"guard.policy.example\"";
        let named = |r: &Relocation| r.message.contains(words);
        story.until("the failing webhook to be named", named).await;
        // When it doesn't go away by itself, a person is called.
        let said = story.blocked("RequestFails").await;
        assert!(said.contains("attempts failed"), "{said}");
        assert!(said.contains("guard.policy.example"), "{said}");
        assert!(said.contains(&format!("Pod {}/", case.name)), "{said}");
        assert_eq!(story.follower.last().unwrap().pods, "0/4");
        lab.kubectl(&["delete", "validatingwebhookconfiguration", "guard"])
            .await
            .unwrap();
    });
}

/// `kubectl apply` of a definition that says the same in other words, as an upgrade of relocator does: the API server ends all watches.
#[test]
fn the_definition_is_applied_again_underneath_and_nothing_is_lost() {
    held_in(Stage::Moving, "definition", async |case, story| {
        let lab = &case.shared.world.lab;
        let client = lab.client().await.unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client);
        let name = "noderelocations.relocation.sh";
        let mut definition = definitions.get(name).await.unwrap();
        definition.metadata.managed_fields = None;
        let root = definition.spec.versions[0].schema.as_mut().unwrap();
        let root = root.open_api_v3_schema.as_mut().unwrap();
        root.description = Some("It says the same in other words.".to_owned());
        definition
            .annotations_mut()
            .insert("example.com/applied".to_owned(), "again".to_owned());
        let before = story.follower.last().unwrap();
        lab.apply(&serde_json::to_string(&definition).unwrap())
            .await
            .unwrap();
        wait_until("the new words to be served", PATIENCE, || async {
            let words = lab.kubectl(&["explain", "noderelocation"]).await?;
            let there = words.contains("in other words");
            if there { Ok(()) } else { Err(NotYet(words)) }
        })
        .await
        .unwrap();
        // It is heard as before: what somebody changes now is observed.
        case.patch_spec(&json!({"workloads": {"maxConcurrent": 7}}))
            .await;
        let observed = story
            .until("the edit to be observed", |r| {
                r.status["observedGeneration"].as_i64()
                    > before.status["observedGeneration"].as_i64()
            })
            .await;
        assert_eq!(observed.status["nodes"], before.status["nodes"]);
        case.lift(Stage::Moving).await;
    });
}

/// A rollout of the operator itself: the old one ends what it has begun, gives the lease back, and the next one goes on at once.
#[test]
fn told_to_end_it_ends_its_pass_and_hands_over() {
    held_in(Stage::Provisioning, "rolled-over", async |case, story| {
        let lab = &case.shared.world.lab;
        let since = Timestamp::now();
        case.lift(Stage::Provisioning).await;
        // This is recorded before the first evictions are asked for, in the same pass.
        let begins = |r: &Relocation| moving(r).next().is_some();
        story.until("a workload to be about to move", begins).await;
        let ended = async {
            let relocation = story.follower.last().unwrap();
            let requests = read_audit_log(&lab.audit_log(), since).await.unwrap();
            for workload in moving(&relocation) {
                let asked = requests.iter().any(|e| {
                    e.is_eviction() && Identity::relocator().made(e) && e.name.starts_with(workload)
                });
                assert!(
                    asked,
                    "{workload} is said to move, and no eviction was asked for"
                );
            }
        };
        case.shared.rolled_over(ended).await;
    });
}

/// The names of the workloads that move.
fn moving(relocation: &Relocation) -> impl Iterator<Item = &str> {
    let workloads = relocation.status["workloads"].as_array();
    let moving = workloads
        .into_iter()
        .flatten()
        .filter(|w| w["state"] == "Moving");
    moving.filter_map(|w| w["name"].as_str())
}

/// A database of three in the middle of its move: one pod is on its way.
async fn in_the_middle(world: &World) -> (Recording, Story<'_>) {
    world.nodes(&[("old", "3")]).await;
    let db = fixtures::stateful_set("db", 3)
        .requests("1", "64Mi")
        .ready_after(2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "3")]).await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    story.stage("Moving").await;
    world
        .pods_until("db-2 to be on its way", |pods: &[Pod]| {
            let coming = pods.iter().any(|p| node_of(p) == "spare" && !is_ready(p));
            coming.then_some(())
        })
        .await;
    (recording, story)
}

/// As a kubelet does.
async fn restarted_if_ended(world: &World, operator: &mut Operator) {
    if operator.ended().unwrap().is_some() {
        *operator = world.operator_as(operator.identity()).await;
    }
}

/// Starts the operator again whenever it ends, until the story is told.
async fn kept_running<T>(
    world: &World,
    operator: &mut Operator,
    story: impl Future<Output = T>,
) -> T {
    let again = async {
        loop {
            restarted_if_ended(world, operator).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        end = story => end,
        () = again => unreachable!("it never ends"),
    }
}

async fn ends_as_ever(world: &World, recording: Recording, mut story: Story<'_>) -> Verdict {
    let end = story.succeeds().await;
    assert_eq!(end.pods, "3/3");
    world.settled().await;
    let verdict = recording.judge(world).await;
    let evicted: Vec<_> = verdict.evictions().iter().map(|e| e.name.clone()).collect();
    assert_eq!(evicted, ["db-2", "db-1", "db-0"]);
    verdict.moved_once(3);
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    assert_eq!(verdict.card.left_behind, Vec::<String>::new());
    verdict
}

/// Connections are refused, then it is back, with all its watches closed.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_started_again_while_pods_move() {
    let world = World::start().await;
    let mut operator = world.operator().await;
    let (recording, story) = in_the_middle(&world).await;
    world.lab.stop_api_server().unwrap();
    world.lab.start_api_server().await.unwrap();
    let end = ends_as_ever(&world, recording, story);
    let verdict = kept_running(&world, &mut operator, end).await;
    // The judge's own watches were closed as well, and it says what it may have missed meanwhile. Nothing else is wrong.
    let mut broken = verdict.card.broken_invariants;
    broken.retain(|broken| !broken.starts_with("0: the judge did not see all changes"));
    assert_eq!(broken, Vec::<String>::new());
}

/// It keeps its connections and answers nothing, until the lease can't be proved any more. Whether another operator leads by then is
/// unknown, so nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_hangs_while_pods_move() {
    let world = World::start().await;
    let mut operator = world.operator().await;
    let (recording, story) = in_the_middle(&world).await;
    world.lab.pause(Program::ApiServer).unwrap();
    logged(&operator, "the lease cannot be read, so nothing is written").await;
    world.lab.resume(Program::ApiServer).unwrap();
    let end = ends_as_ever(&world, recording, story);
    let verdict = kept_running(&world, &mut operator, end).await;
    verdict.is_clean();
}

/// Waits until a line of the operator's log has these words.
async fn logged(operator: &Operator, words: &str) {
    let what = format!("the operator's log to say {words}");
    wait_until(&what, PATIENCE, || async {
        let log = fs::read_to_string(operator.log())?;
        let said = log.lines().any(|line| line.contains(words));
        let last = || log.lines().last().unwrap_or_default().to_owned();
        if said { Ok(()) } else { Err(NotYet(last())) }
    })
    .await
    .unwrap();
}

/// The binding of its role is deleted, and made again later. It can't even write its status meanwhile, so its log has to tell.
#[tokio::test(flavor = "multi_thread")]
async fn all_access_is_revoked_and_granted_again_while_pods_move() {
    let world = World::start().await;
    let mut operator = world.operator().await;
    let (recording, story) = in_the_middle(&world).await;
    let bindings: Api<ClusterRoleBinding> = Api::all(world.lab.client().await.unwrap());
    let mut binding = bindings.get("relocator").await.unwrap();
    bindings
        .delete("relocator", &DeleteParams::default())
        .await
        .unwrap();
    logged(&operator, "cannot update resource").await;
    operator.check().unwrap();
    binding.metadata.resource_version = None;
    binding.metadata.uid = None;
    binding.metadata.managed_fields = None;
    bindings
        .patch(
            "relocator",
            &PatchParams::apply("lab"),
            &Patch::Apply(&binding),
        )
        .await
        .unwrap();
    ends_as_ever(&world, recording, story).await.is_clean();
    operator.check().unwrap();
}
