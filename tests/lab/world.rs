//! What every story starts from: a lab with relocator installed, and a judge beside it.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use lab::judge::object::Detail;
use lab::judge::{
    AuditEvent, ClusterState, History, Identity, JudgeInput, Kind, Recorder, RecorderOptions,
    Scorecard, State, snapshot, writes_between,
};
use lab::operator::{self, Follower, Operator, OperatorOptions, Relocation};
use lab::{AuditLevel, Lab, LabOptions, NotYet, fixtures, wait_until};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Everything here takes seconds. What has not come by then does not come, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// The user that `deploy/` makes for relocator.
pub(crate) const ACCOUNT: &str = "system:serviceaccount:relocator-system:relocator";

pub(crate) const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Nodes that are not Karpenter's are kept by this one.
pub(crate) const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

/// A control plane is seven programs: more than two of them on two cores wait for each other.
static LABS: Semaphore = Semaphore::const_new(2);

/// A lab with relocator installed, as `deploy/` has it, and not yet running.
pub(crate) struct World {
    pub(crate) lab: Lab,
    // Given back after the lab has ended.
    _slot: SemaphorePermit<'static>,
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // The lab's folder goes with it: what the operators said is told now or never.
        let logs = std::fs::read_dir(self.lab.dir().join("logs"));
        for log in logs.into_iter().flatten().flatten().map(|e| e.path()) {
            let name = log.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("relocator") {
                eprintln!("--- {name}\n{}", lab::process::tail(&log, 60));
            }
        }
    }
}

impl World {
    /// A lab without Karpenter: nodes are made by the story and taken away by nobody.
    pub(crate) async fn start() -> Self {
        Self::with(LabOptions::default()).await
    }

    pub(crate) async fn with_karpenter(options: LabOptions) -> Self {
        Self::with(LabOptions {
            karpenter: true,
            ..options
        })
        .await
    }

    pub(crate) async fn with(options: LabOptions) -> Self {
        let world = Self::bare(options).await;
        operator::install(&world.lab, Path::new(env!("CARGO_MANIFEST_DIR")))
            .await
            .unwrap();
        world
    }

    /// A lab in which nothing of relocator is.
    pub(crate) async fn bare(options: LabOptions) -> Self {
        let slot = LABS.acquire().await.unwrap();
        // The bodies of requests are what invariants are judged by.
        let options = LabOptions {
            audit: AuditLevel::Request,
            ..options
        };
        let lab = Lab::start(options).await.unwrap();
        Self { lab, _slot: slot }
    }

    /// The operator, leading.
    pub(crate) async fn operator(&self) -> Operator {
        Operator::start(&self.lab, binary()).await.unwrap()
    }

    /// The operator under an identity of its own, not waited for.
    pub(crate) async fn operator_as(&self, identity: &str) -> Operator {
        let options = OperatorOptions {
            identity: Some(identity.to_owned()),
            ..OperatorOptions::default()
        };
        Operator::start_with(&self.lab, binary(), options)
            .await
            .unwrap()
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        self.lab.kubectl(arguments).await.unwrap()
    }

    /// Nodes with just so many CPUs, which decide what fits on them.
    pub(crate) async fn nodes(&self, nodes: &[(&str, &str)]) {
        for (name, cpu) in nodes {
            let node = fixtures::fake_node(name, cpu, &[]);
            self.lab.put(&node).await.unwrap();
        }
        for (name, _) in nodes {
            fixtures::wait_node_ready(&self.lab, name).await.unwrap();
        }
    }

    /// Every pod is Ready and none is on its way.
    pub(crate) async fn settled(&self) {
        fixtures::wait_settled(&self.lab).await.unwrap();
    }

    /// Applies a `NodeRelocation` and follows it from before it is there.
    pub(crate) async fn relocate(&self, name: &str, spec: &str) -> Story<'_> {
        let follower = Follower::start(&self.lab, name).await.unwrap();
        let relocation = format!(
            "apiVersion: relocation.sh/v1alpha1\nkind: NodeRelocation\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        );
        operator::apply_relocation(&self.lab, &relocation)
            .await
            .unwrap();
        Story {
            world: self,
            name: name.to_owned(),
            follower,
        }
    }

    pub(crate) async fn snapshot(&self) -> ClusterState {
        snapshot(&self.lab.client().await.unwrap()).await.unwrap()
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all(self.lab.client().await.unwrap());
        api.list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) async fn node(&self, name: &str) -> Node {
        let nodes: Api<Node> = Api::all(self.lab.client().await.unwrap());
        nodes.get(name).await.unwrap()
    }

