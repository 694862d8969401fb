//! relocator in a lab: installed as its manifests say, run under its service account, and watched from outside.
//!
//! The lab knows a `NodeRelocation` in its wire form only, so that it does not depend on the operator that it is for.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::cluster::{Lab, LabError};
use crate::judge::Kind;
use crate::process::{self, Process};
use crate::wait::{NotYet, WaitError, wait_until};

/// The namespace of the operator.
pub const NAMESPACE: &str = "relocator-system";

/// Its service account, and its lease.
pub const NAME: &str = "relocator";

/// A lease whose holder was killed runs for a quarter of a minute; a busy machine takes a while on top.
const LEADING: Duration = Duration::from_mins(3);

/// Why relocator could not be installed, run or watched.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A condition that did not come to hold.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The process could not be started or looked at.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// It ended when it should run.
    #[error("the operator ended, {status}; the end of {}:\n{tail}", log.display())]
    Ended {
        /// How.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// Nothing follows the relocation any more.
    #[error("the watch of NodeRelocation {name} has ended")]
    Unfollowed {
        /// The relocation.
        name: String,
    },
}

/// Applies `deploy/access` of the repository, which has the resource definition, the namespaces and the access, and not the operator
/// itself, and waits until the API server serves `NodeRelocation`.
pub async fn install(lab: &Lab, repository: &Path) -> Result<(), OperatorError> {
    let manifests = repository.join("deploy/access").display().to_string();
    lab.kubectl(&["apply", "--server-side", "--kustomize", &manifests])
        .await?;
    lab.kubectl(&[
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "customresourcedefinition/noderelocations.relocation.sh",
    ])
    .await?;
    Ok(())
}

/// How to run the operator. The default is as in `deploy/`.
#[derive(Clone, Debug, Default)]
pub struct OperatorOptions {
    /// Its identity in the election. None: one that no other operator of this process has.
    pub identity: Option<String>,
    /// More environment variables, for example `RUST_LOG`.
    pub environment: BTreeMap<String, String>,
    /// More arguments after `run`.
    pub arguments: Vec<String>,
}

/// A running operator. It ends when this is dropped (unless the lab is one that is left alone), and when we are killed.
#[derive(Debug)]
pub struct Operator {
    process: Process,
    identity: String,
    kubeconfig: PathBuf,
}

impl Operator {
    /// Starts the operator binary as the service account of `deploy/`, which has to be installed, and waits until it leads.
    pub async fn start(lab: &Lab, binary: &Path) -> Result<Self, OperatorError> {
        let mut operator = Self::start_with(lab, binary, OperatorOptions::default()).await?;
        operator.wait_leading(lab).await?;
        Ok(operator)
    }

    /// Starts it in another way, and does not wait: for a second one that is to stand by, for example.
    pub async fn start_with(
        lab: &Lab,
        binary: &Path,
        options: OperatorOptions,
    ) -> Result<Self, OperatorError> {
        static COUNT: AtomicU32 = AtomicU32::new(1);

        let OperatorOptions {
            identity,
            environment,
            arguments,
        } = options;
        let identity = identity.unwrap_or_else(|| {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            format!("{NAME}-{number}")
        });
        let kubeconfig = lab.kubeconfig_for_service_account(NAMESPACE, NAME).await?;
        let mut command = Command::new(binary);
        command
            .arg("run")
            .args(arguments)
            .envs(environment)
            .env("KUBECONFIG", &kubeconfig)
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_NAME", &identity)
            .current_dir(lab.dir());
        let log = lab.dir().join(format!("logs/{identity}.log"));
        let process = lab
            .start_beside(&identity, command, log)
            .map_err(|source| OperatorError::Io {
                what: format!("starting {}", binary.display()),
                source,
            })?;
        Ok(Self {
            process,
            identity,
            kubeconfig,
        })
    }

    /// Waits until it holds the lease, and fails at once when it has ended instead.
    pub async fn wait_leading(&mut self, lab: &Lab) -> Result<(), OperatorError> {
        let leases: Api<Lease> = Api::namespaced(lab.client().await?, NAMESPACE);
        let end = Instant::now() + LEADING;
        loop {
            self.check()?;
            // In slices, so that one that has ended is noticed.
            let slice = Duration::from_millis(500);
            let look = wait_until("the operator to hold its lease", slice, || async {
                let lease = leases.get(NAME).await?;
                let holder = lease.spec.and_then(|spec| spec.holder_identity);
                if holder.as_deref() == Some(&self.identity) {
                    Ok(())
                } else {
                    Err(NotYet(format!("the holder is {holder:?}")))
                }
            });
            match look.await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= end => {
                    let deadline = LEADING;
                    return Err(WaitError { deadline, ..error }.into());
                }
                Err(_) => {}
            }
        }
    }

    /// An error if it has ended, with the end of its log.
    pub fn check(&mut self) -> Result<(), OperatorError> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(OperatorError::Ended {
                status,
                tail: process::tail(self.log(), 15),
                log: self.log().to_owned(),
            }),
        }
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, OperatorError> {
        let identity = &self.identity;
        self.process.ended().map_err(|source| OperatorError::Io {
            what: format!("looking at {identity}"),
            source,
        })
    }

    /// Its identity in the election.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The kubeconfig of its service account: what it may do, anybody with this may.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// Leaves it running in a lab that is left alone ([`crate::detached::Held::leave`]).
    pub fn leave(mut self) {
        self.process.let_live();
    }

    /// The process, to pause it, kill it, or end it as a rollout of the operator would.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// A `NodeRelocation` as it was seen at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Relocation {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The reason of its condition Ready: `Moving`, for example. Empty while there is no such condition.
    pub stage: String,
    /// The message of its condition Ready: what it waits for.
    pub message: String,
    /// Ready is True: it has finished well.
    pub ready: bool,
    /// Succeeded is False: it has finished, and not well.
    pub failed: bool,
    /// `status.progress.nodes`, for example `1/3`.
    pub nodes: String,
    /// `status.progress.pods`, for example `4/10`.
    pub pods: String,
    /// `status.blockers`, each as `REASON OBJECT: MESSAGE`.
    pub blockers: Vec<String>,
    /// The whole status.
    pub status: Value,
}

