//! Pods with volumes, and whether a pod can run elsewhere at all.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, PodAffinityTerm, Taint};
use relocator::api::status::MoveStrategy;
use relocator::plan::{Action, Placeholder, Plan};
use relocator::world::{Attachment, MountedClaim, NodePool, Uid};
use serde_json::json;

use crate::stages::SURGES;
use crate::toy::Toy;

const EBS_ZONE: &str = "topology.ebs.csi.aws.com/zone";

fn selector(key: &str, values: &[&str]) -> NodeSelector {
    serde_json::from_value(json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": key, "operator": "In", "values": values},
    ]}]}))
    .unwrap()
}

fn findings(plan: &Plan) -> (Vec<String>, Vec<String>) {
    let blockers = plan.status.blockers.iter();
    let warnings = plan.status.warnings.iter();
    (
        blockers
            .map(|b| format!("{} {}: {}", b.reason, b.object, b.message))
            .collect(),
        warnings
            .map(|w| format!("{} {}: {}", w.reason, w.object, w.message))
            .collect(),
    )
}

#[track_caller]
fn blocked(toy: &mut Toy, start: &str, says: &[&str]) {
    let plan = toy.plan();
    let (blockers, _) = findings(&plan);
    let found = blockers.iter().find(|b| b.starts_with(start));
    let found = found.unwrap_or_else(|| panic!("no {start} in {blockers:?}"));
    for word in says {
        assert!(found.contains(word), "{word} in {found}");
    }
    assert_eq!(plan.actions, [], "nothing is touched");
}

fn placeholders(plan: &Plan) -> Vec<&Placeholder> {
    let made = plan.actions.iter().filter_map(|action| match action {
        Action::CreatePlaceholder(placeholder) => Some(placeholder.as_ref()),
        _ => None,
    });
    made.collect()
}

/// Steps until placeholders are asked for, and returns those.
fn first_placeholders(toy: &mut Toy) -> Vec<Placeholder> {
    for _ in 0..50 {
        let plan = toy.step();
        let made: Vec<_> = placeholders(&plan).into_iter().cloned().collect();
        if !made.is_empty() {
            return made;
        }
    }
    panic!("no placeholders: {:#?}", toy.status());
}

fn named() -> Toy {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.node("old");
    toy.node("spare");
    toy
}

fn label(toy: &mut Toy, node: &str, key: &str, value: &str) {
    toy.by_name(node).labels.insert(key.into(), value.into());
}

fn select(toy: &mut Toy, pods: &str, key: &str, value: &str) {
    for pod in toy.pods_named(pods) {
        let shape = &mut toy.pod_mut(&pod.reference.uid).shape;
        shape.node_selector.insert(key.into(), value.into());
    }
}

fn pool(toy: &mut Toy, change: impl FnOnce(&mut NodePool)) {
    let karpenter = toy.cluster.karpenter.get_or_insert_default();
    let mut pool = NodePool {
        name: "apps".into(),
        uid: "pool".into(),
        ..NodePool::default()
    };
    change(&mut pool);
    Arc::make_mut(&mut karpenter.pools).insert("pool".into(), Arc::new(pool));
}

#[test]
fn case_45_a_volume_for_several_nodes_does_not_forbid_a_restart() {
    let mut toy = named();
    toy.deployment("web", &["old"], SURGES);
    toy.volume("web", "web", true);
    let web = toy.plan().status.workloads[0].clone();
    assert_eq!(web.strategy, MoveStrategy::RolloutRestart, "{}", web.why);

    let mut alone = named();
    alone.deployment("web", &["old"], SURGES);
    alone.volume("web", "web", false);
    let web = alone.plan().status.workloads[0].clone();
    assert_eq!(web.strategy, MoveStrategy::Evict, "{}", web.why);

    // A claim that nobody has seen may be for one node.
    Arc::make_mut(&mut alone.cluster.volume_claims).clear();
    assert_eq!(
        alone.plan().status.workloads[0].strategy,
        MoveStrategy::Evict
    );

    // One that is made for each pod alone is in nobody's way.
    let mut own = named();
    own.deployment("web", &["old"], SURGES);
    for pod in own.pods_named("web") {
        own.pod_mut(&pod.reference.uid).claims = vec![MountedClaim {
            name: "web-scratch".into(),
            ephemeral: true,
        }];
    }
    let web = own.plan().status.workloads[0].clone();
    assert_eq!(web.strategy, MoveStrategy::RolloutRestart, "{}", web.why);
}

