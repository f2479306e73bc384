//! Requests to a journal, and the actions and answers that a journal returns.

use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES, PIECE_BYTES};
use weir_types::{ExtentIndex, VolumeId};

/// Identifier of a request, until its [`Action::Done`]. The caller chooses it; no two requests in flight have
/// the same ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Persistent name of the file of one extent replica. A journal may have files of many volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// Volume that the file belongs to.
    pub volume: VolumeId,
    /// Number of the extent in the volume.
    pub extent: ExtentIndex,
    /// Number of the replica.
    pub replica: u8,
}

/// Number of a file in one running journal, until the file is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Identifier of a destage operation on a slow file, until the operation is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestageId(pub u32);

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Writes bytes, at most 128 KiB.
    Write {
        /// Whether the write must be stable before it is acknowledged (forced unit access).
        is_durable: bool,
        /// [`crate::checksum`] of the bytes. A write that bypasses the journal does not need it, see
        /// [`crate::Journal::passes_by`].
        checksum: u32,
    },
    /// Makes the range read as zeroes and keeps its space.
    Zero,
    /// Makes the range read as zeroes and gives its space back.
    Release,
}

/// A requested change. The range consists of whole blocks within an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Ticket under which the end of the change is reported.
    pub ticket: Ticket,
    /// File that is changed.
    pub file: FileId,
    /// Start of the range in the file, in bytes.
    pub offset: u32,
    /// Length of the range, in bytes; at least a block.
    pub length: u32,
    /// Kind of the change.
    pub kind: Kind,
}

impl Request {
    pub(crate) fn assert_is_sound(&self) {
        let is_whole = |bytes: u32| bytes.is_multiple_of(BLOCK_BYTES as u32);
        let end = u64::from(self.offset) + u64::from(self.length);
        assert!(
            self.length > 0 && is_whole(self.offset) && is_whole(self.length),
            "changes are whole blocks"
        );
        assert!(end <= EXTENT_BYTES, "changes lie within an extent");
        assert!(self.payload_blocks() <= (PIECE_BYTES / BLOCK_BYTES) as u32, "a write has at most a piece");
    }

    pub(crate) fn is_durable(&self) -> bool {
        matches!(self.kind, Kind::Write { is_durable: true, .. })
    }

    /// Number of payload blocks in a record.
    pub(crate) fn payload_blocks(&self) -> u32 {
        if matches!(self.kind, Kind::Write { .. }) { self.length / BLOCK_BYTES as u32 } else { 0 }
    }

    pub(crate) fn span(&self) -> Span {
        Span::of(self.file, self.offset, self.length)
    }
}

/// A range of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub file: FileId,
    pub block: u32,
    pub blocks: u32,
}

impl Span {
    pub fn of(file: FileId, offset: u32, length: u32) -> Span {
        Span { file, block: offset / BLOCK_BYTES as u32, blocks: length / BLOCK_BYTES as u32 }
    }

    pub fn end(&self) -> u32 {
        self.block + self.blocks
    }

    pub fn overlaps(&self, other: &Span) -> bool {
        self.file == other.file && self.block < other.end() && other.block < self.end()
    }
}

/// The reason why the slow drive did not carry out an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SlowFault {
    /// The filesystem can neither zero nor give back space. Nothing is broken.
    #[error("not supported by the filesystem of the slow drive")]
    Unsupported,
    /// The drive is full. A bypass write may succeed later; data in the journal has nowhere to go.
    #[error("no space left on the slow drive")]
    NoSpace,
    /// The system was short of memory or descriptors. The executor of destages retries until they succeed;
    /// otherwise the file fails.
    #[error("the system is short of memory or file descriptors")]
    Short,
    /// The drive failed.
    #[error("input/output error of the slow drive")]
    Broken,
}

/// The reason why data did not get from the journal to the slow file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DestageFault {
    /// The journal could not be read.
    #[error("input/output error of the journal")]
    Journal,
    /// The slow file could not be written.
    #[error(transparent)]
    Slow(#[from] SlowFault),
}

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The journal has failed, and with it all replicas behind it.
    #[error("the journal has failed")]
    Journal,
    /// The file has failed, or is being forgotten.
    #[error("the file behind the journal has failed, or is given up")]
    File,
    /// The write bypassed the journal and the slow drive returned this fault.
    #[error(transparent)]
    Slow(#[from] SlowFault),
}

