//! Whose pod a pod is, resolved by UID. Pure.
use std::collections::BTreeMap;
use std::fmt;

use super::history::{History, State};
use super::object::{Kind, Object, Uid};

/// The workload that a pod belongs to, as people name it: the Deployment, not its `ReplicaSet`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Its UID. A pod without a controller is its own owner.
    pub uid: Uid,
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.kind, self.name)
    }
}

/// The annotation of a mirror pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The owners of all pods that were ever seen.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// `ReplicaSet` to its controller, also of those that are gone by now.
    replica_sets: BTreeMap<Uid, Owner>,
    /// The other way round.
    sets_of: BTreeMap<Uid, Vec<Uid>>,
    placeholders: String,
}

impl Owners {
    pub(crate) fn of_history(history: &History, placeholders: &str) -> Self {
        let replica_sets: BTreeMap<Uid, Owner> = history
            .changes
            .iter()
            .map(|c| &c.object)
            .filter(|o| o.kind == Kind::ReplicaSet)
            .filter_map(|rs| {
                let c = rs.controller()?;
                let owner = Owner {
                    uid: c.uid.clone(),
                    namespace: rs.namespace.clone(),
                    kind: c.kind.clone(),
                    name: c.name.clone(),
                };
                Some((rs.uid.clone(), owner))
            })
            .collect();
        let mut sets_of: BTreeMap<Uid, Vec<Uid>> = BTreeMap::new();
        for (set, owner) in &replica_sets {
            sets_of
                .entry(owner.uid.clone())
                .or_default()
                .push(set.clone());
        }
        Self {
            replica_sets,
            sets_of,
            placeholders: placeholders.to_owned(),
        }
    }

    /// Not of a `DaemonSet` or Job, no mirror pod, no placeholder.
    fn counts(&self, pod: &Object) -> bool {
        pod.kind == Kind::Pod
            && has_to_leave(pod)
            && pod.namespace != self.placeholders
            && pod.controller().is_none_or(|c| c.kind != "Job")
    }

    /// The owner of a pod that counts; None for pods that don't: of a `DaemonSet` or Job, mirror pods, placeholders.
    pub(crate) fn of(&self, pod: &Object) -> Option<Owner> {
        if !self.counts(pod) {
            return None;
        }
        let controller = pod.controller();
        if let Some(owner) = controller.and_then(|c| self.replica_sets.get(&c.uid)) {
            return Some(owner.clone());
        }
        let (kind, name) = controller.map_or(("Pod", &pod.name), |c| (c.kind.as_str(), &c.name));
        Some(Owner {
            uid: controller.map_or(&pod.uid, |c| &c.uid).clone(),
            namespace: pod.namespace.clone(),
            kind: kind.to_owned(),
            name: name.clone(),
        })
    }

    /// As [`Owners::of`], and the pod has not finished.
    pub(crate) fn of_live(&self, pod: &Object) -> Option<Owner> {
        if pod.pod()?.finished {
            return None;
        }
        self.of(pod)
    }

    /// The live pods of an owner.
    pub(crate) fn pods<'a>(
        &'a self,
        state: &'a State,
        owner: &'a Owner,
    ) -> impl Iterator<Item = &'a Object> {
        let sets = self.sets_of.get(&owner.uid).into_iter().flatten();
        std::iter::once(&owner.uid)
            .chain(sets)
            .flat_map(|controller| state.pods_of(controller))
            .map(AsRef::as_ref)
            .filter(|p| self.counts(p) && p.pod().is_some_and(|p| !p.finished))
    }

    /// The owner a workload object is, as [`Owners::of`] names it for its pods.
    pub(crate) fn is(workload: &Object) -> Owner {
        Owner {
            uid: workload.uid.clone(),
            namespace: workload.namespace.clone(),
            kind: workload.kind.to_string(),
            name: workload.name.clone(),
        }
    }
}

/// Whether a pod has to leave a node that is emptied: all but those of a `DaemonSet` and mirror pods.
pub(crate) fn has_to_leave(pod: &Object) -> bool {
    pod.controller().is_none_or(|c| c.kind != "DaemonSet") && !pod.annotations.contains_key(MIRROR)
}

/// The object of an owner, where it is of a kind that is watched.
pub(crate) fn workload<'a>(state: &'a State, owner: &Owner) -> Option<&'a Object> {
    [Kind::Deployment, Kind::StatefulSet, Kind::ReplicaSet]
        .into_iter()
        .find(|k| k.to_string() == owner.kind)
        .and_then(|k| state.get(k, &owner.uid))
        .map(AsRef::as_ref)
}
