//! A latency histogram that one thread writes and any thread may read, without locks.
//!
//! It is log-linear: every power of two of nanoseconds is cut into eight equal buckets. So a percentile is
//! known to within 12.5 % at worst, and reported at the middle of its bucket.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets per power of two.
const STEPS: u64 = 8;
/// Highest distinguished power of two: 2^42 ns is over an hour.
const EXPONENT_MAX: u64 = 42;
/// Number of buckets.
pub const BUCKETS: usize = ((EXPONENT_MAX - 1) * STEPS) as usize;

/// Counts of latencies by bucket, and the total of all latencies.
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// Counters of a [`Histogram`] at one instant. They hold only the buckets that have requests. Most buckets
/// have none, and all volumes are read at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramCounters {
    /// Buckets by number, ascending, each with its count, which is not 0.
    counts: Vec<(u16, u64)>,
    /// Total of all latencies in nanoseconds.
    pub sum_ns: u64,
}

/// Requests whose latency is in one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Exclusive lower bound of the latency, in nanoseconds.
    pub above_ns: u64,
    /// Upper bound of the latency, in nanoseconds.
    pub up_to_ns: u64,
    /// Number of requests.
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }
}

/// Adds to a counter that only this thread writes. It is cheaper than an atomic read-modify-write.
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

    /// Reads the current counts.
    pub fn counters(&self) -> HistogramCounters {
        let counts = (0..).zip(&self.counts).map(|(bucket, count)| (bucket, count.load(Relaxed)));
        HistogramCounters {
            counts: counts.filter(|(_, count)| *count > 0).collect(),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

impl HistogramCounters {
    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// The latency in nanoseconds that `per_mille` of 1000 requests do not exceed. 0 if there are no
    /// requests.
    pub fn percentile_ns(&self, per_mille: u64) -> u64 {
        let rank = (self.count() * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in &self.counts {
            seen += count;
            if seen >= rank {
                return middle_of((*bucket).into());
            }
        }
        0
    }

    /// The buckets that have requests, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.counts.iter().map(|&(bucket, count)| {
            let above_ns = usize::from(bucket).checked_sub(1).map_or(0, end_of);
            Bucket { above_ns, up_to_ns: end_of(bucket.into()), count }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn latency_is_reported_within_one_eighth(latency_ns in STEPS..(1u64 << 40)) {
            let middle = middle_of(bucket_of(latency_ns));
            prop_assert!(middle.abs_diff(latency_ns) * 8 <= latency_ns, "{latency_ns} {middle}");
        }

        #[test]
        fn percentiles_agree_with_sorting(mut all in prop::collection::vec(STEPS..1u64 << 36, 1..400), p in 1u64..1000) {
            let histogram = Histogram::default();
            all.iter().for_each(|&ns| histogram.record(ns));
            all.sort_unstable();
            let exact = all[((all.len() as u64 * p).div_ceil(1000).max(1) - 1) as usize];
            let shown = histogram.counters().percentile_ns(p);
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
