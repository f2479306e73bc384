//! What is counted about each volume: written by the reactor that owns it, read by anyone.
//!
//! All values are totals since the daemon started; rates are differences of two snapshots. Nothing here
//! knows how the values are shown.

mod histogram;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use weir_qos::Limit;
use weir_types::Scope;

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
    /// What held requests back, by whose limit.
    bounds: Mutex<Vec<BoundTotals>>,
}

/// What one limit held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundTotals {
    /// Whose limit.
    pub scope: Scope,
    /// Which.
    pub limit: Limit,
    /// Requests that it held back.
    pub requests: u64,
    /// For how long, together, in nanoseconds.
    pub waited_ns: u64,
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
    media_ns: AtomicU64,
    other_ns: AtomicU64,
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
    /// Part of the latency spent in line for the media, in nanoseconds.
    pub queue_ns: u64,
    /// Part of that in which others went first because of their floors, in nanoseconds.
    pub floors_ns: u64,
    /// Part of the latency spent at the media, in nanoseconds.
    pub media_ns: u64,
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
        // What is told apart sums up to the latency.
        let floors_ns = served.floors_ns.min(served.queue_ns);
        let named_ns = served.delayed_ns + served.queue_ns + served.media_ns;
        add(&self.floors_ns, floors_ns);
        add(&self.queue_ns, served.queue_ns - floors_ns);
        add(&self.media_ns, served.media_ns);
        add(&self.other_ns, served.latency_ns.saturating_sub(named_ns));
        self.latency.record(served.latency_ns);
    }

    /// Copies the totals as they stand.
    pub fn snapshot(&self) -> OperationSnapshot {
        OperationSnapshot {
            bytes: self.bytes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            delayed: self.delayed.load(Relaxed),
            delayed_ns: self.delayed_ns.load(Relaxed),
            floors_ns: self.floors_ns.load(Relaxed),
            queue_ns: self.queue_ns.load(Relaxed),
            media_ns: self.media_ns.load(Relaxed),
            other_ns: self.other_ns.load(Relaxed),
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
    /// Time that requests waited because others went first for their floors, in nanoseconds.
    pub floors_ns: u64,
    /// Time that requests waited for the media for other reasons, in nanoseconds.
    pub queue_ns: u64,
    /// Time that requests spent at the media, in nanoseconds.
    pub media_ns: u64,
    /// The rest of all latencies: waiting for buffers, for others that touch the same blocks, and Weir's own work,
    /// in nanoseconds.
    pub other_ns: u64,
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
        self.floors_ns += other.floors_ns;
        self.queue_ns += other.queue_ns;
        self.media_ns += other.media_ns;
        self.other_ns += other.other_ns;
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
    /// Counts a request that a limit held back. Only the owning reactor may call this.
    pub fn bound(&self, scope: &Scope, limit: Limit, waited_ns: u64) {
        let mut bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        match bounds.iter_mut().find(|known| known.limit == limit && known.scope == *scope) {
            Some(known) => {
                known.requests += 1;
                known.waited_ns += waited_ns;
            }
            None => bounds.push(BoundTotals { scope: scope.clone(), limit, requests: 1, waited_ns }),
        }
    }

    /// What held requests back so far.
    pub fn bounds(&self) -> Vec<BoundTotals> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

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
