//! Names of things: newtypes that keep a node's name from being taken for a pod's.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::api::bounds::MAX_COUNT;

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

text_newtype! {
    /// `metadata.uid`: names one object for ever, unlike its name.
    Uid
}
text_newtype! {
    /// `metadata.name` of a node.
    NodeName
}
text_newtype! {
    /// What an action is about, for telling two attempts of the same action from two actions.
    ActionKey
}

/// A pod, by its UID; the rest is for people and for the address of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The kinds of owner that make pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    /// Any other kind, such as a Job or a custom resource.
    Other {
        api_version: String,
        kind: String,
    },
    /// Nothing owns the pod, which stands for itself.
    Pod,
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::Other { kind, .. } => kind,
            Self::Pod => "Pod",
        })
    }
}

impl WorkloadKind {
    /// The kind of that name; `api_version` is that of a kind which is not of apps/v1.
    #[must_use]
    pub fn parse(kind: &str, api_version: Option<&str>) -> Option<Self> {
        match (api_version, kind) {
            (None, "Deployment") => Some(Self::Deployment),
            (None, "ReplicaSet") => Some(Self::ReplicaSet),
            (None, "StatefulSet") => Some(Self::StatefulSet),
            (Some("v1"), "Pod") => Some(Self::Pod),
            (Some(api_version), kind) => Some(Self::Other {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            }),
            (None, _) => None,
        }
    }

    /// The API version, for a kind that is not of apps/v1.
    #[must_use]
    pub fn api_version(&self) -> Option<&str> {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet => None,
            Self::Other { api_version, .. } => Some(api_version),
            Self::Pod => Some("v1"),
        }
    }

    /// Whether it is a Rollout of Argo.
    #[must_use]
    pub fn is_rollout(&self) -> bool {
        matches!(self, Self::Other { api_version, kind } if kind == "Rollout" && api_version.starts_with("argoproj.io/"))
    }

    /// Whether it is a Job of batch.
    #[must_use]
    pub fn is_job(&self) -> bool {
        matches!(self, Self::Other { api_version, kind } if kind == "Job" && api_version.starts_with("batch/"))
    }
}

/// A workload: what makes the pods again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadRef {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
}

impl fmt::Display for WorkloadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The controller of an object, as its owner reference claims. To be believed only once an object of that UID was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: Uid,
}

/// Value of our marks on nodes and pods: which relocation they belong to, by name for people and by UID for us.
///
/// On the wire `NAME/UID`; a text of another form is kept as it is and belongs to nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimValue {
    pub name: String,
    pub uid: Uid,
}

impl ClaimValue {
    /// Reads the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('/') {
            Some((name, uid)) => Self {
                name: name.to_owned(),
                uid: uid.into(),
            },
            None => Self {
                name: text.to_owned(),
                uid: Uid::default(),
            },
        }
    }
}

impl fmt::Display for ClaimValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.uid)
    }
}

/// What a Deployment says while its replica count is raised for the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurgeMark {
    /// UID of the relocation that raised it.
    pub relocation: Uid,
    /// The count before, to go back to.
    pub from: u32,
    /// The count that was set: another one now means that somebody else has changed it since, and wins.
    pub to: u32,
}

impl SurgeMark {
    /// Reads the wire form `UID.FROM.TO`; a text of another form is nobody's, and so is one with a count that we would not have set.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split('.');
        let relocation = words.next()?.into();
        let mut count = || words.next()?.parse().ok().filter(|n| *n <= MAX_COUNT);
        let (from, to) = (count()?, count()?);
        Some(Self {
            relocation,
            from,
            to,
        })
    }
}

impl fmt::Display for SurgeMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.relocation, self.from, self.to)
    }
}
