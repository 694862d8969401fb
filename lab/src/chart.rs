//! The Helm chart: running Helm, and the files of the repository that are made from the chart and not written by hand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::programs::{self, ProgramsError, Progress};

/// Why something could not be done with the chart.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// Helm is not there and could not be built.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// Helm could not be started.
    #[error("running helm: {0}")]
    Helm(io::Error),
    /// Helm refused.
    #[error("helm {arguments} failed: {output}")]
    Failed {
        /// What it was asked.
        arguments: String,
        /// What it said.
        output: String,
    },
    /// Helm did not come to an end.
    #[error("helm {arguments} did not end within {} s", LONGEST.as_secs())]
    Hangs {
        /// What it was asked.
        arguments: String,
    },
    /// A file of the chart could not be read.
    #[error("reading {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A template of the chart of which nobody has said where it goes in `deploy/`.
    #[error(
        "template {0} of the chart has no place in deploy/: say in lab/src/chart.rs where it goes"
    )]
    Unplaced(String),
}

/// Where the chart is in the repository.
pub const CHART: &str = "charts/relocator";

/// More than Helm waits for by itself.
const LONGEST: Duration = Duration::from_mins(6);

/// Helm, with its own folders for caches, and no other configuration than what is said here.
#[derive(Clone, Debug)]
pub struct Helm {
    binary: PathBuf,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// The Helm of the lab, built where it is missing: that takes minutes, with progress.
    pub async fn ready(progress: impl Progress + 'static) -> Result<Self, ChartError> {
        let built = tokio::task::spawn_blocking(move || programs::helm(&progress)).await;
        let binary = built.map_err(|e| ChartError::Helm(io::Error::other(e)))??;
        Ok(Self {
            binary,
            kubeconfig: None,
        })
    }

    /// For the cluster of that kubeconfig.
    #[must_use]
    pub fn with_kubeconfig(mut self, kubeconfig: &Path) -> Self {
        self.kubeconfig = Some(kubeconfig.to_owned());
        self
    }

    /// Runs Helm and returns what it printed. It is ended if it takes longer than any of its own waits.
    pub async fn run(&self, arguments: &[&str]) -> Result<String, ChartError> {
        let mut command = Command::new(&self.binary);
        let nowhere = self.binary.with_file_name("home");
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, &nowhere);
        }
        command
            .env_remove("HELM_NAMESPACE")
            .env_remove("KUBECONFIG");
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let Ok(output) = tokio::time::timeout(LONGEST, command.output()).await else {
            let arguments = arguments.join(" ");
            return Err(ChartError::Hangs { arguments });
        };
        let output = output.map_err(ChartError::Helm)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(ChartError::Failed {
            arguments: arguments.join(" "),
            output: format!("{} {}", text(&output.stdout), text(&output.stderr)),
        })
    }
}

/// The files that are made, by their path in the repository.
pub async fn made(helm: &Helm, repository: &Path) -> Result<BTreeMap<String, String>, ChartError> {
    let chart = repository.join(CHART);
    let shown = chart.display().to_string();
    let rendered = helm
        .run(&[
            "template",
            "relocator",
            &shown,
            "--namespace=relocator-system",
            "--set=namespace.create=true,crds.enabled=false",
            "--skip-tests",
        ])
        .await?;
    let mut files = manifests(&rendered)?;
    let crd = read(&repository.join("crds/relocation.sh_noderelocations.yaml"))?;
    files.insert(format!("{CHART}/files/noderelocations.yaml"), crd);
    let readme = read(&chart.join("README.md"))?;
    let values = read(&chart.join("values.yaml"))?;
    files.insert(format!("{CHART}/README.md"), with_values(&readme, &values));
    Ok(files)
}

fn read(path: &Path) -> Result<String, ChartError> {
    fs::read_to_string(path).map_err(|source| ChartError::Read {
        path: path.to_owned(),
        source,
    })
}

const MADE: &str = "# Made from charts/relocator by `cargo xtask manifests`: change it there.\n";

/// What the operator needs to be there, without the operator.
const ACCESS: [&str; 5] = [
    "namespaces",
    "priorityclass",
    "serviceaccount",
    "rbac",
    "roles",
];

/// The operator itself.
const OPERATOR: [&str; 3] = ["deployment", "poddisruptionbudget", "service"];

