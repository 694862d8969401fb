//! What of a Deployment a `GitOps` tool sets, by the `managedFields` of the object. Pure and total.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::world::Managed;

/// The field managers by which `GitOps` tools write what they find in Git, and put it back when it differs.
///
/// Sources: Flux, "kustomize-controller" (server-side apply, and `flux-client-side-apply` of its versions before 0.18) and
/// "helm-controller"; Argo CD, "Server-Side Apply" (`argocd-controller`) and the application controller's own name for all else.
const MANAGERS: [&str; 5] = [
    "kustomize-controller",
    "flux-client-side-apply",
    "helm-controller",
    "argocd-controller",
    "argocd-application-controller",
];

/// What a `GitOps` tool sets of an object with a pod template.
pub(super) fn managed(meta: &ObjectMeta) -> Managed {
    let mut managed = Managed::default();
    for entry in meta.managed_fields.iter().flatten() {
        let is_theirs = entry
            .manager
            .as_deref()
            .is_some_and(|m| MANAGERS.contains(&m));
        if !is_theirs || entry.subresource.is_some() {
            continue;
        }
        let Some(spec) = entry.fields_v1.as_ref().and_then(|f| f.0.get("f:spec")) else {
            continue;
        };
        managed.template |= spec.get("f:template").is_some();
        managed.replicas |= spec.get("f:replicas").is_some();
    }
    managed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(manager: &str, fields: &Value, subresource: Option<&str>) -> Managed {
        let entry = json!({"manager": manager, "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields, "subresource": subresource});
        managed(&serde_json::from_value(json!({"managedFields": [entry]})).unwrap())
    }

    #[test]
    fn only_what_a_gitops_tool_sets_is_put_back() {
        let all = json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {}}}});
        let both = Managed {
            template: true,
            replicas: true,
        };
        assert_eq!(of("kustomize-controller", &all, None), both);
        // With an autoscaler, the count is left out of what is in Git.
        let template = json!({"f:spec": {"f:template": {"f:spec": {}}}});
        let expected = Managed {
            template: true,
            replicas: false,
        };
        assert_eq!(of("argocd-controller", &template, None), expected);
        assert_eq!(
            of("kubectl-client-side-apply", &all, None),
            Managed::default()
        );
        assert_eq!(
            of("argocd-controller", &json!({"f:metadata": {}}), None),
            Managed::default()
        );
        assert_eq!(
            of(
                "argocd-controller",
                &json!({"f:spec": {"f:replicas": {}}}),
                Some("scale")
            ),
            Managed::default()
        );
    }
}
