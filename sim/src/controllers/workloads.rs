//! The controllers of Deployments, `ReplicaSets`, `StatefulSets` and `DaemonSets`. Sources: `pkg/controller/{deployment,replicaset,
//! statefulset,daemon}` of Kubernetes 1.37.

use std::sync::Arc;

use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Controller, MANAGER, delete, is_finished, is_ready, is_terminating, name, namespace, node_of,
    uid,
};
use crate::json::{at, number, set, text};
use crate::resource::Resource;
use crate::server::controller;
use crate::store::Store;

pub(super) struct Deployments;
pub(super) struct ReplicaSets;
pub(super) struct StatefulSets;
pub(super) struct DaemonSets;

fn owned(store: &Store, resource: Resource, owner: &str) -> Vec<Arc<Value>> {
    store
        .all(resource)
        .filter(|o| controller(o) == owner)
        .cloned()
        .collect()
}

/// Pods that count as replicas.
fn active(store: &Store, owner: &str) -> Vec<Arc<Value>> {
    let mut pods = owned(store, Resource::Pods, owner);
    pods.retain(|p| !is_terminating(p) && !is_finished(p));
    pods
}

fn ready(pods: &[Arc<Value>]) -> i64 {
    count(pods.iter().filter(|p| is_ready(p)).count())
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn reference(owner: &Value) -> Value {
    json!([{
        "apiVersion": text(owner, &["apiVersion"]), "kind": text(owner, &["kind"]),
        "name": name(owner), "uid": uid(owner), "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A pod of the template, for that owner.
fn pod(owner: &Value) -> Value {
    let template = at(owner, &["spec", "template"]);
    let mut pod = json!({"metadata": at(template, &["metadata"]), "spec": at(template, &["spec"])});
    set(&mut pod, &["metadata", "namespace"], namespace(owner));
    set(&mut pod, &["metadata", "ownerReferences"], reference(owner));
    pod
}

impl Controller for ReplicaSets {
    fn looks_at(&self) -> &'static [Resource] {
        &[Resource::ReplicaSets, Resource::Pods]
    }

    fn run(&mut self, store: &mut Store, _rng: &mut Rng) -> Option<Timestamp> {
        let sets: Vec<_> = store.all(Resource::ReplicaSets).cloned().collect();
        for set in sets {
            let mut pods = active(store, uid(&set));
            let (wanted, have) = (number(&set, &["spec", "replicas"]), count(pods.len()));
            for _ in have..wanted {
                let mut pod = pod(&set);
                crate::json::set(
                    &mut pod,
                    &["metadata", "generateName"],
                    format!("{}-", name(&set)),
                );
                // Refused by admission: tried again at the next change.
                let _refused = store.create(Resource::Pods, pod);
            }
            if have > wanted {
                let all = pods.clone();
                pods.sort_by_cached_key(|p| rank(&all, p));
                let surplus = usize::try_from(have - wanted).unwrap_or_default();
                for pod in pods.iter().take(surplus) {
                    delete(store, Resource::Pods, pod, MANAGER);
                }
            }
            let pods = active(store, uid(&set));
            store.change(Resource::ReplicaSets, namespace(&set), name(&set), |s| {
                let generation = number(s, &["metadata", "generation"]);
                let (have, ready) = (count(pods.len()), ready(&pods));
                crate::json::set(s, &["status"], json!({
                    "observedGeneration": generation, "replicas": have, "readyReplicas": ready, "availableReplicas": ready,
                }));
            });
        }
        None
    }
}

/// Who goes first: the order of `ActivePodsWithRanks`.
fn rank(
    pods: &[Arc<Value>],
    pod: &Value,
) -> (
    bool,
    bool,
    bool,
    i64,
    i64,
    std::cmp::Reverse<String>,
    std::cmp::Reverse<String>,
) {
    let cost = "controller.kubernetes.io/pod-deletion-cost";
    let cost = text(pod, &["metadata", "annotations", cost])
        .parse()
        .unwrap_or(0);
    let together = pods
        .iter()
        .filter(|p| node_of(p) == node_of(pod) && !node_of(pod).is_empty() && is_ready(p))
        .count();
    let since = crate::json::list(pod, &["status", "conditions"])
        .iter()
        .find(|c| text(c, &["type"]) == "Ready")
        .map(|c| text(c, &["lastTransitionTime"]).to_owned())
        .unwrap_or_default();
    (
        !node_of(pod).is_empty(),
        text(pod, &["status", "phase"]) == "Running",
        is_ready(pod),
        cost,
        -count(together),
        std::cmp::Reverse(since),
        std::cmp::Reverse(text(pod, &["metadata", "creationTimestamp"]).to_owned()),
    )
}

/// The annotation by which a Deployment tells its `ReplicaSets` apart: the template as text.
const TEMPLATE: &str = "sim/template";

impl Controller for Deployments {
    fn looks_at(&self) -> &'static [Resource] {
        &[Resource::Deployments, Resource::ReplicaSets, Resource::Pods]
    }

    fn run(&mut self, store: &mut Store, _rng: &mut Rng) -> Option<Timestamp> {
        let deployments: Vec<_> = store.all(Resource::Deployments).cloned().collect();
        for deployment in deployments {
            if at(&deployment, &["spec", "paused"]).as_bool() == Some(true) {
                scale_as_it_is(store, &deployment);
            } else {
                roll(store, &deployment);
            }
            report(store, &deployment);
        }
        None
    }
}

fn replicas(object: &Value) -> i64 {
    number(object, &["spec", "replicas"])
}

fn scale(store: &mut Store, set: &Value, to: i64) {
    store.change(Resource::ReplicaSets, namespace(set), name(set), |s| {
        crate::json::set(s, &["spec", "replicas"], to);
    });
}

/// The `ReplicaSet` of the present template, if there is one, and the others.
fn sets(store: &Store, deployment: &Value) -> (Option<Arc<Value>>, Vec<Arc<Value>>) {
    let template = at(deployment, &["spec", "template"]).to_string();
    let (mut now, old): (Vec<_>, Vec<_>) = owned(store, Resource::ReplicaSets, uid(deployment))
        .into_iter()
        .partition(|s| text(s, &["metadata", "annotations", TEMPLATE]) == template);
    (now.pop(), old)
}

/// A paused Deployment rolls nothing out, and follows its count.
fn scale_as_it_is(store: &mut Store, deployment: &Value) {
    if let (Some(now), old) = sets(store, deployment)
        && old.iter().all(|s| replicas(s) == 0)
    {
        scale(store, &now, replicas(deployment));
    }
}

fn roll(store: &mut Store, deployment: &Value) {
    let (now, old) = sets(store, deployment);
    let wanted = replicas(deployment);
    let rolling = |field, default| {
        let value = at(deployment, &["spec", "strategy", "rollingUpdate", field]);
        value.as_i64().unwrap_or(default)
    };
    let recreate = text(deployment, &["spec", "strategy", "type"]) == "Recreate";
    let (surge, missing) = if recreate {
        (0, wanted)
    } else {
        (rolling("maxSurge", 1), rolling("maxUnavailable", 0))
    };
    let missing = if surge == 0 { missing.max(1) } else { missing };
    let in_old: i64 = old.iter().map(|s| replicas(s)).sum();
    if recreate && in_old > 0 {
        for set in &old {
            scale(store, set, 0);
        }
        return;
    }
    let still_there = old
        .iter()
        .any(|s| !owned(store, Resource::Pods, uid(s)).is_empty());
    if recreate && still_there {
        return;
    }
    let Some(now) = now else {
        make_set(store, deployment, if old.is_empty() { wanted } else { 0 });
        return;
    };
    // Up: as many as the total allows.
    let have = replicas(&now);
    let total = have + in_old;
    if have > wanted {
        scale(store, &now, wanted);
    } else if have < wanted {
        let room = (wanted + surge - total).max(0);
        if in_old == 0 {
            scale(store, &now, wanted);
        } else if room > 0 {
            scale(store, &now, have + room.min(wanted - have));
        }
    }
    // Down: pods that do not serve first, then as many as availability allows.
    let of_old: Vec<_> = old
        .iter()
        .map(|s| (Arc::clone(s), active(store, uid(s))))
        .collect();
    let of_now = active(store, uid(&now));
    let least = wanted - missing;
    let mut may_go = total - least - (have - ready(&of_now)).max(0);
    let available = ready(&of_now) + of_old.iter().map(|(_, pods)| ready(pods)).sum::<i64>();
    let mut serving_may_go = available - least;
    for (set, pods) in of_old {
        let mut to = replicas(&set);
        let sick = (to - ready(&pods)).max(0).min(may_go.max(0));
        to -= sick;
        may_go -= sick;
        let more = serving_may_go.max(0).min(to).min(may_go.max(0));
        to -= more;
        may_go -= more;
        serving_may_go -= more;
        scale(store, &set, to);
    }
}

fn make_set(store: &mut Store, deployment: &Value, replicas: i64) {
    let template = at(deployment, &["spec", "template"]);
    let mut set = json!({
        "metadata": {
            "generateName": format!("{}-", name(deployment)), "namespace": namespace(deployment),
            "labels": at(template, &["metadata", "labels"]), "ownerReferences": reference(deployment),
            // As the real one: the annotations of the Deployment are copied.
            "annotations": at(deployment, &["metadata", "annotations"]),
        },
        "spec": {"replicas": replicas, "selector": at(deployment, &["spec", "selector"]), "template": template},
    });
    crate::json::set(
        &mut set,
        &["metadata", "annotations", TEMPLATE],
        template.to_string(),
    );
    // The name is new.
    let _made = store.create(Resource::ReplicaSets, set);
}

fn report(store: &mut Store, deployment: &Value) {
    let (now, old) = sets(store, deployment);
    let pods = |set: &Arc<Value>| active(store, uid(set));
    let of_now = now.as_ref().map(pods).unwrap_or_default();
    let all: Vec<_> = old
        .iter()
        .flat_map(pods)
        .chain(of_now.iter().cloned())
        .collect();
    let status = json!({
        "observedGeneration": number(deployment, &["metadata", "generation"]),
        "replicas": all.len(), "updatedReplicas": of_now.len(),
        "readyReplicas": ready(&all), "availableReplicas": ready(&all),
    });
    store.change(
        Resource::Deployments,
        namespace(deployment),
        name(deployment),
        |d| set(d, &["status"], status),
    );
}

/// The label by which a `StatefulSet` knows of which revision a pod is.
const REVISION: &str = "controller-revision-hash";

/// The revision of the present template: what the name of its `ControllerRevision` would be.
fn revision(set: &Value) -> String {
    // FNV-1a, 64 bit.
    let template = at(set, &["spec", "template"]).to_string();
    let hash = template
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{}-{hash:016x}", name(set))
}

fn is_of(pod: &Value, revision: &str) -> bool {
    text(pod, &["metadata", "labels", REVISION]) == revision
}

fn is_healthy(pod: &Value) -> bool {
    is_ready(pod) && !is_terminating(pod)
}

impl Controller for StatefulSets {
    fn looks_at(&self) -> &'static [Resource] {
        &[Resource::StatefulSets, Resource::Pods]
    }

    fn run(&mut self, store: &mut Store, _rng: &mut Rng) -> Option<Timestamp> {
        let sets: Vec<_> = store.all(Resource::StatefulSets).cloned().collect();
        for set in sets {
            let complete = fill(store, &set);
            let condemned = take_surplus(store, &set);
            let by_itself = text(&set, &["spec", "updateStrategy", "type"]) != "OnDelete";
            if complete && !condemned && by_itself {
                roll_set(store, &set);
            }
            report_set(store, &set);
        }
        None
    }
}

/// Makes the pods that are missing, of the present revision. False when it goes in order and one of them is waited for.
fn fill(store: &mut Store, set: &Value) -> bool {
    let parallel = text(set, &["spec", "podManagementPolicy"]) == "Parallel";
    let claims = !crate::json::list(set, &["spec", "volumeClaimTemplates"]).is_empty();
    for ordinal in 0..replicas(set) {
        let pod_name = format!("{}-{ordinal}", name(set));
        let there = store
            .get(Resource::Pods, namespace(set), &pod_name)
            .cloned();
        match there {
            None => {
                let mut pod = pod(set);
                crate::json::set(&mut pod, &["metadata", "name"], pod_name.as_str());
                crate::json::set(&mut pod, &["metadata", "labels", REVISION], revision(set));
                if claims {
                    let claim = json!([{"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{pod_name}")}}]);
                    crate::json::set(&mut pod, &["spec", "volumes"], claim);
                }
                // The name is free.
                let _made = store.create(Resource::Pods, pod);
                if !parallel {
                    return false;
                }
            }
            Some(pod) if is_finished(&pod) && !is_terminating(&pod) => {
                delete(store, Resource::Pods, &pod, MANAGER);
            }
            Some(pod) if !parallel && !is_healthy(&pod) => return false,
            Some(_) => {}
        }
    }
    true
}

