#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::float_cmp)]
use serde_json::json;

use super::*;
use crate::judge::story::{DB, Story, WEB, t};

/// `web` of 2 and `db` of 1 on the old nodes, and pods that do not count.
fn world() -> Story {
    let mut s = Story::new();
    s.deployment("web", 2).stateful_set("db", 1);
    s.pod("web-1-a", WEB, "old-a", true)
        .pod("web-1-b", WEB, "old-b", true)
        .pod("db-0", DB, "old-a", true)
        .pod("agent-1", ("DaemonSet", "agent"), "old-a", true)
        .pod("job-1", ("Job", "job"), "old-a", true)
        .pod("mirror", ("Node", "old-a"), "old-a", true)
        .merge(
            Kind::Pod,
            "mirror",
            &json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
        )
        .pod("done", ("Cluster", "c"), "old-a", false)
        .merge(
            Kind::Pod,
            "done",
            &json!({"status": {"phase": "Succeeded"}}),
        );
    s
}

/// The restart surges, the database stops and starts; both old nodes go.
fn good(s: &mut Story) {
    s.begins();
    s.at(1.0)
        .restarted(Kind::Deployment, "web", "eks-1-30")
        .replica_set("web", 2);
    for (n, old) in [("web-2-a", "web-1-a"), ("web-2-b", "web-1-b")] {
        s.pod(n, ("ReplicaSet", "web-2"), "new-a", false)
            .at(3.0)
            .becomes_ready(n);
        s.stops(old).at(4.0).gone(Kind::Pod, old);
    }
    s.rolled_out(Kind::Deployment, "web");
    s.at(10.0).evicted("db-0");
    s.at(12.0)
        .gone(Kind::Pod, "db-0")
        .pod("db-0#2", DB, "", false);
    s.at(12.5)
        .is_bound("db-0", "new-a")
        .at(14.5)
        .becomes_ready("db-0");
    s.at(15.0)
        .gone(Kind::Node, "old-a")
        .gone(Kind::Node, "old-b");
}

#[test]
fn a_perfect_run_moves_each_pod_once() {
    let mut s = world();
    good(&mut s);
    let card = Scorecard::of(&s.ends(20.0), &Story::input());
    // Three pods of web and db; not the DaemonSet's, the Job's, the mirror pod, the finished one.
    assert_eq!((card.pods, card.moves), (3, 3));
    assert_eq!((card.double_moves, card.needless_moves), (0, 0));
    assert!(card.finished);
    assert_eq!(
        card.nodes,
        NodeCounts {
            made: 0,
            removed: 2
        }
    );
    // web never below 2: the new pods were Ready before the old ones stopped. Both ReplicaSets are the Deployment's.
    let web = &card.owners["shop/Deployment/web"];
    assert_eq!((web.moves, web.replicas, web.most_unavailable), (2, 2, 0));
    assert_eq!(web.unavailable_pod_seconds, 0.0);
    // db from its eviction at 10 s until its successor is Ready at 14.5 s.
    let db = &card.owners["shop/StatefulSet/db"];
    assert_eq!((db.moves, db.most_unavailable), (1, 1));
    assert_eq!(db.unavailable_pod_seconds, 4.5);
    assert_eq!(card.owners.len(), 2);
}

#[test]
fn pod_seconds_are_pods_times_time_up_to_the_end() {
    let mut s = world();
    s.begins()
        .at(10.0)
        .stops("web-1-a")
        .at(12.0)
        .stops("web-1-b");
    s.at(13.0).pod("web-1-c", WEB, "new-a", true);
    let card = Scorecard::of(&s.ends(20.0), &Story::input());
    // One missing from 10 to 12 (2), two from 12 to 13 (2), one from 13 to the end at 20 (7).
    let web = &card.owners["shop/Deployment/web"];
    assert_eq!(
        (web.unavailable_pod_seconds, web.most_unavailable),
        (11.0, 2)
    );
    assert!(!card.finished, "a pod is missing");
}

#[test]
fn the_most_that_are_down_at_once_are_counted_over_all_owners() {
    let mut s = world();
    s.begins()
        .at(5.0)
        .stops("web-1-a")
        .at(6.0)
        .stops("db-0")
        .at(8.0)
        .pod("web-1-c", WEB, "new-a", true);
    s.at(9.0).stops("web-1-b");
    let card = Scorecard::of(&s.ends(20.0), &Story::input());
    // web and db from 6 to 8 s, and again from 9 s on: never three.
    assert_eq!(card.most_unavailable, 2);
}

