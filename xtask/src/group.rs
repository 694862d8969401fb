//! A command with all that it starts in turn, in our terminal: it ends as a whole when it is dropped.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How often the command is looked at. Builds and tests take seconds.
const POLL: Duration = Duration::from_millis(20);

/// From SIGTERM to SIGKILL: the labs of a test need less.
const GRACE: Duration = Duration::from_secs(2);

/// A running command that leads a process group of its own.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    over: bool,
}

impl Group {
    /// Starts the command without an input: a group of its own would be stopped by the terminal when it reads.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        command.process_group(0).stdin(Stdio::null());
        Ok(Self {
            child: lab::process::spawn_tethered(command)?,
            over: false,
        })
    }

    /// Its standard output, if that is a pipe. Once.
    pub(crate) fn output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.over = true;
                return Ok(status);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn signal(&self, signal: Signal) {
        // It fails when nobody of the group is left, which is what is wanted.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Group {
    #[expect(
        clippy::disallowed_methods,
        reason = "a drop can't wait in another way, and nothing else is to be done any more"
    )]
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.signal(Signal::TERM);
        let until = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_command_has_started_ends_with_it() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 600 & echo $!; wait"])
            .stdout(Stdio::piped());
        let mut group = Group::start(command).unwrap();
        let mut line = String::new();
        let output = group.output().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(output), &mut line).unwrap();
        let sleeper = lab::process::ProcessId::of(line.trim().parse().unwrap()).unwrap();
        assert!(sleeper.is_alive());
        drop(group);
        let gone = lab::wait_until("the sleeper to end", Duration::from_secs(5), || async {
            if sleeper.is_alive() {
                Err(lab::NotYet::because("it is alive"))
            } else {
                Ok(())
            }
        });
        gone.await.unwrap();
    }

    #[tokio::test]
    async fn the_status_is_that_of_the_command() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let status = Group::start(command).unwrap().wait().await.unwrap();
        assert_eq!(status.code(), Some(3));
    }
}
