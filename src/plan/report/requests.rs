//! Findings about what was asked of the API server, and about the time a relocation takes. Pure.

use crate::api::status::Reason;
use crate::plan::Action;
use crate::world::{Refusal, RefusalKind, Unknown};

use super::Finding;

impl Finding {
    pub(in crate::plan) fn deadline_exceeded(seconds: u32) -> Self {
        Self::new(
            Reason::DeadlineExceeded,
            "spec.activeDeadlineSeconds",
            format!(
                "{seconds} s have passed since the start: what can be put back is put back; create another NodeRelocation to go on"
            ),
        )
    }

    pub(in crate::plan) fn not_observed(unknown: &Unknown) -> Self {
        let reason = if unknown.forbidden {
            Reason::Forbidden
        } else {
            Reason::NotObserved
        };
        let remedy = if unknown.forbidden {
            ": grant it to the operator's service account"
        } else {
            ""
        };
        Self::new(
            reason,
            unknown.what.clone(),
            format!(
                "cannot be read, so nothing is decided: {}{remedy}",
                unknown.why
            ),
        )
    }

    /// A refused request that only a person can help with; `None` for one that is only to be tried again.
    pub(in crate::plan) fn refused(action: &Action, refusal: &Refusal) -> Option<Self> {
        let (reason, message) = match refusal.kind {
            RefusalKind::Forbidden => (
                Reason::Forbidden,
                format!(
                    "{}: grant it to the operator's service account",
                    refusal.message
                ),
            ),
            RefusalKind::SeveralBudgets => (
                Reason::SeveralPdbs,
                format!("{}: let one budget cover it", refusal.message),
            ),
            RefusalKind::Denied => match action {
                Action::CreatePlaceholder(_) => (
                    Reason::PlaceholderRefused,
                    format!("its placeholder was refused: {}", refusal.message),
                ),
                Action::Evict { .. } => (
                    Reason::EvictionDenied,
                    format!("its eviction was denied: {}", refusal.message),
                ),
                _ => (
                    Reason::RequestFails,
                    format!("refused: {}", refusal.message),
                ),
            },
            // A person is called when it has not gone away by itself.
            RefusalKind::Failed if refusal.attempts >= 3 => (
                Reason::RequestFails,
                format!("{} attempts failed: {}", refusal.attempts, refusal.message),
            ),
            RefusalKind::Budget
            | RefusalKind::Throttled
            | RefusalKind::Outdated
            | RefusalKind::Failed => return None,
        };
        Some(Self::new(reason, refusal.object.clone(), message))
    }
}
