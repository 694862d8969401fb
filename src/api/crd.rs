//! The `CustomResourceDefinition`, as `relocator crd` prints it and as crds/ holds it. Pure: it calls nobody.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::{Number, Value, json};

use super::relocation::NodeRelocation;

/// Why there is no CRD.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The definition has no JSON form.
    #[error("writing the CustomResourceDefinition of NodeRelocation as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The definition has no YAML form.
    #[error("writing the CustomResourceDefinition of NodeRelocation as YAML: {0}")]
    Yaml(#[from] serde_saphyr::SerializeError),
}

const HEADER: &str = "# Made by `relocator crd` from src/api. Don't edit: change the types there and run `cargo xtask crd`.\n";

/// Widest line of a description, so that the file can be read in a review.
const LINE_WIDTH: usize = 120;

/// The definition as YAML, ready for `kubectl apply`.
pub fn yaml() -> Result<String, Error> {
    let mut definition = serde_json::to_value(definition())?;
    whole_numbers(&mut definition);
    let body = serde_saphyr::to_string_with_options(
        &definition,
        serde_saphyr::ser_options! { folded_wrap_chars: LINE_WIDTH },
    )?;
    Ok(format!("{HEADER}{body}"))
}

/// Writes 50.0 as 50: bounds are floating-point numbers in the Kubernetes types, and whole ones in ours.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Ok(whole) = number.to_string().trim_end_matches(".0").parse::<i64>() {
                *number = Number::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The derived definition, with what a derive can't say.
#[must_use]
pub fn definition() -> CustomResourceDefinition {
    let mut crd = NodeRelocation::crd();
    for version in &mut crd.spec.versions {
        let Some(root) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        each_schema(root, &mut conform);
        if let Some(status) = root
            .properties
            .as_mut()
            .and_then(|properties| properties.get_mut("status"))
        {
            not_yet_seen(status);
        }
    }
    crd
}

/// Brings what schemars says of Rust types to what Kubernetes says of its own.
fn conform(schema: &mut JSONSchemaProps) {
    // An absent field is the one way to say nothing. With null as a second one, `has()` in a rule would not mean what it
    // says, and the API server drops a null anyway where there is a default.
    schema.nullable = None;
    // The API server warns of formats that it does not know; every one of these numbers fits.
    if schema.format.as_deref() == Some("uint32") {
        schema.format = Some("int32".to_owned());
    }
    // `kubectl explain` wraps lines itself; those of the source would break its own in the middle.
    if let Some(description) = &mut schema.description {
        *description = description.replace('\n', " ");
    }
    // It says the name of the Rust type, which is the kind once more.
    schema.title = None;
}

/// Makes a fresh relocation one that is not done.
///
/// kstatus, and so Flux, takes an object without a status for one that is current. A default in the schema is there from
/// the first read on, before the operator has run, or when it does not run at all. No other part of status has a
/// default: what the operator has not written is absent.
fn not_yet_seen(status: &mut JSONSchemaProps) {
    each_schema(status, &mut |schema| schema.default = None);
    status.default = Some(JSON(json!({"observedGeneration": -1})));
    if let Some(generation) = status
        .properties
        .as_mut()
        .and_then(|properties| properties.get_mut("observedGeneration"))
    {
        generation.default = Some(JSON(json!(-1)));
    }
}

/// Calls `change` on a schema and on every one within it.
fn each_schema(schema: &mut JSONSchemaProps, change: &mut impl FnMut(&mut JSONSchemaProps)) {
    change(schema);
    for property in schema
        .properties
        .iter_mut()
        .flatten()
        .map(|(_, property)| property)
    {
        each_schema(property, change);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => each_schema(item, change),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => {
            for item in items {
                each_schema(item, change);
            }
        }
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        each_schema(value, change);
    }
}
