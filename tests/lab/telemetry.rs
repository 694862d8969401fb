//! What the operator tells over HTTP, while it leads and while it stands by.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use lab::fixtures;
use lab::operator::{Operator, OperatorOptions};
use lab::wait::{NotYet, wait_until};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{PATIENCE, World, binary};

async fn started(world: &World, identity: &str, address: SocketAddr) -> Operator {
    let address = address.to_string();
    let arguments = ["--http", &address, "--log-format", "json"];
    let options = OperatorOptions {
        identity: Some(identity.to_owned()),
        arguments: arguments.map(str::to_owned).to_vec(),
        ..OperatorOptions::default()
    };
    Operator::start_with(&world.lab, binary(), options)
        .await
        .unwrap()
}

/// The address that the system chose for it, as its log has it.
async fn address(operator: &Operator) -> SocketAddr {
    let look = async || {
        let log = std::fs::read_to_string(operator.log())?;
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut lines = lines.filter(|line: &Value| {
            let message = line.get("message");
            message.is_some_and(|m| m == "probes and metrics are served")
        });
        let line = lines.next().ok_or_else(|| NotYet::because(log.clone()))?;
        let address = line.get("address").and_then(Value::as_str);
        Ok(address.unwrap().parse().unwrap())
    };
    wait_until("the address in the log", PATIENCE, look)
        .await
        .unwrap()
}

async fn get(address: SocketAddr, path: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: relocator\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    Ok((status.to_owned(), body.to_owned()))
}

async fn answers(address: SocketAddr, path: &str, with: &str) {
    let look = async || {
        let (status, body) = get(address, path).await?;
        if status.contains("200") && body.contains(with) {
            Ok(())
        } else {
            Err(NotYet::because(format!("{status}: {body}")))
        }
    };
    wait_until(path, PATIENCE, look).await.unwrap();
}

fn value(metrics: &str, name: &str) -> Option<String> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.map(|value| value.trim().to_owned())
}

/// Two instances. Both are ready, one leads; what the leader counts is what the API server has seen.
#[tokio::test(flavor = "multi_thread")]
async fn probes_are_true_of_both_instances_and_figures_agree_with_the_audit_log() {
    let world = World::start().await;
    world.nodes(&[("old", "4")]).await;
    let db = fixtures::stateful_set("db", 2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "4")]).await;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut leader = started(&world, "first", any).await;
    leader.wait_leading(&world.lab).await.unwrap();
    let standby = started(&world, "second", any).await;
    let (first, second) = (address(&leader).await, address(&standby).await);
    for address in [first, second] {
        answers(address, "/healthz", "ok").await;
        answers(address, "/readyz", "ok").await;
    }
    answers(first, "/metrics", "relocator_leader 1\n").await;
    answers(second, "/metrics", "relocator_leader 0\n").await;

    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let spec = "{nodes: {names: [old]}, afterDrain: Keep}";
    world.relocate("move", spec).await.succeeds().await;
    let succeeded = "relocator_relocations{stage=\"Succeeded\"} 1\n";
    answers(first, "/metrics", succeeded).await;
    let (_, metrics) = get(first, "/metrics").await.unwrap();
    let verdict = recording.judge(&world).await;
    let accepted = verdict.evictions().iter().filter(|e| e.code < 300).count();
    assert_eq!(accepted, 2);
    let counted = "relocator_requests_total{action=\"evict\",result=\"done\"}";
    assert_eq!(value(&metrics, counted), Some(accepted.to_string()));
    let passes = value(&metrics, "relocator_pass_duration_seconds_count").unwrap();
    assert!(passes.parse::<u32>().unwrap() > 5, "{passes}");
    assert_eq!(
        value(&metrics, "relocator_failed_passes_total"),
        Some("0".into())
    );
    verdict.moved_once(2);
    verdict.is_clean();
}

/// An address that is taken is told with the option, and nothing is begun.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_told() {
    let world = World::start().await;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let mut operator = started(&world, "late", address).await;
    let ended = || {
        let ended = operator.ended();
        async move { ended?.ok_or_else(|| NotYet::because("it runs")) }
    };
    let ended = wait_until("the operator to end", PATIENCE, ended)
        .await
        .unwrap();
    assert!(!ended.success());
    let log = std::fs::read_to_string(operator.log()).unwrap();
    let said = format!("listening on {address} (--http)");
    assert!(log.contains(&said), "{log}");
}
