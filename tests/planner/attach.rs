//! What a node has to have for the pod of a placeholder, and not for the placeholder: attachments of volumes, CSI drivers, and its own
//! `DaemonSet` pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelector, PodAffinityTerm};
use relocator::plan::{Action, Placeholder, Plan};
use relocator::world::{CsiNode, StorageClass, Uid};
use serde_json::json;

use crate::toy::{Toy, owner};

const HOSTNAME: &str = "kubernetes.io/hostname";
const DRIVER: &str = "csi.example.com";

/// Registers the driver on a node, with that many volumes.
fn csi(toy: &mut Toy, node: &str, most: Option<usize>) {
    let uid = Uid::from(format!("csi-{node}"));
    let object = CsiNode {
        name: node.into(),
        uid: uid.clone(),
        drivers: [(DRIVER.to_owned(), most)].into(),
    };
    Arc::make_mut(&mut toy.cluster.csi_nodes).insert(uid, Arc::new(object));
}

fn node(toy: &mut Toy, name: &str) {
    let node = toy.node(name);
    node.labels.insert(HOSTNAME.into(), name.into());
}

/// A volume of the driver for each pod of that name.
fn disks(toy: &mut Toy, pods: &str) {
    for pod in toy.pods_named(pods) {
        let name = pod.reference.name.clone();
        let volume = toy.volume(&name, &format!("data-{name}"), false);
        volume.driver = Some(DRIVER.into());
        let labels = &mut toy.pod_mut(&pod.reference.uid).labels;
        labels.insert("statefulset.kubernetes.io/pod-name".into(), name);
    }
}

/// A database of that many, all on `old`.
fn database(pods: usize) -> Toy {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    node(&mut toy, "old");
    csi(&mut toy, "old", Some(27));
    toy.stateful_set("db", &vec!["old"; pods]);
    disks(&mut toy, "db");
    toy
}

fn made(plan: &Plan) -> Vec<Placeholder> {
    let made = plan.actions.iter().filter_map(|action| match action {
        Action::CreatePlaceholder(placeholder) => Some((**placeholder).clone()),
        _ => None,
    });
    made.collect()
}

fn evicts(plan: &Plan) -> bool {
    let mut actions = plan.actions.iter();
    actions.any(|a| matches!(a, Action::Evict { .. }))
}

/// The nodes of the placeholders when the first pod is asked to leave.
fn places_at_the_first_eviction(toy: &mut Toy) -> Vec<String> {
    for _ in 0..100 {
        let mut on: Vec<_> = toy
            .placeholders()
            .iter()
            .filter_map(|p| Some(p.node.as_ref()?.to_string()))
            .collect();
        on.sort();
        if evicts(&toy.step()) {
            return on;
        }
    }
    panic!("nothing leaves: {:#?}", toy.status());
}

/// What the conditions say.
fn said(toy: &Toy) -> String {
    let conditions = toy.status().conditions;
    let words: Vec<_> = conditions.into_iter().map(|c| c.message).collect();
    words.join("; ")
}

/// Not on a node that has one of these pods, by a label that is theirs alone.
fn apart_from(label: &str, pods: &[&str], namespace: Option<&str>) -> PodAffinityTerm {
    let mut term = json!({
        "labelSelector": {"matchExpressions": [{"key": label, "operator": "In", "values": pods}]},
        "topologyKey": HOSTNAME,
    });
    if let Some(namespace) = namespace {
        term["namespaces"] = json!([namespace]);
    }
    serde_json::from_value(term).unwrap()
}

