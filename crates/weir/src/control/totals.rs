//! Totals of requests that can be added and subtracted: the form in which statistics leave the daemon.

use crate::statistics::{OperationSnapshot, VolumeSnapshot};

/// Totals of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationTotals {
    /// Requests answered.
    pub operations: u64,
    /// Bytes that they covered.
    pub bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests held back by a ceiling.
    pub delayed: u64,
    /// Time held back by a ceiling, in nanoseconds.
    pub delayed_ns: u64,
    /// Time spent being served once admitted, in nanoseconds.
    pub media_ns: u64,
    /// Sum of all latencies, in nanoseconds.
    pub latency_sum_ns: u64,
    /// Requests by latency: ascending upper bounds in nanoseconds, each with the requests above the bound
    /// before it and not above this one.
    pub latency: Vec<(u64, u64)>,
}

/// Totals of a volume or a policy group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Reads.
    pub read: OperationTotals,
    /// Writes.
    pub write: OperationTotals,
    /// Everything else.
    pub other: OperationTotals,
}

impl From<&OperationSnapshot> for OperationTotals {
    fn from(snapshot: &OperationSnapshot) -> OperationTotals {
        OperationTotals {
            operations: snapshot.latency.count(),
            bytes: snapshot.bytes,
            errors: snapshot.errors,
            delayed: snapshot.delayed,
            delayed_ns: snapshot.delayed_ns,
            media_ns: snapshot.media_ns,
            latency_sum_ns: snapshot.latency.sum_ns,
            latency: snapshot.latency.buckets().collect(),
        }
    }
}

impl From<&VolumeSnapshot> for Totals {
    fn from(snapshot: &VolumeSnapshot) -> Totals {
        Totals {
            read: (&snapshot.read).into(),
            write: (&snapshot.write).into(),
            other: (&snapshot.other).into(),
        }
    }
}

impl OperationTotals {
    fn combine(&mut self, other: &OperationTotals, combine: fn(u64, u64) -> u64) {
        self.operations = combine(self.operations, other.operations);
        self.bytes = combine(self.bytes, other.bytes);
        self.errors = combine(self.errors, other.errors);
        self.delayed = combine(self.delayed, other.delayed);
        self.delayed_ns = combine(self.delayed_ns, other.delayed_ns);
        self.media_ns = combine(self.media_ns, other.media_ns);
        self.latency_sum_ns = combine(self.latency_sum_ns, other.latency_sum_ns);
        if self.latency.is_empty() {
            self.latency = other.latency.iter().map(|(bound, _)| (*bound, 0)).collect();
        }
        for (mine, theirs) in self.latency.iter_mut().zip(&other.latency) {
            mine.1 = combine(mine.1, theirs.1);
        }
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

    /// Takes away earlier totals of the same source.
    pub fn subtract(&mut self, earlier: &Totals) {
        self.combine(earlier, u64::saturating_sub);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{Served, VolumeStatistics};

    #[test]
    fn totals_count_what_was_recorded_and_can_be_subtracted() {
        let statistics = VolumeStatistics::default();
        let serve = |latency_ns| {
            statistics.read.record(Served { bytes: 4096, latency_ns, delayed_ns: 10, ..Served::default() })
        };
        serve(1_000);
        let first = Totals::from(&statistics.snapshot());
        serve(1_000_000);
        let mut second = Totals::from(&statistics.snapshot());
        assert_eq!((second.read.operations, second.read.bytes, second.read.delayed_ns), (2, 8192, 20));
        second.subtract(&first);
        assert_eq!((second.read.operations, second.read.latency_sum_ns), (1, 1_000_000));
        let filled: Vec<_> = second.read.latency.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [&(1 << 20, 1)]);
        let mut sum = Totals::default();
        sum.add(&first);
        sum.add(&second);
        assert_eq!(sum, Totals::from(&statistics.snapshot()));
    }
}
