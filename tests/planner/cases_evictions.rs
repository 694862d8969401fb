//! Public reports about budgets and evictions, and about what comes back or cannot land: each by its number, with the outcome that would
//! have been right.

use jiff::SignedDuration;
use relocator::plan::{self, Action, Plan};
use relocator::world::{
    Health, OtherOwner, OwnerReference, OwnerSight, Refusal, RefusalKind, RolloutStrategy, Uid,
    WorkloadKind, WorkloadRef, World,
};
use serde_json::{Value, json};

use crate::stages::SURGES;
use crate::toy::Toy;

fn toy(workloads: &Value) -> Toy {
    let mut toy = Toy::new(json!({
        "nodes": {"names": ["old"]}, "replacement": {"strategy": "None"}, "workloads": workloads,
    }));
    toy.node("old");
    toy.node("spare");
    toy
}

fn evictions(plan: &Plan) -> Vec<&str> {
    let evicted = plan.actions.iter().filter_map(|action| match action {
        Action::Evict { pod, .. } => Some(pod.name.as_str()),
        _ => None,
    });
    evicted.collect()
}

fn message(toy: &Toy) -> String {
    let status = toy.status();
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
    ready.map(|c| c.message.clone()).unwrap_or_default()
}

/// Until something is about to be evicted; nothing of that plan is carried out.
fn about_to_evict(toy: &mut Toy) -> Plan {
    for _ in 0..50 {
        let plan = toy.plan();
        if !evictions(&plan).is_empty() {
            return plan;
        }
        for action in &plan.actions {
            toy.carry_out(action);
        }
        toy.tick();
    }
    panic!("nothing is evicted: {:#?}", toy.status());
}

/// `maxUnavailable: 0` is set on purpose by some: it is told and left alone. No action writes a budget, so a person has to.
#[test]
fn case_02_a_budget_of_max_unavailable_0_is_told_and_left_as_it_is() {
    let mut toy = toy(&json!({"strategy": "Evict"}));
    toy.stateful_set("kafka", &["old", "spare"]);
    toy.budget("kafka", "kafka", 2);
    for _ in 0..5 {
        assert_eq!(toy.plan().actions, [], "before any cordon");
        toy.tick();
    }
    assert_eq!(toy.reasons(), ["PdbNeverAllows"]);
    let said = &toy.status().blockers[0].message;
    assert!(said.contains("2 healthy of 2 pods"), "{said}");
    // A person loosens it, and it goes on by itself.
    toy.cluster.budgets = std::sync::Arc::default();
    toy.budget("kafka", "kafka", 1);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

/// A drain that waits says for which pod and for which budget, at once, and says it once.
#[test]
fn case_09_a_wait_for_a_budget_names_the_pod_and_the_budget_once() {
    let mut toy = toy(&json!({"strategy": "Evict"}));
    toy.stateful_set("db", &["old", "spare"]);
    toy.budget("db", "db", 1);
    let _planned = about_to_evict(&mut toy);
    // Somebody else has just taken what the budget could spare.
    let uid = Uid::from("budget-db");
    let budgets = std::sync::Arc::make_mut(&mut toy.cluster.budgets);
    let budget = std::sync::Arc::make_mut(budgets.get_mut(&uid).unwrap());
    (budget.disruptions_allowed, budget.current_healthy) = (0, 1);
    assert_eq!(toy.plan().actions, []);
    let wanted = "PodDisruptionBudget default/db to allow the eviction of default/db-0: 1 healthy, 1 desired";
    assert!(message(&toy).contains(wanted), "{}", message(&toy));
    let before = toy.status();
    for _ in 0..10 {
        toy.now = toy.now.checked_add(SignedDuration::from_secs(30)).unwrap();
        assert_eq!(toy.plan().status, before, "no text changes with the clock");
        assert_eq!(plan::notes(&before, &toy.status()), [], "no event a retry");
    }
}

/// The world after the API server has refused the eviction in that way.
fn refused(toy: &Toy, plan: &Plan, kind: RefusalKind, message: &str, attempts: u32) -> World {
    let mut world = toy.look();
    let evictions = plan
        .actions
        .iter()
        .filter(|a| matches!(a, Action::Evict { .. }));
    let refusal = Refusal {
        object: "Pod default/db-0".into(),
        kind,
        message: message.into(),
        until: toy.now.checked_add(SignedDuration::from_secs(7)).unwrap(),
        attempts,
    };
    world.refusals = evictions.map(|a| (a.key(), refusal.clone())).collect();
    world
}

fn conditions(plan: &Plan) -> Vec<(String, String)> {
    let all = plan.status.conditions.iter();
    all.map(|c| (c.type_.clone(), c.reason.clone())).collect()
}

/// What a 429 means is told by its cause (`act::refused`); one of flow control is nobody's budget, and nothing is blocked by it. design.md
/// has no condition `Throttled`: what is waited for is in the message.
#[test]
fn case_10_flow_control_is_waited_for_and_no_budget_is_blamed() {
    let mut toy = toy(&json!({}));
    toy.stateful_set("db", &["old"]);
    toy.budget("db", "db", 0);
    let asked = about_to_evict(&mut toy);
    let busy = "Too many requests, please try again later.";
    let mut world = refused(&toy, &asked, RefusalKind::Throttled, busy, 9);
    let waiting = plan::plan(&world);
    assert_eq!(
        evictions(&waiting),
        Vec::<&str>::new(),
        "not before its time"
    );
    assert_eq!(waiting.status.blockers, []);
    let stalled = conditions(&waiting)
        .iter()
        .any(|(kind, _)| kind == "Stalled");
    assert!(!stalled, "{:#?}", waiting.status.conditions);
    let ready = &waiting
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == "Ready")
        .unwrap()
        .message;
    assert!(
        ready.contains("Pod default/db-0: Too many requests"),
        "{ready}"
    );
    // The pause that was asked for, and then again.
    assert_eq!(waiting.wake_after, Some(std::time::Duration::from_secs(7)));
    world.now = world.now.checked_add(SignedDuration::from_secs(7)).unwrap();
    assert_eq!(evictions(&plan::plan(&world)), ["db-0"]);
}

