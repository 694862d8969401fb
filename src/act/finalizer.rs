//! Our finalizer on the relocation: while it is there, a deletion waits until everything is put back.

use kube::api::Patch;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::{Effect, patch_params};
use crate::api::keys;
use crate::api::relocation::NodeRelocation;

/// Adds the finalizer to the relocation as it was seen.
pub(super) async fn add(client: Client, relocation: &NodeRelocation) -> kube::Result<Effect> {
    let mut finalizers = relocation.finalizers().to_vec();
    finalizers.push(keys::FINALIZER.to_owned());
    set(client, relocation, finalizers).await
}

/// Removes it, and no other, from the relocation as it was seen.
pub(super) async fn remove(client: Client, relocation: &NodeRelocation) -> kube::Result<Effect> {
    let finalizers = relocation
        .finalizers()
        .iter()
        .filter(|f| *f != keys::FINALIZER)
        .cloned()
        .collect();
    match set(client, relocation, finalizers).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Effect::AlreadyDone),
        other => other,
    }
}

async fn set(
    client: Client,
    relocation: &NodeRelocation,
    finalizers: Vec<String>,
) -> kube::Result<Effect> {
    let api: Api<NodeRelocation> = Api::all(client);
    let patch = json!({"metadata": {"uid": relocation.uid(), "resourceVersion": relocation.resource_version(), "finalizers": finalizers}});
    Ok(Effect::Relocation(Box::new(
        api.patch(
            &relocation.name_any(),
            &patch_params(),
            &Patch::Merge(patch),
        )
        .await?,
    )))
}
