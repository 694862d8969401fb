//! What scorecard and invariants have in common: which nodes were selected, which requests were ours and what they did. Pure.
//!
//! A request is tied to its effect through the revision of the change it made, so that "at that time" means the state
//! that the API server had just before, whatever the clocks say. Only the match of the two goes by time.
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::audit::AuditEvent;
use super::history::{Cause, Change, History, State};
use super::input::JudgeInput;
use super::object::{Detail, Kind, Object, Uid};
use super::owners::{Owner, Owners, has_to_leave, workload};

/// The judge and what it judges write their times on one machine; this is for rounding.
const CLOCK_ERROR: SignedDuration = SignedDuration::from_millis(20);

/// A run, read once.
pub(crate) struct Case<'a> {
    pub(crate) history: &'a History,
    pub(crate) input: &'a JudgeInput,
    pub(crate) owners: Owners,
    /// At the start mark.
    pub(crate) start: State,
    /// At the end of the recording.
    pub(crate) end: State,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    /// The nodes that were to be emptied.
    pub(crate) selected: BTreeSet<Uid>,
    /// Owners that had pods at the start, and how many replicas they are to have.
    pub(crate) baseline: BTreeMap<Owner, u32>,
    /// What our requests did, in the order in which it happened.
    pub(crate) deeds: Vec<Deed<'a>>,
    writes: HashMap<(&'a str, &'a str, &'a str), Vec<&'a AuditEvent>>,
}

/// A request of ours and the change that it made.
pub(crate) struct Deed<'a> {
    /// Of the change in the history.
    pub(crate) index: usize,
    pub(crate) request: &'a AuditEvent,
    pub(crate) what: What,
}

/// What a deed was; the object is that of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A pod began to leave through an eviction.
    Evicted,
    /// The restart annotation of a workload changed.
    Restarted,
    /// The replica count of a workload changed.
    Scaled,
    /// A `NodeClaim` or Node was deleted.
    Deleted,
}

impl<'a> Case<'a> {
    pub(crate) fn new(history: &'a History, input: &'a JudgeInput) -> Self {
        let owners = Owners::of_history(history, &input.placeholder_namespace);
        let from = input.start.unwrap_or(history.started);
        let start = history.state_at(from);
        let mut writes: HashMap<_, Vec<&AuditEvent>> = HashMap::new();
        for event in history
            .audit
            .iter()
            .filter(|e| e.is_write() && e.succeeded())
        {
            let key = (
                event.resource.as_str(),
                event.namespace.as_str(),
                event.name.as_str(),
            );
            writes.entry(key).or_default().push(event);
        }
        let baseline = baseline(&start, &owners);
        let mut case = Self {
            history,
            input,
            selected: selected(history, input, &start, from),
            owners,
            start,
            end: history.state_at_end(),
            from,
            until: input.end.unwrap_or(history.ended),
            baseline,
            deeds: Vec::new(),
            writes,
        };
        case.deeds = case.find_deeds();
        case
    }

    pub(crate) fn ours(&self, event: &AuditEvent) -> bool {
        self.input.relocator.made(event)
    }

    /// All requests of ours.
    pub(crate) fn our_requests(&self) -> impl Iterator<Item = &'a AuditEvent> + '_ {
        self.history.audit.iter().filter(|e| self.ours(e))
    }

