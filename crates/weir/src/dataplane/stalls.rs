//! Replicas that do not answer: while another replica has everything, what was asked of one that is silent for too long is
//! given up, and the replica with it.
//!
//! The kernel may still carry out what was given up, at any later time. So its buffers stay where they are until it has
//! come back, and a replica is not taken back before all of it has.

use std::collections::BTreeMap;

use weir_qos::Cost;
use weir_volume::mirror::stall::STALL_NS;

use super::locked;
use super::reactor::Reactor;
use super::sharing::SharedDriveQueue;
use super::space::TakenSpace;
use super::token::{AskNumber, ReplicaIndex, VolumeIndex};

/// What is told of a replica that was given up.
pub(super) const NO_ANSWER: &str = "did not answer for 10 s";

/// How often it is looked, in nanoseconds.
pub(super) const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

/// Something that was given up and has not come back.
#[derive(Debug)]
pub(super) struct OrphanedIo {
    pub extent: u32,
    /// The home where it waits in the drive queue, or is at the drive, and with what cost.
    pub emulated: Option<(usize, Cost)>,
    /// What it takes of the space that is counted: it may do so at any time.
    pub space: Option<TakenSpace>,
}

/// What was given up, by replica and number.
#[derive(Debug, Default)]
pub(super) struct OrphanedIos(BTreeMap<(usize, AskNumber), OrphanedIo>);

/// Whether an operation was orphaned I/O, which has ended now.
pub(super) enum Orphan {
    /// The operation was not given up.
    Unknown,
    /// The operation was given up, and has ended.
    Ended,
    /// The same, and other operations wait in this pool for the room that it left.
    LeftRoom(SharedDriveQueue),
}

impl OrphanedIos {
    pub fn add(&mut self, slot: usize, number: AskNumber, io: OrphanedIo) {
        self.0.insert((slot, number), io);
    }

    /// True if anything may still happen to a replica of an extent.
    pub fn are_of(&self, extent: u32, slot: usize) -> bool {
        self.0.iter().any(|((of, _), io)| *of == slot && io.extent == extent)
    }
}

impl Reactor {
    /// Gives up replicas that do not answer.
    pub(super) fn look_for_stalls(&mut self, index: VolumeIndex) {
        let before_ns = self.now_ns.saturating_sub(STALL_NS);
        self.give_up_metadata_io(index, before_ns);
        self.give_up_keeps(index, before_ns);
        for (slot, extent) in self.volumes[index].stalled(self.now_ns) {
            if self.volumes[index].mirror.is_failed_when_late(extent, slot) {
                self.give_up(index, slot, extent);
            }
        }
    }

    fn give_up(&mut self, index: VolumeIndex, slot: usize, extent: u32) {
        let volume = &mut self.volumes[index];
        volume.fault_message = Some(NO_ANSWER.to_owned());
        let operations = volume.give_up(slot, extent, &self.pool);
        volume.mirror.give_up_replica((extent, slot), &operations, &mut volume.effects);
        self.carry_out(index);
        // If it was failed by something else before, this message is nobody's.
        self.volumes[index].fault_message = None;
    }

    /// What was given up leaves the line without its turn, with its connection; whoever ends that settles the volume.
    pub(super) fn is_orphaned_in_queue(&mut self, replica: ReplicaIndex, number: AskNumber) {
        let volume = &mut self.volumes[replica.volume];
        let io = volume.orphans.0.remove(&(replica.slot, number));
        debug_assert!(io.is_some(), "only what was given up waits for nobody");
        volume.outstanding -= 1;
    }

    /// What was given up has come back. True if it was that.
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

    /// Forgets orphaned I/O that has come back, or whose turn in line has come. Its volume is settled at the end of the round,
    /// because the caller may be at work on the same volume.
    pub(super) fn end_orphan(&mut self, replica: ReplicaIndex, number: AskNumber) -> Orphan {
        let volume = &mut self.volumes[replica.volume];
        let Some(OrphanedIo { emulated, space, .. }) = volume.orphans.0.remove(&(replica.slot, number))
        else {
            return Orphan::Unknown;
        };
        drop(space);
        volume.outstanding -= 1;
        self.unsettled.push(replica.volume);
        let Some((home, cost)) = emulated else { return Orphan::Ended };
        let drive_queue = &volume.homes[home].queue_entry.drive_queue;
        let is_waited_for = locked(drive_queue).queue.completed(self.now_ns, cost);
        if is_waited_for { Orphan::LeftRoom(SharedDriveQueue::clone(drive_queue)) } else { Orphan::Ended }
    }
}
