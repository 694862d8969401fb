//! What no plan may do, whatever the world is like: judged by the objects as the API server sent them, not by what the planner made of them.

use std::collections::{BTreeMap, BTreeSet};

use relocator::api::guards::Guard;
use relocator::api::relocation::{ReplacementStrategy, RuleStrategy};
use relocator::api::status::{NodeRelocationStatus, Stage};
use relocator::plan::{Action, Plan, Restore};
use relocator::world::{OwnerSight, Sight, Uid, WorkloadRef, World};
use serde_json::Value;

use super::objects::{OURS, Object, Objects};
use super::schema;

/// What the API server holds.
pub(super) struct Judge<'a> {
    world: &'a World,
    status: NodeRelocationStatus,
    pods: BTreeMap<&'a str, &'a Object>,
    nodes: BTreeMap<&'a str, &'a Object>,
    objects: &'a Objects,
}

impl<'a> Judge<'a> {
    pub(super) fn new(objects: &'a Objects, world: &'a World) -> Self {
        let by_uid = |kind: &'static str| objects.of(kind).map(|o| (o.uid(), o)).collect();
        Self {
            world,
            status: world.relocation.status.clone().unwrap_or_default(),
            pods: by_uid("Pod"),
            nodes: by_uid("Node"),
            objects,
        }
    }

    /// Panics, with what is wrong.
    pub(super) fn allows(&self, plan: &Plan) {
        schema::check(&plan.status);
        let json = serde_json::to_vec(&plan.status).unwrap();
        assert!(json.len() < 256 * 1024, "a status of {} bytes", json.len());
        if plan.status.completion_time.is_none() {
            assert!(plan.wake_after.is_some(), "nobody looks again");
        }
        let keys: Vec<_> = plan.actions.iter().map(|a| a.key().0).collect();
        let unique: BTreeSet<_> = keys.iter().collect();
        assert_eq!(unique.len(), keys.len(), "asked for twice: {keys:#?}");
        if self.status.start_time.is_none() {
            let harmless = |a: &Action| {
                matches!(
                    a,
                    Action::AddFinalizer | Action::RemoveFinalizer | Action::Restore(_)
                )
            };
            assert!(
                plan.actions.iter().all(harmless),
                "before the start: {:#?}",
                plan.actions
            );
            if self.world.relocation.metadata.deletion_timestamp.is_none() {
                assert!(
                    plan.actions.len() <= 1,
                    "before the start: {:#?}",
                    plan.actions
                );
            }
        } else if plan.status.completion_time.is_none() {
            let uids = |status: &NodeRelocationStatus| -> Vec<String> {
                status.nodes.iter().map(|n| n.uid.clone()).collect()
            };
            assert_eq!(
                uids(&self.status),
                uids(&plan.status),
                "the nodes are fixed at the start"
            );
        }
        if self.world.relocation.spec.suspend {
            let begins = |a: &Action| {
                self.moves(a).is_some()
                    || matches!(
                        a,
                        Action::Cordon { .. }
                            | Action::DeleteNodeClaim { .. }
                            | Action::CreatePlaceholder(_)
                            | Action::ClaimNode { .. }
                    )
            };
            assert!(
                !plan.actions.iter().any(begins),
                "suspended: {:#?}",
                plan.actions
            );
        }
        for action in &plan.actions {
            self.allows_one(action);
        }
        self.together(&plan.actions);
    }

