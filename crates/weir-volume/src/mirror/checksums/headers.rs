//! Checksum headers of an extent: the sections with valid checksums and the damaged blocks, as wanted and as
//! durably recorded beside each replica.
//!
//! Checksums of a section are *valid* for a replica while the checksums stored beside it match its data. They
//! become invalid durably before any data in the section changes. So a valid checksum always belongs to the
//! correct data, whatever a crash or a power cut leaves. A section with invalid checksums costs nothing more.
//! An extent that was never scrubbed has no valid checksums.
//!
//! This module does not know checksums themselves, files, or the course of a scrub.

use weir_types::bounds::{BLOCK_BYTES, DAMAGED_BLOCKS_MAX, REPLICA_SLOTS_MAX, SECTION_BYTES};

use crate::action::Request;
use crate::mirror::slots::Slots;

/// Sections of one extent, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sections(pub u64);

impl Sections {
    /// All sections.
    pub(in crate::mirror) const ALL: Sections = Sections(u64::MAX);

    /// Sections that a range of bytes touches.
    pub fn of(offset: u32, length: u32) -> Sections {
        let section = SECTION_BYTES as u32;
        let touched = offset / section..(offset + length).div_ceil(section);
        Sections(touched.fold(0, |bits, section| bits | 1 << section))
    }

    /// One section.
    pub fn one(section: u32) -> Sections {
        Sections(1 << section)
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if the sets have a section in common.
    pub fn meets(self, other: Sections) -> bool {
        self.0 & other.0 != 0
    }

    /// Union of both sets.
    pub fn with(self, other: Sections) -> Sections {
        Sections(self.0 | other.0)
    }

    /// Intersection of both sets.
    pub fn both(self, other: Sections) -> Sections {
        Sections(self.0 & other.0)
    }

    /// Sections of this set that are not in the other.
    pub fn without(self, other: Sections) -> Sections {
        Sections(self.0 & !other.0)
    }

    /// Number of sections.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

/// A block of which no replica has the correct content, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Damaged {
    /// Number of the block in the extent.
    pub block: u32,
    /// Correct checksum of the block. `None` if replicas differ and the correct one is unknown.
    pub expected: Option<u32>,
}

/// Durable checksum header beside one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChecksumHeader {
    /// Sections with valid checksums.
    pub valid: Sections,
    /// Damaged blocks of the extent, in order.
    pub damaged: Vec<Damaged>,
}

/// Header to write beside each replica; `None` where no write is needed.
pub type ChecksumHeaders = [Option<ChecksumHeader>; REPLICA_SLOTS_MAX];

/// The header write in progress.
#[derive(Debug)]
struct Writing {
    valid: [Option<Sections>; REPLICA_SLOTS_MAX],
    damaged: Vec<Damaged>,
}

/// Checksum headers of one extent, as they should be and as they durably are.
#[derive(Debug, Default)]
pub(in crate::mirror) struct HeaderState {
    /// Sections, by replica, whose checksums should be valid.
    wanted: [Sections; REPLICA_SLOTS_MAX],
    /// Sections, by replica, whose checksums are durably valid.
    recorded: [Sections; REPLICA_SLOTS_MAX],
    damaged: Vec<Damaged>,
    damaged_recorded: Vec<Damaged>,
    writing: Option<Writing>,
}

impl HeaderState {
    /// Takes the header that was found beside a replica. It counts only if the replica is in sync. Otherwise
    /// its valid sections must be removed durably.
    pub fn found(&mut self, slot: usize, header: ChecksumHeader, is_in_sync: bool) {
        self.recorded[slot] = header.valid;
        if is_in_sync {
            self.wanted[slot] = header.valid;
            for damaged in header.damaged {
                self.note_damage(damaged);
                if !self.damaged_recorded.contains(&damaged) {
                    self.damaged_recorded.push(damaged);
                }
            }
            self.damaged_recorded.sort_by_key(|damaged| damaged.block);
        }
    }

    /// Invalidates the checksums of a replica that is no longer in sync or is replaced.
    pub fn lose(&mut self, slot: usize) {
        self.wanted[slot] = Sections::default();
    }

    /// Assumes that any header may lie beside a replica, because the replica was out of reach.
    pub fn distrust(&mut self, slot: usize) {
        self.lose(slot);
        self.recorded[slot] = Sections::ALL;
    }

    /// Sections whose checksums may be durably valid beside a replica now, or become so by the write in
    /// progress.
    pub fn may_be_valid(&self, slot: usize) -> Sections {
        let writing = self.writing.as_ref().and_then(|writing| writing.valid[slot]);
        self.recorded[slot].with(writing.unwrap_or_default())
    }

    /// Forgets which damaged blocks are durably listed, because the headers are unknown.
    pub fn distrust_damage(&mut self) {
        self.damaged_recorded.clear();
    }

    /// True if the checksums of a section of a replica are valid, durably and with no invalidation pending.
    pub fn is_valid(&self, slot: usize, section: u32) -> bool {
        let section = Sections::one(section);
        self.wanted[slot].meets(section) && self.recorded[slot].meets(section)
    }

