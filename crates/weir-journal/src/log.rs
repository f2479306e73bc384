//! The log: the records between its tail and its head, and the space they take. The module knows only the
//! ranges of records, and keeps them until the record is dropped.

use std::collections::VecDeque;

use crate::action::Span;
use crate::geometry::Geometry;

/// One record.
#[derive(Clone, Copy, Debug)]
struct Record {
    position: u32,
    /// Blocks from the beginning of this record to the beginning of the next one.
    claim: u32,
    entries: u32,
    /// Number of reads whose oldest record this is.
    pins: u32,
}

/// The records that take space, oldest first.
#[derive(Debug)]
pub(crate) struct Log {
    geometry: Geometry,
    /// Sequence number of the first record, or of the next one if there is none.
    first: u64,
    /// Block where the next record begins.
    head: u32,
    records: VecDeque<Record>,
    /// Ranges of all entries, in order. An entry that forgets a file has an empty range.
    entries: VecDeque<Span>,
    used_blocks: u32,
}

impl Log {
    /// Returns an empty log whose next record has this sequence number and position.
    pub fn new(geometry: Geometry, first: u64, head: u32) -> Log {
        let (records, entries) = (VecDeque::new(), VecDeque::new());
        Log { geometry, first, head, records, entries, used_blocks: 0 }
    }

    /// Sequence number of the oldest record.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Sequence number of the next record.
    pub fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Block where the next record begins.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Block where a record begins; for a number that does not exist yet, the next record's block.
    pub fn position(&self, sequence: u64) -> u32 {
        self.records.get((sequence - self.first) as usize).map_or(self.head, |record| record.position)
    }

    /// Returns true if there is room for a record of this many blocks with its header.
    pub fn fits(&self, blocks: u32) -> bool {
        let (_, claim) = self.geometry.next(self.head, blocks);
        claim <= self.geometry.log_blocks() - self.used_blocks
    }

    /// Number of entries that still fit in the log.
    pub fn entries_left(&self) -> usize {
        self.geometry.entries_max() - self.entries.len()
    }

    /// Appends a record of this many blocks with its header. The caller has checked that there is room.
    pub fn push(&mut self, blocks: u32, entries: impl Iterator<Item = Span>) {
        let before = self.entries.len();
        self.entries.extend(entries);
        let entries = (self.entries.len() - before) as u32;
        let (next, claim) = self.geometry.next(self.head, blocks);
        self.records.push_back(Record { position: self.head, claim, entries, pins: 0 });
        self.used_blocks += claim;
        assert!(self.used_blocks <= self.geometry.log_blocks(), "a record has room");
        self.head = next;
    }

    /// Drops the oldest record, and reports the ranges of its entries.
    pub fn pop(&mut self, mut tell: impl FnMut(Span)) -> u32 {
        let record = self.records.pop_front().expect("there is a record to drop");
        assert_eq!(record.pins, 0, "no record is dropped that is read");
        self.entries.drain(..record.entries as usize).for_each(&mut tell);
        self.used_blocks -= record.claim;
        self.first += 1;
        record.entries
    }

    /// Finds the oldest records up to `through` that together stay within `entries_max` and `blocks_max`; at
    /// least one. Returns the last of them and their number of entries.
    pub fn oldest(&self, through: u64, entries_max: usize, blocks_max: u32) -> Option<(u64, usize)> {
        let mut found = None;
        let (mut entries, mut blocks) = (0, 0);
        for (sequence, record) in (self.first..=through).zip(&self.records) {
            entries += record.entries as usize;
            blocks += record.claim;
            if found.is_some() && (entries > entries_max || blocks > blocks_max) {
                break;
            }
            found = Some((sequence, entries));
        }
        found
    }

    /// Ranges of the oldest entries.
    pub fn entries(&self, count: usize) -> impl Iterator<Item = Span> + '_ {
        self.entries.iter().take(count).copied()
    }

    /// Blocks that the records after `after`, up to `through`, take.
    pub fn blocks_between(&self, after: u64, through: u64) -> u32 {
        let (from, to) = ((after + 1).saturating_sub(self.first), (through + 1).saturating_sub(self.first));
        self.records.range(from as usize..to as usize).map(|record| record.claim).sum()
    }

    /// Keeps a record from being dropped.
    pub fn pin(&mut self, sequence: u64) {
        self.records[(sequence - self.first) as usize].pins += 1;
    }

    /// Releases one pin of a record.
    pub fn unpin(&mut self, sequence: u64) {
        self.records[(sequence - self.first) as usize].pins -= 1;
    }

    /// Number of reads whose oldest record is at most `through`.
    pub fn pins(&self, through: u64) -> u32 {
        (self.first..=through).zip(&self.records).map(|(_, record)| record.pins).sum()
    }

    /// Blocks in use.
    pub fn used_blocks(&self) -> u32 {
        self.used_blocks
    }

    /// Number of entries in the log.
    pub fn entries_len(&self) -> usize {
        self.entries.len()
    }

    /// Fullness of the log, in thousandths: of blocks or of entries, whichever is more.
    pub fn fullness_per_mille(&self) -> u32 {
        let blocks = u64::from(self.used_blocks) * 1000 / u64::from(self.geometry.log_blocks());
        let entries = self.entries.len() as u64 * 1000 / self.geometry.entries_max() as u64;
        blocks.max(entries) as u32
    }
}