/// `deploy/` from what Helm has rendered.
fn manifests(rendered: &str) -> Result<BTreeMap<String, String>, ChartError> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for document in rendered.split("\n---\n") {
        let document = document.trim_start_matches("---\n");
        let source = document
            .lines()
            .find_map(|line| line.strip_prefix("# Source: relocator/templates/"));
        let Some(source) = source else { continue };
        let template = source.trim_end_matches(".yaml");
        let path = if ACCESS.contains(&template) {
            format!("deploy/access/{template}.yaml")
        } else if OPERATOR.contains(&template) {
            "deploy/operator.yaml".to_owned()
        } else {
            return Err(ChartError::Unplaced(source.to_owned()));
        };
        let is_helms = |line: &&str| {
            let line = line.trim();
            line.starts_with("# Source: ")
                || line.starts_with("helm.sh/chart: ")
                || line == "app.kubernetes.io/managed-by: Helm"
        };
        let lines: Vec<_> = document.lines().filter(|l| !is_helms(l)).collect();
        let text = lines.join("\n");
        let file = files.entry(path).or_insert_with(|| MADE.to_owned());
        if file != MADE {
            file.push_str("---\n");
        }
        let _written = writeln!(file, "{}", text.trim());
    }
    let kustomization = |resources: &[String]| {
        let mut text = format!(
            "{MADE}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
        );
        for resource in resources {
            let _written = writeln!(text, "  - {resource}");
        }
        text
    };
    let crds = "../../crds".to_owned();
    let access = ACCESS.map(|template| format!("{template}.yaml"));
    let access: Vec<_> = std::iter::once(crds).chain(access).collect();
    files.insert(
        "deploy/access/kustomization.yaml".to_owned(),
        kustomization(&access),
    );
    let whole = ["access".to_owned(), "operator.yaml".to_owned()];
    files.insert(
        "deploy/kustomization.yaml".to_owned(),
        kustomization(&whole),
    );
    Ok(files)
}

const TABLE: [&str; 2] = ["<!-- values -->\n", "<!-- end of values -->"];

/// The README with a table of the values between its two marks.
fn with_values(readme: &str, values: &str) -> String {
    let [begin, end] = TABLE;
    let parts = readme.split_once(begin);
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let Some((before, after)) = parts else {
        return format!("{readme}\n{begin}{}{end}\n", table(values));
    };
    format!("{before}{begin}{}{end}{after}", table(values))
}

/// The values that have a comment beginning with `--`, as a table: key, default in one line, meaning.
fn table(values: &str) -> String {
    let mut rows = String::from("| value | default | meaning |\n|---|---|---|\n");
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut said: Option<String> = None;
    let mut lines = values.lines().peekable();
    while let Some(line) = lines.next() {
        let text = line.trim();
        if let Some(comment) = text.strip_prefix('#') {
            let comment = comment.trim();
            match (comment.strip_prefix("-- "), &mut said) {
                (Some(begins), _) => said = Some(begins.to_owned()),
                (None, Some(said)) => {
                    said.push(' ');
                    said.push_str(comment);
                }
                (None, None) => {}
            }
            continue;
        }
        let Some((key, value)) = text.split_once(':') else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        path.retain(|(there, _)| *there < indent);
        path.push((indent, key.to_owned()));
        let Some(meaning) = said.take() else { continue };
        let keys: Vec<_> = path.iter().map(|(_, key)| key.as_str()).collect();
        let value = value.trim();
        let deeper = |next: &&str| next.len() - next.trim_start().len() > indent;
        let default = if value.is_empty() {
            // What is below it belongs to it: it has one meaning as a whole.
            while lines.next_if(|next| deeper(next)).is_some() {}
            "see values.yaml".to_owned()
        } else {
            format!("`{value}`")
        };
        let _written = writeln!(rows, "| `{}` | {default} | {meaning} |", keys.join("."));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_told_by_its_comment_and_what_is_below_it_once() {
        let values = "# -- How many.\n# At most ten.\nreplicas: 2\nimage:\n  # -- Its tag.\n  tag: \"\"\n# -- Where.\nnode:\n  a: b\n  c:\n    d: e\nbare: 1\n";
        assert_eq!(
            table(values),
            "| value | default | meaning |\n|---|---|---|\n\
             | `replicas` | `2` | How many. At most ten. |\n\
             | `image.tag` | `\"\"` | Its tag. |\n\
             | `node` | see values.yaml | Where. |\n"
        );
    }

    #[test]
    fn what_is_helms_is_left_out_and_a_template_without_a_place_is_told() {
        let rendered = "---\n# Source: relocator/templates/rbac.yaml\nkind: A\nlabels:\n  helm.sh/chart: x\n---\n# Source: relocator/templates/rbac.yaml\nkind: B\n";
        let made = manifests(rendered).unwrap();
        assert_eq!(
            made["deploy/access/rbac.yaml"],
            format!("{MADE}kind: A\nlabels:\n---\nkind: B\n")
        );
        let other = "---\n# Source: relocator/templates/new.yaml\nkind: A\n";
        let error = manifests(other).unwrap_err();
        assert!(matches!(error, ChartError::Unplaced(t) if t == "new.yaml"));
    }
}
