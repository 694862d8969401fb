//! The recorder: lists and watches the cluster and keeps its history. The only module here that talks to the API server,
//! beside the snapshot, and it only reads.
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::try_join_all;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use tokio::task::JoinHandle;

use super::audit::{AuditError, read_audit_log};
use super::history::{Cause, Change, Gap, History};
use super::object::{Kind, Object, Uid};

/// What could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A list failed.
    #[error("listing {}", .kind.resource())]
    List {
        /// Of what.
        kind: Kind,
        /// Why.
        source: kube::Error,
    },
    /// A list without a resourceVersion that can be ordered.
    #[error("the list of {} has the resourceVersion {version:?}, which is no number", .kind.resource())]
    Version {
        /// Of what.
        kind: Kind,
        /// What it said.
        version: Option<String>,
    },
    /// A watch did not reach the state of a fresh list.
    #[error("the watch of {} did not catch up within {within:?}: {missing}", .kind.resource())]
    NotCaughtUp {
        /// Of what.
        kind: Kind,
        /// How long it was waited for.
        within: Duration,
        /// What differs.
        missing: String,
    },
    /// The audit log.
    #[error(transparent)]
    Audit(#[from] AuditError),
}

/// How to record.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// What to watch.
    pub kinds: Vec<Kind>,
    /// How long `finish` waits for the watches to catch up.
    pub catch_up: Duration,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            kinds: Kind::ALL.to_vec(),
            // A loaded machine of two cores delivers thousands of events in a few seconds; 30 is an error.
            catch_up: Duration::from_secs(30),
        }
    }
}

/// A pause before a broken watch is opened again: long enough not to hammer an API server that restarts.
const RECONNECT: Duration = Duration::from_millis(200);
/// How often it is looked whether a CRD that was absent is served by now.
const ABSENT: Duration = Duration::from_secs(2);
/// The server ends a watch after this many seconds, so that a dead connection is noticed.
const WATCH_SECONDS: u32 = 240;

/// Watches the cluster from `start` to `finish`. Dropped, it stops.
pub struct Recorder {
    client: Client,
    options: RecorderOptions,
    started: Timestamp,
    ledger: Arc<Mutex<Ledger>>,
    watches: Vec<JoinHandle<()>>,
}

impl Recorder {
    /// Lists everything, which is the state at the start, and watches from there.
    pub async fn start(client: Client, options: RecorderOptions) -> Result<Self, RecordError> {
        let started = Timestamp::now();
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let lists = try_join_all(options.kinds.iter().map(|&kind| {
            let api = api(&client, kind);
            async move { Ok::<_, RecordError>((kind, list(&api, kind).await?)) }
        }))
        .await?;
        let mut watches = Vec::new();
        for (kind, listed) in lists {
            let from = listed.as_ref().map(|l| l.revision);
            if let Some(listed) = listed {
                with(&ledger, |l| l.initial(started, listed));
            }
            watches.push(tokio::spawn(follow(
                api(&client, kind),
                kind,
                from,
                Arc::clone(&ledger),
            )));
        }
        Ok(Self {
            client,
            options,
            started,
            ledger,
            watches,
        })
    }

    /// When the recording began.
    #[must_use]
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// What was seen so far, without the audit log: for a live view, or to wait for something.
    #[must_use]
    pub fn so_far(&self) -> History {
        let (changes, gaps) = with(&self.ledger, |l| (l.changes.clone(), l.gaps.clone()));
        History::new(self.started, Timestamp::now(), changes, Vec::new(), gaps)
    }

    /// Waits until the watches have seen all that a fresh list shows, stops, and reads the audit log since the start.
    pub async fn finish(self, audit_log: &Path) -> Result<History, RecordError> {
        for &kind in &self.options.kinds {
            self.catch_up(kind).await?;
        }
        let ended = Timestamp::now();
        let (changes, gaps) = with(&self.ledger, |l| {
            (std::mem::take(&mut l.changes), l.gaps.clone())
        });
        let audit = read_audit_log(audit_log, self.started).await?;
        Ok(History::new(self.started, ended, changes, audit, gaps))
    }

