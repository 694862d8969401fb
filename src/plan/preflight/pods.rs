//! Pods that nobody would make again, that could not run elsewhere, or that leave something behind. Pure.

use crate::plan::draft::Draft;
use crate::plan::report::Finding;
use crate::plan::treatment::{Treatment, cannot_land_elsewhere};

use super::Outline;

pub(super) fn check(draft: &mut Draft, outline: &Outline<'_, '_>) {
    for (pod, treatment) in outline.pods {
        match treatment {
            Treatment::Stuck(blocker) => draft.block(blocker.clone()),
            Treatment::Moves => draft.blockers.extend(cannot_land_elsewhere(pod)),
            Treatment::Skipped => {
                if let Some(node) = &pod.node {
                    draft.warn(Finding::skipped(&pod.reference, node));
                }
            }
            Treatment::Stays
            | Treatment::Finished
            | Treatment::GivesWay
            | Treatment::Waits { .. } => {}
        }
    }
}