#[test]
fn case_72_a_volume_of_the_node_itself_blocks_and_is_named() {
    let name = "kubernetes.io/hostname";
    for (case, node_local, nodes) in [
        ("a directory of the node", true, None),
        ("a local disk", true, Some(selector(name, &["old"]))),
        (
            "a driver that pins by host name",
            false,
            Some(selector(name, &["old"])),
        ),
        (
            "a driver with a label of its own",
            false,
            Some(selector("topology.topolvm.io/node", &["old"])),
        ),
    ] {
        let mut toy = named();
        label(&mut toy, "old", name, "old");
        label(&mut toy, "spare", name, "spare");
        label(&mut toy, "old", "topology.topolvm.io/node", "old");
        toy.stateful_set("db", &["old"]);
        let volume = toy.volume("db", "data-db-0", false);
        volume.node_local = node_local;
        volume.nodes = nodes;
        println!("{case}");
        let object = "NodeLocalVolume PersistentVolumeClaim default/data-db-0";
        blocked(&mut toy, object, &["copy what is in it", "db-0"]);
    }
    // One that another node can use as well is none.
    let mut toy = named();
    label(&mut toy, "spare", name, "spare");
    toy.stateful_set("db", &["old"]);
    let volume = toy.volume("db", "data-db-0", false);
    volume.nodes = Some(selector(name, &["old", "spare"]));
    assert_eq!(findings(&toy.plan()).0, Vec::<String>::new());
}

/// A database with a volume in each of two zones, and room in both.
fn two_zones() -> Toy {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old-a", "old-b"]}}));
    for (node, zone) in [
        ("old-a", "a"),
        ("old-b", "b"),
        ("new-a", "a"),
        ("new-b", "b"),
    ] {
        toy.node(node).labels.insert(EBS_ZONE.into(), zone.into());
    }
    toy.stateful_set("db", &["old-a", "old-b"]);
    for (pod, zone) in [("db-0", "a"), ("db-1", "b")] {
        let volume = toy.volume(pod, &format!("data-{pod}"), false);
        volume.nodes = Some(selector(EBS_ZONE, &[zone]));
    }
    toy
}

