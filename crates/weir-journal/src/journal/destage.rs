//! Destaging: writing the log's content to the slow files, batch by batch, and moving the tail behind each
//! batch. The module decides when data is written and when space is free again. It knows nothing of how
//! records are made.
//!
//! A batch is the oldest records. Its steps are:
//! 1. Write the newest versions of its ranges to the slow files.
//! 2. Sync these files.
//! 3. Settle: wait until nothing needs the batch's records.
//! 4. Move the tail with a new superblock.
//! 5. Drop the records.
//!
//! Each step waits for all of the step before. A power cut must never find this order broken.

use weir_types::bounds::{
    BLOCK_BYTES, JOURNAL_BATCH_ENTRIES_MAX, JOURNAL_DESTAGE_BYTES_MAX, JOURNAL_DESTAGES_MAX,
    JOURNAL_DROPPED_ENTRIES_MAX,
};

use super::Journal;
use crate::action::{Action, DestageContent, DestageFault, DestageId, FileId, SlowFault, Source, Span};
use crate::files::FileState;
use crate::geometry::Geometry;
use crate::index::{Data, Run, State};
use crate::superblock::Superblock;

/// Fullness of the log, in thousandths, up to which nothing is destaged. Data that is overwritten in this
/// time never needs destaging.
const LAZY_PER_MILLE: u32 = 250;
/// Fullness of the log, in thousandths, up to which only old records are destaged: half of the log and a
/// batch. A workload that rewrites up to half of the log in passes replaces its data before the data is
/// destaged.
const PATIENT_PER_MILLE: u32 = 625;
/// Fullness of the log, in thousandths, from which on destaging uses all operations.
const EAGER_PER_MILLE: u32 = 750;
/// The largest batch is the log divided by this number, because a batch frees its space only when all of it
/// is done.
const BATCH_DIVISOR: u32 = 8;

/// The stage of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no batch.
    Idle,
    /// The newest versions of its ranges are being written.
    Writing,
    /// Its files are being synced.
    Syncing,
    /// The batch waits until the records that replaced its entries are stable and reads of its records end.
    Settling,
    /// The superblock is being written.
    Moving,
    /// Its records are being dropped.
    Dropping,
}

/// An operation on a slow file.
#[derive(Clone, Copy, Debug)]
struct Operation {
    /// Whole range that the operation destages.
    span: Span,
    /// End of the blocks written with zeroes so far, if the operation writes zeroes.
    zeroed_to: Option<u32>,
    /// Whether the operation began before its file was suspended: its result is unknown.
    is_doubtful: bool,
}

/// The batch and its operations.
#[derive(Debug)]
pub(super) struct Destage {
    stage: Stage,
    /// Last record of the batch, and number of entries in the batch.
    through: u64,
    entries: usize,
    /// Oldest record that recovery can read, or the next record if there is none.
    durable_tail: u64,
    /// Generation of the superblock that holds the durable tail.
    durable_generation: u64,
    /// Ranges of the batch's entries, sorted. Ranges before the cursor are done, as far as they are still
    /// needed.
    ranges: Vec<Span>,
    cursor: usize,
    /// Size of the batch in the log, in blocks or entries, whichever is more; and the part that counts as
    /// destaged.
    units: u32,
    destaged_units: u32,
    operations: [Option<Operation>; JOURNAL_DESTAGES_MAX],
    /// Files that were written and not yet synced. When all is written they are sorted, each once.
    files: Vec<FileId>,
    /// Files whose sync the batch waits for, with the changes that the sync must cover.
    syncing: Vec<(FileId, u64)>,
    /// Record that must be stable before the tail moves.
    needs_stable: u64,
    /// Number of reads that use the batch's records.
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

    /// Last record that must not be read any more, because all its data is stable in the slow files.
    pub fn dropping_through(&self) -> u64 {
        if matches!(self.stage, Stage::Idle | Stage::Writing | Stage::Syncing) { 0 } else { self.through }
    }

    /// Ends a read whose oldest record was `sequence`.
    pub fn unpinned(&mut self, sequence: u64) {
        if self.stage == Stage::Settling && sequence <= self.through {
            self.pins -= 1;
        }
    }

