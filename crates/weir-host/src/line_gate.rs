//! Log lines that clients can cause: at most ten of a kind in a second, and the number of those left out.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one kind that clients may cause within [`GATE_INTERVAL`].
const GATED_LINES_MAX: u32 = 10;
/// Interval in which at most [`GATED_LINES_MAX`] lines are written.
const GATE_INTERVAL: Duration = Duration::from_secs(1);

/// Instant from which times count.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Rate limit for one kind of log line that clients can cause.
#[derive(Debug, Default)]
pub struct LineGate {
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    began: Option<Duration>,
    written: u32,
    suppressed: u64,
}

impl LineGate {
    /// A gate that no line has passed yet.
    pub const fn new() -> LineGate {
        LineGate { state: Mutex::new(GateState { began: None, written: 0, suppressed: 0 }) }
    }

    /// `Some` if a line may be written now: the number of lines suppressed since the last written line.
    pub fn pass(&self) -> Option<u64> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pass(ORIGIN.elapsed())
    }
}

impl GateState {
    fn pass(&mut self, now: Duration) -> Option<u64> {
        if self.began.is_none_or(|began| now.saturating_sub(began) >= GATE_INTERVAL) {
            (self.began, self.written) = (Some(now), 0);
        }
        if self.written >= GATED_LINES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_of_clients_are_rate_limited_and_counted() {
        let (mut gate, begin) = (GateState::default(), Duration::ZERO);
        let most = u64::from(GATED_LINES_MAX);
        let passed = (0..1000).filter(|_| gate.pass(begin).is_some()).count() as u64;
        assert_eq!(passed, most);
        assert_eq!(gate.pass(begin + GATE_INTERVAL), Some(1000 - most), "it tells how many were left out");
        assert_eq!(gate.pass(begin + GATE_INTERVAL), Some(0));
    }
}
