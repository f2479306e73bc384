//! Section scrub state: the pieces of a section that is being scrubbed, the checksums found, and the decision
//! for each block.
//!
//! This module knows no executor and starts nothing; [`scrub`](crate::mirror::scrub) does that.

use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES, PIECE_BYTES, REPLICA_SLOTS_MAX, SECTION_BYTES};

use super::headers::{Damaged, HeaderState};
use super::verdict::{Past, Sighting, Verdict, verdict};
use crate::action::Kind;
use crate::mirror::mirror_id::MirrorId;
use crate::mirror::slots::Slots;

/// Number of sections of one extent.
pub const SECTIONS: u32 = (EXTENT_BYTES / SECTION_BYTES) as u32;
/// Number of blocks of one section, each with a stored checksum.
pub const SECTION_BLOCKS: usize = (SECTION_BYTES / BLOCK_BYTES) as usize;
/// Number of pieces of one section.
const PIECES: u32 = (SECTION_BYTES / PIECE_BYTES) as u32;
/// Number of blocks of one piece.
const PIECE_BLOCKS: usize = (PIECE_BYTES / BLOCK_BYTES) as usize;

/// Result of the scrub of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SectionReport {
    /// Section of the extent.
    pub section: u32,
    /// Number of block replicas that were examined. Blocks that were never written on any replica do not
    /// count.
    pub checked: u64,
    /// By replica, the number of blocks found bad that are good on another replica.
    pub found: [u64; REPLICA_SLOTS_MAX],
    /// By replica, the number of bad blocks that were rewritten from a good replica.
    pub repaired: [u64; REPLICA_SLOTS_MAX],
    /// First bad block, for the event record.
    pub first_found: Option<u32>,
    /// Number of blocks without any replica that is known to be good.
    pub damaged: u64,
    /// First damaged block.
    pub first_damaged: Option<u32>,
    /// True if the section's checksums are valid beside any replica now.
    pub is_valid: bool,
}

/// Progress of the scrub of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The stored checksums of the section are being read.
    Loading,
    /// Pieces are being examined.
    Examining,
    /// The data that was read is being made stable.
    Flushing,
    /// Checksums that will be replaced are being invalidated.
    Invalidating,
    /// New checksums are being written.
    Storing,
    /// The new checksums are about to become valid.
    Validating,
}

/// A section that is being scrubbed.
#[derive(Debug)]
pub(in crate::mirror) struct SectionScrub {
    progress: Progress,
    /// Next piece to examine.
    next_piece: u32,
    pieces: Vec<Piece>,
    /// By replica, the valid checksums stored beside it.
    loaded: [Option<Vec<u32>>; REPLICA_SLOTS_MAX],
    /// Expected checksums of the blocks, as far as they were examined.
    block_checksums: Vec<u32>,
    /// Replicas that could be read in all pieces so far.
    examined: Slots,
    /// Replicas beside which checksums are being written.
    storing: Slots,
    /// Pieces that have changed since the scrub began, one bit each.
    changed: u128,
    /// True if the section holds data that was read, so that checksums are worth storing.
    has_data: bool,
    is_decided: bool,
    report: SectionReport,
}

/// A piece that is being examined.
#[derive(Debug)]
struct Piece {
    id: MirrorId,
    /// First block of the piece, within the section.
    first: usize,
    /// Current move.
    move_: Move,
    slot: usize,
    /// Replicas that were read or could not be read.
    seen: Slots,
    /// By replica, the checksums of the data that was read.
    found: [Option<Vec<u32>>; REPLICA_SLOTS_MAX],
    repairs: Vec<Repair>,
}

/// Move of a piece: one operation of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mirror) enum Move {
    /// A replica is being read.
    Read,
    /// The repair data for a bad replica is being read from a good one.
    Fetch,
    /// The repair data is being written to the bad replica.
    Mend,
}

/// The operation of a move.
#[derive(Clone, Copy, Debug)]
pub(in crate::mirror) struct PieceOperation {
    pub slot: usize,
    pub kind: Kind,
    /// Offset in the extent, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub length: u32,
}

/// Next step of the repairs of a piece.
#[derive(Clone, Copy, Debug)]
pub(in crate::mirror) enum NextRepair {
    /// All repairs were made or given up.
    Nothing,
    /// The replica or its source cannot be read any more.
    Impossible,
    /// The data of the next repair is read.
    Fetch(PieceOperation),
}

/// Meaning of the checksums that were computed for a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mirror) enum Computed {
    /// They are those of a replica that is examined.
    Examined,
    /// The data for a repair has the expected ones.
    RepairDataIsGood,
    /// An earlier read returned other data: only data that is known to be good is written to a replica.
    RepairDataIsBad,
}

