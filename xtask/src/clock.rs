//! What is being done and how long it took, as it happens and in the end.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::text;

/// A log that says nothing for so long looks dead.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// The phases of a command.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    phases: Vec<(String, Duration)>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            phases: Vec::new(),
        }
    }

    /// A line with the time since the start before it.
    pub(crate) fn say(&self, line: &str) {
        println!("{} {line}", self.stamp());
    }

    fn stamp(&self) -> String {
        format!("[{:6.1} s]", self.started.elapsed().as_secs_f64())
    }

    /// Does `work`, telling that it is being done and how long it has taken.
    pub(crate) async fn phase<T>(&mut self, what: &str, work: impl Future<Output = T>) -> T {
        self.say(&format!("{what} ..."));
        let began = Instant::now();
        let terminal = io::stdout().is_terminal();
        let every = if terminal {
            Duration::from_secs(1)
        } else {
            SIGN_OF_LIFE
        };
        tokio::pin!(work);
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                () = tokio::time::sleep(every) => {
                    let for_now = text::duration(began.elapsed());
                    if terminal {
                        print!("\r\x1b[K{} {what} ... {for_now}", self.stamp());
                        let _ = io::stdout().flush();
                    } else {
                        self.say(&format!("{what} ... {for_now}"));
                    }
                }
            }
        };
        if terminal && began.elapsed() >= every {
            print!("\r\x1b[K");
        }
        self.took(what, began.elapsed());
        result
    }

    /// Does `work` that shows its own progress.
    pub(crate) async fn shown<T>(&mut self, what: &str, work: impl Future<Output = T>) -> T {
        self.say(&format!("{what} ..."));
        let began = Instant::now();
        let result = work.await;
        self.took(what, began.elapsed());
        result
    }

    /// Notes a phase that was shown in another way.
    pub(crate) fn took(&mut self, what: &str, time: Duration) {
        self.phases.push((what.to_owned(), time));
    }

    /// Every phase, and the whole.
    pub(crate) fn summary(&self) -> String {
        let mut rows: Vec<[String; 2]> = self
            .phases
            .iter()
            .map(|(what, time)| [what.clone(), text::duration(*time)])
            .collect();
        rows.push([
            "all together".to_owned(),
            text::duration(self.started.elapsed()),
        ]);
        let mut out = String::from("Times:\n");
        for line in text::columns(&rows) {
            let _ = writeln!(out, "  {line}");
        }
        out
    }
}
