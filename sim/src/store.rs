//! The objects of the simulated API server: revisions, watch history, deletion with finalizers and grace. Knows no HTTP.
//!
//! Everything that clients can tell apart is as in a real API server: a write that changes nothing makes no revision, a change of the
//! spec raises the generation, a deletion waits for finalizers and for the kubelet, a name passes on and a UID does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use lab::judge::{AuditEvent, Cause};
use relocator::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::json::{at, list, merge, number, set, text};
use crate::resource::Resource;

/// Namespace (empty for cluster-scoped objects) and name.
pub type Key = (String, String);

/// A refusal, as a Status.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// `details` of the Status.
    pub details: Value,
}

impl Refusal {
    /// Without details.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
        }
    }

    fn not_found(resource: Resource, name: &str) -> Self {
        let message = format!(
            "{}.{} {name:?} not found",
            resource.plural(),
            resource.group()
        );
        Self::new(404, "NotFound", message)
    }

    /// Of a precondition.
    #[must_use]
    pub fn conflict(resource: Resource, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {}.{} {name:?}: {why}",
            resource.plural(),
            resource.group()
        );
        Self::new(409, "Conflict", message)
    }
}

/// What happened to an object, as a watch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Added,
    Modified,
    Deleted,
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: Timestamp,
    pub revision: u64,
    pub event: Event,
    pub resource: Resource,
    pub object: Arc<Value>,
    /// The line of a watch that tells it.
    pub line: Bytes,
}

impl Change {
    /// For the judge.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self.event {
            Event::Added => Cause::Added,
            Event::Modified => Cause::Modified,
            Event::Deleted => Cause::Deleted,
        }
    }
}

/// What a deletion demands of its object.
#[derive(Clone, Debug, Default)]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

/// The objects.
pub struct Store {
    clock: Clock,
    revision: u64,
    uids: u64,
    objects: [BTreeMap<Key, Arc<Value>>; Resource::ALL.len()],
    changes: Vec<Change>,
    /// The last revision of each resource: whether a controller has anything new to see.
    touched: [u64; Resource::ALL.len()],
    audit: Vec<AuditEvent>,
    /// Not a watch channel: those wake their waiters in a random order.
    told: Arc<Notify>,
}

/// What a write came to.
pub type Written = Result<Arc<Value>, Refusal>;

impl Store {
    /// An empty one.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            revision: 1,
            uids: 0,
            objects: Default::default(),
            changes: Vec::new(),
            touched: Default::default(),
            audit: Vec::new(),
            told: Arc::default(),
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time as the API writes it.
    #[must_use]
    pub fn time(&self) -> String {
        in_seconds(self.now())
    }

    /// The present revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision of the last change of any of these.
    #[must_use]
    pub fn touched(&self, resources: &[Resource]) -> u64 {
        resources
            .iter()
            .filter_map(|r| self.touched.get(r.index()))
            .max()
            .copied()
            .unwrap_or_default()
    }

    /// Notified at every new revision: all that wait then.
    #[must_use]
    pub fn news(&self) -> Arc<Notify> {
        Arc::clone(&self.told)
    }

    /// Every change so far.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Every request so far that is judged.
    #[must_use]
    pub fn audit(&self) -> &[AuditEvent] {
        &self.audit
    }

    /// Takes note of a request.
    pub fn log(&mut self, event: AuditEvent) {
        self.audit.push(event);
    }

    fn of(&self, resource: Resource) -> &BTreeMap<Key, Arc<Value>> {
        &self.objects[resource.index()]
    }

    /// All objects, by namespace and name.
    pub fn all(&self, resource: Resource) -> impl Iterator<Item = &Arc<Value>> {
        self.of(resource).values()
    }

    /// One object.
    #[must_use]
    pub fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.of(resource)
            .get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The object of that UID.
    #[must_use]
    pub fn with_uid(&self, resource: Resource, uid: &str) -> Option<&Arc<Value>> {
        self.all(resource)
            .find(|o| text(o, &["metadata", "uid"]) == uid)
    }

