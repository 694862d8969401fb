//! The programs of a control plane, built from Go modules into a cache outside the checkout.
//!
//! Go is needed once. Each tool has a folder named by a hash of everything that goes into it (`go.mod`, `go.sum`,
//! flags, toolchain), holding its binaries and the YAML of its module that a lab needs. A folder is complete when its
//! last file says so; builds go to another name first and are renamed, and a lock keeps two builders apart.

mod go;
mod progress;

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

pub use progress::{Lines, Progress, Report, Silent, Step};

/// The Go version that everything is built with. An older Go fetches it as a module.
pub const GO_TOOLCHAIN: &str = "go1.27.3";

/// The oldest Go that can fetch another toolchain.
pub const MINIMUM_GO: (u32, u32) = (1, 21);

/// Names the cache folder, before `XDG_CACHE_HOME` and `~/.cache`.
pub const CACHE_VARIABLE: &str = "RELOCATOR_LAB_CACHE";

/// Set to anything, the disk is not looked at before a build.
pub const SKIP_DISK_CHECK_VARIABLE: &str = "RELOCATOR_LAB_SKIP_DISK_CHECK";

/// A program that runs in a lab.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Program {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// KWOK, the kubelets of all fake nodes.
    Kwok,
    /// Karpenter with the KWOK cloud provider.
    Karpenter,
}

impl Program {
    /// All of them, in the order in which they start.
    pub const ALL: [Self; 6] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
        Self::Karpenter,
    ];

    /// The name of the binary and of its log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Karpenter => "karpenter",
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why the programs are not there.
#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    /// Neither of the variables that name a folder for the cache is set.
    #[error("no folder for built programs: set {CACHE_VARIABLE}, XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
    /// `go` is not in PATH.
    #[error(
        "go is not installed (or not in PATH). The lab builds its control plane with Go {}.{} or newer: get it from \
         https://go.dev/dl or from your system's packages (golang-go, golang, go); {GO_TOOLCHAIN} itself is fetched by \
         whatever version you have",
        MINIMUM_GO.0, MINIMUM_GO.1
    )]
    GoMissing,
    /// A `go` that cannot fetch the toolchain.
    #[error("{found} is too old: the lab needs Go {}.{} or newer, which then fetches {GO_TOOLCHAIN}", MINIMUM_GO.0, MINIMUM_GO.1)]
    GoTooOld {
        /// What `go version` said.
        found: String,
    },
    /// A `go` command other than a build that failed.
    #[error("{command} failed: {output}")]
    Go {
        /// The command.
        command: String,
        /// What it said.
        output: String,
    },
    /// cgo was asked for without a compiler to go with it. Without `CGO_ENABLED` Go does without.
    #[error("building {program} needs a C compiler because CGO_ENABLED=1 or CC is set: install gcc or clang, or set CGO_ENABLED=0 (log: {})", log.display())]
    CCompilerMissing {
        /// Which program.
        program: &'static str,
        /// The whole output.
        log: PathBuf,
    },
    /// Not enough room, found before or during a build.
    #[error(
        "{} has {free_gb:.1} GB free and building needs about {needed_gb:.1} GB there; make room, or set \
         {CACHE_VARIABLE}, GOCACHE and GOMODCACHE to folders on a larger disk ({SKIP_DISK_CHECK_VARIABLE}=1 to try all the same)",
        folder.display()
    )]
    DiskShort {
        /// Where.
        folder: PathBuf,
        /// Free now, in GB.
        free_gb: f64,
        /// Needed, in GB.
        needed_gb: f64,
    },
    /// The compiler or linker failed, or a module could not be fetched.
    #[error("building {program} failed, {reason}; the whole log is {}\n{tail}", log.display())]
    BuildFailed {
        /// Which program.
        program: &'static str,
        /// The exit status.
        reason: String,
        /// The whole output.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// Files of the cache could not be read or written.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ProgramsError {
    move |source| ProgramsError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

/// Where built programs and the state of detached labs are kept.
pub fn cache_dir() -> Result<PathBuf, ProgramsError> {
    let folder = |variable: &str| {
        std::env::var_os(variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let named = folder(CACHE_VARIABLE)
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("relocator-lab")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/relocator-lab")))
        .ok_or(ProgramsError::NoCacheFolder)?;
    std::path::absolute(&named).map_err(io_error("finding", &named))
}

/// Built programs, and the files of their modules that a lab needs.
#[derive(Clone, Debug)]
pub struct Programs {
    etcd: PathBuf,
    kubernetes: PathBuf,
    kwok: PathBuf,
    karpenter: PathBuf,
}

impl Programs {
    /// The binary of a program.
    #[must_use]
    pub fn path(&self, program: Program) -> PathBuf {
        let folder = match program {
            Program::Etcd => &self.etcd,
            Program::ApiServer | Program::ControllerManager | Program::Scheduler => {
                &self.kubernetes
            }
            Program::Kwok => &self.kwok,
            Program::Karpenter => &self.karpenter,
        };
        folder.join(program.name())
    }

    /// kubectl, of the version of the control plane.
    #[must_use]
    pub fn kubectl(&self) -> PathBuf {
        self.kubernetes.join("kubectl")
    }

    /// The folder with the YAML of Karpenter's custom resource definitions, the KWOK provider's among them.
    #[must_use]
    pub fn karpenter_crds(&self) -> PathBuf {
        self.karpenter.join("crds")
    }

    /// The folder with KWOK's stages, as in its module (`pod/general/pod-ready.yaml`).
    #[must_use]
    pub fn kwok_stages(&self) -> PathBuf {
        self.kwok.join("stages")
    }
}

/// One Go module of ours, which pins one upstream module and names what is built from it.
struct Tool {
    name: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    /// Beyond `-s -w`.
    ldflags: &'static str,
    binaries: &'static [Binary],
    /// Files copied from a module: (module, folder in it, folder in ours).
    files: &'static [(&'static str, &'static str, &'static str)],
}

struct Binary {
    name: &'static str,
    package: &'static str,
    /// Rough share of the Go build cache when cold, in MB, for the look at the disk.
    cold_mb: u32,
}

// The sources are part of this crate's binary, so that a warm start needs no checkout either.
macro_rules! module {
    ($tool:literal, $file:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/go/",
            $tool,
            "/",
            $file
        ))
    };
}

