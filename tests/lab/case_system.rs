//! What the cluster itself lives on: kube-system moves one pod at a time, Karpenter and the operator move last.

use k8s_openapi::api::apps::v1::{Deployment, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lab::fixtures::{self, Pods};
use lab::judge::{Cause, Change, History, Kind, State};

use crate::world::World;

const NAME: &str = "app.kubernetes.io/name";

/// The cluster just before the first pod of a namespace was made for a move.
fn before_the_first_of(history: &History, namespace: &str) -> State {
    let mut state = State::default();
    let is_it = |c: &Change| {
        c.cause == Cause::Added && c.object.kind == Kind::Pod && c.object.namespace == namespace
    };
    for change in &history.changes {
        if is_it(change) {
            return state;
        }
        state.apply(change);
    }
    panic!("nothing in {namespace} has moved");
}

/// Pods of a namespace that are not Ready on a node of that name, which is none when all have arrived.
fn not_on(state: &State, namespace: &str, node: &str) -> Vec<String> {
    let pods = state.all(Kind::Pod).filter(|p| p.namespace == namespace);
    let elsewhere =
        pods.filter(|p| !p.is_ready_pod() || p.pod().unwrap().node.as_deref() != Some(node));
    elsewhere.map(|p| p.name.clone()).collect()
}

/// A node with everything on it: what moves, what makes the nodes for that, and what does the moving.
#[tokio::test(flavor = "multi_thread")]
async fn case_129_karpenter_and_the_operator_move_when_all_else_has_moved() {
    let world = World::start().await;
    world.nodes(&[("old", "8")]).await;
    for namespace in ["karpenter", "operators"] {
        world
            .lab
            .put(&fixtures::namespace(namespace))
            .await
            .unwrap();
    }
    let karpenter = fixtures::deployment("karpenter", 2)
        .in_namespace("karpenter")
        .label(NAME, "karpenter")
        .ready_after(1);
    let operator = fixtures::deployment("relocator", 1)
        .in_namespace("operators")
        .label(NAME, "relocator")
        .ready_after(1);
    for deployment in [karpenter, operator, fixtures::deployment("web", 4)] {
        world.lab.put(&deployment).await.unwrap();
    }
    let db = fixtures::stateful_set("db", 3).ready_after(1);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let what = "to say what Karpenter's Deployment waits for";
    story
        .until(what, |r| {
            r.message
                .contains("before Deployment karpenter/karpenter does: it is needed for that")
        })
        .await;
    let end = story.succeeds().await;
    assert_eq!(end.pods, "10/10");

    let verdict = recording.judge(&world).await;
    let history = &verdict.history;
    let karpenter = before_the_first_of(history, "karpenter");
    assert_eq!(not_on(&karpenter, "default", "spare"), Vec::<String>::new());
    let pending: Vec<_> = karpenter
        .all(Kind::Pod)
        .filter(|p| p.namespace == "relocator-placeholders")
        .filter(|p| p.pod().unwrap().node.is_none())
        .collect();
    assert!(pending.is_empty(), "{pending:?}");
    let operator = before_the_first_of(history, "operators");
    assert_eq!(
        not_on(&operator, "karpenter", "spare"),
        Vec::<String>::new()
    );
    // Never two of Karpenter's at once: there are never more than one too many.
    let mut state = State::default();
    for change in &history.changes {
        state.apply(change);
        let pods = state.all(Kind::Pod).filter(|p| p.namespace == "karpenter");
        assert!(pods.filter(|p| !p.terminating).count() <= 3);
    }
    verdict.moved_once(10);
    verdict.is_clean();
    assert_eq!(verdict.most_down("karpenter/Deployment/karpenter"), 0);
    assert_eq!(verdict.most_down("operators/Deployment/relocator"), 0);
}

/// A Deployment of kube-system that would let all its pods be missing at once, as careless as can be, and no budget.
fn careless(name: &str) -> Deployment {
    let mut deployment = fixtures::deployment(name, 2)
        .in_namespace("kube-system")
        .ready_after(1)
        .ends_after(1);
    let rolling = RollingUpdateDeployment {
        max_surge: Some(IntOrString::Int(2)),
        max_unavailable: Some(IntOrString::Int(2)),
    };
    let strategy = &mut deployment.spec.as_mut().unwrap().strategy;
    strategy.get_or_insert_default().rolling_update = Some(rolling);
    deployment
}

/// Both replicas of the cluster's DNS are on the old node, beside another system Deployment. There and back: by evictions, by what was
/// asked for and would take all at once, and by default.
#[tokio::test(flavor = "multi_thread")]
async fn case_130_no_two_pods_of_kube_system_are_down_at_once() {
    let world = World::start().await;
    world.nodes(&[("a", "8")]).await;
    for name in ["coredns", "metrics-server"] {
        world.lab.put(&careless(name)).await.unwrap();
    }
    world.settled().await;
    world.nodes(&[("b", "8")]).await;
    let _operator = world.operator().await;
    let ways = [
        ("evict", "Evict", "a", 1),
        ("restart", "RolloutRestart", "b", 0),
        ("auto", "Auto", "a", 0),
    ];
    for (name, strategy, from, down) in ways {
        let recording = world.record(&[from]).await;
        let spec = format!(
            "{{nodes: {{names: [{from}]}}, afterDrain: Uncordon, workloads: {{strategy: {strategy}}}}}"
        );
        let mut story = world.relocate(name, &spec).await;
        let end = story.succeeds().await;
        assert_eq!(end.pods, "4/4", "{strategy}");
        let verdict = recording.judge(&world).await;
        verdict.moved_once(4);
        verdict.is_clean();
        let mut state = State::default();
        let mut changes = verdict.history.changes.iter().peekable();
        while let Some(change) = changes.next() {
            state.apply(change);
            if changes.peek().is_some_and(|c| c.cause == Cause::Initial) {
                continue;
            }
            let pods = state
                .all(Kind::Pod)
                .filter(|p| p.namespace == "kube-system");
            let serving = pods.filter(|p| p.is_ready_pod()).count();
            assert!(serving + down >= 4, "{strategy}: {serving} of 4 serve");
        }
        for deployment in ["coredns", "metrics-server"] {
            let most = verdict.most_down(&format!("kube-system/Deployment/{deployment}"));
            assert!(most as usize <= down, "{strategy}: {deployment}");
        }
    }
}
