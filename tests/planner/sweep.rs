//! What a relocation that exists no more has left: all of it is taken away, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use relocator::api::guards::Guard;
use relocator::plan::{self, Action, Restore, Sweep, Why};
use relocator::world::{ClaimValue, Detached, GuardMark, Leftovers, PodRef, SurgeMark, Uid};
use serde_json::json;

use crate::oracle;
use crate::stages::SURGES;
use crate::toy::{Toy, set_guard};

const DISRUPT: Guard = Guard::DoNotDisrupt;
const SCALE_DOWN: Guard = Guard::ScaleDownDisabled;

/// Two nodes with a database and half of a Deployment, and room for them elsewhere.
fn world() -> Toy {
    let mut toy = Toy::new(json!({
        "nodes": {"names": ["old", "old-2"]}, "afterDrain": "Uncordon", "workloads": {"strategy": "Surge"},
    }));
    toy.node("old");
    toy.node("old-2");
    toy.node("spare");
    toy.node("spare-2");
    toy.stateful_set("db", &["old", "old", "old-2"]);
    toy.deployment("web", &["old", "old-2", "spare", "spare"], SURGES);
    toy
}

/// As a sweep sees it when these relocations exist, as `NAME/UID`.
fn seen(toy: &Toy, exist: &[&str]) -> Leftovers {
    let relocations = exist.iter().map(|text| ClaimValue::parse(text));
    Leftovers {
        cluster: toy.cluster.clone(),
        detached: Vec::new(),
        relocations: relocations.map(|r| (r.uid, r.name)).collect(),
        over: BTreeMap::new(),
    }
}

/// Sweeps until nothing is left. Nothing else acts but the controllers.
fn swept(toy: &mut Toy, exist: &[&str]) {
    const MOST: usize = 20;
    for _ in 0..MOST {
        let Sweep { leftovers, later } = plan::sweep(&seen(toy, exist));
        if leftovers.is_empty() && later.is_empty() {
            // Pods that are on their way out take their marks along.
            toy.tick();
            return;
        }
        for leftover in leftovers {
            oracle::allows(toy, &Action::Restore(leftover.restore.clone()));
            toy.take_away(&leftover.restore);
        }
        toy.tick();
    }
    panic!(
        "not clean after {MOST} sweeps: {:#?}",
        plan::sweep(&seen(toy, exist))
    );
}

fn lines(sweep: &Sweep) -> Vec<String> {
    sweep.leftovers.iter().map(ToString::to_string).collect()
}

const OURS: &str = "move/relocation-uid";

#[test]
fn gone_at_any_moment_nothing_of_it_is_left() {
    let mut moments = BTreeMap::new();
    for passes in 0..60 {
        let mut toy = world();
        let before = toy.clone();
        for _ in 0..passes {
            toy.pass();
        }
        let surging = toy.cluster.deployments.values().any(|d| d.surge.is_some());
        *moments.entry((toy.stage(), surging)).or_insert(0) += 1;
        if toy.is_over() {
            break;
        }
        swept(&mut toy, &[]);
        oracle::nothing_is_left(&before, &toy, false);
        for pod in toy.cluster.pods.values() {
            assert!(pod.marks.guards.is_empty(), "{}", pod.reference);
            assert_eq!(pod.marks.deletion_cost, None, "{}", pod.reference);
        }
    }
    // The moments that leave the most, without which the above would show little.
    for moment in [
        ("Cordoning", false),
        ("Provisioning", false),
        ("Moving", false),
        ("Moving", true),
        ("Succeeded", false),
    ] {
        let key = (moment.0.to_owned(), moment.1);
        assert!(moments.contains_key(&key), "{moment:?} in {moments:?}");
    }
}

#[test]
fn marks_of_a_relocation_that_exists_are_not_touched_at_any_moment() {
    for passes in 0..60 {
        let mut toy = world();
        for _ in 0..passes {
            toy.pass();
        }
        let sweep = plan::sweep(&seen(&toy, &[OURS]));
        assert_eq!(sweep, Sweep::default(), "after {passes} passes");
        if toy.is_over() {
            return;
        }
    }
    panic!("it does not end");
}

/// A name passes on to a successor, which knows nothing of the marks: only the UID tells.
#[test]
fn a_relocation_of_the_same_name_and_another_uid_does_not_own_the_marks() {
    let mut toy = world();
    let before = toy.clone();
    toy.until("cordoned", |t| t.stage() == "Provisioning");
    swept(&mut toy, &["move/successor"]);
    oracle::nothing_is_left(&before, &toy, false);
}

