//! How long a plan takes, stage by stage, in a cluster of 1,000 nodes with 10,000 pods that all have to move. `cargo xtask bench plan`.
//!
//! A pass asks three times: which owners to read, which nodes to confirm, what to do. All three are measured, with a place made for each
//! pod (`replacement.strategy` Mirror, as by default) and without. The pass that asks for all places at once is measured too.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a measurement that fails is no measurement"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use relocator::api::guards::Guard;
use relocator::api::relocation::NodeRelocation;
use relocator::plan::{self, Action};
use relocator::world::{
    ClaimValue, Cluster, Generation, GuardMark, Karpenter, NodeName, Objects, PlaceholderSetup,
    Priority, Sight, Uid, World, convert,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How often each stage is planned; the median counts.
const RUNS: usize = 15;
/// Pods of a node.
const PODS: usize = 10;
const NAMESPACES: usize = 20;
const DEPLOYMENT: usize = 10;
const STATEFUL_SET: usize = 5;
/// The longest that a pass may plan, for the reader of the figures.
const TARGET: Duration = Duration::from_millis(20);

fn main() {
    // Cargo adds arguments of its own: --bench, where it is to be measured. Without, it is only to be seen that this still works.
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let given = arguments.iter().find_map(|a| a.parse().ok());
    let measured = arguments.iter().any(|a| a == "--bench");
    let nodes: usize = if measured { given.unwrap_or(1000) } else { 10 };
    let pods = nodes * PODS;
    println!(
        "{nodes} nodes to be emptied and as many beside, {pods} pods: {} Deployments of {DEPLOYMENT}, {} StatefulSets of {STATEFUL_SET} with a budget each",
        pods / 2 / DEPLOYMENT,
        pods / 2 / STATEFUL_SET,
    );
    println!("median of {RUNS} plans, in ms (target for a pass: {TARGET:?})");
    println!("stage          owners_to_read  to_confirm    plan    pass  actions");
    for strategy in ["None", "Mirror"] {
        println!("replacement.strategy {strategy}");
        stages(world(nodes, strategy));
    }
}

fn stages(mut world: World) {
    for _ in 0..12 {
        let [owners, confirm, plan] = [
            median(|| black_box(plan::owners_to_read(&world)).len()),
            median(|| black_box(plan::to_confirm(&world)).len()),
            median(|| black_box(plan::plan(&world)).actions.len()),
        ];
        let next = plan::plan(&world);
        let stage = next
            .status
            .conditions
            .iter()
            .find(|c| c.type_ == "Ready")
            .map(|c| c.reason.clone());
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        println!(
            "{:<14} {:>14.2}  {:>10.2}  {:>6.2}  {:>6.2}  {:>7}",
            stage.unwrap_or_default(),
            ms(owners),
            ms(confirm),
            ms(plan),
            ms(owners + confirm + plan),
            next.actions.len()
        );
        for blocker in next.status.blockers.iter().take(1) {
            println!("    {}: {}", blocker.object, blocker.message);
        }
        if next
            .actions
            .iter()
            .any(|a| matches!(a, Action::Evict { .. } | Action::Surge { .. }))
        {
            return;
        }
        carry_out(&mut world, next);
    }
    panic!("no pod moves: {:#?}", world.relocation.status);
}

fn median(mut work: impl FnMut() -> usize) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            black_box(work());
            began.elapsed()
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

/// What the API server would have made of it, as far as the stages before Moving go.
fn carry_out(world: &mut World, plan: plan::Plan) {
    let ours = ClaimValue {
        name: world.relocation.metadata.name.clone().unwrap(),
        uid: world.relocation.metadata.uid.clone().unwrap().into(),
    };
    world.relocation.status = Some(plan.status);
    let Sight::Known(cluster) = &mut world.sight else {
        return;
    };
    let cluster = Arc::make_mut(cluster);
    let nodes = Arc::make_mut(&mut cluster.nodes);
    let count = nodes.len() / 2;
    let pods = Arc::make_mut(&mut cluster.pods);
    for action in plan.actions {
        match action {
            Action::AddFinalizer => {
                world.relocation.metadata.finalizers =
                    Some(vec![relocator::api::keys::FINALIZER.to_owned()]);
            }
            Action::ClaimNode { node, .. } => {
                let node = Arc::make_mut(nodes.get_mut(&node.uid).unwrap());
                node.marks.claimed_by = Some(ours.clone());
            }
            Action::ProtectPod { pod, guards } => {
                let pod = Arc::make_mut(pods.get_mut(&pod.pod.uid).unwrap());
                for guard in guards {
                    let mark = GuardMark {
                        value: Some(Guard::VALUE.to_owned()),
                        by: Some(ours.clone()),
                    };
                    pod.marks.guards.insert(guard, mark);
                }
            }
            Action::Cordon { node } => {
                let node = Arc::make_mut(nodes.get_mut(&node.uid).unwrap());
                node.unschedulable = true;
                node.marks.cordoned_by = Some(ours.clone());
            }
            Action::CreatePlaceholder(placeholder) => {
                let number = pods.len();
                let pod = convert::pod(&parse(json!({
                    "metadata": {
                        "name": placeholder.name, "namespace": "relocator-placeholders", "uid": uid("placeholder", number),
                        "resourceVersion": "1", "creationTimestamp": "2026-12-01T00:00:00Z",
                        "labels": {
                            "relocation.sh/pod-uid": placeholder.pod.uid.as_str(),
                            "relocation.sh/workload-uid": placeholder.workload.uid.as_str(),
                        },
                        "ownerReferences": [{
                            "apiVersion": "relocation.sh/v1alpha1", "kind": "NodeRelocation", "name": ours.name, "uid": ours.uid.as_str(),
                        }],
                    },
                    "spec": {"nodeName": node_name("new", number % count).as_str(), "containers": []},
                    "status": {"phase": "Running"},
                })));
                insert(pods, uid("placeholder", number), pod);
            }
            _ => {}
        }
    }
}

fn world(nodes: usize, strategy: &str) -> World {
    let relocation: NodeRelocation = parse(json!({
        "apiVersion": "relocation.sh/v1alpha1", "kind": "NodeRelocation",
        "metadata": {"name": "bench", "uid": uid("relocation", 0), "resourceVersion": "1", "generation": 1},
        "spec": {
            "nodes": {"nodePools": ["apps"], "state": "Drifted", "limit": 1000},
            "replacement": {"strategy": strategy},
            "workloads": {"maxConcurrent": 1000},
        },
    }));
    let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
    let mut world = World::unseen(relocation, now);
    world.sight = Sight::Known(Arc::new(cluster(nodes)));
    world.setup = PlaceholderSetup::Read {
        namespace: true,
        priority: Some(Priority::OF_PLACEHOLDERS),
    };
    world.fresh = BTreeMap::new();
    world
}

fn cluster(count: usize) -> Cluster {
    let mut nodes = BTreeMap::new();
    let mut claims = BTreeMap::new();
    for (age, drifted) in [("old", "True"), ("new", "False")] {
        for number in 0..count {
            let name = node_name(age, number);
            let node = convert::node(&parse(json!({
                "metadata": {"name": name.as_str(), "uid": uid(age, number), "resourceVersion": "1",
                    "labels": {"karpenter.sh/nodepool": "apps", "karpenter.sh/initialized": "true"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            })));
            insert(&mut nodes, uid(age, number), node);
            let claim = convert::node_claim(&parse(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": format!("apps-{age}-{number}"), "uid": uid("claim", number + usize::from(age == "new") * count)},
                "status": {"nodeName": name.as_str(), "conditions": [{"type": "Drifted", "status": drifted}]},
            })));
            insert(
                &mut claims,
                uid("claim", number + usize::from(age == "new") * count),
                claim,
            );
        }
    }
    let mut cluster = Cluster {
        nodes: Arc::new(nodes),
        karpenter: Some(Karpenter {
            claims: Arc::new(claims),
            pools: Objects::default(),
            generation: Generation::V1,
        }),
        ..Cluster::default()
    };
    workloads(&mut cluster, count);
    cluster
}

fn workloads(cluster: &mut Cluster, nodes: usize) {
    let mut place = 0;
    let mut pods = BTreeMap::new();
    let mut pod = |app: &str, namespace: &str, name: String, owner: Value| {
        let uid = uid("pod", place);
        let pod = convert::pod(&parse(json!({
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1",
                "labels": {"app": app, "team": "payments", "app.kubernetes.io/version": "1"}, "ownerReferences": [owner]},
            "spec": {"nodeName": node_name("old", place % nodes).as_str(), "containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}],
                "tolerations": [
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                ]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T00:00:00Z"}]},
        })));
        place += 1;
        insert(&mut pods, uid, pod);
    };
    let owner = |api: &str, kind: &str, name: &str, uid: &str| json!({"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": true});
    for number in 0..nodes * PODS / 2 / DEPLOYMENT {
        let (name, namespace) = (
            format!("web-{number}"),
            format!("team-{}", number % NAMESPACES),
        );
        let (own, set) = (uid("deployment", number), uid("replica-set", number));
        let template = json!({"metadata": {"labels": {"app": name}}});
        let deployment = convert::deployment(&parse(json!({
            "metadata": {"name": name, "namespace": namespace, "uid": own, "resourceVersion": "1", "generation": 1},
            "spec": {"replicas": DEPLOYMENT, "selector": {}, "template": template},
            "status": {"observedGeneration": 1, "replicas": DEPLOYMENT, "updatedReplicas": DEPLOYMENT, "availableReplicas": DEPLOYMENT},
        })));
        insert(
            Arc::make_mut(&mut cluster.deployments),
            own.clone(),
            deployment,
        );
        let replica_set = convert::replica_set(&parse(json!({
            "metadata": {"name": format!("{name}-1"), "namespace": namespace, "uid": set, "generation": 1,
                "ownerReferences": [owner("apps/v1", "Deployment", &name, &own)]},
            "spec": {"replicas": DEPLOYMENT, "selector": {}, "template": template},
            "status": {"observedGeneration": 1, "replicas": DEPLOYMENT, "availableReplicas": DEPLOYMENT},
        })));
        insert(
            Arc::make_mut(&mut cluster.replica_sets),
            set.clone(),
            replica_set,
        );
        for ordinal in 0..DEPLOYMENT {
            let by = owner("apps/v1", "ReplicaSet", &format!("{name}-1"), &set);
            pod(&name, &namespace, format!("{name}-1-{ordinal}"), by);
        }
    }
    for number in 0..nodes * PODS / 2 / STATEFUL_SET {
        let (name, namespace) = (
            format!("db-{number}"),
            format!("team-{}", number % NAMESPACES),
        );
        let own = uid("stateful-set", number);
        let set = convert::stateful_set(&parse(json!({
            "metadata": {"name": name, "namespace": namespace, "uid": own, "resourceVersion": "1", "generation": 1},
            "spec": {"replicas": STATEFUL_SET, "selector": {}, "serviceName": name, "template": {"metadata": {"labels": {"app": name}}}},
            "status": {"observedGeneration": 1, "replicas": STATEFUL_SET, "availableReplicas": STATEFUL_SET,
                "currentRevision": "1", "updateRevision": "1"},
        })));
        insert(Arc::make_mut(&mut cluster.stateful_sets), own.clone(), set);
        let budget = convert::budget(&parse(json!({
            "metadata": {"name": name, "namespace": namespace, "uid": uid("budget", number), "generation": 1},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": STATEFUL_SET,
                "desiredHealthy": STATEFUL_SET - 1, "expectedPods": STATEFUL_SET},
        })));
        insert(
            Arc::make_mut(&mut cluster.budgets),
            uid("budget", number),
            budget,
        );
        for ordinal in 0..STATEFUL_SET {
            let by = owner("apps/v1", "StatefulSet", &name, &own);
            pod(&name, &namespace, format!("{name}-{ordinal}"), by);
        }
    }
    cluster.pods = Arc::new(pods);
}

fn insert<T>(objects: &mut BTreeMap<Uid, Arc<T>>, uid: String, object: Option<T>) {
    objects.insert(uid.into(), Arc::new(object.unwrap()));
}

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node_name(age: &str, number: usize) -> NodeName {
    format!("ip-10-1-{number}-{age}.eu-central-1.compute.internal")
        .as_str()
        .into()
}

/// As long as the API server's, and in no order.
fn uid(kind: &str, number: usize) -> String {
    // FNV-1a, 64 bit.
    let hash = format!("{kind}{number}")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
    format!(
        "{:08x}-6d2e-4d0e-{:04x}-{number:012x}",
        hash >> 32,
        hash & 0xffff
    )
}
