//! The controllers of the toy cluster, each a round: just enough to carry a relocation to its end.

use std::sync::Arc;

use jiff::SignedDuration;
use kube::core::{Selector, SelectorExt};
use relocator::world::{Node, NodeName, Pod, RolloutStrategy, SetUpdate, StatefulSet, Uid};

use crate::toy::{Toy, owner};

/// Label of a pod with the restart of the template that it was made from.
const REVISION: &str = "revision";

/// Pods that fit on a node.
const ROOM: usize = 4;

impl Toy {
    pub(crate) fn tick(&mut self) {
        self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        self.end_terminating();
        self.end_claims();
        self.stateful_set_controller();
        self.deployment_controller();
        self.scheduler();
        self.count_workloads();
        self.count_budgets();
    }

    fn end_terminating(&mut self) {
        // A kubelet that is away ends nothing.
        let nodes = Arc::clone(&self.cluster.nodes);
        let answers = |pod: &Pod| {
            let node = pod.node.as_ref();
            node.is_none_or(|name| nodes.values().any(|n| n.name == *name && n.ready))
        };
        let endless = &self.endless;
        Arc::make_mut(&mut self.cluster.pods).retain(|_, p| {
            let stays = endless.contains(&p.reference.name) || !answers(p);
            !p.terminating || stays
        });
        // What was bound a round ago is Ready now.
        let bound: Vec<_> = self
            .cluster
            .pods
            .values()
            .filter(|p| p.node.is_some() && !p.ready && !p.terminating && answers(p))
            .map(|p| p.reference.clone())
            .collect();
        for pod in bound {
            let now = self.now;
            let well = !self.sick.contains(&pod.name);
            let pod = self.pod_mut(&pod.uid);
            pod.ready = well;
            pod.ready_since = Some(now);
        }
    }

    fn end_claims(&mut self) {
        let Some(karpenter) = &mut self.cluster.karpenter else {
            return;
        };
        let gone: Vec<_> = karpenter
            .claims
            .values()
            .filter(|c| c.deleting)
            .cloned()
            .collect();
        for claim in gone {
            Arc::make_mut(&mut karpenter.claims).remove(&claim.uid);
            let Some(name) = &claim.node else { continue };
            Arc::make_mut(&mut self.cluster.nodes).retain(|_, n| n.name != *name);
            Arc::make_mut(&mut self.cluster.pods).retain(|_, p| p.node.as_ref() != Some(name));
        }
    }

    fn stateful_set_controller(&mut self) {
        for set in self.cluster.stateful_sets.clone().values() {
            let name = &set.reference.name;
            for ordinal in 0..set.replicas {
                let pod = format!("{name}-{ordinal}");
                if !self.cluster.pods.values().any(|p| p.reference.name == pod) {
                    let owner = owner("StatefulSet", name, &set.reference.uid);
                    let made = self.pod(&pod, name, None, Some(owner));
                    let namespace = set.reference.namespace.clone();
                    self.pod_mut(&made).reference.namespace = namespace;
                    let revision = set.restarted_at.clone().unwrap_or_default();
                    let labels = &mut self.pod_mut(&made).labels;
                    labels.insert(REVISION.to_owned(), revision);
                }
            }
            self.roll(set);
        }
    }

    /// One pod that is not of the current template goes, the highest ordinal first, when all are there and Ready.
    fn roll(&mut self, set: &StatefulSet) {
        let current = set.restarted_at.clone().unwrap_or_default();
        let is_old = |pod: &Pod| pod.labels.get(REVISION).is_some_and(|r| *r != current);
        let mut pods: Vec<_> = self
            .cluster
            .pods
            .values()
            .filter(|p| {
                let controller = p.controller.as_ref();
                controller.is_some_and(|c| c.uid == set.reference.uid)
            })
            .cloned()
            .collect();
        pods.sort_by(|a, b| b.reference.name.cmp(&a.reference.name));
        // Those that were there at first are of the first template.
        let is_old =
            |pod: &Pod| is_old(pod) || !pod.labels.contains_key(REVISION) && !current.is_empty();
        let whole = pods.iter().filter(|p| p.ready).count() == set.replicas as usize;
        let rolls = matches!(set.update, SetUpdate::RollingUpdate { .. });
        if let Some(next) = pods.iter().find(|p| is_old(p) && whole && rolls) {
            let pod = self.pod_mut(&next.reference.uid);
            pod.terminating = true;
            pod.ready = false;
        }
        let name = set.reference.name.clone();
        let set = self.stateful_set_mut(&name);
        set.rolled_out = !rolls || !pods.iter().any(|p| is_old(p));
        set.observed = true;
    }

