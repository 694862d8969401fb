//! Editing a relocation while it runs: limits and times may change in every stage and count from then on, what the plan was made from may
//! not, and the refusal names the field.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use lab::fixtures::{self, Pods};
use lab::judge::Kind;
use serde_json::{Value, json};

use crate::held::{Case, Stage};
use crate::shared::Shared;
use crate::world::{World, node_of};

const STAGES: [Stage; 6] = [
    Stage::Protecting,
    Stage::Cordoning,
    Stage::Provisioning,
    Stage::Moving,
    Stage::Draining,
    Stage::Removing,
];

/// What may change, with values that differ from stage to stage.
fn allowed(step: usize) -> Vec<Value> {
    let failure = if step.is_multiple_of(2) {
        "Hold"
    } else {
        "Rollback"
    };
    vec![
        json!({"workloads": {"maxConcurrent": 2 + step}}),
        json!({"replacement": {"timeoutSeconds": 1000 + step}}),
        json!({"activeDeadlineSeconds": 3600 + step}),
        json!({"ttlSecondsAfterFinished": 7200 + step}),
        json!({"onFailure": failure}),
    ]
}

/// What may not, by the name that the refusal has to give.
fn refused() -> Vec<(&'static str, Value)> {
    vec![
        ("spec.nodes", json!({"nodes": {"limit": 7}})),
        ("spec.nodes", json!({"nodes": {"names": ["another"]}})),
        (
            "spec.replacement.strategy",
            json!({"replacement": {"strategy": "None"}}),
        ),
        (
            "spec.replacement.image",
            json!({"replacement": {"image": "pause:1"}}),
        ),
        (
            "spec.workloads.strategy",
            json!({"workloads": {"strategy": "Surge"}}),
        ),
        (
            "spec.workloads.settleSeconds",
            json!({"workloads": {"settleSeconds": 9}}),
        ),
        ("spec.protection", json!({"protection": {"pods": "All"}})),
        ("spec.afterDrain", json!({"afterDrain": "Keep"})),
    ]
}

/// One relocation, held in each stage in turn.
#[test]
fn in_every_stage_limits_may_change_and_the_plan_may_not() {
    let shared = Shared::get();
    let name = "edited";
    let mut case = Case {
        shared: &shared,
        name: name.to_owned(),
        holds: STAGES.to_vec(),
    };
    shared.tell(name, async {
        case.set_up().await;
        let mut story = case.relocate().await;
        let relocations = case.dynamic(Kind::NodeRelocation).await;
        let params = PatchParams::default();
        for (step, stage) in STAGES.into_iter().enumerate() {
            case.held(&mut story, stage).await;
            let held = story.follower.last().unwrap();
            for (field, spec) in refused() {
                let patch = Patch::Merge(json!({"spec": spec}));
                let answer = relocations.patch(name, &params, &patch);
                let error = answer.await.expect_err(field).to_string();
                let says = format!("{field} is immutable once the relocation has started");
                assert!(error.contains(&says), "in {stage:?}: {error}");
            }
            let mut generation = None;
            for spec in allowed(step) {
                let patch = Patch::Merge(json!({"spec": spec}));
                let answer = relocations.patch(name, &params, &patch);
                generation = answer.await.unwrap().metadata.generation;
            }
            let what = format!("generation {generation:?} to be observed in {stage:?}");
            let observed = story
                .until(&what, |r| {
                    r.status["observedGeneration"] == json!(generation)
                })
                .await;
            // What has been reached is not lost by it. The word of the whole may turn to Blocked by then, for it is held.
            assert_eq!(
                (observed.pods, &observed.status["nodes"]),
                (held.pods, &held.status["nodes"]),
                "in {stage:?}"
            );
            case.lift(stage).await;
        }
        case.nodes_go().await;
        let end = story.succeeds().await;
        assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("3/3", "4/4"));
        story.deleted().await;
    });
}

/// One pod at a time may move, and it hangs. A second one may: the next workload goes at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_raised_limit_lets_the_next_workload_begin() {
    let world = World::start().await;
    world.nodes(&[("old", "2")]).await;
    let hangs = fixtures::stateful_set("a-hangs", 1).never_ends();
    world.lab.put(&hangs).await.unwrap();
    world
        .lab
        .put(&fixtures::stateful_set("db", 1))
        .await
        .unwrap();
    world.settled().await;
    world.nodes(&[("spare", "2")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let spec = "{nodes: {names: [old]}, workloads: {maxConcurrent: 1}}";
    let mut story = world.relocate("raised", spec).await;
    let waits = "a free slot for StatefulSet default/db within workloads.maxConcurrent";
    story.until(waits, |r| r.message.contains(waits)).await;
    assert_eq!(world.places("db").await, [("db-0".into(), "old".into())]);
    let limited = Timestamp::now();
    let patch = r#"{"spec":{"workloads":{"maxConcurrent":2}}}"#;
    world
        .kubectl(&["patch", "nrel", "raised", "--type=merge", "-p", patch])
        .await;
    story
        .until("the database to have moved", |r| r.pods == "1/2")
        .await;
    assert_eq!(world.places("db").await, [("db-0".into(), "spare".into())]);

    // Somebody ends what hangs, as people do with pods on nodes that are not there any more.
    let force = ["delete", "pod", "a-hangs-0", "--force", "--grace-period=0"];
    world.kubectl(&force).await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "2/2");
    world
        .pods_until("both to be on the spare node", |pods: &[Pod]| {
            let there = pods.iter().filter(|p| node_of(p) == "spare");
            (there.count() == 2 && pods.len() == 2).then_some(())
        })
        .await;
    let verdict = recording.judge(&world).await;
    let evicted: Vec<_> = verdict
        .evictions()
        .iter()
        .map(|e| (e.name.clone(), e.at))
        .collect();
    let names: Vec<_> = evicted.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a-hangs-0", "db-0"]);
    assert!(evicted[1].1 > limited, "{evicted:?}");
    assert_eq!(verdict.card.left_behind, Vec::<String>::new());
}
