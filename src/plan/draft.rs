//! A plan in the making: collects what the stages find, then turns it into status and actions. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::conditions::{self, ConditionStatus, ConditionType};
use crate::api::keys;
use crate::api::status::{BlockerStatus, NodeRelocationStatus, Progress, Stage};
use crate::world::{RefusalKind, Unknown, World};

use super::report::{self, Blocker, Waiting};
use super::{Action, Plan, RESYNC, SOON};

/// A plan in the making.
pub(super) struct Draft {
    pub(super) status: NodeRelocationStatus,
    pub(super) stage: Stage,
    pub(super) actions: Vec<Action>,
    pub(super) blockers: Vec<Blocker>,
    pub(super) waits: Vec<Waiting>,
    /// How it ended, if this pass ends it.
    outcome: Option<Outcome>,
    soon: bool,
    wake_at: Option<Timestamp>,
}

enum Outcome {
    Succeeded {
        reason: &'static str,
        message: String,
    },
    Failed,
}

impl Draft {
    pub(super) fn new(world: &World) -> Self {
        let status = world.relocation.status.clone().unwrap_or_default();
        Self {
            stage: super::recorded_stage(&world.relocation).unwrap_or(Stage::Planning),
            status,
            actions: Vec::new(),
            blockers: Vec::new(),
            waits: Vec::new(),
            outcome: None,
            soon: false,
            wake_at: None,
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn block(&mut self, blocker: Blocker) {
        self.blockers.push(blocker);
    }

    pub(super) fn wait(&mut self, waiting: Waiting) {
        self.waits.push(waiting);
    }

    /// Look again soon: what is awaited shows only in a fresh read.
    pub(super) fn look_soon(&mut self) {
        self.soon = true;
    }

    /// Look again at that time: what is awaited is a time.
    pub(super) fn look_at(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Every node that is not further than `stage` goes there.
    pub(super) fn all_nodes_to(&mut self, stage: Stage) {
        for node in &mut self.status.nodes {
            node.stage = node.stage.max(stage);
        }
        self.stage = stage;
        self.soon = true;
    }

    pub(super) fn not_observed(&mut self, unknown: &[Unknown]) {
        for unknown in unknown {
            self.block(Blocker::not_observed(unknown));
        }
    }

    pub(super) fn succeed(&mut self, reason: &'static str, message: impl Into<String>) {
        self.stage = Stage::Succeeded;
        self.outcome = Some(Outcome::Succeeded {
            reason,
            message: message.into(),
        });
    }

    /// Starts the undoing of everything, because of the blocker.
    pub(super) fn roll_back(&mut self, world: &World, because: &Blocker) {
        for node in &mut self.status.nodes {
            node.stage = Stage::RollingBack;
        }
        self.stage = Stage::RollingBack;
        self.soon = true;
        let reason = because.reason.to_string();
        self.set(
            world,
            ConditionType::Succeeded,
            ConditionStatus::Unknown,
            &reason,
            &because.to_string(),
        );
    }

    pub(super) fn fail(&mut self) {
        for node in &mut self.status.nodes {
            node.stage = Stage::Failed;
        }
        self.stage = Stage::Failed;
        self.outcome = Some(Outcome::Failed);
    }

    fn set(
        &mut self,
        world: &World,
        kind: ConditionType,
        status: ConditionStatus,
        reason: &str,
        message: &str,
    ) {
        let generation = world.relocation.metadata.generation.unwrap_or_default();
        conditions::set_condition(
            &mut self.status.conditions,
            kind,
            status,
            reason,
            message,
            Time(world.now),
            generation,
        );
    }

    /// Sorts out refused actions, then writes blockers, progress and conditions into the status.
    pub(super) fn finish(mut self, world: &World) -> Plan {
        let refused_now = self.hold_back(world);
        if !self.blockers.is_empty() && self.waits.is_empty() && self.actions.is_empty() {
            // Nothing moves any more until somebody does something.
            self.stage = if matches!(self.stage, Stage::RollingBack) {
                self.stage
            } else {
                Stage::Blocked
            };
        }
        self.record_blockers(world);
        self.record_progress();
        self.status.observed_generation = world.relocation.metadata.generation.unwrap_or_default();
        self.record_conditions(world);
        let wake_after = if self.outcome.is_some() {
            Some(Duration::ZERO)
        } else if self.soon {
            Some(SOON)
        } else {
            let until = self.wake_at.into_iter().chain(refused_now).min();
            let due =
                until.map(|at| Duration::try_from(at.duration_since(world.now)).unwrap_or(SOON));
            Some(due.map_or(RESYNC, |due| due.clamp(SOON, RESYNC)))
        };
        Plan {
            status: self.status,
            actions: self.actions,
            wake_after,
        }
    }

    /// Takes out the actions that the API server asked us not to repeat yet, and says why they wait. Returns when the first is due.
    fn hold_back(&mut self, world: &World) -> Option<Timestamp> {
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
            match Blocker::refused(action, refusal) {
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

    fn record_progress(&mut self) {
        if self.status.start_time.is_none() {
            return;
        }
        let nodes = &self.status.nodes;
        let done = nodes
            .iter()
            .filter(|n| matches!(n.stage, Stage::Restoring | Stage::Succeeded))
            .count();
        let (moved, pods) = self
            .status
            .workloads
            .iter()
            .fold((0, 0), |(m, p), w| (m + w.moved, p + w.pods));
        self.status.progress = Some(Progress {
            nodes: format!("{done}/{}", nodes.len()),
            pods: format!("{moved}/{pods}"),
        });
    }

    fn record_conditions(&mut self, world: &World) {
        let stage = self.stage.to_string();
        let waiting = report::sentence(&self.waits);
        match self.outcome.take() {
            Some(Outcome::Succeeded { reason, message }) => {
                self.status.completion_time = Some(Time(world.now));
                self.status.start_time.get_or_insert(Time(world.now));
                for node in &mut self.status.nodes {
                    node.stage = Stage::Succeeded;
                }
                self.set(
                    world,
                    ConditionType::Ready,
                    ConditionStatus::True,
                    &stage,
                    &message,
                );
                self.set(
                    world,
                    ConditionType::Succeeded,
                    ConditionStatus::True,
                    reason,
                    &message,
                );
                conditions::remove_condition(
                    &mut self.status.conditions,
                    ConditionType::Reconciling,
                );
                conditions::remove_condition(&mut self.status.conditions, ConditionType::Stalled);
            }
            Some(Outcome::Failed) => {
                self.status.completion_time = Some(Time(world.now));
                let (reason, message) = self.cause();
                self.set(
                    world,
                    ConditionType::Ready,
                    ConditionStatus::False,
                    &stage,
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
                conditions::remove_condition(
                    &mut self.status.conditions,
                    ConditionType::Reconciling,
                );
            }
            None if self.stage == Stage::Blocked => {
                let first = self
                    .status
                    .blockers
                    .first()
                    .map(|b| (b.reason.to_string(), format!("{}: {}", b.object, b.message)));
                let (reason, message) = first.unwrap_or_default();
                let more = self.blockers.len().saturating_sub(1);
                let message = if more > 0 {
                    format!("{message}; and {more} more in status.blockers")
                } else {
                    message
                };
                self.set(
                    world,
                    ConditionType::Ready,
                    ConditionStatus::False,
                    &stage,
                    &message,
                );
                self.set(
                    world,
                    ConditionType::Stalled,
                    ConditionStatus::True,
                    &reason,
                    &message,
                );
                self.unknown_until_over(world);
                conditions::remove_condition(
                    &mut self.status.conditions,
                    ConditionType::Reconciling,
                );
            }
            None => {
                let blocked = self
                    .status
                    .blockers
                    .first()
                    .map(|b| format!("blocked: {}: {}", b.object, b.message));
                let waiting = (!waiting.is_empty()).then(|| format!("waiting for {waiting}"));
                let parts: Vec<_> = waiting.into_iter().chain(blocked).collect();
                let message = if parts.is_empty() {
                    in_progress(self.stage).to_owned()
                } else {
                    parts.join("; ")
                };
                self.set(
                    world,
                    ConditionType::Ready,
                    ConditionStatus::False,
                    &stage,
                    &message,
                );
                self.set(
                    world,
                    ConditionType::Reconciling,
                    ConditionStatus::True,
                    &stage,
                    &message,
                );
                self.unknown_until_over(world);
                conditions::remove_condition(&mut self.status.conditions, ConditionType::Stalled);
            }
        }
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
        let recorded = self
            .status
            .conditions
            .iter()
            .find(|c| c.type_ == ConditionType::Succeeded.to_string());
        recorded.map_or_else(
            || ("Failed".into(), "failed".into()),
            |c| (c.reason.clone(), c.message.clone()),
        )
    }
}

/// What a stage does, for the moments in which there is nothing to wait for.
fn in_progress(stage: Stage) -> &'static str {
    match stage {
        Stage::Pending | Stage::Planning => "finding out what has to be done",
        Stage::Protecting => "claiming and protecting the selected nodes and their pods",
        Stage::Cordoning => "cordoning the selected nodes",
        Stage::Provisioning => "making places for the pods",
        Stage::Moving => "moving pods",
        Stage::Draining => "confirming that nothing is left on the nodes",
        Stage::Removing => "removing the empty nodes",
        Stage::Restoring => "taking away what was set for the time of the relocation",
        Stage::Succeeded => "finished",
        Stage::Blocked => "blocked",
        Stage::RollingBack => "putting back what can be put back",
        Stage::Failed => "failed",
    }
}

/// The plan for a relocation that is over: only its finalizer may still have to go.
pub(super) fn finished(world: &World) -> Plan {
    let relocation = &world.relocation;
    let held = relocation
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|f| f == keys::FINALIZER);
    let actions = if held {
        vec![Action::RemoveFinalizer]
    } else {
        Vec::new()
    };
    Plan {
        status: relocation.status.clone().unwrap_or_default(),
        wake_after: held.then_some(RESYNC),
        actions,
    }
}
