//! The world arranged around one relocation: its nodes, their pods, the workloads of those, its placeholders. Pure.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use crate::api::relocation::NodeRelocationSpec;
use crate::api::status::{NodeRelocationStatus, NodeStatus, WorkloadState, WorkloadStatus};
use crate::world::{
    Attachment, Budget, ClaimValue, Cluster, Deployment, Health, Node, NodeClaim, NodeName,
    OtherOwner, OwnerSight, Pod, ReplicaSet, StatefulSet, Uid, Unknown, WorkloadKind, WorkloadRef,
    World,
};

use super::attach::{self, Attach};
use super::batch;
use super::index::{Index, Namespace, Placeholders};
use super::near::{self, Near};
use super::owners::workload_of;
use super::parent::{self, Parent};
use super::policy::Policy;
use super::rank::{Admission, Rank, rank};
use super::report::Finding;
use super::treatment::{Treatment, treatment};
use super::volumes::Volumes;

/// The world arranged around one relocation.
pub(super) struct Scene<'a> {
    pub(super) world: &'a World,
    pub(super) cluster: &'a Cluster,
    pub(super) spec: &'a NodeRelocationSpec,
    pub(super) policy: Policy<'a>,
    /// What of the spec cannot be read.
    pub(super) unreadable: Vec<Finding>,
    /// What our marks say.
    pub(super) claim: ClaimValue,
    /// The selected nodes, as frozen in status.
    pub(super) nodes: Vec<Selected<'a>>,
    pub(super) works: Vec<Work<'a>>,
    pub(super) placeholders: Placeholders<'a>,
    index: Index<'a>,
    nodes_by_name: HashMap<&'a NodeName, &'a Node>,
    selected: HashSet<&'a str>,
    /// The volumes of all pods.
    volumes: Volumes<'a>,
    /// Which workloads have to be near each other.
    near: Near,
    attach: OnceCell<Attach<'a>>,
}

/// A selected node.
pub(super) struct Selected<'a> {
    pub(super) record: &'a NodeStatus,
    /// It is one of the batch of nodes that is being emptied now.
    pub(super) due: bool,
    /// The node while it exists under the recorded UID.
    pub(super) node: Option<&'a Node>,
    pub(super) pods: Vec<(&'a Pod, Treatment)>,
}

impl Selected<'_> {
    /// Pods that have to leave before the node is empty.
    pub(super) fn left(&self) -> impl Iterator<Item = &(&Pod, Treatment)> {
        self.pods.iter().filter(|(_, t)| t.counts())
    }
}