    pub(crate) async fn is_cordoned(&self, node: &str) -> bool {
        is_cordoned(&self.node(node).await)
    }

    /// What a namespaced API holds in `default`.
    pub(crate) async fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.lab.client().await.unwrap(), "default")
    }

    /// The nodes of the pods of an app, by name of the pod.
    pub(crate) async fn places(&self, app: &str) -> Vec<(String, String)> {
        let pods = self
            .api::<Pod>()
            .await
            .list(&ListParams::default().labels(&format!("app={app}")))
            .await
            .unwrap();
        let mut places: Vec<_> = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .map(|pod| (pod.name_any(), node_of(pod)))
            .collect();
        places.sort();
        places
    }

    /// Waits for something to be true of the pods in `default`.
    pub(crate) async fn pods_until<T>(&self, what: &str, look: impl Fn(&[Pod]) -> Option<T>) -> T {
        let pods = self.api::<Pod>().await;
        wait_until(what, PATIENCE, || async {
            let pods = pods.list(&ListParams::default()).await?.items;
            look(&pods).ok_or_else(|| NotYet(format!("{:?}", places(&pods))))
        })
        .await
        .unwrap()
    }

    /// Records from now on, for the judge. `selected` are the nodes that relocations are to empty.
    pub(crate) async fn record(&self, selected: &[&str]) -> Recording {
        // Not `relocator`: the judge tells the operator's requests by that.
        let client = self.lab.client_with_agent("relocator-judge").await.unwrap();
        let recorder = Recorder::start(client, RecorderOptions::default())
            .await
            .unwrap();
        let input = JudgeInput {
            start: Some(Timestamp::now()),
            selected_nodes: selected.iter().map(|&name| name.to_owned()).collect(),
            ..JudgeInput::default()
        };
        Recording { recorder, input }
    }
}

pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_relocator"))
}

pub(crate) fn is_cordoned(node: &Node) -> bool {
    node.spec
        .as_ref()
        .is_some_and(|spec| spec.unschedulable == Some(true))
}

pub(crate) fn node_of(pod: &Pod) -> String {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.clone())
        .unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}

fn places(pods: &[Pod]) -> Vec<String> {
    pods.iter()
        .map(|pod| {
            let leaving = pod.metadata.deletion_timestamp.is_some();
            format!(
                "{} on {:?}, ready {}, leaving {leaving}",
                pod.name_any(),
                node_of(pod),
                is_ready(pod)
            )
        })
        .collect()
}

/// A relocation that was asked for.
pub(crate) struct Story<'a> {
    world: &'a World,
    pub(crate) name: String,
    pub(crate) follower: Follower,
}

impl Story<'_> {
    /// The next state in that stage. The stage is seen even if it is over in a moment.
    pub(crate) async fn stage(&mut self, stage: &str) -> Relocation {
        self.follower.stage(stage, PATIENCE).await.unwrap()
    }

    /// The present state, or the next one, that is so.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        holds: impl Fn(&Relocation) -> bool,
    ) -> Relocation {
        match self.follower.last() {
            Some(now) if holds(&now) => now,
            _ => self.follower.next(what, PATIENCE, holds).await.unwrap(),
        }
    }

    /// It has a blocker of that reason, which this returns as `REASON OBJECT: MESSAGE`.
    pub(crate) async fn blocked(&mut self, reason: &str) -> String {
        let is_it = |blocker: &&String| blocker.starts_with(&format!("{reason} "));
        let what = format!("NodeRelocation {} to be blocked by {reason}", self.name);
        let seen = self
            .until(&what, |r| r.blockers.iter().any(|b| is_it(&b)))
            .await;
        seen.blockers.iter().find(is_it).unwrap().clone()
    }

    /// It ends well.
    pub(crate) async fn succeeds(&mut self) -> Relocation {
        let end = self.follower.over(PATIENCE).await.unwrap();
        assert!(end.ready, "{} ended so: {}", self.name, end.message);
        assert_eq!(end.stage, "Succeeded");
        end
    }

    /// Deletes it, as a person would, and waits until it is gone.
    pub(crate) async fn deleted(&mut self) {
        self.world
            .kubectl(&["delete", "noderelocation", &self.name, "--wait=false"])
            .await;
        self.follower.gone(PATIENCE).await.unwrap();
    }
}

