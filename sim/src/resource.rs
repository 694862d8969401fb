//! The resources that the simulated API server serves, and how a request names them. Pure.

use lab::judge::Kind;

/// A resource of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Pods,
    Nodes,
    NodeClaims,
    NodePools,
    Deployments,
    ReplicaSets,
    StatefulSets,
    DaemonSets,
    Jobs,
    Budgets,
    Attachments,
    VolumeClaims,
    Volumes,
    StorageClasses,
    CsiNodes,
    Relocations,
    Namespaces,
    PriorityClasses,
    Events,
    ValidatingWebhooks,
    MutatingWebhooks,
    Services,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::Pods,
        Self::Nodes,
        Self::NodeClaims,
        Self::NodePools,
        Self::Deployments,
        Self::ReplicaSets,
        Self::StatefulSets,
        Self::DaemonSets,
        Self::Jobs,
        Self::Budgets,
        Self::Attachments,
        Self::VolumeClaims,
        Self::Volumes,
        Self::StorageClasses,
        Self::CsiNodes,
        Self::Relocations,
        Self::Namespaces,
        Self::PriorityClasses,
        Self::Events,
        Self::ValidatingWebhooks,
        Self::MutatingWebhooks,
        Self::Services,
    ];

    /// Group, version, kind, plural, and whether its objects are in a namespace.
    const fn names(self) -> (&'static str, &'static str, &'static str, &'static str, bool) {
        match self {
            Self::Pods => ("", "v1", "Pod", "pods", true),
            Self::Nodes => ("", "v1", "Node", "nodes", false),
            Self::NodeClaims => ("karpenter.sh", "v1", "NodeClaim", "nodeclaims", false),
            Self::NodePools => ("karpenter.sh", "v1", "NodePool", "nodepools", false),
            Self::Deployments => ("apps", "v1", "Deployment", "deployments", true),
            Self::ReplicaSets => ("apps", "v1", "ReplicaSet", "replicasets", true),
            Self::StatefulSets => ("apps", "v1", "StatefulSet", "statefulsets", true),
            Self::DaemonSets => ("apps", "v1", "DaemonSet", "daemonsets", true),
            Self::Jobs => ("batch", "v1", "Job", "jobs", true),
            Self::Budgets => (
                "policy",
                "v1",
                "PodDisruptionBudget",
                "poddisruptionbudgets",
                true,
            ),
            Self::Attachments => (
                "storage.k8s.io",
                "v1",
                "VolumeAttachment",
                "volumeattachments",
                false,
            ),
            Self::VolumeClaims => (
                "",
                "v1",
                "PersistentVolumeClaim",
                "persistentvolumeclaims",
                true,
            ),
            Self::Volumes => ("", "v1", "PersistentVolume", "persistentvolumes", false),
            Self::StorageClasses => (
                "storage.k8s.io",
                "v1",
                "StorageClass",
                "storageclasses",
                false,
            ),
            Self::CsiNodes => ("storage.k8s.io", "v1", "CSINode", "csinodes", false),
            Self::Relocations => (
                "relocation.sh",
                "v1alpha1",
                "NodeRelocation",
                "noderelocations",
                false,
            ),
            Self::Namespaces => ("", "v1", "Namespace", "namespaces", false),
            Self::PriorityClasses => (
                "scheduling.k8s.io",
                "v1",
                "PriorityClass",
                "priorityclasses",
                false,
            ),
            Self::Events => ("events.k8s.io", "v1", "Event", "events", true),
            Self::ValidatingWebhooks => (
                "admissionregistration.k8s.io",
                "v1",
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
                false,
            ),
            Self::MutatingWebhooks => (
                "admissionregistration.k8s.io",
                "v1",
                "MutatingWebhookConfiguration",
                "mutatingwebhookconfigurations",
                false,
            ),
            Self::Services => ("", "v1", "Service", "services", true),
        }
    }

    /// API group; empty for the core group.
    #[must_use]
    pub const fn group(self) -> &'static str {
        self.names().0
    }

    /// `group/version`, or `v1`.
    #[must_use]
    pub fn api_version(self) -> String {
        let (group, version, ..) = self.names();
        if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        }
    }

    /// As in `kind:`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        self.names().2
    }

    /// As in a URL.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        self.names().3
    }

    /// Whether its objects are in a namespace.
    #[must_use]
    pub const fn namespaced(self) -> bool {
        self.names().4
    }

    /// Its place in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The resource of that group and plural.
    #[must_use]
    pub fn find(group: &str, plural: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|r| r.group() == group && r.plural() == plural)
    }

    /// The kind under which the judge knows it.
    #[must_use]
    pub const fn judged(self) -> Option<Kind> {
        Some(match self {
            Self::Pods => Kind::Pod,
            Self::Nodes => Kind::Node,
            Self::NodeClaims => Kind::NodeClaim,
            Self::Deployments => Kind::Deployment,
            Self::ReplicaSets => Kind::ReplicaSet,
            Self::StatefulSets => Kind::StatefulSet,
            Self::DaemonSets => Kind::DaemonSet,
            Self::Budgets => Kind::PodDisruptionBudget,
            Self::Attachments => Kind::VolumeAttachment,
            Self::VolumeClaims => Kind::PersistentVolumeClaim,
            Self::Relocations => Kind::NodeRelocation,
            Self::NodePools
            | Self::Volumes
            | Self::StorageClasses
            | Self::CsiNodes
            | Self::Jobs
            | Self::Namespaces
            | Self::PriorityClasses
            | Self::Events
            | Self::ValidatingWebhooks
            | Self::MutatingWebhooks
            | Self::Services => {
                return None;
            }
        })
    }
}
