//! A control plane in a folder of its own on free loopback ports, which ends when it is dropped.

mod commands;
mod folder;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, Request};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::identity::{self, User};
use crate::process::{self, Lifetime, Process, ProcessId};
use crate::programs::{self, Lines, Program, Programs, ProgramsError, Progress};
use crate::stages::{PodTimes, StagesError};
use crate::wait::{NotYet, WaitError, wait_until};

use folder::Folder;

/// Set to anything, the folders of labs stay after the labs have ended.
pub const KEEP_VARIABLE: &str = "RELOCATOR_LAB_KEEP";

/// A start that meets a port somebody else took in the meantime is made again with other ports, this many times.
const STARTS: usize = 5;

/// Service account tokens outlive any run of a lab.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// How much of each request the audit log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditLevel {
    /// Who asked for what and with which answer code.
    #[default]
    Metadata,
    /// The bodies of requests too: an eviction's preconditions, for example. Larger by an order of magnitude.
    Request,
}

/// What a lab is like. `LabOptions::default()` is a control plane without Karpenter whose pods are fast.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Whether Karpenter runs, with its custom resource definitions.
    pub karpenter: bool,
    /// How long pods take on fake nodes.
    pub pod_times: PodTimes,
    /// KWOK stages besides the lab's own, as YAML.
    pub more_stages: String,
    /// How much the audit log holds.
    pub audit: AuditLevel,
    /// Karpenter's `FEATURE_GATES`, for example `CapacityBuffer=true`.
    pub karpenter_feature_gates: String,
    /// A JSON file with instance types for Karpenter, in place of its built-in ones.
    pub karpenter_instance_types: Option<PathBuf>,
    /// More arguments for a program.
    pub arguments: BTreeMap<Program, Vec<String>>,
    /// Where the lab lives: a folder that does not exist or is empty. None: one of its own in the temporary folder.
    pub dir: Option<PathBuf>,
    /// Whether the folder stays when the lab has ended (see also `RELOCATOR_LAB_KEEP`).
    pub keep: bool,
    /// How long each program may take to be ready. The usual time is a few seconds for all of them.
    pub ready_within: Duration,
    /// Told about the programs that have to be built first.
    pub progress: Arc<dyn Progress>,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            karpenter: false,
            pod_times: PodTimes::default(),
            more_stages: String::new(),
            audit: AuditLevel::default(),
            karpenter_feature_gates: String::new(),
            karpenter_instance_types: None,
            arguments: BTreeMap::new(),
            dir: None,
            keep: false,
            ready_within: Duration::from_mins(1),
            progress: Arc::new(Lines::default()),
        }
    }
}

