//! A finished draft as a plan: refused actions sorted out, blockers, progress and conditions written into the status. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::conditions::{self, ConditionStatus, ConditionType};
use crate::api::status::{BlockerStatus, NodeRelocationStatus, Progress, Stage, WarningStatus};
use crate::world::{RefusalKind, World};

use super::draft::{Draft, Outcome};
use super::report::{self, Finding, Waiting};
use super::{Plan, RESYNC, SOON};

/// The two statuses say the same in other words: counts of what is awaited, messages. Nothing is decided from those, so recording them
/// can wait a moment.
#[must_use]
pub fn only_words_differ(before: &NodeRelocationStatus, after: &NodeRelocationStatus) -> bool {
    let without_words = |status: &NodeRelocationStatus| {
        let mut status = status.clone();
        for condition in &mut status.conditions {
            condition.message.clear();
        }
        status.replacement = None;
        status
    };
    without_words(before) == without_words(after)
}

impl Draft {
    /// Sorts out refused actions, then writes blockers, progress and conditions into the status.
    pub(super) fn finish(mut self, world: &World) -> Plan {
        let refused_now = self.hold_back(world);
        if !self.blockers.is_empty()
            && !self.hopeful(world)
            && !matches!(self.stage, Stage::RollingBack | Stage::Suspended)
        {
            self.stage = Stage::Blocked;
        }
        self.record_warnings();
        self.record_blockers(world);
        self.record_progress();
        self.status.observed_generation = world.relocation.metadata.generation.unwrap_or_default();
        let wake_after = self.wake_after(world, refused_now);
        match self.outcome.take() {
            Some(Outcome::Succeeded { reason, message }) => {
                self.record_success(world, reason, &message);
            }
            Some(Outcome::Failed) => self.record_failure(world),
            None if self.stage == Stage::Blocked => self.record_blocked(world),
            None if self.stage == Stage::Planned => self.record_planned(world),
            None if self.stage == Stage::Suspended => self.record_suspended(world),
            None => self.record_under_way(world),
        }
        Plan {
            status: self.status,
            actions: self.actions,
            wake_after: Some(wake_after),
        }
    }

    fn wake_after(&self, world: &World, refused: Option<Timestamp>) -> Duration {
        if self.outcome.is_some() {
            return Duration::ZERO;
        }
        if self.soon {
            return SOON;
        }
        let until = self.wake_at.into_iter().chain(refused).min();
        let due = until.map(|at| Duration::try_from(at.duration_since(world.now)).unwrap_or(SOON));
        due.map_or(RESYNC, |due| due.clamp(SOON, RESYNC))
    }

    /// Takes out the actions that the API server asked us not to repeat yet, and says why they wait. Returns when the first is due.
    fn hold_back(&mut self, world: &World) -> Option<Timestamp> {
        if world.refusals.is_empty() {
            return None;
        }
        let mut due: Option<Timestamp> = None;
        let (blockers, waits) = (&mut self.blockers, &mut self.waits);
        self.actions.retain(|action| {
            let Some(refusal) = world.refusals.get(&action.key()) else {
                return true;
            };
            if refusal.until > world.now {
                due = Some(due.map_or(refusal.until, |d| d.min(refusal.until)));
            }
            // Said also while the next attempt is due, so that the report does not flicker.
            match Finding::refused(action, refusal) {
                Some(blocker) => blockers.push(blocker),
                None if refusal.kind == RefusalKind::Outdated => {}
                None => waits.push(Waiting::Retry {
                    object: refusal.object.clone(),
                    why: refusal.message.clone(),
                }),
            }
            refusal.until <= world.now
        });
        due
    }

