//! Garbage: what an owner that is gone leaves behind, pods of nodes that are gone, pods of nodes that are away for long.

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Controller, MANAGER, delete, earliest, is_terminating, name, namespace, node_of, uid};
use crate::json::{list, text};
use crate::resource::Resource;
use crate::store::Store;

pub(super) struct Collector;

/// How long pods stay bound to a node that is not Ready (the default tolerations of 300 s).
const TOLERATED: SignedDuration = SignedDuration::from_secs(300);

impl Controller for Collector {
    fn looks_at(&self) -> &'static [Resource] {
        &[
            Resource::Pods,
            Resource::Nodes,
            Resource::Relocations,
            Resource::ReplicaSets,
            Resource::Deployments,
            Resource::StatefulSets,
        ]
    }

    fn run(&mut self, store: &mut Store, _rng: &mut Rng) -> Option<Timestamp> {
        const OWNED: [Resource; 2] = [Resource::Pods, Resource::ReplicaSets];
        for resource in OWNED {
            let orphans: Vec<_> = store
                .all(resource)
                .filter(|o| !is_terminating(o) && orphaned(store, o))
                .cloned()
                .collect();
            for orphan in orphans {
                delete(store, resource, &orphan, MANAGER);
            }
        }
        let mut next = None;
        let pods: Vec<_> = store
            .all(Resource::Pods)
            .filter(|p| !node_of(p).is_empty())
            .cloned()
            .collect();
        for pod in pods {
            match store.get(Resource::Nodes, "", node_of(&pod)) {
                // By force: nothing runs there any more.
                None => store.remove(Resource::Pods, namespace(&pod), name(&pod), uid(&pod)),
                Some(node) => {
                    let Some(since) = away_since(node) else {
                        continue;
                    };
                    let due = since.saturating_add(TOLERATED).unwrap_or(Timestamp::MAX);
                    if due > store.now() {
                        next = earliest(next, Some(due));
                    } else if !is_terminating(&pod) {
                        delete(store, Resource::Pods, &pod, MANAGER);
                    }
                }
            }
        }
        next
    }
}

/// Since when the node has not been Ready.
fn away_since(node: &Value) -> Option<Timestamp> {
    let ready = list(node, &["status", "conditions"])
        .iter()
        .find(|c| text(c, &["type"]) == "Ready")?;
    if text(ready, &["status"]) == "True" {
        return None;
    }
    text(ready, &["lastTransitionTime"]).parse().ok()
}

/// It has owners and none of them is there.
fn orphaned(store: &Store, object: &Value) -> bool {
    let owners = list(object, &["metadata", "ownerReferences"]);
    !owners.is_empty()
        && owners.iter().all(|o| {
            let resource = Resource::ALL
                .into_iter()
                .find(|r| r.kind() == text(o, &["kind"]));
            resource.is_some_and(|r| store.with_uid(r, text(o, &["uid"])).is_none())
        })
}
