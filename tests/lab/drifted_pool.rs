//! The story that the project is for: a drifted node pool that Karpenter can't empty, emptied.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use lab::fixtures::{self, NODE_POOL, SCENARIO_NODES, SCENARIO_PODS};
use lab::judge::Kind;
use lab::process::Process;
use lab::{LabOptions, NotYet, PodTimes, wait_until};

use crate::world::{ACCOUNT, PATIENCE, Verdict, World, condition, deeds};

const SPEC: &str = "{nodes: {nodePools: [apps], state: Drifted}}";

/// Ten pods on three drifted nodes: a database, a web tier, and a session server that has to be there at all times.
#[tokio::test(flavor = "multi_thread")]
async fn a_drifted_pool_is_emptied_and_nobody_notices() {
    // Pods that take their time to come and to go, as in the demo: being down has to be possible.
    let world = World::with_karpenter(LabOptions {
        pod_times: PodTimes::General,
        ..LabOptions::default()
    })
    .await;
    fixtures::apply_scenario(&world.lab).await.unwrap();
    fixtures::drift_node_pool(&world.lab, NODE_POOL)
        .await
        .unwrap();
    let claims = fixtures::wait_drifted(&world.lab, NODE_POOL).await.unwrap();
    let claims: BTreeSet<_> = claims.iter().map(ResourceExt::name_any).collect();
    // Why anybody needs relocator: Karpenter has given up.
    let gave_up = fixtures::wait_disruption_blocked(&world.lab).await.unwrap();
    println!("{gave_up}");
    let old: Vec<Node> = world.list().await;
    let old: Vec<_> = old.iter().map(ResourceExt::name_any).collect();
    assert_eq!(old.len(), SCENARIO_NODES);
    let _operator = world.operator().await;
    let recording = world
        .record(&old.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let mut watch = world.lab.kubectl_command();
    watch.args(["get", "nrel", "--watch"]);
    let shown = world.lab.dir().join("get-nrel.txt");
    let watch = Process::start("kubectl", watch, &shown).unwrap();

    let mut story = world.relocate("eks-1-30", SPEC).await;
    // As a script waits for it.
    world
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=5m",
            "nrel/eks-1-30",
        ])
        .await;
    let end = story.succeeds().await;
    assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("3/3", "10/10"));
    // Both kubectl and the events are a moment behind.
    let shown = wait_until("kubectl get --watch to show the end", PATIENCE, || async {
        let shown = std::fs::read_to_string(&shown)?;
        let all = shown.contains("Succeeded") && shown.ends_with('\n');
        if all { Ok(shown) } else { Err(NotYet(shown)) }
    })
    .await
    .unwrap();
    drop(watch);
    let described = wait_until("kubectl describe to tell the end", PATIENCE, || async {
        let text = world.kubectl(&["describe", "nrel", "eks-1-30"]).await;
        let events = text
            .split_once("\nEvents:")
            .map(|(_, events)| events.to_owned());
        let events = events.filter(|events| events.contains(" Succeeded "));
        events.ok_or(NotYet(text))
    })
    .await
    .unwrap();

    let verdict = recording.judge(&world).await;
    verdict.moved_once(u32::try_from(SCENARIO_PODS).unwrap());
    verdict.is_clean();
    assert_eq!(verdict.most_down("default/Deployment/session-server"), 0);
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    let nodes = verdict.card.nodes;
    assert_eq!(nodes.removed as usize, SCENARIO_NODES);
    assert!(
        nodes.made as usize <= SCENARIO_NODES,
        "none too many: {nodes:?}"
    );
    let left = verdict.history.state_at_end();
    for (kind, names) in [
        (Kind::Node, &old.iter().cloned().collect()),
        (Kind::NodeClaim, &claims),
    ] {
        let there: Vec<_> = left.all(kind).filter(|o| names.contains(&o.name)).collect();
        assert!(there.is_empty(), "{there:?}");
    }

    pods_left_by_evictions_that_name_them(&verdict);
    all_requests_were_made_as_the_service_account(&verdict);
    the_columns_read_like_a_sentence(&shown);
    the_events_tell_it_in_order(&described, &story.follower.stages());

    // What GitOps does: the same manifest again, after it has finished and was deleted.
    story.deleted().await;
    let again = Timestamp::now();
    let recording = world.record(&[]).await;
    let mut story = world.relocate("eks-1-30", SPEC).await;
    let end = story.succeeds().await;
    let (status, reason, message) = condition(&end, "Succeeded").unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("True", "NothingToDo"),
        "{message}"
    );
    let verdict = recording.judge(&world).await;
    let wrote = verdict.writes_between(again, verdict.history.ended);
    assert!(!wrote.is_empty(), "at least its own status");
    assert_eq!(deeds(&wrote), Vec::<String>::new());
}

