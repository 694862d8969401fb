//! Whether there can be a place elsewhere at all: labels, taints and volumes, room aside. Pure.
//!
//! Nodes come by themselves where there is an autoscaler, so what no node has now may be there in time. Karpenter tells by its `NodePools`
//! what they can be like, and what none of them can have is a blocker. Other autoscalers tell nothing: a node group can grow by nodes like
//! the ones to be emptied. Where the selected nodes are of a managed group, and where only such labels are missing as any node of a cloud
//! has, there is a warning: placeholders wait, and nothing leaves before they have a place. Without placeholders it is a blocker.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement};

use crate::api::relocation::ReplacementStrategy;
use crate::plan::draft::Draft;
use crate::plan::report::Finding;
use crate::plan::scene::{Scene, Work};
use crate::plan::treatment::cannot_land_elsewhere;
use crate::plan::{fits, placement, provision};
use crate::world::quantity::{self, Quantities};
use crate::world::{Node, NodePool, Pod, Shape};

use super::Outline;

/// Labels by which managed node groups know their nodes: a group that has one can grow.
const GROUPS: [&str; 6] = [
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "kops.k8s.io/instancegroup",
    "node.cluster.x-k8s.io/machine-deployment",
];

/// Where pods can go.
struct Elsewhere<'a> {
    /// Nodes that are open and stay.
    nodes: Vec<&'a Node>,
    /// `None`: there is no Karpenter.
    pools: Option<Vec<&'a NodePool>>,
    /// The nodes to be emptied are of a group that can grow.
    grows: bool,
}

impl<'a> Elsewhere<'a> {
    fn new(scene: &Scene<'a>, outline: &Outline<'_, '_>) -> Self {
        let selected = |node: &Node| outline.nodes.iter().any(|n| n.uid == node.uid);
        let nodes = scene.cluster.nodes.values().map(AsRef::as_ref);
        let karpenter = scene.cluster.karpenter.as_ref();
        Self {
            nodes: nodes
                .filter(|n| !n.deleting && !n.unschedulable && !selected(n))
                .collect(),
            pools: karpenter.map(|k| {
                let pools = k.pools.values().map(AsRef::as_ref);
                pools.filter(|p| !p.deleting).collect()
            }),
            grows: outline
                .nodes
                .iter()
                .any(|n| GROUPS.iter().any(|label| n.labels.contains_key(*label))),
        }
    }

    fn pools(&self) -> &[&'a NodePool] {
        self.pools.as_deref().unwrap_or_default()
    }

    /// Some node has it, or could.
    fn has(&self, asks: &NodeSelector) -> bool {
        self.nodes.iter().any(|n| fits::matches(asks, n))
            || self.pools().iter().any(|p| fits::could_match(asks, p))
    }
}

pub(super) fn check(scene: &Scene<'_>, draft: &mut Draft, outline: &Outline<'_, '_>) {
    let elsewhere = Elsewhere::new(scene, outline);
    let mut demand = Demand::default();
    for (work, _) in outline.chosen.iter().filter(|(work, _)| !work.vanishes()) {
        of_work(scene, draft, &elsewhere, work, &mut demand);
    }
    demand.check(draft);
}

