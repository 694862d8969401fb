//! How the fake kubelets treat pods: KWOK's own stages, made to leave some pods to stages of ours.
//!
//! KWOK moves a pod along with whatever stage matches it, and takes one by chance if several do. So every ordinary
//! stage is narrowed here, until each pod has one stage at most for what comes next:
//!
//! - a pod labelled never-ready runs at once and is never Ready; only a stage of ours matches it;
//! - a pod labelled never-ends matches no stage once it terminates, whatever its grace;
//! - a pod that says how long a step takes (`pod-ready.stage.kwok.x-k8s.io/delay: 10s`) takes just that long.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A pod with this label and the value `true` runs but is never Ready.
pub const NEVER_READY_LABEL: &str = "lab.relocator/never-ready";

/// A pod with this label and the value `true` never finishes terminating.
pub const NEVER_ENDS_LABEL: &str = "lab.relocator/never-ends";

/// How long pods take on fake nodes. One pod's own times are set by annotations, in both modes:
/// `STAGE.stage.kwok.x-k8s.io/delay` (a Go duration, exact) and, for a spread, `.../jitter-delay` (the longest), where
/// STAGE is `pod-create`, `pod-ready`, `pod-complete` (Jobs) or `pod-delete`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodTimes {
    /// Ready, complete and gone as soon as asked for.
    #[default]
    Fast,
    /// KWOK's general stages: 1 to 6 s to be created, again 1 to 6 s to be ready, and from 1 s up to their whole
    /// grace period to stop.
    General,
}

/// The stages could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StagesError {
    /// A file of KWOK's that is not where it was when the programs were built.
    #[error("reading KWOK's stage {}: {source}", file.display())]
    Read {
        /// The missing file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// KWOK's stages look different from those that were adapted here; a new version needs a look.
    #[error("KWOK's stage {} has no {expected:?}; this version is not known here", file.display())]
    Unknown {
        /// The file.
        file: PathBuf,
        /// What was expected in it.
        expected: &'static str,
    },
}

const CREATE: &str = "pod-create";
const READY: &str = "pod-ready";
const COMPLETE: &str = "pod-complete";
const DELETE: &str = "pod-delete";
const GENERAL: [&str; 6] = [
    CREATE,
    "pod-init-container-running",
    "pod-init-container-completed",
    READY,
    COMPLETE,
    DELETE,
];

const NOT_NEVER_READY: &str = r#"
    - key: '.metadata.labels["lab.relocator/never-ready"]'
      operator: 'NotIn'
      values:
      - 'true'"#;

const NOT_NEVER_ENDS: &str = r#"
    - key: '.metadata.labels["lab.relocator/never-ends"]'
      operator: 'NotIn'
      values:
      - 'true'"#;

/// The configuration file for KWOK, from the stages of its module.
pub(crate) fn render(
    kwok_stages: &Path,
    times: PodTimes,
    more: &str,
) -> Result<String, StagesError> {
    let read = |name: &str| Stage::read(kwok_stages.join(name));
    let mut stages = vec![
        read("node/fast/node-initialize.yaml")?.text,
        read("node/heartbeat-with-lease/node-heartbeat-with-lease.yaml")?.text,
        include_str!("stages/never-ready.yaml").to_owned(),
    ];
    for name in GENERAL {
        let general = read(&format!("pod/general/{name}.yaml"))?.for_ordinary_pods(name)?;
        match times {
            PodTimes::General => {
                stages.push(general.clone().only_if(&paced_by(&[name]), false)?.text);
                stages.push(
                    general
                        .only_if(&paced_by(&[name]), true)?
                        .paced(name, false)?
                        .text,
                );
            }
            PodTimes::Fast => {
                stages.push(
                    general
                        .only_if(&paced_by(steps_of_fast(name)), true)?
                        .paced(name, true)?
                        .text,
                );
            }
        }
    }
    if times == PodTimes::Fast {
        for name in [READY, COMPLETE, DELETE] {
            let fast = read(&format!("pod/fast/{name}.yaml"))?.for_ordinary_pods(name)?;
            stages.push(fast.only_if(&paced_by(steps_of_fast(name)), false)?.text);
        }
    }
    if !more.trim().is_empty() {
        stages.push(more.to_owned());
    }
    Ok(stages.join("\n---\n"))
}

/// The general steps that one fast stage takes at once: a pod that sets the time of any of them takes all of them.
fn steps_of_fast(name: &str) -> &'static [&'static str] {
    match name {
        COMPLETE => &[COMPLETE],
        DELETE => &[DELETE],
        _ => &[
            CREATE,
            "pod-init-container-running",
            "pod-init-container-completed",
            READY,
        ],
    }
}

/// A jq expression that yields something for a pod with its own times for one of these steps.
fn paced_by(steps: &[&str]) -> String {
    format!(
        r#"(.metadata.annotations // {{}}) | keys | .[] | select(test("^({})[.]stage[.]kwok[.]x-k8s[.]io/(jitter-)?delay$"))"#,
        steps.join("|")
    )
}

#[derive(Clone)]
struct Stage {
    file: PathBuf,
    text: String,
}

impl Stage {
    fn read(file: PathBuf) -> Result<Self, StagesError> {
        match fs::read_to_string(&file) {
            Ok(text) => Ok(Self {
                text: text.trim_end().to_owned(),
                file,
            }),
            Err(source) => Err(StagesError::Read { file, source }),
        }
    }

    /// Puts text in place of what must be there.
    fn replace(mut self, expected: &'static str, by: &str) -> Result<Self, StagesError> {
        if !self.text.contains(expected) {
            return Err(StagesError::Unknown {
                file: self.file,
                expected,
            });
        }
        self.text = self.text.replacen(expected, by, 1);
        Ok(self)
    }

    fn and_match(self, requirement: &str) -> Result<Self, StagesError> {
        const SELECTOR: &str = "\n    matchExpressions:";
        self.replace(SELECTOR, &format!("{SELECTOR}{requirement}"))
    }

    /// Leaves the pods that never get ready, or never end, to others.
    fn for_ordinary_pods(self, name: &str) -> Result<Self, StagesError> {
        self.and_match(if name == DELETE {
            NOT_NEVER_ENDS
        } else {
            NOT_NEVER_READY
        })
    }

    fn only_if(self, jq: &str, exists: bool) -> Result<Self, StagesError> {
        let operator = if exists { "Exists" } else { "DoesNotExist" };
        self.and_match(&format!(
            "\n    - key: '{jq}'\n      operator: '{operator}'"
        ))
    }

    /// A second form under another name, which takes just as long as the annotations say.
    ///
    /// KWOK takes the jitter instead of the delay when it is the shorter one, so the default jitter has to go.
    fn paced(self, name: &str, at_once: bool) -> Result<Self, StagesError> {
        const JITTER: &str = "\n    jitterDurationMilliseconds: 5000";
        const GRACE: &str =
            "\n    jitterDurationFrom:\n      expressionFrom: '.metadata.deletionTimestamp'";
        const ANNOTATED: &str = "\n    jitterDurationFrom:\n      expressionFrom: '.metadata.annotations[\"pod-delete.stage.kwok.x-k8s.io/jitter-delay\"]'";
        let named = self.replace("\n  name: ", "\n  name: paced-")?;
        let exact = if name == DELETE {
            named.replace(GRACE, ANNOTATED)?
        } else {
            named.replace(JITTER, "")?
        };
        if at_once {
            exact.replace(
                "\n    durationMilliseconds: 1000",
                "\n    durationMilliseconds: 0",
            )
        } else {
            Ok(exact)
        }
    }
}
