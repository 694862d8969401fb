//! Whether the API server would take a status: the schema of the CRD, as far as it speaks of status.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use jiff::Timestamp;
use relocator::api::crd;
use relocator::api::status::NodeRelocationStatus;
use serde_json::Value;

static STATUS: LazyLock<Value> = LazyLock::new(|| {
    let crd = serde_json::to_value(crd::definition()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"].clone()
});

/// Panics, with the field and the rule.
pub(crate) fn check(status: &NodeRelocationStatus) {
    let value = serde_json::to_value(status).unwrap();
    if let Err(problem) = valid("status", &value, &STATUS) {
        panic!("the API server would refuse this: {problem}");
    }
}

fn valid(at: &str, value: &Value, schema: &Value) -> Result<(), String> {
    let require = |holds: bool, what: &str| {
        if holds {
            Ok(())
        } else {
            Err(format!("{at}: {what}: {value} against {schema}"))
        }
    };
    let number = |key: &str| schema[key].as_f64();
    let most = |key: &str, length: usize| schema[key].as_u64().is_none_or(|n| length as u64 <= n);
    let least = |key: &str, length: usize| schema[key].as_u64().is_none_or(|n| length as u64 >= n);
    if let Some(words) = schema["enum"].as_array() {
        require(words.contains(value), "enum")?;
    }
    match (schema["type"].as_str(), value) {
        (Some("object"), Value::Object(fields)) => {
            for required in schema["required"].as_array().into_iter().flatten() {
                require(fields.contains_key(required.as_str().unwrap()), "required")?;
            }
            for (name, inner) in fields {
                let known = schema["properties"].get(name);
                let known = known.ok_or_else(|| format!("{at}.{name} is not in the schema"))?;
                valid(&format!("{at}.{name}"), inner, known)?;
            }
            Ok(())
        }
        (Some("array"), Value::Array(items)) => {
            require(most("maxItems", items.len()), "maxItems")?;
            let keys = schema["x-kubernetes-list-map-keys"].as_array();
            if let Some(key) = keys.and_then(|k| k[0].as_str()) {
                let unique: BTreeSet<_> = items.iter().map(|i| i[key].to_string()).collect();
                require(unique.len() == items.len(), "list-map-keys")?;
            }
            items.iter().enumerate().try_for_each(|(index, item)| {
                valid(&format!("{at}[{index}]"), item, &schema["items"])
            })
        }
        (Some("string"), Value::String(text)) => {
            let length = text.chars().count();
            require(
                most("maxLength", length) && least("minLength", length),
                "length",
            )?;
            if let Some(pattern) = schema["pattern"].as_str() {
                require(matches(pattern, text), "pattern")?;
            }
            if schema["format"] == "date-time" {
                // Kubernetes has years of four digits.
                let fits = text.parse::<Timestamp>().is_ok() && text.len() <= 35;
                require(fits, "date-time")?;
            }
            Ok(())
        }
        (Some("integer"), Value::Number(n)) => {
            let n = n.as_f64().unwrap();
            let fits = number("maximum").is_none_or(|m| n <= m)
                && number("minimum").is_none_or(|m| n >= m);
            require(fits, "range")?;
            let int32 = schema["format"] == "int32";
            require(!int32 || n <= f64::from(i32::MAX), "int32")
        }
        (Some("boolean"), Value::Bool(_)) => Ok(()),
        _ => require(false, "type"),
    }
}

/// The patterns that there are, by hand.
fn matches(pattern: &str, text: &str) -> bool {
    let ends = |first: fn(char) -> bool, inner: &str, last: fn(char) -> bool| {
        text.starts_with(first)
            && text.ends_with(last)
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || inner.contains(c))
    };
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match pattern {
        "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$" => {
            ends(|c| c.is_ascii_alphabetic(), "_,:", word)
        }
        "^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$" => ends(
            |c| c.is_ascii_alphanumeric(),
            "-_./",
            |c| c.is_ascii_alphanumeric(),
        ),
        other => panic!("a pattern that is not known here: {other}"),
    }
}
