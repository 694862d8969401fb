//! Deletes what is to go, by UID: the `NodeClaim` of an empty node (Karpenter then ends the instance and removes both objects), and a
//! finished relocation whose time has come.

use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Preconditions};
use kube::{Api, Client, ResourceExt};

use super::Effect;
use crate::api::relocation::NodeRelocation;
use crate::world::{Generation, Uid};

/// Deletes the `NodeClaim`, or Machine, of that UID. One of the same name with another UID is not touched.
pub(super) async fn node_claim(
    client: Client,
    name: &str,
    uid: &Uid,
    generation: Generation,
) -> kube::Result<Effect> {
    let (kind, plural) = generation.claim();
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("karpenter.sh", generation.version(), kind),
        plural,
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
        Ok(_) => Ok(Effect::ClaimLeaving(uid.clone())),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Ok(Effect::AlreadyDone)
        }
        Err(error) => Err(error),
    }
}

/// Deletes the relocation as it was seen.
pub(super) async fn relocation(
    client: Client,
    relocation: &NodeRelocation,
) -> kube::Result<Effect> {
    let api: Api<NodeRelocation> = Api::all(client);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: relocation.uid(),
            resource_version: relocation.resource_version(),
        }),
        ..DeleteParams::default()
    };
    match api.delete(&relocation.name_any(), &params).await {
        Ok(_) => Ok(Effect::Accepted),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Ok(Effect::AlreadyDone)
        }
        Err(error) => Err(error),
    }
}
