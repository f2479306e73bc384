//! Scrub: reading and comparing all replicas of an extent, section by section.
//!
//! A scrub rewrites bad blocks from a correct replica, and stores checksums of the blocks. While a piece is
//! examined, changes of it wait, as changes wait for each other; reads go on. A change elsewhere in the
//! section has one effect only: the section's checksums do not become valid. The executor computes and stores
//! checksums. This module decides the order of events, and [`super::verdict`] decides which replicas are
//! good:
//!
//! * The data that was read is made stable before its checksums become valid. Otherwise a power cut could
//!   leave older data.
//! * Checksums are written before they become valid. If they replace valid checksums, the old ones are
//!   invalidated before that.

use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES, PIECE_BYTES, REPLICA_SLOTS_MAX};

use super::checksum_state::{ChecksumHeaders, Damaged, ExtentChecksums};
use super::extent::MirroredExtent;
use super::section::{Move, PIECE_BLOCKS, PIECES, Piece, Progress, Repair, SECTIONS, SectionScrub};
use super::{Effect, Mirror, MirrorId, Operation, Purpose, Slots, Stage};
use crate::action::{Content, Fault, Kind, OperationId, Request};
/// A task on the checksum files for the executor → [`Mirror::kept`]. Each extent has at most one task of each
/// kind at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumWork {
    /// Read the checksums of a section beside these replicas.
    Load {
        /// Section of the extent.
        section: u32,
        /// Replicas to read beside.
        slots: Slots,
    },
    /// Write the checksums of a section beside these replicas, durably. They are not valid yet.
    Store {
        /// Section of the extent.
        section: u32,
        /// Replicas to write beside.
        slots: Slots,
        /// Checksum of each block of the section.
        block_checksums: Vec<u32>,
    },
    /// Write the checksum headers beside these replicas, durably. An empty header creates no file where none
    /// exists.
    WriteHeaders(ChecksumHeaders),
}

/// Answer of the executor to a [`ChecksumWork`].
#[derive(Clone, Debug)]
pub enum ChecksumResult {
    /// By replica, the checksums of the section, if they could be read intact.
    Loaded([Option<Vec<u32>>; REPLICA_SLOTS_MAX]),
    /// The checksums were written, except beside the failed replicas.
    Stored {
        /// Replicas beside which the write failed.
        failed: Slots,
    },
    /// The checksum headers were written.
    HeadersWritten {
        /// Replicas beside which the write failed. They may have the new header all the same.
        failed: Slots,
        /// Replicas beside which the write failed, but whose checksums were durably dropped instead.
        dropped: Slots,
    },
}

impl Mirror {
    /// Sets the checksum header found beside a replica of an extent; `None` if it could not be read. Call it
    /// before [`Mirror::begin`].
    pub fn set_checksum_header(
        &mut self,
        extent: u32,
        slot: usize,
        checksums: Option<super::ChecksumHeader>,
    ) {
        let Some(state) = self.extents.get_mut(extent as usize) else { return };
        let is_in_sync = state.in_sync().contains(slot);
        let known = state.checksums.get_or_insert_default();
        match checksums {
            Some(checksums) => known.found(slot, checksums, is_in_sync),
            None => known.distrust(slot),
        }
    }

    /// Invalidates the checksums of an extent from an offset on, because a caller changes that range. The
    /// caller updates the checksum files itself, and no operation may be under way.
    pub fn invalidate_checksums_from(&mut self, index: u32, offset: u32) {
        let Some(checksums) =
            self.extents.get_mut(index as usize).and_then(|extent| extent.checksums.as_mut())
        else {
            return;
        };
        let length = EXTENT_BYTES as u32 - offset;
        if length > 0 {
            checksums.change(&Request { kind: Kind::Release, extent: index, offset, length });
            checksums.distrust_damage();
        }
    }

    /// Number of sections of an extent whose checksums are valid beside any replica.
    pub fn valid_sections(&self, extent: u32) -> u32 {
        let Some(checksums) = self.extents.get(extent as usize).and_then(|state| state.checksums.as_ref())
        else {
            return 0;
        };
        let is_valid =
            |section: &u32| (0..self.replicas.len()).any(|slot| checksums.is_valid(slot, *section));
        (0..SECTIONS).filter(is_valid).count() as u32
    }

