//! However many nodes, workloads and blockers there are, the object stays small enough to be kept, watched and read.

use std::collections::BTreeSet;
use std::sync::Arc;

use relocator::api::status::{MoreWorkloads, NodeRelocationStatus, WorkloadState};
use relocator::world::{Node, NodeClaim};
use serde_json::json;

use crate::toy::Toy;

/// The design's bound. etcd takes 1.5 MiB, but every watcher gets the whole object at every change.
const MOST: usize = 256 * 1024;

/// As the API server makes them, 36 characters.
fn uid(number: usize) -> String {
    format!("{number:08x}-6d2e-4d0e-9a4e-0f6c1f3b7a55")
}

/// A name as EKS gives it, in the region of the longest.
fn eks(number: usize) -> String {
    format!(
        "ip-10-1{:02}-1{:02}-200.ap-southeast-1.compute.internal",
        number / 100,
        number % 100
    )
}

/// Drifted nodes with names and UIDs as long as in a real cluster.
fn nodes(toy: &mut Toy, count: usize, name: impl Fn(usize) -> String) {
    for number in 0..count {
        toy.drifted(&name(number));
    }
    let lengthened = |number: usize, node: &Node| Node {
        uid: uid(number).into(),
        ..node.clone()
    };
    let all = toy.cluster.nodes.values().enumerate();
    let all = all.map(|(number, node)| (uid(number).into(), Arc::new(lengthened(number, node))));
    toy.cluster.nodes = Arc::new(all.collect());
    let karpenter = toy.cluster.karpenter.as_mut().unwrap();
    let claim = |number: usize, claim: &NodeClaim| NodeClaim {
        name: format!("general-purpose-{number:05}"),
        uid: uid(100_000 + number).into(),
        ..claim.clone()
    };
    let all = karpenter.claims.values().enumerate();
    let all = all.map(|(n, c)| (uid(100_000 + n).into(), Arc::new(claim(n, c))));
    karpenter.claims = Arc::new(all.collect());
}

fn spec() -> serde_json::Value {
    json!({
        "nodes": {"nodePools": ["apps"], "limit": 1000},
        "replacement": {"strategy": "None"},
        "workloads": {"maxConcurrent": 1000},
        "afterDrain": "Keep",
    })
}

fn bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).unwrap().len()
}

/// 1,000 nodes, 200 workloads of five pods, then 1,000 pods that nothing would make again: what can't be listed is counted.
#[test]
fn a_thousand_nodes_with_a_thousand_blockers_stay_under_256_kib() {
    let mut toy = Toy::new(spec());
    nodes(&mut toy, 1000, eks);
    for workload in 0..200 {
        let places: Vec<_> = (0..5).map(|i| eks(workload * 5 + i)).collect();
        let places: Vec<_> = places.iter().map(String::as_str).collect();
        toy.stateful_set(&format!("payments-ledger-writer-{workload:04}"), &places);
    }
    toy.until("cordoned", |t| t.stage() == "Moving");
    let started = toy.relocation.clone();
    for number in 0..1000 {
        let name = format!("debug-session-of-somebody-{number:04}");
        toy.pod(&name, "bare", Some(&eks(number)), None);
    }
    toy.pass();

    let status = toy.status();
    assert_eq!(
        status.nodes.len(),
        1000,
        "what is to be emptied is never cut"
    );
    for relocation in [&started, &toy.relocation] {
        let bytes = bytes(relocation);
        println!("{bytes} bytes");
        assert!(bytes < MOST, "{bytes} bytes");
    }
    let more = status.more_workloads.unwrap();
    assert_eq!(status.workloads.len() + more.pending as usize, 200);
    // At most `maxConcurrent` default pods move at a time, so as many workloads at least should be able to.
    assert!(status.workloads.len() >= 40, "{}", status.workloads.len());
    assert_eq!(status.pods().1, 1000, "every pod of theirs is counted");
    assert_eq!(status.progress.as_ref().unwrap().pods, "0/1000");
    assert_eq!(status.blockers.len() + status.more_blockers as usize, 1000);
    assert!(status.blockers.len() >= 15, "{}", status.blockers.len());
}

/// Before the start there are no nodes in the status, and a person wants to see what blocks.
#[test]
fn a_hundred_blockers_of_the_greatest_length_stay_under_256_kib() {
    let blocker = json!({"reason": "UnmanagedPod", "object": "o".repeat(600), "message": "ü".repeat(2000), "since": "2026-11-30T20:00:00Z"});
    let blockers = vec![serde_json::from_value(blocker).unwrap(); 1000];
    let mut status = NodeRelocationStatus::default();
    status.set_blockers(blockers);
    assert_eq!((status.blockers.len(), status.more_blockers), (100, 900));
    assert!(bytes(&status) < MOST);
}

