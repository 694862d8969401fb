//! The time, as everything but the planner asks for it: of the system, or of a simulation.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time. Cheap to copy.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The clock of the system, which may jump.
    #[default]
    System,
    /// Starts at a given time and follows tokio's clock, which a simulation moves.
    Virtual { start: Timestamp, since: Instant },
}

impl Clock {
    /// A clock that shows `start` now and follows tokio's clock from here on.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self::Virtual {
            start,
            since: Instant::now(),
        }
    }

    /// The time.
    #[must_use]
    pub fn now(self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Virtual { start, since } => {
                let elapsed = SignedDuration::try_from(since.elapsed()).unwrap_or_default();
                start.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}
