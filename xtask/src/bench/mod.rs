//! `cargo xtask bench`: three ways to empty the same nodes, side by side; a fleet; planning.

mod fleet;
mod plan;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lab::PodTimes;
use lab::judge::Scorecard;
use serde::Serialize;

use crate::cargo::{self, CargoError, Profile};
use crate::clock::Clock;
use crate::scene::{self, Scene, SceneError};
use crate::way::{self, Relocated, Way, WayError};

/// Empty the same drifted nodes by relocator, by kubectl drain and by hand, and compare what it did to the workloads.
///
/// Each way has a control plane of its own, one after the other. All figures are the judge's. kubectl drain never
/// finishes, because of the budget of the session server, and is ended after two minutes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: Option<What>,
    /// How often to do all of it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Write the scorecards there, as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    Fleet(fleet::FleetBench),
    Plan(plan::PlanBench),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Fleet(#[from] fleet::FleetError),
    #[error(transparent)]
    Cargo(#[from] CargoError),
    #[error(transparent)]
    Scene(#[from] SceneError),
    #[error("{way}: {source}")]
    Way { way: Way, source: WayError },
    #[error("writing the figures to {}: {source}", path.display())]
    Out { path: PathBuf, source: io::Error },
}

/// One run of each.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    relocator: Scorecard,
    kubectl_drain: Scorecard,
    by_hand: Scorecard,
    ratios: Ratios,
}

/// relocator compared with the hand procedure in the same run. None where there is nothing to divide by.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ratios {
    wall: Option<f64>,
    requests_per_move: Option<f64>,
    unavailable_pod_seconds: Option<f64>,
}

impl Bench {
    pub(crate) async fn run(self) -> Result<bool, BenchError> {
        let Self { what, runs, out } = self;
        match what {
            Some(What::Fleet(fleet)) => return Ok(fleet.run().await?),
            Some(What::Plan(plan)) => return Ok(plan.run().await?),
            None => {}
        }
        let mut clock = Clock::start();
        let build = cargo::build_operator(Profile::Dev);
        let binary = clock.shown("building the operator", build).await?;
        scene::ensure_programs(&mut clock).await?;
        let mut all = Vec::new();
        for number in 1..=runs {
            if runs > 1 {
                clock.say(&format!("Run {number} of {runs}"));
            }
            let relocator = one(Way::Relocator, &mut clock, &binary).await?;
            let kubectl_drain = one(Way::Drain, &mut clock, &binary).await?;
            let by_hand = one(Way::Hand, &mut clock, &binary).await?;
            let run = Run {
                ratios: Ratios::of(&relocator, &by_hand),
                relocator,
                kubectl_drain,
                by_hand,
            };
            println!("\n{}", run.table());
            all.push(run);
        }
        println!("{}", clock.summary());
        if let Some(path) = out {
            write(&path, &all)?;
            println!("Wrote {}.", path.display());
        }
        Ok(all.iter().all(|run| run.relocator.finished))
    }
}

async fn one(way: Way, clock: &mut Clock, binary: &Path) -> Result<Scorecard, BenchError> {
    clock.say(&format!("--- {way} ---"));
    let scene = Scene::set(clock, PodTimes::General, None).await?;
    let result = match way {
        Way::Relocator => way::relocate(&scene, clock, binary).await.map(|relocated| {
            let Relocated {
                card,
                succeeded: _,
                operator,
            } = relocated;
            drop(operator);
            card
        }),
        Way::Drain => way::drain(&scene, clock).await,
        Way::Hand => way::by_hand(&scene, clock).await,
    };
    scene.leave().await?;
    result.map_err(|source| BenchError::Way { way, source })
}

impl Run {
    fn table(&self) -> String {
        let Self {
            relocator,
            kubectl_drain,
            by_hand,
            ratios,
        } = self;
        let names = [Way::Relocator, Way::Drain, Way::Hand].map(|way| way.to_string());
        let [relocator_name, drain_name, hand_name] = &names;
        let mut out = Scorecard::table(&[
            (relocator_name.as_str(), relocator),
            (drain_name.as_str(), kubectl_drain),
            (hand_name.as_str(), by_hand),
        ]);
        let shown = |ratio: Option<f64>| {
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        let _ = writeln!(
            out,
            "\nrelocator / by hand: time {}, requests a move {}, pod-seconds below the replica count {}",
            shown(ratios.wall),
            shown(ratios.requests_per_move),
            shown(ratios.unavailable_pod_seconds),
        );
        for (way, card) in names.iter().zip([relocator, kubectl_drain, by_hand]) {
            for broken in &card.broken_invariants {
                let _ = writeln!(out, "{way}: broken invariant {broken}");
            }
        }
        out
    }
}

impl Ratios {
    fn of(relocator: &Scorecard, by_hand: &Scorecard) -> Self {
        let divide = |a: f64, b: f64| (b > 0.0).then(|| a / b);
        let lost = |card: &Scorecard| -> f64 {
            card.owners
                .values()
                .map(|owner| owner.unavailable_pod_seconds)
                .sum()
        };
        let requests = relocator.requests_per_move.zip(by_hand.requests_per_move);
        Self {
            wall: divide(relocator.wall_seconds, by_hand.wall_seconds),
            requests_per_move: requests.and_then(|(ours, theirs)| divide(ours, theirs)),
            unavailable_pod_seconds: divide(lost(relocator), lost(by_hand)),
        }
    }
}

fn write(path: &Path, runs: &[Run]) -> Result<(), BenchError> {
    let failed = |source| BenchError::Out {
        path: path.to_owned(),
        source,
    };
    let value = serde_json::json!({ "runs": runs });
    std::fs::write(path, format!("{value:#}\n")).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_needs_something_to_divide_by() {
        let hand = Scorecard {
            wall_seconds: 40.0,
            requests_per_move: Some(2.0),
            ..Scorecard::default()
        };
        let ours = Scorecard {
            wall_seconds: 20.0,
            requests_per_move: Some(5.0),
            ..Scorecard::default()
        };
        let ratios = Ratios::of(&ours, &hand);
        assert_eq!(ratios.wall, Some(0.5));
        assert_eq!(ratios.requests_per_move, Some(2.5));
        assert_eq!(ratios.unavailable_pod_seconds, None);
    }
}