/// Where the list is full, the next workload is taken up when another has moved, until all have; and none twice.
#[test]
fn workloads_beyond_the_list_move_when_there_is_room() {
    const WORKLOADS: usize = 120;
    let mut toy = Toy::new(spec());
    // As long as names can be, so that few nodes fill the status.
    let name = |number: usize| format!("{}-{number:03}", "n".repeat(240));
    nodes(&mut toy, 530, name);
    for workload in 0..WORKLOADS {
        let places = [name(workload), name(workload + 200)];
        let places: Vec<_> = places.iter().map(String::as_str).collect();
        toy.stateful_set(&format!("{}-{workload:03}", "w".repeat(100)), &places);
    }
    for number in 0..WORKLOADS / 2 {
        toy.node(&format!("spare-{number}"));
    }
    let (mut listed, mut evicted) = (BTreeSet::new(), 0);
    let mut at_once = 0;
    for _ in 0..400 {
        if toy.is_over() {
            break;
        }
        let plan = toy.step();
        evicted += plan
            .actions
            .iter()
            .filter(|a| matches!(a, relocator::plan::Action::Evict { .. }))
            .count();
        let status = toy.status();
        assert!(bytes(&toy.relocation) < MOST);
        at_once = at_once.max(status.workloads.len());
        listed.extend(status.workloads.iter().map(|w| w.name.clone()));
        if let Some(more) = status.more_workloads {
            let counted = more.moved + more.pending;
            assert_eq!(status.workloads.len() + counted as usize, WORKLOADS);
            assert_eq!(status.pods().1 as usize, 2 * WORKLOADS, "{more:?}");
        }
    }
    assert_eq!(toy.stage(), "Succeeded", "{:#?}", toy.status().conditions);
    assert!(at_once < WORKLOADS, "or the test shows nothing: {at_once}");
    assert_eq!(listed.len(), WORKLOADS);
    assert_eq!(evicted, 2 * WORKLOADS);
    let status = toy.status();
    assert!(
        status
            .workloads
            .iter()
            .all(|w| w.state == WorkloadState::Moved)
    );
    let more = status.more_workloads.unwrap();
    let (listed, counted) = (status.workloads.len(), more.moved as usize);
    assert_eq!(listed + counted, WORKLOADS);
    let all_moved = MoreWorkloads {
        pending: 0,
        pending_pods: 0,
        ..more
    };
    assert_eq!(more, all_moved);
    let pods = u32::try_from(2 * WORKLOADS).unwrap();
    assert_eq!(status.pods(), (pods, pods));
    let ready = status
        .conditions
        .iter()
        .find(|c| c.type_ == "Ready")
        .unwrap();
    assert!(
        ready.message.starts_with("240 pods moved"),
        "{}",
        ready.message
    );
}

/// 10,000 pods of 1,250 workloads that all have to move, as far as the first of them leaving, and every text as long as it may be.
#[test]
fn a_thousand_nodes_with_ten_thousand_pods_stay_under_256_kib_in_each_stage() {
    let mut toy = Toy::new(spec());
    nodes(&mut toy, 1000, eks);
    for workload in 0..1250 {
        let places: Vec<_> = (0..8).map(|i| eks((workload * 8 + i) % 1000)).collect();
        let places: Vec<_> = places.iter().map(String::as_str).collect();
        toy.stateful_set(&format!("payments-ledger-writer-{workload:04}"), &places);
    }
    for pod in toy.pods_named("payments") {
        let pod = toy.pod_mut(&pod.reference.uid);
        pod.empty_dirs = vec!["scratch".repeat(9)];
        pod.finalizers = vec![format!("example.com/{}\u{1b}[0m", "f".repeat(3000))];
    }
    let mut stages = BTreeSet::new();
    for _ in 0..12 {
        let plan = toy.plan();
        stages.insert(toy.stage());
        crate::absurd::schema::check(&plan.status);
        let size = bytes(&toy.relocation);
        assert!(size < MOST, "{size} bytes in {}", toy.stage());
        for action in &plan.actions {
            toy.carry_out(action);
        }
        if toy.cluster.pods.values().any(|p| p.terminating) {
            break;
        }
    }
    // What stops is waited for by name, with its finalizers.
    let plan = toy.plan();
    crate::absurd::schema::check(&plan.status);
    let size = bytes(&toy.relocation);
    assert!(size < MOST, "{size} bytes while pods stop");
    assert_eq!(toy.status().nodes.len(), 1000);
    assert_eq!(toy.status().pods().1, 10_000, "every pod is counted");
    for stage in ["Planning", "Protecting", "Cordoning", "Moving"] {
        assert!(stages.contains(stage), "{stages:?}");
    }
}
