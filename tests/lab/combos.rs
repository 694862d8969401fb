//! Every way to end a relocation before its end, in every stage that it can be in: what is different afterwards is that the pods that had
//! moved are elsewhere, and nothing else, on any Node, NodeClaim, Pod, Deployment or StatefulSet, field by field.
//!
//! Each relocation is held in its stage by something that a cluster may well have: a policy that denies one request, no room, an attached
//! volume. So there is no race for a stage that is over in a moment, and half of the stage's work is done when it ends.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use lab::fixtures::{self, Pods};
use lab::judge::{ClusterState, Kind};
use lab::{NotYet, wait_until};
use serde_json::{Value, json};

use crate::shared::{HOLD, Shared};
use crate::world::{DO_NOT_DISRUPT, PATIENCE, Story, condition, is_ready};

/// Where the relocation is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
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

/// How it ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WayOut {
    Deleted,
    /// Suspended first, deleted while it stands still.
    Suspended,
    /// Suspended, and resumed when the obstacle is gone: the right end.
    Resumed,
    /// `activeDeadlineSeconds`, set when so much time has passed already.
    Deadline,
    /// The operator is killed, the relocation deleted while there is none, and the next operator finds it so.
    Killed,
}

macro_rules! in_every_stage {
    ($($module:ident: $stage:ident),* $(,)?) => {$(
        mod $module {
            use super::{Stage, WayOut, ends};

            #[test]
            fn deleted() {
                ends(Stage::$stage, WayOut::Deleted);
            }

            #[test]
            fn suspended_then_deleted() {
                ends(Stage::$stage, WayOut::Suspended);
            }

            #[test]
            fn suspended_then_resumed() {
                ends(Stage::$stage, WayOut::Resumed);
            }

            #[test]
            fn past_its_deadline() {
                ends(Stage::$stage, WayOut::Deadline);
            }

            #[test]
            fn deleted_while_the_operator_is_dead() {
                ends(Stage::$stage, WayOut::Killed);
            }
        }
    )*};
}

in_every_stage! {
    in_protecting: Protecting,
    in_cordoning: Cordoning,
    in_provisioning: Provisioning,
    in_moving: Moving,
    in_draining: Draining,
    in_removing: Removing,
}

/// Tells one story.
fn ends(stage: Stage, way: WayOut) {
    let shared = Shared::get();
    let name = format!("{stage:?}-{way:?}").to_lowercase();
    let case = Case {
        shared: &shared,
        name: name.clone(),
        stage,
    };
    shared.tell(&name, async {
        case.set_up().await;
        let before = case.snapshot().await;
        let mut story = case.relocate().await;
        case.held(&mut story).await;
        case.end(&mut story, way).await;
        let after = case.snapshot().await;
        assert_eq!(
            case.differences(&before, &after),
            case.expected(way),
            "{name}"
        );
        if story.follower.last().is_some() {
            story.deleted().await;
        }
    });
}

/// A database of three and a session server of one on three full nodes. Somebody has cordoned node a, somebody has protected node b from
/// Karpenter, and the session server is protected by its owner.
struct Case<'a> {
    shared: &'a Shared,
    /// Of the relocation, of the namespace, and at the beginning of all other names.
    name: String,
    stage: Stage,
}

/// The selected nodes by the ends of their names, and how many pods of one CPU fill each.
const NODES: [(&str, &str); 3] = [("a", "2"), ("b", "1"), ("c", "1")];

