//! `spec.batchSize`: a number of nodes or a percentage of them, as Kubernetes writes such a value (`IntOrString`). Pure.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::bounds::MAX_NODES;

/// How many of the selected nodes are emptied at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSize {
    /// So many. 1 to 1000.
    Nodes(u16),
    /// So many percent of them, rounded up. 1 to 100.
    Percent(u8),
}

impl Default for BatchSize {
    fn default() -> Self {
        Self::Percent(100)
    }
}

impl Serialize for BatchSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nodes(count) => serializer.serialize_u16(*count),
            Self::Percent(percent) => serializer.collect_str(&format_args!("{percent}%")),
        }
    }
}

/// As it may be written.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Count(u16),
    Text(String),
}

impl<'de> Deserialize<'de> for BatchSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let percent = |text: &str| text.strip_suffix('%').and_then(|n| n.parse().ok());
        match Written::deserialize(deserializer) {
            Ok(Written::Count(count)) if (1..=MAX_NODES).contains(&count.into()) => {
                Ok(Self::Nodes(count))
            }
            Ok(Written::Text(text)) => match percent(&text) {
                Some(percent) if (1..=100).contains(&percent) => Ok(Self::Percent(percent)),
                _ => Err(serde::de::Error::custom(MESSAGE)),
            },
            Ok(Written::Count(_)) | Err(_) => Err(serde::de::Error::custom(MESSAGE)),
        }
    }
}

const MESSAGE: &str =
    "spec.batchSize: a number of nodes, 1 to 1000, or a percentage of them, 1% to 100%";

impl JsonSchema for BatchSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BatchSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "minimum": 1,
            "maximum": MAX_NODES,
            "maxLength": 16,
            "x-kubernetes-validations": [{
                "rule": "type(self) == int || self.matches('^(100|[1-9][0-9]?)%$')",
                "message": MESSAGE,
            }],
        })
    }
}
