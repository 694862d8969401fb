//! `cargo xtask bench fleet`: a hundred nodes emptied by relocator and by kubectl drain, and what it costs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use lab::fixtures::{self, FLEET_LABEL, Fleet};
use lab::judge::{
    Identity, JudgeInput, RecordError, Recorder, RecorderOptions, RequestCounts, Scorecard,
};
use lab::operator::{self, Follower, Operator, OperatorError, Relocation};
use lab::usage::{Meter, Usage};
use lab::{AuditLevel, Lab, LabError, LabOptions, PodTimes};
use serde::Serialize;

use crate::cargo::{self, CargoError, Profile};
use crate::clock::Clock;
use crate::live::headline;
use crate::scene::{self, SceneError};
use crate::text;

/// Empty a fleet of nodes by relocator and by kubectl drain, and compare what it did to the workloads and what it took.
///
/// For 100 old nodes, 100 new ones, 100 Deployments of 10 pods and 50 `StatefulSet`s of 5 with budgets it takes a quarter of an hour. Each
/// way has a control plane of its own, without Karpenter, one after the other. The operator is a release build.
#[derive(Debug, Args)]
pub(super) struct FleetBench {
    /// Old nodes, and new ones as many; as many Deployments of ten, half as many `StatefulSet`s of five.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=1000))]
    nodes: u16,
    /// `workloads.strategy` of relocator, a run for each.
    #[arg(long, value_delimiter = ',', default_value = "Auto")]
    strategies: Vec<String>,
    /// `workloads.maxConcurrent` of relocator.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_concurrent: u16,
    /// Leave kubectl drain out.
    #[arg(long)]
    without_drain: bool,
    /// Write the figures there, as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetError {
    #[error(transparent)]
    Cargo(#[from] CargoError),
    #[error(transparent)]
    Scene(#[from] SceneError),
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("recording what happens: {0}")]
    Record(#[from] RecordError),
    #[error("{what}: {source}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
}

/// Who empties the nodes.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// With that `workloads.strategy`.
    Relocator(&'a str),
    Drain,
}

impl Way<'_> {
    fn name(self) -> String {
        match self {
            Self::Relocator(strategy) => format!("relocator {strategy}"),
            Self::Drain => "kubectl drain".to_owned(),
        }
    }

    /// User agent of its requests, and name of its process.
    fn program(self) -> &'static str {
        match self {
            Self::Relocator(_) => "relocator",
            Self::Drain => "kubectl",
        }
    }

    fn identity(self) -> Identity {
        match self {
            Self::Relocator(_) => Identity::relocator(),
            Self::Drain => Identity::agent("kubectl"),
        }
    }
}

/// What one way did and took.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    way: String,
    program: &'static str,
    card: Scorecard,
    /// By kind: the most pods of one owner that were down at once.
    most_unavailable_of_one: BTreeMap<String, u32>,
    unavailable_pod_seconds: f64,
    /// Of each process, from the start mark to the end mark.
    usage: BTreeMap<String, Usage>,
    /// Of the way's own process before it had anything to do, in MiB.
    idle_memory_mib: Option<f64>,
}

/// Several times what kubectl drain takes for a hundred nodes.
const TIMEOUT: Duration = Duration::from_mins(40);
/// How often it is said how far it is.
const SAY: Duration = Duration::from_secs(10);
const FRAME: Duration = Duration::from_millis(250);
/// The name of the relocation.
const NAME: &str = "fleet";

