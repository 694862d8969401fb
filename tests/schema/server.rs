//! What a real API server accepts, fills in, refuses and shows. One control plane for all of it.

use std::fs;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use lab::{Lab, LabOptions, NotYet, wait_until};
use relocator::api::relocation::NodeRelocation;
use relocator::api::status::NodeRelocationStatus;
use serde_json::{Value, json};

use super::refused::{IMMUTABLE, Refused, field, invalid, spec_with};
use super::{CRD_FILE, examples, in_repo};

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
    it_keeps_a_thousand_nodes_in_256_kib(&api).await;
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
        Duration::from_mins(2),
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
            "batchSize": "100%",
            "replacement": {"strategy": "Mirror", "image": "registry.k8s.io/pause:3.10", "timeoutSeconds": 900},
            "workloads": {
                "strategy": "Auto", "maxConcurrent": 10, "settleSeconds": 0, "timeoutSeconds": 3600,
                "unmanagedPods": "Block", "jobs": "Wait", "emptyDir": "Allow",
            },
            "mode": "Execute",
            "protection": {"pods": "Stateful"},
            "onFailure": "Rollback",
            "suspend": false,
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
        json!({
            "strategy": "Auto", "maxConcurrent": 3, "settleSeconds": 0, "timeoutSeconds": 3600,
            "unmanagedPods": "Block", "jobs": "Wait", "emptyDir": "Allow",
        })
    );
    assert_eq!(part.data["spec"]["replacement"]["timeoutSeconds"], 900);
    assert_eq!(part.data["spec"]["nodes"]["state"], "Any");
}

