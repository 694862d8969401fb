//! Restarts a Deployment as `kubectl rollout restart` does, with a value and a field manager of our own.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;

use super::{Effect, patch_params};
use crate::api::keys;
use crate::world::WorkloadRef;

/// Writes the restart annotation into the pod template as it was seen. Writing the same value again changes nothing.
///
/// Not `Api::restart`: it writes another key, with the time of the call, so that a repetition would be a second rollout.
pub(super) async fn restart(
    client: Client,
    workload: &WorkloadRef,
    resource_version: &str,
    restarted_at: &str,
) -> kube::Result<Effect> {
    let api: Api<Deployment> = Api::namespaced(client, &workload.namespace);
    let patch = json!({
        "metadata": {"uid": workload.uid, "resourceVersion": resource_version},
        "spec": {"template": {"metadata": {"annotations": {keys::RESTARTED_AT: restarted_at}}}},
    });
    Ok(Effect::Deployment(Box::new(
        api.patch(&workload.name, &patch_params(), &Patch::Merge(patch))
            .await?,
    )))
}
