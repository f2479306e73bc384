//! Section scrub state: the pieces of a section that is being scrubbed, the checksums found, and the decision
//! for each block.
//!
//! This module knows no executor and starts nothing; [`super::scrub`] does that.

use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES, PIECE_BYTES, REPLICA_SLOTS_MAX, SECTION_BYTES};

use super::checksum_state::{Damaged, ExtentChecksums};
use super::verdict::{Past, Sighting, Verdict, verdict};
use super::{MirrorId, Slots};

/// Number of sections of one extent.
pub const SECTIONS: u32 = (EXTENT_BYTES / SECTION_BYTES) as u32;
/// Number of blocks of one section, each with a stored checksum.
pub const SECTION_BLOCKS: usize = (SECTION_BYTES / BLOCK_BYTES) as usize;
/// Number of pieces of one section.
pub(super) const PIECES: u32 = (SECTION_BYTES / PIECE_BYTES) as u32;
/// Number of blocks of one piece.
pub(super) const PIECE_BLOCKS: usize = (PIECE_BYTES / BLOCK_BYTES) as usize;

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
pub(super) enum Progress {
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
pub(super) struct SectionScrub {
    pub progress: Progress,
    /// Next piece to examine.
    pub next_piece: u32,
    pub pieces: Vec<Piece>,
    /// By replica, the valid checksums stored beside it.
    pub loaded: [Option<Vec<u32>>; REPLICA_SLOTS_MAX],
    /// Expected checksums of the blocks, as far as they were examined.
    pub block_checksums: Vec<u32>,
    /// Replicas that could be read in all pieces so far.
    pub examined: Slots,
    /// Replicas beside which checksums are being written.
    pub storing: Slots,
    /// Pieces that have changed since the scrub began, one bit each.
    pub changed: u128,
    /// True if the section holds data that was read, so that checksums are worth storing.
    pub has_data: bool,
    pub is_decided: bool,
    pub report: SectionReport,
}

impl SectionScrub {
    pub fn new(section: u32, slots: Slots, zero_sum: u32) -> SectionScrub {
        SectionScrub {
            progress: Progress::Loading,
            next_piece: 0,
            pieces: Vec::new(),
            loaded: Default::default(),
            block_checksums: vec![zero_sum; SECTION_BLOCKS],
            examined: slots,
            storing: Slots::default(),
            changed: 0,
            has_data: false,
            is_decided: true,
            report: SectionReport { section, ..SectionReport::default() },
        }
    }

    pub fn start(&self) -> u32 {
        self.report.section * SECTION_BYTES as u32
    }

    /// Notes a change of a range of the extent.
    pub fn change(&mut self, offset: u32, length: u32) {
        let (start, piece) = (self.start(), PIECE_BYTES as u32);
        let first = (offset.max(start) - start) / piece;
        let end = (offset + length).saturating_sub(start).div_ceil(piece).min(PIECES);
        (first..end).for_each(|piece| self.changed |= 1 << piece);
    }

    /// Checksum stored beside a replica for a block of the section, unless the block may have changed since.
    fn kept(&self, slot: usize, block: usize) -> Option<u32> {
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

    pub fn piece(&mut self, id: MirrorId) -> &mut Piece {
        self.pieces.iter_mut().find(|piece| piece.id == id).expect("a piece is known until it ends")
    }
}

/// A piece that is being examined.
#[derive(Debug)]
pub(super) struct Piece {
    pub id: MirrorId,
    /// First block of the piece, within the section.
    pub first: usize,
    /// Current move.
    pub move_: Move,
    pub slot: usize,
    /// Replicas that were read or could not be read.
    pub seen: Slots,
    /// By replica, the checksums of the data that was read.
    pub found: [Option<Vec<u32>>; REPLICA_SLOTS_MAX],
    pub repairs: Vec<Repair>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// A replica is being read.
    Read,
    /// The repair data for a bad replica is being read from a good one.
    Fetch,
    /// The repair data is being written to the bad replica.
    Mend,
}

/// A repair: consecutive blocks of one replica that are rewritten from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    pub slot: usize,
    pub source: usize,
    /// First block of the repair, within the section.
    pub first: usize,
    pub count: usize,
}

impl SectionScrub {
    /// Decides about one block of a piece that was read from these replicas.
    pub fn judge(&mut self, piece: &mut Piece, block: usize, seen: Slots, checksums: &mut ExtentChecksums) {
        let place = piece.first + block;
        let number = self.report.section * SECTION_BLOCKS as u32 + place as u32;
        let sighting = |slot: usize| {
            let found = piece.found[slot].as_ref().and_then(|block_checksums| block_checksums.get(block))?;
            Some(Sighting { slot, found: *found, kept: self.kept(slot, place) })
        };
        let sightings: Vec<Sighting> = seen.iter().filter_map(sighting).collect();
        let past = match checksums.listed(number) {
            None => Past::Sound,
            Some(Damaged { expected: Some(expected), .. }) => Past::Expected(expected),
            Some(Damaged { expected: None, .. }) => Past::Undecided,
        };
        self.report.checked += sightings.len() as u64;
        match verdict(&sightings, past) {
            Verdict::Good(checksum) => {
                self.block_checksums[place] = checksum;
                checksums.forget_damage(number);
            }
            Verdict::Repair { checksum, good } => {
                self.block_checksums[place] = checksum;
                checksums.forget_damage(number);
                self.order_repairs(piece, place, seen, good);
            }
            Verdict::Damaged(expected) => {
                self.block_checksums[place] = expected;
                self.note_damage(Damaged { block: number, expected: Some(expected) }, checksums);
            }
            Verdict::Undecided => {
                self.is_decided = false;
                self.note_damage(Damaged { block: number, expected: None }, checksums);
            }
        }
    }

    fn note_damage(&mut self, damaged: Damaged, checksums: &mut ExtentChecksums) {
        self.report.damaged += 1;
        self.report.first_damaged.get_or_insert(damaged.block);
        checksums.note_damage(damaged);
    }

    /// Orders repairs of all bad replicas of a block from the first good one.
    fn order_repairs(&mut self, piece: &mut Piece, place: usize, seen: Slots, good: Slots) {
        let source = good.iter().next().expect("a repair has a source");
        let number = self.report.section * SECTION_BLOCKS as u32 + place as u32;
        self.report.first_found.get_or_insert(number);
        for slot in seen.iter().filter(|slot| !good.contains(*slot)) {
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
}
