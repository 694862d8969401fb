//! What happened in a run: a digest to compare runs by, and the story for people. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;

use crate::controllers::Done;
use crate::json::{at, condition, text};
use crate::resource::Resource;
use crate::run::ready;
use crate::store::Store;

pub(crate) fn digest(store: &Store) -> u64 {
    let mut hasher = DefaultHasher::new();
    for change in store
        .changes()
        .iter()
        .filter(|c| c.resource != Resource::Events)
    {
        change.revision.hash(&mut hasher);
        change.line.hash(&mut hasher);
    }
    // The names of events have the time of the system in them.
    for event in store.audit().iter().filter(|e| e.resource != "events") {
        (
            &event.verb,
            &event.resource,
            &event.name,
            event.code,
            event.at,
        )
            .hash(&mut hasher);
    }
    hasher.finish()
}

/// What happened, in order, for people.
pub(crate) fn story(store: &Store, done: &[Done], began: Timestamp) -> Vec<String> {
    let mut lines: Vec<(Timestamp, String)> = Vec::new();
    for event in store
        .audit()
        .iter()
        .filter(|e| e.is_write() && e.resource != "events")
    {
        let body = event
            .body
            .as_ref()
            .filter(|_| event.subresource != "status")
            .map(ToString::to_string);
        let body: String = body.unwrap_or_default().chars().take(300).collect();
        lines.push((event.at, format!("{event} {body}")));
    }
    for done in done {
        lines.push((done.at, format!("SOMEBODY {} {}", done.deed, done.object)));
    }
    let mut words: BTreeMap<String, String> = BTreeMap::new();
    for change in store
        .changes()
        .iter()
        .filter(|c| c.resource == Resource::Relocations)
    {
        let name = text(&change.object, &["metadata", "name"]);
        let now = format!(
            "{}: {}",
            ready(&change.object, "reason"),
            ready(&change.object, "message")
        );
        if words.insert(name.to_owned(), now.clone()).as_ref() != Some(&now) {
            lines.push((change.at, format!("STATUS {name} {now}")));
        }
    }
    for change in store.changes().iter().filter(|c| {
        c.at > began
            && matches!(
                c.resource,
                Resource::Pods | Resource::Nodes | Resource::NodeClaims
            )
    }) {
        let object = &change.object;
        let ready = condition(object, "Ready");
        lines.push((
            change.at,
            format!(
                "{:?} {} {} on {:?} ready {ready} deleting {} cordoned {}",
                change.event,
                change.resource.kind(),
                text(object, &["metadata", "name"]),
                text(object, &["spec", "nodeName"]),
                !at(object, &["metadata", "deletionTimestamp"]).is_null(),
                at(object, &["spec", "unschedulable"]),
            ),
        ));
    }
    lines.sort_by_key(|(at, _)| *at);
    lines
        .into_iter()
        .map(|(at, line)| format!("{:9.3} {line}", at.duration_since(began).as_secs_f64()))
        .collect()
}