/// A webhook that does not answer is a server error: the eviction is asked for again, a person is called, and the node is not taken for
/// empty while the pod is on it.
#[test]
fn case_14_a_webhook_that_does_not_answer_is_asked_again_and_the_node_stays() {
    let mut toy = toy(&json!({}));
    toy.stateful_set("db", &["old"]);
    let asked = about_to_evict(&mut toy);
    let eof = "Internal error occurred: failed calling webhook \"guard.example\": EOF";
    for attempts in 1..6 {
        let mut world = refused(&toy, &asked, RefusalKind::Failed, eof, attempts);
        let plan = plan::plan(&world);
        assert_eq!(evictions(&plan), Vec::<&str>::new());
        let stages: Vec<_> = plan.status.nodes.iter().map(|n| n.stage.as_str()).collect();
        assert_eq!(stages, ["Moving"], "not drained while the pod is there");
        let blocked = plan
            .status
            .blockers
            .iter()
            .find(|b| b.message.contains(eof));
        assert_eq!(
            blocked.is_some(),
            attempts >= 3,
            "after {attempts} attempts"
        );
        world.now = world.now.checked_add(SignedDuration::from_secs(7)).unwrap();
        assert_eq!(evictions(&plan::plan(&world)), ["db-0"], "asked again");
    }
    // It answers: on it goes.
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

/// Thousands of budgets: no more is asked for at a time than maxConcurrent, and what was refused not before its time.
#[test]
fn case_19_many_budgets_are_not_all_asked_at_once() {
    let mut toy = toy(&json!({"maxConcurrent": 5}));
    toy.autoscaled = true;
    for number in 0..60 {
        let name = format!("db{number}");
        toy.stateful_set(&name, &["old", "spare"]);
        toy.budget(&name, &name, 1);
    }
    let first = about_to_evict(&mut toy);
    assert_eq!(evictions(&first).len(), 5);
    let world = refused(
        &toy,
        &first,
        RefusalKind::Budget,
        "it would violate the budget",
        1,
    );
    let again = plan::plan(&world);
    let asked_before = evictions(&first);
    let twice: Vec<_> = evictions(&again)
        .into_iter()
        .filter(|e| asked_before.contains(e))
        .collect();
    assert_eq!(twice, Vec::<&str>::new(), "one probe a budget");
    toy.until("over", |t| {
        let leaving = t.cluster.pods.values().filter(|p| p.terminating).count();
        assert!(leaving <= 5, "{leaving} at a time");
        t.is_over()
    });
}

/// A pod that tolerates the cordon would be bound to the same node again, for ever.
#[test]
fn case_31_a_pod_that_tolerates_the_cordon_is_not_evicted() {
    for (tolerations, blocks) in [
        (json!([{"operator": "Exists"}]), true),
        (
            json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]),
            true,
        ),
        (
            json!([{"operator": "Exists", "effect": "NoExecute"}]),
            false,
        ),
        (json!([{"key": "dedicated", "operator": "Exists"}]), false),
    ] {
        let mut toy = toy(&json!({}));
        toy.deployment("web", &["old"], SURGES);
        let pod = toy.pods_named("web")[0].reference.uid.clone();
        toy.pod_mut(&pod).shape.tolerations = serde_json::from_value(tolerations.clone()).unwrap();
        let plan = toy.plan();
        let reasons = toy.reasons();
        assert_eq!(
            reasons.contains(&"ToleratesCordon".to_owned()),
            blocks,
            "{tolerations}: {reasons:?}"
        );
        if blocks {
            assert_eq!(
                plan.actions,
                [],
                "nothing is written, the cordon least of all"
            );
        }
    }
}

