//! The cluster by what the planner asks of it, so that no question looks through all objects: by node, by workload, by namespace. Each
//! index is made when it is first needed, at most once a pass. Pure.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::world::{
    Attachment, Budget, Cluster, Deployment, NodeClaim, NodeName, Pod, ReplicaSet, StatefulSet,
    Uid, WorkloadRef,
};

use super::owners::{owns_in, workload_of_controller};

/// The cluster by what the planner asks of it.
pub(super) struct Index<'a> {
    cluster: &'a Cluster,
    claims: OnceCell<HashMap<&'a NodeName, &'a NodeClaim>>,
    attachments: OnceCell<HashMap<&'a NodeName, Vec<&'a Attachment>>>,
    pods_on: OnceCell<HashMap<&'a NodeName, Vec<&'a Pod>>>,
    pods_of: OnceCell<HashMap<&'a Uid, Vec<&'a Pod>>>,
    namespaces: OnceCell<HashMap<&'a str, Namespace<'a>>>,
    daemons_to_come: OnceCell<HashMap<&'a str, &'a Pod>>,
}

/// What is in a namespace.
#[derive(Default)]
pub(super) struct Namespace<'a> {
    pub(super) pods: Vec<&'a Pod>,
    pub(super) budgets: Vec<&'a Budget>,
    pub(super) deployments: Vec<&'a Deployment>,
    pub(super) replica_sets: Vec<&'a ReplicaSet>,
    pub(super) stateful_sets: Vec<&'a StatefulSet>,
}

/// Values by a key that each of them has, in their order.
fn group<'a, K: Eq + Hash, T>(
    values: impl Iterator<Item = &'a T>,
    key: impl Fn(&'a T) -> Option<K>,
) -> HashMap<K, Vec<&'a T>> {
    let mut groups: HashMap<K, Vec<&'a T>> = HashMap::new();
    for value in values {
        if let Some(key) = key(value) {
            groups.entry(key).or_default().push(value);
        }
    }
    groups
}

