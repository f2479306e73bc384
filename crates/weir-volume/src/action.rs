//! What goes into a volume and what comes out of it.

/// Names one operation of one volume from its start to its `Done`; then the number may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u32);

/// Tells the file of an extent from those that take its place: whatever an earlier one answers, late, says nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads into the operation's buffer.
    Read,
    /// Writes from the operation's buffer; durable writes are stable before they are done.
    Write {
        /// Whether to make the write stable (forced unit access).
        is_durable: bool,
    },
    /// Gives the space back; the range reads as zeroes afterwards. The range is whole blocks.
    Release,
    /// Makes the range read as zeroes and keeps its space reserved. The range is whole blocks.
    Zero,
}

/// One operation within one extent. Reads and writes lie within one piece (see [`crate::geometry`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// What to do.
    pub kind: Kind,
    /// Which extent.
    pub extent: u32,
    /// Where in the extent, in bytes.
    pub offset: u32,
    /// How many bytes; at least 1.
    pub length: u32,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The drive is full. Nothing is broken; the same write may succeed later.
    #[error("no space left on the drive")]
    NoSpace,
    /// The filesystem cannot do this; only for [`Kind::Release`] and [`Kind::Zero`].
    #[error("not supported by the filesystem")]
    Unsupported,
    /// The system was short of memory or of file descriptors for a moment. Nothing is broken.
    #[error("the system is short of memory or file descriptors")]
    NoMemory,
    /// The extent lies beyond the end of the volume.
    #[error("beyond the end of the volume")]
    OutOfRange,
    /// The drive is away at present. Nothing is broken, and nothing that was acknowledged is lost: the same may succeed
    /// once the drive is back.
    #[error("the drive is away")]
    Away,
    /// The drive failed, or the extent's file is missing, shortened or unreadable.
    #[error("input/output error")]
    Broken,
}

/// What the file of a failed extent is worth. A drive whose path was gone, or that could not be read, leaves what is
/// stable as it was; a write or sync that failed leaves something that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remains {
    /// All that was acknowledged is stable: unchanged, it can be used again.
    Intact,
    /// Acknowledged writes that no flush has covered may be lost, as after a crash.
    Unsynced,
    /// A change or a sync failed: it must not be used as though nothing had happened, not even after a restart.
    Unknown,
}

/// What a successful operation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// A read filled the buffer, or the operation was not a read.
    Data,
    /// A read found that nothing was ever written there: zeroes, and the buffer was not touched.
    Hole,
}

/// A partial block at the edge of an unaligned write, to be read so that its other bytes survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EdgeRead {
    /// Offset of the whole block in the extent.
    pub block_offset: u32,
    /// Offset of the block within the operation's aligned buffer.
    pub buffer_offset: u32,
}

/// What the executor must do. Every action that names an operation or extent is answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Open the extent's file and find out where it holds data → [`crate::Volume::opened`].
    Open {
        /// Which extent.
        extent: u32,
        /// Which file of it.
        generation: Generation,
    },
    /// Read whole blocks into the operation's buffer → [`crate::Volume::completed`].
    Read {
        /// Whose buffer.
        operation: OperationId,
        /// Which extent.
        extent: u32,
        /// Where in the extent, in bytes, a multiple of 4096.
        offset: u32,
        /// Where in the buffer; more than zero only when the rest of a short read is asked for.
        buffer_offset: u32,
        /// How many bytes, a multiple of 4096.
        length: u32,
    },
    /// Write whole blocks from the operation's buffer → [`crate::Volume::completed`].
    Write {
        /// Whose buffer.
        operation: OperationId,
        /// Which extent.
        extent: u32,
        /// Where in the extent, in bytes, a multiple of 4096.
        offset: u32,
        /// Where in the buffer.
        buffer_offset: u32,
        /// How many bytes, a multiple of 4096.
        length: u32,
        /// Whether it must be stable before it is done.
        is_durable: bool,
    },
    /// Read a whole block, and duplicate those of its bytes that the write does not cover into the operation's
    /// buffer → [`crate::Volume::completed`].
    ReadEdge {
        /// Whose buffer.
        operation: OperationId,
        /// Which extent.
        extent: u32,
        /// Which block.
        edge: EdgeRead,
    },
    /// Reserve space ahead of writes → [`crate::Volume::allocated`].
    Allocate {
        /// Which extent.
        extent: u32,
        /// Which file of it.
        generation: Generation,
        /// Which of its allocation pieces.
        piece: u32,
    },
    /// Give space back, for [`Kind::Release`] → [`crate::Volume::completed`].
    Release {
        /// On whose behalf.
        operation: OperationId,
        /// Which extent.
        extent: u32,
        /// Where in the extent, in bytes, a multiple of 4096.
        offset: u32,
        /// How many bytes, a multiple of 4096.
        length: u32,
    },
    /// Zero and keep space, for [`Kind::Zero`] → [`crate::Volume::completed`].
    Zero {
        /// On whose behalf.
        operation: OperationId,
        /// Which extent.
        extent: u32,
        /// Where in the extent, in bytes, a multiple of 4096.
        offset: u32,
        /// How many bytes, a multiple of 4096.
        length: u32,
    },
    /// Make all completed writes of the extent stable → [`crate::Volume::synced`].
    Sync {
        /// Which extent.
        extent: u32,
        /// Which file of it.
        generation: Generation,
    },
    /// An operation has ended → [`crate::Volume::forget`].
    Done {
        /// Which one.
        operation: OperationId,
        /// How.
        result: Result<Content, Fault>,
    },
    /// A flush has ended.
    Flushed {
        /// Under which number it was asked for.
        flush: u32,
        /// How.
        result: Result<(), Fault>,
    },
    /// The extent will fail every operation from now on; an operator must know.
    FailReplica {
        /// Which extent.
        extent: u32,
        /// What its file is worth.
        remains: Remains,
    },
}

impl Action {
    /// The operation that it names, if it does.
    pub fn operation(&self) -> Option<OperationId> {
        match *self {
            Action::Read { operation, .. }
            | Action::Write { operation, .. }
            | Action::ReadEdge { operation, .. }
            | Action::Release { operation, .. }
            | Action::Zero { operation, .. }
            | Action::Done { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// The file that it asks something of for no operation.
    pub fn generation(&self) -> Option<Generation> {
        match *self {
            Action::Open { generation, .. }
            | Action::Allocate { generation, .. }
            | Action::Sync { generation, .. } => Some(generation),
            _ => None,
        }
    }

    /// The extent that it concerns; `None` for ends.
    pub fn extent(&self) -> Option<u32> {
        match *self {
            Action::Open { extent, .. }
            | Action::Read { extent, .. }
            | Action::Write { extent, .. }
            | Action::ReadEdge { extent, .. }
            | Action::Allocate { extent, .. }
            | Action::Release { extent, .. }
            | Action::Zero { extent, .. }
            | Action::Sync { extent, .. }
            | Action::FailReplica { extent, .. } => Some(extent),
            Action::Done { .. } | Action::Flushed { .. } => None,
        }
    }
}
