//! The connection of one operator to the simulated API server, as a tower service: latency, faults, watches. Decides nothing.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fault::{Fault, Faults, Lag, Mutant};
use crate::json::{place, set, text, unset};
use crate::resource::Resource;
use crate::server::{self, Call, Target, Verb};
use crate::store::{Refusal, Store};

/// Longest way of a request or an answer, in milliseconds.
const NETWORK: u64 = 12;
/// Longest delay of a watch, in milliseconds.
const NEWS: u64 = 40;
/// The API server ends watches by itself after the time that the client names, in seconds; this is kube's.
const WATCH: u64 = 290;
/// The longest silence that the clients of the operator put up with (see its `main`): longer than a watch.
const SILENCE: Duration = Duration::from_mins(5);
/// A watch that has lost a change breaks off so much later.
const LOST: Duration = Duration::from_secs(20);

/// What the operators of a run have in common.
#[derive(Clone)]
pub struct Shared {
    pub store: Arc<Mutex<Store>>,
    pub faults: Arc<Mutex<Faults>>,
}

/// A lock that a panic elsewhere does not take away: the panic is reported where it happens.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One life of an operator, as its connection sees it.
pub struct Life {
    /// Its user agent.
    pub agent: String,
    alive: AtomicBool,
    died: Notify,
}

impl Life {
    /// A new one.
    #[must_use]
    pub fn new(agent: &str) -> Arc<Self> {
        Arc::new(Self {
            agent: agent.to_owned(),
            alive: AtomicBool::new(true),
            died: Notify::new(),
        })
    }

    /// Ends it.
    pub fn kill(&self) {
        self.alive.store(false, Ordering::Relaxed);
        self.died.notify_one();
    }

    /// Completes when it has ended.
    pub async fn ended(&self) {
        self.died.notified().await;
    }
}

/// The service under the client of an operator.
#[derive(Clone)]
pub struct Wire {
    pub shared: Shared,
    pub life: Arc<Life>,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The connection of a request that got no answer, as the client gives it up.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no answer (simulated)")]
pub struct NoAnswer;

impl tower::Service<Request<Body>> for Wire {
    type Response = Answer;
    type Error = NoAnswer;
    type Future = BoxFuture<'static, Result<Answer, NoAnswer>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            wire.exchange(&parts.method, &parts.uri, &body).await
        })
    }
}

impl Wire {
    async fn exchange(
        &self,
        method: &http::Method,
        uri: &http::Uri,
        body: &[u8],
    ) -> Result<Answer, NoAnswer> {
        let Some(mut call) = Call::read(method, uri, body) else {
            let message = format!("the simulation does not serve {method} {uri}");
            return Ok(refused(&Refusal::new(404, "NotFound", message), None));
        };
        let (fault, there, back) = {
            let mut faults = lock(&self.shared.faults);
            let fault = faults.of(&call);
            (fault, faults.latency(NETWORK), faults.latency(NETWORK))
        };
        tracing::trace!(agent = self.life.agent, %call, ?fault, "request");
        match fault {
            Some(Fault::CrashBefore) => self.dies().await,
            Some(Fault::LostBefore) => return Self::silence().await,
            Some(Fault::Answer(code, wait)) => {
                tokio::time::sleep(there + back).await;
                return Ok(self.after_fault(&call, code, wait));
            }
            Some(Fault::LostAfter | Fault::CrashAfter) | None => {}
        }
        tokio::time::sleep(there).await;
        if !self.life.alive.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if call.verb == Verb::Watch
            && let Target::Objects(resource) = call.target
        {
            return Ok(self.watch(resource, &call));
        }
        let mutant = lock(&self.shared.faults).mutant;
        if let Some(mutant) = mutant
            && let Some(answer) = mutate(mutant, &mut call)
        {
            return Ok(ok(&answer));
        }
        let answer = {
            let mut store = lock(&self.shared.store);
            let answer = server::answer(&mut store, &call);
            let code = match &answer {
                Ok(_) if call.verb == Verb::Create => 201,
                Ok(_) => 200,
                Err(refusal) => refusal.code,
            };
            let event = call.audited(store.audit().len(), store.now(), &self.life.agent, code);
            store.log(event);
            if mutant == Some(Mutant::DoubleRestart)
                && code == 200
                && let Some(again) = restarted_again(&call)
                && server::answer(&mut store, &again).is_ok()
            {
                let event = again.audited(store.audit().len(), store.now(), &self.life.agent, code);
                store.log(event);
            }
            answer
        };
        match fault {
            Some(Fault::CrashAfter) => self.dies().await,
            Some(Fault::LostAfter) => return Self::silence().await,
            _ => {}
        }
        tokio::time::sleep(back).await;
        Ok(match answer {
            Ok(object) => ok(&object),
            Err(refusal) => refused(&refusal, None),
        })
    }