    fn allows_one(&self, action: &Action) {
        match action {
            Action::ClaimNode { node, guards } => {
                self.selected(&node.uid);
                let there = self.nodes[node.uid.as_str()];
                assert_eq!(
                    there.annotation("relocation.sh/claimed-by"),
                    None,
                    "11: {}",
                    node.name
                );
                guards_nothing_twice(there, guards);
            }
            Action::Cordon { node } => {
                self.selected(&node.uid);
                self.ours(&node.uid);
            }
            Action::ProtectNode { node, guards } => {
                let there = self.nodes[node.uid.as_str()];
                assert!(
                    !self.is_selected(&node.uid),
                    "{} is to be emptied",
                    node.name
                );
                assert!(!guards.is_empty());
                guards_nothing_twice(there, guards);
            }
            Action::ProtectPod { pod, guards } => {
                let there = self.pod(&pod.pod.uid);
                self.on_selected(there);
                assert!(!guards.is_empty());
                guards_nothing_twice(there, guards);
            }
            Action::CheapenPod { pod } => self.on_selected(self.pod(&pod.pod.uid)),
            Action::CreatePlaceholder(placeholder) => {
                let there = self.pod(&placeholder.pod.uid);
                let stays = self.status.nodes.iter().all(|n| n.stage > Stage::Cordoning);
                assert!(stays, "a place before the cordon");
                // But for the one that only wakes the scheduler.
                if there.value["spec"]["nodeName"].is_string() {
                    self.on_selected(there);
                }
            }
            Action::Evict { pod, node } => self.eviction(&pod.uid, node.as_str()),
            Action::Restart { workload, .. } | Action::Surge { workload, .. } => {
                let pods: Vec<_> = self
                    .pods_of(&workload.uid)
                    .into_iter()
                    .filter(|p| self.is_on_selected(p))
                    .collect();
                assert!(
                    !pods.is_empty(),
                    "2: {workload} has nothing on selected nodes"
                );
                assert!(
                    pods.iter().any(|p| self.is_closed_and_ours(p)),
                    "11: no node of {workload} is closed and ours"
                );
            }
            Action::DeleteNodeClaim { node, uid, .. } => {
                let record = self
                    .status
                    .nodes
                    .iter()
                    .find(|n| n.name == node.as_str())
                    .expect("a selected node");
                let claim = record
                    .node_claim
                    .as_ref()
                    .expect("its NodeClaim is recorded");
                assert_eq!(claim.uid, uid.as_str(), "the one that was recorded");
                self.ours(&record.uid.as_str().into());
                assert!(
                    self.world.fresh.contains_key(node),
                    "6: without a read of its own"
                );
                let rules = &self.world.relocation.spec.workloads.rules;
                let skips = rules.iter().any(|r| r.strategy == Some(RuleStrategy::Skip));
                for pod in self
                    .pods
                    .values()
                    .filter(|p| p.text("/spec/nodeName") == node.as_str())
                {
                    assert!(
                        skips || is_over(pod) || self.stays(pod),
                        "6: {node} with {}",
                        pod.value
                    );
                }
            }
            Action::Restore(restore) => self.restores(restore),
            Action::RemoveFinalizer => {
                let over = self.status.completion_time.is_some();
                let marked = |o: &&&Object| {
                    o.annotation("relocation.sh/claimed-by") == Some(OURS)
                        || o.annotation("relocation.sh/cordoned-by") == Some(OURS)
                };
                assert!(
                    over || self.nodes.values().find(marked).is_none(),
                    "7: a mark is left"
                );
            }
            Action::AddFinalizer | Action::DeleteRelocation => {}
        }
    }

    /// 1, 2, 3, 5: who may be evicted.
    fn eviction(&self, uid: &Uid, node: &str) {
        assert!(!uid.as_str().is_empty(), "1: without a UID");
        let pod = self.pod(uid);
        assert_eq!(pod.text("/spec/nodeName"), node);
        self.closed_and_ours(pod);
        assert!(!self.stays(pod), "{} stays with its node", pod.value);
        assert!(!is_over(pod), "{} has ended", pod.value);
        assert!(
            !is_placeholder(pod),
            "a placeholder is deleted, not evicted"
        );
        assert!(!is_terminating(pod), "{} is on its way already", pod.value);
        let pending = matches!(pod.text("/status/phase"), "" | "Pending");
        let budgets: Vec<_> = self
            .objects
            .of("PodDisruptionBudget")
            .filter(|b| covers(b, pod))
            .collect();
        assert!(pending || budgets.len() < 2, "3: several budgets");
        if is_ready(pod) && !pending {
            let allowed = |b: &Object| {
                b.value["status"]["disruptionsAllowed"]
                    .as_i64()
                    .unwrap_or(0)
            };
            assert!(budgets.iter().all(|b| allowed(b) > 0), "3: {budgets:#?}");
        }
        let owner = self.top(pod);
        let workload = owner.as_deref().unwrap_or(uid.as_str());
        let mirror = self.world.relocation.spec.replacement.strategy == ReplacementStrategy::Mirror;
        let unowned = owner.is_none() || self.world.cluster_lacks(workload);
        assert!(
            unowned || !mirror || self.has_place(workload),
            "5: no place for {}",
            pod.value
        );
        let siblings = self.pods_of(&workload.into());
        if self.objects.of("StatefulSet").any(|s| s.uid() == workload) {
            let leaving = siblings.iter().find(|p| is_terminating(p) && !is_over(p));
            assert!(leaving.is_none(), "4: {leaving:#?}");
        }
    }

