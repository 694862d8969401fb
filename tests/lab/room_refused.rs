//! Room is refused by the cluster's own rules: told in their words, nothing leaves, and the relocation goes on when they let it, or
//! puts all back when they do not.

use jiff::Timestamp;
use lab::{NotYet, fixtures, wait_until};

use crate::world::{PATIENCE, World, condition};

const QUOTA: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: none, namespace: relocator-placeholders}
spec: {hard: {pods: '0'}}
";

const LIMITS: &str = "
apiVersion: v1
kind: LimitRange
metadata: {name: large-only, namespace: relocator-placeholders}
spec: {limits: [{type: Container, min: {cpu: '4'}}]}
";

const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: own-registry}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: relocator-placeholders}}
  validations:
  - expression: object.spec.containers.all(c, c.image.startsWith('registry.example/'))
    message: images come from registry.example
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: own-registry}
spec: {policyName: own-registry, validationActions: [Deny]}
";

/// What the restricted Pod Security Standard lets pass, and the quota.
const PROBE: &str = "
apiVersion: v1
kind: Pod
metadata: {name: probe, namespace: relocator-placeholders}
spec:
  securityContext: {runAsNonRoot: true, runAsUser: 65535, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: probe
    image: probe
    resources: {requests: {cpu: 1m}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
";

/// A database of two on one node, a node with room, and a rule that is in force, which is known by what it says.
async fn ruled(rule: &str, said: &str) -> World {
    let world = World::start().await;
    world.nodes(&[("old", "8")]).await;
    let db = fixtures::stateful_set("db", 2);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    world.lab.apply(rule).await.unwrap();
    // The API server hears of its own rules by watches.
    let probe = world.lab.dir().join("probe.yaml");
    std::fs::write(&probe, PROBE).unwrap();
    let probe = probe.to_str().unwrap();
    wait_until("the rule to be in force", PATIENCE, || async {
        let asked = ["create", "--dry-run=server", "--filename", probe];
        match world.lab.kubectl(&asked).await {
            Err(error) if error.to_string().contains(said) => Ok(()),
            other => Err(NotYet(format!("{other:?}"))),
        }
    })
    .await
    .unwrap();
    world
}

/// Told and waited for; what lifts the rule are the arguments of kubectl.
async fn refused(rule: &str, words: &[&str], lifted: &[&str]) {
    let world = ruled(rule, words[0]).await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);

    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let said = story.blocked("PlaceholderRefused").await;
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
    let lifting = Timestamp::now();
    world.kubectl(lifted).await;
    let end = story.succeeds().await;
    assert_eq!((end.pods.as_str(), end.blockers.len()), ("2/2", 0));

    let verdict = recording.judge(&world).await;
    let evictions = verdict.evictions();
    let early: Vec<_> = evictions.iter().filter(|e| e.at < lifting).collect();
    assert!(early.is_empty(), "{early:?}");
    verdict.moved_once(2);
    verdict.is_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_told_and_waited_for() {
    refused(
        QUOTA,
        &["exceeded quota: none", "pods=0"],
        &[
            "delete",
            "resourcequota",
            "none",
            "--namespace=relocator-placeholders",
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_range_is_told_and_waited_for() {
    refused(
        LIMITS,
        &["minimum cpu usage per Container is 4"],
        &[
            "delete",
            "limitrange",
            "large-only",
            "--namespace=relocator-placeholders",
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_refuses_is_told_and_waited_for() {
    refused(
        POLICY,
        &["images come from registry.example", "own-registry"],
        &["delete", "validatingadmissionpolicybinding", "own-registry"],
    )
    .await;
}

/// Nobody lifts it for as long as a place may take: nothing has moved, so all is put back.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_stays_ends_it_and_nothing_is_left() {
    let world = ruled(QUOTA, "exceeded quota: none").await;
    let before = world.snapshot().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await;
    let spec = "{nodes: {names: [old]}, replacement: {timeoutSeconds: 30}}";
    let mut story = world.relocate("move", spec).await;
    story.blocked("PlaceholderRefused").await;
    let end = story.stage("Failed").await;
    let (status, reason, message) = condition(&end, "Succeeded").unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "PlaceholderRefused")
    );
    assert!(message.contains("exceeded quota: none"), "{message}");
    assert!(!world.is_cordoned("old").await);
    let after = world.snapshot().await;
    assert_eq!(before.differences(&after), Vec::<String>::new());
    let verdict = recording.judge(&world).await;
    assert_eq!(verdict.evictions().len(), 0);
    verdict.is_clean();
}

const PUSHES: &str = "
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: relocator-placeholder}
value: -10
";

const WAITS: &str = "
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: relocator-placeholder}
value: -10
preemptionPolicy: Never
";

/// Somebody has made the class anew, without what keeps placeholders from pushing others out.
#[tokio::test(flavor = "multi_thread")]
async fn case_93_a_priority_class_of_another_making_blocks_before_any_cordon() {
    let class = ["delete", "priorityclass", "relocator-placeholder"];
    let world = World::start().await;
    world.nodes(&[("old", "8")]).await;
    let db = fixtures::stateful_set("db", 1);
    world.lab.put(&db).await.unwrap();
    world.settled().await;
    world.nodes(&[("spare", "8")]).await;
    world.kubectl(&class).await;
    world.lab.apply(PUSHES).await.unwrap();
    let before = world.snapshot().await;
    let _operator = world.operator().await;
    let recording = world.record(&["old"]).await.stay_cordoned(&["old"]);
    let mut story = world.relocate("move", "{nodes: {names: [old]}}").await;
    let said = story.blocked("PriorityClassMissing").await;
    assert!(said.contains("preemptionPolicy is not Never"), "{said}");
    let meanwhile = world.snapshot().await;
    assert_eq!(before.differences(&meanwhile), Vec::<String>::new());
    world.kubectl(&class).await;
    world.lab.apply(WAITS).await.unwrap();
    let end = story.succeeds().await;
    assert_eq!(end.pods, "1/1");
    let verdict = recording.judge(&world).await;
    verdict.moved_once(1);
    verdict.is_clean();
}
