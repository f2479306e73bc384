//! Waiting for a condition: the only place where a test looks at a clock.
//!
//! The limit guards against a test that hangs. It says nothing about speed, and no test may do so.

use std::time::{Duration, Instant};

/// Longest time until a condition must hold: minutes, because the machine may be busy with other work.
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
/// If the condition does not hold within [`TIMEOUT`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "gave up waiting until {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Returns an instant from which a test derives other instants.
pub fn origin() -> Instant {
    Instant::now()
}

/// Latency that a client measures of its own requests. It is compared only with the daemon's figures.
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Time since the start, in nanoseconds.
    ///
    /// # Panics
    /// After 584 years.
    pub fn nanoseconds(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).expect("a test ends within 584 years")
    }
}
