//! Who has to answer before the API server takes a request: admission webhooks, and the Services behind them.

use std::collections::BTreeMap;

use kube::core::Selector;

use super::{Pod, Uid};

/// The webhooks of one `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhooks {
    pub uid: Uid,
    pub webhooks: Vec<Webhook>,
}

/// An admission webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// `name`, which is in the API server's message when it does not answer.
    pub name: String,
    /// Namespace and name of the Service that is asked; `None` for a URL.
    pub service: Option<(String, String)>,
    /// `failurePolicy: Fail`, which is the default: while nobody answers, what it is asked about is refused.
    pub fails_closed: bool,
    pub asked: Asked,
    /// Which objects it is asked about; `None` for all.
    pub objects: Option<Selector>,
    /// It is asked about the objects of certain namespaces only.
    pub some_namespaces: bool,
}

/// What a webhook is asked about, of what is requested while pods move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Creation of pods.
    pub creation: bool,
    /// Eviction of pods, changes of pods and of nodes.
    pub others: bool,
}

impl Asked {
    /// Whether anything of it.
    #[must_use]
    pub fn any(self) -> bool {
        self.creation || self.others
    }
}

/// A Service, as far as it says which pods answer for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
    /// Empty for a Service whose endpoints somebody else sets.
    pub selector: BTreeMap<String, String>,
}

impl Service {
    /// Whether it is the one of that name.
    #[must_use]
    pub fn is(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }

    /// Whether the pod answers for it.
    #[must_use]
    pub fn selects(&self, pod: &Pod) -> bool {
        self.namespace == pod.reference.namespace
            && !self.selector.is_empty()
            && self
                .selector
                .iter()
                .all(|(key, value)| pod.labels.get(key) == Some(value))
    }
}
