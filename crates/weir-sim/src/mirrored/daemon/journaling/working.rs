//! Work of a journal on its own file and on the slow files, and the answers of the drives, in any order.

use weir_journal::{Action as JournalAction, DestageFault, SlowFault};
use weir_volume::Fault;

use super::JOURNAL_DRIVE;
use crate::disk::Block;
use crate::journal_file::Cell;
use crate::mirrored::MirrorWorld;
use crate::mirrored::journal::Work;
use crate::mirrored::work::Pending;
use crate::requests::EXTENTS;

impl MirrorWorld {
    /// Carries out the journal's actions.
    pub(super) fn take_from_journal(&mut self, actions: Vec<JournalAction>) -> Result<(), String> {
        for action in actions {
            match action {
                JournalAction::Forgotten { file } => _ = self.journal().forgetting.remove(&file.extent),
                JournalAction::FileFailed { file } => {
                    let extent = self.journal().extent_of(file);
                    self.invalidate(extent)?;
                }
                JournalAction::JournalFailed => {
                    if !self.drives[JOURNAL_DRIVE].has_failed {
                        return Err("the journal failed though its drive is well".to_owned());
                    }
                    self.report.journals_failed += 1;
                    self.journal().is_away = true;
                    (0..EXTENTS).try_for_each(|extent| self.invalidate(extent))?;
                }
                action => {
                    let journal = self.journaling.as_ref().expect("it wants something");
                    let slow = &self.drives[journal.slot];
                    let work = journal.work_of(&action, |extent| slow.files[extent as usize].sync_point());
                    self.pending.push(Pending::Journal(work));
                }
            }
        }
        Ok(())
    }

    /// Invalidates a replica that lost acknowledged data with its journal. The replica fails and never
    /// rejoins.
    pub(super) fn invalidate(&mut self, extent: u32) -> Result<(), String> {
        self.report.invalidated += 1;
        let journal = self.journal();
        journal.invalidated.insert(extent);
        let slot = journal.slot;
        let mut effects = Vec::new();
        if self.mirror.is_there(extent, slot) {
            self.mirror.fail_replica(extent, slot, &mut effects);
        }
        self.take(effects)
    }

    /// True if work cannot proceed because the slow drive was not found.
    pub(in crate::mirrored) fn is_parked(&self, pending: &Pending) -> bool {
        let Pending::Journal(work) = pending else { return false };
        let is_missing = self.journaling.as_ref().is_some_and(|journal| !journal.is_slow_found);
        is_missing && work.slow_extent().is_some()
    }

    /// True if no outstanding operation can proceed.
    pub(in crate::mirrored) fn is_all_parked(&self) -> bool {
        self.pending.iter().all(|pending| self.is_parked(pending))
    }

    /// Answers work of the journal.
    pub(in crate::mirrored) fn answer_journal(&mut self, work: Work) -> Result<(), String> {
        let result = if self.drives[JOURNAL_DRIVE].is_broken { Err(()) } else { Ok(()) };
        let mut actions = Vec::new();
        match work {
            Work::Record { block, cells, is_durable } => {
                self.write_record(block, cells, is_durable && result.is_ok(), result.is_err());
                self.journal().core.record_written(result, &mut actions);
            }
            Work::Superblock { block, cell } => {
                if result.is_ok() {
                    self.journal().file.write(block, cell, true);
                }
                self.journal().core.superblock_written(result, &mut actions);
            }
            Work::SyncJournal(point) => {
                if result.is_ok() {
                    self.journal().file.sync(point);
                }
                self.journal().core.journal_synced(result, &mut actions);
            }
            Work::Fetch { operation, .. } if result.is_err() => {
                self.journal().core.destaged(operation, Err(DestageFault::Journal), &mut actions);
            }
            Work::Fetch { operation, extent, block, sources } => {
                let blocks = sources.into_iter().flat_map(|(block, blocks)| block..block + blocks);
                let contents = blocks.map(|block| self.journal().content(block)).collect();
                self.pending.push(Pending::Journal(Work::Destage { operation, extent, block, contents }));
            }
            Work::Read(reading) => return self.read_on(reading),
            Work::Answer { ticket, result } => return self.end_asked(ticket, result),
            work => self.answer_slow(work, &mut actions),
        }
        self.take_from_journal(actions)
    }