impl Relocation {
    /// Reads a status, as the API server has it.
    #[must_use]
    pub fn read(name: &str, uid: &str, status: &Value) -> Self {
        let text = |value: Option<&Value>| {
            value
                .and_then(Value::as_str)
                .map(str::to_owned)
                .unwrap_or_default()
        };
        let list = |field: &str| {
            status
                .get(field)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        let condition =
            |of: &str| list("conditions").find(|c| c.get("type").is_some_and(|t| t == of));
        let is = |of: &str, want: &str| {
            condition(of).is_some_and(|c| c.get("status").is_some_and(|s| s == want))
        };
        let ready = condition("Ready");
        let blocker = |blocker: &Value| {
            let [reason, object, message] =
                ["reason", "object", "message"].map(|field| text(blocker.get(field)));
            format!("{reason} {object}: {message}")
        };
        Self {
            name: name.to_owned(),
            uid: uid.to_owned(),
            stage: text(ready.and_then(|c| c.get("reason"))),
            message: text(ready.and_then(|c| c.get("message"))),
            ready: is("Ready", "True"),
            failed: is("Succeeded", "False"),
            nodes: text(status.pointer("/progress/nodes")),
            pods: text(status.pointer("/progress/pods")),
            blockers: list("blockers").map(blocker).collect(),
            status: status.clone(),
        }
    }

    /// Finished, well or not.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ready || self.failed
    }

    fn of(object: &DynamicObject) -> Self {
        let status = object.data.get("status").unwrap_or(&Value::Null);
        Self::read(
            &object.name_any(),
            &object.uid().unwrap_or_default(),
            status,
        )
    }
}

/// Applies a `NodeRelocation` as a person would: `kubectl apply`.
pub async fn apply_relocation(lab: &Lab, yaml: &str) -> Result<(), OperatorError> {
    lab.apply(yaml).await?;
    Ok(())
}

/// Every state of one relocation from when this was started, none left out. Dropped, it stops.
///
/// Started before the relocation is applied, it sees the stages that are over in a moment, too.
#[derive(Debug)]
pub struct Follower {
    name: String,
    /// None: it is not there.
    seen: watch::Receiver<Vec<Option<Relocation>>>,
    /// How many of these [`Follower::next`] has looked at.
    looked: usize,
    task: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    /// Follows the relocation of that name, which may come later. It goes on when the API server was away.
    pub async fn start(lab: &Lab, name: &str) -> Result<Self, OperatorError> {
        let client = lab.client().await?;
        let (tell, mut seen) = watch::channel(Vec::new());
        let task = tokio::spawn(follow(client, name.to_owned(), tell));
        // The first state, so that nothing after this call is missed.
        let late = timeout_at(Instant::now() + LEADING, seen.wait_for(|s| !s.is_empty()))
            .await
            .is_err();
        if late {
            task.abort();
            return Err(WaitError {
                what: format!("the watch of NodeRelocation {name}"),
                deadline: LEADING,
                seen: "no answer".to_owned(),
            }
            .into());
        }
        Ok(Self {
            name: name.to_owned(),
            seen,
            looked: 0,
            task,
        })
    }

    /// The next state for which `holds` is true, after those that were looked at before. `what` completes the sentence
    /// "waited in vain for ...".
    pub async fn next(
        &mut self,
        what: &str,
        deadline: Duration,
        holds: impl Fn(&Relocation) -> bool,
    ) -> Result<Relocation, OperatorError> {
        let end = Instant::now() + deadline;
        loop {
            let fresh = self
                .seen
                .borrow_and_update()
                .get(self.looked..)
                .unwrap_or_default()
                .to_vec();
            for state in fresh {
                self.looked += 1;
                if let Some(state) = state.filter(&holds) {
                    return Ok(state);
                }
            }
            match timeout_at(end, self.seen.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => {
                    let name = self.name.clone();
                    return Err(OperatorError::Unfollowed { name });
                }
                Err(_) => {
                    let seen = self.last().map_or_else(
                        || format!("no NodeRelocation {}", self.name),
                        |last| describe(&last),
                    );
                    let what = what.to_owned();
                    return Err(WaitError {
                        what,
                        deadline,
                        seen,
                    }
                    .into());
                }
            }
        }
    }

