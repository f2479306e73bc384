//! Fuzz drivers: they run the decoders on any input and check properties that hold for all inputs.

// Each fuzz target uses one of the drivers.
#![allow(dead_code)]

use weir_journal::record::{self, Entry, EntryKind, Header};
use weir_journal::superblock::{self, Superblock};
use weir_journal::{Block, FileKey, Geometry, Recovery, Step, checksum};
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, CHECKSUM, Case, FIELDS};
use weir_types::{ExtentIndex, JournalId, VolumeId};

const BLOCK: usize = size_of::<Block>();
/// Bytes of an entry in a header.
const ENTRY_BYTES: usize = 36;
/// Position in an entry of its volume. Any bytes are one.
const VOLUME_START: usize = 20;

/// Decodes a block made of any bytes, mostly one with the right magic and checksum. A decoded header encodes
/// to the same block again: decoding neither loses nor invents bytes.
pub fn drive_header(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, mut block) = match choices.byte() % 3 {
        0 => (ANY_BYTES, raw(choices.rest())),
        1 => (CHECKSUM, header_with_checksum(&mut choices)),
        _ => return drive_whole_header(&mut choices),
    };
    let Ok((header, entries)) = record::decode(&block) else { return Case::new(way, false) };
    assert!(header.stable < header.sequence && !entries.is_empty());
    let payload: u32 = entries.iter().map(Entry::payload_blocks).sum();
    assert!(payload <= 256, "a record has at most 1 MiB of payload");
    let mut again = [0; BLOCK];
    record::encode(&header, entries.iter().copied(), &mut again);
    assert_eq!(record::decode(&again), Ok((header, entries)));
    change_one_byte(&mut block, data);
    assert!(record::decode(&block).is_err(), "a byte was changed");
    Case::new(way, true)
}

/// Checks that a header with well-formed entries is decoded, or refused with a message. One changed byte must
/// be detected.
fn drive_whole_header(choices: &mut Choices<'_>) -> Case {
    let header = header(choices);
    let count = 1 + usize::from(choices.byte()) % 100;
    let entries: Vec<Entry> = (0..count).map(|_| entry(choices)).collect();
    let mut block = [0; BLOCK];
    record::encode(&header, entries.iter().copied(), &mut block);
    let is_decoded = match record::decode(&block) {
        Ok(found) => {
            assert_eq!(found, (header, entries));
            true
        }
        Err(fault) => {
            assert!(!fault.to_string().is_empty());
            false
        }
    };
    change_one_byte(&mut block, choices.rest());
    assert!(record::decode(&block).is_err(), "a byte was changed");
    Case::new(FIELDS, is_decoded)
}

fn header(choices: &mut Choices<'_>) -> Header {
    Header {
        journal: JournalId::from_bytes([choices.byte(); 16]),
        position: choices.number16().into(),
        sequence: 1 + u64::from(choices.number32()),
        stable: choices.number32().into(),
        life: choices.number16().into(),
        generation: choices.number16().into(),
    }
}

fn entry(choices: &mut Choices<'_>) -> Entry {
    let volume = VolumeId::from_bytes([choices.byte(); 16]);
    let file = FileKey { volume, extent: ExtentIndex(choices.byte().into()), replica: choices.byte() };
    let kind = match choices.byte() % 8 {
        0 => EntryKind::Zero,
        1 => EntryKind::Release,
        2 => return Entry { file, offset: 0, length: 0, kind: EntryKind::Forget },
        _ => EntryKind::Write { checksum: choices.number32() },
    };
    let (offset, blocks) = (u32::from(choices.number16()) * 4096, 1 + u32::from(choices.byte()) % 33);
    Entry { file, offset, length: blocks * 4096, kind }
}

/// Runs the same checks on superblocks.
pub fn drive_superblock(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, block) = match choices.byte() % 3 {
        0 => (ANY_BYTES, raw(choices.rest())),
        1 => (CHECKSUM, superblock_with_checksum(&mut choices)),
        _ => {
            let mut block = [0; BLOCK];
            superblock(&mut choices).encode(&mut block);
            (FIELDS, block)
        }
    };
    let Ok(superblock) = Superblock::decode(&block) else { return Case::new(way, false) };
    assert!(superblock.tail >= 1 && superblock.tail <= superblock.stable + 1);
    assert!(superblock.tail_position < superblock.log_blocks);
    let mut again = [0; BLOCK];
    superblock.encode(&mut again);
    assert_eq!(Superblock::decode(&again), Ok(superblock));
    change_one_byte(&mut again, data);
    assert!(Superblock::decode(&again).is_err(), "a byte was changed");
    Case::new(way, true)
}

fn superblock(choices: &mut Choices<'_>) -> Superblock {
    Superblock {
        journal: JournalId::from_bytes([choices.byte(); 16]),
        log_blocks: 16_000 + u32::from(choices.number16()),
        generation: choices.number64(),
        life: choices.number16().into(),
        life_began: choices.number16().into(),
        tail: choices.number16().into(),
        tail_position: choices.number16().into(),
        stable: choices.number16().into(),
    }
}

/// Way of a journal's file with superblocks and records that fit together, with a fault here and there.
pub const RECORDS: &str = "a log of records";

const JOURNAL: JournalId = JournalId::from_bytes([1; 16]);
/// Blocks of the smallest log.
const LOG_BLOCKS: u32 = 264;
/// Steps in which a recovery must end: each block of the log is read a few times.
const STEPS_MAX: usize = 4096;

