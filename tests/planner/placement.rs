//! Which nodes are old enough to be emptied, and where the placeholders are to land.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use relocator::plan::{Action, Placeholder};
use relocator::world::NodePool;
use serde_json::json;

use crate::oracle;
use crate::stages::SURGES;
use crate::toy::Toy;

#[test]
fn nodes_made_before_the_time_are_selected_and_those_of_that_moment_are_not() {
    // The toy's clock stands at this time when it begins.
    let spec = json!({"nodes": {"createdBefore": "2027-01-15T08:00:00Z"}});
    let mut toy = Toy::new(spec);
    assert_eq!(toy.now.to_string(), "2027-01-15T08:00:00Z");
    let age = |toy: &mut Toy, name: &str, seconds: i64| {
        let created = toy.now.checked_sub(SignedDuration::from_secs(seconds));
        toy.node(name).created = created.ok();
    };
    age(&mut toy, "older", 1);
    age(&mut toy, "of-that-moment", 0);
    age(&mut toy, "younger", -1);
    // What has no age is not known to be old.
    toy.node("ageless").created = None;
    toy.stateful_set("db", &["older", "younger"]);
    let plan = toy.plan();
    let nodes: Vec<_> = plan.status.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(nodes, ["older"]);

    // With other criteria, both must hold.
    let spec = json!({"nodes": {"names": ["younger"], "createdBefore": "2027-01-15T08:00:00Z"}});
    let mut both = Toy::new(spec);
    both.cluster = toy.cluster.clone();
    let _planned = both.plan();
    let conditions = both.status().conditions;
    let end = conditions.iter().find(|c| c.type_ == "Succeeded").unwrap();
    assert_eq!(end.reason, "NothingToDo");
    assert!(
        end.message.contains("createdBefore 2027-01-15T08:00:00Z"),
        "{}",
        end.message
    );
}

/// A session and a database on an old node; a new node with the label `pool=new`, and one without.
fn migration(placement: &serde_json::Value) -> Toy {
    let mut toy = Toy::new(json!({
        "nodes": {"names": ["old"]}, "replacement": {"placement": placement}, "afterDrain": "Uncordon",
    }));
    toy.node("old");
    toy.node("beside");
    toy.node("fresh").labels.insert("pool".into(), "new".into());
    toy.stateful_set("db", &["old", "old"]);
    toy.deployment("session", &["old"], SURGES);
    toy
}

fn made(toy: &mut Toy) -> Vec<Placeholder> {
    for _ in 0..50 {
        let plan = toy.step();
        let made = plan.actions.iter().filter_map(|action| match action {
            Action::CreatePlaceholder(placeholder) => Some((**placeholder).clone()),
            _ => None,
        });
        let made: Vec<_> = made.collect();
        if !made.is_empty() {
            return made;
        }
    }
    panic!("no placeholders: {:#?}", toy.status());
}

#[test]
fn every_placeholder_gets_the_placement_beside_what_its_pod_asks_for() {
    let placement = json!({
        "nodeSelector": {"pool": "new"},
        "tolerations": [{"key": "booting", "operator": "Exists"}],
    });
    let mut toy = migration(&placement);
    for pod in toy.pods_named("db") {
        let shape = &mut toy.pod_mut(&pod.reference.uid).shape;
        shape.node_selector.insert("disk".into(), "ssd".into());
    }
    toy.by_name("fresh")
        .labels
        .insert("disk".into(), "ssd".into());
    let before = toy.clone();
    let made = made(&mut toy);
    assert_eq!(made.len(), 3);
    for placeholder in &made {
        let selector = &placeholder.shape.node_selector;
        assert_eq!(selector["pool"], "new", "{}", placeholder.name);
        let tolerations = placeholder.shape.tolerations.iter();
        let keys: Vec<_> = tolerations.filter_map(|t| t.key.as_deref()).collect();
        assert_eq!(keys, ["booting"], "{}", placeholder.name);
        let is_db = placeholder.pod.name.starts_with("db");
        assert_eq!(selector.contains_key("disk"), is_db, "{}", placeholder.name);
    }
    toy.until("all placed", |t| {
        t.placeholders().iter().filter(|p| p.node.is_some()).count() == 3
    });
    for placeholder in toy.placeholders() {
        let node = placeholder.node.as_ref().unwrap();
        assert_eq!(node.as_str(), "fresh", "not beside, where there is room");
    }
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
    oracle::nothing_is_left(&before, &toy, false);
}

