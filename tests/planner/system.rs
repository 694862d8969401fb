//! What the cluster itself lives on: kube-system one pod at a time, Karpenter and the operator last.

use std::collections::BTreeMap;
use std::sync::Arc;

use relocator::api::status::MoveStrategy;
use relocator::plan::{Action, Restore};
use relocator::world::RolloutStrategy;
use serde_json::json;

use crate::stages::SURGES;
use crate::toy::Toy;

/// `CoreDNS` as it is installed: one may be missing, and a quarter more may be there.
const DNS: RolloutStrategy = RolloutStrategy::RollingUpdate {
    max_surge: 1,
    max_unavailable: 1,
};

impl Toy {
    /// Puts a Deployment into a namespace and names its pods as charts do.
    fn system(&mut self, name: &str, namespace: &str, label: &str) {
        let deployment = self.deployment_mut(name);
        deployment.reference.namespace = namespace.into();
        let uid = deployment.reference.uid.clone();
        for set in Arc::make_mut(&mut self.cluster.replica_sets).values_mut() {
            if set.controller.as_ref().is_some_and(|c| c.uid == uid) {
                Arc::make_mut(set).reference.namespace = namespace.into();
            }
        }
        for pod in self.pods_named(name) {
            let pod = self.pod_mut(&pod.reference.uid);
            pod.reference.namespace = namespace.into();
            pod.labels
                .insert("app.kubernetes.io/name".into(), label.into());
        }
    }

    fn not_ready(&self, app: &str) -> usize {
        let pods = self.pods_named(app);
        pods.iter().filter(|p| !p.ready).count()
    }
}

fn toy() -> Toy {
    let spec = json!({"nodes": {"names": ["old-1", "old-2"]}, "afterDrain": "Uncordon"});
    let mut toy = Toy::new(spec);
    toy.node("old-1");
    toy.node("old-2");
    for spare in ["spare-1", "spare-2", "spare-3"] {
        toy.node(spare);
    }
    toy
}

#[test]
fn case_129_karpenter_and_the_operator_move_last_and_in_this_order() {
    let mut toy = toy();
    // In the order of their names the operator and Karpenter would be first.
    toy.deployment("a-operator", &["old-1"], SURGES);
    toy.deployment("b-karpenter", &["old-1", "old-2"], DNS);
    toy.deployment("web", &["old-1", "old-2"], DNS);
    toy.stateful_set("db", &["old-1", "old-2"]);
    toy.system("a-operator", "relocator-system", "relocator");
    toy.system("b-karpenter", "karpenter", "karpenter");
    let mut begun: BTreeMap<String, usize> = BTreeMap::new();
    let mut step = 0;
    while !toy.is_over() {
        let pending = toy.placeholders().iter().any(|p| p.node.is_none());
        for action in toy.step().actions {
            let name = match &action {
                Action::Evict { pod, .. } => pod.name.split('-').next().unwrap().to_owned(),
                Action::Restart { workload, .. } => workload.name.clone(),
                Action::Surge { workload, mark, .. } => {
                    let by = mark.to - mark.from;
                    assert!(by == 1 || workload.name == "web", "{workload} by {by}");
                    workload.name.clone()
                }
                _ => continue,
            };
            let needed = name.contains("karpenter") || name.contains("operator");
            assert!(
                !(needed && pending),
                "{name} moves while a place is pending"
            );
            begun.entry(name).or_insert(step);
        }
        step += 1;
    }
    assert_eq!(toy.stage(), "Succeeded");
    let mut order: Vec<_> = begun
        .iter()
        .map(|(name, at)| (*at, name.as_str()))
        .collect();
    order.sort_unstable();
    let order: Vec<_> = order.into_iter().map(|(_, name)| name).collect();
    assert_eq!(order[2..], ["b-karpenter", "a-operator"], "{begun:?}");
}

