//! Moving by eviction: one pod of a workload at a time. Pure.

use crate::world::Pod;

use super::Action;
use super::draft::Draft;
use super::gates::{self, Hold};
use super::moving::{self, Slots};
use super::roles;
use super::scene::{Owner, Scene, Work};

/// Evicts the next pod of the workload.
pub(super) fn step(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    slots: &mut Slots,
) -> Result<(), Hold> {
    gates::predecessor_ready(work)?;
    gates::settled(scene, work)?;
    let Some(pod) = next_pod(scene, work) else {
        return Ok(());
    };
    let node = pod.node.as_ref().and_then(|n| scene.node(n));
    let Some(node) = node else { return Ok(()) };
    gates::held(scene, node)?;
    gates::all_closed(scene)?;
    gates::place_for(scene, work, pod)?;
    gates::budget(scene, work, pod)?;
    gates::turn(scene, work, &slots.started)?;
    moving::take(scene, slots, 1, work)?;
    draft.act(Action::Evict {
        pod: pod.reference.clone(),
        node: node.name.clone(),
    });
    Ok(())
}

/// Pods that are not Ready first, for they serve nobody; then by the order of `workloads.rules`; then those that follow before the one
/// that leads; then the highest ordinal, as a `StatefulSet` updates; then by name.
fn next_pod<'a>(scene: &Scene<'_>, work: &Work<'a>) -> Option<&'a Pod> {
    let kind = work.reference.kind.to_string();
    let ordinal = |pod: &Pod| {
        pod.reference
            .name
            .rsplit_once('-')
            .and_then(|(_, n)| n.parse::<u32>().ok())
    };
    let stateful = matches!(work.owner, Owner::StatefulSet(_));
    work.leaving().min_by_key(|pod| {
        (
            pod.ready,
            scene.policy.order(&kind, pod),
            roles::leads(pod),
            if stateful {
                std::cmp::Reverse(ordinal(pod))
            } else {
                std::cmp::Reverse(None)
            },
            pod.reference.clone(),
        )
    })
}
