//! `cargo xtask bench plan`: how long a plan takes for 1,000 nodes with 10,000 pods.

use clap::Args;

use crate::cargo::{self, CargoError};

/// Plan the move of 10,000 pods off 1,000 nodes, and print how long each stage's plan takes (benches/plan.rs, a release build).
#[derive(Debug, Args)]
pub(crate) struct PlanBench {
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=1000))]
    nodes: u32,
}

impl PlanBench {
    /// True when it ran.
    pub(crate) async fn run(self) -> Result<bool, CargoError> {
        let Self { nodes } = self;
        let mut command = cargo::cargo();
        command.args(["bench", "--package", "relocator", "--bench", "plan", "--"]);
        command.arg(nodes.to_string());
        Ok(cargo::run(command).await?.success())
    }
}
