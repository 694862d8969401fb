//! Rollouts of Argo, whose definition and whose controller are the story's: evicted by default, restarted by `spec.restartAt` when that is
//! asked for, left alone while they are paused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    DeleteOptions, ObjectMeta, OwnerReference, Preconditions,
};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use lab::fixtures;
use lab::judge::{Cause, History, Kind, State};
use serde_json::{Value, json};

use crate::beside::{Custom, again_and_again, beside, publish};
use crate::world::{Verdict, World, is_ready, node_of, only_tells};

/// The label by which the sets of a Rollout are told apart.
const VERSION: &str = "version";

/// The controller of Rollouts, as much of it as a move meets: a `ReplicaSet` for each version, a canary that pauses, restarts that evict
/// the pods which are older than `spec.restartAt` one at a time.
///
/// Source: argo-rollouts, `rollout/restart.go` and `rollout/sync.go` of 1.8.
struct Argo {
    rollouts: Api<DynamicObject>,
    sets: Api<ReplicaSet>,
    pods: Api<Pod>,
}

impl Argo {
    async fn of(world: &World) -> Self {
        Custom::ROLLOUT.define(world).await;
        Self {
            rollouts: Custom::ROLLOUT.api(world).await,
            sets: world.api().await,
            pods: world.api().await,
        }
    }

    async fn look(&self) -> kube::Result<()> {
        for rollout in self.rollouts.list(&ListParams::default()).await? {
            self.reconcile(&rollout).await?;
        }
        Ok(())
    }

    async fn reconcile(&self, rollout: &DynamicObject) -> kube::Result<()> {
        let (spec, seen) = (&rollout.data["spec"], &rollout.data["status"]);
        let replicas = spec["replicas"].as_i64().unwrap_or(1);
        let now = text(&spec["template"]["metadata"]["labels"][VERSION]);
        let stable = if seen["stable"].is_null() {
            now.clone()
        } else {
            text(&seen["stable"])
        };
        let promoted = seen["promoteFull"] == true;
        let paused = now != stable && !promoted;
        let wanted: Vec<(&String, i64)> = if now == stable {
            vec![(&now, replicas)]
        } else if paused {
            vec![(&stable, replicas - 1), (&now, 1)]
        } else {
            vec![(&now, replicas)]
        };
        for (version, count) in &wanted {
            self.set(rollout, version, *count).await?;
        }
        let app = format!("app={}", rollout.name_any());
        let pods = self
            .pods
            .list(&ListParams::default().labels(&app))
            .await?
            .items;
        let serving = |version: Option<&String>| {
            let is_it = |p: &&Pod| {
                is_ready(p)
                    && p.metadata.deletion_timestamp.is_none()
                    && version.is_none_or(|v| p.labels().get(VERSION) == Some(v))
            };
            i64::try_from(pods.iter().filter(is_it).count()).unwrap()
        };
        let full = |(version, count): &(&String, i64)| serving(Some(version)) >= *count;
        let whole = wanted.iter().all(full);
        let mut stable_then = stable.clone();
        if promoted && whole {
            self.set(rollout, &stable, 0).await?;
            stable_then.clone_from(&now);
        }
        let restarted = self.restart(spec, seen, &pods, whole && !paused).await?;
        let asked = &spec["restartAt"];
        let (phase, message) = if paused {
            ("Paused", "CanaryPauseStep")
        } else if !asked.is_null() && *asked != restarted {
            ("Progressing", "rollout is restarting")
        } else if !whole || now != stable_then || pods.len() != usize::try_from(replicas).unwrap() {
            ("Progressing", "more replicas need to be updated")
        } else {
            ("Healthy", "")
        };
        let conditions =
            json!([{"reason": "CanaryPauseStep", "startTime": "2026-12-01T00:00:00Z"}]);
        let generation = rollout.metadata.generation.unwrap_or_default();
        let status = json!({
            "observedGeneration": generation.to_string(), "phase": phase, "message": message, "stable": stable_then,
            "pauseConditions": if paused { conditions } else { json!([]) }, "restartedAt": restarted,
            "promoteFull": promoted && now != stable_then, "availableReplicas": serving(None),
        });
        publish(&self.rollouts, rollout, status).await
    }