/// An image of Windows takes half an hour to pull. The placeholder goes where such an image can run, and until the first pod serves the
/// next one stays, however long that takes.
#[test]
fn case_40_places_are_of_the_same_system_and_the_next_pod_waits_for_the_first() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    for node in ["old", "spare"] {
        let os = ("kubernetes.io/os".to_owned(), "windows".to_owned());
        toy.node(node).labels.extend([os]);
    }
    toy.stateful_set("iis", &["old", "old"]);
    let mut places = Vec::new();
    for _ in 0..30 {
        let plan = toy.step();
        places.extend(plan.actions.into_iter().filter_map(|action| match action {
            Action::CreatePlaceholder(placeholder) => Some(placeholder),
            _ => None,
        }));
        if toy.stage() == "Moving" {
            break;
        }
    }
    assert_eq!(places.len(), 2);
    for place in places {
        assert_eq!(place.shape.node_selector["kubernetes.io/os"], "windows");
    }
    toy.sick = vec!["iis-1".into()];
    toy.until("the first to have left", |t| {
        t.pods_named("iis-1")
            .iter()
            .any(|p| p.node == Some("spare".into()))
    });
    for _ in 0..30 {
        toy.now = toy.now.checked_add(SignedDuration::from_mins(1)).unwrap();
        assert_eq!(evictions(&toy.step()), Vec::<&str>::new());
    }
    assert!(
        toy.reasons().contains(&"ReplacementNotReady".to_owned()),
        "{:?}",
        toy.reasons()
    );
    toy.sick.clear();
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

/// Argo CD with selfHeal puts the replica count back while it is raised: once, for it is not raised again.
#[test]
fn case_55_a_count_that_is_put_back_is_not_raised_again() {
    let mut toy = toy(&json!({"strategy": "Surge"}));
    toy.deployment("web", &["old", "old", "spare"], SURGES);
    let mut raised = 0;
    for _ in 0..100 {
        let plan = toy.plan();
        for action in &plan.actions {
            toy.carry_out(action);
            if matches!(action, Action::Surge { .. }) {
                raised += 1;
                toy.deployment_mut("web").replicas = 3;
            }
        }
        toy.tick();
        if toy.is_over() {
            break;
        }
    }
    assert_eq!((toy.stage().as_str(), raised), ("Succeeded", 1));
    assert_eq!(toy.deployment_mut("web").replicas, 3);
    let why = &toy.status().workloads[0].why;
    assert!(why.contains("put back to 3 by somebody else"), "{why}");
}

