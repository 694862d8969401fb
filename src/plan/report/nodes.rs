//! Findings about selected nodes and their selection. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::api::status::Reason;
use crate::world::{Attachment, NodeName};

use super::Finding;

impl Finding {
    pub(in crate::plan) fn too_many_nodes(matching: usize, limit: u32) -> Self {
        Self::new(
            Reason::TooManyNodes,
            "spec.nodes",
            format!(
                "{matching} nodes match and spec.nodes.limit is {limit}: narrow the selection or raise the limit; nothing is ever cut silently"
            ),
        )
    }

    pub(in crate::plan) fn unreadable_selector(field: &str, why: &str) -> Self {
        Self::new(
            Reason::NotObserved,
            field,
            format!("it cannot be read, so nothing is decided: {why}"),
        )
    }

    pub(in crate::plan) fn unknown_node_pool(name: &str) -> Self {
        Self::new(
            Reason::UnknownNodePool,
            format!("NodePool {name}"),
            format!(
                "spec.nodes.nodePools names {name}, but there is no NodePool of that name and no node carries its label: correct the name"
            ),
        )
    }

    pub(in crate::plan) fn karpenter_not_installed(field: &str) -> Self {
        Self::new(
            Reason::KarpenterNotInstalled,
            field,
            format!(
                "{field} needs Karpenter, but the cluster serves none of karpenter.sh/v1, v1beta1 and v1alpha5: install Karpenter, or select by names or selector with state Any"
            ),
        )
    }

    pub(in crate::plan) fn control_plane_node(name: &NodeName) -> Self {
        Self::new(
            Reason::ControlPlaneNode,
            format!("Node {name}"),
            "it is a node of the control plane, which relocator never empties: narrow spec.nodes",
        )
    }

    pub(in crate::plan) fn virtual_node(name: &NodeName) -> Self {
        Self::new(
            Reason::VirtualNode,
            format!("Node {name}"),
            "it is a virtual or Fargate node, which stands for no machine that could be emptied: narrow spec.nodes",
        )
    }

    pub(in crate::plan) fn node_deleting(name: &NodeName) -> Self {
        Self::new(
            Reason::NodeDeleting,
            format!("Node {name}"),
            "the node or its NodeClaim is already being deleted by somebody else: wait until it is gone, or narrow spec.nodes",
        )
    }

    pub(in crate::plan) fn claimed_by_other(name: &NodeName, other: &str) -> Self {
        Self::new(
            Reason::NodeClaimedByOther,
            format!("Node {name}"),
            format!(
                "NodeRelocation {other} is working on it: this one goes on when that one has finished or is deleted"
            ),
        )
    }

    pub(in crate::plan) fn node_unreachable(name: &NodeName) -> Self {
        Self::new(
            Reason::NodeUnreachable,
            format!("Node {name}"),
            "it is not Ready, so whether its pods still run is not known: nothing is forced, and their workloads wait until it is Ready again; delete the Node only when its machine is surely off",
        )
    }

    pub(in crate::plan) fn uncordoned(name: &NodeName) -> Self {
        Self::new(
            Reason::Uncordoned,
            format!("Node {name}"),
            "somebody uncordoned it, so nothing more is moved, off it or to where it could land on it: cordon it to go on, or delete the NodeRelocation to stop",
        )
    }

    pub(in crate::plan) fn claim_lost(name: &NodeName) -> Self {
        Self::new(
            Reason::ClaimLost,
            format!("Node {name}"),
            "somebody removed the annotation relocation.sh/claimed-by, so nothing more is moved off it: delete the NodeRelocation to stop",
        )
    }

    pub(in crate::plan) fn still_attached(
        name: &NodeName,
        attached: &[&Attachment],
        limit: SignedDuration,
    ) -> Self {
        const SHOWN: usize = 3;
        let mut names: Vec<_> = attached.iter().map(|a| a.name.as_str()).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(SHOWN);
        names.truncate(SHOWN);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        Self::new(
            Reason::StillAttached,
            format!("Node {name}"),
            format!(
                "its pods have left, and after workloads.timeoutSeconds ({} s) volumes are still attached to it, so it is not removed: see to the CSI driver, and delete a VolumeAttachment only when its volume is surely detached: {}{more}",
                limit.as_secs(),
                names.join(", ")
            ),
        )
    }

    pub(in crate::plan) fn node_expires(name: &NodeName, claim: &str, at: Timestamp) -> Self {
        Self::new(
            Reason::NodeExpires,
            format!("Node {name}"),
            format!(
                "NodeClaim {claim} expires at {at:.0}, and Karpenter then drains and removes the node whatever is annotated: begin early enough, or raise expireAfter of its NodePool in time for the next nodes"
            ),
        )
    }
}
