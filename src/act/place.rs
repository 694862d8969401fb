//! Makes and takes away placeholders: bare pods that hold room for a pod that has to move, and give way to it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, NodeAffinity, Pod, PodAffinity, PodAntiAffinity,
    PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};

use super::Effect;
use crate::api::keys;
use crate::api::relocation::NodeRelocation;
use crate::plan::Placeholder;
use crate::world::{PodRef, Shape, quantity};

/// Creates the placeholder.
pub(super) async fn create(
    client: Client,
    placeholder: &Placeholder,
    relocation: &NodeRelocation,
) -> kube::Result<Effect> {
    let api: Api<Pod> = Api::namespaced(client, keys::PLACEHOLDER_NAMESPACE);
    let params = PostParams {
        field_manager: Some(keys::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&params, &pod(placeholder, relocation)).await {
        Ok(created) => Ok(Effect::Pod(Box::new(created))),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Effect::AlreadyDone),
        Err(error) => Err(error),
    }
}

/// Deletes the placeholder of that UID.
pub(super) async fn delete(client: Client, pod: &PodRef) -> kube::Result<Effect> {
    let api: Api<Pod> = Api::namespaced(client, keys::PLACEHOLDER_NAMESPACE);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(pod.uid.to_string()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&pod.name, &params).await {
        Ok(_) => Ok(Effect::Leaving(pod.uid.clone())),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Ok(Effect::AlreadyDone)
        }
        Err(error) => Err(error),
    }
}

fn affinity(shape: &Shape) -> Option<Affinity> {
    let nodes = shape
        .required_affinity
        .clone()
        .map(|required| NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(required),
            ..NodeAffinity::default()
        });
    let apart = (!shape.repels.is_empty()).then(|| PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Some(shape.repels.clone()),
        ..PodAntiAffinity::default()
    });
    let near = (!shape.attracts.is_empty()).then(|| PodAffinity {
        required_during_scheduling_ignored_during_execution: Some(shape.attracts.clone()),
        ..PodAffinity::default()
    });
    (nodes.is_some() || apart.is_some() || near.is_some()).then_some(Affinity {
        node_affinity: nodes,
        pod_affinity: near,
        pod_anti_affinity: apart,
    })
}

/// The pod: the shape of the one it stands for, and nothing of its identity. Fits the restricted Pod Security Standard.
fn pod(placeholder: &Placeholder, relocation: &NodeRelocation) -> Pod {
    let shape = &placeholder.shape;
    let requests: BTreeMap<_, _> = shape
        .requests
        .iter()
        .map(|(name, amount)| (name.clone(), quantity::format(*amount)))
        .collect();
    // Extended resources are refused without an equal limit, and cost nothing to limit.
    let limits: BTreeMap<_, _> = requests
        .iter()
        .filter(|(name, _)| name.contains('/') || name.starts_with("hugepages-"))
        .map(|(n, q)| (n.clone(), q.clone()))
        .collect();
    Pod {
        metadata: ObjectMeta {
            name: Some(placeholder.name.clone()),
            namespace: Some(keys::PLACEHOLDER_NAMESPACE.to_owned()),
            labels: Some(BTreeMap::from([
                (keys::RELOCATION_LABEL.to_owned(), relocation.name_any()),
                (
                    keys::POD_UID_LABEL.to_owned(),
                    placeholder.pod.uid.to_string(),
                ),
                (
                    keys::WORKLOAD_UID_LABEL.to_owned(),
                    placeholder.workload.uid.to_string(),
                ),
            ])),
            annotations: Some(BTreeMap::from([
                (
                    keys::PLACEHOLDER_FOR.to_owned(),
                    placeholder.pod.to_string(),
                ),
                ("sidecar.istio.io/inject".to_owned(), "false".to_owned()),
            ])),
            owner_references: Some(vec![OwnerReference {
                api_version: format!("{}/{}", keys::GROUP, keys::VERSION),
                kind: keys::KIND.to_owned(),
                name: relocation.name_any(),
                uid: relocation.uid().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            priority_class_name: Some(keys::PRIORITY_CLASS.to_owned()),
            // It holds nothing: whoever takes its place need not wait for it.
            termination_grace_period_seconds: Some(0),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            node_selector: Some(shape.node_selector.clone()),
            affinity: affinity(shape),
            topology_spread_constraints: (!shape.spread.is_empty()).then(|| shape.spread.clone()),
            tolerations: Some(shape.tolerations.clone()),
            scheduler_name: shape.scheduler_name.clone(),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(65_535),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            containers: vec![Container {
                name: "placeholder".to_owned(),
                image: Some(placeholder.image.clone()),
                image_pull_policy: Some("IfNotPresent".to_owned()),
                resources: Some(ResourceRequirements {
                    requests: Some(requests),
                    limits: (!limits.is_empty()).then_some(limits),
                    ..ResourceRequirements::default()
                }),
                security_context: Some(SecurityContext {
                    allow_privilege_escalation: Some(false),
                    read_only_root_filesystem: Some(true),
                    capabilities: Some(Capabilities {
                        drop: Some(vec!["ALL".to_owned()]),
                        add: None,
                    }),
                    ..SecurityContext::default()
                }),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}
