//! Who puts back what is changed: `GitOps` tools that set a template or a count, and operators above a Deployment or `StatefulSet`.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use lab::fixtures::{self, Pods};
use lab::{NotYet, wait_until};
use serde_json::{Value, json};

use crate::beside::{Custom, again_and_again, beside};
use crate::world::{PATIENCE, Verdict, World, node_of};

const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// As Flux applies what is in Git: from the server side, by force, every field that Git has and no other.
async fn apply(deployments: &Api<Deployment>, git: &[Deployment]) -> kube::Result<()> {
    let flux = PatchParams::apply("kustomize-controller").force();
    for deployment in git {
        let name = deployment.name_any();
        deployments
            .patch(&name, &flux, &Patch::Apply(deployment))
            .await?;
    }
    Ok(())
}

/// The names of the `ReplicaSet`s of an app.
async fn sets(world: &World, app: &str) -> Vec<String> {
    let api: Api<ReplicaSet> = world.api().await;
    let of_app = ListParams::default().labels(&format!("app={app}"));
    let sets = api.list(&of_app).await.unwrap();
    sets.iter().map(ResourceExt::name_any).collect()
}

/// What relocator has written to Deployments and `StatefulSet`s, refused or not.
fn writes_to(verdict: &Verdict, name: &str) -> Vec<Value> {
    let mut writes = verdict.writes();
    writes.retain(|w| {
        ["deployments", "statefulsets"].contains(&w.resource.as_str()) && w.name == name
    });
    writes
        .iter()
        .map(|w| w.body.clone().unwrap_or_default())
        .collect()
}

/// How a workload was moved, and why, as its relocation has recorded it.
fn how(status: &Value, name: &str) -> (String, String) {
    let all = status["workloads"].as_array().unwrap();
    let it = all.iter().find(|w| w["name"] == name).unwrap();
    let text = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
    (text("strategy"), text("why"))
}

/// Flux applies three Deployments from Git again and again. Of the first it sets template and count: evictions, and nothing is written to
/// it. Of the second it leaves the count to others: a surge. The third is restarted, because a person asks for that: under the field
/// manager of relocator's own Flux lets it be, and it is rolled out once.
#[tokio::test(flavor = "multi_thread")]
async fn case_54_what_flux_applies_is_moved_without_a_fight() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let whole = |name: &str| fixtures::deployment(name, 3).ready_after(1);
    let mut counted = whole("counted");
    counted.spec.as_mut().unwrap().replicas = None;
    let git = [whole("all"), counted, whole("asked")];
    let deployments: Api<Deployment> = world.api().await;
    apply(&deployments, &git).await.unwrap();
    world
        .kubectl(&["scale", "deployment", "counted", "--replicas=3"])
        .await;
    world.settled().await;
    let before = [sets(&world, "all").await, sets(&world, "counted").await];
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, workloads: {rules: [
        {match: {selector: {matchLabels: {app: asked}}}, strategy: RolloutRestart}]}}";
    let mut story = world.relocate("move", spec).await;
    let flux = again_and_again(async || apply(&deployments, &git).await);
    let end = beside(flux, story.succeeds()).await;

    let (strategy, why) = how(&end.status, "all");
    assert_eq!(strategy, "Evict", "{why}");
    assert!(why.contains("a GitOps tool sets"), "{why}");
    assert_eq!(how(&end.status, "counted").0, "Surge");
    assert_eq!(how(&end.status, "asked").0, "RolloutRestart");
    let after = [sets(&world, "all").await, sets(&world, "counted").await];
    assert_eq!(after, before, "no template has changed");
    assert_eq!(sets(&world, "asked").await.len(), 2, "one rollout");
    let verdict = recording.judge(&world).await;
    verdict.moved_once(9);
    verdict.is_clean();
    assert_eq!(writes_to(&verdict, "all"), Vec::<Value>::new());
    let restarts = writes_to(&verdict, "asked");
    assert_eq!(restarts.len(), 1, "{restarts:?}");
    let most = |name: &str| verdict.most_down(&format!("default/Deployment/{name}"));
    assert_eq!((most("all"), most("counted"), most("asked")), (1, 0, 0));
}

