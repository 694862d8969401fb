//! The API as a [`World`]: watches that are open only while a relocation is active, and fresh reads. Decides nothing.

mod feed;
mod leftovers;
mod owners;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::api::keys;
use crate::api::relocation::NodeRelocation;
use crate::clock::Clock;
use crate::plan::{self, Confirm};
use crate::world::{
    ActionKey, Attachment, Budget, Cluster, CsiNode, DaemonSet, Deployment, Fresh, Generation,
    Karpenter, Node, NodeClaim, NodeName, NodePool, Objects, PlaceholderSetup, Pod, Priority,
    Refusal, ReplicaSet, Service, Sight, StatefulSet, StorageClass, Uid, Unknown, Volume,
    VolumeClaim, Webhooks, World, convert,
};
use feed::Feed;
pub use leftovers::leftovers;
use owners::Owners;

/// How long a pass waits for the first lists before it reports that they are missing.
const FIRST_LISTS: Duration = Duration::from_secs(10);
/// How long the answer whether Karpenter is there is believed while it is no.
const NO_KARPENTER: Duration = Duration::from_secs(15);
/// How long what placeholders need is believed while a relocation is being planned.
const SETUP: Duration = Duration::from_secs(5);
/// The API group of Karpenter.
const KARPENTER: &str = "karpenter.sh";
/// Deadline of one fresh read.
const FRESH_READ: Duration = Duration::from_secs(10);

/// Longest silence that a connection which watches may have: the API server has ended the watch before.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(feed::WATCH_SECONDS as u64 + 15);

/// Watches and reads.
pub struct Observer {
    /// For watches: no deadline on the connection.
    watching: Client,
    /// For single reads: with a deadline, without retries inside.
    reading: Client,
    feeds: Mutex<Option<Arc<Feeds>>>,
    wake: Arc<Notify>,
    clock: Clock,
    owners: Owners,
    /// What placeholders need, and when it was read: it hardly ever changes.
    setup: Mutex<Option<(Instant, PlaceholderSetup)>>,
}

struct Feeds {
    nodes: Feed<Node>,
    pods: Feed<Pod>,
    deployments: Feed<Deployment>,
    replica_sets: Feed<ReplicaSet>,
    stateful_sets: Feed<StatefulSet>,
    daemon_sets: Feed<DaemonSet>,
    budgets: Feed<Budget>,
    attachments: Feed<Attachment>,
    validating: Feed<Webhooks>,
    mutating: Feed<Webhooks>,
    services: Feed<Service>,
    volume_claims: Feed<VolumeClaim>,
    volumes: Feed<Volume>,
    storage_classes: Feed<StorageClass>,
    csi_nodes: Feed<CsiNode>,
    karpenter: Mutex<KarpenterFeeds>,
}

enum KarpenterFeeds {
    /// Not served when last asked.
    Absent(Instant),
    /// Could not be asked.
    Unknown(Unknown),
    Open {
        generation: Generation,
        claims: Vec<Feed<NodeClaim>>,
        pools: Vec<Feed<NodePool>>,
    },
}

impl Observer {
    /// An observer that watches nothing yet. `wake` is notified whenever something that is watched has changed.
    #[must_use]
    pub fn new(watching: Client, reading: Client, wake: Arc<Notify>, clock: Clock) -> Self {
        Self {
            watching,
            reading,
            feeds: Mutex::new(None),
            wake,
            clock,
            owners: Owners::default(),
            setup: Mutex::new(None),
        }
    }

    /// Looks at the cluster on behalf of one relocation. Opens the watches if they are not open.
    pub async fn look(
        &self,
        relocation: &NodeRelocation,
        refusals: BTreeMap<ActionKey, Refusal>,
    ) -> World {
        let feeds = self.open().await;
        let sight = feeds.sight(&self.watching, &self.wake).await;
        let mut world = World::unseen(relocation.clone(), self.clock.now());
        world.sight = sight;
        let wanted = plan::owners_to_read(&world);
        if let Sight::Known(cluster) = &mut world.sight
            && !wanted.is_empty()
        {
            Arc::make_mut(cluster).owners = self.owners.read(&self.reading, wanted).await;
        }
        world.refusals = refusals;
        if plan::needs_setup(relocation) {
            world.setup = self.setup().await;
        }
        world.fresh = self.fresh(plan::to_confirm(&world)).await;
        world
    }

