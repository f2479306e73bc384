//! Bringing what the log holds to the slow files, batch by batch, and moving its tail behind each: what is
//! written when, and when space is free again. It knows nothing of how records come about.
//!
//! A batch is the oldest records. It is first written, newest versions only, then its files are synced, then
//! it settles until nothing needs its records, then a superblock moves the tail, then the records are
//! dropped. Each of these waits for all of the one before; that order is what a power cut must not find
//! broken.

use weir_types::bounds::{
    BLOCK_BYTES, JOURNAL_BATCH_ENTRIES_MAX, JOURNAL_DESTAGE_BYTES_MAX, JOURNAL_DESTAGES_MAX,
    JOURNAL_DROPPED_ENTRIES_MAX,
};

use super::Journal;
use crate::action::{Action, DestageContent, DestageFault, DestageId, FileId, SlowFault, Source, Span};
use crate::files::FileState;
use crate::index::{Data, Run, State};
use crate::superblock::Superblock;

/// Up to this fullness nothing is brought, in thousandths: what is written again meanwhile need never be.
const LAZY_PER_MILLE: u32 = 250;
/// Up to this fullness only what is old is brought: half of the log and a batch, so that what is written in passes over as
/// much as half of it is replaced before it is its turn.
const PATIENT_PER_MILLE: u32 = 625;
/// From this fullness on it is done with all operations.
const EAGER_PER_MILLE: u32 = 750;
/// The part of the log that a batch may have: its space is free only when all of it is done.
const BATCH_DIVISOR: u32 = 8;

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none.
    Idle,
    /// Its newest versions are being written.
    Writing,
    /// Its files are being synced.
    Syncing,
    /// It waits for what took the place of its entries to be stable, and for reads to end.
    Settling,
    /// The superblock is being written.
    Moving,
    /// Its records are being dropped.
    Dropping,
}

/// An operation on a slow file.
#[derive(Clone, Copy, Debug)]
struct Operation {
    /// What it brings, as a whole.
    span: Span,
    /// Blocks that are being written with zeroes, up to this one, if that is how it is done.
    zeroed_to: Option<u32>,
    /// It began before its file was suspended: nobody knows what became of it.
    is_doubtful: bool,
}

/// The batch and its operations.
#[derive(Debug)]
pub(super) struct Destage {
    stage: Stage,
    /// The last record of the batch, and how many entries it has.
    through: u64,
    entries: usize,
    /// The oldest record that recovery can read, or the next one.
    durable_tail: u64,
    /// The generation of the superblock that says so.
    durable_generation: u64,
    /// The ranges of its entries, sorted; those before the cursor are done with, as far as they are still
    /// needed.
    ranges: Vec<Span>,
    cursor: usize,
    /// What its records have in the log, of blocks or of entries, whichever is more; and how much of it counts as brought.
    units: u32,
    destaged_units: u32,
    operations: [Option<Operation>; JOURNAL_DESTAGES_MAX],
    /// Files that were written and not yet synced; sorted, each once, when all is written.
    files: Vec<FileId>,
    /// Those whose sync is waited for, and the changes that it must cover.
    syncing: Vec<(FileId, u64)>,
    /// The record that must be stable before the tail moves.
    needs_stable: u64,
    /// Reads that use the batch's records.
    pins: u32,
}