    /// What begins in one pass.
    fn together(&self, actions: &[Action]) {
        let moving: Vec<(String, &Action)> = actions
            .iter()
            .filter_map(|a| Some((self.moves(a)?, a)))
            .collect();
        let most = self.world.relocation.spec.workloads.max_concurrent as usize;
        assert!(moving.len() <= most, "more than maxConcurrent: {moving:#?}");
        let owners: BTreeSet<_> = moving.iter().map(|(owner, _)| owner.as_str()).collect();
        assert_eq!(
            owners.len(),
            moving.len(),
            "4: two moves of one owner: {moving:#?}"
        );
        for budget in self.objects.of("PodDisruptionBudget") {
            let covered = |owner: &&&str| {
                let own = self.pods.get(**owner).copied();
                let pods = self.pods_of(&Uid::from(**owner)).into_iter().chain(own);
                pods.filter(|p| !is_over(p)).any(|p| covers(budget, p))
            };
            let sharing: Vec<_> = owners.iter().filter(covered).collect();
            assert!(
                sharing.len() < 2,
                "3: {sharing:?} share {} and move in one pass",
                budget.value
            );
        }
    }

    /// The owner whose pod the action moves.
    fn moves(&self, action: &Action) -> Option<String> {
        match action {
            Action::Evict { pod, .. } => Some(
                self.top(self.pod(&pod.uid))
                    .unwrap_or_else(|| pod.uid.to_string()),
            ),
            Action::Restart {
                workload: WorkloadRef { uid, .. },
                ..
            }
            | Action::Surge {
                workload: WorkloadRef { uid, .. },
                ..
            } => Some(uid.to_string()),
            _ => None,
        }
    }

    fn restores(&self, restore: &Restore) {
        let ours = |o: &Object, key: &str| {
            o.annotation(key)
                .is_some_and(|v| v.ends_with("/relocation-uid"))
        };
        match restore {
            Restore::ReleaseNode {
                node,
                uncordon,
                guards,
                ..
            } => {
                let there = self.nodes[node.uid.as_str()];
                let all = ["relocation.sh/claimed-by", "relocation.sh/cordoned-by"];
                assert!(
                    !guards.is_empty() || all.iter().any(|key| ours(there, key)),
                    "7: {}",
                    node.name
                );
                assert!(
                    !uncordon || ours(there, "relocation.sh/cordoned-by"),
                    "8: {}",
                    node.name
                );
                let all_ours = guards.iter().all(|g| ours(there, g.guard.mark()));
                assert!(all_ours, "7: {}", node.name);
            }
            Restore::UnprotectPod { pod, guards } => {
                let there = self.pod(&pod.pod.uid);
                assert!(!guards.is_empty());
                assert!(guards.iter().all(|g| ours(there, g.guard.mark())));
            }
            Restore::UncheapenPod { pod, .. } => assert!(ours(
                self.pod(&pod.pod.uid),
                "relocation.sh/deletion-cost-by"
            )),
            Restore::DeletePlaceholder { pod } => {
                assert!(is_placeholder(self.pod(&pod.uid)), "1: {pod} is not ours");
            }
            Restore::EndSurge { workload, .. } => {
                let there = self
                    .objects
                    .of("Deployment")
                    .find(|d| d.uid() == workload.uid.as_str())
                    .expect("it is there");
                let mark = there.label("relocation.sh/surge").expect("its mark");
                assert!(mark.starts_with("relocation-uid."), "7: {mark}");
            }
        }
    }

