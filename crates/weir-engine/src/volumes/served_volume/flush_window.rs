//! The flush window of a volume: for how long its flushes may be owed.

use std::time::Duration;

use weir_volume::mirror::{Effect, Mirror};

/// Shortest pause until a flush that failed is carried out again.
const RETRY_NS: u64 = 1_000_000_000;

/// The window, in nanoseconds; `None` if no flush may be owed.
#[derive(Default)]
pub struct FlushWindow(Option<u64>);

impl FlushWindow {
    /// Lets flushes be owed for this long, or carries out each of them before its answer.
    pub fn set(&mut self, window: Option<Duration>, mirror: &mut Mirror, effects: &mut Vec<Effect>) {
        self.0 = window.map(|window| u64::try_from(window.as_nanos()).unwrap_or(u64::MAX));
        mirror.coalescing().set_on(window.is_some(), effects);
    }

    /// When a flush must be carried out that is owed since now.
    pub fn end_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.0.unwrap_or(0))
    }

    /// When a flush must be carried out again that has failed now.
    pub fn retry_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.0.unwrap_or(0).max(RETRY_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_flush_is_not_carried_out_again_at_once() {
        let (mut window, mut mirror) = (FlushWindow::default(), Mirror::single(1 << 30));
        assert_eq!((window.end_ns(5), window.retry_ns(5)), (5, 5 + RETRY_NS));
        window.set(Some(Duration::from_millis(1)), &mut mirror, &mut Vec::new());
        assert_eq!((window.end_ns(5), window.retry_ns(5)), (1_000_005, 5 + RETRY_NS));
        window.set(Some(Duration::from_secs(10)), &mut mirror, &mut Vec::new());
        assert_eq!((window.end_ns(5), window.retry_ns(5)), (10 * RETRY_NS + 5, 10 * RETRY_NS + 5));
    }
}
