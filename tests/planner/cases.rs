//! Public reports of what went wrong for people, where a decision alone is what matters: each by its number, with the outcome that would
//! have been right.

use jiff::SignedDuration;
use relocator::api::status::MoveStrategy;
use relocator::plan::Action;
use relocator::world::{Health, Job, OtherOwner, OwnerReference};
use relocator::world::{OwnerSight, RolloutStrategy, Uid, WorkloadKind, WorkloadRef};
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

fn warnings(toy: &Toy) -> Vec<String> {
    let status = toy.status();
    let words = status.warnings.iter();
    words
        .map(|w| format!("{} {}", w.reason, w.object))
        .collect()
}

fn blockers(toy: &Toy) -> Vec<String> {
    let status = toy.status();
    let words = status.blockers.iter();
    words
        .map(|b| format!("{} {}", b.reason, b.object))
        .collect()
}

/// How `web` would move.
fn strategy(toy: &mut Toy) -> MoveStrategy {
    let status = toy.plan().status;
    let web = status.workloads.iter().find(|w| w.name == "web");
    web.unwrap_or_else(|| panic!("{:#?}", status.blockers))
        .strategy
}

#[test]
fn case_01_a_budget_that_never_allows_blocks_evictions_and_not_a_surge() {
    let mut one = toy(&json!({"strategy": "Evict"}));
    one.deployment("web", &["old"], SURGES);
    one.budget("web", "web", 1);
    let plan = one.plan();
    assert_eq!(plan.actions, []);
    assert_eq!(
        blockers(&one),
        ["PdbNeverAllows PodDisruptionBudget default/web"]
    );
    let said = &one.status().blockers[0].message;
    assert!(said.contains("1 healthy of 1 pods"), "{said}");

    let mut other = toy(&json!({}));
    other.deployment("web", &["old"], SURGES);
    other.budget("web", "web", 1);
    // All its pods are here and its rollout makes one before it ends one.
    assert_eq!(strategy(&mut other), MoveStrategy::RolloutRestart);
    assert_eq!(blockers(&other), Vec::<String>::new());
}

#[test]
fn case_24_finished_pods_do_not_count() {
    let mut toy = toy(&json!({}));
    let uid = toy.pod("done", "done", Some("old"), None);
    toy.pod_mut(&uid).finished = true;
    let status = toy.plan().status;
    let succeeded = status.conditions.iter().find(|c| c.type_ == "Succeeded");
    assert_eq!(succeeded.unwrap().reason, "NothingToDo");
}

#[test]
fn case_36_local_data_is_named_or_blocks() {
    let volume = |t: &mut Toy| {
        t.stateful_set("cache", &["old"]);
        for pod in t.pods_named("cache") {
            t.pod_mut(&pod.reference.uid).empty_dirs = vec!["data".into()];
        }
    };
    let mut allowed = toy(&json!({}));
    volume(&mut allowed);
    assert!(!allowed.plan().status.workloads.is_empty());
    assert_eq!(blockers(&allowed), Vec::<String>::new());
    let warned = warnings(&allowed);
    assert!(
        warned.contains(&"LocalData StatefulSet default/cache".into()),
        "{warned:?}"
    );

    let mut kept = toy(&json!({"emptyDir": "Block"}));
    volume(&mut kept);
    assert_eq!(kept.plan().actions, []);
    assert_eq!(blockers(&kept), ["LocalData Pod default/cache-0"]);
}

#[test]
fn case_43_a_paused_deployment_is_not_restarted() {
    let mut toy = toy(&json!({}));
    toy.deployment("web", &["old"], SURGES);
    toy.deployment_mut("web").paused = true;
    assert_eq!(strategy(&mut toy), MoveStrategy::Evict);
}

#[test]
fn case_44_what_is_down_for_a_moment_is_announced() {
    let mut alone = toy(&json!({"strategy": "Evict"}));
    alone.deployment("web", &["old"], RolloutStrategy::Recreate);
    assert!(!alone.plan().status.workloads.is_empty());
    assert_eq!(warnings(&alone), ["Downtime Deployment default/web"]);
    // Make before break needs no outage.
    let mut surged = toy(&json!({}));
    surged.deployment("web", &["old", "old"], RolloutStrategy::Recreate);
    assert_eq!(strategy(&mut surged), MoveStrategy::Surge);
    assert_eq!(warnings(&surged), Vec::<String>::new());
    // One pod that is stopped before the next starts may be one that must never run twice.
    for asked in ["Auto", "RolloutRestart", "Surge"] {
        let mut single = toy(&json!({"strategy": asked}));
        single.deployment("web", &["old"], RolloutStrategy::Recreate);
        assert_eq!(strategy(&mut single), MoveStrategy::Evict, "{asked}");
        assert_eq!(warnings(&single), ["Downtime Deployment default/web"]);
    }
}

