//! By relocator: one apply, and the operator does the rest under its service account.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use lab::judge::{Identity, Scorecard};
use lab::operator::{self, Follower, Operator, Relocation};

use super::{Judging, WayError};
use crate::clock::Clock;
use crate::live::{Live, headline};
use crate::moves::Moves;
use crate::scene::Scene;

/// The smallest useful relocation.
pub(crate) const RELOCATION: &str = "\
apiVersion: relocation.sh/v1alpha1
kind: NodeRelocation
metadata: {name: eks-1-30}
spec:
  nodes: {nodePools: [apps], state: Drifted}
";

/// Its name.
const NAME: &str = "eks-1-30";

/// Many times what it takes.
const TIMEOUT: Duration = Duration::from_mins(10);

/// How often the view is renewed.
const FRAME: Duration = Duration::from_millis(250);

/// How a relocation went.
#[derive(Debug)]
pub(crate) struct Relocated {
    pub(crate) card: Scorecard,
    /// Ready=True at the end.
    pub(crate) succeeded: bool,
    /// It still runs.
    pub(crate) operator: Operator,
}

/// Starts the operator, applies the relocation, shows how it goes, and judges it.
pub(crate) async fn relocate(
    scene: &Scene,
    clock: &mut Clock,
    binary: &Path,
) -> Result<Relocated, WayError> {
    let lab = scene.lab();
    let what = "starting the operator as the service account of deploy/";
    let mut operator = clock.phase(what, Operator::start(lab, binary)).await?;
    let judging = Judging::begin(scene).await?;
    let mut follower = Follower::start(lab, NAME).await?;
    operator::apply_relocation(lab, RELOCATION).await?;
    let began = Instant::now();
    let last = watch(scene, clock, &judging, &mut follower, &mut operator).await?;
    let end = Timestamp::now();
    clock.took("relocating, from the apply to the end", began.elapsed());
    let succeeded = last.as_ref().is_some_and(|last| last.ready);
    if !last.as_ref().is_some_and(Relocation::is_over) {
        let state = last.as_ref().map(headline).unwrap_or_default();
        let log = operator.log().display();
        clock.say(&format!(
            "It has not finished within {} s: {state}",
            TIMEOUT.as_secs()
        ));
        clock.say(&format!("The end of {log}:"));
        println!("{}", lab::process::tail(operator.log(), 20));
    }
    let card = judging
        .end(scene, clock, Identity::relocator(), end)
        .await?;
    operator.check()?;
    Ok(Relocated {
        card,
        succeeded,
        operator,
    })
}

/// Shows the relocation until it is over or has taken too long, and returns its last state.
async fn watch(
    scene: &Scene,
    clock: &Clock,
    judging: &Judging,
    follower: &mut Follower,
    operator: &mut Operator,
) -> Result<Option<Relocation>, WayError> {
    let mut moves = Moves::from(
        &judging.recorder.so_far().state_at(judging.start),
        &scene.old_nodes,
    );
    let mut live = Live::start();
    let until = tokio::time::Instant::now() + TIMEOUT;
    let show = async {
        loop {
            let last = follower.last();
            moves.update(&judging.recorder.so_far().state_at_end());
            if let Some(last) = &last {
                live.show(clock, last, &moves);
            }
            let over = last.as_ref().is_some_and(Relocation::is_over);
            if over || tokio::time::Instant::now() >= until {
                return Ok(last);
            }
            operator.check()?;
            tokio::time::sleep(FRAME).await;
        }
    };
    show.await
}
