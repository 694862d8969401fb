//! What `spec.workloads` says of a pod: the rule that holds for it, and what it says of Jobs, unmanaged pods and data that a move would
//! lose. Pure.

use kube::core::{Selector, SelectorExt};

use crate::api::relocation::{
    EmptyDir, Jobs, RuleStrategy, UnmanagedPods, WorkloadMatch, WorkloadRule, WorkloadStrategy,
    Workloads,
};
use crate::world::Pod;

use super::report::Finding;

/// `spec.workloads`, ready to be asked about pods.
pub(super) struct Policy<'a> {
    workloads: &'a Workloads,
    rules: Vec<Rule<'a>>,
}

struct Rule<'a> {
    rule: &'a WorkloadRule,
    /// `None` when the rule does not ask for labels.
    selector: Option<Selector>,
}

/// What is to be done with the pods of a workload, as a person has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) strategy: WorkloadStrategy,
    /// Who asked: the number of the rule, from 0; `None` for `workloads.strategy`.
    pub(super) rule: Option<usize>,
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rule {
            Some(number) => write!(f, "workloads.rules[{number}] asks for {}", self.strategy),
            None => write!(f, "workloads.strategy is {}", self.strategy),
        }
    }
}

impl<'a> Policy<'a> {
    /// The policy, and what of it cannot be read: such a rule matches nothing.
    pub(super) fn new(workloads: &'a Workloads) -> (Self, Vec<Finding>) {
        let mut unreadable = Vec::new();
        let mut rules = Vec::new();
        for (number, rule) in workloads.rules.iter().enumerate() {
            let selector = rule.r#match.selector.clone().map(Selector::try_from);
            match selector.transpose() {
                Ok(selector) => rules.push(Rule { rule, selector }),
                Err(error) => {
                    let field = format!("spec.workloads.rules[{number}].match.selector");
                    unreadable.push(Finding::unreadable_selector(&field, &error.to_string()));
                    let selector = Some(nothing());
                    rules.push(Rule { rule, selector });
                }
            }
        }
        (Self { workloads, rules }, unreadable)
    }

    /// The first rule that matches the pod, whose owner is of that kind, with its number.
    fn rule(&self, kind: &str, pod: &Pod) -> Option<(usize, &'a WorkloadRule)> {
        self.rules.iter().enumerate().find_map(|(number, rule)| {
            let WorkloadMatch {
                kinds, namespaces, ..
            } = &rule.rule.r#match;
            let matches = (kinds.is_empty() || kinds.iter().any(|k| k == kind))
                && (namespaces.is_empty() || namespaces.contains(&pod.reference.namespace))
                && rule
                    .selector
                    .as_ref()
                    .is_none_or(|s| s.matches(&pod.labels));
            matches.then_some((number, rule.rule))
        })
    }

    /// What a rule asks for the pod; `None` when none says how it is to move.
    pub(super) fn strategy(&self, kind: &str, pod: &Pod) -> Option<RuleStrategy> {
        self.rule(kind, pod)?.1.strategy
    }

    /// When the pod moves: a lower order first.
    pub(super) fn order(&self, kind: &str, pod: &Pod) -> i32 {
        self.rule(kind, pod)
            .and_then(|(_, rule)| rule.order)
            .unwrap_or_default()
    }

    /// How the workload of these pods is to move: as the rule of the first of them says, or `workloads.strategy`.
    pub(super) fn asked<'p>(&self, kind: &str, pods: impl Iterator<Item = &'p Pod>) -> Asked {
        let mut pods = pods;
        let by_rule = pods.find_map(|pod| {
            let (number, rule) = self.rule(kind, pod)?;
            let strategy = match rule.strategy? {
                RuleStrategy::Auto => WorkloadStrategy::Auto,
                RuleStrategy::RolloutRestart => WorkloadStrategy::RolloutRestart,
                RuleStrategy::Surge => WorkloadStrategy::Surge,
                RuleStrategy::Evict => WorkloadStrategy::Evict,
                RuleStrategy::Wait | RuleStrategy::Skip => return None,
            };
            Some(Asked {
                strategy,
                rule: Some(number),
            })
        });
        by_rule.unwrap_or(Asked {
            strategy: self.workloads.strategy,
            rule: None,
        })
    }

    /// Pods of Jobs are left to finish, unless a rule says otherwise.
    pub(super) fn waits_for_jobs(&self) -> bool {
        self.workloads.jobs == Jobs::Wait
    }

    /// Pods that nothing would make again are evicted all the same, unless a rule says otherwise.
    pub(super) fn evicts_unmanaged(&self) -> bool {
        self.workloads.unmanaged_pods == UnmanagedPods::Evict
    }

    /// What is in emptyDir volumes must not be lost.
    pub(super) fn keeps_local_data(&self) -> bool {
        self.workloads.empty_dir == EmptyDir::Block
    }
}

/// A selector that matches nothing.
fn nothing() -> Selector {
    use kube::core::Expression;
    let never = "relocation.sh/unreadable".to_owned();
    Selector::from_iter([
        Expression::Exists(never.clone()),
        Expression::DoesNotExist(never),
    ])
}