    /// Blocks of an extent that are known to be damaged on all replicas, in order.
    pub fn damaged(&self, extent: u32) -> &[Damaged] {
        let checksums = self.extents.get(extent as usize).and_then(|state| state.checksums.as_ref());
        checksums.map_or(&[], |checksums| checksums.damaged())
    }

    /// Begins to scrub a section of an extent; it ends with [`Effect::Scrubbed`]. Each extent has one scrub
    /// at a time. Returns false if one is under way or no replica can be read. `zero_sum` is the checksum of
    /// a block of zeroes.
    pub fn begin_section(
        &mut self,
        index: u32,
        section: u32,
        zero_sum: u32,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(extent) = self.extents.get_mut(index as usize) else { return false };
        let slots = extent.in_sync();
        let checksums = extent.checksums.get_or_insert_default();
        if slots.is_empty() || checksums.scrub.is_some() {
            return false;
        }
        let valid: Slots = slots.iter().filter(|slot| checksums.is_valid(*slot, section)).collect();
        checksums.scrub = Some(Box::new(SectionScrub::new(section, slots, zero_sum)));
        match valid.is_empty() {
            true => self.scrub_of(index).progress = Progress::Examining,
            false => effects.push(Effect::ChecksumWork {
                extent: index,
                work: Box::new(ChecksumWork::Load { section, slots: valid }),
            }),
        }
        true
    }

    /// True if an extent has a section with pieces to examine now.
    pub fn has_piece(&self, index: u32) -> bool {
        let scrub =
            self.extents.get(index as usize).and_then(|extent| extent.checksums.as_ref()?.scrub.as_ref());
        scrub.is_some_and(|scrub| scrub.progress == Progress::Examining && scrub.next_piece < PIECES)
    }

    /// Begins to examine the next piece of the section that is being scrubbed; it ends with an
    /// [`Effect::Done`]. Pieces that were never written are skipped; `None` if no piece is left.
    pub fn scrub_piece(&mut self, index: u32, effects: &mut Vec<Effect>) -> Option<MirrorId> {
        while self.has_piece(index) {
            let scrub = self.scrub_of(index);
            let first = scrub.next_piece as usize * PIECE_BLOCKS;
            let offset = scrub.start() + scrub.next_piece * PIECE_BYTES as u32;
            scrub.next_piece += 1;
            let request = Request { kind: Kind::Read, extent: index, offset, length: PIECE_BYTES as u32 };
            if self.is_untouched(&request) {
                continue;
            }
            let id = self.insert(Operation { is_scrub: true, ..Operation::new(request, None) });
            let piece = Piece {
                id,
                first,
                move_: Move::Read,
                slot: 0,
                seen: Slots::default(),
                found: Default::default(),
                repairs: Vec::new(),
            };
            self.scrub_of(index).pieces.push(piece);
            self.enqueue(id, effects);
            return Some(id);
        }
        self.go_on_scrubbing(index, effects);
        None
    }

    /// Abandons the scrub of the section: no more pieces are examined, and its checksums do not become valid.
    pub fn abandon_section(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let Some(checksums) =
            self.extents.get_mut(index as usize).and_then(|extent| extent.checksums.as_mut())
        else {
            return;
        };
        if let Some(scrub) = &mut checksums.scrub {
            scrub.next_piece = PIECES;
            scrub.is_decided = false;
            self.go_on_scrubbing(index, effects);
        }
    }

    /// True if a piece was never written, has no stored checksums and has no operation under way.
    fn is_untouched(&self, request: &Request) -> bool {
        let Request { extent: index, offset, length, .. } = *request;
        let extent = &self.extents[index as usize];
        let Some(scrub) = extent.checksums.as_ref().and_then(|checksums| checksums.scrub.as_ref()) else {
            return false;
        };
        let is_kept = scrub.loaded.iter().any(Option::is_some);
        let readable = extent.readable(offset, length);
        let is_hole = |slot: usize| self.replicas[slot].is_hole(index, offset, length);
        let is_read = |slot: usize| readable.contains(slot);
        let is_nothing = scrub.examined.iter().all(is_read) && readable.iter().all(is_hole);
        !is_kept && is_nothing && !extent.is_open(request) && !self.is_busy(request)
    }

