//! What the daemon takes of the machine's processors, so that looks that nobody asked for can be kept rare enough. It
//! knows nothing of what took it.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Processor time that the whole process took so far.
pub fn time_of_process() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// Processor time that the calling thread took so far.
pub fn time_of_thread() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// These clocks begin at nothing, so no part of a time of them is negative.
fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
