//! Workloads of every kind on twenty nodes of Karpenter, one of them broken: all others move once, and nothing waits for it.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentStrategy, RollingUpdateDeployment, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use lab::LabOptions;
use lab::fixtures::{self, Pods};
use lab::judge::{Cause, Change, Kind};
use serde_json::{Value, json};

use crate::beside::{Custom, again_and_again, beside, keep};
use crate::case_volumes::{ZONE, disk, volume, with_disks};
use crate::world::{Verdict, World, is_ready, node_of};

/// Two pods of [`CPU`] fit on a node of it.
const NODE_POOL: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: fleet}
spec:
  template:
    metadata: {labels: {NodeGroupName: fleet}}
    spec:
      requirements:
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
        - {key: kubernetes.io/os, operator: In, values: [linux]}
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [c-2x-amd64-linux]}
      nodeClassRef: {name: default, kind: KWOKNodeClass, group: karpenter.kwok.sh}
      expireAfter: Never
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never, budgets: [{nodes: '0'}]}
---
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
";

const CPU: &str = "900m";

/// Pods with a disk each, and the zone of that.
const HOMES: [(&str, &str); 2] = [("stored-0", "test-zone-b"), ("stored-1", "test-zone-c")];

/// All its pods that have to move: two on each of twenty nodes.
const PODS: u32 = 40;

/// Ready after a second, so that being away can be seen.
fn sized<P: Pods>(workload: P) -> P {
    workload.requests(CPU, "64Mi").ready_after(1)
}

fn deployment(name: &str, replicas: i32, strategy: Value) -> Deployment {
    let mut deployment = sized(fixtures::deployment(name, replicas));
    let strategy: DeploymentStrategy = serde_json::from_value(strategy).unwrap();
    deployment.spec.as_mut().unwrap().strategy = Some(strategy);
    deployment
}

/// All but the custom resource and the Job: seventeen pods of Deployments, seventeen of `StatefulSet`s, three of a `ReplicaSet`.
async fn workloads(world: &World) {
    let no_surge = RollingUpdateDeployment {
        max_surge: Some(IntOrString::Int(0)),
        max_unavailable: Some(IntOrString::Int(1)),
    };
    let rolling = json!({"type": "RollingUpdate"});
    let deployments = [
        deployment("web", 5, rolling.clone()),
        deployment("guarded", 3, rolling.clone()),
        deployment(
            "tight",
            4,
            json!({"type": "RollingUpdate", "rollingUpdate": no_surge}),
        ),
        deployment("recreated", 3, json!({"type": "Recreate"})),
        deployment("dns", 2, rolling).in_namespace("kube-system"),
    ];
    for deployment in deployments {
        world.lab.put(&deployment).await.unwrap();
    }
    let set = |name: &str, replicas: i32| sized(fixtures::stateful_set(name, replicas));
    let mut parallel = set("parallel", 5);
    parallel.spec.as_mut().unwrap().pod_management_policy = Some("Parallel".to_owned());
    let mut by_hand = set("by-hand", 3);
    by_hand.spec.as_mut().unwrap().update_strategy = Some(StatefulSetUpdateStrategy {
        type_: Some("OnDelete".to_owned()),
        rolling_update: None,
    });
    for (pod, zone) in HOMES {
        volume(world, &format!("data-{pod}"), &disk(), Some((ZONE, zone))).await;
    }
    let stored = with_disks(set("stored", 2));
    for set in [
        set("ordered", 5),
        parallel,
        by_hand,
        stored,
        set("broken", 2),
    ] {
        world.lab.put(&set).await.unwrap();
    }
    world
        .lab
        .put(&sized(fixtures::replica_set("plain", 3)))
        .await
        .unwrap();
    world
        .lab
        .put(&fixtures::daemon_set("agent").requests("50m", "32Mi"))
        .await
        .unwrap();
    // That of `guarded` never allows an eviction.
    for budget in [
        fixtures::max_unavailable("ordered", 1),
        fixtures::min_available("guarded", 3),
        fixtures::max_unavailable("parallel", 1),
        fixtures::max_unavailable("broken", 1),
    ] {
        world.lab.put(&budget).await.unwrap();
    }
}

/// Three pods of a custom resource.
async fn database(world: &World) -> Vec<Pod> {
    let kind = Custom::CLOUD_NATIVE_PG;
    kind.define(world).await;
    let owner = kind.create(world, "pg", &json!({"instances": 3})).await;
    let instance = |number: i32| {
        let mut pod = sized(fixtures::bare_pod(&format!("pg-{number}")).label("app", "pg"));
        pod.metadata.owner_references = Some(vec![owner.clone()]);
        pod
    };
    let pods: Vec<_> = (1..=3).map(instance).collect();
    for pod in &pods {
        world.lab.put(pod).await.unwrap();
    }
    pods
}

/// A Job that runs until the pods of the others have long been on the move.
const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: report, namespace: default}
spec:
  template:
    metadata: {labels: {app: report}, annotations: {pod-complete.stage.kwok.x-k8s.io/delay: 60s}}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: 'registry.k8s.io/pause:3.10', resources: {requests: {cpu: 10m}}}]
";