/// What makes pods again.
#[derive(Clone, Copy)]
pub(super) enum Owner<'a> {
    Deployment(&'a Deployment),
    ReplicaSet(&'a ReplicaSet),
    StatefulSet(&'a StatefulSet),
    Other(&'a OtherOwner),
    /// Nothing makes the pod again.
    Nobody,
    /// It exists no more: its pods vanish with it.
    Gone,
    /// Whether it exists is not known; why, where there is an answer.
    Unread(Option<&'a Unknown>),
}

/// A workload that has, or had, pods on selected nodes.
pub(super) struct Work<'a> {
    pub(super) reference: WorkloadRef,
    pub(super) owner: Owner<'a>,
    /// The controller above a Deployment or `StatefulSet`.
    pub(super) parent: Option<Parent<'a>>,
    pub(super) record: Option<&'a WorkloadStatus>,
    /// Workloads of a lower order move first.
    pub(super) order: i32,
    /// Workloads of a lower rank move first, the order being a part of it.
    pub(super) rank: Rank,
    /// Its pods on selected nodes, terminating ones included.
    pub(super) left: Vec<&'a Pod>,
    /// Those of them that are to leave in the batch of nodes that is being emptied now. All of them where a restart moves them, which
    /// knows no nodes.
    pub(super) due: Vec<&'a Pod>,
    /// Its other pods, unscheduled ones included, those on their way out not.
    pub(super) elsewhere: Vec<&'a Pod>,
    /// Its other pods that are on their way out: terminating, or bound to a node that is gone. What such a pod says of itself, that it is
    /// Ready for example, is nobody's word any more.
    pub(super) ending_elsewhere: Vec<&'a Pod>,
    /// How many of those have lost their node.
    pub(super) orphans: usize,
    /// A pod of it beside one on a selected node could not have the volumes of that one.
    pub(super) volume_for_one: bool,
    /// Its pods that have finished and are terminating: nothing runs, but a `StatefulSet` makes no successor while the object is there.
    pub(super) remains: Vec<&'a Pod>,
}

impl<'a> Work<'a> {
    pub(super) fn replicas(&self) -> usize {
        let replicas = match self.owner {
            // A count that is raised for the moment is not what the workload is to have.
            Owner::Deployment(d) => d
                .surge
                .as_ref()
                .filter(|mark| mark.to == d.replicas)
                .map_or(d.replicas, |mark| mark.from),
            Owner::ReplicaSet(r) => r.replicas,
            Owner::StatefulSet(s) => s.replicas,
            Owner::Other(o) => match (self.record.and_then(|r| r.size), o.replicas) {
                (Some(size), _) => size,
                (None, Some(replicas)) => replicas,
                (None, None) => return self.size(),
            },
            Owner::Unread(_) => match self.record.and_then(|r| r.size) {
                Some(size) => size,
                None => return self.size(),
            },
            Owner::Nobody | Owner::Gone => 0,
        };
        replicas as usize
    }

    /// All its pods that have not finished.
    pub(super) fn pods(&self) -> Vec<&'a Pod> {
        let lists = [&self.left, &self.elsewhere, &self.ending_elsewhere];
        lists.into_iter().flatten().copied().collect()
    }

    /// The pods that it has, those on their way out not counted.
    pub(super) fn size(&self) -> usize {
        self.staying().count() + self.elsewhere.len()
    }

    /// What a record has to say of its size: nothing where the owner itself says how many pods it is to have.
    pub(super) fn size_to_record(&self) -> Option<usize> {
        let size = self.size();
        match self.owner {
            Owner::Other(o) if o.job.is_none() && o.replicas.map(|n| n as usize) != Some(size) => {
                Some(size)
            }
            _ => None,
        }
    }

    /// Nothing makes its pods again: no place is needed for them.
    pub(super) fn vanishes(&self) -> bool {
        matches!(self.owner, Owner::Nobody | Owner::Gone)
    }

    /// Pods on selected nodes that have not been asked to go.
    pub(super) fn staying(&self) -> impl Iterator<Item = &'a Pod> {
        self.left.iter().copied().filter(|p| !p.terminating)
    }

    /// Pods of this batch of nodes that have not been asked to go.
    pub(super) fn leaving(&self) -> impl Iterator<Item = &'a Pod> {
        self.due.iter().copied().filter(|p| !p.terminating)
    }

    /// Nothing of it is to leave in this batch of nodes, and what has left before has arrived.
    pub(super) fn rests(&self) -> bool {
        let later = self.due.is_empty() && !self.left.is_empty();
        self.has_moved() || (later && self.state() == WorkloadState::Pending)
    }

    pub(super) fn ending(&self) -> usize {
        self.left.iter().filter(|p| p.terminating).count() + self.ending_elsewhere.len()
    }

    fn ready(&self) -> usize {
        self.left
            .iter()
            .chain(&self.elsewhere)
            .filter(|p| p.ready)
            .count()
    }

    /// All its replicas are there, Ready and, by its own status, available; no rollout is running.
    ///
    /// Both are asked: the pods' watch and the owner's run at their own pace, and the one that is behind must not be believed alone.
    pub(super) fn whole(&self) -> bool {
        self.whole_itself() && self.parent.is_none_or(|parent| parent.consents())
    }

    /// As [`Self::whole`], whatever the controller above it says.
    pub(super) fn whole_itself(&self) -> bool {
        let own_status = match self.owner {
            Owner::Deployment(d) => d.whole(),
            Owner::ReplicaSet(r) => r.observed && r.available >= r.replicas,
            Owner::StatefulSet(s) => s.observed && s.available >= s.replicas && s.rolled_out,
            Owner::Other(o) => {
                !o.deleting && !matches!(o.health, Health::Unwell(_)) && !self.restarts(o)
                    || o.job.is_some_and(|job| job.finished)
            }
            Owner::Nobody | Owner::Gone => true,
            Owner::Unread(_) => false,
        };
        // More pods than replicas: the owner has asked one to go, and the watch of pods has not told which.
        let fits = self.vanishes() || self.size() == self.replicas();
        own_status && fits && self.ready() >= self.replicas() && self.ending() == 0
    }

    /// A Rollout that was restarted for the move, and has not replaced all its pods yet.
    fn restarts(&self, owner: &OtherOwner) -> bool {
        let asked = self.record.is_some_and(|r| r.restarted_from.is_some());
        let rollout = owner.rollout.as_ref();
        asked && rollout.is_some_and(crate::world::Rollout::is_restarting)
    }

    /// Replicas that are on their way: gone from a selected node, not Ready elsewhere yet.
    pub(super) fn missing(&self) -> usize {
        let here = self.left.iter().filter(|p| !p.ready).count();
        self.replicas().saturating_sub(self.ready() + here)
    }

    pub(super) fn state(&self) -> WorkloadState {
        self.record.map_or(WorkloadState::Pending, |r| r.state)
    }

    /// Nothing of it is on selected nodes, and all of it has been Ready elsewhere, on nodes that are still there.
    pub(super) fn has_moved(&self) -> bool {
        self.state() == WorkloadState::Moved && self.left.is_empty() && self.orphans == 0
    }

    /// Pods on selected nodes, and gone from everywhere else in between, that a person would count as on the move now.
    pub(super) fn on_the_move(&self) -> usize {
        if self.state() != WorkloadState::Moving {
            return self.left.iter().filter(|p| p.terminating).count();
        }
        let restarting = self
            .record
            .is_some_and(|r| r.strategy == crate::api::status::MoveStrategy::RolloutRestart);
        let missing = self.replicas().saturating_sub(self.ready());
        // Between two of its pods all are Ready for a moment.
        if let Owner::StatefulSet(_) = self.owner
            && restarting
            && !self.whole()
        {
            return missing.max(self.ending()).max(1);
        }
        if let Owner::Deployment(d) = self.owner
            && restarting
            && !self.whole()
        {
            let crate::world::RolloutStrategy::RollingUpdate {
                max_surge,
                max_unavailable,
            } = d.strategy
            else {
                return self.replicas();
            };
            return (max_surge.saturating_add(max_unavailable) as usize)
                .clamp(1, self.replicas().max(1));
        }
        if let Owner::Deployment(d) = self.owner
            && let Some(mark) = &d.surge
        {
            return (mark.to.saturating_sub(mark.from) as usize).max(self.ending());
        }
        missing.max(self.ending())
    }
}