/// Takes away the last pod that is one too many. True while there is any.
fn take_surplus(store: &mut Store, set: &Value) -> bool {
    let mut surplus = owned(store, Resource::Pods, uid(set));
    surplus.retain(|p| ordinal(p) >= replicas(set));
    let any = !surplus.is_empty();
    surplus.retain(|p| !is_terminating(p));
    surplus.sort_by_key(|p| -ordinal(p));
    if let Some(last) = surplus.first() {
        delete(store, Resource::Pods, last, MANAGER);
    }
    any
}

/// Takes away the pod of the highest ordinal that is of an older revision, when all above it are healthy.
fn roll_set(store: &mut Store, set: &Value) {
    let partition = ["spec", "updateStrategy", "rollingUpdate", "partition"];
    let revision = revision(set);
    let mut pods = owned(store, Resource::Pods, uid(set));
    pods.retain(|p| ordinal(p) >= number(set, &partition));
    pods.sort_by_key(|p| -ordinal(p));
    for pod in pods {
        if !is_of(&pod, &revision) && !is_terminating(&pod) {
            delete(store, Resource::Pods, &pod, MANAGER);
            return;
        }
        if !is_healthy(&pod) {
            return;
        }
    }
}

fn report_set(store: &mut Store, set: &Value) {
    let pods = active(store, uid(set));
    let update = revision(set);
    let updated = count(pods.iter().filter(|p| is_of(p, &update)).count());
    let wanted = replicas(set);
    let rolls = text(set, &["spec", "updateStrategy", "type"]) != "OnDelete";
    store.change(Resource::StatefulSets, namespace(set), name(set), |s| {
        let before = text(s, &["status", "currentRevision"]).to_owned();
        let complete = rolls && updated == wanted && ready(&pods) == wanted;
        let current = if before.is_empty() || complete {
            update.clone()
        } else {
            before
        };
        let generation = number(s, &["metadata", "generation"]);
        crate::json::set(s, &["status"], json!({
            "observedGeneration": generation, "replicas": pods.len(), "readyReplicas": ready(&pods),
            "availableReplicas": ready(&pods), "updatedReplicas": updated,
            "currentRevision": current, "updateRevision": update,
        }));
    });
}