    /// Stops waiting for syncs of a file.
    pub fn forget(&mut self, file: FileId) {
        self.files.retain(|other| *other != file);
        self.syncing.retain(|(other, _)| *other != file);
    }

    /// Treats operations in flight to a file as not done.
    fn doubt(&mut self, file: FileId) {
        let operations = self.operations.iter_mut().flatten();
        operations.filter(|other| other.span.file == file).for_each(|other| other.is_doubtful = true);
        self.forget(file);
    }

    /// Writes the next zeroes of an operation, on a filesystem that can neither zero nor release.
    fn write_zeroes(&mut self, number: usize, actions: &mut Vec<Action>) {
        let operation = self.operations[number].as_mut().expect("an operation that goes on has begun");
        let block = operation.zeroed_to.unwrap_or(operation.span.block);
        let blocks = (operation.span.end() - block).min((JOURNAL_DESTAGE_BYTES_MAX / BLOCK_BYTES) as u32);
        operation.zeroed_to = Some(block + blocks);
        let span = Span { block, blocks, ..operation.span };
        actions.push(destage_action(number, span, DestageContent::Zeroes));
    }

    /// Ends the move of the tail: the superblock that names it is stable. The batch's records can be dropped.
    pub fn tail_moved(&mut self, superblock: &Superblock) {
        self.stage = Stage::Dropping;
        self.durable_tail = superblock.tail;
        self.durable_generation = superblock.generation;
    }

    fn under_way(&self) -> usize {
        self.operations.iter().flatten().count()
    }
}

impl Journal {
    /// Advances the batch as far as possible, and begins one if it is time.
    pub(super) fn destage(&mut self, actions: &mut Vec<Action>) {
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

    /// Returns how many operations on slow files may be in flight.
    fn operations_allowed(&self) -> usize {
        let fullness = self.log.fullness_per_mille();
        if self.is_draining || self.is_starved || fullness >= EAGER_PER_MILLE {
            return JOURNAL_DESTAGES_MAX;
        }
        let Some(above) = fullness.checked_sub(LAZY_PER_MILLE) else { return 0 };
        let more = JOURNAL_DESTAGES_MAX - 1;
        1 + above as usize * more / (EAGER_PER_MILLE - LAZY_PER_MILLE) as usize
    }

    /// Returns true if there is enough room to keep young records.
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

    /// Schedules all ranges of the batch that are not yet written.
    fn prepare_batch(&mut self) {
        let destage = &mut self.destage;
        (destage.stage, destage.cursor) = (Stage::Writing, 0);
        destage.ranges.clear();
        destage.ranges.extend(self.log.entries(destage.entries).filter(|span| span.blocks > 0));
        destage.ranges.sort_unstable();
    }

    /// Schedules again the data that was written to a file and is not known to be stable.
    pub(super) fn doubt_destaged(&mut self, file: FileId) {
        self.index.doubt(file, self.destage.dropping_through());
        if matches!(self.destage.stage, Stage::Writing | Stage::Syncing) {
            self.destage.doubt(file);
            self.prepare_batch();
        }
    }

    /// Begins operations in the order of the batch, until enough are in flight or one has to wait.
    fn write_batch(&mut self, actions: &mut Vec<Action>) {
        // A batch that has begun runs to its end, however little is left in the journal.
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
            // A file occurs twice if it was suspended in this stage.
            self.destage.files.sort_unstable();
            self.destage.files.dedup();
            self.allow_for_destaged();
        }
    }

