//! Carries out the work of the simulated journal on its own file and on the slow files, with faults by chance.

use weir_journal::{Action as JournalAction, DestageFault, SlowFault};
use weir_types::ExtentIndex;
use weir_types::random::Random;
use weir_volume::Fault;

use super::drive::Drive;
use super::journal::{Consequence, Journaling, Work};
use super::work::Pending;
use super::{JOURNAL_DRIVE, Machine};
use crate::disk::Block;
use crate::journal_file::Cell;

impl Work {
    /// True for a change of a slow file, or a sync of one.
    fn is_slow(&self) -> bool {
        self.slow_extent().is_some() && !matches!(self, Work::Fetch { .. })
    }
}

impl Machine {
    /// Begins what an action of the journal wants.
    pub fn act_for_journal(&mut self, action: &JournalAction) -> Consequence {
        let journal = self.journaling.as_mut().expect("it wants something");
        journal.act(action, &self.drives[journal.slot()].files)
    }

    /// Carries out work of the journal, and returns what the journal wants then.
    pub fn work_for_journal(&mut self, work: Work) -> Vec<JournalAction> {
        if work.is_slow() {
            return self.work_on_slow(work);
        }
        let result = if self.drives[JOURNAL_DRIVE].is_broken { Err(()) } else { Ok(()) };
        let journal = self.journaling.as_mut().expect("it asked for this");
        let (next, actions) = journal.work_on_own(work, result, &mut self.random);
        next.into_iter().for_each(|work| self.operations.add(Pending::Journal(work)));
        actions
    }

    fn work_on_slow(&mut self, work: Work) -> Vec<JournalAction> {
        let slot = self.journal().slot();
        let mut fault = self.random_fault(slot).map(|fault| match fault {
            Fault::NoSpace => SlowFault::NoSpace,
            _ => SlowFault::Broken,
        });
        if matches!(work, Work::Destage { .. } | Work::Place { .. }) {
            // Destaged data has nowhere to go if the slow drive is full, so a full drive counts as failed. Most
            // of these faults are dropped.
            fault = fault.filter(|fault| *fault != SlowFault::NoSpace || self.random.chance(1, 20));
            self.drives[slot].has_failed |= fault.is_some();
        }
        self.report.destaged += u64::from(matches!(work, Work::Destage { .. }));
        let journal = self.journaling.as_mut().expect("it asked for this");
        journal.work_on_slow(work, &mut self.drives[slot], fault, &mut self.random)
    }

    /// Ends work in flight at a crash. The work is done wholly, in part or not at all.
    pub fn end_journal_work(&mut self, work: Work) {
        if self.random.chance(1, 3) {
            return;
        }
        let is_part = self.random.chance(2, 3);
        let journal = self.journaling.as_mut().expect("it asked for this");
        journal.end_work(work, is_part, &mut self.drives[journal.slot()], &mut self.random);
    }
}

impl Journaling {
    /// Carries out work on the journal's own file. A fetch is followed by other work.
    fn work_on_own(
        &mut self,
        work: Work,
        result: Result<(), ()>,
        random: &mut Random,
    ) -> (Option<Work>, Vec<JournalAction>) {
        let mut actions = Vec::new();
        match work {
            Work::Record { block, cells, is_durable } => {
                self.write_record((block, cells), is_durable && result.is_ok(), result.is_err(), random);
                self.core.record_written(result, &mut actions);
            }
            Work::Superblock { block, cell } => {
                if result.is_ok() {
                    self.file.write(block, cell, true);
                }
                self.core.superblock_written(result, &mut actions);
            }
            Work::SyncJournal(point) => {
                if result.is_ok() {
                    self.file.sync(point);
                }
                self.core.journal_synced(result, &mut actions);
            }
            Work::Fetch { operation, .. } if result.is_err() => {
                self.core.destaged(operation, Err(DestageFault::Journal), &mut actions);
            }
            Work::Fetch { operation, extent, block, sources } => {
                let blocks = sources.into_iter().flat_map(|(block, blocks)| block..block + blocks);
                let contents = blocks.map(|block| self.content(block)).collect();
                return (Some(Work::Destage { operation, extent, block, contents }), actions);
            }
            work => unreachable!("{work:?} is not done with the journal's file"),
        }
        (None, actions)
    }

