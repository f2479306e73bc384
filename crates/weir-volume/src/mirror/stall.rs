//! Stalls: which replicas are failed because an operation on them is overdue, and what becomes of those
//! operations.
//!
//! An operation that was given up is orphaned I/O: the drive may carry it out at any later time. So its buffer stays
//! where it is until the drive answers, and a replica comes or returns only after that
//! (see [`FileState::has_orphaned_io`](super::FileState)).
//!
//! This module decides, except about metadata that are not written in time (`metadata_write.rs`). The engine's
//! `reactor/volume_work.rs` looks each second, and `served_volume/stalls.rs` finds what is overdue and carries the decision
//! out.

use weir_types::ExtentIndex;

use super::replica_metadata::{ReplicaState, ReplicaStates};
use super::{Answer, Effect, Mirror, Slots};
use crate::action::{Fault, OperationId};

/// How long a drive may take for an answer while another replica is in sync, in nanoseconds: longer than a busy disk takes
/// for all that is queued there, and shorter than clients wait before they give up.
pub const STALL_NS: u64 = 10_000_000_000;

/// Where an operation waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A drive was asked at this instant, in nanoseconds.
    Asked(u64),
    /// In the queue of a drive, since this instant, in nanoseconds.
    Queued {
        /// Since when.
        since_ns: u64,
        /// The drive has answered nothing for [`STALL_NS`], so its queue does not move.
        is_drive_silent: bool,
    },
}

impl Waiting {
    /// True if an answer is overdue. What waits in the queue of a drive that answers others is not.
    pub fn is_late(self, now_ns: u64) -> bool {
        let before_ns = now_ns.saturating_sub(STALL_NS);
        match self {
            Waiting::Asked(since_ns) => since_ns < before_ns,
            Waiting::Queued { since_ns, is_drive_silent } => is_drive_silent && since_ns < before_ns,
        }
    }
}

/// Work on the checksum files beside several replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumPhase {
    /// Checksums of blocks are read or written.
    Blocks,
    /// Headers are written, which say what is valid.
    Headers,
}

/// True if work on checksum files goes on without the replicas that are late. Headers must be written beside a replica in
/// sync: a late header of the only one could take the place of a newer one.
pub fn goes_on_without_late(phase: ChecksumPhase, done: Slots, replica_states: &ReplicaStates) -> bool {
    let is_in_sync = |slot: usize| replica_states[slot] == ReplicaState::InSync;
    phase == ChecksumPhase::Blocks || done.iter().any(is_in_sync)
}

impl Mirror {
    /// True if a replica that does not answer is to be failed: another one is in sync. The last replica in sync is waited
    /// for, however long that takes.
    pub fn is_failed_when_late(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.has_other(extent, slot)
    }

    /// Fails a replica that does not answer; each operation that was asked of it has failed.
    pub fn give_up_replica(
        &mut self,
        (extent, slot): (ExtentIndex, usize),
        operations: &[OperationId],
        effects: &mut Vec<Effect>,
    ) {
        self.fail_replica(extent, slot, effects);
        for operation in operations {
            self.answer(slot, Answer::Completed(*operation, Err(Fault::Broken)), effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_operation_is_late_only_before_a_silent_drive() {
        let now_ns = 3 * STALL_NS;
        let queued = |since_ns, is_drive_silent| Waiting::Queued { since_ns, is_drive_silent };
        assert!(Waiting::Asked(now_ns - STALL_NS - 1).is_late(now_ns));
        assert!(!Waiting::Asked(now_ns - STALL_NS).is_late(now_ns));
        assert!(queued(0, true).is_late(now_ns) && !queued(0, false).is_late(now_ns));
        assert!(!queued(now_ns, true).is_late(now_ns));
    }
}
