//! Owners of other kinds than those of apps/v1 as world types. Pure and total.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::DynamicObject;
use serde_json::Value;

use super::{identity, scaled};
use crate::world::{Health, Job, OtherOwner, Rollout, WorkloadKind, WorkloadRef};

/// An object that owns pods, whatever its kind.
#[must_use]
pub fn other_owner(api_version: &str, kind: &str, object: &DynamicObject) -> Option<OtherOwner> {
    let (name, uid) = identity(&object.metadata)?;
    let reference = WorkloadRef {
        kind: WorkloadKind::Other {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        },
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name,
        uid,
    };
    let job = reference.kind.is_job().then(|| job(&object.data));
    let replicas = if job.is_some() {
        job_replicas(&object.data)
    } else {
        ["/spec/replicas", "/spec/instances"]
            .iter()
            .find_map(|path| count(&object.data, path))
    };
    let rollout = reference
        .kind
        .is_rollout()
        .then(|| rollout(object, replicas.unwrap_or(1)));
    let health = match &rollout {
        Some(rollout) => phase(&object.data, rollout.generation),
        None => health(&object.data),
    };
    Some(OtherOwner {
        replicas,
        health,
        deleting: object.metadata.deletion_timestamp.is_some(),
        job,
        rollout,
        reference,
    })
}

fn count(data: &Value, path: &str) -> Option<u32> {
    u32::try_from(data.pointer(path)?.as_u64()?).ok()
}

fn conditions(data: &Value) -> impl Iterator<Item = &Value> {
    let list = data.pointer("/status/conditions").and_then(Value::as_array);
    list.into_iter().flatten()
}

fn has(condition: &Value, field: &str, value: &str) -> bool {
    condition.get(field).and_then(Value::as_str) == Some(value)
}

/// Condition Ready, which most operators set on what they run.
///
/// Source: the API conventions, "Typical status properties".
fn health(data: &Value) -> Health {
    match conditions(data).find(|c| has(c, "type", "Ready")) {
        None => Health::Unsaid,
        Some(ready) if has(ready, "status", "True") => Health::Healthy,
        Some(ready) => {
            let text = |field| ready.get(field).and_then(Value::as_str);
            let says = text("message").filter(|t| !t.is_empty());
            Health::Unwell(
                says.or_else(|| text("reason"))
                    .unwrap_or("not Ready")
                    .to_owned(),
            )
        }
    }
}

/// `status.phase` of a Rollout, which stands for its conditions.
///
/// Source: argo-rollouts, `pkg/apis/rollouts/v1alpha1/types.go` (`RolloutPhase`); `status.observedGeneration` is a text there.
fn phase(data: &Value, generation: i64) -> Health {
    let text = |path| data.pointer(path).and_then(Value::as_str);
    let seen = text("/status/observedGeneration").and_then(|t| t.parse::<i64>().ok());
    if seen.is_some_and(|seen| seen != generation) {
        return Health::Unwell("its controller has not seen its latest change".to_owned());
    }
    match text("/status/phase") {
        None => Health::Unsaid,
        Some("Healthy") => Health::Healthy,
        Some(phase) => Health::Unwell(match text("/status/message") {
            Some(message) if !message.is_empty() => format!("{phase}: {message}"),
            _ => phase.to_owned(),
        }),
    }
}

fn rollout(object: &DynamicObject, replicas: u32) -> Rollout {
    let data = &object.data;
    let time = |path| {
        let text = data.pointer(path).and_then(Value::as_str)?;
        text.parse::<Timestamp>().ok()
    };
    let pauses = data
        .pointer("/status/pauseConditions")
        .and_then(Value::as_array);
    let is = |path, value: &Value| data.pointer(path) == Some(value);
    let max_unavailable = [
        "/spec/strategy/canary/maxUnavailable",
        "/spec/strategy/blueGreen/maxUnavailable",
    ]
    .iter()
    .find_map(|path| serde_json::from_value::<IntOrString>(data.pointer(path)?.clone()).ok());
    Rollout {
        resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        paused: is("/spec/paused", &Value::Bool(true))
            || pauses.is_some_and(|list| !list.is_empty())
            || is("/status/phase", &Value::from("Paused")),
        // 25% where it is not set, as for a Deployment, and one at least.
        max_unavailable: scaled(max_unavailable.as_ref(), replicas, false).max(1),
        restart_at: time("/spec/restartAt"),
        restarted_at: time("/status/restartedAt"),
    }
}

fn job_finished(data: &Value) -> bool {
    conditions(data).any(|c| {
        (has(c, "type", "Complete") || has(c, "type", "Failed")) && has(c, "status", "True")
    })
}