    fn deployment_controller(&mut self) {
        for deployment in self.cluster.deployments.clone().values() {
            let uid = &deployment.reference.uid;
            let sets: Vec<_> = self
                .cluster
                .replica_sets
                .values()
                .filter(|s| s.controller.as_ref().is_some_and(|c| c.uid == *uid))
                .cloned()
                .collect();
            let current = sets
                .iter()
                .find(|s| s.restarted_at == deployment.restarted_at)
                .map(|s| s.reference.uid.clone());
            let current = current
                .unwrap_or_else(|| self.replica_set(uid, deployment.restarted_at.clone(), 0));
            let mine = |toy: &Self, new: bool| -> Vec<Arc<Pod>> {
                let sets: Vec<_> = sets
                    .iter()
                    .map(|s| &s.reference.uid)
                    .chain([&current])
                    .collect();
                let pods = toy.cluster.pods.values().filter(|p| !p.terminating);
                pods.filter(|p| {
                    p.controller
                        .as_ref()
                        .is_some_and(|c| sets.contains(&&c.uid) && (c.uid == current) == new)
                })
                .cloned()
                .collect()
            };
            let replicas = deployment.replicas as usize;
            let (surge, missing) = match deployment.strategy {
                RolloutStrategy::RollingUpdate {
                    max_surge,
                    max_unavailable,
                } => (max_surge as usize, max_unavailable as usize),
                RolloutStrategy::Recreate => (0, replicas),
            };
            let (old, new) = (mine(self, false).len(), mine(self, true).len());
            for _ in new..replicas.min((replicas + surge).saturating_sub(old)) {
                self.made += 1;
                let name = format!("{}-{}", deployment.reference.name, self.made);
                let made = self.pod(
                    &name,
                    &deployment.reference.name,
                    None,
                    Some(owner("ReplicaSet", "set", &current)),
                );
                let namespace = deployment.reference.namespace.clone();
                self.pod_mut(&made).reference.namespace = namespace;
            }
            // Pods that are not Ready first, then the cheapest: as a ReplicaSet ranks them.
            let mut surplus = mine(self, true);
            surplus.sort_by_key(|p| {
                (
                    p.ready,
                    p.marks
                        .deletion_cost
                        .as_deref()
                        .unwrap_or("0")
                        .parse::<i32>()
                        .unwrap(),
                    p.reference.clone(),
                )
            });
            let surplus = surplus.len().saturating_sub(replicas);
            let mut cheapest = mine(self, true);
            cheapest.sort_by_key(|p| {
                (
                    p.ready,
                    p.marks
                        .deletion_cost
                        .as_deref()
                        .unwrap_or("0")
                        .parse::<i32>()
                        .unwrap(),
                    p.reference.clone(),
                )
            });
            let ready = mine(self, true)
                .iter()
                .chain(&mine(self, false))
                .filter(|p| p.ready)
                .count();
            let may_go = (ready + missing).saturating_sub(replicas);
            let going: Vec<_> = cheapest
                .into_iter()
                .take(surplus)
                .chain(mine(self, false).into_iter().take(may_go))
                .collect();
            for pod in going {
                let pod = self.pod_mut(&pod.reference.uid);
                pod.terminating = true;
                pod.ready = false;
            }
        }
    }

    fn scheduler(&mut self) {
        let mut waiting: Vec<_> = self
            .cluster
            .pods
            .values()
            .filter(|p| p.node.is_none() && !p.terminating)
            .cloned()
            .collect();
        waiting.sort_by_key(|p| (p.placeholder.is_some(), p.reference.clone()));
        for pod in waiting {
            let node = self.fitting_node(&pod);
            let Some(node) = node else {
                self.pod_mut(&pod.reference.uid).unschedulable = Some("no room".into());
                continue;
            };
            let bound = self.pod_mut(&pod.reference.uid);
            bound.node = Some(node);
            bound.unschedulable = None;
        }
    }

    /// On the node is what the pod keeps away from, by the labels of one workload or a list of values.
    fn repels(&self, node: &Node, pod: &Pod) -> bool {
        let terms = pod.shape.repels.iter();
        let mut terms = terms.filter(|t| t.topology_key == "kubernetes.io/hostname");
        terms.any(|term| {
            let selector = term.label_selector.clone().unwrap_or_default();
            let selector = Selector::try_from(selector).unwrap();
            let namespaces = term.namespaces.clone().unwrap_or_default();
            let reach = |other: &Pod| {
                let of = &other.reference.namespace;
                namespaces.contains(of) || (namespaces.is_empty() && *of == pod.reference.namespace)
            };
            let mut others = self.cluster.pods.values();
            others.any(|other| {
                other.node.as_ref() == Some(&node.name)
                    && reach(other)
                    && selector.matches(&other.labels)
            })
        })
    }

