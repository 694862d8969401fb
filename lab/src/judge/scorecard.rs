//! The figures of a run. Pure.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::analysis::{Case, node_of, pods_that_stay};
use super::availability::{all_whole, lacks};
use super::history::{Cause, History, State};
use super::input::JudgeInput;
use super::invariants::check_case;
use super::left_behind::left_behind;
use super::object::{Kind, Uid};
use super::owners::Owner;

/// What a run did and cost.
///
/// A pod counts if it belongs to an owner that had live pods at the start mark, and is not of a `DaemonSet`, a Job or the
/// kubelet itself (mirror), and no placeholder. Its owner is resolved by UID: through its `ReplicaSet` to the
/// Deployment. A pod without a controller is an owner of its own.
///
/// Each move is of one sort: needed, double or needless. A run in which every pod of the selected nodes is moved once has
/// `moves` = `pods` and no other. A pod that is moved off a selected node onto another one and then on makes two moves,
/// one of them double; a restart that also replaces pods of nodes that were not selected makes needless ones, as does a
/// pod that is moved twice between nodes that were not selected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scorecard {
    /// Every selected node is gone or has only `DaemonSet`, mirror and finished pods, and every owner that a controller
    /// keeps has all its replicas Ready, at the end of the recording. False if no node was selected.
    pub finished: bool,
    /// From the start mark to the end mark.
    pub wall_seconds: f64,
    /// Pods on selected nodes at the start: those that have to move.
    pub pods: u32,
    /// Pods created after the start mark for owners of the baseline.
    pub moves: u32,
    /// Of the moves that are not double: for each owner those beyond its pods on selected nodes at the start.
    pub needless_moves: u32,
    /// Moves that ended on a selected node, from which the pod has to move again.
    pub double_moves: u32,
    /// The most replicas of all owners together that were not Ready at once.
    pub most_unavailable: u32,
    /// By `namespace/Kind/name`.
    pub owners: BTreeMap<String, OwnerScore>,
    /// Nodes that came and went after the start mark.
    pub nodes: NodeCounts,
    /// Requests received from the start mark to the end mark, by program (the user agent up to the first "/").
    pub requests: BTreeMap<String, RequestCounts>,
    /// All requests of the judged identity in that time, watches and leases too, for each move; None without moves or requests.
    pub requests_per_move: Option<f64>,
    /// Object and what, for everything that should be gone at the end.
    pub left_behind: Vec<String>,
    /// Number and what, for every invariant that did not hold.
    pub broken_invariants: Vec<String>,
}

/// The figures of an owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerScore {
    /// Its pods created after the start mark.
    pub moves: u32,
    /// `spec.replicas` at the start mark; its pods where it has no such field.
    pub replicas: u32,
    /// Integral of the replicas that were not Ready over time.
    pub unavailable_pod_seconds: f64,
    /// The most that were not Ready at once.
    pub most_unavailable: u32,
}

/// Nodes that came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Created after the start mark.
    pub made: u32,
    /// Gone after the start mark.
    pub removed: u32,
}

/// The requests of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestCounts {
    /// All of them.
    pub total: u32,
    /// Of those, watches. One that is still open at the end of the recording is logged only when it ends.
    pub watches: u32,
    /// Of those, about leases.
    pub leases: u32,
    /// Of those, answered with 429: a budget that did not allow an eviction, or throttling.
    pub too_many_requests: u32,
    /// By `verb resource[/subresource]`.
    pub by: BTreeMap<String, u32>,
}

/// A pod that was created after the start.
struct Move {
    owner: Owner,
    /// Where it was put, and whether that node was selected.
    on_selected: Option<bool>,
}

