//! What an error of the API server means. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::core::Status;

use crate::plan::Action;
use crate::world::{Refusal, RefusalKind};

/// Why an action was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// Another instance leads, or may.
    #[error("this instance does not hold the lease")]
    NotLeader,
    /// No answer; nobody knows whether it took effect.
    #[error("no answer within {} s", .0.as_secs())]
    Deadline(Duration),
    /// The API server, or the way to it, said no.
    #[error("{}", in_words(.0))]
    Api(#[source] kube::Error),
}

/// What the API server said, without the rest of its answer.
fn in_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl ActError {
    /// The object is not as it was seen, or is gone: the next look tells.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if matches!(status.code, 404 | 409))
    }
}

/// Shortest pause before the same request is made again.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// Longest pause: a person who has repaired something does not want to wait longer.
const LONGEST: SignedDuration = SignedDuration::from_secs(10);
/// A budget that refuses is asked again after this long if it names no time; its own watch usually tells earlier.
const BUDGET: SignedDuration = SignedDuration::from_secs(5);

/// See [`super::refusal`].
pub(super) fn refusal(
    action: &Action,
    error: &ActError,
    attempts: u32,
    now: Timestamp,
) -> Option<Refusal> {
    let (kind, message, pause) = match error {
        ActError::NotLeader => return None,
        ActError::Api(kube::Error::Api(status)) => {
            let kind = kind(action, status);
            (kind, status.message.clone(), asked_pause(status))
        }
        ActError::Deadline(_) | ActError::Api(_) => (RefusalKind::Failed, error.to_string(), None),
    };
    let doubling = SHORTEST.saturating_mul(1 << attempts.min(5)).min(LONGEST);
    let pause = pause.unwrap_or(match kind {
        RefusalKind::Budget => BUDGET,
        RefusalKind::Outdated => SignedDuration::ZERO,
        RefusalKind::SeveralBudgets
        | RefusalKind::Throttled
        | RefusalKind::Forbidden
        | RefusalKind::Denied
        | RefusalKind::Failed => doubling,
    });
    let until = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
    Some(Refusal {
        object: object(action),
        kind,
        message,
        until,
        attempts: attempts.saturating_add(1),
    })
}

fn asked_pause(status: &Status) -> Option<SignedDuration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0)
        .then(|| SignedDuration::from_secs(i64::from(seconds)).min(SignedDuration::from_mins(1)))
}

fn kind(action: &Action, status: &Status) -> RefusalKind {
    let causes = || status.details.iter().flat_map(|d| &d.causes);
    match status.code {
        // The eviction API marks its own refusals; a 429 without the mark is the API server's flow control.
        429 if causes().any(|c| c.reason == "DisruptionBudget") => RefusalKind::Budget,
        429 | 503 => RefusalKind::Throttled,
        // Kubernetes has no other sign for this than the text (registry/core/pod/storage/eviction.go).
        500 if matches!(action, Action::Evict { .. })
            && status.message.contains("more than one PodDisruptionBudget") =>
        {
            RefusalKind::SeveralBudgets
        }
        // A webhook chooses the code of its denial: Strimzi's Drain Cleaner takes 500.
        _ if status.message.contains("denied the request") => RefusalKind::Denied,
        403 if is_admission(&status.message) => RefusalKind::Denied,
        403 => RefusalKind::Forbidden,
        404 | 409 => RefusalKind::Outdated,
        400 | 422 => RefusalKind::Denied,
        _ => RefusalKind::Failed,
    }
}

/// RBAC says `User "x" cannot create resource "y"`; admission plugins, quotas and webhooks answer 403 as well, in words of their own.
fn is_admission(message: &str) -> bool {
    !message.contains(" cannot ")
}

fn object(action: &Action) -> String {
    match action {
        Action::AddFinalizer | Action::RemoveFinalizer | Action::DeleteRelocation => {
            "NodeRelocation".to_owned()
        }
        Action::ClaimNode { node, .. }
        | Action::ProtectNode { node, .. }
        | Action::Cordon { node } => {
            format!("Node {}", node.name)
        }
        Action::ProtectPod { pod, .. } | Action::CheapenPod { pod } => format!("Pod {}", pod.pod),
        Action::CreatePlaceholder(placeholder) => format!("Pod {}", placeholder.pod),
        Action::Evict { pod, .. } => format!("Pod {pod}"),
        Action::Restart { workload, .. } | Action::Surge { workload, .. } => workload.to_string(),
        Action::Restore(restore) => restore.object(),
        Action::DeleteNodeClaim { name, .. } => format!("NodeClaim {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{NodeName, PodRef};
    use serde_json::json;

    fn refused(status: serde_json::Value) -> Refusal {
        let action = Action::Evict {
            pod: PodRef {
                namespace: "d".into(),
                name: "p".into(),
                uid: "u".into(),
            },
            node: NodeName::from("n"),
        };
        let status: Status = serde_json::from_value(status).unwrap();
        let error = ActError::Api(kube::Error::Api(status.boxed()));
        super::refusal(&action, &error, 0, Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn a_budget_and_flow_control_are_told_apart() {
        // Bodies as kube-apiserver 1.37 sends them.
        let budget = refused(
            json!({"status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget db needs 2 healthy pods and has 2 currently"}]}}),
        );
        assert_eq!(budget.kind, RefusalKind::Budget);
        let flow = refused(
            json!({"status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": "Too many requests, please try again later.", "details": {"retryAfterSeconds": 7}}),
        );
        assert_eq!(flow.kind, RefusalKind::Throttled);
        assert_eq!(
            flow.until.as_second(),
            7,
            "the pause that was asked for is kept"
        );
    }

    #[test]
    fn rbac_and_admission_are_told_apart() {
        let rbac = refused(json!({"code": 403, "reason": "Forbidden",
            "message": "pods \"p\" is forbidden: User \"system:serviceaccount:a:b\" cannot create resource \"pods/eviction\" in API group \"\" in the namespace \"d\""}));
        assert_eq!(rbac.kind, RefusalKind::Forbidden);
        let webhook = refused(json!({"code": 403, "reason": "Forbidden",
            "message": "admission webhook \"x.y\" denied the request: not now"}));
        assert_eq!(webhook.kind, RefusalKind::Denied);
        // As Strimzi's Drain Cleaner answers, by ValidatingWebhook.denyRequest.
        let drain_cleaner = refused(json!({"code": 500,
            "message": "admission webhook \"strimzi-drain-cleaner.strimzi.io\" denied the request: The pod will be rolled by the Strimzi Cluster Operator"}));
        assert_eq!(drain_cleaner.kind, RefusalKind::Denied);
    }

    #[test]
    fn two_budgets_are_named() {
        let two = refused(json!({"code": 500, "reason": "InternalError",
            "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}));
        assert_eq!(two.kind, RefusalKind::SeveralBudgets);
        assert_eq!(
            refused(json!({"code": 500, "message": "failed calling webhook"})).kind,
            RefusalKind::Failed
        );
    }
}
