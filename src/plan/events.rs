//! What happened, as events: the difference between two recorded statuses, in words. Pure.

use crate::api::status::{NodeRelocationStatus, Stage, WorkloadState};

/// One event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Something that a person should look at, as opposed to something that goes as it should.
    pub warning: bool,
    pub reason: String,
    pub text: String,
}

fn note(reason: impl Into<String>, text: impl Into<String>) -> Note {
    Note {
        warning: false,
        reason: reason.into(),
        text: text.into(),
    }
}

/// The events between two statuses of a relocation, in the order in which they happened.
#[must_use]
pub fn notes(before: &NodeRelocationStatus, after: &NodeRelocationStatus) -> Vec<Note> {
    let mut notes = Vec::new();
    if before.start_time.is_none() && after.start_time.is_some() && after.completion_time.is_none()
    {
        let pods: u32 = after.workloads.iter().map(|w| w.pods).sum();
        let text = format!(
            "{} nodes are to be emptied, {pods} pods of {} workloads to be moved",
            after.nodes.len(),
            after.workloads.len()
        );
        notes.push(note("Planned", text));
    }
    for workload in &after.workloads {
        let old = before
            .workloads
            .iter()
            .find(|w| w.uid == workload.uid)
            .map_or(WorkloadState::Pending, |w| w.state);
        let name = format!("{} {}/{}", workload.kind, workload.namespace, workload.name);
        if old != workload.state {
            match workload.state {
                WorkloadState::Moving => {
                    notes.push(note(
                        "MovingWorkload",
                        format!(
                            "{name}: {} by {:?}: {}",
                            workload.pods, workload.strategy, workload.why
                        ),
                    ));
                }
                WorkloadState::Moved => notes.push(note(
                    "WorkloadMoved",
                    format!(
                        "{name}: {} of {} pods moved, whole again",
                        workload.moved, workload.pods
                    ),
                )),
                WorkloadState::Pending | WorkloadState::Blocked => {}
            }
        }
    }
    for node in &after.nodes {
        let old = before
            .nodes
            .iter()
            .find(|n| n.uid == node.uid)
            .map(|n| n.stage);
        if old != Some(node.stage) {
            match node.stage {
                Stage::Draining => notes.push(note(
                    "NodeEmpty",
                    format!("node {}: nothing is left but what stays", node.name),
                )),
                Stage::Removing => notes.push(note(
                    "NodeDrained",
                    format!(
                        "node {}: empty and detached, confirmed by a second read",
                        node.name
                    ),
                )),
                _ => {}
            }
        }
    }
    for blocker in &after.blockers {
        if !before
            .blockers
            .iter()
            .any(|b| b.reason == blocker.reason && b.object == blocker.object)
        {
            let text = format!("{}: {}", blocker.object, blocker.message);
            notes.push(Note {
                warning: true,
                reason: blocker.reason.to_string(),
                text,
            });
        }
    }
    let ready = |status: &NodeRelocationStatus| {
        status
            .conditions
            .iter()
            .find(|c| c.type_ == "Ready")
            .map(|c| (c.reason.clone(), c.message.clone()))
    };
    if let Some((stage, message)) = ready(after)
        && ready(before).is_none_or(|(old, _)| old != stage)
        && stage != Stage::Blocked.to_string()
    {
        let warning = stage == Stage::Failed.to_string() || stage == Stage::RollingBack.to_string();
        notes.push(Note {
            warning,
            reason: stage,
            text: message,
        });
    }
    notes
}
