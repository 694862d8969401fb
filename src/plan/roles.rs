//! Which pod of a database leads, by the labels that its operator keeps: it moves after those that follow it, so that the lead passes
//! on once at most. Pure.

use std::collections::BTreeMap;

use crate::world::Pod;

use super::scene::Work;

/// A pod that leads has the label `key` with one of `values`, and the label `beside`, where a key is not telling enough alone.
struct Role {
    key: &'static str,
    values: &'static [&'static str],
    beside: Option<&'static str>,
}

const fn role(key: &'static str, values: &'static [&'static str]) -> Role {
    Role {
        key,
        values,
        beside: None,
    }
}

/// Labels by which operators mark the pod that leads, and keep the mark with the lead.
const LEADS: [Role; 9] = [
    // CloudNativePG, "Labels and annotations"; `role` alone until 1.23.
    role("cnpg.io/instanceRole", &["primary"]),
    Role {
        key: "role",
        values: &["primary"],
        beside: Some("cnpg.io/cluster"),
    },
    // Zalando's postgres-operator, "User guide": `spilo-role=master`, which is `primary` from Patroni 4 on.
    role("spilo-role", &["master", "primary"]),
    // Crunchy Data's postgres-operator, `internal/naming/labels.go`.
    role(
        "postgres-operator.crunchydata.com/role",
        &["master", "primary"],
    ),
    // Patroni's own default, "Kubernetes settings": `role`, beside the name of the cluster.
    Role {
        key: "role",
        values: &["master", "primary"],
        beside: Some("cluster-name"),
    },
    // MySQL Operator of Oracle, `mysqloperator/controller/innodbcluster`.
    role("mysql.oracle.com/cluster-role", &["PRIMARY"]),
    // KubeBlocks, `pkg/constant`: for every database that it runs.
    role("kubeblocks.io/role", &["primary", "leader", "master"]),
    // Redis: the operators of OT-CONTAINER-KIT (`internal/k8sutils/const.go`) and of Spotahome (`operator/redisfailover/service`).
    role("redis-role", &["master"]),
    role("redisfailovers-role", &["master"]),
];

/// The pod leads the others of its owner, as far as its labels tell.
pub(super) fn leads(pod: &Pod) -> bool {
    is_lead(&pod.labels)
}

/// The pod leads, and the workload has others that follow it, to which the lead can pass.
pub(super) fn leads_others(work: &Work<'_>, pod: &Pod) -> bool {
    leads(pod)
        && work
            .staying()
            .chain(work.elsewhere.iter().copied())
            .any(|p| !leads(p))
}

fn is_lead(labels: &BTreeMap<String, String>) -> bool {
    LEADS.iter().any(|role| {
        let value = labels.get(role.key).map(String::as_str);
        value.is_some_and(|value| role.values.contains(&value))
            && role.beside.is_none_or(|key| labels.contains_key(key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn the_lead_is_known_by_labels_that_cannot_mean_something_else() {
        assert!(is_lead(&labels(&[("cnpg.io/instanceRole", "primary")])));
        assert!(!is_lead(&labels(&[("cnpg.io/instanceRole", "replica")])));
        assert!(is_lead(&labels(&[("spilo-role", "master")])));
        // A `role` of anybody's says nothing by itself.
        assert!(!is_lead(&labels(&[("role", "primary")])));
        assert!(is_lead(&labels(&[
            ("role", "primary"),
            ("cnpg.io/cluster", "pg")
        ])));
    }
}
