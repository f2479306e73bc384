//! Totals: request counters that can be added and subtracted, the form in which statistics leave the
//! daemon.

use weir_engine_interface::statistics::{Bucket, OperationCounters, SIZES, TimeByCause, VolumeCounters};

/// Totals of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationTotals {
    /// Number of answered requests.
    pub operations: u64,
    /// Bytes that these requests covered.
    pub bytes: u64,
    /// Number of requests answered with an error.
    pub errors: u64,
    /// Number of requests that a ceiling delayed.
    pub delayed: u64,
    /// Time of all requests by cause; the causes add up to the sum of all latencies.
    pub time: TimeByCause,
    /// Requests by size; see [`weir_engine_interface::statistics::SIZES_UP_TO_BYTES`].
    pub sizes: [u64; SIZES],
    /// Requests by latency: the non-empty buckets, ascending.
    pub latency: Vec<Bucket>,
}

/// Totals of a volume or a policy group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Reads.
    pub read: OperationTotals,
    /// Writes.
    pub write: OperationTotals,
    /// All other operations.
    pub other: OperationTotals,
}

impl From<&OperationCounters> for OperationTotals {
    fn from(counters: &OperationCounters) -> OperationTotals {
        OperationTotals {
            operations: counters.latency.count(),
            bytes: counters.bytes,
            errors: counters.errors,
            delayed: counters.delayed,
            time: counters.by_cause(),
            sizes: counters.sizes,
            latency: counters.latency.buckets().collect(),
        }
    }
}

impl From<&VolumeCounters> for Totals {
    fn from(counters: &VolumeCounters) -> Totals {
        Totals {
            read: (&counters.read).into(),
            write: (&counters.write).into(),
            other: (&counters.other).into(),
        }
    }
}

impl OperationTotals {
    fn combine(&mut self, other: &OperationTotals, combine: fn(u64, u64) -> u64) {
        self.operations = combine(self.operations, other.operations);
        self.bytes = combine(self.bytes, other.bytes);
        self.errors = combine(self.errors, other.errors);
        self.delayed = combine(self.delayed, other.delayed);
        self.time = TimeByCause {
            delayed_ns: combine(self.time.delayed_ns, other.time.delayed_ns),
            floors_ns: combine(self.time.floors_ns, other.time.floors_ns),
            queue_ns: combine(self.time.queue_ns, other.time.queue_ns),
            drive_ns: combine(self.time.drive_ns, other.time.drive_ns),
            other_ns: combine(self.time.other_ns, other.time.other_ns),
        };
        for (mine, theirs) in self.sizes.iter_mut().zip(other.sizes) {
            *mine = combine(*mine, theirs);
        }
        for theirs in &other.latency {
            match self.latency.binary_search_by_key(&theirs.up_to_ns, |bucket| bucket.up_to_ns) {
                Ok(place) => self.latency[place].count = combine(self.latency[place].count, theirs.count),
                Err(place) => {
                    self.latency.insert(place, Bucket { count: combine(0, theirs.count), ..*theirs })
                }
            }
        }
        self.latency.retain(|bucket| bucket.count > 0);
    }
}

impl Totals {
    fn combine(&mut self, other: &Totals, combine: fn(u64, u64) -> u64) {
        self.read.combine(&other.read, combine);
        self.write.combine(&other.write, combine);
        self.other.combine(&other.other, combine);
    }

    /// Adds other totals.
    pub fn add(&mut self, other: &Totals) {
        self.combine(other, u64::saturating_add);
    }

    /// Subtracts earlier totals of the same source.
    pub fn subtract(&mut self, earlier: &Totals) {
        self.combine(earlier, u64::saturating_sub);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine_interface::statistics::{Served, VolumeStatistics};

    #[test]
    fn causes_add_up_to_latencies_through_addition_and_subtraction() {
        let statistics = VolumeStatistics::default();
        let serve = |latency_ns, queue_ns| {
            let served = Served { bytes: 70_000, latency_ns, delayed_ns: 10, queue_ns, ..Served::default() };
            statistics.write.record(Served { floors_ns: 7, drive_ns: 500, ..served });
        };
        serve(1_000, 100);
        let first = Totals::from(&statistics.counters());
        serve(2_000, 5_000);
        let mut since = Totals::from(&statistics.counters());
        since.subtract(&first);
        let expected =
            TimeByCause { delayed_ns: 10, floors_ns: 7, queue_ns: 1_983, ..TimeByCause::default() };
        assert_eq!((since.write.time, since.write.time.sum_ns()), (expected, 2_000));
        since.add(&first);
        assert_eq!(since.write.time.sum_ns(), statistics.counters().write.latency.sum_ns);
        assert_eq!(since.write.sizes, [0, 0, 0, 2, 0]);
    }

    #[test]
    fn buckets_are_matched_by_latency_when_combined() {
        let bucket = |up_to_ns: u64, count| Bucket { above_ns: up_to_ns / 2, up_to_ns, count };
        let reads = |latency: &[Bucket]| {
            let read = OperationTotals { latency: latency.to_vec(), ..OperationTotals::default() };
            Totals { read, ..Totals::default() }
        };
        let mut totals = reads(&[bucket(16, 1), bucket(64, 4)]);
        totals.add(&reads(&[bucket(8, 2), bucket(32, 3), bucket(64, 1)]));
        assert_eq!(totals, reads(&[bucket(8, 2), bucket(16, 1), bucket(32, 3), bucket(64, 5)]));
        totals.subtract(&reads(&[bucket(16, 1), bucket(64, 4)]));
        assert_eq!(totals, reads(&[bucket(8, 2), bucket(32, 3), bucket(64, 1)]));
    }

    #[test]
    fn totals_count_recorded_requests_and_subtract() {
        let statistics = VolumeStatistics::default();
        let serve = |latency_ns| {
            statistics.read.record(Served { bytes: 4096, latency_ns, delayed_ns: 10, ..Served::default() })
        };
        serve(1_000);
        let first = Totals::from(&statistics.counters());
        serve(1_000_000);
        let mut second = Totals::from(&statistics.counters());
        assert_eq!((second.read.operations, second.read.bytes, second.read.time.delayed_ns), (2, 8192, 20));
        second.subtract(&first);
        assert_eq!((second.read.operations, second.read.time.sum_ns()), (1, 1_000_000));
        assert_eq!(second.read.latency, [Bucket { above_ns: 15 << 16, up_to_ns: 1 << 20, count: 1 }]);
        let mut sum = Totals::default();
        sum.add(&first);
        sum.add(&second);
        assert_eq!(sum, Totals::from(&statistics.counters()));
    }
}