impl<'a> Index<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            claims: OnceCell::new(),
            attachments: OnceCell::new(),
            pods_on: OnceCell::new(),
            pods_of: OnceCell::new(),
            namespaces: OnceCell::new(),
            daemons_to_come: OnceCell::new(),
        }
    }

    fn pods(&self) -> impl Iterator<Item = &'a Pod> + use<'a> {
        self.cluster.pods.values().map(AsRef::as_ref)
    }

    /// The `NodeClaim` whose node is of that name; the first, should several say so.
    pub(super) fn claim_of(&self, node: &NodeName) -> Option<&'a NodeClaim> {
        let claims = self.claims.get_or_init(|| {
            let mut claims = HashMap::new();
            let karpenter = self.cluster.karpenter.iter();
            for claim in karpenter.flat_map(|k| k.claims.values()) {
                if let Some(node) = &claim.node {
                    claims.entry(node).or_insert(claim.as_ref());
                }
            }
            claims
        });
        claims.get(node).copied()
    }

    /// The volumes that are attached to a node.
    pub(super) fn attachments_of(&self, node: &NodeName) -> &[&'a Attachment] {
        let attachments = self.attachments.get_or_init(|| {
            let all = self.cluster.attachments.values().map(AsRef::as_ref);
            group(all, |a| Some(&a.node))
        });
        attachments.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// The pods that are bound to a node.
    pub(super) fn pods_on(&self, node: &NodeName) -> &[&'a Pod] {
        let pods = self
            .pods_on
            .get_or_init(|| group(self.pods(), |p| p.node.as_ref()));
        pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// The pods of a workload, those that have finished and are not on their way out left out.
    pub(super) fn pods_of(&self, workload: &Uid) -> &[&'a Pod] {
        let pods = self.pods_of.get_or_init(|| {
            // Pods come in crowds that have one controller: each is followed once.
            let mut known: HashMap<&Uid, Option<&'a WorkloadRef>> = HashMap::new();
            let pods = self.pods().filter(|p| !p.finished || p.terminating);
            let mut groups: HashMap<&'a Uid, Vec<&'a Pod>> = HashMap::new();
            for pod in pods {
                let Some(controller) = &pod.controller else {
                    continue;
                };
                let follow = || workload_of_controller(self.cluster, &controller.uid);
                let workload = *known.entry(&controller.uid).or_insert_with(follow);
                if let Some(workload) = workload.filter(|w| owns_in(w, &pod.reference.namespace)) {
                    groups.entry(&workload.uid).or_default().push(pod);
                }
            }
            groups
        });
        pods.get(workload).map(Vec::as_slice).unwrap_or_default()
    }

    /// A pod that its `DaemonSet` has made for the node, and that the scheduler has not tried to place yet.
    ///
    /// What cannot be placed there is not waited for: nothing that gives way would help it. Source: the `DaemonSet` controller binds its
    /// pods by a required node affinity on `metadata.name`.
    pub(super) fn daemon_to_come(&self, node: &NodeName) -> Option<&'a Pod> {
        let pods = self.daemons_to_come.get_or_init(|| {
            let new = |p: &&Pod| {
                let of_daemon_set = p.controller.as_ref().is_some_and(|c| c.kind == "DaemonSet");
                let open = !p.finished && !p.terminating && p.node.is_none();
                open && of_daemon_set && p.unschedulable.is_none()
            };
            let meant = |pod: &'a Pod| {
                let terms = pod.shape.required_affinity.iter();
                let terms = terms.flat_map(|a| &a.node_selector_terms);
                let fields = terms.flat_map(|t| t.match_fields.iter().flatten());
                let names = fields.filter(|f| f.key == "metadata.name" && f.operator == "In");
                names.flat_map(|f| f.values.iter().flatten())
            };
            let pods = self.pods().filter(new);
            let pods = pods.flat_map(|pod| meant(pod).map(move |node| (node.as_str(), pod)));
            pods.collect()
        });
        pods.get(node.as_str()).copied()
    }

    /// What is in a namespace; `None`: nothing.
    pub(super) fn namespace(&self, name: &str) -> Option<&Namespace<'a>> {
        let namespaces = self.namespaces.get_or_init(|| {
            let mut all: HashMap<&'a str, Namespace<'a>> = HashMap::new();
            let cluster = self.cluster;
            for pod in self.pods() {
                let namespace = pod.reference.namespace.as_str();
                all.entry(namespace).or_default().pods.push(pod);
            }
            for budget in cluster.budgets.values() {
                let namespace = budget.namespace.as_str();
                all.entry(namespace).or_default().budgets.push(budget);
            }
            for deployment in cluster.deployments.values() {
                let namespace = deployment.reference.namespace.as_str();
                let there = all.entry(namespace).or_default();
                there.deployments.push(deployment);
            }
            for set in cluster.replica_sets.values() {
                let namespace = set.reference.namespace.as_str();
                all.entry(namespace).or_default().replica_sets.push(set);
            }
            for set in cluster.stateful_sets.values() {
                let namespace = set.reference.namespace.as_str();
                all.entry(namespace).or_default().stateful_sets.push(set);
            }
            all
        });
        namespaces.get(name)
    }
}

/// The placeholders of one relocation.
pub(super) struct Placeholders<'a> {
    /// All of them, those on their way out too.
    pub(super) all: Vec<&'a Pod>,
    of_workload: HashMap<&'a Uid, Vec<&'a Pod>>,
    of_pod: HashSet<&'a Uid>,
    on: HashSet<&'a NodeName>,
}

impl<'a> Placeholders<'a> {
    pub(super) fn new(cluster: &'a Cluster, relocation: &Uid) -> Self {
        let mut found = Self {
            all: Vec::new(),
            of_workload: HashMap::new(),
            of_pod: HashSet::new(),
            on: HashSet::new(),
        };
        for pod in cluster.pods.values() {
            let Some(label) = &pod.placeholder else {
                continue;
            };
            if label.relocation != *relocation {
                continue;
            }
            found.all.push(pod);
            found.of_pod.insert(&label.pod);
            found.on.extend(&pod.node);
            if !pod.terminating && !pod.finished {
                let of_workload = found.of_workload.entry(&label.workload);
                of_workload.or_default().push(pod);
            }
        }
        found
    }

    /// Those of a workload that are not on their way out.
    pub(super) fn of_workload(&self, workload: &Uid) -> &[&'a Pod] {
        let pods = self.of_workload.get(workload);
        pods.map(Vec::as_slice).unwrap_or_default()
    }

    /// There is one for the pod, on its way out or not.
    pub(super) fn has_one_for(&self, pod: &Pod) -> bool {
        self.of_pod.contains(&pod.reference.uid)
    }

    /// There is one on the node.
    pub(super) fn is_on(&self, node: &NodeName) -> bool {
        self.on.contains(node)
    }
}