    /// Makes the checksums of a section of a replica wanted as valid or invalid.
    pub fn want(&mut self, slot: usize, section: u32, is_valid: bool) {
        let (wanted, section) = (&mut self.wanted[slot], Sections::one(section));
        *wanted = if is_valid { wanted.with(section) } else { wanted.without(section) };
    }

    /// Invalidates the range of a change that is about to begin.
    pub fn change(&mut self, request: &Request) {
        let touched = Sections::of(request.offset, request.length);
        self.wanted.iter_mut().for_each(|wanted| *wanted = wanted.without(touched));
        if self.damaged.is_empty() {
            return;
        }
        self.damaged.retain(|damaged| !covers(request, damaged.block));
        // A partly overwritten block stays damaged, but its correct checksum is unknown now.
        let partly = self.damaged.iter_mut().filter(|damaged| touches(request, damaged.block));
        partly.for_each(|damaged| damaged.expected = None);
    }

    /// True if no header beside these replicas says anything of a range that a change would make untrue.
    pub fn is_free(&self, request: &Request, slots: Slots) -> bool {
        let touched = Sections::of(request.offset, request.length);
        if slots.iter().any(|slot| self.may_be_valid(slot).meets(touched)) {
            return false;
        }
        if slots.is_empty() {
            return true;
        }
        let writing = self.writing.iter().flat_map(|writing| &writing.damaged);
        let mut said =
            self.damaged_recorded.iter().chain(writing).filter(|damaged| touches(request, damaged.block));
        said.all(|damaged| self.damaged.contains(damaged))
    }

    /// Damaged blocks, in order.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    /// Entry of a block that was found damaged before.
    pub fn listed(&self, block: u32) -> Option<Damaged> {
        let place = self.damaged.binary_search_by_key(&block, |damaged| damaged.block);
        place.ok().map(|place| self.damaged[place])
    }

    /// Lists a block as damaged.
    pub fn note_damage(&mut self, damaged: Damaged) {
        match self.damaged.binary_search_by_key(&damaged.block, |known| known.block) {
            Ok(place) => self.damaged[place] = damaged,
            Err(place) if self.damaged.len() < DAMAGED_BLOCKS_MAX => self.damaged.insert(place, damaged),
            Err(_) => {}
        }
    }

    /// Removes a block from the damaged ones, because it is correct.
    pub fn forget_damage(&mut self, block: u32) {
        self.damaged.retain(|damaged| damaged.block != block);
    }

    /// Headers to write beside replicas in sync and stale ones, unless a write is in progress.
    pub fn next_header_write(&mut self, in_sync: Slots, stale: Slots) -> Option<ChecksumHeaders> {
        if self.writing.is_some() {
            return None;
        }
        let is_listed = self.damaged == self.damaged_recorded;
        let valid: [Option<Sections>; REPLICA_SLOTS_MAX] = std::array::from_fn(|slot| {
            let is_due = self.wanted[slot] != self.recorded[slot];
            let is_due = is_due && stale.contains(slot) || (is_due || !is_listed) && in_sync.contains(slot);
            is_due.then_some(self.wanted[slot])
        });
        if valid.iter().all(Option::is_none) {
            return None;
        }
        let damaged = self.damaged.clone();
        self.writing = Some(Writing { valid, damaged });
        let header = |valid| ChecksumHeader { valid, damaged: self.damaged.clone() };
        Some(valid.map(|valid| valid.map(header)))
    }

    /// Handles the end of a header write. A replica whose checksums had to be dropped has no header any more.
    /// Beside a failed replica the new header may be there or not. Its checksums become valid in no further
    /// section, and its header is written again.
    pub fn header_written(&mut self, failed: Slots, dropped: Slots) {
        let writing = self.writing.take().expect("one header is written at a time");
        for slot in failed.iter() {
            self.wanted[slot] = self.wanted[slot].both(self.recorded[slot]);
            self.recorded[slot] = self.recorded[slot].with(writing.valid[slot].unwrap_or_default());
        }
        for (slot, valid) in writing.valid.into_iter().enumerate() {
            match valid {
                Some(_) if dropped.contains(slot) => {
                    (self.wanted[slot], self.recorded[slot]) = Default::default();
                }
                Some(valid) if !failed.contains(slot) => self.recorded[slot] = valid,
                _ => {}
            }
        }
        let before = std::mem::replace(&mut self.damaged_recorded, writing.damaged);
        if !failed.is_empty() {
            let new = |damaged: &Damaged| !self.damaged_recorded.contains(damaged);
            let before: Vec<Damaged> = before.into_iter().filter(new).collect();
            self.damaged_recorded.extend(before);
        }
    }
}

/// Byte range of a block of an extent.
fn block_range(block: u32) -> std::ops::Range<u32> {
    let start = block * BLOCK_BYTES as u32;
    start..start + BLOCK_BYTES as u32
}

