//! Random worlds, looked at late, acted on in part: every end is a good one, or says what blocks.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::Config;
use relocator::api::guards::Guard;
use relocator::plan;
use relocator::world::RolloutStrategy;
use serde_json::json;

use crate::nodes::{collect_garbage, unready, vanish};
use crate::oracle;
use crate::toy::{Toy, set_guard};

/// What a random world is made of.
#[derive(Clone, Debug)]
struct Recipe {
    /// For each workload: a `StatefulSet` or a Deployment, and where its pods are.
    workloads: Vec<(bool, Vec<usize>)>,
    selected: Vec<bool>,
    cordoned: Vec<bool>,
    protected: Vec<bool>,
    budgets: Vec<bool>,
    max_unavailable: u32,
    after_drain: usize,
    places: bool,
    batch: &'static str,
    /// How far behind each look is, and how many of the planned actions are carried out before a crash: in turn.
    lags: Vec<(bool, usize)>,
}

const NODES: usize = 3;

fn recipe() -> impl Strategy<Value = Recipe> {
    let workload = (any::<bool>(), prop::collection::vec(0..NODES, 1..4));
    (
        prop::collection::vec(workload, 1..4),
        prop::collection::vec(any::<bool>(), NODES),
        prop::collection::vec(prop::bool::weighted(0.2), NODES),
        prop::collection::vec(prop::bool::weighted(0.2), NODES),
        prop::collection::vec(any::<bool>(), 4),
        0_u32..2,
        0_usize..3,
        any::<bool>(),
        prop::sample::select(vec!["100%", "100%", "50%", "1%"]),
        prop::collection::vec((any::<bool>(), 0_usize..4), 1..12),
    )
        .prop_map(
            |(
                workloads,
                selected,
                cordoned,
                protected,
                budgets,
                max_unavailable,
                after_drain,
                places,
                batch,
                lags,
            )| Recipe {
                workloads,
                selected,
                cordoned,
                protected,
                budgets,
                max_unavailable,
                after_drain,
                places,
                batch,
                lags,
            },
        )
}

fn world(recipe: &Recipe) -> Toy {
    let names: Vec<_> = (0..NODES)
        .filter(|n| recipe.selected[*n])
        .map(|n| format!("old-{n}"))
        .collect();
    let names = if names.is_empty() {
        vec!["old-0".to_owned()]
    } else {
        names
    };
    let after_drain = ["Delete", "Keep", "Uncordon"][recipe.after_drain];
    let places = if recipe.places { "Mirror" } else { "None" };
    let spec = json!({"nodes": {"names": names}, "batchSize": recipe.batch, "afterDrain": after_drain, "replacement": {"strategy": places}});
    let mut toy = Toy::new(spec);
    toy.autoscaled = true;
    for n in 0..NODES {
        let name = format!("old-{n}");
        toy.drifted(&name);
        let node = toy.by_name(&name);
        node.unschedulable = recipe.cordoned[n];
        if recipe.protected[n] {
            for guard in Guard::ALL {
                set_guard(&mut node.marks, guard, "true");
            }
        }
    }
    for (index, (stateful, places)) in recipe.workloads.iter().enumerate() {
        let name = format!("w{index}");
        let nodes: Vec<_> = places.iter().map(|n| format!("old-{n}")).collect();
        let nodes: Vec<_> = nodes.iter().map(String::as_str).collect();
        if *stateful {
            toy.stateful_set(&name, &nodes);
        } else {
            let strategy = RolloutStrategy::RollingUpdate {
                max_surge: 1,
                max_unavailable: recipe.max_unavailable,
            };
            toy.deployment(&name, &nodes, strategy);
        }
        if recipe.budgets[index] {
            toy.budget(&name, &name, i32::try_from(nodes.len()).unwrap() - 1);
        }
    }
    toy.tick();
    toy
}

/// What happens to a node, in which round.
#[derive(Clone, Copy, Debug)]
enum Misfortune {
    /// Its kubelet is away for so many rounds.
    Silent(usize),
    /// It is gone, and Kubernetes removes its pods so many rounds later.
    Gone(usize),
}

/// The round since the start, which of the nodes there are then, and what happens to it.
fn misfortunes() -> impl Strategy<Value = Vec<(usize, usize, Misfortune)>> {
    let what = prop_oneof![
        (1_usize..40).prop_map(Misfortune::Silent),
        (1_usize..20).prop_map(Misfortune::Gone),
    ];
    prop::collection::vec((0_usize..60, 0_usize..8, what), 1..4)
}

