//! The one clock of the data plane.

/// Nanoseconds of `CLOCK_MONOTONIC`, which never goes back and is the same for all threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// The present instant in nanoseconds.
    pub fn now_ns(self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}
