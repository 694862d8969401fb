//! A lab in which the node pool of the scenario has drifted, and Karpenter is stuck with it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use lab::detached::{self, DetachedError, Held, UpInfo};
use lab::operator::{self, OperatorError};
use lab::programs::{self, Lines, ProgramsError};
use lab::{AuditLevel, Lab, LabError, LabOptions, PodTimes, fixtures};

use crate::cargo;
use crate::clock::Clock;
use crate::text;

/// Why there is no scene.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SceneError {
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Detached(#[from] DetachedError),
    #[error("installing relocator: {0}")]
    Install(#[from] OperatorError),
    #[error("building the programs of the lab: {0}")]
    Task(#[from] tokio::task::JoinError),
    #[error("listing the pods of the scenario: {0}")]
    Pods(#[from] kube::Error),
}

/// Whose the lab is.
#[derive(Debug)]
enum Ground {
    Ours(Lab),
    ToBeKept(Held),
}

/// The lab and what is on it.
#[derive(Debug)]
pub(crate) struct Scene {
    ground: Ground,
    /// The nodes that have drifted.
    pub(crate) old_nodes: BTreeSet<String>,
    /// Their `NodeClaim`s.
    pub(crate) old_claims: Vec<String>,
}

/// Builds what a lab needs, as far as it is missing.
pub(crate) async fn ensure_programs(clock: &mut Clock) -> Result<(), SceneError> {
    let build = tokio::task::spawn_blocking(|| programs::ensure(&Lines::default()));
    let what = "building the programs of the control plane that are missing";
    clock.shown(what, build).await??;
    Ok(())
}

impl Scene {
    /// Starts a lab and sets the scene in it. With a name the lab can be kept, under that name.
    pub(crate) async fn set(
        clock: &mut Clock,
        pod_times: PodTimes,
        name: Option<&str>,
    ) -> Result<Self, SceneError> {
        let options = LabOptions {
            karpenter: true,
            pod_times,
            // The judge wants the preconditions of the evictions.
            audit: AuditLevel::Request,
            ..LabOptions::default()
        };
        let start = async {
            Ok::<_, SceneError>(match name {
                None => Ground::Ours(Lab::start(options).await?),
                Some(name) => Ground::ToBeKept(detached::hold(name, options).await?),
            })
        };
        let what = "starting etcd, kube-apiserver, controller-manager, scheduler, KWOK, Karpenter";
        let ground = clock.phase(what, start).await?;
        let mut scene = Self {
            ground,
            old_nodes: BTreeSet::new(),
            old_claims: Vec::new(),
        };
        let lab = scene.lab();
        let repository = cargo::repository();
        let install = operator::install(lab, &repository);
        clock.phase("applying deploy/access", install).await?;
        let scenario = fixtures::apply_scenario(lab);
        let what = "creating a NodePool, a database, a session server and a web tier";
        clock.phase(what, scenario).await?;
        for line in nodes_and_pods(lab).await? {
            clock.say(&format!("    {line}"));
        }
        let (nodes, claims, message) = clock
            .phase(
                "changing the NodePool, until Karpenter is stuck",
                drift(lab),
            )
            .await?;
        let drifted = text::count(claims.len(), "NodeClaim");
        clock.say(&format!("    {drifted} Drifted, and Karpenter reports:"));
        clock.say(&format!("    DisruptionBlocked: {message}"));
        scene.old_nodes = nodes;
        scene.old_claims = claims;
        Ok(scene)
    }

    pub(crate) fn lab(&self) -> &Lab {
        match &self.ground {
            Ground::Ours(lab) => lab,
            Ground::ToBeKept(held) => held.lab(),
        }
    }

    /// Leaves the lab alone if it was to be kept, and ends it otherwise.
    pub(crate) async fn leave(self) -> Result<Option<UpInfo>, SceneError> {
        match self.ground {
            Ground::Ours(lab) => {
                lab.stop().await;
                Ok(None)
            }
            Ground::ToBeKept(held) => Ok(Some(held.leave()?)),
        }
    }
}

/// Names of nodes and of `NodeClaim`s, and Karpenter's message.
type Drifted = (BTreeSet<String>, Vec<String>, String);

async fn drift(lab: &Lab) -> Result<Drifted, LabError> {
    fixtures::drift_node_pool(lab, fixtures::NODE_POOL).await?;
    let claims = fixtures::wait_drifted(lab, fixtures::NODE_POOL).await?;
    let message = fixtures::wait_disruption_blocked(lab).await?;
    let nodes = claims
        .iter()
        .filter_map(|claim| claim.data.pointer("/status/nodeName")?.as_str())
        .map(str::to_owned)
        .collect();
    let names = claims.iter().map(ResourceExt::name_any).collect();
    Ok((nodes, names, message))
}

/// A line for each node, with its pods.
async fn nodes_and_pods(lab: &Lab) -> Result<Vec<String>, SceneError> {
    let pods: Api<Pod> = Api::namespaced(lab.client().await?, "default");
    let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods.list(&ListParams::default()).await? {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let name = pod.name_any();
        nodes
            .entry(node.unwrap_or_default())
            .or_default()
            .push(name);
    }
    let line = |(node, pods): (String, Vec<String>)| format!("{node}: {}", pods.join(", "));
    Ok(nodes.into_iter().map(line).collect())
}
