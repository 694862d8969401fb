//! Who makes a pod again: the owner resolved by UID at every level, and which owners have to be read for that. Pure.
//!
//! An owner is believed only when an object of the referenced UID is there, and in the same namespace: a reference by name alone may be
//! stale, and one into another namespace is forged, for an owner makes nothing outside of its own.

use std::collections::BTreeSet;

use crate::api::relocation::RuleStrategy;
use crate::api::status::WorkloadState;
use crate::world::{
    Cluster, OwnerQuery, OwnerReference, OwnerSight, Pod, Sight, Uid, WorkloadKind, WorkloadRef,
    World,
};

use super::policy::Policy;
use super::report::Finding;
use super::scene::{self, Scene};
use super::{is_over, parent, select};

/// Who makes a pod again.
pub(super) enum Maker<'a> {
    Workload(&'a WorkloadRef),
    /// A Job, which is not looked at more closely than that.
    Job(String),
    /// Nobody: it has no controller, or one that is gone.
    Nobody(Finding),
    /// Whether somebody does is not known.
    Unknown(Finding),
}

/// The workload that makes the pod again, resolved by UID at every level, if it exists.
pub(super) fn workload_of<'a>(cluster: &'a Cluster, pod: &Pod) -> Option<&'a WorkloadRef> {
    let workload = workload_of_controller(cluster, &pod.controller.as_ref()?.uid);
    workload.filter(|w| owns_in(w, &pod.reference.namespace))
}

/// The workload at the top of the chain that begins with the controller of that UID. Whether it is in the namespace of the pod is not
/// looked at: see [`owns_in`].
pub(super) fn workload_of_controller<'a>(
    cluster: &'a Cluster,
    controller: &Uid,
) -> Option<&'a WorkloadRef> {
    if let Some(set) = cluster.replica_sets.get(controller) {
        let Some(parent) = &set.controller else {
            return Some(&set.reference);
        };
        let above = match cluster.deployments.get(&parent.uid) {
            Some(deployment) => Some(&deployment.reference),
            None => other(cluster, &parent.uid),
        };
        return above.filter(|w| owns_in(w, &set.reference.namespace));
    }
    match cluster.stateful_sets.get(controller) {
        Some(set) => Some(&set.reference),
        None => other(cluster, controller),
    }
}

/// What is in a namespace owns nothing in another. Only a custom resource can be in none, and own in all.
pub(super) fn owns_in(workload: &WorkloadRef, namespace: &str) -> bool {
    let anywhere = workload.namespace.is_empty() && workload.kind.api_version().is_some();
    anywhere || workload.namespace == namespace
}

fn other<'a>(cluster: &'a Cluster, uid: &Uid) -> Option<&'a WorkloadRef> {
    match cluster.owners.get(uid)? {
        OwnerSight::Found(owner) if !is_bare(&owner.reference) => Some(&owner.reference),
        OwnerSight::Found(_)
        | OwnerSight::Missing
        | OwnerSight::Unserved(_)
        | OwnerSight::Failed(_) => None,
    }
}

/// The controller is a `DaemonSet` that exists beside the pod.
pub(super) fn is_daemon_set(cluster: &Cluster, pod: &Pod, controller: &OwnerReference) -> bool {
    let set = cluster.daemon_sets.get(&controller.uid);
    set.is_some_and(|set| set.namespace == pod.reference.namespace)
}

/// As [`makes_nothing`].
fn is_bare(workload: &WorkloadRef) -> bool {
    workload.kind.api_version() == Some("v1") && workload.kind.to_string() != CORE_OWNER
}

/// The one kind of the core API that makes pods.
const CORE_OWNER: &str = "ReplicationController";

/// A kind of the core API that makes no pods, such as a Pod or a Node: what it owns goes with it, and is not made again by it.
pub(super) fn makes_nothing(owner: &OwnerReference) -> bool {
    owner.api_version == "v1" && owner.kind != CORE_OWNER
}

/// The owner reference at the top of the chain, as far as the chain can be followed: that of the pod, or of the `ReplicaSet` in between.
pub(super) fn top<'a>(cluster: &'a Cluster, pod: &'a Pod) -> Option<&'a OwnerReference> {
    let controller = pod.controller.as_ref()?;
    let set = cluster.replica_sets.get(&controller.uid);
    Some(
        set.and_then(|set| set.controller.as_ref())
            .unwrap_or(controller),
    )
}

/// Kind of the owner, as rules name it; Pod for one that has none.
pub(super) fn kind_of<'a>(cluster: &'a Cluster, pod: &'a Pod) -> &'a str {
    top(cluster, pod).map_or("Pod", |owner| owner.kind.as_str())
}

