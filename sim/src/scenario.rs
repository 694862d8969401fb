//! What a cluster holds and which relocations are asked for: fixed scenarios, and random ones from a seed. Pure.

use fastrand::Rng;
use relocator::api::relocation::{NodeRelocation, NodeRelocationSpec};
use serde_json::{Value, json};

use crate::controllers::{MANAGED, NODEPOOL, Times, node_object};
use crate::json::set;
use crate::resource::Resource;

/// A cluster and what is asked of it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The objects at the start, in the order in which they are made. Pods come from their workloads.
    pub objects: Vec<(Resource, Value)>,
    /// Changes when everything is up: nodes by name.
    pub then: Vec<(String, Change)>,
    /// So many seconds after the start.
    pub relocations: Vec<(f64, Value)>,
    pub times: Times,
    /// The spec is one that no fault and no other can keep from success.
    pub must_succeed: bool,
}

/// What happens to a node when everything is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Cordoned,
    Protected,
}

/// The scenarios that every fault is tried on at every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Named {
    /// That of design.md 1: a database, a session server, a web tier, three drifted nodes.
    Demo,
    /// The same, with its pods moved by surge only, on nodes that stay.
    Surge,
    /// Evictions only, without replacement, nodes kept.
    Evict,
    /// Every workload is restarted, the database too, on two nodes of three.
    Restart,
    /// A deadline passes in the middle, so that everything is undone.
    Undo,
}

impl Named {
    /// The scenario.
    #[must_use]
    pub fn scenario(self) -> Scenario {
        let drifted = json!({"nodes": {"nodePools": ["apps"], "state": "Drifted"}});
        let mut scenario = Builder::new(3);
        scenario.web_db_session();
        match self {
            Self::Demo => scenario.relocate(0.0, "demo", drifted),
            Self::Surge => {
                let spec = json!({"nodes": {"names": ["old-0", "old-1"]}, "workloads": {"strategy": "Surge"}, "afterDrain": "Uncordon"});
                scenario.relocate(0.0, "surge", spec);
            }
            Self::Evict => {
                scenario.node("spare-0", false);
                scenario.node("spare-1", false);
                scenario.without_session();
                let spec = json!({"nodes": {"names": ["old-0", "old-1"]}, "replacement": {"strategy": "None"}, "workloads": {"strategy": "Evict", "maxConcurrent": 2}, "afterDrain": "Keep"});
                scenario.relocate(0.0, "evict", spec);
            }
            Self::Restart => {
                let spec = json!({"nodes": {"names": ["old-0", "old-1"]}, "workloads": {"strategy": "RolloutRestart"}, "afterDrain": "Keep"});
                scenario.relocate(0.0, "restart", spec);
            }
            Self::Undo => {
                let mut spec = drifted;
                set(&mut spec, &["activeDeadlineSeconds"], 25);
                scenario.relocate(0.0, "undo", spec);
                scenario.0.must_succeed = false;
            }
        }
        scenario.0
    }
}

struct Builder(Scenario);

fn pod_template(app: &str, cpu_milli: u32, annotations: &Value) -> Value {
    json!({
        "metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "main", "resources": {"requests": {"cpu": format!("{cpu_milli}m")}}}]},
    })
}

fn times(ready: f64, stop: f64) -> Value {
    json!({"sim/ready": ready.to_string(), "sim/stop": stop.to_string()})
}

impl Builder {
    fn new(nodes: usize) -> Self {
        let mut builder = Self(Scenario {
            objects: Vec::new(),
            then: Vec::new(),
            relocations: Vec::new(),
            times: Times {
                launch: 5.0,
                boot: 2.0,
                empty: 15.0,
                capacity: true,
            },
            must_succeed: true,
        });
        for name in [
            "default",
            "kube-system",
            "relocator-placeholders",
            "relocator-system",
        ] {
            builder.add(Resource::Namespaces, json!({"metadata": {"name": name}}));
        }
        let class = json!({"metadata": {"name": "relocator-placeholder"}, "value": -10, "preemptionPolicy": "Never"});
        builder.add(Resource::PriorityClasses, class);
        builder.add(
            Resource::NodePools,
            json!({"metadata": {"name": "apps"}, "spec": {}}),
        );
        for n in 0..nodes {
            builder.node(&format!("old-{n}"), true);
        }
        builder
    }

    fn add(&mut self, resource: Resource, object: Value) {
        self.0.objects.push((resource, object));
    }

