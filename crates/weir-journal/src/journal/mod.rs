//! The state of one journal and its one set of transitions.
//!
//! What is asked for goes: `waiting` → the record that is being written (`flying`) → the index, from where it
//! is brought to the slow file in batches. Each part of this is a module: [`commit`] records and what is
//! stable, [`sync`] who waits for that, [`bypass`] what does not go through the log, [`destage`] the way to
//! the slow files and the tail, [`age`] what is old enough for it, [`allowance`] how much a nearly full log takes in,
//! [`forget`] the end of files, [`suspend`] what drives may have forgotten. Here is what they share: reads, and failures.

mod age;
mod allowance;
mod bypass;
mod commit;
mod destage;
mod forget;
mod suspend;
mod sync;

use std::collections::VecDeque;

use weir_types::bounds::BLOCK_BYTES;

use crate::Block;
use crate::action::{Action, Fault, FileId, FileKey, Part, Pin, Request, Span, Ticket};
use crate::files::{FileState, Files, TooManyFiles};
use crate::geometry::Geometry;
use crate::index::{Data, Index};
use crate::log::Log;
use crate::superblock::Superblock;

use age::Age;
use allowance::Allowance;
use bypass::PassingBy;
use commit::Flying;
use destage::Destage;
use sync::WaitingSync;

/// A write journal.
#[derive(Debug)]
pub struct Journal {
    geometry: Geometry,
    /// The newest superblock, which may be on its way.
    superblock: Superblock,
    log: Log,
    index: Index,
    files: Files,
    /// What waits for a record, in order.
    waiting: VecDeque<Request>,
    /// Files that a record must forget.
    forgets: VecDeque<FileId>,
    /// The first that waits finds no room.
    is_starved: bool,
    /// The record that is being written, and what is in it.
    flying: Option<Flying>,
    flying_forgets: Vec<FileId>,
    flying_requests: Vec<Request>,
    /// The newest record whose entries count.
    applied: u64,
    /// The newest record that survives a power cut.
    stable: u64,
    /// Blocks of the records between these two.
    unstable_blocks: u32,
    /// The newest record that somebody wants to be stable.
    wanted: u64,
    /// The newest record that the sync covers which runs.
    syncing: Option<u64>,
    /// Durable writes whose records are not stable yet; no more than such records have entries.
    durable: VecDeque<(u64, Ticket)>,
    syncs: Vec<WaitingSync>,
    passing_by: Vec<PassingBy>,
    /// Files on their way out.
    forgetting: Vec<FileId>,
    destage: Destage,
    allowance: Allowance,
    age: Age,
    is_draining: bool,
    has_failed: bool,
}

/// How much a journal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Blocks of the log.
    pub log_blocks: u32,
    /// Those that are taken.
    pub used_blocks: u32,
    /// Entries in the log.
    pub entries: usize,
    /// Pieces in the index.
    pub pieces: usize,
    /// Changes that wait for a record.
    pub waiting: usize,
}