fn ordinal(pod: &Value) -> i64 {
    name(pod)
        .rsplit('-')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or_default()
}

impl Controller for DaemonSets {
    fn looks_at(&self) -> &'static [Resource] {
        &[Resource::DaemonSets, Resource::Pods, Resource::Nodes]
    }

    fn run(&mut self, store: &mut Store, _rng: &mut Rng) -> Option<Timestamp> {
        let sets: Vec<_> = store.all(Resource::DaemonSets).cloned().collect();
        for set in sets {
            let pods = owned(store, Resource::Pods, uid(&set));
            let nodes: Vec<_> = store
                .all(Resource::Nodes)
                .filter(|n| !is_terminating(n) && !pods.iter().any(|p| node_of(p) == name(n)))
                .map(|n| name(n).to_owned())
                .collect();
            for node in nodes {
                let mut pod = pod(&set);
                crate::json::set(
                    &mut pod,
                    &["metadata", "generateName"],
                    format!("{}-", name(&set)),
                );
                // The real one asks the scheduler by affinity to the node; it comes to the same.
                crate::json::set(&mut pod, &["spec", "nodeName"], node);
                crate::json::set(
                    &mut pod,
                    &["spec", "tolerations"],
                    json!([{"operator": "Exists"}]),
                );
                let _made = store.create(Resource::Pods, pod);
            }
        }
        None
    }
}