    fn pod(&self, uid: &Uid) -> &'a Object {
        self.pods
            .get(uid.as_str())
            .unwrap_or_else(|| panic!("there is no pod {uid}"))
    }

    fn is_selected(&self, node: &Uid) -> bool {
        self.status.nodes.iter().any(|n| n.uid == node.as_str())
    }

    fn selected(&self, node: &Uid) {
        assert!(self.is_selected(node), "2: {node} is not selected");
    }

    fn ours(&self, node: &Uid) {
        let claim = self.nodes[node.as_str()].annotation("relocation.sh/claimed-by");
        assert_eq!(claim, Some(OURS), "11: {node}");
    }

    fn node_of(&self, pod: &Object) -> Option<&'a Object> {
        let name = pod.text("/spec/nodeName");
        self.nodes
            .values()
            .copied()
            .find(|n| n.text("/metadata/name") == name)
    }

    /// Nodes have names of their own, but not in an absurd world.
    fn nodes_of(&self, pod: &Object) -> Vec<&'a Object> {
        let name = pod.text("/spec/nodeName");
        self.nodes
            .values()
            .copied()
            .filter(|n| n.text("/metadata/name") == name)
            .collect()
    }

    fn is_on_selected(&self, pod: &Object) -> bool {
        self.nodes_of(pod)
            .iter()
            .any(|n| self.is_selected(&n.uid().into()))
    }

    fn on_selected(&self, pod: &Object) {
        assert!(
            self.is_on_selected(pod),
            "2: {} is not on a selected node",
            pod.value
        );
    }

    fn closed_and_ours(&self, pod: &Object) {
        self.on_selected(pod);
        assert!(
            self.is_closed_and_ours(pod),
            "11: the node of {} is open or not ours",
            pod.value
        );
    }

    fn is_closed_and_ours(&self, pod: &Object) -> bool {
        let fits = |n: &&Object| {
            n.annotation("relocation.sh/claimed-by") == Some(OURS)
                && n.value["spec"]["unschedulable"] == true
        };
        self.nodes_of(pod).iter().any(fits)
    }

    /// A `DaemonSet` that exists or the node itself keeps it.
    fn stays(&self, pod: &Object) -> bool {
        let owners = || {
            pod.value["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
        };
        let daemon = owners().find(|o| o["controller"] == true).is_some_and(|o| {
            let beside =
                |d: &Object| d.text("/metadata/namespace") == pod.text("/metadata/namespace");
            o["kind"] == "DaemonSet"
                && self
                    .objects
                    .of("DaemonSet")
                    .any(|d| o["uid"] == d.uid() && beside(d))
        });
        let mirror = pod.annotation("kubernetes.io/config.mirror").is_some()
            && owners().any(|o| o["kind"] == "Node" && o["name"] == pod.text("/spec/nodeName"));
        daemon || mirror
    }

    /// UID of the owner at the top of the chain, as far as it exists in the namespace of the pod.
    fn top(&self, pod: &Object) -> Option<String> {
        let controller = |o: &Object| {
            let mut owners = o.value["metadata"]["ownerReferences"].as_array()?.iter();
            owners.find(|o| o["controller"] == true)?["uid"]
                .as_str()
                .map(str::to_owned)
        };
        let namespace = pod.text("/metadata/namespace");
        let uid = controller(pod)?;
        let set = self
            .objects
            .of("ReplicaSet")
            .find(|s| s.uid() == uid && s.text("/metadata/namespace") == namespace);
        let top = set.and_then(controller).unwrap_or(uid);
        let there = |kind: &str| {
            self.objects
                .of(kind)
                .any(|o| o.uid() == top && o.text("/metadata/namespace") == namespace)
        };
        let other = self.world.owner_found(&top, namespace);
        (there("Deployment") || there("StatefulSet") || there("ReplicaSet") || other).then_some(top)
    }

    fn pods_of(&self, workload: &Uid) -> Vec<&'a Object> {
        let of = |p: &&Object| self.top(p).as_deref() == Some(workload.as_str());
        self.pods.values().copied().filter(of).collect()
    }

    /// 5: a placeholder of the workload is on a node that is Ready, open and stays.
    fn has_place(&self, workload: &str) -> bool {
        let ready = |n: &Object| {
            let conditions = n.value["status"]["conditions"].as_array();
            let ready = conditions
                .into_iter()
                .flatten()
                .any(|c| c["type"] == "Ready" && c["status"] == "True");
            ready
                && n.value["spec"]["unschedulable"] != true
                && !is_terminating(n)
                && !self.is_selected(&n.uid().into())
        };
        self.pods.values().any(|p| {
            is_placeholder(p)
                && p.label("relocation.sh/workload-uid") == Some(workload)
                && !is_terminating(p)
                && self.nodes_of(p).iter().any(|n| ready(n))
                && self.node_of(p).is_some()
        })
    }
}

