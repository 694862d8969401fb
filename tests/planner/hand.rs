//! A person's hand is respected: what others change in the middle wins.

use relocator::api::guards::Guard;
use relocator::plan::Action;
use relocator::world::ClaimValue;
use serde_json::json;

use crate::oracle;
use crate::stages::SURGES;
use crate::toy::{Toy, set_guard};

fn moving() -> Toy {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}, "afterDrain": "Uncordon"}));
    toy.node("old");
    toy.node("spare");
    toy.stateful_set("db", &["old", "old", "old"]);
    toy.until("moving", |t| t.stage() == "Moving");
    toy
}

#[test]
fn a_node_that_somebody_uncordons_is_left_alone_until_it_is_cordoned_again() {
    let mut toy = moving();
    toy.by_name("old").unschedulable = false;
    for _ in 0..20 {
        let plan = toy.step();
        assert!(
            !plan
                .actions
                .iter()
                .any(|a| matches!(a, Action::Evict { .. } | Action::Cordon { .. })),
            "{:?}",
            plan.actions
        );
    }
    assert!(
        toy.reasons().contains(&"Uncordoned".to_owned()),
        "{:?}",
        toy.reasons()
    );
    toy.by_name("old").unschedulable = true;
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn a_node_whose_claim_is_taken_is_left_alone() {
    for (claim, reason) in [
        (None, "ClaimLost"),
        (Some(ClaimValue::parse("other/2")), "NodeClaimedByOther"),
    ] {
        let mut toy = moving();
        toy.until("nobody on the move", |t| {
            t.cluster.pods.values().all(|p| p.ready)
        });
        toy.by_name("old").marks.claimed_by = claim;
        for _ in 0..20 {
            let plan = toy.step();
            assert!(
                !plan
                    .actions
                    .iter()
                    .any(|a| matches!(a, Action::Evict { .. })),
                "{:?}",
                plan.actions
            );
        }
        assert!(
            toy.reasons().contains(&reason.to_owned()),
            "{:?}",
            toy.reasons()
        );
    }
}

#[test]
fn protection_that_a_person_has_changed_stays_as_they_want_it() {
    let mut toy = moving();
    set_guard(
        &mut toy.by_name("old").marks,
        Guard::ScaleDownDisabled,
        "2h",
    );
    toy.until("over", Toy::is_over);
    let marks = &toy.by_name("old").marks;
    assert_eq!(marks.value_of(Guard::ScaleDownDisabled), Some("2h"));
    assert_eq!(marks.guards[&Guard::ScaleDownDisabled].by, None);
}

#[test]
fn a_cordon_that_was_there_before_stays() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old", "old-2"]}, "afterDrain": "Uncordon"}));
    toy.node("old").unschedulable = true;
    toy.node("old-2");
    toy.node("spare");
    toy.stateful_set("db", &["old", "old-2"]);
    let before = toy.clone();
    toy.until("over", Toy::is_over);
    assert!(toy.by_name("old").unschedulable, "cordoned by a person");
    assert!(!toy.by_name("old-2").unschedulable, "cordoned by us");
    oracle::nothing_is_left(&before, &toy, false);
}

#[test]
fn a_pod_that_lands_on_a_node_that_is_open_again_does_not_hold_up_the_end() {
    let mut toy = moving();
    toy.until("restoring", |t| t.stage() == "Restoring");
    // Opened and released; the operator crashes before it has said that it is over.
    while toy.by_name("old").marks.claimed_by.is_some() {
        for action in toy.plan().actions {
            toy.carry_out(&action);
        }
    }
    assert!(!toy.is_over());
    assert!(!toy.by_name("old").unschedulable);
    let owner = toy.pods_named("db-0")[0].controller.clone();
    toy.pod("db-3", "db", Some("old"), owner);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded", "{:?}", toy.reasons());
}

#[test]
fn a_restart_that_is_undone_is_a_blocker_and_not_a_fight() {
    let spec = json!({"nodes": {"names": ["old"]}, "replacement": {"strategy": "None"}, "workloads": {"strategy": "RolloutRestart"}});
    let mut toy = Toy::new(spec);
    toy.node("old");
    toy.node("spare");
    // Four pods do not come in one round: the restart is undone in its middle.
    toy.deployment("web", &["old", "old", "old", "old"], SURGES);
    toy.until("restarted", |t| {
        t.cluster
            .deployments
            .values()
            .any(|d| d.restarted_at.is_some())
    });
    toy.deployment_mut("web").restarted_at = None;
    let mut restarts = 0;
    for _ in 0..30 {
        let plan = toy.step();
        restarts += plan
            .actions
            .iter()
            .filter(|a| matches!(a, Action::Restart { .. }))
            .count();
    }
    assert_eq!(restarts, 0);
    assert_eq!(toy.reasons(), ["RestartReverted"]);
}

#[test]
fn suspended_in_any_stage_nothing_is_begun() {
    for steps in 0..30 {
        let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
        toy.node("old");
        toy.node("spare");
        toy.stateful_set("db", &["old", "old"]);
        for _ in 0..steps {
            toy.pass();
        }
        if toy.status().completion_time.is_some() {
            break;
        }
        toy.relocation.spec.suspend = true;
        for _ in 0..10 {
            let plan = toy.step();
            // When all was done already, the end of it is no beginning; and what is protected is kept from others' beginnings.
            let begins =
                |a: &Action| !matches!(a, Action::RemoveFinalizer | Action::ProtectNode { .. });
            let begun = plan.actions.iter().any(begins);
            assert!(!begun, "after {steps} steps: {:?}", plan.actions);
        }
        if toy.status().completion_time.is_none() {
            assert_eq!(toy.stage(), "Suspended");
        }
        toy.relocation.spec.suspend = false;
        toy.until("over", Toy::is_over);
        assert_eq!(toy.stage(), "Succeeded");
    }
}
