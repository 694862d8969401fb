//! Stage Planning: finds everything that can be known to fail, before anything is touched. Pure; writes nothing but status.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::keys;
use crate::api::relocation::{Mode, ReplacementStrategy};
use crate::api::status::{NodeClaimRef, NodeStatus, Stage};
use crate::world::{NodeName, PlaceholderSetup, Priority};

use super::draft::Draft;
use super::preflight::{self, Outline};
use super::report::Finding;
use super::scene::{Scene, Work};
use super::strategy::{self, Choice};
use super::{Action, listed, select};

/// Plans, and starts when nothing stands in the way.
pub(super) fn step(scene: &Scene<'_>, draft: &mut Draft) {
    draft.stage = Stage::Planning;
    // What an earlier pass has planned.
    draft.status.nodes.clear();
    draft.status.workloads.clear();
    draft.status.more_workloads = None;
    draft.warnings = Some(Vec::new());
    let nodes = match select::matching(scene) {
        Ok(nodes) => nodes,
        Err(blockers) => {
            draft.blockers.extend(blockers);
            return;
        }
    };
    let limit = scene.spec.nodes.limit;
    if nodes.len() > limit as usize {
        draft.block(Finding::too_many_nodes(nodes.len(), limit));
        return;
    }
    if nodes.is_empty() {
        let found = format!("no node matches {}: nothing was written", criteria(scene));
        nothing_to_do(scene, draft, found);
        return;
    }
    let refused: Vec<_> = nodes
        .iter()
        .filter_map(|n| select::refusal(scene, n))
        .collect();
    if !refused.is_empty() {
        draft.blockers.extend(refused);
        return;
    }
    let pods: Vec<_> = nodes.iter().flat_map(|n| scene.classified(n)).collect();
    if !pods.iter().any(|(_, t)| t.counts()) {
        let found = format!(
            "the {} matching nodes are already empty: nothing was written",
            nodes.len()
        );
        nothing_to_do(scene, draft, found);
        return;
    }
    let works = scene.works_of(&pods);
    let chosen = choose(scene, &works, draft);
    let outline = Outline {
        nodes: &nodes,
        pods: &pods,
        chosen: &chosen,
    };
    preflight::check(scene, draft, &outline);
    setup(scene, draft);
    show(scene, draft, &outline);
    listed::start(draft, chosen);
    if !draft.blockers.is_empty() || scene.spec.suspend {
        return;
    }
    match scene.spec.mode {
        Mode::Plan => draft.stage = Stage::Planned,
        Mode::Execute => start(scene, draft),
    }
}

/// Nothing has to be moved. A plan is not over by that: there may be something tomorrow.
fn nothing_to_do(scene: &Scene<'_>, draft: &mut Draft, found: String) {
    match scene.spec.mode {
        Mode::Plan => draft.stage = Stage::Planned,
        Mode::Execute => draft.succeed("NothingToDo", found),
    }
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
    if let Some(time) = &wanted.created_before {
        parts.push(format!("createdBefore {}", time.0));
    }
    parts.push(format!("state {:?}", wanted.state));
    format!("spec.nodes ({})", parts.join(", "))
}

/// The strategy of each workload, in the order in which they would move.
fn choose<'a, 'b>(
    scene: &Scene<'_>,
    works: &'b [Work<'a>],
    draft: &mut Draft,
) -> Vec<(&'b Work<'a>, Choice)> {
    let mut chosen = Vec::new();
    for work in works {
        match strategy::resolve(scene, work) {
            Ok(choice) => chosen.push((work, choice)),
            Err(blocker) => draft.block(blocker),
        }
    }
    chosen.sort_by_key(|(work, _)| work.rank);
    chosen
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
                draft.block(Finding::namespace_missing());
            }
            if *priority != Some(Priority::OF_PLACEHOLDERS) {
                draft.block(Finding::priority_class(*priority));
            }
        }
        PlaceholderSetup::Failed(unknown) => draft.block(Finding::not_observed(unknown)),
        PlaceholderSetup::Unread => draft.look_soon(),
    }
}

/// Records what would be done. It is a plan only, made anew in each pass, until the start.
fn show(scene: &Scene<'_>, draft: &mut Draft, outline: &Outline<'_, '_>) {
    let mut left: HashMap<&NodeName, u32> = HashMap::new();
    for node in outline.pods_left().filter_map(|pod| pod.node.as_ref()) {
        *left.entry(node).or_default() += 1;
    }
    draft.status.nodes = outline
        .nodes
        .iter()
        .map(|node| NodeStatus {
            name: node.name.to_string(),
            uid: node.uid.to_string(),
            node_claim: scene.claim_of(&node.name).map(|c| NodeClaimRef {
                name: c.name.clone(),
                uid: c.uid.to_string(),
            }),
            stage: Stage::Planning,
            pods_left: left.get(&node.name).copied().unwrap_or_default(),
            was_unschedulable: false,
        })
        .collect();
}

/// Freezes what is meant. The finalizer comes first: from then on a deletion of the relocation restores before it is carried out.
fn start(scene: &Scene<'_>, draft: &mut Draft) {
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
    draft.all_nodes_to(Stage::Protecting);
}