/// A repair: consecutive blocks of one replica that are rewritten from another.
#[derive(Clone, Copy, Debug)]
struct Repair {
    slot: usize,
    source: usize,
    /// First block of the repair, within the section.
    first: usize,
    count: usize,
}

/// Offset of a block of a section, in bytes from the start of the section.
fn bytes_of(blocks: usize) -> u32 {
    blocks as u32 * BLOCK_BYTES as u32
}

impl SectionScrub {
    /// Begins the scrub of a section of these replicas. `zero_checksum` is that of a block of zeroes. If
    /// stored checksums are valid, they are loaded first.
    pub fn new(section: u32, slots: Slots, zero_checksum: u32, has_valid: bool) -> SectionScrub {
        SectionScrub {
            progress: if has_valid { Progress::Loading } else { Progress::Examining },
            next_piece: 0,
            pieces: Vec::new(),
            loaded: Default::default(),
            block_checksums: vec![zero_checksum; SECTION_BLOCKS],
            examined: slots,
            storing: Slots::default(),
            changed: 0,
            has_data: false,
            is_decided: true,
            report: SectionReport { section, ..SectionReport::default() },
        }
    }

    /// Section of the extent.
    pub fn section(&self) -> u32 {
        self.report.section
    }

    fn start(&self) -> u32 {
        self.report.section * SECTION_BYTES as u32
    }

    /// Notes a change of a range of the extent.
    pub fn change(&mut self, offset: u32, length: u32) {
        let (start, piece) = (self.start(), PIECE_BYTES as u32);
        let first = (offset.max(start) - start) / piece;
        let end = (offset + length).saturating_sub(start).div_ceil(piece).min(PIECES);
        (first..end).for_each(|piece| self.changed |= 1 << piece);
    }

    /// Notes that a replica is no longer in sync, or could not be read: its checksums do not become valid.
    pub fn lose(&mut self, slot: usize) {
        self.examined.remove(slot);
    }

    /// Notes that the header beside a replica could not be written: its checksums do not become valid.
    pub fn header_failed(&mut self, slot: usize) {
        self.examined.remove(slot);
        self.storing.remove(slot);
    }

    /// Takes the checksums that are stored beside each replica.
    pub fn take_loaded(&mut self, loaded: [Option<Vec<u32>>; REPLICA_SLOTS_MAX]) {
        (self.loaded, self.progress) = (loaded, Progress::Examining);
    }

    /// True if valid checksums of the section are stored beside any replica.
    pub fn has_stored_checksums(&self) -> bool {
        self.loaded.iter().any(Option::is_some)
    }

    /// Replicas that could be read in all pieces so far.
    pub fn examined(&self) -> Slots {
        self.examined
    }

    /// Checksum stored beside a replica for a block of the section, unless the block may have changed since.
    fn stored(&self, slot: usize, block: usize) -> Option<u32> {
        let is_changed = self.changed & (1 << (block / PIECE_BLOCKS)) != 0;
        self.loaded[slot]
            .as_ref()
            .filter(|_| !is_changed)
            .and_then(|block_checksums| block_checksums.get(block).copied())
    }

    /// True if the checksums of the section may become valid.
    pub fn can_validate(&self) -> bool {
        self.changed == 0 && self.has_data && self.is_decided && !self.examined.is_empty()
    }

    /// True if a piece can be examined now.
    pub fn has_piece(&self) -> bool {
        self.progress == Progress::Examining && self.next_piece < PIECES
    }

    /// Takes the next piece: its first block, and its offset in the extent.
    pub fn next_piece(&mut self) -> (usize, u32) {
        let piece = self.next_piece;
        self.next_piece += 1;
        (piece as usize * PIECE_BLOCKS, self.start() + piece * PIECE_BYTES as u32)
    }

    /// Begins to examine a piece from its first block on.
    pub fn begin_piece(&mut self, id: MirrorId, first: usize) {
        self.pieces.push(Piece {
            id,
            first,
            move_: Move::Read,
            slot: 0,
            seen: Slots::default(),
            found: Default::default(),
            repairs: Vec::new(),
        });
    }

    /// Ends a piece.
    pub fn end_piece(&mut self, id: MirrorId) {
        self.pieces.retain(|piece| piece.id != id);
    }

    /// Examines no more pieces. The checksums of the section do not become valid.
    pub fn abandon(&mut self) {
        self.next_piece = PIECES;
        self.is_decided = false;
    }

