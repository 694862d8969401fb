//! A tool like Argo CD that puts back what it has in Git: of a Deployment that is annotated so, the replica count, or the whole spec.

use std::collections::BTreeMap;

use fastrand::Rng;
use jiff::Timestamp;
use serde_json::Value;

use super::{Controller, after, earliest, name, namespace, uid};
use crate::json::{at, set, text};
use crate::resource::Resource;
use crate::store::Store;

/// The annotation: `replicas` or `spec`.
pub const MANAGED: &str = "sim/gitops";

/// Git, by UID, and when a difference is put back.
#[derive(Default)]
pub(super) struct GitOps {
    git: BTreeMap<String, Value>,
    due: BTreeMap<String, Timestamp>,
}

impl Controller for GitOps {
    fn looks_at(&self) -> &'static [Resource] {
        &[Resource::Deployments]
    }

    fn run(&mut self, store: &mut Store, rng: &mut Rng) -> Option<Timestamp> {
        let mut next = None;
        let managed: Vec<_> = store
            .all(Resource::Deployments)
            .filter(|d| !text(d, &["metadata", "annotations", MANAGED]).is_empty())
            .cloned()
            .collect();
        for deployment in managed {
            let key = uid(&deployment).to_owned();
            let Some(git) = self.git.get(&key) else {
                self.git.insert(key, at(&deployment, &["spec"]).clone());
                continue;
            };
            let mut wanted = at(&deployment, &["spec"]).clone();
            if text(&deployment, &["metadata", "annotations", MANAGED]) == "replicas" {
                set(&mut wanted, &["replicas"], at(git, &["replicas"]).clone());
            } else {
                wanted.clone_from(git);
            }
            if wanted == *at(&deployment, &["spec"]) {
                self.due.remove(&key);
                continue;
            }
            let wait = 1.0 + 9.0 * rng.f64();
            let due = *self
                .due
                .entry(key.clone())
                .or_insert_with(|| after(store.now(), wait));
            if due > store.now() {
                next = earliest(next, Some(due));
                continue;
            }
            self.due.remove(&key);
            store.change(
                Resource::Deployments,
                namespace(&deployment),
                name(&deployment),
                |d| {
                    set(d, &["spec"], wanted);
                },
            );
        }
        next
    }
}
