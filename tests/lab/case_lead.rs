//! A database whose operator, which is the story's, keeps a pod that leads, with budgets as `CloudNativePG` makes them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lab::fixtures::{self, Pods};
use serde_json::json;

use crate::beside::{Custom, again_and_again, beside, publish};
use crate::world::{World, is_cordoned, is_ready, node_of};

/// Source: `CloudNativePG`, "Labels and annotations".
const ROLE: &str = "cnpg.io/instanceRole";

/// Who sees to it that the lead passes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Switchover {
    /// The operator, when the node of the lead is cordoned and another pod is Ready on one that is not.
    AtCordon,
    /// A person.
    ByHand,
}

/// The operator of one Cluster.
struct Operator {
    clusters: Api<DynamicObject>,
    pods: Api<Pod>,
    nodes: Api<Node>,
    owner: OwnerReference,
    switchover: Switchover,
}

/// Its instances.
const INSTANCES: [&str; 3] = ["pg-1", "pg-2", "pg-3"];

impl Operator {
    /// A Cluster of three, the first of which leads, with both budgets.
    async fn start(world: &World, switchover: Switchover) -> Self {
        let kind = Custom::CLOUD_NATIVE_PG;
        kind.define(world).await;
        let owner = kind.create(world, "pg", &json!({"instances": 3})).await;
        let operator = Self {
            clusters: kind.api(world).await,
            pods: world.api().await,
            nodes: Api::all(world.lab.client().await.unwrap()),
            owner,
            switchover,
        };
        for name in INSTANCES {
            let role = if name == "pg-1" { "primary" } else { "replica" };
            world.lab.put(&operator.instance(name, role)).await.unwrap();
        }
        for (name, role) in [("pg-primary", "primary"), ("pg", "replica")] {
            let mut budget: PodDisruptionBudget = fixtures::min_available("pg", 1);
            budget.metadata.name = Some(name.to_owned());
            let labels = [("cnpg.io/cluster", "pg"), (ROLE, role)];
            let labels: BTreeMap<_, _> = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
            let selector = &mut budget.spec.as_mut().unwrap().selector;
            selector.as_mut().unwrap().match_labels = Some(labels);
            world.lab.put(&budget).await.unwrap();
        }
        operator
    }

    fn instance(&self, name: &str, role: &str) -> Pod {
        let pod = fixtures::bare_pod(name)
            .label("app", "pg")
            .label("cnpg.io/cluster", "pg");
        let mut pod = pod.label(ROLE, role).ready_after(1);
        pod.metadata.owner_references = Some(vec![self.owner.clone()]);
        pod
    }

    async fn look(&self) -> kube::Result<()> {
        let pods = self
            .pods
            .list(&ListParams::default().labels("app=pg"))
            .await?
            .items;
        for name in INSTANCES {
            if !pods.iter().any(|p| p.name_any() == name) {
                let made = self.instance(name, "replica");
                self.pods.create(&PostParams::default(), &made).await?;
            }
        }
        let serves = |p: &Pod| is_ready(p) && p.metadata.deletion_timestamp.is_none();
        if self.switchover == Switchover::AtCordon {
            let nodes = self.nodes.list(&ListParams::default()).await?;
            let closed = |p: &Pod| {
                nodes
                    .iter()
                    .any(|n| n.name_any() == node_of(p) && is_cordoned(n))
            };
            let lead = pods.iter().find(|p| leads(p));
            let next = pods.iter().find(|p| !leads(p) && serves(p) && !closed(p));
            if let (Some(lead), Some(next)) = (lead.filter(|p| closed(p)), next) {
                pass_on(&self.pods, &lead.name_any(), &next.name_any()).await?;
            }
        }
        let ready = pods.iter().filter(|p| serves(p)).count();
        let whole = ready == INSTANCES.len();
        let condition = json!({
            "type": "Ready", "status": if whole { "True" } else { "False" },
            "reason": if whole { "ClusterIsReady" } else { "ClusterIsNotReady" },
            "message": format!("{ready} of 3 instances ready"),
        });
        let cluster = self.clusters.get("pg").await?;
        publish(&self.clusters, &cluster, json!({"conditions": [condition]})).await
    }
}