impl<'a> Scene<'a> {
    /// Everything.
    pub(super) fn new(world: &'a World, cluster: &'a Cluster) -> Self {
        let mut scene = Self::of_nodes(world, cluster);
        let on_selected: Vec<_> = scene.nodes.iter().flat_map(|n| n.pods.iter()).collect();
        scene.works = scene.arrange(on_selected.into_iter());
        batch::divide(&mut scene);
        scene.near = near::near(&scene);
        scene
    }

    /// The selected nodes and what is on them, without the workloads.
    pub(super) fn of_nodes(world: &'a World, cluster: &'a Cluster) -> Self {
        let relocation = &world.relocation;
        let uid = Uid::from(relocation.metadata.uid.clone().unwrap_or_default());
        let claim = ClaimValue {
            name: relocation.metadata.name.clone().unwrap_or_default(),
            uid: uid.clone(),
        };
        let (policy, unreadable) = Policy::new(&relocation.spec.workloads);
        let nodes_by_name = cluster
            .nodes
            .values()
            .map(|n| (&n.name, n.as_ref()))
            .collect();
        let mut scene = Self {
            world,
            cluster,
            spec: &relocation.spec,
            policy,
            unreadable,
            claim,
            nodes: Vec::new(),
            works: Vec::new(),
            placeholders: Placeholders::new(cluster, &uid),
            index: Index::new(cluster),
            nodes_by_name,
            selected: HashSet::new(),
            volumes: Volumes::new(cluster),
            near: Near::default(),
            attach: OnceCell::new(),
        };
        let records = scene.started().map(|s| s.nodes.as_slice());
        let records = records.unwrap_or_default();
        scene.selected = records.iter().map(|r| r.uid.as_str()).collect();
        scene.nodes = records
            .iter()
            .map(|record| {
                let node = cluster
                    .nodes
                    .get(&Uid::from(record.uid.as_str()))
                    .map(AsRef::as_ref);
                Selected {
                    record,
                    due: true,
                    node,
                    pods: node.map(|n| scene.classified(n)).unwrap_or_default(),
                }
            })
            .collect();
        scene
    }

