//! By `kubectl drain`, node by node, as long as it is let.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Clock;
use crate::scene::Scene;

/// It never finishes: the budget of the session server allows no eviction.
const CAP: Duration = Duration::from_mins(2);

/// Returns when it ended or was ended.
pub(super) async fn run(scene: &Scene, clock: &mut Clock) -> Timestamp {
    let drain = async {
        for node in &scene.old_nodes {
            let arguments = [
                "drain",
                node,
                "--ignore-daemonsets",
                "--delete-emptydir-data",
            ];
            scene.lab().kubectl(&arguments).await?;
        }
        Ok::<(), lab::LabError>(())
    };
    let what = format!("kubectl drain, node by node, at most {} s", CAP.as_secs());
    match clock.phase(&what, tokio::time::timeout(CAP, drain)).await {
        Ok(Ok(())) => clock.say("    it finished"),
        Ok(Err(error)) => clock.say(&format!("    it failed: {error}")),
        Err(_) => clock.say("    it did not finish, and was ended"),
    }
    Timestamp::now()
}