    /// Something goes on by itself: something that is awaited of others, or an action that has not been refused yet.
    fn hopeful(&self, world: &World) -> bool {
        let refused = |action: &super::Action| {
            let refusal = world.refusals.get(&action.key());
            refusal.is_some_and(|refusal| Finding::refused(action, refusal).is_some())
        };
        // These await the effect of our own actions, or the other workloads, and say nothing when those are refused or blocked.
        let own = |waiting: &Waiting| {
            matches!(
                waiting,
                Waiting::Claims(_)
                    | Waiting::Cordons(_)
                    | Waiting::Release(_)
                    | Waiting::Places { .. }
                    | Waiting::Place(_)
                    | Waiting::Turn { .. }
                    | Waiting::Slot(_)
                    | Waiting::Budget { .. }
                    | Waiting::Last { .. }
                    | Waiting::Order { .. }
            )
        };
        self.waits.iter().any(|waiting| !own(waiting))
            || self.actions.iter().any(|action| !refused(action))
    }

    fn record_blockers(&mut self, world: &World) {
        self.blockers.sort();
        self.blockers.dedup();
        let before = std::mem::take(&mut self.status.blockers);
        let blockers = self
            .blockers
            .iter()
            .map(|b| {
                let same = before
                    .iter()
                    .find(|old| old.reason == b.reason && old.object == b.object);
                BlockerStatus {
                    reason: b.reason,
                    object: b.object.clone(),
                    message: b.message.clone(),
                    since: same.map_or(Time(world.now), |old| old.since.clone()),
                }
            })
            .collect();
        self.status.set_blockers(blockers);
    }

    /// Warnings are those of the plan: they stay as they were when it was carried out.
    fn record_warnings(&mut self) {
        let Some(mut warnings) = self.warnings.take() else {
            return;
        };
        warnings.sort();
        warnings.dedup();
        let warnings = warnings.into_iter().map(|w| WarningStatus {
            reason: w.reason,
            object: w.object,
            message: w.message,
        });
        self.status.set_warnings(warnings.collect());
    }

    fn record_progress(&mut self) {
        if self.status.start_time.is_none() {
            return;
        }
        let nodes = &self.status.nodes;
        let done = nodes
            .iter()
            .filter(|n| matches!(n.stage, Stage::Restoring | Stage::Succeeded))
            .count();
        let (moved, pods) = self.status.pods();
        self.status.progress = Some(Progress {
            nodes: format!("{done}/{}", nodes.len()),
            pods: format!("{moved}/{pods}"),
        });
    }

    fn record_success(&mut self, world: &World, reason: &str, message: &str) {
        self.status.completion_time = Some(Time(world.now));
        self.status.start_time.get_or_insert(Time(world.now));
        for node in &mut self.status.nodes {
            node.stage = Stage::Succeeded;
        }
        let stage = self.stage.as_str();
        self.set(
            world,
            ConditionType::Ready,
            ConditionStatus::True,
            stage,
            message,
        );
        self.set(
            world,
            ConditionType::Succeeded,
            ConditionStatus::True,
            reason,
            message,
        );
        self.remove(ConditionType::Reconciling);
        self.remove(ConditionType::Stalled);
    }

    fn record_failure(&mut self, world: &World) {
        self.status.completion_time = Some(Time(world.now));
        let (reason, message) = self.cause();
        let stage = self.stage.as_str();
        self.set(
            world,
            ConditionType::Ready,
            ConditionStatus::False,
            stage,
            &message,
        );
        self.set(
            world,
            ConditionType::Stalled,
            ConditionStatus::True,
            &reason,
            &message,
        );
        self.set(
            world,
            ConditionType::Succeeded,
            ConditionStatus::False,
            &reason,
            &message,
        );
        self.remove(ConditionType::Reconciling);
    }

