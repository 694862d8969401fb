//! A pod that the scheduler has forgotten: a placeholder goes, so that it looks again, and less and less often.

use jiff::SignedDuration;
use relocator::plan::{Action, Restore};
use serde_json::json;

use crate::toy::Toy;

/// The pods of a database are to move; the first of them has been evicted, and its successor waits for a node although there is room.
fn forgotten(pods: usize) -> Toy {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.node("old");
    toy.node("spare");
    toy.node("spare-2");
    toy.stateful_set("db", &vec!["old"; pods]);
    toy.until("moving", |t| t.stage() == "Moving");
    while !toy.cluster.pods.values().any(|p| p.terminating) {
        for action in toy.plan().actions {
            toy.carry_out(&action);
        }
    }
    let leaving = toy.cluster.pods.values().find(|p| p.terminating);
    let leaving = (**leaving.unwrap()).clone();
    let uid = toy.pod(&leaving.reference.name, "db", None, leaving.controller);
    toy.pod_mut(&uid).unschedulable = Some("0/3 nodes are available".into());
    // The old pod is gone, and so is a placeholder, by preemption.
    let placeholder = toy.placeholders()[0].reference.uid.clone();
    let pods = std::sync::Arc::make_mut(&mut toy.cluster.pods);
    pods.remove(&leaving.reference.uid);
    pods.remove(&placeholder);
    toy
}

/// What a pass would do; only what concerns placeholders is carried out, and no controller runs.
fn pass(toy: &mut Toy, seconds: i64) -> (usize, usize) {
    let done = decide(toy, seconds);
    let spare = toy.placeholders();
    for placeholder in spare.iter().filter(|p| p.node.is_none()) {
        let placed = toy.pod_mut(&placeholder.reference.uid);
        placed.node = Some("spare-2".into());
        placed.ready = true;
    }
    done
}

/// The same without a scheduler for placeholders.
fn decide(toy: &mut Toy, seconds: i64) -> (usize, usize) {
    toy.now = toy
        .now
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap();
    let plan = toy.plan();
    let (mut deleted, mut created) = (0, 0);
    for action in &plan.actions {
        match action {
            Action::Restore(Restore::DeletePlaceholder { .. }) => deleted += 1,
            Action::CreatePlaceholder(_) => created += 1,
            Action::ProtectNode { .. } => {}
            other => panic!("{other:?}"),
        }
        toy.carry_out(action);
    }
    (deleted, created)
}

#[test]
fn a_placeholder_goes_after_five_seconds_and_again_after_twice_the_time() {
    let mut toy = forgotten(3);
    let mut times = Vec::new();
    let mut made = 0;
    for second in 0..400 {
        let (deleted, created) = pass(&mut toy, i64::from(second > 0));
        made += created;
        if deleted > 0 {
            assert_eq!(deleted, 1);
            times.push(second);
        }
    }
    // Each time is at least twice the one before: in the five minutes until the scheduler looks by itself that is seven times at most.
    assert_eq!(times.first(), Some(&5), "{times:?}");
    assert!(times.windows(2).all(|t| t[1] >= 2 * t[0]), "{times:?}");
    assert!((4..=7).contains(&times.len()), "{times:?}");
    assert!(times.iter().all(|t| *t <= 300), "{times:?}");
    // The two pods that have not moved keep their places.
    assert!(made <= times.len(), "{made} for {times:?}");
    assert!(toy.placeholders().len() >= 2);
}

#[test]
fn a_pod_that_has_its_node_wakes_nobody() {
    let mut toy = forgotten(3);
    assert_eq!(pass(&mut toy, 1).0, 0);
    let waiting = toy
        .cluster
        .pods
        .values()
        .find(|p| p.unschedulable.is_some());
    let waiting = waiting.unwrap().reference.uid.clone();
    let placed = toy.pod_mut(&waiting);
    placed.node = Some("spare".into());
    placed.unschedulable = None;
    let mut deleted = 0;
    for _ in 0..60 {
        deleted += pass(&mut toy, 1).0;
    }
    // The one that has become one too many, and no other.
    assert!(deleted <= 1, "{deleted}");
}

/// Its own placeholder has gone, and no other pod is left to move: one is made, to be taken.
#[test]
fn without_any_placeholder_one_is_made_for_it() {
    let mut toy = forgotten(1);
    assert!(toy.placeholders().is_empty());
    let mut times = Vec::new();
    for second in 0..400 {
        let (deleted, created) = pass(&mut toy, i64::from(second > 0));
        assert!(deleted + created <= 1);
        if created > 0 {
            times.push(second);
        } else if deleted > 0 {
            times.push(-second);
        }
    }
    // Made, taken after as long again, made again at once, taken.
    assert_eq!(times[..2], [5, -10], "{times:?}");
    assert!(times.len() <= 14, "{times:?}");
    let taken: Vec<_> = times.iter().filter(|t| **t < 0).map(|t| -t).collect();
    assert!(taken.windows(2).all(|t| t[1] >= 2 * t[0]), "{times:?}");
    assert!(taken.iter().all(|t| *t <= 300), "{times:?}");
}

/// There is no room for the placeholder that was made either: then nothing was forgotten.
#[test]
fn where_there_is_no_room_nothing_more_is_tried() {
    let mut toy = forgotten(1);
    let (mut deleted, mut created) = (0, 0);
    for _ in 0..400 {
        let (d, c) = decide(&mut toy, 1);
        (deleted, created) = (deleted + d, created + c);
    }
    assert_eq!((deleted, created), (0, 1));
}
