//! Wiring of the sweep: what belongs to relocations that exist no more, or are over, is read, decided on, and taken away. Decides nothing itself.
//!
//! Relocations go without their restore when somebody removes the finalizer by hand, restores an older etcd, or deletes the
//! `CustomResourceDefinition`. Their marks tell.
//!
//! A sweep runs beside the passes and waits for none: it touches only what carries the mark of a relocation that does not exist or is over, and
//! UIDs do not come back, so no pass claims the same mark. An object may carry marks of both; then each write names the version that
//! was seen, one of the two is refused, and looks again. For the same reason a second leader or [`by_hand`] does no harm.

pub mod by_hand;

use std::time::Duration;

use futures::StreamExt;
use kube::Client;

use crate::act::{ActError, Actor, Effect};
use crate::observe;
use crate::plan::{self, Later, Leftover, Sweep};
use crate::telemetry::events::Events;
use crate::world::Unknown;

/// From one sweep to the next when nothing is left.
const INTERVAL: Duration = Duration::from_mins(5);
/// The first pause when something is left; each further one is twice as long, up to [`INTERVAL`].
const AGAIN: Duration = Duration::from_secs(2);
/// Requests under way at a time.
const AT_ONCE: usize = 8;

/// Reads, and takes away.
pub struct Sweeper {
    reading: Client,
    actor: Actor,
}

/// What became of a sweep.
#[derive(Debug, Default)]
pub struct Swept {
    pub done: Vec<Leftover>,
    /// What has changed since it was looked at, or went by itself.
    pub outdated: Vec<Leftover>,
    /// What could not be taken away, and why.
    pub failed: Vec<(Leftover, ActError)>,
    pub later: Vec<Later>,
}

impl Swept {
    /// Nothing is known to be left.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.outdated.is_empty() && self.failed.is_empty() && self.later.is_empty()
    }
}

impl Sweeper {
    /// `reading` must not retry by itself, and nor may the client of the `actor`.
    #[must_use]
    pub fn new(reading: Client, actor: Actor) -> Self {
        Self { reading, actor }
    }

    /// Looks and decides, and writes nothing. An error says what could not be read; then nothing is decided.
    pub async fn look(&self) -> Result<Sweep, Unknown> {
        let seen = observe::leftovers(&self.reading).await?;
        Ok(plan::sweep(&seen))
    }

    /// Takes away what is there. When something can't be read, that is the error and nothing is taken away.
    pub async fn sweep(&self) -> Result<Swept, Unknown> {
        let Sweep { leftovers, later } = self.look().await?;
        let mut swept = Swept {
            later,
            ..Swept::default()
        };
        let attempts = leftovers.into_iter().map(|leftover| async {
            let result = self.actor.restore(&leftover.restore).await;
            (leftover, result)
        });
        // In their order, for people; several are under way at a time.
        let mut attempts = futures::stream::iter(attempts).buffered(AT_ONCE);
        while let Some((leftover, result)) = attempts.next().await {
            match result {
                Ok(Effect::AlreadyDone) => swept.outdated.push(leftover),
                Ok(_) => swept.done.push(leftover),
                Err(error) if error.is_outdated() => swept.outdated.push(leftover),
                Err(error) => swept.failed.push((leftover, error)),
            }
        }
        Ok(swept)
    }
}

/// Sweeps at once and then every five minutes, sooner while something is left. Does not return.
///
/// The [`Sweeper`]'s actor asks before each write whether this instance leads.
pub async fn keep_sweeping(sweeper: Sweeper, events: Events) {
    let mut again = AGAIN;
    loop {
        let clean = once(&sweeper, &events).await;
        let pause = if clean { INTERVAL } else { again };
        again = if clean {
            AGAIN
        } else {
            (again * 2).min(INTERVAL)
        };
        tokio::time::sleep(pause).await;
    }
}

/// One sweep, told by logs and events. True when nothing is left.
async fn once(sweeper: &Sweeper, events: &Events) -> bool {
    let swept = match sweeper.sweep().await {
        Ok(swept) => swept,
        Err(Unknown { what, why, .. }) => {
            tracing::warn!(
                what,
                why,
                "could not be read, so nothing is swept: marks of relocations that exist no more may be left"
            );
            return false;
        }
    };
    for leftover in &swept.done {
        tracing::info!(%leftover, "restored what a relocation that exists no more, or is over, has left");
        events.swept(leftover);
    }
    for (leftover, error) in &swept.failed {
        tracing::warn!(%leftover, %error, "not restored what a relocation that exists no more, or is over, has left");
    }
    for later in &swept.later {
        tracing::info!(%later, "to be restored later");
    }
    swept.is_clean()
}

#[cfg(test)]
mod tests;