impl Destage {
    pub fn new(superblock: &Superblock) -> Destage {
        Destage {
            stage: Stage::Idle,
            through: 0,
            entries: 0,
            durable_tail: superblock.tail,
            durable_generation: superblock.generation,
            ranges: Vec::new(),
            cursor: 0,
            units: 0,
            destaged_units: 0,
            operations: [None; JOURNAL_DESTAGES_MAX],
            files: Vec::new(),
            syncing: Vec::new(),
            needs_stable: 0,
            pins: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    pub fn durable_tail(&self) -> u64 {
        self.durable_tail
    }

    pub fn durable_generation(&self) -> u64 {
        self.durable_generation
    }

    /// The last record that is not to be read any more, because all of it is stable in the slow files.
    pub fn dropping_through(&self) -> u64 {
        if matches!(self.stage, Stage::Idle | Stage::Writing | Stage::Syncing) { 0 } else { self.through }
    }

    /// A read has ended whose oldest record was this.
    pub fn unpinned(&mut self, sequence: u64) {
        if self.stage == Stage::Settling && sequence <= self.through {
            self.pins -= 1;
        }
    }

    /// Waits no longer for the syncs of a file.
    pub fn forget(&mut self, file: FileId) {
        self.files.retain(|other| *other != file);
        self.syncing.retain(|(other, _)| *other != file);
    }

    /// Takes nothing for done that is being written to a file.
    fn doubt(&mut self, file: FileId) {
        let operations = self.operations.iter_mut().flatten();
        operations.filter(|other| other.span.file == file).for_each(|other| other.is_doubtful = true);
        self.forget(file);
    }

    fn under_way(&self) -> usize {
        self.operations.iter().flatten().count()
    }
}

impl Journal {
    /// Takes the batch as far as it can go, and begins one if it is time.
    pub(super) fn bring(&mut self, actions: &mut Vec<Action>) {
        if self.destage.stage == Stage::Idle && self.operations_allowed() > 0 {
            self.begin_batch();
        }
        if self.destage.stage == Stage::Writing {
            self.write_batch(actions);
        }
        if self.destage.stage == Stage::Syncing {
            self.sync_batch(actions);
        }
        if self.destage.stage == Stage::Settling {
            self.settle_batch(actions);
        }
    }

    /// How many operations on slow files there may be.
    fn operations_allowed(&self) -> usize {
        let fullness = self.log.fullness_per_mille();
        if self.is_draining || self.is_starved || fullness >= EAGER_PER_MILLE {
            return JOURNAL_DESTAGES_MAX;
        }
        let Some(above) = fullness.checked_sub(LAZY_PER_MILLE) else { return 0 };
        let more = JOURNAL_DESTAGES_MAX - 1;
        1 + above as usize * more / (EAGER_PER_MILLE - LAZY_PER_MILLE) as usize
    }

    /// True if there is room enough for what is young to stay.
    fn is_patient(&self) -> bool {
        !self.is_draining && !self.is_starved && self.log.fullness_per_mille() < PATIENT_PER_MILLE
    }

    fn begin_batch(&mut self) {
        let blocks_max = self.geometry.log_blocks() / BATCH_DIVISOR;
        let through = if self.is_patient() { self.age.old_through() } else { self.applied };
        let oldest = self.log.oldest(through, JOURNAL_BATCH_ENTRIES_MAX, blocks_max);
        let Some((through, entries)) = oldest else { return };
        let blocks = self.log.blocks_between(self.log.first() - 1, through);
        let destage = &mut self.destage;
        (destage.through, destage.entries) = (through, entries);
        (destage.units, destage.destaged_units) = (blocks.max(entries as u32), 0);
        self.prepare_batch();
    }

    /// Has all of the batch written that is not yet.
    fn prepare_batch(&mut self) {
        let destage = &mut self.destage;
        (destage.stage, destage.cursor) = (Stage::Writing, 0);
        destage.ranges.clear();
        destage.ranges.extend(self.log.entries(destage.entries).filter(|span| span.blocks > 0));
        destage.ranges.sort_unstable();
    }

    /// Begins anew with what was written to a file.
    pub(super) fn doubt_destaged(&mut self, file: FileId) {
        self.index.doubt(file, self.destage.dropping_through());
        if matches!(self.destage.stage, Stage::Writing | Stage::Syncing) {
            self.destage.doubt(file);
            self.prepare_batch();
        }
    }

    /// Begins operations, in the order of the batch, until enough are under way or one has to wait.
    fn write_batch(&mut self, actions: &mut Vec<Action>) {
        // A batch that was begun is ended, however little is left in the journal.
        let allowed = self.operations_allowed().max(1);
        while self.destage.under_way() < allowed {
            let Some(range) = self.destage.ranges.get(self.destage.cursor).copied() else { break };
            let Some(run) = self.index.run(range, self.destage.through) else {
                self.destage.cursor += 1;
                continue;
            };
            if !self.may_destage(&run.span) {
                return;
            }
            let (block, end) = (run.span.end(), range.end());
            if block < end {
                let rest = Span { block, blocks: end - block, ..range };
                self.destage.ranges[self.destage.cursor] = rest;
            } else {
                self.destage.cursor += 1;
            }
            self.begin_operation(run, actions);
        }
        if self.destage.cursor == self.destage.ranges.len() && self.destage.under_way() == 0 {
            self.destage.stage = Stage::Syncing;
            // Some come twice if a file was suspended meanwhile.
            self.destage.files.sort_unstable();
            self.destage.files.dedup();
            self.allow_for_destaged();
        }
    }

    /// Whose pieces the batch has still to write. A range may be of a file that is gone by now, or that another one has the
    /// number of: what is left is what the index has.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = FileId> + '_ {
        let through = self.destage.through;
        let is_writing = self.destage.stage == Stage::Writing;
        let ranges = self.destage.ranges.iter().skip(self.destage.cursor).filter(move |_| is_writing);
        ranges.filter(move |range| self.index.run(**range, through).is_some()).map(|range| range.file)
    }

    /// False if a run has to wait: for whatever else is under way on the slow file in the same place, or for
    /// its file to be forgotten because it has failed, or to be resumed. All of these end with an event.
    fn may_destage(&self, span: &Span) -> bool {
        let state = self.files.get(span.file);
        let is_open = state.file_state == FileState::Open && !state.is_suspended;
        let is_destaged = self.destage.operations.iter().flatten().any(|other| other.span.overlaps(span));
        let is_written = self.passing_by.iter().any(|other| other.span.overlaps(span));
        is_open && !is_destaged && !is_written
    }

    fn begin_operation(&mut self, run: Run, actions: &mut Vec<Action>) {
        let Run { span, data, sources } = run;
        self.index.advance(span, State::Dirty, State::Destaging);
        let free = self.destage.operations.iter().position(Option::is_none);
        let number = free.expect("operations are begun while some are free");
        self.destage.operations[number] = Some(Operation { span, zeroed_to: None, is_doubtful: false });
        if self.destage.files.last() != Some(&span.file) {
            self.destage.files.push(span.file);
        }
        let state = self.files.get_mut(span.file);
        state.under_way += 1;
        let content = match data {
            Data::At(_) => DestageContent::Data(self.sources(&sources)),
            _ if state.is_without_fallocate => return self.write_zeroes(number, actions),
            Data::Zero => DestageContent::Zero,
            Data::Release => DestageContent::Release,
        };
        actions.push(destage_action(number, span, content));
    }

    /// Where pieces of the log lie in its file; those that follow each other are one.
    fn sources(&self, pieces: &[(u32, u32)]) -> Vec<Source> {
        let mut sources: Vec<Source> = Vec::with_capacity(pieces.len());
        for (block, blocks) in pieces {
            let (position_bytes, length) =
                (self.geometry.position_bytes(*block), blocks * BLOCK_BYTES as u32);
            match sources.last_mut() {
                Some(last) if last.position_bytes + u64::from(last.length) == position_bytes => {
                    last.length += length;
                }
                _ => sources.push(Source { position_bytes, length }),
            }
        }
        sources
    }

    /// Writes the next zeroes of an operation on a filesystem that can nothing better.
    fn write_zeroes(&mut self, number: usize, actions: &mut Vec<Action>) {
        let operation =
            self.destage.operations[number].as_mut().expect("an operation that goes on has begun");
        let block = operation.zeroed_to.unwrap_or(operation.span.block);
        let blocks = (operation.span.end() - block).min((JOURNAL_DESTAGE_BYTES_MAX / BLOCK_BYTES) as u32);
        operation.zeroed_to = Some(block + blocks);
        let span = Span { block, blocks, ..operation.span };
        actions.push(destage_action(number, span, DestageContent::Zeroes));
    }

    /// The answer to [`Action::Destage`]. What failed is never tried again.
    pub fn destaged(
        &mut self,
        operation: DestageId,
        result: Result<(), DestageFault>,
        actions: &mut Vec<Action>,
    ) {
        if self.has_failed {
            return;
        }
        let number = operation.0 as usize;
        let Operation { span, zeroed_to, is_doubtful } =
            self.destage.operations[number].expect("an operation that ends has begun");
        let state = self.files.get_mut(span.file);
        let is_open = state.file_state == FileState::Open && !is_doubtful;
        let is_unsupported = result == Err(DestageFault::Slow(SlowFault::Unsupported)) && zeroed_to.is_none();
        let has_more = result.is_ok() && zeroed_to.is_some_and(|end| end < span.end());
        state.is_without_fallocate |= is_unsupported;
        if is_open && (is_unsupported || has_more) {
            return self.write_zeroes(number, actions);
        }
        state.under_way -= 1;
        state.changes += 1;
        self.destage.operations[number] = None;
        match result {
            Ok(()) | Err(DestageFault::Slow(SlowFault::Unsupported)) if is_doubtful => {
                self.index.advance(span, State::Destaging, State::Dirty);
                self.prepare_batch();
            }
            Ok(()) => {
                self.index.advance(span, State::Destaging, State::Destaged);
                self.allow_for_destaged();
            }
            Err(DestageFault::Journal) => return self.fail(actions),
            Err(DestageFault::Slow(_)) => {
                // The batch waits for it until it is forgotten.
                self.index.advance(span, State::Destaging, State::Dirty);
                self.prepare_batch();
                self.fail_file(span.file, actions);
            }
        }
        self.finish_forgets(actions);
        self.pump(actions);
    }

    /// Lets a nearly full log take in as much as has been brought of the batch since this was done last.
    fn allow_for_destaged(&mut self) {
        let destage = &mut self.destage;
        let done = destage.cursor.saturating_sub(destage.under_way()) as u64;
        let of = destage.ranges.len().max(1) as u64;
        let destaged_units = (u64::from(destage.units) * done / of) as u32;
        let more = destaged_units.saturating_sub(destage.destaged_units);
        destage.destaged_units += more;
        let units_max = 2 * self.geometry.record_blocks_max();
        self.allowance.destaged(more, self.log.fullness_per_mille(), units_max);
    }

    /// Begins syncs of the batch's files, until enough are under way.
    fn sync_batch(&mut self, actions: &mut Vec<Action>) {
        let files = &self.files;
        self.destage.syncing.retain(|(file, changes)| {
            let state = files.get(*file);
            // One that failed is waited for until it is forgotten: it does not have what it should.
            state.file_state == FileState::Failed || state.synced < *changes
        });
        while self.destage.syncing.len() < JOURNAL_DESTAGES_MAX {
            let Some(file) = self.destage.files.pop() else { break };
            let state = self.files.get(file);
            let changes = state.changes;
            if state.file_state == FileState::Failed || state.synced < changes {
                self.destage.syncing.push((file, changes));
                self.sync_slow(file, changes, actions);
            }
        }
        if self.destage.syncing.is_empty() && self.destage.files.is_empty() {
            self.destage.stage = Stage::Settling;
            // Entries that were not written to the slow files were replaced by records up to here.
            self.destage.needs_stable = self.applied;
            self.wanted = self.wanted.max(self.applied);
            self.destage.pins = self.log.pins(self.destage.through);
        }
    }

    /// Moves the tail behind the batch if nothing needs its records any more.
    fn settle_batch(&mut self, actions: &mut Vec<Action>) {
        if self.stable < self.destage.needs_stable || self.destage.pins > 0 {
            return;
        }
        self.destage.stage = Stage::Moving;
        let tail = self.destage.through + 1;
        self.superblock = Superblock {
            generation: self.superblock.generation + 1,
            tail,
            tail_position: self.log.position(tail),
            stable: self.stable,
            ..self.superblock
        };
        let position_bytes = self.geometry.superblock_bytes(self.superblock.generation);
        actions.push(Action::WriteSuperblock { position_bytes });
    }

    /// The answer to [`Action::WriteSuperblock`]; any error is final.
    pub fn superblock_written<E>(&mut self, result: Result<(), E>, actions: &mut Vec<Action>) {
        if result.is_err() {
            self.fail(actions);
        }
        if !self.has_failed {
            self.destage.stage = Stage::Dropping;
            self.destage.durable_tail = self.superblock.tail;
            self.destage.durable_generation = self.superblock.generation;
            self.pump(actions);
        }
    }

    /// Drops records behind which the tail is, so that their space is used again: all if somebody waits for
    /// it, else some with each event. True if there were any.
    pub(super) fn drop_records(&mut self, is_hurried: bool) -> bool {
        if self.destage.stage != Stage::Dropping {
            return false;
        }
        let mut entries = 0;
        while self.log.first() <= self.destage.through {
            if !is_hurried && entries >= JOURNAL_DROPPED_ENTRIES_MAX {
                return true;
            }
            let (index, sequence) = (&mut self.index, self.log.first());
            entries += self.log.pop(|span| index.remove(span, sequence)) as usize;
        }
        self.destage.stage = Stage::Idle;
        true
    }
}

fn destage_action(number: usize, span: Span, content: DestageContent) -> Action {
    let bytes = |blocks: u32| blocks * BLOCK_BYTES as u32;
    let operation = DestageId(number as u32);
    let (offset, length) = (bytes(span.block), bytes(span.blocks));
    Action::Destage { operation, file: span.file, offset, length, content }
}
