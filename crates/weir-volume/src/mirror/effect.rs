//! Effects of a mirror, which the executor carries out, and its answers.

use weir_types::ExtentIndex;

use super::checksums::{ChecksumWork, SectionReport};
use super::metadata_write::MetadataRequest;
use super::mirror_id::MirrorId;
use super::replica_metadata::ReplicaStates;
use super::slots::Slots;
use crate::action::{Action, Content, Fault, Generation, OperationId, Remains};

/// An effect that the executor must carry out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Carry out an action on the files of a replica → [`Mirror::answer`](super::Mirror::answer). The action
    /// is never the end of an operation or flush.
    Act {
        /// Slot of the replica.
        slot: usize,
        /// Request that the action serves, if the action names an operation.
        owner: Option<MirrorId>,
        /// Action to carry out.
        action: Action,
    },
    /// An operation of a replica has ended, and its buffer is no longer needed.
    Ended {
        /// Slot of the replica.
        slot: usize,
        /// Operation of the replica.
        operation: OperationId,
    },
    /// Write this metadata beside replicas, durably, by way of [`MetadataWrites`](super::MetadataWrites) →
    /// [`Mirror::metadata_written`](super::Mirror::metadata_written).
    WriteMetadata(Box<MetadataRequest>),
    /// A replica could not be added to an extent: no metadata could be written that names it.
    Refused {
        /// Extent of the replica.
        extent: ExtentIndex,
        /// Slot of the replica.
        slot: usize,
    },
    /// Compute the checksum of each block that an operation of a replica has read →
    /// [`Scrubs::examined`](super::Scrubs::examined). If the read found a hole, compute the checksums of as
    /// many blocks of zeroes.
    Examine {
        /// Request that the read serves.
        id: MirrorId,
        /// Slot of the replica.
        slot: usize,
        /// Operation whose buffer holds the data.
        operation: OperationId,
        /// Result of the read: data or a hole.
        content: Content,
    },
    /// Fill the buffer of a resync step or scrub piece with zeroes. The step has read a hole and writes from
    /// this buffer next. No read into this buffer is under way.
    Zeroes {
        /// Request that owns the buffer.
        id: MirrorId,
    },
    /// Do a task on the checksum files of an extent →
    /// [`Scrubs::checksum_work_done`](super::Scrubs::checksum_work_done).
    ChecksumWork {
        /// Extent of the files.
        extent: ExtentIndex,
        /// Task to do.
        work: Box<ChecksumWork>,
    },
    /// The scrub of a section ended or was abandoned.
    Scrubbed {
        /// Extent of the section.
        extent: ExtentIndex,
        /// Result of the scrub.
        report: Box<SectionReport>,
    },
    /// A request, resync step or scrub piece has ended → [`Mirror::forget`](super::Mirror::forget).
    Done {
        /// Number of the request.
        operation: MirrorId,
        /// Result of the request.
        result: Result<Content, Fault>,
        /// Replica and operation whose buffer holds the data that was read.
        source: Option<(usize, OperationId)>,
    },
    /// A flush has ended.
    Flushed {
        /// Number that the caller gave to the flush.
        flush: u32,
        /// Result of the flush.
        result: Result<(), Fault>,
        /// Whether the flush is owed: several replicas hold the data, and it is stable with a later
        /// [`Effect::FlushesPaid`]. The executor lets it be paid within its window
        /// ([`Coalescing::end_window`](super::Coalescing::end_window)).
        is_owed: bool,
    },
    /// Coalesced flushes were carried out: the data is stable that they cover. If not, they are still owed, and the executor
    /// lets them be paid again within its window.
    FlushesPaid {
        /// Number of these flushes; if they are paid, they are the first ones that were not before.
        count: u32,
        /// Result of the flush that was to pay them.
        result: Result<(), Fault>,
    },
    /// A replica of an extent failed and is no longer used; an operator must know.
    ReplicaFailed {
        /// Slot of the replica.
        slot: usize,
        /// Extent of the replica.
        extent: ExtentIndex,
        /// Condition of the replica's file.
        remains: Remains,
    },
    /// Record durably, apart from the replica, that the last replica in sync of an extent failed with unknown
    /// content ([`epoch_record::fail`](super::epoch_record::fail)). Otherwise a later start would serve it as
    /// if it were intact.
    RecordFailure {
        /// Extent of the replica.
        extent: ExtentIndex,
    },
    /// Add data of these replicas of an extent to the snapshot in progress, from an offset on →
    /// [`Snapshots::step_done`](super::Snapshots::step_done). The executor takes as much as is reasonable at
    /// once, in whole regions.
    Snapshot {
        /// Extent to take the data from.
        extent: ExtentIndex,
        /// Replicas to take the data from.
        slots: Slots,
        /// Start of the range in bytes, a multiple of [`REGION_BYTES`](weir_types::bounds::REGION_BYTES).
        offset: u32,
        /// Maximum length of the range in bytes, a multiple of
        /// [`REGION_BYTES`](weir_types::bounds::REGION_BYTES).
        length: u32,
    },
    /// A snapshot in progress has ended.
    SnapshotEnded {
        /// For each extent, the replicas that are in the snapshot, all of which are equal; `None` if the
        /// snapshot was abandoned.
        replicas: Option<Vec<Slots>>,
    },
    /// The replica states of an extent have durably changed; every other holder of them must be told.
    ReplicaStates {
        /// Extent of the replicas.
        extent: ExtentIndex,
        /// Epoch of the metadata with these states.
        epoch: u64,
        /// New replica states.
        replica_states: ReplicaStates,
    },
}

/// Effects are passed on for every request, so an effect must stay small: at most 64 bytes, one cache line.
const _: () = assert!(size_of::<Effect>() <= 64);

/// An answer of the executor to an action.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Answer to [`Action::Open`], with the extent and generation that it named.
    Opened(ExtentIndex, Generation, Result<crate::AllocationMap, Fault>),
    /// Answer to [`Action::Allocate`], with the extent, generation and piece that it named.
    Allocated(ExtentIndex, Generation, u32),
    /// Answer to [`Action::Allocate`], with the values that it named: the piece gets no space, or not now.
    Refused(ExtentIndex, Generation, u32, Fault),
    /// Answer to every action that names an operation.
    Completed(OperationId, Result<u32, Fault>),
    /// Answer to [`Action::Sync`], with the extent and generation that it named.
    Synced(ExtentIndex, Generation, Result<(), Fault>),
}
