//! The sweep against an API server of a few canned answers, which notes what it is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Sweeper, Swept, by_hand, keep_sweeping};
use crate::act::Actor;
use crate::lease::Leadership;
use crate::telemetry::events::Events;
use crate::world::Unknown;

const GONE: &str = "gone/uid-gone";

/// Answers by method and path. A write without an answer of its own is granted; anything else is not found.
#[derive(Clone, Default)]
struct Server {
    answers: BTreeMap<String, (u16, Value)>,
    asked: Arc<Mutex<Vec<String>>>,
}

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets/web-1";
const RELOCATIONS: &str = "/apis/relocation.sh/v1alpha1/noderelocations";
const KARPENTER: &str = "/apis/karpenter.sh/v1";
const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
const OLD: &str = "/api/v1/nodes/old";
const GROUPS: &str = "/apis";

impl Server {
    /// One node and one pod with marks of a relocation that does not exist.
    fn with_leftovers() -> Self {
        let marks = json!({
            "relocation.sh/claimed-by": GONE, "relocation.sh/cordoned-by": GONE,
        });
        let node = json!({
            "metadata": {"name": "old", "uid": "n", "resourceVersion": "7", "annotations": marks},
            "spec": {"unschedulable": true},
        });
        let pod = json!({"metadata": {
            "name": "web-1-a", "namespace": "default", "uid": "p", "resourceVersion": "8",
            "annotations": {
                "relocation.sh/deletion-cost-by": GONE, "controller.kubernetes.io/pod-deletion-cost": "-1000",
            },
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "s", "controller": true},
            ],
        }});
        let set = json!({
            "metadata": {"name": "web-1", "namespace": "default", "uid": "s", "generation": 1},
            "spec": {"replicas": 1, "selector": {}},
            "status": {"replicas": 1, "observedGeneration": 1},
        });
        Self::default()
            .answer(NODES, list(&[&node]))
            .answer(PODS, list(&[&pod]))
            .answer(DEPLOYMENTS, list(&[]))
            .answer(RELOCATIONS, list(&[]))
            .answer(KARPENTER, json!({"groupVersion": "karpenter.sh/v1", "resources": [
                {"name": "nodeclaims", "singularName": "", "namespaced": false, "kind": "NodeClaim", "verbs": []},
            ]}))
            .answer(CLAIMS, list(&[]))
            .answer(OLD, node)
            .answer(SETS, set)
            .answer("/api/v1/namespaces/default/pods/web-1-a", pod)
    }

    /// To a read of the path.
    fn answer(mut self, path: &str, answer: Value) -> Self {
        self.answers.insert(get(path), (200, answer));
        self
    }

    /// To a request like `PATCH /path`.
    fn refuse(mut self, request: &str, code: u16, message: &str) -> Self {
        let reason = match code {
            403 => "Forbidden",
            404 => "NotFound",
            _ => "Conflict",
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
        });
        self.answers.insert(request.to_owned(), (code, status));
        self
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.respond(&request);
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    fn respond(&self, request: &Request<Body>) -> Response<Body> {
        let (method, uri) = (request.method(), request.uri());
        self.asked.lock().unwrap().push(format!("{method} {uri}"));
        let path = uri.path();
        let answer = self.answers.get(&format!("{method} {path}"));
        let answer = answer.or_else(|| self.answers.get(&get(path)));
        let missing = (404, Value::from("404 page not found"));
        let (code, body) = answer.unwrap_or(&missing);
        let body = Body::from(body.to_string().into_bytes());
        Response::builder().status(*code).body(body).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn written(&self) -> Vec<String> {
        let mut asked = self.asked();
        asked.retain(|request| !request.starts_with("GET "));
        asked
    }

    async fn sweep(&self) -> Result<Swept, Unknown> {
        let actor = Actor::new(self.client(), Leadership::always());
        Sweeper::new(self.client(), actor).sweep().await
    }

    async fn by_hand(&self, dry_run: bool) -> (Result<(), by_hand::Error>, String) {
        let mut out = Vec::new();
        let result = by_hand::run(self.client(), dry_run, &mut out).await;
        (result, String::from_utf8(out).unwrap())
    }
}

fn list(items: &[&Value]) -> Value {
    json!({"metadata": {"resourceVersion": "9"}, "items": items})
}

fn paths(requests: &[String]) -> Vec<&str> {
    requests
        .iter()
        .map(|r| r.split('?').next().unwrap_or_default())
        .collect()
}

fn get(path: &str) -> String {
    format!("GET {path}")
}

