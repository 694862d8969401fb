//! Webhook configurations and Services as world types. Pure and total.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;

use super::identity;
use crate::world::{Asked, Service, Webhook, Webhooks};

/// The webhooks of a `ValidatingWebhookConfiguration`.
#[must_use]
pub fn validating_webhooks(object: &ValidatingWebhookConfiguration) -> Option<Webhooks> {
    let (_, uid) = identity(&object.metadata)?;
    let webhooks = object.webhooks.iter().flatten().map(|w| Said {
        name: &w.name,
        client: &w.client_config,
        failure_policy: w.failure_policy.as_deref(),
        rules: w.rules.as_deref(),
        objects: w.object_selector.as_ref(),
        namespaces: w.namespace_selector.as_ref(),
    });
    Some(Webhooks {
        uid,
        webhooks: webhooks.map(|said| webhook(&said)).collect(),
    })
}

/// The webhooks of a `MutatingWebhookConfiguration`.
#[must_use]
pub fn mutating_webhooks(object: &MutatingWebhookConfiguration) -> Option<Webhooks> {
    let (_, uid) = identity(&object.metadata)?;
    let webhooks = object.webhooks.iter().flatten().map(|w| Said {
        name: &w.name,
        client: &w.client_config,
        failure_policy: w.failure_policy.as_deref(),
        rules: w.rules.as_deref(),
        objects: w.object_selector.as_ref(),
        namespaces: w.namespace_selector.as_ref(),
    });
    Some(Webhooks {
        uid,
        webhooks: webhooks.map(|said| webhook(&said)).collect(),
    })
}

/// What both kinds of webhook say alike.
struct Said<'a> {
    name: &'a str,
    client: &'a WebhookClientConfig,
    failure_policy: Option<&'a str>,
    rules: Option<&'a [RuleWithOperations]>,
    objects: Option<&'a LabelSelector>,
    namespaces: Option<&'a LabelSelector>,
}

fn webhook(said: &Said<'_>) -> Webhook {
    let service = said.client.service.as_ref();
    let rules = || said.rules.into_iter().flatten();
    Webhook {
        name: said.name.to_owned(),
        service: service.map(|s| (s.namespace.clone(), s.name.clone())),
        fails_closed: said.failure_policy != Some("Ignore"),
        asked: Asked {
            creation: rules().any(|r| asks_about(r, &["pods"], &["CREATE"])),
            others: rules().any(|r| {
                asks_about(r, &["pods/eviction"], &["CREATE"])
                    || asks_about(r, &["pods", "nodes"], &["UPDATE"])
            }),
        },
        objects: said
            .objects
            .filter(|s| !is_empty(s))
            // One that cannot be read is the API server's to refuse; here it is taken to match everything.
            .and_then(|s| Selector::try_from(s.clone()).ok()),
        some_namespaces: said.namespaces.is_some_and(|s| !is_empty(s)),
    }
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.iter().flatten().next().is_none()
        && selector.match_expressions.iter().flatten().next().is_none()
}

/// Whether the rule is about one of these resources of the core group, and one of these operations.
///
/// Source: the reference of `RuleWithOperations`: `*` is all resources, `pods/*` all subresources of pods, `*/*` all of everything.
fn asks_about(rule: &RuleWithOperations, resources: &[&str], operations: &[&str]) -> bool {
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        list.iter().flatten().any(|v| v == wanted || v == "*")
    };
    let core = has(&rule.api_groups, "");
    let operation = operations.iter().any(|o| has(&rule.operations, o));
    let named = |wanted: &str| {
        rule.resources.iter().flatten().any(|said| {
            said == wanted
                || said == "*/*"
                || match wanted.split_once('/') {
                    None => said == "*" || *said == format!("{wanted}/*"),
                    Some((resource, _)) => *said == format!("{resource}/*"),
                }
        })
    };
    core && operation && resources.iter().any(|wanted| named(wanted))
}

/// A Service.
#[must_use]
pub fn service(object: &core::Service) -> Option<Service> {
    let (name, uid) = identity(&object.metadata)?;
    Some(Service {
        namespace: object.metadata.namespace.clone()?,
        name,
        uid,
        selector: object
            .spec
            .as_ref()
            .and_then(|s| s.selector.clone())
            .unwrap_or_default(),
    })
}
