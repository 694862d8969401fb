//! What happened, as events: the difference between two recorded statuses, in words. Pure.

use crate::api::conditions::{ConditionType, find_condition};
use crate::api::status::{NodeRelocationStatus, NodeStatus, Stage, WorkloadState, WorkloadStatus};

/// One event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Something that a person should look at, as opposed to something that goes as it should.
    pub warning: bool,
    pub reason: String,
    pub text: String,
    /// What it is about, besides the relocation. Events that differ only in this are not taken for repetitions of one.
    pub about: Option<About>,
}

/// An object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

impl About {
    /// From the text of a blocker: `Kind namespace/name` or `Kind name`.
    fn parse(object: &str) -> Option<Self> {
        let (kind, name) = object.split_once(' ')?;
        let (namespace, name) = name
            .split_once('/')
            .map_or((None, name), |(namespace, name)| {
                (Some(namespace.to_owned()), name)
            });
        Some(Self {
            kind: kind.to_owned(),
            namespace,
            name: name.to_owned(),
        })
    }
}

fn note(reason: impl Into<String>, text: impl Into<String>, about: Option<About>) -> Note {
    Note {
        warning: false,
        reason: reason.into(),
        text: text.into(),
        about,
    }
}

/// The events between two statuses of a relocation, in the order in which they happened.
#[must_use]
pub fn notes(before: &NodeRelocationStatus, after: &NodeRelocationStatus) -> Vec<Note> {
    let planned = planned(before, after).into_iter();
    let workloads = after.workloads.iter().filter_map(|workload| {
        let old = before.workloads.iter().find(|w| w.uid == workload.uid);
        of_workload(old, workload)
    });
    let nodes = after.nodes.iter().filter_map(|node| {
        let old = before.nodes.iter().find(|n| n.uid == node.uid);
        of_node(old, node)
    });
    planned
        .chain(workloads)
        .chain(nodes)
        .chain(blocked(before, after))
        .chain(stage(before, after))
        .collect()
}

fn planned(before: &NodeRelocationStatus, after: &NodeRelocationStatus) -> Option<Note> {
    let starts = before.start_time.is_none() && after.start_time.is_some();
    if !starts || after.completion_time.is_some() {
        return None;
    }
    let (_, pods) = after.pods();
    let unlisted = after.more_workloads.map_or(0, |more| more.pending as usize);
    let (nodes, workloads) = (after.nodes.len(), after.workloads.len() + unlisted);
    let text = format!(
        "{nodes} nodes are to be emptied, {pods} pods of {workloads} workloads to be moved"
    );
    Some(note("Planned", text, None))
}

fn of_workload(old: Option<&WorkloadStatus>, workload: &WorkloadStatus) -> Option<Note> {
    if old.map_or(WorkloadState::Pending, |w| w.state) == workload.state {
        return None;
    }
    let name = format!("{} {}/{}", workload.kind, workload.namespace, workload.name);
    let about = About::parse(&name);
    let WorkloadStatus {
        pods,
        moved,
        strategy,
        why,
        ..
    } = workload;
    match workload.state {
        WorkloadState::Moving => Some(note(
            "MovingWorkload",
            format!("{name}: {pods} pods by {strategy}: {why}"),
            about,
        )),
        WorkloadState::Moved => Some(note(
            "WorkloadMoved",
            format!("{name}: {moved} of {pods} pods moved, whole again"),
            about,
        )),
        // A blocked workload has a blocker, which is an event of its own.
        WorkloadState::Pending | WorkloadState::Blocked => None,
    }
}

fn of_node(old: Option<&NodeStatus>, node: &NodeStatus) -> Option<Note> {
    let drained = node.stage == Stage::Removing && old.is_none_or(|n| n.stage != Stage::Removing);
    drained.then(|| {
        let text = format!(
            "node {}: nothing is left but what stays, seen twice",
            node.name
        );
        note(
            "NodeDrained",
            text,
            About::parse(&format!("Node {}", node.name)),
        )
    })
}

fn blocked(
    before: &NodeRelocationStatus,
    after: &NodeRelocationStatus,
) -> impl Iterator<Item = Note> {
    let new = after.blockers.iter().filter(|blocker| {
        !before
            .blockers
            .iter()
            .any(|b| b.reason == blocker.reason && b.object == blocker.object)
    });
    new.map(|blocker| Note {
        warning: true,
        reason: blocker.reason.to_string(),
        text: format!("{}: {}", blocker.object, blocker.message),
        about: About::parse(&blocker.object),
    })
}

/// The relocation has come to another stage. What it waits for there is in its status; an event would be old news in a moment.
fn stage(before: &NodeRelocationStatus, after: &NodeRelocationStatus) -> Option<Note> {
    let ready = |status: &NodeRelocationStatus| {
        find_condition(&status.conditions, ConditionType::Ready).cloned()
    };
    let now = ready(after)?;
    if ready(before).is_some_and(|old| old.reason == now.reason) {
        return None;
    }
    let stage = Stage::ALL
        .into_iter()
        .find(|stage| stage.as_str() == now.reason)?;
    let (warning, text) = match stage {
        // Said by the blockers.
        Stage::Blocked => return None,
        Stage::Succeeded => (false, now.message),
        Stage::Failed => (true, now.message),
        Stage::RollingBack => (true, stage.does().to_owned()),
        other => (false, other.does().to_owned()),
    };
    Some(Note {
        warning,
        reason: now.reason,
        text,
        about: None,
    })
}
