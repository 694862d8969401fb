//! Many runs, on all cores, and what is reported of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::fault::Fault;
use crate::profile::{Profile, Sort};
use crate::run::{End, Outcome, run};
use crate::scenario::{self, Named, Scenario};
use crate::wire::lock;

/// What a run is made from.
#[derive(Clone, Debug)]
pub enum Recipe {
    /// A scenario and a profile by the seed; the sort of faults too, if none is given.
    Random { seed: u64, sort: Option<Sort> },
    /// One fault at one request of a fixed scenario.
    Single {
        named: Named,
        at: usize,
        fault: Fault,
    },
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random { seed, sort: None } => write!(f, "--seed {seed} --runs 1"),
            Self::Random {
                seed,
                sort: Some(sort),
            } => write!(f, "--seed {seed} --runs 1 (sort: {sort})"),
            Self::Single { named, at, fault } => write!(f, "{named:?}, request {at}: {fault}"),
        }
    }
}

impl Recipe {
    /// The scenario, the profile and the seed of the run.
    #[must_use]
    pub fn prepare(&self) -> (Scenario, Profile, u64) {
        match self {
            Self::Random { seed, sort } => {
                let mut rng = Rng::with_seed(*seed);
                let scenario = scenario::random(&mut rng);
                let by_seed = Sort::ALL[rng.usize(..Sort::ALL.len())];
                let profile = Profile::random(sort.unwrap_or(by_seed), &mut rng);
                (scenario, profile, rng.u64(..))
            }
            Self::Single { named, at, fault } => (named.scenario(), Profile::one(*at, *fault), 1),
        }
    }

    /// Runs it.
    #[must_use]
    pub fn run(&self) -> (Profile, Outcome) {
        let (scenario, profile, seed) = self.prepare();
        let outcome = run(&scenario, &profile, seed);
        (profile, outcome)
    }
}

/// Every fault at every request of the scenario.
#[must_use]
pub fn sweep(named: Named) -> Vec<Recipe> {
    let outcome = run(&named.scenario(), &Profile::calm(), 1);
    (0..outcome.requests)
        .flat_map(|at| Fault::ALL.map(|fault| Recipe::Single { named, at, fault }))
        .collect()
}

/// A run that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    pub recipe: String,
    pub wrong: Vec<String>,
}

/// What came of many runs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub runs: usize,
    pub by_sort: BTreeMap<Sort, usize>,
    pub ends: BTreeMap<String, usize>,
    pub faults: BTreeMap<String, u64>,
    pub requests: usize,
    pub moves: u64,
    pub failures: Vec<Failure>,
    pub time: Duration,
}

impl Report {
    fn add(&mut self, recipe: &Recipe, profile: &Profile, outcome: Outcome) {
        self.runs += 1;
        *self.by_sort.entry(profile.sort).or_default() += 1;
        let end = match &outcome.end {
            End::Over(words) => words.clone(),
            End::Blocked(why) => format!("Blocked ({why}), then deleted"),
            End::Never(_) => "no end".to_owned(),
        };
        *self.ends.entry(end).or_default() += 1;
        for (kind, count) in outcome.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.requests += outcome.requests;
        self.moves += u64::from(outcome.moves);
        if !outcome.wrong.is_empty() {
            self.failures.push(Failure {
                recipe: recipe.to_string(),
                wrong: outcome.wrong,
            });
        }
    }
}

/// How long the longest list of a report is.
const MOST: usize = 20;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        writeln!(
            f,
            "{} runs in {seconds:.0} s, {} requests of the operator, {} pods moved",
            self.runs, self.requests, self.moves
        )?;
        writeln!(f, "by sort of faults:")?;
        for (sort, runs) in &self.by_sort {
            writeln!(f, "  {runs:>8}  {sort}")?;
        }
        writeln!(f, "faults given:")?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {count:>8}  {kind}")?;
        }
        writeln!(f, "ends:")?;
        let mut ends: Vec<_> = self.ends.iter().collect();
        ends.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (end, count) in ends.iter().take(MOST) {
            writeln!(f, "  {count:>8}  {end}")?;
        }
        if ends.len() > MOST {
            let rest: usize = ends.iter().skip(MOST).map(|(_, count)| **count).sum();
            writeln!(f, "  {rest:>8}  of {} other sorts", ends.len() - MOST)?;
        }
        let judged: Vec<String> = lab::judge::invariants::JUDGED
            .iter()
            .map(ToString::to_string)
            .collect();
        writeln!(
            f,
            "invariants judged in each run: {}, 12 and 14 (every run comes to a good end)",
            judged.join(", ")
        )?;
        writeln!(f, "runs that went wrong: {}", self.failures.len())?;
        for failure in self.failures.iter().take(MOST) {
            writeln!(f, "  {}", failure.recipe)?;
            for wrong in failure.wrong.iter().take(5) {
                writeln!(f, "      {wrong}")?;
            }
        }
        if self.failures.len() > MOST {
            writeln!(f, "  and {} more", self.failures.len() - MOST)?;
        }
        Ok(())
    }
}

/// Runs all of them on so many threads, or as many as there is time for. Tells how far it is every few seconds.
#[must_use]
pub fn campaign(
    recipes: &[Recipe],
    threads: usize,
    budget: Option<Duration>,
    tell: impl Fn(&Report) + Sync,
) -> Report {
    /// How often a person hears of it.
    const NEWS: Duration = Duration::from_secs(10);
    let began = Instant::now();
    let report = Mutex::new((Report::default(), began));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while budget.is_none_or(|budget| began.elapsed() < budget) {
                    let Some(recipe) = recipes.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    let (profile, outcome) = recipe.run();
                    let mut report = lock(&report);
                    report.0.add(recipe, &profile, outcome);
                    if report.1.elapsed() > NEWS {
                        report.1 = Instant::now();
                        report.0.time = began.elapsed();
                        tell(&report.0);
                    }
                }
            });
        }
    });
    let mut report = lock(&report).0.clone();
    report.time = began.elapsed();
    report
}
