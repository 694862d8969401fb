//! The planner in memory: decisions alone, and whole relocations in a toy cluster whose controllers are a few lines each.
//!
//! No API server, no clock, no sleep. The invariants are checked on every action, before it is carried out, against the world as it is
//! then, which is not always the one that the planner has seen.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(clippy::too_many_lines, reason = "a table of cases is long")]

mod absurd;
mod attach;
mod batches;
mod blockers;
mod cases;
mod cases_evictions;
mod cases_order;
mod controllers;
mod edits;
mod hand;
mod near;
mod nodes;
mod oracle;
mod placement;
mod random;
mod restarts;
mod size;
mod stages;
mod strategies;
mod sweep;
mod system;
mod toy;
mod undone;
mod volumes;
mod wake;
