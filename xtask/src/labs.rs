//! `cargo xtask lab`: control planes for people.

use clap::{Args, Subcommand, ValueEnum};
use lab::detached::{self, DEFAULT_NAME, DetachedError};
use lab::{AuditLevel, LabOptions, PodTimes};

use crate::clock::Clock;

/// Start, end and list control planes that outlive the command.
#[derive(Debug, Args)]
pub(crate) struct Labs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Start a control plane, and print its kubeconfig and what to try next.
    Up {
        /// Without Karpenter: nodes come from you, as in `lab::fixtures::fake_node`.
        #[arg(long)]
        no_karpenter: bool,
        /// How long pods take to start, to be ready and to stop.
        #[arg(long, value_enum, default_value_t = Times::General)]
        pod_times: Times,
        /// Its name; there may be any number of others.
        #[arg(long, default_value = DEFAULT_NAME)]
        name: String,
    },
    /// End a control plane and remove all that it had.
    Down {
        /// Its name.
        #[arg(long, default_value = DEFAULT_NAME)]
        name: String,
    },
    /// Names of the control planes that were started and not ended.
    List,
}

/// How long pods take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Times {
    /// Next to nothing.
    Fast,
    /// KWOK's own: some seconds for each step, as pods do.
    General,
}

impl From<Times> for PodTimes {
    fn from(times: Times) -> Self {
        match times {
            Times::Fast => Self::Fast,
            Times::General => Self::General,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LabsError {
    #[error(transparent)]
    Detached(#[from] DetachedError),
}

impl Labs {
    pub(crate) async fn run(self) -> Result<bool, LabsError> {
        match self.command {
            LabCommand::Up {
                no_karpenter,
                pod_times,
                name,
            } => {
                let options = LabOptions {
                    karpenter: !no_karpenter,
                    pod_times: pod_times.into(),
                    audit: AuditLevel::Request,
                    ..LabOptions::default()
                };
                let start = detached::up(&name, options);
                let mut clock = Clock::start();
                let up = clock.shown("starting a control plane", start).await?;
                println!("{up}");
                println!("\nTo end it:\n    cargo xtask lab down{}", option(&name));
                Ok(true)
            }
            LabCommand::Down { name } => {
                if detached::down(&name)? {
                    println!("The lab {name:?} has ended.");
                    Ok(true)
                } else {
                    eprintln!("There is no lab {name:?}; see cargo xtask lab list.");
                    Ok(false)
                }
            }
            LabCommand::List => {
                let names = detached::list()?;
                if names.is_empty() {
                    println!("There is no lab. To start one: cargo xtask lab up");
                }
                for name in names {
                    println!("{name}");
                }
                Ok(true)
            }
        }
    }
}

fn option(name: &str) -> String {
    if name == DEFAULT_NAME {
        String::new()
    } else {
        format!(" --name {name}")
    }
}
