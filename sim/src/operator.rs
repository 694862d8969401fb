//! The real operator in the simulation: its own observer, planner, actor and passes, against the simulated API server. It dies as
//! the faults say, and is started again as a Deployment would.
//!
//! Only the queue of passes is not that of kube-runtime but one like it: that one wakes and orders by hashes with a random seed, and no
//! run would be like another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use relocator::act::Actor;
use relocator::api::relocation::NodeRelocation;
use relocator::clock::Clock;
use relocator::controller::{self, Context};
use relocator::lease::Leadership;
use relocator::observe::Observer;
use relocator::plan;
use relocator::sweep::{self, Sweeper};
use relocator::telemetry::events::Events;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::wire::{Life, Shared, Wire, lock};

/// Runs one operator for ever, life after life, while it leads.
pub async fn run(shared: Shared, agent: String, clock: Clock, mut leads: watch::Receiver<bool>) {
    loop {
        // An error means that the run is over.
        let Ok(()) = leads.wait_for(|leads| *leads).await.map(drop) else {
            return;
        };
        let life = Life::new(&agent);
        let ended = Arc::clone(&life);
        let operator = tokio::spawn(live(shared.clone(), life, clock, leads.clone()));
        tokio::select! {
            biased;
            () = ended.ended() => {}
            () = deposed(&mut leads) => {
                // It is told, and goes on until it asks: what it has sent is on its way.
                let pause = lock(&shared.faults).latency(2000);
                tokio::time::sleep(pause).await;
                ended.kill();
            }
        }
        operator.abort();
        // What it had in memory is gone with it.
        let _aborted = operator.await;
        let pause = lock(&shared.faults).latency(5000);
        tokio::time::sleep(Duration::from_millis(500) + pause).await;
    }
}

/// Completes when it leads no more.
async fn deposed(leads: &mut watch::Receiver<bool>) {
    // An error means that the run is over.
    let _over = leads.wait_for(|leads| !*leads).await.map(drop);
}

/// One life.
async fn live(shared: Shared, life: Arc<Life>, clock: Clock, leads: watch::Receiver<bool>) {
    let agent = life.agent.clone();
    let client = Client::new(Wire { shared, life }, "default");
    let wake = Arc::new(Notify::new());
    let observer = Observer::new(client.clone(), client.clone(), Arc::clone(&wake), clock);
    let actor = Actor::new(client.clone(), Leadership::told_by(leads.clone()));
    let events = Events::start(client.clone(), &agent);
    let sweeper = Sweeper::new(
        client.clone(),
        Actor::new(client.clone(), Leadership::told_by(leads)),
    );
    let sweeping = sweep::keep_sweeping(sweeper, events.clone());
    let context = Context::new(observer, actor, events, client.clone(), clock);
    let passes = Box::pin(Queue::default().run(&context, client, &wake));
    futures::future::join(passes, Box::pin(sweeping)).await;
}

/// As the controller of the operator gathers changes.
const GATHER: Duration = Duration::from_millis(200);
/// As the controller of the operator waits after a pass that ended early.
const AFTER_ERROR: Duration = Duration::from_secs(2);

/// The relocations as the watch told them, and when each is due for a pass.
#[derive(Default)]
struct Queue {
    relocations: BTreeMap<String, NodeRelocation>,
    due: BTreeMap<String, Instant>,
    listed: BTreeMap<String, NodeRelocation>,
}

impl Queue {
    async fn run(mut self, context: &Context, client: Client, wake: &Notify) {
        let api: Api<NodeRelocation> = Api::all(client);
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).backoff(Pause));
        let mut gathered: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if gathered.is_some_and(|at| at <= now) {
                gathered = None;
                self.all_due(context).await;
            }
            let next = self
                .due
                .iter()
                .min_by_key(|(name, at)| (**at, (*name).clone()));
            let next = next.map(|(name, at)| (name.clone(), *at));
            if let Some((name, _)) = next.as_ref().filter(|(_, at)| *at <= now) {
                self.due.remove(name);
                self.pass(name, context).await;
                // What has happened meanwhile comes first.
                tokio::task::yield_now().await;
            }
            let later = next.map(|(_, at)| at).into_iter().chain(gathered).min();
            let sleep = tokio::time::sleep_until(later.unwrap_or(now + Duration::from_hours(1)));
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Ok(event)) => self.heard(event),
                    Some(Err(_)) => {}
                    None => return,
                },
                () = wake.notified() => {
                    gathered.get_or_insert(Instant::now() + GATHER);
                }
                () = sleep => {}
            }
        }
    }

    /// Something else has changed: every relocation that is active is due.
    async fn all_due(&mut self, context: &Context) {
        if self.relocations.values().all(plan::is_over) {
            context.observer.close().await;
            return;
        }
        for name in self.relocations.keys() {
            self.due.insert(name.clone(), Instant::now());
        }
    }

    async fn pass(&mut self, name: &str, context: &Context) {
        let Some(cached) = self.relocations.get(name) else {
            return;
        };
        let again = match controller::pass(cached, context).await {
            Ok(again) => again,
            Err(_) => Some(AFTER_ERROR),
        };
        if let Some(again) = again {
            let at = Instant::now() + again;
            let due = self.due.entry(name.to_owned()).or_insert(at);
            *due = at.min(*due);
        }
    }

    fn heard(&mut self, event: Event<NodeRelocation>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(relocation) => {
                self.listed.insert(relocation.name_any(), relocation);
            }
            Event::InitDone => {
                self.relocations = std::mem::take(&mut self.listed);
                for name in self.relocations.keys() {
                    self.due.insert(name.clone(), Instant::now());
                }
            }
            Event::Apply(relocation) => {
                self.due.insert(relocation.name_any(), Instant::now());
                self.relocations.insert(relocation.name_any(), relocation);
            }
            Event::Delete(relocation) => {
                self.relocations.remove(&relocation.name_any());
                self.due.remove(&relocation.name_any());
            }
        }
    }
}

/// The pause after an error of the watch.
struct Pause;

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}

impl Backoff for Pause {
    fn reset(&mut self) {}
}
