//! A real Kubernetes control plane on loopback, and a judge of what its API server saw.
//!
//! ```text
//! chart       Helm, and the files that are made from the chart
//! programs    builds etcd, Kubernetes, KWOK and Karpenter from Go modules into a cache
//! cluster     Lab: starts them in a folder of their own, and ends them when it is dropped
//! detached    a lab for people, which outlives the command that started it
//! fixtures    nodes, workloads and the scenario that the project's figures are about
//! wait        conditions with a deadline, whose error says what was seen last
//! operator    relocator itself: installed, run under its service account, and watched
//! usage       what programs take of the machine
//! judge       what happened in a run, from watches and the audit log
//! ```
//!
//! Below those: `process` (a program that never outlives its owner), `stages` (how the fake kubelets treat
//! pods), `identity` (certificates, users, kubeconfigs), `ports`.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use lab::{Lab, LabOptions, fixtures};
//!
//! let lab = Lab::start(LabOptions::default()).await?;
//! lab.put(&fixtures::fake_node("node-1", "4", &[])).await?;
//! lab.put(&fixtures::deployment("web", 3)).await?;
//! fixtures::wait_settled(&lab).await?;
//! # Ok(()) }
//! ```

pub mod chart;
mod cluster;
pub mod detached;
pub mod fixtures;
mod identity;
pub mod judge;
pub mod operator;
mod ports;
pub mod process;
pub mod programs;
mod stages;
mod tether;
pub mod usage;
pub mod wait;

pub use cluster::{AuditLevel, KEEP_VARIABLE, Lab, LabError, LabOptions, put};
pub use programs::Program;
pub use stages::{NEVER_ENDS_LABEL, NEVER_READY_LABEL, PodTimes};
pub use wait::{NotYet, WaitError, wait_until};