    /// Closes the watches: no relocation is active.
    pub async fn close(&self) {
        if self.feeds.lock().await.take().is_some() {
            tracing::info!("no relocation is active: watches closed");
        }
    }

    async fn open(&self) -> Arc<Feeds> {
        let mut feeds = self.feeds.lock().await;
        if let Some(open) = feeds.as_ref() {
            return Arc::clone(open);
        }
        tracing::info!("a relocation is active: watches opened");
        let opened = Arc::new(Feeds::open(&self.watching, &self.wake));
        *feeds = Some(Arc::clone(&opened));
        opened
    }

    /// Takes note of a node that we wrote.
    pub async fn wrote_node(&self, object: &core::Node) {
        if let (Some(feeds), Some(node)) = (self.current().await, convert::node(object)) {
            feeds.nodes.wrote(
                &node.uid.clone(),
                object.metadata.resource_version.as_deref(),
                node,
            );
        }
    }

    /// Takes note of a pod that we wrote.
    pub async fn wrote_pod(&self, object: &core::Pod) {
        if let (Some(feeds), Some(pod)) = (self.current().await, convert::pod(object)) {
            feeds.pods.wrote(
                &pod.reference.uid.clone(),
                object.metadata.resource_version.as_deref(),
                pod,
            );
        }
    }

    /// Takes note of a Deployment that we wrote.
    pub async fn wrote_deployment(&self, object: &apps::Deployment) {
        if let (Some(feeds), Some(deployment)) = (self.current().await, convert::deployment(object))
        {
            feeds.deployments.wrote(
                &deployment.reference.uid.clone(),
                object.metadata.resource_version.as_deref(),
                deployment,
            );
        }
    }

    /// Takes note of a `StatefulSet` that we wrote.
    pub async fn wrote_stateful_set(&self, object: &apps::StatefulSet) {
        if let (Some(feeds), Some(set)) = (self.current().await, convert::stateful_set(object)) {
            feeds.stateful_sets.wrote(
                &set.reference.uid.clone(),
                object.metadata.resource_version.as_deref(),
                set,
            );
        }
    }

    /// Takes note that we wrote an owner that is not watched: what was read of it is old.
    pub async fn wrote_owner(&self, owner: &Uid) {
        self.owners.forget(owner).await;
    }

    /// Takes note that an eviction, or a deletion of ours, was accepted: the pod is on its way out.
    pub async fn leaving(&self, pod: &Uid) {
        if let Some(feeds) = self.current().await {
            feeds.pods.amend(pod, |p| Pod {
                terminating: true,
                ready: false,
                ..p.clone()
            });
        }
    }

    /// Takes note that the deletion of a `NodeClaim` was accepted.
    pub async fn claim_leaving(&self, claim: &Uid) {
        let Some(feeds) = self.current().await else {
            return;
        };
        if let KarpenterFeeds::Open { claims, .. } = &*feeds.karpenter.lock().await {
            for feed in claims {
                feed.amend(claim, |c| NodeClaim {
                    deleting: true,
                    ..c.clone()
                });
            }
        }
    }

    async fn current(&self) -> Option<Arc<Feeds>> {
        self.feeds.lock().await.clone()
    }

    async fn setup(&self) -> PlaceholderSetup {
        let mut last = self.setup.lock().await;
        if let Some((at, setup)) = last.as_ref()
            && at.elapsed() < SETUP
        {
            return setup.clone();
        }
        let setup = self.read_setup().await;
        *last = Some((Instant::now(), setup.clone()));
        setup
    }