    /// A node with room; for a real pod, placeholders are room, and one of them gives way.
    fn fitting_node(&mut self, pod: &Pod) -> Option<NodeName> {
        let open: Vec<_> = self
            .cluster
            .nodes
            .values()
            .filter(|n| !n.unschedulable && n.ready && !n.deleting && admits(n, pod))
            .filter(|n| !self.repels(n, pod))
            .map(|n| n.name.clone())
            .collect();
        let on = |toy: &Self, node: &NodeName| {
            toy.cluster
                .pods
                .values()
                .filter(|p| p.node.as_ref() == Some(node))
                .cloned()
                .collect::<Vec<_>>()
        };
        if let Some(free) = open.iter().find(|n| on(self, n).len() < ROOM) {
            return Some(free.clone());
        }
        if pod.placeholder.is_none() {
            for node in &open {
                if let Some(victim) = on(self, node).into_iter().find(|p| p.placeholder.is_some()) {
                    Arc::make_mut(&mut self.cluster.pods).remove(&victim.reference.uid);
                    return Some(node.clone());
                }
            }
        }
        if !self.autoscaled {
            return None;
        }
        self.made += 1;
        let name = format!("new-{}", self.made);
        self.karpenter_node(&name, false);
        Some(name.as_str().into())
    }

    fn count_workloads(&mut self) {
        let pods = Arc::clone(&self.cluster.pods);
        let of = |owners: &[Uid]| -> Vec<Arc<Pod>> {
            pods.values()
                .filter(|p| {
                    p.controller
                        .as_ref()
                        .is_some_and(|c| owners.contains(&c.uid))
                })
                .cloned()
                .collect()
        };
        let count = |n: usize| u32::try_from(n).unwrap();
        for set in Arc::make_mut(&mut self.cluster.stateful_sets).values_mut() {
            let ready = of(std::slice::from_ref(&set.reference.uid))
                .iter()
                .filter(|p| p.ready)
                .count();
            Arc::make_mut(set).available = count(ready);
        }
        let sets = Arc::clone(&self.cluster.replica_sets);
        for deployment in Arc::make_mut(&mut self.cluster.deployments).values_mut() {
            let deployment = Arc::make_mut(deployment);
            let mine = sets.values().filter(|s| {
                s.controller
                    .as_ref()
                    .is_some_and(|c| c.uid == deployment.reference.uid)
            });
            let (current, all): (Vec<Uid>, Vec<Uid>) =
                mine.fold((Vec::new(), Vec::new()), |(mut current, mut all), set| {
                    all.push(set.reference.uid.clone());
                    if set.restarted_at == deployment.restarted_at {
                        current.push(set.reference.uid.clone());
                    }
                    (current, all)
                });
            let all = of(&all);
            deployment.existing = count(all.iter().filter(|p| !p.terminating).count());
            deployment.updated = count(of(&current).iter().filter(|p| !p.terminating).count());
            deployment.available = count(all.iter().filter(|p| p.ready).count());
            deployment.observed = true;
        }
        for set in Arc::make_mut(&mut self.cluster.replica_sets).values_mut() {
            let set = Arc::make_mut(set);
            set.existing = count(
                of(std::slice::from_ref(&set.reference.uid))
                    .iter()
                    .filter(|p| !p.terminating)
                    .count(),
            );
            set.replicas = set.existing;
        }
    }
}

/// The node selector and the required affinity, of which the toy knows `In` only.
fn admits(node: &Node, pod: &Pod) -> bool {
    let has =
        |key: &str, values: &[String]| node.labels.get(key).is_some_and(|l| values.contains(l));
    let selector = &pod.shape.node_selector;
    let affinity = pod.shape.required_affinity.as_ref();
    selector
        .iter()
        .all(|(k, v)| has(k, std::slice::from_ref(v)))
        && affinity.is_none_or(|a| {
            a.node_selector_terms.iter().any(|term| {
                let mut all = term.match_expressions.iter().flatten();
                all.all(|e| {
                    let has = has(&e.key, e.values.as_deref().unwrap_or_default());
                    has == (e.operator != "NotIn")
                })
            })
        })
}
