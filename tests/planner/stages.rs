//! Stage by stage: what is recorded and done, in which order.

use relocator::api::status::Stage;
use relocator::plan::{Action, plan};
use relocator::world::RolloutStrategy;
use serde_json::json;

use crate::oracle;
use crate::toy::Toy;

pub(crate) const SURGES: RolloutStrategy = RolloutStrategy::RollingUpdate {
    max_surge: 1,
    max_unavailable: 0,
};

/// A database over two drifted nodes, a session server, a web tier, and an agent on each.
fn pool() -> Toy {
    let mut toy = Toy::new(json!({"nodes": {"nodePools": ["apps"], "state": "Drifted"}}));
    toy.autoscaled = true;
    toy.drifted("old-1");
    toy.drifted("old-2");
    toy.stateful_set("db", &["old-1", "old-2", "old-1"]);
    toy.deployment("session", &["old-1"], SURGES);
    toy.deployment(
        "web",
        &["old-2", "old-2"],
        RolloutStrategy::RollingUpdate {
            max_surge: 1,
            max_unavailable: 1,
        },
    );
    toy.daemon_set("agent", &["old-1", "old-2"]);
    toy.budget("db", "db", 2);
    toy.budget("session", "session", 1);
    toy.tick();
    toy
}

#[test]
fn a_drifted_pool_is_emptied_removed_and_nothing_is_left() {
    let mut toy = pool();
    let before = toy.clone();
    toy.until("over", Toy::is_over);
    let status = toy.status();
    assert_eq!(toy.stage(), "Succeeded");
    let progress = status.progress.unwrap();
    assert_eq!(
        (progress.nodes.as_str(), progress.pods.as_str()),
        ("2/2", "6/6")
    );
    assert!(
        toy.cluster
            .nodes
            .values()
            .all(|n| n.name.as_str().starts_with("new-")),
        "the old nodes are gone"
    );
    oracle::nothing_is_left(&before, &toy, false);
}

#[test]
fn case_132_stages_follow_each_other_once_each() {
    let mut toy = pool();
    let mut stages = Vec::new();
    while !toy.is_over() {
        toy.pass();
        stages.push(toy.stage());
    }
    stages.dedup();
    assert_eq!(
        stages,
        [
            "Planning",
            "Protecting",
            "Cordoning",
            "Provisioning",
            "Moving",
            "Draining",
            "Removing",
            "Restoring",
            "Succeeded"
        ]
    );
}

#[test]
fn nothing_is_touched_before_the_finalizer_is_there_and_the_nodes_are_recorded() {
    let mut toy = pool();
    let first = toy.plan();
    assert_eq!(first.actions, [Action::AddFinalizer]);
    toy.carry_out(&Action::AddFinalizer);
    let second = toy.plan();
    assert!(
        second.actions.is_empty(),
        "the start is recorded before anything is done: {:?}",
        second.actions
    );
    let nodes: Vec<_> = second
        .status
        .nodes
        .iter()
        .map(|n| (n.name.as_str(), n.stage))
        .collect();
    assert_eq!(
        nodes,
        [("old-1", Stage::Protecting), ("old-2", Stage::Protecting)]
    );
}

#[test]
fn nodes_are_claimed_in_the_order_of_their_names_and_cordoned_after_that() {
    let mut toy = pool();
    toy.by_name("old-2").unschedulable = true;
    let mut deeds = Vec::new();
    toy.until("moving", |t| t.stage() == "Moving");
    let mut replay = pool();
    replay.by_name("old-2").unschedulable = true;
    while replay.stage() != "Moving" {
        for action in replay.step().actions {
            match action {
                Action::ClaimNode { node, .. } => deeds.push(format!("claim {}", node.name)),
                Action::Cordon { node } => deeds.push(format!("cordon {}", node.name)),
                Action::CreatePlaceholder(_) => deeds.push("place".into()),
                _ => {}
            }
        }
    }
    deeds.dedup();
    assert_eq!(
        deeds,
        ["claim old-1", "claim old-2", "cordon old-1", "place"],
        "old-2 was cordoned before"
    );
    let recorded: Vec<_> = replay
        .status()
        .nodes
        .iter()
        .map(|n| n.was_unschedulable)
        .collect();
    assert_eq!(recorded, [false, true]);
}