    /// Makes the set of that version, or gives it that count.
    async fn set(&self, rollout: &DynamicObject, version: &str, count: i64) -> kube::Result<()> {
        let name = format!("{}-{version}", rollout.name_any());
        if self.sets.get_opt(&name).await?.is_none() {
            let labels = json!({"app": rollout.name_any(), VERSION: version});
            let owner = OwnerReference {
                api_version: "argoproj.io/v1alpha1".to_owned(),
                kind: "Rollout".to_owned(),
                name: rollout.name_any(),
                uid: rollout.uid().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            };
            let set = json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {"name": name, "ownerReferences": [owner]},
                "spec": {
                    "replicas": count, "selector": {"matchLabels": labels},
                    "template": rollout.data["spec"]["template"],
                },
            });
            let set: ReplicaSet = serde_json::from_value(set).unwrap();
            self.sets.create(&PostParams::default(), &set).await?;
        }
        let count = Patch::Merge(json!({"spec": {"replicas": count}}));
        self.sets
            .patch(&name, &PatchParams::default(), &count)
            .await
            .map(drop)
    }

    /// Goes on with a restart, and returns the last one that is finished. Refused by a budget, an eviction is tried again.
    async fn restart(
        &self,
        spec: &Value,
        seen: &Value,
        pods: &[Pod],
        whole: bool,
    ) -> kube::Result<Value> {
        let done = seen["restartedAt"].clone();
        let Some(at) = spec["restartAt"].as_str().filter(|at| done != *at) else {
            return Ok(done);
        };
        let at: Timestamp = at.parse().unwrap();
        let made = |p: &Pod| p.creation_timestamp().map(|t| t.0);
        let old = pods.iter().find(|p| made(p) < Some(at));
        match old {
            None if whole => Ok(spec["restartAt"].clone()),
            Some(pod) if whole && pods.iter().all(is_ready) => {
                evict(&self.pods, pod).await?;
                Ok(done)
            }
            _ => Ok(done),
        }
    }
}

