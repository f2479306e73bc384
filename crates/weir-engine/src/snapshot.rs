//! Snapshots: taking volumes at one instant into new files while clients write to them.
//!
//! The mirror decides which range of which extent comes next. One helper thread for each drive shares or
//! duplicates the ranges. This module brings several volumes to the same instant. It quiesces all of them, so
//! that no write begins. Only when all are quiesced does the snapshot of any of them begin. A quiesce ends by
//! itself after a moment, because the caller may never come back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;

use weir_types::{DriveId, VolumeId};
use weir_volume::mirror::Slots;

use super::token::AskNumber;
use weir_store::snapshot::Target;

/// Longest time that writes are quiesced while other volumes are brought to the same instant, in nanoseconds.
/// It is the longest pause that clients may notice.
pub const QUIESCE_NS_MAX: u64 = 50_000_000;

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
    pub(crate) bytes_left: AtomicU64,
}

impl SnapshotProgress {
    /// Bytes of extents that are left, holes included.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left.load(Relaxed)
    }
}

/// For each extent the replicas in the snapshot, all of which are identical; or why the snapshot was
/// abandoned.
pub type Outcome = Result<Vec<Slots>, String>;

/// A snapshot that a volume is asked for.
pub struct NewSnapshot {
    pub spec: SnapshotSpec,
    /// The snapshot covers several volumes, and begins only if the volume is quiesced.
    pub is_quiesced: bool,
    pub done: SyncSender<Outcome>,
}

/// The snapshot in progress of a volume.
pub struct VolumeSnapshot {
    pub spec: SnapshotSpec,
    pub done: SyncSender<Outcome>,
    pub step: Step,
    /// Why a replica is not part of the snapshot.
    pub fault: Option<String>,
}

/// The range that the drives work on.
#[derive(Default)]
pub struct Step {
    pub extent: u32,
    /// Replicas that have not answered, with the number and the time of the request.
    pub waiting: BTreeMap<usize, (AskNumber, u64)>,
    pub failed: Slots,
    /// End of the range that all replicas that answered have completed.
    pub end: u32,
}

/// Reports the outcome to the caller, who may have stopped waiting.
pub fn tell(done: &SyncSender<Outcome>, outcome: Outcome) {
    let _ = done.send(outcome);
}