#[test]
fn case_129_what_waits_for_the_others_does_not_hide_that_they_are_blocked() {
    let mut toy = toy();
    toy.deployment("karpenter", &["old-1"], SURGES);
    toy.system("karpenter", "karpenter", "karpenter");
    toy.stateful_set("db", &["old-1", "old-2"]);
    toy.until("moving", |t| t.stage() == "Moving");
    toy.until("db-1 to have moved", |t| {
        t.status().workloads.iter().any(|w| w.moved == 1)
    });
    toy.by_name("old-1").ready = false;
    toy.until("blocked", |t| t.stage() == "Blocked");
    assert_eq!(toy.reasons(), ["NodeUnreachable"]);
    for _ in 0..10 {
        toy.pass();
        assert_eq!(toy.stage(), "Blocked");
    }
    toy.by_name("old-1").ready = true;
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_129_karpenter_waits_for_placeholders_of_other_relocations_too() {
    let mut toy = toy();
    toy.deployment("karpenter", &["old-1"], SURGES);
    toy.system("karpenter", "kube-system", "karpenter");
    toy.until("moving", |t| t.stage() == "Moving");
    // Another relocation needs a node, which only Karpenter makes.
    let placeholder = toy.pod("other", "placeholder", None, None);
    let pod = toy.pod_mut(&placeholder);
    pod.placeholder = Some(relocator::world::PlaceholderLabel {
        relocation: "other".into(),
        pod: "p".into(),
        workload: "w".into(),
    });
    for _ in 0..20 {
        // No room for it: it stays as it is.
        let plan = toy.plan();
        let moves = plan.actions.iter().any(|a| {
            matches!(
                a,
                Action::Evict { .. }
                    | Action::Restart { .. }
                    | Action::Surge { .. }
                    | Action::Restore(Restore::EndSurge { .. })
            )
        });
        assert!(!moves, "{:?}", plan.actions);
    }
    Arc::make_mut(&mut toy.cluster.pods).remove(&placeholder);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_130_pods_of_kube_system_move_one_at_a_time_whatever_is_asked_for() {
    let all_at_once = RolloutStrategy::RollingUpdate {
        max_surge: 2,
        max_unavailable: 2,
    };
    for strategy in ["Auto", "RolloutRestart", "Surge", "Evict"] {
        let spec = json!({
            "nodes": {"names": ["old-1", "old-2"]},
            "afterDrain": "Uncordon",
            "workloads": {"strategy": strategy},
        });
        let mut toy = Toy::new(spec);
        toy.node("old-1");
        toy.node("old-2");
        toy.node("spare-1");
        toy.node("spare-2");
        toy.deployment("coredns", &["old-1", "old-2"], all_at_once);
        toy.deployment("metrics", &["old-1", "old-2"], all_at_once);
        for name in ["coredns", "metrics"] {
            toy.system(name, "kube-system", name);
        }
        let mut most = 0;
        while !toy.is_over() {
            let before: Vec<_> = toy
                .pods_named("")
                .iter()
                .map(|p| p.reference.clone())
                .collect();
            toy.pass();
            most = most.max(toy.not_ready("coredns"));
            // New ones that were just made are not there yet; of those that were, one at most is gone or going.
            let now = toy.pods_named("");
            let gone = before
                .iter()
                .filter(|p| !now.iter().any(|n| n.reference == **p && !n.terminating))
                .count();
            assert!(gone <= 1, "{strategy}: {gone} at once");
        }
        assert_eq!(toy.stage(), "Succeeded", "{strategy}");
        assert!(most <= 1, "{strategy}: {most}");
        let chosen: Vec<_> = toy.status().workloads.iter().map(|w| w.strategy).collect();
        assert!(
            !chosen.contains(&MoveStrategy::RolloutRestart),
            "{strategy}: a restart takes two at once"
        );
    }
}

#[test]
fn a_restart_of_kube_system_that_takes_one_at_a_time_is_as_good_as_elsewhere() {
    let mut toy = toy();
    toy.deployment("coredns", &["old-1", "old-2"], SURGES);
    toy.system("coredns", "kube-system", "coredns");
    toy.until("moving", |t| t.stage() == "Moving");
    assert_eq!(
        toy.status().workloads[0].strategy,
        MoveStrategy::RolloutRestart
    );
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}
