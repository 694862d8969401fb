//! Relocations that go without their restore: what they have left is put back, by the operator and by hand, and nothing else is
//! touched.

use std::path::Path;
use std::process::Output;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use lab::fixtures::{self, Pods};
use lab::judge::ClusterState;
use lab::operator::Operator;
use lab::{NotYet, wait_until};

use crate::world::{PATIENCE, SCALE_DOWN_DISABLED, World, binary, is_ready, node_of};

const RELOCATIONS: [&str; 2] = ["stuck", "surge"];

/// Three nodes that are to be emptied. `old-1` is full with a database that fits nowhere else, `old-2` with half of a Deployment that
/// does, `old-3` with a cache that fits nowhere else. A person has cordoned `old-1` and protects `old-2` from Karpenter.
async fn a_world_that_others_have_touched() -> World {
    let world = World::start().await;
    world
        .nodes(&[("old-1", "10"), ("old-2", "2"), ("stays", "2")])
        .await;
    world.lab.put(&database("db", 2)).await.unwrap();
    world.settled().await;
    world.nodes(&[("old-3", "5")]).await;
    world.lab.put(&database("cache", 1)).await.unwrap();
    world.settled().await;
    // New pods are not Ready before the count has been seen, and long after.
    let web = fixtures::deployment("web", 4)
        .requests("1", "64Mi")
        .ready_after(8);
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    // For the placeholders of the Deployment and as many pods.
    world.nodes(&[("spare", "4")]).await;
    world.kubectl(&["cordon", "old-1"]).await;
    let protect = format!("{SCALE_DOWN_DISABLED}=true");
    world
        .kubectl(&["annotate", "node", "old-2", &protect])
        .await;
    world
}

/// Pods of five CPUs each.
fn database(name: &str, pods: i32) -> StatefulSet {
    fixtures::stateful_set(name, pods).requests("5", "64Mi")
}

async fn placeholders(world: &World, count: usize) {
    let what = format!("{count} placeholders");
    wait_until(&what, PATIENCE, || async {
        let all: Vec<Pod> = world.list().await;
        let there = all
            .iter()
            .filter(|pod| pod.namespace().as_deref() == Some("relocator-placeholders"));
        match there.count() {
            there if there == count => Ok(()),
            there => Err(NotYet(format!("there are {there}"))),
        }
    })
    .await
    .unwrap();
}

/// The Deployment has so many pods, all of them on a node, and so many of them Ready.
async fn web_has(world: &World, count: usize, ready: usize) {
    let what = format!("{count} pods of the Deployment, {ready} of them Ready");
    world
        .pods_until(&what, |pods| {
            let web = || pods.iter().filter(|p| p.name_any().starts_with("web-"));
            let placed = web().filter(|p| !node_of(p).is_empty()).count();
            let figures = (web().count(), placed, web().filter(|p| is_ready(p)).count());
            (figures == (count, count, ready)).then_some(())
        })
        .await;
}

/// As a person who does not know better would: the object is gone, and nothing was put back.
async fn tear_out(world: &World, name: &str) {
    let resource = format!("noderelocation/{name}");
    let without = r#"{"metadata":{"finalizers":null}}"#;
    world.kubectl(&["delete", &resource, "--wait=false"]).await;
    world
        .kubectl(&["patch", &resource, "--type=merge", "--patch", without])
        .await;
}

struct TornOut {
    /// How the cluster was before all relocations.
    at_first: ClusterState,
    /// How it was when there was only the one that stays.
    before: ClusterState,
    /// Of the killed operator. Another one of this identity need not wait until the lease runs out.
    identity: String,
}

impl TornOut {
    async fn operator(&self, world: &World) -> Operator {
        let mut operator = world.operator_as(&self.identity).await;
        operator.wait_leading(&world.lab).await.unwrap();
        operator
    }
}

/// One relocation waits for room, one is in a surge, and a third, which stays, waits for room as well; the operator is killed, and the
/// first two are torn out.
async fn torn_out(world: &World) -> TornOut {
    let at_first = world.snapshot().await;
    let mut operator = world.operator().await;
    let spec = "{nodes: {names: [old-3]}}";
    let mut stays = world.relocate("stays", spec).await;
    stays.stage("Provisioning").await;
    placeholders(world, 1).await;
    let before = world.snapshot().await;

    let mut stuck = world.relocate("stuck", "{nodes: {names: [old-1]}}").await;
    stuck.stage("Provisioning").await;
    placeholders(world, 3).await;
    let spec = "{nodes: {names: [old-2]}, workloads: {strategy: Surge}}";
    let mut surge = world.relocate("surge", spec).await;
    surge.stage("Moving").await;
    web_has(world, 6, 4).await;
    operator.process().kill().unwrap();

    for name in RELOCATIONS {
        tear_out(world, name).await;
    }
    stuck.follower.gone(PATIENCE).await.unwrap();
    surge.follower.gone(PATIENCE).await.unwrap();
    // Their placeholders go by themselves, by the garbage collector: what is left is what nobody else takes away.
    placeholders(world, 1).await;
    web_has(world, 6, 6).await;
    TornOut {
        at_first,
        before,
        identity: operator.identity().to_owned(),
    }
}

