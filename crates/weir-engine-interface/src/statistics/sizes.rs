//! Request sizes: counts by size that one thread writes and any thread may read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::histogram::add;

/// The largest request that each size counts, in bytes. Larger requests count under one more size.
pub const SIZES_UP_TO_BYTES: [u64; SIZES - 1] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Number of sizes.
pub const SIZES: usize = 5;

/// Requests by size.
#[derive(Default)]
pub struct Sizes([AtomicU64; SIZES]);

impl Sizes {
    /// Counts a request. Only one thread may call this.
    pub fn record(&self, bytes: u64) {
        let smaller = SIZES_UP_TO_BYTES.iter().filter(|&&up_to| up_to < bytes).count();
        add(&self.0[smaller], 1);
    }

    /// Reads the current counts.
    pub fn counters(&self) -> [u64; SIZES] {
        std::array::from_fn(|size| self.0[size].load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_counts_under_smallest_size_that_fits() {
        let sizes = Sizes::default();
        for bytes in [0, 512, 4096, 4097, 65_536, 65_537, 262_144, 262_145, 32 << 20] {
            sizes.record(bytes);
        }
        assert_eq!(sizes.counters(), [3, 1, 1, 2, 2]);
    }
}