    fn checksums_of(&mut self, index: u32) -> &mut ExtentChecksums {
        self.extents[index as usize].checksums.as_mut().expect("an extent that is scrubbed has checksums")
    }

    fn scrub_of(&mut self, index: u32) -> &mut SectionScrub {
        self.checksums_of(index).scrub.as_mut().expect("a section is known until it is scrubbed")
    }

    /// Reads the next replica of a piece, or decides once all replicas were read.
    pub(super) fn examine(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { request, .. } = *self.operation(id);
        let extent = &self.extents[request.extent as usize];
        let readable: Slots = match extent.is_open(&request) {
            true => Slots::default(),
            false => extent.readable(request.offset, request.length),
        };
        let piece = self.scrub_of(request.extent).piece(id);
        let next = readable.iter().find(|slot| !piece.seen.contains(*slot));
        match next {
            Some(slot) => {
                piece.seen.insert(slot);
                let blocks = (piece.first, PIECE_BLOCKS);
                self.move_on(id, (Move::Read, slot), blocks, effects);
            }
            None => self.decide(id, readable, effects),
        }
    }

    /// Starts a move of a piece on some of its blocks.
    fn move_on(
        &mut self,
        id: MirrorId,
        (move_, slot): (Move, usize),
        (first, count): (usize, usize),
        effects: &mut Vec<Effect>,
    ) {
        let whole = self.operation(id).request;
        let scrub = self.scrub_of(whole.extent);
        let start = scrub.start();
        let piece = scrub.piece(id);
        (piece.move_, piece.slot) = (move_, slot);
        let kind = match move_ {
            Move::Read | Move::Fetch => Kind::Read,
            Move::Mend => Kind::Write { is_durable: false },
        };
        let offset = start + first as u32 * BLOCK_BYTES as u32;
        let operation = self.operation(id);
        operation.request = Request { kind, offset, length: count as u32 * BLOCK_BYTES as u32, ..whole };
        (operation.succeeded, operation.source, operation.content) = (Slots::default(), None, Content::Data);
        self.launch_piece(id, whole, slot, effects);
    }

    /// Handles the end of a move of a piece.
    pub(super) fn scrub_ended(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { request, source, content, succeeded, .. } = *self.operation(id);
        if let Some((slot, operation)) = source {
            return effects.push(Effect::Examine { id, slot, operation, content });
        }
        let scrub = self.scrub_of(request.extent);
        let piece = scrub.piece(id);
        match piece.move_ {
            Move::Read => {
                let slot = piece.slot;
                scrub.examined.remove(slot);
                self.examine(id, effects);
            }
            Move::Fetch => self.mended(id, false, effects),
            Move::Mend => self.mended(id, !succeeded.is_empty(), effects),
        }
    }

    /// The range that was last read for a piece, and its number of blocks.
    pub fn examining(&mut self, id: MirrorId) -> (Request, usize) {
        let request = self.operation(id).request;
        let scrub = self.scrub_of(request.extent);
        let start = scrub.start();
        let piece = scrub.piece(id);
        let (first, count) = match (piece.move_, piece.repairs.last()) {
            (Move::Fetch, Some(repair)) => (repair.first, repair.count),
            _ => (piece.first, PIECE_BLOCKS),
        };
        let offset = start + first as u32 * BLOCK_BYTES as u32;
        (Request { offset, length: count as u32 * BLOCK_BYTES as u32, ..request }, count)
    }

    /// Takes the checksums that the executor computed for the blocks that were read.
    pub fn examined(&mut self, id: MirrorId, block_checksums: &[u32], effects: &mut Vec<Effect>) {
        let Operation { request, source, content, .. } = *self.operation(id);
        let (slot, operation) = source.expect("what is examined was read");
        self.forget_read(id, (slot, operation), effects);
        let scrub = self.scrub_of(request.extent);
        let piece = scrub.pieces.iter_mut().find(|piece| piece.id == id);
        let piece = piece.expect("a piece is known until it ends");
        if piece.move_ == Move::Read {
            piece.found[piece.slot] = Some(block_checksums.to_vec());
            return self.examine(id, effects);
        }
        let repair = *piece.repairs.last().expect("a repair is known until it is made");
        match scrub.block_checksums[repair.first..repair.first + repair.count] == *block_checksums {
            true => {
                if content == Content::Hole {
                    effects.push(Effect::Zeroes { id });
                }
                self.move_on(id, (Move::Mend, repair.slot), (repair.first, repair.count), effects);
            }
            // An earlier read returned other data: only data that is known to be good is written to a
            // replica.
            false => self.mended(id, false, effects),
        }
    }

