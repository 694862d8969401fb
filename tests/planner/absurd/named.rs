//! What absurd worlds have found, each as a case of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use relocator::plan::Action;
use relocator::world::{
    Health, NodePool, OtherOwner, OwnerReference, OwnerSight, RolloutStrategy, SurgeMark, Uid,
    WorkloadKind, WorkloadRef,
};
use serde_json::{Value, json};

use super::schema;
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

fn owner(api_version: &str, kind: &str, name: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        uid: name.into(),
    }
}

/// The owner as a read shows it; `namespace` is empty for one that is in none.
fn found(toy: &mut Toy, owner: &OwnerReference, namespace: &str, replicas: u32) {
    let sight = OwnerSight::Found(Box::new(OtherOwner {
        reference: WorkloadRef {
            kind: WorkloadKind::Other {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
            },
            namespace: namespace.into(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        },
        replicas: Some(replicas),
        health: Health::Unsaid,
        deleting: false,
        job: None,
        rollout: None,
    }));
    toy.cluster.owners.insert(owner.uid.clone(), sight);
}

fn evicted(actions: &[Action]) -> Vec<&str> {
    let evicted = actions.iter().filter_map(|action| match action {
        Action::Evict { pod, .. } => Some(pod.name.as_str()),
        _ => None,
    });
    evicted.collect()
}

/// As the attachment pods of `KubeVirt`, which a virtual machine's pod owns: an eviction would be the end of it.
#[test]
fn what_a_pod_or_a_node_owns_is_not_made_again() {
    for kind in ["Pod", "Node", "ConfigMap"] {
        let mut toy = toy(&json!({}));
        let by = owner("v1", kind, "machine");
        found(&mut toy, &by, "default", 1);
        toy.pod("volume", "volume", Some("old"), Some(by));
        assert_eq!(toy.plan().actions, []);
        assert_eq!(toy.reasons(), ["UnmanagedPod"], "{kind}");
        let said = &toy.status().blockers[0].message;
        assert!(
            said.contains(&format!(
                "its owner {kind} default/machine is of a kind that makes no pods"
            )),
            "{said}"
        );
        // It is not read for that.
        assert_eq!(relocator::plan::owners_to_read(&toy.look()), []);
        // Whoever knows better says so.
        toy.relocation.spec.workloads =
            serde_json::from_value(json!({"unmanagedPods": "Evict"})).unwrap();
        toy.until("over", Toy::is_over);
        assert_eq!(toy.stage(), "Succeeded", "{kind}");
        assert!(toy.pods_named("volume").is_empty());
    }
}

/// Whoever may make pods in one namespace could otherwise let them be taken for those of a database in another.
#[test]
fn an_owner_in_another_namespace_is_forged() {
    let mut toy = toy(&json!({}));
    toy.stateful_set("db", &["old", "spare"]);
    let set = crate::toy::owner("StatefulSet", "db", &"StatefulSet-db".into());
    let forged = toy.pod("forged", "db", Some("old"), Some(set));
    toy.pod_mut(&forged).reference.namespace = "elsewhere".into();
    assert_eq!(toy.plan().actions, []);
    let status = toy.status();
    let objects: Vec<_> = status.blockers.iter().map(|b| b.object.as_str()).collect();
    assert_eq!(objects, ["Pod elsewhere/forged"]);
    assert_eq!(status.workloads[0].pods, 1, "it is none of the database's");
    // A DaemonSet of another namespace keeps nothing on its node either.
    toy.daemon_set("agent", &["old"]);
    let agent = toy.pods_named("agent")[0].reference.uid.clone();
    toy.pod_mut(&agent).reference.namespace = "elsewhere".into();
    assert_eq!(toy.plan().actions, []);
    assert_eq!(toy.status().blockers.len(), 2);
}

/// An owner that is in no namespace is listed in that of its pods, for the API server takes no status without one.
#[test]
fn an_owner_in_no_namespace_moves_and_minds_the_budgets_of_its_pods() {
    let mut toy = toy(&json!({}));
    let by = owner("example.com/v1", "Installation", "site");
    found(&mut toy, &by, "", 2);
    for (name, node) in [("site-0", "old"), ("site-1", "spare")] {
        toy.pod(name, "site", Some(node), Some(by.clone()));
    }
    toy.stateful_set("db", &["old", "spare"]);
    for pod in toy.pods_named("") {
        let pod = toy.pod_mut(&pod.reference.uid);
        pod.labels.insert("shared".into(), "yes".into());
    }
    toy.stateful_set_mut("db")
        .pod_labels
        .insert("shared".into(), "yes".into());
    toy.budget("shared", "site", 0);
    let budget = Arc::make_mut(&mut toy.cluster.budgets)
        .get_mut(&Uid::from("budget-shared"))
        .unwrap();
    Arc::make_mut(budget).selector = Some(
        [("shared".to_owned(), "yes".to_owned())]
            .into_iter()
            .collect(),
    );
    toy.count_budgets();
    let mut moves = Vec::new();
    for _ in 0..60 {
        let plan = toy.plan();
        schema::check(&plan.status);
        let now = evicted(&plan.actions);
        assert!(now.len() < 2, "they share a budget: {now:?}");
        moves.extend(now.into_iter().map(str::to_owned));
        if moves.len() == 2 {
            break;
        }
        for action in &plan.actions {
            toy.carry_out(action);
        }
        toy.tick();
        // The toy has no controller for it.
        if !moves.is_empty() && toy.pods_named("site").len() < 2 {
            toy.pod("site-2", "site", Some("spare"), Some(by.clone()));
        }
    }
    assert_eq!(moves.len(), 2, "{:#?}", toy.status());
    let status = toy.status();
    let site = status.workloads.iter().find(|w| w.name == "site").unwrap();
    assert_eq!(site.namespace, "default");
}

/// Their owners say nothing that is watched, so what begins in one pass has to be known from the pass itself.
#[test]
fn two_custom_resources_that_share_a_budget_do_not_begin_in_one_pass() {
    let mut toy = toy(&json!({}));
    for name in ["one", "two"] {
        let by = owner("db.example.com/v1", "Database", name);
        found(&mut toy, &by, "default", 2);
        for node in ["old", "spare"] {
            toy.pod(
                &format!("{name}-{node}"),
                "db",
                Some(node),
                Some(by.clone()),
            );
        }
    }
    toy.budget("db", "db", 0);
    for _ in 0..30 {
        let plan = toy.plan();
        let moves = evicted(&plan.actions);
        if !moves.is_empty() {
            assert_eq!(moves, ["one-old"]);
            return;
        }
        for action in &plan.actions {
            toy.carry_out(action);
        }
        toy.tick();
    }
    panic!("nothing moves: {:#?}", toy.status());
}

/// A reason that names an owner is as long as the name, and a status that is too long is refused as a whole.
#[test]
fn a_reason_is_cut_to_what_the_schema_takes() {
    let mut toy = toy(&json!({}));
    toy.deployment("web", &["old"], SURGES);
    let by = owner("example.com/v1", &"K".repeat(2000), "n\u{1b}[31m");
    toy.deployment_mut("web").controller = Some(by.clone());
    found(&mut toy, &by, "default", 1);
    let status = toy.plan().status;
    schema::check(&status);
    assert_eq!(status.workloads[0].why.len(), 512);
    let text = serde_json::to_string(&status).unwrap();
    assert!(
        !text.contains("\\u001b"),
        "no control characters in a text for people"
    );
}

/// A label of that form that counts to billions is none that we have set: nothing of it is recorded or scaled.
#[test]
fn a_surge_beyond_all_counts_is_nobodys() {
    assert!(SurgeMark::parse("relocation-uid.3.4").is_some());
    for text in [
        "relocation-uid.3.4000000000",
        "relocation-uid.2000000.4",
        "relocation-uid.-1.4",
        "relocation-uid.3",
    ] {
        assert_eq!(SurgeMark::parse(text), None, "{text}");
    }
}

/// What asks for more than there is in the world adds up to no more than that.
#[test]
fn requests_and_limits_without_bound_add_up() {
    let mut toy = toy(&json!({}));
    toy.drifted("old");
    toy.cluster.nodes = Arc::new(
        toy.cluster
            .nodes
            .iter()
            .filter(|(_, n)| n.name.as_str() == "old")
            .map(|(u, n)| (u.clone(), Arc::clone(n)))
            .collect(),
    );
    toy.deployment("web", &["old", "old"], RolloutStrategy::Recreate);
    for pod in toy.pods_named("web") {
        let shape = &mut toy.pod_mut(&pod.reference.uid).shape;
        shape.requests.insert("cpu".into(), i128::MAX);
        shape
            .node_selector
            .insert("karpenter.sh/nodepool".into(), "apps".into());
    }
    let pools = &mut toy.cluster.karpenter.as_mut().unwrap().pools;
    for pool in Arc::make_mut(pools).values_mut() {
        let pool: &mut NodePool = Arc::make_mut(pool);
        pool.limits.insert("cpu".into(), i128::MAX);
        pool.used.insert("cpu".into(), i128::MIN);
    }
    let status = toy.plan().status;
    schema::check(&status);
    assert_eq!(status.workloads.len(), 1);
}

/// The pass that finds everything done has just kept the places for what was left: it takes them away once, and protects nothing more.
#[test]
fn the_pass_that_begins_to_put_back_asks_for_nothing_twice() {
    for after in ["Keep", "Delete"] {
        let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}, "afterDrain": after}));
        for node in ["old", "spare", "spare-2"] {
            toy.karpenter_node(node, false);
        }
        toy.stateful_set("db", &["old", "old"]);
        while !toy.is_over() {
            let actions = toy.step().actions;
            let keys: BTreeSet<_> = actions.iter().map(|a| a.key().0).collect();
            assert_eq!(keys.len(), actions.len(), "{actions:#?}");
        }
        assert_eq!(toy.stage(), "Succeeded");
    }
}
