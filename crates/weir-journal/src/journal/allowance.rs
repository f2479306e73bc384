//! How much a nearly full log takes in: about what is brought out of it meanwhile. So writers slow down to the rate of the
//! slow drives bit by bit, and do not come to a stop until a whole batch is done. It knows neither records nor files.
//!
//! A log is full when it has no more blocks or no more entries, whichever is first, and of both it has as many. So what is
//! counted here is called units: those that there are more of.

/// From this fullness of the log on, in thousandths; before, it takes in whatever comes.
const SLOW_PER_MILLE: u32 = 750;
/// What is taken in at that fullness for each unit that is brought, in thousandths, so that nobody stops all of a sudden.
const MOST_PER_MILLE: u64 = 8000;
/// What is taken in however full it is: it empties all the same, and nobody waits until it has.
const LEAST_PER_MILLE: u64 = 500;
/// Where there would be nothing left without that: the space of a batch is free only when all of it was brought.
const FULL_PER_MILLE: u32 = 950;

/// Units that a nearly full log may still take in.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// Thousandths of units.
    thousandths: u64,
}

impl Allowance {
    /// So many units were brought while the log was so full. What nobody uses gathers up to `units_max`.
    pub fn destaged(&mut self, units: u32, fullness_per_mille: u32, units_max: u32) {
        let below = u64::from(FULL_PER_MILLE.saturating_sub(fullness_per_mille.max(SLOW_PER_MILLE)));
        let eased = MOST_PER_MILLE * below / u64::from(FULL_PER_MILLE - SLOW_PER_MILLE);
        let more = u64::from(units) * eased.max(LEAST_PER_MILLE);
        self.thousandths = (self.thousandths + more).min(u64::from(units_max) * 1000);
    }

    /// Units that a log that is so full may take in now.
    pub fn left(&self, fullness_per_mille: u32) -> u32 {
        if fullness_per_mille < SLOW_PER_MILLE { u32::MAX } else { (self.thousandths / 1000) as u32 }
    }

    /// So many were taken in.
    pub fn took(&mut self, units: u32) {
        self.thousandths = self.thousandths.saturating_sub(u64::from(units) * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_with_room_takes_in_everything_and_a_nearly_full_one_what_is_brought() {
        let mut allowance = Allowance::default();
        assert_eq!(allowance.left(SLOW_PER_MILLE - 1), u32::MAX);
        assert_eq!(allowance.left(SLOW_PER_MILLE), 0);
        allowance.destaged(10, SLOW_PER_MILLE, 1000);
        assert_eq!(allowance.left(SLOW_PER_MILLE), 80);
        allowance.took(50);
        assert_eq!(allowance.left(SLOW_PER_MILLE), 30);
        allowance.took(50);
        assert_eq!(allowance.left(SLOW_PER_MILLE), 0);
    }

    #[test]
    fn the_fuller_it_is_the_less_it_takes_in_and_there_is_a_balance_below_full() {
        let taken_at = |fullness_per_mille| {
            let mut allowance = Allowance::default();
            // One at a time: parts of units are not lost.
            (0..1000).for_each(|_| allowance.destaged(1, fullness_per_mille, u32::MAX));
            allowance.left(fullness_per_mille.max(SLOW_PER_MILLE))
        };
        assert_eq!([0, 750, 850, 925, 950, 1000].map(taken_at), [8000, 8000, 4000, 1000, 500, 500]);
    }

    #[test]
    fn what_nobody_uses_does_not_gather_for_ever() {
        let mut allowance = Allowance::default();
        (0..100).for_each(|_| allowance.destaged(u32::MAX, 800, 34));
        assert_eq!(allowance.left(800), 34);
    }
}
