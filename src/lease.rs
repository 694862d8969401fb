//! Leadership: one instance acts, the others wait. Knows nothing of relocations.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::keys;

/// Name of the lease.
pub const LEASE: &str = "relocator";
/// How long a lease that is not renewed is respected, in seconds.
const DURATION_SECONDS: u64 = 15;
/// How long before that it is renewed, in seconds: also the clock skew between instances that does no harm.
const GRACE_SECONDS: u64 = 5;

/// A proof that is this close to its end is renewed first: a request that is sent in time may arrive a little later.
const MARGIN: Duration = Duration::from_secs(2);
/// Deadline of the request for a proof.
const PROOF: Duration = Duration::from_secs(5);

/// Whether this instance leads. Cheap to ask before every write.
#[derive(Clone, Debug)]
pub struct Leadership {
    held: watch::Receiver<bool>,
    proof: Option<Arc<Proof>>,
}

/// What the lease itself said, and until when that holds.
///
/// The election's own word is not enough: an instance that was stopped for a while, or could not renew, still believes that it
/// leads when another one already does.
struct Proof {
    leases: Api<Lease>,
    identity: String,
    valid_until: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proof")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Proof {
    async fn valid(&self) -> bool {
        let mut valid_until = self.valid_until.lock().await;
        if valid_until.is_some_and(|until| until.saturating_duration_since(Instant::now()) > MARGIN)
        {
            return true;
        }
        *valid_until = self.read().await;
        valid_until.is_some_and(|until| until.saturating_duration_since(Instant::now()) > MARGIN)
    }

    /// Reads the lease: until when it is ours.
    async fn read(&self) -> Option<Instant> {
        let asked = Instant::now();
        let lease = match tokio::time::timeout(PROOF, self.leases.get(LEASE)).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the lease cannot be read, so nothing is written");
                return None;
            }
            Err(_) => {
                tracing::warn!("the lease cannot be read, so nothing is written: no answer");
                return None;
            }
        };
        let spec = lease.spec?;
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            return None;
        }
        let seconds = i64::from(spec.lease_duration_seconds?);
        // Written by this instance, so by the same clock.
        let age = Timestamp::now().duration_since(spec.renew_time?.0);
        let left = SignedDuration::from_secs(seconds).saturating_sub(age);
        Some(asked + Duration::try_from(left).ok()?)
    }
}

impl Leadership {
    /// This instance holds the lease, and the lease itself has said so lately.
    pub async fn held(&self) -> bool {
        if !*self.held.borrow() {
            return false;
        }
        match &self.proof {
            Some(proof) => proof.valid().await,
            None => true,
        }
    }

    /// Completes when this instance leads.
    pub async fn gained(&mut self) {
        // An error means that the lease's task has ended: then it is never gained.
        if self.held.wait_for(|held| *held).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Completes when this instance leads no more.
    pub async fn lost(&mut self) {
        // An error means that the lease's task has ended: then it is lost.
        let _ended = self.held.wait_for(|held| !*held).await;
    }

    /// Leadership that somebody else decides, such as a simulation.
    #[must_use]
    pub fn told_by(held: watch::Receiver<bool>) -> Self {
        Self { held, proof: None }
    }

    /// Leadership that never changes, for tests and for tools that run alone.
    #[must_use]
    pub fn always() -> Self {
        let (sender, receiver) = watch::channel(true);
        // Kept for ever, so that the channel never closes.
        std::mem::forget(sender);
        Self {
            held: receiver,
            proof: None,
        }
    }
}

/// Takes part in the election.
pub struct Election {
    leadership: Leadership,
    task: JoinHandle<Result<LeaseManager, LeaseManagerError>>,
    stop: JoinHandle<()>,
}

impl Election {
    /// Starts to try for the lease in `namespace` under `identity`, which no other running instance may use.
    pub async fn start(
        client: Client,
        namespace: &str,
        identity: &str,
    ) -> Result<Self, LeaseManagerError> {
        let proof = Proof {
            leases: Api::namespaced(client.clone(), namespace),
            identity: identity.to_owned(),
            valid_until: Mutex::new(None),
        };
        let manager = LeaseManagerBuilder::new(client, LEASE)
            .with_namespace(namespace)
            .with_identity(identity)
            .with_duration(DURATION_SECONDS)
            .with_grace(GRACE_SECONDS)
            .with_field_manager(format!("{}-{identity}", keys::FIELD_MANAGER))
            .build()
            .await?;
        let (mut theirs, task) = manager.watch().await;
        let (ours, receiver) = watch::channel(*theirs.borrow());
        // The manager gives the lease up when its own channel is closed: ours stays readable meanwhile.
        let stop = tokio::spawn(async move {
            loop {
                tokio::select! {
                    changed = theirs.changed() => {
                        if changed.is_err() {
                            ours.send_replace(false);
                            return;
                        }
                        ours.send_replace(*theirs.borrow_and_update());
                    }
                    () = ours.closed() => return,
                }
            }
        });
        Ok(Self {
            leadership: Leadership {
                held: receiver,
                proof: Some(Arc::new(proof)),
            },
            task,
            stop,
        })
    }

    /// Whether this instance leads.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Gives the lease up, so that another instance need not wait for it to expire.
    pub async fn resign(self) {
        const DEADLINE: Duration = Duration::from_secs(5);
        self.stop.abort();
        if tokio::time::timeout(DEADLINE, self.task).await.is_err() {
            tracing::warn!(
                "the lease could not be given up in time; another instance waits until it expires"
            );
        }
    }
}
