//! Times and limits that a person changes while it runs count from the next look on.

use jiff::SignedDuration;
use serde_json::json;

use crate::toy::Toy;

/// There is no room, so the placeholders wait.
fn without_room(timeout_seconds: u32) -> Toy {
    let mut toy = Toy::new(json!({
        "nodes": {"names": ["old"]},
        "replacement": {"timeoutSeconds": timeout_seconds},
    }));
    toy.node("old");
    toy.stateful_set("db", &["old"]);
    toy.until("waiting for room", |t| t.placeholders().len() == 1);
    toy
}

fn later(toy: &mut Toy, seconds: i64) {
    let passed = SignedDuration::from_secs(seconds);
    toy.now = toy.now.checked_add(passed).unwrap();
    toy.pass();
}

#[test]
fn a_longer_time_for_placeholders_is_given_while_they_wait() {
    let mut toy = without_room(60);
    later(&mut toy, 50);
    toy.relocation.spec.replacement.timeout_seconds = 600;
    later(&mut toy, 50);
    assert_eq!(toy.stage(), "Provisioning", "100 s of 600 s have passed");
    later(&mut toy, 600);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Failed");
}

#[test]
fn a_shorter_time_for_placeholders_ends_it_at_once_when_it_has_passed() {
    let mut toy = without_room(900);
    later(&mut toy, 50);
    assert_eq!(toy.stage(), "Provisioning");
    toy.relocation.spec.replacement.timeout_seconds = 30;
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Failed");
    assert!(toy.placeholders().is_empty());
}

#[test]
fn a_deadline_that_is_taken_away_ends_nothing() {
    let mut toy = without_room(900);
    toy.relocation.spec.active_deadline_seconds = Some(60);
    later(&mut toy, 50);
    toy.relocation.spec.active_deadline_seconds = None;
    later(&mut toy, 50);
    assert_eq!(toy.stage(), "Provisioning");
}

#[test]
fn on_failure_counts_as_it_is_when_it_fails() {
    for (on_failure, cordoned) in [("Hold", true), ("Rollback", false)] {
        let mut toy = without_room(60);
        toy.relocation.spec.on_failure = serde_json::from_value(json!(on_failure)).unwrap();
        later(&mut toy, 60);
        toy.until("over", Toy::is_over);
        assert_eq!(toy.stage(), "Failed");
        assert_eq!(toy.by_name("old").unschedulable, cordoned, "{on_failure}");
    }
}

/// A lower limit lets those that move arrive, and begins no more than it says; a higher one begins more.
#[test]
fn a_limit_counts_from_the_next_pod_on() {
    let names: Vec<_> = (0..6).map(|i| format!("db-{i}")).collect();
    let mut toy = Toy::new(json!({
        "nodes": {"names": ["old", "old-2"]},
        "replacement": {"strategy": "None"},
        "workloads": {"maxConcurrent": 1},
    }));
    for node in ["old", "old-2", "spare", "spare-2"] {
        toy.node(node);
    }
    for (i, name) in names.iter().enumerate() {
        toy.stateful_set(name, &[if i < 3 { "old" } else { "old-2" }]);
    }
    let evictions = |toy: &mut Toy| {
        let plan = toy.step();
        let evictions = plan.actions.iter();
        evictions
            .filter(|a| matches!(a, relocator::plan::Action::Evict { .. }))
            .count()
    };
    toy.until("moving", |t| t.stage() == "Moving");
    let mut first = 0;
    while first == 0 {
        first = evictions(&mut toy);
    }
    assert_eq!(first, 1);
    toy.relocation.spec.workloads.max_concurrent = 4;
    // One of the four slots is taken until its pod is Ready elsewhere.
    assert_eq!(evictions(&mut toy), 3);
    toy.relocation.spec.workloads.max_concurrent = 2;
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}
