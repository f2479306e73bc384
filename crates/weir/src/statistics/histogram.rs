//! A latency histogram that one thread writes and any thread may read, without locks.
//!
//! Log-linear: every power of two of nanoseconds is cut into eight equal buckets, so a percentile is known
//! to within 12.5 % at worst and reported at the middle of its bucket.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets per power of two.
const STEPS: u64 = 8;
/// Highest power of two that is told apart: 2^42 ns is over an hour.
const EXPONENT_MAX: u64 = 42;
/// Number of buckets.
pub const BUCKETS: usize = ((EXPONENT_MAX - 1) * STEPS) as usize;

/// Counts of latencies by bucket, and their sum.
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// A copy of a [`Histogram`] at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    counts: Vec<u64>,
    /// Sum of all latencies in nanoseconds.
    pub sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }
}

/// Adds to a counter that only this thread writes; cheaper than an atomic read-modify-write.
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

fn bucket_of(latency_ns: u64) -> usize {
    let value = latency_ns.clamp(STEPS, (1 << EXPONENT_MAX) - 1);
    let exponent = u64::from(value.ilog2());
    let step = (value >> (exponent - 3)) & (STEPS - 1);
    ((exponent - 3) * STEPS + step) as usize
}

/// Width of a bucket in nanoseconds.
fn width_of(bucket: usize) -> u64 {
    1 << (bucket as u64 / STEPS)
}

/// The upper bound of a bucket in nanoseconds, exclusive.
fn end_of(bucket: usize) -> u64 {
    (STEPS + bucket as u64 % STEPS + 1) * width_of(bucket)
}

/// The middle of a bucket in nanoseconds.
fn middle_of(bucket: usize) -> u64 {
    end_of(bucket) - width_of(bucket).div_ceil(2)
}

impl Histogram {
    /// Records one latency. Only one thread may call this.
    pub fn record(&self, latency_ns: u64) {
        add(&self.counts[bucket_of(latency_ns)], 1);
        add(&self.sum_ns, latency_ns);
    }

    /// Copies the counts as they stand.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts = self.counts.iter().map(|c| c.load(Relaxed)).collect();
        HistogramSnapshot { counts, sum_ns: self.sum_ns.load(Relaxed) }
    }
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        HistogramSnapshot { counts: vec![0; BUCKETS], sum_ns: 0 }
    }
}

impl HistogramSnapshot {
    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Mean latency in nanoseconds; 0 if nothing was recorded.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// The latency in nanoseconds that `per_mille` of 1000 requests do not exceed; 0 if nothing was recorded.
    pub fn percentile_ns(&self, per_mille: u64) -> u64 {
        let rank = (self.count() * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle_of(bucket);
            }
        }
        0
    }

    /// Adds the counts of another snapshot.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum_ns += other.sum_ns;
    }

    /// All buckets in ascending order: the upper bound of each in nanoseconds, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().map(|(bucket, &count)| (end_of(bucket), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_latency_is_reported_within_an_eighth(latency_ns in STEPS..(1u64 << 40)) {
            let middle = middle_of(bucket_of(latency_ns));
            prop_assert!(middle.abs_diff(latency_ns) * 8 <= latency_ns, "{latency_ns} {middle}");
        }

        #[test]
        fn percentiles_agree_with_sorting(mut all in prop::collection::vec(STEPS..1u64 << 36, 1..400), p in 1u64..1000) {
            let histogram = Histogram::default();
            all.iter().for_each(|&ns| histogram.record(ns));
            all.sort_unstable();
            let exact = all[((all.len() as u64 * p).div_ceil(1000).max(1) - 1) as usize];
            let shown = histogram.snapshot().percentile_ns(p);
            prop_assert!(shown.abs_diff(exact) * 8 <= exact);
        }
    }

    #[test]
    fn extremes_have_a_bucket() {
        for latency_ns in [0, 1, 7, u64::MAX] {
            assert!(bucket_of(latency_ns) < BUCKETS);
        }
    }
}