fn cluster_of_one(toy: &mut Toy) -> OwnerReference {
    let owner = OwnerReference {
        api_version: "postgresql.cnpg.io/v1".into(),
        kind: "Cluster".into(),
        name: "pg".into(),
        uid: "pg".into(),
    };
    let found = OtherOwner {
        reference: WorkloadRef {
            kind: WorkloadKind::Other {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
            },
            namespace: "default".into(),
            name: "pg".into(),
            uid: "pg".into(),
        },
        replicas: Some(1),
        health: Health::Healthy,
        deleting: false,
        job: None,
        rollout: None,
    };
    let sight = OwnerSight::Found(Box::new(found));
    toy.cluster.owners.insert(owner.uid.clone(), sight);
    owner
}

/// A database of one instance, whose operator keeps a budget of minAvailable 1: told by the plan, with an event and since when, before
/// anything is touched, and not found out days later.
#[test]
fn case_65_a_database_of_one_instance_is_told_by_the_plan() {
    for mode in ["Execute", "Plan"] {
        let mut toy = toy(&json!({}));
        toy.relocation.spec.mode = serde_json::from_value(json!(mode)).unwrap();
        let owner = cluster_of_one(&mut toy);
        toy.pod("pg-1", "pg", Some("old"), Some(owner));
        toy.budget("pg-primary", "pg", 1);
        let before = toy.status();
        let plan = toy.plan();
        assert_eq!(plan.actions, []);
        assert_eq!(toy.reasons(), ["PdbNeverAllows"], "{mode}");
        let blocker = &toy.status().blockers[0];
        assert_eq!(blocker.object, "PodDisruptionBudget default/pg-primary");
        assert!(
            blocker.message.contains("default/pg-1"),
            "{}",
            blocker.message
        );
        assert_eq!(blocker.since.0, toy.now, "in the first pass");
        let told = plan::notes(&before, &toy.status());
        let warns = told
            .iter()
            .any(|n| n.warning && n.reason == "PdbNeverAllows");
        assert!(warns, "{told:#?}");
        // Since when does not move.
        let since = blocker.since.clone();
        toy.now = toy
            .now
            .checked_add(SignedDuration::from_hours(300))
            .unwrap();
        let _plan = toy.plan();
        assert_eq!(toy.status().blockers[0].since, since);
    }
}

/// Rook closes the budgets of the other failure domains when the first one has lost its disk, and opens them when the data is whole.
#[test]
fn case_67_a_budget_that_closes_on_the_way_is_waited_for() {
    let mut toy = toy(&json!({"maxConcurrent": 1}));
    for osd in ["osd0", "osd1"] {
        toy.deployment(osd, &["old"], RolloutStrategy::Recreate);
        toy.volume(osd, osd, false);
    }
    toy.until("the first to have moved", |t| {
        t.pods_named("osd0")
            .iter()
            .any(|p| p.node == Some("spare".into()) && p.ready)
    });
    toy.budget("rook-ceph-osd-host-b", "osd1", 1);
    for _ in 0..10 {
        assert_eq!(evictions(&toy.step()), Vec::<&str>::new());
    }
    assert_eq!(toy.reasons(), ["PdbNeverAllows"]);
    toy.cluster.budgets = std::sync::Arc::default();
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

/// What the API server is sent for an eviction names the UID and no grace period: that is the pod's own, half an hour or not. The body is
/// asserted on a real control plane (`case_37_an_eviction_leaves_the_pod_its_grace_period`); here, that nothing shortens the wait.
#[test]
fn case_37_a_pod_with_a_long_grace_period_is_waited_for() {
    let mut toy = toy(&json!({}));
    toy.stateful_set("db", &["old", "old"]);
    toy.endless = vec!["db-1".into()];
    toy.until("the first to stop", |t| t.pods_named("db-1")[0].terminating);
    let grace = toy.now.checked_add(SignedDuration::from_mins(30)).unwrap();
    let uid = toy.pods_named("db-1")[0].reference.uid.clone();
    toy.pod_mut(&uid).stops_by = Some(grace);
    while toy.now < grace {
        toy.now = toy.now.checked_add(SignedDuration::from_mins(5)).unwrap();
        assert_eq!(evictions(&toy.step()), Vec::<&str>::new());
        assert_eq!(toy.reasons(), Vec::<String>::new(), "it has its time");
    }
    toy.endless.clear();
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}
