//! The command line of the simulation.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use sim::campaign::{Recipe, campaign, sweep};
use sim::profile::Sort;
use sim::scenario::Named;

/// Runs the real operator in a simulated cluster, in virtual time, with every fault there is.
#[derive(Parser)]
struct Cli {
    /// The first seed; each further run takes the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs. With 1, the whole story of the run is printed.
    #[arg(long, default_value_t = 1000)]
    runs: u64,
    /// Only faults of this sort; by default the seed chooses.
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// Instead of random runs: every fault at every request of this scenario.
    #[arg(long, value_enum)]
    sweep: Option<Named>,
    /// End after so many seconds, however many runs that is.
    #[arg(long)]
    seconds: Option<u64>,
    /// Runs at a time; by default one a core.
    #[arg(long)]
    jobs: Option<usize>,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    let cli = Cli::parse();
    if cli.runs == 1 && cli.sweep.is_none() {
        return one(&cli);
    }
    let recipes = match cli.sweep {
        Some(named) => sweep(named),
        None => (cli.seed..cli.seed.saturating_add(cli.runs))
            .map(|seed| Recipe::Random {
                seed,
                sort: cli.sort,
            })
            .collect(),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let report = campaign(
        &recipes,
        cli.jobs.unwrap_or(cores),
        cli.seconds.map(Duration::from_secs),
        |so_far| {
            println!(
                "{} of {} runs, {:.0} s, {} went wrong",
                so_far.runs,
                recipes.len(),
                so_far.time.as_secs_f64(),
                so_far.failures.len()
            );
        },
    );
    println!("\n{report}");
    if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// One run, told in full.
fn one(cli: &Cli) -> ExitCode {
    let recipe = Recipe::Random {
        seed: cli.seed,
        sort: cli.sort,
    };
    let (scenario, profile, _) = recipe.prepare();
    println!("{profile:#?}");
    for (resource, object) in scenario.objects {
        println!("{} {object}", resource.kind());
    }
    for (after, relocation) in scenario.relocations {
        println!("after {after:.1} s: {relocation}");
    }
    let (_, outcome) = recipe.run();
    for line in &outcome.story {
        println!("{line}");
    }
    println!("{:#?}", outcome.card);
    println!(
        "{:?}, {} requests, digest {:x}",
        outcome.end, outcome.requests, outcome.digest
    );
    for wrong in &outcome.wrong {
        println!("WRONG {wrong}");
    }
    if outcome.wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
