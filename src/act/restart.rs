//! Restarts a Deployment or `StatefulSet` as `kubectl rollout restart` does, and a Rollout of Argo as its own plugin does, with a value and
//! a field manager of our own.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch};
use kube::core::Status;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Effect, patch_params};
use crate::api::keys;
use crate::world::{WorkloadKind, WorkloadRef};

/// Writes the restart into the workload as it was seen. Writing the same value again changes nothing.
///
/// Not `Api::restart`: it writes another key, with the time of the call, so that a repetition would be a second rollout.
pub(super) async fn restart(
    client: Client,
    workload: &WorkloadRef,
    resource_version: &str,
    restarted_at: &str,
) -> kube::Result<Effect> {
    let metadata = json!({"uid": workload.uid, "resourceVersion": resource_version});
    let restart = json!({keys::RESTARTED_AT: restarted_at});
    let template = json!({
        "metadata": metadata, "spec": {"template": {"metadata": {"annotations": restart}}},
    });
    match &workload.kind {
        WorkloadKind::Deployment => {
            let written = patch::<Deployment>(client, workload, &template).await?;
            let spec = written.spec.as_ref().map(|spec| &spec.template);
            kept(spec.and_then(annotation), restarted_at)?;
            Ok(Effect::Deployment(Box::new(written)))
        }
        WorkloadKind::StatefulSet => {
            let written = patch::<StatefulSet>(client, workload, &template).await?;
            let spec = written.spec.as_ref().map(|spec| &spec.template);
            kept(spec.and_then(annotation), restarted_at)?;
            Ok(Effect::StatefulSet(Box::new(written)))
        }
        WorkloadKind::Other { api_version, kind } => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let kind = GroupVersionKind::gvk(group, version, kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, ROLLOUTS);
            let api: Api<DynamicObject> =
                Api::namespaced_with(client, &workload.namespace, &resource);
            let restart = json!({"metadata": metadata, "spec": {"restartAt": restarted_at}});
            let written = api
                .patch(&workload.name, &patch_params(), &Patch::Merge(restart))
                .await?;
            let at = written.data.pointer("/spec/restartAt");
            kept(at.and_then(Value::as_str), restarted_at)?;
            Ok(Effect::Owner(workload.uid.clone()))
        }
        // Nothing of these can be restarted, and nothing is asked to be.
        WorkloadKind::ReplicaSet | WorkloadKind::Pod => Ok(Effect::AlreadyDone),
    }
}

/// The one custom resource that is restarted.
const ROLLOUTS: &str = "rollouts";

fn annotation(template: &PodTemplateSpec) -> Option<&str> {
    let annotations = template.metadata.as_ref()?.annotations.as_ref()?;
    annotations.get(keys::RESTARTED_AT).map(String::as_str)
}

/// Admission may change what it lets pass. A restart that it has taken away is as good as refused; otherwise nothing would tell, and it
/// would be written again in every pass.
fn kept(written: Option<&str>, wanted: &str) -> kube::Result<()> {
    if written == Some(wanted) {
        return Ok(());
    }
    let message = "admission let the restart pass, and took it out again: choose workloads.strategy Evict, or find the webhook or policy";
    let refused = Status::failure(message, "Invalid").with_code(422);
    Err(kube::Error::Api(refused.boxed()))
}

async fn patch<K>(client: Client, workload: &WorkloadRef, patch: &Value) -> kube::Result<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client, &workload.namespace);
    api.patch(&workload.name, &patch_params(), &Patch::Merge(patch))
        .await
}
