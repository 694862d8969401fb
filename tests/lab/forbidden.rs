//! The operator lacks a permission: it says which verb on what, and goes on by itself when it is granted.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams};
use lab::fixtures;
use serde_json::json;

use crate::world::World;

/// The world of both: a database on a node that is to be emptied, and room elsewhere.
async fn database_on_an_old_node() -> World {
    let world = World::start().await;
    world.nodes(&[("old-1", "8")]).await;
    let db = fixtures::stateful_set("db", 2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    world
}

/// The operator's role without one verb on one resource.
async fn take_away(world: &World, verb: &str, resource: &str) -> ClusterRole {
    let roles: Api<ClusterRole> = Api::all(world.lab.client().await.unwrap());
    let mut role = roles.get("relocator").await.unwrap();
    let granted = role.clone();
    let mut found = 0;
    for rule in role.rules.iter_mut().flatten() {
        if rule.resources.iter().flatten().any(|r| r == resource) {
            assert_eq!(rule.resources.as_ref().unwrap().len(), 1, "{rule:?}");
            let had = rule.verbs.len();
            rule.verbs.retain(|granted| granted != verb);
            found += had - rule.verbs.len();
        }
    }
    assert_eq!(found, 1, "deploy/ grants {verb} on {resource} in one rule");
    role.rules
        .iter_mut()
        .for_each(|r| r.retain(|r| !r.verbs.is_empty()));
    set_rules(&roles, &role).await;
    granted
}

async fn set_rules(roles: &Api<ClusterRole>, role: &ClusterRole) {
    let patch = Patch::Merge(json!({"rules": role.rules}));
    roles
        .patch("relocator", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn give_back(world: &World, role: &ClusterRole) {
    let roles: Api<ClusterRole> = Api::all(world.lab.client().await.unwrap());
    set_rules(&roles, role).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_evictions_it_says_so_and_goes_on_when_they_are_granted() {
    let world = database_on_an_old_node().await;
    let granted = take_away(&world, "create", "pods/eviction").await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);

    let mut story = world.relocate("move", "{nodes: {names: [old-1]}}").await;
    let said = story.blocked("Forbidden").await;
    // The pod that could not be evicted, the verb and what it is on, as RBAC wants it written.
    assert!(said.contains("Pod default/db-1"), "{said}");
    assert!(
        said.contains("cannot create resource \"pods/eviction\""),
        "{said}"
    );
    let before = world.places("db").await;
    assert!(before.iter().all(|(_, node)| node == "old-1"), "{before:?}");

    give_back(&world, &granted).await;
    let end = story.succeeds().await;
    assert_eq!(end.blockers, Vec::<String>::new());

    let verdict = recording.judge(&world).await;
    verdict.moved_once(2);
    verdict.is_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_patching_nodes_it_says_so_and_goes_on_when_it_may() {
    let world = database_on_an_old_node().await;
    let before = world.snapshot().await;
    let granted = take_away(&world, "patch", "nodes").await;
    let _operator = world.operator().await;
    let recording = world.record(&["old-1"]).await.stay_cordoned(&["old-1"]);

    let mut story = world.relocate("move", "{nodes: {names: [old-1]}}").await;
    let said = story.blocked("Forbidden").await;
    assert!(said.contains("Node old-1"), "{said}");
    assert!(said.contains("cannot patch resource \"nodes\""), "{said}");
    // A node that is not claimed is not worked on: no cordon, no placeholder, no pod has moved.
    let meanwhile = world.snapshot().await;
    let differences = before.differences(&meanwhile);
    // Protecting has begun, so the database's pods may carry their protection already.
    let touched: Vec<_> = differences
        .iter()
        .filter(|d| !d.starts_with("Pod default/db-") || !d.contains("metadata.annotations"))
        .collect();
    assert_eq!(touched, Vec::<&String>::new());

    give_back(&world, &granted).await;
    story.succeeds().await;

    let verdict = recording.judge(&world).await;
    verdict.moved_once(2);
    verdict.is_clean();
}