/// Who makes the pod again.
pub(super) fn maker<'a>(cluster: &'a Cluster, pod: &Pod) -> Maker<'a> {
    if let Some(workload) = workload_of(cluster, pod) {
        return Maker::Workload(workload);
    }
    let Some(owner) = top(cluster, pod) else {
        return Maker::Nobody(Finding::unmanaged_pod(&pod.reference));
    };
    let named = format!("{} {}/{}", owner.kind, pod.reference.namespace, owner.name);
    if is_apps(owner) {
        return Maker::Nobody(Finding::owner_missing(&pod.reference, &named));
    }
    if makes_nothing(owner) {
        return Maker::Nobody(Finding::owner_makes_nothing(&pod.reference, &named));
    }
    match cluster.owners.get(&owner.uid) {
        Some(OwnerSight::Missing) => Maker::Nobody(Finding::owner_missing(&pod.reference, &named)),
        Some(OwnerSight::Unserved(unknown) | OwnerSight::Failed(unknown)) => {
            let named = format!("{named} ({})", owner.api_version);
            Maker::Unknown(Finding::owner_not_read(&pod.reference, &named, unknown))
        }
        Some(OwnerSight::Found(_)) | None if is_job(owner) => Maker::Job(named),
        Some(OwnerSight::Found(_)) | None => {
            Maker::Unknown(Finding::owner_not_looked_at(&pod.reference, &named))
        }
    }
}

/// A kind whose objects are watched: what is not among them does not exist.
fn is_apps(owner: &OwnerReference) -> bool {
    owner.api_version.starts_with("apps/")
        && matches!(
            owner.kind.as_str(),
            "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet"
        )
}

pub(super) fn is_job(owner: &OwnerReference) -> bool {
    owner.kind == "Job" && owner.api_version.starts_with("batch/")
}

/// A Job's pod that is only waited for, so that nothing has to be known of the Job.
pub(super) fn is_awaited(policy: &Policy<'_>, owner: &OwnerReference, pod: &Pod) -> bool {
    is_job(owner)
        && match policy.strategy(&owner.kind, pod) {
            None => policy.waits_for_jobs(),
            Some(strategy) => strategy == RuleStrategy::Wait || strategy == RuleStrategy::Skip,
        }
}

/// The owners that are not watched and make pods that have to move: to be read before a plan is made.
#[must_use]
pub fn owners_to_read(world: &World) -> Vec<OwnerQuery> {
    let Sight::Known(cluster) = &world.sight else {
        return Vec::new();
    };
    if is_over(&world.relocation) || world.relocation.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let scene = Scene::of_nodes(world, cluster);
    let mut seen = BTreeSet::new();
    let mut queries = Vec::new();
    for pod in on_nodes(&scene) {
        if pod.finished || pod.mirror || pod.placeholder.is_some() {
            continue;
        }
        let Some(owner) = top(cluster, pod) else {
            continue;
        };
        let watched = is_apps(owner)
            || makes_nothing(owner)
            || cluster.replica_sets.contains_key(&owner.uid)
            || cluster.stateful_sets.contains_key(&owner.uid)
            || cluster.daemon_sets.contains_key(&owner.uid);
        if !watched && !is_awaited(&scene.policy, owner, pod) && seen.insert(owner.uid.clone()) {
            queries.push(OwnerQuery {
                namespace: pod.reference.namespace.clone(),
                owner: owner.clone(),
            });
        }
    }
    for (namespace, parent) in parents_to_read(world, &scene) {
        if seen.insert(parent.uid.clone()) {
            queries.push(OwnerQuery {
                namespace,
                owner: parent.clone(),
            });
        }
    }
    // Those whose pods have all left are still waited for.
    for record in scene.records().filter(|r| r.state != WorkloadState::Moved) {
        if let Some(workload) = scene::reference(record)
            && let WorkloadKind::Other { api_version, kind } = &workload.kind
            && seen.insert(workload.uid.clone())
        {
            queries.push(OwnerQuery {
                namespace: workload.namespace.clone(),
                owner: OwnerReference {
                    api_version: api_version.clone(),
                    kind: kind.clone(),
                    name: workload.name.clone(),
                    uid: workload.uid.clone(),
                },
            });
        }
    }
    queries
}

/// The controllers above workloads that would be moved, and later of those whose next step their word decides: what is whole by
/// itself and has not moved.
fn parents_to_read<'a>(world: &'a World, scene: &Scene<'a>) -> Vec<(String, &'a OwnerReference)> {
    let cluster = scene.cluster;
    let mut parents = Vec::new();
    // Most clusters have none, and need not be looked at closer.
    let deployments = cluster.deployments.values().map(|d| &d.controller);
    let mut all = deployments.chain(cluster.stateful_sets.values().map(|s| &s.controller));
    if all.all(Option::is_none) {
        return parents;
    }
    let mut read = |workload: &WorkloadRef| {
        if let Some(parent) = parent::of(cluster, workload) {
            parents.push((workload.namespace.clone(), parent.owner));
        }
    };
    if scene.nodes.is_empty() {
        for pod in on_nodes(scene) {
            if let Some(workload) = workload_of(cluster, pod) {
                read(workload);
            }
        }
        return parents;
    }
    let scene = Scene::new(world, cluster);
    for work in scene.works.iter().filter(|w| !w.has_moved()) {
        if work.whole_itself() {
            read(&work.reference);
        }
    }
    parents
}

/// The pods on the nodes that are selected, or would be.
fn on_nodes<'a>(scene: &Scene<'a>) -> Vec<&'a Pod> {
    let nodes = if scene.nodes.is_empty() {
        select::matching(scene).unwrap_or_default()
    } else {
        scene.nodes.iter().filter_map(|s| s.node).collect()
    };
    nodes
        .into_iter()
        .flat_map(|node| scene.pods_on_node(&node.name))
        .copied()
        .collect()
}