fn leads(pod: &Pod) -> bool {
    pod.labels().get(ROLE).is_some_and(|role| role == "primary")
}

/// A switchover, as the labels tell it.
async fn pass_on(pods: &Api<Pod>, from: &str, to: &str) -> kube::Result<()> {
    for (name, role) in [(from, "replica"), (to, "primary")] {
        let role = Patch::Merge(json!({"metadata": {"labels": {ROLE: role}}}));
        pods.patch(name, &PatchParams::default(), &role).await?;
    }
    Ok(())
}

/// The three on one node, room on another, and the operator of relocator.
async fn database(world: &World, switchover: Switchover) -> Operator {
    world.nodes(&[("old", "4")]).await;
    let operator = Operator::start(world, switchover).await;
    let well = [
        "wait",
        "--for=condition=Ready",
        "--timeout=5m",
        "clusters.postgresql.cnpg.io/pg",
    ];
    beside(
        again_and_again(async || operator.look().await),
        world.kubectl(&well),
    )
    .await;
    world.nodes(&[("spare", "4")]).await;
    operator
}

/// Nobody passes the lead on. The plan says so beforehand, the replicas move, and then the lead is left where it is, never asked to go,
/// with the budget that keeps it named. When a person has switched over, it goes as the replica that it is.
#[tokio::test(flavor = "multi_thread")]
async fn case_64_a_lead_that_its_budget_keeps_is_named_and_left_until_it_leads_no_more() {
    let world = World::start().await;
    let postgres = database(&world, Switchover::ByHand).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let story = async {
        let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
        let stuck = story
            .until("the replicas to have moved and the lead to be named", |r| {
                r.pods == "2/3" && r.blockers.iter().any(|b| b.starts_with("PdbNeverAllows "))
            })
            .await;
        let said = stuck.blockers.join("\n");
        assert!(
            said.contains("PodDisruptionBudget default/pg-primary"),
            "{said}"
        );
        assert!(said.contains("default/pg-1, which leads"), "{said}");
        assert!(said.contains("switchover"), "{said}");
        let warned = stuck.status["warnings"].to_string();
        assert!(warned.contains("default/pg-primary"), "{warned}");
        pass_on(&postgres.pods, "pg-1", "pg-2").await.unwrap();
        let end = story.succeeds().await;
        assert_eq!(end.pods, "3/3");
    };
    beside(again_and_again(async || postgres.look().await), story).await;

    let verdict = recording.judge(&world).await;
    verdict.moved_once(3);
    verdict.is_clean();
    assert_eq!(verdict.evicted(), ["pg-2", "pg-3", "pg-1"]);
    assert_eq!(verdict.most_down("default/Cluster/pg"), 1);
}

/// The operator switches over by itself as soon as a replica serves on a node that is not cordoned: the lead passes on once, and there is
/// one at any time.
#[tokio::test(flavor = "multi_thread")]
async fn case_64_a_lead_that_passes_on_at_the_cordon_passes_on_once() {
    let world = World::start().await;
    let postgres = database(&world, Switchover::AtCordon).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let looks = again_and_again(async || postgres.look().await);
    let end = beside(looks, story.succeeds()).await;
    assert_eq!(end.pods, "3/3");

    let verdict = recording.judge(&world).await;
    verdict.moved_once(3);
    verdict.is_clean();
    let mut evicted = verdict.evicted();
    assert_eq!(evicted.remove(0), "pg-2");
    evicted.sort();
    assert_eq!(evicted, ["pg-1", "pg-3"]);
    assert_eq!(verdict.most_down("default/Cluster/pg"), 1);
    // Pods that led, in their order: the first one, and the one that the lead has passed to.
    let mut led: Vec<String> = Vec::new();
    for change in &verdict.history.changes {
        let object = &change.object;
        let is_lead = object
            .labels
            .get(ROLE)
            .is_some_and(|role| role == "primary");
        if is_lead && !led.contains(&object.name) {
            led.push(object.name.clone());
        }
    }
    assert_eq!(led, ["pg-1", "pg-2"]);
}
