//! Statistics of each volume: the reactor that owns the volume writes them, any thread reads them.
//!
//! All values are totals since the daemon started. Rates are differences of two snapshots. The statistics do
//! not know how the values are shown.

mod bounds;
mod cgroups;
mod checksums;
mod histogram;
mod journals;
mod replication;
mod sizes;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use bounds::{BoundTotals, Bounds};
pub use cgroups::{CgroupOperations, CgroupStatistics, CgroupTotals};
pub use checksums::{ChecksumCounters, ChecksumStatistics};
use histogram::add;
pub use histogram::{Bucket, Histogram, HistogramCounters};
pub use journals::{JournalStatistics, JournalUsage};
pub use replication::{ReplicationCounters, ReplicationStatistics};
use sizes::Sizes;
pub use sizes::{SIZES, SIZES_UP_TO_BYTES};

/// Totals of one volume.
#[derive(Default)]
pub struct VolumeStatistics {
    /// Reads.
    pub read: OperationStatistics,
    /// Writes.
    pub write: OperationStatistics,
    /// All other operations: flush, discard, write-zeroes, block status, cache.
    pub other: OperationStatistics,
    /// Requests received and not yet answered.
    pub queue_depth: AtomicU64,
    /// Unanswered requests that a ceiling holds back.
    pub queue_depth_delayed: AtomicU64,
    /// Open connections.
    pub connections: AtomicU64,
    /// Delays of requests, by limit.
    pub bounds: Bounds,
    /// Totals of cgroups with limits.
    pub cgroups: CgroupStatistics,
    /// State of the replicas.
    pub replication: ReplicationStatistics,
    /// State of the write journals.
    pub journals: JournalStatistics,
    /// State of the data at rest.
    pub checksums: ChecksumStatistics,
}

/// Totals of one kind of operation.
#[derive(Default)]
pub struct OperationStatistics {
    bytes: AtomicU64,
    errors: AtomicU64,
    delayed: AtomicU64,
    delayed_ns: AtomicU64,
    floors_ns: AtomicU64,
    queue_ns: AtomicU64,
    drive_ns: AtomicU64,
    other_ns: AtomicU64,
    sizes: Sizes,
    latency: Histogram,
}

/// Result of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Bytes that the request covered.
    pub bytes: u64,
    /// Time from the receipt of the whole request to the ready answer, in nanoseconds.
    pub latency_ns: u64,
    /// Part of the latency in which a ceiling held the request back, in nanoseconds.
    pub delayed_ns: u64,
    /// Part of the latency spent in the drive queue, in nanoseconds.
    pub queue_ns: u64,
    /// Part of `queue_ns` in which other requests went first for their floors, in nanoseconds.
    pub floors_ns: u64,
    /// Part of the latency spent at the drive, in nanoseconds.
    pub drive_ns: u64,
    /// Whether the request was answered with an error.
    pub failed: bool,
}

impl OperationStatistics {
    /// Counts one answered request. Only the owning reactor may call this.
    pub fn record(&self, served: Served) {
        add(&self.bytes, served.bytes);
        add(&self.errors, u64::from(served.failed));
        add(&self.delayed, u64::from(served.delayed_ns > 0));
        // The parts add up to the latency, even if they compare the clocks of several threads.
        let mut rest_ns = served.latency_ns;
        let mut take = |part_ns: u64| {
            let part_ns = part_ns.min(rest_ns);
            rest_ns -= part_ns;
            part_ns
        };
        let (delayed_ns, in_queue_ns) = (take(served.delayed_ns), take(served.queue_ns));
        let drive_ns = take(served.drive_ns);
        let floors_ns = served.floors_ns.min(in_queue_ns);
        add(&self.delayed_ns, delayed_ns);
        add(&self.floors_ns, floors_ns);
        add(&self.queue_ns, in_queue_ns - floors_ns);
        add(&self.drive_ns, drive_ns);
        add(&self.other_ns, rest_ns);
        self.sizes.record(served.bytes);
        self.latency.record(served.latency_ns);
    }

    /// Reads the current totals.
    pub fn counters(&self) -> OperationCounters {
        let mut counters = OperationCounters {
            bytes: self.bytes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            delayed: self.delayed.load(Relaxed),
            delayed_ns: self.delayed_ns.load(Relaxed),
            floors_ns: self.floors_ns.load(Relaxed),
            queue_ns: self.queue_ns.load(Relaxed),
            drive_ns: self.drive_ns.load(Relaxed),
            other_ns: self.other_ns.load(Relaxed),
            sizes: self.sizes.counters(),
            latency: self.latency.counters(),
        };
        // The total of the latencies equals that of the causes, even while a request is being counted.
        counters.latency.sum_ns = counters.by_cause().sum_ns();
        counters
    }
}