fn covers(request: &Request, block: u32) -> bool {
    let range = block_range(block);
    request.offset <= range.start && range.end <= request.offset + request.length
}

fn touches(request: &Request, block: u32) -> bool {
    let range = block_range(block);
    request.offset < range.end && range.start < request.offset + request.length
}

#[cfg(test)]
mod tests {
    use weir_types::ExtentIndex;

    use super::*;
    use crate::action::Kind;

    const SECTION: u32 = SECTION_BYTES as u32;

    fn write(offset: u32, length: u32) -> Request {
        Request { kind: Kind::Write { is_durable: false }, extent: ExtentIndex(0), offset, length }
    }

    fn both() -> Slots {
        [0, 1].into_iter().collect()
    }

    /// Two replicas with valid checksums in their first two sections, and a damaged block in the second.
    fn header() -> HeaderState {
        let damaged = vec![Damaged { block: SECTION / 4096 + 1, expected: Some(7) }];
        let mut header = HeaderState::default();
        for slot in [0, 1] {
            header.found(slot, ChecksumHeader { valid: Sections(3), damaged: damaged.clone() }, true);
        }
        assert_eq!(header.next_header_write(both(), Slots::default()), None, "what is found is noted");
        header
    }

    #[test]
    fn range_covers_all_sections_it_touches() {
        assert_eq!(Sections::of(0, 1), Sections(1));
        assert_eq!(Sections::of(SECTION - 1, 2), Sections(3));
        assert_eq!(Sections::of(SECTION, SECTION), Sections(2));
        assert_eq!(Sections::of(0, u32::MAX / 4 + 1), Sections::ALL);
    }

    #[test]
    fn checksums_are_invalid_durably_before_the_first_change() {
        let (mut header, first) = (header(), write(0, 4096));
        header.change(&first);
        assert!(!header.is_free(&first, both()));
        let note = header.next_header_write(both(), Slots::default()).unwrap();
        assert_eq!(
            note.each_ref().map(|header| header.as_ref().map(|header| header.valid.0))[..2],
            [Some(2), Some(2)]
        );
        assert!(!header.is_free(&first, both()), "it is only being written");
        assert_eq!(header.next_header_write(both(), Slots::default()), None, "one at a time");
        header.header_written(Slots::default(), Slots::default());
        assert!(header.is_free(&first, both()));
        let other = write(8192, 4096);
        header.change(&other);
        assert!(header.is_free(&other, both()));
        assert!(
            !header.is_free(&write(SECTION, 4096), both()),
            "the other section still has valid checksums"
        );
    }

    #[test]
    fn failed_header_write_keeps_checksums_and_dropped_file_does_not() {
        let (mut header, change) = (header(), write(0, 4096));
        header.change(&change);
        header.next_header_write(both(), Slots::default()).unwrap();
        header.header_written([0].into_iter().collect(), [1].into_iter().collect());
        assert!(
            !header.is_free(&change, [0].into_iter().collect())
                && header.is_free(&change, [1].into_iter().collect())
        );
        assert_eq!(header.may_be_valid(1), Sections::default());
    }

    #[test]
    fn damaged_block_is_forgotten_durably_before_overwrite() {
        let (mut header, whole) = (header(), write(SECTION + 4096, 4096));
        let (part, block) = (write(SECTION + 4096 + 512, 512), SECTION / 4096 + 1);
        header.change(&part);
        assert_eq!(header.damaged(), [Damaged { block, expected: None }], "it is no better for it");
        assert!(!header.is_free(&part, both()));
        header.change(&whole);
        assert_eq!((header.damaged().len(), header.listed(block)), (0, None));
        let note = header.next_header_write(both(), Slots::default()).unwrap();
        assert!(note.iter().flatten().all(|header| header.damaged.is_empty() && header.valid.0 == 1));
        header.header_written(Slots::default(), Slots::default());
        assert!(header.is_free(&whole, both()));
    }

    #[test]
    fn checksums_of_stale_replica_are_ignored_and_invalidated() {
        let mut header = HeaderState::default();
        header.found(0, ChecksumHeader { valid: Sections(1), damaged: Vec::new() }, true);
        header.found(1, ChecksumHeader { valid: Sections(1), damaged: Vec::new() }, false);
        assert!(header.is_valid(0, 0) && !header.is_valid(1, 0));
        let note = header.next_header_write([0].into_iter().collect(), [1].into_iter().collect()).unwrap();
        assert_eq!((note[0].as_ref(), note[1].as_ref().map(|header| header.valid.0)), (None, Some(0)));
    }

    #[test]
    fn list_of_damaged_blocks_is_bounded() {
        let mut header = HeaderState::default();
        let blocks = (0..DAMAGED_BLOCKS_MAX as u32 + 10).rev();
        blocks.for_each(|block| header.note_damage(Damaged { block, expected: None }));
        assert_eq!(header.damaged().len(), DAMAGED_BLOCKS_MAX);
        assert!(header.damaged().is_sorted_by_key(|damaged| damaged.block));
    }
}
