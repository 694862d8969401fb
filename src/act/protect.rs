//! Marks a node as ours, and keeps autoscalers from nodes and pods.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::{Effect, patch_params};
use crate::api::guards::Guard;
use crate::api::keys;
use crate::plan::{NodeHandle, PodHandle};
use crate::world::ClaimValue;

/// Claims the node by UID and version: of two relocations, one gets a conflict.
pub(super) async fn claim_node(
    client: Client,
    node: &NodeHandle,
    claim: &ClaimValue,
    guards: &[Guard],
) -> kube::Result<Effect> {
    let mut annotations = protection(claim, guards);
    annotations.insert(keys::CLAIMED_BY.to_owned(), json!(claim.to_string()));
    annotate_node(client, node, annotations).await
}

/// Protects a new node from being taken away while its pods are still to come.
pub(super) async fn node(
    client: Client,
    node: &NodeHandle,
    claim: &ClaimValue,
    guards: &[Guard],
) -> kube::Result<Effect> {
    annotate_node(client, node, protection(claim, guards)).await
}

/// Protects a pod.
pub(super) async fn pod(
    client: Client,
    pod: &PodHandle,
    claim: &ClaimValue,
    guards: &[Guard],
) -> kube::Result<Effect> {
    let api: Api<Pod> = Api::namespaced(client, &pod.pod.namespace);
    let patch = json!({"metadata": {"uid": pod.pod.uid, "resourceVersion": pod.resource_version, "annotations": protection(claim, guards)}});
    Ok(Effect::Pod(Box::new(
        api.patch(&pod.pod.name, &patch_params(), &Patch::Merge(patch))
            .await?,
    )))
}

/// The annotations and, in the same write, the marks that they are ours: a crash can't separate them.
fn protection(claim: &ClaimValue, guards: &[Guard]) -> Map<String, Value> {
    let pairs = guards.iter().flat_map(|guard| {
        [
            (guard.key().to_owned(), json!(Guard::VALUE)),
            (guard.mark().to_owned(), json!(claim.to_string())),
        ]
    });
    pairs.collect()
}

async fn annotate_node(
    client: Client,
    node: &NodeHandle,
    annotations: Map<String, Value>,
) -> kube::Result<Effect> {
    let api: Api<Node> = Api::all(client);
    let patch = json!({"metadata": {"uid": node.uid, "resourceVersion": node.resource_version, "annotations": annotations}});
    Ok(Effect::Node(Box::new(
        api.patch(node.name.as_str(), &patch_params(), &Patch::Merge(patch))
            .await?,
    )))
}
