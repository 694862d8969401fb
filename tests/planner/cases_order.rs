//! Public reports about what moves first and last, and about budgets and pods that are not what they seem: each by its number, with the
//! outcome that would have been right.

use std::collections::BTreeMap;
use std::sync::Arc;

use relocator::plan::Action;
use relocator::world::{Asked, Budget, Service, Uid, Webhook, Webhooks};
use serde_json::json;

use crate::toy::{Toy, owner};

/// Two nodes to be emptied, and room.
fn toy() -> Toy {
    let mut toy = Toy::new(json!({
        "nodes": {"names": ["old-1", "old-2"]}, "replacement": {"strategy": "None"},
        "workloads": {"strategy": "Evict"}, "afterDrain": "Uncordon",
    }));
    toy.node("old-1");
    toy.node("old-2");
    toy.node("spare");
    toy
}

fn blockers(toy: &Toy) -> Vec<String> {
    let status = toy.status();
    let words = status.blockers.iter();
    words
        .map(|b| format!("{} {}", b.reason, b.object))
        .collect()
}

/// Goes on to the end, and tells in which order pods were evicted.
fn evicted(toy: &mut Toy) -> Vec<String> {
    let mut evicted = Vec::new();
    for _ in 0..200 {
        if toy.is_over() {
            return evicted;
        }
        for action in toy.step().actions {
            if let Action::Evict { pod, .. } = action {
                evicted.push(pod.name);
            }
        }
    }
    panic!(
        "{evicted:?}, and then {} {:#?}",
        toy.stage(),
        toy.status().blockers
    );
}

/// Goes on until a pod is evicted.
fn first_evicted(toy: &mut Toy) -> String {
    for _ in 0..50 {
        for action in toy.step().actions {
            if let Action::Evict { pod, .. } = action {
                return pod.name;
            }
        }
    }
    panic!("no eviction: {} {:?}", toy.stage(), blockers(toy));
}

fn budget_mut(toy: &mut Toy) -> &mut Budget {
    let budgets = Arc::make_mut(&mut toy.cluster.budgets);
    Arc::make_mut(budgets.values_mut().next().expect("a budget"))
}

/// Two that crash, under a budget that desires one healthy: with the default policy the eviction API refuses both, for ever.
#[test]
fn case_06_a_crashing_pod_that_its_budget_keeps_is_named_with_the_way_out() {
    let mut toy = toy();
    toy.sick = vec!["db-0".into(), "db-1".into()];
    toy.stateful_set("db", &["old-1", "old-2"]);
    toy.budget("db", "db", 1);
    toy.count_budgets();
    assert_eq!(toy.plan().actions, []);
    assert_eq!(
        blockers(&toy),
        [
            "UnhealthyPodGuarded Pod default/db-0",
            "UnhealthyPodGuarded Pod default/db-1"
        ]
    );
    let said = &toy.status().blockers[0].message;
    assert!(said.contains("0 of the 1"), "{said}");
    assert!(said.contains("AlwaysAllow"), "{said}");

    // With the way out taken, they go.
    budget_mut(&mut toy).always_allows_unhealthy = true;
    assert_eq!(first_evicted(&mut toy), "db-1");
}

/// An image that cannot be pulled: phase Pending, and the eviction API asks no budget about that.
#[test]
fn case_08_a_pod_that_has_never_run_is_evicted_whatever_its_budget_says() {
    let mut toy = toy();
    toy.sick = vec!["db-0".into()];
    toy.stateful_set("db", &["old-1"]);
    toy.budget("db", "db", 1);
    let pod = toy.pods_named("db-0").remove(0);
    toy.pod_mut(&pod.reference.uid).pending = true;
    toy.count_budgets();
    assert_eq!(first_evicted(&mut toy), "db-0");
    assert_eq!(blockers(&toy), Vec::<String>::new());
}

