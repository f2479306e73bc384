//! The state of one journal and its one set of transitions.
//!
//! A request moves from `waiting` to the record that is being written (`flying`) and then to the index. From
//! there it is destaged to the slow file in batches. [`events`] takes the requests and answers, and calls the
//! parts. Each part is a module:
//! * [`commit`]: records, and which of them are stable.
//! * [`sync`]: the requests that wait for stability.
//! * [`bypass`]: large writes that do not go through the log.
//! * [`destage`]: writing to the slow files, and the tail.
//! * [`age`]: which records are old enough to be destaged.
//! * [`allowance`]: how much a nearly full log accepts.
//! * [`forget`]: the end of files.
//! * [`in_the_way`]: suspended files that fill the log.
//! * [`failures`]: the end of a file or of the journal after an error.
//!
//! This module has the state that they share, and reads of it.

mod age;
mod allowance;
mod bypass;
mod commit;
mod destage;
mod events;
mod failures;
mod forget;
mod in_the_way;
mod sync;

use std::collections::VecDeque;

use weir_types::bounds::BLOCK_BYTES;

use crate::Block;
use crate::action::{Fault, FileId, FileKey, Part, Pin, Request, Span, Ticket};
use crate::files::{Files, TooManyFiles};
use crate::geometry::Geometry;
use crate::index::{Data, Index};
use crate::log::Log;
use crate::superblock::Superblock;

use age::Age;
use allowance::Allowance;
use bypass::PassingBy;
use commit::Flying;
use destage::Destage;
use forget::Forgets;
use sync::Syncs;

/// A write journal.
#[derive(Debug)]
pub struct Journal {
    geometry: Geometry,
    /// Newest superblock, which may still be in flight.
    superblock: Superblock,
    log: Log,
    index: Index,
    files: Files,
    /// Requests that wait for a record, in order.
    waiting: VecDeque<Request>,
    forgets: Forgets,
    /// Whether there is no room for the first waiting request.
    is_starved: bool,
    /// Record that is being written, and its content.
    flying: Option<Flying>,
    flying_requests: Vec<Request>,
    /// Newest record whose entries have taken effect.
    applied: u64,
    /// Newest record that survives a power cut.
    stable: u64,
    /// Blocks of the records after `stable`, up to `applied`.
    unstable_blocks: u32,
    /// Newest record that a request wants to be stable.
    wanted: u64,
    /// Newest record that the running sync covers.
    syncing: Option<u64>,
    /// Durable writes whose records are not stable yet. Their number is bounded by the entries of unstable
    /// records.
    durable: VecDeque<(u64, Ticket)>,
    syncs: Syncs,
    passing_by: Vec<PassingBy>,
    destage: Destage,
    allowance: Allowance,
    age: Age,
    is_draining: bool,
    has_failed: bool,
    work: Work,
}

/// How much a journal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Blocks of the log.
    pub log_blocks: u32,
    /// Blocks in use.
    pub used_blocks: u32,
    /// Entries in the log.
    pub entries: usize,
    /// Pieces in the index.
    pub pieces: usize,
    /// Changes that wait for a record.
    pub waiting: usize,
    /// What the journal has done since it was opened.
    pub work: Work,
}

/// What a journal has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Records that were begun. One write, and mostly one sync, makes a record stable.
    pub records: u64,
    /// Changes in these records.
    pub changes: u64,
    /// Bytes that were destaged to slow files.
    pub destaged_bytes: u64,
}

/// The result of recovery.
pub(crate) struct Found {
    pub geometry: Geometry,
    pub superblock: Superblock,
    pub log: Log,
    pub index: Index,
    pub files: Files,
}

impl Journal {
    pub(crate) fn new(found: Found) -> Journal {
        let applied = found.log.next() - 1;
        Journal {
            geometry: found.geometry,
            superblock: found.superblock,
            log: found.log,
            index: found.index,
            files: found.files,
            waiting: VecDeque::new(),
            forgets: Forgets::default(),
            is_starved: false,
            flying: None,
            flying_requests: Vec::new(),
            applied,
            stable: applied,
            unstable_blocks: 0,
            wanted: applied,
            syncing: None,
            durable: VecDeque::new(),
            syncs: Syncs::default(),
            passing_by: Vec::new(),
            destage: Destage::new(&found.superblock),
            allowance: Allowance::default(),
            age: Age::old_through_all(applied),
            is_draining: false,
            has_failed: false,
            work: Work::default(),
        }
    }