    /// True if all pieces were examined, and nothing follows yet.
    pub fn is_examined(&self) -> bool {
        self.progress == Progress::Examining && self.next_piece == PIECES && self.pieces.is_empty()
    }

    fn piece(&mut self, id: MirrorId) -> &mut Piece {
        self.pieces.iter_mut().find(|piece| piece.id == id).expect("a piece is known until it ends")
    }

    fn known_piece(&self, id: MirrorId) -> &Piece {
        self.pieces.iter().find(|piece| piece.id == id).expect("a piece is known until it ends")
    }

    /// Current move of a piece.
    pub fn current_move(&self, id: MirrorId) -> Move {
        self.known_piece(id).move_
    }

    /// Begins a move of a piece on some of its blocks.
    fn begin_move(
        &mut self,
        id: MirrorId,
        (move_, slot): (Move, usize),
        (first, count): (usize, usize),
    ) -> PieceOperation {
        let offset = self.start() + bytes_of(first);
        let piece = self.piece(id);
        (piece.move_, piece.slot) = (move_, slot);
        let kind = match move_ {
            Move::Read | Move::Fetch => Kind::Read,
            Move::Mend => Kind::Write { is_durable: false },
        };
        PieceOperation { slot, kind, offset, length: bytes_of(count) }
    }

    /// Reads the next replica of a piece; `None` if all readable ones were seen.
    pub fn next_read(&mut self, id: MirrorId, readable: Slots) -> Option<PieceOperation> {
        let piece = self.piece(id);
        let slot = readable.without(piece.seen).first()?;
        piece.seen.insert(slot);
        let blocks = (piece.first, PIECE_BLOCKS);
        Some(self.begin_move(id, (Move::Read, slot), blocks))
    }

    /// Notes that the replica of the current move could not be read.
    pub fn read_failed(&mut self, id: MirrorId) {
        let slot = self.piece(id).slot;
        self.examined.remove(slot);
    }

    /// Offset in the extent and number of the blocks that were last read for a piece.
    pub fn last_read(&self, id: MirrorId) -> (u32, usize) {
        let piece = self.known_piece(id);
        let (first, count) = match (piece.move_, piece.repairs.last()) {
            (Move::Fetch, Some(repair)) => (repair.first, repair.count),
            _ => (piece.first, PIECE_BLOCKS),
        };
        (self.start() + bytes_of(first), count)
    }

    /// Takes the checksums of the blocks that were last read for a piece.
    pub fn take_computed(&mut self, id: MirrorId, block_checksums: &[u32]) -> Computed {
        let piece = self.piece(id);
        if piece.move_ == Move::Read {
            piece.found[piece.slot] = Some(block_checksums.to_vec());
            return Computed::Examined;
        }
        let repair = *piece.repairs.last().expect("a repair is known until it is made");
        match self.block_checksums[repair.first..repair.first + repair.count] == *block_checksums {
            true => Computed::RepairDataIsGood,
            false => Computed::RepairDataIsBad,
        }
    }

    /// Decides which blocks of a piece are good, once all readable replicas were read, and orders the
    /// repairs.
    pub fn decide(&mut self, id: MirrorId, readable: Slots, headers: &mut HeaderState) {
        let place = self.pieces.iter().position(|piece| piece.id == id);
        let mut piece = self.pieces.swap_remove(place.expect("a piece is known until it ends"));
        let seen = readable.filter(|slot| piece.found[slot].is_some());
        self.examined = self.examined.both(seen);
        if !seen.is_empty() {
            (0..PIECE_BLOCKS).for_each(|block| self.judge(&mut piece, block, seen, headers));
            self.has_data = true;
        }
        self.pieces.push(piece);
    }

    /// Decides about one block of a piece that was read from these replicas.
    fn judge(&mut self, piece: &mut Piece, block: usize, seen: Slots, headers: &mut HeaderState) {
        let place = piece.first + block;
        let number = self.report.section * SECTION_BLOCKS as u32 + place as u32;
        let sighting = |slot: usize| {
            let found = piece.found[slot].as_ref().and_then(|block_checksums| block_checksums.get(block))?;
            Some(Sighting { slot, found: *found, stored: self.stored(slot, place) })
        };
        let sightings: Vec<Sighting> = seen.iter().filter_map(sighting).collect();
        let past = match headers.listed(number) {
            None => Past::Sound,
            Some(Damaged { expected: Some(expected), .. }) => Past::Expected(expected),
            Some(Damaged { expected: None, .. }) => Past::Undecided,
        };
        self.report.checked += sightings.len() as u64;
        match verdict(&sightings, past) {
            Verdict::Good(checksum) => {
                self.block_checksums[place] = checksum;
                headers.forget_damage(number);
            }
            Verdict::Repair { checksum, good } => {
                self.block_checksums[place] = checksum;
                headers.forget_damage(number);
                self.order_repairs(piece, place, seen, good);
            }
            Verdict::Damaged(expected) => {
                self.block_checksums[place] = expected;
                self.note_damage(Damaged { block: number, expected: Some(expected) }, headers);
            }
            Verdict::Undecided => {
                self.is_decided = false;
                self.note_damage(Damaged { block: number, expected: None }, headers);
            }
        }
    }

