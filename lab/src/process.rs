//! Child processes that never outlive their owner, unless that is what they are for.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::tether;

/// How long a child has between SIGTERM and SIGKILL: an operator gives back its lease in less.
const GRACE: Duration = Duration::from_millis(1500);

/// The same for the programs of a lab. The API server never makes it, it waits for watches to be closed; and nothing
/// that a lab holds is worth waiting for.
pub(crate) const LAB_GRACE: Duration = Duration::from_millis(300);

/// How often a child that was told to end is looked at.
const POLL: Duration = Duration::from_millis(10);

/// What happens to a child when this process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It ends too, even if this process was killed.
    Tethered,
    /// It lives on in a session of its own, until somebody ends it by its [`ProcessId`].
    Detached,
}

type Job = (Command, mpsc::SyncSender<io::Result<Child>>);

/// Spawns on a thread that lives as long as this process.
///
/// The death signal of `tether` belongs to the thread that spawned the child, and threads of an async runtime end
/// when the runtime does (each `#[tokio::test]` has one).
pub(crate) fn spawn(mut command: Command, lifetime: Lifetime) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();

    match lifetime {
        Lifetime::Tethered => tether::end_with_parent(&mut command),
        Lifetime::Detached => tether::live_on(&mut command),
    }
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            while let Ok((mut command, reply)) = queue.recv() {
                // Nobody waits for the reply only if the caller panicked; then the child must not stay.
                if let Err(mpsc::SendError(Ok(mut child))) = reply.send(command.spawn()) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        });
        jobs
    });
    let gone = || io::Error::other("the thread that spawns children has ended");
    let (reply, answer) = mpsc::sync_channel(1);
    spawner.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Starts a command as it is, with our terminal or pipes, and lets it end with this process, even if we are killed.
///
/// What it starts in turn is not ended with it, unless it leads a process group and the group is told.
pub fn spawn_tethered(command: Command) -> io::Result<Child> {
    spawn(command, Lifetime::Tethered)
}

/// A running child whose output goes to a file. It is ended when this is dropped, and when this process dies.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    end_on_drop: bool,
}

impl Process {
    /// Starts `command` with standard output and error appended to `log`, in a process group of its own, so that a
    /// Ctrl-C in the terminal reaches us first and the children by way of us.
    pub fn start(
        name: impl Into<String>,
        command: Command,
        log: impl Into<PathBuf>,
    ) -> io::Result<Self> {
        Self::start_as(name.into(), command, log.into(), Lifetime::Tethered)
    }

    pub(crate) fn start_as(
        name: String,
        mut command: Command,
        log: PathBuf,
        lifetime: Lifetime,
    ) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;

        let output = File::options().create(true).append(true).open(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        if lifetime == Lifetime::Tethered {
            command.process_group(0);
        }
        Ok(Self {
            name,
            child: spawn(command, lifetime)?,
            log,
            end_on_drop: true,
        })
    }

    /// The name it was started under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id. It stays ours until the process was waited for, so it never names a stranger.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file that its output goes to.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The exit status if it has ended, without waiting.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends SIGKILL and waits until it is gone, as a crash would look from outside.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Sends SIGTERM; does not wait.
    pub fn terminate(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Stops it where it is (SIGSTOP). It keeps its sockets and answers nothing.
    pub fn pause(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on after [`Process::pause`].
    pub fn resume(&mut self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.ended()?.is_some() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} has ended", self.name),
            ));
        }
        kill_process(Pid::from_child(&self.child), signal).map_err(io::Error::from)
    }

    /// What identifies the process after we are gone.
    pub(crate) fn id(&self) -> io::Result<ProcessId> {
        ProcessId::of(self.pid()).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} ended at once", self.name),
            )
        })
    }

    pub(crate) fn ends_on_drop(&self) -> bool {
        self.end_on_drop
    }

    /// Leaves it running when this is dropped.
    pub(crate) fn let_live(&mut self) {
        self.end_on_drop = false;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.end_on_drop {
            end_all(std::slice::from_mut(self), GRACE);
        }
    }
}

