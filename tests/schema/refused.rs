//! What the API server has to refuse, and what it has to say about it: tables, one line a refusal.

use serde_json::{Value, json};

/// What is wrong where in a spec, and the parts of what the API server has to say about it.
const INVALID: &str = r#"
nodes                       {}                     => spec.nodes: ; at least one of spec.nodes.names, spec.nodes.selector, spec.nodes.nodePools and spec.nodes.createdBefore
nodes                       {"state": "Drifted"}   => spec.nodes: ; at least one of
nodes/names                 []                     => spec.nodes.names: ; at least 1
nodes/names                 ["a", "b", "a"]        => spec.nodes.names[2]: ; Duplicate value
nodes/names                 ["Node_1"]             => spec.nodes.names[0]: ; the name of a Node
nodes/names                 [""]                   => spec.nodes.names[0]: ; at least 1
nodes/nodePools             []                     => spec.nodes.nodePools: ; at least 1
nodes/nodePools             ["apps", "apps"]       => spec.nodes.nodePools[1]: ; Duplicate value
nodes/nodePools             ["apps/blue"]          => spec.nodes.nodePools[0]: ; the name of a NodePool
nodes/state                 "Empty"                => spec.nodes.state: ; "Any", "Drifted"
nodes/limit                 0                      => spec.nodes.limit: ; greater than or equal to 1
nodes/limit                 1001                   => spec.nodes.limit: ; less than or equal to 1000
nodes/limit                 "many"                 => spec.nodes.limit: ; integer
nodes/createdBefore         "yesterday"            => spec.nodes.createdBefore: ; date-time
nodes/createdBefore         "2026-11-30"           => spec.nodes.createdBefore: ; date-time
nodes/createdBefore         "2026-11-31T00:00:00Z" => spec.nodes.createdBefore: ; date-time
nodes/createdBefore         "2026-11-30t00:00:00z" => spec.nodes.createdBefore: ; should match
nodes/createdBefore         "1999-12-31T23:59:59Z" => spec.nodes.createdBefore: ; 2000 to 2099
replacement/placement       {}                                                  => spec.replacement.placement: ; at least one of nodeSelector and tolerations
replacement/placement       {"nodeSelector": {}}                                => spec.replacement.placement.nodeSelector: ; at least one label
replacement/placement       {"nodeSelector": {"a b": "c"}}                      => spec.replacement.placement.nodeSelector: ; each key is a label key
replacement/placement       {"nodeSelector": {"a": "b c"}}                      => spec.replacement.placement.nodeSelector: ; each value is a label value
replacement/placement       {"tolerations": []}                                 => spec.replacement.placement.tolerations: ; at least 1
replacement/placement       {"tolerations": [{}]}                               => spec.replacement.placement.tolerations[0]: ; without a key the operator is Exists
replacement/placement       {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]} => spec.replacement.placement.tolerations[0]: ; a value is not allowed
replacement/placement       {"tolerations": [{"key": "a b"}]}                   => spec.replacement.placement.tolerations[0].key: ; the key of a taint
replacement/placement       {"tolerations": [{"key": "a", "operator": "In"}]}   => spec.replacement.placement.tolerations[0].operator: ; "Equal", "Exists"
replacement/placement       {"tolerations": [{"key": "a", "value": "b c"}]}     => spec.replacement.placement.tolerations[0].value: ; a label value
replacement/placement       {"tolerations": [{"key": "a", "effect": "Never"}]}  => spec.replacement.placement.tolerations[0].effect: ; "NoSchedule"
replacement                 {"strategy": "None", "placement": {"nodeSelector": {"a": "b"}}} => spec.replacement.placement: ; spec.replacement.strategy None
batchSize                   0                      => spec.batchSize: ; greater than or equal to 1
batchSize                   1001                   => spec.batchSize: ; less than or equal to 1000
batchSize                   "0%"                   => spec.batchSize: ; a percentage of them, 1% to 100%
batchSize                   "101%"                 => spec.batchSize: ; a percentage of them, 1% to 100%
batchSize                   "12.5%"                => spec.batchSize: ; a percentage of them, 1% to 100%
batchSize                   "25"                   => spec.batchSize: ; a percentage of them, 1% to 100%
batchSize                   1.5                    => spec.batchSize: ; integer
batchSize                   true                   => spec.batchSize: ; integer
replacement/strategy        "Magic"                => spec.replacement.strategy: ; "Mirror", "None"
replacement/image           ""                     => spec.replacement.image: ; at least 1
replacement/image           "pause :3.10"          => spec.replacement.image: ; without spaces
replacement/timeoutSeconds  29                     => spec.replacement.timeoutSeconds: ; greater than or equal to 30
replacement/timeoutSeconds  86401                  => spec.replacement.timeoutSeconds: ; less than or equal to 86400
workloads/strategy          "Delete"               => spec.workloads.strategy: ; "Auto", "RolloutRestart", 
workloads/maxConcurrent     0                      => spec.workloads.maxConcurrent: ; greater than or equal to 1
activeDeadlineSeconds       0                      => spec.activeDeadlineSeconds: ; greater than or equal to 1
activeDeadlineSeconds       2592001                => spec.activeDeadlineSeconds: ; less than or equal to 2592000
ttlSecondsAfterFinished     31536001               => spec.ttlSecondsAfterFinished: ; less than or equal to 31536000
onFailure                   "Keep"                 => spec.onFailure: ; "Rollback"
workloads/maxConcurrent     1001                   => spec.workloads.maxConcurrent: ; less than or equal to 1000
workloads/settleSeconds     -1                     => spec.workloads.settleSeconds: ; greater than or equal to 0
workloads/settleSeconds     86401                  => spec.workloads.settleSeconds: ; less than or equal to 86400
protection/pods             "Some"                 => spec.protection.pods: ; "Stateful", "All", "None"
protection  {"pods": "All", "selector": {"matchLabels": {"a": "b"}}}   => spec.protection.selector: ; set spec.protection.pods to Stateful
protection  {"pods": "None", "selector": {"matchLabels": {"a": "b"}}}  => spec.protection.selector: ; set spec.protection.pods to Stateful
workloads/timeoutSeconds    59                     => spec.workloads.timeoutSeconds: ; greater than or equal to 60
workloads/timeoutSeconds    604801                 => spec.workloads.timeoutSeconds: ; less than or equal to 604800
workloads/unmanagedPods     "Delete"               => spec.workloads.unmanagedPods: ; "Block", "Evict"
workloads/jobs              "Kill"                 => spec.workloads.jobs: ; "Wait", "Evict"
workloads/emptyDir          "Keep"                 => spec.workloads.emptyDir: ; "Allow", "Block"
workloads/rules             []                     => spec.workloads.rules: ; at least 1
workloads/rules             [{"match": {"kinds": ["Job"]}}]                                   => spec.workloads.rules[0]: ; at least one of strategy and order
workloads/rules             [{"strategy": "Skip"}]                                            => spec.workloads.rules[0].match: ; Required value
workloads/rules             [{"match": {}, "strategy": "Skip"}]                               => spec.workloads.rules[0].match: ; at least one of kinds, namespaces and selector
workloads/rules             [{"match": {"kinds": ["job"]}, "strategy": "Skip"}]               => spec.workloads.rules[0].match.kinds[0]: ; a kind as in a manifest
workloads/rules             [{"match": {"kinds": []}, "strategy": "Skip"}]                    => spec.workloads.rules[0].match.kinds: ; at least 1
workloads/rules             [{"match": {"namespaces": ["Default"]}, "strategy": "Skip"}]      => spec.workloads.rules[0].match.namespaces[0]: ; the name of a Namespace
workloads/rules             [{"match": {"kinds": ["Job"]}, "strategy": "Delete"}]             => spec.workloads.rules[0].strategy: ; "Wait", "Skip"
workloads/rules             [{"match": {"kinds": ["Job"]}, "order": 1001}]                    => spec.workloads.rules[0].order: ; less than or equal to 1000
workloads/rules             [{"match": {"kinds": ["Job"]}, "order": -1001}]                   => spec.workloads.rules[0].order: ; greater than or equal to -1000
workloads/rules             [{"match": {"selector": {}}, "order": 1}]                         => spec.workloads.rules[0].match.selector: ; is empty
mode                        "DryRun"               => spec.mode: ; "Execute", "Plan"
afterDrain                  "Destroy"              => spec.afterDrain: ; "Delete", "Keep", "Uncordon"
"#;

