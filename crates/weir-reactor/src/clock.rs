//! The only clock of the data plane.

/// Nanoseconds of `CLOCK_MONOTONIC`, which never goes back and is the same for all threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Returns the present instant in nanoseconds.
    pub fn now_ns(self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

/// Makes timed waits of the calling thread end as close to their instant as the machine allows. Without this
/// call the kernel delays them by up to 50 µs to combine wake-ups.
pub fn sharpen_timers() {
    // SAFETY: this call only sets a number of the calling thread.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}
