//! The bounds and rules of the schema that a derive can't express: lists of names, label selectors, conditions. Pure.
//!
//! Each rule has a message that names the field and says what is allowed; the API server's own messages (for a bound or
//! a list type) name the field too. No rule uses CEL libraries that came after Kubernetes 1.25, so that the CRD installs
//! on the clusters that old versions of Karpenter run on.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::conditions::MAX_MESSAGE_BYTES;

/// A DNS subdomain in the sense of Kubernetes: what an object may be called.
const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A label key, with or without a prefix.
const LABEL_KEY: &str =
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";

/// A label value; it may be empty.
const LABEL_VALUE: &str = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

/// Longest label key: a prefix of 253, a slash, a name of 63.
const LABEL_KEY_LENGTH: u32 = 317;

/// Longest label value.
const LABEL_VALUE_LENGTH: u32 = 63;

/// Most entries of `matchLabels`, of `matchExpressions`, and most values of one expression. Far more than a person
/// writes, and little enough for the cost budget of the rules.
const SELECTOR_ENTRIES: u32 = 32;

/// The same for each of many rules, which share that budget, and the room that etcd has for one object.
const RULE_ENTRIES: u32 = 8;

/// `spec.nodes.names`.
pub(super) fn node_names(_: &mut SchemaGenerator) -> Schema {
    names(
        "spec.nodes.names: each is the name of a Node: lowercase letters, digits, '-' and '.', such as ip-10-0-1-7.ec2.internal",
        253,
        1000,
    )
}

/// `spec.nodes.nodePools`. The name of a pool is a label value on its nodes, hence the length.
pub(super) fn node_pools(_: &mut SchemaGenerator) -> Schema {
    names(
        "spec.nodes.nodePools: each is the name of a NodePool: lowercase letters, digits, '-' and '.', such as apps",
        LABEL_VALUE_LENGTH,
        100,
    )
}

/// A set of object names: not empty when it is given, since `names: []` out of a template would otherwise select by the
/// other fields alone, which is more than was asked for.
fn names(message: &str, length: u32, items: u32) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": items,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": length,
            "x-kubernetes-validations": [{"rule": format!("self.matches('{DNS_SUBDOMAIN}')"), "message": message}],
        },
    })
}

/// `spec.nodes.selector`.
pub(super) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    selector("spec.nodes.selector", SELECTOR_ENTRIES)
}

/// `spec.protection.selector`.
pub(super) fn pod_selector(_: &mut SchemaGenerator) -> Schema {
    selector("spec.protection.selector", SELECTOR_ENTRIES)
}

/// `spec.workloads.rules.match.selector`.
pub(super) fn rule_selector(_: &mut SchemaGenerator) -> Schema {
    selector("spec.workloads.rules.match.selector", RULE_ENTRIES)
}

/// `spec.workloads.rules.match.namespaces`.
pub(super) fn namespaces(_: &mut SchemaGenerator) -> Schema {
    names(
        "spec.workloads.rules.match.namespaces: each is the name of a Namespace: lowercase letters, digits and '-', such as databases",
        63,
        50,
    )
}

/// `spec.workloads.rules.match.kinds`.
pub(super) fn kinds(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 20,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 63,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[A-Z][A-Za-z0-9]*$')",
                "message": "spec.workloads.rules.match.kinds: each is a kind as in a manifest, such as StatefulSet",
            }],
        },
    })
}

/// `spec.nodes.createdBefore`. The pattern is that of RFC 3339, of which the format lets pass more than our types read.
pub(super) fn created_before(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "format": "date-time",
        "maxLength": 35,
        "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$",
        "x-kubernetes-validations": [{
            "rule": "self >= timestamp('2000-01-01T00:00:00Z') && self < timestamp('2100-01-01T00:00:00Z')",
            "message": "spec.nodes.createdBefore: a time of the years 2000 to 2099, such as 2026-11-30T00:00:00Z",
        }],
    })
}

/// `spec.replacement.placement.nodeSelector`.
pub(super) fn placement_labels(_: &mut SchemaGenerator) -> Schema {
    node_labels("spec.replacement.placement.nodeSelector")
}

/// `spec.replacement.placement.tolerations`.
pub(super) fn placement_tolerations(_: &mut SchemaGenerator) -> Schema {
    tolerations("spec.replacement.placement.tolerations")
}

/// Most labels and tolerations for placeholders.
const PLACEMENT_ENTRIES: u32 = 16;

/// Labels of nodes with their values, as in a node selector. Not empty when given, as lists of names are.
fn node_labels(field: &str) -> Schema {
    let mut rules = label_rules(field);
    rules.push(json!({
        "rule": "size(self) > 0",
        "message": format!("{field}: at least one label with its value, or leave it out"),
    }));
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "maxProperties": PLACEMENT_ENTRIES,
        "additionalProperties": {"type": "string", "maxLength": LABEL_VALUE_LENGTH},
        "x-kubernetes-validations": rules,
    })
}