/// Lets misfortune happen, and end. True when it has just happened.
fn strike(toy: &mut Toy, round: usize, misfortunes: &[(usize, usize, Misfortune)]) -> bool {
    let mut struck = false;
    // What happens at its very end comes too late.
    let ends = ["Restoring", "Succeeded"].contains(&toy.stage().as_str());
    for (at, which, what) in misfortunes {
        let (Misfortune::Silent(rounds) | Misfortune::Gone(rounds)) = what;
        if *at == round && !ends {
            struck = true;
            let names = toy.cluster.nodes.values().map(|n| n.name.to_string());
            let names: Vec<_> = names.collect();
            match (names.iter().cycle().nth(*which), what) {
                (Some(name), Misfortune::Silent(_)) => unready(toy, name),
                (Some(name), Misfortune::Gone(_)) => vanish(toy, name),
                (None, _) => {}
            }
        }
        if at + rounds == round {
            for node in toy.cluster.nodes.clone().values() {
                toy.node_mut(&node.uid).ready = true;
            }
            collect_garbage(toy);
        }
    }
    struck
}

/// Runs the world to its end, if it comes to one. Returns it as it was before, and after.
fn run(recipe: &Recipe, misfortunes: &[(usize, usize, Misfortune)]) -> (Toy, Toy) {
    let mut toy = world(recipe);
    let before = toy.clone();
    let mut earlier = Arc::new(toy.cluster.clone());
    let mut since_start = 0;
    for round in 0..600 {
        if toy.is_over() {
            break;
        }
        // Before it has begun, a node that is gone is none that was asked for.
        let mut struck = false;
        if toy.status().start_time.is_some() {
            struck = strike(&mut toy, since_start, misfortunes);
            since_start += 1;
        }
        let (late, carried_out) = recipe.lags[round % recipe.lags.len()];
        // Nobody can know that a node is lost in the moment in which it is, and what is told of it at the end has to be true.
        let late = late && !struck;
        let now = Arc::new(toy.cluster.clone());
        // The watch may be a round behind; the relocation and fresh reads never are.
        let world = toy.look_at(if late {
            Arc::clone(&earlier)
        } else {
            Arc::clone(&now)
        });
        earlier = now;
        let plan = plan::plan(&world);
        toy.record(&plan);
        // A crash lets only some of the actions be carried out; every third round none is missing, or nothing would ever end.
        let most = if round % 3 == 0 {
            plan.actions.len()
        } else {
            carried_out
        };
        for action in plan.actions.iter().take(most) {
            // What is refused for its precondition does no harm; what is not is judged by what it does.
            if !late {
                oracle::allows(&toy, action);
            }
            toy.carry_out(action);
        }
        toy.tick();
    }
    (before, toy)
}

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_end_is_a_good_one_when_nodes_fail(recipe in recipe(), misfortunes in misfortunes()) {
        let (before, toy) = run(&recipe, &misfortunes);
        prop_assert!(toy.is_over(), "{:#?}", toy.status());
        prop_assert_eq!(toy.stage(), "Succeeded");
        oracle::nothing_is_left(&before, &toy, recipe.after_drain == 1);
        let gone = |name: &str| toy.cluster.node_named(&name.into()).is_none();
        let works = toy.status().workloads;
        let moved = |app: &str| works.iter().any(|w| w.name == app);
        for pod in toy.cluster.pods.values().filter(|p| moved(&p.labels["app"])) {
            let name = pod.node.as_ref().unwrap().as_str();
            prop_assert!(!gone(name), "{} is on {name}, which is gone", pod.reference);
            let was_selected = toy.status().nodes.iter().any(|n| n.name == name);
            prop_assert!(!was_selected || recipe.after_drain == 2, "{} is on {name}", pod.reference);
        }
    }

    #[test]
    fn every_end_is_a_good_one(recipe in recipe()) {
        let (before, toy) = run(&recipe, &[]);
        prop_assert!(toy.is_over(), "{:#?}", toy.status());
        prop_assert_eq!(toy.stage(), "Succeeded");
        let delete = recipe.after_drain == 0;
        oracle::nothing_is_left(&before, &toy, recipe.after_drain == 1);
        for pod in toy.cluster.pods.values() {
            prop_assert!(pod.ready, "{} is not Ready", pod.reference);
            let on = pod.node.as_ref().and_then(|n| toy.cluster.node_named(n)).unwrap();
            let was_selected = toy.status().nodes.iter().any(|n| n.uid == on.uid.as_str());
            prop_assert!(!was_selected || recipe.after_drain == 2, "{} is on {}", pod.reference, on.name);
        }
        for record in toy.status().nodes {
            let there = toy.cluster.nodes.contains_key(&record.uid.as_str().into());
            prop_assert_eq!(there, !delete, "{} after {}", record.name, ["Delete", "Keep", "Uncordon"][recipe.after_drain]);
        }
    }
}