async fn evict(pods: &Api<Pod>, pod: &Pod) -> kube::Result<()> {
    let metadata = ObjectMeta {
        name: Some(pod.name_any()),
        namespace: pod.namespace(),
        ..ObjectMeta::default()
    };
    let preconditions = Preconditions {
        uid: pod.uid(),
        ..Preconditions::default()
    };
    let options = DeleteOptions {
        preconditions: Some(preconditions),
        ..DeleteOptions::default()
    };
    let eviction = Eviction {
        metadata,
        delete_options: Some(options),
    };
    pods.create_subresource::<_, Status>(
        "eviction",
        &pod.name_any(),
        &PostParams::default(),
        &eviction,
    )
    .await
    .map(drop)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A Rollout of three, of version `a`, that lets so many pods be missing.
fn rollout(name: &str, max_unavailable: u32) -> Value {
    let pod = json!({
        "metadata": {
            "labels": {"app": name, VERSION: "a"},
            "annotations": {"pod-ready.stage.kwok.x-k8s.io/delay": "1s"},
        },
        "spec": {"containers": [{
            "name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "100m"}},
        }]},
    });
    json!({
        "replicas": 3, "template": pod,
        "strategy": {"canary": {"maxUnavailable": max_unavailable, "steps": [{"setWeight": 30}, {"pause": {}}]}},
    })
}

/// All pods of the Rollout are Ready, three of them, and it says that it is healthy.
async fn healthy(world: &World, argo: &Argo, name: &str) {
    let state = "--for=jsonpath={.status.phase}=Healthy";
    let object = format!("rollouts.argoproj.io/{name}");
    let ready = world.pods_until("three pods to be Ready", |pods: &[Pod]| {
        let its = |p: &&Pod| p.labels().get("app").is_some_and(|a| a == name) && is_ready(p);
        (pods.iter().filter(its).count() == 3).then_some(())
    });
    let wait = ["wait", state, "--timeout=5m", &object];
    beside(again_and_again(async || argo.look().await), async {
        ready.await;
        world.kubectl(&wait).await;
    })
    .await;
}

/// What relocator has written to Rollouts, refused or not.
fn writes_to_rollouts(verdict: &Verdict) -> Vec<Value> {
    let mut writes = verdict.writes();
    writes.retain(|w| w.resource == "rollouts");
    writes
        .iter()
        .map(|w| w.body.clone().unwrap_or_default())
        .collect()
}

/// The fewest pods of an app that served at once, from when all three were seen for the first time.
fn fewest_serving(history: &History, app: &str) -> usize {
    let mut state = State::default();
    let mut fewest = usize::MAX;
    for change in &history.changes {
        state.apply(change);
        if change.cause == Cause::Initial {
            continue;
        }
        let pods = state
            .all(Kind::Pod)
            .filter(|p| p.labels.get("app").is_some_and(|a| a == app));
        fewest = fewest.min(pods.filter(|p| p.is_ready_pod()).count());
    }
    fewest
}

/// Left to itself, relocator evicts the pods one at a time and writes nothing to the Rollout.
#[tokio::test(flavor = "multi_thread")]
async fn case_61_a_rollout_is_evicted_pod_by_pod() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let argo = Argo::of(&world).await;
    let kind = Custom::ROLLOUT;
    kind.create(&world, "shop", &rollout("shop", 1)).await;
    world
        .lab
        .put(&fixtures::max_unavailable("shop", 1))
        .await
        .unwrap();
    healthy(&world, &argo, "shop").await;
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let before = argo.rollouts.get("shop").await.unwrap();

    let story = async {
        let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
        let end = story.succeeds().await;
        let listed = &end.status["workloads"][0];
        let words = (
            &listed["kind"],
            &listed["apiVersion"],
            &listed["strategy"],
            &listed["moved"],
        );
        assert_eq!(
            words,
            (
                &json!("Rollout"),
                &json!("argoproj.io/v1alpha1"),
                &json!("Evict"),
                &json!(3)
            )
        );
    };
    beside(again_and_again(async || argo.look().await), story).await;

    let after = argo.rollouts.get("shop").await.unwrap();
    assert_eq!(after.metadata.generation, before.metadata.generation);
    let verdict = recording.judge(&world).await;
    verdict.moved_once(3);
    verdict.is_clean();
    assert_eq!(verdict.evicted().len(), 3);
    assert_eq!(writes_to_rollouts(&verdict), Vec::<Value>::new());
    assert_eq!(fewest_serving(&verdict.history, "shop"), 2);
}

