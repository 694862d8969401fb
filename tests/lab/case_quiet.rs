//! What does not change is not written, and what is said to be done is done.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use lab::fixtures::{self, Pods};
use lab::judge::AuditEvent;
use lab::{LabOptions, NotYet, wait_until};
use serde_json::json;

use crate::world::{PATIENCE, World, condition};

/// Waits until the operator has renewed its lease so many times, which it does every ten seconds: a time in which it has had the chance
/// to do anything that it does by itself.
async fn lease_renewed(world: &World, times: usize) {
    let leases: Api<Lease> = Api::namespaced(world.lab.client().await.unwrap(), "relocator-system");
    let renewed = async || {
        let lease = leases.get("relocator").await?;
        Ok::<_, kube::Error>(lease.spec.and_then(|spec| spec.renew_time))
    };
    for _ in 0..times {
        let before = renewed().await.unwrap();
        wait_until("the lease to be renewed", PATIENCE, || async {
            let now = renewed().await?;
            (now != before)
                .then_some(())
                .ok_or_else(|| NotYet::because("it is not"))
        })
        .await
        .unwrap();
    }
}

/// Changes something of the object that is nobody's business: the operator hears of it, and looks at everything.
async fn poke<K>(api: &Api<K>, name: &str, n: usize)
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let patch = json!({"metadata": {"annotations": {"example.com/poked": n.to_string()}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// The order in which stages follow each other.
const STAGES: [&str; 9] = [
    "Planning",
    "Protecting",
    "Cordoning",
    "Provisioning",
    "Moving",
    "Draining",
    "Removing",
    "Restoring",
    "Succeeded",
];

/// One relocation is blocked, another waits for room, and the operator hears of changes all the time: it writes nothing, until something
/// changes that matters. Then each goes through its stages, and through none twice.
#[tokio::test(flavor = "multi_thread")]
async fn case_132_nothing_is_written_while_nothing_changes() {
    let world = World::start().await;
    world.nodes(&[("old-1", "2")]).await;
    let db = fixtures::stateful_set("db", 2).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("old-2", "2")]).await;
    let legacy = fixtures::bare_pod("legacy").requests("1", "64Mi");
    world.lab.put(&legacy).await.unwrap();
    let web = fixtures::deployment("web", 1).requests("1", "64Mi");
    world.lab.put(&web).await.unwrap();
    world.settled().await;
    let _operator = world.operator().await;
    let nodes = ["old-1", "old-2"];
    let recording = world.record(&nodes).await.stay_cordoned(&nodes);

    let mut blocked = world.relocate("blocked", "{nodes: {names: [old-2]}}").await;
    blocked.blocked("UnmanagedPod").await;
    let mut waiting = world.relocate("waiting", "{nodes: {names: [old-1]}}").await;
    let what = "the scheduler to have said why there is no place";
    waiting
        .until(what, |r| r.message.contains("Insufficient cpu"))
        .await;
    lease_renewed(&world, 1).await;
    let quiet = Timestamp::now();
    let nodes = Api::<Node>::all(world.lab.client().await.unwrap());
    let pods = world.api::<Pod>().await;
    // The first is selected and holds up nothing, the second is on it, the third is what blocks.
    for n in 0..4 {
        poke(&nodes, "old-1", n).await;
        poke(&pods, "db-0", n).await;
        poke(&pods, "legacy", n).await;
        lease_renewed(&world, 1).await;
    }
    let loud = Timestamp::now();

    world.kubectl(&["delete", "pod", "legacy"]).await;
    world.nodes(&[("spare", "4")]).await;
    blocked.succeeds().await;
    waiting.succeeds().await;
    let stages = blocked.follower.stages();
    assert_eq!(stages[..2], ["Blocked", "Planning"], "{stages:?}");
    for stages in [&stages[1..], &waiting.follower.stages()] {
        let order: Vec<_> = stages
            .iter()
            .filter(|stage| !stage.is_empty())
            .map(|stage| STAGES.iter().position(|s| s == stage).unwrap())
            .collect();
        assert!(order.is_sorted_by(|a, b| a < b), "{stages:?}");
    }
    let verdict = recording.judge(&world).await;
    let written: Vec<_> = verdict
        .writes_between(quiet, loud)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(written, Vec::<String>::new());
    // The one that plans again and again has to ask for what it does not watch; nothing else is asked.
    let mut asked: Vec<_> = verdict
        .history
        .audit
        .iter()
        .filter(|e| (quiet..=loud).contains(&e.at) && e.agent() == "relocator")
        .filter(|e| !e.is_lease() && e.verb != "watch" && !e.resource.is_empty())
        .map(|e| format!("{} {}", e.verb, e.resource))
        .collect();
    asked.sort();
    asked.dedup();
    assert_eq!(asked, ["get namespaces", "get priorityclasses"]);
    let card = &verdict.card;
    let moves = (card.moves, card.needless_moves, card.double_moves);
    assert_eq!(moves, (3, 0, 0), "{card:#?}");
    verdict.is_clean();
}

/// The old node has been seen empty, and a volume is still attached to it, when somebody puts a pod there past the scheduler. The node is
/// not removed with it; and once it has gone, two reads of the API server itself show an empty node before the removal is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn case_133_a_node_is_removed_after_two_reads_that_show_it_empty() {
    let world = World::with_karpenter(LabOptions::default()).await;
    fixtures::apply_node_pool(&world.lab).await.unwrap();
    let db = fixtures::stateful_set("db", 2)
        .requests("1", "64Mi")
        .on_nodes("NodeGroupName", "apps");
    world.lab.put(&db).await.unwrap();
    world.lab.put(&fixtures::daemon_set("agent")).await.unwrap();
    world.settled().await;
    let old: Vec<Node> = world.list().await;
    let [old] = &old[..] else {
        panic!("one node has room for both: {old:?}");
    };
    let old = old.name_any();
    let attachment = format!(
        "{{apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, metadata: {{name: disk}}, \
         spec: {{attacher: csi.example.com, nodeName: {old}, source: {{persistentVolumeName: disk}}}}}}"
    );
    world.lab.apply(&attachment).await.unwrap();
    let _operator = world.operator().await;
    let recording = world.record(&[&old]).await;

    let mut story = world.relocate("move", "{nodes: {nodePools: [apps]}}").await;
    let what = "the volume to be waited for";
    story
        .until(what, |r| r.message.contains("1 volumes to detach"))
        .await;
    let mut straggler = fixtures::bare_pod("straggler");
    straggler.spec.as_mut().unwrap().node_name = Some(old.clone());
    world.lab.put(&straggler).await.unwrap();
    world.kubectl(&["delete", "volumeattachment", "disk"]).await;
    let said = story.blocked("UnmanagedPod").await;
    assert!(said.contains("Pod default/straggler"), "{said}");
    let blocked = story
        .until("no more to be done", |r| r.stage == "Blocked")
        .await;
    assert_eq!(condition(&blocked, "Succeeded").unwrap().0, "Unknown");
    world.kubectl(&["delete", "pod", "straggler"]).await;
    story.succeeds().await;

    let verdict = recording.judge(&world).await;
    verdict.is_clean();
    assert_eq!(verdict.card.moves, 2, "{:#?}", verdict.card);
    let audit = &verdict.history.audit;
    let is_delete = |e: &&AuditEvent| e.verb == "delete" && e.succeeded();
    // Whoever has taken it away last: kubectl asks for it, the kubelet ends it.
    let gone = audit
        .iter()
        .filter(is_delete)
        .filter(|e| e.target() == "pods" && e.name == "straggler")
        .map(|e| e.done)
        .max()
        .unwrap();
    let writes = verdict.writes();
    let removals: Vec<_> = writes
        .iter()
        .filter(|e| is_delete(e) && e.resource == "nodeclaims")
        .collect();
    let [removal] = removals[..] else {
        panic!("one node was to be removed: {removals:?}");
    };
    let of_node = format!("fieldSelector=spec.nodeName%3D{old}");
    let reads: Vec<_> = audit
        .iter()
        .filter(|e| e.agent() == "relocator" && e.verb == "list" && e.succeeded())
        .filter(|e| e.at >= gone && e.done <= removal.at)
        .collect();
    let pods = reads.iter().filter(|e| e.uri.contains(&of_node));
    assert_eq!(pods.count(), 2, "{reads:#?}");
    let attachments = reads.iter().filter(|e| e.resource == "volumeattachments");
    assert!(attachments.count() >= 1, "{reads:#?}");
    // A list with a resourceVersion may come from the API server's cache; one without is of what is stored.
    for read in &reads {
        assert!(!read.uri.contains("resourceVersion"), "{}", read.uri);
    }
}