    async fn catch_up(&self, kind: Kind) -> Result<(), RecordError> {
        let Some(listed) = list(&api(&self.client, kind), kind).await? else {
            return Ok(());
        };
        let deadline = tokio::time::Instant::now() + self.options.catch_up;
        loop {
            let Some(missing) = with(&self.ledger, |l| l.behind(kind, &listed)) else {
                return Ok(());
            };
            if tokio::time::Instant::now() >= deadline {
                return Err(RecordError::NotCaughtUp {
                    kind,
                    within: self.options.catch_up,
                    missing,
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        for watch in &self.watches {
            watch.abort();
        }
    }
}

fn api(client: &Client, kind: Kind) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind.api_resource())
}

struct Listed {
    kind: Kind,
    revision: u64,
    objects: Vec<(u64, Object)>,
}

/// All objects of a kind; None if the kind is not served.
async fn list(api: &Api<DynamicObject>, kind: Kind) -> Result<Option<Listed>, RecordError> {
    let list = match api.list(&ListParams::default()).await {
        Ok(list) => list,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(source) => return Err(RecordError::List { kind, source }),
    };
    let version = list.metadata.resource_version;
    let Some(revision) = version.as_deref().and_then(|v| v.parse().ok()) else {
        return Err(RecordError::Version { kind, version });
    };
    let objects = list
        .items
        .into_iter()
        .map(|o| (revision_of(&o).unwrap_or(revision), Object::read(kind, o)))
        .collect();
    Ok(Some(Listed {
        kind,
        revision,
        objects,
    }))
}

fn revision_of(object: &DynamicObject) -> Option<u64> {
    object.resource_version()?.parse().ok()
}

/// Follows one kind for ever. `from` is None as long as the kind is not served.
async fn follow(
    api: Api<DynamicObject>,
    kind: Kind,
    mut from: Option<u64>,
    ledger: Arc<Mutex<Ledger>>,
) {
    loop {
        from = match from {
            Some(revision) => watch(&api, kind, revision, &ledger).await,
            None => match list(&api, kind).await {
                Ok(Some(listed)) => {
                    let revision = listed.revision;
                    with(&ledger, |l| l.relisted(Timestamp::now(), listed));
                    Some(revision)
                }
                Ok(None) => {
                    with(&ledger, |l| {
                        l.relisted(
                            Timestamp::now(),
                            Listed {
                                kind,
                                revision: l.revision(kind),
                                objects: Vec::new(),
                            },
                        );
                    });
                    tokio::time::sleep(ABSENT).await;
                    None
                }
                Err(error) => {
                    tracing::debug!(%error, "list failed, will be tried again");
                    tokio::time::sleep(RECONNECT).await;
                    None
                }
            },
        };
    }
}

/// Watches until the watch ends; where to go on from, or None if that needs a new list.
async fn watch(
    api: &Api<DynamicObject>,
    kind: Kind,
    mut revision: u64,
    ledger: &Mutex<Ledger>,
) -> Option<u64> {
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    let stream = match api.watch(&params, &revision.to_string()).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 410) => return None,
        Err(error) => {
            tracing::debug!(%error, "watch failed, will be tried again");
            tokio::time::sleep(RECONNECT).await;
            return Some(revision);
        }
    };
    let mut stream = pin!(stream);
    while let Some(event) = stream.next().await {
        let at = Timestamp::now();
        let (cause, object) = match event {
            Ok(WatchEvent::Added(o)) => (Cause::Added, o),
            Ok(WatchEvent::Modified(o)) => (Cause::Modified, o),
            Ok(WatchEvent::Deleted(o)) => (Cause::Deleted, o),
            Ok(WatchEvent::Bookmark(b)) => {
                revision = b.metadata.resource_version.parse().unwrap_or(revision);
                continue;
            }
            Ok(WatchEvent::Error(status)) if status.code == 410 => return None,
            Ok(WatchEvent::Error(status)) => {
                tracing::debug!(?status, "watch ended with an error");
                break;
            }
            Err(error) => {
                tracing::debug!(%error, "watch broke");
                tokio::time::sleep(RECONNECT).await;
                break;
            }
        };
        if let Some(seen) = revision_of(&object) {
            revision = revision.max(seen);
            let object = Object::read(kind, object);
            with(ledger, |l| l.event(at, seen, cause, object));
        }
    }
    Some(revision)
}

