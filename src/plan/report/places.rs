//! Findings about the room on other nodes. Pure.

use crate::api::keys;
use crate::api::status::Reason;
use crate::world::{NodeClaim, PodRef};

use super::Finding;

impl Finding {
    pub(in crate::plan) fn priority_class(value: Option<i32>) -> Self {
        let name = keys::PRIORITY_CLASS;
        Self::new(
            Reason::PriorityClassMissing,
            format!("PriorityClass {name}"),
            match value {
                None => "it does not exist, and placeholders need it to give way: apply the manifests of relocator again, or choose replacement.strategy None".to_owned(),
                Some(value) => format!(
                    "its value is {value}, where {} is needed for placeholders to give way and still make nodes come: apply the manifests of relocator again",
                    keys::PRIORITY
                ),
            },
        )
    }

    pub(in crate::plan) fn namespace_missing() -> Self {
        let name = keys::PLACEHOLDER_NAMESPACE;
        Self::new(
            Reason::NamespaceMissing,
            format!("Namespace {name}"),
            "it does not exist, and placeholders live in it: apply the manifests of relocator again, or choose replacement.strategy None",
        )
    }

    pub(in crate::plan) fn capacity(pod: &PodRef, scheduler: &str, claims: &[&NodeClaim]) -> Self {
        let provider: Vec<_> = claims
            .iter()
            .filter_map(|c| Some(format!("NodeClaim {}: {}", c.name, c.message.as_ref()?)))
            .collect();
        let provider = if provider.is_empty() {
            String::new()
        } else {
            format!("; {}", provider.join("; "))
        };
        Self::new(
            Reason::CapacityUnavailable,
            format!("Pod {pod}"),
            format!("no place for it within replacement.timeoutSeconds: {scheduler}{provider}"),
        )
    }
}