impl Scorecard {
    /// Judges a run.
    #[must_use]
    pub fn of(history: &History, input: &JudgeInput) -> Self {
        let case = Case::new(history, input);
        let mut had_to_move: BTreeMap<Owner, u32> = BTreeMap::new();
        for pod in case
            .start
            .all(Kind::Pod)
            .filter(|p| case.on_selected(&case.start, p))
        {
            if let Some(owner) = case.owners.of_live(pod) {
                *had_to_move.entry(owner).or_default() += 1;
            }
        }
        let lacks = lacks(&case);
        let mut owners = BTreeMap::new();
        let mut tally = Tally::default();
        let moves = moves(&case);
        for (owner, &replicas) in &case.baseline {
            let of_owner: Vec<_> = moves.values().filter(|m| m.owner == *owner).collect();
            let made = size(of_owner.len());
            let double = size(
                of_owner
                    .iter()
                    .filter(|m| m.on_selected == Some(true))
                    .count(),
            );
            let due = had_to_move.get(owner).copied().unwrap_or_default();
            tally.moves += made;
            tally.double += double;
            tally.needless += (made - double).saturating_sub(due);
            let lack = lacks.by_owner.get(owner).copied().unwrap_or_default();
            owners.insert(
                owner.to_string(),
                OwnerScore {
                    moves: made,
                    replicas,
                    unavailable_pod_seconds: round(lack.pod_seconds),
                    most_unavailable: lack.most,
                },
            );
        }
        let requests = requests(&case);
        let ours = size(
            case.our_requests()
                .filter(|e| e.at >= case.from && e.at <= case.until)
                .count(),
        );
        Self {
            finished: finished(&case),
            wall_seconds: round(case.until.duration_since(case.from).as_secs_f64()),
            pods: had_to_move.values().sum(),
            moves: tally.moves,
            needless_moves: tally.needless,
            double_moves: tally.double,
            most_unavailable: lacks.most,
            owners,
            nodes: nodes(&case),
            requests,
            requests_per_move: (ours > 0 && tally.moves > 0)
                .then(|| round(f64::from(ours) / f64::from(tally.moves))),
            left_behind: left_behind(&case),
            broken_invariants: check_case(&case).iter().map(ToString::to_string).collect(),
        }
    }
}

#[derive(Default)]
struct Tally {
    moves: u32,
    double: u32,
    needless: u32,
}

/// Every pod that was created after the start mark for an owner of the baseline, and where it was first put.
fn moves(case: &Case) -> BTreeMap<Uid, Move> {
    let mut out: BTreeMap<Uid, Move> = BTreeMap::new();
    let mut state = State::default();
    for change in &case.history.changes {
        state.apply(change);
        let object = &change.object;
        if change.cause == Cause::Initial || change.at <= case.from || object.kind != Kind::Pod {
            continue;
        }
        if change.cause == Cause::Added
            && let Some(owner) = case.owners.of(object)
            && case.baseline.contains_key(&owner)
        {
            let on_selected = None;
            out.insert(object.uid.clone(), Move { owner, on_selected });
        }
        if let Some(made) = out.get_mut(&object.uid)
            && made.on_selected.is_none()
            && object.pod().is_some_and(|p| p.node.is_some())
        {
            made.on_selected =
                Some(node_of(&state, object).is_some_and(|node| case.selected.contains(&node.uid)));
        }
    }
    out
}

fn finished(case: &Case) -> bool {
    let any = !case.selected.is_empty() || !case.input.selected_nodes.is_empty();
    let empty = case.selected.iter().all(|uid| {
        case.end
            .get(Kind::Node, uid)
            .is_none_or(|node| pods_that_stay(&case.end, &node.name).next().is_none())
    });
    any && empty && all_whole(case)
}

fn nodes(case: &Case) -> NodeCounts {
    let mut out = NodeCounts::default();
    for change in case
        .history
        .changes
        .iter()
        .filter(|c| c.object.kind == Kind::Node && c.at > case.from)
    {
        match change.cause {
            Cause::Added => out.made += 1,
            Cause::Deleted => out.removed += 1,
            Cause::Initial | Cause::Modified => {}
        }
    }
    out
}

fn requests(case: &Case) -> BTreeMap<String, RequestCounts> {
    let mut out: BTreeMap<String, RequestCounts> = BTreeMap::new();
    for event in case
        .history
        .audit
        .iter()
        .filter(|e| e.at >= case.from && e.at <= case.until)
    {
        let counts = out.entry(event.agent().to_owned()).or_default();
        counts.total += 1;
        counts.watches += u32::from(event.verb == "watch");
        counts.leases += u32::from(event.is_lease());
        counts.too_many_requests += u32::from(event.code == 429);
        *counts
            .by
            .entry(format!("{} {}", event.verb, event.target()))
            .or_default() += 1;
    }
    out
}

fn size(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// To hundredths: finer than the judge hears.
fn round(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

#[cfg(test)]
#[path = "scorecard_tests.rs"]
mod tests;
