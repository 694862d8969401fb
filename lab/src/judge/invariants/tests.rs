#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
//! For each invariant a good run that passes and a bad one that is caught and named.
use serde_json::json;

use super::*;
use crate::judge::input::Interval;
use crate::judge::object::Kind;
use crate::judge::story::{DB, Story, WEB, t};

/// `web` of 2 and `db` of 2, a pod of each on both old nodes; a placeholder on the new one.
pub(super) fn world() -> Story {
    let mut s = Story::new();
    s.deployment("web", 2).stateful_set("db", 2);
    s.pod("web-1-a", WEB, "old-a", true)
        .pod("web-1-b", WEB, "old-b", true)
        .pod("db-0", DB, "old-a", true)
        .pod("db-1", DB, "old-b", true)
        .placeholder("placeholder-0", "new-a");
    s
}

/// What is broken of one invariant; the story ends 100 s after its start.
pub(super) fn broken(invariant: u8, s: &Story) -> Vec<String> {
    let broken = check(invariant, &s.ends(100.0), &Story::input());
    assert!(broken.iter().all(|b| b.invariant == invariant));
    broken.into_iter().map(|b| b.what).collect()
}

#[track_caller]
pub(super) fn named(invariant: u8, s: &Story, parts: &[&str]) {
    let all = broken(invariant, s);
    assert_eq!(all.len(), 1, "{all:#?}");
    for part in parts {
        assert!(all[0].contains(part), "{part:?} in {:?}", all[0]);
    }
}

#[track_caller]
pub(super) fn held(invariant: u8, s: &Story) {
    assert_eq!(broken(invariant, s), Vec::<String>::new());
}

/// A relocation starts, and records how db is to move; web is to be restarted.
fn records(s: &mut Story, db: &str) {
    s.put(
        Kind::NodeRelocation,
        json!({"metadata": {"name": "r1"}, "status": {"startTime": "2026-11-30T22:00:00Z", "workloads": [
            {"uid": "StatefulSet:db", "strategy": db}, {"uid": "Deployment:web", "strategy": "RolloutRestart"},
        ]}}),
    );
}

/// db moved pod by pod, web restarted, both nodes deleted, everything given back.
fn good_run() -> Story {
    let mut s = world();
    let claim =
        |by: Option<&str>| json!({"metadata": {"annotations": {"relocation.sh/claimed-by": by}}});
    for node in ["old-a", "old-b"] {
        s.put(
            Kind::NodeClaim,
            json!({"metadata": {"name": node}, "status": {"nodeName": node}}),
        );
    }
    s.budget("db", &json!({"app": "db"}), 1)
        .budget("web", &json!({"app": "web"}), 2);
    s.begins().at(1.0);
    records(&mut s, "Evict");
    for node in ["old-a", "old-b"] {
        s.ours(&format!("patch nodes {node}"), None)
            .merge(Kind::Node, node, &claim(Some("r1")));
        s.ours(&format!("patch nodes {node}"), None).cordon(node);
    }
    for (second, pod) in [(10.0, "db-1"), (20.0, "db-0")] {
        s.at(second)
            .evicted(pod)
            .at(second + 2.0)
            .gone(Kind::Pod, pod);
        s.pod(&format!("{pod}#2"), DB, "new-a", false)
            .at(second + 4.0)
            .becomes_ready(pod);
    }
    s.at(30.0)
        .restarted(Kind::Deployment, "web", "r1")
        .replica_set("web", 2);
    for (n, old) in [("web-2-a", "web-1-a"), ("web-2-b", "web-1-b")] {
        s.pod(n, ("ReplicaSet", "web-2"), "new-a", true)
            .stops(old)
            .gone(Kind::Pod, old);
        s.request(
            "kube-controller-manager",
            &format!("delete pods {old}"),
            None,
        );
    }
    s.rolled_out(Kind::Deployment, "web");
    s.at(39.0)
        .ours("delete pods placeholder-0", None)
        .gone(Kind::Pod, "placeholder-0");
    for node in ["old-a", "old-b"] {
        let body = json!({"preconditions": {"uid": format!("NodeClaim:{node}")}});
        s.at(40.0)
            .ours(&format!("delete nodeclaims {node}"), Some(body))
            .gone(Kind::NodeClaim, node);
        s.at(41.0).gone(Kind::Node, node);
    }
    s
}

#[test]
fn a_good_run_breaks_nothing() {
    let s = good_run();
    let history = s.ends(100.0);
    let input = JudgeInput {
        quiet: vec![Interval {
            from: t(50.0),
            to: t(100.0),
        }],
        ..Story::input()
    };
    assert_eq!(check_all(&history, &input), []);
}