    /// Ends the read of a replica, whose buffer is no longer needed.
    fn forget_read(
        &mut self,
        id: MirrorId,
        (slot, operation): (usize, OperationId),
        effects: &mut Vec<Effect>,
    ) {
        self.operation(id).source = None;
        self.replicas[slot].forget(operation);
        effects.push(Effect::Ended { slot, operation });
    }

    /// Decides which blocks of a piece are good, once all replicas were read, and orders the repairs.
    fn decide(&mut self, id: MirrorId, readable: Slots, effects: &mut Vec<Effect>) {
        let index = self.operation(id).request.extent;
        let checksums = self.checksums_of(index);
        let mut scrub = checksums.scrub.take().expect("a section is known until it is scrubbed");
        let place = scrub.pieces.iter().position(|piece| piece.id == id);
        let mut piece = scrub.pieces.swap_remove(place.expect("a piece is known until it ends"));
        let seen: Slots = readable.iter().filter(|slot| piece.found[*slot].is_some()).collect();
        let missed: Vec<usize> = scrub.examined.iter().filter(|slot| !seen.contains(*slot)).collect();
        missed.into_iter().for_each(|slot| scrub.examined.remove(slot));
        if !seen.is_empty() {
            (0..PIECE_BLOCKS).for_each(|block| scrub.judge(&mut piece, block, seen, checksums));
            scrub.has_data = true;
        }
        scrub.pieces.push(piece);
        checksums.scrub = Some(scrub);
        self.repair(id, effects);
    }

    /// Makes the next repair of a piece, or ends the piece.
    fn repair(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let Operation { request, .. } = *self.operation(id);
        let extent = &self.extents[request.extent as usize];
        let readable = extent.readable(request.offset, request.length);
        let can_be_made =
            |repair: &Repair| readable.contains(repair.slot) && readable.contains(repair.source);
        match self.scrub_of(request.extent).piece(id).repairs.last().copied() {
            None => self.piece_scrubbed(id, effects),
            Some(repair) if !can_be_made(&repair) => self.mended(id, false, effects),
            Some(Repair { source, first, count, .. }) => {
                self.move_on(id, (Move::Fetch, source), (first, count), effects);
            }
        }
    }

    /// Handles the end of a repair. If it failed, the checksums of the repaired replica do not become valid.
    fn mended(&mut self, id: MirrorId, is_mended: bool, effects: &mut Vec<Effect>) {
        let index = self.operation(id).request.extent;
        let scrub = self.scrub_of(index);
        if let Some(Repair { slot, count, .. }) = scrub.piece(id).repairs.pop() {
            match is_mended {
                true => scrub.report.repaired[slot] += count as u64,
                false => scrub.examined.remove(slot),
            }
        }
        self.repair(id, effects);
    }

    fn piece_scrubbed(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let index = self.operation(id).request.extent;
        self.scrub_of(index).pieces.retain(|piece| piece.id != id);
        self.conclude(id, Ok(Content::Data), effects);
        self.go_on_scrubbing(index, effects);
    }

    /// Moves the section that is being scrubbed forward as far as possible now.
    pub(super) fn go_on_scrubbing(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let Some(checksums) =
            self.extents.get_mut(index as usize).and_then(|extent| extent.checksums.as_mut())
        else {
            return;
        };
        let Some(scrub) = &checksums.scrub else { return };
        let (can_validate, section) = (scrub.can_validate(), scrub.report.section);
        let is_valid = |slot: usize| checksums.is_valid(slot, section);
        match scrub.progress {
            Progress::Examining if scrub.next_piece == PIECES && scrub.pieces.is_empty() => {
                match can_validate {
                    true => {
                        self.scrub_of(index).progress = Progress::Flushing;
                        self.flush_for(Purpose::WriteHeaders(index), effects);
                    }
                    false => self.section_scrubbed(index, effects),
                }
            }
            Progress::Invalidating => self.store_block_checksums(index, effects),
            Progress::Validating if !can_validate || scrub.storing.iter().all(is_valid) => {
                self.section_scrubbed(index, effects);
            }
            _ => {}
        }
    }

