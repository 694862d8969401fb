//! Attaching and detaching of volumes that one node at a time can use. A pod with one starts only where it is attached.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Controller, after, earliest, is_finished, name, node_of};
use crate::json::{at, list, set, text};
use crate::resource::Resource;
use crate::store::Store;

/// Attachments that nobody uses any more, and when they are gone.
#[derive(Default)]
pub(super) struct Volumes {
    leaving: BTreeMap<String, Timestamp>,
}

/// The claims of a pod, by name.
pub(super) fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    list(pod, &["spec", "volumes"])
        .iter()
        .map(|v| text(v, &["persistentVolumeClaim", "claimName"]))
        .filter(|claim| !claim.is_empty())
}

/// Whether every volume of the pod is attached to its node.
pub(super) fn attached(store: &Store, pod: &Value) -> bool {
    claims(pod).all(|claim| {
        store.all(Resource::Attachments).any(|a| {
            text(a, &["spec", "source", "persistentVolumeName"]) == claim
                && text(a, &["spec", "nodeName"]) == node_of(pod)
                && at(a, &["status", "attached"]).as_bool() == Some(true)
        })
    })
}

impl Controller for Volumes {
    fn looks_at(&self) -> &'static [Resource] {
        &[Resource::Pods, Resource::Attachments, Resource::Nodes]
    }

    fn run(&mut self, store: &mut Store, rng: &mut Rng) -> Option<Timestamp> {
        let now = store.now();
        let used: BTreeSet<(String, String)> = store
            .all(Resource::Pods)
            .filter(|p| !node_of(p).is_empty() && !is_finished(p))
            .flat_map(|p| claims(p).map(|claim| (claim.to_owned(), node_of(p).to_owned())))
            .collect();
        let mut attached = BTreeSet::new();
        let mut next = None;
        let all: Vec<_> = store.all(Resource::Attachments).cloned().collect();
        for attachment in all {
            let volume = text(&attachment, &["spec", "source", "persistentVolumeName"]).to_owned();
            let node = text(&attachment, &["spec", "nodeName"]).to_owned();
            let key = name(&attachment).to_owned();
            if used.contains(&(volume.clone(), node)) {
                self.leaving.remove(&key);
                attached.insert(volume);
                continue;
            }
            let gone = *self
                .leaving
                .entry(key.clone())
                .or_insert_with(|| after(now, 1.0 + 2.0 * rng.f64()));
            if gone <= now {
                self.leaving.remove(&key);
                store.remove(
                    Resource::Attachments,
                    "",
                    &key,
                    text(&attachment, &["metadata", "uid"]),
                );
            } else {
                next = earliest(next, Some(gone));
                attached.insert(volume);
            }
        }
        for (volume, node) in used {
            // Attached elsewhere, or about to leave there: it has to wait.
            if attached.contains(&volume) || store.get(Resource::Nodes, "", &node).is_none() {
                continue;
            }
            let mut attachment = json!({
                "metadata": {"name": format!("csi-{volume}-{node}")},
                "spec": {"attacher": "csi.sim", "nodeName": node, "source": {"persistentVolumeName": volume}},
            });
            set(&mut attachment, &["status", "attached"], true);
            // There already: it was seen above.
            let _there = store.create(Resource::Attachments, attachment);
        }
        next
    }
}