    fn record_blocked(&mut self, world: &World) {
        let listed = self.status.blockers.first();
        let listed = listed.map(|b| (b.reason.as_str(), format!("{}: {}", b.object, b.message)));
        // There may be no room for any, but a reason there has to be.
        let (reason, first) = listed.unwrap_or_else(|| (Stage::Blocked.as_str(), String::new()));
        let message = match self.blockers.len().saturating_sub(1) {
            0 => first,
            more => format!("{first}; and {more} more in status.blockers"),
        };
        let stage = self.stage.as_str();
        self.set(
            world,
            ConditionType::Ready,
            ConditionStatus::False,
            stage,
            &message,
        );
        self.set(
            world,
            ConditionType::Stalled,
            ConditionStatus::True,
            reason,
            &message,
        );
        self.unknown_until_over(world);
        self.remove(ConditionType::Reconciling);
    }

    /// All that was asked for is done, until the cluster changes.
    fn record_planned(&mut self, world: &World) {
        let (_, pods) = self.status.pods();
        let message = format!(
            "{} nodes would be emptied and {pods} pods of {} workloads moved, {} warnings; nothing is begun while spec.mode is Plan",
            self.status.nodes.len(),
            self.status.workloads.len()
                + self
                    .status
                    .more_workloads
                    .map_or(0, |more| more.pending as usize),
            self.status.warnings.len() + self.status.more_warnings as usize,
        );
        let stage = self.stage.as_str();
        self.set(
            world,
            ConditionType::Ready,
            ConditionStatus::True,
            stage,
            &message,
        );
        self.unknown_until_over(world);
        self.remove(ConditionType::Reconciling);
        self.remove(ConditionType::Stalled);
    }

    /// Suspended by a person is neither under way nor stuck.
    fn record_suspended(&mut self, world: &World) {
        let message = self.stage.does();
        let stage = self.stage.as_str();
        self.set(
            world,
            ConditionType::Ready,
            ConditionStatus::False,
            stage,
            message,
        );
        self.unknown_until_over(world);
        self.remove(ConditionType::Reconciling);
        self.remove(ConditionType::Stalled);
    }

    fn record_under_way(&mut self, world: &World) {
        let waiting = report::sentence(&self.waits);
        let waiting = (!waiting.is_empty()).then(|| format!("waiting for {waiting}"));
        let blocked = self.status.blockers.first();
        let blocked = blocked.map(|b| format!("blocked: {}: {}", b.object, b.message));
        let parts: Vec<_> = waiting.into_iter().chain(blocked).collect();
        let message = if parts.is_empty() {
            self.stage.does().to_owned()
        } else {
            parts.join("; ")
        };
        let stage = self.stage.as_str();
        self.set(
            world,
            ConditionType::Ready,
            ConditionStatus::False,
            stage,
            &message,
        );
        self.set(
            world,
            ConditionType::Reconciling,
            ConditionStatus::True,
            stage,
            &message,
        );
        self.unknown_until_over(world);
        self.remove(ConditionType::Stalled);
    }

    fn unknown_until_over(&mut self, world: &World) {
        let (reason, message) = if self.stage == Stage::RollingBack {
            self.cause()
        } else {
            ("InProgress".into(), "not finished".into())
        };
        self.set(
            world,
            ConditionType::Succeeded,
            ConditionStatus::Unknown,
            &reason,
            &message,
        );
    }

    /// Why it is being rolled back: recorded in condition Succeeded when that began.
    fn cause(&self) -> (String, String) {
        let recorded =
            conditions::find_condition(&self.status.conditions, ConditionType::Succeeded);
        recorded.map_or_else(
            || ("Failed".into(), "failed".into()),
            |c| (c.reason.clone(), c.message.clone()),
        )
    }

    pub(super) fn set(
        &mut self,
        world: &World,
        kind: ConditionType,
        status: ConditionStatus,
        reason: &str,
        message: &str,
    ) {
        let generation = world.relocation.metadata.generation.unwrap_or_default();
        let now = Time(world.now);
        conditions::set_condition(
            &mut self.status.conditions,
            kind,
            status,
            reason,
            message,
            now,
            generation,
        );
    }

    fn remove(&mut self, kind: ConditionType) {
        conditions::remove_condition(&mut self.status.conditions, kind);
    }
}
