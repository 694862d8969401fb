//! People and programs that do not know of the relocation, at moments that the seed chooses.

use std::fmt;
use std::sync::Arc;

use fastrand::Rng;
use jiff::Timestamp;
use serde_json::Value;

use super::{Controller, after, delete, earliest, is_terminating, name, namespace};
use crate::json::{at, number, set, set_condition, unset};
use crate::resource::Resource;
use crate::store::Store;

const AGENT: &str = "kubectl/v1";
const PLACEHOLDERS: &str = "relocator-placeholders";

/// What somebody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    DeletePod,
    DeletePlaceholder,
    Cordon,
    Uncordon,
    /// Takes our marks off a node.
    StripMarks,
    /// The machine or its network is away for a while.
    NodeAway,
    NodeBack,
    /// Expiry, interruption, or a person.
    DeleteNodeClaim,
    /// Only the object, as a cloud controller does when the machine is gone.
    DeleteNode,
    Scale,
    /// A budget wants one more pod, and later one less.
    Tighten,
    Loosen,
    Suspend,
    Resume,
    DeleteRelocation,
    EditRelocation,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Deed {
    /// Those that begin by themselves; the others undo one of these.
    pub const BEGINNINGS: [Self; 13] = [
        Self::DeletePod,
        Self::DeletePlaceholder,
        Self::Cordon,
        Self::Uncordon,
        Self::StripMarks,
        Self::NodeAway,
        Self::DeleteNodeClaim,
        Self::DeleteNode,
        Self::Scale,
        Self::Tighten,
        Self::Suspend,
        Self::DeleteRelocation,
        Self::EditRelocation,
    ];

    /// What undoes it a while later.
    const fn undone_by(self) -> Option<Self> {
        match self {
            Self::NodeAway => Some(Self::NodeBack),
            Self::Tighten => Some(Self::Loosen),
            Self::Suspend => Some(Self::Resume),
            _ => None,
        }
    }
}

/// What was done, by whom nobody asked.
#[derive(Clone, Debug)]
pub struct Done {
    pub at: Timestamp,
    pub deed: Deed,
    /// The name of the object.
    pub object: String,
}

/// The deeds to come, and those that were done.
pub struct Adversary {
    plan: Vec<(Timestamp, Deed, Option<String>)>,
    done: Arc<std::sync::Mutex<Vec<Done>>>,
}

impl Adversary {
    /// So many deeds between the two times.
    #[must_use]
    pub fn new(rng: &mut Rng, from: Timestamp, seconds: f64, deeds: &[Deed]) -> Self {
        let plan = deeds
            .iter()
            .map(|deed| (after(from, seconds * rng.f64()), *deed, None))
            .collect();
        Self {
            plan,
            done: Arc::default(),
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn done(&self) -> Arc<std::sync::Mutex<Vec<Done>>> {
        Arc::clone(&self.done)
    }
}

impl Controller for Adversary {
    fn looks_at(&self) -> &'static [Resource] {
        // Only to learn once that there is a plan.
        &[Resource::Namespaces]
    }

    fn run(&mut self, store: &mut Store, rng: &mut Rng) -> Option<Timestamp> {
        let now = store.now();
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.plan)
            .into_iter()
            .partition(|(at, ..)| *at <= now);
        self.plan = later;
        for (_, deed, object) in due {
            let Some(object) = act(store, rng, deed, object.as_deref()) else {
                continue;
            };
            if let Some(undo) = deed.undone_by() {
                let when = after(now, 3.0 + 40.0 * rng.f64());
                self.plan.push((when, undo, Some(object.clone())));
            }
            if let Ok(mut done) = self.done.lock() {
                done.push(Done {
                    at: now,
                    deed,
                    object,
                });
            }
        }
        self.plan
            .iter()
            .map(|(at, ..)| *at)
            .fold(None, |next, at| earliest(next, Some(at)))
    }
}

/// One object of the resource that is so, by the seed; the given one if it is still there.
fn choose(
    store: &Store,
    rng: &mut Rng,
    resource: Resource,
    given: Option<&str>,
    is_so: impl Fn(&Value) -> bool,
) -> Option<Arc<Value>> {
    let all: Vec<_> = store
        .all(resource)
        .filter(|o| given.is_none_or(|g| name(o) == g) && is_so(o))
        .cloned()
        .collect();
    (!all.is_empty()).then(|| Arc::clone(&all[rng.usize(..all.len())]))
}

