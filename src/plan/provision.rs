//! Stage Provisioning, and keeping the places while pods move. Pure.
//!
//! Placeholders of one workload stand for each other, so they are counted by workload: what a moved pod took from a neighbour of its own
//! kind is no loss. A surplus one goes before a missing one is made, so that no node is bought for a swap. One whose node is lost is no
//! place any more: it goes, and another one is made.

use jiff::{SignedDuration, Timestamp};

use crate::api::relocation::ReplacementStrategy;
use crate::api::status::{ReplacementStatus, Stage};
use crate::world::{NodeClaim, Pod, Shape};

use super::draft::Draft;
use super::gates;
use super::report::{Finding, Waiting};
use super::scene::{Scene, Work};
use super::{
    Action, Placeholder, Restore, apart, attach, fits, listed, matching, moving, near, placement,
    protect,
};

/// How the places stand.
struct Tally {
    wanted: usize,
    placed: usize,
    missing: usize,
}

/// Makes a place for each pod that has to move, and goes on when each has a ready node.
pub(super) fn step(scene: &Scene<'_>, draft: &mut Draft) {
    listed::adopt(scene, draft);
    protect::pods(scene, draft);
    let held = scene
        .nodes
        .iter()
        .filter_map(|s| s.node)
        .filter_map(|n| gates::held(scene, n).err());
    for hold in held {
        moving::hold(draft, hold);
    }
    if !draft.blockers.is_empty() {
        return;
    }
    if scene.spec.replacement.strategy == ReplacementStrategy::None {
        draft.all_nodes_to(Stage::Moving);
        return;
    }
    let tally = keep(scene, draft);
    if tally.missing == 0 && tally.placed >= tally.wanted {
        draft.all_nodes_to(Stage::Moving);
        return;
    }
    let late = late(scene);
    let scheduler = |p: &&Pod| p.unschedulable.clone().filter(|w| !w.is_empty());
    let why = late.iter().find_map(scheduler);
    let why = why.or_else(|| late.iter().find_map(|p| gates::not_yet(scene, p)));
    draft.wait(Waiting::Places {
        placed: tally.placed,
        wanted: tally.wanted,
        why,
    });
    let timeout = SignedDuration::from_secs(i64::from(scene.spec.replacement.timeout_seconds));
    if let Some((since, refused)) = refused(scene, draft) {
        match since.checked_add(timeout) {
            Ok(due) if due > scene.world.now => draft.look_at(due),
            Ok(_) => {
                draft.actions.clear();
                draft.roll_back(scene.world, &refused);
                return;
            }
            Err(_) => {}
        }
    }
    let Some(oldest) = late.first() else { return };
    let due = oldest.created.and_then(|c| c.checked_add(timeout).ok());
    match due {
        Some(due) if due > scene.world.now => draft.look_at(due),
        Some(_) => draft.roll_back(scene.world, &blocker(scene, oldest)),
        None => {}
    }
}

/// A placeholder that the API server refuses to make, with the time since when it has been told; of several the one that is refused longest.
fn refused(scene: &Scene<'_>, draft: &Draft) -> Option<(Timestamp, Finding)> {
    let placeholders = draft.actions.iter();
    let placeholders = placeholders.filter(|a| matches!(a, Action::CreatePlaceholder(_)));
    let refused = placeholders.filter_map(|action| {
        let refusal = scene.world.refusals.get(&action.key())?;
        let finding = Finding::refused(action, refusal)?;
        let mut told = draft.status.blockers.iter();
        let told = told.find(|b| b.reason == finding.reason && b.object == finding.object)?;
        Some((told.since.0, finding))
    });
    refused.min_by_key(|(since, _)| *since)
}

/// Our placeholders that have no ready node, oldest first.
fn late<'a>(scene: &Scene<'a>) -> Vec<&'a Pod> {
    let mut late: Vec<_> = scene
        .placeholders
        .all
        .iter()
        .copied()
        .filter(|p| !p.terminating && !p.finished && !gates::is_placed(scene, p))
        .collect();
    late.sort_by(|a, b| (a.created, &a.reference).cmp(&(b.created, &b.reference)));
    late
}

