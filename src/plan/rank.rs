//! In which order workloads move: as rules say, what others need to move first or last, and the cluster's own means at the end. Pure.
//!
//! The ranks are totally ordered, so that no two workloads wait for each other.

use crate::api::status::WorkloadState;
use crate::world::{Cluster, Pod, Service};

use super::gates::{self, Hold};
use super::report::Waiting;
use super::scene::{Scene, Selected, Work};

/// The label by which charts and manifests name an application; both Karpenter's chart and ours set it on their pods.
const NAME_LABEL: &str = "app.kubernetes.io/name";

/// Without these nothing is provisioned or moved, in the order in which they move. In any namespace, for both can be installed in any:
/// who is taken for one of them by mistake only moves later.
const NEEDED: [&str; 2] = ["karpenter", "relocator"];

/// When a workload moves: lower ranks first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    band: Band,
    /// As `workloads.rules` say.
    order: i32,
    part: Part,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Band {
    #[default]
    Ordinary,
    /// What the other pods of its node need, such as a pod that mounts for them: of priority `system-node-critical`.
    NodeCritical,
    /// Which of [`NEEDED`] it is.
    Needed(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// It answers for admission, and who comes meanwhile is refused if it does not.
    Admits,
    #[default]
    Plain,
}

/// What has to answer before a pod is created or evicted: the Services of webhooks that fail closed.
pub(super) struct Admission<'a> {
    services: Vec<&'a Service>,
}

impl<'a> Admission<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        let closed = || {
            let lists = cluster.webhooks.values().flat_map(|list| &list.webhooks);
            lists.filter(|w| w.fails_closed && w.asked.any())
        };
        let asked = |service: &Service| {
            closed().any(|w| {
                w.service
                    .as_ref()
                    .is_some_and(|(namespace, name)| service.is(namespace, name))
            })
        };
        let services = cluster.services.values().map(AsRef::as_ref);
        Self {
            services: services.filter(|s| asked(s)).collect(),
        }
    }

    /// The pod answers for such a webhook.
    pub(super) fn asks(&self, pod: &Pod) -> bool {
        self.services.iter().any(|service| service.selects(pod))
    }
}

/// The rank of a workload with these pods. `order` is that of the rules.
pub(super) fn rank(admission: &Admission<'_>, order: i32, pods: &[&Pod]) -> Rank {
    let name = |pod: &Pod| {
        let name = pod.labels.get(NAME_LABEL)?;
        NEEDED.iter().position(|needed| needed == name)
    };
    let band = if let Some(which) = pods.iter().find_map(|pod| name(pod)) {
        Band::Needed(which)
    } else if order == 0 && pods.iter().any(|p| p.node_critical) {
        Band::NodeCritical
    } else {
        Band::Ordinary
    };
    let part = if pods.iter().any(|p| admission.asks(p)) {
        Part::Admits
    } else {
        Part::Plain
    };
    Rank { band, order, part }
}

impl Rank {
    /// Nothing is provisioned or moved without it.
    pub(super) fn is_needed(self) -> bool {
        matches!(self.band, Band::Needed(_))
    }
}

/// Every workload of a lower rank has moved.
pub(super) fn turn(scene: &Scene<'_>, work: &Work<'_>) -> Result<(), Hold> {
    let rank = work.rank;
    // Two of the same that are needed go one after the other.
    let before = |other: &&Work<'_>| {
        other.rank < rank
            || (other.rank == rank && rank.is_needed() && other.reference < work.reference)
    };
    let mut earlier = scene
        .works
        .iter()
        .filter(before)
        .filter(|w| !w.rests() && !serves_where_it_is(w, rank));
    if let Some(first) = earlier.next() {
        let more = earlier.count();
        return Err(Hold::Wait(Waiting::Order {
            workload: work.reference.clone(),
            first: first.reference.to_string(),
            more,
            why: why(first.rank, rank),
        }));
    }
    let last = |until: String| {
        Err(Hold::Wait(Waiting::Last {
            workload: work.reference.clone(),
            until,
        }))
    };
    if rank.band == Band::NodeCritical {
        let now = scene.nodes.iter().filter(|selected| selected.due);
        let others = now.flat_map(Selected::left);
        let unmoved = others.filter(|(_, treatment)| !treatment.moves()).count();
        if unmoved > 0 {
            return last(format!("{unmoved} other pods to have left"));
        }
    }
    if rank.is_needed() {
        let pending = scene.cluster.pods.values().filter(|p| is_pending(scene, p));
        match pending.count() {
            0 => {}
            n => return last(format!("{n} placeholders to have a ready node")),
        }
    }
    Ok(())
}

/// It answers for admission from where it is, and cannot move now: others need not wait for that.
fn serves_where_it_is(other: &Work<'_>, rank: Rank) -> bool {
    let only_admits = (other.rank.band, other.rank.order) == (rank.band, rank.order);
    only_admits && other.state() == WorkloadState::Blocked && other.whole()
}

fn why(first: Rank, then: Rank) -> &'static str {
    match then.band {
        Band::Needed(_) => "it is needed for that",
        Band::NodeCritical => "it is of priority system-node-critical, and they may need it",
        Band::Ordinary if first.order < then.order => "so the rules say by their order",
        Band::Ordinary => {
            "an admission webhook is answered by that, and refuses pods when it is not"
        }
    }
}

/// A placeholder, of whichever relocation, for which a node may have to be made.
fn is_pending(scene: &Scene<'_>, pod: &Pod) -> bool {
    let Some(label) = &pod.placeholder else {
        return false;
    };
    let ours = label.relocation == scene.claim.uid;
    !pod.terminating
        && !pod.finished
        && (pod.node.is_none() || (ours && !gates::is_placed(scene, pod)))
}