/// The other way round, a relocation that is made in between would be taken for one that is missing.
#[tokio::test]
async fn the_objects_are_read_first_and_the_relocations_after() {
    let server = Server::with_leftovers();
    let swept = server.sweep().await.unwrap();
    assert!(swept.is_clean(), "{swept:?}");
    let asked = server.asked();
    let expected = [
        NODES,
        PODS,
        DEPLOYMENTS,
        RELOCATIONS,
        OLD,
        KARPENTER,
        CLAIMS,
        SETS,
    ]
    .map(get);
    assert_eq!(paths(&asked)[..8], expected);
    let written = server.written();
    assert_eq!(
        paths(&written),
        [
            "PATCH /api/v1/nodes/old",
            "PATCH /api/v1/namespaces/default/pods/web-1-a"
        ]
    );
}

#[tokio::test]
async fn where_nothing_carries_a_mark_three_lists_are_all() {
    let server = Server::with_leftovers()
        .answer(
            NODES,
            list(&[&json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "1"}})]),
        )
        .answer(PODS, list(&[]));
    assert!(server.sweep().await.unwrap().is_clean());
    let asked = server.asked();
    assert_eq!(paths(&asked), [NODES, PODS, DEPLOYMENTS].map(get));
    for request in asked {
        assert!(request.contains("limit=500"), "{request}");
    }
}

#[tokio::test]
async fn marks_of_a_relocation_that_exists_are_left_alone_until_it_is_over() {
    let relocation = |status: serde_json::Value| {
        json!({
            "apiVersion": "relocation.sh/v1alpha1", "kind": "NodeRelocation",
            "metadata": {"name": "gone", "uid": "uid-gone"},
            "spec": {"nodes": {"names": ["old"]}}, "status": status,
        })
    };
    let server = |status| {
        let exists = relocation(status);
        Server::with_leftovers()
            .answer(RELOCATIONS, list(&[&exists]))
            .answer(&format!("{RELOCATIONS}/gone"), exists)
    };
    let active = server(json!({"startTime": "2026-01-01T00:00:00Z"}));
    assert!(active.sweep().await.unwrap().is_clean());
    assert_eq!(active.written(), Vec::<String>::new());

    let over = server(json!({
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z",
    }));
    assert!(over.sweep().await.unwrap().is_clean());
    assert_eq!(over.written().len(), 2, "{:?}", over.written());
}

/// What could not be read may hold anything, so nothing is done at all.
#[tokio::test]
async fn what_cannot_be_read_is_named_and_nothing_is_written() {
    for (path, what) in [
        (NODES, "nodes"),
        (PODS, "pods"),
        (DEPLOYMENTS, "deployments.apps"),
        (RELOCATIONS, "noderelocations.relocation.sh"),
        (KARPENTER, "karpenter.sh/v1"),
        (CLAIMS, "nodeclaims.karpenter.sh"),
        (SETS, "replicasets.apps"),
    ] {
        let refusal = "User \"x\" cannot list resource";
        let server = Server::with_leftovers().refuse(&get(path), 403, refusal);
        let unknown = server.sweep().await.unwrap_err();
        assert_eq!((unknown.what.as_str(), unknown.forbidden), (what, true));
        let (result, said) = server.by_hand(false).await;
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains(&format!("reading {what}: {refusal}")),
            "{error}"
        );
        assert_eq!(said, "");
        assert_eq!(server.written(), Vec::<String>::new(), "{what}");
    }
}

