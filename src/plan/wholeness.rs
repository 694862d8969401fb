//! What is waited for of a workload that is not whole: the pods that it lacks, or the word of its owner. Pure.

use crate::world::Health;

use super::parent::Word;
use super::report::Waiting;
use super::scene::{Owner, Work};

/// What is waited for of a workload that is not whole, of which so many pods are Ready: those that are missing, or its owner's word.
pub(super) fn not_whole(work: &Work<'_>, ready: usize) -> Waiting {
    if let Owner::Other(owner) = work.owner
        && let Health::Unwell(said) = &owner.health
        && work.ending() == 0
        && work.size() == work.replicas()
        && ready >= work.replicas()
    {
        return Waiting::Well {
            owner: work.reference.to_string(),
            said: said.clone(),
        };
    }
    Waiting::Whole {
        workload: work.reference.clone(),
        ready,
        replicas: work.replicas(),
    }
}

/// What the controller above the workload is waited for, which is whole by its own word.
pub(super) fn unwell(work: &Work<'_>) -> Option<Waiting> {
    let parent = work.parent?;
    let said = match parent.word() {
        Word::Nothing | Word::Unheard(_) => return None,
        Word::Unwell(said) => said.to_owned(),
        Word::Unknown(Some(unknown)) => unknown.why.clone(),
        Word::Unknown(None) => "not read yet".to_owned(),
    };
    Some(Waiting::Well {
        owner: parent.named(&work.reference.namespace),
        said,
    })
}