#[test]
fn a_node_is_removed_only_after_two_reads_of_its_own() {
    let mut toy = pool();
    toy.until("a node to be empty", |t| {
        t.status().nodes.iter().any(|n| n.stage == Stage::Draining)
    });
    // The next look is cached and fresh; without the fresh part nothing may come of it.
    let mut world = toy.look();
    let status = toy.status();
    let draining = status
        .nodes
        .iter()
        .find(|n| n.stage == Stage::Draining)
        .unwrap();
    let draining = relocator::world::NodeName::from(draining.name.as_str());
    assert!(
        world.fresh.contains_key(&draining),
        "it is to be read again"
    );
    world.fresh.clear();
    let plan = plan(&world);
    let stage = plan
        .status
        .nodes
        .iter()
        .find(|n| n.name == draining.as_str())
        .unwrap()
        .stage;
    assert_eq!(stage, Stage::Draining);
    assert!(
        !plan
            .actions
            .iter()
            .any(|a| matches!(a, Action::DeleteNodeClaim { .. })),
        "{:?}",
        plan.actions
    );
}

/// A pod is bound to the old node by name, past the scheduler, when the node was already seen empty once.
#[test]
fn case_133_after_a_straggler_the_node_is_read_twice_again() {
    for stage in [Stage::Draining, Stage::Removing] {
        let mut toy = pool();
        toy.until("a node to be empty", |t| {
            t.status().nodes.iter().any(|n| n.stage == Stage::Draining)
        });
        if stage == Stage::Removing {
            // Recorded, and then it crashed before it asked for the removal.
            let _recorded = toy.plan();
        }
        let status = toy.status();
        let node = status.nodes.iter().find(|n| n.stage == stage).unwrap();
        let name = relocator::world::NodeName::from(node.name.as_str());
        let straggler = toy.pod("straggler", "straggler", Some(name.as_str()), None);
        for _ in 0..5 {
            toy.pass();
            assert!(toy.cluster.node_named(&name).is_some(), "it is not empty");
        }
        assert_eq!(toy.reasons(), ["UnmanagedPod"]);
        std::sync::Arc::make_mut(&mut toy.cluster.pods).remove(&straggler);
        let mut reads = 0;
        loop {
            reads += usize::from(toy.look().fresh.contains_key(&name));
            let deleted =
                |a: &Action| matches!(a, Action::DeleteNodeClaim { node, .. } if *node == name);
            if toy.step().actions.iter().any(deleted) {
                break;
            }
        }
        assert_eq!(reads, 2, "both of them since the straggler has gone");
        toy.until("over", Toy::is_over);
        assert_eq!(toy.stage(), "Succeeded");
    }
}

#[test]
fn planning_again_on_the_same_world_changes_nothing() {
    let mut toy = pool();
    while !toy.is_over() {
        // A stage that is reached without doing anything is recorded, and the next pass says what it waits for; there it rests.
        let mut last = toy.plan();
        let mut passes = 1;
        loop {
            let next = toy.plan();
            if next == last {
                break;
            }
            last = next;
            passes += 1;
            assert!(
                passes < 8,
                "no rest in {}: {:#?}",
                toy.stage(),
                toy.status()
            );
        }
        toy.pass();
    }
    let end = plan(&toy.look());
    assert!(
        end.actions.is_empty() && end.wake_after.is_none(),
        "an end is an end: {end:?}"
    );
}

#[test]
fn deleted_in_any_stage_it_only_puts_back() {
    for steps in 2..40 {
        let mut toy = pool();
        let before = toy.clone();
        for _ in 0..steps {
            toy.pass();
        }
        if toy.relocation.metadata.finalizers.iter().flatten().count() == 0 {
            break;
        }
        let stage = toy.stage();
        toy.relocation.metadata.deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(toy.now),
        );
        for _ in 0..40 {
            for action in toy.step().actions {
                let restores = matches!(action, Action::Restore(_) | Action::RemoveFinalizer);
                assert!(restores, "deleted in {stage}: {action:?}");
            }
        }
        assert!(
            toy.relocation.metadata.finalizers.is_none(),
            "deleted in {stage}: {:#?}",
            toy.status()
        );
        oracle::nothing_is_left(&before, &toy, false);
    }
}