#[test]
fn case_70_a_place_is_kept_in_the_zone_of_the_volume() {
    let mut toy = two_zones();
    let made = first_placeholders(&mut toy);
    let asked: Vec<_> = made
        .iter()
        .map(|p| {
            (
                p.pod.name.as_str(),
                p.shape.required_affinity.clone().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        asked,
        [
            ("db-0", selector(EBS_ZONE, &["a"])),
            ("db-1", selector(EBS_ZONE, &["b"]))
        ]
    );
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
    let at: Vec<_> = toy
        .pods_named("db")
        .iter()
        .map(|p| p.node.clone().unwrap().0)
        .collect();
    let mut at = at;
    at.sort();
    assert_eq!(at.len(), 2);
    assert!(at.iter().all(|n| n.starts_with("new")), "{at:?}");
}

#[test]
fn case_70_a_place_in_the_other_zone_is_none() {
    let mut toy = two_zones();
    // There is room in zone b only.
    Arc::make_mut(&mut toy.cluster.nodes).remove(&Uid::from("node-new-a"));
    for _ in 0..50 {
        let plan = toy.step();
        let evicts = |a: &Action| matches!(a, Action::Evict { .. });
        assert!(!plan.actions.iter().any(evicts), "{:#?}", plan.actions);
    }
    assert_eq!(toy.stage(), "Provisioning");
}

#[test]
fn case_70_what_the_pod_and_its_volume_ask_for_is_both_asked_for() {
    let mut toy = named();
    label(&mut toy, "spare", "disk", "ssd");
    label(&mut toy, "spare", EBS_ZONE, "a");
    toy.stateful_set("db", &["old"]);
    for pod in toy.pods_named("db") {
        toy.pod_mut(&pod.reference.uid).shape.required_affinity = Some(selector("disk", &["ssd"]));
    }
    toy.volume("db", "data", false).nodes = Some(selector(EBS_ZONE, &["a"]));
    let made = first_placeholders(&mut toy);
    let terms = made[0]
        .shape
        .required_affinity
        .clone()
        .unwrap()
        .node_selector_terms;
    let [term] = &terms[..] else {
        panic!("{terms:?}")
    };
    let keys: Vec<_> = term
        .match_expressions
        .iter()
        .flatten()
        .map(|e| e.key.as_str())
        .collect();
    assert_eq!(
        keys,
        ["disk", EBS_ZONE],
        "in one term, since terms are alternatives"
    );
}

#[test]
fn case_33_a_label_that_only_the_old_nodes_have_blocks() {
    let mut toy = named();
    label(&mut toy, "old", "NodeGroupName", "old");
    toy.deployment("web", &["old"], SURGES);
    select(&mut toy, "web", "NodeGroupName", "old");
    blocked(
        &mut toy,
        "NoFeasibleNode Pod default/web",
        &["NodeGroupName=old"],
    );
    // Another node has it.
    let mut other = toy.clone();
    label(&mut other, "spare", "NodeGroupName", "old");
    assert_eq!(findings(&other.plan()).0, Vec::<String>::new());
    // A pool makes nodes with it, by a label or as one of several values.
    let mut made = toy.clone();
    pool(&mut made, |p| {
        p.labels.insert("NodeGroupName".into(), "old".into());
    });
    assert_eq!(findings(&made.plan()).0, Vec::<String>::new());
    let mut listed = toy.clone();
    pool(&mut listed, |p| {
        p.requirements = vec![NodeSelectorRequirement {
            key: "NodeGroupName".into(),
            operator: "In".into(),
            values: Some(vec!["new".into(), "old".into()]),
        }];
    });
    assert_eq!(findings(&listed.plan()).0, Vec::<String>::new());
    // A pool of other values, or without the label, never will.
    let mut none = toy.clone();
    pool(&mut none, |p| {
        p.labels.insert("NodeGroupName".into(), "new".into());
    });
    blocked(&mut none, "NoFeasibleNode", &["no NodePool could"]);
    // A managed group of an autoscaler may grow: placeholders wait, and a person is warned.
    let mut group = toy.clone();
    label(&mut group, "old", "eks.amazonaws.com/nodegroup", "old");
    let (blockers, warnings) = findings(&group.plan());
    assert_eq!(blockers, Vec::<String>::new());
    assert!(warnings[0].starts_with("NoFeasibleNode"), "{warnings:?}");
}

#[test]
fn case_33_a_taint_that_every_other_node_has_blocks() {
    let mut toy = named();
    toy.by_name("spare").taints = vec![Taint {
        key: "dedicated".into(),
        value: Some("ml".into()),
        effect: "NoSchedule".into(),
        time_added: None,
    }];
    toy.stateful_set("db", &["old"]);
    blocked(
        &mut toy,
        "NoFeasibleNode Pod default/db-0",
        &["dedicated:NoSchedule"],
    );
    for pod in toy.pods_named("db") {
        let tolerations = json!([{"key": "dedicated", "operator": "Exists"}]);
        toy.pod_mut(&pod.reference.uid).shape.tolerations =
            serde_json::from_value(tolerations).unwrap();
    }
    assert_eq!(findings(&toy.plan()).0, Vec::<String>::new());
}

#[test]
fn case_48_places_of_pods_that_repel_each_other_do_so_too() {
    let mut toy = named();
    toy.stateful_set("db", &["old"]);
    let term: PodAffinityTerm = serde_json::from_value(json!({
        "labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname",
    }))
    .unwrap();
    for pod in toy.pods_named("db") {
        toy.pod_mut(&pod.reference.uid).shape.repels = vec![term.clone()];
    }
    let repels = first_placeholders(&mut toy)[0].shape.repels.clone();
    let [each_other, the_pods] = &repels[..] else {
        panic!("two terms: {repels:?}");
    };
    let labels = each_other
        .label_selector
        .clone()
        .unwrap()
        .match_labels
        .unwrap();
    assert_eq!(labels["relocation.sh/workload-uid"], "StatefulSet-db");
    // From the namespace of placeholders the pods' own has to be named.
    assert_eq!(the_pods.namespaces, Some(vec!["default".into()]));
    assert_eq!(the_pods.label_selector, term.label_selector);
}

#[test]
fn case_83_devices_that_no_placeholder_can_keep_block() {
    let mut toy = named();
    toy.stateful_set("ml", &["old"]);
    for pod in toy.pods_named("ml") {
        toy.pod_mut(&pod.reference.uid).shape.devices = vec!["gpu".into()];
    }
    blocked(&mut toy, "Unsupported Pod default/ml-0", &["gpu", "None"]);
}

#[test]
fn a_limit_that_is_too_low_for_new_nodes_is_told() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.drifted("old");
    pool(&mut toy, |p| {
        p.limits.insert("cpu".into(), 4_000);
        p.used.insert("cpu".into(), 3_000);
    });
    toy.stateful_set("db", &["old"]);
    for pod in toy.pods_named("db") {
        let requests = &mut toy.pod_mut(&pod.reference.uid).shape.requests;
        requests.insert("cpu".into(), 2_000);
    }
    let (_, warnings) = findings(&toy.plan());
    let said = warnings
        .iter()
        .find(|w| w.starts_with("NodePoolLimit NodePool apps"));
    let said = said.unwrap_or_else(|| panic!("{warnings:?}"));
    assert!(
        said.contains("2 of cpu") && said.contains("leaves 1"),
        "{said}"
    );
}

#[test]
fn case_113_a_node_that_expires_soon_is_told() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.drifted("old");
    toy.stateful_set("db", &["old"]);
    let expire = |toy: &mut Toy, hours| {
        let at = toy
            .now
            .checked_add(SignedDuration::from_hours(hours))
            .unwrap();
        let claims = &mut toy.cluster.karpenter.as_mut().unwrap().claims;
        for claim in Arc::make_mut(claims).values_mut() {
            Arc::make_mut(claim).expires = Some(at);
        }
    };
    expire(&mut toy, 1);
    let (_, warnings) = findings(&toy.plan());
    assert!(
        warnings
            .iter()
            .any(|w| w.starts_with("NodeExpires Node old")),
        "{warnings:?}"
    );
    expire(&mut toy, 100);
    let (_, warnings) = findings(&toy.plan());
    assert!(
        !warnings.iter().any(|w| w.starts_with("NodeExpires")),
        "{warnings:?}"
    );
}

