//! Everything that carries a mark of ours, read once and not kept: for the sweep. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, ObjectList, PartialObjectMeta};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{KARPENTER, deadline, karpenter, read_claim, served_karpenter};
use crate::api::keys;
use crate::api::relocation::NodeRelocation;
use crate::plan;
use crate::world::{Cluster, Karpenter, Leftovers, Marks, Uid, Unknown, convert};

/// Objects in one answer. More would make the API server hold more at a time, fewer would cost more requests.
const PAGE: u32 = 500;
/// Single reads under way at a time.
const AT_ONCE: usize = 8;

/// Reads what carries a mark, then the relocations that exist and are not over, then what else decides about marks whose relocation does not.
///
/// In this order, so that a relocation that is made in between is never taken for one that is missing. A cluster without marks costs
/// three lists, two of them of metadata only. An error says what could not be read: then nothing at all is known.
pub async fn leftovers(client: &Client) -> Result<Leftovers, Unknown> {
    let mut seen = marked(client).await?;
    if seen.is_empty() {
        return Ok(seen);
    }
    // As long as none is known to exist, these are all that marks name.
    let named = plan::gone(&seen);
    seen.relocations = relocations(client).await?;
    let over = over(client, &seen.relocations, named.into_keys()).await?;
    seen.relocations.retain(|uid, _| !over.contains_key(uid));
    seen.over = over;
    complete(client, &mut seen).await?;
    Ok(seen)
}

async fn marked(client: &Client) -> Result<Leftovers, Unknown> {
    let mut seen = Leftovers::default();
    let Cluster {
        nodes,
        pods,
        deployments,
        ..
    } = &mut seen.cluster;
    let found = Arc::make_mut(nodes);
    metadata("nodes", &Api::<core::Node>::all(client.clone()), |meta| {
        if let Some(node) = convert::node_metadata(meta)
            && is_marked(&node.marks)
        {
            found.insert(node.uid.clone(), Arc::new(node));
        }
    })
    .await?;
    let found = Arc::make_mut(pods);
    metadata("pods", &Api::<core::Pod>::all(client.clone()), |meta| {
        seen.detached.extend(convert::detached(&meta));
        if let Some(pod) = convert::pod_metadata(meta)
            && (is_marked(&pod.marks) || pod.placeholder.is_some())
        {
            found.insert(pod.reference.uid.clone(), Arc::new(pod));
        }
    })
    .await?;
    let found = Arc::make_mut(deployments);
    let surging = ListParams::default().labels(keys::SURGE_LABEL);
    let api: Api<apps::Deployment> = Api::all(client.clone());
    let take = |object: apps::Deployment| {
        if let Some(deployment) = convert::deployment(&object) {
            found.insert(deployment.reference.uid.clone(), Arc::new(deployment));
        }
    };
    let page = |params| list(&api, params);
    served(
        "deployments.apps",
        pages("deployments.apps", surging, page, take).await?,
    )?;
    Ok(seen)
}

fn is_marked(marks: &Marks) -> bool {
    marks.relocations().next().is_some()
}

/// The relocations that exist. None where their resource is not defined any more.
async fn relocations(client: &Client) -> Result<BTreeMap<Uid, String>, Unknown> {
    const WHAT: &str = "noderelocations.relocation.sh";
    let api: Api<NodeRelocation> = Api::all(client.clone());
    let mut found = BTreeMap::new();
    let take = |object: PartialObjectMeta<NodeRelocation>| {
        if let Some(uid) = object.uid() {
            found.insert(uid.into(), object.name_any());
        }
    };
    let page = |params| list_metadata(&api, params);
    if pages(WHAT, ListParams::default(), page, take).await? {
        return Ok(found);
    }
    // A later version of relocator may serve another version only: then there are relocations, and this program can't read them.
    let groups = deadline("API groups", client.list_api_groups()).await?;
    served(WHAT, !groups.groups.iter().any(|g| g.name == keys::GROUP))?;
    Ok(found)
}

/// Which of the relocations that marks name are over, and whether they are to have lifted their cordons.
async fn over(
    client: &Client,
    exist: &BTreeMap<Uid, String>,
    named: impl Iterator<Item = Uid>,
) -> Result<BTreeMap<Uid, bool>, Unknown> {
    let api: Api<NodeRelocation> = Api::all(client.clone());
    let named = named.filter_map(|uid| exist.get(&uid).map(|name| (api.clone(), name.clone())));
    let found = read("noderelocations.relocation.sh", named.collect()).await?;
    Ok(found
        .iter()
        .filter_map(|relocation| Some((relocation.uid()?.into(), plan::over(relocation)?)))
        .collect())
}

