//! Stage Planning: finds everything that can be known to fail, before anything is touched. Pure; writes nothing but status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::keys;
use crate::api::relocation::ReplacementStrategy;
use crate::api::status::{MoveStrategy, NodeClaimRef, NodeStatus, Stage};
use crate::world::{Node, PlaceholderSetup, Pod};

use super::draft::Draft;
use super::report::Blocker;
use super::scene::{Owner, Scene, Work};
use super::strategy::{self, Choice};
use super::treatment::{Treatment, cannot_land_elsewhere};
use super::{Action, listed, select, stuck};

/// Plans, and starts when nothing stands in the way.
pub(super) fn step(scene: &Scene<'_>, draft: &mut Draft) {
    draft.stage = Stage::Planning;
    let nodes = match select::matching(scene) {
        Ok(nodes) => nodes,
        Err(blockers) => {
            draft.blockers.extend(blockers);
            return;
        }
    };
    let limit = scene.spec.nodes.limit;
    if nodes.len() > limit as usize {
        draft.block(Blocker::too_many_nodes(nodes.len(), limit));
        return;
    }
    if nodes.is_empty() {
        draft.succeed(
            "NothingToDo",
            format!("no node matches {}: nothing was written", criteria(scene)),
        );
        return;
    }
    let refused: Vec<_> = nodes
        .iter()
        .filter_map(|n| select::refusal(scene.cluster, n, &scene.claim))
        .collect();
    if !refused.is_empty() {
        draft.blockers.extend(refused);
        return;
    }
    let pods: Vec<_> = nodes.iter().flat_map(|n| scene.classified(n)).collect();
    if !pods.iter().any(|(_, t)| t.counts()) {
        draft.succeed(
            "NothingToDo",
            format!(
                "the {} matching nodes are already empty: nothing was written",
                nodes.len()
            ),
        );
        return;
    }
    for node in nodes.iter().filter(|n| !n.ready) {
        if scene.classified(node).iter().any(|(_, t)| t.counts()) {
            draft.block(Blocker::node_unreachable(&node.name));
        }
    }
    pod_blockers(&pods, draft);
    let works = scene.works_of(&pods);
    let chosen = choose(scene, &works, draft);
    setup(scene, draft);
    if !draft.blockers.is_empty() || scene.spec.suspend {
        return;
    }
    start(scene, draft, &nodes, chosen);
}

/// What was asked for, in words.
fn criteria(scene: &Scene<'_>) -> String {
    let wanted = &scene.spec.nodes;
    let mut parts = Vec::new();
    if !wanted.names.is_empty() {
        parts.push(format!("names [{}]", wanted.names.join(", ")));
    }
    if wanted.selector.is_some() {
        parts.push("the selector".to_owned());
    }
    if !wanted.node_pools.is_empty() {
        parts.push(format!("nodePools [{}]", wanted.node_pools.join(", ")));
    }
    parts.push(format!("state {:?}", wanted.state));
    format!("spec.nodes ({})", parts.join(", "))
}

fn pod_blockers(pods: &[(&Pod, Treatment)], draft: &mut Draft) {
    for (pod, treatment) in pods {
        match treatment {
            Treatment::Stuck(blocker) => draft.block(blocker.clone()),
            Treatment::Moves(_) => draft.blockers.extend(cannot_land_elsewhere(pod)),
            Treatment::Stays
            | Treatment::Finished
            | Treatment::GivesWay
            | Treatment::Waits { .. } => {}
        }
    }
}

/// The strategy of each workload, and whatever in its state forbids to begin.
fn choose<'a, 'b>(
    scene: &Scene<'_>,
    works: &'b [Work<'a>],
    draft: &mut Draft,
) -> Vec<(&'b Work<'a>, Choice)> {
    let mut chosen = Vec::new();
    for work in works {
        match strategy::resolve(scene.cluster, scene.spec.workloads.strategy, work) {
            Ok(choice) => {
                if let Some(blocker) = stuck::holds(scene, draft, work) {
                    draft.block(blocker);
                }
                health(scene, work, &choice, draft);
                chosen.push((work, choice));
            }
            Err(blocker) => draft.block(blocker),
        }
    }
    chosen
}