/// Deleting the definition deletes all relocations.
#[tokio::test]
async fn without_the_definition_no_relocation_exists() {
    let groups = |names: &[&str]| {
        let groups: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "versions": []}))
            .collect();
        json!({"kind": "APIGroupList", "groups": groups})
    };
    let without = || Server::with_leftovers().refuse(&get(RELOCATIONS), 404, "not found");
    let gone = without().answer(GROUPS, groups(&["apps"]));
    assert_eq!(gone.sweep().await.unwrap().done.len(), 2);

    // Served in another version only: a later relocator has relocations, which this one can't read.
    let later = without().answer(GROUPS, groups(&["apps", "relocation.sh"]));
    let unknown = later.sweep().await.unwrap_err();
    assert_eq!(unknown.what, "noderelocations.relocation.sh");
    assert_eq!(later.written(), Vec::<String>::new());
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_done_and_writes_nothing() {
    let server = Server::with_leftovers();
    let (result, said) = server.by_hand(true).await;
    result.unwrap();
    assert_eq!(
        said,
        "would restore Node old: claim, cordon, of NodeRelocation gone (UID uid-gone)\n\
         would restore Pod default/web-1-a: deletion cost, of NodeRelocation gone (UID uid-gone)\n\
         2 to restore; dry run, nothing was written\n"
    );
    assert_eq!(server.written(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_refused_is_named_with_verb_and_resource_and_the_rest_is_done() {
    let refusal = "nodes \"old\" is forbidden: User \"x\" cannot patch resource \"nodes\"";
    let server = Server::with_leftovers().refuse("PATCH /api/v1/nodes/old", 403, refusal);
    let (result, said) = server.by_hand(false).await;
    assert_eq!(result.unwrap_err().to_string(), "1 not restored");
    assert_eq!(
        said,
        format!(
            "restored Pod default/web-1-a: deletion cost, of NodeRelocation gone (UID uid-gone)\n\
             not restored Node old: claim, cordon, of NodeRelocation gone (UID uid-gone): {refusal}\n"
        )
    );
}

/// Half a minute of tries, in virtual time, and then it says so.
#[tokio::test(start_paused = true)]
async fn what_somebody_changes_all_the_time_is_tried_again_for_a_while() {
    let conflict = "the object has been modified";
    let server = Server::with_leftovers().answer(PODS, list(&[])).refuse(
        "PATCH /api/v1/nodes/old",
        409,
        conflict,
    );
    let start = Instant::now();
    let (result, said) = server.by_hand(false).await;
    assert_eq!(start.elapsed().as_secs(), 31, "1 + 2 + 4 + 8 + 16");
    assert_eq!(result.unwrap_err().to_string(), "1 not restored");
    assert!(
        said.ends_with("somebody changes it all the time\n"),
        "{said}"
    );
    assert_eq!(server.written().len(), 6);
}

/// While something is left the pauses double from two seconds; then it is every five minutes.
#[tokio::test(start_paused = true)]
async fn the_operator_looks_again_sooner_while_something_is_left() {
    let server = Server::with_leftovers().answer(PODS, list(&[])).refuse(
        "PATCH /api/v1/nodes/old",
        403,
        "not you",
    );
    let actor = Actor::new(server.client(), Leadership::always());
    let events = Events::start(server.client(), "test");
    let sweeper = Sweeper::new(server.client(), actor);
    let sweeping = tokio::spawn(keep_sweeping(sweeper, events));
    tokio::time::sleep(Duration::from_hours(1)).await;
    sweeping.abort();
    // At 0, 2, 6, 14, 30, 62, 126, 254 and 510 s, which are nine, and from there every 300 s up to 3,510, which are ten.
    assert_eq!(server.written().len(), 19, "{:?}", server.written());

    let server = Server::with_leftovers()
        .answer(NODES, list(&[]))
        .answer(PODS, list(&[]));
    let actor = Actor::new(server.client(), Leadership::always());
    let events = Events::start(server.client(), "test");
    let sweeper = Sweeper::new(server.client(), actor);
    let sweeping = tokio::spawn(keep_sweeping(sweeper, events));
    tokio::time::sleep(Duration::from_mins(59)).await;
    sweeping.abort();
    assert_eq!(
        server.asked().len(),
        12 * 3,
        "three lists at 0, 5, … 55 minutes"
    );
}

/// A list that does not fit in one answer.
#[tokio::test]
async fn every_page_is_read() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        notes.lock().unwrap().push(uri.clone());
        let node = |name: &str, annotations: Value| json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1", "annotations": annotations}});
        let marked = node("old", json!({"relocation.sh/claimed-by": GONE}));
        let body = match request.uri().path() {
            NODES if uri.contains("continue=next") => list(&[&marked]),
            NODES => json!({"metadata": {"continue": "next"}, "items": [node("a", json!({}))]}),
            OLD => marked,
            KARPENTER => json!({"groupVersion": "karpenter.sh/v1", "resources": []}),
            _ => list(&[]),
        };
        let body = Body::from(body.to_string().into_bytes());
        async move { Response::builder().body(body) }
    });
    let client = Client::new(service, "default");
    let actor = Actor::new(client.clone(), Leadership::always());
    let sweep = Sweeper::new(client, actor).look().await.unwrap();
    assert_eq!(sweep.leftovers.len(), 1, "{sweep:?}");
    let asked = asked.lock().unwrap();
    let lists = asked
        .iter()
        .filter(|uri| uri.starts_with(&format!("{NODES}?")));
    assert_eq!(lists.count(), 2, "{asked:?}");
}