#[test]
fn i0_a_gap_in_what_the_judge_saw_is_told() {
    let mut history = good_run().ends(100.0);
    history.gaps.push(crate::judge::Gap {
        kind: Kind::Pod,
        after: 7,
        until: 9,
    });
    assert!(
        check_all(&history, &Story::input())[0]
            .what
            .contains("pods between the revisions 7 and 9")
    );
}

#[test]
fn i1_a_plain_delete_is_caught() {
    let mut s = world();
    s.begins()
        .at(5.0)
        .ours("delete pods web-1-a", None)
        .stops("web-1-a");
    named(
        1,
        &s,
        &[
            "plain delete",
            "delete pods shop/web-1-a by relocator at 2026-11-30T22:00:05Z",
            "audit-1",
        ],
    );
}

#[test]
fn i1_deletes_by_others_are_not_ours() {
    let mut s = world();
    s.begins()
        .request("kwok", "delete pods web-1-a", None)
        .request("relocator-lab", "delete pods web-1-a", None);
    held(1, &s);
}

#[test]
fn i1_a_collection_and_an_eviction_by_name_are_caught() {
    let mut s = world();
    s.begins().ours("deletecollection pods", None);
    s.ours(
        "create pods/eviction web-1-a",
        Some(json!({"deleteOptions": {"gracePeriodSeconds": 0}})),
    );
    let all = broken(1, &s);
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[1].contains("without preconditions.uid"));
    assert!(all[2].contains("grace period of 0 s"));
    // At level Metadata no body is known: nothing can be said.
    let mut s = world();
    s.begins().ours("create pods/eviction web-1-a", None);
    held(1, &s);
}

#[test]
fn i2_an_eviction_from_another_node_is_caught() {
    let mut s = world();
    s.pod("far", WEB, "new-a", true)
        .begins()
        .at(5.0)
        .evicted("far");
    named(
        2,
        &s,
        &["Pod shop/far was on new-a", "not selected", "audit-1"],
    );
}

#[test]
fn i2_a_surge_that_takes_the_wrong_pod_is_caught() {
    let surge = |who: &str| {
        let mut s = world();
        s.pod("web-1-far", WEB, "new-a", true).begins();
        s.at(5.0)
            .scaled("relocator", "web", 4)
            .at(9.0)
            .scaled(who, "web", 2);
        s.at(10.0)
            .request("kube-controller-manager", "delete pods web-1-far", None)
            .stops("web-1-far");
        s
    };
    named(
        2,
        &surge("relocator"),
        &["web-1-far", "patch deployments/scale shop/web by relocator"],
    );
    // Somebody else set the count last: their scale-down.
    held(2, &surge("hpa"));
}

#[test]
fn i2_a_restart_may_move_pods_of_other_nodes() {
    let mut s = world();
    s.pod("web-1-far", WEB, "new-a", true).begins();
    s.at(5.0).restarted(Kind::Deployment, "web", "r1");
    s.at(6.0)
        .request("kube-controller-manager", "delete pods web-1-far", None)
        .stops("web-1-far");
    held(2, &s);
}

#[test]
fn i3_an_eviction_below_the_budget_is_caught() {
    let mut s = world();
    // 2 healthy, 1 stays, 2 are desired.
    s.budget("web", &json!({"app": "web"}), 2)
        .begins()
        .at(5.0)
        .evicted("web-1-a");
    named(
        3,
        &s,
        &[
            "PodDisruptionBudget shop/web had 1 healthy pods of 2",
            "Pod shop/web-1-a",
            "audit-1",
        ],
    );
}

#[test]
fn i3_an_eviction_of_a_pod_that_did_not_serve_lowers_nothing() {
    let mut s = world();
    s.pod("web-1-c", WEB, "old-a", false)
        .budget("web", &json!({"app": "web"}), 3);
    s.begins().evicted("web-1-c");
    held(3, &s);
}

#[test]
fn i3_a_restart_that_breaks_the_budget_is_caught() {
    let mut s = world();
    s.budget("web", &json!({"app": "web"}), 2).begins();
    s.at(5.0).restarted(Kind::Deployment, "web", "r1");
    s.at(6.0)
        .request("kube-controller-manager", "delete pods web-1-a", None)
        .stops("web-1-a");
    named(
        3,
        &s,
        &["had 1 healthy pods of 2", "patch deployments shop/web"],
    );
}