    /// Creates an object.
    pub fn create(&mut self, resource: Resource, mut object: Value) -> Written {
        let namespace = text(&object, &["metadata", "namespace"]).to_owned();
        let mut name = text(&object, &["metadata", "name"]).to_owned();
        self.uids += 1;
        if name.is_empty() {
            name = format!(
                "{}{:05}",
                text(&object, &["metadata", "generateName"]),
                self.uids
            );
            set(&mut object, &["metadata", "name"], name.as_str());
        }
        let key = (namespace, name.clone());
        if self.of(resource).contains_key(&key) {
            let message = format!("{} {name:?} already exists", resource.plural());
            return Err(Refusal::new(409, "AlreadyExists", message));
        }
        let uid = format!("{:08x}-0000-4000-8000-{:012x}", self.uids, resource.index());
        set(&mut object, &["apiVersion"], resource.api_version());
        set(&mut object, &["kind"], resource.kind());
        set(&mut object, &["metadata", "uid"], uid);
        set(&mut object, &["metadata", "creationTimestamp"], self.time());
        set(&mut object, &["metadata", "generation"], 1);
        self.admit(resource, &mut object)?;
        Ok(self.commit(resource, key, object, Event::Added))
    }

    /// What admission adds.
    fn admit(&self, resource: Resource, object: &mut Value) -> Result<(), Refusal> {
        if resource != Resource::Pods {
            return Ok(());
        }
        let class = text(object, &["spec", "priorityClassName"]).to_owned();
        let (priority, policy) = if class.is_empty() {
            (0, "PreemptLowerPriority".to_owned())
        } else {
            let Some(class) = self.get(Resource::PriorityClasses, "", &class) else {
                let message =
                    format!("pods is forbidden: no PriorityClass with name {class} was found");
                return Err(Refusal::new(403, "Forbidden", message));
            };
            (
                number(class, &["value"]),
                text(class, &["preemptionPolicy"]).to_owned(),
            )
        };
        set(object, &["spec", "priority"], priority);
        set(object, &["spec", "preemptionPolicy"], policy);
        if at(object, &["spec", "terminationGracePeriodSeconds"]).is_null() {
            set(object, &["spec", "terminationGracePeriodSeconds"], 30);
        }
        if at(object, &["status", "phase"]).is_null() {
            set(object, &["status"], json!({"phase": "Pending"}));
        }
        Ok(())
    }

    /// Changes an object; nothing happens if nothing is changed, or if it is not there.
    pub fn change(
        &mut self,
        resource: Resource,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(before) = self.of(resource).get(&key).cloned() else {
            return;
        };
        let mut object = Value::clone(&before);
        change(&mut object);
        self.replace(resource, key, &before, object);
    }

    /// Puts a changed object in the place of the one before. Removes it when nothing holds its deletion up any more.
    fn replace(
        &mut self,
        resource: Resource,
        key: Key,
        before: &Arc<Value>,
        mut object: Value,
    ) -> Arc<Value> {
        if object == **before {
            return Arc::clone(before);
        }
        if at(&object, &["spec"]) != at(before, &["spec"]) {
            let generation = number(before, &["metadata", "generation"]);
            set(&mut object, &["metadata", "generation"], generation + 1);
        }
        let deleting = !at(&object, &["metadata", "deletionTimestamp"]).is_null();
        let had = !list(before, &["metadata", "finalizers"]).is_empty();
        if deleting && had && list(&object, &["metadata", "finalizers"]).is_empty() {
            return self.commit(resource, key, object, Event::Deleted);
        }
        self.commit(resource, key, object, Event::Modified)
    }

