//! Fuzz drivers: they run the decoders of the files on drives on any input, and check properties that hold for
//! all inputs.

// Each fuzz target uses one of the drivers.
#![allow(dead_code)]

use std::convert::Infallible;

use weir_store::Marker;
use weir_store::checksums::{self, Head, RECORD_BYTES};
use weir_store::epoch_record::{self, encode_header};
use weir_store::journal::{Behind, MARKER_BYTES, decode_marker, encode_marker};
use weir_store::replica_metadata;
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, CHECKSUM, Case, EDITED, FIELDS, JSON_WORDS};
use weir_types::bounds::DAMAGED_BLOCKS_MAX;
use weir_types::{DriveId, ExtentIndex, JournalId};
use weir_volume::mirror::epoch_record::{RecordBlock, RecordBlocks, begin, fail, read_all};
use weir_volume::mirror::{
    ChecksumHeader, Damaged, EpochRecord, REGIONS, RegionSet, ReplicaMetadata, ReplicaState, SECTION_BLOCKS,
    SECTIONS, Sections,
};

const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// Way of a head whose sectors have checksums and small sequence numbers, but any content.
pub const SECTORS: &str = "any sectors with checksums";

/// Replica metadata in one block.
pub fn drive_replica_metadata(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, mut block) = match choices.byte() % 3 {
        0 => (ANY_BYTES, filled(choices.rest())),
        1 => {
            let mut block: [u8; BLOCK] = framed(b"WEIRMETA", 1, &mut choices);
            block[32..36].iter_mut().for_each(|state| *state %= 4);
            (CHECKSUM, with_checksum(block))
        }
        _ => {
            let (metadata, sequence) = (metadata(&mut choices), choices.number32().into());
            let block = replica_metadata::encode(&metadata, sequence);
            assert_eq!(replica_metadata::decode(&block), Ok((metadata, sequence)));
            (FIELDS, block)
        }
    };
    let Ok((metadata, sequence)) = replica_metadata::decode(&block) else { return Case::new(way, false) };
    let again = replica_metadata::encode(&metadata, sequence);
    assert_eq!(replica_metadata::decode(&again), Ok((metadata, sequence)));
    change_one_byte(&mut block, data);
    assert!(replica_metadata::decode(&block).is_err(), "a byte was changed");
    Case::new(way, true)
}

fn metadata(choices: &mut Choices<'_>) -> ReplicaMetadata {
    let states = [ReplicaState::Absent, ReplicaState::InSync, ReplicaState::Stale];
    let mut numbers = || [0; 4].map(|_: u64| choices.number64());
    let taken = numbers();
    let [epoch, number, ..] = numbers();
    ReplicaMetadata {
        epoch,
        replica_states: [0; 4].map(|_: u8| choices.pick(&states)),
        dirty: regions(choices),
        out_of_sync: [0; 4].map(|_: u8| regions(choices)),
        number,
        taken,
    }
}

fn regions(choices: &mut Choices<'_>) -> RegionSet {
    let count = choices.byte() % 8;
    (0..count).map(|_| u32::from(choices.number16()) % REGIONS).collect()
}

/// The heads of a checksum file.
pub fn drive_checksum_heads(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, mut heads) = match choices.byte() % 3 {
        0 => (ANY_BYTES, [filled(choices.rest()), [0; BLOCK]]),
        1 => (SECTORS, [0; 2].map(|_: u8| sectors(&mut choices))),
        _ => {
            let sequence = 1 + u64::from(choices.number32());
            let (older, newer) = (checksum_header(&mut choices), checksum_header(&mut choices));
            let mut heads = [(&older, sequence), (&newer, sequence + 1)]
                .map(|(header, sequence)| checksums::encode_head(header, sequence));
            assert_eq!(checksums::decode_heads(heads).as_ref(), Some(&newer));
            if choices.one_in(2) {
                heads.reverse();
            }
            (FIELDS, heads)
        }
    };
    let Some(header) = checksums::decode_heads(heads) else { return Case::new(way, false) };
    assert!(header.damaged.len() <= DAMAGED_BLOCKS_MAX);
    let again = [checksums::encode_head(&ChecksumHeader::default(), 1), checksums::encode_head(&header, 2)];
    assert_eq!(checksums::decode_heads(again), Some(header));
    change_one_byte(heads.as_flattened_mut(), data);
    assert_eq!(checksums::decode_heads(heads), None, "a byte was changed");
    Case::new(way, true)
}

