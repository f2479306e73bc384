//! The file of checksums beside a copy of an extent; it knows bytes and files, and not what follows from a checksum.
//!
//! It begins with two blocks that are written in turn, each whole in itself: a magic, a format, a number that grows with
//! each writing, which sections are sealed and which blocks damaged, and a checksum of all that. So a write that was torn
//! leaves what was said before it. Behind them lies a record for each section: a magic, which section it is, the
//! checksum of each of its blocks, and one of all that. A record counts only while its section is sealed.
//!
//! The file comes with the first seal, and is sparse: an extent of which little is sealed takes little.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weir_types::bounds::DAMAGED_BLOCKS_MAX;
use weir_volume::mirror::{Damaged, SECTION_BLOCKS, Seals, Sections};

use super::account::read_up_to;
use super::{extent_file_name, sync_folder};

/// Size of a head, in bytes: what drives write at once or not at all.
const HEAD_BYTES: usize = 4096;
/// Number of heads.
const HEADS: usize = 2;
/// What a head begins with.
const HEAD_MAGIC: [u8; 8] = *b"WEIRSUMS";
/// What a record begins with.
const RECORD_MAGIC: [u8; 8] = *b"WEIRSECT";
/// Version of the form of heads and records.
const FORMAT: u32 = 1;
/// Suffix of the file.
const SUFFIX: &str = "sums";
/// Suffix of the file while it is being made.
const NEW_SUFFIX: &str = "sums.new";

const FORMAT_START: usize = HEAD_MAGIC.len();
const SEQUENCE_START: usize = 16;
const SEALED_START: usize = 24;
const COUNT_START: usize = 32;
const DAMAGED_START: usize = 64;
/// Bytes of a damaged block: which it is, whether its checksum is known, and that.
const DAMAGED_BYTES: usize = 12;
/// Where the checksum of all before it lies in a head.
const HEAD_CHECKSUM_START: usize = HEAD_BYTES - 4;

const SECTION_START: usize = 12;
const SUMS_START: usize = 16;
const RECORD_CHECKSUM_START: usize = SUMS_START + 4 * SECTION_BLOCKS;
const RECORD_BYTES: usize = RECORD_CHECKSUM_START + 4;
/// From one record to the next, in bytes: whole blocks, so that writing one touches no other.
const RECORD_STRIDE: usize = RECORD_BYTES.next_multiple_of(HEAD_BYTES);

const _: () = assert!(DAMAGED_START + DAMAGED_BLOCKS_MAX * DAMAGED_BYTES <= HEAD_CHECKSUM_START);

/// A head as it lies in the file.
type Head = [u8; HEAD_BYTES];

/// Name of the file that holds the checksums of the extent with this index.
pub fn sums_file_name(index: u64) -> String {
    format!("{}.{SUFFIX}", extent_file_name(index))
}

/// The path of the checksums beside the extent file with this index.
pub(super) fn sums_path(extents: &Path, index: u64) -> PathBuf {
    extents.join(sums_file_name(index))
}

/// The name of the extent's file that a file beside it belongs to, if it is that of checksums.
pub(super) fn extent_name_of(file_name: &str) -> Option<&str> {
    let (extent, suffix) = file_name.split_once('.')?;
    [SUFFIX, NEW_SUFFIX].contains(&suffix).then_some(extent)
}

