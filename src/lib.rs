//! relocator moves stateful pods off nodes, safely and at a time that people choose.
//!
//! ```text
//! watch events ──> reconcile(name)                        a wake-up only, never data
//!                     │ 1 observe   API ──> World         a snapshot; what could not be read is Unknown
//!                     │ 2 plan      World ──> Plan        pure: no client, no clock, no await, no randomness
//!                     │ 3 record    Plan.status ──> API   with resourceVersion, before any effect; 409 ends the pass
//!                     │ 4 act       Plan.actions ──> API  each with its own precondition and deadline
//!                     └ requeue(Plan.wake_after)          what happened is learned by observing again
//! ```
//!
//! | module | what it is for |
//! |---|---|
//! | [`api`] | the wire types; no kube client |
//! | [`world`] | what was observed, as plain data |
//! | [`plan`] | decisions: pure |
//! | [`observe`] | the API as a world: watches and fresh reads |
//! | [`act`] | one file an action: requests with preconditions |
//! | [`controller`] | wiring: wake-ups in, passes out |
//! | [`sweep`] | wiring: puts back what belongs to relocations that exist no more |
//! | [`clock`] | the time |
//! | [`lease`] | leadership |
//! | [`telemetry`] | events and logs |

pub mod act;
pub mod api;
pub mod clock;
pub mod controller;
#[cfg(feature = "crash-test")]
pub mod crash;
pub mod lease;
pub mod observe;
pub mod plan;
pub mod sweep;
pub mod telemetry;
pub mod world;
