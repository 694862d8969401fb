//! Moving by a surge: as many replicas more, and when those are Ready the old pods go. Make before break, the template untouched. Pure.
//!
//! The `ReplicaSet` removes the pods of the lowest deletion cost first, so the pods on selected nodes get one. The count goes up in
//! the same write as a mark that says from where to where; a count that is neither is somebody else's, and stays.

use crate::api::keys;
use crate::api::status::MoveStrategy;
use crate::world::{Deployment, SurgeMark, Uid};

use super::draft::Draft;
use super::gates::{self, Hold};
use super::moving::{self, Slots};
use super::report::{Finding, Waiting};
use super::scene::{Scene, Work};
use super::{Action, Restore};
use super::{near, stuck, system};

/// The mark of a surge of ours that is under way.
pub(super) fn ours<'a>(scene: &Scene<'_>, deployment: &'a Deployment) -> Option<&'a SurgeMark> {
    of(&scene.claim.uid, deployment)
}

/// The mark of a surge that is under way for the relocation of that UID.
pub(super) fn of<'a>(relocation: &Uid, deployment: &'a Deployment) -> Option<&'a SurgeMark> {
    deployment
        .surge
        .as_ref()
        .filter(|mark| mark.relocation == *relocation)
}

/// Records the count that the surge goes back to, or that there is none.
pub(super) fn record(draft: &mut Draft, work: &Work<'_>, from: Option<u32>) {
    if let Some(record) = draft
        .status
        .workloads
        .iter_mut()
        .find(|r| r.uid == work.reference.uid.as_str())
    {
        record.surged_from = from;
    }
}

/// Raises the replica count by as many pods as may move now.
pub(super) fn raise(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    deployment: &Deployment,
    slots: &mut Slots,
) -> Result<(), Hold> {
    if deployment.surge.is_some() {
        let shared = "its replicas".to_owned();
        return Err(Hold::Wait(Waiting::Turn {
            workload: work.reference.clone(),
            shared,
        }));
    }
    if deployment.paused {
        return Err(Hold::Block(Finding::owner_paused(&work.reference)));
    }
    gates::predecessor_ready(work)?;
    gates::settled(scene, work)?;
    for node in work
        .left
        .iter()
        .filter_map(|p| scene.node(p.node.as_ref()?))
    {
        gates::held(scene, node)?;
    }
    gates::all_closed(scene)?;
    gates::place(scene, work, 1)?;
    gates::turn(scene, work, &slots.started)?;
    let places = gates::places(scene, work);
    // Of a spread workload the second of two new pods may have to be in another zone than the second that goes.
    let most = if system::one_by_one(work) || near::is_spread(work) {
        1
    } else {
        slots.free.max(1)
    };
    let by = work.leaving().count().min(places).min(most);
    moving::take(scene, slots, by, work)?;
    let mark = SurgeMark {
        relocation: scene.claim.uid.clone(),
        from: deployment.replicas,
        to: deployment
            .replicas
            .saturating_add(u32::try_from(by).unwrap_or(u32::MAX)),
    };
    cheapen(scene, draft, work);
    record(draft, work, Some(mark.from));
    draft.act(Action::Surge {
        workload: work.reference.clone(),
        resource_version: deployment.resource_version.clone(),
        mark,
    });
    Ok(())
}

/// The count is raised: lowers it again when the new pods are there.
pub(super) fn raised(
    scene: &Scene<'_>,
    draft: &mut Draft,
    work: &Work<'_>,
    deployment: &Deployment,
    mark: &SurgeMark,
) {
    let costs_missing = cheapen(scene, draft, work);
    // Pods that are not Ready where they are will not get Ready by waiting.
    let sick = work.staying().filter(|p| !p.ready).count();
    let arrived = work.elsewhere.iter().filter(|p| p.ready).count();
    let wanted = (mark.to as usize).saturating_sub(work.left.len());
    let all_there = deployment.observed
        && arrived >= wanted
        && arrived == work.elsewhere.len()
        && deployment.available as usize + sick >= mark.to as usize;
    if deployment.replicas != mark.to {
        // Somebody else has set another count since: theirs holds, and the costs let it take the right pods.
        if deployment.replicas == mark.from {
            put_back(draft, work, mark.from);
        }
        draft.restore(end(deployment, None));
        return;
    }
    if all_there && !costs_missing {
        draft.restore(end(deployment, Some(mark.from)));
        return;
    }
    if let Some(blocker) = stuck::landing(scene, draft, work) {
        draft.block(blocker);
        return;
    }
    let why = deployment.failure.clone();
    draft.wait(Waiting::Surged {
        workload: work.reference.clone(),
        arrived,
        wanted,
        why,
    });
}

/// Ends the surge: with a count it goes back to, or with the count that somebody else has set.
pub(super) fn end(deployment: &Deployment, replicas: Option<u32>) -> Restore {
    Restore::EndSurge {
        workload: deployment.reference.clone(),
        resource_version: deployment.resource_version.clone(),
        replicas,
    }
}

/// The count that was raised is the one from before again: whoever keeps it there, such as Argo CD, would do so every time. The
/// workload goes on by evictions.
fn put_back(draft: &mut Draft, work: &Work<'_>, count: u32) {
    let uid = work.reference.uid.as_str();
    let records = &mut draft.status.workloads;
    if let Some(record) = records.iter_mut().find(|r| r.uid == uid) {
        record.strategy = MoveStrategy::Evict;
        record.why = format!(
            "its replica count was put back to {count} by somebody else while it was raised for a surge"
        );
    }
}

/// Lets the pods that are to leave be the first to go. True when one of them does not say so yet.
fn cheapen(scene: &Scene<'_>, draft: &mut Draft, work: &Work<'_>) -> bool {
    let mut missing = false;
    for pod in work.leaving() {
        if pod.marks.costed_by.as_ref() != Some(&scene.claim)
            || pod.marks.deletion_cost.as_deref() != Some(keys::DELETION_COST_VALUE)
        {
            missing = true;
            draft.act(Action::CheapenPod { pod: pod.into() });
        }
    }
    missing
}