/// No plain delete, and no eviction that a successor of the same name could fall victim to.
fn pods_left_by_evictions_that_name_them(verdict: &Verdict) {
    let evictions = verdict.evictions();
    assert!(
        evictions.len() >= 3,
        "the database, at least: {evictions:?}"
    );
    for eviction in evictions {
        let uid = eviction.body.as_ref().unwrap()["deleteOptions"]["preconditions"]["uid"].as_str();
        let named = verdict.history.changes.iter().any(|c| {
            c.object.kind == Kind::Pod
                && c.object.name == eviction.name
                && Some(c.object.uid.0.as_str()) == uid
        });
        assert!(named, "{eviction} names the UID {uid:?}");
    }
    let deletes: Vec<_> = verdict
        .writes()
        .iter()
        .filter(|w| w.verb.starts_with("delete") && w.target() == "pods")
        .filter(|w| w.namespace != "relocator-placeholders")
        .map(ToString::to_string)
        .collect();
    assert_eq!(deletes, Vec::<String>::new());
}

/// It did all of it with what deploy/ grants, and deploy/ grants all that it asked for.
fn all_requests_were_made_as_the_service_account(verdict: &Verdict) {
    let all = &verdict.history.audit;
    let ours: Vec<_> = all.iter().filter(|e| e.agent() == "relocator").collect();
    assert!(ours.len() > 20, "{}", ours.len());
    for event in all
        .iter()
        .filter(|e| e.agent() == "relocator" || e.user == ACCOUNT)
    {
        assert_eq!(
            (event.user.as_str(), event.agent()),
            (ACCOUNT, "relocator"),
            "{event}"
        );
        assert_ne!(event.code, 403, "{event}");
    }
}

/// READY, STAGE, NODES 1/3, PODS 4/10: what a person sees while it runs.
fn the_columns_read_like_a_sentence(shown: &str) {
    let mut lines = shown
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(
        lines.next().unwrap(),
        ["NAME", "READY", "STAGE", "NODES", "PODS", "AGE"]
    );
    // In Pending and Planning nothing is counted yet, so two columns are empty.
    let rows: Vec<_> = lines.filter(|row| row.len() == 6).collect();
    let counts = |text: &str| {
        let (done, of) = text.split_once('/').unwrap();
        (done.parse::<u32>().unwrap(), of.parse::<u32>().unwrap())
    };
    let mut furthest = (0, 0);
    for row in &rows {
        assert_eq!(row[0], "eks-1-30");
        assert_eq!(row[1] == "True", row[2] == "Succeeded", "{row:?}");
        let ((nodes, of_nodes), (pods, of_pods)) = (counts(row[3]), counts(row[4]));
        assert_eq!((of_nodes, of_pods), (3, 10), "{row:?}");
        assert!((nodes, pods) >= furthest, "{row:?} after {furthest:?}");
        furthest = (nodes, pods);
    }
    let on_its_way = |row: &&Vec<&str>| row[2] == "Moving" && !["0/10", "10/10"].contains(&row[4]);
    assert!(rows.iter().any(|row| on_its_way(&row)), "{shown}");
    assert_eq!(
        rows.last().unwrap()[1..5],
        ["True", "Succeeded", "3/3", "10/10"]
    );
}

/// What `kubectl describe` says has happened: each stage once, and the moves between them.
fn the_events_tell_it_in_order(events: &str, stages: &[String]) {
    let reasons: Vec<&str> = events
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| {
            words
                .first()
                .is_some_and(|t| ["Normal", "Warning"].contains(t))
        })
        .map(|words| words[1])
        .collect();
    let told: Vec<_> = reasons
        .iter()
        .filter(|reason| stages.iter().any(|stage| stage == *reason))
        .collect();
    // A fresh object says Pending by its schema, before anybody has looked at it.
    let expected: Vec<_> = stages.iter().filter(|stage| *stage != "Pending").collect();
    assert_eq!(told, expected, "{events}");
    assert_eq!(reasons.last(), Some(&"Succeeded"), "{events}");
    let position = |reason: &str| reasons.iter().position(|r| *r == reason);
    for (earlier, later) in [
        ("Planned", "Moving"),
        ("Moving", "Evicted"),
        ("Evicted", "NodeDrained"),
        ("NodeDrained", "NodeClaimDeleted"),
        ("NodeClaimDeleted", "Succeeded"),
    ] {
        let both = (position(earlier), position(later));
        assert!(
            both.0.is_some() && both.0 < both.1,
            "{earlier}, then {later}: {events}"
        );
    }
}