/// What differs, but for which pods of the Deployment are the four: that is the `ReplicaSet`'s choice.
async fn differences(world: &World, before: &ClusterState) -> Vec<String> {
    let mut differences = before.differences(&world.snapshot().await);
    differences.retain(|d| {
        !(d.starts_with("Pod default/web-") && (d.ends_with(": gone") || d.ends_with(": new")))
    });
    differences
}

async fn relocator(world: &World, kubeconfig: &Path, arguments: &[&str]) -> (Output, String) {
    let output = tokio::process::Command::new(binary())
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .current_dir(world.lab.dir())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!(
        "relocator {}\n{said}{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    (output, said)
}

/// `relocator sweep --dry-run` names everything, and nothing of the relocation that exists. Returns when it ran.
async fn dry_run_shows_all(world: &World) -> (Timestamp, Timestamp) {
    let before = world.snapshot().await;
    let from = Timestamp::now();
    let arguments = ["sweep", "--dry-run"];
    let (output, said) = relocator(world, &world.lab.kubeconfig(), &arguments).await;
    let to = Timestamp::now();
    assert_eq!(output.status.code(), Some(0));
    for (thing, of) in [
        // Cordoned by a person, so not by us.
        ("Node old-1: claim, scale-down-disabled", "stuck"),
        // Protected by a person, so not by us.
        ("Node old-2: claim, cordon", "surge"),
        ("Node spare: scale-down-disabled", "surge"),
        ("Pod default/db-0: do-not-disrupt", "stuck"),
        ("Pod default/db-1: do-not-disrupt", "stuck"),
    ] {
        let line = format!("would restore {thing}, of NodeRelocation {of} (UID ");
        assert!(said.contains(&line), "no {line} in\n{said}");
    }
    // The mark of a surge has no room for the name; that of the pods' cost tells it.
    let surge = "would restore Deployment default/web: surge, replicas back at 4, of NodeRelocation surge (UID ";
    assert!(said.contains(surge), "no {surge} in\n{said}");
    let costs = said
        .lines()
        .filter(|l| l.starts_with("would restore Pod default/web-") && l.contains("deletion cost"));
    assert_eq!(costs.count(), 2, "those on old-2, in\n{said}");
    assert!(!said.contains("old-3") && !said.contains("cache"), "{said}");
    assert!(
        said.ends_with("8 to restore; dry run, nothing was written\n"),
        "{said}"
    );
    assert_eq!(
        before.differences(&world.snapshot().await),
        Vec::<String>::new()
    );
    (from, to)
}

/// All as before, by whoever swept; the Deployment has kept its pods but for those that were to go.
async fn all_is_as_before(world: &World, before: &ClusterState) {
    wait_until("all to be as before", PATIENCE, || async {
        match differences(world, before).await {
            none if none.is_empty() => Ok(()),
            some => Err(NotYet(some.join("\n"))),
        }
    })
    .await
    .unwrap();
    web_has(world, 4, 4).await;
    assert_eq!(differences(world, before).await, Vec::<String>::new());
    let places = world.places("web").await;
    assert!(
        places.iter().all(|(_, node)| node != "old-2"),
        "the pods that were marked to go have gone: {places:?}"
    );
    assert!(world.is_cordoned("old-1").await, "cordoned by a person");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_puts_back_what_relocations_have_left_that_were_torn_out() {
    let world = a_world_that_others_have_touched().await;
    let recording = world.record(&["old-1", "old-2", "old-3"]).await;
    let torn_out = torn_out(&world).await;
    let (from, to) = dry_run_shows_all(&world).await;

    let _operator = torn_out.operator(&world).await;
    all_is_as_before(&world, &torn_out.before).await;
    let events: Vec<Event> = world.list().await;
    for node in ["old-1", "old-2"] {
        let told = events.iter().any(|e| {
            let on = e.regarding.as_ref().and_then(|o| o.name.as_deref());
            on == Some(node)
                && e.action.as_deref() == Some("Sweep")
                && e.note
                    .as_ref()
                    .is_some_and(|n| n.contains("which exists no more"))
        });
        assert!(told, "an event on {node}: {events:#?}");
    }

    // The third one has been waiting all the time, and is ended as ever.
    tear_down(&world).await;
    assert_eq!(
        differences(&world, &torn_out.at_first).await,
        Vec::<String>::new()
    );
    let verdict = recording.judge(&world).await;
    let written = verdict.writes_between(from, to);
    assert!(written.is_empty(), "by a dry run: {written:?}");
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);
    verdict.is_clean();
}

async fn tear_down(world: &World) {
    world
        .kubectl(&["delete", "noderelocation/stays", "--timeout=2m"])
        .await;
    placeholders(world, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_hand_it_puts_back_the_same_and_says_what_it_may_not() {
    let world = a_world_that_others_have_touched().await;
    let recording = world.record(&["old-1", "old-2", "old-3"]).await;
    let torn_out = torn_out(&world).await;
    let (from, to) = dry_run_shows_all(&world).await;

    // Somebody who may not even look, and somebody who may look and no more.
    for name in ["stranger", "viewer"] {
        world.kubectl(&["create", "serviceaccount", name]).await;
    }
    let resources =
        "--resource=nodes,pods,deployments.apps,replicasets.apps,noderelocations.relocation.sh";
    world
        .kubectl(&[
            "create",
            "clusterrole",
            "look",
            "--verb=get,list",
            resources,
        ])
        .await;
    let binding = [
        "create",
        "clusterrolebinding",
        "look",
        "--clusterrole=look",
        "--serviceaccount=default:viewer",
    ];
    world.kubectl(&binding).await;
    let left = world.snapshot().await;
    let stranger = world
        .lab
        .kubeconfig_for_service_account("default", "stranger");
    let (output, said) = relocator(&world, &stranger.await.unwrap(), &["sweep"]).await;
    assert_eq!((output.status.code(), said.as_str()), (Some(1), ""));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("cannot list resource \"nodes\""), "{error}");
    let viewer = world
        .lab
        .kubeconfig_for_service_account("default", "viewer");
    let (output, said) = relocator(&world, &viewer.await.unwrap(), &["sweep"]).await;
    assert_eq!(output.status.code(), Some(1));
    let refused = |thing: &str, verb: &str| {
        let mut lines = said.lines();
        let is_it = |l: &&str| l.starts_with(&format!("not restored {thing}")) && l.contains(verb);
        assert!(lines.any(|l| is_it(&l)), "{thing}: {verb} in\n{said}");
    };
    refused("Node old-1: ", "cannot patch resource \"nodes\"");
    refused("Pod default/db-0: ", "cannot patch resource \"pods\"");
    refused(
        "Deployment default/web: ",
        "cannot patch resource \"deployments\"",
    );
    assert_eq!(
        left.differences(&world.snapshot().await),
        Vec::<String>::new()
    );

    let (output, said) = relocator(&world, &world.lab.kubeconfig(), &["sweep"]).await;
    assert_eq!(output.status.code(), Some(0));
    for thing in [
        "Node old-1: claim, scale-down-disabled, of ",
        "Node old-2: claim, cordon, of ",
        "Pod default/db-0: do-not-disrupt, of ",
        "Pod default/db-1: do-not-disrupt, of ",
        "Deployment default/web: surge, replicas back at 4, of ",
    ] {
        assert!(
            said.contains(&format!("restored {thing}")),
            "{thing} in\n{said}"
        );
    }
    all_is_as_before(&world, &torn_out.before).await;
    let again_from = Timestamp::now();
    let (output, said) = relocator(&world, &world.lab.kubeconfig(), &["sweep"]).await;
    let again_to = Timestamp::now();
    assert_eq!(output.status.code(), Some(0));
    assert!(said.starts_with("nothing to restore"), "{said}");

    let _operator = torn_out.operator(&world).await;
    tear_down(&world).await;
    assert_eq!(
        differences(&world, &torn_out.at_first).await,
        Vec::<String>::new()
    );
    let verdict = recording.judge(&world).await;
    for (from, to) in [(from, to), (again_from, again_to)] {
        let written = verdict.writes_between(from, to);
        assert!(written.is_empty(), "{written:?}");
    }
    assert_eq!(verdict.most_down("default/Deployment/web"), 0);
    verdict.is_clean();
}

/// With the definition all relocations are gone. That there are none is then known, not unknown.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_definition_is_deleted_all_is_put_back() {
    let world = World::start().await;
    world.nodes(&[("old-1", "1")]).await;
    let db = fixtures::stateful_set("db", 1).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    let before = world.snapshot().await;
    let mut operator = world.operator().await;
    let mut story = world.relocate("move", "{nodes: {names: [old-1]}}").await;
    story.stage("Provisioning").await;
    placeholders(&world, 1).await;
    operator.process().kill().unwrap();
    tear_out(&world, "move").await;
    story.follower.gone(PATIENCE).await.unwrap();
    drop(story);
    let definition = "customresourcedefinition/noderelocations.relocation.sh";
    world.kubectl(&["delete", definition, "--timeout=1m"]).await;

    // The group goes from the discovery a moment after the definition. Until then the sweep knows nothing, and does nothing.
    let kubeconfig = world.lab.kubeconfig();
    wait_until("the group to be served no more", PATIENCE, || async {
        match world.kubectl(&["get", "--raw", "/apis"]).await {
            served if served.contains("\"relocation.sh\"") => Err(NotYet::because("it is")),
            _ => Ok(()),
        }
    })
    .await
    .unwrap();
    let (output, said) = relocator(&world, &kubeconfig, &["sweep"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(
        said.contains(
            "restored Node old-1: claim, scale-down-disabled, cordon, of NodeRelocation move (UID "
        ),
        "{said}"
    );
    // The garbage collector finds no owner to ask for any more, and would leave the placeholder for ever.
    placeholders(&world, 0).await;
    assert_eq!(
        before.differences(&world.snapshot().await),
        Vec::<String>::new()
    );
}
