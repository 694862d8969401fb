//! `cargo xtask test`: every check that there is.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use lab::programs::{self, ProgramsError};

use crate::cargo::{self, CargoError};
use crate::clock::Clock;
use crate::scene::{self, SceneError};
use crate::sim;
use crate::text;

/// Format, clippy, dependencies, all tests, those on a control plane included, and ten thousand simulated runs.
///
/// Without options everything; with one of --unit and --lab only that part.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// What needs no control plane: format, clippy, dependencies, unit and property tests, simulated runs.
    #[arg(long)]
    unit: bool,
    /// The tests on a control plane, and the others in tests/ folders.
    #[arg(long)]
    lab: bool,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TestError {
    #[error(transparent)]
    Cargo(#[from] CargoError),
    #[error(transparent)]
    Scene(#[from] SceneError),
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    #[error("{what} {}: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// The cargo-deny that deny.toml is written for.
const CARGO_DENY: &str = "0.20.2";

/// A lab takes two cores when it is busy, and most of a gigabyte: more tests at once than this only wait for each other.
const MOST_TESTS_AT_ONCE: usize = 8;

/// Lets the operator be told to die, for the tests that do so.
const CRASH: &str = "relocator/crash-test";

/// One check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Format,
    Clippy,
    Deny,
    /// Unit and property tests, and those in the documentation.
    UnitTests,
    DocTests,
    /// tests/ of every package.
    LabTests,
    /// All of the three, in one call, so that a failure of one is seen with the others.
    AllTests,
    /// Seeded runs of the simulation, as many as fit into a fixed time.
    Simulation,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Clippy => "clippy",
            Self::Deny => "dependencies: bans, licenses, sources",
            Self::UnitTests => "unit and property tests",
            Self::DocTests => "documentation tests",
            Self::LabTests => "tests on a control plane",
            Self::AllTests => "unit, property, documentation and control plane tests",
            Self::Simulation => "simulated runs with faults",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Format => &["fmt", "--all", "--check"],
            Self::Clippy => &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--all-features",
                "--",
                "-D",
                "warnings",
            ],
            Self::Deny => &["check", "bans", "licenses", "sources"],
            Self::UnitTests => &[
                "test",
                "--workspace",
                "--features",
                CRASH,
                "--lib",
                "--bins",
            ],
            Self::DocTests => &["test", "--workspace", "--features", CRASH, "--doc"],
            Self::LabTests => &["test", "--workspace", "--features", CRASH, "--test", "*"],
            Self::AllTests => &["test", "--workspace", "--features", CRASH],
            // Ten thousand take less on two cores; a slow machine does as many as it can.
            Self::Simulation => &["--seed", "1", "--runs", "10000", "--seconds", "300"],
        }
    }

    /// Whether it starts labs.
    fn needs_programs(self) -> bool {
        match self {
            Self::Format
            | Self::Clippy
            | Self::Deny
            | Self::UnitTests
            | Self::DocTests
            | Self::Simulation => false,
            Self::LabTests | Self::AllTests => true,
        }
    }
}

/// How a check went.
struct Outcome {
    step: Step,
    passed: bool,
    time: Duration,
}

impl Test {
    pub(crate) async fn run(self) -> Result<bool, TestError> {
        let steps = self.steps();
        let mut clock = Clock::start();
        // First, as it takes longest where it is needed, and a missing Go should not be found after an hour.
        if steps.iter().any(|step| step.needs_programs()) {
            scene::ensure_programs(&mut clock).await?;
        }
        let mut outcomes = Vec::new();
        for (index, step) in steps.iter().copied().enumerate() {
            let began = Instant::now();
            let command = match step {
                Step::Deny => cargo_deny(&clock).await?,
                Step::Simulation => sim::command(),
                _ => cargo::cargo(),
            };
            let command = complete(step, command, self.keep_going);
            let number = index + 1;
            let shown = text::command(&command);
            println!();
            clock.say(&format!(
                "{number}/{}: {}: {shown}",
                steps.len(),
                step.name()
            ));
            let passed = cargo::run(command).await?.success();
            let time = began.elapsed();
            let word = if passed { "passed" } else { "FAILED" };
            clock.say(&format!(
                "{}: {word} in {}",
                step.name(),
                text::duration(time)
            ));
            outcomes.push(Outcome { step, passed, time });
            if !passed && !self.keep_going {
                break;
            }
        }
        println!("\n{}", summary(&steps, &outcomes));
        println!("{}", clock.summary());
        Ok(outcomes.len() == steps.len() && outcomes.iter().all(|outcome| outcome.passed))
    }