/// What a lab runs.
const PLANE: [Tool; 4] = [
    Tool {
        name: "etcd",
        go_mod: module!("etcd", "go.mod"),
        go_sum: module!("etcd", "go.sum"),
        ldflags: "",
        binaries: &[Binary {
            name: "etcd",
            package: "go.etcd.io/etcd/server/v3",
            cold_mb: 600,
        }],
        files: &[],
    },
    Tool {
        name: "kubernetes",
        go_mod: module!("kubernetes", "go.mod"),
        go_sum: module!("kubernetes", "go.sum"),
        // Without a version stamp the API server calls itself v0.0.0-master, which clients refuse.
        ldflags: "-X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 \
                  -X k8s.io/component-base/version.gitMinor=37",
        binaries: &[
            Binary {
                name: "kube-apiserver",
                package: "k8s.io/kubernetes/cmd/kube-apiserver",
                cold_mb: 2000,
            },
            Binary {
                name: "kube-controller-manager",
                package: "k8s.io/kubernetes/cmd/kube-controller-manager",
                cold_mb: 700,
            },
            Binary {
                name: "kube-scheduler",
                package: "k8s.io/kubernetes/cmd/kube-scheduler",
                cold_mb: 200,
            },
            Binary {
                name: "kubectl",
                package: "k8s.io/kubernetes/cmd/kubectl",
                cold_mb: 400,
            },
        ],
        files: &[],
    },
    Tool {
        name: "kwok",
        go_mod: module!("kwok", "go.mod"),
        go_sum: module!("kwok", "go.sum"),
        ldflags: "",
        binaries: &[Binary {
            name: "kwok",
            package: "sigs.k8s.io/kwok/cmd/kwok",
            cold_mb: 800,
        }],
        files: &[("sigs.k8s.io/kwok", "kustomize/stage", "stages")],
    },
    Tool {
        name: "karpenter",
        go_mod: module!("karpenter", "go.mod"),
        go_sum: module!("karpenter", "go.sum"),
        ldflags: "",
        binaries: &[Binary {
            name: "karpenter",
            package: "sigs.k8s.io/karpenter/kwok",
            cold_mb: 800,
        }],
        files: &[
            ("sigs.k8s.io/karpenter", "pkg/apis/crds", "crds"),
            ("sigs.k8s.io/karpenter", "kwok/apis/crds", "crds"),
        ],
    },
];

