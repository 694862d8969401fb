//! The operator dies at every mutating request of the main story, and of an undoing: the end is the same.
//!
//! Each of its lives ends at its first mutating request, in turn right after that was answered and right before the next was sent, so
//! one story has as many crashes as it has requests. Needs feature `crash-test`, which `cargo xtask test` sets.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use lab::LabOptions;
use lab::fixtures::{self, NODE_POOL, Pods, SCENARIO_PODS};
use lab::operator::{Operator, OperatorOptions};
use lab::{NotYet, wait_until};

use crate::world::{PATIENCE, Story, World, binary};

/// In turn: the request has taken effect and nobody knows, and nothing was begun since the last effect.
const MOMENTS: [&str; 2] = ["after:1", "before:2"];

/// Lets one operator after the other live and die until `over`. Returns how many have died.
async fn lives_and_deaths(
    world: &World,
    story: &Story<'_>,
    over: impl Fn(&Story<'_>) -> bool,
) -> usize {
    let mut deaths = 0;
    while !over(story) {
        let moment = MOMENTS[deaths % MOMENTS.len()];
        let options = OperatorOptions {
            // The same, so that the lease is its own and need not run out first.
            identity: Some("mortal".to_owned()),
            environment: BTreeMap::from([("RELOCATOR_CRASH".to_owned(), moment.to_owned())]),
            ..OperatorOptions::default()
        };
        let mut operator = Operator::start_with(&world.lab, binary(), options)
            .await
            .unwrap();
        // Neither its end nor the story's is an event that could be awaited together: both are looked at in turn.
        let died = wait_until("the operator to die, or the story to end", PATIENCE, || {
            let died = operator.ended().unwrap().is_some();
            let over = over(story);
            async move {
                let came = if died {
                    Some(true)
                } else {
                    over.then_some(false)
                };
                came.ok_or_else(|| NotYet::because("neither"))
            }
        })
        .await
        .unwrap();
        if died {
            deaths += 1;
        }
    }
    deaths
}

#[tokio::test(flavor = "multi_thread")]
async fn dying_at_every_request_it_moves_each_pod_once_all_the_same() {
    let world = World::with_karpenter(LabOptions::default()).await;
    fixtures::apply_scenario(&world.lab).await.unwrap();
    fixtures::drift_node_pool(&world.lab, NODE_POOL)
        .await
        .unwrap();
    fixtures::wait_drifted(&world.lab, NODE_POOL).await.unwrap();
    let old: Vec<Node> = world.list().await;
    let old: Vec<_> = old.iter().map(ResourceExt::name_any).collect();
    let recording = world
        .record(&old.iter().map(String::as_str).collect::<Vec<_>>())
        .await;

    let mut story = world
        .relocate("mortal", "{nodes: {nodePools: [apps], state: Drifted}}")
        .await;
    let over = |story: &Story<'_>| story.follower.last().is_some_and(|r| r.is_over());
    let deaths = lives_and_deaths(&world, &story, over).await;
    println!("{deaths} crashes");
    assert!(
        deaths >= 40,
        "one for each request that changes something, requests under way together counted once: {deaths}"
    );
    story.succeeds().await;
    let verdict = recording.judge(&world).await;
    verdict.moved_once(u32::try_from(SCENARIO_PODS).unwrap());
    assert_eq!(verdict.most_down("default/Deployment/session-server"), 0);
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    verdict.is_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn case_136_dying_at_every_request_of_an_undoing_it_puts_everything_back() {
    let world = World::start().await;
    world.nodes(&[("old-1", "3"), ("old-2", "3")]).await;
    let db = fixtures::stateful_set("db", 4).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "2")]).await;
    let before = world.snapshot().await;
    let recording = world.record(&["old-1", "old-2"]).await;

    // Room for two of four: it comes as far as its placeholders, and waits.
    let story = world
        .relocate("undone", "{nodes: {names: [old-1, old-2]}}")
        .await;
    let waits = |story: &Story<'_>| {
        let last = story.follower.last();
        last.is_some_and(|r| {
            let replacement = &r.status["replacement"];
            let partly =
                replacement["placeholdersWanted"] == 4 && replacement["placeholdersPlaced"] == 2;
            r.stage == "Provisioning" && partly
        })
    };
    let mut deaths = lives_and_deaths(&world, &story, waits).await;
    world
        .kubectl(&["delete", "nrel", "undone", "--wait=false"])
        .await;
    wait_until("the relocation to be deleted or gone", PATIENCE, || async {
        let gone = story.follower.last().is_none();
        let found = world
            .kubectl(&[
                "get",
                "nrel",
                "-o",
                "jsonpath={.items[*].metadata.deletionTimestamp}",
            ])
            .await;
        (gone || !found.is_empty())
            .then_some(())
            .ok_or_else(|| NotYet::because("not deleted"))
    })
    .await
    .unwrap();
    let gone = |story: &Story<'_>| story.follower.last().is_none();
    deaths += lives_and_deaths(&world, &story, gone).await;
    println!("{deaths} crashes");
    assert!(deaths >= 15, "{deaths}");
    assert_eq!(
        before.differences(&world.snapshot().await),
        Vec::<String>::new()
    );
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.card.moves, 0);
    verdict.is_clean();
}

/// The deadline passes while there is no room. Whatever the crashes leave unfinished, our own cordon stays, as Hold says, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn case_121_dying_at_every_request_of_a_failure_with_hold_only_the_cordon_stays() {
    let world = World::start().await;
    world.nodes(&[("old-1", "3"), ("old-2", "3")]).await;
    let db = fixtures::stateful_set("db", 4).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.kubectl(&["cordon", "old-1"]).await;
    let before = world.snapshot().await;
    let recording = world
        .record(&["old-1", "old-2"])
        .await
        .stay_cordoned(&["old-2"]);

    let spec = "{nodes: {names: [old-1, old-2]}, onFailure: Hold}";
    let story = world.relocate("held", spec).await;
    let waits = |story: &Story<'_>| {
        let last = story.follower.last();
        last.is_some_and(|r| r.status["replacement"]["placeholdersWanted"] == 4)
    };
    let mut deaths = lives_and_deaths(&world, &story, waits).await;
    let deadline = r#"{"spec":{"activeDeadlineSeconds":1}}"#;
    world
        .kubectl(&["patch", "nrel", "held", "--type=merge", "-p", deadline])
        .await;
    let over = |story: &Story<'_>| story.follower.last().is_some_and(|r| r.is_over());
    deaths += lives_and_deaths(&world, &story, over).await;
    println!("{deaths} crashes");
    assert!(deaths >= 15, "{deaths}");
    let end = story.follower.last().unwrap();
    assert_eq!(end.stage, "Failed");
    let differences = before.differences(&world.snapshot().await);
    assert_eq!(
        differences,
        ["Node old-2: spec.unschedulable was (absent), is true"]
    );
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.card.moves, 0);
    verdict.is_clean();
}
