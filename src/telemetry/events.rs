//! Events on relocations and nodes. Best effort: an event that can't be published is logged.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tokio::sync::mpsc;

use crate::api::relocation::NodeRelocation;
use crate::plan::{Action, Note};

/// The API server refuses notes over 1 kB.
const LONGEST_NOTE: usize = 1000;
/// More than this many waiting means that the API server does not take them: the rest are dropped.
const QUEUE: usize = 1000;
const DEADLINE: Duration = Duration::from_secs(10);

/// Publishes events in the order given, beside the work.
#[derive(Clone)]
pub struct Events(mpsc::Sender<(Event, ObjectReference)>);

impl Events {
    /// Starts the publisher.
    #[must_use]
    pub fn start(client: Client, instance: &str) -> Self {
        let reporter = Reporter {
            controller: "relocator".into(),
            instance: Some(instance.to_owned()),
        };
        let recorder = Recorder::new(client, reporter);
        let (sender, mut receiver) = mpsc::channel::<(Event, ObjectReference)>(QUEUE);
        tokio::spawn(async move {
            while let Some((event, object)) = receiver.recv().await {
                match tokio::time::timeout(DEADLINE, recorder.publish(&event, &object)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(reason = event.reason, %error, "event not published")
                    }
                    Err(_) => {
                        tracing::warn!(reason = event.reason, "event not published: no answer")
                    }
                }
            }
        });
        Self(sender)
    }

    /// An event on the relocation.
    pub fn note(&self, relocation: &NodeRelocation, note: &Note) {
        let type_ = if note.warning {
            EventType::Warning
        } else {
            EventType::Normal
        };
        self.send(
            type_,
            &note.reason,
            "Relocate",
            note.text.clone(),
            relocation.object_ref(&()),
        );
    }

    /// An event for an action that was carried out, where a person would look for it.
    pub fn acted(&self, relocation: &NodeRelocation, action: &Action) {
        let name = relocation.metadata.name.clone().unwrap_or_default();
        let normal = EventType::Normal;
        match action {
            Action::Evict { pod, node } => {
                self.send(
                    normal,
                    "Evicted",
                    "Evict",
                    format!("pod {pod} evicted from node {node}"),
                    relocation.object_ref(&()),
                );
            }
            Action::Restart { workload, .. } => {
                self.send(
                    normal,
                    "Restarted",
                    "Restart",
                    format!("{workload} restarted"),
                    relocation.object_ref(&()),
                );
            }
            Action::DeleteNodeClaim {
                name: claim, node, ..
            } => {
                let text = format!("NodeClaim {claim} of the empty node {node} deleted");
                self.send(
                    normal,
                    "NodeClaimDeleted",
                    "Remove",
                    text,
                    relocation.object_ref(&()),
                );
            }
            Action::Cordon { node } => {
                let text = format!("cordoned by NodeRelocation {name}");
                self.send(
                    normal,
                    "RelocationCordoned",
                    "Cordon",
                    text,
                    node_reference(node.name.as_str(), node.uid.as_str()),
                );
            }
            Action::ReleaseNode { node, uncordon, .. } => {
                let text = if *uncordon {
                    format!("uncordoned by NodeRelocation {name}")
                } else {
                    format!("released by NodeRelocation {name}")
                };
                self.send(
                    normal,
                    "RelocationReleased",
                    "Restore",
                    text,
                    node_reference(node.name.as_str(), node.uid.as_str()),
                );
            }
            Action::AddFinalizer
            | Action::RemoveFinalizer
            | Action::ClaimNode { .. }
            | Action::ProtectNode { .. }
            | Action::ProtectPod { .. }
            | Action::UnprotectPod { .. }
            | Action::CreatePlaceholder(_)
            | Action::DeletePlaceholder { .. } => {}
        }
    }

    fn send(
        &self,
        type_: EventType,
        reason: &str,
        action: &str,
        mut text: String,
        object: ObjectReference,
    ) {
        if text.len() > LONGEST_NOTE {
            text.truncate(text.floor_char_boundary(LONGEST_NOTE));
        }
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(text),
            action: action.to_owned(),
            secondary: None,
        };
        if self.0.try_send((event, object)).is_err() {
            tracing::warn!(
                reason,
                "event dropped: too many are waiting to be published"
            );
        }
    }
}

fn node_reference(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(name.into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}
