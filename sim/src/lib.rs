//! A simulated cluster in virtual time, in which the real operator (its observer, planner, actor and controller) is given every fault
//! there is, and the lab's judge says what came of it.
//!
//! ```text
//! seed ──> Scenario, Profile ──> run ──┬─ store, server     the API server: objects, revisions, watches, evictions
//!                                      ├─ controllers       scheduler, workloads, kubelets, Karpenter, GitOps, an adversary
//!                                      ├─ operator ── wire  the real operator; what goes wrong on its connection (fault)
//!                                      └─ Outcome           the judge's verdict, what was done and how it ended
//! ```
//!
//! Everything is in one thread and in virtual time: the same seed gives the same run, to the last request.

// A tool for tests: an index that is out of range is a bug in it, and the panic says where.
#![expect(
    clippy::indexing_slicing,
    reason = "a choice by the seed is an index into what is there"
)]

pub mod campaign;
pub mod controllers;
pub mod fault;
pub mod json;
pub mod operator;
pub mod profile;
pub mod resource;
pub mod run;
pub mod scenario;
pub mod server;
pub mod store;
mod story;
mod verdict;
pub mod wire;