    /// The status once it has started. Before that, what status lists is a plan, which is made anew.
    fn started(&self) -> Option<&'a NodeRelocationStatus> {
        let status = self.world.relocation.status.as_ref();
        status.filter(|s| s.start_time.is_some())
    }

    /// The workloads that are listed in status.
    pub(super) fn records(&self) -> impl Iterator<Item = &'a WorkloadStatus> + use<'a> {
        let status = self.started();
        status.map(|s| s.workloads.iter()).unwrap_or_default()
    }

    /// The pods that are bound to a node.
    pub(super) fn pods_on_node(&self, node: &NodeName) -> &[&'a Pod] {
        self.index.pods_on(node)
    }

    /// The `NodeClaim` whose node is of that name.
    pub(super) fn claim_of(&self, node: &NodeName) -> Option<&'a NodeClaim> {
        self.index.claim_of(node)
    }

    /// The volumes that are attached to a node.
    pub(super) fn attachments_of(&self, node: &NodeName) -> &[&'a Attachment] {
        self.index.attachments_of(node)
    }

    /// A pod of a `DaemonSet` that is about to come to the node.
    pub(super) fn daemon_to_come(&self, node: &NodeName) -> Option<&'a Pod> {
        self.index.daemon_to_come(node)
    }

    /// The volumes that nodes have attached, and can have.
    pub(super) fn attach(&self) -> &Attach<'a> {
        self.attach.get_or_init(|| attach::attach(self))
    }

    /// What is to become of a pod on a selected node.
    pub(super) fn treatment(&self, pod: &Pod) -> Treatment {
        treatment(self.cluster, &self.policy, pod)
    }

    /// The pods on a node, each with what is to become of it.
    pub(super) fn classified(&self, node: &'a Node) -> Vec<(&'a Pod, Treatment)> {
        self.pods_on_node(&node.name)
            .iter()
            .map(|pod| (*pod, self.treatment(pod)))
            .collect()
    }

    /// The works of nodes that are not recorded yet.
    pub(super) fn works_of(&self, pods: &[(&'a Pod, Treatment)]) -> Vec<Work<'a>> {
        self.arrange(pods.iter())
    }

    fn arrange<'b>(
        &self,
        on_selected: impl Iterator<Item = &'b (&'a Pod, Treatment)>,
    ) -> Vec<Work<'a>>
    where
        'a: 'b,
    {
        let mut works = works(self, on_selected);
        for work in &mut works {
            let mut with_volumes = work.left.iter().filter(|p| !p.claims.is_empty());
            work.volume_for_one = with_volumes.any(|p| self.volumes().for_one_only(p));
        }
        works
    }

    /// The volumes of all pods.
    pub(super) fn volumes(&self) -> &Volumes<'a> {
        &self.volumes
    }

    /// Which workloads have to be near each other.
    pub(super) fn near(&self) -> &Near {
        &self.near
    }

    pub(super) fn node(&self, name: &NodeName) -> Option<&'a Node> {
        self.nodes_by_name.get(name).copied()
    }

    pub(super) fn is_selected(&self, node: &Node) -> bool {
        self.selected.contains(node.uid.as_str())
    }

    /// Our placeholders for a workload that are not on their way out.
    pub(super) fn placeholders_of(&self, workload: &Uid) -> impl Iterator<Item = &'a Pod> {
        self.placeholders.of_workload(workload).iter().copied()
    }

    pub(super) fn namespace(&self, name: &str) -> Option<&Namespace<'a>> {
        self.index.namespace(name)
    }

    /// The budgets that cover the pod.
    pub(super) fn budgets_of(&self, pod: &Pod) -> impl Iterator<Item = &'a Budget> {
        let namespace = self.index.namespace(&pod.reference.namespace);
        let budgets = namespace.map(|n| n.budgets.iter().copied());
        budgets.unwrap_or_default().filter(move |b| b.covers(pod))
    }

    /// How many pods of any workload are Ready, as the watch of pods tells.
    pub(super) fn ready_of(&self, workload: &Uid) -> usize {
        let pods = self.index.pods_of(workload).iter();
        pods.filter(|p| p.ready).count()
    }
}

