//! One run: a cluster, its relocations, its faults, and the verdict of the lab's judge on what the API server saw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use lab::judge::{Interval, JudgeInput, Scorecard};
use relocator::clock::Clock;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::controllers::{Adversary, Controllers, Done};
use crate::fault::Faults;
use crate::json::{at, condition, list, number, set, text};
use crate::operator;
use crate::profile::Profile;
use crate::resource::Resource;
use crate::scenario::{Change, Scenario};
use crate::store::Store;
use crate::story::{digest, story};
use crate::verdict::{
    against_the_end, asks_for_no_places, excused, expected_cordons, history, selected,
};
use crate::wire::{Shared, lock};

/// When everything is up, at the latest, in virtual time.
const UP: Duration = Duration::from_mins(5);
/// After the faults, a relocation has so long to end, in virtual time. The longest of the timeouts in the scenarios is far less.
const PATIENCE: Duration = Duration::from_hours(1);
/// Blocked for so long without a change, longer than the longest silence of a connection: it is for a person to act.
const STUCK: Duration = Duration::from_secs(400);
/// After the end everything else comes to rest in this time, and there is at least one sweep in it.
const REST: Duration = Duration::from_mins(7);
/// A relocation that is over, or Blocked, has written everything by then.
const WRITTEN: SignedDuration = SignedDuration::from_secs(45);

/// How a run came to its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Every relocation is over or gone; their last words.
    Over(String),
    /// Blocked, for these reasons, then deleted and gone.
    Blocked(String),
    /// Not at its end in time.
    Never(String),
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub end: End,
    /// What is wrong, in words. Empty in a good run.
    pub wrong: Vec<String>,
    pub card: Scorecard,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// Requests of the operators that are not watches or events.
    pub requests: usize,
    /// Of everything that was asked and changed: equal for equal seeds.
    pub digest: u64,
    /// Who did what, for people.
    pub story: Vec<String>,
    /// Pods that were made in the place of others.
    pub moves: u32,
}

/// Runs it, in virtual time, in this thread.
///
/// # Panics
/// When a runtime cannot be made.
#[must_use]
pub fn run(scenario: &Scenario, profile: &Profile, seed: u64) -> Outcome {
    #[expect(
        clippy::expect_used,
        reason = "a runtime without I/O needs nothing from the system"
    )]
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        // Timers fire at whole milliseconds of the runtime's clock: the run begins at one, or every time in it has a random fraction.
        tokio::time::sleep(Duration::from_millis(1)).await;
        Run::new(profile, seed).go(scenario, profile).await
    })
}

struct Run {
    rng: Rng,
    clock: Clock,
    shared: Shared,
    controllers: Arc<Mutex<Controllers>>,
    done: Arc<Mutex<Vec<Done>>>,
    expected: usize,
}

impl Run {
    fn new(profile: &Profile, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let start = Timestamp::from_second(1_767_225_600).unwrap_or_default();
        let clock = Clock::starting_at(start);
        let store = Arc::new(Mutex::new(Store::new(clock)));
        // Until they are armed, there are none.
        let faults = Faults::none(Rng::with_seed(rng.u64(..)), Instant::now());
        let times = crate::controllers::Times {
            launch: 5.0,
            boot: 2.0,
            empty: 15.0,
            capacity: false,
        };
        let controllers = Controllers::new(Rng::with_seed(rng.u64(..)), times, profile.dawdling);
        Self {
            rng,
            clock,
            shared: Shared {
                store,
                faults: Arc::new(Mutex::new(faults)),
            },
            controllers: Arc::new(Mutex::new(controllers)),
            done: Arc::default(),
            expected: 0,
        }
    }

    async fn go(mut self, scenario: &Scenario, profile: &Profile) -> Outcome {
        self.build(scenario, profile).await;
        let (began, before) = {
            let store = lock(&self.shared.store);
            (store.now(), store.changes().len())
        };
        // The judge's start mark is before anything that follows.
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.begin(scenario, profile);
        let (end, quiet) = self.until_over().await;
        tokio::time::sleep(REST).await;
        self.judge(scenario, profile, end, began, before, quiet)
    }

    /// Makes the objects and waits until everything is up.
    async fn build(&mut self, scenario: &Scenario, profile: &Profile) {
        *lock(&self.controllers) = Controllers::new(
            Rng::with_seed(self.rng.u64(..)),
            scenario.times,
            profile.dawdling,
        );
        {
            let mut store = lock(&self.shared.store);
            for (resource, object) in &scenario.objects {
                // Names are each once.
                let _made = store.create(*resource, object.clone());
            }
        }
        tokio::spawn(control(
            Arc::clone(&self.shared.store),
            Arc::clone(&self.controllers),
        ));
        let up = Instant::now() + UP;
        while Instant::now() < up && !self.is_up() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let mut store = lock(&self.shared.store);
        for (node, change) in &scenario.then {
            store.change(Resource::Nodes, "", node, |n| match change {
                Change::Cordoned => set(n, &["spec", "unschedulable"], true),
                Change::Protected => set(
                    n,
                    &["metadata", "annotations", "karpenter.sh/do-not-disrupt"],
                    "true",
                ),
            });
        }
    }

