//! Nodes that do not answer, that vanish, and that come back as others; and pods that do not stop.

use std::sync::Arc;

use jiff::SignedDuration;
use relocator::plan::Action;
use relocator::world::Marks;
use serde_json::json;

use crate::oracle;
use crate::stages::SURGES;
use crate::toy::Toy;

/// A database over two old nodes and a web tier on one of them; `spare` has room for all.
fn moving() -> Toy {
    let spec = json!({"nodes": {"names": ["old-1", "old-2"]}, "afterDrain": "Uncordon"});
    let mut toy = Toy::new(spec);
    toy.node("old-1");
    toy.node("old-2");
    toy.node("spare-1");
    toy.node("spare-2");
    toy.stateful_set("db", &["old-1", "old-2", "old-1"]);
    toy.deployment("web", &["old-2", "old-2"], SURGES);
    toy.until("moving", |t| t.stage() == "Moving");
    toy
}

pub(crate) fn unready(toy: &mut Toy, node: &str) {
    toy.by_name(node).ready = false;
    for pod in toy.cluster.pods.clone().values() {
        if pod.node.as_ref().is_some_and(|n| n.as_str() == node) {
            toy.pod_mut(&pod.reference.uid).ready = false;
        }
    }
    toy.tick();
}

pub(crate) fn vanish(toy: &mut Toy, node: &str) {
    Arc::make_mut(&mut toy.cluster.nodes).retain(|_, n| n.name.as_str() != node);
}

/// What Kubernetes does with pods of nodes that are gone, after a while.
pub(crate) fn collect_garbage(toy: &mut Toy) {
    let nodes = Arc::clone(&toy.cluster.nodes);
    Arc::make_mut(&mut toy.cluster.pods).retain(|_, p| {
        let node = p.node.as_ref();
        node.is_none_or(|name| nodes.values().any(|n| n.name == *name))
    });
}

fn evictions(actions: &[Action]) -> Vec<String> {
    let name = |a: &Action| match a {
        Action::Evict { pod, .. } => Some(pod.name.clone()),
        _ => None,
    };
    actions.iter().filter_map(name).collect()
}

