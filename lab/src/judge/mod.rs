//! The judge: what a run did to a cluster, from watches and the API server's audit log, independent of the program judged.
//!
//! ```text
//! Recorder ── watches, audit log ──> History ──┬─ Scorecard::of(&History, &JudgeInput)   figures
//!                                              └─ check_all(&History, &JudgeInput)       invariants of design.md 6
//! snapshot(client) ──> ClusterState::differences(&later)                                 what else changed
//! ```
//!
//! Only `record` and `snapshot` talk to an API server, and only `audit` reads a file; all else is pure.
pub mod audit;
pub mod history;
pub mod input;
pub mod invariants;
pub mod object;
pub mod owners;
pub mod quantity;
pub mod record;
pub mod scorecard;
pub mod snapshot;
pub mod table;

mod analysis;
mod availability;
mod json;
mod left_behind;
#[cfg(test)]
mod story;

pub use audit::{AuditError, AuditEvent, Identity, read_audit_log};
pub use history::{Cause, Change, Gap, History, State};
pub use input::{Interval, JudgeInput};
pub use invariants::{Broken, check_all, writes_between};
pub use object::{Detail, Kind, Object, Uid};
pub use record::{RecordError, Recorder, RecorderOptions};
pub use scorecard::{NodeCounts, OwnerScore, RequestCounts, Scorecard};
pub use snapshot::{ClusterState, SnapshotError, snapshot};
