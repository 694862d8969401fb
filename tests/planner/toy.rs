//! A toy cluster: a world that is made by short calls, is looked at, planned for, and acted on as the API server would. What its
//! controllers do is in `controllers`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use relocator::api::guards::Guard;
use relocator::api::keys;
use relocator::api::relocation::{NodeRelocation, NodeRelocationSpec};
use relocator::api::status::NodeRelocationStatus;
use relocator::plan::{self, Action, Plan, Restore, Unguard};
use relocator::world::{
    Budget, ClaimValue, Cluster, DaemonSet, Deployment, Fresh, Generation, GuardMark, Karpenter,
    Managed, Marks, MountedClaim, Node, NodeClaim, NodeName, NodePool, OwnerReference, OwnerSight,
    PlaceholderLabel, PlaceholderSetup, Pod, PodRef, Priority, ReplicaSet, RolloutStrategy,
    SetUpdate, Shape, Sight, StatefulSet, Uid, Volume, VolumeClaim, WorkloadKind, WorkloadRef,
    World,
};

#[derive(Clone)]
pub(crate) struct Toy {
    pub(crate) now: Timestamp,
    version: u64,
    pub(crate) made: u32,
    pub(crate) relocation: NodeRelocation,
    pub(crate) cluster: Cluster,
    /// Nodes come by themselves where there is no room.
    pub(crate) autoscaled: bool,
    /// Pods that never get Ready, by name.
    pub(crate) sick: Vec<String>,
    /// Pods that never end once they terminate, by name.
    pub(crate) endless: Vec<String>,
}

fn reference(kind: WorkloadKind, name: &str) -> WorkloadRef {
    WorkloadRef {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("{kind}-{name}").into(),
        kind,
    }
}

fn labels(app: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), app.to_owned())])
}

pub(crate) fn owner(kind: &str, name: &str, uid: &Uid) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".into(),
        kind: kind.into(),
        name: name.into(),
        uid: uid.clone(),
    }
}

/// As by a person.
pub(crate) fn set_guard(marks: &mut Marks, guard: Guard, value: &str) {
    marks.guards.entry(guard).or_default().value = Some(value.into());
}

fn guard(marks: &mut Marks, guards: &[Guard]) {
    for guard in guards {
        set_guard(marks, *guard, Guard::VALUE);
        marks.guards.get_mut(guard).unwrap().by = Some(Toy::claim());
    }
}

fn unguard(marks: &mut Marks, guards: &[Unguard]) {
    for Unguard { guard, still_ours } in guards {
        let mark = marks.guards.get_mut(guard).expect("it was seen");
        mark.by = None;
        mark.value.take_if(|_| *still_ours);
    }
    marks.guards.retain(|_, mark| *mark != GuardMark::default());
}

impl Toy {
    /// An empty cluster without Karpenter, and a relocation with this spec.
    pub(crate) fn new(spec: serde_json::Value) -> Self {
        let spec: NodeRelocationSpec = serde_json::from_value(spec).expect("a valid spec");
        let mut relocation = NodeRelocation::new("move", spec);
        relocation.metadata.uid = Some("relocation-uid".into());
        relocation.metadata.generation = Some(1);
        relocation.metadata.resource_version = Some("1".into());
        Self {
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            version: 1,
            made: 0,
            relocation,
            cluster: Cluster::default(),
            autoscaled: false,
            sick: Vec::new(),
            endless: Vec::new(),
        }
    }

    pub(crate) fn claim() -> ClaimValue {
        ClaimValue {
            name: "move".into(),
            uid: "relocation-uid".into(),
        }
    }

    pub(crate) fn status(&self) -> NodeRelocationStatus {
        self.relocation.status.clone().unwrap_or_default()
    }

    /// The word of condition Ready.
    pub(crate) fn stage(&self) -> String {
        self.status()
            .conditions
            .iter()
            .find(|c| c.type_ == "Ready")
            .map(|c| c.reason.clone())
            .unwrap_or_default()
    }