    async fn read_setup(&self) -> PlaceholderSetup {
        let namespaces: Api<core::Namespace> = Api::all(self.reading.clone());
        let classes: Api<PriorityClass> = Api::all(self.reading.clone());
        let namespace = deadline(
            "namespaces",
            namespaces.get_opt(keys::PLACEHOLDER_NAMESPACE),
        )
        .await;
        let class = deadline(
            "priorityclasses.scheduling.k8s.io",
            classes.get_opt(keys::PRIORITY_CLASS),
        )
        .await;
        match (namespace, class) {
            (Ok(namespace), Ok(class)) => {
                let usable = namespace.is_some_and(|n| n.metadata.deletion_timestamp.is_none());
                PlaceholderSetup::Read {
                    namespace: usable,
                    priority: class.map(|c| Priority {
                        value: c.value,
                        preempts: c.preemption_policy.as_deref() != Some("Never"),
                        global_default: c.global_default.unwrap_or(false),
                    }),
                }
            }
            (Err(unknown), _) | (_, Err(unknown)) => PlaceholderSetup::Failed(unknown),
        }
    }

    /// Reads the pods of each node, and where they are asked for the volume attachments, from the API server itself.
    async fn fresh(&self, nodes: Vec<Confirm>) -> BTreeMap<NodeName, Fresh> {
        let attachments = if nodes.iter().any(|confirm| confirm.attachments) {
            let api: Api<VolumeAttachment> = Api::all(self.reading.clone());
            let all = ListParams::default();
            let list = api.list(&all);
            let list = deadline("volumeattachments.storage.k8s.io", list).await;
            list.map(|list| list.items.iter().filter_map(convert::attachment).collect())
        } else {
            Ok(Vec::new())
        };
        let mut fresh = BTreeMap::new();
        for Confirm { node, .. } in nodes {
            let pods: Api<core::Pod> = Api::all(self.reading.clone());
            let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
            let read = match (&attachments, deadline("pods", pods.list(&of_node)).await) {
                (Ok(attachments), Ok(pods)) => Fresh::Read {
                    pods: pods.items.iter().filter_map(convert::pod).collect(),
                    attachments: attachments
                        .iter()
                        .filter(|a: &&Attachment| a.node == node)
                        .cloned()
                        .collect(),
                },
                (Err(unknown), _) => Fresh::Failed(unknown.clone()),
                (_, Err(unknown)) => Fresh::Failed(unknown),
            };
            fresh.insert(node, read);
        }
        fresh
    }
}

/// Makes one read with a deadline. Says what could not be read, and why.
async fn deadline<T>(
    what: &str,
    read: impl Future<Output = kube::Result<T>>,
) -> Result<T, Unknown> {
    let unknown = |why: String, forbidden| Unknown {
        what: what.to_owned(),
        why,
        forbidden,
    };
    match tokio::time::timeout(FRESH_READ, read).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => {
            Err(unknown(status.message.clone(), status.is_forbidden()))
        }
        Ok(Err(error)) => Err(unknown(error.to_string(), false)),
        Err(_) => Err(unknown(
            format!("no answer within {} s", FRESH_READ.as_secs()),
            false,
        )),
    }
}

impl Feeds {
    fn open(client: &Client, wake: &Arc<Notify>) -> Self {
        fn feed<K, T>(
            what: &str,
            client: &Client,
            wake: &Arc<Notify>,
            convert: fn(&K) -> Option<T>,
        ) -> Feed<T>
        where
            K: kube::Resource<DynamicType = ()>
                + Clone
                + serde::de::DeserializeOwned
                + std::fmt::Debug
                + Send
                + 'static,
            T: Send + Sync + 'static,
        {
            Feed::open(
                what,
                Api::<K>::all(client.clone()),
                Arc::clone(wake),
                convert,
            )
        }
        Self {
            nodes: feed("nodes", client, wake, convert::node),
            pods: feed("pods", client, wake, convert::pod),
            deployments: feed("deployments.apps", client, wake, convert::deployment),
            replica_sets: feed("replicasets.apps", client, wake, convert::replica_set),
            stateful_sets: feed("statefulsets.apps", client, wake, convert::stateful_set),
            daemon_sets: feed("daemonsets.apps", client, wake, convert::daemon_set),
            budgets: feed::<PodDisruptionBudget, _>(
                "poddisruptionbudgets.policy",
                client,
                wake,
                convert::budget,
            ),
            attachments: feed(
                "volumeattachments.storage.k8s.io",
                client,
                wake,
                convert::attachment,
            ),
            validating: feed::<ValidatingWebhookConfiguration, _>(
                "validatingwebhookconfigurations.admissionregistration.k8s.io",
                client,
                wake,
                convert::validating_webhooks,
            ),
            mutating: feed::<MutatingWebhookConfiguration, _>(
                "mutatingwebhookconfigurations.admissionregistration.k8s.io",
                client,
                wake,
                convert::mutating_webhooks,
            ),
            services: feed("services", client, wake, convert::service),
            volume_claims: feed(
                "persistentvolumeclaims",
                client,
                wake,
                convert::volume_claim,
            ),
            volumes: feed("persistentvolumes", client, wake, convert::volume),
            storage_classes: feed(
                "storageclasses.storage.k8s.io",
                client,
                wake,
                convert::storage_class,
            ),
            csi_nodes: feed("csinodes.storage.k8s.io", client, wake, convert::csi_node),
            karpenter: Mutex::new(KarpenterFeeds::Unknown(Unknown {
                what: KARPENTER.into(),
                why: "not asked yet".into(),
                forbidden: false,
            })),
        }
    }

