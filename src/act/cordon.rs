//! Cordons a node, and marks in the same write that it was us.

use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;

use super::{Effect, patch_params};
use crate::api::keys;
use crate::plan::NodeHandle;
use crate::world::ClaimValue;

/// Cordons the node as it was seen: if somebody has changed it since, the request is refused and the next look decides.
pub(super) async fn cordon(
    client: Client,
    node: &NodeHandle,
    claim: &ClaimValue,
) -> kube::Result<Effect> {
    let api: Api<Node> = Api::all(client);
    let patch = json!({
        "metadata": {
            "uid": node.uid,
            "resourceVersion": node.resource_version,
            "annotations": {keys::CORDONED_BY: claim.to_string()},
        },
        "spec": {"unschedulable": true},
    });
    Ok(Effect::Node(Box::new(
        api.patch(node.name.as_str(), &patch_params(), &Patch::Merge(patch))
            .await?,
    )))
}
