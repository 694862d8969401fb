//! Removes an empty node by deleting its `NodeClaim`, by UID. Karpenter then ends the instance and removes both objects.

use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Preconditions};
use kube::{Api, Client};

use super::Effect;
use crate::world::Uid;

/// Deletes the `NodeClaim` of that UID. One of the same name with another UID is not touched.
pub(super) async fn node_claim(client: Client, name: &str, uid: &Uid) -> kube::Result<Effect> {
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim"),
        "nodeclaims",
    );
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_string()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(Effect::Accepted),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Ok(Effect::AlreadyDone)
        }
        Err(error) => Err(error),
    }
}