/// What the chart is rendered and installed with. Not a part of a lab, so that whoever wants no more than that does not build it.
const HELM: Tool = Tool {
    name: "helm",
    go_mod: module!("helm", "go.mod"),
    go_sum: module!("helm", "go.sum"),
    ldflags: "-X helm.sh/helm/v4/internal/version.version=v4.3.1",
    binaries: &[Binary {
        name: "helm",
        package: "helm.sh/helm/v4/cmd/helm",
        cold_mb: 700,
    }],
    files: &[],
};

/// The last file of a complete folder.
const COMPLETE: &str = "complete";

/// How often a build, or somebody else's, is looked at.
const POLL: Duration = Duration::from_millis(200);

/// How often a build is reported.
const REPORT: Duration = Duration::from_secs(1);

impl Tool {
    /// `NAME-HASH`. What is hashed is what decides about the bytes of the binaries.
    fn folder(&self) -> String {
        let mut hash = Sha256::new();
        for part in [
            "1",
            GO_TOOLCHAIN,
            go::FLAGS,
            self.ldflags,
            self.go_mod,
            self.go_sum,
        ] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let hash = hash
            .finalize()
            .iter()
            .take(8)
            .fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
        format!("{}-{hash:016x}", self.name)
    }
}

/// Builds what is missing of what a lab runs. Blocks for minutes when the cache is cold; call it from a blocking thread.
pub fn ensure(progress: &dyn Progress) -> Result<Programs, ProgramsError> {
    let [etcd, kubernetes, kwok, karpenter] = ensured(PLANE.each_ref(), progress)?;
    Ok(Programs {
        etcd,
        kubernetes,
        kwok,
        karpenter,
    })
}

/// The binary of Helm, built where it is missing. Blocks as [`ensure`] does.
pub fn helm(progress: &dyn Progress) -> Result<PathBuf, ProgramsError> {
    let [folder] = ensured([&HELM], progress)?;
    Ok(folder.join("helm"))
}

/// The folders of the tools, complete.
fn ensured<const N: usize>(
    tools: [&Tool; N],
    progress: &dyn Progress,
) -> Result<[PathBuf; N], ProgramsError> {
    let cache = cache_dir()?;
    let folder = |tool: &Tool| cache.join(tool.folder());
    let missing: Vec<&Tool> = tools
        .into_iter()
        .filter(|tool| !folder(tool).join(COMPLETE).exists())
        .collect();
    if !missing.is_empty() {
        fs::create_dir_all(&cache).map_err(io_error("making the folder", &cache))?;
        let go = go::Go::find()?;
        let mut absent: Vec<&Binary> = Vec::new();
        for tool in &missing {
            absent.extend(
                tool.binaries
                    .iter()
                    .filter(|binary| !folder(tool).join(binary.name).exists()),
            );
        }
        go.check_disk(
            &cache,
            absent.iter().map(|binary| binary.cold_mb).sum(),
            absent.len(),
        )?;
        let mut count = Count {
            done: 0,
            of: absent.len(),
        };
        for tool in missing {
            build(&go, tool, &folder(tool), &mut count, progress)?;
        }
    }
    Ok(tools.map(folder))
}

/// Which program of how many.
struct Count {
    done: usize,
    of: usize,
}

