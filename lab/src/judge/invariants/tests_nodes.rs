#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
//! As `tests`, for places, nodes and what is written.
use serde_json::json;

use super::tests::{broken, held, named, world};
use super::*;
use crate::judge::input::Interval;
use crate::judge::object::Kind;
use crate::judge::story::{Story, t};

#[test]
fn i5_a_pod_leaves_only_when_a_place_is_ready() {
    let mut s = world();
    s.begins().at(5.0).evicted("db-1");
    held(5, &s);
    for (spoil, why) in [
        (json!({"spec": {"unschedulable": true}}), "no Ready node"),
        (json!({"status": {"conditions": []}}), "no Ready node"),
        (
            json!({"metadata": {"deletionTimestamp": "2026-11-30T22:00:00Z"}}),
            "no Ready node",
        ),
        (
            json!({"metadata": {"labels": {"karpenter.sh/nodepool": "apps"}}}),
            "no Ready node",
        ),
        (
            json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}),
            "no Ready node",
        ),
        (
            json!({"status": {"allocatable": {"cpu": "500m"}}}),
            "room for it",
        ),
    ] {
        let mut s = world();
        s.merge(Kind::Node, "new-a", &spoil)
            .begins()
            .at(5.0)
            .evicted("db-1");
        named(5, &s, &["Pod shop/db-1 had no place to go", why, "audit-1"]);
    }
}

#[test]
fn i5_the_room_of_a_placeholder_is_a_place_and_that_of_a_pod_is_not() {
    // 4 cpu, of which 4 are taken by placeholders, or 3 by pods and 1 by a placeholder, or 4 by pods.
    for (pods, fine) in [(0, true), (3, true), (4, false)] {
        let mut s = world();
        for n in 0..4 {
            if n < pods {
                s.pod(&format!("other-{n}"), ("Cluster", "other"), "new-a", true);
            } else {
                s.placeholder(&format!("placeholder-{n}"), "new-a");
            }
        }
        s.begins().at(5.0).evicted("db-1");
        assert_eq!(broken(5, &s).is_empty(), fine, "{pods}");
    }
}

#[test]
fn i5_a_place_is_for_one_pod() {
    // Room for one: the second eviction finds it promised to the first, until that one's successor is bound elsewhere.
    let mut s = world();
    s.merge(
        Kind::Node,
        "new-a",
        &json!({"status": {"allocatable": {"cpu": "1"}}}),
    );
    s.begins()
        .at(5.0)
        .evicted("db-1")
        .at(6.0)
        .evicted("web-1-a");
    named(
        5,
        &s,
        &["web-1-a had no place", "wanted by pods evicted before it"],
    );
}

#[test]
fn i5_a_restart_needs_a_place_too() {
    let mut s = world();
    s.cordon("new-a")
        .begins()
        .at(5.0)
        .restarted(Kind::Deployment, "web", "r1");
    named(
        5,
        &s,
        &["Deployment shop/web was restarted without a place"],
    );
}

#[test]
fn i6_a_node_with_a_pod_or_a_volume_is_not_deleted() {
    let claim = json!({"metadata": {"name": "claim-a"}, "status": {"nodeName": "old-a"}});
    let body = json!({"preconditions": {"uid": "NodeClaim:claim-a"}});
    let mut s = Story::new();
    s.put(Kind::NodeClaim, claim.clone());
    s.pod("agent", ("DaemonSet", "agent"), "old-a", true)
        .begins();
    s.at(5.0)
        .ours("delete nodeclaims claim-a", Some(body.clone()))
        .gone(Kind::NodeClaim, "claim-a");
    held(6, &s);

    let mut s = world();
    s.put(Kind::NodeClaim, claim).begins();
    s.at(5.0)
        .ours("delete nodeclaims claim-a", Some(body))
        .gone(Kind::NodeClaim, "claim-a");
    named(
        6,
        &s,
        &[
            "NodeClaim claim-a was deleted with Pod shop/db-0, Pod shop/web-1-a",
            "audit-1",
        ],
    );

    let mut s = Story::new();
    s.put(
        Kind::VolumeAttachment,
        json!({"metadata": {"name": "va"}, "spec": {"nodeName": "old-a"}}),
    )
    .begins();
    let body = json!({"preconditions": {"uid": "Node:old-a"}});
    s.at(5.0)
        .ours("delete nodes old-a", Some(body))
        .gone(Kind::Node, "old-a");
    named(6, &s, &["Node old-a was deleted with VolumeAttachment va"]);
}

#[test]
fn i6_a_volume_of_a_pod_that_stays_does_not_hold_its_node() {
    let deleted_with = |claim_of_the_volume: &str| {
        let mut s = Story::new();
        s.pod("agent", ("DaemonSet", "agent"), "old-a", true);
        let claim = json!([{"name": "log", "persistentVolumeClaim": {"claimName": "log"}}]);
        s.merge(Kind::Pod, "agent", &json!({"spec": {"volumes": claim}}));
        s.put(
            Kind::PersistentVolumeClaim,
            json!({"metadata": {"name": claim_of_the_volume, "namespace": "shop"}, "spec": {"volumeName": "disk"}}),
        );
        s.put(
            Kind::VolumeAttachment,
            json!({"metadata": {"name": "va"}, "spec": {"nodeName": "old-a", "source": {"persistentVolumeName": "disk"}}}),
        )
        .begins();
        let body = json!({"preconditions": {"uid": "Node:old-a"}});
        s.at(5.0)
            .ours("delete nodes old-a", Some(body))
            .gone(Kind::Node, "old-a");
        s
    };
    held(6, &deleted_with("log"));
    // Of a pod that has left: it is still being detached.
    named(6, &deleted_with("data"), &["VolumeAttachment va"]);
}