    async fn sight(&self, client: &Client, wake: &Arc<Notify>) -> Sight {
        let mut karpenter = self.karpenter.lock().await;
        karpenter.ask_again(client, wake).await;
        let first_answers = async {
            futures::join!(
                self.nodes.first_answer(),
                self.pods.first_answer(),
                self.deployments.first_answer(),
                self.replica_sets.first_answer(),
                self.stateful_sets.first_answer(),
                self.daemon_sets.first_answer(),
                self.budgets.first_answer(),
                self.attachments.first_answer(),
                self.validating.first_answer(),
                self.mutating.first_answer(),
                self.services.first_answer(),
                self.volume_claims.first_answer(),
                self.volumes.first_answer(),
                self.storage_classes.first_answer(),
                self.csi_nodes.first_answer(),
                karpenter.first_answer(),
            )
        };
        // Whether they came or not is seen in the reads below.
        let _in_time = tokio::time::timeout(FIRST_LISTS, first_answers).await;
        let mut unknown = Vec::new();
        let mut take = Taker(&mut unknown);
        let mut webhooks = take.read(self.validating.read());
        Arc::make_mut(&mut webhooks).extend(
            take.read(self.mutating.read())
                .iter()
                .map(|(uid, list)| (uid.clone(), Arc::clone(list))),
        );
        let cluster = Cluster {
            nodes: take.read(self.nodes.read()),
            pods: take.read(self.pods.read()),
            deployments: take.read(self.deployments.read()),
            replica_sets: take.read(self.replica_sets.read()),
            stateful_sets: take.read(self.stateful_sets.read()),
            daemon_sets: take.read(self.daemon_sets.read()),
            budgets: take.read(self.budgets.read()),
            attachments: take.read(self.attachments.read()),
            webhooks,
            services: take.read(self.services.read()),
            volume_claims: take.read(self.volume_claims.read()),
            volumes: take.read(self.volumes.read()),
            storage_classes: take.read(self.storage_classes.read()),
            csi_nodes: take.read(self.csi_nodes.read()),
            owners: BTreeMap::new(),
            karpenter: match &*karpenter {
                KarpenterFeeds::Absent(_) => None,
                KarpenterFeeds::Unknown(why) => {
                    take.0.push(why.clone());
                    None
                }
                KarpenterFeeds::Open {
                    generation,
                    claims,
                    pools,
                } => Some(Karpenter {
                    generation: *generation,
                    claims: take.all(claims),
                    pools: take.all(pools),
                }),
            },
        };
        if unknown.is_empty() {
            Sight::Known(Arc::new(cluster))
        } else {
            Sight::Unknown(unknown)
        }
    }
}

/// Collects what could not be read.
struct Taker<'a>(&'a mut Vec<Unknown>);

