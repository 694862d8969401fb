//! Restarts and who may undo them: `StatefulSets`, Rollouts of Argo, what `GitOps` tools and custom resources own.

use relocator::api::status::{MoveStrategy, WorkloadState};
use relocator::plan::Action;
use relocator::world::{
    Health, Managed, OtherOwner, OwnerReference, OwnerSight, Rollout, RolloutStrategy, SetUpdate,
    Unknown, WorkloadKind, WorkloadRef,
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
    toy.node("spare-2");
    toy
}

fn restart() -> Value {
    json!({"strategy": "RolloutRestart"})
}

/// How the workload is to move, and why.
fn chosen(toy: &mut Toy, name: &str) -> (MoveStrategy, String) {
    let status = toy.plan().status;
    let record = status.workloads.iter().find(|w| w.name == name);
    let record = record.unwrap_or_else(|| panic!("{:#?}", status.blockers));
    (record.strategy, record.why.clone())
}

/// What was asked for until it is over, in words.
fn deeds(toy: &mut Toy) -> Vec<String> {
    let mut deeds = Vec::new();
    for _ in 0..80 {
        for action in toy.step().actions {
            match action {
                Action::Evict { pod, .. } => deeds.push(format!("evict {}", pod.name)),
                Action::Restart { workload, .. } => {
                    deeds.push(format!("restart {}", workload.name));
                }
                Action::Surge { workload, .. } => deeds.push(format!("surge {}", workload.name)),
                _ => {}
            }
        }
    }
    deeds
}

fn restarts(toy: &mut Toy) -> usize {
    let restart = |deed: &&String| deed.starts_with("restart");
    deeds(toy).iter().filter(restart).count()
}

#[test]
fn a_stateful_set_is_restarted_when_that_is_asked_for() {
    let mut toy = toy(&restart());
    toy.stateful_set("db", &["old", "spare", "old"]);
    let (strategy, why) = chosen(&mut toy, "db");
    assert_eq!(strategy, MoveStrategy::RolloutRestart);
    assert!(
        why.contains("all its 3 pods are replaced, 2 of them"),
        "{why}"
    );
    let before = toy.pods_named("db-");
    assert_eq!(deeds(&mut toy), ["restart db"]);
    assert_eq!(toy.stage(), "Succeeded", "{:#?}", toy.status());
    for pod in toy.pods_named("db-") {
        let is_old = before.iter().any(|p| p.reference.uid == pod.reference.uid);
        assert!(!is_old, "{} is still there", pod.reference);
    }
    // In the order of the Kubernetes documentation, the count of what had to move is that of the selected node alone.
    assert_eq!(toy.status().progress.unwrap().pods, "2/2");
}

#[test]
fn case_52_a_restart_is_asked_for_once_also_after_a_crash() {
    let mut toy = toy(&restart());
    toy.stateful_set("db", &["old", "old"]);
    let is_restart = |a: &Action| matches!(a, Action::Restart { .. });
    let mut seen = Vec::new();
    // The leader dies between the record and the request, three times.
    for _ in 0..100 {
        let plan = toy.plan();
        let restart = plan.actions.iter().find(|a| is_restart(a)).cloned();
        if let Some(restart) = restart {
            seen.push(restart);
            if seen.len() == 3 {
                break;
            }
            continue;
        }
        for action in &plan.actions {
            toy.carry_out(action);
        }
        toy.tick();
    }
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|a| *a == seen[0]), "{seen:?}");
    assert_eq!(deeds(&mut toy), ["restart db"]);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_53_a_restart_that_is_undone_is_not_repeated() {
    let mut toy = toy(&restart());
    toy.stateful_set("db", &["old", "old", "old"]);
    toy.until("restarted", |t| {
        let mut sets = t.cluster.stateful_sets.values();
        sets.any(|s| s.restarted_at.is_some())
    });
    let set = toy.stateful_set_mut("db");
    set.restarted_at = None;
    set.generation += 1;
    assert_eq!(restarts(&mut toy), 0);
    let reasons = toy.reasons();
    assert_eq!(reasons, ["RestartReverted"], "{:#?}", toy.status());
}

