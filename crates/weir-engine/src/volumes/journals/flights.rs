//! Flights: the operations that the kernel carries out for a journal.

use std::collections::VecDeque;

use weir_journal::{DestageId, FileId, Part, Pin, Source, Ticket};
use weir_reactor::Descriptor;
use weir_types::ExtentIndex;

use super::Binding;
use super::desk::Desk;
use crate::emulation::Site;
use crate::token::Token;

/// An operation that the kernel carries out for a journal.
pub struct Flight {
    /// When an emulated drive answers, in nanoseconds; 0 for other drives.
    pub due_ns: u64,
    pub work: Work,
}

/// The operation.
pub enum Work {
    /// Writing a part of a record, of this number of bytes.
    Record(u32),
    SyncJournal,
    Superblock,
    /// Reading a part of the data to destage.
    Fetch(Fetching),
    /// Destaging a part to a slow file; with its number of bytes if it is a write.
    Destage(DestageId, FileId, Option<u32>),
    PassBy(Ticket, FileId, u32),
    SyncSlow(FileId),
    /// Reading for a replica.
    Read(Gathering),
}

/// A part of a destage while it is read from the journal.
pub struct Fetching {
    pub operation: DestageId,
    pub file: FileId,
    pub slow: Slow,
    /// Offset in the slow file, in bytes.
    pub offset: u32,
    /// Sources still to be read; the first is being read. `gathered` bytes are in the buffer already.
    pub sources: VecDeque<Source>,
    pub gathered: u32,
}

/// A slow file during an operation; it stays open whatever happens to its replica.
#[derive(Clone)]
pub struct Slow {
    pub home: usize,
    pub extent: ExtentIndex,
    pub descriptor: Descriptor,
}

impl Flight {
    /// The slow file that the operation may still change, or sync.
    pub fn changes(&self) -> Option<FileId> {
        match &self.work {
            Work::Fetch(fetching) => Some(fetching.file),
            Work::Destage(_, file, _) | Work::PassBy(_, file, _) | Work::SyncSlow(file) => Some(*file),
            Work::Record(_) | Work::SyncJournal | Work::Superblock | Work::Read(_) => None,
        }
    }
}

/// The range to read in bytes, and its offset in the buffer.
pub struct Wanted {
    pub token: Token,
    pub offset: u32,
    pub length: u32,
    pub buffer_offset: u32,
}

/// A read that takes several steps.
pub struct Gathering {
    pub wanted: Wanted,
    pub binding: Binding,
    pub slow: Option<Slow>,
    /// Parts still to be read; the first is being read.
    pub parts: VecDeque<Part>,
    /// Bytes read so far.
    pub done: u32,
    pub pin: Pin,
}

/// When the drive of a slow file answers an operation on it, in nanoseconds; 0 if the drive is not emulated.
pub fn slow_due(slow: &Slow, (offset, length): (u32, u32), is_durable: bool, desk: &mut Desk<'_>) -> u64 {
    let site = Site { home: slow.home, extent: slow.extent, offset: offset.into() };
    desk.emulated.act(desk.io.now_ns, site, length, is_durable)
}
