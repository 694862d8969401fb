//! Worlds that nobody would make: no plan panics or breaks a gate, whatever objects there are.
//!
//! A sane cluster with a relocation in the middle of its work is changed, as JSON, in ways that make no sense: values of other kinds,
//! extreme numbers, owners that are forged, dangle or turn in a circle, objects twice. What the API server could still have sent goes through
//! the operator's own conversion, is planned for, and the plan is judged by the JSON.
//!
//! The cases are the same in each run. `PROPTEST_RNG_SEED` gives others, `PROPTEST_CASES` more; a failure names both.

mod judge;
mod named;
mod objects;
mod recipe;
pub(crate) mod schema;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use relocator::api::keys;
use relocator::api::relocation::{Mode, NodeRelocation, NodeRelocationSpec, ReplacementStrategy};
use relocator::api::status::Stage;
use relocator::plan::{self, Action, Plan};
use relocator::world::{
    Cluster, Fresh, PlaceholderSetup, Priority, Refusal, RefusalKind, Sight, Unknown, World,
};
use serde_json::{Value, json};

use judge::Judge;
use objects::{OURS, Objects};
use recipe::{Recipe, recipe};

/// Seed of the cases that are tried when none is given.
const SEED: u64 = 20_261_203;
/// How many are tried when nothing is said: some seconds.
const CASES: u32 = 3000;

fn now() -> Timestamp {
    "2027-01-15T08:00:00Z".parse().unwrap()
}

fn try_all<S: Strategy>(strategy: &S, test: impl Fn(S::Value)) {
    let given = Config::default();
    let seed = match given.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => SEED,
    };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() {
        given.cases
    } else {
        CASES
    };
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..given
    };
    let outcome = TestRunner::new(config).run(strategy, |value| {
        test(value);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases} finds it again: {error}");
    }
}

fn relocation(spec: &Value) -> NodeRelocation {
    let spec: NodeRelocationSpec = serde_json::from_value(spec.clone()).expect("a spec");
    let mut relocation = NodeRelocation::new("move", spec);
    relocation.metadata.uid = Some("relocation-uid".into());
    relocation.metadata.generation = Some(1);
    relocation.metadata.resource_version = Some("7".into());
    relocation.metadata.finalizers = Some(vec![keys::FINALIZER.to_owned()]);
    relocation
}

/// The world as an observer would see it, with its fresh reads.
fn look(recipe: &Recipe, objects: &Objects, cluster: Cluster, relocation: NodeRelocation) -> World {
    let mut world = World::unseen(relocation, now());
    world.sight = Sight::Known(Arc::new(cluster.clone()));
    let mut cluster = cluster;
    let mut answers = recipe.answers.iter().cycle();
    for query in plan::owners_to_read(&world) {
        let (owner, answer) = (&query.owner, *answers.next().unwrap());
        let sight = objects.owner(
            &owner.api_version,
            &owner.kind,
            &owner.name,
            &owner.uid,
            answer,
        );
        cluster.owners.insert(query.uid().clone(), sight);
    }
    let cluster = Arc::new(cluster);
    world.sight = Sight::Known(Arc::clone(&cluster));
    world.setup = PlaceholderSetup::Read {
        namespace: true,
        priority: Some(Priority::OF_PLACEHOLDERS),
    };
    for confirm in plan::to_confirm(&world) {
        let on = |node: &relocator::world::NodeName| *node == confirm.node;
        let pods = cluster
            .pods
            .values()
            .filter(|p| p.node.as_ref().is_some_and(on));
        let attachments = cluster.attachments.values().filter(|a| on(&a.node));
        let read = Fresh::Read {
            pods: pods.map(|p| (**p).clone()).collect(),
            attachments: attachments.map(|a| (**a).clone()).collect(),
        };
        world.fresh.insert(confirm.node, read);
    }
    world
}