fn blocker(scene: &Scene<'_>, placeholder: &Pod) -> Finding {
    let claims: Vec<&NodeClaim> = scene
        .cluster
        .karpenter
        .iter()
        .flat_map(|k| k.claims.values())
        .map(AsRef::as_ref)
        .filter(|c| c.message.is_some())
        .take(3)
        .collect();
    let said = placeholder
        .unschedulable
        .as_deref()
        .filter(|s| !s.is_empty());
    let not_yet = gates::not_yet(scene, placeholder);
    let said = said.or(not_yet.as_deref());
    Finding::capacity(
        &placeholder.reference,
        said.unwrap_or("the scheduler has not said why"),
        &claims,
    )
}

/// Keeps as many placeholders as there are replicas without a place, and protects the nodes that they are on.
///
/// Also in stage Moving: a placeholder that was taken away while its pod has not moved is made again.
pub(super) fn maintain(scene: &Scene<'_>, draft: &mut Draft) {
    if scene.spec.replacement.strategy == ReplacementStrategy::None {
        return;
    }
    let tally = keep(scene, draft);
    if let Some(late) = late(scene).first().filter(|_| tally.placed < tally.wanted) {
        let timeout = SignedDuration::from_secs(i64::from(scene.spec.replacement.timeout_seconds));
        match late.created.and_then(|c| c.checked_add(timeout).ok()) {
            Some(due) if due > scene.world.now => draft.look_at(due),
            Some(_) => draft.block(blocker(scene, late)),
            None => {}
        }
    }
}

fn keep(scene: &Scene<'_>, draft: &mut Draft) -> Tally {
    let mut tally = Tally {
        wanted: 0,
        placed: 0,
        missing: 0,
    };
    let mut create = Vec::new();
    let mut surplus = false;
    for placeholder in &scene.placeholders.all {
        let useless = placeholder.finished || gates::is_lost(scene, placeholder);
        if useless && !placeholder.terminating {
            draft.restore(Restore::DeletePlaceholder {
                pod: placeholder.reference.clone(),
            });
        }
    }
    for work in &scene.works {
        let mut have: Vec<_> = scene
            .placeholders_of(&work.reference.uid)
            .filter(|p| !gates::is_lost(scene, p))
            .collect();
        let leaving = work.leaving().count();
        // Of the nodes of a later batch: no place is needed for them yet.
        let later = work.staying().count() - leaving;
        let matched = matching::of(scene, work, &have);
        let bound = work.elsewhere.iter().filter(|p| p.node.is_some()).count();
        // An unscheduled pod is about to take a place: nothing is made for it, and nothing taken from it.
        let unscheduled = work.elsewhere.len() - bound;
        let wanted = work.replicas().saturating_sub(bound + later);
        let too_many = have.len().saturating_sub(wanted);
        // A place that none of those that are left could take, where one of them has none: it goes for one that can.
        let misplaced = matched.spare().min(matched.without.len());
        let misplaced = if unscheduled == 0 { misplaced } else { 0 };
        let going = too_many.max(misplaced);
        if going > 0 {
            surplus = true;
            // Those that are no places now go first: a pod may be leaving in this pass because the others are.
            have.sort_by_key(|p| {
                let placed = gates::is_placed(scene, p);
                (matched.is_useful(p), placed, stands_for_one_of(p, work))
            });
            for placeholder in have.iter().take(going) {
                draft.restore(Restore::DeletePlaceholder {
                    pod: placeholder.reference.clone(),
                });
            }
        }
        let missing = wanted
            .saturating_sub(unscheduled)
            .min(leaving)
            .saturating_sub(have.len());
        // One that is on its way out still has the name that the next one is to have.
        let mut without: Vec<_> = work
            .leaving()
            .filter(|pod| !scene.placeholders.has_one_for(pod))
            .collect();
        let lacks = |pod: &Pod| matched.without.iter().any(|p| std::ptr::eq(*p, pod));
        without.sort_by_cached_key(|pod| !lacks(pod));
        let without = without.into_iter();
        create.extend(
            without
                .take(missing)
                .map(|pod| Action::CreatePlaceholder(Box::new(placeholder(scene, work, pod)))),
        );
        tally.missing += missing;
        let needed = if work.vanishes() { 0 } else { leaving };
        tally.wanted += needed;
        tally.placed += gates::placed(scene, work).min(needed);
    }
    // Made while a selected node is open, they would land there.
    if !surplus && gates::all_closed(scene).is_ok() {
        draft.actions.extend(create);
    }
    let made = protect_new(scene, draft);
    let before = draft
        .status
        .replacement
        .as_ref()
        .map_or(0, |r| r.nodes_made);
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    draft.status.replacement = Some(ReplacementStatus {
        placeholders_wanted: number(tally.wanted),
        placeholders_placed: number(tally.placed),
        nodes_made: before.max(made),
    });
    tally
}