#[test]
fn case_125_an_owner_with_a_pod_on_a_node_that_does_not_answer_stops_and_others_go_on() {
    let mut toy = moving();
    // db-2 is the first of the database to go; its node falls silent before it has stopped.
    toy.endless = vec!["db-2".into()];
    toy.until("db-2 to terminate", |t| t.pods_named("db-2")[0].terminating);
    unready(&mut toy, "old-1");
    let terminating = |t: &Toy| t.pods_named("db-2")[0].terminating;
    assert!(terminating(&toy), "nobody has ended it");
    for _ in 0..60 {
        let evicted = evictions(&toy.step().actions);
        let of_db = evicted.iter().filter(|name| name.starts_with("db-"));
        assert_eq!(
            of_db.count(),
            0,
            "db-1 is on a node that answers: {evicted:?}"
        );
    }
    assert!(
        terminating(&toy),
        "nothing is forced, however long it takes"
    );
    let status = toy.status();
    let said = &status.blockers;
    assert_eq!(toy.reasons(), ["NodeUnreachable"], "{said:#?}");
    assert_eq!(said[0].object, "Node old-1");
    assert_eq!(toy.stage(), "Blocked", "nothing else is left to do");
    let web = status.workloads.iter().find(|w| w.name == "web").unwrap();
    assert_eq!(web.moved, 2, "the web tier went on");

    toy.by_name("old-1").ready = true;
    toy.endless.clear();
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_125_a_node_that_does_not_answer_is_not_begun_with() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.node("old").ready = false;
    toy.node("spare");
    toy.stateful_set("db", &["old"]);
    let plan = toy.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(toy.reasons(), ["NodeUnreachable"]);
    toy.by_name("old").ready = true;
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_126_pods_of_a_node_that_is_gone_do_not_count_as_moved() {
    let mut toy = moving();
    vanish(&mut toy, "old-1");
    vanish(&mut toy, "old-2");
    // Their pods say that they are Ready, as they did when the machine went off.
    for _ in 0..60 {
        let plan = toy.step();
        assert_eq!(evictions(&plan.actions), Vec::<String>::new());
        assert_ne!(toy.stage(), "Succeeded", "{:#?}", toy.status());
    }
    let ready = |t: &Toy| {
        let conditions = t.status().conditions;
        let ready = conditions.iter().find(|c| c.type_ == "Ready");
        ready.unwrap().message.clone()
    };
    assert!(
        ready(&toy).contains("pod default/db-0 to be removed, whose node old-1 is gone"),
        "{}",
        ready(&toy)
    );
    collect_garbage(&mut toy);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
    for pod in toy.pods_named("") {
        assert!(pod.ready, "{} is not there yet", pod.reference);
    }
}

#[test]
fn case_127_the_places_on_a_lost_node_do_not_count_and_others_are_made() {
    let spec = json!({"nodes": {"names": ["old"]}, "afterDrain": "Uncordon"});
    let mut toy = Toy::new(spec);
    toy.node("old");
    toy.node("spare-1");
    toy.stateful_set("db", &["old", "old", "old"]);
    toy.until("moving", |t| t.stage() == "Moving");
    vanish(&mut toy, "spare-1");
    for _ in 0..20 {
        // The oracle would not let a pod leave either.
        assert_eq!(evictions(&toy.step().actions), Vec::<String>::new());
    }
    let placeholders = toy.placeholders();
    assert_eq!(placeholders.len(), 3, "one for each pod, as before");
    assert!(
        placeholders.iter().all(|p| p.node.is_none()),
        "none is bound to a node that is gone: they ask for another one"
    );
    toy.node("spare-2");
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
    let places: Vec<_> = toy
        .pods_named("db")
        .iter()
        .map(|p| p.node.clone())
        .collect();
    assert!(
        places.iter().all(|n| *n == Some("spare-2".into())),
        "{places:?}"
    );
}

#[test]
fn the_places_on_a_node_that_another_relocation_empties_are_given_up() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}, "afterDrain": "Uncordon"}));
    toy.node("old");
    toy.node("spare-1");
    toy.stateful_set("db", &["old", "old"]);
    toy.until("moving", |t| t.stage() == "Moving");
    let other = relocator::world::ClaimValue::parse("other/2");
    let node = toy.by_name("spare-1");
    node.marks.claimed_by = Some(other);
    node.unschedulable = true;
    for _ in 0..10 {
        assert_eq!(evictions(&toy.step().actions), Vec::<String>::new());
    }
    let on: Vec<_> = toy.placeholders().iter().map(|p| p.node.clone()).collect();
    assert_eq!(
        on,
        [None, None],
        "they have left it, and wait for another one"
    );
    toy.node("spare-2");
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn a_placeholder_of_another_relocation_is_waited_for_and_no_blocker() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}, "afterDrain": "Uncordon"}));
    toy.node("old");
    toy.node("spare");
    let placeholder = toy.pod("place", "placeholder", Some("old"), None);
    toy.pod_mut(&placeholder).placeholder = Some(relocator::world::PlaceholderLabel {
        relocation: "other".into(),
        pod: "p".into(),
        workload: "w".into(),
    });
    toy.stateful_set("db", &["old", "old"]);
    toy.until("the database to have moved", |t| {
        t.status().workloads.iter().any(|w| w.moved == 2)
    });
    for _ in 0..10 {
        toy.pass();
    }
    assert_eq!(toy.reasons(), Vec::<String>::new());
    assert_eq!(toy.stage(), "Moving", "the node is not empty");
    assert!(
        toy.cluster.pods.contains_key(&placeholder),
        "it is not ours"
    );
    Arc::make_mut(&mut toy.cluster.pods).remove(&placeholder);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_127_what_had_moved_to_a_lost_node_is_waited_for_again() {
    let spec = json!({"nodes": {"names": ["old-1", "old-2"]}, "afterDrain": "Uncordon", "workloads": {"maxConcurrent": 1}});
    let mut toy = Toy::new(spec);
    toy.node("old-1");
    toy.node("old-2");
    toy.node("spare-1");
    toy.stateful_set("cache", &["old-1"]);
    toy.stateful_set("db", &["old-1", "old-2", "old-2"]);
    let state = |t: &Toy, name: &str| {
        let works = t.status().workloads;
        works
            .iter()
            .find(|w| w.name == name)
            .map(|w| w.state.to_string())
    };
    toy.until("the cache to have moved", |t| {
        state(t, "cache").is_some_and(|s| s == "Moved")
    });
    assert_ne!(state(&toy, "db").unwrap(), "Moved");
    vanish(&mut toy, "spare-1");
    toy.node("spare-2");
    for _ in 0..30 {
        toy.pass();
        assert_ne!(toy.stage(), "Succeeded");
    }
    assert_eq!(
        state(&toy, "cache").unwrap(),
        "Moving",
        "its pod went down with the node"
    );
    collect_garbage(&mut toy);
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
    for pod in toy.pods_named("") {
        assert!(pod.ready, "{} is not there yet", pod.reference);
    }
}