/// Lets the containers of the broken workload crash, or run again.
async fn crash(world: &World, crashes: bool) {
    let pods: Api<Pod> = world.api().await;
    let ready = if crashes { "False" } else { "True" };
    for name in ["broken-0", "broken-1"] {
        let conditions = json!([{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": ready}]);
        let status = Patch::Strategic(json!({"status": {"conditions": conditions}}));
        pods.patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }
}

/// The nodes and placeholders that were made, in their order.
fn made(verdict: &Verdict) -> Vec<String> {
    let changes = verdict
        .history
        .changes
        .iter()
        .filter(|c| c.cause == Cause::Added);
    let of_ours = |c: &&Change| {
        let placeholder = c.object.namespace == "relocator-placeholders";
        c.object.kind == Kind::NodeClaim || c.object.kind == Kind::Pod && placeholder
    };
    changes
        .filter(of_ours)
        .map(|c| format!("{} {}", c.at, c.object))
        .collect()
}

/// While the pool is emptied, both pods of a workload crash, and its budget keeps them. They are named; all other pods move once, however
/// they are owned, and the nodes that they leave are removed. Mended, the rest follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_every_kind_moves_once_and_nothing_waits_for_the_broken_one() {
    let world = World::with_karpenter(LabOptions::default()).await;
    world.lab.apply(NODE_POOL).await.unwrap();
    world
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=5m",
            "nodepool/fleet",
        ])
        .await;
    Box::pin(workloads(&world)).await;
    let instances = database(&world).await;
    world.settled().await;
    fixtures::drift_node_pool(&world.lab, "fleet")
        .await
        .unwrap();
    fixtures::wait_drifted(&world.lab, "fleet").await.unwrap();
    world.lab.apply(JOB).await.unwrap();
    let report = |pods: &[Pod]| {
        let runs = |p: &&Pod| p.name_any().starts_with("report") && is_ready(p);
        pods.iter().find(runs).map(node_of)
    };
    let of_job = world.pods_until("the Job to run", report).await;
    let pods = world.list::<Pod>().await;
    let broken: BTreeSet<_> = pods
        .iter()
        .filter(|p| p.name_any().starts_with("broken-"))
        .map(node_of)
        .collect();
    let old: Vec<_> = world
        .list::<Node>()
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert!(old.len() >= 20 && old.contains(&of_job), "{old:?}");
    let _operator = world.operator().await;
    let recording = world
        .record(&old.iter().map(String::as_str).collect::<Vec<_>>())
        .await;

    let story = async {
        let mut story = world
            .relocate("fleet", "{nodes: {nodePools: [fleet], state: Drifted}}")
            .await;
        story.stage("Provisioning").await;
        crash(&world, true).await;
        let emptied = format!("{}/{}", old.len() - broken.len(), old.len());
        let moved = format!("{}/{PODS}", PODS - 2);
        let stuck = story
            .until(
                "all nodes to be emptied but those of the broken workload",
                |r| r.nodes == emptied && r.pods == moved,
            )
            .await;
        let named = |b: &String| b.starts_with("UnhealthyPodGuarded Pod default/broken-");
        assert!(
            !stuck.blockers.is_empty() && stuck.blockers.iter().all(named),
            "{:?}",
            stuck.blockers
        );
        let said = stuck.blockers.join("\n");
        assert!(
            said.contains("PodDisruptionBudget default/broken"),
            "{said}"
        );
        crash(&world, false).await;
        story.succeeds().await
    };
    let pods: Api<Pod> = world.api().await;
    let operator = again_and_again(async || keep(&pods, &instances).await);
    let end = beside(operator, story).await;
    assert_eq!(end.pods, format!("{PODS}/{PODS}"));

    let verdict = recording.judge(&world).await;
    verdict.moved_once(PODS);
    verdict.is_clean();
    assert_eq!(verdict.card.nodes.removed as usize, old.len());
    as_gently_as_could_be(&verdict);
    for (pod, zone) in HOMES {
        let places = world.places("stored").await;
        let (_, node) = places.iter().find(|(name, _)| name == pod).unwrap();
        assert_eq!(world.node(node).await.labels()[ZONE], zone, "{pod}");
    }
}

/// Hardly a node too many, no pod away that need not be, and the Job's pod was let finish.
fn as_gently_as_could_be(verdict: &Verdict) {
    let nodes = verdict.card.nodes;
    // Seen were up to 23 nodes for 20. Why is not known; it may be that Karpenter makes nodes for the placeholders that it has seen by then,
    // two to a node, and each of its batches, and each zone, ends with half of one.
    assert!(
        nodes.made <= nodes.removed + nodes.removed / 4,
        "hardly more than there were: {nodes:?}\n{}",
        made(verdict).join("\n")
    );
    let down = |most: u32, workloads: &[&str]| {
        for workload in workloads {
            let (namespace, rest) = workload.split_once(':').unwrap_or(("default", workload));
            let down = verdict.most_down(&format!("{namespace}/{rest}"));
            assert!(down <= most, "{workload}: {down}");
        }
    };
    down(
        0,
        &[
            "Deployment/web",
            "Deployment/guarded",
            "Deployment/tight",
            "Deployment/recreated",
            "kube-system:Deployment/dns",
        ],
    );
    down(
        1,
        &[
            "StatefulSet/ordered",
            "StatefulSet/parallel",
            "StatefulSet/by-hand",
            "StatefulSet/stored",
            "ReplicaSet/plain",
            "Cluster/pg",
        ],
    );
    let evicted = verdict.evicted();
    assert!(
        !evicted.iter().any(|name| name.starts_with("report")),
        "{evicted:?}"
    );
}