#[test]
fn case_45_a_volume_is_never_wanted_by_two_pods_at_once() {
    for asked in ["Auto", "RolloutRestart", "Surge"] {
        let mut toy = toy(&json!({"strategy": asked}));
        toy.deployment("web", &["old"], SURGES);
        toy.volume("web", "web", false);
        assert_eq!(strategy(&mut toy), MoveStrategy::Evict, "{asked}");
        assert_eq!(
            warnings(&toy),
            ["Downtime Deployment default/web"],
            "{asked}"
        );
    }
}

#[test]
fn case_47_a_restart_without_surge_is_not_chosen() {
    let no_surge = RolloutStrategy::RollingUpdate {
        max_surge: 0,
        max_unavailable: 1,
    };
    let mut toy = toy(&json!({}));
    toy.deployment("web", &["old", "old"], no_surge);
    assert_eq!(strategy(&mut toy), MoveStrategy::Surge);
}

#[test]
fn case_50_nothing_is_moved_while_a_rollout_runs() {
    let mut toy = toy(&json!({}));
    toy.deployment("web", &["old"], SURGES);
    toy.deployment_mut("web").updated = 0;
    assert_eq!(toy.plan().actions, []);
    assert_eq!(blockers(&toy), ["RolloutInProgress Deployment default/web"]);
}

#[test]
fn case_58_a_broken_pod_moves_first_if_it_is_here_and_blocks_if_it_is_not() {
    let mut here = toy(&json!({}));
    here.stateful_set("db", &["old", "old"]);
    let broken = here.pods_named("db-0")[0].reference.uid.clone();
    here.pod_mut(&broken).ready = false;
    assert!(!here.plan().status.workloads.is_empty());
    assert_eq!(blockers(&here), Vec::<String>::new());

    let mut elsewhere = toy(&json!({}));
    elsewhere.stateful_set("db", &["old", "spare"]);
    let broken = elsewhere.pods_named("db-1")[0].reference.uid.clone();
    elsewhere.pod_mut(&broken).ready = false;
    assert_eq!(elsewhere.plan().actions, []);
    assert_eq!(
        blockers(&elsewhere),
        ["OwnerUnhealthy StatefulSet default/db"]
    );
}

fn cluster(toy: &mut Toy, health: Health) -> OwnerReference {
    let owner = OwnerReference {
        api_version: "db.example.com/v1".into(),
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
        replicas: Some(2),
        health,
        deleting: false,
        job: None::<Job>,
        rollout: None,
    };
    let sight = OwnerSight::Found(Box::new(found));
    toy.cluster.owners.insert(Uid::from("pg"), sight);
    owner
}

#[test]
fn case_18_an_owner_that_is_not_well_by_its_own_word_is_not_touched() {
    let mut well = toy(&json!({}));
    let owner = cluster(&mut well, Health::Healthy);
    well.pod("pg-1", "pg", Some("old"), Some(owner.clone()));
    well.pod("pg-2", "pg", Some("spare"), Some(owner));
    assert!(!well.plan().status.workloads.is_empty());
    assert_eq!(blockers(&well), Vec::<String>::new());
    // The last of its pods that is moved waits for its word as well.
    let wants = |toy: &mut Toy| {
        let plan = toy.plan();
        plan.actions
            .iter()
            .any(|a| matches!(a, Action::Evict { .. }))
    };
    for _ in 0..20 {
        if wants(&mut well) {
            break;
        }
        well.pass();
    }
    assert!(wants(&mut well), "{:#?}", well.status());
    cluster(&mut well, Health::Unwell("1 of 2 in sync".into()));
    assert!(!wants(&mut well), "{:#?}", well.status());

    let mut unwell = toy(&json!({}));
    let owner = cluster(&mut unwell, Health::Unwell("1 of 2 in sync".into()));
    unwell.pod("pg-1", "pg", Some("old"), Some(owner.clone()));
    unwell.pod("pg-2", "pg", Some("spare"), Some(owner));
    assert_eq!(unwell.plan().actions, []);
    assert_eq!(blockers(&unwell), ["OwnerUnhealthy Cluster default/pg"]);
    let said = &unwell.status().blockers[0].message;
    assert!(said.contains("1 of 2 in sync"), "{said}");
}

