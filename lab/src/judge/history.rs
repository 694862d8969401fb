//! The history of a run: every change that the watches brought, in the order in which the API server made them. Pure.
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::audit::AuditEvent;
use super::object::{Kind, Object, Uid};

/// Why an object is in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was there when the recorder started.
    Initial,
    /// It was created.
    Added,
    /// It was changed in something that is judged.
    Modified,
    /// It is gone; the object is its last state.
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When the judge heard of it, by the local clock: a little after it happened.
    pub at: Timestamp,
    /// The revision that the change made: it orders the changes of all kinds, as they share one etcd.
    pub revision: u64,
    /// What happened.
    pub cause: Cause,
    /// The object after it.
    pub object: Arc<Object>,
}

/// A watch that had to be listed anew (410): what came and went in between was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Of which kind.
    pub kind: Kind,
    /// The last revision that was seen before.
    pub after: u64,
    /// The revision of the list.
    pub until: u64,
}

/// Everything that is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// When the recorder started.
    pub started: Timestamp,
    /// When it had seen everything up to the end.
    pub ended: Timestamp,
    /// What was there at the start, then the changes by revision.
    pub changes: Vec<Change>,
    /// Requests since the start, by time of receipt.
    pub audit: Vec<AuditEvent>,
    /// Empty in a run that can be judged fully.
    pub gaps: Vec<Gap>,
}

impl History {
    /// Puts changes and requests in order.
    #[must_use]
    pub fn new(
        started: Timestamp,
        ended: Timestamp,
        mut changes: Vec<Change>,
        mut audit: Vec<AuditEvent>,
        gaps: Vec<Gap>,
    ) -> Self {
        // Not by time: two watches deliver in any order, the revision is the order in which it happened.
        changes.sort_by_key(|c| (c.cause != Cause::Initial, c.revision));
        audit.sort_by_key(|e| e.at);
        Self {
            started,
            ended,
            changes,
            audit,
            gaps,
        }
    }

    /// The cluster as it was at a time.
    #[must_use]
    pub fn state_at(&self, time: Timestamp) -> State {
        let mut state = State::default();
        for change in &self.changes {
            if change.cause == Cause::Initial || change.at <= time {
                state.apply(change);
            }
        }
        state
    }

    /// The cluster at the end.
    #[must_use]
    pub fn state_at_end(&self) -> State {
        let mut state = State::default();
        for change in &self.changes {
            state.apply(change);
        }
        state
    }
}

/// The objects at one moment.
#[derive(Clone, Debug, Default)]
pub struct State {
    objects: BTreeMap<Kind, BTreeMap<Uid, Arc<Object>>>,
    /// Controller to its pods, for they are asked for at every change. A pod without one is under its own UID.
    controlled: HashMap<Uid, BTreeSet<Uid>>,
}

impl State {
    /// Goes on by one change.
    pub fn apply(&mut self, change: &Change) {
        let object = &change.object;
        let kind = self.objects.entry(object.kind).or_default();
        let before = match change.cause {
            Cause::Deleted => kind.remove(&object.uid),
            Cause::Initial | Cause::Added | Cause::Modified => {
                kind.insert(object.uid.clone(), Arc::clone(object))
            }
        };
        if object.kind != Kind::Pod {
            return;
        }
        if let Some(pods) = before.and_then(|b| self.controlled.get_mut(controller_of(&b))) {
            pods.remove(&object.uid);
        }
        if change.cause != Cause::Deleted {
            self.controlled
                .entry(controller_of(object).clone())
                .or_default()
                .insert(object.uid.clone());
        }
    }

    /// The pods of which this is the controller, such as a `ReplicaSet`; the pod itself, if it has none.
    pub fn pods_of(&self, controller: &Uid) -> impl Iterator<Item = &Arc<Object>> {
        let pods = self.controlled.get(controller);
        pods.into_iter()
            .flatten()
            .filter_map(|uid| self.get(Kind::Pod, uid))
    }

    /// All objects of a kind.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        self.objects
            .get(&kind)
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// All objects.
    pub fn everything(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values().flat_map(BTreeMap::values)
    }

    /// One object by UID.
    #[must_use]
    pub fn get(&self, kind: Kind, uid: &Uid) -> Option<&Arc<Object>> {
        self.objects.get(&kind)?.get(uid)
    }

    /// One object by name.
    #[must_use]
    pub fn named(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.all(kind)
            .find(|o| o.name == name && o.namespace == namespace)
    }
}

fn controller_of(pod: &Object) -> &Uid {
    pod.controller().map_or(&pod.uid, |c| &c.uid)
}
