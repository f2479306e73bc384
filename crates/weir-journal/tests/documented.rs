//! The reference describes the file of a journal as it is.

use weir_journal::record::{self, Entry, EntryKind, Header};
use weir_journal::superblock::Superblock;
use weir_journal::{FileKey, checksum};
use weir_testkit::documented::{assert_fields, fields};
use weir_types::{ExtentIndex, JournalId, VolumeId};

const PAGE: &str = include_str!("../../../docs/reference/journal-format.md");
const ONE: [u8; 4] = 1u32.to_le_bytes();
const FORMAT: [u8; 4] = 2u32.to_le_bytes();

#[test]
fn superblock_is_as_documented() {
    let superblock = Superblock {
        journal: JournalId::from_bytes([3; 16]),
        log_blocks: 20_000,
        generation: 5,
        life: 6,
        life_began: 7,
        tail: 8,
        tail_position: 9,
        stable: 10,
    };
    let mut block = [0; 4096];
    superblock.encode(&mut block);
    let number = u64::to_le_bytes;
    let expected: [(&str, &[u8]); 11] = [
        ("`WEIRJRNL`", b"WEIRJRNL"),
        ("version of the format: 2", &FORMAT),
        ("blocks of the log", &20_000u32.to_le_bytes()),
        ("identity of the journal", &[3; 16]),
        ("generation", &number(5)),
        ("life", &number(6)),
        ("first record", &number(7)),
        ("(the tail)", &number(8)),
        ("stable", &number(10)),
        ("block of the log", &9u32.to_le_bytes()),
        ("checksum of all before", &checksum(&block[..4092]).to_le_bytes()),
    ];
    assert_fields(&fields(PAGE, "Superblock", "offset"), &expected, &block);
}

#[test]
fn record_is_as_documented() {
    let header = Header {
        journal: JournalId::from_bytes([3; 16]),
        position: 4,
        sequence: 5,
        stable: 2,
        life: 6,
        generation: 7,
    };
    let file = FileKey { volume: VolumeId::from_bytes([4; 16]), extent: ExtentIndex(8), replica: 2 };
    let kind = EntryKind::Write { checksum: 9 };
    let entry = Entry { file, offset: 4096, length: 8192, kind };
    let mut block = [0; 4096];
    record::encode(&header, [entry].into_iter(), &mut block);
    let number = u64::to_le_bytes;
    let entry_bytes = block[72..108].to_vec();
    let expected: [(&str, &[u8]); 12] = [
        ("`WEIRJREC`", b"WEIRJREC"),
        ("version of the format: 2", &FORMAT),
        ("block of the log", &4u32.to_le_bytes()),
        ("identity of the journal", &[3; 16]),
        ("sequence number", &number(5)),
        ("stable", &number(2)),
        ("life", &number(6)),
        ("generation", &number(7)),
        ("number of entries", &ONE),
        ("payload blocks", &2u32.to_le_bytes()),
        ("entries", &entry_bytes),
        ("checksum", &checksum(&block[..108]).to_le_bytes()),
    ];
    assert_fields(&fields(PAGE, "Record", "offset"), &expected, &block);
    let expected: [(&str, &[u8]); 7] = [
        ("extent", &8u32.to_le_bytes()),
        ("offset in the extent", &4096u32.to_le_bytes()),
        ("length in bytes", &8192u32.to_le_bytes()),
        ("1 write", &[1]),
        ("slot of the replica", &[2]),
        ("checksum", &9u32.to_le_bytes()),
        ("identity of the volume", &[4; 16]),
    ];
    assert_fields(&fields(PAGE, "Record", "offset in an entry"), &expected, &entry_bytes);
}