    /// Until the client gives the connection up. Who has a deadline of their own does not wait so long.
    async fn silence() -> Result<Answer, NoAnswer> {
        tokio::time::sleep(SILENCE).await;
        Err(NoAnswer)
    }

    async fn dies(&self) {
        self.life.kill();
        std::future::pending::<()>().await;
    }

    fn after_fault(&self, call: &Call, code: u16, wait: Option<u32>) -> Answer {
        if lock(&self.shared.faults).mutant == Some(Mutant::ActOnUnknown) && call.verb == Verb::List
        {
            let store = lock(&self.shared.store);
            return ok(
                &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": store.revision().to_string()}, "items": []}),
            );
        }
        let (reason, message) = match code {
            403 => (
                "Forbidden",
                format!("User \"relocator\" cannot {call} (simulated)"),
            ),
            404 => ("NotFound", "not found (simulated)".to_owned()),
            409 => (
                "Conflict",
                "the object has been modified (simulated)".to_owned(),
            ),
            422 => ("Invalid", "refused as invalid (simulated)".to_owned()),
            429 => (
                "TooManyRequests",
                "Too many requests, please try again later. (simulated)".to_owned(),
            ),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request (simulated)".to_owned(),
            ),
            _ => (
                "InternalError",
                "failed calling webhook (simulated)".to_owned(),
            ),
        };
        let mut refusal = Refusal::new(code, reason, message);
        if let Some(seconds) = wait {
            refusal.details = json!({"retryAfterSeconds": seconds});
        }
        refused(&refusal, wait)
    }

    fn watch(&self, resource: Resource, call: &Call) -> Answer {
        let since = call
            .query
            .get("resourceVersion")
            .and_then(|v| v.parse().ok())
            .unwrap_or_default();
        let (told, latency) = {
            let told = lock(&self.shared.store).news();
            (told, lock(&self.shared.faults).latency(NEWS))
        };
        let watching = Watching {
            shared: self.shared.clone(),
            life: Arc::clone(&self.life),
            resource,
            since,
            next: 0,
            told,
            latency,
            ends: Instant::now() + Duration::from_secs(WATCH),
            breaks: None,
            again: None,
        };
        let lines: Pin<Box<dyn Stream<Item = Bytes> + Send>> =
            Box::pin(futures::stream::unfold(watching, Watching::line));
        let frames = futures::StreamExt::map(lines, |line| Ok(Frame::data(line)));
        response(200, StreamBody::new(frames).boxed_unsync())
    }
}

/// What the mutant makes of the request; an answer if it is never sent.
fn mutate(mutant: Mutant, call: &mut Call) -> Option<Value> {
    let pods = call.target == Target::Objects(Resource::Pods);
    match mutant {
        Mutant::NoUid if call.subresource == "eviction" => {
            unset(&mut call.body, &["deleteOptions", "preconditions"]);
        }
        Mutant::UncordonOthers
            if call.verb == Verb::Patch && call.target == Target::Objects(Resource::Nodes) =>
        {
            let releases = call
                .body
                .pointer("/metadata/annotations/relocation.sh~1claimed-by")
                == Some(&Value::Null);
            if releases {
                *place(&mut call.body, &["spec", "unschedulable"]) = Value::Null;
            }
        }
        Mutant::PlaceholderLeak if pods && call.verb == Verb::Delete => {
            return Some(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}));
        }
        _ => {}
    }
    None
}

/// Where a workload's template says that it is to be restarted.
const RESTART: [&str; 5] = [
    "spec",
    "template",
    "metadata",
    "annotations",
    "kubectl.kubernetes.io/restartedAt",
];

/// The restart once more with another value, as one that follows from the present time would be.
fn restarted_again(call: &Call) -> Option<Call> {
    let value = text(&call.body, &RESTART);
    let again = (!value.is_empty()).then(|| format!("{value} and later"))?;
    let mut call = call.clone();
    unset(&mut call.body, &["metadata", "resourceVersion"]);
    set(&mut call.body, &RESTART, again);
    Some(call)
}