#[test]
fn case_25_a_job_that_does_not_end_in_time_is_told() {
    let mut toy = toy(&json!({"timeoutSeconds": 60}));
    let owner = OwnerReference {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
        name: "report".into(),
        uid: "report".into(),
    };
    toy.pod("report-x", "report", Some("old"), Some(owner));
    for _ in 0..20 {
        toy.pass();
    }
    assert_eq!(blockers(&toy), Vec::<String>::new(), "{:#?}", toy.status());
    toy.now = toy.now.checked_add(SignedDuration::from_secs(61)).unwrap();
    toy.pass();
    assert_eq!(blockers(&toy), ["JobRunning Job default/report"]);
}

#[test]
fn a_rule_with_order_lets_the_first_go_first_and_says_so() {
    let mut toy = toy(
        &json!({"rules": [{"match": {"selector": {"matchLabels": {"app": "db"}}}, "order": 5}]}),
    );
    toy.stateful_set("db", &["old"]);
    toy.stateful_set("cache", &["old"]);
    let mut seen = Vec::new();
    for _ in 0..60 {
        let plan = toy.step();
        seen.extend(plan.actions.iter().filter_map(|a| match a {
            Action::Evict { pod, .. } => Some(pod.name.clone()),
            _ => None,
        }));
    }
    seen.dedup();
    assert_eq!(seen, ["cache-0", "db-0"], "{:#?}", toy.status());
}

#[test]
fn a_plan_is_kept_up_to_date_and_is_never_over() {
    let mut toy = Toy::new(json!({
        "nodes": {"names": ["old"]}, "replacement": {"strategy": "None"}, "mode": "Plan",
    }));
    toy.node("spare");
    toy.pass();
    assert_eq!((toy.stage().as_str(), toy.is_over()), ("Planned", false));
    assert_eq!(toy.status().nodes.len(), 0);
    toy.node("old");
    toy.stateful_set("db", &["old"]);
    toy.pass();
    assert_eq!((toy.stage().as_str(), toy.is_over()), ("Planned", false));
    assert_eq!(toy.status().workloads.len(), 1);
    let legacy = toy.pod("legacy", "legacy", Some("old"), None);
    assert_eq!(toy.plan().actions, []);
    assert_eq!(toy.stage(), "Blocked");
    toy.pod_mut(&legacy).finished = true;
    assert_eq!(toy.plan().actions, []);
    assert_eq!(toy.stage(), "Planned");
}

/// The watch of owners may only be behind: it would be evicted past its turn.
#[test]
fn case_21_a_pod_whose_owner_is_not_seen_is_not_evicted_as_unmanaged() {
    let mut toy = toy(&json!({"unmanagedPods": "Evict"}));
    let owner = OwnerReference {
        api_version: "apps/v1".into(),
        kind: "StatefulSet".into(),
        name: "db".into(),
        uid: "not-seen".into(),
    };
    toy.pod("db-0", "db", Some("old"), Some(owner));
    toy.pod("legacy", "legacy", Some("old"), None);
    assert_eq!(toy.plan().actions, []);
    assert_eq!(blockers(&toy), ["UnmanagedPod Pod default/db-0"]);
}

/// What a pod would like is not what it needs: a placeholder that insisted on it, or leaned to it, could keep another place than the pod takes.
#[test]
fn case_82_only_what_a_pod_requires_is_asked_for_its_place() {
    let pod = |affinity: serde_json::Value, spread: serde_json::Value| {
        let pod = json!({
            "metadata": {"name": "web-1", "namespace": "default", "uid": "1", "resourceVersion": "1"},
            "spec": {"containers": [], "affinity": affinity, "topologySpreadConstraints": spread},
        });
        let pod = serde_json::from_value(pod).unwrap();
        relocator::world::convert::pod(&pod).unwrap().shape
    };
    let zone = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]});
    let others = json!([{"weight": 100, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}}]);
    let disks = json!([{"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]);
    let wishes = pod(
        json!({
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": zone,
                "preferredDuringSchedulingIgnoredDuringExecution": disks,
            },
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": others},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": others},
        }),
        json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]),
    );
    let required =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": zone}});
    assert_eq!(wishes, pod(required, json!([])));
    assert!(wishes.required_affinity.is_some());
}