    fn steps(&self) -> Vec<Step> {
        let checks = [Step::Format, Step::Clippy, Step::Deny];
        match (self.unit, self.lab) {
            (true, false) => {
                let tests = [Step::UnitTests, Step::DocTests, Step::Simulation];
                [&checks[..], &tests].concat()
            }
            (false, true) => vec![Step::LabTests],
            (true, true) | (false, false) => {
                [&checks[..], &[Step::AllTests, Step::Simulation]].concat()
            }
        }
    }
}

fn complete(step: Step, mut command: Command, keep_going: bool) -> Command {
    command.args(step.arguments());
    let is_test = matches!(
        step,
        Step::UnitTests | Step::DocTests | Step::LabTests | Step::AllTests
    );
    if is_test && keep_going {
        command.arg("--no-fail-fast");
    }
    if is_test && std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min((cores / 2).clamp(2, MOST_TESTS_AT_ONCE));
        command.env("RUST_TEST_THREADS", threads.to_string());
    }
    command
}

/// cargo-deny from the cache, built first where it is not there.
async fn cargo_deny(clock: &Clock) -> Result<Command, TestError> {
    let root = programs::cache_dir()?.join(format!("cargo-deny-{CARGO_DENY}"));
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        clock.say(&format!(
            "cargo-deny {CARGO_DENY} is not there; building it, once, takes some minutes"
        ));
        install(&root).await?;
    }
    let mut command = Command::new(program);
    command.current_dir(cargo::repository()).arg("--locked");
    clock.say(
        "its advisories need a database from the network, and are checked with a release, not here",
    );
    Ok(command)
}

async fn install(root: &Path) -> Result<(), TestError> {
    let build = root.join("build");
    std::fs::create_dir_all(&build).map_err(|source| TestError::Io {
        what: "making the folder",
        path: build.clone(),
        source,
    })?;
    let mut command = cargo::cargo();
    command
        .args(["install", "--locked", "--version", CARGO_DENY, "--root"])
        .arg(root)
        .arg("--target-dir")
        .arg(&build)
        .arg("cargo-deny");
    let shown = text::command(&command);
    let status = cargo::run(command).await?;
    if !status.success() {
        let command = shown;
        return Err(CargoError::Failed { command, status }.into());
    }
    // Hundreds of megabytes that nobody needs again.
    std::fs::remove_dir_all(&build).map_err(|source| TestError::Io {
        what: "removing",
        path: build,
        source,
    })
}

fn summary(steps: &[Step], outcomes: &[Outcome]) -> String {
    let rows: Vec<[String; 3]> = steps
        .iter()
        .map(|step| {
            let outcome = outcomes.iter().find(|outcome| outcome.step == *step);
            let (word, time) = match outcome {
                None => ("not run", String::new()),
                Some(Outcome {
                    passed: true, time, ..
                }) => ("passed", text::duration(*time)),
                Some(Outcome { time, .. }) => ("FAILED", text::duration(*time)),
            };
            [format!("  {word}"), step.name().to_owned(), time]
        })
        .collect();
    format!("Checks:\n{}\n", text::columns(&rows).join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_options_everything_runs_once() {
        let all = Test {
            unit: false,
            lab: false,
            keep_going: false,
        };
        assert_eq!(
            all.steps(),
            [
                Step::Format,
                Step::Clippy,
                Step::Deny,
                Step::AllTests,
                Step::Simulation
            ]
        );
    }

    #[test]
    fn a_check_that_was_not_reached_is_named() {
        let outcomes = [Outcome {
            step: Step::Format,
            passed: false,
            time: Duration::from_secs(1),
        }];
        let text = summary(&[Step::Format, Step::Clippy], &outcomes);
        assert!(text.contains("FAILED   format"), "{text}");
        assert!(text.contains("not run  clippy"), "{text}");
    }
}