#[test]
fn what_somebody_has_changed_since_stays_and_only_our_mark_goes() {
    let mut toy = world();
    toy.until("a surge", |t| {
        t.cluster.deployments.values().any(|d| d.surge.is_some())
    });
    // A person has uncordoned one node, protects the other as they want it, gives a pod its own protection and cost, and scales.
    toy.by_name("old").unschedulable = false;
    set_guard(&mut toy.by_name("old-2").marks, SCALE_DOWN, "2h");
    let database = toy.pods_named("db-0")[0].reference.uid.clone();
    let marks = &mut toy.pod_mut(&database).marks;
    assert_eq!(marks.guards[&DISRUPT].by, Some(Toy::claim()));
    set_guard(marks, DISRUPT, "1h");
    let costed = toy.pods_named("web").into_iter();
    let costed = costed.filter(|p| p.marks.costed_by.is_some());
    let costed: Vec<_> = costed.map(|p| p.reference.uid.clone()).collect();
    assert!(!costed.is_empty(), "a surge marks the pods that are to go");
    for pod in &costed {
        toy.pod_mut(pod).marks.deletion_cost = Some("5".into());
    }
    toy.deployment_mut("web").replicas = 9;

    let said = lines(&plan::sweep(&seen(&toy, &[]))).join("\n");
    for line in [
        "Deployment default/web: mark of a surge, whose replicas somebody has set since, of ",
        "Node old: claim, scale-down-disabled, mark of a cordon that somebody has changed since, of ",
        "Node old-2: claim, mark of a scale-down-disabled that somebody has changed since, cordon, of ",
        "Pod default/db-0: mark of a do-not-disrupt that somebody has changed since, of ",
    ] {
        let line = format!("{line}NodeRelocation move (UID relocation-uid)");
        assert!(said.contains(&line), "{line}\n{said}");
    }

    swept(&mut toy, &[]);
    assert_eq!(toy.deployment_mut("web").replicas, 9);
    assert_eq!(toy.by_name("old-2").marks.value_of(SCALE_DOWN), Some("2h"));
    let marks = toy.pod_mut(&database).marks.clone();
    assert_eq!(marks.value_of(DISRUPT), Some("1h"));
    for pod in costed {
        // Those that are still there: nine replicas need no pod to go.
        assert_eq!(toy.pod_mut(&pod).marks.deletion_cost.as_deref(), Some("5"));
        assert_eq!(toy.pod_mut(&pod).marks.costed_by, None);
    }
}

#[test]
fn a_cordon_that_is_not_ours_stays() {
    let mut toy = world();
    toy.by_name("old").unschedulable = true;
    let before = toy.clone();
    toy.until("cordoned", |t| t.stage() == "Provisioning");
    swept(&mut toy, &[]);
    assert!(toy.by_name("old").unschedulable, "cordoned by a person");
    assert!(!toy.by_name("old-2").unschedulable, "cordoned by us");
    oracle::nothing_is_left(&before, &toy, false);
}

/// The other one has found the cordon and the protection in place, so it has set none of its own, and relies on them.
#[test]
fn a_node_that_another_relocation_works_on_waits_for_that_one() {
    let mut toy = world();
    toy.until("cordoned", |t| t.stage() == "Provisioning");
    let other = ClaimValue::parse("other/2");
    toy.by_name("old").marks.claimed_by = Some(other.clone());
    let sweep = plan::sweep(&seen(&toy, &["other/2"]));
    assert!(
        !lines(&sweep).iter().any(|l| l.starts_with("Node old:")),
        "{sweep:#?}"
    );
    let waiting: Vec<_> = sweep.later.iter().map(|l| (&l.object, &l.why)).collect();
    assert_eq!(
        waiting,
        [(&"Node old".to_owned(), &Why::HeldBy("other".into()))]
    );

    // When the other is gone as well, each takes away its own.
    swept(&mut toy, &[]);
    let node = toy.by_name("old");
    assert_eq!(node.marks, relocator::world::Marks::default());
    assert!(!node.unschedulable);
}

/// A node made for the one and protected for it; then another has claimed it, is over, and has kept nothing but its own mark.
#[test]
fn of_two_relocations_on_a_node_only_the_marks_of_the_one_that_is_gone_go() {
    let mut toy = world();
    let (gone, exists) = (ClaimValue::parse("gone/1"), ClaimValue::parse("exists/2"));
    let node = toy.by_name("spare");
    node.marks.claimed_by = Some(gone);
    let guard = GuardMark {
        value: Some("true".into()),
        by: Some(exists),
    };
    node.marks.guards.insert(DISRUPT, guard.clone());
    swept(&mut toy, &["exists/2"]);
    let marks = &toy.by_name("spare").marks;
    assert_eq!(marks.claimed_by, None);
    assert_eq!(marks.guards[&DISRUPT], guard);
}

/// We write `NAME/UID`; whoever writes something else there means something else.
#[test]
fn a_mark_in_another_form_is_left_alone() {
    let mut toy = world();
    toy.by_name("old").marks.claimed_by = Some(ClaimValue::parse("hands-off"));
    toy.by_name("old-2").marks.claimed_by = Some(ClaimValue::parse("hands-off/"));
    toy.deployment_mut("web").surge = SurgeMark::parse(".2.4");
    assert_eq!(plan::sweep(&seen(&toy, &[])), Sweep::default());
}