/// A change of somebody else's just before ours made ours be refused: it was not undone.
#[test]
fn a_change_of_another_before_the_restart_is_not_taken_for_its_undoing() {
    let mut toy = toy(&restart());
    toy.stateful_set("db", &["old", "old"]);
    loop {
        let plan = toy.plan();
        if plan
            .actions
            .iter()
            .any(|a| matches!(a, Action::Restart { .. }))
        {
            break;
        }
        for action in &plan.actions {
            toy.carry_out(action);
        }
        toy.tick();
    }
    toy.stateful_set_mut("db").generation += 1;
    assert_eq!(restarts(&mut toy), 1);
    assert_eq!(toy.stage(), "Succeeded", "{:#?}", toy.status());
}

#[test]
fn case_56_59_what_a_restart_would_not_do_right_goes_by_evictions() {
    let rolling = |partition, max_unavailable| SetUpdate::RollingUpdate {
        partition,
        max_unavailable,
    };
    for (update, why) in [
        (SetUpdate::OnDelete, "OnDelete"),
        (rolling(1, 1), "partition of 1"),
        (rolling(0, 2), "2 pods be missing at once"),
    ] {
        let mut toy = toy(&restart());
        toy.stateful_set("db", &["old", "old", "old"]);
        toy.stateful_set_mut("db").update = update;
        let (strategy, said) = chosen(&mut toy, "db");
        assert_eq!(strategy, MoveStrategy::Evict, "{said}");
        assert!(said.contains(why), "{said}");
        assert_eq!(deeds(&mut toy), ["evict db-2", "evict db-1", "evict db-0"]);
        assert_eq!(toy.stage(), "Succeeded");
    }
    // How pods are made says nothing of how they are updated.
    let mut parallel = toy(&restart());
    parallel.stateful_set("db", &["old", "old"]);
    parallel.stateful_set_mut("db").parallel = true;
    let (strategy, said) = chosen(&mut parallel, "db");
    assert_eq!(strategy, MoveStrategy::RolloutRestart);
    assert!(said.contains("Parallel"), "{said}");
}

