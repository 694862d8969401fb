//! What is to become of a pod on a selected node. Pure.

use crate::api::relocation::RuleStrategy;
use crate::world::{Cluster, Pod};

use super::owners::{self, Maker};
use super::policy::Policy;
use super::report::Finding;

/// What is to become of a pod on a selected node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Treatment {
    /// Its `DaemonSet` or its node keeps it here: it stays and does not count.
    Stays,
    /// Succeeded or Failed: holds nothing.
    Finished,
    /// Its workload makes it again elsewhere; or nothing does, and a person has said that it may go all the same.
    Moves,
    /// A placeholder, of another relocation as a rule: that one takes it away once it sees whose the node is.
    GivesWay,
    /// It is left to end, or to be moved by its owner.
    Waits { what: Awaited },
    /// A rule leaves it alone: the node is emptied but for it, and kept.
    Skipped,
    /// Nothing that relocator may do would be safe.
    Stuck(Finding),
}

/// Who ends a pod that is only waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// A Job, as `Job namespace/name`.
    Job(String),
    /// Whoever is meant by a rule.
    ByRule,
}

impl Treatment {
    /// A workload makes it go.
    pub(super) fn moves(&self) -> bool {
        *self == Self::Moves
    }

    /// The node is not empty while the pod is there.
    pub(super) fn counts(&self) -> bool {
        match self {
            Self::Stays | Self::Finished | Self::Skipped => false,
            Self::Moves | Self::GivesWay | Self::Waits { .. } | Self::Stuck(_) => true,
        }
    }
}

/// What is to become of the pod.
pub(super) fn treatment(cluster: &Cluster, policy: &Policy<'_>, pod: &Pod) -> Treatment {
    if pod.finished {
        return Treatment::Finished;
    }
    if pod.mirror {
        return Treatment::Stays;
    }
    if pod.placeholder.is_some() {
        return Treatment::GivesWay;
    }
    if let Some(controller) = &pod.controller
        && controller.kind == "DaemonSet"
        && owners::is_daemon_set(cluster, pod, controller)
    {
        return Treatment::Stays;
    }
    let maker = owners::maker(cluster, pod);
    let kind = match &maker {
        Maker::Nobody(_) => "Pod",
        Maker::Workload(_) | Maker::Job(_) | Maker::Unknown(_) => owners::kind_of(cluster, pod),
    };
    let by_rule = policy.strategy(kind, pod);
    match by_rule {
        Some(RuleStrategy::Skip) => return Treatment::Skipped,
        Some(RuleStrategy::Wait) => {
            return Treatment::Waits {
                what: Awaited::ByRule,
            };
        }
        _ => {}
    }
    match maker {
        Maker::Unknown(finding) => return Treatment::Stuck(finding),
        Maker::Nobody(finding) => {
            // One whose owner is gone is taken away by the garbage collector. Until that has happened, the watch may only be behind, and
            // what its owner can spare is not known.
            let asked = by_rule == Some(RuleStrategy::Evict) || policy.evicts_unmanaged();
            let leaves_by_itself = pod
                .controller
                .as_ref()
                .is_some_and(|o| !owners::makes_nothing(o));
            if leaves_by_itself || !asked {
                return Treatment::Stuck(finding);
            }
        }
        Maker::Job(job) => {
            return Treatment::Waits {
                what: Awaited::Job(job),
            };
        }
        Maker::Workload(workload)
            if workload.kind.is_job() && by_rule.is_none() && policy.waits_for_jobs() =>
        {
            return Treatment::Waits {
                what: Awaited::Job(workload.to_string()),
            };
        }
        Maker::Workload(_) => {}
    }
    if policy.keeps_local_data() && !pod.empty_dirs.is_empty() {
        return Treatment::Stuck(Finding::local_data(pod));
    }
    Treatment::Moves
}

/// Why the pod would come back to the cordoned node, or could never run elsewhere.
pub(super) fn cannot_land_elsewhere(pod: &Pod) -> Option<Finding> {
    let tolerates_cordon = pod.shape.tolerations.iter().any(|t| {
        let key = t.key.as_deref().unwrap_or_default();
        let effect = t.effect.as_deref().unwrap_or_default();
        let exists = t.operator.as_deref() == Some("Exists");
        let about_cordon = key == "node.kubernetes.io/unschedulable" || (key.is_empty() && exists);
        about_cordon && (effect.is_empty() || effect == "NoSchedule")
    });
    if tolerates_cordon {
        return Some(Finding::tolerates_cordon(&pod.reference));
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
    (by_selector || by_affinity == Some(true)).then(|| Finding::pinned_to_node(&pod.reference))
}