impl Case<'_> {
    fn called(&self, end: &str) -> String {
        format!("{}-{end}", self.name)
    }

    async fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all(self.shared.world.lab.client().await.unwrap())
    }

    async fn dynamic(&self, kind: Kind) -> Api<DynamicObject> {
        let client = self.shared.world.lab.client().await.unwrap();
        Api::all_with(client, &kind.api_resource())
    }

    async fn set_up(&self) {
        let lab = &self.shared.world.lab;
        // Nothing of the other stories fits here, and nothing of this one elsewhere.
        let room = ("room", self.name.as_str());
        for (end, cpu) in NODES {
            let holds = match self.stage {
                Stage::Protecting if end == "c" => Some("claim"),
                Stage::Cordoning if end == "c" => Some("cordon"),
                _ => None,
            };
            let labels: Vec<_> = [room].into_iter().chain(holds.map(|h| (HOLD, h))).collect();
            self.node(end, cpu, &labels).await;
        }
        let mut namespace = fixtures::namespace(&self.name);
        if self.stage == Stage::Moving {
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
        if self.stage != Stage::Provisioning {
            self.spare().await;
        }
        if self.stage == Stage::Draining {
            let attachment = json!({
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": self.name},
                "spec": {"attacher": "lab", "nodeName": self.called("a"), "source": {"persistentVolumeName": self.name}},
            });
            let attachment: VolumeAttachment = serde_json::from_value(attachment).unwrap();
            lab.put(&attachment).await.unwrap();
        }
        if self.stage == Stage::Removing {
            for (end, _) in NODES {
                self.node_claim(end).await;
            }
        }
        let patch = json!({"spec": {"unschedulable": true}});
        self.patch_node("a", &patch).await;
        let patch = json!({"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}}});
        self.patch_node("b", &patch).await;
    }

    async fn node(&self, end: &str, cpu: &str, labels: &[(&str, &str)]) {
        let lab = &self.shared.world.lab;
        // What a controller would add a moment later, and a snapshot would take for a change.
        let usual = [
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", "amd64"),
        ];
        let labels: Vec<_> = usual.iter().chain(labels).copied().collect();
        let node = fixtures::fake_node(&self.called(end), cpu, &labels);
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
    async fn whole(&self) {
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

    async fn snapshot(&self) -> ClusterState {
        self.shared.world.snapshot().await
    }

    async fn relocate(&self) -> Story<'_> {
        let names: Vec<_> = NODES.iter().map(|(end, _)| self.called(end)).collect();
        // With a NodeClaim, emptied nodes go. Otherwise they take pods again, so that at the right end they are as they were, too.
        let after = match self.stage {
            Stage::Removing => "Delete",
            _ => "Uncordon",
        };
        // By evictions, which leave no trace in a Deployment, as a restart does.
        let spec = format!(
            "{{nodes: {{names: [{}]}}, workloads: {{strategy: Evict}}, afterDrain: {after}}}",
            names.join(", ")
        );
        self.shared.world.relocate(&self.name, &spec).await
    }

    /// Waits until it can go no further, with all done that can be done in the stage.
    async fn held(&self, story: &mut Story<'_>) {
        let blocked_by = |reason: &str, object: String| {
            let start = format!("{reason} {object}: ");
            move |r: &lab::operator::Relocation| r.blockers.iter().any(|b| b.starts_with(&start))
        };
        let what = format!("{} to be held", self.name);
        let seen = match self.stage {
            Stage::Protecting | Stage::Cordoning => {
                let node = format!("Node {}", self.called("c"));
                story.until(&what, blocked_by("RequestFails", node)).await
            }
            Stage::Provisioning => {
                let wanted = |r: &lab::operator::Relocation| {
                    r.status["replacement"]["placeholdersWanted"] == 4
                };
                let seen = story.until(&what, wanted).await;
                // What is wanted is recorded before it is made.
                self.placeholders(4).await;
                seen
            }
            Stage::Moving => {
                let pod = format!("Pod {}/{}-0", self.name, self.called("db"));
                let denied = blocked_by("EvictionDenied", pod);
                let all_others = |r: &lab::operator::Relocation| r.pods == "3/4" && denied(r);
                story.until(&what, all_others).await
            }
            Stage::Draining => {
                let waits = format!("1 volumes to detach from node {}", self.called("a"));
                let attached =
                    |r: &lab::operator::Relocation| r.message.contains(&waits) && r.nodes == "2/3";
                story.until(&what, attached).await
            }
            Stage::Removing => {
                let blocked: Vec<_> = NODES
                    .iter()
                    .map(|(end, _)| {
                        blocked_by("RequestFails", format!("NodeClaim {}", self.called(end)))
                    })
                    .collect();
                let all = |r: &lab::operator::Relocation| blocked.iter().all(|b| b(r));
                story.until(&what, all).await
            }
        };
        let stages = seen.status["nodes"].as_array().unwrap();
        let here = stages
            .iter()
            .any(|node| node["stage"] == format!("{:?}", self.stage));
        assert!(here, "{}: {seen:#?}", self.name);
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

    async fn end(&self, story: &mut Story<'_>, way: WayOut) {
        match way {
            WayOut::Deleted => story.deleted().await,
            WayOut::Suspended => {
                self.patch_spec(&json!({"suspend": true})).await;
                story.stage("Suspended").await;
                story.deleted().await;
            }
            WayOut::Resumed => {
                self.patch_spec(&json!({"suspend": true})).await;
                story.stage("Suspended").await;
                self.lift().await;
                self.patch_spec(&json!({"suspend": false})).await;
                if self.stage == Stage::Removing {
                    self.nodes_go().await;
                }
                story.succeeds().await;
            }
            WayOut::Deadline => {
                self.patch_spec(&json!({"activeDeadlineSeconds": 1})).await;
                let end = story.follower.over(PATIENCE).await.unwrap();
                let (status, reason, _) = condition(&end, "Succeeded").unwrap();
                let said = (end.stage.as_str(), status.as_str(), reason.as_str());
                assert_eq!(said, ("Failed", "False", "DeadlineExceeded"));
            }
            WayOut::Killed => {
                let delete = async {
                    let relocations = self.dynamic(Kind::NodeRelocation).await;
                    let one = DeleteParams::default();
                    relocations.delete(&self.name, &one).await.unwrap();
                };
                self.shared.without_operator(delete).await;
                story.follower.gone(PATIENCE).await.unwrap();
            }
        }
        self.whole().await;
    }

    async fn patch_spec(&self, spec: &Value) {
        let relocations = self.dynamic(Kind::NodeRelocation).await;
        let patch = Patch::Merge(json!({"spec": spec}));
        relocations
            .patch(&self.name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Takes away what holds it.
    async fn lift(&self) {
        let free = json!({"metadata": {"labels": {HOLD: null}}});
        match self.stage {
            Stage::Protecting | Stage::Cordoning => self.patch_node("c", &free).await,
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
    async fn nodes_go(&self) {
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
    fn differences(&self, before: &ClusterState, after: &ClusterState) -> Vec<String> {
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

    /// The pods that had moved by then, and at the right end of the last stage the nodes.
    fn expected(&self, way: WayOut) -> Vec<String> {
        let resumed = way == WayOut::Resumed;
        let database = match self.stage {
            _ if resumed => 0..3,
            Stage::Protecting | Stage::Cordoning | Stage::Provisioning => 0..0,
            // The highest ordinals first.
            Stage::Moving => 1..3,
            Stage::Draining | Stage::Removing => 0..3,
        };
        let mut lines: Vec<_> = database
            .clone()
            .map(|ordinal| {
                let pod = format!("{}/{}-{ordinal}", self.name, self.called("db"));
                format!("Pod {pod}: another object of that name")
            })
            .collect();
        if !database.is_empty() {
            let web = format!("Pod {}/{}-", self.name, self.called("web"));
            lines.extend(["gone", "new"].map(|what| format!("{web}: {what}")));
        }
        if resumed && self.stage == Stage::Removing {
            for (end, _) in NODES {
                let name = self.called(end);
                lines.extend(["Node", "NodeClaim"].map(|kind| format!("{kind} {name}: gone")));
            }
        }
        lines.sort();
        lines
    }
}
