//! Stalls: failing a replica that does not answer, while another replica has all of its data.
//!
//! Operations on a silent replica are given up after [`weir_volume::mirror::stall::STALL_NS`], and the replica is failed. The kernel may
//! still carry out orphaned I/O at any later time. So its buffers stay in place until it has ended. The
//! replica comes back only after all of its orphaned I/O has ended.

use crate::drive_queue::SharedDriveQueue;

/// What is told of a replica that was given up.
pub const NO_ANSWER: &str = "did not answer for 10 s";

/// Interval between two checks, in nanoseconds.
pub const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

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