/// What recovery found.
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
            forgets: VecDeque::new(),
            is_starved: false,
            flying: None,
            flying_forgets: Vec::new(),
            flying_requests: Vec::new(),
            applied,
            stable: applied,
            unstable_blocks: 0,
            wanted: applied,
            syncing: None,
            durable: VecDeque::new(),
            syncs: Vec::new(),
            passing_by: Vec::new(),
            forgetting: Vec::new(),
            destage: Destage::new(&found.superblock),
            allowance: Allowance::default(),
            age: Age::old_through_all(applied),
            is_draining: false,
            has_failed: false,
        }
    }

    /// The number of a file by which it is asked for from now on, until it is forgotten. One that is being
    /// forgotten still has its old number, and everything that is asked of it fails.
    ///
    /// # Errors
    /// If there are as many as may be.
    pub fn open(&mut self, key: FileKey) -> Result<FileId, TooManyFiles> {
        self.files.open(key)
    }

    /// All files, by name. After recovery: those that records name.
    pub fn files(&self) -> impl Iterator<Item = (FileKey, FileId)> + '_ {
        self.files.iter()
    }

    /// Where a file has data in the journal, as offsets and lengths in bytes: no holes, whatever the slow
    /// file says.
    pub fn live(&self, file: FileId) -> impl Iterator<Item = (u32, u32)> + '_ {
        let data = self.index.pieces_of(file).filter(|(_, piece)| matches!(piece.data, Data::At(_)));
        data.map(|(block, piece)| (block * BLOCK_BYTES as u32, piece.blocks * BLOCK_BYTES as u32))
    }

    /// How full the log is, in thousandths: of blocks or of entries, whichever is more.
    pub fn fullness_per_mille(&self) -> u32 {
        self.log.fullness_per_mille()
    }

    /// How much it holds.
    pub fn usage(&self) -> Usage {
        Usage {
            log_blocks: self.geometry.log_blocks(),
            used_blocks: self.log.used_blocks(),
            entries: self.log.entries_len(),
            pieces: self.index.len(),
            waiting: self.waiting.len(),
        }
    }

    /// True if everything is in the slow files, stable, and nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.log.next() == self.log.first() && self.waiting.is_empty() && self.destage.is_idle()
    }

    /// Whether to bring everything to the slow files as fast as can be, as before they are served without the
    /// journal.
    pub fn set_draining(&mut self, is_draining: bool, actions: &mut Vec<Action>) {
        self.is_draining = is_draining;
        self.pump(actions);
    }

    /// To be called at intervals, about once a second: what was there at the last call but one is old, and is brought to the
    /// slow files while there is room for what is young to stay.
    pub fn interval_passed(&mut self, actions: &mut Vec<Action>) {
        self.age.pass_interval(self.applied);
        self.pump(actions);
    }

    /// Tells where whole blocks of a file lie, in `parts`, which is emptied first. What they tell is right
    /// until the pin is given back, whatever changes meanwhile.
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
            // What is about to be dropped is stable in the slow file, and must not be held up by readers.
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
        // Records are dropped in their order: the oldest one keeps all others.
        if let Some(sequence) = oldest {
            self.log.pin(sequence);
        }
        Ok(Pin { sequence: oldest })
    }

    /// A read has ended. One that failed in the journal's file means [`Journal::journal_unreadable`], before
    /// or after.
    pub fn read_ended(&mut self, pin: Pin, actions: &mut Vec<Action>) {
        if let Some(sequence) = pin.sequence {
            self.log.unpin(sequence);
            self.destage.unpinned(sequence);
            self.pump(actions);
        }
    }

    /// The journal's file could not be read, or is not the one that would be read at the next start.
    pub fn journal_unreadable(&mut self, actions: &mut Vec<Action>) {
        self.fail(actions);
    }

    /// The superblock that [`Action::WriteSuperblock`] asks for.
    pub fn encode_superblock(&self, block: &mut Block) {
        self.superblock.encode(block);
    }

    /// Does everything that can be done now.
    fn pump(&mut self, actions: &mut Vec<Action>) {
        if self.has_failed {
            return;
        }
        let is_hurried = self.is_draining || self.is_starved;
        self.drop_records(is_hurried);
        self.write_record(actions);
        if self.is_starved && self.drop_records(true) {
            self.write_record(actions);
        }
        self.bring(actions);
        self.sync_journal(actions);
    }

    /// Why nothing can be asked of a file, if so.
    fn fault_of(&self, file: FileId) -> Option<Fault> {
        if self.has_failed {
            return Some(Fault::Journal);
        }
        (self.files.get(file).file_state != FileState::Open).then_some(Fault::File)
    }

    /// The slow drive failed a file: what the journal holds of it stays, and nothing is answered well any
    /// more.
    fn fail_file(&mut self, file: FileId, actions: &mut Vec<Action>) {
        if self.files.get(file).file_state == FileState::Open {
            self.files.get_mut(file).file_state = FileState::Failed;
            actions.push(Action::FileFailed { file });
            self.refuse(file, actions);
        }
    }

    /// Answers what waits for a file with an error.
    fn refuse(&mut self, file: FileId, actions: &mut Vec<Action>) {
        let result = Err(Fault::File);
        self.waiting.retain(|request| {
            if request.file == file {
                actions.push(Action::Done { ticket: request.ticket, result });
            }
            request.file != file
        });
        self.syncs.retain(|sync| {
            if sync.file == file {
                actions.push(Action::Done { ticket: sync.ticket, result });
            }
            sync.file != file
        });
    }

    /// The journal itself has failed: what it holds cannot be relied on, so nothing goes on.
    fn fail(&mut self, actions: &mut Vec<Action>) {
        if std::mem::replace(&mut self.has_failed, true) {
            return;
        }
        actions.push(Action::JournalFailed);
        let requests = self.waiting.drain(..).chain(self.flying_requests.drain(..));
        let tickets: Vec<Ticket> = requests
            .map(|request| request.ticket)
            .chain(self.durable.drain(..).map(|(_, ticket)| ticket))
            .chain(self.syncs.drain(..).map(|sync| sync.ticket))
            .chain(self.passing_by.drain(..).map(|write| write.ticket))
            .collect();
        let end = |ticket| Action::Done { ticket, result: Err(Fault::Journal) };
        actions.extend(tickets.into_iter().map(end));
        // It will never be recovered, so it brings nothing to anybody.
        for file in std::mem::take(&mut self.forgetting) {
            actions.push(Action::Forgotten { file: self.files.get(file).key });
        }
    }
}

/// Adds a part to those before it, or to the last of them.
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
