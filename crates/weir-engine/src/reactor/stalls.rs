//! Stalls: failing replicas that do not answer, and the ends of orphaned I/O.

use crate::orphans::OrphanedIo;
use crate::reactor::Reactor;
use crate::stalls::{NO_ANSWER, Orphan};
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};
use weir_volume::mirror::stall::STALL_NS;

impl Reactor {
    /// Fails replicas that do not answer.
    pub(crate) fn look_for_stalls(&mut self, index: VolumeIndex) {
        let before_ns = self.io.now_ns.saturating_sub(STALL_NS);
        self.with_metadata(index, |metadata, desk| metadata.give_up_stalled(before_ns, desk.mirror));
        self.give_up_checksums(index, before_ns);
        for (slot, extent) in self.volumes[index].stalled(self.io.now_ns) {
            if self.volumes[index].mirror.is_failed_when_late(extent, slot) {
                self.give_up(index, slot, extent);
            }
        }
    }

    fn give_up(&mut self, index: VolumeIndex, slot: usize, extent: u32) {
        let volume = &mut self.volumes[index];
        let operations = volume.operations.give_up(slot, extent, &self.io.pool);
        let first = volume.effects.len();
        volume.mirror.give_up_replica((extent, slot), &operations, &mut volume.effects);
        volume.reasons.note(&volume.effects[first..], |_| Some(NO_ANSWER.to_owned()));
        self.carry_out(index);
    }

    /// Removes orphaned I/O from the drive queue together with its connection. The caller that ends the
    /// connection settles the volume.
    pub(crate) fn is_orphaned_in_queue(&mut self, replica: ReplicaIndex, number: AskNumber) {
        let volume = &mut self.volumes[replica.volume];
        let io = volume.operations.end_orphan(replica.slot, number);
        debug_assert!(io.is_some(), "only what was given up waits for nobody");
    }

    /// Ends orphaned I/O. True if the completed operation was orphaned.
    pub(crate) fn is_orphaned(&mut self, replica: ReplicaIndex, number: AskNumber) -> bool {
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
    pub(crate) fn end_orphan(&mut self, replica: ReplicaIndex, number: AskNumber) -> Orphan {
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