fn of_work<'a>(
    scene: &Scene<'_>,
    draft: &mut Draft,
    elsewhere: &Elsewhere<'a>,
    work: &Work<'_>,
    demand: &mut Demand<'a>,
) {
    let mirrored = scene.spec.replacement.strategy != ReplacementStrategy::None;
    // Pods of a workload are alike: what one asks for is looked at once.
    let mut known: Vec<(&Pod, Shape, Verdict<'a>)> = Vec::new();
    let system = |pod: &Pod| {
        let node = pod.node.as_ref().and_then(|n| scene.node(n));
        ["kubernetes.io/os", "kubernetes.io/arch"].map(|key| node.and_then(|n| n.labels.get(key)))
    };
    let alike = |one: &Pod, other: &Pod| {
        let mounts_nothing = one.claims.is_empty() && other.claims.is_empty();
        mounts_nothing && one.shape == other.shape && system(one) == system(other)
    };
    for pod in work.staying() {
        if mirrored && !pod.shape.devices.is_empty() {
            draft.block(Finding::devices(&pod.reference, &pod.shape.devices));
        }
        if let Some(finding) = placement::contradicts(scene, pod) {
            draft.block(finding);
            continue;
        }
        if cannot_land_elsewhere(pod).is_some() || is_node_local(scene, draft, elsewhere, pod) {
            continue;
        }
        let index = known.iter().position(|(other, ..)| alike(pod, other));
        let index = index.unwrap_or_else(|| {
            let shape = provision::shape(scene, work, pod);
            let shape = placement::as_the_pod(scene, pod, &shape);
            if let Some(index) = known.iter().position(|(_, other, _)| *other == shape) {
                return index;
            }
            let verdict = verdict(elsewhere, pod, &shape);
            if let Verdict::Nowhere(finding, may_come) = &verdict {
                if *may_come && mirrored {
                    draft.warn(finding.clone());
                } else {
                    draft.block(finding.clone());
                }
            }
            known.push((pod, shape, verdict));
            known.len() - 1
        });
        if let Some((_, shape, Verdict::NewNode(pools))) = known.get(index) {
            demand.add(pools, &shape.requests);
        }
    }
}

/// What can be said of a pod.
enum Verdict<'a> {
    /// A node that is there could take it, if it has room.
    ThereIs,
    /// Only new nodes of these pools could.
    NewNode(Vec<&'a NodePool>),
    /// None could; whether an autoscaler that tells nothing may make one all the same.
    Nowhere(Finding, bool),
}

fn verdict<'a>(elsewhere: &Elsewhere<'a>, pod: &Pod, shape: &Shape) -> Verdict<'a> {
    let asks = fits::asks(shape);
    let asked_of = |node: &Node| asks.as_ref().is_none_or(|a| fits::matches(a, node));
    let by_label: Vec<_> = elsewhere.nodes.iter().filter(|n| asked_of(n)).collect();
    if by_label
        .iter()
        .any(|n| fits::repelled_by(shape, &n.taints).is_none())
    {
        return Verdict::ThereIs;
    }
    let asked_of = |pool: &NodePool| asks.as_ref().is_none_or(|a| fits::could_match(a, pool));
    let pools = elsewhere.pools().iter().copied();
    let pools: Vec<_> = pools.filter(|p| asked_of(p)).collect();
    let open = pools.iter().copied();
    let open: Vec<_> = open
        .filter(|p| fits::repelled_by(shape, &p.taints).is_none())
        .collect();
    if !open.is_empty() {
        return Verdict::NewNode(open);
    }
    let no_karpenter = elsewhere.pools.is_none();
    let taints = by_label.iter().map(|n| &n.taints);
    let mut taints = taints.chain(pools.iter().map(|p| &p.taints));
    if let Some(taint) = taints.find_map(|t| fits::repelled_by(shape, t)) {
        let taint = format!("{}:{}", taint.key, taint.effect);
        let finding = Finding::no_node_admits(&pod.reference, &taint);
        return Verdict::Nowhere(finding, no_karpenter && elsewhere.grows);
    }
    let Some(asks) = asks else {
        // There is no other node yet, whatever it is like: a matter of room.
        return Verdict::ThereIs;
    };
    let lacking = fits::missing(&asks, &elsewhere.nodes, elsewhere.pools());
    let may_come =
        no_karpenter && (elsewhere.grows || lacking.iter().all(|r| fits::comes_by_itself(&r.key)));
    let words: Vec<_> = lacking.iter().map(|r| fits::words(r)).collect();
    let finding = Finding::no_node_has(&pod.reference, &words, !no_karpenter);
    Verdict::Nowhere(finding, may_come)
}

/// Whether a volume of the pod is on a selected node and can be used on no other. Each such is told.
fn is_node_local(
    scene: &Scene<'_>,
    draft: &mut Draft,
    elsewhere: &Elsewhere<'_>,
    pod: &Pod,
) -> bool {
    let mut local = false;
    for mounted in scene.volumes().of(pod).filter(|m| !m.claim.ephemeral) {
        let Some(volume) = mounted.volume else {
            continue;
        };
        let stays = match &volume.nodes {
            None => volume.node_local,
            Some(nodes) if elsewhere.has(nodes) => false,
            Some(nodes) => {
                let zonal = |r: &&NodeSelectorRequirement| fits::comes_by_itself(&r.key);
                let lacking = fits::missing(nodes, &elsewhere.nodes, elsewhere.pools());
                volume.node_local || !lacking.iter().all(zonal)
            }
        };
        if stays {
            let finding = Finding::node_local_volume(&pod.reference, &mounted.claim.name, volume);
            draft.block(finding);
            local = true;
        }
    }
    local
}

/// What pods ask for that only new nodes could take, by the pools that could make those.
#[derive(Default)]
struct Demand<'a> {
    by_pools: Vec<(Vec<&'a NodePool>, Quantities)>,
}

impl<'a> Demand<'a> {
    fn add(&mut self, pools: &[&'a NodePool], requests: &Quantities) {
        let index = self.by_pools.iter().position(|(p, _)| p == pools);
        let index = index.unwrap_or_else(|| {
            self.by_pools.push((pools.to_vec(), Quantities::new()));
            self.by_pools.len() - 1
        });
        let Some((_, sum)) = self.by_pools.get_mut(index) else {
            return;
        };
        for (resource, amount) in requests {
            let sum = sum.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Nodes have room for more than their pods ask for, so this is the least that is needed.
    fn check(&self, draft: &mut Draft) {
        for (pools, sum) in &self.by_pools {
            for (resource, needed) in sum {
                let left = |pool: &&NodePool| {
                    let limit = pool.limits.get(resource)?;
                    let used = pool.used.get(resource).copied().unwrap_or_default();
                    Some(limit.saturating_sub(used).max(0))
                };
                // A pool without a limit of it makes as many nodes as are needed.
                let all = pools.iter().map(left);
                let sum = |sum: i128, left: Option<i128>| Some(sum.saturating_add(left?));
                let Some(left) = all.into_iter().try_fold(0, sum) else {
                    continue;
                };
                if *needed > left {
                    let names: Vec<_> = pools.iter().map(|p| p.name.as_str()).collect();
                    draft.warn(Finding::node_pool_limit(
                        &names.join(", "),
                        resource,
                        &quantity::format(*needed).0,
                        &quantity::format(left).0,
                    ));
                }
            }
        }
    }
}
