//! The times that a relocation sets itself: `activeDeadlineSeconds` and `ttlSecondsAfterFinished`, as a Job has them. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::world::World;

use super::draft::Draft;
use super::report::Finding;

/// Starts the undoing when the deadline has passed; else looks again when it will have.
pub(super) fn exceeded(world: &World, draft: &mut Draft) -> bool {
    let Some(seconds) = world.relocation.spec.active_deadline_seconds else {
        return false;
    };
    let Some(started) = draft.status.start_time.as_ref().map(|t| t.0) else {
        return false;
    };
    let due = after(started, seconds);
    if due > world.now {
        draft.look_at(due);
        return false;
    }
    draft.roll_back(world, &Finding::deadline_exceeded(seconds));
    true
}

/// When the finished relocation is to be deleted.
pub(super) fn expiry(world: &World) -> Option<Timestamp> {
    let seconds = world.relocation.spec.ttl_seconds_after_finished?;
    let completed = world
        .relocation
        .status
        .as_ref()?
        .completion_time
        .as_ref()?
        .0;
    Some(after(completed, seconds))
}

fn after(time: Timestamp, seconds: u32) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(i64::from(seconds)))
        .unwrap_or(Timestamp::MAX)
}