/// How many pods the Job still runs at a time: its parallelism, and no more than are missing to its completions.
fn job_replicas(data: &Value) -> Option<u32> {
    let suspended = data.pointer("/spec/suspend").and_then(Value::as_bool);
    if job_finished(data) || suspended == Some(true) {
        return Some(0);
    }
    let parallelism = count(data, "/spec/parallelism").unwrap_or(1);
    let succeeded = count(data, "/status/succeeded").unwrap_or(0);
    match count(data, "/spec/completions") {
        Some(completions) => Some(parallelism.min(completions.saturating_sub(succeeded))),
        // A work queue: once one pod has succeeded no new one is made.
        None if succeeded > 0 => None,
        None => Some(parallelism),
    }
}

fn job(data: &Value) -> Job {
    let failed = count(data, "/status/failed").unwrap_or(0);
    // Defaulted by the API server to 6.
    let limit = count(data, "/spec/backoffLimit").unwrap_or(6);
    let rules = data
        .pointer("/spec/podFailurePolicy/rules")
        .and_then(Value::as_array);
    let ignores = |rule: &Value| {
        let patterns = rule.get("onPodConditions").and_then(Value::as_array);
        has(rule, "action", "Ignore")
            && patterns
                .into_iter()
                .flatten()
                .any(|p| has(p, "type", "DisruptionTarget"))
    };
    Job {
        failures_left: limit.saturating_sub(failed),
        ignores_disruption: rules.into_iter().flatten().any(ignores),
        finished: job_finished(data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(api_version: &str, kind: &str, rest: &Value) -> OtherOwner {
        let mut object = json!({"metadata": {"name": "a", "namespace": "default", "uid": "u"}});
        let (object_map, rest) = (object.as_object_mut().unwrap(), rest.as_object().unwrap());
        object_map.extend(rest.clone());
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        other_owner(api_version, kind, &object).unwrap()
    }

    #[test]
    fn a_job_runs_what_is_missing_to_its_completions() {
        let job = |spec: Value, status: Value| {
            read("batch/v1", "Job", &json!({"spec": spec, "status": status})).replicas
        };
        assert_eq!(job(json!({}), json!({})), Some(1));
        assert_eq!(
            job(
                json!({"parallelism": 3, "completions": 5}),
                json!({"succeeded": 3})
            ),
            Some(2)
        );
        assert_eq!(
            job(json!({"suspend": true, "parallelism": 3}), json!({})),
            Some(0)
        );
        let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        assert_eq!(job(json!({"completions": 5}), complete), Some(0));
        assert_eq!(
            job(json!({"parallelism": 3}), json!({"succeeded": 1})),
            None
        );
    }

    #[test]
    fn a_rollout_says_its_phase_and_its_restarts() {
        let rollout = |spec: Value, status: Value| {
            read(
                "argoproj.io/v1alpha1",
                "Rollout",
                &json!({"spec": spec, "status": status}),
            )
        };
        let time = "2027-01-15T08:00:00Z";
        let well = rollout(
            json!({"replicas": 3, "restartAt": time}),
            json!({"phase": "Healthy", "observedGeneration": "0"}),
        );
        assert_eq!(well.health, Health::Healthy);
        let restart = well.rollout.unwrap();
        assert_eq!((restart.paused, restart.is_restarting()), (false, true));
        // 25% of 3 is none, and one is the least.
        assert_eq!(restart.max_unavailable, 1);
        let done = rollout(
            json!({"restartAt": time}),
            json!({"restartedAt": time, "phase": "Progressing", "message": "more replicas need to be updated"}),
        );
        assert!(!done.rollout.unwrap().is_restarting());
        let said = "Progressing: more replicas need to be updated";
        assert_eq!(done.health, Health::Unwell(said.into()));
        let pause = json!({"pauseConditions": [{"reason": "CanaryPauseStep"}], "phase": "Paused"});
        assert!(rollout(json!({}), pause).rollout.unwrap().paused);
    }

    #[test]
    fn a_custom_resource_says_how_many_and_how_it_is() {
        let cluster = read(
            "postgresql.cnpg.io/v1",
            "Cluster",
            &json!({"spec": {"instances": 3}, "status": {"conditions": [
                {"type": "Ready", "status": "False", "reason": "Degraded", "message": "2 of 3"},
            ]}}),
        );
        assert_eq!(cluster.replicas, Some(3));
        assert_eq!(cluster.health, Health::Unwell("2 of 3".into()));
        assert_eq!(cluster.job, None);
        assert_eq!(read("v1", "Thing", &json!({})).health, Health::Unsaid);
    }
}
