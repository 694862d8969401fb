//! relocator, the program that people run, on a real control plane, judged by what the API server saw.
//!
//! Each test is a story: the world, what is asked of relocator, what must be true. It runs as the service account of
//! `deploy/` and may do what that grants. Nothing here waits for a time to pass: every wait is for a condition.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod beside;
mod held;
mod shared;
mod world;

mod after_drain;
mod bad_input;
mod blocked;
mod case_budgets;
mod case_eviction;
mod case_lead;
mod case_lost;
mod case_owners;
mod case_putback;
mod case_quiet;
mod case_rollouts;
mod case_room;
mod case_scaled;
mod case_sets;
mod case_silent;
mod case_system;
mod case_volumes;
mod chart;
mod combos;
mod crash;
#[cfg(feature = "crash-test")]
mod crash_sweep;
mod drifted_pool;
mod edits;
mod faults;
mod forbidden;
mod generations;
mod leaders;
mod migration;
mod mixed_fleet;
mod quiet;
mod room_refused;
mod several;
mod stopping;
mod sweep;
mod telemetry;
mod uncordoned;
mod undo;
