//! Wiring: wake-ups in, passes out. A pass is observe, plan, record, act.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::controller::{Action as Requeue, Controller};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::{Mutex, Notify};

use crate::act::{self, ActError, Actor, Effect};
use crate::api::relocation::NodeRelocation;
use crate::clock::Clock;
use crate::observe::Observer;
use crate::plan::{self, Action, Plan};
use crate::telemetry::events::Events;
use crate::telemetry::metrics::{Metrics, Outcome};
use crate::world::{ActionKey, Refusal, RefusalKind, World};

/// Changes that come within this time are looked at together: a pass costs more than a moment of waiting.
const GATHER: Duration = Duration::from_millis(200);
/// Requests of one pass under way at a time.
const AT_ONCE: usize = 8;
/// Pause after a pass that could not be completed.
const AGAIN: Duration = Duration::from_millis(500);

/// Pause after a relocation was not found of which the watch still tells.
const GONE: Duration = Duration::from_secs(30);

/// What a pass works with.
pub struct Context {
    pub observer: Observer,
    pub actor: Actor,
    pub events: Events,
    /// For reads of the relocation itself, with deadlines and without retries.
    pub client: Client,
    pub clock: Clock,
    /// Figures of what is done.
    pub metrics: Metrics,
    memory: Mutex<HashMap<String, Memory>>,
}

/// Words in a status change at every step of every pod; a person reads them at most this often.
const WORDS: Duration = Duration::from_secs(2);

/// What is remembered of a relocation between passes: only hints. Losing it costs a few requests.
#[derive(Default)]
struct Memory {
    /// As our last write returned it: newer than what the watch has told so far.
    written: Option<NodeRelocation>,
    /// When that was.
    written_at: Option<Timestamp>,
    refusals: BTreeMap<ActionKey, Refusal>,
}

impl Memory {
    fn wrote(&mut self, relocation: NodeRelocation, at: Timestamp) {
        self.written = Some(relocation);
        self.written_at = Some(at);
    }
}

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The relocation could not be read.
    #[error("reading NodeRelocation {name}: {source}")]
    Read { name: String, source: kube::Error },
    /// The status could not be recorded; nothing was done.
    #[error("recording the status of NodeRelocation {name}: {source}")]
    Record { name: String, source: ActError },
}

impl Context {
    /// A context with nothing remembered.
    #[must_use]
    pub fn new(
        observer: Observer,
        actor: Actor,
        events: Events,
        client: Client,
        clock: Clock,
    ) -> Self {
        Self {
            observer,
            actor,
            events,
            client,
            clock,
            metrics: Metrics::default(),
            memory: Mutex::default(),
        }
    }
}

/// Runs until `stop` completes; ends the pass it is in.
pub async fn run(
    context: Arc<Context>,
    watching: Client,
    wake: Arc<Notify>,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let api: Api<NodeRelocation> = Api::all(watching);
    let controller = Controller::new(api, watcher::Config::default());
    context.metrics.follow(controller.store());
    let wakes = wakes(wake, controller.store(), Arc::clone(&context));
    controller
        // One pass at a time, over all relocations: what one has just written, the next one sees.
        .with_config(kube::runtime::controller::Config::default().concurrency(1))
        .reconcile_all_on(wakes)
        .graceful_shutdown_on(stop)
        .run(reconcile, on_error, context)
        .for_each(|result| async {
            if let Err(error) = result {
                tracing::debug!(%error, "reconcile");
            }
        })
        .await;
}

/// A wake-up for all relocations after each burst of changes. Closes the watches when nothing is active any more.
fn wakes(
    wake: Arc<Notify>,
    store: Store<NodeRelocation>,
    context: Arc<Context>,
) -> impl Stream<Item = ()> {
    futures::stream::unfold((), move |()| {
        let (wake, store, context) = (Arc::clone(&wake), store.clone(), Arc::clone(&context));
        async move {
            loop {
                wake.notified().await;
                tokio::time::sleep(GATHER).await;
                if store
                    .state()
                    .iter()
                    .any(|relocation| !plan::is_over(relocation))
                {
                    return Some(((), ()));
                }
                context.observer.close().await;
                context.memory.lock().await.clear();
            }
        }
    })
}