/// The same for a selector, wherever there is one.
const INVALID_SELECTORS: &str = r#"
selector  {}                                                                        => selector: ; is empty
selector  {"matchLabels": {}}                                                       => selector: ; is empty
selector  {"matchExpressions": []}                                                  => selector: ; is empty
selector  {"matchLabels": {"not a key": "x"}}                                       => selector.matchLabels: ; each key
selector  {"matchLabels": {"a": "not a value"}}                                     => selector.matchLabels: ; each value
selector  {"matchExpressions": [{"key": "a", "operator": "In"}]}                    => selector.matchExpressions[0]: ; values are required with operator In and NotIn
selector  {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": []}]}   => selector.matchExpressions[0]: ; values are required with operator In and NotIn
selector  {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}  => selector.matchExpressions[0]: ; not allowed with Exists and DoesNotExist
selector  {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}   => selector.matchExpressions[0].operator: ; "DoesNotExist"
selector  {"matchExpressions": [{"key": "not a key", "operator": "Exists"}]}        => selector.matchExpressions[0].key: ; a label key
selector  {"matchExpressions": [{"key": "a", "operator": "In", "values": ["a b"]}]} => selector.matchExpressions[0].values[0]: ; a label value
selector  {"matchExpressions": [{"operator": "Exists"}]}                            => selector.matchExpressions[0].key: ; Required value
"#;

/// A spec that is refused, and the parts of what has to be said about it.
pub(crate) struct Refused {
    pub(crate) path: String,
    pub(crate) value: Value,
    pub(crate) said: Vec<String>,
}

impl Refused {
    fn new(path: &str, value: Value, said: &[&str]) -> Self {
        let said = said.iter().map(|&part| part.to_owned()).collect();
        Self {
            path: path.to_owned(),
            value,
            said,
        }
    }

    pub(crate) fn rows(table: &str) -> impl Iterator<Item = Self> {
        table.lines().filter(|line| !line.is_empty()).map(|line| {
            let (asked, said) = line.split_once("=>").unwrap();
            let (path, value) = asked.split_once(' ').unwrap();
            let said: Vec<&str> = said.split(';').map(str::trim).collect();
            Self::new(path, serde_json::from_str(value).unwrap(), &said)
        })
    }
}

/// All that is invalid from the start.
pub(crate) fn invalid() -> Vec<Refused> {
    let mut all: Vec<Refused> = Refused::rows(INVALID).chain(too_long()).collect();
    for within in ["nodes", "protection"] {
        for row in Refused::rows(INVALID_SELECTORS).chain(too_long_selectors()) {
            let said = row.said.iter().enumerate();
            let said = said.map(|(i, part)| {
                if i == 0 {
                    format!("spec.{within}.{part}")
                } else {
                    part.clone()
                }
            });
            all.push(Refused {
                path: within.to_owned(),
                said: said.collect(),
                value: json!({"selector": row.value}),
            });
        }
    }
    all
}

fn too_long() -> impl Iterator<Item = Refused> {
    let text = |length: usize| "a".repeat(length);
    let names = |count: usize| (0..count).map(|i| format!("node-{i}")).collect::<Vec<_>>();
    [
        Refused::new(
            "nodes/names",
            json!([text(254)]),
            &["spec.nodes.names[0]:", "253"],
        ),
        Refused::new(
            "nodes/names",
            json!(names(1001)),
            &["spec.nodes.names:", "at most 1000 items"],
        ),
        Refused::new(
            "nodes/nodePools",
            json!([text(64)]),
            &["spec.nodes.nodePools[0]:", "63"],
        ),
        Refused::new(
            "nodes/nodePools",
            json!(names(101)),
            &["spec.nodes.nodePools:", "at most 100 items"],
        ),
        Refused::new(
            "replacement/image",
            json!(text(513)),
            &["spec.replacement.image:", "512"],
        ),
    ]
    .into_iter()
}

fn too_long_selectors() -> impl Iterator<Item = Refused> {
    let labels: serde_json::Map<_, _> = (0..33).map(|i| (format!("key-{i}"), json!("x"))).collect();
    let expressions = vec![json!({"key": "a", "operator": "Exists"}); 33];
    let value = json!({"matchLabels": {"a": "a".repeat(64)}});
    let values = json!({"key": "a", "operator": "In", "values": vec!["x"; 33]});
    [
        Refused::new("selector", value, &["selector.matchLabels.a:", "63"]),
        Refused::new(
            "selector",
            json!({"matchLabels": labels}),
            &["selector.matchLabels:", "at most 32"],
        ),
        Refused::new(
            "selector",
            json!({"matchExpressions": expressions}),
            &["selector.matchExpressions:", "at most 32"],
        ),
        Refused::new(
            "selector",
            json!({"matchExpressions": [values]}),
            &["selector.matchExpressions[0].values:", "at most 32"],
        ),
    ]
    .into_iter()
}

/// Changes of a spec, and the field that may not change any more once the relocation has started.
pub(crate) const IMMUTABLE: &str = r#"
nodes/names              ["a", "b"]                       => spec.nodes
nodes/selector           {"matchLabels": {"x": "z"}}      => spec.nodes
nodes/nodePools          null                             => spec.nodes
nodes/state              "Drifted"                        => spec.nodes
nodes/limit              51                               => spec.nodes
batchSize                1                                => spec.batchSize
replacement/strategy     "None"                           => spec.replacement.strategy
nodes/createdBefore      "2026-11-30T00:00:00Z"           => spec.nodes
replacement/image        "pause:4"                        => spec.replacement.image
replacement/placement    {"nodeSelector": {"a": "b"}}     => spec.replacement.placement
workloads/strategy       "Evict"                          => spec.workloads.strategy
workloads/settleSeconds  5                                => spec.workloads.settleSeconds
workloads/rules          [{"match": {"kinds": ["Job"]}, "order": 1}] => spec.workloads.rules
workloads/unmanagedPods  "Evict"                          => spec.workloads.unmanagedPods
workloads/jobs           "Evict"                          => spec.workloads.jobs
workloads/emptyDir       "Block"                          => spec.workloads.emptyDir
mode                     "Plan"                           => spec.mode
protection/selector      {"matchLabels": {"x": "z"}}      => spec.protection
protection               {"pods": "All", "selector": null} => spec.protection
afterDrain               "Keep"                           => spec.afterDrain
"#;

/// The place of a path such as `replacement/image`, made where it is not there.
pub(crate) fn field<'a>(mut at: &'a mut Value, path: &str) -> &'a mut Value {
    for name in path.split('/') {
        at = &mut at[name];
    }
    at
}

/// A spec that is valid but for what is at that path.
pub(crate) fn spec_with(path: &str, value: Value) -> Value {
    let mut spec = json!({"nodes": {"nodePools": ["apps"]}});
    *field(&mut spec, path) = value;
    spec
}