/// The condition of a relocation: its status, its reason and its message.
pub(crate) fn condition(relocation: &Relocation, of: &str) -> Option<(String, String, String)> {
    let all = relocation.status["conditions"].as_array()?;
    let found = all.iter().find(|c| c["type"] == of)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

/// A recording under way.
pub(crate) struct Recording {
    recorder: Recorder,
    input: JudgeInput,
}

impl Recording {
    /// Nodes on which our cordon is meant to stay.
    pub(crate) fn stay_cordoned(mut self, nodes: &[&str]) -> Self {
        self.input.expected_cordons = nodes.iter().map(|&name| name.to_owned()).collect();
        self
    }

    pub(crate) fn so_far(&self) -> History {
        self.recorder.so_far()
    }

    /// Ends it and judges.
    pub(crate) async fn judge(self, world: &World) -> Verdict {
        let history = self.recorder.finish(&world.lab.audit_log()).await.unwrap();
        Verdict {
            card: Scorecard::of(&history, &self.input),
            history,
        }
    }
}

/// What the judge saw.
pub(crate) struct Verdict {
    pub(crate) history: History,
    pub(crate) card: Scorecard,
}

impl Verdict {
    /// No invariant is broken and nothing of ours is left: true of every run that is over, however it ended.
    #[track_caller]
    pub(crate) fn is_clean(&self) {
        assert_eq!(self.card.broken_invariants, Vec::<String>::new());
        assert_eq!(self.card.left_behind, Vec::<String>::new());
    }

    /// Each of so many pods was moved once, to where it could stay, and every workload is whole.
    #[track_caller]
    pub(crate) fn moved_once(&self, pods: u32) {
        let card = &self.card;
        let figures = (
            card.pods,
            card.moves,
            card.needless_moves,
            card.double_moves,
        );
        assert_eq!(
            figures,
            (pods, pods, 0, 0),
            "pods, moves, needless, double of {card:#?}"
        );
        assert!(card.finished, "{card:#?}");
    }

    /// The most pods of a workload (`default/Kind/name`) that were not Ready at once.
    #[track_caller]
    pub(crate) fn most_down(&self, workload: &str) -> u32 {
        let owner = self.card.owners.get(workload);
        owner
            .unwrap_or_else(|| panic!("no {workload} in {:#?}", self.card.owners))
            .most_unavailable
    }

    /// The operator's writes, its lease aside.
    pub(crate) fn writes(&self) -> Vec<&AuditEvent> {
        self.writes_between(self.history.started, self.history.ended)
    }

    pub(crate) fn writes_between(&self, from: Timestamp, to: Timestamp) -> Vec<&AuditEvent> {
        writes_between(&self.history, &Identity::relocator(), from, to)
    }

    /// When the relocation said that it had succeeded, every pod of a set that so many replicas make was Ready, on a node that exists.
    #[track_caller]
    pub(crate) fn whole_when_it_succeeded(&self, set: &str, replicas: usize) {
        let state = when_succeeded(&self.history);
        let nodes: Vec<_> = state.all(Kind::Node).map(|n| n.name.clone()).collect();
        let pods: Vec<_> = state
            .all(Kind::Pod)
            .filter(|p| p.namespace == "default" && p.name.starts_with(set))
            .collect();
        assert_eq!(pods.len(), replicas, "{pods:?}");
        for pod in pods {
            assert!(pod.is_ready_pod(), "{pod} when it succeeded");
            let node = pod.pod().unwrap().node.clone().unwrap_or_default();
            assert!(nodes.contains(&node), "{pod} on {node}, which is gone");
        }
    }

    /// The names of the pods whose evictions the API server granted, in their order.
    pub(crate) fn evicted(&self) -> Vec<String> {
        self.evictions().iter().map(|e| e.name.clone()).collect()
    }

    /// The evictions that the API server granted, in their order.
    pub(crate) fn evictions(&self) -> Vec<&AuditEvent> {
        let mut evictions = self.writes();
        evictions.retain(|e| e.is_eviction() && e.succeeded());
        evictions
    }
}

/// The cluster as it was when the relocation said that it had succeeded.
fn when_succeeded(history: &History) -> State {
    let mut state = State::default();
    for change in &history.changes {
        state.apply(change);
        let over = state.all(Kind::NodeRelocation).any(|r| {
            let Detail::Relocation { status, .. } = &r.detail else {
                return false;
            };
            !status["completionTime"].is_null()
        });
        if over {
            return state;
        }
    }
    panic!("it has not succeeded");
}

/// Whether a write is one that relocator may do before it has started: its own status, and events.
pub(crate) fn only_tells(write: &AuditEvent) -> bool {
    write.target() == "noderelocations/status" || write.resource == "events"
}

/// The writes that are more than that, in words.
pub(crate) fn deeds(writes: &[&AuditEvent]) -> Vec<String> {
    let deeds = writes.iter().filter(|write| !only_tells(write));
    deeds.map(ToString::to_string).collect()
}
