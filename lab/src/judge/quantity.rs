//! Amounts of resources, exact, as the scheduler counts them. Pure.
use std::collections::BTreeMap;

use serde_json::Value;

use super::json::{list, text};

/// Resource name to amount in billionths (nano), so that `100m`, `1Gi` and `0.5` add up exactly.
pub type Amounts = BTreeMap<String, i128>;

/// One unit, in nano.
const ONE: i128 = 1_000_000_000;

/// A resource list (`{cpu: 500m, memory: 1Gi}`) as amounts. What can't be read is left out.
#[must_use]
pub fn amounts(value: &Value) -> Amounts {
    value
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(k, v)| {
            let amount = match v {
                Value::String(s) => quantity(s)?,
                Value::Number(n) => i128::from(n.as_i64()?).checked_mul(ONE)?,
                _ => return None,
            };
            Some((k.clone(), amount))
        })
        .collect()
}

/// What a pod asks for: the sum of its containers and sidecars, or its largest init container with the sidecars
/// started before it, whichever is more, and the overhead.
#[must_use]
pub fn pod_requests(spec: &Value) -> Amounts {
    let of = |c: &Value| amounts(c.pointer("/resources/requests").unwrap_or(&Value::Null));
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for init in list(spec, "/initContainers") {
        let mut now = of(init);
        if text(init, "/restartPolicy") == "Always" {
            add(&mut sidecars, &now);
            now.clone_from(&sidecars);
        } else {
            add(&mut now, &sidecars);
        }
        raise(&mut peak, &now);
    }
    let mut total = sidecars;
    for container in list(spec, "/containers") {
        add(&mut total, &of(container));
    }
    raise(&mut total, &peak);
    add(
        &mut total,
        &amounts(spec.get("overhead").unwrap_or(&Value::Null)),
    );
    total.insert("pods".to_owned(), ONE);
    total
}

/// Adds to a sum.
pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (k, v) in more {
        let entry = sum.entry(k.clone()).or_default();
        *entry = entry.saturating_add(*v);
    }
}

/// Takes off a sum.
pub(crate) fn sub(sum: &mut Amounts, less: &Amounts) {
    for (k, v) in less {
        let entry = sum.entry(k.clone()).or_default();
        *entry = entry.saturating_sub(*v);
    }
}

/// Whether there is as much of everything that is wanted.
pub(crate) fn covers(have: &Amounts, want: &Amounts) -> bool {
    want.iter()
        .all(|(k, w)| *w <= 0 || have.get(k).is_some_and(|h| h >= w))
}

fn raise(most: &mut Amounts, to: &Amounts) {
    for (k, v) in to {
        let entry = most.entry(k.clone()).or_default();
        *entry = (*entry).max(*v);
    }
}

/// A Kubernetes quantity in nano; None if it is none.
fn quantity(s: &str) -> Option<i128> {
    let end = s
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(s.len());
    let (digits, suffix) = s.split_at_checked(end)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut value = if whole.is_empty() {
        0
    } else {
        whole.parse::<i128>().ok()?
    }
    .checked_mul(ONE)?;
    // More than nine digits are below what the API server keeps.
    let padded: String = fraction
        .chars()
        .chain(std::iter::repeat('0'))
        .take(9)
        .collect();
    let part = padded.parse::<i128>().ok()?;
    value += if whole.starts_with('-') { -part } else { part };
    let scale = |power: u32| 10_i128.checked_pow(power);
    let binary = |power: u32| 1024_i128.checked_pow(power);
    match suffix {
        "" => Some(value),
        "n" => value.checked_div(ONE),
        "u" => value.checked_div(scale(6)?),
        "m" => value.checked_div(scale(3)?),
        "k" => value.checked_mul(scale(3)?),
        "M" => value.checked_mul(scale(6)?),
        "G" => value.checked_mul(scale(9)?),
        "T" => value.checked_mul(scale(12)?),
        "P" => value.checked_mul(scale(15)?),
        "E" => value.checked_mul(scale(18)?),
        "Ki" => value.checked_mul(binary(1)?),
        "Mi" => value.checked_mul(binary(2)?),
        "Gi" => value.checked_mul(binary(3)?),
        "Ti" => value.checked_mul(binary(4)?),
        "Pi" => value.checked_mul(binary(5)?),
        "Ei" => value.checked_mul(binary(6)?),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            match u32::try_from(power) {
                Ok(up) => value.checked_mul(scale(up)?),
                Err(_) => value.checked_div(scale(power.unsigned_abs())?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_exact() {
        for (text, nano) in [
            ("1", ONE),
            ("100m", ONE / 10),
            ("0.5", ONE / 2),
            (".5", ONE / 2),
            ("-1.5", -3 * ONE / 2),
            ("1Gi", 1_073_741_824 * ONE),
            ("1.5Ki", 1536 * ONE),
            ("2e3", 2000 * ONE),
            ("5E", 5 * ONE * 1_000_000_000_000_000_000),
            ("10n", 10),
        ] {
            assert_eq!(quantity(text), Some(nano), "{text}");
        }
        assert_eq!(quantity("many"), None);
        assert_eq!(quantity("1Zi"), None);
    }

    #[test]
    fn a_pod_asks_for_the_larger_of_its_start_and_its_run() {
        // Sidecar 100m, then an init container of 1 cpu beside it (1100m), then 500m + 100m in the run.
        let spec = json!({
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"resources": {"requests": {"cpu": "1"}}}],
            "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            "overhead": {"cpu": "50m"}
        });
        let r = pod_requests(&spec);
        assert_eq!(r.get("cpu"), Some(&(ONE * 115 / 100)));
        assert_eq!(r.get("memory"), Some(&(1_073_741_824 * ONE)));
        assert_eq!(r.get("pods"), Some(&ONE));
    }
}
