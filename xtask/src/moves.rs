//! Which pod has come for which: the pods that had to move, and their successors. Pure.

use std::collections::{BTreeMap, BTreeSet};

use lab::judge::object::Detail;
use lab::judge::{Kind, Object, State, Uid};

/// One pod that had to move.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    owner: Uid,
    uid: Uid,
    /// As people name it.
    pub(crate) pod: String,
    /// Where it was: the `NodeClaim`, whose name is short, or the node.
    pub(crate) from: String,
    successor: Option<Uid>,
    pub(crate) now: Now,
}

/// Where it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Now {
    /// Where it was.
    #[default]
    There,
    /// On its way out, or gone, and nothing has come for it.
    Leaving,
    /// Another pod has come for it.
    Elsewhere {
        pod: String,
        /// None: it has no place yet.
        node: Option<String>,
        ready: bool,
        /// The old one is still there.
        beside: bool,
    },
}

/// All pods that had to move.
#[derive(Debug)]
pub(crate) struct Moves {
    moves: Vec<Move>,
    /// Pods that were there before: nobody's successors.
    before: BTreeSet<Uid>,
}

impl Moves {
    /// The pods on those nodes, but those of `DaemonSet`s.
    pub(crate) fn from(state: &State, nodes: &BTreeSet<String>) -> Self {
        let mut moves: Vec<Move> = state
            .all(Kind::Pod)
            .filter_map(|pod| {
                let node = pod
                    .pod()?
                    .node
                    .as_ref()
                    .filter(|node| nodes.contains(*node))?;
                Some(Move {
                    owner: owner(state, pod)?,
                    uid: pod.uid.clone(),
                    pod: pod.name.clone(),
                    from: short(state, node),
                    successor: None,
                    now: Now::There,
                })
            })
            .collect();
        moves.sort_by(|a, b| a.pod.cmp(&b.pod));
        let before = state.all(Kind::Pod).map(|pod| pod.uid.clone()).collect();
        Self { moves, before }
    }

    pub(crate) fn all(&self) -> &[Move] {
        &self.moves
    }

    /// Looks at the cluster again.
    pub(crate) fn update(&mut self, state: &State) {
        let pods: BTreeMap<&Uid, &Object> = state
            .all(Kind::Pod)
            .map(|pod| (&pod.uid, pod.as_ref()))
            .collect();
        let mut new: Vec<(&Object, Uid)> = pods
            .values()
            .filter(|pod| !self.before.contains(&pod.uid) && !pod.terminating)
            .filter(|pod| {
                !self
                    .moves
                    .iter()
                    .any(|m| m.successor.as_ref() == Some(&pod.uid))
            })
            .filter_map(|pod| Some((*pod, owner(state, pod)?)))
            .collect();
        new.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        for (pod, owner) in new {
            if let Some(index) = self.place(&pods, pod, &owner)
                && let Some(found) = self.moves.get_mut(index)
            {
                found.successor = Some(pod.uid.clone());
            }
        }
        for one in &mut self.moves {
            let old = pods.get(&one.uid);
            let stays = old.is_some_and(|old| !old.terminating);
            let successor = one.successor.as_ref().and_then(|uid| pods.get(uid));
            one.now = match successor {
                Some(new) => Now::Elsewhere {
                    pod: new.name.clone(),
                    node: new
                        .pod()
                        .and_then(|pod| pod.node.as_ref())
                        .map(|node| short(state, node)),
                    ready: new.pod().is_some_and(|pod| pod.ready),
                    beside: old.is_some(),
                },
                None if stays => Now::There,
                None => Now::Leaving,
            };
        }
    }

    /// Whose successor a new pod is: that of its own name, else of one that is leaving, else of any.
    fn place(&self, pods: &BTreeMap<&Uid, &Object>, pod: &Object, owner: &Uid) -> Option<usize> {
        let rank = |one: &Move| {
            let alive = |uid: &Uid| pods.get(uid).is_some_and(|pod| !pod.terminating);
            let free = !one.successor.as_ref().is_some_and(alive);
            (one.owner == *owner && free).then_some(if one.pod == pod.name {
                0
            } else {
                1 + u8::from(alive(&one.uid)) + 2 * u8::from(one.successor.is_some())
            })
        };
        self.moves
            .iter()
            .enumerate()
            .filter_map(|(index, one)| Some((rank(one)?, index)))
            .min()
            .map(|(_, index)| index)
    }
}

/// The `NodeClaim` of a node, or its own name.
fn short(state: &State, node: &str) -> String {
    state
        .all(Kind::NodeClaim)
        .find(|claim| matches!(&claim.detail, Detail::NodeClaim { node: of, .. } if of == node))
        .map_or_else(|| node.to_owned(), |claim| claim.name.clone())
}

/// The workload of a pod that has to move: not of a `DaemonSet`. By UID.
fn owner(state: &State, pod: &Object) -> Option<Uid> {
    let controller = |object: &Object| object.owners.iter().find(|o| o.controller).cloned();
    let direct = controller(pod)?;
    match direct.kind.as_str() {
        "DaemonSet" => None,
        "ReplicaSet" => {
            let set = state.get(Kind::ReplicaSet, &direct.uid)?;
            Some(controller(set).map_or(direct.uid, |deployment| deployment.uid))
        }
        _ => Some(direct.uid),
    }
}
