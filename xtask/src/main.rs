//! `cargo xtask`: what people who work on relocator do with one command.
//!
//! ```text
//! demo bench test sim crd manifests labs   one command each
//! scene                       a lab in which the node pool has drifted and Karpenter is stuck
//! way                         how its nodes are emptied: by relocator, by kubectl drain, by hand
//! live moves                  the view of a relocation while it runs
//! report                      the judge's figures in words
//! cargo group clock text      programs of the toolchain, processes, times, columns
//! ```

mod bench;
mod cargo;
mod clock;
mod crd;
mod demo;
mod group;
mod labs;
mod live;
mod manifests;
mod moves;
mod report;
mod scene;
mod sim;
mod test;
mod text;
mod way;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Development commands of relocator. Whatever they start ends with them, also on Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Test(test::Test),
    Sim(sim::Sim),
    Bench(bench::Bench),
    Crd(crd::Crd),
    Manifests(manifests::Manifests),
    Lab(labs::Labs),
}

/// Why a command could not do what it is for. A run that was judged and found wanting is not an error.
#[derive(Debug, thiserror::Error)]
enum Fatal {
    #[error(transparent)]
    Cargo(#[from] cargo::CargoError),
    #[error(transparent)]
    Crd(#[from] crd::CrdError),
    #[error(transparent)]
    Manifests(#[from] manifests::ManifestsError),
    #[error(transparent)]
    Demo(#[from] demo::DemoError),
    #[error(transparent)]
    Bench(#[from] bench::BenchError),
    #[error(transparent)]
    Test(#[from] test::TestError),
    #[error(transparent)]
    Labs(#[from] labs::LabsError),
}

/// What a shell says of a command that a Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let command = Cli::parse().command;
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ]
    .map(signal);
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else {
        eprintln!("cargo xtask: can't listen for signals, so a Ctrl-C would leave programs behind");
        return ExitCode::FAILURE;
    };
    // Dropping the command's future is what ends everything that it has started.
    let code = tokio::select! {
        result = run(command) => match result {
            Ok(true) => return ExitCode::SUCCESS,
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("\ncargo xtask: {}", text::with_causes(&error));
                return ExitCode::FAILURE;
            }
        },
        _ = interrupt.recv() => INTERRUPTED,
        _ = terminate.recv() => INTERRUPTED,
        _ = hangup.recv() => INTERRUPTED,
    };
    eprintln!("\ncargo xtask: interrupted; all that it had started has ended");
    // Not by returning: the runtime would wait for a build in a blocking thread. The compiler ends with us.
    std::process::exit(i32::from(code))
}

/// True when all went well.
async fn run(command: Command) -> Result<bool, Fatal> {
    match command {
        Command::Demo(demo) => Ok(demo.run().await?),
        Command::Test(test) => Ok(test.run().await?),
        Command::Sim(sim) => Ok(sim.run().await?),
        Command::Bench(bench) => Ok(bench.run().await?),
        Command::Crd(crd) => Ok(crd.run().await?),
        Command::Manifests(manifests) => Ok(manifests.run().await?),
        Command::Lab(labs) => Ok(labs.run().await?),
    }
}