    /// A node that is up; of Karpenter, with a claim that has drifted, or of somebody else.
    fn node(&mut self, name: &str, karpenters: bool) {
        let mut node = node_object(name, true);
        if karpenters {
            let claim = json!({
                "metadata": {"name": format!("claim-{name}"), "labels": {NODEPOOL: "apps"}, "finalizers": ["karpenter.sh/termination"]},
                "spec": {},
                "status": {"nodeName": name, "conditions": [{"type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            });
            self.add(Resource::NodeClaims, claim);
        } else {
            set(
                &mut node,
                &["metadata", "labels"],
                json!({"kubernetes.io/hostname": name, "group": "static"}),
            );
        }
        self.add(Resource::Nodes, node);
    }

    fn deployment(
        &mut self,
        name: &str,
        replicas: u32,
        template: &Value,
        strategy: &Value,
        managed: Option<&str>,
    ) {
        let annotations = managed.map_or(json!({}), |m| json!({MANAGED: m}));
        self.add(Resource::Deployments, json!({
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, "strategy": strategy},
        }));
    }

    fn stateful_set(
        &mut self,
        name: &str,
        replicas: u32,
        template: &Value,
        claims: bool,
        policy: &str,
        update: &str,
    ) {
        let claims = if claims {
            json!([{"metadata": {"name": "data"}}])
        } else {
            json!([])
        };
        self.add(Resource::StatefulSets, json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, "serviceName": name,
                "podManagementPolicy": policy, "volumeClaimTemplates": claims, "updateStrategy": {"type": update},
            },
        }));
    }

    fn budget(&mut self, name: &str, labels: &Value, min_available: u32) {
        self.add(
            Resource::Budgets,
            json!({
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"minAvailable": min_available, "selector": {"matchLabels": labels}},
            }),
        );
    }

    fn relocate(&mut self, after: f64, name: &str, spec: Value) {
        // With the defaults of the schema, as an API server would fill them in.
        let Ok(spec) = serde_json::from_value::<NodeRelocationSpec>(spec) else {
            unreachable!("a scenario asks for what the schema has");
        };
        let mut object = json!(NodeRelocation::new(name, spec));
        set(&mut object, &["status"], json!({"observedGeneration": -1}));
        self.0.relocations.push((after, object));
    }

    /// The workloads of design.md 1.
    fn web_db_session(&mut self) {
        let protected = |ready: f64, stop: f64| {
            let mut annotations = times(ready, stop);
            set(&mut annotations, &["karpenter.sh/do-not-disrupt"], "true");
            annotations
        };
        let rolling =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}});
        self.stateful_set(
            "db",
            3,
            &pod_template("db", 1000, &protected(5.0, 4.0)),
            true,
            "OrderedReady",
            "RollingUpdate",
        );
        self.deployment(
            "web",
            6,
            &pod_template("web", 700, &times(4.0, 3.0)),
            &rolling,
            None,
        );
        self.deployment(
            "session-server",
            1,
            &pod_template("session-server", 500, &protected(6.0, 5.0)),
            &rolling,
            None,
        );
        self.budget("db", &json!({"app": "db"}), 2);
        self.budget("session-server", &json!({"app": "session-server"}), 1);
        self.add(Resource::DaemonSets, json!({
            "metadata": {"name": "agent", "namespace": "kube-system"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": pod_template("agent", 50, &times(1.0, 1.0))},
        }));
    }

    /// Its budget never allows an eviction.
    fn without_session(&mut self) {
        self.0
            .objects
            .retain(|(_, o)| o["metadata"]["name"] != "session-server");
    }
}

/// A random one.
#[must_use]
pub fn random(rng: &mut Rng) -> Scenario {
    let nodes = rng.usize(2..5);
    let mut builder = Builder::new(nodes);
    builder.0.times = Times {
        launch: 2.0 + 8.0 * rng.f64(),
        boot: 1.0 + 3.0 * rng.f64(),
        empty: 5.0 + 25.0 * rng.f64(),
        capacity: rng.f64() < 0.95,
    };
    builder.0.must_succeed = builder.0.times.capacity;
    // Never more than the nodes hold, or there is no telling where things are at the start.
    let mut room = i64::try_from(nodes).unwrap_or_default() * 3400;
    let workloads = rng.usize(1..5);
    for n in 0..workloads {
        workload(&mut builder, rng, n, &mut room);
    }
    if workloads > 1 && rng.f64() < 0.2 {
        shared_budget(&mut builder, rng);
    }
    if rng.f64() < 0.5 {
        builder.add(Resource::DaemonSets, json!({
            "metadata": {"name": "agent", "namespace": "kube-system"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": pod_template("agent", 50, &times(1.0, 1.0))},
        }));
    }
    for n in 0..nodes {
        if rng.f64() < 0.15 {
            builder.0.then.push((format!("old-{n}"), Change::Cordoned));
        }
        if rng.f64() < 0.15 {
            builder.0.then.push((format!("old-{n}"), Change::Protected));
        }
    }
    if rng.f64() < 0.3 {
        builder.node("spare-0", false);
    }
    relocations(&mut builder, rng, nodes);
    builder.0
}

fn workload(builder: &mut Builder, rng: &mut Rng, n: usize, room: &mut i64) {
    let name = format!("w{n}");
    let cpu = rng.u32(3..11) * 100;
    let most = u32::try_from((*room / i64::from(cpu)).clamp(0, 5)).unwrap_or_default();
    if most == 0 {
        return;
    }
    let replicas = rng.u32(1..=most);
    *room -= i64::from(cpu * replicas);
    let mut annotations = times(1.0 + 7.0 * rng.f64(), 0.5 + 6.0 * rng.f64());
    if rng.f64() < 0.4 {
        set(&mut annotations, &["karpenter.sh/do-not-disrupt"], "true");
    }
    let template = pod_template(&name, cpu, &annotations);
    if rng.bool() {
        let policy = if rng.f64() < 0.2 {
            "Parallel"
        } else {
            "OrderedReady"
        };
        let update = if rng.f64() < 0.1 {
            "OnDelete"
        } else {
            "RollingUpdate"
        };
        builder.stateful_set(&name, replicas, &template, rng.bool(), policy, update);
    } else {
        let strategy = match rng.u32(0..10) {
            0 => json!({"type": "Recreate"}),
            1 | 2 => {
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
            }
            3 | 4 => {
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}})
            }
            _ => {
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": rng.u32(1..3), "maxUnavailable": 0}})
            }
        };
        let managed = match rng.u32(0..20) {
            0 => Some("replicas"),
            1 => Some("spec"),
            _ => None,
        };
        builder.0.must_succeed &= managed.is_none();
        builder.deployment(&name, replicas, &template, &strategy, managed);
    }
    if rng.f64() < 0.4 {
        // Now and then one that never allows anything.
        let wanted = if rng.f64() < 0.15 {
            replicas
        } else {
            replicas - 1
        };
        builder.0.must_succeed &= wanted < replicas;
        builder.budget(&name, &json!({"app": name}), wanted);
    }
}

