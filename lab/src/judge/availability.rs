//! Pod-seconds below the replica count: an integral over the events of a run. Pure.
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::analysis::Case;
use super::history::Cause;
use super::object::{Kind, Object, Uid};
use super::owners::{Owner, Owners, workload};

/// What an owner lacked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lack {
    /// Pods times seconds.
    pub(crate) pod_seconds: f64,
    /// At one moment.
    pub(crate) most: u32,
}

/// What all owners lacked.
pub(crate) struct Lacks {
    pub(crate) by_owner: BTreeMap<Owner, Lack>,
    /// Of all owners together, at one moment.
    pub(crate) most: u32,
}

/// For each owner of the baseline: the integral, from the start mark to the end of the recording, of
/// max(0, wanted - serving). Wanted are the replicas at the start, or the current `spec.replicas` where that is lower;
/// a pod serves if it is Running, Ready and not terminating. Times are those at which the judge heard of a change.
pub(crate) fn lacks(case: &Case) -> Lacks {
    let mut gauges: BTreeMap<Uid, (Owner, Gauge)> = case
        .baseline
        .iter()
        .map(|(owner, &replicas)| {
            let gauge = Gauge {
                replicas,
                wanted: case.wanted(&case.start, owner).unwrap_or(replicas),
                ready: case
                    .owners
                    .pods(&case.start, owner)
                    .filter(|p| p.is_ready_pod())
                    .map(|p| p.uid.clone())
                    .collect(),
                since: case.from,
                lack: Lack::default(),
            };
            (owner.uid.clone(), (owner.clone(), gauge))
        })
        .collect();
    let mut missing = 0;
    for gauge in gauges.values_mut() {
        gauge.1.advance(case.from);
        missing += gauge.1.missing();
    }
    let mut most = missing;
    for change in &case.history.changes {
        if change.cause == Cause::Initial || change.at <= case.from {
            continue;
        }
        let object = &change.object;
        let gone = change.cause == Cause::Deleted;
        let owner = match object.kind {
            // A pod that has finished serves no more: `of`, not `of_live`.
            Kind::Pod => case.owners.of(object),
            Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet => Some(Owners::is(object)),
            _ => None,
        };
        let Some((_, gauge)) = owner.and_then(|o| gauges.get_mut(&o.uid)) else {
            continue;
        };
        // What was lacking until now, before the change counts.
        gauge.advance(change.at);
        missing -= gauge.missing();
        if object.kind == Kind::Pod {
            gauge.pod(object, gone);
        } else {
            gauge.scaled(object, gone);
        }
        gauge.advance(change.at);
        missing += gauge.missing();
        most = most.max(missing);
    }
    let by_owner = gauges
        .into_values()
        .map(|(owner, mut gauge)| {
            gauge.advance(case.history.ended);
            (owner, gauge.lack)
        })
        .collect();
    Lacks { by_owner, most }
}

/// Whether every owner that a controller keeps has all its replicas at the end.
pub(crate) fn all_whole(case: &Case) -> bool {
    case.baseline.keys().all(|owner| {
        owner.kind == "Pod"
            || workload(&case.end, owner).is_some_and(|w| w.terminating)
            || case.has_all_replicas(&case.end, owner)
    })
}

struct Gauge {
    replicas: u32,
    wanted: u32,
    ready: BTreeSet<Uid>,
    since: Timestamp,
    lack: Lack,
}

impl Gauge {
    /// Replicas that are not Ready now.
    fn missing(&self) -> u32 {
        let serving = u32::try_from(self.ready.len()).unwrap_or(u32::MAX);
        self.wanted.saturating_sub(serving)
    }

    /// Adds what was lacking since the last change. Two watches may deliver out of order by milliseconds: time never goes back.
    fn advance(&mut self, now: Timestamp) {
        let missing = self.missing();
        if now > self.since {
            self.lack.pod_seconds +=
                f64::from(missing) * now.duration_since(self.since).as_secs_f64();
            self.since = now;
        }
        self.lack.most = self.lack.most.max(missing);
    }

    fn pod(&mut self, pod: &Object, gone: bool) {
        if pod.is_ready_pod() && !gone {
            self.ready.insert(pod.uid.clone());
        } else {
            self.ready.remove(&pod.uid);
        }
    }

    fn scaled(&mut self, workload: &Object, gone: bool) {
        let now = if gone {
            Some(0)
        } else {
            workload.workload().and_then(|w| w.replicas)
        };
        self.wanted = now.map_or(self.replicas, |n| n.min(self.replicas));
    }
}