/// The node has room for three placeholders and attaches two volumes: the third place comes elsewhere, before anything leaves.
#[test]
fn case_76_a_node_has_places_for_as_many_volumes_as_it_can_attach() {
    let mut toy = database(3);
    node(&mut toy, "a");
    csi(&mut toy, "a", Some(2));
    let mut shapes = Vec::new();
    toy.until("three places were made on a", |toy| {
        toy.placeholders()
            .iter()
            .filter(|p| p.node.is_some())
            .count()
            == 3
    });
    node(&mut toy, "b");
    csi(&mut toy, "b", Some(2));
    for _ in 0..6 {
        let plan = toy.step();
        assert!(!evicts(&plan));
        shapes.extend(made(&plan).into_iter().map(|p| p.shape));
        if !shapes.is_empty() {
            break;
        }
    }
    let [shape] = &shapes[..] else {
        panic!("one is made again: {shapes:?}");
    };
    let [term] = &shape.repels[..] else {
        panic!("{shape:?}");
    };
    let there = toy.placeholders();
    let there: Vec<_> = there.iter().filter(|p| p.node.is_some()).collect();
    let first = there[0].placeholder.clone().unwrap().pod.to_string();
    let label = "relocation.sh/pod-uid";
    assert_eq!(*term, apart_from(label, &[&first], None));
    assert_eq!(places_at_the_first_eviction(&mut toy), ["a", "a", "b"]);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

/// A volume that is still attached counts as one that is used, and so does one that will be made; what is both counts once.
#[test]
fn case_76_a_node_that_is_full_already_is_kept_from() {
    let mut toy = database(1);
    for name in ["a", "b", "c"] {
        node(&mut toy, name);
        csi(&mut toy, name, Some(1));
    }
    csi(&mut toy, "c", None);
    for name in ["a", "c"] {
        toy.stateful_set(&format!("there-{name}"), &[name]);
        disks(&mut toy, &format!("there-{name}"));
    }
    let shape = loop {
        if let Some(first) = made(&toy.step()).pop() {
            break first.shape;
        }
    };
    let label = "statefulset.kubernetes.io/pod-name";
    let there = apart_from(label, &["there-a-0"], Some("default"));
    assert_eq!((shape.repels, shape.required_affinity), (vec![there], None));
}

/// A claim that is not bound takes an attachment of the driver that its class has.
#[test]
fn case_76_what_is_yet_to_be_made_is_counted_too() {
    let mut toy = database(1);
    node(&mut toy, "a");
    csi(&mut toy, "a", Some(0));
    let claims = Arc::make_mut(&mut toy.cluster.volume_claims);
    for claim in claims.values_mut() {
        let claim = Arc::make_mut(claim);
        claim.volume = None;
        claim.class = Some("fast".into());
    }
    let class = StorageClass {
        name: "fast".into(),
        uid: "fast".into(),
        provisioner: DRIVER.into(),
        nodes: None,
    };
    Arc::make_mut(&mut toy.cluster.storage_classes).insert("fast".into(), Arc::new(class));
    let shape = loop {
        if let Some(first) = made(&toy.step()).pop() {
            break first.shape;
        }
    };
    // Nothing on it has a label of its own: it is told by its name.
    let other: NodeSelector = serde_json::from_value(json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": HOSTNAME, "operator": "NotIn", "values": ["a"]}]},
    ]}))
    .unwrap();
    assert_eq!(
        (shape.repels, shape.required_affinity),
        (vec![], Some(other))
    );
}

/// Until the driver has registered, the pod could not have its volume there, and the limit is not known.
#[test]
fn a_place_waits_for_the_driver_of_its_pods_volume() {
    let mut toy = database(1);
    node(&mut toy, "a");
    let waits = "CSI driver csi.example.com has not registered on node a";
    toy.until("the driver is waited for", |toy| said(toy).contains(waits));
    for _ in 0..10 {
        assert!(!evicts(&toy.step()));
    }
    csi(&mut toy, "a", Some(27));
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

/// A driver that has no part on nodes never registers: nothing waits for what the old node does not have either.
#[test]
fn a_driver_that_is_not_on_the_old_node_is_not_waited_for() {
    let mut toy = database(1);
    node(&mut toy, "a");
    Arc::make_mut(&mut toy.cluster.csi_nodes).clear();
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

/// The pods of `DaemonSets` come before the real ones: until the scheduler has looked at them, they may yet take the place.
#[test]
fn case_81_pods_of_a_daemon_set_have_their_room_before_a_place_counts() {
    let mut toy = database(1);
    node(&mut toy, "a");
    csi(&mut toy, "a", Some(27));
    let agent = owner("DaemonSet", "agent", &"agent-set".into());
    let new = |toy: &mut Toy| {
        let daemon = toy.pod("agent-of-a", "agent", None, Some(agent.clone()));
        let pod = toy.pod_mut(&daemon);
        pod.shape.required_affinity = serde_json::from_value(json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
        ]}))
        .unwrap();
        pod.unschedulable = None;
        daemon
    };
    // The toy's scheduler is quick: in each round the pod is new again.
    let mut words = String::new();
    for _ in 0..20 {
        let daemon = new(&mut toy);
        assert!(!evicts(&toy.step()), "its place may go yet");
        words = said(&toy);
        Arc::make_mut(&mut toy.cluster.pods).remove(&daemon);
    }
    let waits = "pod default/agent-of-a has yet to come to node a";
    assert!(words.contains(waits), "{words}");

    // What the scheduler could not place there is not waited for: it may be so for ever.
    let daemon = new(&mut toy);
    let mut leaves = false;
    for _ in 0..20 {
        let pod = toy.pod_mut(&daemon);
        pod.node = None;
        pod.unschedulable = Some("0/2 nodes are available".into());
        leaves |= evicts(&toy.step());
    }
    assert!(leaves, "{:#?}", toy.status());
}
