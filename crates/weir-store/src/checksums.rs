//! Checksum file beside a replica of an extent. This module knows bytes and files, not the use of checksums.
//!
//! It begins with two heads that are written in turn: a magic, a format, which sections have valid checksums and which blocks damaged.
//! Each sector of a head ends with a number that grows by one with each writing, and a checksum of its own. A write that
//! was torn leaves whole sectors of two writings; then what the other head says counts, because nothing that relies on the
//! new one has begun. A sector that is not whole has rotted: what it said is not known, and may have taken back what the
//! other head says, so nothing counts. Behind the heads lies a record for each section: a magic, which section it is, the
//! checksum of each of its blocks, and one of all that. A record counts only while its section has valid checksums.
//!
//! The file comes with the first header, and is sparse: an extent of which little has valid checksums takes little.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weir_types::ExtentIndex;
use weir_types::bounds::DAMAGED_BLOCKS_MAX;
use weir_volume::mirror::{ChecksumHeader, Damaged, SECTION_BLOCKS, Sections};

use super::replica_metadata::read_up_to;
use super::{extent_file_name, sync_folder};

/// Size of a head, in bytes.
const HEAD_BYTES: usize = 4096;
/// Size of a sector, in bytes. Every drive writes a sector whole or not at all.
const SECTOR_BYTES: usize = 512;
/// Sectors of a head.
const SECTORS_PER_HEAD: usize = HEAD_BYTES / SECTOR_BYTES;
/// Number of heads.
const HEADS: usize = 2;
/// First bytes of a head.
const HEAD_MAGIC: [u8; 8] = *b"WEIRCKSM";
/// First bytes of a record.
const RECORD_MAGIC: [u8; 8] = *b"WEIRSECT";
/// Version of the format of heads and records.
const FORMAT: u32 = 2;
/// Suffix of the file.
const SUFFIX: &str = "checksums";
/// Suffix of the file while it is being made.
const NEW_SUFFIX: &str = "checksums.new";

/// Positions of the sequence number in a sector of a head, and of the checksum of all bytes before it.
const SEQUENCE_START: usize = SECTOR_BYTES - 12;
const SECTOR_CHECKSUM_START: usize = SECTOR_BYTES - 4;
/// Content bytes of a sector of a head.
const SECTOR_CONTENT_BYTES: usize = SEQUENCE_START;
const HEAD_CONTENT_BYTES: usize = SECTORS_PER_HEAD * SECTOR_CONTENT_BYTES;

const FORMAT_START: usize = HEAD_MAGIC.len();
const COUNT_START: usize = 12;
const VALID_START: usize = 16;
const DAMAGED_START: usize = 24;
/// Bytes of a damaged block: its index, whether its checksum is known, and the checksum.
const DAMAGED_BYTES: usize = 12;

const SECTION_START: usize = 12;
const BLOCK_CHECKSUMS_START: usize = 16;
const RECORD_CHECKSUM_START: usize = BLOCK_CHECKSUMS_START + 4 * SECTION_BLOCKS;
/// Size of the record of a section, in bytes.
pub const RECORD_BYTES: usize = RECORD_CHECKSUM_START + 4;
/// Distance of records, in bytes. It is whole blocks, so that the write of one record touches no other.
const RECORD_STRIDE: usize = RECORD_BYTES.next_multiple_of(HEAD_BYTES);

const _: () = assert!(DAMAGED_START + DAMAGED_BLOCKS_MAX * DAMAGED_BYTES <= HEAD_CONTENT_BYTES);

/// A head as it lies in the file.
pub type Head = [u8; HEAD_BYTES];

/// Name of the file that holds the checksums of the extent with this index.
pub fn checksum_file_name(index: ExtentIndex) -> String {
    format!("{}.{SUFFIX}", extent_file_name(index))
}

/// The path of the checksums beside the extent file with this index.
pub(crate) fn checksum_path(extents: &Path, index: ExtentIndex) -> PathBuf {
    extents.join(checksum_file_name(index))
}

/// The name of the extent's file that a file beside it belongs to, if it is that of checksums.
pub(crate) fn extent_name_of(file_name: &str) -> Option<&str> {
    let (extent, suffix) = file_name.split_once('.')?;
    [SUFFIX, NEW_SUFFIX].contains(&suffix).then_some(extent)
}

