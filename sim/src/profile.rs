//! Which faults a run is given. Pure.

use std::fmt;

use fastrand::Rng;

use crate::controllers::Deed;
use crate::fault::{Fault, Faults, Lag, Mutant, WatchFaults};

/// The sort of faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Sort {
    /// None.
    Calm,
    /// One request, anywhere, is refused, lost, or the last of a life.
    OneRequest,
    /// Requests are refused or lost at random.
    Requests,
    /// The operator dies again and again.
    Crashes,
    /// Watches lag, lose changes, tell them twice, break off.
    Watches,
    /// Two operators that take turns in the middle of what they do, or both believe that they lead.
    TwoOperators,
    /// People and programs interfere.
    Adversary,
    /// All of them.
    Everything,
}

impl Sort {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Calm,
        Self::OneRequest,
        Self::Requests,
        Self::Crashes,
        Self::Watches,
        Self::TwoOperators,
        Self::Adversary,
        Self::Everything,
    ];
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calm => "no faults",
            Self::OneRequest => "one request",
            Self::Requests => "requests",
            Self::Crashes => "crashes",
            Self::Watches => "watches",
            Self::TwoOperators => "two operators",
            Self::Adversary => "adversary",
            Self::Everything => "everything",
        })
    }
}

/// The faults of a run.
#[derive(Clone, Debug)]
pub struct Profile {
    pub sort: Sort,
    pub operators: usize,
    /// One at a time leads, and they take turns; otherwise all of them believe that they lead.
    pub turns: bool,
    pub single: Option<(usize, Fault)>,
    pub rate: f64,
    pub kinds: Vec<Fault>,
    pub watches: WatchFaults,
    pub deeds: Vec<Deed>,
    /// The share of the looks of the cluster's controllers that come late.
    pub dawdling: f64,
    /// How long faults go on from the start, in seconds.
    pub lasts: f64,
    pub mutant: Option<Mutant>,
}

impl Profile {
    /// No faults.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            sort: Sort::Calm,
            operators: 1,
            turns: true,
            single: None,
            rate: 0.0,
            kinds: Fault::ALL.to_vec(),
            watches: WatchFaults::default(),
            deeds: Vec::new(),
            dawdling: 0.0,
            lasts: 0.0,
            mutant: None,
        }
    }

    /// This fault at this request, and no other.
    #[must_use]
    pub fn one(at: usize, fault: Fault) -> Self {
        Self {
            sort: Sort::OneRequest,
            single: Some((at, fault)),
            ..Self::calm()
        }
    }

    /// A random one of the sort.
    #[must_use]
    pub fn random(sort: Sort, rng: &mut Rng) -> Self {
        let mut profile = Self {
            sort,
            lasts: 20.0 + 130.0 * rng.f64(),
            dawdling: 0.3 * rng.f64(),
            ..Self::calm()
        };
        match sort {
            Sort::Calm => {}
            Sort::OneRequest => {
                let fault = Fault::ALL[rng.usize(..Fault::ALL.len())];
                profile.single = Some((rng.usize(..150), fault));
            }
            Sort::Requests => profile.requests(rng),
            Sort::Crashes => {
                profile.rate = 0.01 + 0.09 * rng.f64();
                profile.kinds = vec![Fault::CrashBefore, Fault::CrashAfter];
            }
            Sort::Watches => profile.watches(rng),
            Sort::TwoOperators => {
                profile.operators = 2;
                profile.turns = rng.f64() < 0.7;
            }
            Sort::Adversary => profile.adversary(rng),
            Sort::Everything => {
                profile.requests(rng);
                profile.rate /= 2.0;
                profile.watches(rng);
                profile.operators = rng.usize(1..3);
                profile.adversary(rng);
            }
        }
        profile
    }

    fn requests(&mut self, rng: &mut Rng) {
        self.rate = 0.02 + 0.2 * rng.f64();
        // Some runs have one kind only, and much of it.
        if rng.f64() < 0.3 {
            self.kinds = vec![Fault::ALL[rng.usize(..Fault::ALL.len())]];
        }
    }

    fn watches(&mut self, rng: &mut Rng) {
        let mut share = |most: f64| if rng.bool() { most * rng.f64() } else { 0.0 };
        self.watches = WatchFaults {
            lag: Lag::None,
            dropped: share(0.1),
            doubled: share(0.3),
            merged: share(1.0),
            broken: share(0.05),
        };
        self.watches.lag =
            [Lag::None, Lag::Changes(1), Lag::Changes(5), Lag::Everything][rng.usize(..4)];
    }

    fn adversary(&mut self, rng: &mut Rng) {
        let deeds = rng.usize(1..7);
        self.deeds = (0..deeds)
            .map(|_| Deed::BEGINNINGS[rng.usize(..Deed::BEGINNINGS.len())])
            .collect();
    }

    /// Sets up the faults as the profile has them.
    pub(crate) fn arm(&self, faults: &mut Faults) {
        faults.single = self.single;
        faults.rate = self.rate;
        faults.kinds.clone_from(&self.kinds);
        faults.watches = self.watches;
        faults.mutant = self.mutant;
    }
}