/// A tool that owns every field of the template takes the restart away as soon as it sees it. That is told, and relocator does not
/// restart again, however long it takes; told to undo all, it leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn case_54_a_restart_that_is_put_back_is_told_and_not_repeated() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    // Slow enough that the first pod of the new template is not Ready when that goes.
    let web = fixtures::deployment("web", 3).ready_after(5);
    let deployments: Api<Deployment> = world.api().await;
    apply(&deployments, std::slice::from_ref(&web))
        .await
        .unwrap();
    world.settled().await;
    let before = sets(&world, "web").await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await;
    let manager = PatchParams {
        field_manager: Some("flux-client-side-apply".to_owned()),
        ..PatchParams::default()
    };
    let put_back = async || -> kube::Result<()> {
        let now = deployments.get("web").await?;
        let template = now
            .spec
            .unwrap_or_default()
            .template
            .metadata
            .unwrap_or_default();
        if template
            .annotations
            .is_some_and(|a| a.contains_key(RESTARTED_AT))
        {
            let without =
                json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: null}}}}});
            deployments
                .patch("web", &manager, &Patch::Merge(without))
                .await?;
        }
        Ok(())
    };

    let spec = "{nodes: {names: [old]}, workloads: {strategy: RolloutRestart}}";
    let story = async {
        let mut story = world.relocate("move", spec).await;
        let said = story.blocked("RestartReverted").await;
        assert!(said.contains("Deployment default/web"), "{said}");
        assert!(said.contains("does not repeat it"), "{said}");
        world.settled().await;
        story.deleted().await;
    };
    beside(again_and_again(put_back), story).await;

    let after = sets(&world, "web").await;
    assert!(
        after.len() <= 2 && before.iter().all(|b| after.contains(b)),
        "{after:?}"
    );
    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    let restarts = writes_to(&verdict, "web");
    assert_eq!(restarts.len(), 1, "{restarts:?}");
    assert_eq!(verdict.evicted(), Vec::<String>::new());
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);
}

/// Takes the annotation of a restart out of each template that has one.
const STRIPS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: no-restarts}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}
  matchConditions:
  - name: restarted
    expression: >-
      has(object.spec.template.metadata.annotations) &&
      'kubectl.kubernetes.io/restartedAt' in object.spec.template.metadata.annotations
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: 'remove', path: '/spec/template/metadata/annotations/' + jsonpatch.escapeKey('kubectl.kubernetes.io/restartedAt')}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: no-restarts}
spec: {policyName: no-restarts}
";

/// A policy of admission takes the restart out of what is written, and says nothing. It is told all the same, nothing is rolled out, and
/// the restart goes on when the policy is gone.
#[tokio::test(flavor = "multi_thread")]
async fn case_53_a_restart_that_admission_takes_out_is_told() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    for (name, replicas) in [("web", 2), ("probe", 0)] {
        let deployment = fixtures::deployment(name, replicas);
        world.lab.put(&deployment).await.unwrap();
    }
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    world.lab.apply(STRIPS).await.unwrap();
    let deployments: Api<Deployment> = world.api().await;
    let restart =
        json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: "now"}}}}});
    let merge = PatchParams::default();
    wait_until("the policy to be in force", PATIENCE, || async {
        let written = deployments
            .patch("probe", &merge, &Patch::Merge(&restart))
            .await?;
        let spec = written.spec.unwrap_or_default();
        let annotations = spec.template.metadata.unwrap_or_default().annotations;
        let kept = annotations.is_some_and(|a| a.contains_key(RESTARTED_AT));
        if kept {
            Err(NotYet::because("it is not"))
        } else {
            Ok(())
        }
    })
    .await
    .unwrap();
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, workloads: {strategy: RolloutRestart}}";
    let mut story = world.relocate("move", spec).await;
    let said = story.blocked("RequestFails").await;
    assert!(said.contains("Deployment default/web"), "{said}");
    assert!(said.contains("took it out again"), "{said}");
    assert_eq!(sets(&world, "web").await.len(), 1);
    let policy = ["delete", "mutatingadmissionpolicybinding", "no-restarts"];
    world.kubectl(&policy).await;
    story.succeeds().await;

    assert_eq!(sets(&world, "web").await.len(), 2);
    let verdict = recording.judge(&world).await;
    verdict.moved_once(2);
    verdict.is_clean();
}

