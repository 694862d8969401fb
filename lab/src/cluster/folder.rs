//! The folder of a lab: made empty, locked while the lab lives, removed with it; and those of the dead swept away.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use super::{KEEP_VARIABLE, LabError, LabOptions, io_error};

/// Folders of our own in the temporary folder start with this; their lock has the same name and `.lock`.
const PREFIX: &str = "relocator-lab-";

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    keep: bool,
    /// Locked for as long as this process lives, however it ends. None for a folder that was asked for.
    lock: Option<(PathBuf, File)>,
}

impl Folder {
    pub(super) fn make(options: &LabOptions) -> Result<Self, LabError> {
        let keep = options.keep || std::env::var_os(KEEP_VARIABLE).is_some();
        let Some(asked_for) = &options.dir else {
            return Self::own(keep);
        };
        let path = std::path::absolute(asked_for)
            .map_err(io_error(format!("finding {}", asked_for.display())))?;
        match fs::read_dir(&path) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(LabError::FolderNotEmpty(path));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path)?,
            Err(error) => return Err(io_error(format!("reading {}", path.display()))(error)),
        }
        Ok(Self {
            path,
            keep,
            lock: None,
        })
    }

    fn own(keep: bool) -> Result<Self, LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);

        let temporary = std::env::temp_dir();
        sweep(&temporary);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // The time, because a pid comes again and a kept folder may be in the way.
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let path = temporary.join(format!("{PREFIX}{}-{count}-{now:x}", std::process::id()));
        // Locked before the folder is there, so that no sweep takes it for a dead one.
        let lock = lock_of(&path);
        let file = File::create(&lock).map_err(io_error(format!("making {}", lock.display())))?;
        file.lock()
            .map_err(io_error(format!("locking {}", lock.display())))?;
        make(&path)?;
        Ok(Self {
            path,
            keep,
            lock: Some((lock, file)),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn let_live(&mut self) {
        self.keep = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
        }
        // Without its lock file a folder is nobody's and is not swept.
        if let Some((lock, _)) = &self.lock {
            let _ = fs::remove_file(lock);
        }
    }
}

fn make(path: &Path) -> Result<(), LabError> {
    // Closed to others: it holds an administrator's token.
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(io_error(format!("making {}", path.display())))
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// Removes what labs left behind whose process was killed: their programs have ended with it, their folders have not.
fn sweep(temporary: &Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let lock = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if !ours || lock.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        // Not ours to open if it is somebody else's lab.
        let Ok(file) = File::open(&lock) else {
            continue;
        };
        if file.try_lock().is_ok() {
            let _ = fs::remove_dir_all(lock.with_extension(""));
            let _ = fs::remove_file(&lock);
        }
    }
}
