//! How the drifted nodes are emptied, and what the judge says of it.

mod drain;
mod hands;
mod relocator;

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lab::judge::{
    Identity, Interval, JudgeInput, RecordError, Recorder, RecorderOptions, Scorecard,
};
use lab::operator::OperatorError;
use lab::{LabError, WaitError, fixtures};

use crate::clock::Clock;
use crate::scene::Scene;

pub(crate) use relocator::{RELOCATION, Relocated, relocate};

/// The ways that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Relocator,
    Drain,
    Hand,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relocator => "relocator",
            Self::Drain => "kubectl drain",
            Self::Hand => "by hand",
        })
    }
}

/// Why a way could not be gone to its end, or not be judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WayError {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error("recording what happens: {0}")]
    Record(#[from] RecordError),
}

/// What the judge says once nothing moves any more.
const QUIET: Duration = Duration::from_secs(5);

/// The last write of an end may come a moment after it was seen.
const LAST_WRITE: SignedDuration = SignedDuration::from_secs(1);

/// A run that is being watched by the judge.
struct Judging {
    recorder: Recorder,
    start: Timestamp,
}

impl Judging {
    async fn begin(scene: &Scene) -> Result<Self, WayError> {
        let client = scene.lab().client().await?;
        let recorder = Recorder::start(client, RecorderOptions::default()).await?;
        Ok(Self {
            recorder,
            start: Timestamp::now(),
        })
    }

    /// Waits until nothing moves any more, and a little longer: whoever is done writes nothing. Then judges.
    async fn end(
        self,
        scene: &Scene,
        clock: &mut Clock,
        who: Identity,
        end: Timestamp,
    ) -> Result<Scorecard, WayError> {
        // What does not settle is seen by the judge.
        let settled = clock
            .phase(
                "waiting until all pods are Ready",
                fixtures::wait_settled(scene.lab()),
            )
            .await;
        if let Err(error) = settled {
            clock.say(&format!("    {error}"));
        }
        let from = Timestamp::now();
        clock
            .phase("looking whether it is quiet", tokio::time::sleep(QUIET))
            .await;
        let to = Timestamp::now();
        let Self { recorder, start } = self;
        let history = clock
            .phase("judging", recorder.finish(&scene.lab().audit_log()))
            .await?;
        let input = JudgeInput {
            relocator: who,
            start: Some(start),
            end: Some(end),
            selected_nodes: scene.old_nodes.clone(),
            quiet: vec![Interval {
                from: from.saturating_add(LAST_WRITE).unwrap_or(from),
                to,
            }],
            ..JudgeInput::default()
        };
        Ok(Scorecard::of(&history, &input))
    }
}

/// Node by node with `kubectl drain`.
pub(crate) async fn drain(scene: &Scene, clock: &mut Clock) -> Result<Scorecard, WayError> {
    let judging = Judging::begin(scene).await?;
    let end = drain::run(scene, clock).await;
    judging
        .end(scene, clock, Identity::agent("kubectl"), end)
        .await
}

/// By hand, as it is done where it is done well.
pub(crate) async fn by_hand(scene: &Scene, clock: &mut Clock) -> Result<Scorecard, WayError> {
    let judging = Judging::begin(scene).await?;
    let end = hands::run(scene, clock).await?;
    judging
        .end(scene, clock, Identity::agent("kubectl"), end)
        .await
}
