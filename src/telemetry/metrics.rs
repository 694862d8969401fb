//! Figures for Prometheus. Holds numbers, decides nothing.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kube::runtime::reflector::Store;
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::api::conditions::{ConditionType, find_condition};
use crate::api::relocation::NodeRelocation;
use crate::api::status::Stage;
use crate::plan::{Action, Restore};
use crate::world::RefusalKind;

/// The media type of what [`Metrics::text`] returns.
///
/// Source: `OpenMetrics` 1.0, which Prometheus and its agents read.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Requested {
    action: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InStage {
    stage: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Because {
    reason: String,
}

/// The figures of one running operator. Copies share them.
#[derive(Clone)]
pub struct Metrics(Arc<Figures>);

struct Figures {
    registry: Registry,
    leader: Gauge,
    passes: Histogram,
    failed_passes: Counter,
    requests: Family<Requested, Counter>,
    relocations: Family<InStage, Gauge>,
    blockers: Family<Because, Gauge>,
    /// The relocations as the watch tells of them, once this instance leads.
    store: OnceLock<Store<NodeRelocation>>,
    /// Held from counting the relocations until they are written down, so that two readers do not count into each other.
    counting: Mutex<()>,
    ready: AtomicBool,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("relocator");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version that runs", build);
        let leader = Gauge::default();
        let help = "1 while this instance leads, 0 while it stands by";
        registry.register("leader", help, leader.clone());
        // From a millisecond to some half a minute.
        let passes = Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let help = "How long a pass over one relocation took: observe, plan, record, act";
        registry.register("pass_duration_seconds", help, passes.clone());
        let failed_passes = Counter::default();
        let help = "Passes that ended early because the relocation could not be read or recorded";
        registry.register("failed_passes", help, failed_passes.clone());
        let requests = Family::default();
        let help = "Requests that change something, by what they ask for and what came of them";
        registry.register("requests", help, requests.clone());
        let relocations = Family::default();
        let help = "NodeRelocations that exist, by stage; only of the instance that leads";
        registry.register("relocations", help, relocations.clone());
        let blockers = Family::default();
        let help =
            "Blockers in the status of NodeRelocations, by reason; only of the instance that leads";
        registry.register("blockers", help, blockers.clone());
        Self(Arc::new(Figures {
            registry,
            leader,
            passes,
            failed_passes,
            requests,
            relocations,
            blockers,
            store: OnceLock::new(),
            counting: Mutex::new(()),
            ready: AtomicBool::new(false),
        }))
    }
}

impl Metrics {
    /// This instance takes part in the election: it leads or could lead.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Relaxed)
    }

    /// See [`Self::is_ready`].
    pub fn set_ready(&self, ready: bool) {
        self.0.ready.store(ready, Ordering::Relaxed);
    }

    /// Whether this instance leads.
    pub fn set_leader(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
    }

    /// Counts the relocations of the watch from now on.
    pub(crate) fn follow(&self, store: Store<NodeRelocation>) {
        // An operator runs one controller in its life.
        let _first = self.0.store.set(store);
    }

    pub(crate) fn passed(&self, took: Duration, failed: bool) {
        self.0.passes.observe(took.as_secs_f64());
        if failed {
            self.0.failed_passes.inc();
        }
    }

    /// A request was carried out (`None`) or not.
    pub(crate) fn requested(&self, action: &Action, refused: Option<Outcome>) {
        let labels = Requested {
            action: name(action),
            result: refused.map_or("done", Outcome::word),
        };
        self.0.requests.get_or_create(&labels).inc();
    }

    /// All figures as text, of the type [`MEDIA_TYPE`].
    #[must_use]
    pub fn text(&self) -> String {
        let counting = self.0.counting.lock();
        let _counting = counting.unwrap_or_else(PoisonError::into_inner);
        self.count();
        let mut text = String::new();
        // Writing into a String does not fail.
        let _written = encode(&mut text, &self.0.registry);
        text
    }

    fn count(&self) {
        let Some(store) = self.0.store.get() else {
            return;
        };
        self.0.relocations.clear();
        self.0.blockers.clear();
        for relocation in store.state() {
            let status = relocation.status.clone().unwrap_or_default();
            let ready = find_condition(&status.conditions, ConditionType::Ready);
            // As the column STAGE has it.
            let stage = ready.map_or_else(|| Stage::Pending.to_string(), |c| c.reason.clone());
            self.0.relocations.get_or_create(&InStage { stage }).inc();
            for blocker in status.blockers {
                let reason = blocker.reason.to_string();
                self.0.blockers.get_or_create(&Because { reason }).inc();
            }
        }
    }
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Refused(RefusalKind),
    /// The world has moved on, or this instance does not lead any more: nothing is remembered of it.
    Moot,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Refused(RefusalKind::Budget | RefusalKind::SeveralBudgets) => "budget",
            Self::Refused(RefusalKind::Throttled) => "throttled",
            Self::Refused(RefusalKind::Forbidden) => "forbidden",
            Self::Refused(RefusalKind::Denied) => "denied",
            Self::Refused(RefusalKind::Outdated) => "outdated",
            Self::Refused(RefusalKind::Failed) => "failed",
            Self::Moot => "moot",
        }
    }
}

/// What an action asks for, in one word of a fixed set.
fn name(action: &Action) -> &'static str {
    match action {
        Action::AddFinalizer => "add_finalizer",
        Action::RemoveFinalizer => "remove_finalizer",
        Action::DeleteRelocation => "delete_relocation",
        Action::ClaimNode { .. } => "claim_node",
        Action::ProtectNode { .. } => "protect_node",
        Action::ProtectPod { .. } => "protect_pod",
        Action::Cordon { .. } => "cordon",
        Action::CreatePlaceholder(_) => "create_placeholder",
        Action::Evict { .. } => "evict",
        Action::Restart { .. } => "restart",
        Action::Surge { .. } => "surge",
        Action::CheapenPod { .. } => "cheapen_pod",
        Action::DeleteNodeClaim { .. } => "delete_node_claim",
        Action::Restore(restore) => match restore {
            Restore::ReleaseNode { .. } => "release_node",
            Restore::UnprotectPod { .. } => "unprotect_pod",
            Restore::UncheapenPod { .. } => "uncheapen_pod",
            Restore::DeletePlaceholder { .. } => "delete_placeholder",
            Restore::EndSurge { .. } => "end_surge",
        },
    }
}
