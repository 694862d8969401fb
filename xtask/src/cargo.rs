//! The toolchain: where the repository is, and running cargo in it.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

use crate::group::Group;
use crate::text;

/// Why a program of the toolchain could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CargoError {
    #[error("running {command}: {source}")]
    Run { command: String, source: io::Error },
    #[error("{command} failed, {status}")]
    Failed { command: String, status: ExitStatus },
    #[error("{command} built no program {program}")]
    NoProgram { command: String, program: String },
}

/// The folder of the workspace.
pub(crate) fn repository() -> PathBuf {
    // The one of the running `cargo xtask`, which may be another than that of the build.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or_else(|| xtask.clone(), Path::to_owned)
}

/// cargo, as a person would call it in the repository.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository());
    // What cargo told us of ourselves: build scripts would take it for a change, and crates would be built again.
    let ours = |name: &OsString| {
        name.to_str()
            .is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_"))
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command
}

/// Runs a command in our terminal.
pub(crate) async fn run(command: Command) -> Result<ExitStatus, CargoError> {
    let shown = text::command(&command);
    let result = async { Group::start(command)?.wait().await }.await;
    result.map_err(|source| CargoError::Run {
        command: shown,
        source,
    })
}

/// Runs a command whose messages go to our terminal and returns its output. A failure of it is an error.
pub(crate) async fn output(mut command: Command) -> Result<String, CargoError> {
    let shown = text::command(&command);
    command.stdout(Stdio::piped());
    let result = async {
        let mut group = Group::start(command)?;
        let pipe = group.output();
        // Read while it runs: a full pipe would stop it.
        let reader = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            pipe.map(|mut pipe| pipe.read_to_string(&mut text))
                .transpose()
                .map(|_| text)
        });
        let status = group.wait().await?;
        let text = reader.await.map_err(io::Error::other)??;
        Ok((status, text))
    };
    match result.await {
        Ok((status, text)) if status.success() => Ok(text),
        Ok((status, _)) => Err(CargoError::Failed {
            command: shown,
            status,
        }),
        Err(source) => Err(CargoError::Run {
            command: shown,
            source,
        }),
    }
}

/// How the operator is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As for tests: soon.
    Dev,
    /// As it is delivered: what processor time and memory are measured on.
    Release,
}

/// Builds the operator and returns the path of the program.
pub(crate) async fn build_operator(profile: Profile) -> Result<PathBuf, CargoError> {
    const PROGRAM: &str = "relocator";
    let mut command = cargo();
    command.args(["build", "--package", PROGRAM, "--bin", PROGRAM]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    let shown = text::command(&command);
    command.arg("--message-format=json-render-diagnostics");
    let messages = output(command).await?;
    executable(&messages, PROGRAM).ok_or_else(|| CargoError::NoProgram {
        command: shown,
        program: PROGRAM.to_owned(),
    })
}

/// Cargo says where it has put a program, whatever the target folder and profile are.
fn executable(messages: &str, program: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| {
            message
                .pointer("/target/name")
                .is_some_and(|name| name == program)
        })
        .find_map(|message| message.get("executable")?.as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_where_cargo_says() {
        let messages = "not json\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"relocator\"},\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"relocator\"},\"executable\":\"/t/relocator\"}\n";
        assert_eq!(
            executable(messages, "relocator"),
            Some(PathBuf::from("/t/relocator"))
        );
        assert_eq!(executable(messages, "other"), None);
    }

    #[test]
    fn the_repository_has_the_manifests() {
        assert!(repository().join("deploy/kustomization.yaml").exists());
    }
}
