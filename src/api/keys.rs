//! Every name that relocator writes into, or looks for in, a cluster. Constants only: nothing here decides anything. Those that
//! keep autoscalers away are in [`guards`](super::guards).
//!
//! A key of ours is always `relocation.sh/...`; whatever carries one is ours to put back, and nothing else is.

/// API group of [`NodeRelocation`](super::relocation::NodeRelocation), and the prefix of every key of ours.
pub const GROUP: &str = "relocation.sh";

/// Version of the API that is served and stored.
pub const VERSION: &str = "v1alpha1";

/// Kind of the only resource of the group.
pub const KIND: &str = "NodeRelocation";

/// Finalizer on a `NodeRelocation`: it leaves only when all that the relocation set has been put back.
pub const FINALIZER: &str = "relocation.sh/restore";

/// Annotation on a Node or `NodeClaim`: the relocation that holds it, as `<name>/<uid>` of the `NodeRelocation`.
/// Names alone pass on to a successor; the UID tells a claim that outlived its relocation.
pub const CLAIMED_BY: &str = "relocation.sh/claimed-by";

/// Annotation on a Node whose `spec.unschedulable` relocator itself set; same value as [`CLAIMED_BY`].
/// A cordon without it was there before and stays.
pub const CORDONED_BY: &str = "relocation.sh/cordoned-by";

/// Label of a placeholder; its value is the name of the relocation, which is why that name has at most
/// [`MAX_NAME_LENGTH`] characters.
pub const RELOCATION_LABEL: &str = "relocation.sh/relocation";

/// Longest name of a relocation: the limit of a label value.
pub const MAX_NAME_LENGTH: u32 = 63;

/// Annotation of a placeholder: the pod whose room it keeps, as `<namespace>/<name>/<uid>`.
pub const PLACEHOLDER_FOR: &str = "relocation.sh/placeholder-for";

/// Annotation of a pod template by which `kubectl rollout restart`, and so relocator, starts a rollout.
pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Namespace of the placeholders, under the restricted Pod Security Standard and with nothing else in it.
pub const PLACEHOLDER_NAMESPACE: &str = "relocator-placeholders";

/// Priority class of the placeholders: they give way to every pod, and preempt none.
pub const PRIORITY_CLASS: &str = "relocator-placeholder";

/// Value of [`PRIORITY_CLASS`]. Cluster Autoscaler ignores pods below -10, and Karpenter takes a node whose pods are
/// all far below as empty: -10 is the lowest that both count.
pub const PRIORITY: i32 = -10;

/// Field manager of every write. It must not start with `kubectl`: Flux undoes what such a manager set.
pub const FIELD_MANAGER: &str = "relocator";

/// Namespace of the operator and of its Lease.
pub const SYSTEM_NAMESPACE: &str = "relocator-system";

/// Label of a Node: the `NodePool` that made it (Karpenter from v0.32).
pub const NODEPOOL_LABEL: &str = "karpenter.sh/nodepool";

/// Label of a Node: the Provisioner that made it (Karpenter to v0.31).
pub const PROVISIONER_NAME_LABEL: &str = "karpenter.sh/provisioner-name";

/// Label that Karpenter sets to `"true"` when a node has all its resources and has lost its startup taints.
pub const INITIALIZED_LABEL: &str = "karpenter.sh/initialized";

/// Label that Karpenter sets to `"true"` when a node has joined the cluster.
pub const REGISTERED_LABEL: &str = "karpenter.sh/registered";

/// Label of a placeholder: UID of the pod that it keeps a place for.
pub const POD_UID_LABEL: &str = "relocation.sh/pod-uid";

/// Label of a placeholder: UID of the workload of that pod.
pub const WORKLOAD_UID_LABEL: &str = "relocation.sh/workload-uid";

/// Pod annotation by which a `ReplicaSet` chooses whom to remove first: the lowest. Source: KEP-2255.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The cost that we set: below 0, which is what a pod without the annotation has.
pub const DELETION_COST_VALUE: &str = "-1000";

/// Annotation of a pod: which relocation set the deletion cost beside it. Value as of [`CLAIMED_BY`].
pub const COSTED_BY: &str = "relocation.sh/deletion-cost-by";

/// Label of a Deployment whose replica count is raised for the moment: by which relocation, from which count and to which, as
/// `UID.FROM.TO`. Set and removed in the same write as the count.
///
/// Not an annotation: the Deployment controller copies those to the `ReplicaSet`, where nobody would take it away.
pub const SURGE_LABEL: &str = "relocation.sh/surge";
