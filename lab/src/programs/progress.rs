//! Who is told how a build goes.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Where a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Being compiled; told about once a second.
    Building,
    /// Another process builds it; told about once a second.
    Waiting,
    /// The other process is through with it, well or not.
    Waited,
    /// Done.
    Built,
    /// Failed; an error follows.
    Failed {
        /// The whole output.
        log: &'a std::path::Path,
    },
}

/// One report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// Which program, for example `kube-apiserver`.
    pub program: &'a str,
    /// Its number, from 1.
    pub number: usize,
    /// How many have to be built.
    pub of: usize,
    /// Time spent on this program.
    pub elapsed: Duration,
    /// Where it is.
    pub step: Step<'a>,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program,
            number,
            of,
            elapsed,
            step,
        } = self;
        let seconds = elapsed.as_secs();
        match step {
            Step::Building => write!(f, "[{number}/{of}] building {program}, {seconds} s"),
            Step::Waiting => write!(
                f,
                "[{number}/{of}] waiting for another build of {program}, {seconds} s"
            ),
            Step::Waited => write!(
                f,
                "[{number}/{of}] waited {seconds} s for another build of {program}"
            ),
            Step::Built => write!(f, "[{number}/{of}] built {program} in {seconds} s"),
            Step::Failed { .. } => write!(
                f,
                "[{number}/{of}] building {program} failed after {seconds} s"
            ),
        }
    }
}

/// Is told how a build goes. Nothing is reported when everything is there already.
pub trait Progress: fmt::Debug + Send + Sync {
    /// Called from the building thread, about once a second while a program is built.
    fn report(&self, report: Report<'_>);
}

/// Says nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _: Report<'_>) {}
}

/// On a terminal one line that is kept up to date; elsewhere a line at the start, every 30 s, and at the end of each
/// program. Goes to standard error.
#[derive(Debug, Default)]
pub struct Lines {
    last: Mutex<Option<(String, Duration)>>,
}

/// A log that is read afterwards needs fewer lines than a screen; a job that says nothing for a minute looks dead.
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(30);

impl Progress for Lines {
    fn report(&self, report: Report<'_>) {
        let mut out = io::stderr().lock();
        let over = matches!(
            report.step,
            Step::Waited | Step::Built | Step::Failed { .. }
        );
        if io::stderr().is_terminal() {
            let end = if over { "\n" } else { "" };
            let _ = write!(out, "\r\x1b[K{report}{end}");
            let _ = out.flush();
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = match last.as_ref() {
            Some((program, at)) if program == report.program => {
                report.elapsed >= *at + PLAIN_LINE_EVERY
            }
            _ => true,
        };
        if due || over {
            let _ = writeln!(out, "{report}");
            *last = Some((report.program.to_owned(), report.elapsed));
        }
    }
}
