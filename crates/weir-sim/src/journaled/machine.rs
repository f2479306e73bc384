//! The simulated executor: operations in flight on the files, answered in any order.

use weir_journal::{Action, DestageContent, DestageFault, DestageId, SlowFault, Ticket};
use weir_types::bounds::BLOCK_BYTES;

use super::requests::{Read, What};
use super::{Cell, JournalWorld, Sabotage};
use crate::Stamp;
use crate::disk::SyncPoint;
use crate::journal_file::{self, block_at};

const BLOCK: u32 = BLOCK_BYTES as u32;

/// An operation that will be answered. Blocks of the journal's file are counted from its beginning.
#[derive(Debug)]
pub(super) enum Pending {
    Record {
        block: u32,
        cells: Vec<Cell>,
        is_durable: bool,
    },
    Superblock {
        block: u32,
        cell: Cell,
    },
    JournalSync(SyncPoint),
    /// Sources are first block and block count.
    DestageRead {
        operation: DestageId,
        file: usize,
        block: u32,
        sources: Vec<(u32, u32)>,
    },
    DestageWrite {
        operation: DestageId,
        file: usize,
        block: u32,
        stamps: Vec<Stamp>,
        is_placement: bool,
    },
    PassBy {
        ticket: Ticket,
        file: usize,
        block: u32,
        stamps: Vec<Stamp>,
        is_durable: bool,
    },
    SlowSync {
        file: usize,
        point: SyncPoint,
    },
    Read(Read),
}

impl Pending {
    /// The slow file that the operation changes.
    pub fn slow_file(&self) -> Option<usize> {
        match self {
            Pending::DestageWrite { file, .. } | Pending::PassBy { file, .. } => Some(*file),
            _ => None,
        }
    }
}

impl JournalWorld {
    /// Begins the operation of an action.
    pub(super) fn begin(&mut self, action: Action) {
        let pending = match action {
            Action::WriteRecord { position_bytes, length, is_durable } => {
                self.report.records += 1;
                let payload = |ticket, blocks| vec![self.stamp_of(ticket); blocks as usize];
                let cells = journal_file::record_cells(&self.journal, payload);
                assert_eq!(cells.len() as u32 * BLOCK, length, "a record has the length that was told");
                Pending::Record { block: block_at(position_bytes), cells, is_durable }
            }
            Action::SyncJournal => Pending::JournalSync(self.journal_file.sync_point()),
            Action::WriteSuperblock { position_bytes } => {
                let cell = journal_file::superblock(&self.journal);
                Pending::Superblock { block: block_at(position_bytes), cell }
            }
            Action::Destage { operation, file, offset, length, content } => {
                let (file, block, blocks) = (self.index_of(file), offset / BLOCK, length / BLOCK);
                let stamps = vec![0; blocks as usize];
                match content {
                    DestageContent::Data(sources) => {
                        let source = |source: &weir_journal::Source| {
                            (block_at(source.position_bytes), source.length / BLOCK)
                        };
                        let sources: Vec<(u32, u32)> = sources.iter().map(source).collect();
                        let sum: u32 = sources.iter().map(|(_, blocks)| blocks).sum();
                        assert_eq!(sum, blocks, "all of a run comes from somewhere");
                        Pending::DestageRead { operation, file, block, sources }
                    }
                    DestageContent::Zeroes => {
                        Pending::DestageWrite { operation, file, block, stamps, is_placement: false }
                    }
                    DestageContent::Zero | DestageContent::Release => {
                        Pending::DestageWrite { operation, file, block, stamps, is_placement: true }
                    }
                }
            }
            Action::PassBy { ticket, file, offset, length, is_durable } => {
                self.report.passed_by += 1;
                let stamp = self.stamp_of(ticket);
                let stamps = vec![stamp; (length / BLOCK) as usize];
                Pending::PassBy {
                    ticket,
                    file: self.index_of(file),
                    block: offset / BLOCK,
                    stamps,
                    is_durable,
                }
            }
            Action::SyncSlow { file } => {
                let file = self.index_of(file);
                Pending::SlowSync { file, point: self.slow[file].file.sync_point() }
            }
            action => unreachable!("{action:?} is not carried out"),
        };
        self.pending.push(pending);
    }

    fn stamp_of(&self, ticket: Ticket) -> Stamp {
        match self.in_flight[&ticket].what {
            What::Change { stamp, .. } => stamp,
            What::Sync => unreachable!("syncs have no payload"),
        }
    }

