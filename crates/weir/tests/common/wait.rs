//! Waiting for a condition: the one place where a test looks at a clock. The limit guards against a test that hangs; it
//! says nothing about how fast anything is, and no test may.

use std::time::{Duration, Instant};

/// How long a condition may take to become true before a test gives up: minutes, because the machine may be busy with
/// other things.
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within [`TIMEOUT`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "gave up waiting until {what}");
        std::thread::sleep(PAUSE);
    }
}

/// An instant from which a test makes up others.
pub fn origin() -> Instant {
    Instant::now()
}

/// What a client measures of its own requests, to be compared with what the daemon says of them and with nothing else.
pub struct Stopwatch(Instant);

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub fn nanoseconds(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap()
    }
}