async fn it_refuses_what_is_invalid(api: &Api<DynamicObject>) {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    // The table is about what it says, so the object it starts from has to be good.
    let good = json!({"nodes": {"nodePools": ["apps"]}});
    api.create(&dry, &relocation("good", &good)).await.unwrap();

    let mut wrong = vec![];
    for Refused { path, value, said } in invalid() {
        let shown: String = value.to_string().chars().take(80).collect();
        let answer = refusal(
            api.create(&dry, &relocation("bad", &spec_with(&path, value)))
                .await,
        );
        if let Some(absent) = said.iter().find(|part| !answer.contains(part.as_str())) {
            wrong.push(format!(
                "spec.{path} = {shown}: expected {absent:?}, but it said: {answer}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // A field of a later version. A plain create drops it with a warning; an apply, as GitOps does it, is refused.
    let later = relocation("bad", &spec_with("windows", json!([])));
    let apply = PatchParams::apply("test").dry_run();
    let answer = refusal(api.patch("bad", &apply, &Patch::Apply(later)).await);
    assert!(
        answer.contains(".spec.windows: field not declared in schema"),
        "{answer}"
    );
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

/// What people turn while it runs.
const MUTABLE: [(&str, u32); 2] = [
    ("replacement/timeoutSeconds", 60),
    ("workloads/maxConcurrent", 2),
];

/// A merge patch that changes one field of a spec.
fn change(path: &str, value: Value) -> Patch<Value> {
    let mut object = json!({});
    *field(&mut object["spec"], path) = value;
    Patch::Merge(object)
}

async fn it_keeps_the_spec_of_a_relocation_that_has_started(api: &Api<DynamicObject>) {
    let spec = json!({
        "nodes": {"names": ["a"], "nodePools": ["apps"], "selector": {"matchLabels": {"x": "y"}}},
        "protection": {"selector": {"matchLabels": {"x": "y"}}},
    });
    api.create(&PostParams::default(), &relocation("started", &spec))
        .await
        .unwrap();
    let for_good = PatchParams::default();
    let dry = PatchParams::default().dry_run();
    let status = async |status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status("started", &for_good, &patch)
            .await
            .unwrap();
    };

    // A status without a start time is no start: all may change.
    status(json!({"observedGeneration": 1})).await;
    for Refused { path, value, .. } in Refused::rows(IMMUTABLE) {
        let answer = api.patch("started", &dry, &change(&path, value)).await;
        answer.unwrap_or_else(|error| panic!("spec.{path} before the start: {error}"));
    }

    status(json!({"startTime": "2026-11-30T20:00:00Z"})).await;
    for Refused { path, value, said } in Refused::rows(IMMUTABLE) {
        let answer = refusal(api.patch("started", &dry, &change(&path, value)).await);
        let expected = format!("{} is immutable once the relocation has started", said[0]);
        assert!(answer.contains(&expected), "spec.{path}: {answer}");
    }

    // What people turn while it runs, and what the operator itself writes, still goes.
    for (path, value) in MUTABLE {
        let answer = api
            .patch("started", &for_good, &change(path, json!(value)))
            .await;
        answer.unwrap_or_else(|error| panic!("spec.{path} after the start: {error}"));
    }
    for finalizers in [json!([relocator::api::keys::FINALIZER]), Value::Null] {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        api.patch("started", &for_good, &patch).await.unwrap();
    }
    status(json!({"completionTime": "2026-11-30T21:00:00Z"})).await;
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
        json!({"key": format!("{}/{}", long(0, 253), long(0, 63)), "operator": "In", "values": values.clone()});
        32
    ];
    let selector = json!({"matchLabels": labels, "matchExpressions": expressions});
    let few_labels: serde_json::Map<String, Value> = labels
        .iter()
        .take(8)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let few = json!({"matchLabels": few_labels, "matchExpressions": expressions[..8].iter().map(|e| {
        let mut e = e.clone();
        e["values"] = json!(values[..8]);
        e
    }).collect::<Vec<_>>()});
    let rule = json!({
        "match": {
            "kinds": (0..20).map(|i| format!("K{}", long(i, 62))).collect::<Vec<_>>(),
            "namespaces": (0..50).map(|i| long(i, 63)).collect::<Vec<_>>(),
            "selector": few,
        },
        "strategy": "RolloutRestart",
        "order": -1000,
    });
    let spec = json!({
        "nodes": {
            "names": (0..1000).map(|i| long(i, 253)).collect::<Vec<_>>(),
            "nodePools": (0..100).map(|i| long(i, 63)).collect::<Vec<_>>(),
            "selector": selector,
            "createdBefore": "2026-11-30T20:00:00.123456789+01:00",
            "limit": 1000,
        },
        "replacement": {
            "image": "i".repeat(512),
            "placement": {
                "nodeSelector": labels.iter().take(16).map(|(k, v)| (k.clone(), v.clone())).collect::<serde_json::Map<_, _>>(),
                "tolerations": vec![json!({"key": format!("{}/{}", long(0, 253), long(0, 63)), "value": long(0, 63), "effect": "NoSchedule"}); 16],
            },
        },
        "workloads": {"rules": vec![rule; 16]},
        "protection": {"selector": selector},
    });
    api.create(&PostParams::default(), &relocation("largest", &spec))
        .await
        .unwrap();

    let uid = "c4b2f6a8-6d2e-4d0e-9a4e-0f6c1f3b7a55";
    let at = "2026-11-30T20:00:00Z";
    let nodes: Vec<Value> = (0..1000)
        .map(|i| json!({"name": long(i, 60), "uid": uid, "nodeClaim": {"name": long(i, 30), "uid": uid}, "stage": "Moving", "podsLeft": 30, "wasUnschedulable": true}))
        .collect();
    let workloads: Vec<Value> = (0..1000)
        .map(|i| json!({"kind": "Deployment", "namespace": "default", "name": long(i, 40), "uid": uid, "strategy": "RolloutRestart", "why": "w".repeat(100), "pods": 3, "moved": 1, "state": "Moving"}))
        .collect();
    let blockers = (0..150)
        .map(|i| json!({"reason": "UnmanagedPod", "object": long(i, 600), "message": "ü".repeat(2000), "since": at}))
        .map(|blocker| serde_json::from_value(blocker).unwrap())
        .collect();
    // Larger than the operator ever makes it: beside so many nodes and workloads it would list fewer blockers.
    let mut status = NodeRelocationStatus::default();
    status.set_blockers(blockers);
    assert_eq!((status.blockers.len(), status.more_blockers), (100, 50));
    let mut status = serde_json::to_value(&status).unwrap();
    status["startTime"] = json!(at);
    status["nodes"] = json!(nodes);
    status["workloads"] = json!(workloads);
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

/// With what the API server adds of its own: metadata, and above all `managedFields`.
async fn it_keeps_a_thousand_nodes_in_256_kib(api: &Api<DynamicObject>) {
    let spec = json!({"nodes": {"nodePools": ["apps"], "limit": 1000}});
    let made = api
        .create(&PostParams::default(), &relocation("thousand", &spec))
        .await
        .unwrap();
    let uid = "c4b2f6a8-6d2e-4d0e-9a4e-0f6c1f3b7a55";
    let at = "2026-11-30T20:00:00Z";
    // 220 kB, as those of EKS come to with Karpenter.
    let nodes: Vec<Value> = (0..1000)
        .map(|i| json!({"name": format!("ip-10-123-231-{i:03}.eu-central-1.compute.internal"), "uid": uid, "nodeClaim": {"name": format!("default-{i:05}"), "uid": uid}, "stage": "Provisioning", "podsLeft": 10}))
        .collect();
    let workloads: Vec<Value> = (0..50)
        .map(|i| json!({"kind": "Deployment", "namespace": "payments", "name": format!("ledger-{i:04}"), "uid": uid, "strategy": "RolloutRestart", "why": "w".repeat(100), "pods": 3, "moved": 1, "state": "Moving"}))
        .collect();
    let blockers = (0..1000)
        .map(|i| json!({"reason": "UnmanagedPod", "object": format!("Pod default/debug-{i:04}"), "message": "m".repeat(100), "since": at}))
        .map(|blocker| serde_json::from_value(blocker).unwrap())
        .collect();
    let mut status: NodeRelocationStatus =
        serde_json::from_value(json!({"startTime": at, "nodes": nodes, "workloads": workloads}))
            .unwrap();
    let warnings = (0..1000)
        .map(|i| json!({"reason": "LocalData", "object": format!("StatefulSet default/cache-{i:04}"), "message": "m".repeat(100)}))
        .map(|warning| serde_json::from_value(warning).unwrap())
        .collect();
    status.set_warnings(warnings);
    status.set_blockers(blockers);
    let alone = serde_json::to_vec(&status).unwrap().len();
    // As the operator writes it.
    let mut object = made;
    object.data["status"] = serde_json::to_value(&status).unwrap();
    let params = PostParams {
        field_manager: Some("relocator".to_owned()),
        ..PostParams::default()
    };
    api.replace_status("thousand", &params, &object)
        .await
        .unwrap();
    let read = api.get("thousand").await.unwrap();
    let all = serde_json::to_vec(&read).unwrap().len();
    println!("{alone} bytes of status are an object of {all} bytes");
    assert!(
        all < 256 * 1024,
        "{alone} bytes of status, {all} of the object"
    );
    // Were the list of nodes a map, each of them would be in managedFields once more.
    assert!(
        all - alone < 8 * 1024,
        "{alone} bytes of status, {all} of the object"
    );
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
