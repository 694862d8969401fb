#![allow(clippy::unwrap_used)]
use super::*;
use crate::judge::story::t;
use serde_json::json;

fn pod(uid: &str, node: &str) -> Object {
    let object = json!({"metadata": {"name": uid, "namespace": "shop", "uid": uid}, "spec": {"nodeName": node}});
    Object::read(Kind::Pod, serde_json::from_value(object).unwrap())
}

fn listed(revision: u64, objects: Vec<(u64, Object)>) -> Listed {
    Listed {
        kind: Kind::Pod,
        revision,
        objects,
    }
}

fn told(ledger: &Ledger) -> Vec<(u64, Cause, String)> {
    ledger
        .changes
        .iter()
        .map(|c| (c.revision, c.cause, c.object.name.clone()))
        .collect()
}

#[test]
fn events_that_come_again_after_a_reconnect_count_once() {
    let mut ledger = Ledger::default();
    ledger.initial(t(0.0), listed(10, vec![(4, pod("a", ""))]));
    ledger.event(t(1.0), 11, Cause::Added, pod("b", ""));
    ledger.event(t(2.0), 11, Cause::Added, pod("b", ""));
    ledger.event(t(2.0), 12, Cause::Modified, pod("b", "n"));
    ledger.event(t(3.0), 13, Cause::Deleted, pod("b", "n"));
    ledger.event(t(3.0), 12, Cause::Modified, pod("b", "n"));
    let b = || "b".to_owned();
    assert_eq!(
        told(&ledger),
        [
            (4, Cause::Initial, "a".to_owned()),
            (11, Cause::Added, b()),
            (12, Cause::Modified, b()),
            (13, Cause::Deleted, b()),
        ]
    );
}

#[test]
fn an_update_of_nothing_that_is_judged_is_no_change_but_is_seen() {
    let mut ledger = Ledger::default();
    ledger.initial(t(0.0), listed(10, vec![(4, pod("a", "n"))]));
    ledger.event(t(1.0), 11, Cause::Modified, pod("a", "n"));
    assert_eq!(told(&ledger).len(), 1);
    assert_eq!(
        ledger.behind(Kind::Pod, &listed(11, vec![(11, pod("a", "n"))])),
        None
    );
}

#[test]
fn a_new_list_after_a_gap_tells_what_came_and_went_and_that_there_was_a_gap() {
    let mut ledger = Ledger::default();
    ledger.initial(
        t(0.0),
        listed(10, vec![(4, pod("a", "")), (5, pod("b", ""))]),
    );
    ledger.relisted(
        t(9.0),
        listed(30, vec![(5, pod("b", "")), (20, pod("c", ""))]),
    );
    assert_eq!(
        told(&ledger).split_off(2),
        [
            (30, Cause::Deleted, "a".to_owned()),
            (20, Cause::Added, "c".to_owned())
        ]
    );
    let gap = Gap {
        kind: Kind::Pod,
        after: 10,
        until: 30,
    };
    assert_eq!(ledger.gaps, [gap]);
}

#[test]
fn behind_is_what_a_list_shows_and_no_event_has_told() {
    let mut ledger = Ledger::default();
    ledger.initial(t(0.0), listed(10, vec![(4, pod("a", ""))]));
    let now = |objects| listed(20, objects);
    assert!(
        ledger
            .behind(Kind::Pod, &now(vec![(15, pod("a", "n"))]))
            .unwrap()
            .contains("Pod shop/a at 15")
    );
    assert!(
        ledger
            .behind(Kind::Pod, &now(vec![]))
            .unwrap()
            .contains("is gone")
    );
    // Newer than the list: the watch is ahead.
    ledger.event(t(1.0), 25, Cause::Added, pod("b", ""));
    assert_eq!(
        ledger.behind(Kind::Pod, &now(vec![(4, pod("a", ""))])),
        None
    );
}

#[tokio::test]
async fn the_audit_log_is_read_once_a_request_and_without_a_line_being_written() {
    let event = |id: &str, at: f64, stage: &str, code: u16| {
        json!({"auditID": id, "stage": stage, "verb": "get", "level": "Metadata", "user": {"username": "u"},
            "responseStatus": {"code": code}, "requestURI": "/healthz",
            "requestReceivedTimestamp": t(at).to_string(), "stageTimestamp": t(at + f64::from(code) / 1000.0).to_string()})
        .to_string()
    };
    let lines = [
        event("early", -1.0, "ResponseComplete", 200),
        event("b", 2.0, "ResponseComplete", 200),
        event("a", 1.0, "ResponseStarted", 100),
        event("a", 1.0, "ResponseComplete", 201),
        "{\"half".to_owned(),
    ];
    let path = std::env::temp_dir().join(format!("judge-audit-{}.log", std::process::id()));
    std::fs::write(&path, lines.join("\n")).unwrap();
    let read = read_audit_log(&path, t(0.0)).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let got: Vec<_> = read
        .iter()
        .map(|e| (e.id.as_str(), e.code, e.agent()))
        .collect();
    assert_eq!(got, [("a", 201, "?"), ("b", 200, "?")]);
}
