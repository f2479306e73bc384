//! Scrub: reading and comparing all replicas of an extent, section by section.
//!
//! A scrub rewrites bad blocks from a correct replica, and stores checksums of the blocks. While a piece is
//! examined, changes of it wait, as changes wait for each other; reads go on. A change elsewhere in the
//! section has one effect only: the section's checksums do not become valid. The executor computes and stores
//! checksums. This module decides the order of events, and the [checksum state](super::checksums) decides
//! which replicas are good:
//!
//! * The data that was read is made stable before its checksums become valid. Otherwise a power cut could
//!   leave older data.
//! * Checksums are written before they become valid. If they replace valid checksums, the old ones are
//!   invalidated before that.
//!
//! This module does not know which section is scrubbed when.

use weir_types::ExtentIndex;
use weir_types::bounds::{PIECE_BYTES, REPLICA_SLOTS_MAX};

use super::change_order::ChangeOrder;
use super::checksums::{
    ChecksumWork, Computed, Move, NextOfSection, NextRepair, PieceOperation, SectionScrub,
};
use super::effect::Effect;
use super::extents::Extents;
use super::flushes::{Flushes, Purpose};
use super::mirror_id::MirrorId;
use super::operation::{Operation, Operations, Work};
use super::replicas::Replicas;
use super::slots::Slots;
use super::steps::{Outcome, Step};
use crate::action::{Content, Kind, Request};

/// The state that a scrub may change.
pub(super) struct Scrub<'a> {
    pub extents: &'a mut Extents,
    pub operations: &'a mut Operations,
    pub replicas: &'a mut Replicas,
    pub order: &'a ChangeOrder,
    pub flushes: &'a mut Flushes,
    pub outcome: Outcome<'a>,
}