    /// Returns the number under which a file is used from now on, until it is forgotten. A file that is being
    /// forgotten keeps its old number, and every request to it fails.
    ///
    /// # Errors
    /// If the journal already has as many files as it may.
    pub fn open(&mut self, key: FileKey) -> Result<FileId, TooManyFiles> {
        self.files.open(key)
    }

    /// Returns all files, in order of their names. After recovery these are the files that records name.
    pub fn files(&self) -> impl Iterator<Item = (FileKey, FileId)> + '_ {
        self.files.iter()
    }

    /// Returns the ranges of a file that have data in the journal, as offsets and lengths in bytes. These
    /// ranges are no holes, even where the slow file has a hole.
    pub fn live(&self, file: FileId) -> impl Iterator<Item = (u32, u32)> + '_ {
        let data = self.index.pieces_of(file).filter(|(_, piece)| matches!(piece.data, Data::At(_)));
        data.map(|(block, piece)| (block * BLOCK_BYTES as u32, piece.blocks * BLOCK_BYTES as u32))
    }

    /// Returns the offset of the first block in a range of a file that has a record in the journal, in bytes.
    pub fn next_held(&self, file: FileId, offset: u32, length: u32) -> Option<u32> {
        self.index.first_in(Span::of(file, offset, length)).map(|block| block * BLOCK_BYTES as u32)
    }

    /// Fullness of the log, in thousandths: of blocks or of entries, whichever is more.
    pub fn fullness_per_mille(&self) -> u32 {
        self.log.fullness_per_mille()
    }

    /// Returns how much the journal holds.
    pub fn usage(&self) -> Usage {
        Usage {
            log_blocks: self.geometry.log_blocks(),
            used_blocks: self.log.used_blocks(),
            entries: self.log.entries_len(),
            pieces: self.index.len(),
            waiting: self.waiting.len(),
            work: self.work,
        }
    }

    /// Returns true if everything is stable in the slow files and nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.log.next() == self.log.first() && self.waiting.is_empty() && self.destage.is_idle()
    }

    /// Returns in `parts`, which is emptied first, where whole blocks of a file lie. The locations stay valid
    /// until the pin is given back, even if the data changes.
    ///
    /// # Errors
    /// If the file or the journal has failed.
    pub fn read(
        &mut self,
        file: FileId,
        offset: u32,
        length: u32,
        parts: &mut Vec<Part>,
    ) -> Result<Pin, Fault> {
        parts.clear();
        if let Some(fault) = self.fault_of(file) {
            return Err(fault);
        }
        let (geometry, dropping) = (self.geometry, self.destage.dropping_through());
        let mut oldest: Option<u64> = None;
        let mut at = offset;
        self.index.read(Span::of(file, offset, length), |blocks, piece| {
            let length = blocks * BLOCK_BYTES as u32;
            // A record that is about to be dropped is stable in the slow file, and readers must not delay the
            // drop.
            let part = match piece.filter(|piece| piece.sequence > dropping) {
                None => Part::Slow { offset: at, length },
                Some(piece) => match piece.data {
                    Data::Zero | Data::Release => Part::Zero { length },
                    Data::At(block) => {
                        oldest = Some(oldest.map_or(piece.sequence, |oldest| oldest.min(piece.sequence)));
                        Part::Journal { position_bytes: geometry.position_bytes(block), length }
                    }
                },
            };
            join(parts, part);
            at += length;
        });
        // Records are dropped in order: a pin of the oldest record keeps all later ones.
        if let Some(sequence) = oldest {
            self.log.pin(sequence);
        }
        Ok(Pin { sequence: oldest })
    }

    /// Encodes the superblock that [`Action::WriteSuperblock`] asks for.
    pub fn encode_superblock(&self, block: &mut Block) {
        self.superblock.encode(block);
    }
}

/// Appends a part, or extends the last part if they are adjacent.
fn join(parts: &mut Vec<Part>, part: Part) {
    match (parts.last_mut(), part) {
        (
            Some(Part::Journal { position_bytes, length }),
            Part::Journal { position_bytes: next, length: more },
        ) if *position_bytes + u64::from(*length) == next => *length += more,
        (Some(Part::Slow { length, .. }), Part::Slow { length: more, .. })
        | (Some(Part::Zero { length }), Part::Zero { length: more }) => *length += more,
        _ => parts.push(part),
    }
}