/// A relocation that has come as far as the recipe says, and marks on the objects that say the same.
fn started(recipe: &Recipe, objects: &mut Objects) -> NodeRelocation {
    let mut relocation = relocation(&recipe.spec);
    let Some([first, second]) = recipe.stages else {
        return relocation;
    };
    let (mode, suspend) = (relocation.spec.mode, relocation.spec.suspend);
    (relocation.spec.mode, relocation.spec.suspend) = (Mode::Execute, false);
    let honest = Recipe {
        answers: vec![recipe::Answer::Honest],
        ..recipe.clone()
    };
    let cluster = objects.clone().cluster(recipe.karpenter);
    let mut status = plan::plan(&look(&honest, objects, cluster, relocation.clone())).status;
    (relocation.spec.mode, relocation.spec.suspend) = (mode, suspend);
    if status.nodes.is_empty() || status.completion_time.is_some() {
        return relocation;
    }
    let start = now().checked_sub(SignedDuration::from_secs(100)).unwrap();
    status.start_time = Some(Time(start));
    status.blockers.clear();
    // Only from Moving on each goes its own way.
    let alone = |s: Stage| (Stage::Moving..=Stage::Restoring).contains(&s);
    let stages = if alone(first) && alone(second) {
        [first, second]
    } else {
        [first, first]
    };
    for (node, stage) in status.nodes.iter_mut().zip(stages.into_iter().cycle()) {
        node.stage = stage;
    }
    let selected: Vec<_> = status.nodes.iter().map(|n| n.name.clone()).collect();
    for node in objects
        .of_mut("Node")
        .filter(|n| selected.iter().any(|s| s == n.text("/metadata/name")))
    {
        let marks = node.value["metadata"]["annotations"]
            .as_object_mut()
            .unwrap();
        if first > Stage::Protecting {
            for key in ["relocation.sh/claimed-by", "relocation.sh/protected-by"] {
                marks.insert(key.to_owned(), json!(OURS));
            }
            marks.insert("karpenter.sh/do-not-disrupt".to_owned(), json!("true"));
        }
        if first > Stage::Cordoning {
            marks.insert("relocation.sh/cordoned-by".to_owned(), json!(OURS));
            node.value["spec"]["unschedulable"] = json!(true);
        }
    }
    if first > Stage::Protecting {
        for pod in objects
            .of_mut("Pod")
            .filter(|p| selected.iter().any(|s| s == p.text("/spec/nodeName")))
        {
            let marks = &mut pod.value["metadata"]["annotations"];
            marks["relocation.sh/protected-by"] = json!(OURS);
            marks["karpenter.sh/do-not-disrupt"] = json!("true");
        }
    }
    relocation.status = Some(status);
    let mirror = relocation.spec.replacement.strategy == ReplacementStrategy::Mirror;
    if mirror && first > Stage::Cordoning {
        let honest = look(
            &honest,
            objects,
            objects.clone().cluster(recipe.karpenter),
            relocation.clone(),
        );
        let mut provisioning = honest.clone();
        for node in &mut provisioning.relocation.status.as_mut().unwrap().nodes {
            node.stage = Stage::Provisioning;
        }
        for (number, action) in plan::plan(&provisioning).actions.iter().enumerate() {
            if let Action::CreatePlaceholder(placeholder) = action {
                let node = (number % 2 == 0 || !recipe.some_places).then_some("new-0");
                objects.placeholder(
                    placeholder.pod.uid.as_str(),
                    placeholder.workload.uid.as_str(),
                    node,
                );
            }
        }
    }
    relocation
}

fn absurd(recipe: &Recipe) -> (Objects, World) {
    let mut objects = Objects::sane(recipe);
    let mut relocation = started(recipe, &mut objects);
    if recipe.deleting {
        relocation.metadata.deletion_timestamp = Some(Time(now()));
    }
    for change in &recipe.changes {
        objects.change(change);
    }
    let cluster = objects.cluster(recipe.karpenter);
    let world = look(recipe, &objects, cluster, relocation);
    (objects, world)
}

