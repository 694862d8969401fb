//! Labs come up side by side, work, and leave nothing running, however their owner ends.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::fixtures::{self, Pods};
use lab::process::ProcessId;
use lab::{Lab, LabOptions, NotYet, PodTimes, Program, detached, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn two_labs_at_once_each_run_a_pod_and_leave_nothing_behind() {
    let (first, second) = tokio::join!(
        Lab::start(LabOptions::default()),
        Lab::start(LabOptions::default())
    );
    let labs = [first.unwrap(), second.unwrap()];
    for lab in &labs {
        lab.put(&fixtures::fake_node("node-1", "4", &[]))
            .await
            .unwrap();
        lab.put(&fixtures::bare_pod("pod-1")).await.unwrap();
        let pod = fixtures::wait_pod_ready(lab, "default", "pod-1")
            .await
            .unwrap();
        assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-1"));
    }
    for lab in labs {
        let (processes, dir) = (lab.process_ids(), lab.dir().to_owned());
        assert_eq!(processes.len(), 5);
        drop(lab);
        assert!(processes.iter().all(|process| !process.is_alive()));
        assert!(!dir.exists());
    }
}

/// Not a test of its own: the owner that the next one kills.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by a_killed_owner_takes_its_programs_with_it"]
async fn an_owner_that_is_killed() {
    let lab = Lab::start(LabOptions::default()).await.unwrap();
    println!(
        "\nprocesses {}",
        serde_json::to_string(&lab.process_ids()).unwrap()
    );
    tokio::time::sleep(Duration::from_mins(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_takes_its_programs_with_it() {
    let mut owner = Command::new(std::env::current_exe().unwrap());
    owner.args([
        "--exact",
        "an_owner_that_is_killed",
        "--ignored",
        "--nocapture",
    ]);
    let mut owner = owner.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let said = tokio::task::spawn_blocking(move || {
        lines
            .into_iter()
            .find_map(|line| line.strip_prefix("processes ").map(str::to_owned))
    });
    let said = said.await.unwrap().expect("the owner started a lab");
    let processes: Vec<ProcessId> = serde_json::from_str(&said).unwrap();
    assert_eq!(processes.len(), 5);
    assert!(processes.iter().all(ProcessId::is_alive));
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until(
        "the lab's programs to end",
        Duration::from_secs(5),
        || async {
            let alive: Vec<u32> = processes
                .iter()
                .filter(|id| id.is_alive())
                .map(|id| id.pid)
                .collect();
            if alive.is_empty() {
                Ok(())
            } else {
                Err(NotYet(format!("{alive:?} run")))
            }
        },
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_lab_lives_until_it_is_taken_down() {
    let name = format!("test-{}", std::process::id());
    let up = detached::up(&name, LabOptions::default()).await.unwrap();
    assert!(!up.was_up);
    let again = detached::up(&name, LabOptions::default()).await.unwrap();
    assert!(again.was_up);
    assert_eq!(again.kubeconfig, up.kubeconfig);
    assert!(detached::list().unwrap().contains(&name));

    let nodes = Command::new(&up.kubectl)
        .env("KUBECONFIG", &up.kubeconfig)
        .args(["get", "nodes"])
        .status()
        .unwrap();
    assert!(nodes.success());

    assert!(detached::down(&name).unwrap());
    assert!(!up.dir.exists());
    assert!(!detached::down(&name).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_can_be_stopped_hung_and_started_again() {
    let lab = Lab::start(LabOptions::default()).await.unwrap();
    lab.put(&fixtures::namespace("before")).await.unwrap();

    lab.stop_api_server().unwrap();
    assert!(lab.kubectl(&["get", "namespaces"]).await.is_err());
    lab.start_api_server().await.unwrap();
    assert!(
        lab.kubectl(&["get", "namespaces"])
            .await
            .unwrap()
            .contains("before")
    );

    lab.pause(Program::ApiServer).unwrap();
    assert!(
        lab.kubectl(&["get", "namespaces", "--request-timeout=1s"])
            .await
            .is_err()
    );
    lab.resume(Program::ApiServer).unwrap();
    lab.kubectl(&["get", "namespaces"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_start_is_quoted() {
    let options = LabOptions {
        arguments: [(Program::Scheduler, vec!["--no-such-flag".to_owned()])].into(),
        ..LabOptions::default()
    };
    let error = Lab::start(options).await.unwrap_err().to_string();
    assert!(
        error.contains("kube-scheduler: it ended") && error.contains("no-such-flag"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_has_just_the_access_it_was_given() {
    let lab = Lab::start(LabOptions::default()).await.unwrap();
    let file = lab
        .kubeconfig_for_service_account("default", "default")
        .await
        .unwrap();
    let kubeconfig = format!("--kubeconfig={}", file.display());
    let who = lab.kubectl(&[&kubeconfig, "auth", "whoami"]).await.unwrap();
    assert!(
        who.contains("system:serviceaccount:default:default"),
        "{who}"
    );
    let refused = lab
        .kubectl(&[&kubeconfig, "get", "nodes"])
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("forbidden"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_can_take_their_time_never_be_ready_and_never_end() {
    let lab = Lab::start(LabOptions::default()).await.unwrap();
    lab.put(&fixtures::fake_node("node-1", "4", &[]))
        .await
        .unwrap();
    lab.put(&fixtures::bare_pod("never-ready").never_ready())
        .await
        .unwrap();
    lab.put(&fixtures::bare_pod("never-ends").never_ends())
        .await
        .unwrap();
    lab.put(&fixtures::bare_pod("slow").ready_after(3))
        .await
        .unwrap();
    lab.put(&fixtures::bare_pod("fast")).await.unwrap();
    fixtures::wait_pod_ready(&lab, "default", "fast")
        .await
        .unwrap();
    fixtures::wait_pod_ready(&lab, "default", "never-ends")
        .await
        .unwrap();
    let slow = fixtures::wait_pod_ready(&lab, "default", "slow")
        .await
        .unwrap()
        .status
        .unwrap()
        .conditions
        .unwrap();
    let since = |name: &str| {
        slow.iter()
            .find(|c| c.type_ == name)
            .unwrap()
            .last_transition_time
            .clone()
            .unwrap()
            .0
    };
    let took = since("Ready")
        .duration_since(since("PodScheduled"))
        .as_secs();
    // Times in conditions are whole seconds.
    assert!((2..=5).contains(&took), "{took} s");

    let phase = lab
        .kubectl(&[
            "get",
            "pod",
            "never-ready",
            "--output=jsonpath={.status.phase}",
        ])
        .await
        .unwrap();
    assert_eq!(phase, "Running");
    lab.kubectl(&["delete", "pod", "never-ends", "never-ready", "--wait=false"])
        .await
        .unwrap();
    lab.kubectl(&["delete", "pod", "fast", "--timeout=20s"])
        .await
        .unwrap();
    lab.kubectl(&["wait", "--for=delete", "pod/never-ready", "--timeout=20s"])
        .await
        .unwrap();
    assert!(
        lab.kubectl(&["get", "pods"])
            .await
            .unwrap()
            .contains("never-ends")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_times_of_its_own_keeps_them_among_general_ones() {
    let options = LabOptions {
        pod_times: PodTimes::General,
        ..LabOptions::default()
    };
    let lab = Lab::start(options).await.unwrap();
    lab.put(&fixtures::fake_node("node-1", "4", &[]))
        .await
        .unwrap();
    let quick = fixtures::bare_pod("quick")
        .annotate("pod-create.stage.kwok.x-k8s.io/delay", "0s")
        .ready_after(1)
        .ends_after(1)
        .grace(60);
    lab.put(&quick).await.unwrap();
    fixtures::wait_pod_ready(&lab, "default", "quick")
        .await
        .unwrap();
    // A general pod would take up to its whole grace.
    lab.kubectl(&["delete", "pod", "quick", "--timeout=5s"])
        .await
        .unwrap();
}