impl FleetBench {
    /// True when relocator finished and no invariant was broken.
    pub(super) async fn run(self) -> Result<bool, FleetError> {
        let mut clock = Clock::start();
        let build = cargo::build_operator(Profile::Release);
        let binary = clock.shown("building the operator", build).await?;
        scene::ensure_programs(&mut clock).await?;
        let mut ways: Vec<_> = self.strategies.iter().map(|s| Way::Relocator(s)).collect();
        if !self.without_drain {
            ways.push(Way::Drain);
        }
        let mut runs = Vec::new();
        for way in ways {
            runs.push(self.one(way, &mut clock, &binary).await?);
        }
        println!("\n{}", table(&runs));
        println!("{}", clock.summary());
        if let Some(path) = &self.out {
            let value = serde_json::json!({ "nodes": self.nodes, "runs": runs });
            let what = "writing the figures";
            std::fs::write(path, format!("{value:#}\n"))
                .map_err(|source| FleetError::Io { what, source })?;
            println!("Wrote {}.", path.display());
        }
        let good = |run: &Run| {
            run.program != "relocator"
                || (run.card.finished && run.card.broken_invariants.is_empty())
        };
        Ok(runs.iter().all(good))
    }

    fn fleet(&self) -> Fleet {
        Fleet {
            nodes: usize::from(self.nodes),
        }
    }

    async fn one(&self, way: Way<'_>, clock: &mut Clock, binary: &Path) -> Result<Run, FleetError> {
        clock.say(&format!("--- {} ---", way.name()));
        let options = LabOptions {
            pod_times: PodTimes::General,
            // The judge wants the preconditions of the evictions.
            audit: AuditLevel::Request,
            ..LabOptions::default()
        };
        let lab = clock
            .phase("starting a control plane", Lab::start(options))
            .await?;
        let repository = cargo::repository();
        let install = operator::install(&lab, &repository);
        clock.phase("applying deploy/access", install).await?;
        let fleet = self.fleet();
        let what = format!(
            "making {} old nodes, {} pods on them, {} new nodes",
            fleet.nodes,
            fleet.pods(),
            fleet.nodes
        );
        clock.phase(&what, fleet.apply(&lab)).await?;
        let run = self.emptied(way, clock, &lab, binary).await;
        lab.stop().await;
        run
    }

    async fn emptied(
        &self,
        way: Way<'_>,
        clock: &mut Clock,
        lab: &Lab,
        binary: &Path,
    ) -> Result<Run, FleetError> {
        let client = lab.client().await?;
        let recorder = Recorder::start(client, RecorderOptions::default()).await?;
        let programs = lab.running().into_iter();
        let meter = Meter::start(programs.map(|(program, pid)| (program.to_string(), pid)));
        let (start, idle_memory_mib) = match way {
            Way::Relocator(strategy) => {
                let (operator, start, idle) =
                    self.relocate(strategy, clock, lab, binary, &meter).await?;
                // It lives until the figures are taken.
                let usage = meter.read();
                drop(operator);
                (
                    Span {
                        start,
                        end: Timestamp::now(),
                        usage,
                    },
                    idle,
                )
            }
            Way::Drain => {
                let start = Timestamp::now();
                drain(clock, lab, &meter).await?;
                let end = Timestamp::now();
                let usage = meter.read();
                (Span { start, end, usage }, None)
            }
        };
        let Span { start, end, usage } = start;
        let settle = fixtures::wait_settled(lab);
        if let Err(error) = clock
            .phase("waiting until all pods are Ready", settle)
            .await
        {
            clock.say(&format!("    {error}"));
        }
        let history = clock
            .phase("reading what happened", recorder.finish(&lab.audit_log()))
            .await?;
        let old = self.fleet().old_nodes();
        let input = JudgeInput {
            relocator: way.identity(),
            start: Some(start),
            end: Some(end),
            expected_cordons: old.clone(),
            selected_nodes: old,
            ..JudgeInput::default()
        };
        let judge = async { Scorecard::of(&history, &input) };
        let card = clock.phase("judging", judge).await;
        Ok(Run {
            way: way.name(),
            program: way.program(),
            most_unavailable_of_one: most_of_one(&card),
            unavailable_pod_seconds: card
                .owners
                .values()
                .map(|o| o.unavailable_pod_seconds)
                .sum(),
            card,
            usage,
            idle_memory_mib,
        })
    }

