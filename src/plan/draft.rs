//! A plan in the making: collects what the stages find. Pure. What becomes of it is in `record`.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::conditions::{ConditionStatus, ConditionType};
use crate::api::keys;
use crate::api::status::{NodeRelocationStatus, Stage};
use crate::world::{Unknown, World};

use super::report::{Finding, Waiting};
use super::{Action, Plan, RESYNC, Restore, deadline};

/// A plan in the making.
pub(super) struct Draft {
    pub(super) status: NodeRelocationStatus,
    pub(super) stage: Stage,
    pub(super) actions: Vec<Action>,
    pub(super) blockers: Vec<Finding>,
    /// What the plan costs; `None` when no plan is made in this pass.
    pub(super) warnings: Option<Vec<Finding>>,
    pub(super) waits: Vec<Waiting>,
    /// How it ended, if this pass ends it.
    pub(super) outcome: Option<Outcome>,
    pub(super) soon: bool,
    pub(super) wake_at: Option<Timestamp>,
}

/// How a relocation ended.
pub(super) enum Outcome {
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
            warnings: None,
            waits: Vec::new(),
            outcome: None,
            soon: false,
            wake_at: None,
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn restore(&mut self, restore: Restore) {
        self.act(Action::Restore(restore));
    }

    pub(super) fn block(&mut self, blocker: Finding) {
        self.blockers.push(blocker);
    }

    pub(super) fn warn(&mut self, warning: Finding) {
        self.warnings.get_or_insert_default().push(warning);
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
            self.block(Finding::not_observed(unknown));
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
    pub(super) fn roll_back(&mut self, world: &World, because: &Finding) {
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

    /// Takes out whatever would begin something, when the relocation is told to stop. A surge that is under way is ended, for it is a
    /// move that has begun; the marks that protect stay.
    pub(super) fn suspend(&mut self, world: &World) {
        let over = self.outcome.is_some() || self.stage == Stage::RollingBack;
        if !world.relocation.spec.suspend || over {
            return;
        }
        // Pods and nodes that come meanwhile are covered, once the old ones are.
        let holds = self.stage > Stage::Protecting;
        self.actions.retain(|action| match action {
            Action::Restore(Restore::EndSurge { .. }) | Action::CheapenPod { .. } => true,
            Action::ProtectPod { .. } | Action::ProtectNode { .. } => holds,
            _ => false,
        });
        self.stage = Stage::Suspended;
    }

    pub(super) fn fail(&mut self) {
        for node in &mut self.status.nodes {
            node.stage = Stage::Failed;
        }
        self.stage = Stage::Failed;
        self.outcome = Some(Outcome::Failed);
    }
}

/// The plan for a relocation that is over: its finalizer goes, and when its time has come the object.
pub(super) fn finished(world: &World) -> Plan {
    let relocation = &world.relocation;
    let status = relocation.status.clone().unwrap_or_default();
    let mut finalizers = relocation.metadata.finalizers.iter().flatten();
    if finalizers.any(|f| f == keys::FINALIZER) {
        let actions = vec![Action::RemoveFinalizer];
        return Plan {
            status,
            actions,
            wake_after: Some(RESYNC),
        };
    }
    let mut plan = Plan {
        status,
        actions: Vec::new(),
        wake_after: None,
    };
    match deadline::expiry(world) {
        Some(due) if due > world.now => {
            plan.wake_after = Duration::try_from(due.duration_since(world.now)).ok();
        }
        Some(_) if relocation.metadata.deletion_timestamp.is_none() => {
            plan.actions.push(Action::DeleteRelocation);
            plan.wake_after = Some(RESYNC);
        }
        Some(_) | None => {}
    }
    plan
}
