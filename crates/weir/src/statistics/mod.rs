//! What is counted about each volume: written by the reactor that owns it, read by anyone.
//!
//! All values are totals since the daemon started; rates are differences of two snapshots. Nothing here
//! knows how the values are shown.

mod histogram;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use histogram::add;
pub use histogram::{Histogram, HistogramSnapshot};

/// Totals of one volume.
#[derive(Default)]
pub struct VolumeStatistics {
    /// Reads.
    pub read: OperationStatistics,
    /// Writes.
    pub write: OperationStatistics,
    /// Everything else: flush, discard, write-zeroes, block status, cache.
    pub other: OperationStatistics,
    /// Requests received and not yet answered.
    pub queue_depth: AtomicU64,
    /// Of these, requests held back by a ceiling.
    pub queue_depth_delayed: AtomicU64,
    /// Open connections.
    pub connections: AtomicU64,
}

/// Totals of one kind of operation.
#[derive(Default)]
pub struct OperationStatistics {
    bytes: AtomicU64,
    errors: AtomicU64,
    delayed: AtomicU64,
    delayed_ns: AtomicU64,
    media_ns: AtomicU64,
    latency: Histogram,
}

/// How one request went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Bytes that the request covered.
    pub bytes: u64,
    /// From the whole request being received to its answer being ready, in nanoseconds.
    pub latency_ns: u64,
    /// Part of the latency spent held back by a ceiling, in nanoseconds.
    pub delayed_ns: u64,
    /// Whether the request was answered with an error.
    pub failed: bool,
}

impl OperationStatistics {
    /// Counts one answered request. Only the owning reactor may call this.
    pub fn record(&self, served: Served) {
        add(&self.bytes, served.bytes);
        add(&self.errors, u64::from(served.failed));
        add(&self.delayed, u64::from(served.delayed_ns > 0));
        add(&self.delayed_ns, served.delayed_ns);
        add(&self.media_ns, served.latency_ns.saturating_sub(served.delayed_ns));
        self.latency.record(served.latency_ns);
    }

    /// Copies the totals as they stand.
    pub fn snapshot(&self) -> OperationSnapshot {
        OperationSnapshot {
            bytes: self.bytes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            delayed: self.delayed.load(Relaxed),
            delayed_ns: self.delayed_ns.load(Relaxed),
            media_ns: self.media_ns.load(Relaxed),
            latency: self.latency.snapshot(),
        }
    }
}

/// A copy of [`OperationStatistics`] at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationSnapshot {
    /// Bytes covered by answered requests.
    pub bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests held back by a ceiling.
    pub delayed: u64,
    /// Time that requests were held back by a ceiling, in nanoseconds.
    pub delayed_ns: u64,
    /// Time that requests spent being served once admitted, in nanoseconds.
    pub media_ns: u64,
    /// Latencies; their count is the number of answered requests.
    pub latency: HistogramSnapshot,
}

impl OperationSnapshot {
    /// Adds the totals of another snapshot.
    pub fn merge(&mut self, other: &OperationSnapshot) {
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.delayed += other.delayed;
        self.delayed_ns += other.delayed_ns;
        self.media_ns += other.media_ns;
        self.latency.merge(&other.latency);
    }
}

/// A copy of [`VolumeStatistics`] at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// Reads.
    pub read: OperationSnapshot,
    /// Writes.
    pub write: OperationSnapshot,
    /// Everything else.
    pub other: OperationSnapshot,
    /// Requests received and not yet answered.
    pub queue_depth: u64,
    /// Of these, requests held back by a ceiling.
    pub queue_depth_delayed: u64,
    /// Open connections.
    pub connections: u64,
}

impl VolumeStatistics {
    /// Copies everything as it stands.
    pub fn snapshot(&self) -> VolumeSnapshot {
        VolumeSnapshot {
            read: self.read.snapshot(),
            write: self.write.snapshot(),
            other: self.other.snapshot(),
            queue_depth: self.queue_depth.load(Relaxed),
            queue_depth_delayed: self.queue_depth_delayed.load(Relaxed),
            connections: self.connections.load(Relaxed),
        }
    }
}
