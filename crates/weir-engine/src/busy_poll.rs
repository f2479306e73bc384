//! Busy poll: whether to poll for the next event for a moment before sleeping.
//!
//! Sleeping and waking cost both sides more than a client of low queue depth needs to send its next
//! request. Polling continues as long as it finds events. After fruitless polls it is tried ever more
//! rarely, so slow clients cost almost nothing. This module only decides; it knows neither a clock nor a
//! ring.

/// Longest poll in nanoseconds: about the cost of one sleep and the wake-up after it.
const POLL_NS: u64 = 30_000;
/// Highest number of sleeps without a poll between two polls.
const SLEEPS_MAX: u32 = 255;

/// History of recent polls.
#[derive(Clone, Debug, Default)]
pub(super) struct BusyPoll {
    /// Sleeps that still pass without a poll.
    sleeps_left: u32,
    /// Sleeps without a poll that followed the last fruitless poll.
    sleeps: u32,
}

impl BusyPoll {
    /// How long to poll before the sleep that is due now, in nanoseconds; 0 means no poll.
    pub fn poll_ns(&mut self) -> u64 {
        if self.sleeps_left == 0 {
            return POLL_NS;
        }
        self.sleeps_left -= 1;
        0
    }

    /// Takes the result of a poll.
    pub fn polled(&mut self, is_found: bool) {
        self.sleeps = if is_found { 0 } else { (self.sleeps * 2 + 1).min(SLEEPS_MAX) };
        self.sleeps_left = self.sleeps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of polls within `sleeps` sleeps, none of which finds an event.
    fn fruitless_looks(busy_poll: &mut BusyPoll, sleeps: u32) -> u32 {
        let mut looks = 0;
        for _ in 0..sleeps {
            if busy_poll.poll_ns() > 0 {
                looks += 1;
                busy_poll.polled(false);
            }
        }
        looks
    }

    #[test]
    fn polls_while_polls_find_events() {
        let mut busy_poll = BusyPoll::default();
        for _ in 0..1000 {
            assert_eq!(busy_poll.poll_ns(), POLL_NS);
            busy_poll.polled(true);
        }
    }

    #[test]
    fn fruitless_polls_become_rarer() {
        let mut busy_poll = BusyPoll::default();
        assert!(fruitless_looks(&mut busy_poll, 1000) <= 12);
        assert!((3..=4).contains(&fruitless_looks(&mut busy_poll, 1000)));
    }

    #[test]
    fn one_found_event_restarts_polling() {
        let mut busy_poll = BusyPoll::default();
        fruitless_looks(&mut busy_poll, 1000);
        while busy_poll.poll_ns() == 0 {}
        busy_poll.polled(true);
        assert_eq!(busy_poll.poll_ns(), POLL_NS);
    }
}