/// Recovers the file of a journal. A recovery ends, and leaves a file that is recovered again.
pub fn drive_recovery(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let geometry = Geometry::tiny(LOG_BLOCKS);
    let mut file = vec![0; geometry.file_bytes() as usize];
    let way = if choices.byte().is_multiple_of(8) { ANY_BYTES } else { RECORDS };
    if way == RECORDS {
        put_log(&mut choices, geometry, &mut file);
    }
    let rest = choices.rest();
    for change in rest.chunks_exact(4).take(8) {
        // A change at position 0 would almost always hit the same superblock.
        let at = u32::from_le_bytes([0, change[1], change[2], change[3]]) as usize % file.len();
        file[at + usize::from(change[0] % 128)] ^= change[0];
    }
    let Some(entries) = recovered_entries(geometry, &mut file) else { return Case::new(way, false) };
    assert_eq!(recovered_entries(geometry, &mut file), Some(entries), "the file is recovered again");
    Case::new(way, true)
}

/// Writes superblocks and some records, each after the one before.
fn put_log(choices: &mut Choices<'_>, geometry: Geometry, file: &mut [u8]) {
    for (index, block) in superblock::format(JOURNAL, geometry).iter().enumerate() {
        file[index * BLOCK..][..BLOCK].copy_from_slice(block);
    }
    let (mut position, mut stable) = (0, 0);
    let payload = checksum(&[0; BLOCK]);
    for sequence in 1..=u64::from(choices.byte() % 16) {
        let header = Header { journal: JOURNAL, position, sequence, stable, life: 1, generation: 2 };
        let entry = match choices.byte() % 4 {
            0 => self::entry(choices),
            _ => Entry {
                file: FileKey {
                    volume: VolumeId::from_bytes([choices.byte() % 2; 16]),
                    extent: ExtentIndex((choices.byte() % 4).into()),
                    replica: 0,
                },
                offset: u32::from(choices.byte()) * BLOCK as u32,
                length: BLOCK as u32,
                kind: EntryKind::Write { checksum: payload },
            },
        };
        let mut block = [0; BLOCK];
        record::encode(&header, [entry].into_iter(), &mut block);
        let start = geometry.position_bytes(position) as usize;
        file[start..start + BLOCK].copy_from_slice(&block);
        position = geometry.next(position, 1 + entry.payload_blocks()).0;
        if choices.one_in(4) {
            stable = sequence;
        }
    }
}

/// Number of entries that the recovered journal holds. `None` if the file is refused.
fn recovered_entries(geometry: Geometry, file: &mut [u8]) -> Option<String> {
    let mut recovery = Recovery::with_geometry(JOURNAL, geometry);
    for _ in 0..STEPS_MAX {
        match recovery.step() {
            Step::Sync => recovery.synced(),
            Step::Read { position_bytes, length } => {
                recovery.read(&file[position_bytes as usize..][..length as usize]).ok()?;
            }
            Step::WriteSuperblock { position_bytes } => {
                let mut block = [0; BLOCK];
                recovery.encode_superblock(&mut block);
                file[position_bytes as usize..][..BLOCK].copy_from_slice(&block);
                recovery.superblock_written();
            }
            Step::Ready => return Some(format!("{:?}", recovery.finish().usage())),
        }
    }
    panic!("the recovery does not end");
}

fn raw(data: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    let length = data.len().min(BLOCK);
    block[..length].copy_from_slice(&data[..length]);
    block
}

/// Changes one byte of a block. The data decide which one.
fn change_one_byte(block: &mut Block, data: &[u8]) {
    let last = |from_end: usize| data.len().checked_sub(from_end).map_or(0, |at| data[at]);
    let at = usize::from(u16::from_be_bytes([last(1), last(2)])) % BLOCK;
    block[at] ^= 1 | last(3);
}

/// A header of any fields, in which small numbers are likely, with a checksum of the bytes that it covers.
fn header_with_checksum(choices: &mut Choices<'_>) -> Block {
    let mut block = with_magic(b"WEIRJREC");
    let count = u32::from(choices.byte() % 8);
    sparse(choices, &mut block[12..64]);
    block[64..68].copy_from_slice(&count.to_le_bytes());
    block[68] = choices.byte() % 8;
    for entry in block[72..].chunks_exact_mut(ENTRY_BYTES).take(count as usize) {
        sparse(choices, &mut entry[..VOLUME_START]);
        entry[VOLUME_START] = choices.byte();
    }
    if choices.one_in(8) {
        let at = 12 + usize::from(choices.number16()) % (BLOCK - 16);
        block[at] = choices.byte();
    }
    let entries = u32::from_le_bytes([block[64], block[65], block[66], block[67]]);
    put_checksum(&mut block, 72 + entries.min(100) as usize * ENTRY_BYTES);
    block
}

/// A superblock of any fields, in which small numbers are likely, with a checksum of all bytes before it.
fn superblock_with_checksum(choices: &mut Choices<'_>) -> Block {
    let mut block = with_magic(b"WEIRJRNL");
    sparse(choices, &mut block[12..76]);
    if choices.one_in(8) {
        let at = 12 + usize::from(choices.number16()) % (BLOCK - 16);
        block[at] = choices.byte();
    }
    put_checksum(&mut block, BLOCK - 4);
    block
}

fn with_magic(magic: &[u8; 8]) -> Block {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(magic);
    block[8..12].copy_from_slice(&superblock::FORMAT.to_le_bytes());
    block
}

/// Fills a few bytes of a field list with any values, and leaves the others zero.
fn sparse(choices: &mut Choices<'_>, fields: &mut [u8]) {
    for _ in 0..choices.byte() % 16 {
        let at = usize::from(choices.byte()) % fields.len();
        fields[at] = choices.byte() & choices.pick(&[1, 3, 0xf0, 0xff]);
    }
}

fn put_checksum(block: &mut Block, covered: usize) {
    let sum = checksum(&block[..covered]);
    block[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
}