/// The extents in a folder beside which there are checksums, in no order.
///
/// # Errors
/// If the folder cannot be read.
pub fn extents_with_sums(extents: &Path) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(extents)? {
        let name = entry?.file_name();
        let extent = name.to_str().filter(|name| name.ends_with(SUFFIX)).and_then(extent_name_of);
        found.extend(extent.and_then(|extent| extent.parse::<u32>().ok()));
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

fn encode_head(seals: &Seals, sequence: u64) -> Head {
    let mut head = [0; HEAD_BYTES];
    put(&mut head, 0, &HEAD_MAGIC);
    put(&mut head, FORMAT_START, &FORMAT.to_le_bytes());
    put(&mut head, SEQUENCE_START, &sequence.to_le_bytes());
    put(&mut head, SEALED_START, &seals.sealed.0.to_le_bytes());
    let damaged = &seals.damaged[..seals.damaged.len().min(DAMAGED_BLOCKS_MAX)];
    put(&mut head, COUNT_START, &(damaged.len() as u32).to_le_bytes());
    for (index, damaged) in damaged.iter().enumerate() {
        let start = DAMAGED_START + index * DAMAGED_BYTES;
        put(&mut head, start, &damaged.block.to_le_bytes());
        put(&mut head, start + 4, &u32::from(damaged.expected.is_some()).to_le_bytes());
        put(&mut head, start + 8, &damaged.expected.unwrap_or(0).to_le_bytes());
    }
    let checksum = crc32c::crc32c(&head[..HEAD_CHECKSUM_START]);
    put(&mut head, HEAD_CHECKSUM_START, &checksum.to_le_bytes());
    head
}

/// What a head says, with its number; `None` if it is not whole, or not of this format.
fn decode_head(head: &Head) -> Option<(Seals, u64)> {
    let is_whole = number(head, HEAD_CHECKSUM_START) == crc32c::crc32c(&head[..HEAD_CHECKSUM_START]);
    if head[..HEAD_MAGIC.len()] != HEAD_MAGIC || !is_whole || number(head, FORMAT_START) != FORMAT {
        return None;
    }
    let damaged = |index: usize| {
        let start = DAMAGED_START + index * DAMAGED_BYTES;
        let expected = (number(head, start + 4) != 0).then(|| number(head, start + 8));
        Damaged { block: number(head, start), expected }
    };
    let count = (number(head, COUNT_START) as usize).min(DAMAGED_BLOCKS_MAX);
    let seals = Seals {
        sealed: Sections(u64::from_le_bytes(array(head, SEALED_START))),
        damaged: (0..count).map(damaged).collect(),
    };
    Some((seals, u64::from_le_bytes(array(head, SEQUENCE_START))))
}

/// The newest head of a file, with its place and number.
fn newest_head(file: &File) -> io::Result<Option<(usize, Seals, u64)>> {
    let mut newest: Option<(usize, Seals, u64)> = None;
    for index in 0..HEADS {
        let mut head = [0; HEAD_BYTES];
        read_up_to(file, &mut head, (index * HEAD_BYTES) as u64)?;
        if let Some((seals, sequence)) = decode_head(&head)
            && newest.as_ref().is_none_or(|(_, _, known)| *known < sequence)
        {
            newest = Some((index, seals, sequence));
        }
    }
    Ok(newest)
}

/// What is said beside a copy of an extent: nothing if there is no file, or it has no whole head.
///
/// # Errors
/// If the file cannot be read.
pub fn read_seals(path: &Path) -> io::Result<Seals> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Seals::default()),
        result => result?,
    };
    Ok(newest_head(&file)?.map(|(_, seals, _)| seals).unwrap_or_default())
}

/// Says something else beside a copy of an extent, durably. Where there is no file and nothing is to be said, none is
/// made.
///
/// # Errors
/// Those of the file.
pub fn write_seals(path: &Path, seals: &Seals) -> io::Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if *seals == Seals::default() { Ok(()) } else { make(path, seals) };
        }
        result => result?,
    };
    let (index, sequence) = match newest_head(&file)? {
        Some((index, _, sequence)) => (HEADS - 1 - index, sequence + 1),
        None => (0, 1),
    };
    file.write_all_at(&encode_head(seals, sequence), (index * HEAD_BYTES) as u64)?;
    file.sync_data()
}

/// Makes the file, so that a crash leaves it whole or not at all. Both heads have their space from the beginning: a seal
/// can be broken on a full drive.
fn make(path: &Path, seals: &Seals) -> io::Result<()> {
    let new = path.with_extension(NEW_SUFFIX);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let mut content = [0; HEADS * HEAD_BYTES];
    content[..HEAD_BYTES].copy_from_slice(&encode_head(seals, 1));
    file.write_all_at(&content, 0)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// The checksums of a section; `None` if none were written, or they are not whole.
///
/// # Errors
/// If the file cannot be read.
pub fn read_section(path: &Path, section: u32) -> io::Result<Option<Vec<u32>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result?,
    };
    let mut record = vec![0; RECORD_BYTES];
    read_up_to(&file, &mut record, record_start(section))?;
    let is_whole = number(&record, RECORD_CHECKSUM_START) == crc32c::crc32c(&record[..RECORD_CHECKSUM_START]);
    let is_its_own = number(&record, SECTION_START) == section && number(&record, FORMAT_START) == FORMAT;
    if record[..RECORD_MAGIC.len()] != RECORD_MAGIC || !is_whole || !is_its_own {
        return Ok(None);
    }
    let sums = record[SUMS_START..RECORD_CHECKSUM_START].chunks_exact(4);
    Ok(Some(sums.map(|sum| u32::from_le_bytes(sum.try_into().expect("a chunk has four bytes"))).collect()))
}

/// Writes the checksums of a section, durably. It must not be sealed: they do not count before it is.
///
/// # Errors
/// Those of the file.
pub fn write_section(path: &Path, section: u32, sums: &[u32]) -> io::Result<()> {
    assert_eq!(sums.len(), SECTION_BLOCKS, "a section has a checksum for each block");
    let mut record = vec![0; RECORD_BYTES];
    put(&mut record, 0, &RECORD_MAGIC);
    put(&mut record, FORMAT_START, &FORMAT.to_le_bytes());
    put(&mut record, SECTION_START, &section.to_le_bytes());
    for (index, sum) in sums.iter().enumerate() {
        put(&mut record, SUMS_START + 4 * index, &sum.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&record[..RECORD_CHECKSUM_START]);
    put(&mut record, RECORD_CHECKSUM_START, &checksum.to_le_bytes());
    let file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path, &Seals::default())?;
            OpenOptions::new().write(true).open(path)?
        }
        result => result?,
    };
    file.write_all_at(&record, record_start(section))?;
    file.sync_data()
}