    pub(crate) fn reasons(&self) -> Vec<String> {
        self.status()
            .blockers
            .iter()
            .map(|b| b.reason.to_string())
            .collect()
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    // The world.

    pub(crate) fn node(&mut self, name: &str) -> &mut Node {
        let node = Node {
            name: name.into(),
            uid: format!("node-{name}").into(),
            resource_version: self.next_version(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            unschedulable: false,
            ready: true,
            created: Some(self.now),
            deleting: false,
            marks: Marks::default(),
        };
        let uid = node.uid.clone();
        Arc::make_mut(&mut self.cluster.nodes).insert(uid.clone(), Arc::new(node));
        self.node_mut(&uid)
    }

    /// A node of pool `apps` with a drifted `NodeClaim`.
    pub(crate) fn drifted(&mut self, name: &str) {
        self.karpenter_node(name, true);
    }

    pub(crate) fn karpenter_node(&mut self, name: &str, drifted: bool) {
        let karpenter = self
            .cluster
            .karpenter
            .get_or_insert_with(Karpenter::default);
        let claim = NodeClaim {
            name: format!("claim-{name}"),
            uid: format!("claim-{name}").into(),
            generation: Generation::V1,
            node: Some(name.into()),
            drifted,
            deleting: false,
            expires: None,
            message: None,
        };
        Arc::make_mut(&mut karpenter.claims).insert(claim.uid.clone(), Arc::new(claim));
        let pool = NodePool {
            name: "apps".into(),
            uid: "pool".into(),
            ..NodePool::default()
        };
        Arc::make_mut(&mut karpenter.pools).insert(pool.uid.clone(), Arc::new(pool));
        let labels = [
            (keys::NODEPOOL_LABEL, "apps"),
            (keys::INITIALIZED_LABEL, "true"),
        ];
        self.node(name).labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
    }

    pub(crate) fn node_mut(&mut self, uid: &Uid) -> &mut Node {
        Arc::make_mut(
            Arc::make_mut(&mut self.cluster.nodes)
                .get_mut(uid)
                .expect("the node is there"),
        )
    }

    pub(crate) fn by_name(&mut self, name: &str) -> &mut Node {
        self.node_mut(&format!("node-{name}").into())
    }

    pub(crate) fn pod_mut(&mut self, uid: &Uid) -> &mut Pod {
        Arc::make_mut(
            Arc::make_mut(&mut self.cluster.pods)
                .get_mut(uid)
                .expect("the pod is there"),
        )
    }

    /// A pod that is Ready on the node, or waits for one.
    pub(crate) fn pod(
        &mut self,
        name: &str,
        app: &str,
        node: Option<&str>,
        controller: Option<OwnerReference>,
    ) -> Uid {
        self.made += 1;
        let uid = Uid::from(format!("pod-{name}-{}", self.made));
        let pod = Pod {
            reference: PodRef {
                namespace: "default".into(),
                name: name.into(),
                uid: uid.clone(),
            },
            resource_version: self.next_version(),
            labels: labels(app),
            node: node.map(NodeName::from),
            finished: false,
            ready: node.is_some() && !self.sick.iter().any(|s| s == name),
            ready_since: node.map(|_| self.now),
            terminating: false,
            stops_by: None,
            finalizers: Vec::new(),
            created: Some(self.now),
            controller,
            mirror: false,
            pending: false,
            node_critical: false,
            claims: Vec::new(),
            empty_dirs: Vec::new(),
            marks: Marks::default(),
            unschedulable: None,
            placeholder: None,
            shape: Shape::default(),
        };
        Arc::make_mut(&mut self.cluster.pods).insert(uid.clone(), Arc::new(pod));
        uid
    }

    /// A claim of the pods whose names begin so, bound to a volume of its name that is on any node.
    pub(crate) fn volume(&mut self, pods: &str, claim: &str, shared: bool) -> &mut Volume {
        for pod in self.pods_named(pods) {
            let claims = &mut self.pod_mut(&pod.reference.uid).claims;
            claims.push(MountedClaim {
                name: claim.into(),
                ephemeral: false,
            });
        }
        let uid = Uid::from(format!("claim-{claim}"));
        let seen = VolumeClaim {
            namespace: "default".into(),
            name: claim.into(),
            uid: uid.clone(),
            shared,
            volume: Some(claim.into()),
            class: None,
        };
        Arc::make_mut(&mut self.cluster.volume_claims).insert(uid, Arc::new(seen));
        let uid = Uid::from(format!("volume-{claim}"));
        let volume = Volume {
            name: claim.into(),
            uid: uid.clone(),
            nodes: None,
            node_local: false,
            driver: None,
        };
        let volume = Arc::new(volume);
        let volumes = Arc::make_mut(&mut self.cluster.volumes);
        Arc::make_mut(volumes.entry(uid).or_insert(volume))
    }

    pub(crate) fn stateful_set(&mut self, name: &str, nodes: &[&str]) {
        let reference = reference(WorkloadKind::StatefulSet, name);
        let set = owner("StatefulSet", name, &reference.uid);
        for (ordinal, node) in nodes.iter().enumerate() {
            self.pod(
                &format!("{name}-{ordinal}"),
                name,
                Some(node),
                Some(set.clone()),
            );
        }
        let replicas = u32::try_from(nodes.len()).unwrap();
        let set = StatefulSet {
            resource_version: self.next_version(),
            generation: 1,
            replicas,
            available: replicas,
            observed: true,
            rolled_out: true,
            update: SetUpdate::RollingUpdate {
                partition: 0,
                max_unavailable: 1,
            },
            parallel: false,
            restarted_at: None,
            controller: None,
            pod_labels: labels(name),
            reference,
        };
        Arc::make_mut(&mut self.cluster.stateful_sets)
            .insert(set.reference.uid.clone(), Arc::new(set));
    }

    pub(crate) fn deployment(&mut self, name: &str, nodes: &[&str], strategy: RolloutStrategy) {
        let reference = reference(WorkloadKind::Deployment, name);
        let replicas = u32::try_from(nodes.len()).unwrap();
        let deployment = Deployment {
            resource_version: self.next_version(),
            generation: 1,
            replicas,
            updated: replicas,
            available: replicas,
            existing: replicas,
            observed: true,
            paused: false,
            strategy,
            restarted_at: None,
            deadline_exceeded: false,
            controller: None,
            surge: None,
            failure: None,
            managed: Managed::default(),
            pod_labels: labels(name),
            reference,
        };
        let uid = deployment.reference.uid.clone();
        Arc::make_mut(&mut self.cluster.deployments).insert(uid.clone(), Arc::new(deployment));
        let set = self.replica_set(&uid, None, replicas);
        for node in nodes {
            self.made += 1;
            let pod = format!("{name}-{}", self.made);
            let controller = owner("ReplicaSet", "set", &set);
            self.pod(&pod, name, Some(node), Some(controller));
        }
    }

    pub(crate) fn replica_set(
        &mut self,
        deployment: &Uid,
        restarted_at: Option<String>,
        replicas: u32,
    ) -> Uid {
        self.made += 1;
        let parent = self.cluster.deployments[deployment].reference.clone();
        let reference = reference(
            WorkloadKind::ReplicaSet,
            &format!("{}-{}", parent.name, self.made),
        );
        let reference = WorkloadRef {
            namespace: parent.namespace.clone(),
            ..reference
        };
        let set = ReplicaSet {
            replicas,
            existing: replicas,
            available: replicas,
            observed: true,
            controller: Some(owner("Deployment", &parent.name, &parent.uid)),
            restarted_at,
            pod_labels: labels(&parent.name),
            reference,
        };
        let uid = set.reference.uid.clone();
        Arc::make_mut(&mut self.cluster.replica_sets).insert(uid.clone(), Arc::new(set));
        uid
    }

    pub(crate) fn deployment_mut(&mut self, name: &str) -> &mut Deployment {
        let uid = reference(WorkloadKind::Deployment, name).uid;
        Arc::make_mut(
            Arc::make_mut(&mut self.cluster.deployments)
                .get_mut(&uid)
                .expect("the Deployment is there"),
        )
    }

    pub(crate) fn stateful_set_mut(&mut self, name: &str) -> &mut StatefulSet {
        let uid = reference(WorkloadKind::StatefulSet, name).uid;
        Arc::make_mut(
            Arc::make_mut(&mut self.cluster.stateful_sets)
                .get_mut(&uid)
                .expect("the StatefulSet is there"),
        )
    }

    pub(crate) fn daemon_set(&mut self, name: &str, nodes: &[&str]) {
        let set = DaemonSet {
            namespace: "default".into(),
            name: name.into(),
            uid: format!("DaemonSet-{name}").into(),
        };
        for node in nodes {
            self.pod(
                &format!("{name}-{node}"),
                name,
                Some(node),
                Some(owner("DaemonSet", name, &set.uid)),
            );
        }
        Arc::make_mut(&mut self.cluster.daemon_sets).insert(set.uid.clone(), Arc::new(set));
    }

    /// A budget over the pods of these apps that wants so many healthy.
    pub(crate) fn budget(&mut self, name: &str, app: &str, desired: i32) {
        let selector = [("app".to_owned(), app.to_owned())].into_iter().collect();
        let budget = Budget {
            namespace: "default".into(),
            name: name.into(),
            uid: format!("budget-{name}").into(),
            selector: Some(selector),
            disruptions_allowed: 0,
            current_healthy: 0,
            desired_healthy: desired,
            expected_pods: 0,
            always_allows_unhealthy: false,
            observed: true,
        };
        Arc::make_mut(&mut self.cluster.budgets).insert(budget.uid.clone(), Arc::new(budget));
        self.count_budgets();
    }

    pub(crate) fn count_budgets(&mut self) {
        let pods = Arc::clone(&self.cluster.pods);
        for budget in Arc::make_mut(&mut self.cluster.budgets).values_mut() {
            let covered: Vec<_> = pods
                .values()
                .filter(|p| budget.covers(p) && !p.finished)
                .cloned()
                .collect();
            let budget = Arc::make_mut(budget);
            budget.current_healthy =
                i32::try_from(covered.iter().filter(|p| p.ready).count()).unwrap();
            budget.expected_pods =
                i32::try_from(covered.iter().filter(|p| !p.terminating).count()).unwrap();
            budget.disruptions_allowed = (budget.current_healthy - budget.desired_healthy).max(0);
        }
    }

    pub(crate) fn pods_named(&self, prefix: &str) -> Vec<Arc<Pod>> {
        self.cluster
            .pods
            .values()
            .filter(|p| p.reference.name.starts_with(prefix) && p.placeholder.is_none())
            .cloned()
            .collect()
    }

    pub(crate) fn placeholders(&self) -> Vec<Arc<Pod>> {
        self.cluster
            .pods
            .values()
            .filter(|p| p.placeholder.is_some())
            .cloned()
            .collect()
    }

    // Looking, planning, acting.

    pub(crate) fn look(&self) -> World {
        self.look_at(Arc::new(self.cluster.clone()))
    }

    /// The world with a cluster that may be older than it is. Fresh reads are never old.
    pub(crate) fn look_at(&self, cluster: Arc<Cluster>) -> World {
        let mut world = World::unseen(self.relocation.clone(), self.now);
        world.sight = Sight::Known(cluster);
        world.setup = PlaceholderSetup::Read {
            namespace: true,
            priority: Some(Priority::OF_PLACEHOLDERS),
        };
        for confirm in plan::to_confirm(&world) {
            let pods = self
                .cluster
                .pods
                .values()
                .filter(|p| p.node.as_ref() == Some(&confirm.node));
            let attachments = self
                .cluster
                .attachments
                .values()
                .filter(|a| a.node == confirm.node);
            let read = Fresh::Read {
                pods: pods.map(|p| (**p).clone()).collect(),
                attachments: attachments.map(|a| (**a).clone()).collect(),
            };
            world.fresh.insert(confirm.node, read);
        }
        world
    }

    /// Plans and records, and does nothing yet.
    pub(crate) fn plan(&mut self) -> Plan {
        let plan = plan::plan(&self.look());
        self.record(&plan);
        plan
    }

    pub(crate) fn record(&mut self, plan: &Plan) {
        if self.relocation.status.as_ref() != Some(&plan.status) {
            self.relocation.status = Some(plan.status.clone());
            self.relocation.metadata.resource_version = Some(self.next_version());
        }
    }

    /// One pass, and then the controllers.
    pub(crate) fn step(&mut self) -> Plan {
        let plan = self.plan();
        for action in &plan.actions {
            crate::oracle::allows(self, action);
            self.carry_out(action);
        }
        self.tick();
        plan
    }

    /// As [`Self::step`], whatever is planned.
    pub(crate) fn pass(&mut self) {
        let _planned = self.step();
    }

    /// Steps until that is true of the toy.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        const MOST: usize = 400;
        for _ in 0..MOST {
            if holds(self) {
                return;
            }
            self.pass();
        }
        panic!("not {what} after {MOST} steps: {:#?}", self.status());
    }

    pub(crate) fn is_over(&self) -> bool {
        plan::is_over(&self.relocation)
            && self.relocation.metadata.finalizers.iter().flatten().count() == 0
    }

    /// Carries the action out as the API server would: false when its precondition does not hold.
    pub(crate) fn carry_out(&mut self, action: &Action) -> bool {
        let claim = Self::claim();
        let version = self.next_version();
        match action {
            Action::AddFinalizer => {
                self.relocation.metadata.finalizers = Some(vec![keys::FINALIZER.into()]);
            }
            Action::RemoveFinalizer | Action::DeleteRelocation => {
                self.relocation.metadata.finalizers = None;
            }
            Action::ClaimNode { node, .. }
            | Action::ProtectNode { node, .. }
            | Action::Cordon { node } => {
                if !self.is_current(node) {
                    return false;
                }
                let node = self.node_mut(&node.uid);
                node.resource_version = version;
                match action {
                    Action::ClaimNode { guards, .. } => {
                        node.marks.claimed_by = Some(claim);
                        guard(&mut node.marks, guards);
                    }
                    Action::ProtectNode { guards, .. } => guard(&mut node.marks, guards),
                    Action::Cordon { .. } => {
                        node.unschedulable = true;
                        node.marks.cordoned_by = Some(claim);
                    }
                    _ => unreachable!(),
                }
            }
            Action::ProtectPod { pod, .. } | Action::CheapenPod { pod } => {
                if !self.is_current_pod(pod) {
                    return false;
                }
                let pod = self.pod_mut(&pod.pod.uid);
                pod.resource_version = version;
                match action {
                    Action::ProtectPod { guards, .. } => guard(&mut pod.marks, guards),
                    Action::CheapenPod { .. } => {
                        pod.marks.deletion_cost = Some(keys::DELETION_COST_VALUE.into());
                        pod.marks.costed_by = Some(claim);
                    }
                    _ => unreachable!(),
                }
            }
            Action::CreatePlaceholder(placeholder) => {
                if self
                    .placeholders()
                    .iter()
                    .any(|p| p.reference.name == placeholder.name)
                {
                    return false;
                }
                let uid = self.pod(&placeholder.name, "placeholder", None, None);
                let label = PlaceholderLabel {
                    relocation: claim.uid,
                    pod: placeholder.pod.uid.clone(),
                    workload: placeholder.workload.uid.clone(),
                };
                let pod = self.pod_mut(&uid);
                pod.placeholder = Some(label);
                pod.shape = placeholder.shape.clone();
                let labels = [
                    (keys::POD_UID_LABEL, &placeholder.pod.uid),
                    (keys::WORKLOAD_UID_LABEL, &placeholder.workload.uid),
                ];
                let labels = labels.map(|(key, uid)| (key.to_owned(), uid.to_string()));
                pod.labels = labels.into();
                pod.reference.namespace = keys::PLACEHOLDER_NAMESPACE.into();
            }
            Action::Evict { pod, .. } => {
                let covered: Vec<_> = match self.cluster.pods.get(&pod.uid) {
                    Some(pod) => {
                        let budgets = self.cluster.budgets.values();
                        budgets.filter(|b| b.covers(pod)).cloned().collect()
                    }
                    None => return false,
                };
                if self.cluster.pods[&pod.uid].ready
                    && covered.iter().any(|b| b.disruptions_allowed < 1)
                {
                    return false;
                }
                let grace = jiff::SignedDuration::from_secs(30);
                let stops_by = self.now.checked_add(grace).unwrap();
                let pod = self.pod_mut(&pod.uid);
                pod.terminating = true;
                pod.stops_by = Some(stops_by);
                pod.ready = false;
                pod.resource_version = version;
            }
            Action::Restart {
                workload,
                resource_version,
                restarted_at,
            } if workload.kind == WorkloadKind::StatefulSet => {
                let there = self.cluster.stateful_sets.get(&workload.uid);
                if there.is_none_or(|s| s.resource_version != *resource_version) {
                    return false;
                }
                let set = self.stateful_set_mut(&workload.name);
                set.resource_version = version;
                set.generation += i64::from(set.restarted_at.as_ref() != Some(restarted_at));
                set.observed = false;
                set.restarted_at = Some(restarted_at.clone());
            }
            Action::Restart {
                workload,
                restarted_at,
                ..
            } if workload.kind.is_rollout() => {
                let time = restarted_at.parse().expect("a time");
                let Some(OwnerSight::Found(owner)) = self.cluster.owners.get_mut(&workload.uid)
                else {
                    return false;
                };
                let rollout = owner.rollout.as_mut().expect("a Rollout");
                rollout.generation += i64::from(rollout.restart_at != Some(time));
                rollout.restart_at = Some(time);
            }
            Action::Restart {
                workload,
                resource_version,
                ..
            }
            | Action::Surge {
                workload,
                resource_version,
                ..
            } => {
                let there = self.cluster.deployments.get(&workload.uid);
                if there.is_none_or(|d| d.resource_version != *resource_version) {
                    return false;
                }
                let deployment = self.deployment_mut(&workload.name);
                deployment.resource_version = version;
                deployment.observed = false;
                match action {
                    Action::Restart { restarted_at, .. } => {
                        let changed = deployment.restarted_at.as_ref() != Some(restarted_at);
                        deployment.generation += i64::from(changed);
                        deployment.restarted_at = Some(restarted_at.clone());
                    }
                    Action::Surge { mark, .. } => {
                        deployment.generation += 1;
                        deployment.replicas = mark.to;
                        deployment.surge = Some(mark.clone());
                    }
                    _ => unreachable!(),
                }
            }
            Action::DeleteNodeClaim { uid, .. } => {
                let karpenter = self.cluster.karpenter.as_mut().expect("Karpenter is there");
                match Arc::make_mut(&mut karpenter.claims).get_mut(uid) {
                    Some(claim) => Arc::make_mut(claim).deleting = true,
                    None => return false,
                }
            }
            Action::Restore(restore) => return self.take_away(restore),
        }
        self.count_budgets();
        true
    }

    fn is_current(&self, node: &plan::NodeHandle) -> bool {
        let there = self.cluster.nodes.get(&node.uid);
        there.is_some_and(|n| n.resource_version == node.resource_version)
    }

    fn is_current_pod(&self, pod: &plan::PodHandle) -> bool {
        let there = self.cluster.pods.get(&pod.pod.uid);
        there.is_some_and(|p| p.resource_version == pod.resource_version)
    }

    /// As [`Self::carry_out`].
    pub(crate) fn take_away(&mut self, restore: &Restore) -> bool {
        let version = self.next_version();
        match restore {
            Restore::ReleaseNode {
                node,
                marks,
                guards,
                uncordon,
            } => {
                if !self.is_current(node) {
                    return false;
                }
                let node = self.node_mut(&node.uid);
                node.resource_version = version;
                node.marks.claimed_by.take_if(|_| marks.claim);
                node.marks.cordoned_by.take_if(|_| marks.cordon);
                unguard(&mut node.marks, guards);
                node.unschedulable &= !uncordon;
            }
            Restore::UnprotectPod { pod, guards } => {
                if !self.is_current_pod(pod) {
                    return false;
                }
                let pod = self.pod_mut(&pod.pod.uid);
                pod.resource_version = version;
                unguard(&mut pod.marks, guards);
            }
            Restore::UncheapenPod { pod, still_ours } => {
                if !self.is_current_pod(pod) {
                    return false;
                }
                let pod = self.pod_mut(&pod.pod.uid);
                pod.resource_version = version;
                pod.marks.costed_by = None;
                pod.marks.deletion_cost.take_if(|_| *still_ours);
            }
            Restore::DeletePlaceholder { pod } => {
                Arc::make_mut(&mut self.cluster.pods).remove(&pod.uid);
            }
            Restore::EndSurge {
                workload,
                resource_version,
                replicas,
            } => {
                let there = self.cluster.deployments.get(&workload.uid);
                if there.is_none_or(|d| d.resource_version != *resource_version) {
                    return false;
                }
                let deployment = self.deployment_mut(&workload.name);
                deployment.resource_version = version;
                deployment.observed = false;
                deployment.generation += i64::from(replicas.is_some());
                deployment.replicas = replicas.unwrap_or(deployment.replicas);
                deployment.surge = None;
            }
        }
        self.count_budgets();
        true
    }
}