/// What is asked of the world beside the objects: owners that were read.
trait Owners {
    /// An owner of that UID was read, and is in that namespace or in none.
    fn owner_found(&self, uid: &str, namespace: &str) -> bool;
    /// Nothing of that UID makes pods.
    fn cluster_lacks(&self, uid: &str) -> bool;
}

impl Owners for World {
    fn owner_found(&self, uid: &str, namespace: &str) -> bool {
        let Sight::Known(cluster) = &self.sight else {
            return false;
        };
        let Some(OwnerSight::Found(owner)) = cluster.owners.get(&Uid::from(uid)) else {
            return false;
        };
        owner.reference.namespace.is_empty() || owner.reference.namespace == namespace
    }

    fn cluster_lacks(&self, uid: &str) -> bool {
        let Sight::Known(cluster) = &self.sight else {
            return true;
        };
        let uid = Uid::from(uid);
        !(cluster.deployments.contains_key(&uid)
            || cluster.stateful_sets.contains_key(&uid)
            || cluster.replica_sets.contains_key(&uid)
            || matches!(cluster.owners.get(&uid), Some(OwnerSight::Found(_))))
    }
}

fn is_terminating(object: &Object) -> bool {
    object.value["metadata"]["deletionTimestamp"].is_string()
}

fn is_over(pod: &Object) -> bool {
    matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
}

fn is_ready(pod: &Object) -> bool {
    let conditions = pod.value["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|c| c["type"] == "Ready");
    ready.is_some_and(|c| c["status"] == "True") && !is_terminating(pod)
}

fn is_placeholder(pod: &Object) -> bool {
    let owners = pod.value["metadata"]["ownerReferences"].as_array();
    // Without its labels it is a pod that nobody makes again, as others.
    let labels = ["relocation.sh/pod-uid", "relocation.sh/workload-uid"];
    pod.text("/metadata/namespace") == "relocator-placeholders"
        && labels.iter().all(|key| pod.label(key).is_some())
        && owners
            .into_iter()
            .flatten()
            .any(|o| o["kind"] == "NodeRelocation" && o["uid"] == "relocation-uid")
}

/// As the eviction API decides it; a selector that cannot be read covers everything.
fn covers(budget: &Object, pod: &Object) -> bool {
    let selector = &budget.value["spec"]["selector"];
    if selector.is_null() || budget.text("/metadata/namespace") != pod.text("/metadata/namespace") {
        return false;
    }
    let labels = selector["matchLabels"].as_object();
    let equal = labels
        .into_iter()
        .flatten()
        .all(|(k, v)| pod.label(k) == v.as_str());
    let expressions = selector["matchExpressions"].as_array();
    let mut expressions = expressions.into_iter().flatten();
    let holds = |e: &Value| {
        let label = pod.label(e["key"].as_str().unwrap_or_default());
        let values = || e["values"].as_array().into_iter().flatten();
        let among = label.is_some_and(|l| values().any(|v| v == l));
        match e["operator"].as_str().unwrap_or_default() {
            "In" => among,
            "NotIn" => !among,
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => return None,
        }
        .into()
    };
    let all: Option<Vec<bool>> = expressions.by_ref().map(holds).collect();
    all.is_none_or(|all| equal && all.into_iter().all(|h| h))
}

/// 7: what somebody has set stays as it is.
fn guards_nothing_twice(object: &Object, guards: &[Guard]) {
    for guard in guards {
        assert_eq!(object.annotation(guard.key()), None, "{}", object.value);
    }
}
