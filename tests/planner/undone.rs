//! What others do to a move that is under way: refuse a place, undo a restart at once, pass the lead on or keep it, pause an update.

use jiff::SignedDuration;
use relocator::api::status::NodeRelocationStatus;
use relocator::plan::{Action, plan};
use relocator::world::{
    Health, OtherOwner, OwnerReference, OwnerSight, Refusal, RefusalKind, Rollout, WorkloadKind,
    WorkloadRef,
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

fn is_restart(action: &Action) -> bool {
    matches!(action, Action::Restart { .. })
}

fn evicted(actions: &[Action]) -> Vec<String> {
    let name = |action: &Action| match action {
        Action::Evict { pod, .. } => Some(pod.name.clone()),
        _ => None,
    };
    actions.iter().filter_map(name).collect()
}

/// Put back before its controller has made a `ReplicaSet` of the restart: only the generation tells that it was there.
#[test]
fn case_53_a_restart_that_is_undone_before_it_begins_is_not_repeated() {
    let mut toy = toy(&json!({"strategy": "RolloutRestart"}));
    toy.deployment("web", &["old", "old"], SURGES);
    let mut asked = 0;
    for _ in 0..40 {
        let plan = toy.plan();
        for action in &plan.actions {
            let done = toy.carry_out(action);
            if is_restart(action) && done {
                asked += 1;
                let web = toy.deployment_mut("web");
                web.restarted_at = None;
                web.generation += 1;
            }
        }
        toy.tick();
    }
    assert_eq!(asked, 1, "{:#?}", toy.status());
    assert_eq!(toy.reasons(), ["RestartReverted"]);
}

/// A change of somebody else's, of the count for example, that came between what was seen and the restart: it was not undone.
#[test]
fn a_deployment_that_was_changed_before_its_restart_is_restarted_all_the_same() {
    let mut toy = toy(&json!({"strategy": "RolloutRestart"}));
    toy.deployment("web", &["old", "old"], SURGES);
    let mut refused = 0;
    let mut restarted = 0;
    for _ in 0..60 {
        let plan = toy.plan();
        for action in &plan.actions {
            if is_restart(action) && refused < 3 {
                refused += 1;
                let web = toy.deployment_mut("web");
                web.generation += 1;
                web.resource_version.push('0');
            }
            restarted += usize::from(toy.carry_out(action) && is_restart(action));
        }
        toy.tick();
    }
    assert_eq!((refused, restarted), (3, 1), "{:#?}", toy.status());
    assert_eq!(toy.stage(), "Succeeded");
}

/// A set of three whose pod 2 leads. The budget of the lead wants one of one, as `CloudNativePG` makes it.
fn database(nodes: &[&str]) -> Toy {
    let mut toy = toy(&json!({}));
    toy.stateful_set("db", nodes);
    lead(&mut toy, nodes.len() - 1);
    toy.budget("db-primary", "db-primary", 1);
    toy.count_budgets();
    toy
}

/// Passes the lead on to the pod of that number.
fn lead(toy: &mut Toy, number: usize) {
    for pod in toy.pods_named("db-") {
        let leads = pod.reference.name == format!("db-{number}");
        let (role, app) = if leads {
            ("primary", "db-primary")
        } else {
            ("replica", "db")
        };
        let labels = &mut toy.pod_mut(&pod.reference.uid).labels;
        labels.insert("cnpg.io/instanceRole".into(), role.into());
        labels.insert("app".into(), app.into());
    }
    toy.count_budgets();
}

fn warned(status: &NodeRelocationStatus) -> Vec<String> {
    let words = status.warnings.iter();
    words
        .map(|w| format!("{} {}", w.reason, w.object))
        .collect()
}

#[test]
fn case_64_the_lead_whose_budget_never_allows_is_told_before_and_left_when_the_others_have_moved() {
    let mut toy = database(&["old", "old", "old"]);
    let mut gone = Vec::new();
    let _planned = toy.plan();
    assert_eq!(
        warned(&toy.status()),
        ["PdbNeverAllows PodDisruptionBudget default/db-primary"]
    );
    assert_eq!(toy.reasons(), Vec::<String>::new());
    for _ in 0..60 {
        gone.extend(evicted(&toy.step().actions));
    }
    assert_eq!(gone, ["db-1", "db-0"]);
    assert_eq!(toy.reasons(), ["PdbNeverAllows"]);
    let said = toy.status().blockers[0].message.clone();
    assert!(
        said.contains("default/db-2, which leads") && said.contains("switchover"),
        "{said}"
    );
    lead(&mut toy, 0);
    for _ in 0..60 {
        gone.extend(evicted(&toy.step().actions));
    }
    assert_eq!(gone, ["db-1", "db-0", "db-2"]);
    assert_eq!(toy.stage(), "Succeeded");
}

/// Nobody is there to whom the lead could pass.
#[test]
fn case_65_a_database_of_one_whose_budget_never_allows_blocks_the_start() {
    let mut toy = database(&["old"]);
    assert!(toy.plan().actions.is_empty());
    assert_eq!(toy.reasons(), ["PdbNeverAllows"]);
    let said = toy.status().blockers[0].message.clone();
    assert!(
        said.contains("raise the replicas or loosen the budget"),
        "{said}"
    );
    assert!(toy.status().start_time.is_none());
}

/// A Rollout of two, one of which has moved when a canary begins: the other waits, and the wait is told in the Rollout's own words.
#[test]
fn case_61_an_update_that_pauses_on_the_way_is_waited_for() {
    let mut toy = toy(&json!({}));
    let owner = OwnerReference {
        api_version: "argoproj.io/v1alpha1".into(),
        kind: "Rollout".into(),
        name: "shop".into(),
        uid: "shop".into(),
    };
    let rollout = Rollout {
        resource_version: "1".into(),
        generation: 1,
        paused: false,
        max_unavailable: 1,
        restart_at: None,
        restarted_at: None,
    };
    let found = OtherOwner {
        reference: WorkloadRef {
            kind: WorkloadKind::Other {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
            },
            namespace: "default".into(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        },
        replicas: Some(2),
        health: Health::Healthy,
        deleting: false,
        job: None,
        rollout: Some(rollout),
    };
    let sight = OwnerSight::Found(Box::new(found));
    toy.cluster.owners.insert(owner.uid.clone(), sight);
    for name in ["shop-1", "shop-2"] {
        toy.pod(name, "shop", Some("old"), Some(owner.clone()));
    }
    let says = |toy: &mut Toy, paused: bool| {
        let Some(OwnerSight::Found(found)) = toy.cluster.owners.get_mut(&owner.uid) else {
            unreachable!()
        };
        found.rollout.as_mut().unwrap().paused = paused;
        found.health = if paused {
            Health::Unwell("Paused: CanaryPauseStep".into())
        } else {
            Health::Healthy
        };
    };
    let gone: Vec<_> = (0..20).flat_map(|_| evicted(&toy.step().actions)).collect();
    assert_eq!(gone, ["shop-1"]);
    toy.pod("shop-3", "shop", Some("spare"), Some(owner.clone()));
    says(&mut toy, true);
    let gone: Vec<_> = (0..20).flat_map(|_| evicted(&toy.step().actions)).collect();
    assert_eq!(gone, Vec::<String>::new());
    let status = serde_json::to_value(toy.status()).unwrap().to_string();
    let words = "Rollout default/shop to be Ready by its own word: Paused: CanaryPauseStep";
    assert!(status.contains(words), "{status}");
    says(&mut toy, false);
    let gone: Vec<_> = (0..20).flat_map(|_| evicted(&toy.step().actions)).collect();
    assert_eq!(gone, ["shop-2"]);
}

/// A quota, a limit range or a policy refuses the placeholder: that is told, and tried again, for as long as a place may take; then nothing
/// keeps the cordons.
#[test]
fn a_placeholder_that_is_refused_for_too_long_ends_the_relocation() {
    let spec = json!({"nodes": {"names": ["old"]}, "replacement": {"timeoutSeconds": 60}});
    let mut toy = Toy::new(spec);
    toy.node("old");
    toy.node("spare");
    toy.stateful_set("db", &["old"]);
    toy.until("provisioning", |t| t.stage() == "Provisioning");
    let before = toy.placeholders().len();
    assert_eq!(before, 0);
    let asked = toy.plan();
    let creates = |a: &&Action| matches!(a, Action::CreatePlaceholder(_));
    let create = asked.actions.iter().find(creates).unwrap().clone();
    let look = |toy: &Toy| {
        let mut world = toy.look();
        let refusal = Refusal {
            object: "Pod default/db-0".into(),
            kind: RefusalKind::Denied,
            message: "exceeded quota: few".into(),
            until: toy.now,
            attempts: 3,
        };
        world.refusals = [(create.key(), refusal)].into();
        world
    };
    let pass = |toy: &mut Toy, seconds: i64| {
        toy.now = toy
            .now
            .checked_add(SignedDuration::from_secs(seconds))
            .unwrap();
        let plan = plan(&look(toy));
        toy.record(&plan);
        plan
    };
    let told = pass(&mut toy, 0);
    assert_eq!(toy.stage(), "Blocked");
    assert_eq!(toy.reasons(), ["PlaceholderRefused"]);
    assert!(
        told.actions.iter().any(|a| creates(&a)),
        "it is tried again"
    );
    let _still = pass(&mut toy, 59);
    assert_eq!(toy.stage(), "Blocked");
    let ends = pass(&mut toy, 1);
    assert_eq!(toy.stage(), "RollingBack");
    assert_eq!(ends.actions, []);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Failed");
    let status = toy.status();
    let end = status
        .conditions
        .iter()
        .find(|c| c.type_ == "Succeeded")
        .unwrap();
    assert_eq!(end.reason, "PlaceholderRefused");
    assert!(
        end.message.contains("exceeded quota: few"),
        "{}",
        end.message
    );
    assert!(!toy.by_name("old").unschedulable);
}
