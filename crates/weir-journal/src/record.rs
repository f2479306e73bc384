//! The header of a record: the changes that its payload carries. The module knows bytes, and nothing of what
//! follows from an entry.

use weir_types::bounds::{
    BLOCK_BYTES, EXTENT_BYTES, JOURNAL_RECORD_ENTRIES_MAX, JOURNAL_RECORD_PAYLOAD_BYTES_MAX, PIECE_BYTES,
};
use weir_types::{ExtentIndex, JournalId, VolumeId};

use crate::Block;
use crate::action::FileKey;
use crate::field::{self, BlockFault, array, number32, number64, put, require};
use crate::superblock::FORMAT;

/// First bytes of a header.
const MAGIC: [u8; 8] = *b"WEIRJREC";

const FORMAT_START: usize = 8;
const POSITION_START: usize = 12;
const JOURNAL_START: usize = 16;
const SEQUENCE_START: usize = 32;
const STABLE_START: usize = 40;
const LIFE_START: usize = 48;
const GENERATION_START: usize = 56;
const ENTRIES_START: usize = 64;
const PAYLOAD_START: usize = 68;
/// Byte position of the first entry.
const LIST_START: usize = 72;
/// Length of an entry, in bytes.
const ENTRY_BYTES: usize = 36;

const EXTENT_START: usize = 0;
const OFFSET_START: usize = 4;
const LENGTH_START: usize = 8;
const KIND_START: usize = 12;
const REPLICA_START: usize = 13;
const CHECKSUM_START: usize = 16;
const VOLUME_START: usize = 20;

const _: () = assert!(LIST_START + JOURNAL_RECORD_ENTRIES_MAX * ENTRY_BYTES <= field::CHECKSUM_START);

/// The fields of a record as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Journal that the record belongs to.
    pub journal: JournalId,
    /// Block of the log where the record lies.
    pub position: u32,
    /// Sequence number: one more than that of the record before.
    pub sequence: u64,
    /// Highest sequence number that was stable when the record was written.
    pub stable: u64,
    /// Life of the journal in which the record was written.
    pub life: u64,
    /// Generation of the superblock that was stable when the record was written.
    pub generation: u64,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Writes the entry's payload.
    Write {
        /// Checksum of the payload.
        checksum: u32,
    },
    /// Makes the range zero and keeps its space.
    Zero,
    /// Makes the range zero and gives its space back.
    Release,
    /// Takes back everything that earlier entries said of the file. The entry has no range.
    Forget,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// File that is changed.
    pub file: FileKey,
    /// Start of the range in the file, in bytes.
    pub offset: u32,
    /// Length of the range, in bytes.
    pub length: u32,
    /// Kind of the change.
    pub kind: EntryKind,
}

impl Entry {
    /// Number of payload blocks.
    pub fn payload_blocks(&self) -> u32 {
        if matches!(self.kind, EntryKind::Write { .. }) { self.length / BLOCK_BYTES as u32 } else { 0 }
    }

    fn put(&self, block: &mut Block, start: usize) {
        let (kind, checksum) = match self.kind {
            EntryKind::Write { checksum } => (1, checksum),
            EntryKind::Zero => (2, 0),
            EntryKind::Release => (3, 0),
            EntryKind::Forget => (4, 0),
        };
        put(block, start + EXTENT_START, &self.file.extent.0.to_le_bytes());
        put(block, start + OFFSET_START, &self.offset.to_le_bytes());
        put(block, start + LENGTH_START, &self.length.to_le_bytes());
        put(block, start + KIND_START, &[kind]);
        put(block, start + REPLICA_START, &[self.file.replica]);
        put(block, start + CHECKSUM_START, &u32::to_le_bytes(checksum));
        put(block, start + VOLUME_START, &self.file.volume.bytes());
    }

    fn get(block: &Block, start: usize) -> Result<Entry, BlockFault> {
        let kind = block[start + KIND_START];
        let checksum = number32(block, start + CHECKSUM_START);
        let entry = Entry {
            file: FileKey {
                volume: VolumeId::from_bytes(array(block, start + VOLUME_START)),
                extent: ExtentIndex(number32(block, start + EXTENT_START)),
                replica: block[start + REPLICA_START],
            },
            offset: number32(block, start + OFFSET_START),
            length: number32(block, start + LENGTH_START),
            kind: match kind {
                1 => EntryKind::Write { checksum },
                2 => EntryKind::Zero,
                3 => EntryKind::Release,
                4 => EntryKind::Forget,
                _ => return Err(BlockFault::Field { field: "kind of entry", found: kind.into() }),
            },
        };
        entry.check()?;
        Ok(entry)
    }