impl Scrub<'_> {
    /// Begins to scrub a section. Returns false if a scrub of the extent is under way or no replica can be
    /// read.
    pub fn begin_section(&mut self, index: ExtentIndex, section: u32, zero_checksum: u32) -> bool {
        let Some(extent) = self.extents.within_mut(index) else { return false };
        let Some(valid) = extent.begin_section(section, zero_checksum) else { return false };
        if !valid.is_empty() {
            let work = Box::new(ChecksumWork::Load { section, slots: valid });
            self.outcome.effect(Effect::ChecksumWork { extent: index, work });
        }
        true
    }

    /// Begins to examine the next piece of the section that is being scrubbed. Pieces that were never written
    /// are skipped; `None` if no piece is left.
    pub fn begin_piece(&mut self, index: ExtentIndex) -> Option<MirrorId> {
        while self.extents.within(index)?.scrub().is_some_and(SectionScrub::has_piece) {
            let (first, offset) = self.section(index).next_piece();
            let request = Request { kind: Kind::Read, extent: index, offset, length: PIECE_BYTES as u32 };
            if !self.is_untouched(&request) {
                let id = self.operations.add(Operation::new(request, Work::Scrub));
                self.section(index).begin_piece(id, first);
                self.outcome.step(Step::Enqueue(id));
                return Some(id);
            }
        }
        self.go_on(index);
        None
    }

    /// Abandons the scrub of the section: no more pieces are examined, and its checksums do not become valid.
    pub fn abandon_section(&mut self, index: ExtentIndex) {
        if self.extents.within(index).is_some_and(|extent| extent.scrub().is_some()) {
            self.section(index).abandon();
            self.go_on(index);
        }
    }

    /// True if a piece was never written, has no stored checksums and has no operation under way.
    fn is_untouched(&self, request: &Request) -> bool {
        let Request { extent: index, offset, length, .. } = *request;
        let extent = &self.extents[index];
        let Some(scrub) = extent.scrub() else { return false };
        let readable = extent.readable(offset, length);
        let is_hole = |slot: usize| self.replicas.is_hole(slot, index, offset, length);
        let is_nothing = scrub.examined().without(readable).is_empty() && readable.iter().all(is_hole);
        !scrub.has_stored_checksums()
            && is_nothing
            && !extent.awaits_authoritative_replica(request)
            && !self.order.is_busy(request, self.operations)
    }

    fn section(&mut self, index: ExtentIndex) -> &mut SectionScrub {
        let checksums = self.extents[index].checksums_mut();
        checksums.expect("an extent that is scrubbed has checksums").section_mut()
    }

    fn section_of(&mut self, id: MirrorId) -> &mut SectionScrub {
        self.section(self.operations[id].request.extent)
    }

    /// Reads the next replica of a piece, or decides once all replicas were read.
    pub fn examine(&mut self, id: MirrorId) {
        let request = self.operations[id].request;
        let extent = &self.extents[request.extent];
        let readable = match extent.awaits_authoritative_replica(&request) {
            true => Slots::default(),
            false => extent.readable(request.offset, request.length),
        };
        match self.section(request.extent).next_read(id, readable) {
            Some(read) => self.launch(id, read),
            None => {
                let checksums = self.extents[request.extent].checksums_mut();
                checksums.expect("an extent that is scrubbed has checksums").decide(id, readable);
                self.repair(id);
            }
        }
    }

    /// Starts a move of a piece on some of its blocks.
    fn launch(&mut self, id: MirrorId, PieceOperation { slot, kind, offset, length }: PieceOperation) {
        self.operations[id].run_move(kind, (offset, length));
        self.outcome.step(Step::Launch(id, Slots::one(slot)));
    }

    /// Handles the end of a move of a piece.
    pub fn ended(&mut self, id: MirrorId) {
        let operation = &self.operations[id];
        let (has_succeeded, content) = (!operation.succeeded().is_empty(), operation.content());
        if let Some((slot, operation)) = operation.source() {
            return self.outcome.effect(Effect::Examine { id, slot, operation, content });
        }
        match self.section_of(id).current_move(id) {
            Move::Read => {
                self.section_of(id).read_failed(id);
                self.examine(id);
            }
            Move::Fetch => self.end_repair(id, false),
            Move::Mend => self.end_repair(id, has_succeeded),
        }
    }

    /// Takes the checksums that the executor computed for the blocks that were read.
    pub fn examined(&mut self, id: MirrorId, block_checksums: &[u32]) {
        let operation = &mut self.operations[id];
        let content = operation.content();
        let (slot, operation) = operation.take_source().expect("what is examined was read");
        self.replicas.forget(slot, operation);
        self.outcome.effect(Effect::Ended { slot, operation });
        match self.section_of(id).take_computed(id, block_checksums) {
            Computed::Examined => self.examine(id),
            Computed::RepairDataIsBad => self.end_repair(id, false),
            Computed::RepairDataIsGood => {
                if content == Content::Hole {
                    self.outcome.effect(Effect::Zeroes { id });
                }
                let mend = self.section_of(id).mend(id);
                self.launch(id, mend);
            }
        }
    }

    /// Makes the next repair of a piece, or ends the piece.
    fn repair(&mut self, id: MirrorId) {
        let request = self.operations[id].request;
        let readable = self.extents[request.extent].readable(request.offset, request.length);
        match self.section(request.extent).next_repair(id, readable) {
            NextRepair::Fetch(fetch) => self.launch(id, fetch),
            NextRepair::Impossible => self.end_repair(id, false),
            NextRepair::Nothing => {
                self.section(request.extent).end_piece(id);
                self.outcome.step(Step::End(id, Ok(Content::Data)));
                self.outcome.step(Step::ContinueScrub(request.extent));
            }
        }
    }

    fn end_repair(&mut self, id: MirrorId, is_made: bool) {
        self.section_of(id).end_repair(id, is_made);
        self.repair(id);
    }

    /// Moves the section that is being scrubbed forward as far as possible now.
    pub fn go_on(&mut self, index: ExtentIndex) {
        let Some(checksums) = self.extents.within_mut(index).and_then(|extent| extent.checksums_mut()) else {
            return;
        };
        match checksums.next_of_section() {
            NextOfSection::Wait => {}
            NextOfSection::Store => self.store(index),
            NextOfSection::End => self.end_section(index),
            NextOfSection::Flush => {
                checksums.section_mut().begin_flush();
                let flush = self.flushes.add(Purpose::Scrub(index));
                self.outcome.step(Step::Flush(flush));
            }
        }
    }

    /// Continues after the flush: the data that was read is stable, or the replica that could not make it
    /// stable has failed.
    pub fn flushed(&mut self, index: ExtentIndex) {
        let checksums = self.extents.within_mut(index).and_then(|extent| extent.checksums_mut());
        if checksums.is_some_and(|checksums| checksums.section_flushed()) {
            self.extents.write_checksum_headers(index, self.outcome.effects);
            self.store(index);
        }
    }

    /// Has the checksums written, once none of those that they replace is valid.
    fn store(&mut self, index: ExtentIndex) {
        let Some(checksums) = self.extents[index].checksums_mut() else { return };
        match checksums.begin_storing() {
            Ok(work) => self.outcome.effect(Effect::ChecksumWork { extent: index, work: Box::new(work) }),
            Err(NextOfSection::End) => self.end_section(index),
            Err(_) => {}
        }
    }

    /// Takes the stored checksums that were loaded.
    pub fn loaded(&mut self, index: ExtentIndex, loaded: [Option<Vec<u32>>; REPLICA_SLOTS_MAX]) {
        self.section(index).take_loaded(loaded);
    }

    /// Takes the end of the write of checksums.
    pub fn stored(&mut self, index: ExtentIndex, failed: Slots) {
        let checksums = self.extents[index].checksums_mut();
        checksums.expect("an extent that is scrubbed has checksums").stored(failed);
        self.extents.write_checksum_headers(index, self.outcome.effects);
    }

    fn end_section(&mut self, index: ExtentIndex) {
        let checksums = self.extents[index].checksums_mut();
        if let Some(report) = checksums.and_then(|checksums| checksums.end_section()) {
            self.outcome.effect(Effect::Scrubbed { extent: index, report: Box::new(report) });
            self.extents.write_checksum_headers(index, self.outcome.effects);
        }
    }
}
