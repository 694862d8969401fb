//! How much a status may hold, and how its lists are cut to that. Pure.

use serde::Serialize;

use super::conditions::cut;
use super::status::{BlockerStatus, MoreWorkloads, NodeRelocationStatus, WarningStatus};

/// Most nodes in `status.nodes`: the highest `spec.nodes.limit`.
pub(crate) const MAX_NODES: usize = 1000;

/// Highest count of anything in status.
pub(crate) const MAX_COUNT: u32 = 1_000_000;

/// Largest `metadata.generation` that JSON numbers hold exactly.
pub(crate) const MAX_GENERATION: i64 = (1 << 53) - 1;

/// Most workloads in `status.workloads`.
pub(crate) const MAX_WORKLOADS: usize = 1000;

/// Most blockers in `status.blockers`, and most warnings in `status.warnings`: a person mends one after the other, and the rest is
/// counted.
pub(crate) const MAX_FINDINGS: usize = 100;

/// Longest text of a blocker or a warning, in bytes.
pub(crate) const MAX_FINDING_BYTES: usize = 1024;

/// Longest name of what blocks, in bytes: a kind, a namespace and a name of the greatest length.
pub(crate) const MAX_OBJECT_BYTES: usize = 512;

/// What blockers may take beside all else, in bytes, so that the status of 1,000 nodes stays under 256 KiB.
const BESIDE_BLOCKERS: usize = 244 * 1024;

/// What blockers may take whatever else there is, in bytes: some twenty.
const BLOCKERS_AT_LEAST: usize = 6 * 1024;

/// What warnings may take whatever else there is, in bytes: some ten.
const WARNINGS_AT_LEAST: usize = 3 * 1024;

/// Longest reason for a choice of strategy, in bytes.
pub(crate) const MAX_WHY_BYTES: usize = 512;

impl NodeRelocationStatus {
    /// Records what blocks, cut to what the schema takes and what there is room for, with a count of the rest. The lists of nodes and
    /// workloads have to be in already.
    ///
    /// A status that is refused would be a relocation that stands still for the length of a webhook's message.
    pub fn set_blockers(&mut self, blockers: Vec<BlockerStatus>) {
        let all = blockers.len();
        let used = bytes_of(&self.nodes) + bytes_of(&self.workloads) + bytes_of(&self.warnings);
        let mut room = BESIDE_BLOCKERS.saturating_sub(used).max(BLOCKERS_AT_LEAST);
        self.blockers = blockers
            .into_iter()
            .take(MAX_FINDINGS)
            .map_while(|mut blocker| {
                blocker.object = cut(blocker.object, MAX_OBJECT_BYTES);
                blocker.message = cut(blocker.message, MAX_FINDING_BYTES);
                // With the comma.
                room = room.checked_sub(bytes_of(&blocker) + 1)?;
                Some(blocker)
            })
            .collect();
        let more = all - self.blockers.len();
        self.more_blockers = u32::try_from(more).unwrap_or(MAX_COUNT).min(MAX_COUNT);
    }

    /// Records what is warned of, cut as blockers are, to half of the room that they may have at least. The lists of nodes and workloads
    /// have to be in already.
    pub fn set_warnings(&mut self, warnings: Vec<WarningStatus>) {
        let all = warnings.len();
        let used = bytes_of(&self.nodes) + bytes_of(&self.workloads);
        let mut room = (BESIDE_BLOCKERS.saturating_sub(used) / 2).max(WARNINGS_AT_LEAST);
        self.warnings = warnings
            .into_iter()
            .take(MAX_FINDINGS)
            .map_while(|mut warning| {
                warning.object = cut(warning.object, MAX_OBJECT_BYTES);
                warning.message = cut(warning.message, MAX_FINDING_BYTES);
                room = room.checked_sub(bytes_of(&warning) + 1)?;
                Some(warning)
            })
            .collect();
        let more = all - self.warnings.len();
        self.more_warnings = u32::try_from(more).unwrap_or(MAX_COUNT).min(MAX_COUNT);
    }

    /// Records how many workloads are not listed.
    pub fn set_more_workloads(&mut self, more: MoreWorkloads) {
        self.more_workloads = (more != MoreWorkloads::default()).then_some(more);
    }

    /// Pods that have moved, and all that have moved or have to, over all workloads.
    #[must_use]
    pub fn pods(&self) -> (u32, u32) {
        let more = self.more_workloads.unwrap_or_default();
        let unlisted = (more.moved_pods, more.moved_pods + more.pending_pods);
        self.workloads.iter().fold(unlisted, |(moved, pods), w| {
            (moved + w.moved, pods + w.pods)
        })
    }
}

/// The length of the JSON form, in bytes.
pub(crate) fn bytes_of(value: &impl Serialize) -> usize {
    // What has no JSON form can't be written either, so it takes no room.
    serde_json::to_vec(value).map_or(0, |json| json.len())
}