    fn answer_slow(&mut self, work: Work, actions: &mut Vec<JournalAction>) {
        let slot = self.journal().slot;
        let fault = self.random_fault(slot).map(|fault| match fault {
            Fault::NoSpace => SlowFault::NoSpace,
            _ => SlowFault::Broken,
        });
        match work {
            Work::Destage { operation, extent, block, contents } => {
                let fault = self.note_spending(fault);
                self.report.brought += 1;
                self.write_slow((extent, block), &contents, false, fault.is_some());
                let result = fault.map_or(Ok(()), |fault| Err(DestageFault::Slow(fault)));
                self.journal().core.destaged(operation, result, actions);
            }
            Work::Place { operation, extent, range, is_zero } => {
                let fault = self.note_spending(fault);
                let mut place = || self.place(slot, extent, range, is_zero).map(drop);
                let result = fault.map_or_else(|| place().map_err(|_| SlowFault::Unsupported), Err);
                self.journal().core.destaged(operation, result.map_err(DestageFault::Slow), actions);
            }
            Work::PassBy { ticket, extent, block, contents, is_durable } => {
                self.write_slow((extent, block), &contents, is_durable && fault.is_none(), fault.is_some());
                let result = fault.map_or(Ok(()), Err);
                self.journal().core.passed_by(ticket, result, actions);
            }
            Work::SyncSlow { file, extent, point } => {
                let is_broken = fault == Some(SlowFault::Broken);
                if !is_broken {
                    self.drives[slot].files[extent as usize].sync(point);
                }
                let result = if is_broken { Err(()) } else { Ok(()) };
                self.journal().core.slow_synced(file, result, actions);
            }
            work => unreachable!("{work:?} is not done with a slow file"),
        }
    }

    /// Filters the faults of a destage. Destaged data has nowhere to go if the slow drive is full, so a full
    /// drive counts as failed; most `NoSpace` faults are dropped.
    fn note_spending(&mut self, fault: Option<SlowFault>) -> Option<SlowFault> {
        let slot = self.journal().slot;
        let fault = fault.filter(|fault| *fault != SlowFault::NoSpace || self.random.chance(1, 20));
        self.drives[slot].has_failed |= fault.is_some();
        fault
    }

    /// Writes a record, or with `is_part` some blocks of it.
    pub(super) fn write_record(
        &mut self,
        block: u32,
        cells: Vec<Cell<Block>>,
        is_durable: bool,
        is_part: bool,
    ) {
        let odds = 1 + self.random.below(4);
        for (block, cell) in (block..).zip(cells) {
            if !is_part || !self.random.chance(1, odds) {
                self.journal().file.write(block, cell, is_durable);
            }
        }
    }

    /// Writes to a slow file, or with `is_part` some blocks of it.
    pub(super) fn write_slow(
        &mut self,
        (extent, block): (u32, u32),
        contents: &[Block],
        is_durable: bool,
        is_part: bool,
    ) {
        let slot = self.journal().slot;
        for (block, content) in (block..).zip(contents) {
            if !is_part || self.random.chance(1, 2) {
                self.drives[slot].files[extent as usize].write(block, *content, is_durable);
            }
        }
    }

    /// Ends work in flight at a crash. The work is done wholly, in part or not at all.
    pub(in crate::mirrored) fn end_journal_work(&mut self, work: Work) {
        if self.random.chance(1, 3) {
            return;
        }
        let is_part = self.random.chance(2, 3);
        match work {
            Work::Record { block, cells, .. } => self.write_record(block, cells, false, is_part),
            Work::Superblock { block, cell } => {
                let cell = if is_part { Cell::torn() } else { cell };
                self.journal().file.write(block, cell, false);
            }
            Work::Destage { extent, block, contents, .. } | Work::PassBy { extent, block, contents, .. } => {
                self.write_slow((extent, block), &contents, false, is_part);
            }
            Work::Place { extent, range, is_zero, .. } => {
                let slot = self.journal().slot;
                let _ = self.place(slot, extent, range, is_zero);
            }
            Work::SyncJournal(point) if !is_part => self.journal().file.sync(point),
            Work::SyncSlow { extent, point, .. } if !is_part => {
                let slot = self.journal().slot;
                self.drives[slot].files[extent as usize].sync(point);
            }
            Work::SyncJournal(_) | Work::SyncSlow { .. } => {}
            Work::Fetch { .. } | Work::Read(_) | Work::Answer { .. } => {}
        }
    }
}