    fn is_up(&self) -> bool {
        let store = lock(&self.shared.store);
        let whole = |o: &Arc<Value>| {
            number(o, &["status", "readyReplicas"]) == number(o, &["spec", "replicas"])
        };
        [Resource::Deployments, Resource::StatefulSets]
            .iter()
            .all(|r| store.all(*r).all(whole))
    }

    /// Faults, operators, relocations.
    fn begin(&mut self, scenario: &Scenario, profile: &Profile) {
        let calm = Instant::now() + Duration::from_secs_f64(profile.lasts);
        {
            let mut faults = lock(&self.shared.faults);
            *faults = Faults::none(Rng::with_seed(self.rng.u64(..)), calm);
            profile.arm(&mut faults);
        }
        let now = self.clock.now();
        let adversary = Adversary::new(&mut self.rng, now, profile.lasts, &profile.deeds);
        self.done = adversary.done();
        lock(&self.controllers).admit(adversary);
        let mut leaders = Vec::new();
        for n in 0..profile.operators {
            let (leads, told) = watch::channel(n == 0 || !profile.turns);
            leaders.push(leads);
            tokio::spawn(operator::run(
                self.shared.clone(),
                format!("relocator/{n}"),
                self.clock,
                told,
            ));
        }
        let turns = profile.turns && profile.operators > 1;
        tokio::spawn(elect(
            leaders,
            Rng::with_seed(self.rng.u64(..)),
            turns.then_some(calm),
        ));
        for (after, relocation) in &scenario.relocations {
            let (store, relocation) = (Arc::clone(&self.shared.store), relocation.clone());
            let after = Duration::from_secs_f64(*after);
            self.expected += 1;
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                // The name is new.
                let _made = lock(&store).create(Resource::Relocations, relocation);
            });
        }
        // A change, so that the controllers look at their new colleague.
        let mut store = lock(&self.shared.store);
        store.change(Resource::Namespaces, "", "default", |n| {
            set(n, &["metadata", "labels", "began"], "yes");
        });
    }

    /// Until every relocation is over. Those that are Blocked for good are deleted.
    async fn until_over(&mut self) -> (End, Vec<Interval>) {
        let calm = lock(&self.shared.faults).calm();
        let give_up = calm.max(Instant::now()) + PATIENCE;
        let mut blocked: Option<String> = None;
        let mut quiet = Vec::new();
        let mut same_since = (0, self.clock.now());
        let mut last: Option<Seen> = None;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let seen = self.look(last.take());
            if seen.over {
                let end = match blocked {
                    Some(why) => End::Blocked(why),
                    None => End::Over(seen.words),
                };
                return (end, quiet);
            }
            if Instant::now() > give_up {
                return (
                    End::Never(format!("{}: {}", seen.words, seen.message)),
                    quiet,
                );
            }
            let now = self.clock.now();
            if seen.revision != same_since.0 {
                same_since = (seen.revision, now);
            }
            let stuck = SignedDuration::try_from(STUCK).unwrap_or_default();
            let rested = now.duration_since(same_since.1) > stuck && Instant::now() > calm + STUCK;
            if rested && blocked.is_none() && !seen.reasons.is_empty() {
                let from = same_since.1.saturating_add(WRITTEN).unwrap_or(now);
                quiet.push(Interval { from, to: now });
                blocked = Some(seen.reasons.clone());
                self.delete_relocations();
            }
            last = Some(seen);
        }
    }

    fn delete_relocations(&self) {
        let mut store = lock(&self.shared.store);
        let all: Vec<_> = store.all(Resource::Relocations).cloned().collect();
        for relocation in all {
            crate::controllers::delete(
                &mut store,
                Resource::Relocations,
                &relocation,
                "kubectl/v1",
            );
        }
    }

    /// Looks at the relocations. Nothing has to be counted again while they are as they were at the `last` look.
    fn look(&self, last: Option<Seen>) -> Seen {
        let store = lock(&self.shared.store);
        let relocations = store.touched(&[Resource::Relocations]);
        let revision = store.touched(&Resource::ALL);
        if let Some(last) = last.filter(|last| last.relocations == relocations) {
            return Seen { revision, ..last };
        }
        let made = store
            .changes()
            .iter()
            .filter(|c| {
                c.resource == Resource::Relocations && c.event == crate::store::Event::Added
            })
            .count();
        let is_over = |r: &Value| {
            !at(r, &["status", "completionTime"]).is_null()
                && list(r, &["metadata", "finalizers"]).is_empty()
                && number(r, &["spec", "ttlSecondsAfterFinished"]) == 0
                && at(r, &["spec", "ttlSecondsAfterFinished"]).is_null()
        };
        let all: Vec<_> = store.all(Resource::Relocations).collect();
        let word = |r: &&Arc<Value>| ready(r, "reason").to_owned();
        let reasons: BTreeSet<&str> = all
            .iter()
            .filter(|r| condition(r, "Stalled") == "True")
            .flat_map(|r| list(r, &["status", "blockers"]))
            .map(|b| text(b, &["reason"]))
            .collect();
        let words: Vec<String> = if all.is_empty() {
            vec!["gone".to_owned()]
        } else {
            all.iter().map(word).collect()
        };
        Seen {
            over: made >= self.expected && all.iter().all(|r| is_over(r)),
            words: words.join(", "),
            message: all
                .iter()
                .map(|r| ready(r, "message"))
                .collect::<Vec<_>>()
                .join("; "),
            reasons: reasons.into_iter().collect::<Vec<_>>().join(", "),
            relocations,
            revision,
        }
    }

    fn judge(
        self,
        scenario: &Scenario,
        profile: &Profile,
        end: End,
        began: Timestamp,
        before: usize,
        mut quiet: Vec<Interval>,
    ) -> Outcome {
        let store = lock(&self.shared.store);
        let done = lock(&self.done).clone();
        let rested = SignedDuration::try_from(REST).unwrap_or_default();
        let over = store.now().saturating_sub(rested).unwrap_or(began);
        // While the watches lag, nobody can know yet that it is over.
        let calm = lock(&self.shared.faults).calm();
        let left = SignedDuration::try_from(calm.saturating_duration_since(Instant::now()));
        let calm = store
            .now()
            .saturating_add(left.unwrap_or_default())
            .unwrap_or(over);
        let over = over.max(calm);
        quiet.push(Interval {
            from: over.saturating_add(WRITTEN).unwrap_or(over),
            to: store.now(),
        });
        let history = history(&store, began, before);
        let input = JudgeInput {
            start: Some(began),
            selected_nodes: selected(&store),
            expected_cordons: expected_cordons(&store, &done),
            quiet,
            watch_lag: SignedDuration::from_millis(1),
            ..JudgeInput::default()
        };
        let card = Scorecard::of(&history, &input);
        let mut wrong: Vec<String> = card
            .broken_invariants
            .iter()
            .filter(|broken| !(broken.starts_with("5:") && asks_for_no_places(scenario)))
            .filter(|broken| !excused(broken, profile, &done, &store))
            .cloned()
            .collect();
        wrong.extend(against_the_end(scenario, profile, &end, &card, &done));
        let faults = lock(&self.shared.faults);
        let mut counts = faults.counts().clone();
        for done in &done {
            *counts
                .entry(format!("somebody: {}", done.deed))
                .or_default() += 1;
        }
        Outcome {
            end,
            wrong,
            moves: card.moves,
            card,
            faults: counts,
            requests: faults.requests(),
            digest: digest(&store),
            story: story(&store, &done, began),
        }
    }
}

