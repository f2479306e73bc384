//! Operation time: the time that an operation spent, by cause.

/// Time that an operation spent, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationTime {
    /// Time in the drive queue, and the part of it in which others went first for their floors.
    pub queue_ns: u64,
    pub floors_ns: u64,
    /// Time at the drive.
    pub drive_ns: u64,
}

impl OperationTime {
    /// All of it, in nanoseconds.
    pub fn total_ns(self) -> u64 {
        self.queue_ns + self.drive_ns
    }
}