/// The queue holds as many requests as it may. The request was not taken; the caller may ask again when other
/// requests have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} requests wait for the journal, which is the most", weir_types::bounds::JOURNAL_WAITING_MAX)]
pub struct QueueFull;

/// The location of one part of a read. The parts of a range come in order, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The part lies in the journal's file.
    Journal {
        /// Position in the journal's file, in bytes.
        position_bytes: u64,
        /// Length, in bytes.
        length: u32,
    },
    /// The part lies in the slow file.
    Slow {
        /// Offset in the slow file, in bytes.
        offset: u32,
        /// Length, in bytes.
        length: u32,
    },
    /// The part lies nowhere and reads as zeroes.
    Zero {
        /// Length, in bytes.
        length: u32,
    },
}

/// A reference that protects the records of one read from being overwritten. The reader gives it back with
/// [`crate::Journal::read_ended`].
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "the space that was read from is not used again until this is given back"]
pub struct Pin {
    /// Oldest record that is read.
    pub(crate) sequence: Option<u64>,
}

/// A contiguous range of the journal's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Position in the journal's file, in bytes.
    pub position_bytes: u64,
    /// Length, in bytes.
    pub length: u32,
}

/// The content that a destage operation writes to a slow file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DestageContent {
    /// Bytes of the journal: these ranges in sequence, at most 1 MiB, in one write.
    Data(Vec<Source>),
    /// Zero bytes, as ordinary writes, because the filesystem supports neither zeroing nor releasing.
    Zeroes,
    /// Zeroes; the space stays allocated.
    Zero,
    /// Zeroes; the space is given back.
    Release,
}

/// A task for the executor. Every action except ends and failures is answered once, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Write the record in one piece → [`crate::Journal::record_written`]. [`crate::Journal::encode_record`]
    /// gives the header and [`crate::Journal::record_payloads`] names the payload.
    WriteRecord {
        /// Position in the journal's file, in bytes.
        position_bytes: u64,
        /// Length with the header, in bytes.
        length: u32,
        /// Whether the record must be stable when this action is answered. Other records need not become
        /// stable.
        is_durable: bool,
    },
    /// Make everything stable that was written to the journal's file so far →
    /// [`crate::Journal::journal_synced`].
    SyncJournal,
    /// Write the block that [`crate::Journal::encode_superblock`] gives, durably →
    /// [`crate::Journal::superblock_written`].
    WriteSuperblock {
        /// Position in the journal's file, in bytes.
        position_bytes: u64,
    },
    /// Destage a range to a slow file → [`crate::Journal::destaged`].
    Destage {
        /// Identifier of the operation.
        operation: DestageId,
        /// File that is written.
        file: FileId,
        /// Start of the range in the file, in bytes.
        offset: u32,
        /// Length of the range, in bytes.
        length: u32,
        /// Content of the range.
        content: DestageContent,
    },
    /// Carry out a write on the slow file itself → [`crate::Journal::passed_by`].
    PassBy {
        /// Ticket of the write.
        ticket: Ticket,
        /// File that is written.
        file: FileId,
        /// Start of the range in the file, in bytes.
        offset: u32,
        /// Length of the range, in bytes.
        length: u32,
        /// Whether the write must be stable when this action is answered.
        is_durable: bool,
    },
    /// Make everything stable that was completed on a slow file → [`crate::Journal::slow_synced`].
    SyncSlow {
        /// File that is synced.
        file: FileId,
    },
    /// A change or sync has ended.
    Done {
        /// Ticket of the request.
        ticket: Ticket,
        /// Result of the request.
        result: Result<(), Fault>,
    },
    /// The journal holds nothing of a file and will destage nothing to it. A new file may get its name.
    Forgotten {
        /// Name of the forgotten file.
        file: FileKey,
    },
    /// A file has failed: the replica has lost acknowledged data. The caller records durably that the replica
    /// is stale, then forgets the file. Until then its records keep their space.
    FileFailed {
        /// File that failed.
        file: FileId,
    },
    /// The journal has failed: all replicas behind it have lost acknowledged data. The journal is of no more
    /// use.
    JournalFailed,
}