/// Ends all of them together: SIGTERM, a short grace, SIGKILL. Blocks for little longer than that grace.
pub(crate) fn end_all(processes: &mut [Process], grace: Duration) {
    for process in processes.iter_mut() {
        let _ = process.terminate();
        // A paused process takes no notice of SIGTERM.
        let _ = process.resume();
    }
    let until = Instant::now() + grace;
    while Instant::now() < until {
        let alive = processes
            .iter_mut()
            .filter_map(|process| process.ended().ok())
            .any(|status| status.is_none());
        if !alive {
            break;
        }
        thread::sleep(POLL);
    }
    for process in processes {
        let _ = process.kill();
        process.end_on_drop = false;
    }
}

/// A process id together with the moment it began, so that a pid that was given to somebody else is never taken for
/// the process that had it before.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessId {
    /// The number that signals go to.
    pub pid: u32,
    /// When the process with that number started, in the terms of this system (opaque).
    pub started: String,
}

impl ProcessId {
    /// The process that has this pid now, if there is one.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            started: start_of(pid)?,
        })
    }

    /// Whether this very process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        start_of(self.pid).is_some_and(|started| started == self.started)
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_alive()) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Ends processes of an earlier command of ours: SIGTERM, a short grace, SIGKILL. Those that are gone are skipped.
pub(crate) fn end_by_id(processes: &[ProcessId]) {
    let signal_all = |signal| {
        for process in processes {
            process.signal(signal);
        }
    };
    let gone_by = |deadline: Instant| {
        while processes.iter().any(ProcessId::is_alive) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
    };
    signal_all(Signal::TERM);
    gone_by(Instant::now() + LAB_GRACE);
    signal_all(Signal::KILL);
    // They are not ours to wait for; whoever reaps them takes a moment.
    gone_by(Instant::now() + GRACE);
}

/// Boot and start time in clock ticks: unique for a pid. None for a process that is gone or only waits to be reaped.
#[cfg(target_os = "linux")]
fn start_of(pid: u32) -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold spaces and parentheses; the state is the first field after it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| format!("{} {started}", boot.trim()))
}

#[cfg(not(target_os = "linux"))]
fn start_of(pid: u32) -> Option<String> {
    let output = Command::new("ps")
        .args(["-o", "lstart=", "-p", &pid.to_string()])
        .output()
        .ok()?;
    let started = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!started.is_empty()).then_some(started)
}

/// The last `lines` lines of a file, for an error message. Empty when the file can't be read.
#[must_use]
pub fn tail(file: &Path, lines: usize) -> String {
    use std::io::{Read, Seek, SeekFrom};

    // Lines of these programs are long; 64 kB hold more of them than anybody reads.
    const LOOK_BACK: u64 = 64 * 1024;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(file)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOOK_BACK)))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..)
        .unwrap_or_default()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ended_when_it_is_dropped_even_while_it_is_paused() {
        let log =
            std::env::temp_dir().join(format!("relocator-lab-process-{}", std::process::id()));
        let mut command = Command::new("sleep");
        command.arg("600");
        let mut process = Process::start("sleep", command, &log).unwrap();
        let id = process.id().unwrap();
        assert!(id.is_alive());
        process.pause().unwrap();
        drop(process);
        assert!(!id.is_alive());
        std::fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_reused_pid_is_not_taken_for_the_process_that_had_it() {
        let us = ProcessId::of(std::process::id()).unwrap();
        assert!(us.is_alive());
        assert!(
            !ProcessId {
                started: "another time".into(),
                ..us
            }
            .is_alive()
        );
    }

    #[test]
    fn the_tail_of_a_file_that_is_not_there_is_empty() {
        assert_eq!(tail(Path::new("/nowhere"), 3), "");
    }
}