    /// Returns the files that the batch has still to write. The file of a range may be forgotten, and another
    /// file may have its number. The index therefore decides what is left.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = FileId> + '_ {
        let through = self.destage.through;
        let is_writing = self.destage.stage == Stage::Writing;
        let ranges = self.destage.ranges.iter().skip(self.destage.cursor).filter(move |_| is_writing);
        ranges.filter(move |range| self.index.run(**range, through).is_some()).map(|range| range.file)
    }

    /// Returns false if a run has to wait. It waits for the end of another operation or bypass write in the
    /// same place. Its file may also have failed and wait to be forgotten, or be suspended and wait to be
    /// resumed. Each wait ends with an event.
    fn may_destage(&self, span: &Span) -> bool {
        let state = self.files.get(span.file);
        let is_open = state.state() == FileState::Open && !state.is_suspended;
        let is_destaged = self.destage.operations.iter().flatten().any(|other| other.span.overlaps(span));
        let is_written = self.passing_by.iter().any(|other| other.span.overlaps(span));
        is_open && !is_destaged && !is_written
    }

    fn begin_operation(&mut self, run: Run, actions: &mut Vec<Action>) {
        let Run { span, data, sources: pieces } = run;
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
            Data::At(_) => DestageContent::Data(sources(&self.geometry, &pieces)),
            _ if state.is_without_fallocate => return self.destage.write_zeroes(number, actions),
            Data::Zero => DestageContent::Zero,
            Data::Release => DestageContent::Release,
        };
        actions.push(destage_action(number, span, content));
    }

    /// Ends an operation, or goes on with its next part. A failed operation is never retried.
    pub(super) fn end_operation(
        &mut self,
        operation: DestageId,
        result: Result<(), DestageFault>,
        actions: &mut Vec<Action>,
    ) {
        let number = operation.0 as usize;
        let Operation { span, zeroed_to, is_doubtful } =
            self.destage.operations[number].expect("an operation that ends has begun");
        let state = self.files.get_mut(span.file);
        let is_open = state.state() == FileState::Open && !is_doubtful;
        let is_unsupported = result == Err(DestageFault::Slow(SlowFault::Unsupported)) && zeroed_to.is_none();
        let has_more = result.is_ok() && zeroed_to.is_some_and(|end| end < span.end());
        state.is_without_fallocate |= is_unsupported;
        if is_open && (is_unsupported || has_more) {
            return self.destage.write_zeroes(number, actions);
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
                self.work.destaged_bytes += u64::from(span.blocks) * BLOCK_BYTES;
                self.allow_for_destaged();
            }
            Err(DestageFault::Journal) => self.fail(actions),
            Err(DestageFault::Slow(_)) => {
                // The batch waits for this file until the file is forgotten.
                self.index.advance(span, State::Destaging, State::Dirty);
                self.prepare_batch();
                self.fail_file(span.file, actions);
            }
        }
    }

    /// Lets a nearly full log accept as much as the batch has destaged since the last call.
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

    /// Begins syncs of the batch's files, until enough are in flight.
    fn sync_batch(&mut self, actions: &mut Vec<Action>) {
        let files = &self.files;
        self.destage.syncing.retain(|(file, changes)| {
            let state = files.get(*file);
            // The batch waits for a failed file until it is forgotten, because the file lacks data.
            state.state() == FileState::Failed || state.synced < *changes
        });
        while self.destage.syncing.len() < JOURNAL_DESTAGES_MAX {
            let Some(file) = self.destage.files.pop() else { break };
            let state = self.files.get(file);
            let changes = state.changes;
            if state.state() == FileState::Failed || state.synced < changes {
                self.destage.syncing.push((file, changes));
                self.files.make_synced(file, changes, actions);
            }
        }
        if self.destage.syncing.is_empty() && self.destage.files.is_empty() {
            self.destage.stage = Stage::Settling;
            // Entries that were not written to the slow files were replaced by records up to `applied`.
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

    /// Drops records before the tail, so that their space is used again. If a request waits for space, it
    /// drops all of them; otherwise it drops some with each event. Returns true if there were any.
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

/// Returns where pieces of the log lie in its file; adjacent pieces are joined.
fn sources(geometry: &Geometry, pieces: &[(u32, u32)]) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::with_capacity(pieces.len());
    for (block, blocks) in pieces {
        let (position_bytes, length) = (geometry.position_bytes(*block), blocks * BLOCK_BYTES as u32);
        match sources.last_mut() {
            Some(last) if last.position_bytes + u64::from(last.length) == position_bytes => {
                last.length += length;
            }
            _ => sources.push(Source { position_bytes, length }),
        }
    }
    sources
}
