//! Karpenter before v1: its objects have other versions, names and annotations. The old programs do not run with this Kubernetes, so that
//! the story does what one would do for a node that it is told to remove.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use lab::fixtures::Pods;
use lab::judge::{History, Kind};
use lab::{NotYet, fixtures, wait_until};
use serde_json::json;

use crate::world::{DO_NOT_DISRUPT, PATIENCE, SCALE_DOWN_DISABLED, World};

const DO_NOT_EVICT: &str = "karpenter.sh/do-not-evict";
const DO_NOT_CONSOLIDATE: &str = "karpenter.sh/do-not-consolidate";
const GUARDS: [&str; 4] = [
    DO_NOT_DISRUPT,
    DO_NOT_EVICT,
    DO_NOT_CONSOLIDATE,
    SCALE_DOWN_DISABLED,
];

/// A generation of Karpenter.
struct Generation {
    version: &'static str,
    definitions: &'static str,
    /// Kind and plural.
    claim: (&'static str, &'static str),
    pool: (&'static str, &'static str),
    /// The label of its nodes that names the pool.
    label: &'static str,
    drifted: &'static str,
}

const V1ALPHA5: Generation = Generation {
    version: "v1alpha5",
    definitions: fixtures::KARPENTER_V1ALPHA5,
    claim: ("Machine", "machines"),
    pool: ("Provisioner", "provisioners"),
    label: "karpenter.sh/provisioner-name",
    drifted: "MachineDrifted",
};

const V1BETA1: Generation = Generation {
    version: "v1beta1",
    definitions: fixtures::KARPENTER_V1BETA1,
    claim: ("NodeClaim", "nodeclaims"),
    pool: ("NodePool", "nodepools"),
    label: "karpenter.sh/nodepool",
    drifted: "Drifted",
};

impl Generation {
    async fn define(&self, world: &World) {
        world.lab.apply(self.definitions).await.unwrap();
        for (_, plural) in [self.claim, self.pool] {
            let name = format!("crd/{plural}.karpenter.sh");
            world
                .kubectl(&["wait", "--for=condition=established", &name])
                .await;
        }
        let pool = json!({
            "apiVersion": format!("karpenter.sh/{}", self.version), "kind": self.pool.0,
            "metadata": {"name": "apps"}, "spec": {},
        });
        world.lab.apply(&pool.to_string()).await.unwrap();
    }

    async fn claims(&self, world: &World) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("karpenter.sh", self.version, self.claim.0);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.claim.1);
        Api::all_with(world.lab.client().await.unwrap(), &resource)
    }

    /// A node as Karpenter makes it, with what stands for it.
    async fn node(&self, world: &World, name: &str, cpu: &str, drifted: bool) {
        let labels = [(self.label, "apps"), ("karpenter.sh/initialized", "true")];
        let node = fixtures::fake_node(name, cpu, &labels);
        world.lab.put(&node).await.unwrap();
        fixtures::wait_node_ready(&world.lab, name).await.unwrap();
        let claim = json!({
            "apiVersion": format!("karpenter.sh/{}", self.version), "kind": self.claim.0,
            "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"]}, "spec": {},
        });
        world.lab.apply(&claim.to_string()).await.unwrap();
        let status = json!({"status": {"nodeName": name, "conditions": [
            {"type": self.drifted, "status": if drifted { "True" } else { "False" }},
        ]}});
        let claims = self.claims(world).await;
        let status = Patch::Merge(status);
        claims
            .patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }

    /// When the claim is being deleted, ends the node, as Karpenter would.
    async fn removes(&self, world: &World, name: &str) {
        let claims = self.claims(world).await;
        let what = format!("the {} of {name} to be deleted", self.claim.0);
        wait_until(&what, PATIENCE, || async {
            let claim = claims.get(name).await?;
            let deleted = claim.metadata.deletion_timestamp.is_some();
            deleted
                .then_some(())
                .ok_or_else(|| NotYet("it is not".to_owned()))
        })
        .await
        .unwrap();
        let nodes: Api<Node> = Api::all(world.lab.client().await.unwrap());
        nodes.delete(name, &DeleteParams::default()).await.unwrap();
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        claims
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

/// Which of the annotations an object has had at any time.
fn guards_of(history: &History, kind: Kind, name: &str) -> BTreeSet<&'static str> {
    let objects = history.changes.iter().map(|c| &c.object);
    let of_name = objects.filter(|o| o.kind == kind && o.name == name);
    let had = of_name.flat_map(|o| o.annotations.keys());
    let had: BTreeSet<&str> = had.map(String::as_str).collect();
    GUARDS.into_iter().filter(|key| had.contains(key)).collect()
}

/// A database on a drifted node, to one that has not drifted.
async fn relocates<const N: usize, const P: usize>(
    generation: Generation,
    node: [&'static str; N],
    pod: [&'static str; P],
) {
    let world = World::start().await;
    generation.define(&world).await;
    generation.node(&world, "old", "2", true).await;
    let db = fixtures::stateful_set("db", 2).requests("1", "64Mi");
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    generation.node(&world, "new", "2", false).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await;

    let spec = "{nodes: {nodePools: [apps], state: Drifted}}";
    let mut story = world.relocate("older", spec).await;
    generation.removes(&world, "old").await;
    let end = story.succeeds().await;
    assert_eq!((end.nodes.as_str(), end.pods.as_str()), ("1/1", "2/2"));

    let verdict = recording.judge(&world).await;
    verdict.moved_once(2);
    for name in ["old", "new"] {
        let set = guards_of(&verdict.history, Kind::Node, name);
        assert_eq!(set, BTreeSet::from(node), "{name}");
    }
    for name in ["db-0", "db-1"] {
        let set = guards_of(&verdict.history, Kind::Pod, name);
        assert_eq!(set, BTreeSet::from(pod), "{name}");
    }
    // The one that has not drifted is as it was.
    let claims = generation.claims(&world).await;
    let left = claims.list(&ListParams::default()).await.unwrap();
    let left: Vec<_> = left
        .iter()
        .filter_map(|c| c.metadata.name.clone())
        .collect();
    assert_eq!(left, ["new"]);
    verdict.is_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn case_112_karpenter_of_v1alpha5_gets_both_keys_and_loses_its_machine() {
    relocates(
        V1ALPHA5,
        [DO_NOT_CONSOLIDATE, DO_NOT_DISRUPT],
        [DO_NOT_DISRUPT, DO_NOT_EVICT],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_112_karpenter_of_v1beta1_gets_do_not_disrupt_and_loses_its_node_claim() {
    relocates(V1BETA1, [DO_NOT_DISRUPT], [DO_NOT_DISRUPT]).await;
}
