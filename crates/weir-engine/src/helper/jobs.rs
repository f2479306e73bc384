//! Jobs: the work that a reactor gives to its helper threads, and the answers.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use weir_engine_interface::FileIdentity;
use weir_store::snapshot::Held;
use weir_store::{Given, PendingDeletion, Survey};
use weir_types::{DriveId, ExtentIndex};
use weir_volume::mirror::{MetadataFault, ReplicaMetadata};
use weir_volume::{AllocationMap, Fault};

use super::checksum_files::{ChecksumAnswer, ChecksumJob};
use super::space_look::{SpaceAnswer, SpaceJob};
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};

/// Work for a helper thread. Each job belongs to an extent being opened, a client's request or a step of
/// background work. The number of all three is bounded, so the queue is too.
pub enum Job {
    /// Open an extent's file and map its data.
    Open { replica: ReplicaIndex, number: AskNumber, drive: DriveId, extent: ExtentIndex, path: PathBuf },
    /// Tell data from holes in a range of an extent.
    Status { number: u64, drive: DriveId, path: PathBuf, offset: u32, length: u32 },
    /// Carry out a step of background work.
    Background { operation: usize, drive: DriveId, pending_deletion: PendingDeletion, step: ReclaimStep },
    /// Write an epoch to the epoch record of an extent, as allocated or as committed.
    EpochRecord { volume: VolumeIndex, path: PathBuf, extent: ExtentIndex, epoch: u64, is_committed: bool },
    /// Write to the epoch record of an extent that its last in-sync replica failed.
    Failure { volume: VolumeIndex, path: PathBuf, extent: ExtentIndex },
    /// Write the metadata of an extent replica. An emulated drive is done with it at `due_ns`.
    ReplicaMetadata {
        replica: ReplicaIndex,
        extent: ExtentIndex,
        number: AskNumber,
        drive: DriveId,
        path: PathBuf,
        metadata: Arc<ReplicaMetadata>,
        /// The file is created anew, because an earlier write of it failed.
        is_anew: bool,
        due_ns: u64,
    },
    /// Take an extent replica into a snapshot: from offset `range.0` on, at most `range.1` bytes, by
    /// reflink if `can_share`. If `has_space`, pieces with data get their space in full. What a write journal holds of the range, if anything, replaces what the file has.
    Snapshot {
        replica: ReplicaIndex,
        number: AskNumber,
        drive: DriveId,
        source: PathBuf,
        target: PathBuf,
        range: (u32, u32),
        can_share: bool,
        has_space: bool,
        held: Option<Held>,
    },
    /// Read or write the checksum file beside a replica.
    Checksums(Box<ChecksumJob>),
    /// Check whether a drive has space for an action.
    Space(Box<SpaceJob>),
}

/// A step of a reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimStep {
    /// Find out what there is to give back.
    Survey,
    /// Give back a part of this extent.
    GiveBack(ExtentIndex),
    /// Remove the remains.
    Conclude,
}

impl ReclaimStep {
    /// True if the step uses the drive, which other work needs too.
    pub fn is_for_drive(self) -> bool {
        matches!(self, ReclaimStep::GiveBack(_))
    }
}

/// Result of a successful step of a reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimDone {
    Surveyed(Survey),
    Given(Given),
    Concluded,
}

/// Outcome of a step of a reclaim: its result, or the reason of its failure in words.
pub type ReclaimOutcome = Result<ReclaimDone, String>;

/// A run of bytes that are all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub length: u32,
    pub is_hole: bool,
}

/// Why an extent's file could not be opened.
pub struct OpenError {
    /// The fault, in words.
    pub message: String,
    /// [`Fault::Broken`] if the file is at fault. With any other fault the file may open later: the system
    /// was short of a resource, or the drive is away.
    pub fault: Fault,
}

/// The opened file of an extent.
pub struct OpenedExtent {
    pub file: OwnedFd,
    /// The allocation pieces that hold data.
    pub map: AllocationMap,
    pub identity: FileIdentity,
}

/// Why replica metadata or an epoch record could not be written.
pub struct MetadataError {
    /// Whether a resource is short, for example space, or the drive is broken.
    pub fault: MetadataFault,
    /// The fault, in words.
    pub message: String,
}

/// Result of writing the metadata of an extent replica.
pub struct MetadataAnswer {
    pub replica: ReplicaIndex,
    pub extent: ExtentIndex,
    pub number: AskNumber,
    /// When an emulated drive is done with the write, in nanoseconds.
    pub due_ns: u64,
    pub result: Result<(), MetadataError>,
}

/// Answer to a [`Job`].
pub enum Answer {
    Opened {
        replica: ReplicaIndex,
        number: AskNumber,
        extent: ExtentIndex,
        result: Result<OpenedExtent, OpenError>,
    },
    Status {
        number: u64,
        result: Result<Vec<Run>, String>,
    },
    Background {
        operation: usize,
        outcome: ReclaimOutcome,
    },
    EpochRecorded {
        volume: VolumeIndex,
        extent: ExtentIndex,
        result: Result<(), MetadataError>,
    },
    FailureRecorded {
        volume: VolumeIndex,
        extent: ExtentIndex,
        result: Result<(), MetadataError>,
    },
    Metadata(MetadataAnswer),
    /// With the offset in the extent up to which the snapshot has come.
    SnapshotEnded {
        replica: ReplicaIndex,
        number: AskNumber,
        result: Result<u32, String>,
    },
    Checksums(Box<ChecksumAnswer>),
    Space(SpaceAnswer),
}
