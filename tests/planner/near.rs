//! Pods that have to be near each other, or spread over zones: their places, and their order.

use k8s_openapi::api::core::v1::{PodAffinityTerm, TopologySpreadConstraint};
use relocator::plan::{Action, Placeholder};
use serde_json::json;

use crate::toy::Toy;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

fn near(app: &str, topology: &str) -> PodAffinityTerm {
    serde_json::from_value(json!({
        "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology,
    }))
    .unwrap()
}

fn attract(toy: &mut Toy, name: &str, term: &PodAffinityTerm) {
    for pod in toy.pods_named(name) {
        toy.pod_mut(&pod.reference.uid).shape.attracts = vec![term.clone()];
    }
}

/// Two workloads of one pod each, on one node in zone a; `a-free` has no volume and comes first by name.
fn two() -> Toy {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.node("old").labels.insert(ZONE.into(), "a".into());
    toy.stateful_set("a-free", &["old"]);
    toy.stateful_set("db", &["old"]);
    toy
}

fn bind(toy: &mut Toy, zone: &str) {
    toy.volume("db", "data", false).nodes = Some(
        serde_json::from_value(json!({"nodeSelectorTerms": [{"matchExpressions": [
            {"key": ZONE, "operator": "In", "values": [zone]},
        ]}]}))
        .unwrap(),
    );
}

fn places(toy: &mut Toy) -> Vec<Placeholder> {
    for _ in 0..50 {
        let plan = toy.step();
        let made = plan.actions.iter().filter_map(|action| match action {
            Action::CreatePlaceholder(placeholder) => Some(placeholder.as_ref().clone()),
            _ => None,
        });
        let made: Vec<_> = made.collect();
        if !made.is_empty() {
            return made;
        }
    }
    panic!("no placeholder was asked for");
}

/// The names of the pods in the order in which they are evicted.
fn evicted(toy: &mut Toy) -> Vec<String> {
    let mut order = Vec::new();
    for _ in 0..300 {
        if toy.is_over() {
            return order;
        }
        let plan = toy.step();
        order.extend(plan.actions.iter().filter_map(|action| match action {
            Action::Evict { pod, .. } => Some(pod.name.clone()),
            _ => None,
        }));
    }
    panic!("not over, {order:?}");
}

#[test]
fn case_71_what_a_volume_binds_moves_first_and_the_free_one_has_its_place_in_that_zone() {
    // Whichever of the two asks to be near the other: the volume cannot follow.
    for (asks, asked) in [("a-free", "db"), ("db", "a-free")] {
        let mut toy = two();
        bind(&mut toy, "a");
        attract(&mut toy, asks, &near(asked, ZONE));
        toy.node("new").labels.insert(ZONE.into(), "a".into());
        let made = places(&mut toy);
        let free = made.iter().find(|p| p.pod.name == "a-free-0").unwrap();
        let terms = &free
            .shape
            .required_affinity
            .as_ref()
            .unwrap()
            .node_selector_terms;
        let [requirement] = &terms[0].match_expressions.as_ref().unwrap()[..] else {
            panic!("{terms:?}");
        };
        assert_eq!((requirement.key.as_str(), terms.len()), (ZONE, 1));
        assert_eq!(requirement.values, Some(vec!["a".into()]));
        assert_eq!(evicted(&mut toy), ["db-0", "a-free-0"], "{asks} asks");
        assert_eq!(toy.stage(), "Succeeded");
    }
}

/// On one node: only where the other has gone can the one that asks come, volume or not.
#[test]
fn what_has_to_be_on_the_node_of_another_moves_after_it_and_so_is_its_place() {
    let mut toy = two();
    bind(&mut toy, "a");
    attract(&mut toy, "db", &near("a-free", HOSTNAME));
    toy.node("new").labels.insert(ZONE.into(), "a".into());
    let made = places(&mut toy);
    let db = made.iter().find(|p| p.pod.name == "db-0").unwrap();
    let [term] = &db.shape.attracts[..] else {
        panic!("{:?}", db.shape.attracts);
    };
    let selector = term.label_selector.as_ref().unwrap();
    let [asked] = &selector.match_expressions.as_ref().unwrap()[..] else {
        panic!("{selector:?}");
    };
    assert_eq!(asked.key, "relocation.sh/workload-uid");
    assert_eq!(asked.values, Some(vec!["StatefulSet-a-free".into()]));
    assert_eq!(term.topology_key, HOSTNAME);
    assert_eq!(evicted(&mut toy), ["a-free-0", "db-0"]);
}

/// Three that each ask for the next: the first by name begins, and the one that asks for it comes after it.
#[test]
fn a_circle_of_pods_that_ask_for_each_other_ends() {
    let mut toy = two();
    toy.stateful_set("web", &["old"]);
    for (asks, asked) in [("a-free", "db"), ("db", "web"), ("web", "a-free")] {
        attract(&mut toy, asks, &near(asked, HOSTNAME));
    }
    toy.node("new");
    assert_eq!(evicted(&mut toy), ["a-free-0", "db-0", "web-0"]);
    assert_eq!(toy.stage(), "Succeeded");
}

fn spread(toy: &mut Toy, topology: &str) {
    let constraint: TopologySpreadConstraint = serde_json::from_value(json!({
        "maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}}, "matchLabelKeys": ["pod-template-hash"],
    }))
    .unwrap();
    for pod in toy.pods_named("db") {
        toy.pod_mut(&pod.reference.uid).shape.spread = vec![constraint.clone()];
    }
}

/// The others of its kind stay in their zones: only that one is sure to be allowed.
#[test]
fn a_pod_that_is_spread_over_zones_has_its_place_in_its_own() {
    let mut toy = two();
    spread(&mut toy, ZONE);
    toy.node("new").labels.insert(ZONE.into(), "a".into());
    let made = places(&mut toy);
    let db = made.iter().find(|p| p.pod.name == "db-0").unwrap();
    let nodes = db.shape.required_affinity.as_ref().unwrap();
    let asked = nodes.node_selector_terms[0].match_expressions.as_ref();
    assert_eq!(asked.unwrap()[0].values, Some(vec!["a".into()]));
    assert_eq!(db.shape.spread, [], "the zone says it all");
}

#[test]
fn places_of_pods_that_are_spread_over_nodes_are_spread_by_a_label_of_ours() {
    let mut toy = two();
    spread(&mut toy, HOSTNAME);
    toy.node("new");
    let made = places(&mut toy);
    let db = made.iter().find(|p| p.pod.name == "db-0").unwrap();
    assert_eq!(db.shape.required_affinity, None);
    let [constraint] = &db.shape.spread[..] else {
        panic!("{:?}", db.shape.spread);
    };
    assert_eq!(
        (constraint.max_skew, constraint.topology_key.as_str()),
        (1, HOSTNAME)
    );
    // Placeholders have no pod-template-hash.
    assert_eq!(constraint.match_label_keys, None);
    let labels = constraint.label_selector.as_ref().unwrap();
    let labels = labels.match_labels.as_ref().unwrap();
    assert_eq!(labels["relocation.sh/workload-uid"], "StatefulSet-db");
}
