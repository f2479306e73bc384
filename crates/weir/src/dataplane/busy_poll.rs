//! Whether to look for the next event for a moment before going to sleep.
//!
//! Falling asleep and being woken costs both sides more than a client of low queue depth needs to come back
//! with its next request. Looking is kept up as long as it finds something; where it does not, it is tried
//! ever more rarely, so that slow clients cost next to nothing. Decides only; knows no clock and no ring.

/// How long a look may take, in nanoseconds: about what a sleep and the wake-up after it cost.
const POLL_NS: u64 = 30_000;
/// Sleeps without a look, at most, before the next one.
const SLEEPS_MAX: u32 = 255;

/// What was learnt about looking.
#[derive(Clone, Debug, Default)]
pub(super) struct BusyPoll {
    /// Sleeps to come without a look.
    sleeps_left: u32,
    /// Sleeps that the last fruitless look was followed by.
    sleeps: u32,
}

impl BusyPoll {
    /// How long to look before the sleep that is due now, in nanoseconds; 0 means not at all.
    pub fn poll_ns(&mut self) -> u64 {
        if self.sleeps_left == 0 {
            return POLL_NS;
        }
        self.sleeps_left -= 1;
        0
    }

    /// What came of a look.
    pub fn polled(&mut self, is_found: bool) {
        self.sleeps = if is_found { 0 } else { (self.sleeps * 2 + 1).min(SLEEPS_MAX) };
        self.sleeps_left = self.sleeps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks within `sleeps` waits, none of which finds anything.
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
    fn looks_as_long_as_it_finds_something() {
        let mut busy_poll = BusyPoll::default();
        for _ in 0..1000 {
            assert_eq!(busy_poll.poll_ns(), POLL_NS);
            busy_poll.polled(true);
        }
    }

    #[test]
    fn looks_ever_more_rarely_where_nothing_is_found() {
        let mut busy_poll = BusyPoll::default();
        assert!(fruitless_looks(&mut busy_poll, 1000) <= 12);
        assert!((3..=4).contains(&fruitless_looks(&mut busy_poll, 1000)));
    }

    #[test]
    fn one_find_makes_it_look_again() {
        let mut busy_poll = BusyPoll::default();
        fruitless_looks(&mut busy_poll, 1000);
        while busy_poll.poll_ns() == 0 {}
        busy_poll.polled(true);
        assert_eq!(busy_poll.poll_ns(), POLL_NS);
    }
}
