//! Raises and lowers a replica count, and lets the right pods be the first to go.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::{Effect, patch_params};
use crate::api::keys;
use crate::plan::PodHandle;
use crate::world::{ClaimValue, SurgeMark, WorkloadRef};

/// Sets the raised count and the mark.
pub(super) async fn begin(
    client: Client,
    workload: &WorkloadRef,
    resource_version: &str,
    mark: &SurgeMark,
) -> kube::Result<Effect> {
    let label = json!(mark.to_string());
    scale(client, workload, resource_version, Some(mark.to), label).await
}

/// Takes the mark away, and sets the count if one is given.
pub(super) async fn end(
    client: Client,
    workload: &WorkloadRef,
    resource_version: &str,
    replicas: Option<u32>,
) -> kube::Result<Effect> {
    scale(client, workload, resource_version, replicas, Value::Null).await
}

/// Sets count and mark on the Deployment as it was seen: one write, so that a crash can't separate them.
async fn scale(
    client: Client,
    workload: &WorkloadRef,
    resource_version: &str,
    replicas: Option<u32>,
    mark: Value,
) -> kube::Result<Effect> {
    let api: Api<Deployment> = Api::namespaced(client, &workload.namespace);
    let mut patch = json!({
        "metadata": {"uid": workload.uid, "resourceVersion": resource_version, "labels": {keys::SURGE_LABEL: mark}},
    });
    if let (Some(replicas), Some(patch)) = (replicas, patch.as_object_mut()) {
        patch.insert("spec".to_owned(), json!({"replicas": replicas}));
    }
    let patched = api
        .patch(&workload.name, &patch_params(), &Patch::Merge(patch))
        .await?;
    Ok(Effect::Deployment(Box::new(patched)))
}

/// Sets the cost and the mark that it is ours.
pub(super) async fn cheapen(
    client: Client,
    pod: &PodHandle,
    claim: &ClaimValue,
) -> kube::Result<Effect> {
    let annotations = Map::from_iter([
        (
            keys::DELETION_COST.to_owned(),
            json!(keys::DELETION_COST_VALUE),
        ),
        (keys::COSTED_BY.to_owned(), json!(claim.to_string())),
    ]);
    annotate(client, pod, annotations).await
}

/// Takes the mark away, and the cost if it is still ours.
pub(super) async fn uncheapen(
    client: Client,
    pod: &PodHandle,
    still_ours: bool,
) -> kube::Result<Effect> {
    let mut annotations = Map::from_iter([(keys::COSTED_BY.to_owned(), Value::Null)]);
    if still_ours {
        annotations.insert(keys::DELETION_COST.to_owned(), Value::Null);
    }
    annotate(client, pod, annotations).await
}

async fn annotate(
    client: Client,
    pod: &PodHandle,
    annotations: Map<String, Value>,
) -> kube::Result<Effect> {
    let api: Api<Pod> = Api::namespaced(client, &pod.pod.namespace);
    let patch = json!({"metadata": {"uid": pod.pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations}});
    Ok(Effect::Pod(Box::new(
        api.patch(&pod.pod.name, &patch_params(), &Patch::Merge(patch))
            .await?,
    )))
}