    /// Answers one random outstanding operation.
    pub(super) fn answer_one(&mut self) -> Result<(), String> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.pending.len() as u64) as usize;
        let pending = self.pending.swap_remove(index);
        let mut actions = Vec::new();
        match pending {
            Pending::Read(read) => return self.read_part(read),
            Pending::Record { .. } | Pending::Superblock { .. } | Pending::JournalSync(_) => {
                self.answer_journal(pending, &mut actions);
            }
            Pending::DestageRead { operation, file, block, sources } => {
                if self.is_journal_fault() {
                    self.journal.destaged(operation, Err(DestageFault::Journal), &mut actions);
                } else {
                    let cells = sources.into_iter().flat_map(|(block, blocks)| block..block + blocks);
                    let stamps = cells.map(|block| self.journal_stamp(block)).collect();
                    let is_placement = false;
                    self.pending.push(Pending::DestageWrite { operation, file, block, stamps, is_placement });
                }
            }
            Pending::DestageWrite { .. } | Pending::PassBy { .. } | Pending::SlowSync { .. } => {
                self.answer_slow(pending, &mut actions);
            }
        }
        self.take(actions)
    }

    fn answer_journal(&mut self, pending: Pending, actions: &mut Vec<Action>) {
        let result = if self.is_journal_fault() { Err(()) } else { Ok(()) };
        let is_lie = self.settings.sabotage == Sabotage::SyncsNoJournal;
        match pending {
            Pending::Record { block, cells, is_durable } => {
                self.write_record(block, cells, is_durable && result.is_ok() && !is_lie, result.is_err());
                self.journal.record_written(result, actions);
            }
            Pending::Superblock { block, cell } => {
                let is_durable = self.settings.sabotage != Sabotage::SuperblockLate;
                if result.is_ok() {
                    self.journal_file.write(block, cell, is_durable);
                }
                self.report.tail_moves += 1;
                self.journal.superblock_written(result, actions);
            }
            Pending::JournalSync(point) => {
                if result.is_ok() && !is_lie {
                    self.journal_file.sync(point);
                }
                self.journal.journal_synced(result, actions);
            }
            _ => unreachable!("these are on the journal's file"),
        }
    }

    /// Writes a record, or with `is_part` some blocks of it.
    pub(super) fn write_record(&mut self, block: u32, cells: Vec<Cell>, is_durable: bool, is_part: bool) {
        let odds = 1 + self.random.below(4);
        for (block, cell) in (block..).zip(cells) {
            if !is_part || !self.random.chance(1, odds) {
                self.journal_file.write(block, cell, is_durable);
            }
        }
    }

    fn answer_slow(&mut self, pending: Pending, actions: &mut Vec<Action>) {
        let fault = self.slow_fault();
        let result = fault.map_or(Ok(()), Err);
        match pending {
            Pending::DestageWrite { operation, file, block, stamps, is_placement } => {
                let is_unsupported = is_placement && self.settings.is_without_fallocate;
                let result = if is_unsupported { Err(SlowFault::Unsupported) } else { result };
                if !is_unsupported {
                    self.write_slow((file, block), &stamps, false, fault.is_some());
                }
                self.report.destaged += 1;
                self.journal.destaged(operation, result.map_err(DestageFault::Slow), actions);
            }
            Pending::PassBy { ticket, file, block, stamps, is_durable } => {
                self.write_slow((file, block), &stamps, is_durable && fault.is_none(), fault.is_some());
                self.journal.passed_by(ticket, result, actions);
            }
            Pending::SlowSync { file, point } => {
                let is_lie = self.settings.sabotage == Sabotage::SyncsNoSlowFile;
                let slow = &mut self.slow[file];
                if fault.is_some() {
                    // Data that the failed sync covers may be lost.
                    slow.file.crash(&mut self.random);
                } else if !is_lie {
                    slow.file.sync(point);
                }
                self.journal.slow_synced(slow.id, result, actions);
            }
            _ => unreachable!("these are on slow files"),
        }
    }

    /// Writes to a slow file, or with `is_part` some blocks of it.
    pub(super) fn write_slow(
        &mut self,
        (file, block): (usize, u32),
        stamps: &[Stamp],
        is_durable: bool,
        is_part: bool,
    ) {
        for (block, stamp) in (block..).zip(stamps) {
            if !is_part || self.random.chance(1, 2) {
                self.slow[file].file.write(block, *stamp, is_durable);
            }
        }
    }

    fn read_part(&mut self, mut read: Read) -> Result<(), String> {
        if !read.parts.is_empty() {
            let index = self.random.below(read.parts.len() as u64) as usize;
            let (at, file, from, blocks) = read.parts.swap_remove(index);
            for n in 0..blocks {
                read.buffer[(at + n) as usize] = match file {
                    None => self.journal_stamp(from + n),
                    Some(file) => self.slow[file].file.read(from + n),
                };
            }
        }
        if !read.parts.is_empty() {
            self.pending.push(Pending::Read(read));
            return Ok(());
        }
        self.end_read(&mut read)?;
        self.check_read(&read)
    }

    /// Data of a block of the journal's file. `Stamp::MAX` for a block with bytes of the journal.
    pub(super) fn journal_stamp(&self, block: u32) -> Stamp {
        match self.journal_file.read(block) {
            Cell::Data(stamp) => stamp,
            Cell::Bytes(_) => Stamp::MAX,
        }
    }

    fn is_journal_fault(&mut self) -> bool {
        self.random.chance(self.settings.journal_faults_per_ten_thousand, 10_000)
    }

    fn slow_fault(&mut self) -> Option<SlowFault> {
        let is_fault = self.random.chance(self.settings.slow_faults_per_ten_thousand, 10_000);
        let faults = [SlowFault::Broken, SlowFault::Broken, SlowFault::NoSpace, SlowFault::Short];
        is_fault.then(|| faults[self.random.below(4) as usize])
    }
}
