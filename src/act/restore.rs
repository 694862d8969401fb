//! Takes our marks away, with the cordon and the protection that they stand for.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::{Effect, patch_params};
use crate::api::keys;
use crate::plan::{NodeHandle, NodeMarks, PodHandle};

/// Releases a node as it was seen. Marks of another relocation stay.
pub(super) async fn node(
    client: Client,
    node: &NodeHandle,
    marks: NodeMarks,
    unprotect: bool,
    uncordon: bool,
) -> kube::Result<Effect> {
    let api: Api<Node> = Api::all(client);
    let annotations: Map<_, _> = [
        (keys::CLAIMED_BY, marks.claim),
        (keys::PROTECTED_BY, marks.protection),
        (keys::CORDONED_BY, marks.cordon),
        (keys::DO_NOT_DISRUPT, unprotect),
    ]
    .into_iter()
    .filter(|(_, goes)| *goes)
    .flat_map(|(key, _)| removed(&[key]))
    .collect();
    let mut patch = json!({"metadata": {"uid": node.uid, "resourceVersion": node.resource_version, "annotations": annotations}});
    if uncordon && let Some(patch) = patch.as_object_mut() {
        // As kubectl uncordon: the field goes, rather than becoming false.
        patch.insert("spec".to_owned(), json!({"unschedulable": null}));
    }
    Ok(Effect::Node(Box::new(
        api.patch(node.name.as_str(), &patch_params(), &Patch::Merge(patch))
            .await?,
    )))
}

/// Releases a pod as it was seen.
pub(super) async fn pod(client: Client, pod: &PodHandle, still_ours: bool) -> kube::Result<Effect> {
    let api: Api<Pod> = Api::namespaced(client, &pod.pod.namespace);
    let mut annotations = removed(&[keys::PROTECTED_BY]);
    if still_ours {
        annotations.extend(removed(&[keys::DO_NOT_DISRUPT]));
    }
    let patch = json!({"metadata": {"uid": pod.pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations}});
    Ok(Effect::Pod(Box::new(
        api.patch(&pod.pod.name, &patch_params(), &Patch::Merge(patch))
            .await?,
    )))
}

/// In a JSON merge patch, null removes the key.
fn removed(keys: &[&str]) -> Map<String, Value> {
    keys.iter()
        .map(|key| ((*key).to_owned(), Value::Null))
        .collect()
}
