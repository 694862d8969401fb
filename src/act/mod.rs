//! One file an action: each is one request with its own precondition and deadline. Decides nothing; what it could not do is a
//! [`Refusal`] for the next look.

mod cordon;
mod evict;
mod finalizer;
mod place;
mod protect;
mod refused;
mod remove;
mod restart;
mod restore;
mod status;
mod surge;

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::PatchParams;

use crate::api::keys;
use crate::api::relocation::NodeRelocation;
use crate::api::status::NodeRelocationStatus;
use crate::lease::Leadership;
use crate::plan::{Action, Restore};
use crate::world::{ClaimValue, Refusal, Uid};
pub use refused::ActError;

/// Deadline of one request. An API server that takes longer is as good as away, and the next pass finds out what became of it.
const DEADLINE: Duration = Duration::from_secs(10);

/// What a request has changed.
#[derive(Clone, Debug)]
pub enum Effect {
    Relocation(Box<NodeRelocation>),
    Node(Box<Node>),
    Pod(Box<Pod>),
    Deployment(Box<Deployment>),
    StatefulSet(Box<StatefulSet>),
    /// An owner that is not watched.
    Owner(Uid),
    /// The pod is on its way out.
    Leaving(Uid),
    /// The `NodeClaim` is on its way out.
    ClaimLeaving(Uid),
    /// Accepted; what comes of it is seen by observing.
    Accepted,
    /// There was nothing left to change.
    AlreadyDone,
}

/// Carries out actions with a client of its own: no retries inside, a deadline on everything.
pub struct Actor {
    client: Client,
    leadership: Leadership,
}

impl Actor {
    /// `client` must not retry by itself: a refusal by a budget is a 429, which kube would repeat for minutes.
    #[must_use]
    pub fn new(client: Client, leadership: Leadership) -> Self {
        Self { client, leadership }
    }

    /// Records the status, before anything is done because of it.
    pub async fn record(
        &self,
        relocation: &NodeRelocation,
        status: NodeRelocationStatus,
    ) -> Result<NodeRelocation, ActError> {
        if !self.leadership.held().await {
            return Err(ActError::NotLeader);
        }
        within_deadline(status::record(self.client.clone(), relocation, status)).await
    }

    /// Carries out one action.
    pub async fn perform(
        &self,
        relocation: &NodeRelocation,
        action: &Action,
    ) -> Result<Effect, ActError> {
        if !self.leadership.held().await {
            return Err(ActError::NotLeader);
        }
        let claim = ClaimValue {
            name: relocation.metadata.name.clone().unwrap_or_default(),
            uid: relocation.metadata.uid.clone().unwrap_or_default().into(),
        };
        let request = async {
            let client = self.client.clone();
            match action {
                Action::AddFinalizer => finalizer::add(client, relocation).await,
                Action::DeleteRelocation => remove::relocation(client, relocation).await,
                Action::RemoveFinalizer => finalizer::remove(client, relocation).await,
                Action::ClaimNode { node, guards } => {
                    protect::claim_node(client, node, &claim, guards).await
                }
                Action::ProtectNode { node, guards } => {
                    protect::node(client, node, &claim, guards).await
                }
                Action::ProtectPod { pod, guards } => {
                    protect::pod(client, pod, &claim, guards).await
                }
                Action::Cordon { node } => cordon::cordon(client, node, &claim).await,
                Action::CreatePlaceholder(placeholder) => {
                    place::create(client, placeholder, relocation).await
                }
                Action::Evict { pod, .. } => evict::evict(client, pod).await,
                Action::Restart {
                    workload,
                    resource_version,
                    restarted_at,
                } => restart::restart(client, workload, resource_version, restarted_at).await,
                Action::Surge {
                    workload,
                    resource_version,
                    mark,
                } => surge::begin(client, workload, resource_version, mark).await,
                Action::CheapenPod { pod } => surge::cheapen(client, pod, &claim).await,
                Action::Restore(restore) => undo(client, restore).await,
                Action::DeleteNodeClaim {
                    name,
                    uid,
                    generation,
                    ..
                } => remove::node_claim(client, name, uid, *generation).await,
            }
        };
        within_deadline(request).await
    }

    /// Takes something away, for whatever relocation it was set. Says why it was not carried out, as [`Self::perform`] does.
    pub async fn restore(&self, restore: &Restore) -> Result<Effect, ActError> {
        if !self.leadership.held().await {
            return Err(ActError::NotLeader);
        }
        within_deadline(undo(self.client.clone(), restore)).await
    }
}

async fn undo(client: Client, restore: &Restore) -> kube::Result<Effect> {
    match restore {
        Restore::ReleaseNode {
            node,
            marks,
            guards,
            uncordon,
        } => restore::node(client, node, *marks, guards, *uncordon).await,
        Restore::UnprotectPod { pod, guards } => restore::pod(client, pod, guards).await,
        Restore::UncheapenPod { pod, still_ours } => {
            surge::uncheapen(client, pod, *still_ours).await
        }
        Restore::DeletePlaceholder { pod } => place::delete(client, pod).await,
        Restore::EndSurge {
            workload,
            resource_version,
            replicas,
        } => surge::end(client, workload, resource_version, *replicas).await,
    }
}

/// Ends a request that takes too long. Nobody knows then whether it took effect.
async fn within_deadline<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ActError> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(effect)) => Ok(effect),
        Ok(Err(error)) => Err(ActError::Api(error)),
        Err(_) => Err(ActError::Deadline(DEADLINE)),
    }
}

/// What a failed action means for the next look. `None`: nothing to remember, the world has moved on.
#[must_use]
pub fn refusal(
    action: &Action,
    error: &ActError,
    attempts: u32,
    now: jiff::Timestamp,
) -> Option<Refusal> {
    refused::refusal(action, error, attempts, now)
}

/// Every patch of ours carries our field manager.
fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(keys::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
