//! Webhooks that would not be answered while their own pods move. Pure.

use kube::core::SelectorExt;

use crate::api::status::MoveStrategy;
use crate::plan::draft::Draft;
use crate::plan::report::Finding;
use crate::plan::scene::{Scene, Work};
use crate::plan::strategy::Choice;
use crate::world::{Pod, Webhook};

/// A workload of one pod that is evicted is away for a moment. If a webhook that fails closed is asked about the creation of pods, and
/// that pod alone answers, then no pod can be created meanwhile, not even its successor where the webhook is asked about that one too.
pub(super) fn check(scene: &Scene<'_>, draft: &mut Draft, work: &Work<'_>, choice: &Choice) {
    if choice.strategy != MoveStrategy::Evict || work.replicas() != 1 {
        return;
    }
    for pod in work.staying() {
        for webhook in answered(scene, pod) {
            let covers = webhook.objects.as_ref();
            let covers_it = covers.is_none_or(|s| s.matches(&pod.labels));
            if covers_it && !webhook.some_namespaces {
                draft.block(Finding::admission_deadlock(&pod.reference, &webhook.name));
            } else {
                draft.warn(Finding::admission_down(&work.reference, &webhook.name));
            }
        }
    }
}

/// The webhooks that refuse pods when this pod does not answer.
fn answered<'a>(scene: &Scene<'a>, pod: &Pod) -> impl Iterator<Item = &'a Webhook> {
    let services: Vec<_> = scene
        .cluster
        .services
        .values()
        .filter(|s| s.selects(pod))
        .collect();
    let lists = scene.cluster.webhooks.values();
    lists.flat_map(|list| &list.webhooks).filter(move |w| {
        let asks = |(namespace, name): &(String, String)| {
            services.iter().any(|service| service.is(namespace, name))
        };
        w.fails_closed && w.asked.creation && w.service.as_ref().is_some_and(asks)
    })
}