/// A poisoned lock means that another watch panicked; what it had written is still whole.
fn with<T>(ledger: &Mutex<Ledger>, f: impl FnOnce(&mut Ledger) -> T) -> T {
    f(&mut ledger.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What is known, and how it came to be.
#[derive(Debug, Default)]
struct Ledger {
    current: HashMap<(Kind, Uid), (u64, Arc<Object>)>,
    gone: HashSet<Uid>,
    revisions: HashMap<Kind, u64>,
    changes: Vec<Change>,
    gaps: Vec<Gap>,
}

impl Ledger {
    fn revision(&self, kind: Kind) -> u64 {
        self.revisions.get(&kind).copied().unwrap_or_default()
    }

    fn reached(&mut self, kind: Kind, revision: u64) {
        let reached = self.revisions.entry(kind).or_default();
        *reached = (*reached).max(revision);
    }

    fn initial(&mut self, at: Timestamp, listed: Listed) {
        for (revision, object) in listed.objects {
            self.note(at, revision, Cause::Initial, object);
        }
        self.reached(listed.kind, listed.revision);
    }

    /// An event of a watch. One that was seen before, as after a reconnect, changes nothing.
    fn event(&mut self, at: Timestamp, revision: u64, cause: Cause, object: Object) {
        self.reached(object.kind, revision);
        let key = (object.kind, object.uid.clone());
        if self.gone.contains(&object.uid) {
            return;
        }
        let known = self.current.get(&key);
        if known.is_some_and(|(seen, _)| *seen >= revision) {
            return;
        }
        let cause = match (cause, known) {
            (Cause::Deleted, _) => Cause::Deleted,
            (_, Some(_)) => Cause::Modified,
            (_, None) => Cause::Added,
        };
        self.note(at, revision, cause, object);
    }

    /// A list after a gap: what is not in it has gone.
    fn relisted(&mut self, at: Timestamp, listed: Listed) {
        let Listed {
            kind,
            revision,
            objects,
        } = listed;
        let present: HashSet<Uid> = objects.iter().map(|(_, o)| o.uid.clone()).collect();
        let lost: Vec<Arc<Object>> = self
            .current
            .iter()
            .filter(|((k, uid), _)| *k == kind && !present.contains(uid))
            .map(|(_, (_, o))| Arc::clone(o))
            .collect();
        let after = self.revision(kind);
        if after > 0 && revision > after {
            self.gaps.push(Gap {
                kind,
                after,
                until: revision,
            });
        }
        for object in lost {
            self.note(at, revision, Cause::Deleted, (*object).clone());
        }
        for (seen, object) in objects {
            self.event(at, seen, Cause::Added, object);
        }
        self.reached(kind, revision);
    }

    fn note(&mut self, at: Timestamp, revision: u64, cause: Cause, object: Object) {
        let key = (object.kind, object.uid.clone());
        let object = Arc::new(object);
        if cause == Cause::Deleted {
            self.current.remove(&key);
            self.gone.insert(object.uid.clone());
        } else {
            let before = self
                .current
                .insert(key, (revision, Arc::clone(&object)))
                .map(|(_, o)| o);
            if before.is_some_and(|b| b == object) {
                return;
            }
        }
        self.changes.push(Change {
            at,
            revision,
            cause,
            object,
        });
    }

    /// What a fresh list shows and the watch has not brought yet.
    fn behind(&self, kind: Kind, listed: &Listed) -> Option<String> {
        let mut present = HashSet::new();
        for (revision, object) in &listed.objects {
            present.insert(&object.uid);
            let seen = self.current.get(&(kind, object.uid.clone()));
            if !self.gone.contains(&object.uid) && seen.is_none_or(|(r, _)| r < revision) {
                return Some(format!("{object} at {revision} has not been seen"));
            }
        }
        self.current
            .iter()
            .find(|((k, uid), (revision, _))| {
                *k == kind && *revision <= listed.revision && !present.contains(uid)
            })
            .map(|(_, (_, o))| format!("{o} is gone and that has not been seen"))
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