/// One budget for two workloads, instead of those that they have.
fn shared_budget(builder: &mut Builder, rng: &mut Rng) {
    let mut replicas = 0;
    for (resource, object) in &mut builder.0.objects {
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let workload = matches!(resource, Resource::Deployments | Resource::StatefulSets);
        if workload && (name == "w0" || name == "w1") {
            set(
                object,
                &["spec", "template", "metadata", "labels", "shared"],
                "yes",
            );
            replicas += object["spec"]["replicas"].as_u64().unwrap_or_default();
        }
    }
    let of_these = |o: &Value| o["metadata"]["name"] == "w0" || o["metadata"]["name"] == "w1";
    builder
        .0
        .objects
        .retain(|(r, o)| *r != Resource::Budgets || !of_these(o));
    if replicas > 1 {
        let missing = rng.u64(1..replicas.min(3));
        let wanted = u32::try_from(replicas - missing).unwrap_or_default();
        builder.budget("shared", &json!({"shared": "yes"}), wanted);
    }
}

fn relocations(builder: &mut Builder, rng: &mut Rng, nodes: usize) {
    let several = rng.f64() < 0.2;
    for n in 0..=usize::from(several) {
        let mut names: Vec<String> = (0..nodes)
            .filter(|_| rng.f64() < 0.7)
            .map(|n| format!("old-{n}"))
            .collect();
        if names.is_empty() {
            names.push("old-0".to_owned());
        }
        let selection = if rng.f64() < 0.4 {
            json!({"nodePools": ["apps"], "state": "Drifted"})
        } else {
            json!({"names": names})
        };
        let mut pick = |words: &[&str]| words[rng.usize(..words.len())].to_owned();
        let mut spec = json!({
            "nodes": selection,
            "workloads": {"strategy": pick(&["Auto", "Auto", "RolloutRestart", "Surge", "Evict"])},
            "afterDrain": pick(&["Delete", "Delete", "Keep", "Uncordon"]),
            "replacement": {"strategy": pick(&["Mirror", "Mirror", "Mirror", "None"]), "timeoutSeconds": 300},
            "protection": {"pods": pick(&["Stateful", "All", "None"])},
            "onFailure": pick(&["Rollback", "Rollback", "Hold"]),
        });
        set(
            &mut spec,
            &["workloads", "maxConcurrent"],
            [1, 2, 10][rng.usize(..3)],
        );
        if rng.f64() < 0.1 {
            let rule = json!({"match": {"kinds": ["StatefulSet"]}, "strategy": "RolloutRestart"});
            set(&mut spec, &["workloads", "rules"], json!([rule]));
        }
        if rng.f64() < 0.15 {
            set(&mut spec, &["workloads", "settleSeconds"], rng.u32(1..10));
        }
        if rng.f64() < 0.15 {
            set(&mut spec, &["activeDeadlineSeconds"], rng.u32(5..120));
            builder.0.must_succeed = false;
        }
        if rng.f64() < 0.25 {
            let sizes = [json!(1), json!(2), json!("25%"), json!("50%")];
            set(
                &mut spec,
                &["batchSize"],
                sizes[rng.usize(..sizes.len())].clone(),
            );
        }
        if rng.f64() < 0.1 {
            set(&mut spec, &["ttlSecondsAfterFinished"], rng.u32(0..60));
        }
        // Without placeholders nothing asks for nodes until pods wait.
        builder.relocate(
            if n == 0 { 0.0 } else { 20.0 * rng.f64() },
            &format!("relocation-{n}"),
            spec,
        );
    }
}
