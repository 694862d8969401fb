//! Owners of other kinds than those of apps/v1 as world types. Pure and total.

use kube::core::DynamicObject;
use serde_json::Value;

use super::identity;
use crate::world::{Health, Job, OtherOwner, WorkloadKind, WorkloadRef};

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
    Some(OtherOwner {
        replicas,
        health: health(&object.data),
        deleting: object.metadata.deletion_timestamp.is_some(),
        job,
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