    /// Continues after the flush: the data that was read is stable, or the replica that could not make it
    /// stable has failed.
    pub(super) fn flushed_for_checksums(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let checksums = self.extents.get_mut(index as usize).and_then(|extent| extent.checksums.as_mut());
        let Some(checksums) = checksums else { return };
        let Some(mut scrub) = checksums.scrub.take_if(|scrub| scrub.progress == Progress::Flushing) else {
            return;
        };
        scrub.progress = Progress::Invalidating;
        let section = scrub.report.section;
        let is_other = |slot: &usize| scrub.loaded[*slot].as_ref() != Some(&scrub.block_checksums);
        scrub.storing = scrub.examined.iter().filter(is_other).collect();
        scrub.storing.iter().for_each(|slot| checksums.want(slot, section, false));
        checksums.scrub = Some(scrub);
        self.write_checksum_headers(index, effects);
        self.store_block_checksums(index, effects);
    }

    /// Has the checksums written, once none of those that they replace is valid.
    fn store_block_checksums(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let checksums = self.checksums_of(index);
        let Some(scrub) = &checksums.scrub else { return };
        let (section, mut slots) = (scrub.report.section, scrub.storing);
        slots.iter().filter(|slot| !scrub.examined.contains(*slot)).for_each(|slot| slots.remove(slot));
        if !scrub.can_validate() || slots.is_empty() {
            return self.section_scrubbed(index, effects);
        }
        let one = super::Sections::one(section);
        if slots.iter().any(|slot| checksums.may_be(slot).meets(one)) {
            return;
        }
        let scrub = self.scrub_of(index);
        (scrub.progress, scrub.storing) = (Progress::Storing, slots);
        let work = ChecksumWork::Store { section, slots, block_checksums: scrub.block_checksums.clone() };
        effects.push(Effect::ChecksumWork { extent: index, work: Box::new(work) });
    }

    /// Takes the result of a task on the checksum files.
    pub fn kept(&mut self, index: u32, kept: ChecksumResult, effects: &mut Vec<Effect>) {
        match kept {
            ChecksumResult::Loaded(block_checksums) => {
                let scrub = self.scrub_of(index);
                (scrub.loaded, scrub.progress) = (block_checksums, Progress::Examining);
            }
            ChecksumResult::Stored { failed } => self.block_checksums_stored(index, failed, effects),
            ChecksumResult::HeadersWritten { failed, dropped } => {
                self.checksum_headers_written(index, failed, dropped, effects)
            }
        }
        self.go_on_scrubbing(index, effects);
    }

    fn block_checksums_stored(&mut self, index: u32, failed: Slots, effects: &mut Vec<Effect>) {
        let checksums = self.checksums_of(index);
        let mut scrub = checksums.scrub.take().expect("a section is known until it is scrubbed");
        let slots = scrub.storing.iter().filter(|slot| !failed.contains(*slot));
        scrub.storing = slots.filter(|slot| scrub.examined.contains(*slot)).collect();
        scrub.progress = Progress::Validating;
        if scrub.can_validate() {
            scrub.storing.iter().for_each(|slot| checksums.want(slot, scrub.report.section, true));
        }
        checksums.scrub = Some(scrub);
        self.write_checksum_headers(index, effects);
    }

    fn section_scrubbed(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let checksums = self.checksums_of(index);
        let Some(mut scrub) = checksums.scrub.take() else { return };
        let section = scrub.report.section;
        scrub.report.is_valid = (0..REPLICA_SLOTS_MAX).any(|slot| checksums.is_valid(slot, section));
        effects.push(Effect::Scrubbed { extent: index, report: Box::new(scrub.report) });
        self.write_checksum_headers(index, effects);
    }

