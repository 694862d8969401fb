//! The controller above a Deployment or `StatefulSet`, such as the custom resource of a database operator: it would undo what is changed
//! below it, and knows best how well it is. Pure.
//!
//! Whether it exists does not matter, since what is below it is known itself. So where it may not be read, nothing waits for it: a
//! warning says so once, and its pods move by what the workload says of itself.

use crate::world::{
    Cluster, Health, OwnerReference, OwnerSight, Unknown, WorkloadKind, WorkloadRef,
};

/// The controller above a workload.
#[derive(Clone, Copy)]
pub(super) struct Parent<'a> {
    pub(super) owner: &'a OwnerReference,
    /// `None` when it was not asked for in this pass.
    sight: Option<&'a OwnerSight>,
}

/// What is known of how well it is.
pub(super) enum Word<'a> {
    /// It is well, or says nothing that is understood, or is gone.
    Nothing,
    /// It is not, in its own words.
    Unwell(&'a str),
    /// It may never be read.
    Unheard(&'a Unknown),
    /// It has not been read this time; why, where there is an answer.
    Unknown(Option<&'a Unknown>),
}

/// The controller above the workload, if it has one.
pub(super) fn of<'a>(cluster: &'a Cluster, workload: &WorkloadRef) -> Option<Parent<'a>> {
    let owner = match &workload.kind {
        WorkloadKind::Deployment => cluster
            .deployments
            .get(&workload.uid)?
            .controller
            .as_ref()?,
        WorkloadKind::StatefulSet => cluster
            .stateful_sets
            .get(&workload.uid)?
            .controller
            .as_ref()?,
        WorkloadKind::ReplicaSet | WorkloadKind::Other { .. } | WorkloadKind::Pod => return None,
    };
    let sight = cluster.owners.get(&owner.uid);
    Some(Parent { owner, sight })
}

impl<'a> Parent<'a> {
    /// As `Kind namespace/name`; the namespace is that of what is below it.
    pub(super) fn named(&self, namespace: &str) -> String {
        format!("{} {namespace}/{}", self.owner.kind, self.owner.name)
    }

    pub(super) fn word(&self) -> Word<'a> {
        match self.sight {
            Some(OwnerSight::Found(owner)) => match &owner.health {
                Health::Unwell(said) => Word::Unwell(said),
                Health::Healthy | Health::Unsaid => Word::Nothing,
            },
            // What is below it goes with it.
            Some(OwnerSight::Missing) => Word::Nothing,
            Some(OwnerSight::Unserved(unknown)) => Word::Unheard(unknown),
            Some(OwnerSight::Failed(unknown)) if unknown.forbidden => Word::Unheard(unknown),
            Some(OwnerSight::Failed(unknown)) => Word::Unknown(Some(unknown)),
            None => Word::Unknown(None),
        }
    }

    /// Nothing that it says stands in the way of a move.
    pub(super) fn consents(&self) -> bool {
        match self.word() {
            Word::Nothing | Word::Unheard(_) => true,
            Word::Unwell(_) | Word::Unknown(_) => false,
        }
    }
}
