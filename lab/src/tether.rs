//! What a child does between fork and exec, so that it ends with its parent or lives on without it.
//!
//! The only unsafe code of the crate: `pre_exec` has no safe form in the standard library.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The kernel ends the child with SIGKILL when the *thread* that spawned it ends, however it ends; so spawn from a
/// thread that lives as long as the process (see `process`).
#[cfg(target_os = "linux")]
pub(crate) fn end_with_parent(command: &mut Command) {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

    let parent = getpid();
    // SAFETY: between fork and exec only prctl and getppid are called, as raw system calls that neither allocate
    // nor lock; the closure owns plain integers.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died between fork and prctl; then no signal would ever come.
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(
                    rustix::io::Errno::SRCH.raw_os_error(),
                ))
            }
        });
    }
}

/// Without the Linux death signal a child ends when its owner is dropped, not when its owner is killed.
#[cfg(not(target_os = "linux"))]
pub(crate) fn end_with_parent(_command: &mut Command) {}

/// The child leads a session of its own: no terminal, no signals of ours.
pub(crate) fn live_on(command: &mut Command) {
    // SAFETY: setsid is one system call that neither allocates nor locks, and the closure captures nothing.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()
                .map(|_| ())
                .map_err(io::Error::from)
        });
    }
}