#[test]
fn a_pod_that_is_stuck_on_a_dead_node_elsewhere_is_told_before_anything_is_touched() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}}));
    toy.node("old");
    toy.node("spare");
    toy.node("dead").ready = false;
    toy.deployment("web", &["old"], SURGES);
    let uid = toy.pods_named("web")[0].controller.clone().unwrap();
    let stuck = toy.pod("web-stuck", "web", Some("dead"), Some(uid));
    toy.pod_mut(&stuck).terminating = true;
    let plan = toy.plan();
    assert!(plan.actions.is_empty(), "{:?}", plan.actions);
    assert_eq!(toy.reasons(), ["NodeUnreachable"]);
    assert_eq!(toy.status().blockers[0].object, "Node dead");
}

#[test]
fn case_127_of_two_places_the_one_that_is_none_goes_first() {
    let mut toy = Toy::new(json!({"nodes": {"names": ["old"]}, "afterDrain": "Uncordon"}));
    toy.node("old");
    toy.node("spare-1");
    toy.node("spare-2");
    toy.stateful_set("db", &["old", "old"]);
    toy.until("moving", |t| t.stage() == "Moving");
    // The place of db-0, which moves last, is on spare-2.
    let db_0 = toy.pods_named("db-0")[0].reference.uid.clone();
    for place in toy.placeholders() {
        let of_db_0 = place.placeholder.as_ref().is_some_and(|l| l.pod == db_0);
        let node = if of_db_0 { "spare-2" } else { "spare-1" };
        toy.pod_mut(&place.reference.uid).node = Some(node.into());
    }
    let places = toy.placeholders().len();
    assert_eq!(places, 2);
    let db_1 = toy.pods_named("db-1")[0].reference.uid.clone();
    toy.until("db-1 to have left", |t| {
        t.pods_named("db-1").iter().all(|p| p.reference.uid != db_1)
    });
    // The operator hears of it only when it has come.
    while !toy.pods_named("db-1")[0].ready {
        toy.tick();
    }
    assert_eq!(toy.pods_named("db-1")[0].node, Some("spare-1".into()));
    toy.by_name("spare-2").ready = false;
    // One place is too many now. The oracle lets no pod leave that has none, within a pass either.
    toy.until("db-0 to leave", |t| {
        t.pods_named("db-0").iter().all(|p| p.reference.uid != db_0)
    });
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_127_while_the_new_node_does_not_answer_no_more_pods_leave() {
    let mut toy = moving();
    unready(&mut toy, "spare-1");
    unready(&mut toy, "spare-2");
    for _ in 0..20 {
        let plan = toy.step();
        let begun = plan
            .actions
            .iter()
            .any(|a| matches!(a, Action::Evict { .. } | Action::Surge { .. }));
        assert!(!begun, "{:?}", plan.actions);
    }
    toy.by_name("spare-2").ready = true;
    toy.by_name("spare-1").ready = true;
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn case_34_a_pod_that_does_not_stop_is_named_with_its_finalizers() {
    let mut toy = moving();
    let db_2 = toy.pods_named("db-2")[0].reference.clone();
    toy.pod_mut(&db_2.uid).finalizers = vec!["example.com/backup".into()];
    toy.endless = vec!["db-2".into()];
    toy.until("db-2 to terminate", |t| {
        t.pods_named("db-2")[0].terminating && t.reasons().is_empty()
    });
    let stops_by = toy.pods_named("db-2")[0].stops_by.unwrap();
    toy.until("db-2 to be overdue", |t| !t.reasons().is_empty());
    assert!(
        toy.now > stops_by.checked_add(SignedDuration::from_secs(30)).unwrap(),
        "it is given its grace period, and a moment after it"
    );
    for _ in 0..20 {
        assert_eq!(evictions(&toy.step().actions), Vec::<String>::new());
    }
    let status = toy.status();
    let said = &status.blockers[0];
    assert_eq!(
        (said.reason.to_string().as_str(), said.object.as_str()),
        ("StuckTerminating", "Pod default/db-2")
    );
    assert!(
        said.message.contains("example.com/backup"),
        "{}",
        said.message
    );

    toy.endless.clear();
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn a_pod_that_has_finished_and_keeps_its_successor_away_is_named() {
    let mut toy = moving();
    let db_2 = toy.pods_named("db-2")[0].reference.clone();
    toy.endless = vec!["db-2".into()];
    toy.until("db-2 to terminate", |t| t.pods_named("db-2")[0].terminating);
    // Its containers have ended, the object stays: as a kubelet reports it.
    let pod = toy.pod_mut(&db_2.uid);
    pod.finished = true;
    pod.finalizers = vec!["example.com/backup".into()];
    toy.until("a blocker", |t| !t.reasons().is_empty());
    assert_eq!(toy.reasons(), ["StuckTerminating"]);
    toy.endless.clear();
    toy.until("over", Toy::is_over);
    assert_eq!(toy.stage(), "Succeeded");
}

#[test]
fn a_node_that_returns_under_its_name_as_another_is_not_touched() {
    for stage in ["Protecting", "Cordoning", "Provisioning", "Moving"] {
        let mut toy = Toy::new(json!({"nodes": {"names": ["old-1", "old-2"]}}));
        toy.node("old-1");
        toy.node("old-2");
        toy.node("spare");
        toy.stateful_set("db", &["old-1", "old-2"]);
        toy.until(stage, |t| t.stage() == stage);
        vanish(&mut toy, "old-1");
        toy.node("old-1").uid = "another".into();
        let nodes = Arc::make_mut(&mut toy.cluster.nodes);
        let node = nodes.remove(&"node-old-1".into()).unwrap();
        nodes.insert("another".into(), node);
        while !toy.is_over() {
            toy.pass();
            let now = &toy.cluster.nodes[&"another".into()];
            // As any other node it can have places, and is protected for them.
            let touched = now.unschedulable || now.marks.claimed_by.is_some();
            assert!(!touched, "in {}: {now:?}", toy.stage());
        }
        assert_eq!(toy.stage(), "Succeeded");
        let marks = &toy.cluster.nodes[&"another".into()].marks;
        assert_eq!(*marks, Marks::default());
        let db_0 = &toy.pods_named("db-0")[0];
        let stayed = db_0.node.as_ref().is_some_and(|n| n.as_str() == "old-1");
        assert!(stayed || stage == "Moving", "in {stage}: {db_0:?}");
    }
}

#[test]
fn a_node_that_somebody_else_removes_meanwhile_is_one_less_to_remove() {
    let spec = json!({"nodes": {"nodePools": ["apps"], "state": "Drifted"}});
    let mut toy = Toy::new(spec);
    toy.autoscaled = true;
    toy.drifted("old-1");
    toy.drifted("old-2");
    toy.stateful_set("db", &["old-1", "old-2"]);
    let before = toy.clone();
    toy.until("moving", |t| t.stage() == "Moving");
    // As when it expires: the claim is being deleted, and Karpenter waits for the pods that must not be disrupted.
    toy.by_name("old-1").deleting = true;
    let mut deleted = Vec::new();
    while !toy.is_over() {
        let empty = !toy
            .cluster
            .pods
            .values()
            .any(|p| p.node.as_ref().is_some_and(|n| n.as_str() == "old-1"));
        if empty {
            vanish(&mut toy, "old-1");
            let karpenter = toy.cluster.karpenter.as_mut().unwrap();
            Arc::make_mut(&mut karpenter.claims).retain(|_, c| c.name != "claim-old-1");
        }
        for action in toy.step().actions {
            if let Action::DeleteNodeClaim { node, .. } = action {
                deleted.push(node.to_string());
            }
        }
    }
    assert_eq!(toy.stage(), "Succeeded");
    assert_eq!(deleted, ["old-2"]);
    oracle::nothing_is_left(&before, &toy, false);
}
