//! How pods move: the strategies and their reasons, order, turns and limits.

use relocator::api::status::MoveStrategy;
use relocator::plan::Action;
use relocator::world::{OwnerReference, RolloutStrategy};
use serde_json::json;

use crate::stages::SURGES;
use crate::toy::Toy;

const LOSES: RolloutStrategy = RolloutStrategy::RollingUpdate {
    max_surge: 1,
    max_unavailable: 1,
};
const NO_SURGE: RolloutStrategy = RolloutStrategy::RollingUpdate {
    max_surge: 0,
    max_unavailable: 1,
};

fn toy(spec: serde_json::Value) -> Toy {
    let mut toy = Toy::new(spec);
    toy.node("old");
    toy.node("old-2");
    toy.node("spare");
    toy
}

fn no_places() -> serde_json::Value {
    json!({"nodes": {"names": ["old", "old-2"]}, "replacement": {"strategy": "None"}})
}

/// The strategy that is recorded for `web`, and why.
fn chosen(toy: &mut Toy) -> (MoveStrategy, String) {
    toy.carry_out(&Action::AddFinalizer);
    let status = toy.plan().status;
    let web = status
        .workloads
        .iter()
        .find(|w| w.name == "web")
        .unwrap_or_else(|| panic!("{:#?}", status.blockers));
    (web.strategy, web.why.clone())
}

#[test]
fn the_table_of_strategies() {
    use MoveStrategy::{Evict, RolloutRestart, Surge};
    type Change = fn(&mut Toy);
    let nothing: Change = |_| {};
    let paused: Change = |t| t.deployment_mut("web").paused = true;
    let owned: Change = |t| {
        let owner = OwnerReference {
            api_version: "x/v1".into(),
            kind: "Website".into(),
            name: "w".into(),
            uid: "w".into(),
        };
        t.deployment_mut("web").controller = Some(owner);
    };
    let volume: Change = |t| {
        t.volume("web", "web", false);
    };
    let costed: Change = |t| {
        for pod in t.pods_named("web") {
            t.pod_mut(&pod.reference.uid).marks.deletion_cost = Some("5".into());
        }
    };
    let all: &[&str] = &["old", "old", "old-2"];
    let few: &[&str] = &["old", "spare", "spare"];
    // In the order of design section 4: a restart that loses nothing, a surge, a restart that surges, evictions.
    for (case, strategy, nodes, change, expected, why) in [
        (
            "all here, loses none",
            SURGES,
            all,
            nothing,
            RolloutRestart,
            "makes before it breaks",
        ),
        (
            "all here, would lose one",
            LOSES,
            all,
            nothing,
            Surge,
            "as many more can run beside them",
        ),
        (
            "one of three here",
            SURGES,
            few,
            nothing,
            Surge,
            "1 of its 3 pods",
        ),
        (
            "no surge in its rollout",
            NO_SURGE,
            all,
            nothing,
            Surge,
            "as many more",
        ),
        (
            "recreate",
            RolloutStrategy::Recreate,
            all,
            nothing,
            Surge,
            "as many more",
        ),
        ("paused", SURGES, all, paused, Evict, "paused"),
        ("owned", SURGES, all, owned, Evict, "Website"),
        (
            "with volumes",
            SURGES,
            all,
            volume,
            Evict,
            "persistent volumes",
        ),
        (
            "costs of others, most here",
            LOSES,
            all,
            costed,
            RolloutRestart,
            "deletion cost",
        ),
        (
            "costs of others, few here",
            LOSES,
            few,
            costed,
            Evict,
            "deletion cost",
        ),
        (
            "costs of others, no surge",
            NO_SURGE,
            all,
            costed,
            Evict,
            "maxSurge is 0",
        ),
    ] {
        let mut toy = toy(no_places());
        toy.deployment("web", nodes, strategy);
        change(&mut toy);
        let (strategy, reason) = chosen(&mut toy);
        assert_eq!(strategy, expected, "{case}: {reason}");
        assert!(reason.contains(why), "{case}: {reason}");
    }
}

#[test]
fn what_is_asked_for_wins_where_it_can() {
    for (asked, expected) in [
        ("Evict", MoveStrategy::Evict),
        ("Surge", MoveStrategy::Surge),
        ("RolloutRestart", MoveStrategy::RolloutRestart),
    ] {
        let mut spec = no_places();
        spec["workloads"] = json!({"strategy": asked});
        let mut toy = toy(spec);
        toy.deployment("web", &["old", "spare"], LOSES);
        assert_eq!(chosen(&mut toy).0, expected);
    }
}