impl Toy {
    /// A webhook that fails closed, is asked about every pod, and is answered by the pods of that app.
    fn webhook(&mut self, app: &str) -> &mut Webhook {
        let uid = Uid::from("service");
        let service = Service {
            namespace: "default".into(),
            name: app.into(),
            uid: uid.clone(),
            selector: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        };
        Arc::make_mut(&mut self.cluster.services).insert(uid, Arc::new(service));
        let webhook = Webhook {
            name: "pods.example.com".into(),
            service: Some(("default".into(), app.into())),
            fails_closed: true,
            asked: Asked {
                creation: true,
                others: false,
            },
            objects: None,
            some_namespaces: false,
        };
        let uid = Uid::from("webhooks");
        let list = Webhooks {
            uid: uid.clone(),
            webhooks: vec![webhook],
        };
        let all = Arc::make_mut(&mut self.cluster.webhooks);
        let list = all.entry(uid).or_insert_with(|| Arc::new(list));
        &mut Arc::make_mut(list).webhooks[0]
    }
}

/// Its pods move before those that it is asked about, so that it has answered from its new place before anything depends on that.
#[test]
fn case_16_what_answers_for_admission_moves_before_others() {
    let mut toy = toy();
    toy.stateful_set("app", &["old-1", "old-2"]);
    toy.stateful_set("policy", &["old-1", "old-2"]);
    toy.webhook("policy");
    assert_eq!(
        evicted(&mut toy),
        ["policy-1", "policy-0", "app-1", "app-0"]
    );
}

/// One pod that refuses every pod while it is away, its own successor among them.
#[test]
fn case_16_a_webhook_that_would_refuse_its_own_successor_blocks() {
    let mut alone = toy();
    alone.stateful_set("policy", &["old-1"]);
    alone.webhook("policy");
    assert_eq!(alone.plan().actions, []);
    assert_eq!(blockers(&alone), ["AdmissionDeadlock Pod default/policy-0"]);
    let said = &alone.status().blockers[0].message;
    assert!(said.contains("pods.example.com"), "{said}");

    // It is asked about the pods of some namespaces: its own is left out, as a rule. Down it is all the same.
    let mut outside = toy();
    outside.stateful_set("policy", &["old-1"]);
    outside.webhook("policy").some_namespaces = true;
    assert!(!outside.plan().status.workloads.is_empty());
    assert_eq!(blockers(&outside), Vec::<String>::new());
    let warned: Vec<_> = outside
        .status()
        .warnings
        .iter()
        .map(|w| w.reason.to_string())
        .collect();
    assert!(warned.contains(&"AdmissionDown".to_owned()), "{warned:?}");

    // One that fails open stops nobody.
    let mut open = toy();
    open.stateful_set("policy", &["old-1"]);
    open.webhook("policy").fails_closed = false;
    assert!(!open.plan().status.workloads.is_empty());
    assert_eq!(blockers(&open), Vec::<String>::new());
}

/// It answers from where it is and cannot move: that is no reason to hold the others up.
#[test]
fn case_16_who_answers_and_cannot_move_does_not_hold_others_up() {
    let mut toy = toy();
    toy.stateful_set("app", &["old-1"]);
    toy.stateful_set("policy", &["old-1", "old-2"]);
    toy.webhook("policy");
    toy.until("moving", |t| t.stage() == "Moving");
    toy.budget("policy", "policy", 2);
    toy.until("app to have moved", |t| {
        let status = t.status();
        status
            .workloads
            .iter()
            .any(|w| w.name == "app" && w.moved == 1)
    });
    assert_eq!(
        blockers(&toy),
        ["PdbNeverAllows PodDisruptionBudget default/policy"]
    );
}

/// Two guards, each of which needs that the other's node is not empty: with one pod of each at a time, both are moved.
#[test]
fn case_17_budgets_that_need_both_nodes_take_turns() {
    let mut toy = toy();
    toy.stateful_set("guard", &["old-1", "old-2"]);
    toy.budget("guard", "guard", 1);
    toy.count_budgets();
    assert_eq!(evicted(&mut toy), ["guard-1", "guard-0"]);
}