    /// The next state in which it is in the stage.
    pub async fn stage(
        &mut self,
        stage: &str,
        deadline: Duration,
    ) -> Result<Relocation, OperatorError> {
        let what = format!("NodeRelocation {} to be {stage}", self.name);
        self.next(&what, deadline, |r| r.stage == stage).await
    }

    /// The state in which it has finished, well or not.
    pub async fn over(&mut self, deadline: Duration) -> Result<Relocation, OperatorError> {
        let what = format!("NodeRelocation {} to finish", self.name);
        self.next(&what, deadline, Relocation::is_over).await
    }

    /// Waits until the relocation is gone.
    pub async fn gone(&mut self, deadline: Duration) -> Result<(), OperatorError> {
        let what = format!("NodeRelocation {} to be gone", self.name);
        let gone = |seen: &Vec<Option<Relocation>>| matches!(seen.last(), Some(None));
        let end = Instant::now() + deadline;
        let result = timeout_at(end, self.seen.wait_for(gone))
            .await
            .map(|watch| watch.map(|_| ()));
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(OperatorError::Unfollowed {
                name: self.name.clone(),
            }),
            Err(_) => {
                let seen = self.last().as_ref().map(describe).unwrap_or_default();
                Err(WaitError {
                    what,
                    deadline,
                    seen,
                }
                .into())
            }
        }
    }

    /// The last state. None: it is not there.
    #[must_use]
    pub fn last(&self) -> Option<Relocation> {
        self.seen.borrow().last().cloned().flatten()
    }

    /// Every state so far.
    #[must_use]
    pub fn states(&self) -> Vec<Relocation> {
        self.seen.borrow().iter().flatten().cloned().collect()
    }

    /// The stages so far, in their order, each as often as it was entered.
    #[must_use]
    pub fn stages(&self) -> Vec<String> {
        let mut stages: Vec<String> = self.states().into_iter().map(|r| r.stage).collect();
        stages.dedup();
        stages.retain(|stage| !stage.is_empty());
        stages
    }
}

/// Waits for a state of a relocation, the present one included.
pub async fn wait_for(
    lab: &Lab,
    name: &str,
    what: &str,
    deadline: Duration,
    holds: impl Fn(&Relocation) -> bool,
) -> Result<Relocation, OperatorError> {
    Follower::start(lab, name)
        .await?
        .next(what, deadline, holds)
        .await
}

fn describe(relocation: &Relocation) -> String {
    let Relocation {
        stage,
        message,
        nodes,
        pods,
        blockers,
        ..
    } = relocation;
    let mut text = format!("{stage}, nodes {nodes}, pods {pods}: {message}");
    if !blockers.is_empty() {
        text = format!("{text}; blockers: {}", blockers.join("; "));
    }
    text
}

async fn follow(client: Client, name: String, tell: watch::Sender<Vec<Option<Relocation>>>) {
    let api: Api<DynamicObject> = Api::all_with(client, &Kind::NodeRelocation.api_resource());
    let states = watcher(
        api,
        watcher::Config::default().fields(&format!("metadata.name={name}")),
    )
    .default_backoff();
    pin_mut!(states);
    let mut there = false;
    while let Some(event) = states.next().await {
        let state = match event {
            Ok(watcher::Event::Init) => {
                there = false;
                continue;
            }
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                there = true;
                Some(Relocation::of(&object))
            }
            Ok(watcher::Event::Delete(_)) => None,
            Ok(watcher::Event::InitDone) if !there => None,
            Ok(watcher::Event::InitDone) => continue,
            // It is opened again, after a pause.
            Err(error) => {
                tracing::debug!(name, %error, "the watch of a relocation broke");
                continue;
            }
        };
        tell.send_if_modified(|seen| {
            let new = seen.last() != Some(&state);
            if new {
                seen.push(state);
            }
            new
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_reads_as_kubectl_shows_it() {
        let status = json!({
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "Moving", "message": "waits for db-1"},
                {"type": "Succeeded", "status": "Unknown", "reason": "Moving", "message": ""},
            ],
            "progress": {"nodes": "1/3", "pods": "4/10"},
            "blockers": [{"reason": "UnmanagedPod", "object": "Pod default/tool", "message": "delete it"}],
        });
        let seen = Relocation::read("eks", "u", &status);
        assert_eq!((seen.stage.as_str(), seen.ready), ("Moving", false));
        assert_eq!((seen.nodes.as_str(), seen.pods.as_str()), ("1/3", "4/10"));
        assert_eq!(seen.blockers, ["UnmanagedPod Pod default/tool: delete it"]);
        assert!(!seen.is_over());
        assert!(describe(&seen).contains("waits for db-1"));
    }

    #[test]
    fn a_fresh_relocation_has_no_stage_and_is_not_over() {
        let seen = Relocation::read("eks", "u", &Value::Null);
        assert_eq!(seen.stage, "");
        assert!(!seen.is_over());
    }
}
