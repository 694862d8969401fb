//! Kubernetes quantities, added up as the scheduler adds them. Pure.
//!
//! The format is that of `k8s.io/apimachinery/pkg/api/resource`: a decimal number with an optional binary (`Ki`) or decimal (`m`, `k`)
//! suffix or a decimal exponent.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Resource amounts by name, in thousandths of the unit (millicores, thousandths of a byte), rounded up.
///
/// An `i128` of thousandths holds every amount that a quantity can express (2^63 units).
pub type Quantities = BTreeMap<String, i128>;

const MILLI: i128 = 1000;

/// The amount in thousandths, rounded up as the scheduler does, or `None` when the text is no quantity.
#[must_use]
pub fn parse(text: &str) -> Option<i128> {
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(split)?;
    let (numerator, denominator) = scale(suffix)?;
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let fraction_scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let dividend = mantissa.checked_mul(numerator)?.checked_mul(MILLI)?;
    let divisor = denominator.checked_mul(fraction_scale)?;
    let rounded_up = dividend.checked_add(divisor - 1)? / divisor;
    Some(if negative { -rounded_up } else { rounded_up })
}

/// The multiplier of a suffix, as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            if power >= 0 { (factor, 1) } else { (1, factor) }
        }
    })
}

/// The wire form of an amount in thousandths: whole units where it is whole, else with the suffix `m`.
#[must_use]
pub fn format(thousandths: i128) -> Quantity {
    Quantity(if thousandths % MILLI == 0 {
        (thousandths / MILLI).to_string()
    } else {
        format!("{thousandths}m")
    })
}

/// What the scheduler reserves for a pod: the larger of what its containers (with sidecars) ask for together and what any init
/// container needs while it runs beside the sidecars started before it; pod-level requests in place of those where they are given; and
/// the runtime's overhead on top.
///
/// Source: KEP-753 (sidecars), KEP-2837 (pod-level resources), `k8s.io/component-helpers/resource.PodRequests`.
#[must_use]
pub fn pod_requests(spec: &PodSpec) -> Quantities {
    let mut running = Quantities::new();
    for container in &spec.containers {
        add(&mut running, &container_requests(container));
    }
    let mut sidecars = Quantities::new();
    let mut starting = Quantities::new();
    for init in spec.init_containers.iter().flatten() {
        let own = container_requests(init);
        if init.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &own);
            add(&mut sidecars, &own);
            raise(&mut starting, &sidecars);
        } else {
            let mut during = sidecars.clone();
            add(&mut during, &own);
            raise(&mut starting, &during);
        }
    }
    raise(&mut running, &starting);
    if let Some(resources) = &spec.resources {
        running.extend(requests(resources));
    }
    add(&mut running, &amounts(spec.overhead.as_ref()));
    running.retain(|_, amount| *amount > 0);
    running
}

fn container_requests(container: &Container) -> Quantities {
    container
        .resources
        .as_ref()
        .map(requests)
        .unwrap_or_default()
}

fn requests(resources: &ResourceRequirements) -> Quantities {
    amounts(resources.requests.as_ref())
}

fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Quantities {
    list.into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), parse(&amount.0)?)))
        .collect()
}

fn add(sum: &mut Quantities, more: &Quantities) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_default();
        *entry = entry.saturating_add(*amount);
    }
}

fn raise(most: &mut Quantities, other: &Quantities) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_of_every_suffix() {
        // Values from the grammar in k8s.io/apimachinery/pkg/api/resource/quantity.go.
        for (text, thousandths) in [
            ("1", 1000),
            ("500m", 500),
            ("1.5", 1500),
            ("0.0001", 1),
            ("100n", 1),
            ("1k", 1_000_000),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("2e3", 2_000_000),
            ("5E-1", 500),
            ("1E", 1_000_000_000_000_000_000_000),
            ("-1", -1000),
        ] {
            assert_eq!(parse(text), Some(thousandths), "{text}");
        }
        for text in ["", "m", "1x", "1 Gi", "e3", "."] {
            assert_eq!(parse(text), None, "{text:?} is no quantity");
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        for amount in [0, 1, 999, 1000, 1500, 1_610_612_736_000] {
            assert_eq!(parse(&format(amount).0), Some(amount));
        }
    }

    #[test]
    fn requests_as_the_scheduler_counts_them() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "250m", "nvidia.com/gpu": "1"}}},
            ],
            "initContainers": [
                {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
                {"name": "migrate", "resources": {"requests": {"cpu": "2", "memory": "128Mi"}}},
            ],
            "overhead": {"memory": "16Mi"},
        }))
        .unwrap();
        let requests = pod_requests(&spec);
        // cpu: running 500 + 250 + 100 = 850m; the init container beside the sidecar 2000 + 100 = 2100m; the larger counts.
        assert_eq!(requests.get("cpu"), Some(&2100));
        // memory: running 1024 + 64 Mi beats the init's 128 + 64 Mi; overhead comes on top: 1104 Mi.
        assert_eq!(requests.get("memory"), Some(&(1104 * 1024 * 1024 * 1000)));
        assert_eq!(requests.get("nvidia.com/gpu"), Some(&1000));
    }
}
