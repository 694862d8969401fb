use super::*;
use crate::judge::scorecard::{NodeCounts, OwnerScore};

fn card(web: f64, most: u32, moves: u32) -> Scorecard {
    let owner = |replicas, lost, most| OwnerScore {
        moves: replicas,
        replicas,
        unavailable_pod_seconds: lost,
        most_unavailable: most,
    };
    Scorecard {
        finished: most == 0,
        wall_seconds: 42.7,
        pods: 7,
        moves,
        nodes: NodeCounts {
            made: 3,
            removed: 3,
        },
        owners: [
            ("shop/Deployment/web".to_owned(), owner(6, web, most)),
            ("shop/StatefulSet/db".to_owned(), owner(1, 4.0, 1)),
        ]
        .into(),
        ..Scorecard::default()
    }
}

#[test]
fn runs_stand_side_by_side() {
    let mut relocator = card(0.0, 0, 7);
    relocator.requests_per_move = Some(4.26);
    let mut drain = card(46.6, 6, 9);
    drain.double_moves = 2;
    drain.left_behind = [
        "Node a: cordon",
        "Node b: cordon",
        "Pod s/p: placeholder",
        "Pod s/q: x",
    ]
    .map(str::to_owned)
    .into();
    drain.broken_invariants = vec!["1: x".to_owned()];
    let table = Scorecard::table(&[("relocator", &relocator), ("kubectl drain", &drain)]);
    assert_eq!(
        table,
        "\
way            finished  s   moves for 7  double, needless  unavailable web / db  most of web down  nodes +, -  requests a move  left behind                      broken
relocator      yes       43  7            0, 0              0 / 4                 0                 3, 3        4.3              -                                -
kubectl drain  never     43  9            2, 0              47 / 4                6 of 6            3, 3        -                2 x cordon, placeholder, 1 more  1
"
    );
}
