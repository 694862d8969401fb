//! What programs take of the machine: processor time and memory, as the system counts them. Linux only; elsewhere nothing is known.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

/// A program that ends is not seen in its last moment, which is no longer than this.
const EVERY: Duration = Duration::from_millis(200);

/// Clock ticks a second in which Linux tells processor time, on every architecture that this runs on.
const TICKS: f64 = 100.0;

/// What a process has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Processor time, its own and the system's for it. In seconds.
    pub cpu_seconds: f64,
    /// Resident memory now, in MiB.
    pub memory_mib: f64,
    /// The most resident memory since it started, in MiB.
    pub peak_memory_mib: f64,
}

impl Usage {
    /// What the process has taken so far; None when it is gone.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        read(&stat, &status)
    }
}

fn read(stat: &str, status: &str) -> Option<Usage> {
    // The name in parentheses may itself hold spaces and parentheses; the state is the first field after it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    let mut ticks = || times.next()?.parse::<f64>().ok();
    let cpu_seconds = (ticks()? + ticks()?) / TICKS;
    // A process that has ended and was not waited for has no memory any more.
    let mib = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib / 1024.0)
    };
    Some(Usage {
        cpu_seconds,
        memory_mib: mib("VmRSS:")?,
        peak_memory_mib: mib("VmHWM:")?,
    })
}

#[derive(Clone, Copy)]
struct Seen {
    pid: u32,
    /// Processor time that does not count.
    before: f64,
    last: Usage,
}

/// Looks at processes again and again, so that one that ends is known too. Dropped, it stops.
#[derive(Debug)]
pub struct Meter {
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    task: JoinHandle<()>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.pid, self.last)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Meter {
    /// Begins with these processes, each under a name. Processor time counts from now.
    #[must_use]
    pub fn start(processes: impl IntoIterator<Item = (String, u32)>) -> Self {
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let theirs = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                look(&theirs);
                tokio::time::sleep(EVERY).await;
            }
        });
        let meter = Self { seen, task };
        for (name, pid) in processes {
            meter.add(name, pid);
        }
        meter
    }

    /// One more process.
    pub fn add(&self, name: String, pid: u32) {
        let last = Usage::of(pid).unwrap_or_default();
        let seen = Seen {
            pid,
            before: last.cpu_seconds,
            last,
        };
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(name, seen);
    }

    /// What each has taken since it was begun with.
    #[must_use]
    pub fn read(&self) -> BTreeMap<String, Usage> {
        look(&self.seen);
        let all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .map(|(name, seen)| {
                let cpu_seconds = seen.last.cpu_seconds - seen.before;
                let usage = Usage {
                    cpu_seconds,
                    ..seen.last
                };
                (name.clone(), usage)
            })
            .collect()
    }
}

fn look(seen: &Mutex<BTreeMap<String, Seen>>) {
    let mut all = seen.lock().unwrap_or_else(PoisonError::into_inner);
    for seen in all.values_mut() {
        if let Some(usage) = Usage::of(seen.pid) {
            seen.last = usage;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_memory_are_found_behind_a_strange_name() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194304 100 0 0 0 250 150 0 0 20 0 1 0 100 1 1";
        let status = "Name:\ta\nVmHWM:\t    4096 kB\nVmRSS:\t    2048 kB\n";
        let expected = Usage {
            cpu_seconds: 4.0,
            memory_mib: 2.0,
            peak_memory_mib: 4.0,
        };
        assert_eq!(read(stat, status), Some(expected));
    }

    #[test]
    fn who_has_ended_has_no_memory() {
        let stat = "42 (a) Z 1 42 42 0 -1 4194304 100 0 0 0 250 150 0 0 20 0 1 0 100 1 1";
        assert_eq!(read(stat, "Name:\ta\nState:\tZ (zombie)\n"), None);
    }
}
