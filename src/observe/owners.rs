//! Owners of kinds that are not watched: each read by its name when it is needed, and believed for a moment.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersion;
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::deadline;
use crate::world::{OwnerQuery, OwnerSight, Uid, Unknown, convert};

/// How long what was read of an owner is believed.
const OWNER: Duration = Duration::from_secs(3);
/// How long what the API server serves is believed.
const SERVED: Duration = Duration::from_mins(5);

/// What has been read lately.
#[derive(Default)]
pub(super) struct Owners {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    owners: HashMap<Uid, (Instant, OwnerSight)>,
    /// By API version: the kinds, with their plural and whether their objects are in a namespace.
    served: HashMap<String, (Instant, Vec<Served>)>,
}

#[derive(Clone)]
struct Served {
    resource: ApiResource,
    namespaced: bool,
}

impl Owners {
    /// Reads the owners, those that have not just been read.
    pub(super) async fn read(
        &self,
        client: &Client,
        wanted: Vec<OwnerQuery>,
    ) -> BTreeMap<Uid, OwnerSight> {
        let mut kept = self.kept.lock().await;
        let mut owners = BTreeMap::new();
        for query in wanted {
            let known = kept.owners.get(query.uid());
            let fresh = known.filter(|(at, _)| at.elapsed() < OWNER);
            let sight = if let Some((_, sight)) = fresh {
                sight.clone()
            } else {
                let sight = kept.look(client, &query).await;
                let entry = (Instant::now(), sight.clone());
                kept.owners.insert(query.uid().clone(), entry);
                sight
            };
            owners.insert(query.uid().clone(), sight);
        }
        kept.owners.retain(|_, (at, _)| at.elapsed() < OWNER);
        owners
    }
}

impl Owners {
    /// What was read of the owner is not believed any more.
    pub(super) async fn forget(&self, owner: &Uid) {
        self.kept.lock().await.owners.remove(owner);
    }
}

impl Kept {
    async fn look(&mut self, client: &Client, query: &OwnerQuery) -> OwnerSight {
        match self.find(client, query).await {
            Ok(sight) => sight,
            Err(unknown) => OwnerSight::Failed(unknown),
        }
    }

    async fn find(&mut self, client: &Client, query: &OwnerQuery) -> Result<OwnerSight, Unknown> {
        let owner = &query.owner;
        let served = self.served(client, &owner.api_version).await?;
        // Its objects may be there all the same, under a version that is served.
        let Some(served) = served.iter().find(|s| s.resource.kind == owner.kind) else {
            return Ok(OwnerSight::Unserved(Unknown {
                what: format!("{} {}", owner.api_version, owner.kind),
                why: "the API server does not serve this kind in this version".to_owned(),
                forbidden: false,
            }));
        };
        let api: Api<DynamicObject> = if served.namespaced {
            Api::namespaced_with(client.clone(), &query.namespace, &served.resource)
        } else {
            Api::all_with(client.clone(), &served.resource)
        };
        let what = match served.resource.group.as_str() {
            "" => served.resource.plural.clone(),
            group => format!("{}.{group}", served.resource.plural),
        };
        let found = deadline(&what, api.get_opt(&owner.name)).await?;
        let found =
            found.filter(|object| object.metadata.uid.as_deref() == Some(owner.uid.as_str()));
        let found =
            found.and_then(|object| convert::other_owner(&owner.api_version, &owner.kind, &object));
        Ok(found.map_or(OwnerSight::Missing, |owner| {
            OwnerSight::Found(Box::new(owner))
        }))
    }

    /// The kinds that are served under the API version; none when it is not served at all.
    async fn served(&mut self, client: &Client, api_version: &str) -> Result<Vec<Served>, Unknown> {
        if let Some((at, served)) = self.served.get(api_version)
            && at.elapsed() < SERVED
            && !served.is_empty()
        {
            return Ok(served.clone());
        }
        let list = deadline(api_version, async {
            let answer = if api_version.contains('/') {
                client.list_api_group_resources(api_version).await
            } else {
                client.list_core_api_resources(api_version).await
            };
            match answer {
                // Plain text answers for a group that is not served: no Status, only the code.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
                answer => answer.map(|list| list.resources),
            }
        });
        let version: GroupVersion = api_version.parse().map_err(|_| Unknown {
            what: api_version.to_owned(),
            why: "it is no API version".to_owned(),
            forbidden: false,
        })?;
        let served: Vec<_> = list
            .await?
            .into_iter()
            // Subresources have a slash in their name.
            .filter(|resource| !resource.name.contains('/'))
            .map(|resource| Served {
                resource: ApiResource {
                    group: version.group.clone(),
                    version: version.version.clone(),
                    api_version: api_version.to_owned(),
                    kind: resource.kind,
                    plural: resource.name,
                },
                namespaced: resource.namespaced,
            })
            .collect();
        self.served
            .insert(api_version.to_owned(), (Instant::now(), served.clone()));
        Ok(served)
    }
}