/// The extents in a folder that have a checksum file, in no order.
///
/// # Errors
/// If the folder cannot be read.
pub fn extents_with_checksums(extents: &Path) -> io::Result<Vec<ExtentIndex>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(extents)? {
        let name = entry?.file_name();
        let extent = name.to_str().filter(|name| name.ends_with(SUFFIX)).and_then(extent_name_of);
        found.extend(extent.and_then(|extent| extent.parse().ok()).map(ExtentIndex));
    }
    Ok(found)
}

fn put(bytes: &mut [u8], start: usize, field: &[u8]) {
    bytes[start..start + field.len()].copy_from_slice(field);
}

fn array<const N: usize>(bytes: &[u8], start: usize) -> [u8; N] {
    bytes[start..start + N].try_into().expect("a field lies within what holds it")
}

fn number(bytes: &[u8], start: usize) -> u32 {
    u32::from_le_bytes(array(bytes, start))
}

/// Encodes a head. Only the first [`DAMAGED_BLOCKS_MAX`] damaged blocks have space.
pub fn encode_head(headers: &ChecksumHeader, sequence: u64) -> Head {
    let mut content = [0; HEAD_CONTENT_BYTES];
    put(&mut content, 0, &HEAD_MAGIC);
    put(&mut content, FORMAT_START, &FORMAT.to_le_bytes());
    put(&mut content, VALID_START, &headers.valid.0.to_le_bytes());
    let damaged = &headers.damaged[..headers.damaged.len().min(DAMAGED_BLOCKS_MAX)];
    put(&mut content, COUNT_START, &(damaged.len() as u32).to_le_bytes());
    for (index, damaged) in damaged.iter().enumerate() {
        let start = DAMAGED_START + index * DAMAGED_BYTES;
        put(&mut content, start, &damaged.block.to_le_bytes());
        put(&mut content, start + 4, &u32::from(damaged.expected.is_some()).to_le_bytes());
        put(&mut content, start + 8, &damaged.expected.unwrap_or(0).to_le_bytes());
    }
    let mut head = [0; HEAD_BYTES];
    for (sector, part) in head.chunks_exact_mut(SECTOR_BYTES).zip(content.chunks_exact(SECTOR_CONTENT_BYTES))
    {
        put(sector, 0, part);
        put(sector, SEQUENCE_START, &sequence.to_le_bytes());
        let checksum = crc32c::crc32c(&sector[..SECTOR_CHECKSUM_START]);
        put(sector, SECTOR_CHECKSUM_START, &checksum.to_le_bytes());
    }
    head
}

/// Content of a head. `None` if the head is not of this format.
fn decode_head(head: &Head) -> Option<ChecksumHeader> {
    let mut content = [0; HEAD_CONTENT_BYTES];
    for (sector, part) in head.chunks_exact(SECTOR_BYTES).zip(content.chunks_exact_mut(SECTOR_CONTENT_BYTES))
    {
        part.copy_from_slice(&sector[..SECTOR_CONTENT_BYTES]);
    }
    if content[..HEAD_MAGIC.len()] != HEAD_MAGIC || number(&content, FORMAT_START) != FORMAT {
        return None;
    }
    let damaged = |index: usize| {
        let start = DAMAGED_START + index * DAMAGED_BYTES;
        let expected = (number(&content, start + 4) != 0).then(|| number(&content, start + 8));
        Damaged { block: number(&content, start), expected }
    };
    let count = (number(&content, COUNT_START) as usize).min(DAMAGED_BLOCKS_MAX);
    Some(ChecksumHeader {
        valid: Sections(u64::from_le_bytes(array(&content, VALID_START))),
        damaged: (0..count).map(damaged).collect(),
    })
}

/// State of a head in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All sectors of one write.
    Whole(u64),
    /// Valid sectors of two writes, the earlier and the later.
    Torn(u64, u64),
    /// A content that no write leaves.
    Damaged,
}

fn state_of(head: &Head) -> State {
    let mut sequences = [0; SECTORS_PER_HEAD];
    for (sequence, sector) in sequences.iter_mut().zip(head.chunks_exact(SECTOR_BYTES)) {
        match sequence_of(sector) {
            Some(found) => *sequence = found,
            None => return State::Damaged,
        }
    }
    let (earlier, later) = sequences.iter().fold((u64::MAX, 0), |(a, b), s| (a.min(*s), b.max(*s)));
    match sequences.iter().all(|sequence| [earlier, later].contains(sequence)) {
        true if earlier == later => State::Whole(later),
        true => State::Torn(earlier, later),
        false => State::Damaged,
    }
}

