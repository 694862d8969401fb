//! The Helm chart, by the real Helm: what it renders, refuses, installs and leaves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use lab::LabOptions;
use lab::chart::{self, CHART, ChartError, Helm};
use lab::fixtures;
use lab::programs::Lines;
use lab::wait::{NotYet, wait_until};

use crate::world::{ACCOUNT, PATIENCE, World, binary};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn path(of: &str) -> String {
    repository().join(of).display().to_string()
}

async fn helm() -> Helm {
    Helm::ready(Lines::default()).await.unwrap()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn what_is_made_from_the_chart_is_up_to_date_and_nothing_else_is_in_deploy() {
    let made = chart::made(&helm().await, repository()).await.unwrap();
    for (name, text) in &made {
        let there = std::fs::read_to_string(repository().join(name)).unwrap_or_default();
        assert!(there == *text, "{name} is old: run cargo xtask manifests");
    }
    let names: BTreeSet<_> = made.keys().map(|name| repository().join(name)).collect();
    for file in files_below(&repository().join("deploy")) {
        assert!(
            names.contains(&file),
            "{} is made by nothing",
            file.display()
        );
    }
}

#[tokio::test]
async fn the_chart_passes_lint_and_refuses_values_that_mean_nothing() {
    let helm = helm().await;
    let chart = path(CHART);
    helm.run(&["lint", "--strict", &chart]).await.unwrap();
    // The value, and what the refusal names.
    for (set, names) in [
        ("replica=2", "replica"),
        ("replicas=two", "replicas"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("image.digest=sha256:12", "digest"),
        ("image.repository=", "repository"),
        ("rbac.restarts=true", "restarts"),
        ("rbac.extraOwners[0].resources={clusters}", "apiGroups"),
        ("serviceAccount.create=false", "serviceAccount"),
        ("log.format=xml", "format"),
        ("http.address=8080", "address"),
        ("metrics.serviceMonitor.interval=often", "interval"),
        ("networkPolicy.apiServerPorts={70000}", "apiServerPorts"),
        ("placeholders.namespace=mine", "namespace"),
        ("podDisruptionBudget.maxUnavailable=many", "maxUnavailable"),
    ] {
        let set = format!("--set={set}");
        let rendered = helm.run(&["template", "relocator", &chart, &set]).await;
        let Err(ChartError::Failed { output, .. }) = rendered else {
            panic!("{set} is not refused");
        };
        assert!(output.contains(names), "{set}: {output}");
    }
}

/// Each right that a feature needs is in the rendered role with it and not without it.
#[tokio::test]
async fn rights_are_as_few_as_the_features_that_are_on() {
    let helm = helm().await;
    let chart = path(CHART);
    let rendered = async |set: &str| {
        let set = format!("--set={set}");
        let show = "--show-only=templates/rbac.yaml";
        helm.run(&["template", "relocator", &chart, show, &set])
            .await
            .unwrap()
    };
    let rule =
        |resources: &str, verbs: &str| format!("resources: [{resources}]\n    verbs: [{verbs}]\n");
    let restart = [
        rule("deployments, statefulsets", "get, list, watch, patch"),
        rule("rollouts", "get, patch"),
    ];
    let delete = rule("nodeclaims, machines", "get, list, watch, delete");
    let all = rendered("rbac.restart=true").await;
    for rule in restart.iter().chain([&delete]) {
        assert!(all.contains(rule), "{rule} in {all}");
    }
    let without = rendered("rbac.restart=false").await;
    assert!(without.contains(&delete));
    assert!(without.contains(&rule("deployments, statefulsets", "get, list, watch")));
    assert!(without.contains(&rule("rollouts", "get")));
    let without = rendered("rbac.deleteNodes=false").await;
    assert!(without.contains(&rule("nodeclaims, machines", "get, list, watch")));
    let more = "rbac.extraOwners[0].apiGroups={example.com},rbac.extraOwners[0].resources={dbs}";
    let more = rendered(more).await;
    let owner = "apiGroups: [\"example.com\"]\n    resources: [\"dbs\"]\n    verbs: [get]";
    assert!(more.contains(owner), "{more}");
}

/// The operator's pods, by the words of the scheduler or else by their nodes.
fn how(pods: &[Pod]) -> Vec<String> {
    let operators = pods.iter().filter(|pod| {
        let labels = pod.metadata.labels.as_ref();
        let of = labels.and_then(|l| l.get("app.kubernetes.io/component"));
        of.is_some_and(|of| of == "operator") && pod.metadata.deletion_timestamp.is_none()
    });
    let mut all: Vec<_> = operators
        .map(|pod| {
            let node = pod.spec.as_ref().and_then(|s| s.node_name.clone());
            let conditions = pod
                .status
                .iter()
                .flat_map(|s| s.conditions.iter().flatten());
            let mut scheduled = conditions.filter(|c| c.type_ == "PodScheduled");
            let words = || scheduled.find_map(|c| c.message.clone());
            node.or_else(words).unwrap_or_default()
        })
        .collect();
    all.sort();
    all
}

async fn operators_until(world: &World, what: &str, are: impl Fn(&[String]) -> bool) {
    let client = world.lab.client().await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "relocator-system");
    let look = async || {
        let pods = pods.list(&ListParams::default()).await;
        let all = how(&pods?.items);
        if are(&all) {
            Ok(())
        } else {
            Err(NotYet::because(format!("{all:?}")))
        }
    };
    wait_until(what, PATIENCE, look).await.unwrap();
}

/// Installed where every node is Karpenter's, its pods are Pending, as the notes say. Told to run there, they come, each to another node. What
/// an upgrade takes away is taken away, and a rollback gives it back; the operator works under the account that the chart has made; after an
/// uninstall the relocations are still there, and a second install takes them over.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_installed_upgraded_rolled_back_and_uninstalled() {
    let world = World::bare(LabOptions::default()).await;
    for name in ["one", "two"] {
        let node = fixtures::fake_node(name, "4", &[("karpenter.sh/nodepool", "apps")]);
        world.lab.put(&node).await.unwrap();
        fixtures::wait_node_ready(&world.lab, name).await.unwrap();
    }
    let helm = helm().await.with_kubeconfig(&world.lab.kubeconfig());
    let chart = path(CHART);
    let run = async |verb: &str, more: &[&str]| {
        let mut arguments = vec![verb, "relocator", &chart, "--namespace=relocator-system"];
        arguments.extend(more);
        helm.run(&arguments).await.unwrap()
    };
    let notes = run("install", &["--create-namespace"]).await;
    assert!(notes.contains("If its pods are Pending"), "{notes}");
    operators_until(
        &world,
        "both pods to be Pending, for no node is right",
        |all| {
            all.len() == 2
                && all
                    .iter()
                    .all(|p| p.contains("didn't match Pod's node affinity"))
        },
    )
    .await;

    let anywhere = ["--reuse-values", "--set=affinity.nodeAffinity=null"];
    run("upgrade", &anywhere).await;
    operators_until(&world, "each to have a node of its own", |all| {
        all == ["one", "two"]
    })
    .await;

    // There is no third node: an old pod has to make room for each new one.
    let new = [
        "--reuse-values",
        "--set=podAnnotations.example\\.com/restarted=once",
    ];
    run("upgrade", &new).await;
    let rolled = [
        "rollout",
        "status",
        "deployment/relocator",
        "--timeout=120s",
    ];
    let rolled = [&rolled[..], &["--namespace=relocator-system"]].concat();
    world.kubectl(&rolled).await;

    let client = world.lab.client().await.unwrap();
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let deletes = async || {
        let role = roles.get("relocator").await.unwrap();
        let mut granted = role.rules.into_iter().flatten();
        let claims = granted.find(|r| r.resources.iter().flatten().any(|r| r == "nodeclaims"));
        claims.unwrap().verbs.iter().any(|verb| verb == "delete")
    };
    assert!(deletes().await);
    let fewer = ["--reuse-values", "--set=replicas=0,rbac.deleteNodes=false"];
    let notes = run("upgrade", &fewer).await;
    assert!(notes.contains("rbac.deleteNodes"), "{notes}");
    assert!(!deletes().await);
    let back = ["rollback", "relocator", "3", "--namespace=relocator-system"];
    helm.run(&back).await.unwrap();
    assert!(deletes().await);
    run("upgrade", &["--reuse-values", "--set=replicas=0"]).await;

    let operator = world.operator().await;
    // What `helm test` runs in a pod, under the same account.
    let mut sweep = tokio::process::Command::new(binary());
    sweep.args(["sweep", "--dry-run"]);
    sweep.env("KUBECONFIG", operator.kubeconfig());
    let swept = sweep.output().await.unwrap();
    assert!(swept.status.success(), "{swept:?}");
    let mut story = world
        .relocate("look", "{mode: Plan, nodes: {names: [one]}}")
        .await;
    story.stage("Planned").await;

    let gone = [
        "uninstall",
        "relocator",
        "--namespace=relocator-system",
        "--wait",
    ];
    helm.run(&gone).await.unwrap();
    let kept = world
        .kubectl(&["get", "noderelocations", "-o", "name"])
        .await;
    assert_eq!(kept.trim(), "noderelocation.relocation.sh/look");
    let role = roles.get_opt("relocator").await.unwrap();
    assert!(role.is_none(), "{role:?}");
    run("install", &["--set=replicas=0"]).await;
    let kept = world
        .kubectl(&["get", "noderelocations", "-o", "name"])
        .await;
    assert_eq!(kept.trim(), "noderelocation.relocation.sh/look");
}

