//! Evicts a pod by the Eviction API, with its UID as precondition and no grace period of ours.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::PostParams;
use kube::{Api, Client};

use super::Effect;
use crate::world::PodRef;

/// Asks for the eviction. A pod of that name with another UID is not touched: the API server answers with a conflict.
///
/// Not `Api::evict`: kube 5 sends `delete_options`, a name that the API server ignores, and the precondition would be lost.
pub(super) async fn evict(client: Client, pod: &PodRef) -> kube::Result<Effect> {
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    match api
        .create_subresource::<_, kube::core::Status>(
            "eviction",
            &pod.name,
            &PostParams::default(),
            &eviction(pod),
        )
        .await
    {
        Ok(_) => Ok(Effect::Leaving(pod.uid.clone())),
        // Gone, or gone and come again under the same name: either way this pod is no longer there.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Ok(Effect::AlreadyDone)
        }
        Err(error) => Err(error),
    }
}

fn eviction(pod: &PodRef) -> Eviction {
    Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.to_string()),
                resource_version: None,
            }),
            ..DeleteOptions::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_body_carries_the_uid_under_its_wire_name_and_no_grace_period() {
        let pod = PodRef {
            namespace: "default".into(),
            name: "db-2".into(),
            uid: "1-2-3".into(),
        };
        let expected = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "db-2", "namespace": "default"},
            "deleteOptions": {"preconditions": {"uid": "1-2-3"}},
        });
        assert_eq!(serde_json::to_value(eviction(&pod)).unwrap(), expected);
    }
}