fn health(scene: &Scene<'_>, work: &Work<'_>, choice: &Choice, draft: &mut Draft) {
    match work.owner {
        Owner::Deployment(d) if d.deadline_exceeded => {
            draft.block(Blocker::rollout_failed(&work.reference));
        }
        Owner::Deployment(d) if !d.rolled_out() => {
            draft.block(Blocker::rollout_in_progress(&work.reference));
        }
        Owner::StatefulSet(s) if !s.observed || !s.rolled_out => {
            draft.block(Blocker::rollout_in_progress(&work.reference));
        }
        Owner::Deployment(_) | Owner::StatefulSet(_) | Owner::ReplicaSet(_) => {
            let ready = work.elsewhere.iter().filter(|p| p.ready).count();
            // A pod that is not ready on a selected node may get well by being moved; one elsewhere has to be waited for.
            let could_be = ready + work.left.len();
            if could_be < work.replicas() {
                let ready = ready + work.left.iter().filter(|p| p.ready).count();
                draft.block(Blocker::owner_unhealthy(
                    &work.reference,
                    ready,
                    work.replicas(),
                ));
            }
        }
        Owner::Gone => {}
    }
    if choice.strategy != MoveStrategy::Evict {
        return;
    }
    for pod in work.left.iter().filter(|p| p.ready) {
        let budgets: Vec<_> = scene.cluster.budgets_of(pod).collect();
        if budgets.len() > 1 {
            let names: Vec<_> = budgets.iter().map(ToString::to_string).collect();
            draft.block(Blocker::several_budgets(&pod.reference, &names));
        } else if let Some(budget) = budgets.first().filter(|b| b.never_allows()) {
            draft.block(Blocker::budget_never_allows(&pod.reference, budget));
        }
    }
}

fn setup(scene: &Scene<'_>, draft: &mut Draft) {
    if scene.spec.replacement.strategy == ReplacementStrategy::None {
        return;
    }
    match &scene.world.setup {
        PlaceholderSetup::Read {
            namespace,
            priority,
        } => {
            if !namespace {
                draft.block(Blocker::namespace_missing());
            }
            if *priority != Some(keys::PRIORITY) {
                draft.block(Blocker::priority_class(*priority));
            }
        }
        PlaceholderSetup::Failed(unknown) => draft.block(Blocker::not_observed(unknown)),
        PlaceholderSetup::Unread => draft.look_soon(),
    }
}

/// Freezes what is meant. The finalizer comes first: from then on a deletion of the relocation restores before it is carried out.
fn start(scene: &Scene<'_>, draft: &mut Draft, nodes: &[&Node], chosen: Vec<(&Work<'_>, Choice)>) {
    let relocation = &scene.world.relocation;
    if !relocation
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|f| f == keys::FINALIZER)
    {
        draft.act(Action::AddFinalizer);
        return;
    }
    if scene.spec.replacement.strategy != ReplacementStrategy::None
        && scene.world.setup == PlaceholderSetup::Unread
    {
        return;
    }
    draft.status.start_time = Some(Time(scene.world.now));
    draft.status.nodes = nodes
        .iter()
        .map(|node| NodeStatus {
            name: node.name.to_string(),
            uid: node.uid.to_string(),
            node_claim: scene.cluster.claim_of(&node.name).map(|c| NodeClaimRef {
                name: c.name.clone(),
                uid: c.uid.to_string(),
            }),
            stage: Stage::Protecting,
            pods_left: u32::try_from(
                scene
                    .classified(node)
                    .iter()
                    .filter(|(_, t)| t.counts())
                    .count(),
            )
            .unwrap_or(u32::MAX),
            was_unschedulable: false,
        })
        .collect();
    listed::start(draft, chosen);
    draft.all_nodes_to(Stage::Protecting);
}
