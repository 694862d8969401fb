//! The real operator in the simulation: its own observer, planner, actor and controller, against the simulated API server. It dies as
//! the faults say, and is started again as a Deployment would.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use relocator::act::Actor;
use relocator::clock::Clock;
use relocator::controller::{self, Context};
use relocator::lease::Leadership;
use relocator::observe::Observer;
use relocator::telemetry::events::Events;
use tokio::sync::Notify;

use crate::wire::{Life, Shared, Wire, lock};

/// Runs one operator for ever, life after life.
pub async fn run(shared: Shared, agent: String, clock: Clock) {
    loop {
        let life = Life::new(&agent);
        let ended = Arc::clone(&life);
        let operator = tokio::spawn(live(shared.clone(), life, clock));
        ended.ended().await;
        operator.abort();
        // What it had in memory is gone with it.
        let _aborted = operator.await;
        let pause = lock(&shared.faults).latency(5000);
        tokio::time::sleep(Duration::from_millis(500) + pause).await;
    }
}

/// One life.
async fn live(shared: Shared, life: Arc<Life>, clock: Clock) {
    let agent = life.agent.clone();
    let client = Client::new(Wire { shared, life }, "default");
    let wake = Arc::new(Notify::new());
    let observer = Observer::new(client.clone(), client.clone(), Arc::clone(&wake), clock);
    // The worst case: nothing but preconditions keeps two of them apart.
    let actor = Actor::new(client.clone(), Leadership::always());
    let events = Events::start(client.clone(), &agent);
    let context = Arc::new(Context::new(observer, actor, events, client.clone(), clock));
    controller::run(context, client, wake, std::future::pending()).await;
}
