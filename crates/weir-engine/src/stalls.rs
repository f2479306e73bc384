//! Stalls: failing a replica that does not answer, while another replica has all of its data.
//!
//! Operations on a silent replica are given up after [`STALL_NS`], and the replica is failed. The kernel may
//! still carry out orphaned I/O at any later time. So its buffers stay in place until it has ended. The
//! replica comes back only after all of its orphaned I/O has ended.

use weir_volume::mirror::stall::STALL_NS;

use super::drive_queue::SharedDriveQueue;
use super::orphans::OrphanedIo;
use super::reactor::Reactor;
use super::token::{AskNumber, ReplicaIndex, VolumeIndex};

/// What is told of a replica that was given up.
pub(super) const NO_ANSWER: &str = "did not answer for 10 s";

/// Interval between two checks, in nanoseconds.
pub(super) const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

/// Whether an operation was orphaned I/O that has ended now.
pub(super) enum Orphan {
    /// The operation was not given up.
    Unknown,
    /// The operation was given up, and has ended.
    Ended,
    /// The same, and other operations in this drive queue may take its room.
    LeftRoom(SharedDriveQueue),
}

impl Reactor {
    /// Fails replicas that do not answer.
    pub(super) fn look_for_stalls(&mut self, index: VolumeIndex) {
        let before_ns = self.io.now_ns.saturating_sub(STALL_NS);
        self.give_up_metadata_io(index, before_ns);
        self.give_up_keeps(index, before_ns);
        for (slot, extent) in self.volumes[index].stalled(self.io.now_ns) {
            if self.volumes[index].mirror.is_failed_when_late(extent, slot) {
                self.give_up(index, slot, extent);
            }
        }
    }

    fn give_up(&mut self, index: VolumeIndex, slot: usize, extent: u32) {
        let volume = &mut self.volumes[index];
        volume.fault_message = Some(NO_ANSWER.to_owned());
        let operations = volume.operations.give_up(slot, extent, &self.io.pool);
        volume.mirror.give_up_replica((extent, slot), &operations, &mut volume.effects);
        self.carry_out(index);
        // If it was failed by something else before, this message is nobody's.
        self.volumes[index].fault_message = None;
    }

    /// Removes orphaned I/O from the drive queue together with its connection. The caller that ends the
    /// connection settles the volume.
    pub(super) fn is_orphaned_in_queue(&mut self, replica: ReplicaIndex, number: AskNumber) {
        let volume = &mut self.volumes[replica.volume];
        let io = volume.operations.end_orphan(replica.slot, number);
        debug_assert!(io.is_some(), "only what was given up waits for nobody");
    }

    /// Ends orphaned I/O. True if the completed operation was orphaned.
    pub(super) fn is_orphaned(&mut self, replica: ReplicaIndex, number: AskNumber) -> bool {
        match self.end_orphan(replica, number) {
            Orphan::Unknown => false,
            Orphan::Ended => true,
            Orphan::LeftRoom(drive_queue) => {
                self.release_drive_queue(&drive_queue);
                true
            }
        }
    }

    /// Forgets orphaned I/O that has completed, or whose turn in the drive queue has come. Its volume is
    /// settled at the end of the round, because the caller may work on the same volume.
    pub(super) fn end_orphan(&mut self, replica: ReplicaIndex, number: AskNumber) -> Orphan {
        let volume = &mut self.volumes[replica.volume];
        let Some(OrphanedIo { queued, space, .. }) = volume.operations.end_orphan(replica.slot, number)
        else {
            return Orphan::Unknown;
        };
        drop(space);
        self.unsettled.push(replica.volume);
        let Some((home, cost)) = queued else { return Orphan::Ended };
        let queue = &volume.files.homes[home].queue;
        let is_waited_for = queue.has_completed(self.io.now_ns, cost);
        if is_waited_for { Orphan::LeftRoom(queue.shared().clone()) } else { Orphan::Ended }
    }
}
