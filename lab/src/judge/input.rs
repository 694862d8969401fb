//! What a judge has to be told of a run, because no watch shows it. Pure.
use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::audit::Identity;

/// A span of time, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// From.
    pub from: Timestamp,
    /// To.
    pub to: Timestamp,
}

/// What was asked for in the run that is judged.
#[derive(Clone, Debug)]
pub struct JudgeInput {
    /// Whose requests are judged.
    pub relocator: Identity,
    /// The start mark, such as the moment of the apply; the start of the recording if None.
    pub start: Option<Timestamp>,
    /// The end mark, such as the moment at which it said that it is ready; the end of the recording if None.
    pub end: Option<Timestamp>,
    /// The nodes that were to be emptied, by name at the start mark. Empty: those that were cordoned, put in deletion or
    /// removed after the start mark.
    pub selected_nodes: BTreeSet<String>,
    /// Nodes on which a new cordon is meant to stay (`afterDrain: Keep`).
    pub expected_cordons: BTreeSet<String>,
    /// Where placeholders live.
    pub placeholder_namespace: String,
    /// Labels, annotations, taints and finalizers that start so must be gone at the end.
    pub marker_prefixes: Vec<String>,
    /// Times in which nothing may be written.
    pub quiet: Vec<Interval>,
    /// How long after a request the judge may hear of its effect. Used only where the audit log and the watches have
    /// to be matched by time.
    pub watch_lag: SignedDuration,
}

impl Default for JudgeInput {
    fn default() -> Self {
        Self {
            relocator: Identity::relocator(),
            start: None,
            end: None,
            selected_nodes: BTreeSet::new(),
            expected_cordons: BTreeSet::new(),
            placeholder_namespace: "relocator-placeholders".to_owned(),
            marker_prefixes: vec!["relocation.sh/".to_owned()],
            quiet: Vec::new(),
            // Seen on two loaded cores: under a second. Longer makes a mistaken match of two writes more likely.
            watch_lag: SignedDuration::from_secs(2),
        }
    }
}
