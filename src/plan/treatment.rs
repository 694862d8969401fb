//! What is to become of a pod on a selected node. Pure.
//!
//! An owner is believed only when an object of the referenced UID is there: a reference by name alone may be stale or forged.

use crate::world::{Cluster, Pod, WorkloadRef};

use super::report::Blocker;

/// What is to become of a pod on a selected node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Treatment {
    /// Its `DaemonSet` or its node keeps it here: it stays and does not count.
    Stays,
    /// Succeeded or Failed: holds nothing.
    Finished,
    /// Its workload makes it again elsewhere.
    Moves(WorkloadRef),
    /// A placeholder, of another relocation as a rule: that one takes it away once it sees whose the node is.
    GivesWay,
    /// A Job's pod: it is left to finish.
    Waits { job: String },
    /// Nothing that relocator may do would be safe.
    Stuck(Blocker),
}

impl Treatment {
    /// The node is not empty while the pod is there.
    pub(super) fn counts(&self) -> bool {
        match self {
            Self::Stays | Self::Finished => false,
            Self::Moves(_) | Self::GivesWay | Self::Waits { .. } | Self::Stuck(_) => true,
        }
    }
}

/// What is to become of the pod.
pub(super) fn treatment(cluster: &Cluster, pod: &Pod) -> Treatment {
    if pod.finished {
        return Treatment::Finished;
    }
    if pod.mirror {
        return Treatment::Stays;
    }
    if pod.placeholder.is_some() {
        return Treatment::GivesWay;
    }
    let Some(controller) = &pod.controller else {
        return Treatment::Stuck(Blocker::unmanaged_pod(&pod.reference));
    };
    if controller.kind == "DaemonSet"
        && is_apps(&controller.api_version)
        && cluster.daemon_sets.contains_key(&controller.uid)
    {
        return Treatment::Stays;
    }
    if let Some(workload) = workload_of(cluster, pod) {
        return Treatment::Moves(workload);
    }
    if controller.kind == "Job" && controller.api_version.starts_with("batch/") {
        return Treatment::Waits {
            job: format!("Job {}/{}", pod.reference.namespace, controller.name),
        };
    }
    if is_apps(&controller.api_version)
        && matches!(
            controller.kind.as_str(),
            "ReplicaSet" | "StatefulSet" | "DaemonSet"
        )
    {
        if let Some(set) = cluster.replica_sets.get(&controller.uid)
            && let Some(parent) = &set.controller
        {
            let what = format!(
                "{} {}/{}",
                parent.kind, pod.reference.namespace, parent.name
            );
            let missing = parent.kind == "Deployment" && is_apps(&parent.api_version);
            return Treatment::Stuck(if missing {
                Blocker::owner_missing(&pod.reference, &what)
            } else {
                Blocker::unsupported_owner(&pod.reference, &what)
            });
        }
        let what = format!(
            "{} {}/{}",
            controller.kind, pod.reference.namespace, controller.name
        );
        return Treatment::Stuck(Blocker::owner_missing(&pod.reference, &what));
    }
    let what = format!(
        "{} {}/{} ({})",
        controller.kind, pod.reference.namespace, controller.name, controller.api_version
    );
    Treatment::Stuck(Blocker::unsupported_owner(&pod.reference, &what))
}

/// The workload that makes the pod again, resolved by UID at every level, if it is one that relocator knows how to treat.
pub(super) fn workload_of(cluster: &Cluster, pod: &Pod) -> Option<WorkloadRef> {
    let controller = pod.controller.as_ref()?;
    if let Some(set) = cluster.replica_sets.get(&controller.uid) {
        return match &set.controller {
            None => Some(set.reference.clone()),
            Some(parent) => cluster
                .deployments
                .get(&parent.uid)
                .map(|d| d.reference.clone()),
        };
    }
    cluster
        .stateful_sets
        .get(&controller.uid)
        .map(|s| s.reference.clone())
}

/// Why the pod would come back to the cordoned node, or could never run elsewhere.
pub(super) fn cannot_land_elsewhere(pod: &Pod) -> Option<Blocker> {
    let tolerates_cordon = pod.shape.tolerations.iter().any(|t| {
        let key = t.key.as_deref().unwrap_or_default();
        let effect = t.effect.as_deref().unwrap_or_default();
        let exists = t.operator.as_deref() == Some("Exists");
        let about_cordon = key == "node.kubernetes.io/unschedulable" || (key.is_empty() && exists);
        about_cordon && (effect.is_empty() || effect == "NoSchedule")
    });
    if tolerates_cordon {
        return Some(Blocker::tolerates_cordon(&pod.reference));
    }
    let hostname = "kubernetes.io/hostname";
    let by_selector = pod.shape.node_selector.contains_key(hostname);
    let terms = pod
        .shape
        .required_affinity
        .iter()
        .flat_map(|a| &a.node_selector_terms);
    // Terms are alternatives: only when each of them names hosts is there no way out.
    let mut by_affinity = None;
    for term in terms {
        let names_hosts = term
            .match_expressions
            .iter()
            .flatten()
            .any(|e| e.key == hostname && e.operator == "In")
            || term
                .match_fields
                .iter()
                .flatten()
                .any(|f| f.key == "metadata.name" && f.operator == "In");
        by_affinity = Some(by_affinity.unwrap_or(true) && names_hosts);
    }
    (by_selector || by_affinity == Some(true)).then(|| Blocker::pinned_to_node(&pod.reference))
}

fn is_apps(api_version: &str) -> bool {
    api_version.starts_with("apps/")
}