/// The workloads of the pods given and those recorded, in the order of the record, then by name.
fn works<'a, 'b>(
    scene: &Scene<'a>,
    on_selected: impl Iterator<Item = &'b (&'a Pod, Treatment)>,
) -> Vec<Work<'a>>
where
    'a: 'b,
{
    let cluster = scene.cluster;
    // By UID, whatever else is recorded of the workload.
    let mut left: HashMap<&'a Uid, Vec<&'a Pod>> = HashMap::new();
    let mut order: Vec<(WorkloadRef, Option<&'a WorkloadStatus>)> = Vec::new();
    let records = scene.records();
    order.extend(records.filter_map(|r| Some((reference(r)?, Some(r)))));
    let listed: HashSet<&str> = scene.records().map(|r| r.uid.as_str()).collect();
    let mut unlisted = Vec::new();
    let mut is_left: HashSet<*const Pod> = HashSet::new();
    for (pod, _) in on_selected.filter(|(_, treatment)| treatment.moves()) {
        let workload = workload_of(cluster, pod);
        let uid = workload.map_or(&pod.reference.uid, |w| &w.uid);
        let pods = left.entry(uid).or_default();
        if pods.is_empty() && !listed.contains(uid.as_str()) {
            unlisted.push(owner_of(workload, pod));
        }
        pods.push(pod);
        is_left.insert(std::ptr::from_ref(*pod));
    }
    unlisted.sort();
    order.extend(unlisted.into_iter().map(|w| (w, None)));

    let orphan = |pod: &Pod| pod.node.as_ref().is_some_and(|n| scene.node(n).is_none());
    let admission = Admission::new(cluster);
    let works = order.into_iter().map(|(reference, record)| {
        let left = left.remove(&reference.uid).unwrap_or_default();
        let others = scene.index.pods_of(&reference.uid).iter().copied();
        let others = others.filter(|p| !is_left.contains(&std::ptr::from_ref(*p)));
        let (remains, others): (Vec<&Pod>, Vec<&Pod>) = others.partition(|p| p.finished);
        let (ending_elsewhere, elsewhere): (Vec<&Pod>, Vec<&Pod>) =
            others.into_iter().partition(|p| p.terminating || orphan(p));
        let by_rules = || lowest_order(&scene.policy, &reference, &left);
        let order = record.map_or_else(by_rules, |r| r.order);
        let all: Vec<_> = left.iter().chain(&elsewhere).copied().collect();
        Work {
            owner: owner(cluster, &reference),
            parent: parent::of(cluster, &reference),
            rank: rank(&admission, order, &all),
            order,
            record,
            due: left.clone(),
            left,
            elsewhere,
            orphans: ending_elsewhere.iter().filter(|p| orphan(p)).count(),
            ending_elsewhere,
            remains,
            volume_for_one: false,
            reference,
        }
    });
    works.collect()
}

/// The workload of a pod that moves: the one that makes it again, in the namespace of the pod where it is in none itself; or the pod, for
/// which nobody does.
fn owner_of(workload: Option<&WorkloadRef>, pod: &Pod) -> WorkloadRef {
    let namespace = pod.reference.namespace.clone();
    match workload {
        Some(workload) => WorkloadRef {
            namespace,
            ..workload.clone()
        },
        None => WorkloadRef {
            kind: WorkloadKind::Pod,
            namespace,
            name: pod.reference.name.clone(),
            uid: pod.reference.uid.clone(),
        },
    }
}

/// The lowest order of its pods that have to move.
fn lowest_order(policy: &Policy<'_>, workload: &WorkloadRef, left: &[&Pod]) -> i32 {
    let kind = workload.kind.to_string();
    let orders = left.iter().map(|pod| policy.order(&kind, pod));
    orders.min().unwrap_or_default()
}

/// The workload that is meant by a record.
pub(super) fn reference(record: &WorkloadStatus) -> Option<WorkloadRef> {
    Some(WorkloadRef {
        kind: WorkloadKind::parse(&record.kind, record.api_version.as_deref())?,
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        uid: record.uid.as_str().into(),
    })
}

fn owner<'a>(cluster: &'a Cluster, workload: &WorkloadRef) -> Owner<'a> {
    match &workload.kind {
        WorkloadKind::Deployment => cluster
            .deployments
            .get(&workload.uid)
            .map(|d| Owner::Deployment(d)),
        WorkloadKind::ReplicaSet => cluster
            .replica_sets
            .get(&workload.uid)
            .map(|r| Owner::ReplicaSet(r)),
        WorkloadKind::StatefulSet => cluster
            .stateful_sets
            .get(&workload.uid)
            .map(|s| Owner::StatefulSet(s)),
        WorkloadKind::Other { .. } => Some(match cluster.owners.get(&workload.uid) {
            Some(OwnerSight::Found(owner)) => Owner::Other(owner),
            Some(OwnerSight::Missing) => Owner::Gone,
            Some(OwnerSight::Unserved(unknown) | OwnerSight::Failed(unknown)) => {
                Owner::Unread(Some(unknown))
            }
            None => Owner::Unread(None),
        }),
        WorkloadKind::Pod => Some(Owner::Nobody),
    }
    .unwrap_or(Owner::Gone)
}
