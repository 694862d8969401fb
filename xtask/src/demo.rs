//! `cargo xtask demo`: the main job, from nothing to the end.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use lab::detached::UpInfo;
use lab::judge::Scorecard;
use lab::{LabError, PodTimes};

use crate::cargo::{self, CargoError, Profile};
use crate::clock::Clock;
use crate::report;
use crate::scene::{self, Scene, SceneError};
use crate::way::{self, RELOCATION, Relocated, WayError};

/// Empty three drifted Karpenter nodes on a real control plane, watch it, and judge it.
///
/// Builds the control plane from Go modules when it is not in the cache (about a quarter of an hour, once), starts it on
/// free ports of this machine, lets a node pool with a database, a session server and a web tier drift until Karpenter is
/// stuck, and lets relocator do the rest. Succeeds only if the relocation did, every invariant held and nothing was left
/// behind.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Write the judge's scorecard there, as JSON.
    #[arg(long, value_name = "FILE")]
    scorecard: Option<PathBuf>,
    /// Leave everything running, and say how to look around.
    #[arg(long)]
    keep: bool,
    /// Pods that take no time to start and stop, in place of some seconds.
    #[arg(long)]
    fast: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error(transparent)]
    Cargo(#[from] CargoError),
    #[error(transparent)]
    Scene(#[from] SceneError),
    #[error(transparent)]
    Way(#[from] WayError),
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error("writing the scorecard to {}: {source}", path.display())]
    Scorecard { path: PathBuf, source: io::Error },
}

/// The lab's name when it is kept.
const NAME: &str = "demo";

impl Demo {
    pub(crate) async fn run(self) -> Result<bool, DemoError> {
        let Self {
            scorecard,
            keep,
            fast,
        } = self;
        let mut clock = Clock::start();
        let build = cargo::build_operator(Profile::Dev);
        let binary = clock.shown("building the operator", build).await?;
        scene::ensure_programs(&mut clock).await?;
        let pod_times = if fast {
            PodTimes::Fast
        } else {
            PodTimes::General
        };
        let scene = Scene::set(&mut clock, pod_times, keep.then_some(NAME)).await?;
        let good = play(&scene, &mut clock, &binary, scorecard.as_deref(), keep).await;
        if let Some(up) = scene.leave().await? {
            look_around(&up);
        }
        println!("\n{}", clock.summary());
        if matches!(good, Ok(true)) {
            println!("The relocation succeeded, every invariant held, nothing was left behind.");
        }
        good
    }
}

/// True if all was as it should be.
async fn play(
    scene: &Scene,
    clock: &mut Clock,
    binary: &Path,
    scorecard: Option<&Path>,
    keep: bool,
) -> Result<bool, DemoError> {
    clock.say("All that a person has to do:\n");
    for line in RELOCATION.lines() {
        println!("    {line}");
    }
    println!();
    let relocated = way::relocate(scene, clock, binary).await?;
    let Relocated {
        card,
        succeeded,
        operator,
    } = relocated;
    if keep {
        operator.leave();
    }
    let shown = scene.lab().kubectl(&["get", "noderelocations"]).await?;
    println!("\n$ kubectl get noderelocations\n{shown}");
    println!("{}", report::beside_the_others(&card));
    println!("{}", report::details(&card));
    if let Some(path) = scorecard {
        write(path, &card)?;
        println!("Wrote {}.", path.display());
    }
    if !succeeded {
        eprintln!("The relocation did not succeed.");
    }
    if !report::is_good(&card) {
        eprintln!("The judge is not content: see above.");
    }
    Ok(succeeded && report::is_good(&card))
}

fn write(path: &Path, card: &Scorecard) -> Result<(), DemoError> {
    let failed = |source| DemoError::Scorecard {
        path: path.to_owned(),
        source,
    };
    let mut json = serde_json::to_string_pretty(card).map_err(|error| failed(error.into()))?;
    json.push('\n');
    std::fs::write(path, json).map_err(failed)
}

fn look_around(up: &UpInfo) {
    println!("\n{up}");
    println!("\nOf the relocation:");
    for command in [
        "kubectl get noderelocations --output wide",
        "kubectl describe noderelocation eks-1-30",
        "kubectl explain noderelocation.spec",
    ] {
        println!("    {command}");
    }
    println!("\nThe operator runs, too. To end all of it:");
    println!("    cargo xtask lab down --name {}", up.name);
}
