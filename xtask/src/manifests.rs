//! `cargo xtask manifests`: what is made from the chart and the resource definition.

use std::io;
use std::path::PathBuf;

use clap::Args;
use lab::chart::{self, ChartError, Helm};
use lab::programs::Lines;

use crate::cargo;

/// Write deploy/ and the made parts of charts/ from the chart, with the Helm of the lab. A test compares.
#[derive(Debug, Args)]
pub(crate) struct Manifests {}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestsError {
    #[error(transparent)]
    Chart(#[from] ChartError),
    #[error("writing {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Manifests {
    pub(crate) async fn run(self) -> Result<bool, ManifestsError> {
        let Self {} = self;
        let helm = Helm::ready(Lines::default()).await?;
        let repository = cargo::repository();
        let mut written = 0;
        for (name, text) in chart::made(&helm, &repository).await? {
            let path = repository.join(&name);
            if std::fs::read_to_string(&path).is_ok_and(|there| there == text) {
                continue;
            }
            let failed = |source| ManifestsError::Write {
                path: path.clone(),
                source,
            };
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(failed)?;
            }
            std::fs::write(&path, text).map_err(failed)?;
            println!("wrote {name}");
            written += 1;
        }
        if written == 0 {
            println!("deploy/ and charts/ are up to date");
        }
        Ok(true)
    }
}
