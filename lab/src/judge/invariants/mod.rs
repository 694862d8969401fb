//! The invariants of design.md 6 that can be judged from outside: each a function that names the offending request or event. Pure.
//!
//! "At that time" is the state just before the revision that a request made, so no clock decides. Not judged here: 12 (the
//! tests that crash it compare ends), 13 (what it knew can't be seen) and 14 (the tests wait for the end). One more is judged, 15: plan and
//! outcome agree.
mod announced;
mod budgets;
mod nodes;
mod places;
mod pods;
mod writes;

use std::fmt;

use jiff::Timestamp;

use super::analysis::Case;
use super::audit::{AuditEvent, Identity};
use super::history::History;
use super::input::JudgeInput;

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its number in design.md 6; 0 if the judge itself missed something, so that no verdict can be relied on.
    pub invariant: u8,
    /// The request or event, and what is wrong with it.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// The numbers that [`check`] knows.
pub const JUDGED: [u8; 13] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15];

/// Judges all invariants.
#[must_use]
pub fn check_all(history: &History, input: &JudgeInput) -> Vec<Broken> {
    check_case(&Case::new(history, input))
}

/// Judges one invariant. Of a number that is not judged nothing is ever broken.
#[must_use]
pub fn check(invariant: u8, history: &History, input: &JudgeInput) -> Vec<Broken> {
    check_one(&Case::new(history, input), invariant)
}

pub(crate) fn check_case(case: &Case) -> Vec<Broken> {
    JUDGED.iter().flat_map(|&n| check_one(case, n)).collect()
}

fn check_one(case: &Case, invariant: u8) -> Vec<Broken> {
    let what = match invariant {
        0 => gaps(case),
        1 => pods::leave_by_eviction(case),
        2 => pods::only_selected_nodes(case),
        3 => budgets::budgets_hold(case),
        4 => pods::one_of_a_stateful_set(case),
        5 => places::place_is_ready(case),
        6 => nodes::deleted_only_when_empty(case),
        7 => writes::nothing_left_behind(case),
        8 => nodes::foreign_cordons_stay(case),
        9 => writes::one_restart(case),
        10 => writes::quiet(case),
        11 => nodes::one_claim(case),
        15 => announced::plan_is_kept(case),
        _ => Vec::new(),
    };
    what.into_iter()
        .map(|what| Broken { invariant, what })
        .collect()
}

/// A watch that was interrupted for too long.
fn gaps(case: &Case) -> Vec<String> {
    case.history
        .gaps
        .iter()
        .map(|g| {
            format!(
                "the judge did not see all changes of {} between the revisions {} and {}",
                g.kind.resource(),
                g.after,
                g.until
            )
        })
        .collect()
}

/// The writes of an identity that were received in a span of time, both ends included, without those to its lease. Refused
/// ones too: what is refused for ever is not a stable state either.
#[must_use]
pub fn writes_between<'a>(
    history: &'a History,
    who: &Identity,
    from: Timestamp,
    to: Timestamp,
) -> Vec<&'a AuditEvent> {
    history
        .audit
        .iter()
        .filter(|e| e.is_write() && !e.is_lease() && e.at >= from && e.at <= to && who.made(e))
        .collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_nodes;
