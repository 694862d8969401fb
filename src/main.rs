//! The operator's command line: `relocator run`, `relocator sweep` and `relocator crd`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use kube::{Client, Config};
use relocator::act::Actor;
use relocator::api::{self, keys};
use relocator::clock::Clock;
use relocator::controller::{self, Context};
use relocator::lease::Election;
use relocator::observe::Observer;
use relocator::sweep::{self, Sweeper, by_hand};
use relocator::telemetry::metrics::Metrics;
use relocator::telemetry::{events::Events, logs, probes};
use tokio::sync::Notify;

/// Relocates stateful pods off nodes safely, at a time that people choose.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator. The cluster is found by KUBECONFIG or, in a pod, by its service account.
    Run {
        /// Namespace of the lease.
        #[arg(long, env = "POD_NAMESPACE", default_value = keys::SYSTEM_NAMESPACE)]
        namespace: String,
        /// Identity in the election, which no other running instance may use. In a pod, its name; by default a random one.
        #[arg(long, env = "POD_NAME")]
        identity: Option<String>,
        /// Serve /healthz, /readyz and /metrics there, for example 0.0.0.0:8080. By default nowhere.
        #[arg(long, value_name = "ADDRESS:PORT")]
        http: Option<SocketAddr>,
        /// Form of the log lines.
        #[arg(long, value_enum, default_value_t)]
        log_format: logs::Format,
    },
    /// Put back what relocations that exist no more have left on nodes, pods and Deployments.
    ///
    /// The operator does the same when it starts and every five minutes, so this is for where it does not run any more. The cluster is
    /// found by KUBECONFIG, and it may do what you may. Marks of relocations that exist, also of finished ones, are not touched, and
    /// neither is what somebody has changed since. It can run beside the operator: each write names the UID and, where there is
    /// something to overwrite, the version of what was seen.
    ///
    /// Prints a line for each thing. Ends with 0 when nothing is left, and with 1 when something could not be read or put back.
    Sweep {
        /// Say what would be put back, and write nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Print the `CustomResourceDefinition` of `NodeRelocation`.
    Crd,
}