async fn reconcile(
    cached: Arc<NodeRelocation>,
    context: Arc<Context>,
) -> Result<Requeue, PassError> {
    let begun = Instant::now();
    let passed = pass(&cached, &context).await;
    context.metrics.passed(begun.elapsed(), passed.is_err());
    Ok(passed?.map_or_else(Requeue::await_change, Requeue::requeue))
}

/// One pass: observe, plan, record, act. Returns when to look again if nothing is heard before; `None`: not before something changes.
pub async fn pass(
    cached: &NodeRelocation,
    context: &Context,
) -> Result<Option<Duration>, PassError> {
    let Some(relocation) = current(cached, context).await else {
        return Ok(None);
    };
    let world = if plan::is_over(&relocation) {
        // Nothing is looked at for it any more.
        World::unseen(relocation.clone(), context.clock.now())
    } else {
        let uid = relocation.uid().unwrap_or_default();
        let refusals = context
            .memory
            .lock()
            .await
            .entry(uid)
            .or_default()
            .refusals
            .clone();
        context.observer.look(&relocation, refusals).await
    };
    let plan = plan::plan(&world);
    if let Some(later) = words_can_wait(context, &relocation, &plan).await {
        return Ok(Some(plan.wake_after.map_or(later, |wake| wake.min(later))));
    }
    let relocation = match record(context, relocation, &plan).await? {
        Basis::Same(relocation) => *relocation,
        Basis::Changed => return Ok(Some(AGAIN)),
        // The watch will tell. If it does not, it was not gone.
        Basis::Gone => return Ok(Some(GONE)),
    };
    let undone = perform(context, &relocation, &plan.actions).await;
    Ok(if undone { Some(AGAIN) } else { plan.wake_after })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature that kube-runtime asks for"
)]
fn on_error(relocation: Arc<NodeRelocation>, error: &PassError, _context: Arc<Context>) -> Requeue {
    tracing::warn!(relocation = relocation.name_any(), %error, "pass ended early");
    Requeue::requeue(Duration::from_secs(2))
}

