//! kill -9 of the operator in each stage: the one that comes after it ends what was begun, and the end is the same.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use lab::judge::{Cause, Kind};
use lab::operator::{self, Operator};
use lab::{LabOptions, NotYet, fixtures, wait_until};

use crate::world::{PATIENCE, Recording, Story, World};

/// A node pool that takes nothing away of itself, so that only relocator does.
fn pool() -> String {
    let pool = fixtures::NODE_POOL_YAML.replace(
        "{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 10s}",
        "{consolidationPolicy: WhenEmpty, consolidateAfter: Never}",
    );
    assert_ne!(pool, fixtures::NODE_POOL_YAML);
    pool
}

/// One node's worth: a database, one session server that has to be there at all times, a web tier. A second to be ready
/// and a second to stop, so that a pod can be met on its way.
const WORKLOADS: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata:
      labels: {app: db}
      annotations: {pod-ready.stage.kwok.x-k8s.io/delay: 1s, pod-delete.stage.kwok.x-k8s.io/delay: 1s}
    spec:
      nodeSelector: {NodeGroupName: apps}
      containers: [{name: db, image: postgres:17, resources: {requests: {cpu: "1", memory: 1Gi}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: db}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: session}
spec:
  replicas: 1
  selector: {matchLabels: {app: session}}
  template:
    metadata:
      labels: {app: session}
      annotations: {pod-ready.stage.kwok.x-k8s.io/delay: 1s}
    spec:
      nodeSelector: {NodeGroupName: apps}
      containers: [{name: s, image: nginx:1.29, resources: {requests: {cpu: 500m, memory: 256Mi}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: session}
spec: {minAvailable: 1, selector: {matchLabels: {app: session}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {pod-ready.stage.kwok.x-k8s.io/delay: 1s}
    spec:
      nodeSelector: {NodeGroupName: apps}
      containers: [{name: w, image: nginx:1.29, resources: {requests: {cpu: 300m, memory: 256Mi}}}]
"#;
const PODS: u32 = 5;

/// When the operator is killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// As soon as the relocation says that it is in this stage.
    In(&'static str),
    /// In Moving, as soon as a pod of the database is leaving.
    WhileAPodLeaves,
}

use Kill::{In, WhileAPodLeaves};

/// A stage may be over before the signal is delivered; then it is tried again.
const ATTEMPTS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_a_pod_moves_it_ends_as_if_it_had_not_been() {
    let world = one_node_of_a_pool().await;
    let mut operator = world.operator().await;
    for stage in ["Planning", "Protecting", "Cordoning", "Provisioning"] {
        survives(&world, &mut operator, In(stage)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_pods_move_and_after_it_ends_as_if_it_had_not_been() {
    let world = one_node_of_a_pool().await;
    let mut operator = world.operator().await;
    for kill in [
        In("Moving"),
        WhileAPodLeaves,
        In("Draining"),
        In("Removing"),
        In("Restoring"),
    ] {
        survives(&world, &mut operator, kill).await;
    }
}

/// Once in every stage of one relocation: no operator lives for longer than a stage.
#[tokio::test(flavor = "multi_thread")]
async fn killed_in_every_stage_of_one_relocation_it_ends_as_if_it_had_not_been() {
    let world = one_node_of_a_pool().await;
    let mut operator = world.operator().await;
    let old = nodes_of_the_pool(&world).await;
    let recording = world.record(&[&old]).await;
    let mut story = relocate(&world, &old, "every-stage").await;
    for stage in [
        "Planning",
        "Protecting",
        "Cordoning",
        "Provisioning",
        "Moving",
        "Draining",
        "Removing",
        "Restoring",
    ] {
        story.stage(stage).await;
        operator.process().kill().unwrap();
        operator = restarted(&world, &operator).await;
    }
    ends_well(&world, story, recording, &old).await;
}

async fn one_node_of_a_pool() -> World {
    let world = World::with_karpenter(LabOptions::default()).await;
    world.lab.apply(&pool()).await.unwrap();
    world
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=2m",
            "nodepool/apps",
        ])
        .await;
    world.lab.apply(WORKLOADS).await.unwrap();
    world.settled().await;
    world
}

/// The only node of the pool.
async fn nodes_of_the_pool(world: &World) -> String {
    let nodes: Vec<Node> = world.list().await;
    let mut names: Vec<_> = nodes.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names.len(), 1, "the pods fit on one: {names:?}");
    names.remove(0)
}

async fn relocate<'a>(world: &'a World, node: &str, name: &str) -> Story<'a> {
    let spec = format!("{{nodes: {{names: [{node}], nodePools: [apps]}}}}");
    world.relocate(name, &spec).await
}

/// Under the same identity, so that the lease is its own and need not run out first.
async fn restarted(world: &World, killed: &Operator) -> Operator {
    let mut next = world.operator_as(killed.identity()).await;
    next.wait_leading(&world.lab).await.unwrap();
    next
}

/// Relocates the pods until a kill has met the stage, and judges each time.
async fn survives(world: &World, operator: &mut Operator, kill: Kill) {
    for attempt in 1..=ATTEMPTS {
        let old = nodes_of_the_pool(world).await;
        let recording = world.record(&[&old]).await;
        let (stage, name) = match kill {
            In(stage) => (stage, format!("in-{}", stage.to_lowercase())),
            WhileAPodLeaves => ("Moving", "while-a-pod-leaves".to_owned()),
        };
        let mut story = relocate(world, &old, &format!("{name}-{attempt}")).await;
        story.stage(stage).await;
        if matches!(kill, WhileAPodLeaves) {
            a_pod_of_the_database_leaves(&recording).await;
        }
        operator.process().kill().unwrap();
        let what = "the relocation as the killed operator has left it";
        let left = operator::wait_for(&world.lab, &story.name, what, PATIENCE, |_| true)
            .await
            .unwrap();
        *operator = restarted(world, operator).await;
        ends_well(world, story, recording, &old).await;
        if left.stage == stage {
            return;
        }
        println!("{kill:?}: the kill came late, in {}", left.stage);
    }
    panic!("in {ATTEMPTS} relocations no kill came in time for {kill:?}");
}

async fn a_pod_of_the_database_leaves(recording: &Recording) {
    wait_until("a pod of the database to leave", PATIENCE, || async {
        let history = recording.so_far();
        let leaves = history.changes.iter().any(|c| {
            c.object.kind == Kind::Pod
                && c.object.name.starts_with("db-")
                && c.object.terminating
                && c.cause == Cause::Modified
        });
        leaves
            .then_some(())
            .ok_or_else(|| NotYet::because("none does"))
    })
    .await
    .unwrap();
}

/// The one end of all of these.
async fn ends_well(world: &World, mut story: Story<'_>, recording: Recording, old: &str) {
    let end = story.succeeds().await;
    assert_eq!(
        (end.nodes.as_str(), end.pods.as_str()),
        ("1/1", "5/5"),
        "{}",
        story.name
    );
    let verdict = recording.judge(world).await;
    println!("{}: {} s", story.name, verdict.card.wall_seconds);
    verdict.moved_once(PODS);
    verdict.is_clean();
    assert_eq!(verdict.most_down("default/StatefulSet/db"), 1);
    assert_eq!(verdict.most_down("default/Deployment/session"), 0);
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);
    let nodes = (verdict.card.nodes.made, verdict.card.nodes.removed);
    assert_eq!(nodes, (1, 1), "one for one: {:#?}", verdict.card);
    assert_ne!(nodes_of_the_pool(world).await, old);
    story.deleted().await;
}
