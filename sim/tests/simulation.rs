//! The simulation itself: the same seed is the same run, a known scenario ends as on the lab, planted bugs are found.

use sim::campaign::{Recipe, campaign};
use sim::fault::{Fault, Mutant};
use sim::profile::{Profile, Sort};
use sim::run::{End, run};
use sim::scenario::Named;

fn random(seed: u64, sort: Sort) -> Recipe {
    Recipe::Random {
        seed,
        sort: Some(sort),
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for sort in Sort::ALL {
        for seed in [3, 41] {
            let (_, first) = random(seed, sort).run();
            let (_, second) = random(seed, sort).run();
            assert_eq!(first.digest, second.digest, "seed {seed}, {sort}");
            assert_eq!(first.end, second.end, "seed {seed}, {sort}");
        }
    }
}

/// The figures that `tests/lab/drifted_pool.rs` and the demo assert of the real control plane.
#[test]
fn the_scenario_of_the_demo_ends_as_on_the_lab() {
    let outcome = run(&Named::Demo.scenario(), &Profile::calm(), 1);
    assert_eq!(outcome.wrong, Vec::<String>::new());
    assert_eq!(outcome.end, End::Over("Succeeded".to_owned()));
    let card = &outcome.card;
    assert!(card.finished);
    let figures = (
        card.pods,
        card.moves,
        card.needless_moves,
        card.double_moves,
    );
    assert_eq!(figures, (10, 10, 0, 0));
    assert_eq!((card.nodes.made, card.nodes.removed), (3, 3));
    let owner = |name: &str| {
        let owner = &card.owners[name];
        (owner.moves, owner.most_unavailable)
    };
    assert_eq!(owner("default/Deployment/web"), (6, 0));
    assert_eq!(owner("default/Deployment/session-server"), (1, 0));
    // Its own stops and starts, one pod at a time.
    assert_eq!(owner("default/StatefulSet/db"), (3, 1));
    assert_eq!(card.left_behind, Vec::<String>::new());
}

/// A restart of the database replaces all its pods one after the other, the highest ordinal first, and is asked for once.
#[test]
fn a_restart_replaces_the_pods_of_a_stateful_set_one_after_the_other() {
    let outcome = run(&Named::Restart.scenario(), &Profile::calm(), 1);
    assert_eq!(outcome.wrong, Vec::<String>::new());
    assert_eq!(outcome.end, End::Over("Succeeded".to_owned()));
    let db = &outcome.card.owners["default/StatefulSet/db"];
    assert_eq!((db.moves, db.most_unavailable), (3, 1));
}

/// Invariant 12, in each of the scenarios: the operator dies before and after every request.
#[test]
fn a_crash_at_any_request_leads_to_the_same_end() {
    for named in [
        Named::Demo,
        Named::Surge,
        Named::Evict,
        Named::Restart,
        Named::Undo,
    ] {
        let scenario = named.scenario();
        let whole = run(&scenario, &Profile::calm(), 1);
        assert_eq!(whole.wrong, Vec::<String>::new(), "{named:?}");
        // A scenario without requests would show nothing.
        assert!(whole.requests > 40, "{named:?}: {}", whole.requests);
        let recipes: Vec<_> = (0..whole.requests)
            .flat_map(|at| {
                [Fault::CrashBefore, Fault::CrashAfter].map(|fault| Recipe::Single {
                    named,
                    at,
                    fault,
                })
            })
            .collect();
        let report = campaign(&recipes, 2, None, |_| {});
        assert!(report.failures.is_empty(), "{named:?}: {report}");
        let End::Over(word) = &whole.end else {
            panic!("{named:?} ended so: {:?}", whole.end);
        };
        assert_eq!(report.ends.get(word), Some(&recipes.len()), "{report}");
    }
}

/// What the planted bug breaks, in the first words of the verdict, and the sort of faults that brings it out.
fn symptom(mutant: Mutant) -> (Sort, &'static [&'static str]) {
    match mutant {
        Mutant::NoUid => (Sort::Calm, &["1: an eviction without preconditions.uid"]),
        Mutant::UncordonOthers => (Sort::Calm, &["8: "]),
        Mutant::DoubleRestart => (Sort::Calm, &["9: "]),
        // Nodes that look empty are removed, pods that look gone are no reason to wait.
        Mutant::ActOnUnknown => (Sort::Requests, &["4: ", "5: ", "6: "]),
        // Either they are left, or the end is never reached for them.
        Mutant::PlaceholderLeak => (Sort::Calm, &["7: ", "14: "]),
    }
}

#[test]
fn every_planted_bug_is_found() {
    const SEEDS: u64 = 400;
    for mutant in Mutant::ALL {
        let (sort, words) = symptom(mutant);
        let found = (1..=SEEDS).find(|seed| {
            let (scenario, mut profile, start) = random(*seed, sort).prepare();
            profile.mutant = Some(mutant);
            let sick = run(&scenario, &profile, start);
            let is_it = |wrong: &String| words.iter().any(|w| wrong.starts_with(w));
            sick.wrong.iter().any(is_it)
        });
        let seed = found.unwrap_or_else(|| panic!("{mutant:?} is not found in {SEEDS} runs"));
        // The run tells the bug from the operator: without it, all is well.
        let (_, well) = random(seed, sort).run();
        assert_eq!(well.wrong, Vec::<String>::new(), "{mutant:?}, seed {seed}");
    }
}
