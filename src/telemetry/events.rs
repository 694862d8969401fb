//! Events on relocations and nodes. Best effort: an event that can't be published is logged.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tokio::sync::mpsc;

use crate::api::relocation::NodeRelocation;
use crate::plan::{Action, Leftover, NodeHandle, Note, Restore};
use crate::world::{PodRef, Uid, WorkloadRef};

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
                        tracing::warn!(reason = event.reason, %error, "event not published");
                    }
                    Err(_) => {
                        tracing::warn!(reason = event.reason, "event not published: no answer");
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
        let related = note.about.as_ref().map(|about| ObjectReference {
            kind: Some(about.kind.clone()),
            namespace: about.namespace.clone(),
            name: Some(about.name.clone()),
            ..ObjectReference::default()
        });
        let event = event(type_, &note.reason, "Relocate", note.text.clone(), related);
        self.send(event, relocation.object_ref(&()));
    }

    /// An event for an action that was carried out, where a person would look for it.
    pub fn acted(&self, relocation: &NodeRelocation, action: &Action) {
        let name = relocation.metadata.name.clone().unwrap_or_default();
        let on_relocation = |reason, verb, text, related| {
            let event = event(EventType::Normal, reason, verb, text, Some(related));
            self.send(event, relocation.object_ref(&()));
        };
        let on_node = |reason, verb, text, node: &NodeHandle| {
            let event = event(EventType::Normal, reason, verb, text, None);
            self.send(event, node_reference(node.name.as_str(), Some(&node.uid)));
        };
        match action {
            Action::Evict { pod, node } => {
                let text = format!("pod {pod} evicted from node {node}");
                on_relocation("Evicted", "Evict", text, pod_reference(pod));
            }
            Action::Restart { workload, .. } => {
                let text = format!("{workload} restarted");
                on_relocation("Restarted", "Restart", text, workload_reference(workload));
            }
            Action::Surge { workload, mark, .. } => {
                let text = format!(
                    "{workload}: replicas raised from {} to {} for the move",
                    mark.from, mark.to
                );
                on_relocation("SurgeStarted", "Surge", text, workload_reference(workload));
            }
            Action::Restore(Restore::EndSurge {
                workload, replicas, ..
            }) => {
                let text = match replicas {
                    Some(n) => format!("{workload}: replicas back at {n}"),
                    None => {
                        format!("{workload}: somebody else has set the replicas, which stay so")
                    }
                };
                on_relocation("SurgeEnded", "Surge", text, workload_reference(workload));
            }
            Action::DeleteNodeClaim {
                name: claim, node, ..
            } => {
                let text = format!("NodeClaim {claim} of the empty node {node} deleted");
                let related = node_reference(node.as_str(), None);
                on_relocation("NodeClaimDeleted", "Remove", text, related);
            }
            Action::Cordon { node } => {
                let text = format!("cordoned by NodeRelocation {name}");
                on_node("RelocationCordoned", "Cordon", text, node);
            }
            Action::Restore(Restore::ReleaseNode { node, uncordon, .. }) => {
                let verb = if *uncordon { "uncordoned" } else { "released" };
                let text = format!("{verb} by NodeRelocation {name}");
                on_node("RelocationReleased", "Restore", text, node);
            }
            Action::AddFinalizer
            | Action::RemoveFinalizer
            | Action::DeleteRelocation
            | Action::ClaimNode { .. }
            | Action::ProtectNode { .. }
            | Action::ProtectPod { .. }
            | Action::CheapenPod { .. }
            | Action::CreatePlaceholder(_)
            | Action::Restore(
                Restore::UnprotectPod { .. }
                | Restore::UncheapenPod { .. }
                | Restore::DeletePlaceholder { .. },
            ) => {}
        }
    }

    /// An event on a node that a sweep has released. What else a sweep restores is not told by events: those of pods and Deployments
    /// would be in their namespaces, where relocator may not write any.
    pub fn swept(&self, leftover: &Leftover) {
        if let Restore::ReleaseNode { node, .. } = &leftover.restore {
            let text = format!(
                "taken away: {}, which exists no more or is over",
                leftover.what()
            );
            let event = event(EventType::Normal, "RelocationReleased", "Sweep", text, None);
            self.send(event, node_reference(node.name.as_str(), Some(&node.uid)));
        }
    }

    fn send(&self, event: Event, object: ObjectReference) {
        if let Err(error) = self.0.try_send((event, object)) {
            tracing::warn!(%error, "event dropped: too many are waiting to be published");
        }
    }
}

fn event(
    type_: EventType,
    reason: &str,
    action: &str,
    mut text: String,
    secondary: Option<ObjectReference>,
) -> Event {
    if text.len() > LONGEST_NOTE {
        text.truncate(text.floor_char_boundary(LONGEST_NOTE));
    }
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(text),
        action: action.to_owned(),
        secondary,
    }
}

fn node_reference(name: &str, uid: Option<&Uid>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(name.into()),
        uid: uid.map(ToString::to_string),
        ..ObjectReference::default()
    }
}

fn pod_reference(pod: &PodRef) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

fn workload_reference(workload: &WorkloadRef) -> ObjectReference {
    ObjectReference {
        api_version: Some("apps/v1".into()),
        kind: Some(workload.kind.to_string()),
        namespace: Some(workload.namespace.clone()),
        name: Some(workload.name.clone()),
        uid: Some(workload.uid.to_string()),
        ..ObjectReference::default()
    }
}
