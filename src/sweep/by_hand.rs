//! `relocator sweep`: the sweep as a command. Needs no lease, for its writes are refused where somebody else has written meanwhile.

use std::io::Write;
use std::time::Duration;

use kube::Client;

use super::{Sweeper, Swept};
use crate::act::Actor;
use crate::lease::Leadership;
use crate::plan::{Later, Why};
use crate::world::Unknown;

/// Pauses before each further look while something is left that goes by itself, or has changed: half a minute in all.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

/// Why not everything was put back.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something could not be read, so what it would have shown was not decided on, and nothing was written after that.
    #[error("reading {what}: {why}; nothing is restored while something can't be read")]
    Unknown {
        /// The resource.
        what: String,
        /// In the API server's words.
        why: String,
    },
    /// Some of it is left; each was named.
    #[error("{0} not restored")]
    Left(usize),
    /// Nobody takes what is printed.
    #[error("printing: {0}")]
    Print(#[from] std::io::Error),
}

impl From<Unknown> for Error {
    fn from(unknown: Unknown) -> Self {
        let Unknown { what, why, .. } = unknown;
        Self::Unknown { what, why }
    }
}

/// Puts back what is left, or only says what would be, and prints a line for each thing.
pub async fn run(client: Client, dry_run: bool, out: &mut impl Write) -> Result<(), Error> {
    let actor = Actor::new(client.clone(), Leadership::always());
    let sweeper = Sweeper::new(client, actor);
    if dry_run {
        would_restore(&sweeper, out).await
    } else {
        restore(&sweeper, out).await
    }
}

async fn would_restore(sweeper: &Sweeper, out: &mut impl Write) -> Result<(), Error> {
    let sweep = sweeper.look().await?;
    for leftover in &sweep.leftovers {
        writeln!(out, "would restore {leftover}")?;
    }
    for later in &sweep.later {
        writeln!(out, "would restore {later}")?;
    }
    match sweep.leftovers.len() + sweep.later.len() {
        0 => nothing(out)?,
        count => writeln!(out, "{count} to restore; dry run, nothing was written")?,
    }
    Ok(())
}

async fn restore(sweeper: &Sweeper, out: &mut impl Write) -> Result<(), Error> {
    let mut restored = 0;
    let mut pauses = PAUSES.into_iter();
    let left = loop {
        let swept = sweeper.sweep().await?;
        for leftover in &swept.done {
            writeln!(out, "restored {leftover}")?;
        }
        restored += swept.done.len();
        match pauses.next() {
            Some(pause) if goes_on(&swept) => tokio::time::sleep(pause).await,
            _ => break swept,
        }
    };
    for (leftover, error) in &left.failed {
        writeln!(out, "not restored {leftover}: {error}")?;
    }
    for leftover in &left.outdated {
        writeln!(
            out,
            "not restored {leftover}: somebody changes it all the time"
        )?;
    }
    for later in &left.later {
        writeln!(out, "not yet restored {later}")?;
    }
    match left.failed.len() + left.outdated.len() + left.later.len() {
        0 if restored == 0 => nothing(out)?,
        0 => writeln!(out, "{restored} restored")?,
        count => return Err(Error::Left(count)),
    }
    Ok(())
}

fn nothing(out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "nothing to restore: no mark of a relocation that exists no more or is over"
    )
}

/// Another look soon may find nothing left. Not where something failed: that is for a person to hear of at once.
fn goes_on(swept: &Swept) -> bool {
    let goes = |later: &Later| later.why == Why::ChosenFrom;
    swept.failed.is_empty() && (!swept.outdated.is_empty() || swept.later.iter().any(goes))
}