/// Asked for a restart, relocator writes `spec.restartAt` once, and the Rollout's own controller moves the pods. Where that would take more
/// pods at once than a budget ever allows, it evicts them one at a time instead.
#[tokio::test(flavor = "multi_thread")]
async fn case_61_a_rollout_is_restarted_once_when_that_is_asked_for_and_its_budget_allows() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let argo = Argo::of(&world).await;
    for (name, max_unavailable) in [("shop", 1), ("cart", 2)] {
        let kind = Custom::ROLLOUT;
        kind.create(&world, name, &rollout(name, max_unavailable))
            .await;
        world
            .lab
            .put(&fixtures::max_unavailable(name, 1))
            .await
            .unwrap();
    }
    for name in ["shop", "cart"] {
        healthy(&world, &argo, name).await;
    }
    world.nodes(&[("spare", "4")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let before = argo.rollouts.get("shop").await.unwrap();

    let spec = "{nodes: {names: [old]}, workloads: {strategy: RolloutRestart}}";
    let mut story = world.relocate("move", spec).await;
    let end = beside(
        again_and_again(async || argo.look().await),
        story.succeeds(),
    )
    .await;
    let how = |name: &str| {
        let all = end.status["workloads"].as_array().unwrap();
        let it = all.iter().find(|w| w["name"] == name).unwrap();
        (text(&it["strategy"]), text(&it["why"]))
    };
    assert_eq!(how("shop").0, "RolloutRestart");
    let (strategy, why) = how("cart");
    assert_eq!(strategy, "Evict");
    assert!(why.contains("PodDisruptionBudget default/cart"), "{why}");

    let after = argo.rollouts.get("shop").await.unwrap();
    let changes = after
        .metadata
        .generation
        .zip(before.metadata.generation)
        .map(|(a, b)| a - b);
    assert_eq!(
        changes,
        Some(1),
        "the restart, and nothing else of its spec"
    );
    // The start of the relocation: a value that is the same whenever it is written again.
    assert_eq!(after.data["spec"]["restartAt"], end.status["startTime"]);
    assert_eq!(
        after.data["spec"]["template"],
        before.data["spec"]["template"]
    );
    let verdict = recording.judge(&world).await;
    verdict.moved_once(6);
    verdict.is_clean();
    let wrote = writes_to_rollouts(&verdict);
    assert_eq!(wrote.len(), 1, "{wrote:?}");
    assert_eq!(wrote[0]["metadata"]["uid"], json!(before.uid()));
    let evicted = verdict.evicted();
    assert!(
        evicted.iter().all(|name| name.starts_with("cart-")),
        "{evicted:?}"
    );
    assert_eq!(evicted.len(), 3);
    for app in ["shop", "cart"] {
        assert_eq!(fewest_serving(&verdict.history, app), 2, "{app}");
    }
}

/// A canary that waits for a person is not disturbed, and the relocation says so before anything is touched. Promoted, it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn case_61_a_canary_that_is_paused_is_waited_for() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let argo = Argo::of(&world).await;
    let kind = Custom::ROLLOUT;
    kind.create(&world, "shop", &rollout("shop", 1)).await;
    healthy(&world, &argo, "shop").await;
    world.nodes(&[("spare", "4")]).await;
    // Until the relocation begins, nothing lands there.
    world.kubectl(&["cordon", "spare"]).await;
    let merge = PatchParams::default();
    let update = json!({"spec": {"template": {"metadata": {"labels": {VERSION: "b"}}}}});
    argo.rollouts
        .patch("shop", &merge, &Patch::Merge(update))
        .await
        .unwrap();
    let paused = world.pods_until("the canary to be Ready", |pods: &[Pod]| {
        let canary = |p: &&Pod| p.labels().get(VERSION).is_some_and(|v| v == "b") && is_ready(p);
        (pods.len() == 3 && pods.iter().any(|p| canary(&p))).then_some(())
    });
    let says = [
        "wait",
        "--for=jsonpath={.status.phase}=Paused",
        "--timeout=5m",
        "rollouts.argoproj.io/shop",
    ];
    beside(again_and_again(async || argo.look().await), async {
        paused.await;
        world.kubectl(&says).await;
    })
    .await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, workloads: {strategy: RolloutRestart}}";
    let promoted = [
        "wait",
        "--for=jsonpath={.status.stable}=b",
        "--timeout=5m",
        "rollouts.argoproj.io/shop",
    ];
    let story = async {
        let mut story = world.relocate("move", spec).await;
        let said = story.blocked("OwnerPaused").await;
        assert!(said.contains("Rollout default/shop"), "{said}");
        assert!(said.contains("promote, abort or resume"), "{said}");
        let so_far = recording.so_far();
        let deeds: Vec<_> = so_far
            .audit
            .iter()
            .filter(|e| e.agent() == "relocator" && e.is_write() && !e.is_lease() && !only_tells(e))
            .map(ToString::to_string)
            .collect();
        assert_eq!(deeds, Vec::<String>::new());
        // As `kubectl argo rollouts promote --full` does it.
        let promote = Patch::Merge(json!({"status": {"promoteFull": true}}));
        argo.rollouts
            .patch_status("shop", &merge, &promote)
            .await
            .unwrap();
        world.kubectl(&promoted).await;
        world.kubectl(&["uncordon", "spare"]).await;
        story.succeeds().await
    };
    beside(again_and_again(async || argo.look().await), story).await;

    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    let pods = world.list::<Pod>().await;
    let shop: Vec<_> = pods
        .iter()
        .filter(|p| p.labels().get("app").is_some_and(|a| a == "shop"))
        .collect();
    assert_eq!(shop.len(), 3);
    for pod in shop {
        let is = (node_of(pod), pod.labels()[VERSION].clone());
        assert_eq!(is, ("spare".to_owned(), "b".to_owned()));
    }
    let versions: BTreeMap<_, _> = argo
        .sets
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|s| (s.name_any(), s.spec.unwrap().replicas))
        .collect();
    assert_eq!(versions["shop-a"], Some(0));
    assert_eq!(versions["shop-b"], Some(3));
}
