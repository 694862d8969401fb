//! Which workloads are listed in status: all of them while there is room, else as many at a time as fit, and counts of the rest. Pure.
//!
//! What is listed is recorded intent, so a workload moves only when it is listed, and stays until it has moved. Without a limit the status
//! of a thousand nodes would grow with their workloads beyond what an API server and its watchers can be asked to carry.

use std::collections::BTreeSet;

use crate::api::bounds::{MAX_WHY_BYTES, MAX_WORKLOADS, bytes_of};
use crate::api::conditions::cut;
use crate::api::status::{MoreWorkloads, NodeRelocationStatus, WorkloadState, WorkloadStatus};

use super::draft::Draft;
use super::scene::{Scene, Work};
use super::strategy::{self, Choice};

/// What all lists of a status may take together, in bytes: less than the 256 KiB of the design by what is around them.
const LISTS: usize = 232 * 1024;
/// What the list of workloads may take however many nodes there are, in bytes: some fifty of them, which keeps the moves going.
const AT_LEAST: usize = 16 * 1024;

/// Whether one more fits.
struct Room {
    bytes: usize,
    most_bytes: usize,
    count: usize,
}

impl Room {
    fn in_status(status: &NodeRelocationStatus) -> Self {
        Self {
            bytes: bytes_of(&status.workloads),
            most_bytes: LISTS.saturating_sub(bytes_of(&status.nodes)).max(AT_LEAST),
            count: status.workloads.len(),
        }
    }

    fn take(&mut self, record: &WorkloadStatus) -> bool {
        // With the comma.
        let bytes = self.bytes + bytes_of(record) + 1;
        let fits = bytes <= self.most_bytes && self.count < MAX_WORKLOADS;
        if fits {
            self.bytes = bytes;
            self.count += 1;
        }
        fits
    }
}

fn record(work: &Work<'_>, choice: Choice) -> WorkloadStatus {
    WorkloadStatus {
        kind: work.reference.kind.to_string(),
        api_version: work.reference.kind.api_version().map(str::to_owned),
        namespace: work.reference.namespace.clone(),
        name: work.reference.name.clone(),
        uid: work.reference.uid.to_string(),
        strategy: choice.strategy,
        why: cut(choice.why, MAX_WHY_BYTES),
        pods: number(work.left.len()),
        size: work.size_to_record().map(number),
        order: work.order,
        moved: 0,
        surged_from: None,
        restarted_from: None,
        start_time: None,
        state: WorkloadState::Pending,
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Lists the workloads of the plan.
pub(super) fn start(draft: &mut Draft, chosen: Vec<(&Work<'_>, Choice)>) {
    let mut room = Room::in_status(&draft.status);
    let mut more = MoreWorkloads::default();
    for (work, choice) in chosen {
        let record = record(work, choice);
        if more.pending == 0 && room.take(&record) {
            draft.status.workloads.push(record);
        } else {
            more.pending += 1;
            more.pending_pods += record.pods;
        }
    }
    draft.status.set_more_workloads(more);
}

/// Lists what is not listed yet, as far as there is room: what did not fit before, and workloads that came after the plan, by a pod
/// that landed on a selected node before the cordon. Counts the rest.
pub(super) fn adopt(scene: &Scene<'_>, draft: &mut Draft) {
    let mut more = draft.status.more_workloads.unwrap_or_default();
    (more.pending, more.pending_pods) = (0, 0);
    let mut room = Room::in_status(&draft.status);
    let mut unlisted: Vec<_> = scene.works.iter().filter(|w| w.record.is_none()).collect();
    unlisted.sort_by_key(|work| work.rank);
    for work in unlisted {
        // In their order: a small one does not go before a large one that waits.
        if more.pending == 0 {
            match strategy::resolve(scene, work) {
                Ok(choice) => {
                    let record = record(work, choice);
                    let fits = room.take(&record) || {
                        leave_out_moved(scene, &mut draft.status, &mut more);
                        room = Room::in_status(&draft.status);
                        room.take(&record)
                    };
                    if fits {
                        draft.status.workloads.push(record);
                        continue;
                    }
                }
                Err(blocker) => {
                    draft.block(blocker);
                    continue;
                }
            }
        }
        more.pending += 1;
        more.pending_pods += number(work.left.len());
    }
    draft.status.set_more_workloads(more);
}

/// Makes room: workloads that have moved, and of which nothing is left that would have to be known, become a count.
fn leave_out_moved(scene: &Scene<'_>, status: &mut NodeRelocationStatus, more: &mut MoreWorkloads) {
    let over: BTreeSet<_> = scene
        .works
        .iter()
        .filter(|work| work.left.is_empty() && work.state() == WorkloadState::Moved)
        // Surplus placeholders are found by their workload.
        .filter(|work| scene.placeholders_of(&work.reference.uid).next().is_none())
        .map(|work| work.reference.uid.as_str())
        .collect();
    status.workloads.retain(|record| {
        let leaves = over.contains(record.uid.as_str());
        if leaves {
            more.moved += 1;
            more.moved_pods += record.moved;
        }
        !leaves
    });
}
