//! How much a nearly full log takes in: about what is brought out of it meanwhile. So writers slow down to the rate of the
//! slow drives bit by bit, and do not come to a stop until a whole batch is done. It knows neither records nor files.

/// From this fullness of the log on, in thousandths; before, it takes in whatever comes.
const SLOW_PER_MILLE: u32 = 750;
/// What is taken in at that fullness for each block that is brought, so that nobody stops all of a sudden.
const EASE: u64 = 8;
/// At this fullness nothing is taken in for what is brought: the space of a batch is free only when all of it was.
const FULL_PER_MILLE: u32 = 950;

/// Blocks that a nearly full log may still take in.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    blocks: u32,
}

impl Allowance {
    /// So many blocks were brought while the log was so full. What nobody uses gathers up to `blocks_max`.
    pub fn brought(&mut self, blocks: u32, fullness_per_mille: u32, blocks_max: u32) {
        let Some(below) = FULL_PER_MILLE.checked_sub(fullness_per_mille) else { return };
        let more = u64::from(blocks) * EASE * u64::from(below) / u64::from(FULL_PER_MILLE - SLOW_PER_MILLE);
        self.blocks = u64::from(self.blocks).saturating_add(more).min(blocks_max.into()) as u32;
    }

    /// Blocks that a log that is so full may take in now.
    pub fn left(&self, fullness_per_mille: u32) -> u32 {
        if fullness_per_mille < SLOW_PER_MILLE { u32::MAX } else { self.blocks }
    }

    /// So many were taken in.
    pub fn took(&mut self, blocks: u32) {
        self.blocks = self.blocks.saturating_sub(blocks);
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
        allowance.brought(10, SLOW_PER_MILLE, 1000);
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
            allowance.brought(1000, fullness_per_mille, u32::MAX);
            allowance.left(fullness_per_mille)
        };
        assert_eq!([750, 850, 925, 950, 1000].map(taken_at), [8000, 4000, 1000, 0, 0]);
    }

    #[test]
    fn what_nobody_uses_does_not_gather_for_ever() {
        let mut allowance = Allowance::default();
        (0..100).for_each(|_| allowance.brought(u32::MAX, 800, 34));
        assert_eq!(allowance.left(800), 34);
    }
}
