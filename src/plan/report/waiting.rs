//! Waits in words: what comes by itself, for status and logs. Pure.

use std::fmt;

use crate::api::bounds::MAX_FINDING_BYTES;
use crate::api::conditions::cut;
use crate::world::{NodeName, PodRef, WorkloadRef};

/// Something that will come by itself, and what it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// The nodes that have not got our mark yet.
    Claims(usize),
    Cordons(usize),
    /// Placeholders without a ready node.
    Places {
        placed: usize,
        wanted: usize,
        why: Option<String>,
    },
    /// A place for the next pod of this workload.
    Place(WorkloadRef),
    Restarted(WorkloadRef),
    /// The pods that were added to the replica count of this workload.
    Surged {
        workload: WorkloadRef,
        arrived: usize,
        wanted: usize,
        why: Option<String>,
    },
    /// The workload has to be whole again first.
    Whole {
        workload: WorkloadRef,
        ready: usize,
        replicas: usize,
    },
    /// The owner above the workload says that it is not well.
    Well {
        owner: String,
        said: String,
    },
    Settling(WorkloadRef),
    Stopping {
        pod: PodRef,
        finalizers: Vec<String>,
    },
    /// The node of a pod is gone: Kubernetes removes such pods after a while.
    Orphan {
        pod: PodRef,
        node: NodeName,
    },
    Budget {
        pod: PodRef,
        budget: String,
        healthy: i32,
        desired: i32,
    },
    /// Another workload that shares a budget moves first.
    Turn {
        workload: WorkloadRef,
        shared: String,
    },
    /// The others, before what they need for moving is moved itself.
    Last {
        workload: WorkloadRef,
        until: String,
    },
    /// `workloads.maxConcurrent` pods are on the move.
    Slot(WorkloadRef),
    Job {
        job: String,
        node: NodeName,
    },
    /// A pod that a rule leaves to its owner.
    Owner {
        pod: PodRef,
        node: NodeName,
    },
    /// Other workloads move first.
    Order {
        workload: WorkloadRef,
        /// The first of those that come before it.
        first: String,
        /// How many more there are.
        more: usize,
        why: &'static str,
    },
    /// The placeholder of another relocation.
    GivesWay {
        placeholder: PodRef,
        node: NodeName,
    },
    SecondRead(NodeName),
    Detach {
        node: NodeName,
        volumes: usize,
    },
    Gone(NodeName),
    Retry {
        object: String,
        why: String,
    },
    Release(usize),
}

fn stopping(pod: &PodRef, finalizers: &[String]) -> String {
    if finalizers.is_empty() {
        return format!("pod {pod} to stop");
    }
    let finalizers = finalizers.join(", ");
    format!("pod {pod} to stop and to lose its finalizers ({finalizers})")
}

fn in_brackets(why: Option<&String>) -> String {
    why.map(|why| format!(" ({why})")).unwrap_or_default()
}

fn and_more(more: usize) -> String {
    match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claims(n) => write!(f, "{n} nodes to be claimed and protected"),
            Self::Cordons(n) => write!(f, "{n} nodes to be cordoned"),
            Self::Places {
                placed,
                wanted,
                why,
            } => write!(
                f,
                "{placed} of {wanted} placeholders have a ready node{}",
                in_brackets(why.as_ref())
            ),
            Self::Place(workload) => write!(f, "a ready place for the next pod of {workload}"),
            Self::Surged {
                workload,
                arrived,
                wanted,
                why,
            } => write!(
                f,
                "new pods of {workload}: {arrived} of {wanted} ready{}",
                in_brackets(why.as_ref())
            ),
            Self::Restarted(workload) => write!(f, "{workload} to finish its restart"),
            Self::Whole {
                workload,
                ready,
                replicas,
            } => write!(f, "{workload} to be whole: {ready} of {replicas} ready"),
            Self::Well { owner, said } => {
                write!(f, "{owner} to be Ready by its own word: {said}")
            }
            Self::Settling(workload) => write!(f, "{workload} to settle"),
            Self::Stopping { pod, finalizers } => f.write_str(&stopping(pod, finalizers)),
            Self::Orphan { pod, node } => {
                write!(f, "pod {pod} to be removed, whose node {node} is gone")
            }
            Self::Budget {
                pod,
                budget,
                healthy,
                desired,
            } => {
                write!(
                    f,
                    "{budget} to allow the eviction of {pod}: {healthy} healthy, {desired} desired"
                )
            }
            Self::Turn { workload, shared } => write!(
                f,
                "the turn of {workload}: it shares {shared} with one that is moving"
            ),
            Self::Last { workload, until } => {
                write!(
                    f,
                    "{until}, before {workload}, which is needed for that, is moved"
                )
            }
            Self::Slot(workload) => write!(
                f,
                "a free slot for {workload} within workloads.maxConcurrent"
            ),
            Self::Job { job, node } => write!(f, "{job} to finish on node {node}"),
            Self::Owner { pod, node } => write!(
                f,
                "pod {pod} to leave node {node}, which a rule with strategy Wait leaves to others"
            ),
            Self::Order {
                workload,
                first,
                more,
                why,
            } => {
                let others = and_more(*more);
                write!(
                    f,
                    "{first}{others} to have moved, before {workload} does: {why}"
                )
            }
            Self::GivesWay { placeholder, node } => {
                write!(
                    f,
                    "placeholder {placeholder} to be taken away from node {node}"
                )
            }
            Self::SecondRead(node) => write!(
                f,
                "a second look at node {node} to confirm that it is empty"
            ),
            Self::Detach { node, volumes } => {
                write!(f, "{volumes} volumes to detach from node {node}")
            }
            Self::Gone(node) => write!(f, "node {node} to be removed"),
            Self::Retry { object, why } => write!(f, "{object}: {why}"),
            Self::Release(n) => write!(f, "{n} marks or placeholders to be taken away"),
        }
    }
}

/// The waits in one sentence: the first few, and how many more.
pub(in crate::plan) fn sentence(waits: &[Waiting]) -> String {
    const SHOWN: usize = 3;
    let mut shown: Vec<_> = waits.iter().collect();
    shown.sort();
    shown.dedup();
    let more = shown.len().saturating_sub(SHOWN);
    let mut text = shown
        .iter()
        .take(SHOWN)
        .map(|waiting| cut(waiting.to_string(), MAX_FINDING_BYTES))
        .collect::<Vec<_>>()
        .join("; ");
    if more > 0 {
        text = format!("{text}; and {more} more");
    }
    text
}