#[test]
fn a_pod_that_wants_another_label_than_the_placement_blocks_before_anything_is_touched() {
    let mut toy = migration(&json!({"nodeSelector": {"pool": "new"}}));
    for pod in toy.pods_named("db-0") {
        let shape = &mut toy.pod_mut(&pod.reference.uid).shape;
        shape.node_selector.insert("pool".into(), "old".into());
    }
    let plan = toy.plan();
    assert_eq!(plan.actions, []);
    let [blocker] = &plan.status.blockers[..] else {
        panic!("{:#?}", plan.status.blockers)
    };
    assert_eq!(blocker.reason.to_string(), "NoFeasibleNode");
    assert!(
        blocker.object.contains("default/db-0"),
        "{}",
        blocker.object
    );
    for word in ["pool=old", "pool=new", "replacement.placement"] {
        assert!(
            blocker.message.contains(word),
            "{word}: {}",
            blocker.message
        );
    }
}

#[test]
fn a_pod_whose_affinity_leaves_nothing_of_the_placement_blocks() {
    let mut toy = migration(&json!({"nodeSelector": {"pool": "new"}}));
    for pod in toy.pods_named("session") {
        let affinity = json!({"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "pool", "operator": "NotIn", "values": ["new"]},
        ]}]});
        let affinity = serde_json::from_value(affinity).unwrap();
        toy.pod_mut(&pod.reference.uid).shape.required_affinity = Some(affinity);
    }
    // Karpenter could make what is asked for only with another label.
    let karpenter = toy.cluster.karpenter.get_or_insert_default();
    let pool = NodePool {
        name: "fresh".into(),
        labels: [("pool".to_owned(), "new".to_owned())].into(),
        ..NodePool::default()
    };
    Arc::make_mut(&mut karpenter.pools).insert("fresh".into(), Arc::new(pool));
    let plan = toy.plan();
    assert_eq!(plan.actions, []);
    let [blocker] = &plan.status.blockers[..] else {
        panic!("{:#?}", plan.status.blockers)
    };
    assert_eq!(blocker.reason.to_string(), "NoFeasibleNode");
    assert!(blocker.object.contains("session"), "{}", blocker.object);
    assert!(
        blocker.message.contains("replacement.placement"),
        "{}",
        blocker.message
    );
}

#[test]
fn a_taint_that_only_the_placeholder_tolerates_makes_no_place() {
    let placement = json!({
        "nodeSelector": {"pool": "new"},
        "tolerations": [{"key": "booting", "operator": "Exists"}],
    });
    let taint = Taint {
        key: "booting".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    // There from the start: no pod could ever follow.
    let mut toy = migration(&placement);
    toy.by_name("fresh").taints = vec![taint.clone()];
    let plan = toy.plan();
    assert_eq!(plan.actions, []);
    let blockers = &plan.status.blockers;
    assert!(
        blockers
            .iter()
            .all(|b| b.reason.to_string() == "NoFeasibleNode" && b.message.contains("booting")),
        "{blockers:#?}"
    );
    assert_eq!(blockers.len(), 2, "the database and the session");

    // It came after the plan and goes again: placeholders are on the node meanwhile, and nothing leaves.
    let mut toy = migration(&placement);
    toy.until("provisioning", |t| t.stage() == "Provisioning");
    toy.by_name("fresh").taints = vec![taint];
    for _ in 0..20 {
        let plan = toy.step();
        let leaves = |a: &Action| matches!(a, Action::Evict { .. } | Action::Restart { .. });
        assert!(!plan.actions.iter().any(leaves), "{:#?}", plan.actions);
    }
    assert_eq!(toy.placeholders().len(), 3);
    assert_eq!(toy.stage(), "Provisioning");
    toy.by_name("fresh").taints.clear();
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}