/// With `crds.enabled=false` the release has no `CustomResourceDefinition`, and one that was applied by hand is left alone. Everything that is
/// there to be applied, the API server would take.
#[tokio::test(flavor = "multi_thread")]
async fn every_manifest_and_example_is_taken_by_the_api_server() {
    let world = World::start().await;
    let client = world.lab.client().await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let name = "noderelocations.relocation.sh";
    let before = definitions.get(name).await.unwrap();
    let deploy = path("deploy");
    let dry = [
        "apply",
        "--server-side",
        "--dry-run=server",
        "--force-conflicts",
    ];
    let whole = [&dry[..], &["--kustomize", &deploy]].concat();
    let said = world.kubectl(&whole).await;
    for object in [
        "deployment.apps/relocator",
        "poddisruptionbudget.policy/relocator",
    ] {
        assert!(said.contains(object), "{object} in {said}");
    }
    let examples = path("examples");
    let examples = [&dry[..], &["--recursive", "--filename", &examples]].concat();
    world.kubectl(&examples).await;

    let helm = helm().await.with_kubeconfig(&world.lab.kubeconfig());
    let chart = path(CHART);
    let own = [
        "install",
        "relocator",
        &chart,
        "--namespace=relocator-system",
        "--set=crds.enabled=false,replicas=0",
        "--take-ownership",
        "--force-conflicts",
    ];
    helm.run(&own).await.unwrap();
    let manifest = [
        "get",
        "manifest",
        "relocator",
        "--namespace=relocator-system",
    ];
    let manifest = helm.run(&manifest).await.unwrap();
    assert!(!manifest.contains("kind: CustomResourceDefinition"));
    let after = definitions.get(name).await.unwrap();
    assert_eq!(
        before.metadata.resource_version,
        after.metadata.resource_version
    );
}

