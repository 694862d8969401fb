//! `spec.replacement`: how room for the pods is made on other nodes. Pure: no kube client.

#![allow(
    clippy::doc_markdown,
    reason = "the comments are the text of `kubectl explain`, which shows backticks as they are"
)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// How room is made on other nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.strategy != 'None' || !has(self.placement)",
    "message": "spec.replacement.placement: with spec.replacement.strategy None no placeholder is made that it could place: leave it out, or choose another strategy",
    "fieldPath": ".placement"
}]))]
pub struct Replacement {
    /// How room is made. Mirror (default): one placeholder, a pod that does nothing, for each pod that has to move, with
    /// the same requests, node affinity and tolerations; an autoscaler launches the nodes that they need, and they give
    /// way to the real pods. None: nothing is made; the pods go where there is room. Immutable once started.
    pub strategy: ReplacementStrategy,

    /// Where the placeholders, and so the pods, are to land, such as the new NodePool of a migration. What the pods ask for
    /// themselves holds as well. Only where placeholders are made. Default: wherever the pods may go. Immutable once
    /// started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "has(self.nodeSelector) || has(self.tolerations)",
        "message": "spec.replacement.placement: give at least one of nodeSelector and tolerations, or leave spec.replacement.placement out"
    }]))]
    pub placement: Option<Placement>,

    /// Container image of the placeholders. It is started without a command and must run until it is stopped, under any
    /// user. 1 to 512 characters. Default: registry.k8s.io/pause:3.10. Immutable once started.
    #[schemars(length(min = 1, max = 512), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[^ \\t\\r\\n]+$')",
        "message": "spec.replacement.image: an image reference without spaces, such as registry.k8s.io/pause:3.10"
    }]))]
    pub image: String,

    /// How long a placeholder may take until it is placed on a node that is Ready, in seconds. One that takes longer
    /// while no pod has moved yet, or is refused for so long, ends the relocation, and all is put back; one that does so
    /// later is a blocker.
    /// 30 to 86400. Default: 900. It may change while the relocation runs.
    #[schemars(range(min = 30, max = 86400))]
    pub timeout_seconds: u32,
}

impl Default for Replacement {
    fn default() -> Self {
        Self {
            strategy: ReplacementStrategy::Mirror,
            placement: None,
            image: "registry.k8s.io/pause:3.10".into(),
            timeout_seconds: 900,
        }
    }
}

/// How room is made on other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplacementStrategy {
    /// One placeholder for each pod that has to move, shaped like it.
    #[default]
    Mirror,
    /// Nothing is made: the pods go where there is room.
    None,
}

words!(ReplacementStrategy: Mirror, None);

/// Where placeholders are to land.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// Labels of the nodes, added to the node selector of every placeholder. A pod whose own node selector or required
    /// affinity contradicts them is a blocker. 1 to 16. Default: nodes with any labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::placement_labels")]
    pub node_selector: BTreeMap<String, String>,

    /// Tolerations, added to those of every placeholder, for taints that are gone by the time the pods come. A taint that
    /// stays has to be tolerated by the pods themselves: a pod that does not is a blocker. 1 to 16. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::placement_tolerations")]
    pub tolerations: Vec<Toleration>,
}