/// Protects the new nodes that placeholders are on. Returns how many nodes that came since the start are protected.
fn protect_new(scene: &Scene<'_>, draft: &mut Draft) -> u32 {
    let mut made = 0;
    let started = scene
        .world
        .relocation
        .status
        .as_ref()
        .and_then(|s| s.start_time.as_ref())
        .map(|t| t.0);
    for node in scene
        .cluster
        .nodes
        .values()
        .filter(|n| !scene.is_selected(n))
    {
        let ours = node.marks.guarded_by(&scene.claim.uid).next().is_some();
        if ours && node.created >= started {
            made += 1;
        }
        if ours || node.deleting || !scene.placeholders.is_on(&node.name) {
            continue;
        }
        let guards = node.marks.lacks(protect::of_node(scene, node));
        if !guards.is_empty() {
            let node = node.as_ref().into();
            draft.act(Action::ProtectNode { node, guards });
        }
    }
    made
}

pub(super) fn stands_for(placeholder: &Pod, pod: &Pod) -> bool {
    placeholder
        .placeholder
        .as_ref()
        .is_some_and(|l| l.pod == pod.reference.uid)
}

/// Placeholders of pods that are still here are kept longest.
fn stands_for_one_of(placeholder: &Pod, work: &Work<'_>) -> bool {
    work.leaving().any(|pod| stands_for(placeholder, pod))
}

/// What a place for the pod is to be like, other pods aside, but for those that it may not be near.
pub(super) fn shape(scene: &Scene<'_>, work: &Work<'_>, pod: &Pod) -> Shape {
    let mut shape = pod.shape.clone();
    // What Kubernetes adds to a placed pod of its own is not part of what it asks for.
    shape.tolerations.retain(|t| {
        !matches!(
            t.key.as_deref(),
            Some("node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable")
        )
    });
    for key in ["kubernetes.io/os", "kubernetes.io/arch"] {
        let node = pod.node.as_ref().and_then(|n| scene.node(n));
        // An image built for the old node's architecture may not run on another.
        if let Some(value) = node
            .and_then(|n| n.labels.get(key))
            .filter(|_| !mentions(&shape, key))
        {
            shape.node_selector.insert(key.to_owned(), value.clone());
        }
    }
    // A placeholder mounts nothing: it goes where the volumes can.
    if let Some(nodes) = scene.volumes().nodes(pod) {
        shape.required_affinity = Some(fits::both(shape.required_affinity, &nodes));
    }
    shape.repels = apart::repels(work, pod);
    shape.attracts.clear();
    shape.spread.clear();
    placement::apply(scene, &mut shape);
    shape
}

/// As [`shape`], and where the other pods are that have to be near it, or far.
fn shape_of_place(scene: &Scene<'_>, work: &Work<'_>, pod: &Pod) -> Shape {
    let nodes = near::nodes(scene, work, pod);
    let own = pod.shape.required_affinity.clone();
    let mut shape = Shape {
        spread: near::spread(work, pod, nodes.as_ref()),
        required_affinity: nodes.map(|n| fits::both(own.clone(), &n)).or(own),
        attracts: near::attraction(scene, work, pod),
        ..shape(scene, work, pod)
    };
    attach::apart_from_full(scene, pod, &mut shape);
    shape
}

/// A place for the pod, or for another of its workload that is like it.
pub(super) fn placeholder(scene: &Scene<'_>, work: &Work<'_>, pod: &Pod) -> Placeholder {
    let short = |text: &str, most: usize| {
        text.chars()
            .take(most)
            .collect::<String>()
            .trim_end_matches(['-', '.'])
            .to_owned()
    };
    Placeholder {
        name: format!(
            "{}-{}",
            short(&pod.reference.name, 200),
            short(scene.claim.uid.as_str(), 8)
        ) + "-"
            + &short(pod.reference.uid.as_str(), 8),
        pod: pod.reference.clone(),
        workload: work.reference.clone(),
        shape: shape_of_place(scene, work, pod),
        image: scene.spec.replacement.image.clone(),
    }
}

fn mentions(shape: &Shape, key: &str) -> bool {
    let terms = shape
        .required_affinity
        .iter()
        .flat_map(|a| &a.node_selector_terms);
    shape.node_selector.contains_key(key)
        || terms
            .flat_map(|t| t.match_expressions.iter().flatten())
            .any(|e| e.key == key)
}