/// Why a lab could not start, or could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The programs are not there and could not be built.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// KWOK's stages could not be adapted.
    #[error(transparent)]
    Stages(#[from] StagesError),
    /// Files or processes of the lab.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The folder that was asked for holds something else.
    #[error("the lab wants a folder of its own, and {} is not empty", .0.display())]
    FolderNotEmpty(PathBuf),
    /// A program ended when it should run, or did not get ready.
    #[error("{program}: {reason}; the end of {}:\n{tail}", log.display())]
    Program {
        /// Which.
        program: Program,
        /// What happened.
        reason: String,
        /// Its log. Gone with the lab unless the lab is kept.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// A program that this lab does not run, or not now.
    #[error("{0} does not run in this lab")]
    NotRunning(Program),
    /// A condition that did not come to hold.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// kubectl said no.
    #[error("kubectl {arguments} failed: {output}")]
    Kubectl {
        /// What it was asked.
        arguments: String,
        /// What it said on standard error.
        output: String,
    },
    /// The kubeconfig could not be read.
    #[error("reading the lab's kubeconfig: {0}")]
    Kubeconfig(#[from] Box<KubeconfigError>),
    /// A request to the API server.
    #[error("{what}: {source}")]
    Api {
        /// What was tried, on what.
        what: String,
        /// What came back.
        source: Box<kube::Error>,
    },
}

pub(crate) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Io { what, source }
}

fn api_error(what: impl Into<String>) -> impl FnOnce(kube::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Api {
        what,
        source: Box::new(source),
    }
}

/// Called with each process as it starts, so that somebody can end it when we can't.
pub(crate) type OnStart = Arc<dyn Fn(&ProcessId) -> io::Result<()> + Send + Sync>;

/// A running control plane.
///
/// Every program ends when this is dropped, on panic, on Ctrl-C and when this process is killed. Dropping blocks for a
/// moment. Any number may run at once.
pub struct Lab {
    // Dropped in this order: first the programs end, then the folder goes.
    processes: Mutex<BTreeMap<Program, Process>>,
    folder: Folder,
    options: LabOptions,
    programs: Programs,
    ports: Ports,
    lifetime: Lifetime,
    on_start: OnStart,
    /// Made once: each client has connections of its own.
    client: OnceCell<Client>,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab")
            .field("dir", &self.dir())
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api_server: u16,
    kwok: u16,
    karpenter_metrics: u16,
    karpenter_health: u16,
}

impl Lab {
    /// Starts a control plane and waits until it answers; builds its programs first where they are missing.
    pub async fn start(options: LabOptions) -> Result<Self, LabError> {
        Self::start_as(
            options,
            Lifetime::Tethered,
            Arc::new(|_: &ProcessId| Ok(())),
        )
        .await
    }

    pub(crate) async fn start_as(
        options: LabOptions,
        lifetime: Lifetime,
        on_start: OnStart,
    ) -> Result<Self, LabError> {
        let progress = options.progress.clone();
        let programs = tokio::task::spawn_blocking(move || programs::ensure(progress.as_ref()))
            .await
            .map_err(|error| io_error("building the programs")(io::Error::other(error)))??;
        for _ in 1..STARTS {
            match Self::try_start(&options, &programs, lifetime, on_start.clone()).await {
                Err(LabError::Program { program, tail, .. })
                    if tail.contains("address already in use") =>
                {
                    tracing::info!(%program, "a port was taken in the meantime, starting again with others");
                }
                result => return result,
            }
        }
        Self::try_start(&options, &programs, lifetime, on_start).await
    }

    async fn try_start(
        options: &LabOptions,
        programs: &Programs,
        lifetime: Lifetime,
        on_start: OnStart,
    ) -> Result<Self, LabError> {
        let [
            etcd,
            etcd_peer,
            api_server,
            kwok,
            karpenter_metrics,
            karpenter_health,
        ] = crate::ports::choose().map_err(io_error("choosing ports"))?;
        let started = std::time::Instant::now();
        let lab = Self {
            processes: Mutex::default(),
            folder: Folder::make(options)?,
            options: options.clone(),
            programs: programs.clone(),
            ports: Ports {
                etcd,
                etcd_peer,
                api_server,
                kwok,
                karpenter_metrics,
                karpenter_health,
            },
            lifetime,
            on_start,
            client: OnceCell::new(),
        };
        lab.write_files()?;
        lab.start_program(Program::Etcd).await?;
        lab.start_program(Program::ApiServer).await?;
        // All of these wait for the API server only.
        lab.spawn(Program::ControllerManager)?;
        lab.spawn(Program::Scheduler)?;
        let kubectl = lab.kubectl(&["apply", "--server-side", "--filename", "bootstrap"]);
        kubectl.await?;
        lab.spawn(Program::Kwok)?;
        if options.karpenter {
            lab.crds_established().await?;
            lab.spawn(Program::Karpenter)?;
        }
        for program in Program::ALL
            .into_iter()
            .filter(|program| lab.runs(*program))
        {
            lab.ready(program).await?;
        }
        tracing::debug!(dir = %lab.dir().display(), elapsed = ?started.elapsed(), "the lab is up");
        Ok(lab)
    }

    /// Whether this lab has the program at all.
    fn runs(&self, program: Program) -> bool {
        program != Program::Karpenter || self.options.karpenter
    }

    async fn crds_established(&self) -> Result<(), LabError> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client().await?);
        wait_until(
            "Karpenter's custom resource definitions",
            self.options.ready_within,
            || async {
                for crd in crds.list(&ListParams::default()).await? {
                    let conditions = crd
                        .status
                        .and_then(|status| status.conditions)
                        .unwrap_or_default();
                    if !conditions.iter().any(|condition| {
                        condition.type_ == "Established" && condition.status == "True"
                    }) {
                        return Err(NotYet(format!(
                            "{} is not established",
                            crd.metadata.name.unwrap_or_default()
                        )));
                    }
                }
                Ok(())
            },
        )
        .await?;
        Ok(())
    }

    /// Waits until the program does its work, and fails at once when it has ended instead.
    async fn ready(&self, program: Program) -> Result<(), LabError> {
        let client = match program {
            Program::Etcd | Program::Kwok | Program::Karpenter => None,
            Program::ApiServer | Program::ControllerManager | Program::Scheduler => {
                Some(self.client().await?)
            }
        };
        let look = || async {
            if let Some(status) = self.ended(program) {
                // Not a reason to look again; the caller tells it from the deadline by looking itself.
                return Ok(Err(status));
            }
            match (program, &client) {
                (Program::Etcd, _) => connect(self.ports.etcd).await?,
                (Program::Kwok, _) => connect(self.ports.kwok).await?,
                (Program::Karpenter, _) => connect(self.ports.karpenter_health).await?,
                (Program::ApiServer, Some(client)) => {
                    client
                        .request_text(http::Request::get("/readyz").body(Vec::new())?)
                        .await?;
                }
                (Program::ControllerManager, Some(client)) => {
                    // Pods are refused until their namespace has a default account.
                    Api::<ServiceAccount>::namespaced(client.clone(), "default")
                        .get("default")
                        .await?;
                }
                // It has neither a port nor an object of its own; that it runs is all that can be seen.
                (Program::Scheduler, _)
                | (Program::ApiServer | Program::ControllerManager, None) => {}
            }
            Ok(Ok(()))
        };
        let reason = match wait_until("an answer", self.options.ready_within, look).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(status)) => status,
            Err(error) => error.to_string(),
        };
        let log = self.log(program);
        Err(LabError::Program {
            program,
            reason,
            tail: process::tail(&log, 15),
            log,
        })
    }

    /// How the program ended, if it did.
    fn ended(&self, program: Program) -> Option<String> {
        match self.processes().get_mut(&program)?.ended() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("it ended, {status}")),
            Err(error) => Some(error.to_string()),
        }
    }

    fn spawn(&self, program: Program) -> Result<(), LabError> {
        let what = || format!("starting {program}");
        let process = Process::start_as(
            program.name().to_owned(),
            self.command(program),
            self.log(program),
            self.lifetime,
        )
        .map_err(io_error(what()))?;
        (self.on_start)(&process.id().map_err(io_error(what()))?).map_err(io_error(what()))?;
        self.processes().insert(program, process);
        Ok(())
    }

    /// Starts a program that is not the lab's own, for as long as the lab's own live.
    pub(crate) fn start_beside(
        &self,
        name: &str,
        command: std::process::Command,
        log: PathBuf,
    ) -> io::Result<Process> {
        let process = Process::start_as(name.to_owned(), command, log, self.lifetime)?;
        (self.on_start)(&process.id()?)?;
        Ok(process)
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<Program, Process>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn with_process(
        &self,
        program: Program,
        action: impl FnOnce(&mut Process) -> io::Result<()>,
    ) -> Result<(), LabError> {
        let mut processes = self.processes();
        let process = processes
            .get_mut(&program)
            .ok_or(LabError::NotRunning(program))?;
        action(process).map_err(io_error(format!("signalling {program}")))
    }

    /// Kills a program (SIGKILL), as a crash would.
    pub fn kill(&self, program: Program) -> Result<(), LabError> {
        self.with_process(program, Process::kill)?;
        self.processes().remove(&program);
        Ok(())
    }

    /// Starts a program again on its old port after [`Lab::kill`], and waits until it answers. Nothing if it runs.
    pub async fn start_program(&self, program: Program) -> Result<(), LabError> {
        if !self.runs(program) {
            return Err(LabError::NotRunning(program));
        }
        let running = self.processes().contains_key(&program) && self.ended(program).is_none();
        if !running {
            self.spawn(program)?;
        }
        self.ready(program).await
    }

    /// Stops a program where it is (SIGSTOP): it keeps its connections and answers nothing, as if it hung.
    pub fn pause(&self, program: Program) -> Result<(), LabError> {
        self.with_process(program, Process::pause)
    }

    /// Lets a paused program go on.
    pub fn resume(&self, program: Program) -> Result<(), LabError> {
        self.with_process(program, Process::resume)
    }

    /// Ends Karpenter, as a scale to zero would.
    pub fn stop_karpenter(&self) -> Result<(), LabError> {
        self.kill(Program::Karpenter)
    }

    /// Starts Karpenter again.
    pub async fn start_karpenter(&self) -> Result<(), LabError> {
        self.start_program(Program::Karpenter).await
    }

    /// Kills the API server: connections are refused until [`Lab::start_api_server`].
    pub fn stop_api_server(&self) -> Result<(), LabError> {
        self.kill(Program::ApiServer)
    }

    /// Starts the API server again on the same port, with the same data.
    pub async fn start_api_server(&self) -> Result<(), LabError> {
        self.start_program(Program::ApiServer).await
    }

    /// The folder of this lab.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        User::Admin.kubeconfig(self.dir())
    }

    /// The API server's audit log: JSON lines, one for each answered request, written before the answer is sent.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.dir().join("logs/audit.log")
    }

    /// A program's log.
    #[must_use]
    pub fn log(&self, program: Program) -> PathBuf {
        self.dir().join(format!("logs/{program}.log"))
    }

    /// The URL of the API server.
    #[must_use]
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api_server)
    }

    /// The port of Karpenter's metrics.
    #[must_use]
    pub fn karpenter_metrics_port(&self) -> u16 {
        self.ports.karpenter_metrics
    }

    /// The ids of the programs that run now.
    #[must_use]
    pub fn process_ids(&self) -> Vec<ProcessId> {
        self.processes()
            .values()
            .filter_map(|process| process.id().ok())
            .collect()
    }

    /// The programs that run now, each with its process id.
    #[must_use]
    pub fn running(&self) -> Vec<(Program, u32)> {
        self.processes()
            .iter()
            .map(|(program, process)| (*program, process.pid()))
            .collect()
    }

    /// A client for the administrator, which calls itself `lab` in the audit log.
    ///
    /// It repeats requests that were answered with 429, 503 or 504, as kube does by default.
    pub async fn client(&self) -> Result<Client, LabError> {
        self.client
            .get_or_try_init(|| self.client_with_agent("lab"))
            .await
            .cloned()
    }

    /// A client for the administrator under a user agent of its own, to be told apart in the audit log.
    pub async fn client_with_agent(&self, agent: &str) -> Result<Client, LabError> {
        client(&self.kubeconfig(), agent).await
    }

    /// A client for a service account: the identity and access of a pod that runs as it.
    pub async fn client_for_service_account(
        &self,
        namespace: &str,
        name: &str,
        agent: &str,
    ) -> Result<Client, LabError> {
        client(
            &self.kubeconfig_for_service_account(namespace, name).await?,
            agent,
        )
        .await
    }

    /// Writes a kubeconfig for an existing service account, with a token of 30 days, and returns its path.
    pub async fn kubeconfig_for_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<PathBuf, LabError> {
        let what = || format!("a token for the service account {namespace}/{name}");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(api_error(what()))?
            .status
            .ok_or_else(|| {
                io_error(what())(io::Error::other("the API server answered without a token"))
            })?
            .token;
        let file = self.dir().join(format!("kubeconfig.{namespace}.{name}"));
        identity::kubeconfig(self.dir(), self.ports.api_server, &file, name, &token)
            .map_err(io_error(what()))?;
        Ok(file)
    }

    /// The kubectl of this lab's version.
    #[must_use]
    pub fn kubectl_path(&self) -> PathBuf {
        self.programs.kubectl()
    }

    /// A `kubectl` command for this lab, with nothing of the user's configuration.
    #[must_use]
    pub fn kubectl_command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(self.programs.kubectl());
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBERC", "off")
            .current_dir(self.dir());
        // Discovery is cached by address, and another lab may have had this port.
        command.env("KUBECACHEDIR", self.dir().join("kubectl-cache"));
        command
    }

    /// Runs kubectl and returns what it printed.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, LabError> {
        self.kubectl_with_input(arguments, "").await
    }

    /// Applies YAML, any number of documents, from the server side and by force.
    pub async fn apply(&self, yaml: &str) -> Result<String, LabError> {
        let arguments = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=lab",
            "--filename=-",
        ];
        self.kubectl_with_input(&arguments, yaml).await
    }

    async fn kubectl_with_input(
        &self,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, LabError> {
        let failed = |output: String| LabError::Kubectl {
            arguments: arguments.join(" "),
            output,
        };
        let run = async {
            let mut command = tokio::process::Command::from(self.kubectl_command());
            command.args(arguments).kill_on_drop(true);
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // kubectl may end without reading; then its own message is the better one.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let output = run
            .await
            .map_err(|error: io::Error| failed(error.to_string()))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(failed(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ))
        }
    }

    /// Applies a typed object from the server side and by force. A namespaced object has to name its namespace.
    pub async fn put<K>(&self, object: &K) -> Result<K, LabError>
    where
        K: kube::Resource<DynamicType = ()>
            + Serialize
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        put(&self.client().await?, object).await
    }

    /// Ends the lab without blocking the async runtime; the same as dropping it.
    pub async fn stop(self) {
        // The only failure is a panic while dropping, and then there is nothing left to do.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    /// Leaves all programs and the folder as they are.
    pub(crate) fn let_live(&mut self) {
        self.processes().values_mut().for_each(Process::let_live);
        self.folder.let_live();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let mut processes: Vec<Process> = std::mem::take(&mut *self.processes())
            .into_values()
            .collect();
        if processes.iter().all(Process::ends_on_drop) {
            process::end_all(&mut processes, process::LAB_GRACE);
        }
    }
}

