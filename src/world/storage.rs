//! Persistent volumes as observed: the claims that pods mount, the volumes behind them, and what new ones would be like.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelector;

use super::{NodeName, Uid};

/// A `PersistentVolumeClaim` that a pod mounts, by its name in the pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedClaim {
    pub name: String,
    /// Made for this pod alone and gone with it: a generic ephemeral volume. The pod that comes after has another one.
    pub ephemeral: bool,
}

/// A `PersistentVolumeClaim`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeClaim {
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
    /// Pods on several nodes can use it at a time: `ReadWriteMany` or `ReadOnlyMany`, and not `ReadWriteOncePod`.
    pub shared: bool,
    /// The volume that it is bound to, by name.
    pub volume: Option<String>,
    /// The `StorageClass`, by name.
    pub class: Option<String>,
}

/// A `PersistentVolume`.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    pub name: String,
    pub uid: Uid,
    /// The nodes that can use it; `None`: any.
    pub nodes: Option<NodeSelector>,
    /// A directory or a disk of a node: `hostPath` or `local`.
    pub node_local: bool,
    /// The CSI driver, where it has one.
    pub driver: Option<String>,
}

/// A `StorageClass`.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageClass {
    pub name: String,
    pub uid: Uid,
    /// The CSI driver, or what else makes the volumes.
    pub provisioner: String,
    /// The nodes for which it makes volumes: `allowedTopologies`; `None`: any.
    pub nodes: Option<NodeSelector>,
}

/// A `CSINode`: the drivers that have registered on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiNode {
    pub name: NodeName,
    pub uid: Uid,
    /// By the name of the driver: how many of its volumes the node can have attached, `allocatable.count`; `None`: any number.
    pub drivers: BTreeMap<String, Option<usize>>,
}
