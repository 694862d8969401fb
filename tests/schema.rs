//! The resource as people and the API server see it: the file in crds/, the bounds and texts of the schema, and what a
//! real API server accepts, fills in and refuses (`server`, with what is to be refused in `refused`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "schema/refused.rs"]
mod refused;
#[path = "schema/server.rs"]
mod server;

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use relocator::api::crd;
use relocator::api::relocation::NodeRelocation;
use relocator::api::status::NodeRelocationStatus;
use serde_json::{Value, json};

const CRD_FILE: &str = "crds/relocation.sh_noderelocations.yaml";

fn in_repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Every file of examples/: its name and its text.
fn examples() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs::read_dir(in_repo("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    files.sort();
    assert!(files.len() >= 3, "examples/ is nearly empty");
    files
}

#[test]
fn the_file_in_crds_is_what_relocator_prints() {
    let printed = crd::yaml().unwrap();
    if std::env::var_os("UPDATE_CRD").is_some() {
        fs::write(in_repo(CRD_FILE), &printed).unwrap();
    }
    let kept = fs::read_to_string(in_repo(CRD_FILE)).unwrap_or_default();
    assert!(
        kept == printed,
        "{CRD_FILE} is not what `relocator crd` prints: write it again with `cargo xtask crd`, or run this test with UPDATE_CRD=1"
    );
}

#[test]
fn the_file_says_the_same_as_the_types() {
    let read: CustomResourceDefinition = serde_saphyr::from_str(&crd::yaml().unwrap()).unwrap();
    assert_eq!(read, crd::definition());
}

#[test]
fn a_status_that_was_never_written_is_not_yet_seen() {
    let empty: NodeRelocationStatus = serde_json::from_value(json!({})).unwrap();
    assert_eq!(empty.observed_generation, -1);
    assert_eq!(empty, NodeRelocationStatus::default());
}

#[test]
fn examples_say_what_they_do_and_have_only_fields_that_exist() {
    let schema = root();
    for (file, text) in examples() {
        assert!(
            text.starts_with("# "),
            "{file} starts with a comment on what it does"
        );
        let _typed: NodeRelocation =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        only_known_fields(&file, &value["spec"], &schema["properties"]["spec"]);
    }
}

fn only_known_fields(at: &str, value: &Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let known = schema["properties"]
                    .get(name)
                    .or_else(|| schema.get("additionalProperties"));
                let known = known.unwrap_or_else(|| panic!("{at}.{name} does not exist"));
                only_known_fields(&format!("{at}.{name}"), inner, known);
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| only_known_fields(at, item, &schema["items"])),
        _ => {}
    }
}

/// The schema of the one version.
fn root() -> Value {
    let definition = serde_json::to_value(crd::definition()).unwrap();
    assert_eq!(definition["spec"]["versions"].as_array().unwrap().len(), 1);
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Calls `look` with the path of every schema in `schema`, such as `spec.nodes.names[]`, and the schema itself.
fn each(path: &str, schema: &Value, look: &mut impl FnMut(&str, &Value)) {
    look(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let inner = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        each(&inner, property, look);
    }
    if let Some(items) = schema.get("items") {
        each(&format!("{path}[]"), items, look);
    }
    if let Some(values) = schema.get("additionalProperties") {
        each(&format!("{path}{{}}"), values, look);
    }
}

/// What is wrong with the schema by `judge`, which gets a path and the schema there.
fn faults(judge: impl Fn(&str, &Value) -> Vec<String>) -> Vec<String> {
    let mut all = vec![];
    each("", &root(), &mut |path, schema| {
        all.extend(
            judge(path, schema)
                .into_iter()
                .map(|fault| format!("{path}: {fault}")),
        );
    });
    all
}

fn missing(schema: &Value, keys: &[&str]) -> Vec<String> {
    keys.iter()
        .filter(|key| schema.get(**key).is_none())
        .map(|key| format!("no {key}"))
        .collect()
}

#[test]
fn everything_is_bounded() {
    let unbounded = faults(|path, schema| match schema["type"].as_str() {
        Some("string") if schema.get("enum").is_some() || schema["format"] == "date-time" => vec![],
        Some("string") => missing(schema, &["maxLength"]),
        Some("array") => missing(schema, &["maxItems", "x-kubernetes-list-type", "items"]),
        // A generation counts up for ever.
        Some("integer") if path.ends_with("bservedGeneration") => missing(schema, &["minimum"]),
        Some("integer") => missing(schema, &["minimum", "maximum"]),
        Some("object") if schema.get("additionalProperties").is_some() => {
            missing(schema, &["maxProperties"])
        }
        Some("object") if path.is_empty() => vec![],
        Some("object") => missing(schema, &["properties"]),
        Some("boolean") => vec![],
        None if schema["x-kubernetes-int-or-string"] == true => {
            missing(schema, &["minimum", "maximum", "maxLength"])
        }
        other => vec![format!("type {other:?}")],
    });
    assert!(unbounded.is_empty(), "{unbounded:#?}");
}

#[test]
fn every_field_is_explained_and_names_its_default() {
    let bare = faults(|path, schema| {
        let text = schema["description"].as_str().unwrap_or_default();
        let mut faults = vec![];
        let is_field = !path.ends_with(['}', ']']);
        if is_field && text.len() < 12 {
            faults.push("no description".into());
        }
        if text.contains('\n') {
            faults.push(
                "a line break, which kubectl explain shows in the middle of its own lines".into(),
            );
        }
        let default = match &schema["default"] {
            Value::String(word) => word.clone(),
            Value::Number(number) => number.to_string(),
            _ => return faults,
        };
        if !text.contains(&format!("Default: {default}."))
            && !text.contains(&format!("{default} (default)"))
        {
            faults.push(format!(
                "the description does not name the default {default}"
            ));
        }
        faults
    });
    assert!(bare.is_empty(), "{bare:#?}");
}

#[test]
fn every_rule_names_its_field() {
    let silent = faults(|path, schema| {
        let field = path.split("[]").next().unwrap_or_default();
        schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|rule| {
                !rule["message"]
                    .as_str()
                    .is_some_and(|message| message.contains(field) && message.contains('.'))
            })
            .map(|rule| format!("the message of {} does not name it", rule["rule"]))
            .collect()
    });
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn null_is_never_a_value() {
    let nullable = faults(|_, schema| {
        schema
            .get("nullable")
            .map(|_| "nullable".to_owned())
            .into_iter()
            .collect()
    });
    assert!(nullable.is_empty(), "{nullable:#?}");
}
