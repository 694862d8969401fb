//! What the API server refused, kept between passes so that we ask politely and say what blocks.

use jiff::Timestamp;

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The object it was about, for people.
    pub object: String,
    pub kind: RefusalKind,
    /// In the words of the API server, or of whom it asked.
    pub message: String,
    /// Not to be tried again before.
    pub until: Timestamp,
    /// How often in a row.
    pub attempts: u32,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// 429 with the cause `DisruptionBudget`.
    Budget,
    /// 500: more than one budget covers the pod, and the eviction API refuses to choose.
    SeveralBudgets,
    /// 429 without that cause, or 503: the server asks for patience.
    Throttled,
    /// 403: RBAC.
    Forbidden,
    /// Refused by admission: a webhook, a policy, a quota, a missing priority class.
    Denied,
    /// 409, 404 or 422 for a precondition: the world has moved on; the next look tells.
    Outdated,
    /// No answer, a webhook down, a server error: nobody knows whether it took effect.
    Failed,
}
