//! Orphaned I/O: operations that were given up and have not ended. The kernel may still carry them out.

use std::collections::BTreeMap;

use weir_qos::Cost;
use weir_types::ExtentIndex;

use crate::drive_queue::SharedDriveQueue;
use crate::space_count::TakenSpace;
use crate::token::AskNumber;

/// Whether an operation was orphaned I/O that has ended now.
pub enum Orphan {
    /// The operation was not given up.
    Unknown,
    /// The operation was given up, and has ended.
    Ended,
    /// The same, and other operations in this drive queue may take its room.
    LeftRoom(SharedDriveQueue),
}

impl Orphan {
    /// The drive queue in which others wait and may run now.
    pub fn room(self) -> Option<SharedDriveQueue> {
        match self {
            Orphan::Unknown | Orphan::Ended => None,
            Orphan::LeftRoom(drive_queue) => Some(drive_queue),
        }
    }
}

/// I/O that was given up and has not ended.
#[derive(Debug)]
pub struct OrphanedIo {
    pub extent: ExtentIndex,
    /// The home where it waits in the drive queue, or is at the drive, and with what cost.
    pub queued: Option<(usize, Cost)>,
    /// Counted space that the I/O may take at any time.
    pub space: Option<TakenSpace>,
}

/// Orphaned I/O, by slot and number.
#[derive(Debug, Default)]
pub struct OrphanedIos(BTreeMap<(usize, AskNumber), OrphanedIo>);

impl OrphanedIos {
    pub fn add(&mut self, slot: usize, number: AskNumber, io: OrphanedIo) {
        self.0.insert((slot, number), io);
    }

    pub fn remove(&mut self, slot: usize, number: AskNumber) -> Option<OrphanedIo> {
        self.0.remove(&(slot, number))
    }

    /// True if orphaned I/O may still reach a replica of an extent.
    pub fn has_any_of(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.0.iter().any(|((of, _), io)| *of == slot && io.extent == extent)
    }
}
