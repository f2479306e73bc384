//! Reproducible random numbers.

use weir_types::random::Random as Generator;

use super::setting;

/// A generator: the same seed gives the same choices everywhere.
pub struct Random(Generator);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(Generator::new(seed))
    }

    /// Seeded from `WEIR_SEED`, or from the clock. The seed is printed, so that a failure can be repeated.
    pub fn seeded() -> Random {
        let clock = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = setting("WEIR_SEED", clock);
        println!("WEIR_SEED={seed}");
        Random::new(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(count).collect()
    }

    /// One of several choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}
