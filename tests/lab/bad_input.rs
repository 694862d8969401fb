//! What is asked for can't be done, or must not be: said at once, in words that help, and nothing is written.

use lab::fixtures;
use lab::programs::{self, Silent};

use crate::world::{World, condition, deeds};

/// Each of these is refused before anything is touched, or there is nothing to touch.
#[tokio::test(flavor = "multi_thread")]
async fn case_138_a_node_of_the_control_plane_and_what_else_cannot_be_done_is_told_and_not_touched()
{
    let world = World::start().await;
    for name in ["old-1", "old-2", "old-3"] {
        let node = fixtures::fake_node(name, "2", &[("group", "old")]);
        world.lab.put(&node).await.unwrap();
    }
    let master = [("node-role.kubernetes.io/control-plane", "")];
    let master = fixtures::fake_node("master", "2", &master);
    world.lab.put(&master).await.unwrap();
    // So that there would be something to move on each.
    let web = fixtures::deployment("web", 8);
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;
    let recording = world.record(&[]).await;

    // No node matches: there is nothing to do, and the message has what was asked for.
    let mut nowhere = world.relocate("nowhere", "{nodes: {names: [old-9]}}").await;
    let end = nowhere.succeeds().await;
    let (status, reason, message) = condition(&end, "Succeeded").unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("True", "NothingToDo"),
        "{message}"
    );
    assert!(message.contains("names [old-9]"), "{message}");

    // More nodes than the limit: never a silent cut to the first two of them.
    let limit = "{nodes: {selector: {matchLabels: {group: old}}, limit: 2}}";
    let mut too_many = world.relocate("too-many", limit).await;
    let said = too_many.blocked("TooManyNodes").await;
    assert!(said.contains("3 nodes match"), "{said}");
    assert!(said.contains("limit is 2"), "{said}");

    // Karpenter is not there, and what is asked for is a matter of Karpenter's. Each blocker names the field.
    let mut pool = world.relocate("pool", "{nodes: {nodePools: [apps]}}").await;
    let said = pool.blocked("KarpenterNotInstalled").await;
    assert!(said.contains("spec.nodes.nodePools"), "{said}");
    let drifted = "{nodes: {names: [old-1], state: Drifted}}";
    let mut drifted = world.relocate("drifted", drifted).await;
    let said = drifted.blocked("KarpenterNotInstalled").await;
    assert!(said.contains("spec.nodes.state"), "{said}");

    // A node of the control plane among others: named, and the others are not touched either.
    let mut control_plane = world
        .relocate("control-plane", "{nodes: {names: [master, old-1]}}")
        .await;
    let said = control_plane.blocked("ControlPlaneNode").await;
    assert!(said.contains("Node master"), "{said}");

    // All that are blocked say so in the conditions that tools look at.
    for story in [&too_many, &pool, &drifted, &control_plane] {
        let last = story.follower.last().unwrap();
        assert_eq!(last.stage, "Blocked", "{last:#?}");
        assert!(!last.is_over());
        assert_eq!(condition(&last, "Stalled").unwrap().0, "True");
        assert_eq!(last.blockers.len(), 1, "{:?}", last.blockers);
    }

    let verdict = recording.judge(&world).await;
    assert_eq!(
        deeds(&verdict.writes()),
        Vec::<String>::new(),
        "nothing but status and events is written"
    );
    let after = world.snapshot().await;
    assert_eq!(before.differences(&after), Vec::<String>::new());
    verdict.is_clean();
}

/// A misspelt pool in a cluster that has Karpenter's resources.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_node_pool_is_told_by_name() {
    let world = World::start().await;
    let built = tokio::task::spawn_blocking(|| programs::ensure(&Silent));
    let crds = built.await.unwrap().unwrap().karpenter_crds();
    let crds = crds.display().to_string();
    world
        .kubectl(&["apply", "--server-side", "--filename", &crds])
        .await;
    world
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=2m",
            "crd",
            "--all",
        ])
        .await;
    let _operator = world.operator().await;
    let recording = world.record(&[]).await;

    let mut story = world
        .relocate("misspelt", "{nodes: {nodePools: [aps]}}")
        .await;
    let said = story.blocked("UnknownNodePool").await;
    assert!(said.contains("NodePool aps"), "{said}");

    let verdict = recording.judge(&world).await;
    assert_eq!(deeds(&verdict.writes()), Vec::<String>::new());
}
