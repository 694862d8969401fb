//! Everything that can be known to fail is said before anything is touched: the reason, the object, and what a person can do.

use relocator::plan::plan;
use relocator::world::{PlaceholderSetup, Priority, RolloutStrategy, Sight, Unknown};
use serde_json::json;

use crate::stages::SURGES;
use crate::toy::Toy;

type Change = fn(&mut Toy);

/// A world in which nothing blocks, until `change` has been at it.
fn blocked(spec: serde_json::Value, change: Change) -> Toy {
    let mut toy = Toy::new(spec);
    toy.drifted("old");
    toy.node("spare");
    toy.stateful_set("db", &["old", "spare"]);
    toy.deployment("web", &["old", "spare"], SURGES);
    change(&mut toy);
    toy.tick();
    let plan = toy.plan();
    assert!(
        plan.actions.is_empty(),
        "blocked, and yet {:?}",
        plan.actions
    );
    assert_eq!(toy.stage(), "Blocked", "{:#?}", toy.status());
    assert!(toy.status().start_time.is_none(), "it has not begun");
    toy
}

#[test]
fn each_blocker_names_what_it_is_about_and_what_helps() {
    let names = || json!({"nodes": {"names": ["old"]}});
    let pool = |pool: &str| json!({"nodes": {"nodePools": [pool]}});
    let web_volume: Change = |t| {
        t.volume("web", "web", false);
        t.budget("web", "web", 2);
    };
    let cases: Vec<(serde_json::Value, Change, &str, &str, &str)> = vec![
        (
            json!({"nodes": {"nodePools": ["apps"], "limit": 1}}),
            |t| t.drifted("old-2"),
            "TooManyNodes",
            "spec.nodes",
            "2 nodes match",
        ),
        (
            pool("typo"),
            |_| {},
            "UnknownNodePool",
            "NodePool typo",
            "correct the name",
        ),
        (
            pool("apps"),
            |t| t.cluster.karpenter = None,
            "KarpenterNotInstalled",
            "spec.nodes.nodePools",
            "install Karpenter",
        ),
        (
            names(),
            |t| {
                t.by_name("old").labels.insert(
                    "node-role.kubernetes.io/control-plane".into(),
                    String::new(),
                );
            },
            "ControlPlaneNode",
            "Node old",
            "narrow spec.nodes",
        ),
        (
            names(),
            |t| {
                t.by_name("old")
                    .labels
                    .insert("type".into(), "virtual-kubelet".into());
            },
            "VirtualNode",
            "Node old",
            "narrow spec.nodes",
        ),
        (
            names(),
            |t| {
                t.by_name("old").marks.claimed_by =
                    Some(relocator::world::ClaimValue::parse("other/uid-2"));
            },
            "NodeClaimedByOther",
            "Node old",
            "NodeRelocation other",
        ),
        (
            names(),
            |t| t.by_name("old").deleting = true,
            "NodeDeleting",
            "Node old",
            "wait until it is gone",
        ),
        (
            names(),
            |t| {
                t.pod("bare", "bare", Some("old"), None);
            },
            "UnmanagedPod",
            "Pod default/bare",
            "delete it, or move it by hand",
        ),
        (
            names(),
            |t| {
                let owner = relocator::world::OwnerReference {
                    api_version: "apps/v1".into(),
                    kind: "StatefulSet".into(),
                    name: "gone".into(),
                    uid: "gone".into(),
                };
                t.pod("orphan", "orphan", Some("old"), Some(owner));
            },
            "UnmanagedPod",
            "Pod default/orphan",
            "StatefulSet default/gone does not exist",
        ),
        (
            names(),
            |t| {
                let owner = relocator::world::OwnerReference {
                    api_version: "x/v1".into(),
                    kind: "Cluster".into(),
                    name: "pg".into(),
                    uid: "pg".into(),
                };
                let forbidden = relocator::world::Unknown {
                    what: "clusters.x".into(),
                    why: "cannot get resource clusters".into(),
                    forbidden: true,
                };
                let sight = relocator::world::OwnerSight::Failed(forbidden);
                t.cluster.owners.insert(owner.uid.clone(), sight);
                t.pod("pg-1", "pg", Some("old"), Some(owner));
            },
            "Forbidden",
            "Pod default/pg-1",
            "Cluster default/pg (x/v1)",
        ),
        (
            names(),
            |t| t.budget("db", "db", 2),
            "PdbNeverAllows",
            "PodDisruptionBudget default/db",
            "raise the replicas or loosen",
        ),
        (
            names(),
            web_volume,
            "PdbNeverAllows",
            "PodDisruptionBudget default/web",
            "2 healthy of 2 pods",
        ),
        (
            names(),
            |t| {
                t.budget("one", "db", 1);
                t.budget("two", "db", 0);
            },
            "SeveralPdbs",
            "Pod default/db-0",
            "let one budget cover it",
        ),
        (
            names(),
            |t| {
                t.sick.push("db-1".into());
                let pod = t.pods_named("db-1")[0].reference.uid.clone();
                t.pod_mut(&pod).ready = false;
            },
            "OwnerUnhealthy",
            "StatefulSet default/db",
            "1 of its 2 replicas are ready",
        ),
        (
            names(),
            |t| t.deployment_mut("web").deadline_exceeded = true,
            "RolloutFailed",
            "Deployment default/web",
            "repair it",
        ),
        (
            names(),
            |t| {
                for pod in t.pods_named("db") {
                    t.pod_mut(&pod.reference.uid).shape.tolerations =
                        vec![serde_json::from_value(json!({"operator": "Exists"})).unwrap()];
                }
            },
            "ToleratesCordon",
            "Pod default/db-0",
            "narrow its tolerations",
        ),
        (
            names(),
            |t| {
                for pod in t.pods_named("db") {
                    t.pod_mut(&pod.reference.uid)
                        .shape
                        .node_selector
                        .insert("kubernetes.io/hostname".into(), "old".into());
                }
            },
            "PinnedToNode",
            "Pod default/db-0",
            "change the selector",
        ),
    ];
    for (spec, change, reason, object, helps) in cases {
        let toy = blocked(spec, change);
        let status = toy.status();
        let found = status
            .blockers
            .iter()
            .find(|b| b.reason.to_string() == reason && b.object == object);
        let found = found.unwrap_or_else(|| panic!("no {reason} {object}: {:#?}", status.blockers));
        assert!(found.message.contains(helps), "{reason}: {}", found.message);
    }
}

