//! The allowance: a nearly full log accepts about as much as is destaged at the same time. Writers therefore
//! slow down gradually to the rate of the slow drives and do not stop until a whole batch is done. The module
//! knows neither records nor files.
//!
//! A log is full when it has no free blocks or no free entries, whichever comes first. It has as many entries
//! as blocks. The allowance counts in units: blocks or entries, whichever are more.

/// Fullness of the log, in thousandths, from which on the allowance applies. Below it the log accepts
/// everything.
const SLOW_PER_MILLE: u32 = 750;
/// Units accepted at that fullness for each destaged unit, in thousandths. The value is high so that no
/// writer stops abruptly.
const MOST_PER_MILLE: u64 = 8000;
/// Units accepted for each destaged unit at any fullness, in thousandths. Even so the log empties, and no
/// writer waits until it is empty.
const LEAST_PER_MILLE: u64 = 500;
/// Fullness, in thousandths, at which only the minimum is accepted. The minimum is needed because a batch
/// frees its space only when all of it is destaged.
const FULL_PER_MILLE: u32 = 950;

/// Units that a nearly full log may still accept.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// Accepted units, in thousandths.
    thousandths: u64,
}

impl Allowance {
    /// Adds the allowance for units that were destaged at this fullness. Unused allowance accumulates up to
    /// `units_max`.
    pub fn destaged(&mut self, units: u32, fullness_per_mille: u32, units_max: u32) {
        let below = u64::from(FULL_PER_MILLE.saturating_sub(fullness_per_mille.max(SLOW_PER_MILLE)));
        let eased = MOST_PER_MILLE * below / u64::from(FULL_PER_MILLE - SLOW_PER_MILLE);
        let more = u64::from(units) * eased.max(LEAST_PER_MILLE);
        self.thousandths = (self.thousandths + more).min(u64::from(units_max) * 1000);
    }

    /// Returns the units that a log of this fullness may accept now.
    pub fn left(&self, fullness_per_mille: u32) -> u32 {
        if fullness_per_mille < SLOW_PER_MILLE { u32::MAX } else { (self.thousandths / 1000) as u32 }
    }

    /// Subtracts accepted units.
    pub fn took(&mut self, units: u32) {
        self.thousandths = self.thousandths.saturating_sub(u64::from(units) * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_full_log_accepts_only_the_allowance() {
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
    fn allowance_shrinks_with_fullness_down_to_the_minimum() {
        let taken_at = |fullness_per_mille| {
            let mut allowance = Allowance::default();
            // Adds one unit at a time: fractions of units must not be lost.
            (0..1000).for_each(|_| allowance.destaged(1, fullness_per_mille, u32::MAX));
            allowance.left(fullness_per_mille.max(SLOW_PER_MILLE))
        };
        assert_eq!([0, 750, 850, 925, 950, 1000].map(taken_at), [8000, 8000, 4000, 1000, 500, 500]);
    }

    #[test]
    fn unused_allowance_is_bounded() {
        let mut allowance = Allowance::default();
        (0..100).for_each(|_| allowance.destaged(u32::MAX, 800, 34));
        assert_eq!(allowance.left(800), 34);
    }
}