fn checksum_header(choices: &mut Choices<'_>) -> ChecksumHeader {
    let count = choices.byte();
    let mut damaged = || Damaged {
        block: choices.number16().into(),
        expected: choices.one_in(2).then(|| choices.number32()),
    };
    let damaged = (0..count).map(|_| damaged()).collect();
    ChecksumHeader { valid: Sections(choices.number64()), damaged }
}

fn sectors(choices: &mut Choices<'_>) -> Head {
    let mut head: Head = filled(b"WEIRCKSM\x02\0\0\0");
    let sequence = choices.byte() % 4;
    for sector in head.chunks_exact_mut(SECTOR) {
        for _ in 0..choices.byte() % 4 {
            let at = 12 + usize::from(choices.number16()) % (SECTOR - 24);
            sector[at] = choices.byte();
        }
        let other = if choices.one_in(16) { choices.byte() % 2 } else { 0 };
        sector[SECTOR - 12..SECTOR - 4].copy_from_slice(&u64::from(sequence + other).to_le_bytes());
        let checksum = crc32c::crc32c(&sector[..SECTOR - 4]);
        sector[SECTOR - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
    head
}

/// The record of a section in a checksum file.
pub fn drive_checksum_section(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let section = u32::from(choices.byte()) % SECTIONS;
    let (way, mut record) = match choices.byte() % 3 {
        0 => (ANY_BYTES, filled(choices.rest())),
        1 => {
            let mut record: [u8; RECORD_BYTES] = framed(b"WEIRSECT", 2, &mut choices);
            record[12] = record[12].min(63);
            (CHECKSUM, with_checksum(record))
        }
        _ => {
            let block_checksums: Vec<u32> = (0..SECTION_BLOCKS).map(|_| choices.number32()).collect();
            let record = checksums::encode_section(section, &block_checksums);
            assert_eq!(checksums::decode_section(&record, section), Some(block_checksums));
            (FIELDS, record)
        }
    };
    let own = u32::from_le_bytes(record[12..16].try_into().expect("four bytes"));
    let Some(block_checksums) = checksums::decode_section(&record, own) else { return Case::new(way, false) };
    assert_eq!(checksums::encode_section(own, &block_checksums), record);
    assert_eq!(checksums::decode_section(&record, own.wrapping_add(1)), None, "it is of another section");
    change_one_byte(&mut record, data);
    assert_eq!(checksums::decode_section(&record, own), None, "a byte was changed");
    Case::new(way, true)
}

/// The marker of a replica behind a write journal.
pub fn drive_journal_marker(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, mut bytes) = match choices.byte() % 3 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        1 => {
            let marker: [u8; MARKER_BYTES] = framed(b"WEIRBHND", 1, &mut choices);
            (CHECKSUM, with_checksum(marker).to_vec())
        }
        _ => {
            let mut identity = || [0; 16].map(|_: u8| choices.byte());
            let (drive, journal) = (DriveId::from_bytes(identity()), JournalId::from_bytes(identity()));
            let behind = Behind { drive, journal };
            assert_eq!(decode_marker(&encode_marker(behind)), Ok(behind));
            (FIELDS, encode_marker(behind).to_vec())
        }
    };
    let Ok(behind) = decode_marker(&bytes) else { return Case::new(way, false) };
    assert_eq!(encode_marker(behind)[..], bytes);
    change_one_byte(&mut bytes, data);
    assert!(decode_marker(&bytes).is_err(), "a byte was changed");
    assert!(decode_marker(&bytes[1..]).is_err(), "a byte is missing");
    Case::new(way, true)
}