    /// One apply, and the operator does the rest. Returns the operator, when it was applied, and the operator's memory before.
    async fn relocate(
        &self,
        strategy: &str,
        clock: &mut Clock,
        lab: &Lab,
        binary: &Path,
        meter: &Meter,
    ) -> Result<(Operator, Timestamp, Option<f64>), FleetError> {
        let mut operator = clock
            .phase("starting the operator", Operator::start(lab, binary))
            .await?;
        // Its first sweep is part of being idle.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let pid = operator.process().pid();
        let idle = Usage::of(pid).map(|usage| usage.memory_mib);
        meter.add("relocator".to_owned(), pid);
        let follower = Follower::start(lab, NAME).await?;
        let start = Timestamp::now();
        operator::apply_relocation(lab, &self.manifest(strategy)).await?;
        let began = tokio::time::Instant::now();
        let mut said = began;
        loop {
            let last = follower.last();
            let over = last.as_ref().is_some_and(Relocation::is_over);
            if over || began.elapsed() > TIMEOUT || said.elapsed() > SAY {
                said = tokio::time::Instant::now();
                let line = last.as_ref().map(headline).unwrap_or_default();
                clock.say(&text::cut(&line, 160));
                for blocker in last.iter().flat_map(|l| &l.blockers).take(3) {
                    clock.say(&format!("    {blocker}"));
                }
            }
            if over || began.elapsed() > TIMEOUT {
                clock.took("relocating, from the apply to the end", began.elapsed());
                return Ok((operator, start, idle));
            }
            operator.check()?;
            tokio::time::sleep(FRAME).await;
        }
    }

    fn manifest(&self, strategy: &str) -> String {
        let Self {
            nodes,
            max_concurrent,
            ..
        } = self;
        format!(
            "apiVersion: relocation.sh/v1alpha1\nkind: NodeRelocation\nmetadata: {{name: {NAME}}}\nspec:\n  \
             nodes: {{selector: {{matchLabels: {{{FLEET_LABEL}: old}}}}, limit: {nodes}}}\n  \
             replacement: {{strategy: None}}\n  \
             workloads: {{strategy: {strategy}, maxConcurrent: {max_concurrent}}}\n  \
             afterDrain: Keep\n"
        )
    }
}

/// From the start to the end, and what was taken of the machine meanwhile.
struct Span {
    start: Timestamp,
    end: Timestamp,
    usage: BTreeMap<String, Usage>,
}

/// All old nodes by one kubectl, which cordons all of them and then drains one after the other.
async fn drain(clock: &mut Clock, lab: &Lab, meter: &Meter) -> Result<(), FleetError> {
    let io = |what| move |source| FleetError::Io { what, source };
    let log = lab.dir().join("logs/kubectl-drain.log");
    let output = std::fs::File::create(&log).map_err(io("making the log of kubectl drain"))?;
    let errors = output
        .try_clone()
        .map_err(io("making the log of kubectl drain"))?;
    let mut command = tokio::process::Command::from(lab.kubectl_command());
    let mut child = command
        .args(["drain", "--ignore-daemonsets", "--delete-emptydir-data"])
        .arg(format!("--selector={FLEET_LABEL}=old"))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
        .map_err(io("starting kubectl drain"))?;
    meter.add("kubectl".to_owned(), child.id().unwrap_or_default());
    let what = "kubectl drain, node by node";
    clock.say(&format!("{what} ..."));
    let began = tokio::time::Instant::now();
    while began.elapsed() < TIMEOUT {
        if let Ok(status) = tokio::time::timeout(SAY, child.wait()).await {
            let status = status.map_err(io("waiting for kubectl drain"))?;
            clock.say(&format!("    it ended, {status}"));
            break;
        }
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let done = text
            .lines()
            .filter(|line| line.ends_with(" drained"))
            .count();
        clock.say(&format!("    {done} nodes drained"));
    }
    clock.took(what, began.elapsed());
    Ok(())
}