/// The newest of what the watch told and what our last write returned.
async fn current(cached: &NodeRelocation, context: &Context) -> Option<NodeRelocation> {
    let uid = cached.uid()?;
    let version = |r: &NodeRelocation| {
        r.resource_version()
            .and_then(|v| v.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let memory = context.memory.lock().await;
    let written = memory
        .get(&uid)
        .and_then(|m| m.written.as_ref())
        .filter(|w| version(w) > version(cached));
    Some(written.unwrap_or(cached).clone())
}

/// How long the plan can wait when there is nothing in it but other words for the status.
async fn words_can_wait(
    context: &Context,
    relocation: &NodeRelocation,
    plan: &Plan,
) -> Option<Duration> {
    let before = relocation.status.clone().unwrap_or_default();
    let words = plan.actions.is_empty()
        && plan.status != before
        && plan::only_words_differ(&before, &plan.status);
    let memory = context.memory.lock().await;
    let written_at = memory.get(&relocation.uid()?)?.written_at?;
    let age = Duration::try_from(context.clock.now().duration_since(written_at)).ok()?;
    (words && age < WORDS).then(|| WORDS.saturating_sub(age))
}

/// What a plan was made for, as it is now.
enum Basis {
    /// It is the same, with the status of the plan.
    Same(Box<NodeRelocation>),
    /// It is another by now: the next pass starts from that.
    Changed,
    Gone,
}

/// Records the status if it has changed; if only actions are planned, makes sure that they are planned for the relocation as it is.
async fn record(
    context: &Context,
    relocation: NodeRelocation,
    plan: &Plan,
) -> Result<Basis, PassError> {
    let before = relocation.status.clone().unwrap_or_default();
    if plan.status == before && plan.actions.is_empty() {
        return Ok(Basis::Same(Box::new(relocation)));
    }
    if plan.status == before {
        return read(context, relocation).await;
    }
    let name = relocation.name_any();
    match context.actor.record(&relocation, plan.status.clone()).await {
        Ok(recorded) => {
            for note in plan::notes(&before, &plan.status) {
                tracing::info!(relocation = name, reason = note.reason, "{}", note.text);
                context.events.note(&recorded, &note);
            }
            wrote(context, recorded.clone()).await;
            Ok(Basis::Same(Box::new(recorded)))
        }
        // Somebody has changed it, or it is gone: the next pass starts from what it is now, whatever the watch has told.
        Err(ActError::Api(kube::Error::Api(status)))
            if status.is_conflict() || status.is_not_found() =>
        {
            Ok(match read(context, relocation).await? {
                Basis::Same(_) | Basis::Changed => Basis::Changed,
                Basis::Gone => Basis::Gone,
            })
        }
        Err(source) => Err(PassError::Record { name, source }),
    }
}

/// Reads the relocation itself, and remembers what has become of it.
async fn read(context: &Context, relocation: NodeRelocation) -> Result<Basis, PassError> {
    let name = relocation.name_any();
    let api: Api<NodeRelocation> = Api::all(context.client.clone());
    let now = api
        .get_opt(&name)
        .await
        .map_err(|source| PassError::Read { name, source })?;
    Ok(match now.filter(|now| now.uid() == relocation.uid()) {
        None => Basis::Gone,
        Some(now) if now.resource_version() == relocation.resource_version() => {
            Basis::Same(Box::new(relocation))
        }
        Some(now) => {
            wrote(context, now).await;
            Basis::Changed
        }
    })
}

async fn wrote(context: &Context, relocation: NodeRelocation) {
    let uid = relocation.uid().unwrap_or_default();
    let now = context.clock.now();
    let mut memory = context.memory.lock().await;
    memory.entry(uid).or_default().wrote(relocation, now);
}

/// Carries out the actions. True when one of them has to be tried again soon.
async fn perform(context: &Context, relocation: &NodeRelocation, actions: &[Action]) -> bool {
    // Claims in their order, and none after one that failed: see plan::protect.
    let (claims, others): (Vec<_>, Vec<_>) = actions
        .iter()
        .cloned()
        .partition(|a| matches!(a, Action::ClaimNode { .. }));
    let mut again = false;
    for action in claims {
        if !attempt(context, relocation, &action).await {
            again = true;
            break;
        }
    }
    let attempts = others
        .into_iter()
        .map(|action| async move { attempt(context, relocation, &action).await });
    let results: Vec<_> = futures::stream::iter(attempts)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    again || results.contains(&false)
}

/// Carries out one action and takes note of what came of it. False when it was not carried out.
async fn attempt(context: &Context, relocation: &NodeRelocation, action: &Action) -> bool {
    let uid = relocation.uid().unwrap_or_default();
    let name = relocation.name_any();
    match context.actor.perform(relocation, action).await {
        Ok(effect) => {
            context.metrics.requested(action, None);
            tracing::info!(
                relocation = name,
                action = action.key().as_str(),
                ?action,
                "done"
            );
            context
                .memory
                .lock()
                .await
                .entry(uid)
                .or_default()
                .refusals
                .remove(&action.key());
            if !matches!(effect, Effect::AlreadyDone) {
                context.events.acted(relocation, action);
            }
            match effect {
                Effect::Relocation(written) => wrote(context, *written).await,
                Effect::Node(node) => context.observer.wrote_node(&node).await,
                Effect::Pod(pod) => context.observer.wrote_pod(&pod).await,
                Effect::Deployment(deployment) => {
                    context.observer.wrote_deployment(&deployment).await;
                }
                Effect::StatefulSet(set) => context.observer.wrote_stateful_set(&set).await,
                Effect::Owner(owner) => context.observer.wrote_owner(&owner).await,
                Effect::Leaving(pod) => context.observer.leaving(&pod).await,
                Effect::ClaimLeaving(claim) => context.observer.claim_leaving(&claim).await,
                Effect::Accepted | Effect::AlreadyDone => {}
            }
            true
        }
        Err(error) => {
            let mut memory = context.memory.lock().await;
            let refusals = &mut memory.entry(uid).or_default().refusals;
            let attempts = refusals.get(&action.key()).map_or(0, |r| r.attempts);
            let refusal = act::refusal(action, &error, attempts, context.clock.now());
            let kind = refusal.as_ref().map(|r| Outcome::Refused(r.kind));
            let outcome = kind.unwrap_or(Outcome::Moot);
            context.metrics.requested(action, Some(outcome));
            if let Some(refusal) = refusal {
                let expected = matches!(refusal.kind, RefusalKind::Outdated | RefusalKind::Budget);
                if expected {
                    tracing::info!(relocation = name, action = action.key().as_str(), %error, "refused");
                } else {
                    tracing::warn!(relocation = name, action = action.key().as_str(), %error, "refused");
                }
                refusals.insert(action.key(), refusal);
            }
            false
        }
    }
}