/// Reads in full what carries the mark of a relocation that does not exist, and drops the other nodes.
async fn complete(client: &Client, seen: &mut Leftovers) -> Result<(), Unknown> {
    let gone = plan::gone(seen);
    let names = seen.cluster.nodes.values();
    let names = names.filter(|n| n.marks.relocations().any(|m| gone.contains_key(&m.uid)));
    let names = names.map(|n| (Api::<core::Node>::all(client.clone()), n.name.to_string()));
    let nodes = read("nodes", names.collect()).await?;
    let nodes: BTreeMap<_, _> = nodes
        .iter()
        .filter_map(convert::node)
        .map(|n| (n.uid.clone(), Arc::new(n)))
        .collect();
    if !nodes.is_empty() {
        seen.cluster.karpenter = node_claims(client).await?;
    }
    seen.cluster.nodes = Arc::new(nodes);

    let costed = seen.cluster.pods.values().filter(|p| {
        let costed = p.marks.costed_by.as_ref();
        costed.is_some_and(|mark| gone.contains_key(&mark.uid))
    });
    let sets = costed.filter_map(|pod| {
        let owner = pod.controller.as_ref().filter(|c| c.kind == "ReplicaSet")?;
        Some((pod.reference.namespace.clone(), owner.name.clone()))
    });
    let sets: Vec<apps::ReplicaSet> =
        read("replicasets.apps", namespaced(client, sets.collect())).await?;
    let sets: BTreeMap<_, _> = sets
        .iter()
        .filter_map(convert::replica_set)
        .map(|s| (s.reference.uid.clone(), Arc::new(s)))
        .collect();
    let parents = sets.values().filter_map(|set| {
        let owner = set.controller.as_ref().filter(|c| c.kind == "Deployment")?;
        Some((set.reference.namespace.clone(), owner.name.clone()))
    });
    let parents: Vec<apps::Deployment> =
        read("deployments.apps", namespaced(client, parents.collect())).await?;
    let parents = parents.iter().filter_map(convert::deployment);
    Arc::make_mut(&mut seen.cluster.deployments)
        .extend(parents.map(|d| (d.reference.uid.clone(), Arc::new(d))));
    seen.cluster.replica_sets = Arc::new(sets);
    Ok(())
}

/// Karpenter's `NodeClaims`, or Machines: a node whose claim is in deletion is on its way out. `None` where they are not served.
async fn node_claims(client: &Client) -> Result<Option<Karpenter>, Unknown> {
    // Asked before: where there is no such resource, a list of it is forbidden to whoever has no right to it.
    let all = served_karpenter(client).await?;
    let Some(oldest) = all.last() else {
        return Ok(None);
    };
    let mut claims = BTreeMap::new();
    for generation in all.iter().filter(|s| s.claims).map(|s| s.generation) {
        let names = generation.claim();
        let what = format!("{}.{KARPENTER}", names.1);
        let api = karpenter(client, generation, names);
        let read = read_claim(generation);
        let take = |object| {
            if let Some(claim) = read(&object) {
                claims.insert(claim.uid.clone(), Arc::new(claim));
            }
        };
        let page = |params| list(&api, params);
        served(
            &what,
            pages(&what, ListParams::default(), page, take).await?,
        )?;
    }
    Ok(Some(Karpenter {
        generation: oldest.generation,
        claims: Arc::new(claims),
        ..Karpenter::default()
    }))
}

async fn list<K>(api: &Api<K>, params: ListParams) -> kube::Result<ObjectList<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    api.list(&params).await
}

async fn list_metadata<K>(
    api: &Api<K>,
    params: ListParams,
) -> kube::Result<ObjectList<PartialObjectMeta<K>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    api.list_metadata(&params).await
}

/// Shows the metadata of every object of a built-in kind to `take`.
async fn metadata<K>(
    what: &str,
    api: &Api<K>,
    mut take: impl FnMut(ObjectMeta),
) -> Result<(), Unknown>
where
    K: Clone + DeserializeOwned + Debug,
{
    let page = |params| list_metadata(api, params);
    let take = |object: PartialObjectMeta<K>| take(object.metadata);
    served(what, pages(what, ListParams::default(), page, take).await?)
}

/// Shows every object of a list to `take`, page by page. False when the API server does not serve the resource.
async fn pages<T, F>(
    what: &str,
    params: ListParams,
    page: impl Fn(ListParams) -> F,
    mut take: impl FnMut(T),
) -> Result<bool, Unknown>
where
    T: Clone,
    F: Future<Output = kube::Result<ObjectList<T>>>,
{
    let mut params = params.limit(PAGE);
    loop {
        let next = page(params.clone());
        let answer = deadline(what, async {
            match next.await {
                // In plain text for a group that is not served: only the code tells.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                answer => answer.map(Some),
            }
        });
        let Some(list) = answer.await? else {
            return Ok(false);
        };
        list.items.into_iter().for_each(&mut take);
        params.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(true);
        }
    }
}

/// What has to be served, for the rest to mean anything.
fn served(what: &str, is_served: bool) -> Result<(), Unknown> {
    if is_served {
        return Ok(());
    }
    Err(Unknown {
        what: what.to_owned(),
        why: "not served in the version that this program reads".into(),
        forbidden: false,
    })
}

fn namespaced<K>(client: &Client, names: BTreeSet<(String, String)>) -> Vec<(Api<K>, String)>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    names
        .into_iter()
        .map(|(namespace, name)| (Api::namespaced(client.clone(), &namespace), name))
        .collect()
}

/// Reads single objects; those that are gone are left out.
async fn read<K>(what: &str, names: Vec<(Api<K>, String)>) -> Result<Vec<K>, Unknown>
where
    K: Clone + DeserializeOwned + Debug,
{
    let reads = names
        .into_iter()
        .map(|(api, name)| async move { deadline(what, api.get_opt(&name)).await });
    futures::stream::iter(reads)
        .buffer_unordered(AT_ONCE)
        .try_filter_map(|object| std::future::ready(Ok(object)))
        .try_collect()
        .await
}
