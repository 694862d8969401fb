//! Leadership: one instance acts, the others wait. Knows nothing of relocations.

use std::time::Duration;

use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::keys;

/// Name of the lease.
pub const LEASE: &str = "relocator";
/// How long a lease that is not renewed is respected, in seconds.
const DURATION_SECONDS: u64 = 15;
/// How long before that it is renewed, in seconds: also the clock skew between instances that does no harm.
const GRACE_SECONDS: u64 = 5;

/// Whether this instance leads. Cheap to ask before every write.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<bool>);

impl Leadership {
    /// This instance holds the lease now.
    #[must_use]
    pub fn held(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when this instance leads.
    pub async fn gained(&mut self) {
        // An error means that the lease's task has ended: then it is never gained.
        if self.0.wait_for(|held| *held).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Completes when this instance leads no more.
    pub async fn lost(&mut self) {
        // An error means that the lease's task has ended: then it is lost.
        let _ended = self.0.wait_for(|held| !*held).await;
    }

    /// Leadership that never changes, for tests and for tools that run alone.
    #[must_use]
    pub fn always() -> Self {
        let (sender, receiver) = watch::channel(true);
        // Kept for ever, so that the channel never closes.
        std::mem::forget(sender);
        Self(receiver)
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
            leadership: Leadership(receiver),
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
