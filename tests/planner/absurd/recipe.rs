//! What an absurd world is made of: a sane one, a relocation in the middle of its work, and changes that nobody would make.

use proptest::prelude::*;
use proptest::sample::select;
use relocator::api::status::Stage;
use serde_json::{Value, json};

/// A world, before it is made.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) works: Vec<Work>,
    pub(super) budgets: Vec<Value>,
    pub(super) spec: Value,
    /// The stages of the two selected nodes; none before the start.
    pub(super) stages: Option<[Stage; 2]>,
    /// Every second placeholder has no node yet.
    pub(super) some_places: bool,
    pub(super) deleting: bool,
    pub(super) changes: Vec<Change>,
    /// What is answered when an owner is asked for, in turn.
    pub(super) answers: Vec<Answer>,
    pub(super) karpenter: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) kind: Kind,
    pub(super) namespace: &'static str,
    /// Where its pods are: an index of the nodes.
    pub(super) places: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    /// A custom resource.
    Database,
    /// A custom resource that is in no namespace.
    ClusterWide,
    ReplicationController,
    Job,
    Rollout,
    /// A Pod that owns a pod.
    OwnedByPod,
    Bare,
    Static,
}

/// What is read of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Honest,
    Missing,
    Failed,
    Unserved,
}

/// A change of the objects. Every number is taken modulo what there is.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Set {
        object: usize,
        path: usize,
        value: Value,
    },
    Remove {
        object: usize,
        path: usize,
    },
    /// The value at the same path of another object.
    Steal {
        object: usize,
        path: usize,
        from: usize,
    },
    /// An owner reference to another object, or to itself.
    Own {
        object: usize,
        owner: usize,
        controller: bool,
        /// Instead of the others.
        alone: bool,
    },
    /// A second object like it.
    Copy {
        object: usize,
        uid: bool,
    },
    /// Its pod is bound to the node.
    Bind {
        object: usize,
        node: &'static str,
    },
    Delete {
        object: usize,
    },
}

fn work() -> impl Strategy<Value = Work> {
    use Kind::*;
    let kinds = prop_oneof![
        4 => select(vec![Deployment, StatefulSet]),
        2 => select(vec![ReplicaSet, DaemonSet, Database, ClusterWide, Job, Rollout]),
        1 => select(vec![ReplicationController, OwnedByPod, Bare, Static]),
    ];
    let namespaces = select(vec!["a", "a", "b", "kube-system"]);
    let places = prop::collection::vec(0_usize..4, 1..4);
    (kinds, namespaces, places).prop_map(|(kind, namespace, places)| Work {
        kind,
        namespace,
        places,
    })
}

fn budget() -> impl Strategy<Value = Value> {
    let number = || prop_oneof![3 => 0_i64..4, 1 => select(vec![-1, i64::from(i32::MAX), i64::from(i32::MIN)])];
    let selector = select(vec![
        json!({"matchLabels": {"app": "w0"}}),
        json!({"matchLabels": {"app": "w1"}}),
        json!({"matchLabels": {"all": "x"}}),
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["w0", "w2"]}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["w1"]}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "Perhaps", "values": []}]}),
        json!({}),
        Value::Null,
    ]);
    let numbers = (number(), number(), number(), number());
    (selector, select(vec!["a", "b"]), prop::option::weighted(0.5, numbers), any::<bool>()).prop_map(
        |(selector, namespace, numbers, always)| {
            let (allowed, healthy, desired, expected) = numbers.unwrap_or((1, 3, 2, 3));
            let policy = if always { "AlwaysAllow" } else { "IfHealthyBudget" };
            json!({
                "metadata": {"name": "budget", "namespace": namespace, "generation": 1},
                "spec": {"selector": selector, "unhealthyPodEvictionPolicy": policy},
                "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy,
                    "desiredHealthy": desired, "expectedPods": expected},
            })
        },
    )
}

fn rules() -> impl Strategy<Value = Value> {
    let matches = select(vec![
        json!({"kinds": ["StatefulSet"]}),
        json!({"kinds": ["Pod", "Job"]}),
        json!({"namespaces": ["a"]}),
        json!({"selector": {"matchLabels": {"app": "w0"}}}),
        json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Perhaps"}]}}),
    ]);
    let strategies = select(vec![
        "Auto",
        "RolloutRestart",
        "Surge",
        "Evict",
        "Wait",
        "Skip",
    ]);
    let rule = (matches, strategies, -1000..=1000).prop_map(
        |(matches, strategy, order)| json!({"match": matches, "strategy": strategy, "order": order}),
    );
    prop::collection::vec(rule, 0..3).prop_map(Value::from)
}

