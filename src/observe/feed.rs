//! One watched resource, folded into a map of world types. Holds data, decides nothing.
//!
//! A watch is behind by nature. Two things make that harmless: every write carries a precondition, and what we wrote ourselves is put
//! into the map at once ([`Feed::wrote`]), so that a pass does not ask again for what the last one did.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::TryStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, utils::Backoff};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::world::{Objects, Uid, Unknown};

/// After an error the watch is tried again within this time, so an error older than twice that is over.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// How long the API server keeps one watch open, in seconds. What is silent for longer is dead, so this bounds how old a picture can be
/// that nobody contradicts: a connection that was lost without a word, a server that hung.
pub(crate) const WATCH_SECONDS: u32 = 60;

struct State<T> {
    objects: Objects<T>,
    /// The list in progress after a (re)start of the watch.
    filling: BTreeMap<Uid, Arc<T>>,
    synced: bool,
    failure: Option<(Instant, Unknown)>,
    /// The highest resourceVersion heard of: what we wrote at a lower one, the watch has already told or overtaken.
    latest: u64,
    /// What was put in ahead of the watch, by UID: older news of it is not taken.
    ahead: BTreeMap<Uid, u64>,
}

/// One watched resource.
pub(super) struct Feed<T> {
    what: String,
    state: Arc<RwLock<State<T>>>,
    synced: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `metadata.resourceVersion` as a number: comparable within a resource (KEP-5504).
fn version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

impl<T: Send + Sync + 'static> Feed<T> {
    /// Starts watching. `wake` is notified at every change.
    pub(super) fn open<K>(
        what: &str,
        api: Api<K>,
        wake: Arc<Notify>,
        convert: fn(&K) -> Option<T>,
    ) -> Self
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let state = Arc::new(RwLock::new(State {
            objects: Arc::default(),
            filling: BTreeMap::new(),
            synced: false,
            failure: None,
            latest: 0,
            ahead: BTreeMap::new(),
        }));
        let (sync_sender, synced) = watch::channel(false);
        let task = tokio::spawn(follow(
            what.to_owned(),
            api,
            Arc::clone(&state),
            wake,
            sync_sender,
            convert,
        ));
        Self {
            what: what.to_owned(),
            state,
            synced,
            task,
        }
    }

    /// The objects, or why they are not known.
    pub(super) fn read(&self) -> Result<Objects<T>, Unknown> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, failure)) = &state.failure
            && at.elapsed() < LONGEST_BACKOFF * 2
        {
            return Err(failure.clone());
        }
        if state.synced {
            return Ok(Arc::clone(&state.objects));
        }
        Err(Unknown {
            what: self.what.clone(),
            why: "the first list has not been answered yet".into(),
            forbidden: false,
        })
    }

    /// Completes when the first list is in, or has failed.
    pub(super) fn first_answer(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut synced = self.synced.clone();
        async move {
            // An error means that the feed is being closed: nobody waits any more.
            let _closed = synced.wait_for(|answered| *answered).await;
        }
    }

    /// Puts in what a write of ours returned, unless the watch has already told of it.
    pub(super) fn wrote(&self, uid: &Uid, resource_version: Option<&str>, object: T) {
        let Some(version) = version(resource_version) else {
            return;
        };
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.synced && version > state.latest {
            Arc::make_mut(&mut state.objects).insert(uid.clone(), Arc::new(object));
            state.ahead.insert(uid.clone(), version);
        }
    }

    /// Changes an object ahead of the watch, if it is still there.
    pub(super) fn amend(&self, uid: &Uid, change: impl FnOnce(&T) -> T) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = Arc::make_mut(&mut state.objects).get_mut(uid) {
            *object = Arc::new(change(object));
        }
    }
}

impl<T> State<T> {
    fn applied(&mut self, uid: Uid, version: Option<u64>, object: T) {
        self.latest = self.latest.max(version.unwrap_or(0));
        if let Some(ahead) = self.ahead.get(&uid) {
            if version.is_some_and(|v| v < *ahead) {
                return;
            }
            self.ahead.remove(&uid);
        }
        Arc::make_mut(&mut self.objects).insert(uid, Arc::new(object));
    }

    fn deleted(&mut self, uid: &Uid, version: Option<u64>) {
        self.latest = self.latest.max(version.unwrap_or(0));
        self.ahead.remove(uid);
        Arc::make_mut(&mut self.objects).remove(uid);
    }
}

