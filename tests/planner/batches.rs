//! Nodes in batches: all closed from the start, room made and pods moved for one batch after the other.

use std::collections::BTreeSet;

use relocator::api::status::{MoveStrategy, Stage};
use serde_json::{Value, json};

use crate::oracle;
use crate::stages::SURGES;
use crate::toy::Toy;

const OLD: [&str; 5] = ["old-0", "old-1", "old-2", "old-3", "old-4"];

/// Five nodes to empty and three with room.
fn toy(batch: &Value, rules: &Value) -> Toy {
    let mut workloads = json!({});
    if !rules.is_null() {
        workloads["rules"] = rules.clone();
    }
    let mut toy = Toy::new(json!({
        "nodes": {"names": OLD}, "batchSize": batch, "afterDrain": "Keep", "workloads": workloads,
    }));
    for name in OLD.iter().chain(&["spare-0", "spare-1", "spare-2"]) {
        toy.node(name);
    }
    toy
}

/// The nodes that have lost a pod since `before` and are not done with.
fn in_the_middle(before: &Toy, toy: &Toy) -> BTreeSet<String> {
    let nodes = toy.status().nodes.into_iter();
    let open = nodes.filter(|n| n.stage < Stage::Restoring);
    let lost = |name: &str| {
        let was = before.cluster.pods.values();
        let mut was = was.filter(|p| p.node.as_ref().is_some_and(|n| n.as_str() == name));
        was.any(|p| {
            toy.cluster
                .pods
                .get(&p.reference.uid)
                .is_none_or(|p| p.terminating)
        })
    };
    open.map(|n| n.name).filter(|name| lost(name)).collect()
}

/// Takes it to its end; what is in the middle at a time is never more than `most` nodes, and so many at some time.
fn in_batches_of(toy: &mut Toy, most: usize) {
    let before = toy.clone();
    from_there(&before, toy, most);
}

/// As [`in_batches_of`], from wherever it is.
fn from_there(before: &Toy, toy: &mut Toy, most: usize) {
    let mut seen = 0;
    for _ in 0..600 {
        toy.pass();
        let now = in_the_middle(before, toy);
        assert!(now.len() <= most, "at a time: {now:?}");
        seen = seen.max(now.len());
        if toy.is_over() {
            break;
        }
        let closed = OLD.map(|name| toy.by_name(name).unschedulable);
        if toy.stage() == "Moving" {
            assert_eq!(
                closed, [true; 5],
                "all are closed from the start to the end"
            );
        }
    }
    assert_eq!(toy.stage(), "Succeeded", "{:#?}", toy.status());
    assert_eq!(seen, most);
    let status = toy.status();
    assert!(
        status.workloads.iter().all(|w| w.moved == w.pods),
        "{status:#?}"
    );
    oracle::nothing_is_left(before, toy, true);
}

#[test]
fn room_is_made_and_pods_move_for_one_batch_of_nodes_after_the_other() {
    // Two fifths of five; and 25%, which is rounded up as Kubernetes rounds what may be missing.
    for (batch, nodes) in [
        (json!(2), 2),
        (json!("25%"), 2),
        (json!("1%"), 1),
        (json!("100%"), 5),
    ] {
        let mut toy = toy(&batch, &json!(null));
        toy.deployment("web", &OLD, SURGES);
        for name in OLD {
            // One each, so that all nodes of a batch could lose their pod at once.
            toy.stateful_set(&format!("db-on-{name}"), &[name]);
        }
        let mut first = toy.clone();
        first.until("moving", |t| t.stage() == "Moving");
        assert_eq!(
            first.placeholders().len(),
            2 * nodes,
            "a place for each pod of the batch, of {batch}"
        );
        in_batches_of(&mut toy, nodes);
    }
}

#[test]
fn a_deployment_all_of_whose_pods_are_to_move_surges_batch_by_batch_instead_of_a_restart() {
    let strategy = |batch: Value| {
        let mut toy = toy(&batch, &json!(null));
        toy.deployment("web", &OLD, SURGES);
        toy.plan().status.workloads[0].strategy
    };
    assert_eq!(strategy(json!("100%")), MoveStrategy::RolloutRestart);
    assert_eq!(strategy(json!("20%")), MoveStrategy::Surge);

    // One that is asked for moves all its pods when the first of its nodes is due, and has a place for each before.
    let rules = json!([{"match": {"kinds": ["Deployment"]}, "strategy": "RolloutRestart"}]);
    let mut toy = toy(&json!(1), &rules);
    toy.deployment("web", &OLD, SURGES);
    toy.until("moving", |t| t.stage() == "Moving");
    assert_eq!(toy.placeholders().len(), 5);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

/// The one whose turn is first has its pods on the node that comes last: within a batch the order holds, and a batch waits for no other.
#[test]
fn the_order_of_the_rules_holds_up_no_batch() {
    let rules = json!([{"match": {"selector": {"matchLabels": {"app": "first"}}}, "order": -1}]);
    let mut toy = toy(&json!(1), &rules);
    toy.stateful_set("first", &["old-3", "old-4"]);
    toy.stateful_set("then", &["old-0", "old-4"]);
    in_batches_of(&mut toy, 1);
}

#[test]
fn the_node_that_carries_karpenter_comes_last() {
    let mut toy = toy(&json!(1), &json!(null));
    toy.deployment("karpenter", &["old-0"], SURGES);
    for pod in toy.pods_named("karpenter") {
        let labels = &mut toy.pod_mut(&pod.reference.uid).labels;
        labels.insert("app.kubernetes.io/name".into(), "karpenter".into());
    }
    toy.stateful_set("db", &OLD);
    let before = toy.clone();
    toy.until("in the middle of it", |t| {
        !in_the_middle(&before, t).is_empty()
    });
    assert_eq!(in_the_middle(&before, &toy), ["old-1".to_owned()].into());
    from_there(&before, &mut toy, 1);
}

/// What a workload takes for one batch is counted for that batch.
#[test]
fn the_time_of_a_workload_begins_anew_with_each_batch() {
    let mut toy = toy(&json!(1), &json!(null));
    toy.stateful_set("db", &["old-0", "old-4"]);
    // A batch between its two, which has nothing of it.
    toy.stateful_set("other", &["old-1"]);
    let started = |t: &Toy| {
        t.status()
            .workloads
            .iter()
            .any(|w| w.name == "db" && w.start_time.is_some())
    };
    toy.until("the first pod to move", started);
    let state = |t: &Toy| {
        let workloads = t.status().workloads;
        let db = workloads.iter().find(|w| w.name == "db").unwrap().clone();
        (db.moved, db.start_time.is_some())
    };
    toy.until("the first batch to be over", |t| state(t) == (1, false));
    toy.until("the end", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}