/// The API server's own answer, for the operator's account as `deploy/` makes it. The last two are to show that the question is asked rightly.
#[tokio::test(flavor = "multi_thread")]
async fn the_account_may_not_do_what_an_attacker_would_want() {
    let world = World::start().await;
    let account = format!("--as={ACCOUNT}");
    let may = async |verb: &str, resource: &str, namespace: &str| {
        let namespace = format!("--namespace={namespace}");
        // What comes after a slash, kubectl takes for a name.
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        let part = format!("--subresource={part}");
        let ask = ["auth", "can-i", verb, resource, &part, &namespace, &account];
        // Its exit code is 1 for no.
        let mut command = world.lab.kubectl_command();
        let output = tokio::task::spawn_blocking({
            command.args(ask);
            move || command.output().unwrap()
        });
        let output = output.await.unwrap();
        match String::from_utf8_lossy(&output.stdout).trim() {
            "yes" => true,
            "no" => false,
            _ => panic!("{verb} {resource}: {output:?}"),
        }
    };
    let system = "kube-system";
    for (verb, resource, namespace) in [
        ("get", "secrets", system),
        ("list", "secrets", "relocator-system"),
        ("get", "configmaps", system),
        ("get", "nodes/proxy", ""),
        ("create", "pods/exec", system),
        ("create", "pods/attach", system),
        ("create", "pods/ephemeralcontainers", system),
        ("patch", "pods/ephemeralcontainers", system),
        ("delete", "pods", "default"),
        ("deletecollection", "pods", "relocator-placeholders"),
        ("create", "pods", "default"),
        ("create", "pods", "relocator-system"),
        ("create", "serviceaccounts/token", "relocator-system"),
        ("impersonate", "users", ""),
        ("impersonate", "groups", ""),
        ("delete", "nodes", ""),
        ("update", "nodes/status", ""),
        ("create", "nodeclaims.karpenter.sh", ""),
        ("patch", "nodepools.karpenter.sh", ""),
        ("patch", "daemonsets.apps", system),
        ("create", "deployments.apps", "default"),
        ("delete", "statefulsets.apps", "default"),
        ("patch", "poddisruptionbudgets.policy", "default"),
        ("delete", "persistentvolumeclaims", "default"),
        (
            "create",
            "clusterrolebindings.rbac.authorization.k8s.io",
            "",
        ),
        ("escalate", "clusterroles.rbac.authorization.k8s.io", ""),
        ("bind", "clusterroles.rbac.authorization.k8s.io", ""),
        (
            "create",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
            "",
        ),
        ("create", "noderelocations.relocation.sh", ""),
        ("get", "leases.coordination.k8s.io", system),
        ("*", "*", "default"),
    ] {
        assert!(
            !may(verb, resource, namespace).await,
            "it may {verb} {resource}"
        );
    }
    assert!(may("create", "pods/eviction", "default").await);
    assert!(may("create", "pods", "relocator-placeholders").await);
}