fn spec() -> impl Strategy<Value = Value> {
    let seconds = || select(vec![0_u32, 60, 3600, u32::MAX]);
    let workloads = (
        select(vec!["Auto", "Auto", "RolloutRestart", "Surge", "Evict"]),
        select(vec![1, 2, 10, 1000]),
        (seconds(), seconds()),
        any::<[bool; 3]>(),
        rules(),
    )
        .prop_map(|(strategy, most, (settle, timeout), flags, rules)| {
            let pick = |flag: bool, one: &'static str, other: &'static str| if flag { one } else { other };
            json!({
                "strategy": strategy, "maxConcurrent": most, "settleSeconds": settle, "timeoutSeconds": timeout, "rules": rules,
                "unmanagedPods": pick(flags[0], "Evict", "Block"), "jobs": pick(flags[1], "Evict", "Wait"),
                "emptyDir": pick(flags[2], "Allow", "Block"),
            })
        });
    let nodes = prop_oneof![
        8 => Just(json!({"names": ["old-0", "old-1"]})),
        1 => Just(json!({"nodePools": ["apps"], "state": "Drifted"})),
        1 => select(vec![
            json!({"names": ["old-0", "old-1", "none"], "limit": 1}),
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Perhaps"}]}}),
            json!({"selector": {}}),
            json!({"nodePools": ["none"]}),
        ]),
    ];
    let protection = select(vec![
        json!({}),
        json!({"pods": "All"}),
        json!({"pods": "None"}),
        json!({"selector": {"matchLabels": {"app": "w1"}}}),
        json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Perhaps"}]}}),
    ]);
    let places = (select(vec!["Mirror", "Mirror", "None"]), seconds());
    let ends = (
        select(vec!["Delete", "Keep", "Uncordon"]),
        select(vec!["Rollback", "Hold"]),
    );
    let stops = (
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        prop::option::weighted(0.2, seconds()),
    );
    let batch = select(vec![
        json!("100%"),
        json!("100%"),
        json!("1%"),
        json!(1),
        json!(1000),
    ]);
    let nodes = (nodes, batch);
    (nodes, places, workloads, protection, ends, stops).prop_map(
        |((nodes, batch), (places, wait), workloads, protection, (after, failure), (plan, suspend, deadline))| {
            let mut spec = json!({
                "nodes": nodes, "batchSize": batch, "replacement": {"strategy": places, "timeoutSeconds": wait}, "workloads": workloads,
                "protection": protection, "afterDrain": after, "onFailure": failure, "suspend": suspend,
                "mode": if plan { "Plan" } else { "Execute" },
            });
            if let Some(deadline) = deadline {
                spec["activeDeadlineSeconds"] = json!(deadline);
            }
            spec
        },
    )
}

/// Values that have no business where they are put.
fn value() -> impl Strategy<Value = Value> {
    let long = "x".repeat(4000);
    let huge = "9".repeat(60);
    select(vec![
        Value::Null,
        json!(-1),
        json!(0),
        json!(1),
        json!(i32::MAX),
        json!(i32::MIN),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(1e300),
        json!(true),
        json!(false),
        json!(""),
        json!(long),
        json!("\u{1b}[31m\n\t\"\\\u{0}"),
        json!("/"),
        json!("."),
        json!("💥é"),
        json!("0001-01-01T00:00:00Z"),
        json!("9999-12-30T22:00:00Z"),
        json!("1970-01-01T00:00:00Z"),
        json!("2027-01-15T08:00:00Z"),
        json!("9223372036854775807E"),
        json!(huge),
        json!("-170141183460469231731687303715884105728"),
        json!("1e-30"),
        json!("-5"),
        json!("250%"),
        json!("-3%"),
        json!("%"),
        json!("True"),
        json!("False"),
        json!("Pending"),
        json!("Failed"),
        json!("node-old-0"),
        json!("old-0"),
        json!("new-0"),
        json!("a"),
        json!("move/relocation-uid"),
        json!("move/another-uid"),
        json!("relocation-uid.4000000000.4000000001"),
        json!("relocation-uid.3.4"),
        json!("relocator-placeholders"),
        json!("Exists"),
        json!("In"),
        json!([]),
        json!({}),
        json!([null]),
    ])
}

fn change() -> impl Strategy<Value = Change> {
    let some = || any::<prop::sample::Index>().prop_map(|i| i.index(1 << 20));
    prop_oneof![
        6 => (some(), some(), value()).prop_map(|(object, path, value)| Change::Set { object, path, value }),
        2 => (some(), some()).prop_map(|(object, path)| Change::Remove { object, path }),
        1 => (some(), some(), some()).prop_map(|(object, path, from)| Change::Steal { object, path, from }),
        2 => (some(), some(), any::<bool>(), any::<bool>())
            .prop_map(|(object, owner, controller, alone)| Change::Own { object, owner, controller, alone }),
        1 => (some(), any::<bool>()).prop_map(|(object, uid)| Change::Copy { object, uid }),
        1 => (some(), select(vec!["old-0", "old-1", "new-0", "other", "nowhere", ""]))
            .prop_map(|(object, node)| Change::Bind { object, node }),
        1 => some().prop_map(|object| Change::Delete { object }),
    ]
}

pub(super) fn recipe() -> impl Strategy<Value = Recipe> {
    use Stage::*;
    let stage = || {
        let stages = vec![
            Protecting,
            Cordoning,
            Provisioning,
            Moving,
            Moving,
            Moving,
            Draining,
            Removing,
            Restoring,
            RollingBack,
        ];
        select(stages)
    };
    let stages = prop::option::weighted(0.85, (stage(), stage()).prop_map(|(a, b)| [a, b]));
    let answers = prop::collection::vec(
        prop_oneof![6 => Just(Answer::Honest), 1 => select(vec![Answer::Missing, Answer::Failed, Answer::Unserved])],
        1..4,
    );
    (
        prop::collection::vec(work(), 1..4),
        prop::collection::vec(budget(), 0..3),
        spec(),
        stages,
        any::<bool>(),
        prop::bool::weighted(0.1),
        prop::collection::vec(change(), 0..6),
        answers,
        prop::bool::weighted(0.8),
    )
        .prop_map(
            |(works, budgets, spec, stages, some_places, deleting, changes, answers, karpenter)| {
                Recipe {
                    works,
                    budgets,
                    spec,
                    stages,
                    some_places,
                    deleting,
                    changes,
                    answers,
                    karpenter,
                }
            },
        )
}