    /// A JSON merge patch, with the UID and resourceVersion in it as preconditions.
    pub fn patch(
        &mut self,
        resource: Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Written {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(before) = self.of(resource).get(&key).cloned() else {
            return Err(Refusal::not_found(resource, name));
        };
        expect(resource, name, &before, at(patch, &["metadata"]))?;
        let mut object = Value::clone(&before);
        merge(&mut object, patch);
        // The status has a subresource of its own.
        set(&mut object, &["status"], at(&before, &["status"]).clone());
        if at(&before, &["status"]).is_null() {
            crate::json::unset(&mut object, &["status"]);
        }
        Ok(self.replace(resource, key, &before, object))
    }

    /// Replaces the status.
    pub fn put_status(
        &mut self,
        resource: Resource,
        namespace: &str,
        name: &str,
        body: &Value,
    ) -> Written {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(before) = self.of(resource).get(&key).cloned() else {
            return Err(Refusal::not_found(resource, name));
        };
        expect(resource, name, &before, at(body, &["metadata"]))?;
        let mut object = Value::clone(&before);
        set(&mut object, &["status"], at(body, &["status"]).clone());
        Ok(self.replace(resource, key, &before, object))
    }

    /// Begins the deletion of an object, and ends it where nothing holds it up.
    pub fn delete(
        &mut self,
        resource: Resource,
        namespace: &str,
        name: &str,
        demanded: &Preconditions,
    ) -> Written {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(before) = self.of(resource).get(&key).cloned() else {
            return Err(Refusal::not_found(resource, name));
        };
        let metadata = json!({
            "uid": demanded.uid.as_deref().unwrap_or_default(),
            "resourceVersion": demanded.resource_version.as_deref().unwrap_or_default(),
        });
        expect(resource, name, &before, &metadata)?;
        if !at(&before, &["metadata", "deletionTimestamp"]).is_null() {
            return Ok(before);
        }
        let grace =
            if resource == Resource::Pods && !text(&before, &["spec", "nodeName"]).is_empty() {
                number(&before, &["spec", "terminationGracePeriodSeconds"])
            } else {
                0
            };
        let held = !list(&before, &["metadata", "finalizers"]).is_empty();
        if grace == 0 && !held {
            return Ok(self.commit(resource, key, Value::clone(&before), Event::Deleted));
        }
        let mut object = Value::clone(&before);
        let due = self
            .now()
            .saturating_add(SignedDuration::from_secs(grace))
            .unwrap_or(Timestamp::MAX);
        set(
            &mut object,
            &["metadata", "deletionTimestamp"],
            in_seconds(due),
        );
        set(
            &mut object,
            &["metadata", "deletionGracePeriodSeconds"],
            grace,
        );
        Ok(self.commit(resource, key, object, Event::Modified))
    }

    /// Ends the deletion of an object at once, as the kubelet does with grace 0. Finalizers still hold it.
    pub fn remove(&mut self, resource: Resource, namespace: &str, name: &str, uid: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(object) = self.of(resource).get(&key).cloned() else {
            return;
        };
        if text(&object, &["metadata", "uid"]) != uid {
            return;
        }
        if list(&object, &["metadata", "finalizers"]).is_empty() {
            self.commit(resource, key, Value::clone(&object), Event::Deleted);
        } else if at(&object, &["metadata", "deletionTimestamp"]).is_null() {
            let now = self.time();
            self.change(resource, namespace, name, |o| {
                set(o, &["metadata", "deletionTimestamp"], now);
            });
        }
    }

    fn commit(
        &mut self,
        resource: Resource,
        key: Key,
        mut object: Value,
        event: Event,
    ) -> Arc<Value> {
        self.revision += 1;
        set(
            &mut object,
            &["metadata", "resourceVersion"],
            self.revision.to_string(),
        );
        let word = match event {
            Event::Added => "ADDED",
            Event::Modified => "MODIFIED",
            Event::Deleted => "DELETED",
        };
        let line = Bytes::from(format!("{{\"type\":\"{word}\",\"object\":{object}}}\n"));
        let object = Arc::new(object);
        let objects = &mut self.objects[resource.index()];
        if event == Event::Deleted {
            objects.remove(&key);
        } else {
            objects.insert(key, Arc::clone(&object));
        }
        self.touched[resource.index()] = self.revision;
        self.changes.push(Change {
            at: self.now(),
            revision: self.revision,
            event,
            resource,
            object: Arc::clone(&object),
            line,
        });
        self.told.notify_waiters();
        object
    }
}

/// The UID and resourceVersion that were demanded.
fn expect(resource: Resource, name: &str, object: &Value, metadata: &Value) -> Result<(), Refusal> {
    let other = |field: &str| {
        let wanted = text(metadata, &[field]);
        !wanted.is_empty() && wanted != text(object, &["metadata", field])
    };
    if other("uid") {
        let why = "the UID in the precondition does not match the UID in record";
        return Err(Refusal::conflict(resource, name, why));
    }
    if other("resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Refusal::conflict(resource, name, why));
    }
    Ok(())
}

/// RFC 3339 with whole seconds, as the API writes times.
#[must_use]
pub fn in_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or_default()
        .to_string()
}
