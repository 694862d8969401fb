//! Invariants 6, 8 and 11: what happens to nodes. Pure.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::judge::Object;
use crate::judge::analysis::{Case, What, pods_that_stay};
use crate::judge::history::{Cause, State};
use crate::judge::object::{Detail, Kind, Node, Uid};
use crate::judge::owners::has_to_leave;

/// The claim of a relocation on a node.
const CLAIMED_BY: &str = "relocation.sh/claimed-by";

/// 6: when we deleted a `NodeClaim` or Node, its node had no pods but those of a `DaemonSet`, mirror and finished ones, and
/// no `VolumeAttachment` but of volumes of those that stay; and where the bodies are known the request named the UID. Never a collection of them.
pub(super) fn deleted_only_when_empty(case: &Case) -> Vec<String> {
    let mut out: Vec<String> = case
        .our_requests()
        .filter(|e| matches!(e.resource.as_str(), "nodes" | "nodeclaims"))
        .filter_map(|e| match e.verb.as_str() {
            "deletecollection" => Some(format!("a whole collection was deleted: {e}")),
            "delete" if e.is_by_name_alone() => {
                Some(format!("a delete without preconditions.uid: {e}"))
            }
            _ => None,
        })
        .collect();
    let mut state = State::default();
    let mut deeds = case.deeds.iter().peekable();
    for (index, change) in case.history.changes.iter().enumerate() {
        if let Some(deed) = deeds.next_if(|d| d.index == index)
            && deed.what == What::Deleted
        {
            let node = match &change.object.detail {
                Detail::NodeClaim { node, .. } => node.as_str(),
                _ => change.object.name.as_str(),
            };
            let pods: Vec<_> = pods_that_stay(&state, node)
                .map(ToString::to_string)
                .collect();
            if !pods.is_empty() {
                out.push(format!(
                    "{} was deleted with {}: {}",
                    change.object,
                    pods.join(", "),
                    deed.request
                ));
            }
            for attachment in attached(&state, node) {
                out.push(format!(
                    "{} was deleted with {attachment}: {}",
                    change.object, deed.request
                ));
            }
        }
        state.apply(change);
    }
    out
}

/// Volumes attached to the node, but those of pods that stay on it, which are attached for as long as it is there.
fn attached<'s>(state: &'s State, node: &str) -> Vec<&'s Object> {
    let stays = |pod: &&Arc<Object>| {
        let pod_of_node = pod
            .pod()
            .is_some_and(|p| p.node.as_deref() == Some(node) && !p.finished);
        pod_of_node && !has_to_leave(pod)
    };
    let of_pod = |pod: &'s Arc<Object>| {
        let claims = pod.pod().into_iter().flat_map(|p| &p.claims);
        claims.filter_map(|claim| {
            let claim = state.named(Kind::PersistentVolumeClaim, &pod.namespace, claim)?;
            match &claim.detail {
                Detail::VolumeClaim { volume } => Some(volume.as_str()),
                _ => None,
            }
        })
    };
    let kept: BTreeSet<_> = state
        .all(Kind::Pod)
        .filter(stays)
        .flat_map(of_pod)
        .filter(|volume| !volume.is_empty())
        .collect();
    let is_attached = |a: &&Arc<Object>| matches!(&a.detail, Detail::Attachment { node: at, volume } if at == node && !kept.contains(volume.as_str()));
    let attachments = state.all(Kind::VolumeAttachment);
    attachments.filter(is_attached).map(AsRef::as_ref).collect()
}

/// 8: a node that was cordoned at the start mark is not uncordoned by us, not even for a while.
pub(super) fn foreign_cordons_stay(case: &Case) -> Vec<String> {
    let cordoned = |o: &Object| o.node().is_some_and(Node::cordoned);
    let mut out = Vec::new();
    let mut now: BTreeMap<&Uid, bool> = case
        .start
        .all(Kind::Node)
        .filter(|n| cordoned(n))
        .map(|n| (&n.uid, true))
        .collect();
    for change in case
        .history
        .changes
        .iter()
        .filter(|c| c.cause == Cause::Modified && c.at > case.from)
    {
        let Some(was) = now.get_mut(&change.object.uid) else {
            continue;
        };
        let is = cordoned(&change.object);
        let before = std::mem::replace(was, is);
        if is && !before && case.our_write_of(change, "unschedulable").is_some() {
            // Somebody lifted it in between, and this one is ours.
            now.remove(&change.object.uid);
            continue;
        }
        if before
            && !is
            && let Some(request) = case.our_write_of(change, "unschedulable")
        {
            out.push(format!(
                "{} was cordoned before the start and was uncordoned: {request}",
                change.object
            ));
        }
    }
    out
}

/// 11: the claim on a node never passes from one relocation to another without having been given up between.
pub(super) fn one_claim(case: &Case) -> Vec<String> {
    let mut out = Vec::new();
    let mut claims: BTreeMap<&Uid, &str> = BTreeMap::new();
    for change in case
        .history
        .changes
        .iter()
        .filter(|c| c.object.kind == Kind::Node)
    {
        let before = claims.remove(&change.object.uid);
        let Some(now) = change.object.annotations.get(CLAIMED_BY) else {
            continue;
        };
        claims.insert(&change.object.uid, now);
        if let Some(before) = before
            && before != now
        {
            out.push(format!(
                "{}: the claim passed from {before} to {now} at {} (revision {})",
                change.object, change.at, change.revision
            ));
        }
    }
    out
}