#[test]
fn case_56_a_set_that_has_become_on_delete_since_the_plan_goes_by_evictions() {
    let mut toy = toy(&restart());
    toy.stateful_set("db", &["old", "old"]);
    toy.until("started", |t| t.status().start_time.is_some());
    toy.stateful_set_mut("db").update = SetUpdate::OnDelete;
    assert_eq!(deeds(&mut toy), ["evict db-1", "evict db-0"]);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_58_a_broken_pod_goes_first_and_then_comes_the_restart() {
    let mut toy = toy(&restart());
    toy.stateful_set("db", &["old", "old"]);
    let broken = toy.pods_named("db-0")[0].reference.uid.clone();
    toy.sick.push("db-0".into());
    toy.pod_mut(&broken).ready = false;
    toy.until("db-0 to go", |t| !t.cluster.pods.contains_key(&broken));
    toy.sick.clear();
    assert_eq!(deeds(&mut toy), ["restart db"]);
    assert_eq!(toy.stage(), "Succeeded", "{:#?}", toy.status());
}

#[test]
fn a_restart_is_not_chosen_against_a_budget() {
    let mut toy = toy(&restart());
    toy.stateful_set("db", &["old", "spare"]);
    toy.budget("db", "db", 2);
    assert!(toy.plan().actions.is_empty());
    assert_eq!(toy.reasons(), ["PdbNeverAllows"]);
}

// What belongs to somebody.

fn website() -> OwnerReference {
    OwnerReference {
        api_version: "x/v1".into(),
        kind: "Website".into(),
        name: "w".into(),
        uid: "w".into(),
    }
}

fn found(owner: &OwnerReference, health: Health) -> OwnerSight {
    OwnerSight::Found(Box::new(OtherOwner {
        reference: WorkloadRef {
            kind: WorkloadKind::Other {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
            },
            namespace: "default".into(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        },
        replicas: None,
        health,
        deleting: false,
        job: None,
        rollout: None,
    }))
}

fn says(toy: &mut Toy, health: Health) {
    let sight = found(&website(), health);
    toy.cluster.owners.insert("w".into(), sight);
}

#[test]
fn case_53_what_a_custom_resource_owns_is_evicted_and_not_restarted() {
    let mut set = toy(&restart());
    set.stateful_set("db", &["old"]);
    set.stateful_set_mut("db").controller = Some(website());
    says(&mut set, Health::Healthy);
    let (strategy, why) = chosen(&mut set, "db");
    assert_eq!(strategy, MoveStrategy::Evict);
    assert!(
        why.contains("Website w, which could undo a restart"),
        "{why}"
    );

    let mut web = toy(&restart());
    web.deployment("web", &["old"], SURGES);
    web.deployment_mut("web").controller = Some(website());
    says(&mut web, Health::Unsaid);
    assert_eq!(chosen(&mut web, "web").0, MoveStrategy::Evict);
}

#[test]
fn case_68_between_two_moves_the_owner_above_is_waited_for() {
    let mut toy = toy(&json!({}));
    toy.stateful_set("search", &["old", "old"]);
    toy.stateful_set_mut("search").controller = Some(website());
    says(&mut toy, Health::Healthy);
    toy.until("one to have moved", |t| {
        let pods = t.pods_named("search");
        let elsewhere = pods.iter().filter(|p| p.node != Some("old".into()));
        elsewhere.count() == 1
    });
    says(&mut toy, Health::Unwell("shards are relocating".into()));
    assert_eq!(deeds(&mut toy), Vec::<String>::new());
    let status = toy.status();
    let ready = status
        .conditions
        .iter()
        .find(|c| c.type_ == "Ready")
        .unwrap();
    let said = "Website default/w to be Ready by its own word: shards are relocating";
    assert!(ready.message.contains(said), "{}", ready.message);
    says(&mut toy, Health::Healthy);
    assert_eq!(deeds(&mut toy), ["evict search-0"]);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_18_an_owner_above_that_is_not_well_blocks_the_start_unless_the_broken_pod_is_here() {
    let mut unwell = toy(&json!({}));
    unwell.stateful_set("db", &["old", "spare"]);
    unwell.stateful_set_mut("db").controller = Some(website());
    says(&mut unwell, Health::Unwell("1 of 2 in sync".into()));
    assert!(unwell.plan().actions.is_empty());
    let blockers = unwell.status().blockers;
    assert_eq!(blockers[0].object, "Website default/w");
    assert!(
        blockers[0].message.contains("1 of 2 in sync"),
        "{blockers:?}"
    );

    let broken = unwell.pods_named("db-0")[0].reference.uid.clone();
    unwell.pod_mut(&broken).ready = false;
    unwell.pass();
    assert_eq!(unwell.reasons(), Vec::<String>::new());
}

#[test]
fn an_owner_above_that_may_not_be_read_is_a_warning_and_stops_nothing() {
    let unknown = |forbidden| Unknown {
        what: "websites.x".into(),
        why: "websites.x \"w\" is forbidden".into(),
        forbidden,
    };
    for sight in [
        OwnerSight::Failed(unknown(true)),
        OwnerSight::Unserved(unknown(false)),
    ] {
        let mut toy = toy(&json!({}));
        toy.stateful_set("db", &["old"]);
        toy.stateful_set_mut("db").controller = Some(website());
        toy.cluster.owners.insert("w".into(), sight);
        toy.pass();
        let warned = toy.status().warnings;
        assert!(
            warned.iter().any(|w| w.object == "Website default/w"),
            "{warned:?}"
        );
        assert_eq!(deeds(&mut toy), ["evict db-0"]);
        assert_eq!(toy.stage(), "Succeeded");
    }
    // One that did not answer this time may say that it is not well the next.
    let mut silent = toy(&json!({}));
    silent.stateful_set("db", &["old"]);
    silent.stateful_set_mut("db").controller = Some(website());
    let sight = OwnerSight::Failed(unknown(false));
    silent.cluster.owners.insert("w".into(), sight);
    assert!(silent.plan().actions.is_empty());
    assert_eq!(silent.reasons(), ["NotObserved"]);
}

// GitOps.

#[test]
fn case_54_what_a_gitops_tool_sets_is_not_changed_by_itself() {
    let managed = |template, replicas| Managed { template, replicas };
    for (what, asked, expected) in [
        (managed(false, false), "Auto", MoveStrategy::RolloutRestart),
        (managed(true, false), "Auto", MoveStrategy::Surge),
        (managed(true, true), "Auto", MoveStrategy::Evict),
        (managed(false, true), "Auto", MoveStrategy::RolloutRestart),
        // A person who asks for it knows their cluster.
        (
            managed(true, true),
            "RolloutRestart",
            MoveStrategy::RolloutRestart,
        ),
        (managed(true, true), "Surge", MoveStrategy::Surge),
    ] {
        let mut toy = toy(&json!({"strategy": asked}));
        toy.deployment("web", &["old", "old"], SURGES);
        toy.deployment_mut("web").managed = what;
        let (strategy, why) = chosen(&mut toy, "web");
        assert_eq!(strategy, expected, "{what:?} {asked}: {why}");
    }
}

#[test]
fn case_54_a_budget_that_never_allows_leaves_the_restart() {
    let mut toy = toy(&json!({}));
    toy.deployment("web", &["old"], SURGES);
    let web = toy.deployment_mut("web");
    web.managed = Managed {
        template: true,
        replicas: true,
    };
    toy.budget("web", "web", 1);
    let (strategy, why) = chosen(&mut toy, "web");
    assert_eq!(strategy, MoveStrategy::RolloutRestart, "{why}");
}

// Deployments.

#[test]
fn case_51_a_rollout_that_has_failed_after_the_restart_is_a_blocker_and_nothing_is_evicted() {
    let mut toy = toy(&restart());
    toy.deployment("web", &["old", "old", "old", "old"], SURGES);
    toy.until("restarted", |t| {
        let mut all = t.cluster.deployments.values();
        all.any(|d| d.restarted_at.is_some())
    });
    toy.deployment_mut("web").deadline_exceeded = true;
    let value = toy.deployment_mut("web").restarted_at.clone();
    let plan = toy.plan();
    let evicted = plan
        .actions
        .iter()
        .any(|a| matches!(a, Action::Evict { .. }));
    assert!(!evicted, "{:?}", plan.actions);
    assert_eq!(toy.reasons(), ["RolloutFailed"]);
    // Undoing it leaves the annotation: taking it away would be another rollout.
    toy.relocation.metadata.deletion_timestamp = Some(
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(toy.now),
    );
    for _ in 0..10 {
        toy.pass();
    }
    assert_eq!(toy.deployment_mut("web").restarted_at, value);
}

#[test]
fn case_43_a_paused_deployment_blocks_the_restart_that_was_asked_for() {
    let mut toy = toy(&restart());
    toy.deployment("web", &["old"], SURGES);
    toy.deployment_mut("web").paused = true;
    assert!(toy.plan().actions.is_empty());
    assert_eq!(toy.reasons(), ["OwnerPaused"]);
}

#[test]
fn case_44_47_asked_for_a_restart_that_would_stop_pods_first_something_better_is_done() {
    let mut recreate = toy(&restart());
    recreate.deployment("web", &["old", "old"], RolloutStrategy::Recreate);
    let (strategy, why) = chosen(&mut recreate, "web");
    assert_eq!(strategy, MoveStrategy::Evict);
    assert!(why.contains("stop all its pods at once"), "{why}");

    // It loses one at a time, which its budget never allows.
    let mut no_surge = toy(&restart());
    let one_less = RolloutStrategy::RollingUpdate {
        max_surge: 0,
        max_unavailable: 1,
    };
    no_surge.deployment("web", &["old", "old"], one_less);
    no_surge.budget("web", "web", 2);
    let (strategy, why) = chosen(&mut no_surge, "web");
    assert_eq!(strategy, MoveStrategy::Surge);
    assert!(why.contains("budget") || why.contains("Budget"), "{why}");
}

#[test]
fn case_50_a_stateful_set_that_rolls_is_not_restarted() {
    let mut rolling = toy(&restart());
    rolling.stateful_set("db", &["old", "spare"]);
    rolling.stateful_set_mut("db").rolled_out = false;
    assert!(rolling.plan().actions.is_empty());
    assert_eq!(rolling.reasons(), ["RolloutInProgress"]);
}

#[test]
fn case_63_an_owner_that_is_scaled_to_nothing_or_deleted_has_moved() {
    let mut scaled = toy(&json!({}));
    scaled.stateful_set("db", &["old", "old"]);
    scaled.until("moving", |t| t.stage() == "Moving");
    scaled.stateful_set_mut("db").replicas = 0;
    for pod in scaled.pods_named("db") {
        scaled.pod_mut(&pod.reference.uid).terminating = true;
    }
    scaled.until("over", Toy::is_over);
    assert_eq!(scaled.stage(), "Succeeded");

    let mut deleted = toy(&json!({}));
    deleted.stateful_set("db", &["old", "old"]);
    deleted.until("moving", |t| t.stage() == "Moving");
    std::sync::Arc::make_mut(&mut deleted.cluster.stateful_sets).clear();
    for pod in deleted.pods_named("db") {
        deleted.pod_mut(&pod.reference.uid).terminating = true;
    }
    deleted.until("over", Toy::is_over);
    assert_eq!(deleted.stage(), "Succeeded");
}

/// With minReadySeconds a pod is Ready long before it is available, and the next one waits for that.
#[test]
fn case_69_available_and_not_ready_lets_the_next_pod_go() {
    let mut toy = toy(&json!({}));
    toy.stateful_set("db", &["old", "old"]);
    toy.until("the first to have arrived", |t| {
        let db = t.pods_named("db-1");
        let spare = |p: &&std::sync::Arc<_>| -> bool {
            let p: &relocator::world::Pod = p;
            p.ready && p.node.as_ref().is_some_and(|n| n.as_str() != "old")
        };
        db.iter().any(|p| spare(&p))
    });
    toy.stateful_set_mut("db").available = 1;
    let evicts = |toy: &mut Toy| {
        let plan = toy.plan();
        plan.actions
            .iter()
            .any(|a| matches!(a, Action::Evict { .. }))
    };
    assert!(!evicts(&mut toy), "{:#?}", toy.status());
    toy.stateful_set_mut("db").available = 2;
    assert!(evicts(&mut toy), "{:#?}", toy.status());
}

// Argo Rollouts.

fn argo(toy: &mut Toy, change: impl FnOnce(&mut OtherOwner)) {
    let owner = OwnerReference {
        api_version: "argoproj.io/v1alpha1".into(),
        kind: "Rollout".into(),
        name: "shop".into(),
        uid: "shop".into(),
    };
    if !toy.cluster.owners.contains_key(&owner.uid) {
        let OwnerSight::Found(mut found) = found(&owner, Health::Healthy) else {
            unreachable!()
        };
        found.replicas = Some(2);
        found.rollout = Some(Rollout {
            resource_version: "1".into(),
            generation: 1,
            paused: false,
            max_unavailable: 1,
            restart_at: None,
            restarted_at: None,
        });
        toy.cluster
            .owners
            .insert(owner.uid.clone(), OwnerSight::Found(found));
        for n in 1..=2 {
            toy.pod(
                &format!("shop-{n}"),
                "shop",
                Some("old"),
                Some(owner.clone()),
            );
        }
    }
    let Some(OwnerSight::Found(found)) = toy.cluster.owners.get_mut(&owner.uid) else {
        unreachable!()
    };
    change(found);
}

#[test]
fn case_61_a_rollout_is_evicted_by_default_and_restarted_when_that_is_asked_for() {
    let mut by_default = toy(&json!({}));
    argo(&mut by_default, |_| {});
    assert_eq!(chosen(&mut by_default, "shop").0, MoveStrategy::Evict);

    let mut asked = toy(&restart());
    argo(&mut asked, |_| {});
    assert_eq!(chosen(&mut asked, "shop").0, MoveStrategy::RolloutRestart);
    assert_eq!(restarts(&mut asked), 1);
    let start = asked.status().start_time.unwrap().0;
    let mut at = None;
    argo(&mut asked, |o| at = o.rollout.as_ref().unwrap().restart_at);
    assert_eq!(at.unwrap().as_second(), start.as_second());
    // Its controller has replaced its pods, and says so a moment later.
    for pod in asked.pods_named("shop") {
        asked.pod_mut(&pod.reference.uid).node = Some("spare".into());
    }
    assert_eq!(deeds(&mut asked), Vec::<String>::new());
    assert_ne!(asked.stage(), "Succeeded");
    argo(&mut asked, |o| {
        o.rollout.as_mut().unwrap().restarted_at = at;
    });
    asked.until("over", Toy::is_over);
    assert_eq!(asked.stage(), "Succeeded");
}

#[test]
fn case_61_a_paused_rollout_is_not_touched() {
    for asked in ["Auto", "RolloutRestart"] {
        let mut toy = toy(&json!({"strategy": asked}));
        argo(&mut toy, |o| {
            o.rollout.as_mut().unwrap().paused = true;
            o.health = Health::Unwell("Paused: CanaryPauseStep".into());
        });
        assert!(toy.plan().actions.is_empty());
        assert_eq!(toy.reasons(), ["OwnerPaused"]);
    }
}

#[test]
fn case_61_a_rollout_that_is_not_healthy_is_not_restarted() {
    let mut toy = toy(&restart());
    argo(&mut toy, |o| {
        o.health = Health::Unwell("Degraded: no image".into());
    });
    assert!(toy.plan().actions.is_empty());
    assert_eq!(toy.reasons(), ["OwnerUnhealthy"]);
}

// Who leads.

#[test]
fn case_64_the_pod_that_leads_moves_last() {
    let mut toy = toy(&json!({}));
    toy.stateful_set("db", &["old", "old", "old"]);
    let lead = toy.pods_named("db-2")[0].reference.uid.clone();
    let labels = &mut toy.pod_mut(&lead).labels;
    labels.insert("spilo-role".into(), "master".into());
    assert_eq!(deeds(&mut toy), ["evict db-1", "evict db-0", "evict db-2"]);
}

/// As Crunchy Data's operator has it: a `StatefulSet` of one pod for each instance.
#[test]
fn case_64_it_moves_last_also_among_the_workloads_of_one_owner() {
    let mut toy = toy(&json!({}));
    for set in ["pg-a", "pg-b", "pg-c"] {
        toy.stateful_set(set, &["old"]);
        toy.stateful_set_mut(set).controller = Some(website());
    }
    says(&mut toy, Health::Healthy);
    let lead = toy.pods_named("pg-a")[0].reference.uid.clone();
    let key = "postgres-operator.crunchydata.com/role".to_owned();
    toy.pod_mut(&lead).labels.insert(key, "master".into());
    let deeds = deeds(&mut toy);
    assert_eq!(
        deeds.last().map(String::as_str),
        Some("evict pg-a-0"),
        "{deeds:?}"
    );
    assert_eq!(deeds.len(), 3);
    let all_moved = |w: &relocator::api::status::WorkloadStatus| w.state == WorkloadState::Moved;
    assert!(toy.status().workloads.iter().all(all_moved));
}