fn build(
    go: &go::Go,
    tool: &Tool,
    folder: &Path,
    count: &mut Count,
    progress: &dyn Progress,
) -> Result<(), ProgramsError> {
    fs::create_dir_all(folder).map_err(io_error("making the folder", folder))?;
    let _lock = lock(tool, folder, count, progress)?;
    if folder.join(COMPLETE).exists() {
        count.done += tool.binaries.len();
        return Ok(());
    }
    let source = folder.join("module");
    fs::create_dir_all(&source).map_err(io_error("making the folder", &source))?;
    write(&source.join("go.mod"), tool.go_mod)?;
    write(&source.join("go.sum"), tool.go_sum)?;
    for binary in tool.binaries {
        let path = folder.join(binary.name);
        if path.exists() {
            continue;
        }
        count.done += 1;
        let started = Instant::now();
        let report = |step: Step<'_>| {
            progress.report(Report {
                program: binary.name,
                number: count.done,
                of: count.of.max(count.done),
                elapsed: started.elapsed(),
                step,
            });
        };
        let log = folder.join(format!("{}.log", binary.name));
        let unfinished = folder.join(format!("{}.unfinished", binary.name));
        let mut running = go.build(&source, binary, tool.ldflags, &unfinished, &log)?;
        let mut reported: Option<Instant> = None;
        let result = loop {
            if reported.is_none_or(|at| at.elapsed() >= REPORT) {
                report(Step::Building);
                reported = Some(Instant::now());
            }
            if let Some(result) = running.finished()? {
                break result;
            }
            thread::sleep(POLL);
        };
        if let Err(error) = result {
            report(Step::Failed { log: &log });
            return Err(error);
        }
        fs::rename(&unfinished, &path).map_err(io_error("renaming", &unfinished))?;
        report(Step::Built);
    }
    for (module, from, to) in tool.files {
        let from = go::module_dir(&source, module)?.join(from);
        copy_yaml(&from, &folder.join(to))?;
    }
    write(&folder.join(COMPLETE), "")
}

/// Held until it is dropped, and let go by the system when the builder dies.
fn lock(
    tool: &Tool,
    folder: &Path,
    count: &Count,
    progress: &dyn Progress,
) -> Result<File, ProgramsError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(io_error("making", &path))?;
    let started = Instant::now();
    let report = |step: Step<'_>| {
        progress.report(Report {
            program: tool.name,
            number: count.done + 1,
            of: count.of.max(count.done + 1),
            elapsed: started.elapsed(),
            step,
        });
    };
    let mut reported: Option<Instant> = None;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(io_error("locking", &path)(error)),
        }
        if reported.is_none_or(|at| at.elapsed() >= REPORT) {
            report(Step::Waiting);
            reported = Some(Instant::now());
        }
        thread::sleep(POLL);
    }
    if reported.is_some() {
        report(Step::Waited);
    }
    Ok(file)
}

fn write(path: &Path, text: &str) -> Result<(), ProgramsError> {
    fs::write(path, text).map_err(io_error("writing", path))
}

/// Copies the YAML below a folder. The contents only: files of the module cache are read-only.
fn copy_yaml(from: &Path, to: &Path) -> Result<(), ProgramsError> {
    fs::create_dir_all(to).map_err(io_error("making the folder", to))?;
    for entry in fs::read_dir(from).map_err(io_error("reading the folder", from))? {
        let path = entry.map_err(io_error("reading the folder", from))?.path();
        let Some(name) = path.file_name() else {
            continue;
        };
        if path.is_dir() {
            copy_yaml(&path, &to.join(name))?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = fs::read_to_string(&path).map_err(io_error("reading", &path))?;
            write(&to.join(name), &text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_tool_follows_from_what_goes_into_it() {
        let [etcd, ..] = PLANE;
        let before = etcd.folder();
        assert_eq!(before, etcd.folder());
        assert_ne!(
            before,
            Tool {
                ldflags: "-X other",
                ..etcd
            }
            .folder()
        );
    }

    #[test]
    fn the_version_stamp_is_the_version_that_is_built() {
        let kubernetes = PLANE.iter().find(|tool| tool.name == "kubernetes").unwrap();
        assert!(kubernetes.go_mod.contains("k8s.io/kubernetes v1.37.2"));
        assert!(kubernetes.ldflags.contains("gitVersion=v1.37.2"));
        assert!(HELM.go_mod.contains("helm.sh/helm/v4 v4.3.1"));
        assert!(HELM.ldflags.contains("version=v4.3.1"));
    }
}
