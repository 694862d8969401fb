//! A lab for people: it outlives the command that started it, and another command ends it.
//!
//! State is kept in the cache folder, one folder a name: the lab itself and a list of its processes, written as they
//! start, so that an `up` that was killed half way is cleaned up by the next one or by [`down`].

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::cluster::{Lab, LabError, LabOptions};
use crate::process::{self, Lifetime, ProcessId};
use crate::programs::{self, ProgramsError};

/// The name of the lab when none is given.
pub const DEFAULT_NAME: &str = "default";

/// Why a detached lab could not be started, found or ended.
#[derive(Debug, thiserror::Error)]
pub enum DetachedError {
    /// Its control plane.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// There is no cache folder.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// Its state could not be read or written.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A name that is no file name.
    #[error("{0:?} can't be the name of a lab: use letters, digits, '-' and '_'")]
    Name(String),
    /// One of that name is there.
    #[error("the lab {0:?} is up already; end it first (cargo xtask lab down --name {0})")]
    IsUp(String),
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DetachedError {
    move |source| DetachedError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

/// A detached lab. Shown, it says where the kubeconfig is and what to try next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpInfo {
    /// Its name.
    pub name: String,
    /// Its folder: logs, audit log, stages.
    pub dir: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// kubectl of the same version.
    pub kubectl: PathBuf,
    /// Whether Karpenter runs in it.
    pub karpenter: bool,
    /// It was up before and was left alone; its options are those that it was started with.
    pub was_up: bool,
}

impl fmt::Display for UpInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            dir,
            kubeconfig,
            kubectl,
            karpenter,
            was_up,
        } = self;
        let state = if *was_up { "was up already" } else { "is up" };
        writeln!(f, "The lab {name:?} {state}.\n")?;
        writeln!(f, "    export KUBECONFIG={}", kubeconfig.display())?;
        writeln!(f, "    alias kubectl={}\n", kubectl.display())?;
        writeln!(f, "To try next:")?;
        if *karpenter {
            writeln!(f, "    kubectl get nodepools,nodeclaims,nodes")?;
        } else {
            writeln!(f, "    kubectl get nodes")?;
        }
        writeln!(f, "    kubectl get pods --all-namespaces --output wide")?;
        write!(f, "Logs and the audit log: {}", dir.join("logs").display())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct State {
    processes: Vec<ProcessId>,
    karpenter: bool,
    kubectl: PathBuf,
    /// Whether the start went through to the end.
    complete: bool,
}

/// The files of one detached lab.
#[derive(Debug)]
struct Place(PathBuf);

impl Place {
    fn of(name: &str) -> Result<Self, DetachedError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(fits) {
            return Err(DetachedError::Name(name.to_owned()));
        }
        Ok(Self(programs::cache_dir()?.join("detached").join(name)))
    }

    fn lab(&self) -> PathBuf {
        self.0.join("lab")
    }

    fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// Keeps two commands on the same lab apart. Beside the folder, which [`Place::clear`] removes.
    fn lock(&self) -> Result<File, DetachedError> {
        let path = self.0.with_extension("lock");
        let parent = path.parent().unwrap_or(&path);
        fs::create_dir_all(parent).map_err(io_error("making the folder", parent))?;
        let file = File::create(&path).map_err(io_error("making", &path))?;
        file.lock().map_err(io_error("locking", &path))?;
        Ok(file)
    }

    fn read(&self) -> Result<Option<State>, DetachedError> {
        let path = self.state();
        match fs::read(&path) {
            Ok(text) => {
                let state = serde_json::from_slice(&text).map_err(io::Error::from);
                state.map(Some).map_err(io_error("reading", &path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("reading", &path)(error)),
        }
    }

    fn write(&self, state: &State) -> io::Result<()> {
        let unfinished = self.0.join("state.json.unfinished");
        fs::write(&unfinished, serde_json::to_vec_pretty(state)?)?;
        fs::rename(&unfinished, self.state())
    }

    /// Ends what still runs and removes the folder.
    fn clear(&self, state: &State) -> Result<(), DetachedError> {
        process::end_by_id(&state.processes);
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("removing", &self.0)(error))
            }
            _ => Ok(()),
        }
    }
}

impl State {
    fn is_up(&self) -> bool {
        self.complete
            && !self.processes.is_empty()
            && self.processes.iter().all(ProcessId::is_alive)
    }
}

