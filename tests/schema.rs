//! The resource as people and the API server see it: the file in crds/, the bounds and texts of the schema, and what a
//! real API server accepts, fills in and refuses.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use lab::{Lab, LabOptions, NotYet, wait_until};
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
        )
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

/// A relocation from a spec, of which nothing is assumed to be valid.
fn relocation(name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "relocation.sh/v1alpha1",
        "kind": "NodeRelocation",
        "metadata": {"name": name},
        "spec": spec,
    }))
    .unwrap()
}

/// Puts `value` at a path such as `replacement/image` into a spec that is valid otherwise.
fn spec_with(path: &str, value: Value) -> Value {
    let mut spec = json!({"nodes": {"nodePools": ["apps"]}});
    let mut at = &mut spec;
    for field in path.split('/') {
        at = &mut at[field];
    }
    *at = value;
    spec
}

/// What is wrong, where, and what the API server has to say about it.
fn invalid() -> Vec<(&'static str, Value, &'static [&'static str])> {
    let name = |length: usize| "a".repeat(length);
    let names = |count: usize| (0..count).map(|i| format!("node-{i}")).collect::<Vec<_>>();
    let labels = |count: usize| {
        (0..count)
            .map(|i| (format!("key-{i}"), json!("x")))
            .collect::<serde_json::Map<_, _>>()
    };
    let expression = |expression: Value| json!({"matchExpressions": [expression]});
    let list_of_expressions = |count: usize| json!({"matchExpressions": vec![json!({"key": "a", "operator": "Exists"}); count]});
    let stateful = |selector: Value| json!({"pods": "Stateful", "selector": selector});
    let mut table: Vec<(&str, Value, &[&str])> = vec![
        (
            "nodes",
            json!({}),
            &[
                "spec.nodes",
                "at least one of spec.nodes.names, spec.nodes.selector and spec.nodes.nodePools",
            ],
        ),
        (
            "nodes",
            json!({"state": "Drifted"}),
            &["spec.nodes", "at least one of"],
        ),
        (
            "nodes/names",
            json!([]),
            &["spec.nodes.names", "at least 1"],
        ),
        (
            "nodes/names",
            json!(["a", "b", "a"]),
            &["spec.nodes.names[2]", "Duplicate value"],
        ),
        (
            "nodes/names",
            json!(["Node_1"]),
            &["spec.nodes.names[0]", "the name of a Node"],
        ),
        (
            "nodes/names",
            json!([""]),
            &["spec.nodes.names[0]", "at least 1"],
        ),
        (
            "nodes/names",
            json!([name(254)]),
            &["spec.nodes.names[0]", "253"],
        ),
        (
            "nodes/names",
            json!(names(1001)),
            &["spec.nodes.names", "at most 1000 items"],
        ),
        (
            "nodes/nodePools",
            json!([]),
            &["spec.nodes.nodePools", "at least 1"],
        ),
        (
            "nodes/nodePools",
            json!(["apps", "apps"]),
            &["spec.nodes.nodePools[1]", "Duplicate value"],
        ),
        (
            "nodes/nodePools",
            json!(["apps/blue"]),
            &["spec.nodes.nodePools[0]", "the name of a NodePool"],
        ),
        (
            "nodes/nodePools",
            json!([name(64)]),
            &["spec.nodes.nodePools[0]", "63"],
        ),
        (
            "nodes/nodePools",
            json!(names(101)),
            &["spec.nodes.nodePools", "at most 100 items"],
        ),
        (
            "nodes/state",
            json!("Empty"),
            &["spec.nodes.state", "\"Any\", \"Drifted\""],
        ),
        (
            "nodes/limit",
            json!(0),
            &["spec.nodes.limit", "greater than or equal to 1"],
        ),
        (
            "nodes/limit",
            json!(1001),
            &["spec.nodes.limit", "less than or equal to 1000"],
        ),
        (
            "nodes/limit",
            json!("many"),
            &["spec.nodes.limit", "integer"],
        ),
        (
            "replacement/strategy",
            json!("Magic"),
            &["spec.replacement.strategy", "\"Mirror\", \"None\""],
        ),
        (
            "replacement/image",
            json!(""),
            &["spec.replacement.image", "at least 1"],
        ),
        (
            "replacement/image",
            json!("pause :3.10"),
            &["spec.replacement.image", "without spaces"],
        ),
        (
            "replacement/image",
            json!(name(513)),
            &["spec.replacement.image", "512"],
        ),
        (
            "replacement/timeoutSeconds",
            json!(29),
            &[
                "spec.replacement.timeoutSeconds",
                "greater than or equal to 30",
            ],
        ),
        (
            "replacement/timeoutSeconds",
            json!(86401),
            &[
                "spec.replacement.timeoutSeconds",
                "less than or equal to 86400",
            ],
        ),
        (
            "workloads/strategy",
            json!("Delete"),
            &[
                "spec.workloads.strategy",
                "\"Auto\", \"RolloutRestart\", \"Evict\"",
            ],
        ),
        (
            "workloads/maxConcurrent",
            json!(0),
            &["spec.workloads.maxConcurrent", "greater than or equal to 1"],
        ),
        (
            "workloads/maxConcurrent",
            json!(1001),
            &["spec.workloads.maxConcurrent", "less than or equal to 1000"],
        ),
        (
            "workloads/settleSeconds",
            json!(-1),
            &["spec.workloads.settleSeconds", "greater than or equal to 0"],
        ),
        (
            "workloads/settleSeconds",
            json!(86401),
            &[
                "spec.workloads.settleSeconds",
                "less than or equal to 86400",
            ],
        ),
        (
            "protection/pods",
            json!("Some"),
            &["spec.protection.pods", "\"Stateful\", \"All\", \"None\""],
        ),
        (
            "protection",
            json!({"pods": "All", "selector": {"matchLabels": {"a": "b"}}}),
            &[
                "spec.protection.selector",
                "set spec.protection.pods to Stateful",
            ],
        ),
        (
            "protection",
            json!({"pods": "None", "selector": {"matchLabels": {"a": "b"}}}),
            &[
                "spec.protection.selector",
                "set spec.protection.pods to Stateful",
            ],
        ),
        (
            "afterDrain",
            json!("Destroy"),
            &["spec.afterDrain", "\"Delete\", \"Keep\", \"Uncordon\""],
        ),
        // Of a later version: a field that is not there is refused rather than ignored.
        (
            "windows",
            json!([]),
            &[".spec.windows", "not declared in schema"],
        ),
    ];
    // Both selectors are held to the same.
    let selectors: Vec<(Value, &[&str], &[&str])> = vec![
        (
            json!({}),
            &["spec.nodes.selector is empty"],
            &["spec.protection.selector is empty"],
        ),
        (
            json!({"matchLabels": {}}),
            &["spec.nodes.selector is empty"],
            &["spec.protection.selector is empty"],
        ),
        (
            json!({"matchExpressions": []}),
            &["spec.nodes.selector is empty"],
            &["spec.protection.selector is empty"],
        ),
        (
            json!({"matchLabels": {"not a key": "x"}}),
            &["spec.nodes.selector.matchLabels", "each key"],
            &["spec.protection.selector.matchLabels", "each key"],
        ),
        (
            json!({"matchLabels": {"a": "not a value"}}),
            &["spec.nodes.selector.matchLabels", "each value"],
            &["spec.protection.selector.matchLabels", "each value"],
        ),
        (
            json!({"matchLabels": {"a": name(64)}}),
            &["spec.nodes.selector.matchLabels.a", "63"],
            &["spec.protection.selector.matchLabels.a", "63"],
        ),
        (
            json!({"matchLabels": labels(33)}),
            &["spec.nodes.selector.matchLabels", "at most 32"],
            &["spec.protection.selector.matchLabels", "at most 32"],
        ),
        (
            list_of_expressions(33),
            &["spec.nodes.selector.matchExpressions", "at most 32"],
            &["spec.protection.selector.matchExpressions", "at most 32"],
        ),
        (
            expression(json!({"key": "a", "operator": "In"})),
            &[
                "spec.nodes.selector.matchExpressions[0]",
                "values are required with operator In and NotIn",
            ],
            &[
                "spec.protection.selector.matchExpressions[0]",
                "values are required with operator In and NotIn",
            ],
        ),
        (
            expression(json!({"key": "a", "operator": "NotIn", "values": []})),
            &[
                "spec.nodes.selector.matchExpressions[0]",
                "values are required with operator In and NotIn",
            ],
            &[
                "spec.protection.selector.matchExpressions[0]",
                "values are required with operator In and NotIn",
            ],
        ),
        (
            expression(json!({"key": "a", "operator": "Exists", "values": ["x"]})),
            &[
                "spec.nodes.selector.matchExpressions[0]",
                "not allowed with Exists and DoesNotExist",
            ],
            &[
                "spec.protection.selector.matchExpressions[0]",
                "not allowed with Exists and DoesNotExist",
            ],
        ),
        (
            expression(json!({"key": "a", "operator": "Gt", "values": ["1"]})),
            &[
                "spec.nodes.selector.matchExpressions[0].operator",
                "\"DoesNotExist\"",
            ],
            &[
                "spec.protection.selector.matchExpressions[0].operator",
                "\"DoesNotExist\"",
            ],
        ),
        (
            expression(json!({"key": "not a key", "operator": "Exists"})),
            &["spec.nodes.selector.matchExpressions[0].key", "a label key"],
            &[
                "spec.protection.selector.matchExpressions[0].key",
                "a label key",
            ],
        ),
        (
            expression(json!({"key": "a", "operator": "In", "values": ["not a value"]})),
            &[
                "spec.nodes.selector.matchExpressions[0].values[0]",
                "a label value",
            ],
            &[
                "spec.protection.selector.matchExpressions[0].values[0]",
                "a label value",
            ],
        ),
        (
            expression(json!({"operator": "Exists"})),
            &[
                "spec.nodes.selector.matchExpressions[0].key",
                "Required value",
            ],
            &[
                "spec.protection.selector.matchExpressions[0].key",
                "Required value",
            ],
        ),
    ];
    for (selector, on_nodes, on_pods) in selectors {
        table.push(("nodes", json!({"selector": selector.clone()}), on_nodes));
        table.push(("protection", stateful(selector), on_pods));
    }
    table
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_agrees() {
    let lab = Lab::start(LabOptions {
        karpenter: false,
        ..LabOptions::default()
    })
    .await
    .unwrap();
    lab.apply(&fs::read_to_string(in_repo(CRD_FILE)).unwrap())
        .await
        .unwrap();
    lab.kubectl(&[
        "wait",
        "--for=condition=Established",
        "crd/noderelocations.relocation.sh",
        "--timeout=30s",
    ])
    .await
    .unwrap();
    let client = lab.client().await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<NodeRelocation>(&()));

    it_takes_the_examples(&lab).await;
    it_fills_in_the_defaults(&api).await;
    it_refuses_what_is_invalid(&api).await;
    it_limits_the_name(&api).await;
    it_keeps_the_spec_of_a_relocation_that_has_started(&api).await;
    it_takes_the_largest_object_and_the_largest_status(&api).await;
    it_explains_the_fields(&lab).await;
    it_prints_the_columns(&lab, &api).await;
}

async fn it_takes_the_examples(lab: &Lab) {
    // The API is discovered a moment after the definition is established.
    let (_, smallest) = examples()
        .into_iter()
        .find(|(file, _)| file == "smallest.yaml")
        .unwrap();
    wait_until(
        "the API server serves NodeRelocations",
        Duration::from_secs(30),
        || async {
            lab.apply(&smallest)
                .await
                .map_err(|error| NotYet(error.to_string()))
        },
    )
    .await
    .unwrap();
    for (file, text) in examples() {
        lab.apply(&text)
            .await
            .unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

/// The smallest relocation of examples/, as the API server gives it back.
async fn it_fills_in_the_defaults(api: &Api<DynamicObject>) {
    let fresh = api.get("eks-1-30").await.unwrap();
    assert_eq!(
        fresh.data["spec"],
        json!({
            "nodes": {"nodePools": ["apps"], "state": "Drifted", "limit": 50},
            "replacement": {"strategy": "Mirror", "image": "registry.k8s.io/pause:3.10", "timeoutSeconds": 900},
            "workloads": {"strategy": "Auto", "maxConcurrent": 10, "settleSeconds": 0},
            "protection": {"pods": "Stateful"},
            "afterDrain": "Delete",
        })
    );
    // kstatus takes an object whose observedGeneration is not its generation for one in progress.
    assert_eq!(fresh.data["status"], json!({"observedGeneration": -1}));

    // Our types fill in the same, so a relocation made in a test is the one that the API server would have made.
    let (_, smallest) = examples()
        .into_iter()
        .find(|(file, _)| file == "smallest.yaml")
        .unwrap();
    let typed: NodeRelocation = serde_saphyr::from_str(&smallest).unwrap();
    assert_eq!(
        serde_json::to_value(&typed.spec).unwrap(),
        fresh.data["spec"]
    );

    // The same within a part that is given in part.
    let spec =
        json!({"nodes": {"names": ["a"]}, "workloads": {"maxConcurrent": 3}, "replacement": {}});
    let part = api
        .create(&PostParams::default(), &relocation("in-part", &spec))
        .await
        .unwrap();
    assert_eq!(
        part.data["spec"]["workloads"],
        json!({"strategy": "Auto", "maxConcurrent": 3, "settleSeconds": 0})
    );
    assert_eq!(part.data["spec"]["replacement"]["timeoutSeconds"], 900);
    assert_eq!(part.data["spec"]["nodes"]["state"], "Any");
}

async fn it_refuses_what_is_invalid(api: &Api<DynamicObject>) {
    let strict = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let table = invalid();
    // The table is about what it says, so the object it starts from has to be good.
    let good = json!({"nodes": {"nodePools": ["apps"]}});
    api.create(&strict, &relocation("good", &good))
        .await
        .unwrap();

    let mut wrong = vec![];
    for (path, value, expected) in table {
        let shown: String = value.to_string().chars().take(80).collect();
        let said = if path == "windows" {
            // A plain create drops unknown fields with a warning; a server-side apply, as GitOps does it, refuses them.
            refusal_of_unknown_field(api, &spec_with(path, value)).await
        } else {
            refusal(
                api.create(&strict, &relocation("bad", &spec_with(path, value)))
                    .await,
            )
        };
        if let Some(absent) = expected.iter().find(|part| !said.contains(**part)) {
            wrong.push(format!(
                "spec.{path} = {shown}: expected {absent:?}, but it said: {said}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn refusal_of_unknown_field(api: &Api<DynamicObject>, spec: &Value) -> String {
    let apply = PatchParams::apply("test").dry_run();
    refusal(
        api.patch("bad", &apply, &Patch::Apply(relocation("bad", spec)))
            .await,
    )
}

fn refusal<T>(answer: kube::Result<T>) -> String {
    match answer {
        Ok(_) => "nothing: it accepted this".into(),
        Err(kube::Error::Api(status)) => status.message.clone(),
        Err(error) => panic!("no answer from the API server: {error}"),
    }
}

async fn it_limits_the_name(api: &Api<DynamicObject>) {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let spec = json!({"nodes": {"nodePools": ["apps"]}});
    api.create(&dry, &relocation(&"a".repeat(63), &spec))
        .await
        .unwrap();
    let said = refusal(api.create(&dry, &relocation(&"a".repeat(64), &spec)).await);
    assert!(
        said.contains("metadata.name: at most 63 characters"),
        "{said}"
    );
}

async fn it_keeps_the_spec_of_a_relocation_that_has_started(api: &Api<DynamicObject>) {
    let spec = json!({
        "nodes": {"names": ["a"], "nodePools": ["apps"], "selector": {"matchLabels": {"x": "y"}}},
        "protection": {"selector": {"matchLabels": {"x": "y"}}},
    });
    api.create(&PostParams::default(), &relocation("started", &spec))
        .await
        .unwrap();
    let change = |path: &str, value: Value| {
        let mut patch = json!({});
        let mut at = &mut patch["spec"];
        for field in path.split('/') {
            at = &mut at[field];
        }
        *at = value;
        patch
    };
    let immutable = [
        ("nodes/names", json!(["a", "b"]), "spec.nodes"),
        (
            "nodes/selector",
            json!({"matchLabels": {"x": "z"}}),
            "spec.nodes",
        ),
        ("nodes/nodePools", Value::Null, "spec.nodes"),
        ("nodes/state", json!("Drifted"), "spec.nodes"),
        ("nodes/limit", json!(51), "spec.nodes"),
        (
            "replacement/strategy",
            json!("None"),
            "spec.replacement.strategy",
        ),
        (
            "replacement/image",
            json!("pause:4"),
            "spec.replacement.image",
        ),
        (
            "workloads/strategy",
            json!("Evict"),
            "spec.workloads.strategy",
        ),
        (
            "workloads/settleSeconds",
            json!(5),
            "spec.workloads.settleSeconds",
        ),
        (
            "protection/selector",
            json!({"matchLabels": {"x": "z"}}),
            "spec.protection",
        ),
        (
            "protection",
            json!({"pods": "All", "selector": null}),
            "spec.protection",
        ),
        ("afterDrain", json!("Keep"), "spec.afterDrain"),
    ];
    let merge = PatchParams::default();
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };

    // Before it has started, all may change; a status without a start time is none.
    let seen = json!({"status": {"observedGeneration": 1}});
    api.patch_status("started", &merge, &Patch::Merge(&seen))
        .await
        .unwrap();
    for (path, value, _) in &immutable {
        let answer = api
            .patch("started", &dry, &Patch::Merge(change(path, value.clone())))
            .await;
        answer.unwrap_or_else(|error| panic!("spec.{path} before the start: {error}"));
    }

    let begun = json!({"status": {"startTime": "2026-11-30T20:00:00Z"}});
    api.patch_status("started", &merge, &Patch::Merge(&begun))
        .await
        .unwrap();
    for (path, value, field) in immutable {
        let said = refusal(
            api.patch("started", &dry, &Patch::Merge(change(path, value)))
                .await,
        );
        assert!(
            said.contains(&format!(
                "{field} is immutable once the relocation has started"
            )),
            "spec.{path}: {said}"
        );
        assert!(
            said.contains("the timeouts and spec.workloads.maxConcurrent may still change"),
            "spec.{path}: {said}"
        );
    }

    // What people turn while it runs, and what the operator itself writes, still goes.
    for (path, value) in [
        ("replacement/timeoutSeconds", json!(60)),
        ("workloads/maxConcurrent", json!(2)),
    ] {
        let answer = api
            .patch("started", &merge, &Patch::Merge(change(path, value)))
            .await;
        answer.unwrap_or_else(|error| panic!("spec.{path} after the start: {error}"));
    }
    let finalizer = json!({"metadata": {"finalizers": [relocator::api::keys::FINALIZER]}});
    api.patch("started", &merge, &Patch::Merge(&finalizer))
        .await
        .unwrap();
    let done = json!({"status": {"completionTime": "2026-11-30T21:00:00Z"}});
    api.patch_status("started", &merge, &Patch::Merge(&done))
        .await
        .unwrap();
    api.patch(
        "started",
        &merge,
        &Patch::Merge(json!({"metadata": {"finalizers": null}})),
    )
    .await
    .unwrap();
}

/// The bounds are worth something only when an object at all of them is still accepted: rules have a budget at run time
/// too, and etcd takes 1.5 MiB.
async fn it_takes_the_largest_object_and_the_largest_status(api: &Api<DynamicObject>) {
    let long = |i: usize, length: usize| format!("{i:04}{}", "x".repeat(length.saturating_sub(4)));
    let labels: serde_json::Map<String, Value> = (0..32)
        .map(|i| {
            (
                format!("{}/{}", long(i, 253), long(i, 63)),
                json!(long(i, 63)),
            )
        })
        .collect();
    let values: Vec<String> = (0..32).map(|i| long(i, 63)).collect();
    let expressions = vec![
        json!({"key": format!("{}/{}", long(0, 253), long(0, 63)), "operator": "In", "values": values});
        32
    ];
    let selector = json!({"matchLabels": labels, "matchExpressions": expressions});
    let spec = json!({
        "nodes": {
            "names": (0..1000).map(|i| long(i, 253)).collect::<Vec<_>>(),
            "nodePools": (0..100).map(|i| long(i, 63)).collect::<Vec<_>>(),
            "selector": selector,
            "limit": 1000,
        },
        "replacement": {"image": "i".repeat(512)},
        "protection": {"selector": selector},
    });
    api.create(&PostParams::default(), &relocation("largest", &spec))
        .await
        .unwrap();

    let uid = "c4b2f6a8-6d2e-4d0e-9a4e-0f6c1f3b7a55";
    let at = "2026-11-30T20:00:00Z";
    let nodes: Vec<Value> = (0..1000)
        .map(|i| json!({"name": long(i, 60), "uid": uid, "nodeClaim": {"name": long(i, 30), "uid": uid}, "stage": "Moving", "podsLeft": 30, "wasUnschedulable": false}))
        .collect();
    let workloads: Vec<Value> = (0..1000)
        .map(|i| json!({"kind": "Deployment", "namespace": "default", "name": long(i, 40), "uid": uid, "strategy": "RolloutRestart", "why": "w".repeat(100), "pods": 3, "moved": 1, "state": "Moving"}))
        .collect();
    let blockers = (0..150)
        .map(|i| json!({"reason": "UnmanagedPod", "object": long(i, 600), "message": "ü".repeat(2000), "since": at}))
        .map(|blocker| serde_json::from_value(blocker).unwrap())
        .collect();
    let mut status: NodeRelocationStatus =
        serde_json::from_value(json!({"startTime": at, "nodes": nodes, "workloads": workloads}))
            .unwrap();
    status.set_blockers(blockers);
    assert_eq!((status.blockers.len(), status.more_blockers), (100, 50));
    let patch = json!({"status": status});
    api.patch_status("largest", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    // Rules that compare the old object with the new one run over all of it.
    let more = json!({"spec": {"workloads": {"maxConcurrent": 11}}});
    api.patch("largest", &PatchParams::default(), &Patch::Merge(&more))
        .await
        .unwrap();
}

async fn it_explains_the_fields(lab: &Lab) {
    for (field, text) in [
        ("noderelocation", "empties the selected nodes once"),
        ("noderelocation.spec.nodes", "Which nodes to empty"),
        ("nrel.spec.nodes.limit", "Default: 50"),
        ("nrel.spec.replacement.timeoutSeconds", "in seconds"),
        ("nrel.status.blockers.reason", "UnmanagedPod"),
    ] {
        let explained = lab.kubectl(&["explain", field]).await.unwrap();
        let in_one_line = explained.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            in_one_line.contains(text),
            "kubectl explain {field}:\n{explained}"
        );
    }
}

async fn it_prints_the_columns(lab: &Lab, api: &Api<DynamicObject>) {
    let spec = json!({"nodes": {"nodePools": ["apps"]}});
    api.create(&PostParams::default(), &relocation("columns", &spec))
        .await
        .unwrap();
    let running = json!({"status": {
        "observedGeneration": 1,
        "startTime": "2026-11-30T20:00:00Z",
        "conditions": [{
            "type": "Ready", "status": "False", "reason": "Moving", "message": "moves 6 pods",
            "lastTransitionTime": "2026-11-30T20:00:00Z", "observedGeneration": 1,
        }],
        "progress": {"nodes": "1/3", "pods": "4/10"},
    }});
    api.patch_status("columns", &PatchParams::default(), &Patch::Merge(&running))
        .await
        .unwrap();

    // By the short name, and by the categories.
    for asked in ["nrel", "relocation", "karpenter"] {
        let shown = lab.kubectl(&["get", asked]).await.unwrap();
        let line = shown
            .lines()
            .find(|line| line.contains("columns"))
            .unwrap_or_else(|| panic!("{shown}"));
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[1..5], ["False", "Moving", "1/3", "4/10"], "{shown}");
    }
    let header = lab.kubectl(&["get", "nrel", "columns"]).await.unwrap();
    let header: Vec<&str> = header.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "READY", "STAGE", "NODES", "PODS", "AGE"]);

    let wide = lab
        .kubectl(&["get", "nrel", "columns", "-o", "wide"])
        .await
        .unwrap();
    let header: Vec<&str> = wide.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header[6..], ["MESSAGE", "STARTED", "COMPLETED"]);
    assert!(wide.contains("moves 6 pods"), "{wide}");
}