/// Sequence number of the write of a sector. `None` if the sector is invalid.
fn sequence_of(sector: &[u8]) -> Option<u64> {
    let is_whole = number(sector, SECTOR_CHECKSUM_START) == crc32c::crc32c(&sector[..SECTOR_CHECKSUM_START]);
    is_whole.then(|| u64::from_le_bytes(array(sector, SEQUENCE_START)))
}

/// The header in both heads of a file. `None` if a possibly newer head is damaged, or is of another format.
pub fn decode_heads(heads: [Head; HEADS]) -> Option<ChecksumHeader> {
    Heads::of(heads).headers()
}

/// Both heads of a file.
struct Heads {
    content: [Head; HEADS],
    states: [State; HEADS],
}

impl Heads {
    fn read(file: &File) -> io::Result<Heads> {
        let mut content = [[0; HEAD_BYTES]; HEADS];
        read_up_to(file, content.as_flattened_mut(), 0)?;
        Ok(Heads::of(content))
    }

    fn of(content: [Head; HEADS]) -> Heads {
        Heads { content, states: content.each_ref().map(state_of) }
    }

    /// The header that counts. `None` if a possibly newer head is damaged.
    fn headers(&self) -> Option<ChecksumHeader> {
        let (index, sequence) = self.last_whole()?;
        let (before, after) = (sequence.checked_sub(1)?, sequence.checked_add(1)?);
        let is_explained = match self.states[HEADS - 1 - index] {
            State::Whole(other) => other == before,
            State::Torn(earlier, later) => (earlier, later) == (before, after),
            State::Damaged => false,
        };
        if is_explained { decode_head(&self.content[index]) } else { None }
    }

    /// The last whole head, with its sequence number.
    fn last_whole(&self) -> Option<(usize, u64)> {
        let whole = |(index, state): (usize, &State)| match state {
            State::Whole(sequence) => Some((index, *sequence)),
            State::Torn(..) | State::Damaged => None,
        };
        self.states.iter().enumerate().filter_map(whole).max_by_key(|(_, sequence)| *sequence)
    }
}

/// The header beside a replica of an extent. It is empty if there is no file, or if the newest head is in
/// doubt.
///
/// # Errors
/// If the file cannot be read.
pub fn read_header(path: &Path) -> io::Result<ChecksumHeader> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ChecksumHeader::default()),
        result => result?,
    };
    Ok(Heads::read(&file)?.headers().unwrap_or_default())
}

/// Writes a new header beside a replica of an extent, durably. Without a file, an empty header makes none.
///
/// # Errors
/// If the file cannot be written.
pub fn write_header(path: &Path, headers: &ChecksumHeader) -> io::Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if *headers == ChecksumHeader::default() { Ok(()) } else { make(path, headers) };
        }
        result => result?,
    };
    match Heads::read(&file)?.last_whole() {
        // This may replace a newer but corrupted head. The number follows that of the head that stays.
        Some((index, sequence)) => {
            let start = (HEADS - 1 - index) * HEAD_BYTES;
            file.write_all_at(&encode_head(headers, sequence.wrapping_add(1)), start as u64)?;
        }
        None => file.write_all_at(&first_heads(headers), 0)?,
    }
    file.sync_data()
}

/// The heads of a new file. The older head is empty. No head is zero, so a head that reads as zeroes is
/// corrupted.
fn first_heads(headers: &ChecksumHeader) -> [u8; HEADS * HEAD_BYTES] {
    let mut content = [0; HEADS * HEAD_BYTES];
    put(&mut content, 0, &encode_head(headers, 2));
    put(&mut content, HEAD_BYTES, &encode_head(&ChecksumHeader::default(), 1));
    content
}

/// Makes the file, so that a crash leaves it whole or not at all. Both heads have their space from the beginning: a header
/// can be broken on a full drive.
fn make(path: &Path, headers: &ChecksumHeader) -> io::Result<()> {
    let new = path.with_extension(NEW_SUFFIX);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all_at(&first_heads(headers), 0)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// The checksums of a section. `None` if they were never written or are invalid.
///
/// # Errors
/// If the file cannot be read.
pub fn read_section(path: &Path, section: u32) -> io::Result<Option<Vec<u32>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result?,
    };
    let mut record = [0; RECORD_BYTES];
    read_up_to(&file, &mut record, record_start(section))?;
    Ok(decode_section(&record, section))
}

