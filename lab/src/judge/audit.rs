//! The audit log of the API server: who asked for what. Reads a file, nothing else.
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

/// What could not be read of an audit log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file.
    #[error("reading the audit log {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line that is no audit event.
    #[error("line {line} of the audit log {path} is no audit event")]
    Parse {
        /// Which.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
}

/// A request, as the API server logged it. Texts are empty where the log has none.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEvent {
    /// `auditID`.
    pub id: String,
    /// `requestReceivedTimestamp`.
    pub at: Timestamp,
    /// `stageTimestamp`: when it was answered.
    pub done: Timestamp,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// `user.username`.
    pub user: String,
    /// `userAgent`.
    pub user_agent: String,
    /// `requestURI`: path and parameters, such as the field selector of a list.
    pub uri: String,
    /// `objectRef.apiGroup`.
    pub group: String,
    /// `objectRef.resource`.
    pub resource: String,
    /// `objectRef.subresource`.
    pub subresource: String,
    /// `objectRef.namespace`.
    pub namespace: String,
    /// `objectRef.name`.
    pub name: String,
    /// `objectRef.uid`.
    pub uid: String,
    /// `responseStatus.code`; 0 if there was none.
    pub code: u16,
    /// `requestObject`: only at level Request.
    pub body: Option<Value>,
    /// Whether the log has bodies of such requests at all: then no body means that none was sent.
    pub body_logged: bool,
}

impl AuditEvent {
    /// Reads one line of the log.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        let wire: Wire = serde_json::from_str(line)?;
        let object = wire.object_ref.unwrap_or_default();
        Ok(Self {
            id: wire.audit_id,
            at: wire.request_received_timestamp,
            done: wire.stage_timestamp,
            verb: wire.verb,
            user: wire.user.username,
            user_agent: wire.user_agent,
            uri: wire.request_uri,
            group: object.api_group,
            resource: object.resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            uid: object.uid,
            code: wire.response_status.code,
            body: wire.request_object,
            body_logged: matches!(wire.level.as_str(), "Request" | "RequestResponse"),
        })
    }

    /// The program, which is the user agent up to the first "/".
    #[must_use]
    pub fn agent(&self) -> &str {
        match self.user_agent.split('/').next() {
            None | Some("") => "?",
            Some(agent) => agent,
        }
    }

    /// `pods/eviction`.
    #[must_use]
    pub fn target(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// Whether the API server did it.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether it asks for a change of the cluster. Reviews of access and tokens are posted but change nothing.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        ) && !matches!(
            self.group.as_str(),
            "authorization.k8s.io" | "authentication.k8s.io"
        )
    }

    /// Whether it is about a lease, which a leader renews as long as it lives.
    #[must_use]
    pub fn is_lease(&self) -> bool {
        self.resource == "leases"
    }

    /// Whether it posts an Eviction.
    #[must_use]
    pub fn is_eviction(&self) -> bool {
        self.verb == "create" && self.resource == "pods" && self.subresource == "eviction"
    }

    /// The UID that the request demanded of its object, if its body is known and has one.
    #[must_use]
    pub fn precondition_uid(&self) -> Option<&str> {
        let body = self.body.as_ref()?;
        ["/deleteOptions/preconditions/uid", "/preconditions/uid"]
            .iter()
            .find_map(|p| body.pointer(p)?.as_str())
            .filter(|uid| !uid.is_empty())
    }
}

impl AuditEvent {
    /// Whether it is known to have named its object by name alone.
    #[must_use]
    pub fn is_by_name_alone(&self) -> bool {
        // Who may not do it at all is told so before the body is read.
        let unread = self.body.is_none() && matches!(self.code, 401 | 403);
        self.body_logged && !unread && self.precondition_uid().is_none()
    }
}

impl fmt::Display for AuditEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.verb, self.target())?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        write!(
            f,
            "{} by {} at {} ({}, audit {})",
            self.name,
            self.agent(),
            self.at,
            self.code,
            self.id
        )
    }
}

/// Who a request is from: by user, by program, or by either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The exact user name.
    pub user: Option<String>,
    /// The user agent up to its first "/", exactly: `relocator` is not `relocator-lab`.
    pub agent: Option<String>,
}

impl Identity {
    /// relocator, as it is deployed.
    #[must_use]
    pub fn relocator() -> Self {
        Self {
            user: Some("system:serviceaccount:relocator-system:relocator".to_owned()),
            agent: Some("relocator".to_owned()),
        }
    }

    /// Another tool, by its program name.
    #[must_use]
    pub fn agent(name: &str) -> Self {
        Self {
            user: None,
            agent: Some(name.to_owned()),
        }
    }

    /// Whether a request is from it.
    #[must_use]
    pub fn made(&self, event: &AuditEvent) -> bool {
        self.user.as_ref().is_some_and(|u| *u == event.user)
            || self.agent.as_deref() == Some(event.agent())
    }
}

/// Reads the requests that were received at or after `since`, each once (at its last stage), by time of receipt.
/// A last line without its end is being written and is left out.
pub async fn read_audit_log(path: &Path, since: Timestamp) -> Result<Vec<AuditEvent>, AuditError> {
    let read = |source| AuditError::Read {
        path: path.to_owned(),
        source,
    };
    let file = tokio::fs::File::open(path).await.map_err(read)?;
    let mut reader = BufReader::new(file);
    let mut latest: HashMap<String, AuditEvent> = HashMap::new();
    let mut text = String::new();
    let mut line = 0_usize;
    loop {
        text.clear();
        line += 1;
        if reader.read_line(&mut text).await.map_err(read)? == 0 || !text.ends_with('\n') {
            break;
        }
        if text.trim().is_empty() {
            continue;
        }
        let event = AuditEvent::parse(&text).map_err(|source| AuditError::Parse {
            path: path.to_owned(),
            line,
            source,
        })?;
        if event.at < since {
            continue;
        }
        match latest.get_mut(&event.id) {
            Some(known) if known.done > event.done => {}
            Some(known) => *known = event,
            None => {
                latest.insert(event.id.clone(), event);
            }
        }
    }
    let mut events: Vec<_> = latest.into_values().collect();
    events.sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
    Ok(events)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(rename = "auditID")]
    audit_id: String,
    #[serde(default)]
    level: String,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
    #[serde(default)]
    verb: String,
    #[serde(default)]
    user: WireUser,
    #[serde(default)]
    user_agent: String,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
    object_ref: Option<WireRef>,
    #[serde(default)]
    response_status: WireStatus,
    request_object: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUser {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    code: u16,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    uid: String,
}
