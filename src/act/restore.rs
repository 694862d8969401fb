//! Takes our marks away, with the cordon and the protection that they stand for.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::{Effect, patch_params};
use crate::api::keys;
use crate::plan::{NodeHandle, NodeMarks, PodHandle, Unguard};

/// Releases a node as it was seen. Marks of another relocation stay.
pub(super) async fn node(
    client: Client,
    node: &NodeHandle,
    marks: NodeMarks,
    guards: &[Unguard],
    uncordon: bool,
) -> kube::Result<Effect> {
    let api: Api<Node> = Api::all(client);
    let mut annotations = unguarded(guards);
    let marks = [
        (keys::CLAIMED_BY, marks.claim),
        (keys::CORDONED_BY, marks.cordon),
    ];
    let gone = marks.into_iter().filter(|(_, goes)| *goes);
    annotations.extend(gone.map(|(key, _)| (key.to_owned(), Value::Null)));
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
pub(super) async fn pod(
    client: Client,
    pod: &PodHandle,
    guards: &[Unguard],
) -> kube::Result<Effect> {
    let api: Api<Pod> = Api::namespaced(client, &pod.pod.namespace);
    let annotations = unguarded(guards);
    let patch = json!({"metadata": {"uid": pod.pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations}});
    Ok(Effect::Pod(Box::new(
        api.patch(&pod.pod.name, &patch_params(), &Patch::Merge(patch))
            .await?,
    )))
}

/// In a JSON merge patch, null removes the key.
fn unguarded(guards: &[Unguard]) -> Map<String, Value> {
    let keys = guards.iter().flat_map(|unguard| {
        let key = unguard.still_ours.then_some(unguard.guard.key());
        key.into_iter().chain([unguard.guard.mark()])
    });
    keys.map(|key| (key.to_owned(), Value::Null)).collect()
}