    fn note_damage(&mut self, damaged: Damaged, headers: &mut HeaderState) {
        self.report.damaged += 1;
        self.report.first_damaged.get_or_insert(damaged.block);
        headers.note_damage(damaged);
    }

    /// Orders repairs of all bad replicas of a block from the first good one.
    fn order_repairs(&mut self, piece: &mut Piece, place: usize, seen: Slots, good: Slots) {
        let source = good.first().expect("a repair has a source");
        let number = self.report.section * SECTION_BLOCKS as u32 + place as u32;
        self.report.first_found.get_or_insert(number);
        for slot in seen.without(good).iter() {
            self.report.found[slot] += 1;
            let is_next = |repair: &&mut Repair| {
                (repair.slot, repair.source, repair.first + repair.count) == (slot, source, place)
            };
            match piece.repairs.iter_mut().find(is_next) {
                Some(repair) => repair.count += 1,
                None => piece.repairs.push(Repair { slot, source, first: place, count: 1 }),
            }
        }
    }

    /// Begins the next repair of a piece by reading its data.
    pub fn next_repair(&mut self, id: MirrorId, readable: Slots) -> NextRepair {
        let Some(repair) = self.piece(id).repairs.last().copied() else { return NextRepair::Nothing };
        if !readable.contains(repair.slot) || !readable.contains(repair.source) {
            return NextRepair::Impossible;
        }
        NextRepair::Fetch(self.begin_move(id, (Move::Fetch, repair.source), (repair.first, repair.count)))
    }

    /// Writes the data of the current repair.
    pub fn mend(&mut self, id: MirrorId) -> PieceOperation {
        let repair = *self.piece(id).repairs.last().expect("a repair is known until it is made");
        self.begin_move(id, (Move::Mend, repair.slot), (repair.first, repair.count))
    }

    /// Ends the current repair. If it failed, the checksums of the repaired replica do not become valid.
    pub fn end_repair(&mut self, id: MirrorId, is_made: bool) {
        if let Some(Repair { slot, count, .. }) = self.piece(id).repairs.pop() {
            match is_made {
                true => self.report.repaired[slot] += count as u64,
                false => self.examined.remove(slot),
            }
        }
    }

    /// The data that was read is about to be made stable.
    pub fn begin_flush(&mut self) {
        self.progress = Progress::Flushing;
    }

    /// Continues after the flush: replicas beside which other checksums are stored get new ones. `None` if no
    /// flush was waited for.
    pub fn flushed(&mut self) -> Option<Slots> {
        if self.progress != Progress::Flushing {
            return None;
        }
        self.progress = Progress::Invalidating;
        self.storing = self.examined.filter(|slot| self.loaded[slot].as_ref() != Some(&self.block_checksums));
        Some(self.storing)
    }

    /// True while checksums that will be replaced are being invalidated.
    pub fn is_invalidating(&self) -> bool {
        self.progress == Progress::Invalidating
    }

    /// True while new checksums are about to become valid.
    pub fn is_validating(&self) -> bool {
        self.progress == Progress::Validating
    }

    /// Replicas that were examined and beside which checksums are to be written.
    pub fn to_store(&self) -> Slots {
        self.storing.both(self.examined)
    }

    /// Replicas whose new checksums are being written or validated.
    pub fn storing(&self) -> Slots {
        self.storing
    }

    /// Begins to write the checksums beside these replicas, and returns them.
    pub fn begin_storing(&mut self, slots: Slots) -> Vec<u32> {
        (self.progress, self.storing) = (Progress::Storing, slots);
        self.block_checksums.clone()
    }

    /// Takes the end of that write. Returns the replicas whose checksums may become valid.
    pub fn stored_beside(&mut self, failed: Slots) -> Slots {
        self.storing = self.storing.without(failed).both(self.examined);
        self.progress = Progress::Validating;
        if self.can_validate() { self.storing } else { Slots::default() }
    }

    /// Ends the scrub.
    pub fn end(self, is_valid: bool) -> SectionReport {
        SectionReport { is_valid, ..self.report }
    }
}