#[test]
fn fewer_wanted_is_not_missing() {
    let mut s = world();
    s.begins()
        .at(5.0)
        .scaled("kubectl", "web", 1)
        .at(6.0)
        .stops("web-1-a");
    // A scale up is not counted either: the run did not have to bring what was not there.
    s.at(10.0).scaled("kubectl", "web", 5);
    let card = Scorecard::of(&s.ends(20.0), &Story::input());
    // 1 of 1 until 10 s, then 1 of the 2 there were at the start, for 10 s.
    assert_eq!(
        card.owners["shop/Deployment/web"].unavailable_pod_seconds,
        10.0
    );
}

#[test]
fn a_pod_put_on_a_selected_node_is_a_double_move() {
    let mut s = world();
    s.begins()
        .at(1.0)
        .evicted("web-1-a")
        .at(2.0)
        .gone(Kind::Pod, "web-1-a");
    s.pod("web-1-c", WEB, "old-b", true);
    s.at(3.0)
        .evicted("web-1-c")
        .pod("web-1-d", WEB, "new-a", true);
    s.at(4.0)
        .evicted("web-1-b")
        .pod("web-1-e", WEB, "new-a", true);
    let card = Scorecard::of(&s.ends(9.0), &Story::input());
    // c, d and e for two pods: c landed on old-b. The other two are what the two pods needed.
    assert_eq!(
        (card.moves, card.double_moves, card.needless_moves),
        (3, 1, 0)
    );
}

#[test]
fn without_selected_nodes_those_cordoned_or_removed_later_are() {
    let mut s = world();
    s.begins()
        .at(1.0)
        .cordon("old-a")
        .at(2.0)
        .evicted("web-1-a");
    s.pod("web-1-c", WEB, "old-b", true).at(3.0).cordon("old-b");
    let input = JudgeInput::default();
    let card = Scorecard::of(&s.ends(9.0), &input);
    assert_eq!((card.pods, card.moves, card.double_moves), (3, 1, 1));
}

#[test]
fn a_restart_of_pods_on_other_nodes_is_needless() {
    let mut s = world();
    s.deployment("far", 2)
        .pod("far-1-a", ("ReplicaSet", "far-1"), "new-a", true)
        .pod("far-1-b", ("ReplicaSet", "far-1"), "old-a", true);
    s.begins()
        .at(1.0)
        .restarted(Kind::Deployment, "far", "x")
        .replica_set("far", 2);
    s.pod("far-2-a", ("ReplicaSet", "far-2"), "new-a", true)
        .pod("far-2-b", ("ReplicaSet", "far-2"), "new-a", true);
    // And pods of an owner that had none at the start don't count.
    s.pod("late-1", ("ReplicaSet", "late-1"), "new-a", true);
    let card = Scorecard::of(&s.ends(9.0), &Story::input());
    assert_eq!((card.moves, card.needless_moves), (2, 1));
}

#[test]
fn a_pod_of_a_deployment_with_a_misleading_name_goes_by_uid() {
    let mut s = Story::new();
    s.deployment("web", 1).pod("x", WEB, "old-a", true);
    s.begins()
        .at(1.0)
        .pod("y", ("ReplicaSet", "web-9"), "new-a", true);
    let card = Scorecard::of(&s.ends(9.0), &Story::input());
    assert_eq!(
        card.moves, 0,
        "web-9 is a ReplicaSet of nobody, whatever its name"
    );
}

#[test]
fn requests_are_counted_by_program_and_target_within_the_marks() {
    let mut s = world();
    s.begins();
    s.at(1.0)
        .ours("watch pods", None)
        .ours("patch leases relocator", None);
    s.ours("patch nodes old-a", None)
        .ours("patch nodes old-b", None);
    s.request("kubectl", "get nodes old-a", None);
    s.at(2.0)
        .evicted("web-1-a")
        .pod("web-1-c", WEB, "new-a", true);
    s.at(30.0).ours("patch nodes old-a", None);
    let input = JudgeInput {
        end: Some(t(12.5)),
        ..Story::input()
    };
    let card = Scorecard::of(&s.ends(40.0), &input);
    let ours = &card.requests["relocator"];
    assert_eq!((ours.total, ours.watches, ours.leases), (5, 1, 1));
    assert_eq!(ours.by["patch nodes"], 2);
    assert_eq!(ours.by["create pods/eviction"], 1);
    assert_eq!(card.requests["kubectl"].total, 1);
    assert_eq!(card.requests_per_move, Some(5.0));
    assert_eq!(card.wall_seconds, 12.5);
}