/// A surge is asked for, and Argo CD puts the count back whenever it differs from Git. It gives way after the first time, and the pods go
/// by evictions.
#[tokio::test(flavor = "multi_thread")]
async fn case_55_a_surge_gives_way_to_a_count_that_argo_puts_back() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let web = fixtures::deployment("web", 3).ready_after(3);
    let deployments: Api<Deployment> = world.api().await;
    let argo = PatchParams::apply("argocd-controller").force();
    deployments
        .patch("web", &argo, &Patch::Apply(&web))
        .await
        .unwrap();
    world.settled().await;
    let before = sets(&world, "web").await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let heal = async || -> kube::Result<()> {
        let count = deployments
            .get("web")
            .await?
            .spec
            .unwrap_or_default()
            .replicas;
        if count != Some(3) {
            deployments.patch("web", &argo, &Patch::Apply(&web)).await?;
        }
        Ok(())
    };

    let spec = "{nodes: {names: [old]}, workloads: {strategy: Surge}}";
    let mut story = world.relocate("move", spec).await;
    let end = beside(again_and_again(heal), story.succeeds()).await;
    let (strategy, why) = how(&end.status, "web");
    assert_eq!(strategy, "Evict");
    assert!(why.contains("put back to 3 by somebody else"), "{why}");
    assert_eq!(sets(&world, "web").await, before);
    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    let raised = |body: &&Value| {
        body.pointer("/spec/replicas")
            .is_some_and(|n| *n != json!(3))
    };
    let writes = writes_to(&verdict, "web");
    assert_eq!(writes.iter().filter(raised).count(), 1, "{writes:?}");
    assert_eq!(verdict.most_down("default/Deployment/web"), 1);
    let pods = world.places("web").await;
    assert!(pods.iter().all(|(_, node)| node == "spare"), "{pods:?}");
    assert_eq!(pods.len(), 3);
}

/// An operator owns a Deployment and a `StatefulSet` and puts back whatever of them is changed. Although a restart is asked for, both are
/// evicted, and nothing is written to them.
#[tokio::test(flavor = "multi_thread")]
async fn case_53_what_an_operator_owns_is_evicted_and_left_as_it_is() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let kind = Custom {
        kind: "Website",
        plural: "websites",
        ..Custom::UNKNOWN
    };
    kind.define(&world).await;
    kind.may_be_read(&world).await;
    let owner = kind.create(&world, "blog", &json!({})).await;
    let mut web = fixtures::deployment("web", 2).ready_after(1);
    web.metadata.owner_references = Some(vec![owner.clone()]);
    let mut db = fixtures::stateful_set("db", 2).ready_after(1);
    db.metadata.owner_references = Some(vec![owner]);
    world.lab.put(&web).await.unwrap();
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let deployments: Api<Deployment> = world.api().await;
    let stateful: Api<StatefulSet> = world.api().await;
    let generations = async || {
        let web = deployments.get("web").await.unwrap().metadata.generation;
        (web, stateful.get("db").await.unwrap().metadata.generation)
    };
    let before = generations().await;
    // As an operator does that owns every field.
    let wants = PatchParams::apply("website-operator").force();
    let keep = async || -> kube::Result<()> {
        deployments
            .patch("web", &wants, &Patch::Apply(&web))
            .await?;
        stateful.patch("db", &wants, &Patch::Apply(&db)).await?;
        Ok(())
    };

    let spec = "{nodes: {names: [old]}, workloads: {strategy: RolloutRestart}}";
    let mut story = world.relocate("move", spec).await;
    let end = beside(again_and_again(keep), story.succeeds()).await;
    for name in ["web", "db"] {
        let (strategy, why) = how(&end.status, name);
        assert_eq!(strategy, "Evict", "{why}");
        assert!(
            why.contains("it belongs to Website blog, which could undo a restart"),
            "{why}"
        );
    }
    assert_eq!(generations().await, before);
    let verdict = recording.judge(&world).await;
    verdict.moved_once(4);
    verdict.is_clean();
    for name in ["web", "db"] {
        assert_eq!(writes_to(&verdict, name), Vec::<Value>::new());
    }
    assert_eq!(verdict.evicted().len(), 4);
    let pods = world.list::<k8s_openapi::api::core::v1::Pod>().await;
    let left: Vec<_> = pods.iter().filter(|p| node_of(p) == "old").collect();
    assert!(left.is_empty(), "{left:?}");
}
