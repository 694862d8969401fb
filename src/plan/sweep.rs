//! The sweep: what carries the mark of a relocation that exists no more, or is over, is taken away as that relocation itself would have
//! done. Pure.
//!
//! One that is over can have left something: its last look was at a watch that was behind.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use crate::api::keys;
use crate::api::relocation::{AfterDrain, NodeRelocation, OnFailure};
use crate::world::{ClaimValue, Leftovers, Uid};

use super::Restore;
use super::restore::removal;

/// What a sweep is to do, and what is left for a later one.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    pub leftovers: Vec<Leftover>,
    pub later: Vec<Later>,
}

/// Something that a relocation which exists no more, or is over, has left, and the request that takes it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The relocation, as far as its marks tell: the name or the UID may be empty.
    pub of: ClaimValue,
    pub restore: Restore,
}

/// Something that is left, and has to be for the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// As in [`Leftover`].
    pub of: ClaimValue,
    /// `Pod default/web-1`.
    pub object: String,
    pub why: Why,
}

/// Why something is left for the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The pod's `ReplicaSet` is about to remove pods, and is to choose by the deletion cost.
    ChosenFrom,
    /// A relocation of this name exists and works on the node: it has found the cordon and the protection there and relies on them.
    HeldBy(String),
}

/// The relocations that marks name and that do not exist, or are over, by UID. A mark in a form that we do not write names none.
#[must_use]
pub fn gone(seen: &Leftovers) -> BTreeMap<Uid, ClaimValue> {
    let mut gone = BTreeMap::new();
    let mut name = |of: ClaimValue| {
        if of.uid.as_str().is_empty() || seen.relocations.contains_key(&of.uid) {
            return;
        }
        match gone.entry(of.uid.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(of);
            }
            // A surge names no relocation but by its UID.
            Entry::Occupied(mut entry) if entry.get().name.is_empty() => {
                entry.insert(of);
            }
            Entry::Occupied(_) => {}
        }
    };
    let cluster = &seen.cluster;
    for deployment in cluster.deployments.values() {
        if let Some(mark) = &deployment.surge {
            name(ClaimValue {
                name: String::new(),
                uid: mark.relocation.clone(),
            });
        }
    }
    for pod in cluster.pods.values() {
        if let Some(label) = &pod.placeholder {
            let relocation = pod.labels.get(keys::RELOCATION_LABEL);
            name(ClaimValue {
                name: relocation.cloned().unwrap_or_default(),
                uid: label.relocation.clone(),
            });
        }
    }
    let marks = cluster
        .nodes
        .values()
        .map(|node| &node.marks)
        .chain(cluster.pods.values().map(|pod| &pod.marks));
    for marks in marks {
        marks.relocations().cloned().for_each(&mut name);
    }
    gone
}

/// Decides what to take away. A relocation that is over says whether its cordons stay; where nobody is there any more to say
/// `onFailure: Hold`, they are lifted.
pub fn sweep(seen: &Leftovers) -> Sweep {
    let mut sweep = Sweep::default();
    for of in gone(seen).into_values() {
        let uncordon = seen.over.get(&of.uid).copied().unwrap_or(true);
        let removal = removal(&seen.cluster, &of.uid, uncordon);
        for restore in removal.restores {
            let of = of.clone();
            match held_by(seen, &restore) {
                Some(other) => sweep.later.push(Later {
                    of,
                    object: restore.object(),
                    why: Why::HeldBy(other.to_owned()),
                }),
                None => sweep.leftovers.push(Leftover { of, restore }),
            }
        }
        let chosen_from = removal.chosen_from.into_iter().map(|pod| Later {
            of: of.clone(),
            object: format!("Pod {}", pod.reference),
            why: Why::ChosenFrom,
        });
        sweep.later.extend(chosen_from);
    }
    for placeholder in &seen.detached {
        let exists = |name: &String| *name == placeholder.relocation;
        if !seen.relocations.values().any(exists) {
            sweep.leftovers.push(Leftover {
                of: ClaimValue {
                    name: placeholder.relocation.clone(),
                    uid: Uid::default(),
                },
                restore: Restore::DeletePlaceholder {
                    pod: placeholder.pod.clone(),
                },
            });
        }
    }
    // By kind and name, for people.
    sweep.leftovers.sort_by_cached_key(ToString::to_string);
    sweep.later.sort_by_cached_key(ToString::to_string);
    sweep
}

