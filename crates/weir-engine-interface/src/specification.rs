//! Descriptions that control gives to the engine: volumes, their layout, drives, and deletions whose space is to be
//! reclaimed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_qos::{DepthOrigin, DriveModel};
use weir_store::PendingDeletion;
use weir_types::{DriveId, Emulation, ExtentIndex, VolumeId};
use weir_volume::mirror::{ChecksumHeader, RecoveredExtent};

use crate::job_progress::JobProgress;

/// A volume, as the data plane needs to know it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// The volume's identity.
    pub id: VolumeId,
    /// Size in bytes, a multiple of 4096.
    pub size_bytes: u64,
    /// Whether clients may only read.
    pub is_read_only: bool,
    /// Where the volume's replicas lie.
    pub layout: VolumeLayout,
    /// Recovered state of the extents; empty if no extent ever had more than one replica.
    pub recovered_extents: Vec<RecoveredExtent>,
    /// The file with the volume's epoch records.
    pub epoch_records: PathBuf,
    /// Checksum headers found beside replicas, by extent and slot; `None` for a header that could not be
    /// read.
    pub headers: Vec<(ExtentIndex, usize, Option<ChecksumHeader>)>,
    /// How long a flush may be owed while several replicas hold the data; `None` if each is carried out before its
    /// answer.
    pub flush_window: Option<FlushWindow>,
}

/// How long the flushes of a volume may be owed while several replicas hold the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushWindow {
    /// Longest time from the answer to a flush to its begin.
    pub length: Duration,
    /// Whether a request that is to be durable by itself (FUA) counts as one without and a flush.
    pub covers_fua: bool,
}

/// Where the replicas of a volume's extents lie.
#[derive(Clone, Debug)]
pub struct VolumeLayout {
    /// The drives of all replicas, at least one, including drives that cannot be reached. Later changes
    /// only append drives.
    pub homes: Vec<VolumeHome>,
    /// Index of the drive in `homes` by replica and extent, or [`NO_HOME`]. For an extent beyond the list,
    /// the first replica is on the first drive, and the other replicas do not exist.
    pub replicas: Vec<Vec<u8>>,
}

/// Index for an extent replica that does not exist.
pub const NO_HOME: u8 = u8::MAX;

/// Index for an extent beyond the list of a replica.
pub fn home_beyond_list(slot: usize) -> u8 {
    if slot == 0 { 0 } else { NO_HOME }
}

/// A drive, as the data plane needs to know it; the same for all uses of the drive.
#[derive(Clone, Copy, Debug)]
pub struct DriveSpec {
    /// The drive's identity.
    pub id: DriveId,
    /// The emulated behaviour, if the drive is emulated.
    pub emulation: Option<Emulation>,
    /// The cost model of operations. Only the value at the drive's first use counts.
    pub model: DriveModel,
    /// Number of operations to keep in flight, if an operator chose one.
    pub queue_target: Option<u32>,
}

/// A drive that holds extents of a volume.
#[derive(Clone, Debug)]
pub struct VolumeHome {
    /// The drive.
    pub drive: DriveSpec,
    /// The folder with the volume's extent files on the drive.
    pub directory: PathBuf,
    /// Cost of a read on the drive, in any unit that all homes of the volume share. Of several replicas,
    /// the cheapest is read.
    pub read_cost: u32,
}

/// Number of operations that a drive keeps in flight. A chosen number always holds; any other holds while
/// volumes compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveQueueDepth {
    /// The number of operations.
    pub operations: u32,
    /// Where the number comes from.
    pub origin: DepthOrigin,
}

/// A pending deletion whose space is to be reclaimed in the background.
#[derive(Clone, Debug)]
pub struct ReclaimSpec {
    /// Identity of the deleted volume, or of the end that was cut off from a volume.
    pub id: VolumeId,
    /// The drive that holds the files.
    pub drive: DriveSpec,
    /// The files to delete.
    pub pending_deletion: PendingDeletion,
    /// Age of the deletion in nanoseconds; deadlines count from it.
    pub age_ns: u64,
    /// Where the progress of the reclaim is published.
    pub progress: Arc<JobProgress>,
}