/// Starts a lab that lives until [`down`], or tells about the one of this name that is up.
///
/// `options.dir` and `options.keep` are not used. What an earlier start left half done, or a lab of which a program
/// has ended, is cleared away first.
pub async fn up(name: &str, options: LabOptions) -> Result<UpInfo, DetachedError> {
    match start(name, options).await? {
        Start::WasUp(info) => Ok(info),
        Start::Held(held) => held.leave(),
    }
}

/// Starts a lab that ends with us unless it is left alone ([`Held::leave`]): for a command that does something in it
/// first. An error if one of this name is up.
pub async fn hold(name: &str, options: LabOptions) -> Result<Held, DetachedError> {
    match start(name, options).await? {
        Start::WasUp(info) => Err(DetachedError::IsUp(info.name)),
        Start::Held(held) => Ok(held),
    }
}

#[expect(clippy::large_enum_variant, reason = "there is one, for a moment")]
enum Start {
    WasUp(UpInfo),
    Held(Held),
}

/// A detached lab that is still ours. Dropped, it ends.
#[derive(Debug)]
pub struct Held {
    // Dropped in this order.
    lab: Lab,
    traces: Traces,
}

/// What another command finds a lab by. Gone when this is dropped, unless the lab is left alone.
#[derive(Debug)]
struct Traces {
    name: String,
    place: Arc<Place>,
    state: Arc<Mutex<State>>,
    stay: bool,
}

impl Drop for Traces {
    fn drop(&mut self) {
        if !self.stay {
            let _ = fs::remove_dir_all(&self.place.0);
        }
    }
}

impl Held {
    /// The lab.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Lets it live until [`down`], with everything that was started beside it.
    pub fn leave(mut self) -> Result<UpInfo, DetachedError> {
        let Traces {
            name, place, state, ..
        } = &self.traces;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of a start that was made again with other ports are gone, as are programs that were started again.
        state.processes.retain(ProcessId::is_alive);
        state.kubectl = self.lab.kubectl_path();
        state.complete = true;
        place
            .write(&state)
            .map_err(io_error("writing", &place.state()))?;
        let info = info(name, place, &state, false);
        drop(state);
        self.lab.let_live();
        self.traces.stay = true;
        Ok(info)
    }
}

async fn start(name: &str, options: LabOptions) -> Result<Start, DetachedError> {
    let place = Arc::new(Place::of(name)?);
    let locking = place.clone();
    let _lock = tokio::task::spawn_blocking(move || locking.lock())
        .await
        .map_err(|error| io_error("locking", &place.0)(io::Error::other(error)))??;
    if let Some(state) = place.read()? {
        if state.is_up() {
            return Ok(Start::WasUp(info(name, &place, &state, true)));
        }
        place.clear(&state)?;
    }
    fs::create_dir_all(&place.0).map_err(io_error("making the folder", &place.0))?;

    let empty = State {
        processes: Vec::new(),
        karpenter: options.karpenter,
        kubectl: PathBuf::new(),
        complete: false,
    };
    let state = Arc::new(Mutex::new(empty));
    let (recorded, written) = (state.clone(), place.clone());
    let record = move |process: &ProcessId| {
        let mut state = recorded.lock().unwrap_or_else(PoisonError::into_inner);
        state.processes.push(process.clone());
        written.write(&state)
    };
    let options = LabOptions {
        dir: Some(place.lab()),
        keep: false,
        ..options
    };
    let traces = Traces {
        name: name.to_owned(),
        place,
        state,
        stay: false,
    };
    let lab = Lab::start_as(options, Lifetime::Detached, Arc::new(record)).await?;
    Ok(Start::Held(Held { lab, traces }))
}

/// Ends a detached lab and removes its folder. False when there was none.
pub fn down(name: &str) -> Result<bool, DetachedError> {
    let place = Place::of(name)?;
    let _lock = place.lock()?;
    let Some(state) = place.read()? else {
        return Ok(false);
    };
    place.clear(&state)?;
    Ok(true)
}

/// The names of all detached labs, whether they are still up or not.
pub fn list() -> Result<Vec<String>, DetachedError> {
    let folder = programs::cache_dir()?.join("detached");
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("state.json").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

fn info(name: &str, place: &Place, state: &State, was_up: bool) -> UpInfo {
    let dir = place.lab();
    UpInfo {
        name: name.to_owned(),
        kubeconfig: dir.join("kubeconfig"),
        dir,
        kubectl: state.kubectl.clone(),
        karpenter: state.karpenter,
        was_up,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_folder() {
        for name in ["", "..", "a/b", "a b"] {
            assert!(
                matches!(Place::of(name), Err(DetachedError::Name(_))),
                "{name:?}"
            );
        }
    }
}
