//! Processor time that the daemon uses, so that unrequested periodic checks can be kept rare enough.
//!
//! It knows nothing of the work that used the time.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Processor time that the whole process has used.
pub fn time_of_process() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// Processor time that the calling thread has used.
pub fn time_of_thread() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// Processor clocks start at zero, so no part of their time is negative.
fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
