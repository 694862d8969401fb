//! What a run left behind on objects that are still there. Pure.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::analysis::Case;
use super::history::Cause;
use super::json::{string_map, text};
use super::object::{Detail, Kind, Node, Object, Uid};

/// What keeps autoscalers away. On a pod or node that was born with one, it is not ours.
pub(crate) const GUARDS: [&str; 4] = [
    "karpenter.sh/do-not-disrupt",
    "karpenter.sh/do-not-evict",
    "karpenter.sh/do-not-consolidate",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
];
/// What a surge writes on the pods that are to go.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Names object and what, for everything at the end that was not on the same object (by UID) at the start mark, or, for
/// an object made later, at its creation:
///
/// - a cordon, unless it is expected to stay, or the node or its `NodeClaim` is in deletion;
/// - an annotation that keeps an autoscaler away, or pod-deletion-cost;
/// - a label, annotation, taint or finalizer with one of the marker prefixes, also on a pod template; these also on
///   objects that were made with them. The finalizer of a `NodeRelocation` only once it is being deleted;
/// - a pod in the namespace of the placeholders;
/// - a Node or `NodeClaim` in deletion;
/// - a replica count that was changed by requests of ours.
pub(crate) fn left_behind(case: &Case) -> Vec<String> {
    let born = births(case);
    let mut out: Vec<String> = case
        .end
        .everything()
        .flat_map(|object| {
            let at_start = case.start.get(object.kind, &object.uid);
            let before = at_start.or_else(|| born.get(&object.uid).copied());
            of_object(case, object, before, at_start)
        })
        .collect();
    out.extend(replica_counts(case));
    out.sort();
    out
}

/// The first state of each object that was made after the start.
fn births<'a>(case: &Case<'a>) -> BTreeMap<Uid, &'a Arc<Object>> {
    let mut out = BTreeMap::new();
    for change in case
        .history
        .changes
        .iter()
        .filter(|c| c.cause == Cause::Added)
    {
        out.entry(change.object.uid.clone())
            .or_insert(&change.object);
    }
    out
}

fn of_object(
    case: &Case,
    object: &Object,
    before: Option<&Arc<Object>>,
    at_start: Option<&Arc<Object>>,
) -> Vec<String> {
    let mut out = Vec::new();
    let mut add = |what: String| out.push(format!("{object}: {what}"));
    if object.kind == Kind::Pod && object.namespace == case.input.placeholder_namespace {
        if at_start.is_none() {
            add("placeholder".to_owned());
        }
        return out;
    }
    let cordoned = |o: &Object| o.node().is_some_and(Node::cordoned);
    if cordoned(object)
        && !before.is_some_and(|b| cordoned(b))
        && !case.input.expected_cordons.contains(&object.name)
        && !is_leaving(case, object)
    {
        add("cordon".to_owned());
    }
    for key in GUARDS.into_iter().chain([DELETION_COST]) {
        let had = before.is_some_and(|b| b.annotations.contains_key(key));
        if object.annotations.contains_key(key) && !had {
            add(format!("annotation {key}"));
        }
    }
    let had = at_start.map(|o| markers(case, o)).unwrap_or_default();
    for marker in markers(case, object).difference(&had) {
        add(marker.clone());
    }
    if matches!(object.kind, Kind::Node | Kind::NodeClaim)
        && object.terminating
        && !before.is_some_and(|b| b.terminating)
    {
        add("in deletion".to_owned());
    }
    out
}

/// Whether a node is on its way out: nothing is to land there any more.
fn is_leaving(case: &Case, node: &Object) -> bool {
    let of_node = |claim: &Object| matches!(&claim.detail, Detail::NodeClaim { node: of, .. } if *of == node.name);
    let mut claims = case.end.all(Kind::NodeClaim);
    node.terminating || claims.any(|claim| claim.terminating && of_node(claim))
}

/// Everything on an object that has a marker prefix.
fn markers(case: &Case, object: &Object) -> BTreeSet<String> {
    let marked = |key: &str| {
        case.input
            .marker_prefixes
            .iter()
            .any(|p| key.starts_with(p.as_str()))
    };
    let mut out = BTreeSet::new();
    let mut add = |sort: &str, key: &str| {
        if marked(key) {
            out.insert(format!("{sort} {key}"));
        }
    };
    for key in object.labels.keys() {
        add("label", key);
    }
    for key in object.annotations.keys() {
        add("annotation", key);
    }
    for key in &object.finalizers {
        if object.kind != Kind::NodeRelocation || object.terminating {
            add("finalizer", key);
        }
    }
    match &object.detail {
        Detail::Node(node) => {
            for taint in node.taints() {
                add("taint", text(taint, "/key"));
            }
        }
        Detail::Workload(workload) => {
            for key in workload.template_annotations().keys() {
                add("template annotation", key);
            }
            let labels = workload.spec.pointer("/template/metadata/labels");
            for key in labels.map(string_map).unwrap_or_default().keys() {
                add("template label", key);
            }
        }
        _ => {}
    }
    out
}

/// Workloads that we scaled, that nobody else scaled, and that do not have their count back.
fn replica_counts(case: &Case) -> Vec<String> {
    let mut out = Vec::new();
    for object in case
        .start
        .all(Kind::Deployment)
        .chain(case.start.all(Kind::StatefulSet))
    {
        let replicas = |o: &Object| o.workload().and_then(|w| w.replicas).unwrap_or_default();
        let Some(now) = case.end.get(object.kind, &object.uid) else {
            continue;
        };
        let (was, is) = (replicas(object), replicas(now));
        if was == is {
            continue;
        }
        let mut last = was;
        let changes = case.history.changes.iter().filter(|c| {
            c.object.uid == object.uid && c.cause == Cause::Modified && c.at > case.from
        });
        let all_ours = changes
            .filter(|c| {
                let to = replicas(&c.object);
                std::mem::replace(&mut last, to) != to
            })
            .all(|c| case.our_write_of(c, "replicas").is_some());
        if all_ours {
            out.push(format!("{object}: replicas {is}, was {was}"));
        }
    }
    out
}
