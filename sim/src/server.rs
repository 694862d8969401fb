//! The simulated API server: what a request names, and what it is answered. Knows no faults and no time but that of the store.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lab::judge::AuditEvent;
use serde_json::{Value, json};

use crate::json::{at, condition, list, number, selects, set, text};
use crate::resource::Resource;
use crate::store::{Preconditions, Refusal, Store};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Patch,
    /// PUT, which the operator uses for the status only.
    Update,
    Delete,
}

impl Verb {
    /// As the audit log has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// Whether it asks for a change.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            Self::Get | Self::List | Self::Watch => false,
            Self::Create | Self::Patch | Self::Update | Self::Delete => true,
        }
    }
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Which resources a group serves.
    Discovery(&'static str),
    Objects(Resource),
}

/// A request, read.
#[derive(Clone, Debug)]
pub struct Call {
    pub verb: Verb,
    pub target: Target,
    /// Empty for cluster-scoped resources and for lists over all namespaces.
    pub namespace: String,
    /// Empty for a list.
    pub name: String,
    /// `status`, `eviction` or empty.
    pub subresource: String,
    pub query: BTreeMap<String, String>,
    pub body: Value,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.target {
            Target::Discovery(group) => group,
            Target::Objects(resource) => resource.plural(),
        };
        write!(f, "{} {what}", self.verb.word())?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        Ok(())
    }
}

impl Call {
    /// Reads a request. `None`: the simulated server serves no such path.
    #[must_use]
    pub fn read(method: &http::Method, uri: &http::Uri, body: &[u8]) -> Option<Self> {
        let query: BTreeMap<String, String> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), unescape(value)))
            .collect();
        let parts: Vec<&str> = uri.path().split('/').filter(|p| !p.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", "v1", rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let body = serde_json::from_slice(body).unwrap_or(Value::Null);
        let mut call = Self {
            verb: Verb::Get,
            target: Target::Discovery("karpenter.sh"),
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
            query,
            body,
        };
        let rest = match rest {
            [] if group == "karpenter.sh" => return Some(call),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                (*namespace).clone_into(&mut call.namespace);
                rest
            }
            rest => rest,
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return None,
        };
        call.target = Target::Objects(Resource::find(group, plural)?);
        name.clone_into(&mut call.name);
        subresource.clone_into(&mut call.subresource);
        call.verb = match method.as_str() {
            "GET" if call.query.contains_key("watch") => Verb::Watch,
            "GET" if name.is_empty() => Verb::List,
            "GET" => Verb::Get,
            "POST" => Verb::Create,
            "PATCH" => Verb::Patch,
            "PUT" => Verb::Update,
            "DELETE" => Verb::Delete,
            _ => return None,
        };
        Some(call)
    }

    /// Whether it is one of those that move, mark or record: not a read, and no event.
    #[must_use]
    pub fn mutates(&self) -> bool {
        self.verb.writes() && self.target != Target::Objects(Resource::Events)
    }

    /// As the audit log has it.
    #[must_use]
    pub fn audited(&self, id: usize, now: Timestamp, agent: &str, code: u16) -> AuditEvent {
        let (group, resource) = match self.target {
            Target::Discovery(group) => (group, ""),
            Target::Objects(resource) => (resource.group(), resource.plural()),
        };
        let created = text(&self.body, &["metadata", "name"]);
        let name = if self.name.is_empty() {
            created
        } else {
            &self.name
        };
        AuditEvent {
            id: id.to_string(),
            at: now,
            done: now,
            verb: self.verb.word().to_owned(),
            user: agent.to_owned(),
            user_agent: agent.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: name.to_owned(),
            uid: String::new(),
            uri: String::new(),
            code,
            body: (!self.body.is_null()).then(|| self.body.clone()),
            body_logged: true,
        }
    }
}

/// Undoes percent-encoding and `+`.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                out.push(u8::from_str_radix(digits, 16).unwrap_or(b'?'));
            }
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Carries out a request, watches aside.
pub fn answer(store: &mut Store, call: &Call) -> Result<Value, Refusal> {
    let resource = match call.target {
        Target::Discovery(group) => return Ok(discovery(group)),
        Target::Objects(resource) => resource,
    };
    let (namespace, name) = (call.namespace.as_str(), call.name.as_str());
    let written = match (call.verb, call.subresource.as_str()) {
        (Verb::List | Verb::Watch, _) => return Ok(objects(store, resource, call)),
        (Verb::Get, _) => store
            .get(resource, namespace, name)
            .cloned()
            .ok_or_else(|| {
                Refusal::new(
                    404,
                    "NotFound",
                    format!("{} {name:?} not found", resource.plural()),
                )
            }),
        (Verb::Create, "eviction") => return evict(store, call),
        (Verb::Create, _) => {
            let mut object = call.body.clone();
            if resource.namespaced() {
                set(&mut object, &["metadata", "namespace"], namespace);
            }
            store.create(resource, object)
        }
        (Verb::Patch, _) => store.patch(resource, namespace, name, &call.body),
        (Verb::Update, "status") => store.put_status(resource, namespace, name, &call.body),
        (Verb::Update, _) => {
            let message = "the simulation does not serve the replacement of whole objects";
            Err(Refusal::new(405, "MethodNotAllowed", message))
        }
        (Verb::Delete, _) => store.delete(resource, namespace, name, &preconditions(&call.body)),
    };
    written.map(|object| Value::clone(&object))
}

