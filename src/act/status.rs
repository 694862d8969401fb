//! Records a status before anything is done because of it.

use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};

use crate::api::keys;
use crate::api::relocation::NodeRelocation;
use crate::api::status::NodeRelocationStatus;

/// Replaces the status of the relocation as it was seen; refused with a conflict when somebody has changed the relocation since.
///
/// Not a patch: a JSON merge patch would replace the lists in it anyway, but without telling that they were not what we thought.
pub(super) async fn record(
    client: Client,
    relocation: &NodeRelocation,
    status: NodeRelocationStatus,
) -> kube::Result<NodeRelocation> {
    let api: Api<NodeRelocation> = Api::all(client);
    let mut object = relocation.clone();
    object.metadata.managed_fields = None;
    object.status = Some(status);
    let params = PostParams {
        field_manager: Some(keys::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    api.replace_status(&relocation.name_any(), &params, &object)
        .await
}