/// By kind of owner, the most pods of one that were down at once.
fn most_of_one(card: &Scorecard) -> BTreeMap<String, u32> {
    let mut most: BTreeMap<String, u32> = BTreeMap::new();
    for (owner, score) in &card.owners {
        let kind = owner.split('/').nth(1).unwrap_or(owner).to_owned();
        let of_kind = most.entry(kind).or_default();
        *of_kind = score.most_unavailable.max(*of_kind);
    }
    most
}

fn table(runs: &[Run]) -> String {
    let header = [
        "way",
        "finished",
        "s",
        "moves",
        "needless, double",
        "most down",
        "of one",
        "pod-seconds below",
        "requests",
        "a move",
        "429",
        "CPU s",
        "MiB idle, peak",
        "left behind",
        "broken",
    ]
    .map(str::to_owned);
    let mut rows = vec![header];
    rows.extend(runs.iter().map(row));
    let mut out = String::new();
    for line in text::columns(&rows) {
        let _ = writeln!(out, "{line}");
    }
    for run in runs {
        let _ = writeln!(out, "\n{}", details(run));
    }
    out
}

fn row(run: &Run) -> [String; 15] {
    let card = &run.card;
    let none = RequestCounts::default();
    let requests = card.requests.get(run.program).unwrap_or(&none);
    let usage = run.usage.get(run.program).copied().unwrap_or_default();
    let most: Vec<String> = run
        .most_unavailable_of_one
        .iter()
        .map(|(kind, most)| format!("{kind} {most}"))
        .collect();
    [
        run.way.clone(),
        if card.finished { "yes" } else { "no" }.to_owned(),
        format!("{:.0}", card.wall_seconds),
        format!("{} for {}", card.moves, card.pods),
        format!("{}, {}", card.needless_moves, card.double_moves),
        card.most_unavailable.to_string(),
        most.join(", "),
        format!("{:.0}", run.unavailable_pod_seconds),
        requests.total.to_string(),
        card.requests_per_move
            .map_or_else(|| "-".to_owned(), |each| format!("{each:.2}")),
        requests.too_many_requests.to_string(),
        format!("{:.1}", usage.cpu_seconds),
        run.idle_memory_mib.map_or_else(
            || format!("-, {:.0}", usage.peak_memory_mib),
            |idle| format!("{idle:.0}, {:.0}", usage.peak_memory_mib),
        ),
        card.left_behind.len().to_string(),
        card.broken_invariants.len().to_string(),
    ]
}

/// What the table has no room for.
fn details(run: &Run) -> String {
    /// So many of a list are shown.
    const SHOWN: usize = 5;
    let mut out = format!("{}:\n", run.way);
    let mut agents: Vec<_> = run.card.requests.iter().collect();
    agents.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.total));
    for (agent, counts) in agents {
        let _ = writeln!(
            out,
            "  requests of {agent}: {}, of those 429: {}",
            counts.total, counts.too_many_requests
        );
        if agent == run.program {
            let mut by: Vec<_> = counts.by.iter().collect();
            by.sort_by_key(|(what, count)| (std::cmp::Reverse(**count), *what));
            let by: Vec<String> = by.iter().map(|(what, n)| format!("{n} {what}")).collect();
            let _ = writeln!(out, "    {}", by.join(", "));
        }
    }
    for (process, usage) in &run.usage {
        let _ = writeln!(
            out,
            "  {process}: {:.1} CPU seconds, at most {:.0} MiB",
            usage.cpu_seconds, usage.peak_memory_mib
        );
    }
    for (title, list) in [
        ("left behind", &run.card.left_behind),
        ("broken", &run.card.broken_invariants),
    ] {
        for item in list.iter().take(SHOWN) {
            let _ = writeln!(out, "  {title}: {item}");
        }
    }
    out
}