#[test]
fn case_27_only_a_mirror_pod_that_its_node_owns_is_passed_over() {
    let mut real = toy();
    let uid = real.pod("kube-proxy", "proxy", Some("old-1"), None);
    real.pod_mut(&uid).mirror = true;
    assert_eq!(real.plan().status.nodes.len(), 0);
    let succeeded = real
        .status()
        .conditions
        .into_iter()
        .find(|c| c.type_ == "Succeeded");
    assert_eq!(succeeded.unwrap().reason, "NothingToDo");

    // The annotation alone makes no mirror pod: what the conversion makes of it is a pod that nothing would make again.
    let forged = json!({
        "metadata": {"name": "forged", "namespace": "default", "uid": "u", "resourceVersion": "1",
            "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"containers": [], "nodeName": "old-1"},
    });
    let forged = relocator::world::convert::pod(&serde_json::from_value(forged).unwrap()).unwrap();
    let mut toy = toy();
    Arc::make_mut(&mut toy.cluster.pods).insert("u".into(), Arc::new(forged));
    assert_eq!(toy.plan().actions, []);
    assert_eq!(blockers(&toy), ["UnmanagedPod Pod default/forged"]);
}

/// A pod is the `DaemonSet`'s only if one of that UID exists.
#[test]
fn case_28_only_pods_of_a_daemon_set_that_exists_stay() {
    let mut toy = toy();
    toy.daemon_set("csi", &["old-1"]);
    toy.stateful_set("db", &["old-1"]);
    let left = owner("DaemonSet", "csi", &"gone".into());
    toy.pod("csi-orphan", "csi", Some("old-2"), Some(left));
    assert_eq!(toy.plan().actions, []);
    assert_eq!(blockers(&toy), ["UnmanagedPod Pod default/csi-orphan"]);

    let mut without = self::toy();
    without.daemon_set("csi", &["old-1"]);
    without.stateful_set("db", &["old-1"]);
    assert_eq!(evicted(&mut without), ["db-0"]);
}

/// A pod that mounts for others, of no `DaemonSet`: it goes when nobody on its nodes is left who may need it.
#[test]
fn case_29_what_the_node_needs_goes_when_all_others_have_gone() {
    let mut toy = toy();
    // In the order of their names it would be first.
    toy.stateful_set("a-mount", &["old-1", "old-2"]);
    for pod in toy.pods_named("a-mount") {
        toy.pod_mut(&pod.reference.uid).node_critical = true;
    }
    toy.stateful_set("app", &["old-1", "old-2"]);
    assert_eq!(
        evicted(&mut toy),
        ["app-1", "app-0", "a-mount-1", "a-mount-0"]
    );
}

#[test]
fn case_29_a_rule_of_a_person_comes_before_what_is_usual() {
    let mut toy = toy();
    toy.relocation.spec.workloads.rules = serde_json::from_value(json!([
        {"match": {"selector": {"matchLabels": {"app": "a-mount"}}}, "order": -1},
    ]))
    .unwrap();
    toy.stateful_set("a-mount", &["old-1"]);
    for pod in toy.pods_named("a-mount") {
        toy.pod_mut(&pod.reference.uid).node_critical = true;
    }
    toy.stateful_set("app", &["old-1"]);
    assert_eq!(evicted(&mut toy), ["a-mount-0", "app-0"]);
}

#[test]
fn case_39_nodes_that_are_no_machines_are_refused() {
    let virtual_nodes = [
        ("eks.amazonaws.com/compute-type", "fargate"),
        ("type", "virtual-kubelet"),
    ];
    for (key, value) in virtual_nodes {
        let mut toy = toy();
        toy.stateful_set("db", &["old-1"]);
        toy.by_name("old-1").labels.insert(key.into(), value.into());
        assert_eq!(toy.plan().actions, []);
        assert_eq!(blockers(&toy), ["VirtualNode Node old-1"]);
    }
}