/// The checksums in the record of a section. `None` if the record is damaged, or is of another section or
/// format.
pub fn decode_section(record: &[u8; RECORD_BYTES], section: u32) -> Option<Vec<u32>> {
    let is_whole = number(record, RECORD_CHECKSUM_START) == crc32c::crc32c(&record[..RECORD_CHECKSUM_START]);
    let is_its_own = number(record, SECTION_START) == section && number(record, FORMAT_START) == FORMAT;
    if record[..RECORD_MAGIC.len()] != RECORD_MAGIC || !is_whole || !is_its_own {
        return None;
    }
    let block_checksums = record[BLOCK_CHECKSUMS_START..RECORD_CHECKSUM_START].chunks_exact(4);
    let number = |sum: &[u8]| u32::from_le_bytes(sum.try_into().expect("a chunk has four bytes"));
    Some(block_checksums.map(number).collect())
}

/// Encodes the record of a section.
///
/// # Panics
/// If there is not one checksum for each block.
pub fn encode_section(section: u32, block_checksums: &[u32]) -> [u8; RECORD_BYTES] {
    assert_eq!(block_checksums.len(), SECTION_BLOCKS, "a section has a checksum for each block");
    let mut record = [0; RECORD_BYTES];
    put(&mut record, 0, &RECORD_MAGIC);
    put(&mut record, FORMAT_START, &FORMAT.to_le_bytes());
    put(&mut record, SECTION_START, &section.to_le_bytes());
    for (index, sum) in block_checksums.iter().enumerate() {
        put(&mut record, BLOCK_CHECKSUMS_START + 4 * index, &sum.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&record[..RECORD_CHECKSUM_START]);
    put(&mut record, RECORD_CHECKSUM_START, &checksum.to_le_bytes());
    record
}

/// Writes the checksums of a section, durably. It must not have valid checksums: they do not count before it is.
///
/// # Errors
/// If the file cannot be written.
pub fn write_section(path: &Path, section: u32, block_checksums: &[u32]) -> io::Result<()> {
    let record = encode_section(section, block_checksums);
    let file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path, &ChecksumHeader::default())?;
            OpenOptions::new().write(true).open(path)?
        }
        result => result?,
    };
    file.write_all_at(&record, record_start(section))?;
    file.sync_data()
}

/// Removes all checksums beside a replica of an extent, durably.
///
/// # Errors
/// If the folder cannot be changed. A missing file is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result?,
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    sync_folder(folder).map_err(|error| error.source)
}

