//! The reference describes the files on drives as they are.

use weir_store::checksums::{encode_head, encode_section};
use weir_store::epoch_record::encode_header;
use weir_store::journal::{Behind, encode_marker};
use weir_store::replica_metadata;
use weir_testkit::documented::{Field, assert_fields, fields};
use weir_types::{DriveId, JournalId};
use weir_volume::mirror::{
    ChecksumHeader, Damaged, RegionSet, ReplicaMetadata, ReplicaState, SECTION_BLOCKS, Sections,
};

const PAGE: &str = include_str!("../../../docs/reference/formats.md");
const ONE: [u8; 4] = 1u32.to_le_bytes();
const TWO: [u8; 4] = 2u32.to_le_bytes();

/// The checksum at the end of bytes.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(&bytes[..bytes.len() - 4]).to_le_bytes()
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn regions(regions: &[u32]) -> (RegionSet, Vec<u8>) {
    let mut bytes = vec![0; 512];
    regions.iter().for_each(|region| bytes[*region as usize / 8] |= 1 << (region % 8));
    (regions.iter().copied().collect(), bytes)
}

#[test]
fn replica_metadata_is_as_documented() {
    let (dirty, dirty_bytes) = regions(&[0, 9, 4095]);
    let out_of_sync = [&[][..], &[1], &[2, 3], &[4000]].map(regions);
    let metadata = ReplicaMetadata {
        epoch: 0x0102_0304_0506_0708,
        replica_states: [
            ReplicaState::InSync,
            ReplicaState::Stale,
            ReplicaState::Absent,
            ReplicaState::Stale,
        ],
        dirty,
        out_of_sync: out_of_sync.clone().map(|(set, _)| set),
        number: 77,
        taken: [5, 6, 7, 8],
    };
    let block = replica_metadata::encode(&metadata, 99);
    let expected: [(&str, &[u8]); 10] = [
        ("`WEIRMETA`", b"WEIRMETA"),
        ("version of the format: 1", &ONE),
        ("sequence number", &numbers(&[99])),
        ("epoch", &numbers(&[metadata.epoch])),
        ("0 absent, 1 in sync, 2 stale", &[1, 2, 0, 2]),
        ("number of the metadata", &numbers(&[77])),
        ("number of the last metadata", &numbers(&[5, 6, 7, 8])),
        ("dirty regions", &dirty_bytes),
        ("out-of-sync regions", &out_of_sync.map(|(_, bytes)| bytes).concat()),
        ("checksum of all before", &checksum(&block)),
    ];
    assert_fields(&fields(PAGE, "Replica metadata", "offset"), &expected, &block);
}

#[test]
fn checksum_head_is_as_documented() {
    let damaged = vec![Damaged { block: 9, expected: None }, Damaged { block: 10, expected: Some(11) }];
    let head = encode_head(&ChecksumHeader { valid: Sections(0x8000_0000_0000_0001), damaged }, 300);
    let sector_fields = fields(PAGE, "Checksums", "offset in a sector");
    let mut content = Vec::new();
    for sector in head.chunks_exact(512) {
        let expected: [(&str, &[u8]); 3] = [
            ("content of the head", &sector[..500]),
            ("sequence number", &numbers(&[300])),
            ("checksum of all before", &checksum(sector)),
        ];
        assert_fields(&sector_fields, &expected, sector);
        content.extend(&sector[..500]);
    }
    let entries: Vec<u8> = [9u32, 0, 0, 10, 1, 11].iter().flat_map(|number| number.to_le_bytes()).collect();
    let content_fields = fields(PAGE, "Checksums", "offset in the content");
    let (last, first) = content_fields.split_last().expect("the table has rows");
    let expected: [(&str, &[u8]); 4] = [
        ("`WEIRCKSM`", b"WEIRCKSM"),
        ("version of the format: 2", &TWO),
        ("number of damaged blocks", &TWO),
        ("sections with valid checksums", &numbers(&[0x8000_0000_0000_0001])),
    ];
    assert_fields(first, &expected, &content[..last.offset]);
    assert_eq!((last.bytes * 2, &content[last.offset..last.offset + 24]), (24, &entries[..]));
}

#[test]
fn checksum_section_is_as_documented() {
    let block_checksums: Vec<u32> = (0..SECTION_BLOCKS as u32).map(|block| block * 3 + 1).collect();
    let record = encode_section(7, &block_checksums);
    let block_checksums: Vec<u8> = block_checksums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    let expected: [(&str, &[u8]); 5] = [
        ("`WEIRSECT`", b"WEIRSECT"),
        ("version of the format: 2", &TWO),
        ("number of the section", &7u32.to_le_bytes()),
        ("checksum of each block", &block_checksums),
        ("checksum of all before", &checksum(&record)),
    ];
    let fields: Vec<Field> = fields(PAGE, "Checksums", "offset in a record");
    assert_fields(&fields, &expected, &record);
}

#[test]
fn journal_marker_is_as_documented() {
    let behind = Behind { drive: DriveId::from_bytes([5; 16]), journal: JournalId::from_bytes([6; 16]) };
    let marker = encode_marker(behind);
    let expected: [(&str, &[u8]); 5] = [
        ("`WEIRBHND`", b"WEIRBHND"),
        ("version of the format: 1", &ONE),
        ("identity of the drive", &[5; 16]),
        ("identity of the journal", &[6; 16]),
        ("checksum of all before", &checksum(&marker)),
    ];
    assert_fields(&fields(PAGE, "Journal marker", "offset"), &expected, &marker);
}

#[test]
fn header_of_epoch_records_is_as_documented() {
    let header = encode_header().0;
    let expected: [(&str, &[u8]); 3] = [
        ("`WEIREPCH`", b"WEIREPCH"),
        ("version of the format: 1", &ONE),
        ("checksum of all before", &checksum(&header)),
    ];
    assert_fields(&fields(PAGE, "Epoch records", "offset in the header"), &expected, &header);
}