/// A watch that is open.
struct Watching {
    shared: Shared,
    life: Arc<Life>,
    resource: Resource,
    /// The revision from which on everything is told.
    since: u64,
    /// The place in the store's changes from which on nothing has been looked at.
    next: usize,
    told: Arc<Notify>,
    latency: Duration,
    ends: Instant,
    /// It has lost a change, and breaks off then.
    breaks: Option<Instant>,
    /// A line that is told twice.
    again: Option<Bytes>,
}

/// What a watch does next.
enum Step {
    Tell(Bytes),
    /// Until then, or until something happens.
    Wait(Instant),
    Break,
}

impl Watching {
    /// The next line; nothing when the watch ends.
    async fn line(mut self) -> Option<(Bytes, Self)> {
        loop {
            if !self.life.alive.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            if let Some(line) = self.again.take() {
                return Some((line, self));
            }
            let told = Arc::clone(&self.told);
            let mut news = std::pin::pin!(told.notified());
            // From here on nothing is missed.
            news.as_mut().enable();
            match self.step() {
                Step::Tell(line) => return Some((line, self)),
                Step::Break => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version (simulated)"});
                    let line =
                        Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": status})));
                    // Nothing more comes: the client lists again.
                    self.ends = Instant::now();
                    self.next = usize::MAX;
                    return Some((line, self));
                }
                Step::Wait(until) => {
                    if Instant::now() >= self.ends {
                        return None;
                    }
                    let until = until.min(self.ends);
                    tokio::select! {
                        biased;
                        () = news => {}
                        () = tokio::time::sleep_until(until) => {}
                    }
                }
            }
        }
    }

    fn step(&mut self) -> Step {
        let shared = self.shared.clone();
        let mut faults = lock(&shared.faults);
        let store = lock(&shared.store);
        let calm = faults.is_calm();
        if self.breaks.is_some_and(|at| at <= Instant::now() || calm) {
            return Step::Break;
        }
        let soon = if calm { self.ends } else { faults.calm() };
        loop {
            let changes = store.changes().get(self.next..).unwrap_or_default();
            let mine =
                |c: &&crate::store::Change| c.resource == self.resource && c.revision > self.since;
            let Some(offset) = changes.iter().position(|c| mine(&c)) else {
                // Nothing new. What is after the end is looked at when it comes.
                self.next = self.next.saturating_add(changes.len());
                let until = self.breaks.unwrap_or(soon);
                return Step::Wait(until);
            };
            let Some(change) = changes.get(offset) else {
                return Step::Wait(soon);
            };
            let held = match faults.watches.lag {
                _ if calm => false,
                Lag::None => false,
                Lag::Everything => true,
                Lag::Changes(n) => changes.iter().skip(offset + 1).filter(mine).count() < n,
            };
            if held {
                return Step::Wait(self.breaks.unwrap_or(soon).min(soon));
            }
            let age = store.now().duration_since(change.at);
            let age = Duration::try_from(age).unwrap_or_default();
            if age < self.latency {
                return Step::Wait(Instant::now() + self.latency.saturating_sub(age));
            }
            self.next += offset + 1;
            self.since = change.revision;
            let odds = faults.watches;
            if faults.chance(odds.broken, "watch broken off") {
                return Step::Break;
            }
            if faults.chance(odds.dropped, "change dropped") {
                self.breaks = Some(self.breaks.unwrap_or(Instant::now() + LOST));
                continue;
            }
            let uid = text(&change.object, &["metadata", "uid"]);
            let newer = changes.iter().skip(offset + 1).any(|c| {
                c.resource == self.resource && text(&c.object, &["metadata", "uid"]) == uid
            });
            if newer && faults.chance(odds.merged, "change merged") {
                continue;
            }
            if faults.chance(odds.doubled, "change doubled") {
                self.again = Some(change.line.clone());
            }
            return Step::Tell(change.line.clone());
        }
    }
}

fn response(code: u16, body: UnsyncBoxBody<Bytes, Infallible>) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("application/json"),
    );
    response
}

fn full(value: &Value) -> UnsyncBoxBody<Bytes, Infallible> {
    let body = Full::new(Bytes::from(value.to_string()));
    body.map_err(|never| match never {}).boxed_unsync()
}

fn ok(value: &Value) -> Answer {
    response(200, full(value))
}

fn refused(refusal: &Refusal, wait: Option<u32>) -> Answer {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": refusal.code, "reason": refusal.reason, "message": refusal.message,
    });
    if !refusal.details.is_null() {
        set(&mut status, &["details"], refusal.details.clone());
    }
    let mut answer = response(refusal.code, full(&status));
    if let Some(seconds) = wait {
        answer
            .headers_mut()
            .insert("retry-after", http::HeaderValue::from(seconds));
    }
    answer
}