    /// Writes the checksum headers if the wanted ones differ from the recorded. Each extent has one write
    /// under way at a time.
    pub(super) fn write_checksum_headers(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let extent = &mut self.extents[index as usize];
        let (in_sync, stale) = (extent.in_sync(), extent.with(super::ReplicaState::Stale));
        if let Some(checksums) =
            extent.checksums.as_mut().and_then(|checksums| checksums.next_header_write(in_sync, stale))
        {
            effects.push(Effect::ChecksumWork {
                extent: index,
                work: Box::new(ChecksumWork::WriteHeaders(checksums)),
            });
        }
    }

    /// Handles the end of a header write. If another replica in sync has the headers, the replicas without
    /// them are failed. Otherwise no replica is failed, and the changes that wait for the headers fail. The
    /// headers are written again by [`Mirror::retry_refused`], and before the next change that needs them.
    fn checksum_headers_written(
        &mut self,
        index: u32,
        failed: Slots,
        dropped: Slots,
        effects: &mut Vec<Effect>,
    ) {
        let extent = &self.extents[index as usize];
        let is_refused = !failed.is_empty() && extent.in_sync().without(failed).is_empty();
        self.checksums_of(index).header_written(failed, dropped);
        if is_refused {
            self.refused_headers.insert(index);
            self.fail_invalidating(index, effects);
        }
        for slot in failed.iter().filter(|_| !is_refused) {
            let mut actions = Vec::new();
            self.replicas[slot].fail_replica(index, &mut actions);
            self.take(slot, actions, effects);
        }
        if !is_refused {
            self.refused_headers.remove(&index);
            self.write_checksum_headers(index, effects);
        }
        self.go_on_invalidating(index, effects);
    }

    /// Fails changes that wait until the checksums of their ranges are invalid.
    fn fail_invalidating(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let running = self.extents[index as usize].running.iter().copied();
        let waits = |id: &MirrorId| {
            self.operations[id.0 as usize].is_some_and(|operation| operation.stage == Stage::Invalidating)
        };
        let waiting: Vec<MirrorId> = running.filter(waits).collect();
        waiting.into_iter().for_each(|id| self.conclude(id, Err(Fault::Broken), effects));
    }

    /// Writes the checksum headers again that could not be written beside any replica in sync.
    pub(super) fn retry_checksum_headers(&mut self, effects: &mut Vec<Effect>) {
        for index in std::mem::take(&mut self.refused_headers) {
            if self.extents.get(index as usize).is_some_and(|extent| extent.checksums.is_some()) {
                self.write_checksum_headers(index, effects);
            }
        }
    }

    /// Lets changes continue that waited until the checksums of their ranges are invalid.
    pub(super) fn go_on_invalidating(&mut self, index: u32, effects: &mut Vec<Effect>) {
        if self.extents[index as usize].checksums.is_none() {
            return;
        }
        for id in self.extents[index as usize].running.clone() {
            if self.operations[id.0 as usize].is_some_and(|operation| operation.stage == Stage::Invalidating)
            {
                self.invalidate_checksums(id, effects);
            }
        }
    }

    /// Begins a change once the checksums of its range are durably invalid.
    pub(super) fn invalidate_checksums(&mut self, id: MirrorId, effects: &mut Vec<Effect>) {
        let request = self.operation(id).request;
        let extent = self.extent_of(id);
        let in_sync = extent.in_sync();
        let is_free = extent.checksums.as_mut().is_none_or(|checksums| {
            checksums.change(&request);
            checksums.is_free(&request, in_sync)
        });
        if is_free {
            return self.begin_change(id, effects);
        }
        self.operation(id).stage = Stage::Invalidating;
        self.write_checksum_headers(request.extent, effects);
    }

    /// True if no checksum is valid beside a replica that is to be promoted. Otherwise the checksums are
    /// invalidated.
    pub(super) fn has_no_valid_checksums(
        &mut self,
        index: u32,
        slot: usize,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let checksums = self.extents[index as usize].checksums.as_ref();
        let has_no_valid_checksums = checksums.is_none_or(|checksums| checksums.may_be(slot).is_empty());
        if !has_no_valid_checksums {
            self.write_checksum_headers(index, effects);
        }
        has_no_valid_checksums
    }
}

impl MirroredExtent {
    /// True if a section of the extent is being scrubbed: changes must then wait for its pieces.
    pub(super) fn is_scrubbed(&self) -> bool {
        self.checksums.as_ref().is_some_and(|checksums| checksums.scrub.is_some())
    }
}
