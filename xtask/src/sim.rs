//! `cargo xtask sim`: the operator in a simulated cluster, with every fault there is.

use std::process::Command;

use clap::Args;

use crate::cargo::{self, CargoError};
use crate::text;

/// Run the real operator in a simulated cluster, in virtual time, with crashes, refused and lost requests, watches that lag, a second
/// leader, and people who interfere. Each seed is one run, the same on every machine.
#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// The first seed; each further run takes the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs. With 1, the whole story of the run is printed.
    #[arg(long, default_value_t = 1000)]
    runs: u64,
    /// Anything else for the simulation, such as --sort crashes or --sweep demo; --help lists it.
    #[arg(last = true)]
    more: Vec<String>,
}

impl Sim {
    /// True when no run went wrong.
    pub(crate) async fn run(self) -> Result<bool, CargoError> {
        let mut command = command();
        let (seed, runs) = (self.seed.to_string(), self.runs.to_string());
        command.args(["--seed", &seed, "--runs", &runs]);
        command.args(&self.more);
        println!("{}", text::command(&command));
        Ok(cargo::run(command).await?.success())
    }
}

/// The simulation, to be given its arguments.
pub(crate) fn command() -> Command {
    let mut command = cargo::cargo();
    // With the features of the tests, or the operator would be built once more for it.
    let features = "relocator/crash-test";
    command.args(["run", "--quiet", "--package", "relocator-sim"]);
    command.args(["--features", features, "--"]);
    command
}
