//! Workloads that are not well enough to be moved, or whose budgets would never let them, and what their moving costs. Pure.

use crate::api::status::MoveStrategy;
use crate::plan::draft::Draft;
use crate::plan::parent::Word;
use crate::plan::report::Finding;
use crate::plan::roles;
use crate::plan::scene::{Owner, Scene, Work};
use crate::plan::strategy::Choice;
use crate::plan::stuck;
use crate::world::Health;

pub(super) fn check(scene: &Scene<'_>, draft: &mut Draft, work: &Work<'_>, choice: &Choice) {
    if let Some(blocker) = stuck::holds(scene, draft, work) {
        draft.block(blocker);
    }
    health(draft, work);
    parent(draft, work);
    if choice.strategy == MoveStrategy::Evict {
        budgets(scene, draft, work);
    }
    costs(draft, work, choice);
}

fn health(draft: &mut Draft, work: &Work<'_>) {
    match work.owner {
        Owner::Deployment(d) if d.deadline_exceeded => {
            draft.block(Finding::rollout_failed(&work.reference));
        }
        Owner::Deployment(d) if !d.rolled_out() => {
            draft.block(Finding::rollout_in_progress(&work.reference));
        }
        Owner::StatefulSet(s) if !s.observed || !s.rolled_out => {
            draft.block(Finding::rollout_in_progress(&work.reference));
        }
        // What it says may be of a pod here that is not Ready, which gets well by being moved.
        Owner::Other(o)
            if matches!(o.health, Health::Unwell(_)) && work.left.iter().all(|p| p.ready) =>
        {
            if let Health::Unwell(said) = &o.health {
                draft.block(Finding::owner_unwell(&work.reference, said));
            }
        }
        Owner::Unread(Some(unknown)) => draft.block(Finding::not_observed(unknown)),
        // The pods of a Job come and go.
        Owner::Other(o) if o.job.is_some() => {}
        Owner::Deployment(_) | Owner::StatefulSet(_) | Owner::ReplicaSet(_) | Owner::Other(_) => {
            let ready = work.elsewhere.iter().filter(|p| p.ready).count();
            // A pod that is not ready on a selected node may get well by being moved; one elsewhere has to be waited for.
            let could_be = ready + work.left.len();
            if could_be < work.replicas() {
                let ready = ready + work.left.iter().filter(|p| p.ready).count();
                draft.block(Finding::owner_unhealthy(
                    &work.reference,
                    ready,
                    work.replicas(),
                ));
            }
        }
        Owner::Nobody | Owner::Gone | Owner::Unread(None) => {}
    }
}

/// The controller above it. What it says may be of a pod here that is not Ready, which gets well by being moved.
fn parent(draft: &mut Draft, work: &Work<'_>) {
    let Some(parent) = work.parent else { return };
    let named = parent.named(&work.reference.namespace);
    match parent.word() {
        Word::Unwell(said) if work.left.iter().all(|p| p.ready) => {
            draft.block(Finding::parent_unwell(&work.reference, &named, said));
        }
        Word::Unheard(unknown) => {
            draft.warn(Finding::parent_unheard(&work.reference, &named, unknown));
        }
        Word::Unknown(Some(unknown)) => draft.block(Finding::not_observed(unknown)),
        Word::Nothing | Word::Unwell(_) | Word::Unknown(None) => {}
    }
}

fn budgets(scene: &Scene<'_>, draft: &mut Draft, work: &Work<'_>) {
    for pod in work.staying().filter(|p| !p.pending) {
        let budgets: Vec<_> = scene.budgets_of(pod).collect();
        if budgets.len() > 1 {
            let names: Vec<_> = budgets.iter().map(ToString::to_string).collect();
            draft.block(Finding::several_budgets(&pod.reference, &names));
        } else if let Some(budget) = budgets.first().filter(|b| b.keeps_unhealthy(pod)) {
            draft.block(Finding::unhealthy_pod_guarded(&pod.reference, budget));
        } else if let Some(budget) = budgets.first().filter(|b| pod.ready && b.never_allows()) {
            // It moves last, and may lead no more by then.
            if roles::leads_others(work, pod) {
                draft.warn(Finding::lead_guarded(&pod.reference, budget));
            } else {
                draft.block(Finding::budget_never_allows(&pod.reference, budget));
            }
        }
    }
}

fn costs(draft: &mut Draft, work: &Work<'_>, choice: &Choice) {
    if let Owner::Nobody = work.owner {
        draft.warn(Finding::gone_for_good(&work.reference));
    }
    if let Owner::Other(owner) = work.owner
        && let Some(job) = owner.job
        && !job.ignores_disruption
    {
        draft.warn(Finding::counts_as_failure(
            &work.reference,
            job.failures_left,
        ));
    }
    let mut local: Vec<_> = work.left.iter().flat_map(|p| &p.empty_dirs).collect();
    local.sort();
    local.dedup();
    if !local.is_empty() {
        draft.warn(Finding::loses_local_data(&work.reference, &local));
    }
    let evicted_alone = choice.strategy == MoveStrategy::Evict
        && work.replicas() == 1
        && !matches!(work.owner, Owner::Other(o) if o.job.is_some());
    if evicted_alone {
        draft.warn(Finding::downtime(&work.reference));
    }
}