async fn follow<K, T>(
    what: String,
    api: Api<K>,
    state: Arc<RwLock<State<T>>>,
    wake: Arc<Notify>,
    synced: watch::Sender<bool>,
    convert: fn(&K) -> Option<T>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let mut events = std::pin::pin!(watcher(api, config).backoff(Patience::default()));
    loop {
        let event = events.try_next().await;
        let mut state = state.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(None) => return,
            Ok(Some(event)) => {
                state.failure = None;
                if let Some(first) = fold(&mut state, event, convert) {
                    synced.send_replace(first);
                }
            }
            Err(error) => {
                state.failure = Some((Instant::now(), unknown(&what, &error)));
                synced.send_replace(true);
            }
        }
        drop(state);
        wake.notify_one();
    }
}

/// Folds one event in. `Some(true)` when a list is complete.
fn fold<K: Resource, T>(
    state: &mut State<T>,
    event: Event<K>,
    convert: fn(&K) -> Option<T>,
) -> Option<bool> {
    let uid = |object: &K| object.uid().map(Uid::from);
    match event {
        Event::Init => state.filling.clear(),
        Event::InitApply(object) => {
            state.latest = state
                .latest
                .max(version(object.resource_version().as_deref()).unwrap_or(0));
            if let (Some(uid), Some(converted)) = (uid(&object), convert(&object)) {
                state.filling.insert(uid, Arc::new(converted));
            }
        }
        Event::InitDone => {
            state.objects = Arc::new(std::mem::take(&mut state.filling));
            state.ahead.clear();
            state.synced = true;
            return Some(true);
        }
        Event::Apply(object) => {
            if let (Some(uid), Some(converted)) = (uid(&object), convert(&object)) {
                state.applied(
                    uid,
                    version(object.resource_version().as_deref()),
                    converted,
                );
            }
        }
        Event::Delete(object) => {
            if let Some(uid) = uid(&object) {
                state.deleted(&uid, version(object.resource_version().as_deref()));
            }
        }
    }
    None
}

fn unknown(what: &str, error: &watcher::Error) -> Unknown {
    let (why, forbidden) = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            (status.message.clone(), status.is_forbidden())
        }
        watcher::Error::WatchError(status) => (status.message.clone(), status.is_forbidden()),
        other => (other.to_string(), false),
    };
    Unknown {
        what: what.to_owned(),
        why,
        forbidden,
    }
}

/// How long a watch waits after an error: doubling, up to [`LONGEST_BACKOFF`].
struct Patience(Duration);

const SHORTEST_BACKOFF: Duration = Duration::from_millis(200);

impl Default for Patience {
    fn default() -> Self {
        Self(SHORTEST_BACKOFF)
    }
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = self.0;
        self.0 = (now * 2).min(LONGEST_BACKOFF);
        Some(now)
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.0 = SHORTEST_BACKOFF;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    fn node(uid: &str, version: u64, label: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid, "resourceVersion": version.to_string(), "labels": {"l": label}}}))
            .unwrap()
    }

    fn label(node: &Node) -> Option<String> {
        node.labels().get("l").cloned()
    }

    fn state() -> State<String> {
        let mut state = State {
            objects: Arc::default(),
            filling: BTreeMap::new(),
            synced: false,
            failure: None,
            latest: 0,
            ahead: BTreeMap::new(),
        };
        for event in [
            Event::Init,
            Event::InitApply(node("a", 10, "listed")),
            Event::InitDone,
        ] {
            fold(&mut state, event, label);
        }
        state
    }

    fn seen(state: &State<String>) -> Vec<&str> {
        state.objects.values().map(|v| v.as_str()).collect()
    }

    #[test]
    fn news_older_than_our_own_write_is_not_taken() {
        let mut state = state();
        // We wrote version 30; the watch is still telling what happened at 20.
        Arc::make_mut(&mut state.objects).insert("a".into(), Arc::new("written".into()));
        state.ahead.insert("a".into(), 30);
        fold(&mut state, Event::Apply(node("a", 20, "older")), label);
        assert_eq!(seen(&state), ["written"]);
        fold(&mut state, Event::Apply(node("a", 30, "same")), label);
        fold(&mut state, Event::Apply(node("a", 31, "newer")), label);
        assert_eq!(seen(&state), ["newer"]);
    }

    #[test]
    fn a_relist_replaces_everything_at_once() {
        let mut state = state();
        fold(&mut state, Event::Init, label);
        fold(&mut state, Event::InitApply(node("b", 40, "new")), label);
        assert_eq!(seen(&state), ["listed"], "half a list is never shown");
        fold(&mut state, Event::InitDone, label);
        assert_eq!(seen(&state), ["new"]);
    }
}