/// Plans and judges, and plans on what was recorded until nothing new is. Nothing of it is carried out.
fn judged(recipe: &Recipe, objects: &Objects, world: &World) -> Plan {
    let first = plan::plan(world);
    assert_eq!(first, plan::plan(world), "the same world, another plan");
    let mut world = world.clone();
    let mut last = first.clone();
    for _ in 0..12 {
        Judge::new(objects, &world).allows(&last);
        let before = world.relocation.status.clone().unwrap_or_default();
        let told = plan::notes(&before, &last.status);
        assert!(
            told.iter()
                .all(|note| !note.reason.is_empty() && !note.text.is_empty()),
            "{told:#?}"
        );
        if before == last.status {
            return first;
        }
        let mut relocation = world.relocation.clone();
        relocation.status = Some(last.status.clone());
        let Sight::Known(cluster) = &world.sight else {
            return first;
        };
        world = look(recipe, objects, (**cluster).clone(), relocation);
        last = plan::plan(&world);
    }
    panic!(
        "10: it records something new in each pass: {:#?}",
        last.status
    );
}

#[test]
fn no_world_makes_a_plan_panic_or_break_a_gate() {
    let seen = RefCell::new(BTreeSet::new());
    try_all(&recipe(), |recipe| {
        let (objects, world) = absurd(&recipe);
        let plan = judged(&recipe, &objects, &world);
        let keys = plan.actions.iter().map(|a| a.key().0);
        let verbs = keys.filter_map(|key| Some(key.split_once(' ')?.0.to_owned()));
        seen.borrow_mut().extend(verbs);
    });
    // Or the worlds are so absurd that nothing is ever done in them.
    let seen = seen.into_inner();
    for verb in [
        "claim",
        "cordon",
        "protect",
        "create",
        "evict",
        "restart",
        "surge",
        "cheapen",
        "release",
        "unprotect",
        "delete",
        "remove",
    ] {
        assert!(seen.contains(verb), "no {verb} in {seen:?}");
    }
}

#[test]
fn what_is_unknown_is_never_acted_on() {
    try_all(&recipe(), |recipe| {
        let (_, mut world) = absurd(&recipe);
        let unknown = Unknown {
            what: "pods".into(),
            why: "\u{1b}[31m".repeat(3000),
            forbidden: recipe.some_places,
        };
        let fresh: BTreeMap<_, _> = world
            .fresh
            .keys()
            .map(|n| (n.clone(), Fresh::Failed(unknown.clone())))
            .collect();
        // A node of which the read failed is not gone on with.
        world.fresh = fresh;
        let plan = plan::plan(&world);
        schema::check(&plan.status);
        assert!(
            !plan
                .actions
                .iter()
                .any(|a| matches!(a, Action::DeleteNodeClaim { .. })),
            "{:#?}",
            plan.actions
        );
        world.sight = Sight::Unknown(vec![unknown]);
        let plan = plan::plan(&world);
        schema::check(&plan.status);
        assert_eq!(plan.actions, []);
    });
}

#[test]
fn what_is_refused_is_told_and_not_asked_again_before_its_time() {
    let kinds = prop::sample::select(vec![
        RefusalKind::Budget,
        RefusalKind::SeveralBudgets,
        RefusalKind::Throttled,
        RefusalKind::Forbidden,
        RefusalKind::Denied,
        RefusalKind::Outdated,
        RefusalKind::Failed,
    ]);
    try_all(
        &(recipe(), kinds, any::<u32>()),
        |(recipe, kind, attempts)| {
            let (objects, mut world) = absurd(&recipe);
            let asked = plan::plan(&world).actions;
            let refusal = Refusal {
                object: "Pod \u{1b}\n".repeat(400),
                kind,
                message: "\u{0}\"💥".repeat(4000),
                until: Timestamp::MAX,
                attempts,
            };
            world.refusals = asked.iter().map(|a| (a.key(), refusal.clone())).collect();
            let plan = plan::plan(&world);
            let again: Vec<_> = plan
                .actions
                .iter()
                .filter(|a| world.refusals.contains_key(&a.key()))
                .collect();
            assert!(again.is_empty(), "{again:#?}");
            Judge::new(&objects, &world).allows(&plan);
        },
    );
}
