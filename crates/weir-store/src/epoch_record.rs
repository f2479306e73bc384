//! The file of a volume's epoch records, apart from all its replicas.
//!
//! [`epoch_record`](weir_volume::mirror::epoch_record) decides the content of the file and when it is
//! written.
//!
//! The first block of the file is its header: a magic, the version of the format and a checksum. The blocks of
//! entries follow.
//!
//! The file is read and written past the page cache where the filesystem permits. So the content read is on
//! the drive, even after a failed write. The space of the file is allocated when the file is made, so that a
//! full filesystem prevents no epoch record.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weir_reactor::Descriptor;
use weir_types::ExtentIndex;
use weir_types::bounds::BLOCK_BYTES;
use weir_volume::mirror::EpochRecord;
use weir_volume::mirror::epoch_record::{self, RecordBlock, RecordBlocks};

use super::{Context, StoreError};

/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"WEIREPCH";
/// Version of the format of the file.
pub const FORMAT: u32 = 1;
/// Offset of the version in the header.
pub const FORMAT_START: usize = MAGIC.len();
/// Offset of the checksum of all bytes before it in the header.
pub const CHECKSUM_START: usize = BLOCK_BYTES as usize - 4;
/// Blocks before the first block of entries.
const HEADER_BLOCKS: u64 = 1;
/// Suffix of the file while it is being made.
const NEW_SUFFIX: &str = "new";

/// Why a file is no file of epoch records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// The file has other content.
    #[error("it does not begin as epoch records do")]
    Magic,
    /// The header is damaged.
    #[error("the checksum of its header is {found:#010x} where its content has {expected:#010x}")]
    Checksum {
        /// Checksum in the header.
        found: u32,
        /// Checksum of the content.
        expected: u32,
    },
    /// A later version wrote the file.
    #[error("it has format {0}, not {FORMAT}")]
    Format(u32),
}