/// Applies a typed object through a client, as [`Lab::put`] does.
pub async fn put<K>(client: &Client, object: &K) -> Result<K, LabError>
where
    K: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let meta = object.meta();
    let name = meta.name.clone().unwrap_or_default();
    let what = || format!("applying {} {name}", K::kind(&()));
    let parameters = PatchParams::apply("lab").force();
    let request = Request::new(K::url_path(&(), meta.namespace.as_deref()))
        .patch(&name, &parameters, &Patch::Apply(object))
        .map_err(|error| api_error(what())(kube::Error::BuildRequest(error)))?;
    client.request(request).await.map_err(api_error(what()))
}

async fn connect(port: u16) -> Result<(), NotYet> {
    TcpStream::connect(("127.0.0.1", port)).await?;
    Ok(())
}

async fn client(kubeconfig: &Path, agent: &str) -> Result<Client, LabError> {
    let options = KubeConfigOptions::default();
    let read = Kubeconfig::read_from(kubeconfig).map_err(Box::new)?;
    let mut config = Config::from_custom_kubeconfig(read, &options)
        .await
        .map_err(Box::new)?;
    let agent =
        HeaderValue::from_str(agent).map_err(|error| io_error(agent)(io::Error::other(error)))?;
    config.headers.push((USER_AGENT, agent));
    Client::try_from(config).map_err(api_error("making a client"))
}
