//! A relocation that is held in a stage, by something that a cluster may well have: a policy that denies one request, no room, an
//! attached volume. So there is no race for a stage that is over in a moment, and half of its work is done.

use std::ops::Range;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use lab::fixtures::{self, Pods};
use lab::judge::{ClusterState, Kind};
use lab::operator::Relocation;
use lab::{NotYet, wait_until};
use serde_json::{Value, json};

use crate::shared::{HOLD, Shared};
use crate::world::{DO_NOT_DISRUPT, PATIENCE, SCALE_DOWN_DISABLED, Story, is_ready};

/// Where the relocation is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Two nodes are claimed, the third can't be.
    Protecting,
    /// One node was cordoned before, one by us, the third can't be.
    Cordoning,
    /// There are placeholders, and no room for them.
    Provisioning,
    /// Three pods have moved, the fourth can't be evicted.
    Moving,
    /// All pods have moved, and a volume is still attached to a node.
    Draining,
    /// The nodes are empty, and their `NodeClaim`s can't be deleted.
    Removing,
}

/// A database of three and a session server of one on three full nodes. Somebody has cordoned node a, somebody has protected node b from
/// Karpenter, and the session server is protected by its owner.
pub(crate) struct Case<'a> {
    pub(crate) shared: &'a Shared,
    /// Of the relocation, of the namespace, and at the beginning of all other names.
    pub(crate) name: String,
    /// Where it is held, one after the other.
    pub(crate) holds: Vec<Stage>,
}

/// The selected nodes by the ends of their names, and how many pods of one CPU fill each.
pub(crate) const NODES: [(&str, &str); 3] = [("a", "2"), ("b", "1"), ("c", "1")];

impl<'a> Case<'a> {
    pub(crate) fn called(&self, end: &str) -> String {
        format!("{}-{end}", self.name)
    }

    fn is_held_in(&self, stage: Stage) -> bool {
        self.holds.contains(&stage)
    }