/// Drops all checksums beside a copy of an extent, durably.
///
/// # Errors
/// Those of the folder; that there is no file is none.
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

    fn seals() -> impl Strategy<Value = Seals> {
        let damaged = (any::<u32>(), any::<Option<u32>>());
        let damaged = prop::collection::vec(damaged, 0..=DAMAGED_BLOCKS_MAX);
        (any::<u64>(), damaged).prop_map(|(sealed, damaged)| Seals {
            sealed: Sections(sealed),
            damaged: damaged.into_iter().map(|(block, expected)| Damaged { block, expected }).collect(),
        })
    }

    fn file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = sums_path(folder.path(), 7);
        (folder, path)
    }

    fn sums(seed: u32) -> Vec<u32> {
        (0..SECTION_BLOCKS as u32).map(|block| block.wrapping_mul(seed)).collect()
    }

    proptest! {
        #[test]
        fn seals_are_read_as_they_were_written(written in prop::collection::vec(seals(), 1..4)) {
            let (_folder, path) = file();
            for seals in &written {
                write_seals(&path, seals).unwrap();
                prop_assert_eq!(&read_seals(&path).unwrap(), seals);
            }
        }

        #[test]
        fn a_torn_write_leaves_what_was_said_before_it(
            before in seals(), torn in seals(), cut in 0..HEAD_BYTES,
        ) {
            let (_folder, path) = file();
            write_section(&path, 0, &sums(3)).unwrap();
            write_seals(&path, &before).unwrap();
            let old = fs::read(&path).unwrap();
            write_seals(&path, &torn).unwrap();
            let mut content = fs::read(&path).unwrap();
            let start = if old[..HEAD_BYTES] == content[..HEAD_BYTES] { HEAD_BYTES } else { 0 };
            content[start + cut..start + HEAD_BYTES].copy_from_slice(&old[start + cut..start + HEAD_BYTES]);
            fs::write(&path, content).unwrap();
            let found = read_seals(&path).unwrap();
            prop_assert!(found == before || found == torn);
        }

        #[test]
        fn any_flipped_byte_of_a_record_is_noticed(
            section in 0..SECTIONS, at in 0..RECORD_BYTES, by in 1u8..,
        ) {
            let (_folder, path) = file();
            write_section(&path, section, &sums(5)).unwrap();
            prop_assert_eq!(read_section(&path, section).unwrap(), Some(sums(5)));
            let mut content = fs::read(&path).unwrap();
            content[record_start(section) as usize + at] ^= by;
            fs::write(&path, content).unwrap();
            prop_assert_eq!(read_section(&path, section).unwrap(), None);
        }
    }

    #[test]
    fn sections_do_not_touch_each_other_or_the_heads() {
        let (_folder, path) = file();
        let seals = Seals { sealed: Sections(5), damaged: vec![Damaged { block: 9, expected: None }] };
        write_seals(&path, &seals).unwrap();
        (0..SECTIONS).for_each(|section| write_section(&path, section, &sums(section + 1)).unwrap());
        let is_kept = |section: &u32| read_section(&path, *section).unwrap() == Some(sums(section + 1));
        assert!((0..SECTIONS).all(|section| is_kept(&section)));
        assert_eq!(read_seals(&path).unwrap(), seals);
    }

    #[test]
    fn what_is_not_there_says_nothing_and_is_not_made_for_it() {
        let (folder, path) = file();
        write_seals(&path, &Seals::default()).unwrap();
        assert!(!path.exists());
        assert_eq!((read_seals(&path).unwrap(), read_section(&path, 3).unwrap()), (Seals::default(), None));
        remove(&path).unwrap();
        write_section(&path, 1, &sums(2)).unwrap();
        fs::write(folder.path().join("00000003.account"), "").unwrap();
        assert_eq!(extents_with_sums(folder.path()).unwrap(), [7]);
        assert_eq!(read_section(&path, 0).unwrap(), None, "a hole is no record");
        remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_not_whole_says_nothing() {
        let (_folder, path) = file();
        for content in [vec![], vec![0; 100], vec![7; 3 * HEAD_BYTES]] {
            fs::write(&path, content).unwrap();
            assert_eq!(
                (read_seals(&path).unwrap(), read_section(&path, 0).unwrap()),
                (Seals::default(), None)
            );
        }
    }
}
