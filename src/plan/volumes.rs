//! The volumes of pods: which can be used by one pod only, and on which nodes. Pure.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::NodeSelector;

use crate::world::{
    Attachment, Cluster, MountedClaim, NodeName, Pod, StorageClass, Volume, VolumeClaim,
};

use super::fits;
use super::treatment::Treatment;

/// Claims, volumes and classes by their names.
pub(super) struct Volumes<'a> {
    claims: HashMap<(&'a str, &'a str), &'a VolumeClaim>,
    by_name: HashMap<&'a str, &'a Volume>,
    classes: HashMap<&'a str, &'a StorageClass>,
}

/// A claim of a pod, with as much of it as is seen.
pub(super) struct Mounted<'a, 'b> {
    pub(super) claim: &'b MountedClaim,
    pub(super) seen: Option<&'a VolumeClaim>,
    pub(super) volume: Option<&'a Volume>,
}

/// A volume that takes one of the attachments that a node can have, however many pods of the node use it.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Disk {
    /// A `PersistentVolume`, by name.
    There(String),
    /// The one that will be made for a claim: its namespace and name.
    To(String, String),
}

impl Disk {
    fn of(volume: &Volume) -> Self {
        Self::There(volume.name.clone())
    }
}

impl<'a> Volumes<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        let claims = cluster.volume_claims.values();
        let volumes = cluster.volumes.values();
        let classes = cluster.storage_classes.values();
        Self {
            claims: claims
                .map(|c| ((c.namespace.as_str(), c.name.as_str()), c.as_ref()))
                .collect(),
            by_name: volumes.map(|v| (v.name.as_str(), v.as_ref())).collect(),
            classes: classes.map(|c| (c.name.as_str(), c.as_ref())).collect(),
        }
    }

    pub(super) fn of<'b>(&self, pod: &'b Pod) -> impl Iterator<Item = Mounted<'a, 'b>> {
        let namespace = pod.reference.namespace.as_str();
        pod.claims.iter().map(move |claim| {
            let seen = self.claims.get(&(namespace, claim.name.as_str())).copied();
            let volume = seen
                .and_then(|c| c.volume.as_deref())
                .and_then(|v| self.by_name.get(v).copied());
            Mounted {
                claim,
                seen,
                volume,
            }
        })
    }

    /// A pod beside it could not have one of its volumes. A claim that is not seen counts as `ReadWriteOnce`.
    pub(super) fn for_one_only(&self, pod: &Pod) -> bool {
        self.of(pod)
            .any(|m| !m.claim.ephemeral && !m.seen.is_some_and(|claim| claim.shared))
    }

    /// The nodes that the pod's successor can run on for the sake of its volumes; `None`: any.
    ///
    /// A volume that is bound goes with it. One that is made for the successor alone, or is not bound yet, comes where its class makes
    /// volumes.
    pub(super) fn nodes(&self, pod: &Pod) -> Option<NodeSelector> {
        let mut nodes = None;
        for mounted in self.of(pod) {
            let bound = mounted.volume.filter(|_| !mounted.claim.ephemeral);
            let asks = match bound {
                Some(volume) => volume.nodes.as_ref(),
                None => mounted
                    .seen
                    .filter(|c| mounted.claim.ephemeral || c.volume.is_none())
                    .and_then(|c| self.classes.get(c.class.as_deref()?))
                    .and_then(|class| class.nodes.as_ref()),
            };
            if let Some(asks) = asks {
                nodes = Some(fits::both(nodes, asks));
            }
        }
        nodes
    }

    /// The volumes that a node attaches for the pod, or with `anew` for the pod that is made after it, with their drivers.
    pub(super) fn disks<'b>(
        &self,
        pod: &'b Pod,
        anew: bool,
    ) -> impl Iterator<Item = (&'a str, Disk)> + use<'a, 'b, '_> {
        self.of(pod).filter_map(move |mounted| {
            let again = anew && mounted.claim.ephemeral;
            if let Some(volume) = mounted.volume.filter(|_| !again) {
                return Some((volume.driver.as_deref()?, Disk::of(volume)));
            }
            let class = mounted.seen?.class.as_deref()?;
            let class = self.classes.get(class)?;
            let namespace = pod.reference.namespace.clone();
            let claim = mounted.claim.name.clone();
            Some((class.provisioner.as_str(), Disk::To(namespace, claim)))
        })
    }

    /// The volume of an attachment, with its driver.
    pub(super) fn disk_of(&self, attachment: &Attachment) -> Option<(&'a str, Disk)> {
        let volume = self.by_name.get(attachment.volume.as_deref()?)?;
        Some((volume.driver.as_deref()?, Disk::of(volume)))
    }

    /// The volumes attached to a node that have to be detached before it is removed: all but those of pods that stay on it, which are
    /// attached for as long as the node is there.
    pub(super) fn awaited<'b>(
        &self,
        node: &NodeName,
        attachments: impl Iterator<Item = &'b Attachment>,
        pods: &[(&Pod, Treatment)],
    ) -> Vec<&'b Attachment> {
        let mut attached: Vec<_> = attachments.filter(|a| a.node == *node).collect();
        if attached.is_empty() {
            return attached;
        }
        let stay = |t: &Treatment| matches!(t, Treatment::Stays | Treatment::Skipped);
        let kept: BTreeSet<_> = pods
            .iter()
            .filter(|(_, treatment)| stay(treatment))
            .flat_map(|(pod, _)| self.of(pod))
            .filter_map(|m| m.seen?.volume.as_deref())
            .collect();
        attached.retain(|a| a.volume.as_deref().is_none_or(|v| !kept.contains(v)));
        attached
    }
}
