//! Fuzz drivers: they run the decoders on any input and check properties that hold for all inputs.

// Each fuzz target uses one of the drivers.
#![allow(dead_code)]

use weir_journal::record::{self, Entry, EntryKind, Header};
use weir_journal::superblock::Superblock;
use weir_journal::{Block, FileKey, checksum};
use weir_types::{JournalId, VolumeId};

const BLOCK: usize = size_of::<Block>();

/// A supply of decisions from bytes; once the bytes are used up, every decision is zero.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self, bytes: u32) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }
}

/// Decodes a block made of any bytes, mostly one with the right magic and checksum. A decoded header encodes
/// to the same header again: decoding neither loses nor invents fields.
pub fn drive_header(data: &[u8]) {
    let mut choices = Choices(data);
    let block = match choices.byte() % 3 {
        0 => raw(choices.0),
        1 => with_checksum(b"WEIRJREC", choices.0),
        _ => return drive_whole_header(&mut choices),
    };
    if let Ok((header, entries)) = record::decode(&block) {
        assert!(header.stable < header.sequence && !entries.is_empty());
        let payload: u32 = entries.iter().map(Entry::payload_blocks).sum();
        assert!(payload <= 256, "a record has at most 1 MiB of payload");
        let mut again = [0; BLOCK];
        record::encode(&header, entries.iter().copied(), &mut again);
        assert_eq!(record::decode(&again), Ok((header, entries)));
    }
}

/// Checks that a header with well-formed entries is decoded, or refused with a message. One changed byte must
/// be detected.
fn drive_whole_header(choices: &mut Choices<'_>) {
    let header = Header {
        journal: JournalId::from_bytes([choices.byte(); 16]),
        position: choices.number(3) as u32,
        sequence: 1 + choices.number(4),
        stable: choices.number(4),
        life: choices.number(2),
        generation: choices.number(2),
    };
    let count = 1 + usize::from(choices.byte()) % 100;
    let entries: Vec<Entry> = (0..count).map(|_| entry(choices)).collect();
    let mut block = [0; BLOCK];
    record::encode(&header, entries.iter().copied(), &mut block);
    match record::decode(&block) {
        Ok(found) => assert_eq!(found, (header, entries)),
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
    let at = choices.number(2) as usize % BLOCK;
    block[at] ^= 1 | choices.byte();
    assert!(record::decode(&block).is_err(), "byte {at} was changed");
}

fn entry(choices: &mut Choices<'_>) -> Entry {
    let file = FileKey { extent: u32::from(choices.byte()), replica: choices.byte() };
    let kind = match choices.byte() % 8 {
        0 => EntryKind::Zero,
        1 => EntryKind::Release,
        2 => return Entry { file, offset: 0, length: 0, kind: EntryKind::Forget },
        _ => EntryKind::Write { checksum: choices.number(4) as u32 },
    };
    let (offset, blocks) = (choices.number(2) as u32 * 4096, 1 + u32::from(choices.byte()) % 33);
    Entry { file, offset, length: blocks * 4096, kind }
}

/// Runs the same checks on superblocks.
pub fn drive_superblock(data: &[u8]) {
    let mut choices = Choices(data);
    let block = match choices.byte() % 3 {
        0 => raw(choices.0),
        1 => with_checksum(b"WEIRJRNL", choices.0),
        _ => {
            let mut block = [0; BLOCK];
            superblock(&mut choices).encode(&mut block);
            block
        }
    };
    if let Ok(superblock) = Superblock::decode(&block) {
        assert!(superblock.tail >= 1 && superblock.tail <= superblock.stable + 1);
        assert!(superblock.tail_position < superblock.log_blocks);
        let mut again = [0; BLOCK];
        superblock.encode(&mut again);
        assert_eq!(Superblock::decode(&again), Ok(superblock));
        let at = choices.number(2) as usize % BLOCK;
        again[at] ^= 1 | choices.byte();
        assert!(Superblock::decode(&again).is_err(), "byte {at} was changed");
    }
}

fn superblock(choices: &mut Choices<'_>) -> Superblock {
    Superblock {
        journal: JournalId::from_bytes([choices.byte(); 16]),
        volume: VolumeId::from_bytes([choices.byte(); 16]),
        log_blocks: 16_000 + choices.number(2) as u32,
        generation: choices.number(8),
        life: choices.number(2),
        life_began: choices.number(2),
        tail: choices.number(2),
        tail_position: choices.number(2) as u32,
        stable: choices.number(2),
    }
}

fn raw(data: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    let length = data.len().min(BLOCK);
    block[..length].copy_from_slice(&data[..length]);
    block
}

/// Returns a block of any bytes between a magic with a version, and the checksum of the bytes that it covers.
fn with_checksum(magic: &[u8; 8], data: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    let length = data.len().min(BLOCK - 16);
    block[12..12 + length].copy_from_slice(&data[..length]);
    block[..8].copy_from_slice(magic);
    block[8..12].copy_from_slice(&1u32.to_le_bytes());
    let entries = u32::from_le_bytes([block[64], block[65], block[66], block[67]]);
    let covered = if magic == b"WEIRJREC" { 72 + entries.min(100) as usize * 40 } else { BLOCK - 4 };
    let sum = checksum(&block[..covered]);
    block[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
    block
}
