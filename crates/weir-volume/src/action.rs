//! Requests and answers that go into a volume, and actions that come out of it.

use weir_types::ExtentIndex;

/// Number of one operation of one volume, from its start to its `Done`. After that the number may be used
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u32);

/// Generation of an extent's file. It tells the current file from earlier ones, whose late answers must be
/// ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads into the operation's buffer.
    Read,
    /// Writes from the operation's buffer. A durable write is stable before it is done.
    Write {
        /// Whether to make the write stable (forced unit access).
        is_durable: bool,
    },
    /// Gives back the space of the range, which then reads as zeroes. The range is whole blocks.
    Release,
    /// Makes the range read as zeroes and keeps its space reserved. The range is whole blocks.
    Zero,
}

/// One operation within one extent. Reads and writes lie within one piece (see [`crate::geometry`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Kind of the operation.
    pub kind: Kind,
    /// Number of the extent.
    pub extent: ExtentIndex,
    /// Offset in the extent, in bytes.
    pub offset: u32,
    /// Length in bytes; at least 1.
    pub length: u32,
}

/// Reason why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The drive is full. Nothing is broken, and the same write may succeed later.
    #[error("no space left on the drive")]
    NoSpace,
    /// The filesystem does not support the operation; only for [`Kind::Release`] and [`Kind::Zero`].
    #[error("not supported by the filesystem")]
    Unsupported,
    /// The system was short of memory or of file descriptors for a moment. Nothing is broken.
    #[error("the system is short of memory or file descriptors")]
    NoMemory,
    /// The extent lies beyond the end of the volume.
    #[error("beyond the end of the volume")]
    OutOfRange,
    /// The drive is away. Nothing is broken, and no acknowledged data is lost. The same operation may succeed
    /// once the drive is back.
    #[error("the drive is away")]
    Away,
    /// The drive failed, or the extent's file is missing, shortened or unreadable.
    #[error("input/output error")]
    Broken,
}

/// State of the file of a failed extent.
///
/// A drive that was unreachable or unreadable leaves stable data as it was. A write or sync that failed
/// leaves unknown content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remains {
    /// All acknowledged data is stable. The file can be used again if it is unchanged.
    Intact,
    /// Acknowledged writes that no flush has covered may be lost, as after a crash.
    Unsynced,
    /// A change or a sync failed, so the content is unknown. The file must not be used silently, not even
    /// after a restart.
    Unknown,
}

/// Kind of content that a successful operation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// A read filled the buffer, or the operation was not a read.
    Data,
    /// A read found a hole: the range reads as zeroes, and the buffer was not touched.
    Hole,
}

/// A partial block at the edge of an unaligned write. It is read so that its other bytes survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EdgeRead {
    /// Offset of the whole block in the extent, in bytes.
    pub block_offset: u32,
    /// Offset of the block within the operation's aligned buffer, in bytes.
    pub buffer_offset: u32,
}

/// An action of the executor. Every action that names an operation or an extent is answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Open the extent's file and find its data ranges → [`crate::Replica::opened`].
    Open {
        /// Number of the extent.
        extent: ExtentIndex,
        /// Generation of the file.
        generation: Generation,
    },
    /// Read whole blocks into the operation's buffer → [`crate::Replica::completed`].
    Read {
        /// Operation whose buffer is used.
        operation: OperationId,
        /// Number of the extent.
        extent: ExtentIndex,
        /// Offset in the extent, in bytes, a multiple of 4096.
        offset: u32,
        /// Offset in the buffer, in bytes. It exceeds zero only for the rest of a short read.
        buffer_offset: u32,
        /// Length in bytes, a multiple of 4096.
        length: u32,
    },
    /// Write whole blocks from the operation's buffer → [`crate::Replica::completed`].
    Write {
        /// Operation whose buffer is used.
        operation: OperationId,
        /// Number of the extent.
        extent: ExtentIndex,
        /// Offset in the extent, in bytes, a multiple of 4096.
        offset: u32,
        /// Offset in the buffer, in bytes.
        buffer_offset: u32,
        /// Length in bytes, a multiple of 4096.
        length: u32,
        /// Whether the write must be stable before it is done.
        is_durable: bool,
    },
    /// Read a whole block, and put the bytes that the write does not cover into the operation's buffer →
    /// [`crate::Replica::completed`].
    ReadEdge {
        /// Operation whose buffer is used.
        operation: OperationId,
        /// Number of the extent.
        extent: ExtentIndex,
        /// The block to read.
        edge: EdgeRead,
    },
    /// Reserve space ahead of writes → [`crate::Replica::allocated`].
    Allocate {
        /// Number of the extent.
        extent: ExtentIndex,
        /// Generation of the file.
        generation: Generation,
        /// Number of the allocation piece.
        piece: u32,
    },
    /// Give back space, for [`Kind::Release`] → [`crate::Replica::completed`].
    Release {
        /// Operation that asks for it.
        operation: OperationId,
        /// Number of the extent.
        extent: ExtentIndex,
        /// Offset in the extent, in bytes, a multiple of 4096.
        offset: u32,
        /// Length in bytes, a multiple of 4096.
        length: u32,
    },
    /// Zero a range and keep its space, for [`Kind::Zero`] → [`crate::Replica::completed`].
    Zero {
        /// Operation that asks for it.
        operation: OperationId,
        /// Number of the extent.
        extent: ExtentIndex,
        /// Offset in the extent, in bytes, a multiple of 4096.
        offset: u32,
        /// Length in bytes, a multiple of 4096.
        length: u32,
    },
    /// Make all completed writes of the extent stable → [`crate::Replica::synced`].
    Sync {
        /// Number of the extent.
        extent: ExtentIndex,
        /// Generation of the file.
        generation: Generation,
    },
    /// An operation has ended → [`crate::Replica::forget`].
    Done {
        /// The operation that ended.
        operation: OperationId,
        /// Result of the operation.
        result: Result<Content, Fault>,
    },
    /// A flush has ended.
    Flushed {
        /// Number under which the flush was requested.
        flush: u32,
        /// Result of the flush.
        result: Result<(), Fault>,
    },
    /// The extent fails every operation from now on, and an operator must know.
    FailReplica {
        /// Number of the extent.
        extent: ExtentIndex,
        /// State of the extent's file.
        remains: Remains,
    },
}

impl Action {
    /// The operation that the action names, if any.
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

    /// Generation of the file, for actions that belong to no operation.
    pub fn generation(&self) -> Option<Generation> {
        match *self {
            Action::Open { generation, .. }
            | Action::Allocate { generation, .. }
            | Action::Sync { generation, .. } => Some(generation),
            _ => None,
        }
    }

    /// The extent that the action concerns; `None` for ends of operations and flushes.
    pub fn extent(&self) -> Option<ExtentIndex> {
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