#[test]
fn a_paused_deployment_blocks_a_restart_that_was_asked_for() {
    let spec = json!({"nodes": {"names": ["old"]}, "workloads": {"strategy": "RolloutRestart"}});
    let toy = blocked(spec, |t| t.deployment_mut("web").paused = true);
    assert_eq!(toy.reasons(), ["OwnerPaused"]);
}

/// Below -10, Cluster Autoscaler does not see placeholders; at -2^25 and below, Karpenter takes their node for empty; from 0 on they would not
/// give way to pods that name no class. And they must push nobody out themselves.
#[test]
fn case_90_91_92_93_what_placeholders_need_is_asked_for_before_anything_is_touched() {
    let ours = Priority::OF_PLACEHOLDERS;
    assert_eq!(
        (ours.value, ours.preempts, ours.global_default),
        (-10, false, false)
    );
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.node("old");
    toy.deployment("web", &["old"], RolloutStrategy::Recreate);
    let with = |value| Priority { value, ..ours };
    for (namespace, priority, reason, word) in [
        (false, Some(ours), "NamespaceMissing", "does not exist"),
        (true, None, "PriorityClassMissing", "does not exist"),
        (true, Some(with(0)), "PriorityClassMissing", "value is 0"),
        (
            true,
            Some(with(-11)),
            "PriorityClassMissing",
            "value is -11",
        ),
        (
            true,
            Some(with(-33_554_432)),
            "PriorityClassMissing",
            "value is -33554432",
        ),
        (
            true,
            Some(Priority {
                preempts: true,
                ..ours
            }),
            "PriorityClassMissing",
            "preemptionPolicy",
        ),
        (
            true,
            Some(Priority {
                global_default: true,
                ..ours
            }),
            "PriorityClassMissing",
            "globalDefault",
        ),
    ] {
        let mut world = toy.look();
        world.setup = PlaceholderSetup::Read {
            namespace,
            priority,
        };
        let plan = plan(&world);
        let [said] = &plan.status.blockers[..] else {
            panic!("{word}: {:#?}", plan.status.blockers)
        };
        assert_eq!(said.reason.to_string(), reason);
        assert!(said.message.contains(word), "{}", said.message);
        assert!(plan.actions.is_empty());
    }
}

#[test]
fn nothing_is_decided_from_what_is_not_known() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.node("old");
    toy.node("spare");
    toy.stateful_set("db", &["old"]);
    while toy.status().completion_time.is_none() {
        let mut world = toy.look();
        let unknown = Unknown {
            what: "pods".into(),
            why: "forbidden".into(),
            forbidden: true,
        };
        world.sight = Sight::Unknown(vec![unknown]);
        let plan = plan(&world);
        assert!(
            plan.actions.is_empty(),
            "in {}: {:?}",
            toy.stage(),
            plan.actions
        );
        let said = &plan.status.blockers[0];
        assert_eq!(
            (said.reason.to_string().as_str(), said.object.as_str()),
            ("Forbidden", "pods")
        );
        toy.pass();
    }
}

#[test]
fn nothing_to_do_is_an_end_and_not_a_blocker() {
    for spec in [
        json!({"nodes": {"names": ["gone"]}}),
        json!({"nodes": {"names": ["empty"]}}),
    ] {
        let mut toy = Toy::new(spec);
        toy.node("empty");
        toy.daemon_set("agent", &["empty"]);
        let plan = toy.plan();
        assert!(plan.actions.is_empty());
        assert_eq!(toy.stage(), "Succeeded");
        let succeeded = toy
            .status()
            .conditions
            .into_iter()
            .find(|c| c.type_ == "Succeeded")
            .unwrap();
        assert_eq!(succeeded.reason, "NothingToDo");
    }
}