#[test]
fn the_json_has_the_names_of_the_issue() {
    let mut s = world();
    good(&mut s);
    let json = serde_json::to_value(Scorecard::of(&s.ends(20.0), &Story::input())).unwrap();
    for key in [
        "/finished",
        "/wallSeconds",
        "/pods",
        "/moves",
        "/needlessMoves",
        "/doubleMoves",
        "/nodes/made",
        "/nodes/removed",
        "/owners/shop~1Deployment~1web/moves",
        "/owners/shop~1Deployment~1web/replicas",
        "/owners/shop~1Deployment~1web/unavailablePodSeconds",
        "/owners/shop~1Deployment~1web/mostUnavailable",
        "/requests/relocator/total",
        "/requestsPerMove",
        "/leftBehind",
        "/brokenInvariants",
    ] {
        assert!(json.pointer(key).is_some(), "{key} in {json}");
    }
}

#[test]
fn what_was_there_before_is_not_left_behind() {
    let mut s = world();
    let mark = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    s.merge(Kind::Pod, "db-0", &mark).cordon("new-a");
    s.begins()
        .at(1.0)
        .node("new-b", "4")
        .merge(Kind::Node, "new-b", &mark);
    s.merge(
        Kind::Node,
        "new-b",
        &json!({"metadata": {"annotations": null}}),
    );
    // Born with it, from its template.
    s.pod("web-1-c", WEB, "", false);
    assert_eq!(
        Scorecard::of(&s.ends(9.0), &Story::input()).left_behind,
        Vec::<String>::new()
    );
}

#[test]
fn what_is_left_behind_is_named() {
    let mut s = world();
    let mark = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    s.begins()
        .at(1.0)
        .node("new-b", "4")
        .merge(Kind::Node, "new-b", &mark);
    s.cordon("old-a").cordon("old-b");
    s.merge(
        Kind::Node,
        "old-b",
        &json!({"metadata": {"annotations": {"relocation.sh/claimed-by": "r"}}, "spec": {
        "taints": [{"key": "relocation.sh/leaving", "effect": "NoSchedule"}]}}),
    );
    s.placeholder("placeholder-1", "new-b");
    let cost = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1000"}}});
    s.merge(Kind::Pod, "web-1-a", &cost);
    s.scaled("relocator", "web", 4);
    s.put(
        Kind::NodeClaim,
        json!({"metadata": {"name": "claim", "deletionTimestamp": "2026-11-30T22:00:00Z",
        "finalizers": ["karpenter.sh/termination"]}}),
    );
    let input = JudgeInput {
        expected_cordons: ["old-a".to_owned()].into(),
        ..Story::input()
    };
    assert_eq!(
        Scorecard::of(&s.ends(9.0), &input).left_behind,
        [
            "Deployment shop/web: replicas 4, was 2",
            "Node new-b: annotation karpenter.sh/do-not-disrupt",
            "Node old-b: annotation relocation.sh/claimed-by",
            "Node old-b: cordon",
            "Node old-b: taint relocation.sh/leaving",
            "Pod relocator-placeholders/placeholder-1: placeholder",
            "Pod shop/web-1-a: annotation controller.kubernetes.io/pod-deletion-cost",
        ]
    );
}

#[test]
fn a_node_in_deletion_for_ever_is_left_behind() {
    let mut s = world();
    s.put(Kind::NodeClaim, json!({"metadata": {"name": "claim"}}))
        .begins();
    s.at(1.0).merge(
        Kind::NodeClaim,
        "claim",
        &json!({"metadata": {"deletionTimestamp": "2026-11-30T22:00:00Z"}}),
    );
    let card = Scorecard::of(&s.ends(9.0), &Story::input());
    assert_eq!(card.left_behind, ["NodeClaim claim: in deletion"]);
}
