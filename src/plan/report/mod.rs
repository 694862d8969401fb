//! Findings in words: one wording for status, events and logs, one file a subject. Pure. What comes by itself is in `waiting`.

mod nodes;
mod places;
mod pods;
mod requests;
mod waiting;
mod workloads;

use std::fmt;

use crate::api::status::Reason;

pub use waiting::Waiting;
pub(in crate::plan) use waiting::sentence;

/// Something that a person should know of the plan: as a blocker it has to be changed before the relocation goes on, which it does by
/// itself once that is done; as a warning it is what the plan costs, or what may go wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub reason: Reason,
    /// What it is about, as `Kind namespace/name`.
    pub object: String,
    /// What there is, and what a person can do.
    pub message: String,
}

impl Finding {
    fn new(reason: Reason, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason,
            object: object.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.message)
    }
}