/// Somebody has set a count below what the budget asks for. The way back from a surge ends at their count; below it is ours.
#[test]
fn i3_a_count_that_others_set_below_the_budget_is_theirs() {
    let back_from_a_surge = |asked_by: &str| {
        let mut s = world();
        s.budget("web", &json!({"app": "web"}), 3).begins();
        s.at(4.0).scaled(asked_by, "web", 1);
        s.at(5.0).scaled("relocator", "web", 2);
        s.at(6.0).scaled("relocator", "web", 1);
        s.at(7.0)
            .request("kube-controller-manager", "delete pods web-1-a", None)
            .stops("web-1-a");
        s
    };
    held(3, &back_from_a_surge("somebody"));
    let ours = back_from_a_surge("relocator");
    named(3, &ours, &["had 1 healthy pods of 3", "web-1-a"]);
}

#[test]
fn i3_owners_of_one_budget_take_turns() {
    let turns = |ready_at: f64, next_at: f64| {
        let mut s = world();
        s.budget("all", &json!({"tier": "all"}), 1).begins();
        s.at(5.0)
            .evicted("db-1")
            .at(7.0)
            .gone(Kind::Pod, "db-1")
            .pod("db-1#2", DB, "new-a", false);
        if ready_at < next_at {
            s.at(ready_at)
                .becomes_ready("db-1")
                .at(next_at)
                .evicted("web-1-a");
        } else {
            s.at(next_at)
                .evicted("web-1-a")
                .at(ready_at)
                .becomes_ready("db-1");
        }
        s
    };
    held(3, &turns(8.0, 9.0));
    named(
        3,
        &turns(9.0, 8.0),
        &[
            "shop/Deployment/web was moved",
            "shop/StatefulSet/db",
            "shares PodDisruptionBudget shop/all",
        ],
    );
}

#[test]
fn i3_a_restart_is_over_when_it_is_rolled_out() {
    let restart = |rolled_out: bool| {
        let mut s = world();
        s.budget("all", &json!({"tier": "all"}), 1).begins();
        s.at(5.0).restarted(Kind::Deployment, "web", "r1");
        if rolled_out {
            s.at(6.0).rolled_out(Kind::Deployment, "web");
        }
        s.at(9.0).evicted("db-1");
        s
    };
    held(3, &restart(true));
    named(
        3,
        &restart(false),
        &["shop/StatefulSet/db was moved", "shop/Deployment/web"],
    );
}

#[test]
fn i4_a_second_pod_of_a_set_while_the_first_is_away_is_caught() {
    let mut s = world();
    s.begins().at(5.0).evicted("db-1").at(6.0).evicted("db-0");
    named(
        4,
        &s,
        &[
            "only 0 of the 1 other pods of shop/StatefulSet/db",
            "db-1 is terminating",
            "pods/eviction shop/db-0",
        ],
    );
}

#[test]
fn i4_a_successor_that_is_not_ready_or_not_there_counts_as_away() {
    let mut s = world();
    s.begins()
        .at(5.0)
        .evicted("db-1")
        .at(6.0)
        .gone(Kind::Pod, "db-1");
    let mut missing = world();
    missing
        .begins()
        .at(5.0)
        .evicted("db-1")
        .gone(Kind::Pod, "db-1")
        .at(7.0)
        .evicted("db-0");
    named(4, &missing, &["the rest is missing"]);
    s.pod("db-1#2", DB, "new-a", false).at(7.0).evicted("db-0");
    named(4, &s, &["db-1 is not Ready"]);
}

#[test]
fn i4_the_one_pod_that_is_not_ready_may_be_evicted() {
    let mut s = world();
    s.pod("db-1", DB, "old-b", false)
        .begins()
        .at(5.0)
        .evicted("db-1");
    held(4, &s);
}

#[test]
fn i4_two_pods_of_an_ordinal_are_caught() {
    let mut s = world();
    s.begins().at(5.0).pod("db-1#2", DB, "new-a", false);
    named(
        4,
        &s,
        &[
            "db-1 exists twice at 2026-11-30T22:00:05Z",
            "db-1 and db-1#2",
        ],
    );
    let mut s = world();
    s.begins()
        .at(5.0)
        .ours("delete pods db-1", None)
        .gone(Kind::Pod, "db-1");
    named(
        4,
        &s,
        &["is gone without having stopped", "delete pods shop/db-1"],
    );
}

#[test]
fn a_workload_that_moves_in_another_way_than_was_recorded_is_named() {
    held(15, &good_run());
    let mut s = world();
    s.begins().at(1.0);
    records(&mut s, "RolloutRestart");
    s.at(2.0).evicted("db-1").gone(Kind::Pod, "db-1");
    named(15, &s, &["db-1", "RolloutRestart", "pods/eviction"]);
}

#[test]
fn a_strategy_that_changes_on_the_way_is_named() {
    let mut s = world();
    s.begins().at(1.0);
    records(&mut s, "Evict");
    s.at(2.0);
    records(&mut s, "RolloutRestart");
    named(
        15,
        &s,
        &["recorded Evict", "StatefulSet:db", "then RolloutRestart"],
    );
}
