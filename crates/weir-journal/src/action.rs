//! What goes into a journal and what comes out of it.

use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES, PIECE_BYTES};

/// Names what somebody asked for until its [`Action::Done`]. Whoever asks chooses it; no two are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The lasting name of the file of a replica of an extent, among those of the journal's volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// Which extent of the volume.
    pub extent: u32,
    /// The number of the replica.
    pub replica: u8,
}

/// A file's number in one running journal, until it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Names an operation that brings data to a slow file until its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestageId(pub u32);

/// How a range is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes are written, at most 128 KiB.
    Write {
        /// Whether it must be stable before it is acknowledged (forced unit access).
        is_durable: bool,
        /// [`crate::checksum`] of the bytes. Not looked at if the write passes by, see
        /// [`crate::Journal::passes_by`].
        checksum: u32,
    },
    /// The range reads as zeroes, its space stays.
    Zero,
    /// The range reads as zeroes, its space is given back.
    Release,
}

/// A change that is asked for. The range is whole blocks within an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Under which name its end is told.
    pub ticket: Ticket,
    /// Whose bytes.
    pub file: FileId,
    /// Where in the file, in bytes.
    pub offset: u32,
    /// How many bytes; at least a block.
    pub length: u32,
    /// How.
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

    /// Blocks of payload in a record.
    pub(crate) fn payload_blocks(&self) -> u32 {
        if matches!(self.kind, Kind::Write { .. }) { self.length / BLOCK_BYTES as u32 } else { 0 }
    }

    pub(crate) fn span(&self) -> Span {
        Span::of(self.file, self.offset, self.length)
    }
}

/// Blocks of a file.
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

/// Why the slow drive did not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SlowFault {
    /// Its filesystem cannot zero or give back space. Nothing is broken.
    #[error("not supported by the filesystem of the slow drive")]
    Unsupported,
    /// It is full. A write that passed by may succeed later; what the journal holds has nowhere to go.
    #[error("no space left on the slow drive")]
    NoSpace,
    /// The system was short of memory or descriptors. Whoever carries destages out waits this out, or the
    /// file fails.
    #[error("the system is short of memory or file descriptors")]
    Short,
    /// It failed.
    #[error("input/output error of the slow drive")]
    Broken,
}

/// Why data did not get from the journal to the slow file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DestageFault {
    /// It could not be read from the journal.
    #[error("input/output error of the journal")]
    Journal,
    /// It could not be written.
    #[error(transparent)]
    Slow(#[from] SlowFault),
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The journal has failed, and with it all replicas behind it.
    #[error("the journal has failed")]
    Journal,
    /// The file has failed, or is being forgotten.
    #[error("the file behind the journal has failed, or is given up")]
    File,
    /// The write passed by, and this happened to it.
    #[error(transparent)]
    Slow(#[from] SlowFault),
}

/// As many requests wait as may: this one was not taken, and may be asked for again when others have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} requests wait for the journal, which is the most", weir_types::bounds::JOURNAL_WAITING_MAX)]
pub struct QueueFull;

/// Where a part of what is read lies. The parts of a range come in order, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// In the journal's file.
    Journal {
        /// Where in it, in bytes.
        position_bytes: u64,
        /// How many bytes.
        length: u32,
    },
    /// In the slow file.
    Slow {
        /// Where in it, in bytes.
        offset: u32,
        /// How many bytes.
        length: u32,
    },
    /// Nowhere: it reads as zeroes.
    Zero {
        /// How many bytes.
        length: u32,
    },
}

/// Keeps what a read was told from being written over, until it is given back by
/// [`crate::Journal::read_ended`].
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "the space that was read from is not used again until this is given back"]
pub struct Pin {
    /// The oldest record that is read.
    pub(crate) sequence: Option<u64>,
}

/// A piece of the journal's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Where in it, in bytes.
    pub position_bytes: u64,
    /// How many bytes.
    pub length: u32,
}

/// What a slow file gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DestageContent {
    /// Bytes of the journal, these pieces one behind the other, at most 1 MiB, in one write.
    Data(Vec<Source>),
    /// Bytes that are zero, in writes, because the filesystem can nothing better.
    Zeroes,
    /// Zeroes; the space stays.
    Zero,
    /// Nothing; the space is given back.
    Release,
}

/// What the executor must do. All but ends and failures are answered once, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Write the record whose header [`crate::Journal::encode_record`] gives and whose payload
    /// [`crate::Journal::record_payloads`] names, in one piece → [`crate::Journal::record_written`].
    WriteRecord {
        /// Where in the journal's file, in bytes.
        position_bytes: u64,
        /// Length with its header, in bytes.
        length: u32,
        /// Whether the record must be stable when this is answered. Others need not become so.
        is_durable: bool,
    },
    /// Make everything stable that was written to the journal's file so far →
    /// [`crate::Journal::journal_synced`].
    SyncJournal,
    /// Write the block that [`crate::Journal::encode_superblock`] gives, durably →
    /// [`crate::Journal::superblock_written`].
    WriteSuperblock {
        /// Where in the journal's file, in bytes.
        position_bytes: u64,
    },
    /// Bring something to a slow file → [`crate::Journal::destaged`].
    Destage {
        /// Which operation.
        operation: DestageId,
        /// To which file.
        file: FileId,
        /// Where in it, in bytes.
        offset: u32,
        /// How many bytes.
        length: u32,
        /// What.
        content: DestageContent,
    },
    /// Carry a write out on the slow file itself → [`crate::Journal::passed_by`].
    PassBy {
        /// Which write.
        ticket: Ticket,
        /// To which file.
        file: FileId,
        /// Where in it, in bytes.
        offset: u32,
        /// How many bytes.
        length: u32,
        /// Whether it must be stable when this is answered.
        is_durable: bool,
    },
    /// Make everything stable that was completed on a slow file → [`crate::Journal::slow_synced`].
    SyncSlow {
        /// Which file.
        file: FileId,
    },
    /// A change or sync has ended.
    Done {
        /// Which.
        ticket: Ticket,
        /// How.
        result: Result<(), Fault>,
    },
    /// Nothing of a file is left, and nothing will be brought to it: its name may be given to a new file.
    Forgotten {
        /// Which file it was.
        file: FileKey,
    },
    /// A file has failed: the replica has lost what was acknowledged. When it is on record that it is stale, it
    /// is to be forgotten; until then its records keep their space.
    FileFailed {
        /// Which file.
        file: FileId,
    },
    /// The journal has failed: all replicas behind it have lost what was acknowledged. It is of no more use.
    JournalFailed,
}