/// Counters of [`OperationStatistics`] at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationCounters {
    /// Bytes covered by answered requests.
    pub bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests held back by a ceiling.
    pub delayed: u64,
    /// Time that requests were held back by a ceiling, in nanoseconds.
    pub delayed_ns: u64,
    /// Time that requests waited because others went first for their floors, in nanoseconds.
    pub floors_ns: u64,
    /// Time that requests waited in the drive queue for other reasons, in nanoseconds.
    pub queue_ns: u64,
    /// Time that requests spent at the drive, in nanoseconds.
    pub drive_ns: u64,
    /// The rest of all latencies, in nanoseconds: waits for buffers, waits for other requests to the same
    /// blocks, and Weir's own work.
    pub other_ns: u64,
    /// Requests by size. See [`SIZES_UP_TO_BYTES`].
    pub sizes: [u64; SIZES],
    /// Latencies. Their count is the number of answered requests.
    pub latency: HistogramCounters,
}

/// Time of requests by cause, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeByCause {
    /// Time held back by a ceiling.
    pub delayed_ns: u64,
    /// Time in the drive queue while other requests went first for their floors.
    pub floors_ns: u64,
    /// Time in the drive queue for other reasons.
    pub queue_ns: u64,
    /// Time at the drive.
    pub drive_ns: u64,
    /// All other time.
    pub other_ns: u64,
}

impl TimeByCause {
    /// Total of all causes.
    pub fn sum_ns(&self) -> u64 {
        self.delayed_ns + self.floors_ns + self.queue_ns + self.drive_ns + self.other_ns
    }
}

impl OperationCounters {
    /// Time of all requests by cause.
    pub fn by_cause(&self) -> TimeByCause {
        TimeByCause {
            delayed_ns: self.delayed_ns,
            floors_ns: self.floors_ns,
            queue_ns: self.queue_ns,
            drive_ns: self.drive_ns,
            other_ns: self.other_ns,
        }
    }
}

/// Counters of [`VolumeStatistics`] at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeCounters {
    /// Reads.
    pub read: OperationCounters,
    /// Writes.
    pub write: OperationCounters,
    /// All other operations.
    pub other: OperationCounters,
    /// Requests received and not yet answered.
    pub queue_depth: u64,
    /// Unanswered requests that a ceiling holds back.
    pub queue_depth_delayed: u64,
    /// Open connections.
    pub connections: u64,
}

impl VolumeStatistics {
    /// Bytes that answered requests may have changed: of writes, and of operations that neither read nor
    /// write.
    pub fn changed_bytes(&self) -> u64 {
        self.write.bytes.load(Relaxed).wrapping_add(self.other.bytes.load(Relaxed))
    }

    /// Reads all current counters.
    pub fn counters(&self) -> VolumeCounters {
        VolumeCounters {
            read: self.read.counters(),
            write: self.write.counters(),
            other: self.other.counters(),
            queue_depth: self.queue_depth.load(Relaxed),
            queue_depth_delayed: self.queue_depth_delayed.load(Relaxed),
            connections: self.connections.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn causes_add_up_to_latency(
            all in prop::collection::vec((0u64..1 << 30, 0u64..1 << 30, 0u64..1 << 30, 0u64..1 << 30, 0u64..1 << 30), 1..50)
        ) {
            let statistics = OperationStatistics::default();
            for (latency_ns, delayed_ns, queue_ns, floors_ns, drive_ns) in &all {
                let (latency_ns, delayed_ns, queue_ns) = (*latency_ns, *delayed_ns, *queue_ns);
                let (floors_ns, drive_ns) = (*floors_ns, *drive_ns);
                statistics.record(Served { latency_ns, delayed_ns, queue_ns, floors_ns, drive_ns, ..Served::default() });
            }
            let counters = statistics.counters();
            prop_assert_eq!(counters.by_cause().sum_ns(), all.iter().map(|one| one.0).sum::<u64>());
            prop_assert_eq!(counters.latency.sum_ns, counters.by_cause().sum_ns());
        }
    }
}
