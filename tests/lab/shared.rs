//! One lab, and one operator in it, for many short stories at once. Each keeps to nodes and a namespace of its own.
//!
//! A control plane takes longer to start than such a story to be told. It ends with the last test that uses it.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use lab::operator::{NAME, NAMESPACE, Operator};
use lab::{LabOptions, NotYet, fixtures, wait_until};
use tokio::runtime::Runtime;

use crate::world::{ACCOUNT, PATIENCE, World};

/// On an object with this label one of the operator's requests is refused, so that it stays in the stage of that request: see
/// `holds.yaml`. Without the label it goes on.
pub(crate) const HOLD: &str = "lab.relocator/hold";

/// The lab, with all that its requests are made by: a client belongs to the runtime that it was made in.
pub(crate) struct Shared {
    // Dropped in this order.
    operator: tokio::sync::Mutex<Operator>,
    pub(crate) world: World,
    runtime: Runtime,
}

impl Shared {
    /// The one that other tests use at this moment, or a new one.
    pub(crate) fn get() -> Arc<Self> {
        static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = shared.upgrade() {
            return there;
        }
        let runtime = Runtime::new().unwrap();
        let (world, operator) = runtime.block_on(start());
        let new = Arc::new(Self {
            operator: tokio::sync::Mutex::new(operator),
            world,
            runtime,
        });
        *shared = Arc::downgrade(&new);
        new
    }

    /// Runs a story. Where it fails, what the operator said about it is told.
    pub(crate) fn tell(&self, name: &str, story: impl Future<Output = ()>) {
        let _told = Told { shared: self, name };
        self.runtime.block_on(story);
    }

    /// Ends the operator as a rollout of it does (SIGTERM), lets something be found out while there is none, and starts another one,
    /// which need not wait for the lease.
    pub(crate) async fn rolled_over(&self, meanwhile: impl Future<Output = ()>) {
        let mut operator = self.operator.lock().await;
        operator.process().terminate().unwrap();
        let status = wait_until("the operator to end", PATIENCE, || {
            let ended = operator.ended().unwrap();
            async move { ended.ok_or_else(|| NotYet::because("it runs")) }
        })
        .await
        .unwrap();
        assert!(status.success(), "{status}");
        let leases: Api<Lease> = Api::namespaced(self.world.lab.client().await.unwrap(), NAMESPACE);
        let lease = leases.get(NAME).await.unwrap();
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        assert_eq!(
            holder.unwrap_or_default(),
            "",
            "it has given the lease back"
        );
        meanwhile.await;
        *operator = self.world.operator().await;
    }

    /// Kills the operator (SIGKILL), lets something happen while there is none, and starts it again under the same identity, so that
    /// the lease is its own and need not run out first.
    pub(crate) async fn without_operator(&self, meanwhile: impl Future<Output = ()>) {
        let mut operator = self.operator.lock().await;
        operator.process().kill().unwrap();
        meanwhile.await;
        let mut next = self.world.operator_as(operator.identity()).await;
        next.wait_leading(&self.world.lab).await.unwrap();
        *operator = next;
    }
}

/// Nothing makes nodes or takes them away, but there is a `NodeClaim` for what wants one.
async fn start() -> (World, Operator) {
    let world = World::with_karpenter(LabOptions::default()).await;
    world.lab.stop_karpenter().unwrap();
    world.lab.apply(include_str!("holds.yaml")).await.unwrap();
    let held = fixtures::fake_node("held", "1", &[(HOLD, "cordon")]);
    world.lab.put(&held).await.unwrap();
    let account = format!("--as={ACCOUNT}");
    let cordon = r#"{"spec":{"unschedulable":true}}"#;
    let arguments = [
        "patch",
        "node",
        "held",
        "--dry-run=server",
        &account,
        "-p",
        cordon,
    ];
    wait_until(
        "what holds the operator to be in force",
        PATIENCE,
        || async {
            match world.lab.kubectl(&arguments).await {
                Err(error) if error.to_string().contains("held before") => Ok(()),
                other => Err(NotYet(format!("{other:?}"))),
            }
        },
    )
    .await
    .unwrap();
    let operator = world.operator().await;
    (world, operator)
}

struct Told<'a> {
    shared: &'a Shared,
    name: &'a str,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let logs = fs::read_dir(self.shared.world.lab.dir().join("logs"));
        for log in logs.into_iter().flatten().flatten().map(|e| e.path()) {
            let name = log.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("relocator") {
                let text = fs::read_to_string(&log).unwrap_or_default();
                let about: Vec<_> = text.lines().filter(|l| l.contains(self.name)).collect();
                let last = about.len().saturating_sub(60);
                eprintln!("--- {name}\n{}", about[last..].join("\n"));
            }
        }
    }
}