struct Seen {
    over: bool,
    words: String,
    message: String,
    reasons: String,
    /// The last revision of a relocation.
    relocations: u64,
    /// The last revision of anything.
    revision: u64,
}

/// A field of condition Ready.
pub(crate) fn ready<'a>(relocation: &'a Value, field: &str) -> &'a str {
    list(relocation, &["status", "conditions"])
        .iter()
        .find(|c| text(c, &["type"]) == "Ready")
        .map_or("", |c| text(c, &[field]))
}

/// Lets one after the other lead, until there is calm; then whoever leads goes on.
async fn elect(leaders: Vec<watch::Sender<bool>>, mut rng: Rng, calm: Option<Instant>) {
    let mut leader = 0;
    while calm.is_some_and(|calm| Instant::now() < calm) {
        tokio::time::sleep(Duration::from_millis(rng.u64(500..20_000))).await;
        leader = (leader + 1) % leaders.len().max(1);
        for (n, leads) in leaders.iter().enumerate() {
            leads.send_replace(n == leader);
        }
    }
    // Kept, for a channel that is closed is a run that is over.
    std::future::pending::<()>().await;
}

/// Lets the controllers look whenever something has changed or is due.
async fn control(store: Arc<Mutex<Store>>, controllers: Arc<Mutex<Controllers>>) {
    let told = lock(&store).news();
    loop {
        let mut news = std::pin::pin!(told.notified());
        // What the controllers change themselves is news, too.
        news.as_mut().enable();
        let wait = {
            let mut store = lock(&store);
            let next = lock(&controllers).round(&mut store);
            next.map(|next| {
                Duration::try_from(next.duration_since(store.now())).unwrap_or_default()
            })
        };
        let due = Instant::now() + wait.unwrap_or(Duration::from_hours(1));
        tokio::select! {
            biased;
            () = news => {}
            () = tokio::time::sleep_until(due) => {}
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