impl Taker<'_> {
    fn read<T>(&mut self, objects: Result<Objects<T>, Unknown>) -> Objects<T> {
        objects.unwrap_or_else(|unknown| {
            self.0.push(unknown);
            Arc::default()
        })
    }

    fn all<T: Send + Sync + 'static>(&mut self, feeds: &[Feed<T>]) -> Objects<T> {
        let all = feeds.iter().map(|feed| self.read(feed.read()));
        all.reduce(|mut all, more| {
            let more = more
                .iter()
                .map(|(uid, object)| (uid.clone(), Arc::clone(object)));
            Arc::make_mut(&mut all).extend(more);
            all
        })
        .unwrap_or_default()
    }
}

/// A version of Karpenter's API that is served, with what it has there.
struct Served {
    generation: Generation,
    claims: bool,
    pools: bool,
}

/// Asks the API server which of Karpenter's objects it serves: those of v1, or where it has none, those of the versions before it, newest
/// first.
async fn served_karpenter(client: &Client) -> Result<Vec<Served>, Unknown> {
    let mut all = Vec::new();
    for generation in Generation::ALL {
        let version = format!("{KARPENTER}/{}", generation.version());
        let resources = deadline(&version, async {
            match client.list_api_group_resources(&version).await {
                // Plain text answers for a group that is not served: no Status, only the code.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
                answer => answer.map(|list| list.resources),
            }
        });
        let resources = resources.await?;
        let has = |plural: &str| resources.iter().any(|r| r.name == plural);
        let served = Served {
            generation,
            claims: has(generation.claim().1),
            pools: has(generation.pool().1),
        };
        if served.claims || served.pools {
            all.push(served);
            // The versions before are the same objects in other words.
            if generation == Generation::V1 {
                break;
            }
        }
    }
    Ok(all)
}

/// A kind of Karpenter's objects.
fn karpenter(
    client: &Client,
    generation: Generation,
    (kind, plural): (&str, &str),
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(KARPENTER, generation.version(), kind);
    Api::all_with(
        client.clone(),
        &ApiResource::from_gvk_with_plural(&kind, plural),
    )
}

/// How what stands for one node is read.
fn read_claim(generation: Generation) -> fn(&DynamicObject) -> Option<NodeClaim> {
    match generation {
        Generation::V1 => convert::node_claim,
        Generation::V1Beta1 => convert::node_claim_v1beta1,
        Generation::V1Alpha5 => convert::machine,
    }
}

impl KarpenterFeeds {
    /// Asks the API server which of Karpenter's objects it serves, when that is not known or the answer none is old.
    async fn ask_again(&mut self, client: &Client, wake: &Arc<Notify>) {
        match self {
            Self::Open { .. } => return,
            Self::Absent(since) if since.elapsed() < NO_KARPENTER => return,
            Self::Absent(_) | Self::Unknown(_) => {}
        }
        *self = match served_karpenter(client).await {
            Ok(served) => Self::open(client, wake, &served),
            Err(unknown) => Self::Unknown(unknown),
        };
    }

    fn open(client: &Client, wake: &Arc<Notify>, served: &[Served]) -> Self {
        // Of several the oldest: what it does not know yet, it ignores.
        let Some(oldest) = served.last() else {
            return Self::Absent(Instant::now());
        };
        let claims = served.iter().filter(|s| s.claims).map(|s| {
            let names = s.generation.claim();
            let what = format!("{}.{KARPENTER}", names.1);
            let api = karpenter(client, s.generation, names);
            Feed::open(&what, api, Arc::clone(wake), read_claim(s.generation))
        });
        let pools = served.iter().filter(|s| s.pools).map(|s| {
            let names = s.generation.pool();
            let what = format!("{}.{KARPENTER}", names.1);
            let api = karpenter(client, s.generation, names);
            let read = match s.generation {
                Generation::V1 | Generation::V1Beta1 => convert::node_pool,
                Generation::V1Alpha5 => convert::provisioner,
            };
            Feed::open(&what, api, Arc::clone(wake), read)
        });
        Self::Open {
            generation: oldest.generation,
            claims: claims.collect(),
            pools: pools.collect(),
        }
    }

    async fn first_answer(&self) {
        if let Self::Open { claims, pools, .. } = self {
            let claims = claims.iter().map(Feed::first_answer);
            let pools = pools.iter().map(Feed::first_answer);
            futures::join!(
                futures::future::join_all(claims),
                futures::future::join_all(pools)
            );
        }
    }
}
