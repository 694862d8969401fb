//! The annotations by which an autoscaler leaves a node or a pod alone, and our mark beside each. Pure.

/// One such annotation. Which of them an object needs depends on who made its node, and on the generation of Karpenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// `karpenter.sh/do-not-disrupt`, on pods and nodes: Karpenter from v0.31 on.
    DoNotDisrupt,
    /// `karpenter.sh/do-not-evict`, on pods: the only one that Karpenter to v0.30 knows. From v1.0 on it means nothing.
    DoNotEvict,
    /// `karpenter.sh/do-not-consolidate`, on nodes: Karpenter to v0.31.
    DoNotConsolidate,
    /// `cluster-autoscaler.kubernetes.io/scale-down-disabled`, on nodes: Cluster Autoscaler, which never asks Karpenter's.
    ScaleDownDisabled,
}

impl Guard {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::DoNotDisrupt,
        Self::DoNotEvict,
        Self::DoNotConsolidate,
        Self::ScaleDownDisabled,
    ];

    /// The one value that every version honours. To undo it the key is removed; `"false"` is never written.
    pub const VALUE: &str = "true";

    /// The annotation.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::DoNotDisrupt => "karpenter.sh/do-not-disrupt",
            Self::DoNotEvict => "karpenter.sh/do-not-evict",
            Self::DoNotConsolidate => "karpenter.sh/do-not-consolidate",
            Self::ScaleDownDisabled => "cluster-autoscaler.kubernetes.io/scale-down-disabled",
        }
    }

    /// The annotation next to one that relocator itself set; its value is that of [`CLAIMED_BY`](super::keys::CLAIMED_BY). One without it
    /// belongs to the owner of the object and is never removed.
    #[must_use]
    pub const fn mark(self) -> &'static str {
        match self {
            Self::DoNotDisrupt => "relocation.sh/protected-by",
            Self::DoNotEvict => "relocation.sh/do-not-evict-by",
            Self::DoNotConsolidate => "relocation.sh/do-not-consolidate-by",
            Self::ScaleDownDisabled => "relocation.sh/scale-down-disabled-by",
        }
    }

    /// The annotation without its domain, as people call it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::DoNotDisrupt => "do-not-disrupt",
            Self::DoNotEvict => "do-not-evict",
            Self::DoNotConsolidate => "do-not-consolidate",
            Self::ScaleDownDisabled => "scale-down-disabled",
        }
    }
}
