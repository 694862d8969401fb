//! The judge's figures in words. Pure.

use std::fmt::Write as _;

use lab::judge::Scorecard;

use crate::text;

/// Columns of the table.
const HEADER: [&str; 8] = [
    "way",
    "finished",
    "s",
    "moves for 10",
    "double, needless",
    "unavailable web / db / session",
    "most of web down",
    "left behind",
];

/// The same scenario on the same control plane by other ways: one run each, measured once, by hand.
const MEASURED_EARLIER: [[&str; 8]; 8] = [
    [
        "Karpenter drift",
        "never: do-not-disrupt",
        "-",
        "0",
        "-",
        "0",
        "0",
        "-",
    ],
    [
        "the same, do-not-disrupt removed",
        "never: the PDB",
        "-",
        "12",
        "5, 0",
        "36 / 44 / 0",
        "3",
        "",
    ],
    [
        "deleting the NodeClaims",
        "never: do-not-disrupt",
        "-",
        "6",
        "-",
        "47 / 0 / 0",
        "6 of 6",
        "nodes in deletion for ever",
    ],
    [
        "kubectl drain, node by node",
        "never: the PDB of session-server",
        "-",
        "12",
        "3, 0",
        "58 / 33 / 0",
        "3",
        "a cordon",
    ],
    [
        "node-rotation-controller",
        "never, or past the PDBs",
        "143",
        "17",
        "9, 2",
        "101 / 21 / 7",
        "5",
        "markers",
    ],
    [
        "k8s-shredder",
        "yes",
        "46-61",
        "10-12",
        "0, 2",
        "22-44 / 28 / 0",
        "3-6",
        "taint, labels, cordon",
    ],
    [
        "node-maintenance-orchestrator",
        "never, or past the PDBs",
        "29",
        "10",
        "0",
        "44 / 46 / 7",
        "6, all 10 pods at once",
        "annotations",
    ],
    [
        "the hand procedure, well done",
        "yes",
        "43",
        "10",
        "0",
        "12 / 25 / 0",
        "1",
        "a cordon, 2 nodes too many",
    ],
];

/// Owners of the scenario, in the order of the table.
const WEB: &str = "default/Deployment/web";
const OWNERS: [&str; 3] = [
    WEB,
    "default/StatefulSet/db",
    "default/Deployment/session-server",
];

/// Whether the run is as it should be: finished, every invariant held, nothing left behind.
pub(crate) fn is_good(card: &Scorecard) -> bool {
    card.finished && card.broken_invariants.is_empty() && card.left_behind.is_empty()
}

/// This run beside the others.
pub(crate) fn beside_the_others(card: &Scorecard) -> String {
    let mut rows = vec![HEADER.map(str::to_owned), this_run(card)];
    rows.extend(MEASURED_EARLIER.map(|row| row.map(str::to_owned)));
    let mut out = String::from(
        "This run, and other ways that were measured earlier, by hand, one run each (unavailable: pod-seconds below the \
         replica count):\n\n",
    );
    for line in text::columns(&rows) {
        let _ = writeln!(out, "  {line}");
    }
    out
}

fn this_run(card: &Scorecard) -> [String; 8] {
    let unavailable = OWNERS.map(|owner| {
        let score = card.owners.get(owner);
        score.map_or_else(
            || "-".to_owned(),
            |s| format!("{:.0}", s.unavailable_pod_seconds),
        )
    });
    let most = card.owners.get(WEB).map(|s| s.most_unavailable);
    [
        "> relocator, this run".to_owned(),
        if card.finished { "yes" } else { "no" }.to_owned(),
        format!("{:.0}", card.wall_seconds),
        card.moves.to_string(),
        format!("{}, {}", card.double_moves, card.needless_moves),
        unavailable.join(" / "),
        most.unwrap_or_default().to_string(),
        match card.left_behind.len() {
            0 => "nothing".to_owned(),
            n => text::count(n, "thing"),
        },
    ]
}

/// What the table has no room for.
pub(crate) fn details(card: &Scorecard) -> String {
    let mut out = String::new();
    let made = card.nodes.made;
    let removed = card.nodes.removed;
    let _ = writeln!(out, "Nodes: {made} made, {removed} removed.");
    for (owner, score) in &card.owners {
        let _ = writeln!(
            out,
            "{owner}: {} of {} moved, at most {} down, {:.1} pod-seconds below {}.",
            score.moves,
            text::count(score.replicas as usize, "replica"),
            score.most_unavailable,
            score.unavailable_pod_seconds,
            score.replicas,
        );
    }
    if let Some(requests) = card.requests.get("relocator") {
        let each = card
            .requests_per_move
            .map_or_else(String::new, |each| format!(", {each:.1} a moved pod"));
        let _ = writeln!(
            out,
            "Requests of relocator: {}{each} ({} watches, {} for the lease).",
            requests.total, requests.watches, requests.leases,
        );
        let mut by: Vec<_> = requests.by.iter().collect();
        by.sort_by_key(|(what, count)| (std::cmp::Reverse(**count), *what));
        let by: Vec<String> = by
            .iter()
            .map(|(what, number)| match what.split_once(' ') {
                // Not about a resource: discovery, the version.
                Some((verb, "")) => format!("{number} {verb} (other paths)"),
                _ => format!("{number} {what}"),
            })
            .collect();
        let _ = writeln!(out, "  {}.", by.join(", "));
    }
    list(&mut out, "Left behind", &card.left_behind);
    list(&mut out, "Broken invariants", &card.broken_invariants);
    out
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        let _ = writeln!(out, "{title}: none.");
    } else {
        let _ = writeln!(out, "{title}:");
    }
    for item in items {
        let _ = writeln!(out, "  {item}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_scorecard_has_the_names_that_others_read() {
        let card = json!({
            "finished": true, "wallSeconds": 41.5, "pods": 10, "moves": 10, "needlessMoves": 0, "doubleMoves": 0,
            "mostUnavailable": 1,
            "owners": {"default/StatefulSet/db": {
                "moves": 3, "replicas": 3, "unavailablePodSeconds": 25.0, "mostUnavailable": 1}},
            "nodes": {"made": 3, "removed": 3},
            "requests": {"relocator": {"total": 40, "watches": 8, "leases": 12, "tooManyRequests": 0, "by": {"create pods/eviction": 3}}},
            "requestsPerMove": 4.0, "leftBehind": [], "brokenInvariants": [],
        });
        let read: Scorecard = serde_json::from_value(card.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), card);
        assert!(is_good(&read));
        let table = beside_the_others(&read);
        assert!(table.contains("> relocator, this run"), "{table}");
        assert!(details(&read).contains("40, 4.0 a moved pod"));
    }

    #[test]
    fn a_run_that_left_something_behind_is_not_good() {
        let card = Scorecard {
            finished: true,
            left_behind: vec!["Node a: cordon".to_owned()],
            ..Scorecard::default()
        };
        assert!(!is_good(&card));
        assert_eq!(
            serde_json::to_value(&card).unwrap().get("leftBehind"),
            Some(&Value::from(vec!["Node a: cordon"]))
        );
    }
}