fn attach(toy: &mut Toy, volume: &str) {
    let attachment = Attachment {
        name: format!("csi-{volume}"),
        uid: format!("csi-{volume}").into(),
        node: "old".into(),
        volume: Some(volume.into()),
    };
    Arc::make_mut(&mut toy.cluster.attachments)
        .insert(attachment.uid.clone(), Arc::new(attachment));
}

fn with_attachments() -> Toy {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.drifted("old");
    toy.node("spare");
    toy.stateful_set("db", &["old"]);
    toy.volume("db", "data", false);
    toy.daemon_set("agent", &["old"]);
    toy.volume("agent", "agent", false);
    toy
}

#[test]
fn case_74_volumes_of_pods_that_stay_are_not_waited_for() {
    let mut toy = with_attachments();
    attach(&mut toy, "agent");
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
    assert!(toy.cluster.karpenter.unwrap().claims.is_empty(), "removed");
}

#[test]
fn case_75_a_volume_that_stays_attached_holds_up_the_removal_and_is_told() {
    let mut toy = with_attachments();
    attach(&mut toy, "data");
    toy.until("Draining", |t| t.stage() == "Draining");
    let elsewhere = toy.pods_named("db")[0].node.clone().unwrap();
    assert_eq!(elsewhere.as_str(), "spare", "the pod did not wait for it");
    toy.now = toy.now.checked_add(SignedDuration::from_hours(2)).unwrap();
    let (blockers, _) = findings(&toy.plan());
    let [said] = &blockers[..] else {
        panic!("{blockers:?}");
    };
    assert!(
        said.starts_with("StillAttached Node old") && said.contains("csi-data"),
        "{said}"
    );
    // It goes on by itself.
    Arc::make_mut(&mut toy.cluster.attachments).clear();
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}