fn record_start(section: u32) -> u64 {
    (HEADS * HEAD_BYTES) as u64 + u64::from(section) * RECORD_STRIDE as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_volume::mirror::SECTIONS;

    fn headers() -> impl Strategy<Value = ChecksumHeader> {
        let damaged = (any::<u32>(), any::<Option<u32>>());
        let damaged = prop::collection::vec(damaged, 0..=DAMAGED_BLOCKS_MAX);
        (any::<u64>(), damaged).prop_map(|(valid, damaged)| ChecksumHeader {
            valid: Sections(valid),
            damaged: damaged.into_iter().map(|(block, expected)| Damaged { block, expected }).collect(),
        })
    }

    fn file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = checksum_path(folder.path(), ExtentIndex(7));
        (folder, path)
    }

    /// A file whose head was written twice after the first time, its content, and the position of the newest
    /// head.
    fn written_twice(
        older: &ChecksumHeader,
        newest: &ChecksumHeader,
    ) -> (tempfile::TempDir, PathBuf, Vec<u8>, usize) {
        let (folder, path) = file();
        write_header(&path, &ChecksumHeader { valid: Sections(1), damaged: vec![] }).unwrap();
        write_header(&path, older).unwrap();
        let old = fs::read(&path).unwrap();
        write_header(&path, newest).unwrap();
        let content = fs::read(&path).unwrap();
        let start = if old[..HEAD_BYTES] == content[..HEAD_BYTES] { HEAD_BYTES } else { 0 };
        (folder, path, content, start)
    }

    fn block_checksums(seed: u32) -> Vec<u32> {
        (0..SECTION_BLOCKS as u32).map(|block| block.wrapping_mul(seed)).collect()
    }

    proptest! {
        #[test]
        fn headers_survive_write_and_read(written in prop::collection::vec(headers(), 1..4)) {
            let (_folder, path) = file();
            for headers in &written {
                write_header(&path, headers).unwrap();
                prop_assert_eq!(&read_header(&path).unwrap(), headers);
            }
        }

        #[test]
        fn torn_header_write_leaves_previous_header(
            first in headers(), before in headers(), torn in headers(), sectors in any::<[bool; SECTORS_PER_HEAD]>(),
        ) {
            let (_folder, path) = file();
            write_section(&path, 0, &block_checksums(3)).unwrap();
            write_header(&path, &first).unwrap();
            write_header(&path, &before).unwrap();
            let old = fs::read(&path).unwrap();
            write_header(&path, &torn).unwrap();
            let mut content = fs::read(&path).unwrap();
            let start = if old[..HEAD_BYTES] == content[..HEAD_BYTES] { HEAD_BYTES } else { 0 };
            for (index, _) in sectors.iter().enumerate().filter(|(_, is_written)| !**is_written) {
                let sector = start + index * SECTOR_BYTES..start + (index + 1) * SECTOR_BYTES;
                content[sector.clone()].copy_from_slice(&old[sector]);
            }
            fs::write(&path, content).unwrap();
            let found = read_header(&path).unwrap();
            let expected = if sectors.iter().all(|is_written| *is_written) { &torn } else { &before };
            prop_assert_eq!(&found, expected);
            write_header(&path, &first).unwrap();
            prop_assert_eq!(read_header(&path).unwrap(), first);
        }

        #[test]
        fn corrupted_newest_head_invalidates_older_head(
            older in headers(), newest in headers(), later in headers(), at in 0..HEAD_BYTES, by in 1u8..,
        ) {
            let (_folder, path, mut content, start) = written_twice(&older, &newest);
            content[start + at] ^= by;
            fs::write(&path, &content).unwrap();
            prop_assert_eq!(read_header(&path).unwrap(), ChecksumHeader::default());
            write_header(&path, &later).unwrap();
            prop_assert_eq!(read_header(&path).unwrap(), later);
        }

        #[test]
        fn zeroed_sector_of_head_is_corruption_not_tear(
            older in headers(), newest in headers(), sector in 0..SECTORS_PER_HEAD,
        ) {
            let (_folder, path, mut content, start) = written_twice(&older, &newest);
            content[start + sector * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
            fs::write(&path, &content).unwrap();
            prop_assert_eq!(read_header(&path).unwrap(), ChecksumHeader::default());
        }

        #[test]
        fn flipped_byte_of_record_is_detected(
            section in 0..SECTIONS, at in 0..RECORD_BYTES, by in 1u8..,
        ) {
            let (_folder, path) = file();
            write_section(&path, section, &block_checksums(5)).unwrap();
            prop_assert_eq!(read_section(&path, section).unwrap(), Some(block_checksums(5)));
            let mut content = fs::read(&path).unwrap();
            content[record_start(section) as usize + at] ^= by;
            fs::write(&path, content).unwrap();
            prop_assert_eq!(read_section(&path, section).unwrap(), None);
        }
    }

    #[test]
    fn section_writes_touch_no_other_section_or_head() {
        let (_folder, path) = file();
        let headers =
            ChecksumHeader { valid: Sections(5), damaged: vec![Damaged { block: 9, expected: None }] };
        write_header(&path, &headers).unwrap();
        (0..SECTIONS)
            .for_each(|section| write_section(&path, section, &block_checksums(section + 1)).unwrap());
        let is_kept =
            |section: &u32| read_section(&path, *section).unwrap() == Some(block_checksums(section + 1));
        assert!((0..SECTIONS).all(|section| is_kept(&section)));
        assert_eq!(read_header(&path).unwrap(), headers);
    }

    #[test]
    fn missing_checksum_file_reads_empty_and_stays_missing() {
        let (folder, path) = file();
        write_header(&path, &ChecksumHeader::default()).unwrap();
        assert!(!path.exists());
        assert_eq!(
            (read_header(&path).unwrap(), read_section(&path, 3).unwrap()),
            (ChecksumHeader::default(), None)
        );
        remove(&path).unwrap();
        write_section(&path, 1, &block_checksums(2)).unwrap();
        fs::write(folder.path().join("00000003.metadata"), "").unwrap();
        assert_eq!(extents_with_checksums(folder.path()).unwrap(), [ExtentIndex(7)]);
        assert_eq!(read_section(&path, 0).unwrap(), None, "a hole is no record");
        remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn damaged_checksum_file_reads_empty() {
        let (_folder, path) = file();
        for content in [vec![], vec![0; 100], vec![7; 3 * HEAD_BYTES]] {
            fs::write(&path, content).unwrap();
            assert_eq!(
                (read_header(&path).unwrap(), read_section(&path, 0).unwrap()),
                (ChecksumHeader::default(), None)
            );
        }
    }
}
