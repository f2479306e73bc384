//! Snapshot: which volume is to be taken, where its files go, and the progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use weir_store::snapshot::Target;
use weir_types::{DriveId, VolumeId};

/// The snapshot to take of one volume.
#[derive(Clone, Debug)]
pub struct SnapshotSpec {
    /// The volume.
    pub volume: VolumeId,
    /// Where the extent files go on each drive of the volume. An empty whole file exists there for each
    /// replica.
    pub targets: BTreeMap<DriveId, Target>,
    /// Where the snapshot reports its progress.
    pub progress: Arc<SnapshotProgress>,
}

/// Progress of a snapshot, readable by every thread.
#[derive(Debug, Default)]
pub struct SnapshotProgress {
    bytes_left: AtomicU64,
}

impl SnapshotProgress {
    /// Bytes of extents that are left, holes included.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left.load(Relaxed)
    }

    /// Publishes the bytes that are left.
    pub fn set_bytes_left(&self, bytes: u64) {
        self.bytes_left.store(bytes, Relaxed);
    }
}