/// The marker of a drive.
pub fn drive_drive_marker(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, content) = match choices.byte() % 4 {
        0 => (ANY_BYTES, choices.rest().to_vec()),
        _ => {
            let mut identity = || uuid::Uuid::from_bytes([0; 16].map(|_: u8| choices.byte()));
            let content = encoded(&Marker::new(identity(), DriveId(identity())));
            (EDITED, choices.edited(&content, &JSON_WORDS))
        }
    };
    let Ok(marker) = Marker::decode(&content) else { return Case::new(way, false) };
    assert_eq!(Marker::decode(&encoded(&marker)), Ok(marker));
    Case::new(way, true)
}

fn encoded(marker: &Marker) -> Vec<u8> {
    serde_json::to_vec(marker).expect("a marker has a JSON form")
}

/// A file of epoch records in memory.
struct File(Vec<RecordBlock>);

impl RecordBlocks for File {
    type Error = Infallible;

    fn read(&mut self, block: u64) -> Result<RecordBlock, Infallible> {
        Ok(self.0.get(block as usize).copied().unwrap_or_default())
    }

    fn write(&mut self, block: u64, content: &RecordBlock) -> Result<(), Infallible> {
        self.0.resize(self.0.len().max(block as usize + 1), RecordBlock::default());
        self.0[block as usize] = *content;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// The header and the entries of a file of epoch records.
pub fn drive_epoch_records(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let (way, mut header) = match choices.byte() % 3 {
        0 => (ANY_BYTES, RecordBlock(filled(choices.rest()))),
        1 => (CHECKSUM, RecordBlock(with_checksum(framed(b"WEIREPCH", 1, &mut choices)))),
        _ => (FIELDS, encode_header()),
    };
    check_entries(&mut choices);
    if epoch_record::check_header(&header).is_err() {
        return Case::new(way, false);
    }
    change_one_byte(&mut header.0, data);
    assert!(epoch_record::check_header(&header).is_err(), "a byte was changed");
    Case::new(way, true)
}

/// Decodes entries of any bytes, and writes some of them to another file.
fn check_entries(choices: &mut Choices<'_>) {
    let extents = u64::from(choices.number16() % 700);
    let mut content = [0; BLOCK];
    (0..choices.byte()).for_each(|_| content[usize::from(choices.number16()) % BLOCK] = choices.byte());
    let Ok(found) = read_all(&mut File(vec![RecordBlock(content)]), extents);
    assert_eq!(found.len() as u64, extents);
    let mut file = File(Vec::new());
    let chosen = (0..).map(ExtentIndex).zip(&found).filter(|(_, record)| **record != EpochRecord::default());
    for (extent, record) in chosen {
        let Ok(()) = begin(&mut file, extent..extent.next(), *record);
        if record.is_failed {
            let Ok(()) = fail(&mut file, extent);
        }
    }
    assert_eq!(read_all(&mut file, extents), Ok(found));
}

/// Bytes with zeroes behind them.
fn filled<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let length = data.len().min(N);
    bytes[..length].copy_from_slice(&data[..length]);
    bytes
}

/// A magic, a version that is rarely another, and any fields.
fn framed<const N: usize>(magic: &[u8; 8], version: u32, choices: &mut Choices<'_>) -> [u8; N] {
    let mut bytes: [u8; N] = filled(magic);
    let version = if choices.one_in(8) { choices.byte().into() } else { version };
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    for _ in 0..choices.byte() {
        let at = 12 + usize::from(choices.number16()) % (N - 12);
        bytes[at] = choices.byte();
    }
    // High bytes of numbers are rarely anything but zero.
    if N > 24 && !choices.one_in(8) {
        bytes[13..16].fill(0);
        bytes[23] = 0;
    }
    bytes
}

/// The bytes with the checksum of all before it at their end.
fn with_checksum<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    let checksum = crc32c::crc32c(&bytes[..N - 4]);
    bytes[N - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Changes one byte. The data decide which one.
fn change_one_byte(bytes: &mut [u8], data: &[u8]) {
    let last = |from_end: usize| data.len().checked_sub(from_end).map_or(0, |at| data[at]);
    let at = usize::from(u16::from_be_bytes([last(1), last(2)])) % bytes.len();
    bytes[at] ^= 1 | last(3);
}