/// Until the `ReplicaSet` has chosen, the cost on the old pods keeps it from choosing the new ones.
#[test]
fn a_deletion_cost_stays_until_the_replicas_are_back() {
    let mut toy = world();
    toy.until("a surge", |t| {
        t.cluster.deployments.values().any(|d| d.surge.is_some())
            && t.pods_named("web")
                .iter()
                .any(|p| p.marks.costed_by.is_some())
    });
    let sweep = plan::sweep(&seen(&toy, &[]));
    let uncheapened = |s: &Sweep| {
        let mut restores = s.leftovers.iter().map(|l| &l.restore);
        restores.any(|r| matches!(r, Restore::UncheapenPod { .. }))
    };
    assert!(!uncheapened(&sweep), "{sweep:#?}");
    assert!(sweep.later.iter().any(|l| l.why == Why::ChosenFrom));
    let said = lines(&sweep).join("\n");
    assert!(
        said.contains("Deployment default/web: surge, replicas back at 4, of "),
        "{said}"
    );
    swept(&mut toy, &[]);
    assert_eq!(toy.pods_named("web").len(), 4);
}

/// A pod that must not be disrupted can hold a removal up for as long as it likes, so the marks go. The cordon stays: nothing is to land
/// on a node that is on its way out.
#[test]
fn a_node_that_is_being_removed_loses_the_marks_and_stays_cordoned() {
    let mut toy = Toy::new(json!({"nodes": {"nodePools": ["apps"], "state": "Drifted"}}));
    toy.drifted("old");
    toy.karpenter_node("new", false);
    toy.stateful_set("db", &["old"]);
    toy.until("cordoned", |t| t.stage() == "Provisioning");
    let uncordons = |toy: &Toy| {
        let sweep = plan::sweep(&seen(toy, &[]));
        let of_old = sweep.leftovers.iter().find_map(|l| match &l.restore {
            Restore::ReleaseNode { node, uncordon, .. } if node.name == "old".into() => {
                Some(*uncordon)
            }
            _ => None,
        });
        of_old.expect("its marks go")
    };
    assert!(uncordons(&toy));
    let mut removed = toy.clone();
    let karpenter = removed.cluster.karpenter.as_mut().unwrap();
    for claim in Arc::make_mut(&mut karpenter.claims).values_mut() {
        Arc::make_mut(claim).deleting = claim.node == Some("old".into());
    }
    assert!(!uncordons(&removed), "its NodeClaim is in deletion");
    toy.by_name("old").deleting = true;
    assert!(!uncordons(&toy));
}

#[test]
fn a_placeholder_without_an_owner_goes_unless_a_relocation_has_the_name() {
    let toy = world();
    let pod = PodRef {
        namespace: "relocator-placeholders".into(),
        name: "db-0-abc".into(),
        uid: Uid::from("p"),
    };
    let sweep = |exist| {
        let mut seen = seen(&toy, exist);
        seen.detached.push(Detached {
            pod: pod.clone(),
            relocation: "move".into(),
        });
        plan::sweep(&seen)
    };
    assert_eq!(sweep(&["move/2"]), Sweep::default());
    assert_eq!(
        lines(&sweep(&["other/1"])),
        ["Pod relocator-placeholders/db-0-abc: placeholder, of NodeRelocation move"]
    );
}

/// Its last look was at a watch that was behind, so that it ended with a mark left. It says itself whether its cordons stay.
#[test]
fn what_a_relocation_that_is_over_has_left_goes_as_it_would_have() {
    for (on_failure, lifted) in [("Rollback", true), ("Hold", false)] {
        let mut toy = Toy::new(json!({
            "nodes": {"names": ["old"]}, "onFailure": on_failure, "activeDeadlineSeconds": 60,
        }));
        toy.node("old");
        toy.node("spare");
        toy.stateful_set("db", &["old"]);
        toy.until("cordoned", |t| {
            t.cluster.nodes.values().any(|n| n.unschedulable)
        });
        assert_eq!(plan::over(&toy.relocation), None);
        let marked = toy.cluster.clone();
        toy.now += jiff::SignedDuration::from_secs(61);
        toy.until("over", Toy::is_over);
        assert_eq!(plan::over(&toy.relocation), Some(lifted));

        let seen = Leftovers {
            cluster: marked,
            over: BTreeMap::from([(Toy::claim().uid, lifted)]),
            ..Leftovers::default()
        };
        let Sweep { leftovers, .. } = plan::sweep(&seen);
        let uncordons = leftovers.iter().filter_map(|l| match &l.restore {
            Restore::ReleaseNode { uncordon, .. } => Some(*uncordon),
            _ => None,
        });
        assert_eq!(uncordons.collect::<Vec<_>>(), [lifted], "{on_failure}");
    }
}