/// Whether a relocation that is over is to have lifted its cordons; `None` while it is not over.
#[must_use]
pub fn over(relocation: &NodeRelocation) -> Option<bool> {
    if !super::is_over(relocation) {
        return None;
    }
    let conditions = relocation.status.iter().flat_map(|s| &s.conditions);
    let succeeded = conditions
        .into_iter()
        .any(|c| c.type_ == "Succeeded" && c.status == "True");
    Some(if succeeded {
        relocation.spec.after_drain == AfterDrain::Uncordon
    } else {
        relocation.spec.on_failure == OnFailure::Rollback
    })
}

/// The relocation that exists and holds the node, where it is a node that is to be released.
fn held_by<'a>(seen: &'a Leftovers, restore: &Restore) -> Option<&'a str> {
    let Restore::ReleaseNode { node, .. } = restore else {
        return None;
    };
    let claim = seen
        .cluster
        .nodes
        .get(&node.uid)?
        .marks
        .claimed_by
        .as_ref()?;
    seen.relocations.get(&claim.uid).map(String::as_str)
}

impl Leftover {
    /// What is taken away, and of which relocation, in words.
    #[must_use]
    pub fn what(&self) -> String {
        format!("{}, of {}", self.marks(), relocation(&self.of))
    }

    fn marks(&self) -> String {
        let text = |still_ours: &bool, what: &str| {
            if *still_ours {
                what.to_owned()
            } else {
                format!("mark of a {what} that somebody has changed since")
            }
        };
        match &self.restore {
            Restore::ReleaseNode {
                marks,
                guards,
                uncordon,
                ..
            } => {
                let claim = marks.claim.then(|| "claim".to_owned());
                let cordon = marks.cordon.then(|| text(uncordon, "cordon"));
                let guards = guards.iter().map(|g| text(&g.still_ours, g.guard.word()));
                let all: Vec<_> = claim.into_iter().chain(guards).chain(cordon).collect();
                all.join(", ")
            }
            Restore::UnprotectPod { guards, .. } => {
                let guards = guards.iter().map(|g| text(&g.still_ours, g.guard.word()));
                guards.collect::<Vec<_>>().join(", ")
            }
            Restore::UncheapenPod { still_ours, .. } => text(still_ours, "deletion cost"),
            Restore::DeletePlaceholder { .. } => "placeholder".to_owned(),
            Restore::EndSurge {
                replicas: Some(replicas),
                ..
            } => format!("surge, replicas back at {replicas}"),
            Restore::EndSurge { replicas: None, .. } => {
                "mark of a surge, whose replicas somebody has set since".to_owned()
            }
        }
    }
}

/// The relocation, in words.
fn relocation(of: &ClaimValue) -> String {
    match (of.name.as_str(), of.uid.as_str()) {
        (name, "") => format!("NodeRelocation {name}"),
        ("", uid) => format!("the NodeRelocation with UID {uid}"),
        (name, uid) => format!("NodeRelocation {name} (UID {uid})"),
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.restore.object(), self.what())
    }
}

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relocation = relocation(&self.of);
        match &self.why {
            Why::ChosenFrom => write!(
                f,
                "{}: deletion cost, of {relocation}, when its ReplicaSet has removed the pods that are too many",
                self.object
            ),
            Why::HeldBy(other) => write!(
                f,
                "{}: what {relocation} has left, when NodeRelocation {other} does not work on it any more",
                self.object
            ),
        }
    }
}
