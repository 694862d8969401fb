//! The start of the story, with nothing faked: nodes made by Karpenter drift, and pods keep them from being replaced.

use lab::fixtures::{self, NODE_POOL, SCENARIO_NODES, SCENARIO_PODS};
use lab::{Lab, LabOptions};

#[tokio::test(flavor = "multi_thread")]
async fn the_node_pool_comes_up_drifts_and_is_blocked() {
    let lab = Lab::start(LabOptions {
        karpenter: true,
        ..LabOptions::default()
    })
    .await
    .unwrap();
    fixtures::apply_scenario(&lab).await.unwrap();
    let claims = fixtures::wait_node_claims(&lab, NODE_POOL, SCENARIO_NODES)
        .await
        .unwrap();

    let pods = lab
        .kubectl(&["get", "pods", "--output=jsonpath={.items[*].spec.nodeName}"])
        .await
        .unwrap();
    let mut nodes: Vec<&str> = pods.split_whitespace().collect();
    assert_eq!(nodes.len(), SCENARIO_PODS);
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), SCENARIO_NODES);

    fixtures::drift_node_pool(&lab, NODE_POOL).await.unwrap();
    assert_eq!(
        fixtures::wait_drifted(&lab, NODE_POOL).await.unwrap().len(),
        claims.len()
    );
    let message = fixtures::wait_disruption_blocked(&lab).await.unwrap();
    println!("{message}");
}