#[derive(Debug, thiserror::Error)]
enum Fatal {
    #[error("finding the cluster: {0}")]
    Config(#[from] kube::config::InferConfigError),
    #[error("connecting: {0}")]
    Client(#[from] kube::Error),
    #[error("taking part in the election: {0}")]
    Election(#[from] kube_lease_manager::LeaseManagerError),
    #[error("making the CustomResourceDefinition: {0}")]
    Crd(#[from] api::crd::Error),
    #[error("listening for signals: {0}")]
    Signals(std::io::Error),
    #[error(transparent)]
    Http(#[from] probes::Error),
    #[error(transparent)]
    Sweep(#[from] by_hand::Error),
    #[error("the lease was lost to another instance")]
    LeaseLost,
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run {
            namespace,
            identity,
            http,
            log_format,
        } => {
            logs::init(log_format);
            run(&namespace, identity, http).await
        }
        Command::Sweep { dry_run } => sweep_by_hand(dry_run).await,
        Command::Crd => print_crd(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relocator: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_crd() -> Result<(), Fatal> {
    print!("{}", api::crd::yaml()?);
    Ok(())
}

async fn sweep_by_hand(dry_run: bool) -> Result<(), Fatal> {
    let (_, client) = clients().await?;
    let mut out = std::io::stdout();
    Ok(by_hand::run(client, dry_run, &mut out).await?)
}

/// Two clients: one for watches, which are quiet for minutes, and one for everything else, where a request that takes long has failed.
async fn clients() -> Result<(Client, Client), Fatal> {
    /// Longest silence on a connection that waits for an answer.
    const ANSWER: Duration = Duration::from_secs(10);
    /// Longest silence on a connection that watches: a list whose answer was lost would be waited for for ever.
    const WATCH: Duration = relocator::observe::LONGEST_SILENCE;
    let mut config = Config::infer().await?;
    let agent = concat!("relocator/", env!("CARGO_PKG_VERSION"));
    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_static(agent),
    ));
    // A budget's refusal is a 429: kube would repeat it inside the client, for minutes; and a watch that fails has to be known to.
    config.default_retry = false;
    config.read_timeout = Some(WATCH);
    let watching = Client::try_from(config.clone())?;
    config.read_timeout = Some(ANSWER);
    // Counted from the request, not from when the connection became idle: the first request after a quiet while is not late.
    config.reset_reader_on_write = true;
    Ok((watching, acting_client(config)?))
}

#[cfg(not(feature = "crash-test"))]
fn acting_client(config: Config) -> kube::Result<Client> {
    Client::try_from(config)
}

#[cfg(feature = "crash-test")]
fn acting_client(config: Config) -> kube::Result<Client> {
    let layer = relocator::crash::CrashLayer::from_environment();
    Ok(kube::client::ClientBuilder::try_from(config)?
        .with_layer(&layer)
        .build())
}

/// No two running instances have the same: a process id may come again, but not at the same nanosecond.
fn random_identity() -> String {
    format!(
        "relocator-{}-{:x}",
        std::process::id(),
        jiff::Timestamp::now().as_nanosecond()
    )
}

async fn run(
    namespace: &str,
    identity: Option<String>,
    http: Option<SocketAddr>,
) -> Result<(), Fatal> {
    let metrics = Metrics::default();
    if let Some(address) = http {
        let listener = probes::listen(address).await?;
        // It ends with the program.
        tokio::spawn(probes::serve(listener, metrics.clone()));
    }
    let (watching, acting) = clients().await?;
    let identity = identity.unwrap_or_else(random_identity);
    let election = Election::start(acting.clone(), namespace, &identity).await?;
    metrics.set_ready(true);
    let mut leadership = election.leadership();
    let stop = Arc::new(Notify::new());
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(Fatal::Signals)?;
    tracing::info!(identity, namespace, "waiting for the lease");
    tokio::select! {
        () = leadership.gained() => {}
        _ = terminate.recv() => { election.resign().await; return Ok(()) }
        _ = tokio::signal::ctrl_c() => { election.resign().await; return Ok(()) }
    }
    tracing::info!(identity, "leading");
    metrics.set_leader(true);

    let wake = Arc::new(Notify::new());
    let observer = Observer::new(
        watching.clone(),
        acting.clone(),
        Arc::clone(&wake),
        Clock::System,
    );
    let actor = Actor::new(acting.clone(), leadership.clone());
    let events = Events::start(acting.clone(), &identity);
    let sweeper = Sweeper::new(
        acting.clone(),
        Actor::new(acting.clone(), leadership.clone()),
    );
    let sweeping = tokio::spawn(sweep::keep_sweeping(sweeper, events.clone()));
    let mut context = Context::new(observer, actor, events, acting, Clock::System);
    context.metrics = metrics.clone();
    let context = Arc::new(context);
    let stopped = Arc::clone(&stop);
    let controller = tokio::spawn(controller::run(context, watching, wake, async move {
        stopped.notified().await;
    }));
    let lost = tokio::select! {
        () = leadership.lost() => true,
        _ = terminate.recv() => false,
        _ = tokio::signal::ctrl_c() => false,
    };
    metrics.set_leader(false);
    stop.notify_one();
    // Each of its writes stands for itself: it can end between any two.
    sweeping.abort();
    if lost {
        // Another instance may act already: nothing more is written, not even the rest of this pass (act checks before each write).
        return Err(Fatal::LeaseLost);
    }
    tracing::info!("stopping after the pass under way");
    // A panic in there has been reported on standard error.
    let _ended = controller.await;
    let _aborted = sweeping.await;
    election.resign().await;
    Ok(())
}