/// Does it, to the given object or to one by the seed. Returns the name; `None` if there was nothing to do it to.
fn act(store: &mut Store, rng: &mut Rng, deed: Deed, given: Option<&str>) -> Option<String> {
    let any = |_: &Value| true;
    let placeholder = |p: &Value| namespace(p) == PLACEHOLDERS;
    let now = store.time();
    let chosen = match deed {
        Deed::DeletePod => choose(store, rng, Resource::Pods, given, |p| {
            !placeholder(p) && !is_terminating(p)
        }),
        Deed::DeletePlaceholder => choose(store, rng, Resource::Pods, given, placeholder),
        Deed::Cordon
        | Deed::Uncordon
        | Deed::StripMarks
        | Deed::NodeAway
        | Deed::NodeBack
        | Deed::DeleteNode => choose(store, rng, Resource::Nodes, given, any),
        Deed::DeleteNodeClaim => choose(store, rng, Resource::NodeClaims, given, |c| {
            !is_terminating(c)
        }),
        Deed::Scale => choose(store, rng, Resource::Deployments, given, any),
        Deed::Tighten | Deed::Loosen => choose(store, rng, Resource::Budgets, given, |b| {
            !at(b, &["spec", "minAvailable"]).is_null()
        }),
        Deed::Suspend | Deed::Resume | Deed::DeleteRelocation | Deed::EditRelocation => {
            choose(store, rng, Resource::Relocations, given, any)
        }
    }?;
    let (space, object) = (namespace(&chosen).to_owned(), name(&chosen).to_owned());
    let cordon = |node: &mut Value, to: bool| {
        if to {
            set(node, &["spec", "unschedulable"], true);
        } else {
            unset(node, &["spec", "unschedulable"]);
        }
    };
    let ready = |node: &mut Value, to: &str| {
        set_condition(node, "Ready", to, "", &now);
    };
    let wants = |budget: &mut Value, more: i64| {
        let wanted = number(budget, &["spec", "minAvailable"]) + more;
        set(budget, &["spec", "minAvailable"], wanted.max(0));
    };
    let mut change =
        |resource, how: &dyn Fn(&mut Value)| store.change(resource, &space, &object, how);
    match deed {
        Deed::DeletePod | Deed::DeletePlaceholder => delete(store, Resource::Pods, &chosen, AGENT),
        Deed::Cordon => change(Resource::Nodes, &|n| cordon(n, true)),
        Deed::Uncordon => change(Resource::Nodes, &|n| cordon(n, false)),
        Deed::StripMarks => change(Resource::Nodes, &strip),
        Deed::NodeAway => change(Resource::Nodes, &|n| ready(n, "Unknown")),
        Deed::NodeBack => change(Resource::Nodes, &|n| ready(n, "True")),
        Deed::DeleteNodeClaim => delete(store, Resource::NodeClaims, &chosen, AGENT),
        Deed::DeleteNode => delete(store, Resource::Nodes, &chosen, AGENT),
        Deed::Scale => {
            let to =
                (number(&chosen, &["spec", "replicas"]) + if rng.bool() { 1 } else { -1 }).max(1);
            change(Resource::Deployments, &|d| {
                set(d, &["spec", "replicas"], to);
            });
        }
        Deed::Tighten => change(Resource::Budgets, &|b| wants(b, 1)),
        Deed::Loosen => change(Resource::Budgets, &|b| wants(b, -1)),
        Deed::Suspend => change(Resource::Relocations, &|r| {
            set(r, &["spec", "suspend"], true);
        }),
        Deed::Resume => change(Resource::Relocations, &|r| {
            set(r, &["spec", "suspend"], false);
        }),
        Deed::DeleteRelocation => delete(store, Resource::Relocations, &chosen, AGENT),
        Deed::EditRelocation => {
            let to = rng.u32(1..5);
            change(Resource::Relocations, &|r| {
                set(r, &["spec", "workloads", "maxConcurrent"], to);
            });
        }
    }
    Some(object)
}

/// Removes everything of ours from a node, as somebody does who wonders what it is.
fn strip(node: &mut Value) {
    let ours: Vec<String> = at(node, &["metadata", "annotations"])
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.clone())
        .filter(|key| key.starts_with("relocation.sh/"))
        .collect();
    for key in ours {
        unset(node, &["metadata", "annotations", &key]);
    }
}
