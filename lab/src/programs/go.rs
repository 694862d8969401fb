//! The `go` command: is it there, is there room, and running it. Does not know what a lab is.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Binary, GO_TOOLCHAIN, MINIMUM_GO, ProgramsError, SKIP_DISK_CHECK_VARIABLE, io_error};
use crate::process::{self, Lifetime};

/// In the cache key with the ldflags; the same everywhere, so that Go's own cache is shared between checkouts.
pub(super) const FLAGS: &str = "-trimpath -s -w";

/// Sources of the modules and of the toolchain, in MB: needed in GOMODCACHE when it is empty.
const MODULES_MB: u32 = 1700;

/// One linked binary, in MB, about.
const BINARY_MB: u32 = 90;

const MB: u64 = 1024 * 1024;

/// A `go` that is new enough.
pub(super) struct Go {
    build_cache: PathBuf,
    module_cache: PathBuf,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new("go");
    // A go.work or GOFLAGS of the user's must not change what is built.
    command
        .args(args)
        .env("GOTOOLCHAIN", GO_TOOLCHAIN)
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOWORK", "off");
    command
}

fn output(mut command: Command) -> Result<String, ProgramsError> {
    let shown = format!("{command:?}").replace('"', "");
    match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ProgramsError::GoMissing),
        Err(error) => Err(ProgramsError::Go {
            command: shown,
            output: error.to_string(),
        }),
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(ProgramsError::Go {
            command: shown,
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

impl Go {
    pub(super) fn find() -> Result<Self, ProgramsError> {
        let mut version = Command::new("go");
        // Not in the current folder: a go.mod there could ask for a toolchain of its own.
        version
            .arg("version")
            .env("GOTOOLCHAIN", "local")
            .current_dir(std::env::temp_dir());
        let found = output(version)?;
        if is_too_old(&found) {
            return Err(ProgramsError::GoTooOld { found });
        }
        // With the local toolchain, or this would fetch the other one before anything was reported.
        let mut folders = Command::new("go");
        folders.args(["env", "GOCACHE", "GOMODCACHE"]);
        folders
            .env("GOTOOLCHAIN", "local")
            .current_dir(std::env::temp_dir());
        let folders = output(folders)?;
        let mut folders = folders.lines().map(PathBuf::from);
        let (build_cache, module_cache) = (
            folders.next().unwrap_or_default(),
            folders.next().unwrap_or_default(),
        );
        Ok(Self {
            build_cache,
            module_cache,
        })
    }

    /// Looks whether a build of `binaries` programs that needs `cold_mb` of Go's build cache fits.
    pub(super) fn check_disk(
        &self,
        cache: &Path,
        cold_mb: u32,
        binaries: usize,
    ) -> Result<(), ProgramsError> {
        if binaries == 0 || std::env::var_os(SKIP_DISK_CHECK_VARIABLE).is_some() {
            return Ok(());
        }
        let binaries = u64::try_from(binaries).unwrap_or(u64::MAX);
        let needs = [
            (self.build_cache.as_path(), u64::from(cold_mb) * MB),
            (self.module_cache.as_path(), u64::from(MODULES_MB) * MB),
            (cache, u64::from(BINARY_MB) * MB * binaries),
        ];
        let places: Vec<(&Path, u64, Disk)> = needs
            .into_iter()
            .filter_map(|(folder, need)| Some((folder, need, Disk::of(folder)?)))
            .collect();
        for (folder, _, disk) in &places {
            let on_this_disk = places
                .iter()
                .filter(|(_, _, other)| other.device == disk.device);
            let cold: u64 = on_this_disk.clone().map(|(_, need, _)| need).sum();
            if disk.free >= cold {
                continue;
            }
            // Short for a cold build; what is in Go's caches already need not be made again. Counting it takes a
            // second, so it is done only now.
            let warm: u64 = on_this_disk
                .map(|(folder, need, _)| need.saturating_sub(size(folder)))
                .sum();
            if disk.free < warm {
                return Err(ProgramsError::DiskShort {
                    folder: folder.to_path_buf(),
                    free_gb: gigabytes(disk.free),
                    needed_gb: gigabytes(warm),
                });
            }
        }
        Ok(())
    }

    /// Starts a build; `Ctrl-C` reaches it as it reaches us, and it ends when we are killed.
    pub(super) fn build(
        &self,
        module: &Path,
        binary: &Binary,
        ldflags: &str,
        to: &Path,
        log: &Path,
    ) -> Result<Build, ProgramsError> {
        let out = File::create(log).map_err(io_error("making", log))?;
        let err = out.try_clone().map_err(io_error("opening", log))?;
        let mut command = command(&[
            "build",
            "-trimpath",
            &format!("-ldflags=-s -w {ldflags}"),
            "-o",
        ]);
        command.arg(to).arg(binary.package).current_dir(module);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        match process::spawn(command, Lifetime::Tethered) {
            Ok(child) => Ok(Build {
                child,
                program: binary.name,
                log: log.to_owned(),
                cache: self.build_cache.clone(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ProgramsError::GoMissing),
            Err(error) => Err(io_error("running go build for", to)(error)),
        }
    }
}

/// Where the module cache holds the sources of a module of the version that is pinned.
pub(super) fn module_dir(source: &Path, module: &str) -> Result<PathBuf, ProgramsError> {
    let list = || {
        let mut list = command(&["list", "-m", "-f", "{{.Dir}}", module]);
        list.current_dir(source);
        output(list)
    };
    let dir = list()?;
    if !dir.is_empty() {
        return Ok(PathBuf::from(dir));
    }
    // Built from Go's build cache alone, with the sources cleaned away.
    let mut download = command(&["mod", "download", module]);
    download.current_dir(source);
    output(download)?;
    list().map(PathBuf::from)
}

/// A build that runs.
pub(super) struct Build {
    child: Child,
    program: &'static str,
    log: PathBuf,
    /// Go's cache, where the disk fills up first.
    cache: PathBuf,
}

impl Build {
    /// None while it runs.
    pub(super) fn finished(&mut self) -> Result<Option<Result<(), ProgramsError>>, ProgramsError> {
        let status = self
            .child
            .try_wait()
            .map_err(io_error("waiting for the build that writes", &self.log))?;
        Ok(status.map(|status| {
            if status.success() {
                return Ok(());
            }
            let tail = process::tail(&self.log, 20);
            let (program, log) = (self.program, self.log.clone());
            Err(if tail.contains("no space left on device") {
                let free = Disk::of(&self.cache).map_or(0, |disk| disk.free);
                let needed_gb = gigabytes(8 * 1024 * MB);
                ProgramsError::DiskShort {
                    folder: self.cache.clone(),
                    free_gb: gigabytes(free),
                    needed_gb,
                }
            } else if tail.contains("C compiler") && tail.contains("not found") {
                ProgramsError::CCompilerMissing { program, log }
            } else {
                ProgramsError::BuildFailed {
                    program,
                    reason: status.to_string(),
                    log,
                    tail,
                }
            })
        }))
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads `go version go1.26.8 linux/amd64`. A development version has no number and is trusted.
fn is_too_old(version: &str) -> bool {
    let Some(number) = version
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go1."))
    else {
        return false;
    };
    let minor: String = number.chars().take_while(char::is_ascii_digit).collect();
    minor
        .parse()
        .is_ok_and(|minor: u32| (1, minor) < MINIMUM_GO)
}

struct Disk {
    device: u64,
    /// Bytes that we may use.
    free: u64,
}

impl Disk {
    /// Of the nearest folder that exists: a cold cache has none yet.
    fn of(folder: &Path) -> Option<Self> {
        let folder = folder.ancestors().find(|folder| folder.is_dir())?;
        let device = fs::metadata(folder).ok()?.dev();
        let stat = rustix::fs::statvfs(folder).ok()?;
        Some(Self {
            device,
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }
}

/// Bytes below a folder; what can't be read counts nothing.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => size(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}

/// For messages.
#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * MB as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_go_that_can_fetch_a_toolchain_will_do() {
        assert!(is_too_old("go version go1.20.14 linux/amd64"));
        assert!(!is_too_old("go version go1.21 darwin/arm64"));
        assert!(!is_too_old("go version go1.26.8 linux/amd64"));
        assert!(!is_too_old("go version devel +abc Mon linux/amd64"));
    }
}
