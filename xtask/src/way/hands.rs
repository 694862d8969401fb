//! By hand, well done: cordon, dummy pods shaped like those that move, rollout restart, wait, drain, delete.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use lab::{Lab, LabError, NotYet, fixtures, wait_until};

use super::WayError;
use crate::clock::Clock;
use crate::scene::Scene;

/// Where the dummies live.
const DUMMIES: &str = "dummies";

/// The workloads of the scenario: how many pods, and what each asks for.
const SHAPES: [(&str, usize, &str, &str); 3] = [
    ("db", 3, "1", "1Gi"),
    ("web", 6, "700m", "256Mi"),
    ("session-server", 1, "500m", "256Mi"),
];

/// Nodes in half a minute, rollouts in less than that for each pod.
const LONG: Duration = Duration::from_mins(4);

/// Returns when it was done.
pub(super) async fn run(scene: &Scene, clock: &mut Clock) -> Result<Timestamp, WayError> {
    let lab = scene.lab();
    let nodes: Vec<&str> = scene.old_nodes.iter().map(String::as_str).collect();
    clock
        .phase("kubectl cordon", kubectl(lab, &["cordon"], &nodes))
        .await?;
    let what = "dummy pods, until Karpenter has made nodes for them";
    clock.phase(what, dummies(lab)).await?;
    let workloads = [
        "deployment/web",
        "deployment/session-server",
        "statefulset/db",
    ];
    let restart = kubectl(lab, &["rollout", "restart"], &workloads);
    clock.phase("kubectl rollout restart", restart).await?;
    let what = "waiting until only DaemonSet pods are left";
    clock.phase(what, emptied(scene, &workloads)).await?;
    let delete = ["delete", "namespace", DUMMIES, "--wait=false"];
    lab.kubectl(&delete).await?;
    clock.phase("kubectl drain", drain(lab, &nodes)).await?;
    let claims: Vec<&str> = scene.old_claims.iter().map(String::as_str).collect();
    let verb = ["delete", "nodeclaims", "--ignore-not-found"];
    let delete = kubectl(lab, &verb, &claims);
    clock.phase("kubectl delete nodeclaims", delete).await?;
    Ok(Timestamp::now())
}

async fn kubectl(lab: &Lab, verb: &[&str], names: &[&str]) -> Result<(), WayError> {
    lab.kubectl(&[verb, names].concat()).await?;
    Ok(())
}

/// Node by node. Karpenter may be quicker: an empty node that has drifted is its own to remove, and needs no drain.
async fn drain(lab: &Lab, nodes: &[&str]) -> Result<(), WayError> {
    for node in nodes {
        let arguments = [
            "drain",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            node,
        ];
        match lab.kubectl(&arguments).await {
            Err(LabError::Kubectl { output, .. }) if output.contains("(NotFound)") => {}
            other => {
                other?;
            }
        }
    }
    Ok(())
}

async fn dummies(lab: &Lab) -> Result<(), WayError> {
    lab.apply(&manifests()).await?;
    let pods: Api<Pod> = Api::namespaced(lab.client().await?, DUMMIES);
    wait_until("all dummies to run", LONG, || async {
        let pods = pods.list(&ListParams::default()).await?;
        let running = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            phase.as_deref() == Some("Running")
        };
        let have = pods.iter().filter(running).count();
        if have == fixtures::SCENARIO_PODS {
            Ok(())
        } else {
            Err(NotYet(format!("{have} do")))
        }
    })
    .await?;
    Ok(())
}

/// Bare pods: what recreates a preempted one would make Karpenter launch still more nodes.
fn manifests() -> String {
    let mut yaml = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {DUMMIES}}}\n---\n\
         apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {DUMMIES}}}\n\
         value: -10\npreemptionPolicy: Never\n"
    );
    for (name, count, cpu, memory) in SHAPES {
        for number in 0..count {
            let _ = write!(
                yaml,
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}-{number}, namespace: {DUMMIES}}}\nspec:\n  \
                 priorityClassName: {DUMMIES}\n  terminationGracePeriodSeconds: 0\n  nodeSelector: {{NodeGroupName: apps}}\n  \
                 containers: [{{name: pause, image: registry.k8s.io/pause:3.10, \
                 resources: {{requests: {{cpu: {cpu:?}, memory: {memory}}}}}}}]\n"
            );
        }
    }
    yaml
}

/// Rolled out, and nothing is left on the old nodes.
async fn emptied(scene: &Scene, workloads: &[&str]) -> Result<(), WayError> {
    let lab = scene.lab();
    for workload in workloads {
        kubectl(lab, &["rollout", "status", "--timeout=240s"], &[workload]).await?;
    }
    let pods: Api<Pod> = Api::namespaced(lab.client().await?, "default");
    wait_until("the old nodes to be empty", LONG, || async {
        let pods = pods.list(&ListParams::default()).await?;
        let on_old = |pod: &&Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            node.is_some_and(|node| scene.old_nodes.contains(node))
        };
        let left = pods.iter().filter(on_old).count();
        if left == 0 {
            Ok(())
        } else {
            Err(NotYet(format!("{left} pods are left")))
        }
    })
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_dummy_for_each_pod_of_the_scenario() {
        let pods = manifests().matches("kind: Pod\n").count();
        assert_eq!(pods, fixtures::SCENARIO_PODS);
    }
}
