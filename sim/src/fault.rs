//! Faults between an operator and its API server: what goes wrong with one request, or with a watch. Decides, and does nothing.

use std::collections::BTreeMap;
use std::fmt;

use fastrand::Rng;
use tokio::time::Instant;

use crate::server::{Call, Verb};

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// It has no effect, and the answer is this code; with so many seconds of Retry-After.
    Answer(u16, Option<u32>),
    /// It never arrives, and there is no answer.
    LostBefore,
    /// It takes effect, and the answer never arrives.
    LostAfter,
    /// The operator dies before it is sent.
    CrashBefore,
    /// The operator dies when it has taken effect.
    CrashAfter,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Answer(403, None),
        Self::Answer(404, None),
        Self::Answer(409, None),
        Self::Answer(422, None),
        Self::Answer(429, None),
        Self::Answer(429, Some(3)),
        Self::Answer(500, None),
        Self::Answer(503, None),
        Self::LostBefore,
        Self::LostAfter,
        Self::CrashBefore,
        Self::CrashAfter,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(code, None) => write!(f, "answered {code}"),
            Self::Answer(code, Some(_)) => write!(f, "answered {code} with Retry-After"),
            Self::LostBefore => f.write_str("no answer, no effect"),
            Self::LostAfter => f.write_str("no answer, but an effect"),
            Self::CrashBefore => f.write_str("crash before the request"),
            Self::CrashAfter => f.write_str("crash after the effect"),
        }
    }
}

/// How far behind the watches are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lag {
    /// Only by the network.
    #[default]
    None,
    /// Each change is told when so many newer ones of the resource have been made.
    Changes(usize),
    /// Nothing that happened since the start is told.
    Everything,
}

/// What goes wrong with watches: shares of the changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchFaults {
    pub lag: Lag,
    /// Not told at all; the watch breaks off a while later, as that of a server that has lost its place.
    pub dropped: f64,
    pub doubled: f64,
    /// Not told when a newer change of the same object is already there.
    pub merged: f64,
    /// The watch breaks off and the client is to list again (410).
    pub broken: f64,
}

/// A bug that an operator could have, as its API server would see it. For testing the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Evictions do not name the UID.
    NoUid,
    /// A node that is given back is uncordoned, whoever cordoned it.
    UncordonOthers,
    /// Each restart is asked for twice, the second time with another value, as one with the present time would have.
    DoubleRestart,
    /// What could not be read is taken for empty.
    ActOnUnknown,
    /// Placeholders are forgotten: their deletion is never asked for.
    PlaceholderLeak,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::NoUid,
        Self::UncordonOthers,
        Self::DoubleRestart,
        Self::ActOnUnknown,
        Self::PlaceholderLeak,
    ];
}

/// The faults of a run.
#[derive(Clone, Debug)]
pub struct Faults {
    rng: Rng,
    /// No fault after this.
    calm: Instant,
    /// The one request, counted from 0 over all that are not watches or events, that this happens to.
    pub single: Option<(usize, Fault)>,
    /// The share of requests that something happens to.
    pub rate: f64,
    /// What may happen to them.
    pub kinds: Vec<Fault>,
    pub watches: WatchFaults,
    pub mutant: Option<Mutant>,
    requests: usize,
    counts: BTreeMap<String, u64>,
}

impl Faults {
    /// No faults.
    #[must_use]
    pub fn none(rng: Rng, calm: Instant) -> Self {
        Self {
            rng,
            calm,
            single: None,
            rate: 0.0,
            kinds: Fault::ALL.to_vec(),
            watches: WatchFaults::default(),
            mutant: None,
            requests: 0,
            counts: BTreeMap::new(),
        }
    }

    /// Whether the faults are over.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        Instant::now() >= self.calm
    }

    /// When the faults are over.
    #[must_use]
    pub fn calm(&self) -> Instant {
        self.calm
    }

    /// How many of each were given.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// How many requests were seen that are not watches or events.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Takes note of one.
    pub fn note(&mut self, what: impl fmt::Display) {
        *self.counts.entry(what.to_string()).or_default() += 1;
    }

    /// What happens to this request.
    pub fn of(&mut self, call: &Call) -> Option<Fault> {
        if call.verb == Verb::Watch || (call.verb.writes() && !call.mutates()) {
            return None;
        }
        let number = self.requests;
        self.requests += 1;
        let fault = match self.single {
            Some((at, fault)) if at == number => Some(fault),
            _ if self.is_calm() || self.kinds.is_empty() || self.rng.f64() >= self.rate => None,
            _ => Some(self.kinds[self.rng.usize(..self.kinds.len())]),
        }?;
        self.note(fault);
        Some(fault)
    }

    /// True for that share of the changes, while there are faults.
    pub fn chance(&mut self, share: f64, what: &str) -> bool {
        let happens = share > 0.0 && !self.is_calm() && self.rng.f64() < share;
        if happens {
            self.note(what);
        }
        happens
    }

    /// A time on the network, in milliseconds.
    pub fn latency(&mut self, most: u64) -> std::time::Duration {
        std::time::Duration::from_millis(self.rng.u64(1..=most))
    }
}
