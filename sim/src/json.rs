//! Reading and changing JSON objects by path, without copies. Pure.

use serde_json::{Map, Value};

/// What is at the path, or null.
#[must_use]
pub fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    const NULL: &Value = &Value::Null;
    path.iter()
        .try_fold(value, |value, key| value.get(key))
        .unwrap_or(NULL)
}

/// The text at the path, or nothing.
#[must_use]
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The number at the path, or 0.
#[must_use]
pub fn number(value: &Value, path: &[&str]) -> i64 {
    at(value, path).as_i64().unwrap_or_default()
}

/// The list at the path, or an empty one.
#[must_use]
pub fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// The place at the path, made where it is missing.
pub fn place<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Value {
    path.iter().fold(value, |value, key| {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(map) => map.entry((*key).to_owned()).or_insert(Value::Null),
            // Just made an object.
            _ => unreachable!("an object"),
        }
    })
}

/// Puts a value at the path.
pub fn set(value: &mut Value, path: &[&str], to: impl Into<Value>) {
    *place(value, path) = to.into();
}

/// Takes away what is at the path.
pub fn unset(value: &mut Value, path: &[&str]) {
    let Some((last, path)) = path.split_last() else {
        return;
    };
    if let Value::Object(map) = place(value, path) {
        map.remove(*last);
    }
}

/// JSON merge patch. Source: RFC 7396.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The status of the condition, or nothing.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    list(object, &["status", "conditions"])
        .iter()
        .find(|c| text(c, &["type"]) == kind)
        .map_or("", |c| text(c, &["status"]))
}

/// Sets a condition; the time of its transition changes only with its status. True when something has changed.
pub fn set_condition(
    object: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    now: &str,
) -> bool {
    let conditions = place(object, &["status", "conditions"]);
    if !conditions.is_array() {
        *conditions = Value::Array(Vec::new());
    }
    let Value::Array(conditions) = conditions else {
        return false;
    };
    let found = conditions.iter_mut().find(|c| text(c, &["type"]) == kind);
    match found {
        Some(c) if text(c, &["status"]) == status && text(c, &["reason"]) == reason => false,
        Some(c) => {
            if text(c, &["status"]) != status {
                set(c, &["lastTransitionTime"], now);
            }
            set(c, &["status"], status);
            set(c, &["reason"], reason);
            true
        }
        None => {
            conditions.push(serde_json::json!({
                "type": kind, "status": status, "reason": reason, "lastTransitionTime": now
            }));
            true
        }
    }
}

/// Whether the label selector (`matchLabels` only, as the simulation makes them) matches. None selects nothing.
#[must_use]
pub fn selects(selector: &Value, labels: &Value) -> bool {
    match selector.get("matchLabels").and_then(Value::as_object) {
        Some(wanted) => wanted.iter().all(|(k, v)| labels.get(k) == Some(v)),
        None => false,
    }
}