    /// Carries out work on a slow file.
    fn work_on_slow(
        &mut self,
        work: Work,
        slow: &mut Drive,
        fault: Option<SlowFault>,
        random: &mut Random,
    ) -> Vec<JournalAction> {
        let mut actions = Vec::new();
        let result = fault.map_or(Ok(()), Err);
        match work {
            Work::Destage { operation, extent, block, contents } => {
                write_slow(slow, (extent, block), &contents, false, fault.map(|_| &mut *random));
                self.core.destaged(operation, result.map_err(DestageFault::Slow), &mut actions);
            }
            Work::Place { operation, extent, range, is_zero } => {
                let mut place = || slow.place(extent, range, is_zero).map(drop);
                let result = result.and_then(|()| place().map_err(|_| SlowFault::Unsupported));
                self.core.destaged(operation, result.map_err(DestageFault::Slow), &mut actions);
            }
            Work::PassBy { ticket, extent, block, contents, is_durable } => {
                let is_durable = is_durable && fault.is_none();
                write_slow(slow, (extent, block), &contents, is_durable, fault.map(|_| &mut *random));
                self.core.passed_by(ticket, result, &mut actions);
            }
            Work::SyncSlow { file, extent, point } => {
                let is_broken = fault == Some(SlowFault::Broken);
                if !is_broken {
                    slow.files[extent.index()].sync(point);
                }
                self.core.slow_synced(file, if is_broken { Err(()) } else { Ok(()) }, &mut actions);
            }
            work => unreachable!("{work:?} is not done with a slow file"),
        }
        actions
    }

    /// Ends work in flight at a crash, wholly or in part.
    fn end_work(&mut self, work: Work, is_part: bool, slow: &mut Drive, random: &mut Random) {
        match work {
            Work::Record { block, cells, .. } => self.write_record((block, cells), false, is_part, random),
            Work::Superblock { block, cell } => {
                let cell = if is_part { Cell::torn() } else { cell };
                self.file.write(block, cell, false);
            }
            Work::Destage { extent, block, contents, .. } | Work::PassBy { extent, block, contents, .. } => {
                write_slow(slow, (extent, block), &contents, false, is_part.then_some(random));
            }
            Work::Place { extent, range, is_zero, .. } => {
                let _ = slow.place(extent, range, is_zero);
            }
            Work::SyncJournal(point) if !is_part => self.file.sync(point),
            Work::SyncSlow { extent, point, .. } if !is_part => slow.files[extent.index()].sync(point),
            Work::SyncJournal(_) | Work::SyncSlow { .. } => {}
            Work::Fetch { .. } | Work::Read(_) | Work::Answer { .. } => {}
        }
    }

    /// Writes a record, or with `is_part` some blocks of it.
    fn write_record(
        &mut self,
        (block, cells): (u32, Vec<Cell<Block>>),
        is_durable: bool,
        is_part: bool,
        random: &mut Random,
    ) {
        let odds = 1 + random.below(4);
        for (block, cell) in (block..).zip(cells) {
            if !is_part || !random.chance(1, odds) {
                self.file.write(block, cell, is_durable);
            }
        }
    }
}

/// Writes to a slow file, or some blocks if chance is to decide about each.
fn write_slow(
    slow: &mut Drive,
    (extent, block): (ExtentIndex, u32),
    contents: &[Block],
    is_durable: bool,
    mut chance: Option<&mut Random>,
) {
    for (block, content) in (block..).zip(contents) {
        if chance.as_mut().is_none_or(|random| random.chance(1, 2)) {
            slow.files[extent.index()].write(block, *content, is_durable);
        }
    }
}
