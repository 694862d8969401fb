//! `cargo xtask crd`: the resource definition as a file.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::cargo::{self, CargoError, Profile};

/// Write crds/ from what `relocator crd` prints. A test compares the two.
#[derive(Debug, Args)]
pub(crate) struct Crd {}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CrdError {
    #[error(transparent)]
    Cargo(#[from] CargoError),
    #[error("writing {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// In the repository.
const FILE: &str = "crds/relocation.sh_noderelocations.yaml";

impl Crd {
    pub(crate) async fn run(self) -> Result<bool, CrdError> {
        let Self {} = self;
        let mut command = Command::new(cargo::build_operator(Profile::Dev).await?);
        command.arg("crd");
        let yaml = cargo::output(command).await?;
        let path = cargo::repository().join(FILE);
        if std::fs::read_to_string(&path).is_ok_and(|there| there == yaml) {
            println!("{FILE} is up to date");
            return Ok(true);
        }
        let failed = |source| CrdError::Write {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        std::fs::write(&path, yaml).map_err(failed)?;
        println!("wrote {FILE}");
        Ok(true)
    }
}