fn preconditions(options: &Value) -> Preconditions {
    let demanded = |field| {
        at(options, &["preconditions", field])
            .as_str()
            .map(str::to_owned)
    };
    Preconditions {
        uid: demanded("uid"),
        resource_version: demanded("resourceVersion"),
    }
}

fn discovery(group: &str) -> Value {
    let resource = |r: Resource| json!({"name": r.plural(), "singularName": "", "namespaced": r.namespaced(), "kind": r.kind(), "verbs": ["get", "list", "watch", "delete"]});
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"),
        "resources": [resource(Resource::NodeClaims), resource(Resource::NodePools)],
    })
}

fn objects(store: &Store, resource: Resource, call: &Call) -> Value {
    let selector = call
        .query
        .get("fieldSelector")
        .map(String::as_str)
        .unwrap_or_default();
    let node = selector.strip_prefix("spec.nodeName=");
    let items: Vec<Value> = store
        .all(resource)
        .filter(|o| {
            call.namespace.is_empty() || text(o, &["metadata", "namespace"]) == call.namespace
        })
        .filter(|o| node.is_none_or(|n| text(o, &["spec", "nodeName"]) == n))
        .map(|o| Value::clone(o))
        .collect();
    json!({
        "kind": format!("{}List", resource.kind()), "apiVersion": resource.api_version(),
        "metadata": {"resourceVersion": store.revision().to_string()}, "items": items,
    })
}

/// The Eviction API. Source: `pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.37.
fn evict(store: &mut Store, call: &Call) -> Result<Value, Refusal> {
    let (namespace, name) = (call.namespace.as_str(), call.name.as_str());
    let pod = store
        .get(Resource::Pods, namespace, name)
        .cloned()
        .ok_or_else(|| Refusal::new(404, "NotFound", format!("pods {name:?} not found")))?;
    let demanded = preconditions(at(&call.body, &["deleteOptions"]));
    if demanded
        .uid
        .as_deref()
        .is_some_and(|uid| uid != text(&pod, &["metadata", "uid"]))
    {
        let why = "the UID in the precondition does not match the UID in record";
        return Err(Refusal::conflict(Resource::Pods, name, why));
    }
    let terminating = !at(&pod, &["metadata", "deletionTimestamp"]).is_null();
    let counts = !terminating
        && !matches!(
            text(&pod, &["status", "phase"]),
            "Pending" | "Succeeded" | "Failed"
        );
    if counts {
        ask_budget(store, &pod)?;
    }
    store.delete(Resource::Pods, namespace, name, &demanded)?;
    Ok(
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    )
}

/// Takes one from the budget that covers the pod, if one does.
fn ask_budget(store: &mut Store, pod: &Value) -> Result<(), Refusal> {
    let namespace = text(pod, &["metadata", "namespace"]);
    let labels = at(pod, &["metadata", "labels"]);
    let covering: Vec<_> = store
        .all(Resource::Budgets)
        .filter(|b| text(b, &["metadata", "namespace"]) == namespace)
        .filter(|b| selects(at(b, &["spec", "selector"]), labels))
        .cloned()
        .collect();
    let budget = match covering.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Refusal::new(500, "InternalError", message));
        }
    };
    let name = text(budget, &["metadata", "name"]);
    let refused = |message: &str, cause: String| {
        let mut refusal = Refusal::new(429, "TooManyRequests", message);
        refusal.details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
        Err(refusal)
    };
    let status = |field| number(budget, &["status", field]);
    if status("observedGeneration") < number(budget, &["metadata", "generation"]) {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return refused(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            cause,
        );
    }
    let (allowed, healthy, desired) = (
        status("disruptionsAllowed"),
        status("currentHealthy"),
        status("desiredHealthy"),
    );
    if condition(pod, "Ready") != "True" {
        let always = text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
        if always || (healthy >= desired && desired > 0) {
            return Ok(());
        }
    }
    if allowed < 1 {
        let cause = format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        );
        return refused(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            cause,
        );
    }
    let (pod, now, name) = (
        text(pod, &["metadata", "name"]).to_owned(),
        store.time(),
        name.to_owned(),
    );
    store.change(Resource::Budgets, namespace, &name, |b| {
        set(b, &["status", "disruptionsAllowed"], allowed - 1);
        set(b, &["status", "disruptedPods", &pod], now);
    });
    Ok(())
}

/// The controller of an object, by UID; empty if it has none.
#[must_use]
pub fn controller(object: &Value) -> &str {
    list(object, &["metadata", "ownerReferences"])
        .iter()
        .find(|o| at(o, &["controller"]).as_bool() == Some(true))
        .map_or("", |o| text(o, &["uid"]))
}
