//! Everything that can be known to fail, or to cost something, before anything is touched: one file a subject. Pure.
//!
//! What is certain to fail is a blocker; what may go wrong, or is lost on the way, is a warning.

mod admission;
mod places;
mod pods;
mod workloads;

use jiff::SignedDuration;

use crate::world::{Node, Pod};

use super::draft::Draft;
use super::report::Finding;
use super::scene::{Scene, Work};
use super::strategy::Choice;
use super::treatment::Treatment;

/// What would be done, before it is begun.
pub(super) struct Outline<'a, 'b> {
    /// The nodes that would be emptied.
    pub(super) nodes: &'b [&'a Node],
    /// The pods on them, with what would become of each.
    pub(super) pods: &'b [(&'a Pod, Treatment)],
    /// The workloads that would move, with how.
    pub(super) chosen: &'b [(&'b Work<'a>, Choice)],
}

impl<'a> Outline<'a, '_> {
    /// The pods that have to leave.
    pub(super) fn pods_left(&self) -> impl Iterator<Item = &'a Pod> {
        let left = self.pods.iter().filter(|(_, treatment)| treatment.counts());
        left.map(|(pod, _)| *pod)
    }
}

/// Looks for all of it.
pub(super) fn check(scene: &Scene<'_>, draft: &mut Draft, outline: &Outline<'_, '_>) {
    draft.blockers.extend(scene.unreadable.iter().cloned());
    for node in outline.nodes.iter().filter(|n| !n.ready) {
        let is_here = |pod: &Pod| pod.node.as_ref() == Some(&node.name);
        if outline.pods_left().any(is_here) {
            draft.block(Finding::node_unreachable(&node.name));
        }
    }
    expiry(scene, draft, outline);
    pods::check(draft, outline);
    places::check(scene, draft, outline);
    for (work, choice) in outline.chosen {
        workloads::check(scene, draft, work, choice);
        admission::check(scene, draft, work, choice);
    }
}

/// Nodes that Karpenter will take away by itself while the relocation may still be at work.
fn expiry(scene: &Scene<'_>, draft: &mut Draft, outline: &Outline<'_, '_>) {
    let spec = scene.spec;
    let seconds = i64::from(spec.replacement.timeout_seconds)
        .saturating_add(i64::from(spec.workloads.timeout_seconds));
    let Ok(end) = scene
        .world
        .now
        .checked_add(SignedDuration::from_secs(seconds))
    else {
        return;
    };
    for node in outline.nodes {
        if let Some(claim) = scene.claim_of(&node.name)
            && let Some(at) = claim.expires.filter(|at| *at <= end)
        {
            draft.warn(Finding::node_expires(&node.name, &claim.name, at));
        }
    }
}