/// The names of evicted pods, in their order, with the most that were on the move at once.
fn evictions(toy: &mut Toy) -> Vec<String> {
    let mut evicted = Vec::new();
    for _ in 0..200 {
        if toy.is_over() {
            break;
        }
        for action in toy.step().actions {
            if let Action::Evict { pod, .. } = action {
                evicted.push(pod.name);
            }
        }
    }
    assert_eq!(toy.stage(), "Succeeded", "{:#?}", toy.status());
    evicted
}

#[test]
fn a_database_moves_from_the_highest_ordinal_down_over_all_nodes() {
    let mut toy = toy(no_places());
    toy.node("spare-2");
    toy.stateful_set("db", &["old", "old-2", "spare", "old", "old-2"]);
    assert_eq!(
        evictions(&mut toy),
        ["db-4", "db-3", "db-1", "db-0"],
        "db-2 is not on a selected node"
    );
}

#[test]
fn a_pod_that_is_not_ready_moves_first() {
    let mut toy = toy(no_places());
    toy.stateful_set("db", &["old", "old", "old"]);
    let sick = toy.pods_named("db-0")[0].reference.clone();
    toy.pod_mut(&sick.uid).ready = false;
    toy.sick.push("nobody".into());
    toy.carry_out(&Action::AddFinalizer);
    let mut first = None;
    for _ in 0..50 {
        for action in toy.plan().actions {
            if let Action::Evict { pod, .. } = &action {
                first.get_or_insert(pod.name.clone());
            }
            toy.carry_out(&action);
        }
    }
    assert_eq!(first.as_deref(), Some("db-0"));
}

#[test]
fn no_more_than_max_concurrent_move_at_once() {
    let mut spec = no_places();
    spec["workloads"] = json!({"maxConcurrent": 2});
    let mut toy = toy(spec);
    for name in ["a", "b", "c"] {
        toy.stateful_set(name, &["old"]);
    }
    let mut most = 0;
    for _ in 0..200 {
        if toy.is_over() {
            break;
        }
        let before = toy.plan();
        for action in &before.actions {
            toy.carry_out(action);
        }
        most = most.max(
            toy.cluster
                .pods
                .values()
                .filter(|p| p.terminating || !p.ready)
                .count(),
        );
        toy.tick();
    }
    assert_eq!(most, 2);
}

#[test]
fn workloads_that_share_a_budget_take_turns() {
    let mut toy = toy(no_places());
    for name in ["a", "b"] {
        toy.stateful_set(name, &["old", "old-2"]);
    }
    for name in ["a-0", "a-1", "b-0", "b-1"] {
        let pod = toy.pods_named(name)[0].reference.uid.clone();
        toy.pod_mut(&pod)
            .labels
            .insert("app".into(), "shared".into());
    }
    for set in std::sync::Arc::make_mut(&mut toy.cluster.stateful_sets).values_mut() {
        std::sync::Arc::make_mut(set)
            .pod_labels
            .insert("app".into(), "shared".into());
    }
    // The budget would allow both at once: it wants two of four.
    toy.budget("shared", "shared", 2);
    let mut most = 0;
    for _ in 0..100 {
        if toy.is_over() {
            break;
        }
        for action in toy.plan().actions {
            toy.carry_out(&action);
        }
        let down: Vec<_> = toy.cluster.pods.values().filter(|p| !p.ready).collect();
        let owners: std::collections::BTreeSet<_> = down
            .iter()
            .map(|p| p.controller.as_ref().unwrap().uid.clone())
            .collect();
        most = most.max(owners.len());
        toy.tick();
        // The pods that come again belong to the same budget.
        for pod in toy.pods_named("") {
            toy.pod_mut(&pod.reference.uid)
                .labels
                .insert("app".into(), "shared".into());
        }
    }
    assert_eq!(most, 1, "at no time do both move");
    assert_eq!(toy.stage(), "Succeeded", "{:#?}", toy.status());
}

#[test]
fn a_count_that_somebody_else_has_set_stays() {
    let mut toy = toy(no_places());
    toy.deployment("web", &["old", "spare", "spare"], LOSES);
    toy.until("surging", |t| {
        t.cluster.deployments.values().any(|d| d.surge.is_some())
    });
    // As GitOps does: back to what it was, while the fourth pod is not Ready yet.
    let web = toy.deployment_mut("web");
    assert_eq!(web.replicas, 4);
    web.replicas = 2;
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
    assert_eq!(toy.deployment_mut("web").replicas, 2, "theirs holds");
    assert!(toy.cluster.deployments.values().all(|d| d.surge.is_none()));
}