    /// The successful writes that may have made a change, by the name of the object and by time.
    pub(crate) fn writes_before<'b>(
        &'b self,
        change: &'b Change,
    ) -> impl Iterator<Item = &'a AuditEvent> + use<'a, 'b> {
        let object = &change.object;
        let key = (
            object.kind.resource(),
            object.namespace.as_str(),
            object.name.as_str(),
        );
        let (at, lag) = (change.at, self.input.watch_lag);
        self.writes
            .get(&key)
            .into_iter()
            .flatten()
            .copied()
            .filter(move |e| {
                e.at.duration_since(at) <= CLOCK_ERROR && at.duration_since(e.done) <= lag
            })
    }

    /// Our request that made a change of a field, if one did. A request with a known body must name the field; with
    /// unknown bodies it is ours only if nobody else wrote to the object at that time.
    pub(crate) fn our_write_of(&self, change: &Change, field: &str) -> Option<&'a AuditEvent> {
        let candidates: Vec<_> = self
            .writes_before(change)
            .filter(|e| matches!(e.subresource.as_str(), "" | "scale"))
            .filter(|e| {
                e.body
                    .as_ref()
                    .is_none_or(|b| b.to_string().contains(field))
            })
            .collect();
        let mine = candidates.iter().copied().find(|e| self.ours(e))?;
        let sure = mine.body.is_some() || candidates.iter().all(|e| self.ours(e));
        sure.then_some(mine)
    }

    fn find_deeds(&self) -> Vec<Deed<'a>> {
        let mut state = State::default();
        let mut used: HashSet<&str> = HashSet::new();
        let mut deeds = Vec::new();
        for (index, change) in self.history.changes.iter().enumerate() {
            let before = state
                .get(change.object.kind, &change.object.uid)
                .map(Arc::clone);
            if change.cause != Cause::Initial
                && let Some(before) = before
                && let Some((request, what)) = self.deed(&before, change, &used)
            {
                used.insert(request.id.as_str());
                deeds.push(Deed {
                    index,
                    request,
                    what,
                });
            }
            state.apply(change);
        }
        deeds
    }

    fn deed(
        &self,
        before: &Object,
        change: &Change,
        used: &HashSet<&str>,
    ) -> Option<(&'a AuditEvent, What)> {
        let object = &change.object;
        match &object.detail {
            Detail::Pod(_) if begins_to_leave(before, change) => {
                let request = self.writes_before(change).find(|e| {
                    e.is_eviction()
                        && self.ours(e)
                        && !used.contains(e.id.as_str())
                        && e.precondition_uid().is_none_or(|u| u == object.uid.0)
                })?;
                Some((request, What::Evicted))
            }
            Detail::Workload(now) => {
                let was = before.workload()?;
                if now.restarted_at() != was.restarted_at() {
                    // Who takes a restart away soon after is told from who wrote it by the value.
                    let value = now.restarted_at();
                    let value = value.as_deref().unwrap_or("restartedAt\":null");
                    let request = self.our_write_of(change, value)?;
                    Some((request, What::Restarted))
                } else if now.replicas != was.replicas {
                    let request = self.our_write_of(change, "replicas")?;
                    Some((request, What::Scaled))
                } else {
                    None
                }
            }
            Detail::Node(_) | Detail::NodeClaim { .. } if begins_to_leave(before, change) => {
                let request = self
                    .writes_before(change)
                    .find(|e| e.verb == "delete" && e.subresource.is_empty() && self.ours(e))?;
                Some((request, What::Deleted))
            }
            _ => None,
        }
    }

    /// The owner if it had pods at the start, and its replicas now: as at the start, or fewer if it is to have fewer by now.
    pub(crate) fn wanted(&self, state: &State, owner: &Owner) -> Option<u32> {
        let at_start = *self.baseline.get(owner)?;
        Some(match workload(state, owner) {
            Some(w) => w
                .workload()
                .and_then(|w| w.replicas)
                .map_or(at_start, |now| now.min(at_start)),
            None => at_start,
        })
    }

    /// Its pods that serve.
    pub(crate) fn ready(&self, state: &State, owner: &Owner) -> usize {
        self.owners
            .pods(state, owner)
            .filter(|p| p.is_ready_pod())
            .count()
    }

    /// Whether it has all its replicas, Ready.
    pub(crate) fn has_all_replicas(&self, state: &State, owner: &Owner) -> bool {
        self.wanted(state, owner)
            .is_none_or(|wanted| self.ready(state, owner) >= count(wanted))
    }

    /// Whether the pod is on a node that was to be emptied.
    pub(crate) fn on_selected(&self, state: &State, pod: &Object) -> bool {
        node_of(state, pod).is_some_and(|n| self.selected.contains(&n.uid))
    }
}

/// The node that a pod is bound to, if it exists.
pub(crate) fn node_of<'s>(state: &'s State, pod: &Object) -> Option<&'s Arc<Object>> {
    state.named(Kind::Node, "", pod.pod()?.node.as_deref()?)
}

/// Whether the change is the first sign that an object goes.
pub(crate) fn begins_to_leave(before: &Object, change: &Change) -> bool {
    !before.terminating && (change.cause == Cause::Deleted || change.object.terminating)
}

/// Pods on a node that keep it from being empty.
pub(crate) fn pods_that_stay<'s>(
    state: &'s State,
    node: &'s str,
) -> impl Iterator<Item = &'s Arc<Object>> {
    state.all(Kind::Pod).filter(move |o| {
        o.pod()
            .is_some_and(|p| p.node.as_deref() == Some(node) && !p.finished)
            && has_to_leave(o)
    })
}

/// u32 fits usize wherever this runs.
pub(crate) fn count(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn baseline(start: &State, owners: &Owners) -> BTreeMap<Owner, u32> {
    let mut pods: BTreeMap<Owner, u32> = BTreeMap::new();
    for owner in start.all(Kind::Pod).filter_map(|p| owners.of_live(p)) {
        *pods.entry(owner).or_default() += 1;
    }
    for (owner, have) in &mut pods {
        if let Some(replicas) = workload(start, owner)
            .and_then(Object::workload)
            .and_then(|w| w.replicas)
        {
            *have = replicas;
        }
    }
    pods
}

fn selected(
    history: &History,
    input: &JudgeInput,
    start: &State,
    from: Timestamp,
) -> BTreeSet<Uid> {
    if !input.selected_nodes.is_empty() {
        return start
            .all(Kind::Node)
            .filter(|n| input.selected_nodes.contains(&n.name))
            .map(|n| n.uid.clone())
            .collect();
    }
    let mut state = start.clone();
    let mut out = BTreeSet::new();
    for change in history
        .changes
        .iter()
        .filter(|c| c.cause != Cause::Initial && c.at > from && c.object.kind == Kind::Node)
    {
        let cordoned = |o: &Object| o.node().is_some_and(super::object::Node::cordoned);
        let object = &change.object;
        let was_cordoned = state
            .get(Kind::Node, &object.uid)
            .is_some_and(|n| cordoned(n));
        if change.cause == Cause::Deleted
            || object.terminating
            || (cordoned(object) && !was_cordoned)
        {
            out.insert(object.uid.clone());
        }
        state.apply(change);
    }
    out
}