    fn hold_of_node_c(&self) -> Option<&'static str> {
        let holds = [(Stage::Protecting, "claim"), (Stage::Cordoning, "cordon")];
        let first = holds.into_iter().find(|(stage, _)| self.is_held_in(*stage));
        first.map(|(_, hold)| hold)
    }

    async fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all(self.shared.world.lab.client().await.unwrap())
    }

    pub(crate) async fn dynamic(&self, kind: Kind) -> Api<DynamicObject> {
        let client = self.shared.world.lab.client().await.unwrap();
        Api::all_with(client, &kind.api_resource())
    }

    pub(crate) async fn set_up(&self) {
        let lab = &self.shared.world.lab;
        // Nothing of the other stories fits here, and nothing of this one elsewhere.
        let room = ("room", self.name.as_str());
        for (end, cpu) in NODES {
            let holds = self.hold_of_node_c().filter(|_| end == "c");
            let labels: Vec<_> = [room].into_iter().chain(holds.map(|h| (HOLD, h))).collect();
            self.node(end, cpu, &labels).await;
        }
        let mut namespace = fixtures::namespace(&self.name);
        if self.is_held_in(Stage::Moving) {
            let hold = [(HOLD.to_owned(), "evict".to_owned())];
            namespace.metadata.labels = Some(hold.into());
        }
        lab.put(&namespace).await.unwrap();
        let db = fixtures::stateful_set(&self.called("db"), 3);
        let db = db.in_namespace(&self.name).on_nodes(room.0, room.1);
        let mut db = db.requests("1", "64Mi");
        let spec = db.spec.as_mut().unwrap();
        spec.pod_management_policy = Some("Parallel".to_owned());
        lab.put(&db).await.unwrap();
        let web = fixtures::deployment(&self.called("web"), 1);
        let web = web.in_namespace(&self.name).on_nodes(room.0, room.1);
        let web = web.requests("1", "64Mi").annotate(DO_NOT_DISRUPT, "true");
        lab.put(&web).await.unwrap();
        self.whole().await;
        if self.is_held_in(Stage::Provisioning) {
            // A node that they could run on, were there any room on it: without one nothing would begin.
            self.node("full", "0", &[room]).await;
        } else {
            self.spare().await;
        }
        if self.is_held_in(Stage::Draining) {
            let attachment = json!({
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": self.name},
                "spec": {"attacher": "lab", "nodeName": self.called("a"), "source": {"persistentVolumeName": self.name}},
            });
            let attachment: VolumeAttachment = serde_json::from_value(attachment).unwrap();
            lab.put(&attachment).await.unwrap();
        }
        if self.is_held_in(Stage::Removing) {
            for (end, _) in NODES {
                self.node_claim(end).await;
            }
        }
        let patch = json!({"spec": {"unschedulable": true}});
        self.patch_node("a", &patch).await;
        let patch = json!({"metadata": {"annotations": {SCALE_DOWN_DISABLED: "true"}}});
        self.patch_node("b", &patch).await;
    }

    async fn node(&self, end: &str, cpu: &str, labels: &[(&str, &str)]) {
        let lab = &self.shared.world.lab;
        let node = fixtures::fake_node(&self.called(end), cpu, labels);
        lab.put(&node).await.unwrap();
        fixtures::wait_node_ready(lab, &self.called(end))
            .await
            .unwrap();
    }

    /// Room for all.
    async fn spare(&self) {
        self.node("spare", "4", &[("room", &self.name)]).await;
    }

    /// As Karpenter makes it for a node that has registered.
    async fn node_claim(&self, end: &str) {
        let name = self.called(end);
        let claim = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {HOLD: "delete"}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [],
            },
        });
        self.shared
            .world
            .lab
            .apply(&claim.to_string())
            .await
            .unwrap();
        let status = json!({"status": {"nodeName": name}});
        let claims = self.dynamic(Kind::NodeClaim).await;
        claims
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    async fn patch_node(&self, end: &str, patch: &Value) {
        let nodes = self.dynamic(Kind::Node).await;
        nodes
            .patch(
                &self.called(end),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await
            .unwrap();
    }

    /// All four pods are there and Ready, and none is on its way out.
    pub(crate) async fn whole(&self) {
        let client = self.shared.world.lab.client().await.unwrap();
        let pods: Api<Pod> = Api::namespaced(client, &self.name);
        wait_until("four pods to be Ready", PATIENCE, || async {
            let pods = pods.list(&ListParams::default()).await?.items;
            let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod);
            if pods.len() == 4 && pods.iter().all(stays) {
                return Ok(());
            }
            let seen = pods.iter().map(|p| (p.name_any(), stays(p)));
            Err(NotYet(format!("{:?}", seen.collect::<Vec<_>>())))
        })
        .await
        .unwrap();
    }

    pub(crate) async fn snapshot(&self) -> ClusterState {
        self.shared.world.snapshot().await
    }

    pub(crate) async fn relocate(&self) -> Story<'a> {
        let names: Vec<_> = NODES.iter().map(|(end, _)| self.called(end)).collect();
        // With a NodeClaim, emptied nodes go. Otherwise they take pods again, so that at the right end they are as they were, too.
        let after = if self.is_held_in(Stage::Removing) {
            "Delete"
        } else {
            "Uncordon"
        };
        // By evictions, which leave no trace in a Deployment, as a restart does.
        let spec = format!(
            "{{nodes: {{names: [{}]}}, workloads: {{strategy: Evict}}, afterDrain: {after}}}",
            names.join(", ")
        );
        self.shared.world.relocate(&self.name, &spec).await
    }

    /// Waits until it can go no further, with all done that can be done in the stage.
    pub(crate) async fn held(&self, story: &mut Story<'_>, stage: Stage) {
        let what = format!("{} to be held in {stage:?}", self.name);
        story.until(&what, |r| self.is_held(r, stage)).await;
        if stage == Stage::Provisioning {
            // What is wanted is recorded before it is made.
            self.placeholders(4).await;
        }
    }

    fn is_held(&self, relocation: &Relocation, stage: Stage) -> bool {
        let stages: Vec<_> = relocation.status["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|node| node["stage"].as_str())
            .collect();
        let here = |node: &&str| *node == format!("{stage:?}");
        let blocked_by = |reason: &str, object: String| {
            let start = format!("{reason} {object}: ");
            relocation.blockers.iter().any(|b| b.starts_with(&start))
        };
        match stage {
            Stage::Protecting | Stage::Cordoning => {
                let node = format!("Node {}", self.called("c"));
                stages.iter().all(here) && blocked_by("RequestFails", node)
            }
            Stage::Provisioning => {
                let wanted = &relocation.status["replacement"]["placeholdersWanted"];
                stages.iter().all(here) && *wanted == 4
            }
            Stage::Moving => {
                let pod = format!("Pod {}/{}-0", self.name, self.called("db"));
                relocation.pods == "3/4" && blocked_by("EvictionDenied", pod)
            }
            Stage::Draining => {
                let waits = format!("1 volumes to detach from node {}", self.called("a"));
                let only_a = stages.iter().filter(|node| here(node)).count() == 1;
                only_a && relocation.message.contains(&waits)
            }
            Stage::Removing => NODES.iter().all(|(end, _)| {
                blocked_by("RequestFails", format!("NodeClaim {}", self.called(end)))
            }),
        }
    }

    async fn placeholders(&self, count: usize) {
        let client = self.shared.world.lab.client().await.unwrap();
        let pods: Api<Pod> = Api::namespaced(client, "relocator-placeholders");
        wait_until("its placeholders", PATIENCE, || async {
            let pods = pods.list(&ListParams::default()).await?.items;
            let ours = pods.iter().filter(|p| p.name_any().starts_with(&self.name));
            match ours.count() {
                have if have == count => Ok(()),
                have => Err(NotYet(format!("{have} of {count}"))),
            }
        })
        .await
        .unwrap();
    }

    pub(crate) async fn patch_spec(&self, spec: &Value) {
        let relocations = self.dynamic(Kind::NodeRelocation).await;
        let patch = Patch::Merge(json!({"spec": spec}));
        relocations
            .patch(&self.name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Takes away what holds it there.
    pub(crate) async fn lift(&mut self, stage: Stage) {
        self.holds.retain(|held| *held != stage);
        let free = json!({"metadata": {"labels": {HOLD: null}}});
        match stage {
            Stage::Protecting | Stage::Cordoning => {
                let hold = json!({"metadata": {"labels": {HOLD: self.hold_of_node_c()}}});
                self.patch_node("c", &hold).await;
            }
            Stage::Provisioning => self.spare().await,
            Stage::Moving => {
                let namespaces: Api<Namespace> = self.api().await;
                let patch = Patch::Merge(free);
                namespaces
                    .patch(&self.name, &PatchParams::default(), &patch)
                    .await
                    .unwrap();
            }
            Stage::Draining => {
                let attachments: Api<VolumeAttachment> = self.api().await;
                let one = DeleteParams::default();
                attachments.delete(&self.name, &one).await.unwrap();
            }
            Stage::Removing => {
                let claims = self.dynamic(Kind::NodeClaim).await;
                for (end, _) in NODES {
                    claims
                        .patch(
                            &self.called(end),
                            &PatchParams::default(),
                            &Patch::Merge(&free),
                        )
                        .await
                        .unwrap();
                }
            }
        }
    }

    /// What Karpenter does: where a `NodeClaim` was deleted, the node goes.
    pub(crate) async fn nodes_go(&self) {
        let claims = self.dynamic(Kind::NodeClaim).await;
        let nodes = self.dynamic(Kind::Node).await;
        for (end, _) in NODES {
            let name = self.called(end);
            wait_until("the NodeClaim to be deleted", PATIENCE, || async {
                match claims.get_opt(&name).await? {
                    None => Ok(()),
                    Some(_) => Err(NotYet(format!("{name} is there"))),
                }
            })
            .await
            .unwrap();
            nodes.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    }

    /// What has changed of this story's objects, the pods of the Deployment, whose names nobody chose, without their names.
    pub(crate) fn differences(&self, before: &ClusterState, after: &ClusterState) -> Vec<String> {
        let web = format!("Pod {}/{}-", self.name, self.called("web"));
        let mut lines: Vec<_> = before
            .differences(after)
            .into_iter()
            .filter(|line| line.contains(&self.name) && !line.contains(HOLD))
            // The spare node comes when there is to be room.
            .filter(|line| *line != format!("Node {}: new", self.called("spare")))
            .map(
                |line| match (line.strip_prefix(&web), line.split_once(": ")) {
                    (Some(_), Some((_, what))) => format!("{web}: {what}"),
                    _ => line,
                },
            )
            .collect();
        lines.sort();
        lines
    }

    /// The differences when these pods of the database have moved, and with any of them the session server, and nothing else has changed.
    pub(crate) fn moved(&self, database: Range<u32>) -> Vec<String> {
        let web = format!("Pod {}/{}-", self.name, self.called("web"));
        let session = ["gone", "new"].map(|what| format!("{web}: {what}"));
        let session = session.into_iter().filter(|_| !database.is_empty());
        let pods = database.clone().map(|ordinal| {
            let pod = format!("{}/{}-{ordinal}", self.name, self.called("db"));
            format!("Pod {pod}: another object of that name")
        });
        let mut lines: Vec<_> = pods.chain(session).collect();
        lines.sort();
        lines
    }
}
