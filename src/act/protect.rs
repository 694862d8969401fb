//! Marks a node as ours, and sets do-not-disrupt on nodes and pods that nobody has set it on.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::{Effect, patch_params};
use crate::api::keys;
use crate::plan::{NodeHandle, PodHandle};
use crate::world::ClaimValue;

/// Claims the node by UID and version: of two relocations, one gets a conflict.
pub(super) async fn claim_node(
    client: Client,
    node: &NodeHandle,
    claim: &ClaimValue,
    protect: bool,
) -> kube::Result<Effect> {
    let mut annotations = Map::from_iter([(keys::CLAIMED_BY.to_owned(), json!(claim.to_string()))]);
    if protect {
        annotations.extend(protection(claim));
    }
    annotate_node(client, node, annotations).await
}

/// Protects a new node from being taken away while its pods are still to come.
pub(super) async fn node(
    client: Client,
    node: &NodeHandle,
    claim: &ClaimValue,
) -> kube::Result<Effect> {
    annotate_node(client, node, protection(claim)).await
}

/// Protects a pod.
pub(super) async fn pod(
    client: Client,
    pod: &PodHandle,
    claim: &ClaimValue,
) -> kube::Result<Effect> {
    let api: Api<Pod> = Api::namespaced(client, &pod.pod.namespace);
    let patch = json!({"metadata": {"uid": pod.pod.uid, "resourceVersion": pod.resource_version, "annotations": protection(claim)}});
    Ok(Effect::Pod(Box::new(
        api.patch(&pod.pod.name, &patch_params(), &Patch::Merge(patch))
            .await?,
    )))
}

/// do-not-disrupt and, in the same write, the mark that it is ours: a crash can't separate them.
fn protection(claim: &ClaimValue) -> Map<String, Value> {
    Map::from_iter([
        (
            keys::DO_NOT_DISRUPT.to_owned(),
            json!(keys::DO_NOT_DISRUPT_VALUE),
        ),
        (keys::PROTECTED_BY.to_owned(), json!(claim.to_string())),
    ])
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