/// The header of a file of epoch records.
pub fn encode_header() -> RecordBlock {
    let mut block = RecordBlock::default();
    block.0[..MAGIC.len()].copy_from_slice(&MAGIC);
    block.0[FORMAT_START..FORMAT_START + 4].copy_from_slice(&FORMAT.to_le_bytes());
    let checksum = crc32c::crc32c(&block.0[..CHECKSUM_START]);
    block.0[CHECKSUM_START..].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// Checks the header of a file of epoch records.
///
/// # Errors
/// If the file is another one, is damaged, or a later version wrote it.
pub fn check_header(block: &RecordBlock) -> Result<(), HeaderFault> {
    if block.0[..MAGIC.len()] != MAGIC {
        return Err(HeaderFault::Magic);
    }
    let number = |start: usize| {
        u32::from_le_bytes(block.0[start..start + 4].try_into().expect("a number has four bytes"))
    };
    let (found, expected) = (number(CHECKSUM_START), crc32c::crc32c(&block.0[..CHECKSUM_START]));
    if found != expected {
        return Err(HeaderFault::Checksum { found, expected });
    }
    match number(FORMAT_START) {
        FORMAT => Ok(()),
        format => Err(HeaderFault::Format(format)),
    }
}

/// An open file of epoch records, whose header was checked.
struct RecordFile(File);

impl RecordFile {
    /// # Errors
    /// If the header cannot be read or is not accepted.
    fn check(file: File) -> io::Result<RecordFile> {
        check_header(&read_block(&file, 0)?).map_err(io::Error::other)?;
        Ok(RecordFile(file))
    }
}

fn read_block(file: &File, block: u64) -> io::Result<RecordBlock> {
    let mut content = RecordBlock::default();
    loop {
        // Only the end of the file has less than a block.
        match file.read_at(&mut content.0, block * BLOCK_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(|_| content),
        }
    }
}

impl RecordBlocks for RecordFile {
    type Error = io::Error;

    fn read(&mut self, block: u64) -> io::Result<RecordBlock> {
        read_block(&self.0, HEADER_BLOCKS + block)
    }

    fn write(&mut self, block: u64, content: &RecordBlock) -> io::Result<()> {
        self.0.write_all_at(&content.0, (HEADER_BLOCKS + block) * BLOCK_BYTES)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// The epoch records of a volume's first extents. Records that were never written are zero.
///
/// # Errors
/// If the file exists and cannot be read, or is none of epoch records.
pub fn read_all(path: &Path, extents: u64) -> Result<Vec<EpochRecord>, StoreError> {
    match Descriptor::open_direct(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(vec![EpochRecord::default(); usize::try_from(extents).unwrap_or(usize::MAX)])
        }
        file => {
            let file = file.context("open", path)?.into();
            let mut file = RecordFile::check(file).context("understand", path)?;
            epoch_record::read_all(&mut file, extents).context("read", path)
        }
    }
}

/// Allocates an epoch durably: metadata of the extent may have it from now on. A higher recorded epoch stays.
pub fn reserve(path: &Path, extent: ExtentIndex, epoch: u64) -> io::Result<()> {
    epoch_record::raise(&mut open(path)?, extent, epoch, false)
}

/// Commits the epoch of replica metadata that counts, durably. A higher recorded epoch stays.
pub fn know(path: &Path, extent: ExtentIndex, epoch: u64) -> io::Result<()> {
    epoch_record::raise(&mut open(path)?, extent, epoch, true)
}

/// Records durably that the last replica in sync of an extent failed, and that its content is unknown.
pub fn fail(path: &Path, extent: ExtentIndex) -> io::Result<()> {
    epoch_record::fail(&mut open(path)?, extent)
}

/// Allocates space for the epoch records of so many extents, durably.
///
/// # Errors
/// If the space cannot be allocated. Then a new epoch record of the volume may find no space.
pub fn prepare(path: &Path, extents: u64) -> Result<(), StoreError> {
    let mut file = open(path).context("create", path)?;
    let blocks = epoch_record::blocks_of(extents);
    let there = file.0.metadata().context("look at", path)?.len() / BLOCK_BYTES - HEADER_BLOCKS;
    if there >= blocks {
        return Ok(());
    }
    let mut fill = || {
        (there..blocks).try_for_each(|block| {
            let content = file.read(block)?;
            file.write(block, &content)
        })?;
        file.sync()
    };
    fill().context("set space aside in", path)
}

/// Writes the epoch record of new extents durably, over the records of earlier extents with the same indices.
///
/// # Errors
/// If the file cannot be written.
pub fn begin(path: &Path, extents: Range<ExtentIndex>, new: EpochRecord) -> Result<(), StoreError> {
    prepare(path, extents.end.0.into())?;
    let mut file = open(path).context("create", path)?;
    epoch_record::begin(&mut file, extents, new).context("write", path)
}

/// Removes the file of a removed volume, if there is one. The removal need not be durable, because no other
/// volume ever uses the file.
///
/// # Errors
/// If the folder cannot be changed.
pub fn remove(path: &Path) -> Result<(), StoreError> {
    [new_path(path).as_path(), path].into_iter().try_for_each(|path| match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.context("remove", path),
    })
}

/// Opens the file. If there is none, makes it and its folder durably.
fn open(path: &Path) -> io::Result<RecordFile> {
    match Descriptor::open_direct(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return RecordFile::check(result?.into()),
    }
    if let Err(error) = make(path) {
        // Otherwise the next attempt would find the file and take its name for durable.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    RecordFile::check(Descriptor::open_direct(path)?.into())
}

/// Path of the file while it is being made.
fn new_path(path: &Path) -> PathBuf {
    path.with_extension(NEW_SUFFIX)
}

/// Makes a file with a header alone, and its folder, durably. A crash leaves it whole or not at all.
fn make(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = new_path(path);
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all_at(&encode_header().0, 0)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    for folder in [Some(folder), folder.parent()].into_iter().flatten() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Reserve(ExtentIndex, u64),
        Know(ExtentIndex, u64),
        Begin(ExtentIndex, u32, u64),
    }

    fn steps() -> impl Strategy<Value = Step> {
        let (extent, epoch) = ((0u32..12).prop_map(ExtentIndex), 0u64..9);
        prop_oneof![
            (extent.clone(), epoch.clone()).prop_map(|(extent, epoch)| Step::Reserve(extent, epoch)),
            (extent.clone(), epoch.clone()).prop_map(|(extent, epoch)| Step::Know(extent, epoch)),
            (extent, 0u32..4, epoch).prop_map(|(first, count, epoch)| Step::Begin(first, count, epoch)),
        ]
    }

    proptest! {
        #[test]
        fn epoch_records_match_list_model(steps in prop::collection::vec(steps(), 0..20)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("epoch-records").join("volume");
            let mut oracle = vec![EpochRecord::default(); 16];
            for step in steps {
                match step {
                    Step::Reserve(extent, epoch) => {
                        reserve(&path, extent, epoch).unwrap();
                        let epoch_record = &mut oracle[extent.index()];
                        epoch_record.allocated = epoch_record.allocated.max(epoch);
                    }
                    Step::Know(extent, epoch) => {
                        know(&path, extent, epoch).unwrap();
                        let epoch_record = &mut oracle[extent.index()];
                        epoch_record.committed = epoch_record.committed.max(epoch);
                    }
                    Step::Begin(first, count, epoch) => {
                        let new = EpochRecord { allocated: epoch, committed: epoch / 2, is_failed: false };
                        let end = ExtentIndex(first.0 + count);
                        begin(&path, first..end, new).unwrap();
                        oracle[first.index()..end.index()].fill(new);
                    }
                }
                prop_assert_eq!(&read_all(&path, 16).unwrap(), &oracle);
                prop_assert_eq!(&read_all(&path, 3).unwrap()[..], &oracle[..3]);
            }
        }
    }

    #[test]
    fn prepare_allocates_space_and_keeps_epoch_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch-records").join("volume");
        prepare(&path, 300).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * BLOCK_BYTES);
        reserve(&path, ExtentIndex(299), 4).unwrap();
        prepare(&path, 600).unwrap();
        assert_eq!(
            read_all(&path, 600).unwrap()[299],
            EpochRecord { allocated: 4, committed: 0, is_failed: false }
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 * BLOCK_BYTES);
    }

    #[test]
    fn epoch_records_of_later_version_are_neither_read_nor_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch-records").join("volume");
        know(&path, ExtentIndex(1), 5).unwrap();
        let whole = fs::read(&path).unwrap();
        let mut later = encode_header();
        later.0[FORMAT_START] = 2;
        let checksum = crc32c::crc32c(&later.0[..CHECKSUM_START]);
        later.0[CHECKSUM_START..].copy_from_slice(&checksum.to_le_bytes());
        let mut damaged = encode_header();
        damaged.0[100] = 1;
        for (header, words) in [
            (later, "format 2, not 1"),
            (damaged, "checksum of its header"),
            (RecordBlock::default(), "does not begin as epoch records do"),
        ] {
            let content = [&header.0[..], &whole[BLOCK_BYTES as usize..]].concat();
            fs::write(&path, &content).unwrap();
            let error = read_all(&path, 2).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("epoch-records/volume"), "{error}");
            assert!(
                know(&path, ExtentIndex(1), 6).is_err()
                    && reserve(&path, ExtentIndex(1), 6).is_err()
                    && fail(&path, ExtentIndex(1)).is_err()
            );
            assert!(prepare(&path, 1000).is_err());
            assert_eq!(fs::read(&path).unwrap(), content);
        }
    }

    #[test]
    fn missing_epoch_records_read_as_zero() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch-records").join("volume");
        assert_eq!(read_all(&path, 2).unwrap(), [EpochRecord::default(); 2]);
        remove(&path).unwrap();
        know(&path, ExtentIndex(1), 5).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 2 * BLOCK_BYTES);
        assert_eq!(
            read_all(&path, 2).unwrap(),
            [EpochRecord::default(), EpochRecord { allocated: 0, committed: 5, is_failed: false }]
        );
        remove(&path).unwrap();
        assert_eq!(read_all(&path, 2).unwrap(), [EpochRecord::default(); 2]);
    }
}
