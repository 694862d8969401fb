//! Findings about the room on other nodes. Pure.

use crate::api::keys;
use crate::api::status::Reason;
use crate::world::{NodeClaim, PodRef, Priority, Volume};

use super::Finding;

impl Finding {
    pub(in crate::plan) fn priority_class(found: Option<Priority>) -> Self {
        let name = keys::PRIORITY_CLASS;
        Self::new(
            Reason::PriorityClassMissing,
            format!("PriorityClass {name}"),
            match found {
                None => "it does not exist, and placeholders need it to give way: apply the manifests of relocator again, or choose replacement.strategy None".to_owned(),
                Some(Priority { value, .. }) if value != keys::PRIORITY => format!(
                    "its value is {value}, where {} is needed for placeholders to give way and still make nodes come: delete it, and apply the manifests of relocator again",
                    keys::PRIORITY
                ),
                Some(Priority { preempts: true, .. }) => "its preemptionPolicy is not Never, so placeholders could push out other pods: delete it, and apply the manifests of relocator again".to_owned(),
                Some(_) => "it is the globalDefault, so pods that name no class would give way as placeholders do: apply the manifests of relocator again".to_owned(),
            },
        )
    }

    pub(in crate::plan) fn namespace_missing() -> Self {
        let name = keys::PLACEHOLDER_NAMESPACE;
        Self::new(
            Reason::NamespaceMissing,
            format!("Namespace {name}"),
            "it does not exist, and placeholders live in it: apply the manifests of relocator again, or choose replacement.strategy None",
        )
    }

    pub(in crate::plan) fn capacity(pod: &PodRef, scheduler: &str, claims: &[&NodeClaim]) -> Self {
        let provider: Vec<_> = claims
            .iter()
            .filter_map(|c| Some(format!("NodeClaim {}: {}", c.name, c.message.as_ref()?)))
            .collect();
        let provider = if provider.is_empty() {
            String::new()
        } else {
            format!("; {}", provider.join("; "))
        };
        Self::new(
            Reason::CapacityUnavailable,
            format!("Pod {pod}"),
            format!("no place for it within replacement.timeoutSeconds: {scheduler}{provider}"),
        )
    }

    pub(in crate::plan) fn node_local_volume(pod: &PodRef, claim: &str, volume: &Volume) -> Self {
        Self::new(
            Reason::NodeLocalVolume,
            format!("PersistentVolumeClaim {}/{claim}", pod.namespace),
            format!(
                "its volume {} is on a selected node and no other node can use it, so pod {} could not run elsewhere: copy what is in it to another volume, or, where its owner makes the data again, delete the claim and the pod by hand; or keep the pod with a rule of strategy Skip",
                volume.name, pod.name
            ),
        )
    }

    /// `lacking` are requirements in words.
    pub(in crate::plan) fn no_node_has(pod: &PodRef, lacking: &[String], pools: bool) -> Self {
        let nor = if pools {
            ", and no NodePool could make such a node"
        } else {
            ""
        };
        Self::new(
            Reason::NoFeasibleNode,
            format!("Pod {pod}"),
            format!(
                "by its node selector, its required affinity, its volumes or spec.replacement.placement it needs {}, which no open node has but those to be emptied{nor}: change what the pod asks for, or give the label to other nodes or to a NodePool",
                lacking.join(" and ")
            ),
        )
    }

    /// `taint` is one that it does not tolerate.
    pub(in crate::plan) fn no_node_admits(pod: &PodRef, taint: &str) -> Self {
        Self::new(
            Reason::NoFeasibleNode,
            format!("Pod {pod}"),
            format!(
                "each other node and NodePool that it could run on has a taint that it does not tolerate, such as {taint}: give it the toleration, or have nodes without the taint"
            ),
        )
    }

    /// `own` and `wanted` are labels with values, of the pod and of the placement.
    pub(in crate::plan) fn placement_contradicted(pod: &PodRef, own: &str, wanted: &str) -> Self {
        Self::new(
            Reason::NoFeasibleNode,
            format!("Pod {pod}"),
            format!(
                "its node selector wants {own}, and spec.replacement.placement.nodeSelector wants it to land where {wanted}: change one of the two, or leave the pod with a rule of strategy Wait or Skip"
            ),
        )
    }

    pub(in crate::plan) fn node_pool_limit(
        pools: &str,
        resource: &str,
        needed: &str,
        left: &str,
    ) -> Self {
        Self::new(
            Reason::NodePoolLimit,
            format!("NodePool {pools}"),
            format!(
                "pods that only its new nodes could take ask for {needed} of {resource}, and spec.limits leaves {left}: raise the limit for the time of the relocation, or select fewer nodes at a time"
            ),
        )
    }

    pub(in crate::plan) fn devices(pod: &PodRef, claims: &[String]) -> Self {
        Self::new(
            Reason::Unsupported,
            format!("Pod {pod}"),
            format!(
                "it has devices by dynamic resource allocation ({}), and a placeholder can't keep such for it: have room for it and choose replacement.strategy None, or leave it with a rule of strategy Wait or Skip",
                claims.join(", ")
            ),
        )
    }
}
