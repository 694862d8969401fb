//! What plays the programs of others beside a story: custom resources with their definitions, and small controllers of them.

use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::world::World;

/// How often a small controller looks at its objects.
const LOOKS: Duration = Duration::from_millis(200);

/// A kind of custom resource, namespaced, with a status of its own and any fields.
#[derive(Clone, Copy)]
pub(crate) struct Custom {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
}

impl Custom {
    /// A kind that relocator knows nothing of, and may read only where that is granted.
    pub(crate) const UNKNOWN: Self = Self {
        group: "db.example.com",
        version: "v1",
        kind: "Cluster",
        plural: "clusters",
    };

    /// As `CloudNativePG` has it; `deploy/` lets relocator read it.
    pub(crate) const CLOUD_NATIVE_PG: Self = Self {
        group: "postgresql.cnpg.io",
        ..Self::UNKNOWN
    };

    /// As Argo Rollouts has it; `deploy/` lets relocator read and patch it.
    pub(crate) const ROLLOUT: Self = Self {
        group: "argoproj.io",
        version: "v1alpha1",
        kind: "Rollout",
        plural: "rollouts",
    };

    /// Defines it, and waits until it is served.
    pub(crate) async fn define(&self, world: &World) {
        let Self {
            group,
            version,
            kind,
            plural,
        } = self;
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{
                    "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        world.lab.apply(&definition.to_string()).await.unwrap();
        let name = format!("crd/{plural}.{group}");
        let established = ["wait", "--for=condition=Established", &name];
        world.kubectl(&established).await;
    }

    /// Lets relocator read it, as docs/permissions.md says.
    pub(crate) async fn may_be_read(&self, world: &World) {
        let name = format!("relocator-{}", self.plural);
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [self.group], "resources": [self.plural], "verbs": ["get"]}],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "relocator", "namespace": "relocator-system"}],
        });
        for object in [role, binding] {
            world.lab.apply(&object.to_string()).await.unwrap();
        }
    }

    /// Its objects in `default`.
    pub(crate) async fn api(&self, world: &World) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.plural);
        let client = world.lab.client().await.unwrap();
        Api::namespaced_with(client, "default", &resource)
    }

    /// Makes one of that name in `default`, and returns what makes an object its own.
    pub(crate) async fn create(&self, world: &World, name: &str, spec: &Value) -> OwnerReference {
        let api_version = format!("{}/{}", self.group, self.version);
        let object = json!({
            "apiVersion": api_version, "kind": self.kind, "metadata": {"name": name}, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let api = self.api(world).await;
        let made = api.create(&PostParams::default(), &object).await.unwrap();
        OwnerReference {
            api_version,
            kind: self.kind.to_owned(),
            name: name.to_owned(),
            uid: made.metadata.uid.unwrap(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }
}

/// Writes the status of a custom resource where it is another one. What is null is left out.
pub(crate) async fn publish(
    api: &Api<DynamicObject>,
    object: &DynamicObject,
    mut status: Value,
) -> kube::Result<()> {
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    if object.data.get("status") == Some(&status) {
        return Ok(());
    }
    let name = object.metadata.name.clone().unwrap_or_default();
    let mut object = object.clone();
    object.data["status"] = status;
    // With the resourceVersion that was seen.
    let written = api
        .replace_status(&name, &PostParams::default(), &object)
        .await;
    written.map(drop)
}

/// What an operator of pods does: each that is missing is made again.
pub(crate) async fn keep(pods: &Api<Pod>, wanted: &[Pod]) -> kube::Result<()> {
    for pod in wanted {
        if pods.get_opt(&pod.name_any()).await?.is_none() {
            pods.create(&PostParams::default(), pod).await?;
        }
    }
    Ok(())
}

/// Lets a controller look at its objects again and again. A look that fails, because somebody else was quicker for example, is made
/// good by the next.
pub(crate) fn again_and_again<'a>(
    look: impl AsyncFn() -> kube::Result<()> + 'a,
) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(async move {
        loop {
            let _failed = look().await;
            tokio::time::sleep(LOOKS).await;
        }
    })
}

/// Runs the controllers for as long as the story takes.
pub(crate) async fn beside<T>(
    controllers: impl Future<Output = ()>,
    story: impl Future<Output = T>,
) -> T {
    tokio::select! {
        told = story => told,
        () = controllers => unreachable!("it goes on for ever"),
    }
}
