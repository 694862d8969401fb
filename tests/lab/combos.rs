//! Every way to end a relocation before its end, in every stage that it can be in: what is different afterwards is that the pods that had
//! moved are elsewhere, and nothing else, on any Node, `NodeClaim`, Pod, Deployment or
//! `StatefulSet`, field by field.

use kube::api::DeleteParams;
use lab::judge::Kind;
use serde_json::json;

use crate::held::{Case, NODES, Stage};
use crate::shared::Shared;
use crate::world::{PATIENCE, Story, condition};

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
            use super::{WayOut, ends};
            use crate::held::Stage;

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
    let mut case = Case {
        shared: &shared,
        name: name.clone(),
        holds: vec![stage],
    };
    shared.tell(&name, async {
        case.set_up().await;
        let before = case.snapshot().await;
        let mut story = case.relocate().await;
        case.held(&mut story, stage).await;
        end(&mut case, &mut story, stage, way).await;
        let after = case.snapshot().await;
        let differences = case.differences(&before, &after);
        assert_eq!(differences, expected(&case, stage, way), "{name}");
        if story.follower.last().is_some() {
            story.deleted().await;
        }
    });
}

async fn end(case: &mut Case<'_>, story: &mut Story<'_>, stage: Stage, way: WayOut) {
    match way {
        WayOut::Deleted => story.deleted().await,
        WayOut::Suspended => {
            case.patch_spec(&json!({"suspend": true})).await;
            story.stage("Suspended").await;
            story.deleted().await;
        }
        WayOut::Resumed => {
            case.patch_spec(&json!({"suspend": true})).await;
            story.stage("Suspended").await;
            case.lift(stage).await;
            case.patch_spec(&json!({"suspend": false})).await;
            if stage == Stage::Removing {
                case.nodes_go().await;
            }
            story.succeeds().await;
        }
        WayOut::Deadline => {
            case.patch_spec(&json!({"activeDeadlineSeconds": 1})).await;
            let end = story.follower.over(PATIENCE).await.unwrap();
            let (status, reason, _) = condition(&end, "Succeeded").unwrap();
            let said = (end.stage.as_str(), status.as_str(), reason.as_str());
            assert_eq!(said, ("Failed", "False", "DeadlineExceeded"));
        }
        WayOut::Killed => {
            let delete = async {
                let relocations = case.dynamic(Kind::NodeRelocation).await;
                let one = DeleteParams::default();
                relocations.delete(&case.name, &one).await.unwrap();
            };
            case.shared.without_operator(delete).await;
            story.follower.gone(PATIENCE).await.unwrap();
        }
    }
    case.whole().await;
}

/// The pods that had moved by then, and at the right end of the last stage the nodes.
fn expected(case: &Case<'_>, stage: Stage, way: WayOut) -> Vec<String> {
    let resumed = way == WayOut::Resumed;
    let database = match stage {
        _ if resumed => 0..3,
        Stage::Protecting | Stage::Cordoning | Stage::Provisioning => 0..0,
        // The highest ordinals first.
        Stage::Moving => 1..3,
        Stage::Draining | Stage::Removing => 0..3,
    };
    let mut lines = case.moved(database);
    if resumed && stage == Stage::Removing {
        for (end, _) in NODES {
            let name = case.called(end);
            lines.extend(["Node", "NodeClaim"].map(|kind| format!("{kind} {name}: gone")));
        }
    }
    lines.sort();
    lines
}