/// What holds for the keys and values of labels.
fn label_rules(field: &str) -> Vec<Value> {
    vec![
        json!({
            "rule": format!("self.all(key, size(key) <= {LABEL_KEY_LENGTH} && key.matches('{LABEL_KEY}'))"),
            "message": format!("{field}: each key is a label key, such as app or example.com/team"),
        }),
        json!({
            "rule": format!("self.all(key, self[key].matches('{LABEL_VALUE}'))"),
            "message": format!("{field}: each value is a label value: at most {LABEL_VALUE_LENGTH} letters, digits, '-', '_' and '.'"),
        }),
    ]
}

/// Tolerations, as a pod has them.
fn tolerations(field: &str) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": PLACEMENT_ENTRIES,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "One toleration, as in the spec of a pod.",
            "type": "object",
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.key) && size(self.key) > 0 || has(self.operator) && self.operator == 'Exists'",
                    "message": format!("{field}: without a key the operator is Exists, which tolerates every taint"),
                },
                {
                    "rule": "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || size(self.value) == 0",
                    "message": format!("{field}: a value is not allowed with operator Exists"),
                },
            ],
            "properties": {
                "key": {
                    "description": "Key of the taint. Default: the taints of any key, with operator Exists.",
                    "type": "string",
                    "maxLength": LABEL_KEY_LENGTH,
                    "x-kubernetes-validations": [{
                        "rule": format!("self == '' || self.matches('{LABEL_KEY}')"),
                        "message": format!("{field}: key is the key of a taint, such as dedicated or example.com/gpu"),
                    }],
                },
                "operator": {
                    "description": "Equal (default): the taint has this value. Exists: it has any.",
                    "type": "string",
                    "enum": ["Equal", "Exists"],
                },
                "value": {
                    "description": "Value of the taint, with operator Equal. Default: the empty value.",
                    "type": "string",
                    "maxLength": LABEL_VALUE_LENGTH,
                    "x-kubernetes-validations": [{
                        "rule": format!("self.matches('{LABEL_VALUE}')"),
                        "message": format!("{field}: value is a label value: at most {LABEL_VALUE_LENGTH} letters, digits, '-', '_' and '.'"),
                    }],
                },
                "effect": {
                    "description": "Effect of the taint. Default: any effect.",
                    "type": "string",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
            },
        },
    })
}

/// A label selector with bounds. An empty one, which in Kubernetes matches everything, is refused: it is far more often
/// a template that came out empty than a wish.
fn selector(field: &str, entries: u32) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": [{
            "rule": "(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
            "message": format!("{field} is empty and would match everything: give matchLabels or matchExpressions, or leave {field} out"),
        }],
        "properties": {
            "matchLabels": {
                "description": format!("Labels that must be there with these values. At most {entries}."),
                "type": "object",
                "maxProperties": entries,
                "additionalProperties": {"type": "string", "maxLength": LABEL_VALUE_LENGTH},
                "x-kubernetes-validations": label_rules(&format!("{field}.matchLabels")),
            },
            "matchExpressions": {
                "description": format!("Conditions on labels; all of them must hold. At most {entries}."),
                "type": "array",
                "maxItems": entries,
                "x-kubernetes-list-type": "atomic",
                "items": expression(&format!("{field}.matchExpressions"), entries),
            },
        },
    })
}

fn expression(field: &str, entries: u32) -> Schema {
    json_schema!({
        "description": "One condition on a label.",
        "type": "object",
        "required": ["key", "operator"],
        "x-kubernetes-validations": [{
            "rule": "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",
            "message": format!("{field}: values are required with operator In and NotIn, and not allowed with Exists and DoesNotExist"),
        }],
        "properties": {
            "key": {
                "description": "The label key.",
                "type": "string",
                "minLength": 1,
                "maxLength": LABEL_KEY_LENGTH,
                "x-kubernetes-validations": [{
                    "rule": format!("self.matches('{LABEL_KEY}')"),
                    "message": format!("{field}: key is a label key, such as app or example.com/team"),
                }],
            },
            "operator": {
                "description": "In: the label has one of the values. NotIn: it has none of them, or is not there. Exists: it is there. DoesNotExist: it is not.",
                "type": "string",
                "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
            },
            "values": {
                "description": format!("The values for In and NotIn. At most {entries}."),
                "type": "array",
                "maxItems": entries,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "string",
                    "maxLength": LABEL_VALUE_LENGTH,
                    "x-kubernetes-validations": [{
                        "rule": format!("self.matches('{LABEL_VALUE}')"),
                        "message": format!("{field}: each of values is a label value: at most {LABEL_VALUE_LENGTH} letters, digits, '-', '_' and '.'"),
                    }],
                },
            },
        },
    })
}

/// `status.conditions`, bounded as upstream bounds them.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "One condition.",
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "description": "Ready, Reconciling, Stalled or Succeeded.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$",
                },
                "status": {
                    "description": "Whether it holds.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why, in one word. Of Ready it is the stage of the relocation.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 128,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Why, in a sentence for a person.",
                    "type": "string",
                    "maxLength": MAX_MESSAGE_BYTES,
                },
                "lastTransitionTime": {
                    "description": "When status changed last.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "The metadata.generation that the condition speaks of.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}

/// A time, without the description of the Go type.
pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}