    fn check(&self) -> Result<(), BlockFault> {
        if self.kind == EntryKind::Forget {
            require(self.offset == 0, "offset of a forgotten file", self.offset)?;
            return require(self.length == 0, "length of a forgotten file", self.length);
        }
        let is_whole = |bytes: u32| bytes.is_multiple_of(BLOCK_BYTES as u32);
        let longest = if matches!(self.kind, EntryKind::Write { .. }) { PIECE_BYTES } else { EXTENT_BYTES };
        let is_length = is_whole(self.length) && self.length > 0 && u64::from(self.length) <= longest;
        require(is_length, "length of an entry", self.length)?;
        let is_within = u64::from(self.offset) + u64::from(self.length) <= EXTENT_BYTES;
        require(is_whole(self.offset) && is_within, "offset of an entry", self.offset)
    }
}

/// Encodes the header of a record of these entries, at most [`JOURNAL_RECORD_ENTRIES_MAX`].
pub fn encode(header: &Header, entries: impl Iterator<Item = Entry>, block: &mut Block) {
    block.fill(0);
    let (mut count, mut payload_blocks) = (0u32, 0);
    for entry in entries {
        entry.put(block, LIST_START + count as usize * ENTRY_BYTES);
        count += 1;
        payload_blocks += entry.payload_blocks();
    }
    put(block, 0, &MAGIC);
    put(block, FORMAT_START, &FORMAT.to_le_bytes());
    put(block, POSITION_START, &header.position.to_le_bytes());
    put(block, JOURNAL_START, &header.journal.bytes());
    put(block, SEQUENCE_START, &header.sequence.to_le_bytes());
    put(block, STABLE_START, &header.stable.to_le_bytes());
    put(block, LIFE_START, &header.life.to_le_bytes());
    put(block, GENERATION_START, &header.generation.to_le_bytes());
    put(block, ENTRIES_START, &count.to_le_bytes());
    put(block, PAYLOAD_START, &u32::to_le_bytes(payload_blocks));
    // Most records have few entries; a checksum of the whole block would dominate their cost.
    field::write_checksum(block, LIST_START + count as usize * ENTRY_BYTES);
}

/// Decodes a header.
///
/// # Errors
/// If the block is no header, was damaged, is of another version, or makes no sense.
pub fn decode(block: &Block) -> Result<(Header, Vec<Entry>), BlockFault> {
    let (count, payload_blocks) = (number32(block, ENTRIES_START), number32(block, PAYLOAD_START));
    let listed = (count as usize).min(JOURNAL_RECORD_ENTRIES_MAX);
    field::check(block, &MAGIC, FORMAT, LIST_START + listed * ENTRY_BYTES)?;
    let header = Header {
        journal: JournalId::from_bytes(array(block, JOURNAL_START)),
        position: number32(block, POSITION_START),
        sequence: number64(block, SEQUENCE_START),
        stable: number64(block, STABLE_START),
        life: number64(block, LIFE_START),
        generation: number64(block, GENERATION_START),
    };
    require((1..u64::MAX / 2).contains(&header.sequence), "sequence number", header.sequence)?;
    require(header.stable < header.sequence, "stable record", header.stable)?;
    let is_count = (1..=JOURNAL_RECORD_ENTRIES_MAX as u32).contains(&count);
    require(is_count, "number of entries", count)?;
    let start = |index: usize| LIST_START + index * ENTRY_BYTES;
    let entries: Result<Vec<Entry>, BlockFault> =
        (0..count as usize).map(|index| Entry::get(block, start(index))).collect();
    let entries = entries?;
    let sum: u32 = entries.iter().map(Entry::payload_blocks).sum();
    let is_payload =
        sum == payload_blocks && u64::from(sum) <= JOURNAL_RECORD_PAYLOAD_BYTES_MAX / BLOCK_BYTES;
    require(is_payload, "number of payload blocks", payload_blocks)?;
    Ok((header, entries))
}