#[test]
fn i6_a_delete_by_name_and_of_a_collection_are_caught() {
    let mut s = Story::new();
    s.begins()
        .ours("delete nodes old-a", Some(json!({"kind": "DeleteOptions"})));
    s.ours("deletecollection nodeclaims", None);
    let all = broken(6, &s);
    assert!(all[0].contains("without preconditions.uid: delete nodes old-a"));
    assert!(all[1].contains("a whole collection"));
}

#[test]
fn i7_what_is_left_is_broken_and_so_is_what_was_taken() {
    let mut s = world();
    let mark =
        |v: Option<&str>| json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": v}}});
    s.merge(Kind::Pod, "db-0", &mark(Some("true")))
        .begins()
        .at(5.0);
    s.ours("patch pods db-0", Some(mark(None)))
        .merge(Kind::Pod, "db-0", &mark(None));
    s.at(6.0).cordon("old-a");
    let all = broken(7, &s);
    assert_eq!(all[0], "Node old-a: cordon");
    assert!(all[1].contains(
        "Pod shop/db-0: annotation karpenter.sh/do-not-disrupt was \"true\" and is gone"
    ));
    assert!(all[1].contains("patch pods shop/db-0 by relocator"));
    assert_eq!(all.len(), 2);
}

#[test]
fn i7_what_others_take_is_theirs() {
    let mut s = world();
    let mark =
        |v: Option<&str>| json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": v}}});
    s.merge(Kind::Pod, "db-0", &mark(Some("true")))
        .begins()
        .at(5.0);
    s.request("kubectl", "patch pods db-0", Some(mark(None)))
        .merge(Kind::Pod, "db-0", &mark(None));
    held(7, &s);
}

#[test]
fn i8_a_cordon_of_others_stays() {
    let uncordoned_by = |who: &str| {
        let mut s = world();
        s.cordon("old-a").begins().at(5.0);
        s.request(
            who,
            "patch nodes old-a",
            Some(json!({"spec": {"unschedulable": null}})),
        )
        .uncordon("old-a");
        s
    };
    named(
        8,
        &uncordoned_by("relocator"),
        &["Node old-a was cordoned before the start", "audit-1"],
    );
    held(8, &uncordoned_by("kubectl"));
    // Our own cordon may be lifted.
    let mut s = world();
    s.begins()
        .at(5.0)
        .ours("patch nodes old-a", None)
        .cordon("old-a");
    s.at(9.0).ours("patch nodes old-a", None).uncordon("old-a");
    held(8, &s);
}

#[test]
fn i9_a_second_restart_is_caught() {
    let mut s = world();
    s.begins().at(5.0).restarted(Kind::Deployment, "web", "r1");
    // Repeated with the same value after a crash: no change, no restart.
    s.at(10.0).restarted(Kind::Deployment, "web", "r1");
    held(9, &s);
    s.at(20.0).restarted(Kind::Deployment, "web", "r1-again");
    named(
        9,
        &s,
        &["Deployment shop/web was restarted 2 times", "audit-3"],
    );
}

#[test]
fn i9_who_undoes_a_restart_is_not_taken_for_who_restarted() {
    let undone = json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": null}}}}});
    let undone_by = |agent: &str| {
        let mut s = world();
        s.begins().at(5.0).restarted(Kind::Deployment, "web", "r1");
        s.at(5.2)
            .request(agent, "patch deployments web", Some(undone.clone()))
            .merge(Kind::Deployment, "web", &undone);
        s
    };
    held(9, &undone_by("kustomize-controller"));
    named(
        9,
        &undone_by("relocator"),
        &["Deployment shop/web was restarted 2 times", "audit-2"],
    );
}

#[test]
fn i9_each_relocation_may_restart_once() {
    let mut s = world();
    s.begins();
    for (n, r) in [(10.0, "r1"), (20.0, "r2")] {
        s.at(n)
            .put(Kind::NodeRelocation, json!({"metadata": {"name": r}}));
        s.restarted(Kind::Deployment, "web", r);
    }
    held(9, &s);
}

#[test]
fn i10_writes_in_a_quiet_time_are_caught() {
    let mut s = world();
    s.begins().at(10.0).ours("patch nodes old-a", None);
    s.at(60.0)
        .ours("get nodes old-a", None)
        .ours("update leases relocator", None)
        .request("kubectl", "patch nodes old-a", None);
    let input = |from: f64| JudgeInput {
        quiet: vec![Interval {
            from: t(from),
            to: t(90.0),
        }],
        ..Story::input()
    };
    let history = s.ends(100.0);
    assert_eq!(check(10, &history, &input(50.0)), []);
    let caught = check(10, &history, &input(10.0));
    assert_eq!(caught.len(), 1);
    assert!(
        caught[0]
            .to_string()
            .starts_with("10: written while nothing was to do: patch nodes old-a")
    );
    assert_eq!(
        writes_between(&history, &Identity::agent("kubectl"), t(0.0), t(99.0)).len(),
        1
    );
}

#[test]
fn i11_a_claim_is_not_taken_over() {
    let claim =
        |by: Option<&str>| json!({"metadata": {"annotations": {"relocation.sh/claimed-by": by}}});
    let mut s = world();
    s.begins()
        .at(1.0)
        .merge(Kind::Node, "old-a", &claim(Some("r1")));
    s.at(2.0)
        .merge(Kind::Node, "old-a", &claim(None))
        .at(3.0)
        .merge(Kind::Node, "old-a", &claim(Some("r2")));
    held(11, &s);
    s.at(4.0).merge(Kind::Node, "old-a", &claim(Some("r3")));
    named(
        11,
        &s,
        &["Node old-a: the claim passed from r2 to r3 at 2026-11-30T22:00:04Z"],
    );
}
