//! Replica metadata file beside a replica of an extent. This module knows bytes and files, not their use, which is in
//! `weir-volume/src/mirror/replica_metadata.rs`.
//!
//! The file has two blocks that are written in turn, each complete in itself. A block has a magic, a format,
//! a sequence number that grows with each write to this file, the metadata, and a checksum. So a torn write leaves
//! the previous metadata. Both blocks have space from the beginning, so replica metadata can be written on a full
//! drive.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weir_types::ExtentIndex;
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{REGIONS, RegionSet, ReplicaMetadata, ReplicaState};

use super::{Context, StoreError, extent_file_name};

/// Size of a block, in bytes: it has space for all regions of all replicas.
const BLOCK_BYTES: usize = 4096;
/// Number of blocks.
const BLOCKS: usize = 2;
/// First bytes of a block.
const MAGIC: [u8; 8] = *b"WEIRMETA";
/// Version of the format of a block.
const FORMAT: u32 = 1;
/// Bytes of a set of regions, with one bit for each region.
const SET_BYTES: usize = REGIONS as usize / 8;
/// Where the sets begin: that of dirty regions, then by replica those of regions out of sync.
const SETS_START: usize = 512;
/// Position of the checksum of all bytes before it.
const CHECKSUM_START: usize = BLOCK_BYTES - 4;
/// Suffix of the file of replica metadata.
const SUFFIX: &str = "metadata";
/// Suffix of the file of replica metadata while it is being made.
const NEW_SUFFIX: &str = "metadata.new";

const _: () = assert!(SETS_START + (1 + REPLICA_SLOTS_MAX) * SET_BYTES <= CHECKSUM_START);
const _: () = assert!(REPLICA_STATES_START + REPLICA_SLOTS_MAX <= NUMBER_START);
const _: () = assert!(TAKEN_START + REPLICA_SLOTS_MAX * size_of::<u64>() <= SETS_START);

/// Sequence numbers from here on are refused: a number that grows by one with each write stays far below.
const SEQUENCE_END: u64 = u64::MAX / 2;

const FORMAT_START: usize = MAGIC.len();
const SEQUENCE_START: usize = 16;
const EPOCH_START: usize = 24;
const REPLICA_STATES_START: usize = 32;
const NUMBER_START: usize = 40;
const TAKEN_START: usize = 48;

/// A block as it lies in the file.
type Block = [u8; BLOCK_BYTES];

/// Why a block holds no metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockFault {
    /// The block has other content, or was never written.
    #[error("it does not begin as replica metadata does")]
    Magic,
    /// The block is damaged, or was only partly written.
    #[error("its checksum is {found:#010x} where its content has {expected:#010x}")]
    Checksum {
        /// Checksum in the block.
        found: u32,
        /// Checksum of the content.
        expected: u32,
    },
    /// A later version wrote the block.
    #[error("it has format {0}, not {FORMAT}")]
    Format(u32),
    /// A number that no count of writes reaches.
    #[error("its sequence number is {0}, which makes no sense there")]
    Sequence(u64),
    /// A replica state that does not exist.
    #[error("replica {slot} has the state {value}, where 0, 1 and 2 are accepted")]
    ReplicaState {
        /// Slot of the replica.
        slot: usize,
        /// The value in the block.
        value: u8,
    },
}

/// Name of the file that holds the replica metadata of the extent with this index.
pub fn metadata_file_name(index: ExtentIndex) -> String {
    format!("{}.{SUFFIX}", extent_file_name(index))
}

/// The name of the extent's file that a file beside it belongs to, if it is that of replica metadata.
pub(crate) fn extent_name_of(file_name: &str) -> Option<&str> {
    let (extent, suffix) = file_name.split_once('.')?;
    [SUFFIX, NEW_SUFFIX].contains(&suffix).then_some(extent)
}

/// Encodes replica metadata as a block.
pub fn encode(metadata: &ReplicaMetadata, sequence: u64) -> Block {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |start: usize, bytes: &[u8]| block[start..start + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC);
    put(FORMAT_START, &FORMAT.to_le_bytes());
    put(SEQUENCE_START, &sequence.to_le_bytes());
    put(EPOCH_START, &metadata.epoch.to_le_bytes());
    put(REPLICA_STATES_START, &metadata.replica_states.map(replica_state_value));
    put(NUMBER_START, &metadata.number.to_le_bytes());
    let taken = metadata.taken.iter().enumerate();
    taken.for_each(|(slot, number)| put(TAKEN_START + slot * size_of::<u64>(), &number.to_le_bytes()));
    let sets = std::iter::once(&metadata.dirty).chain(&metadata.out_of_sync);
    for (set, bytes) in sets.zip(block[SETS_START..].chunks_exact_mut(SET_BYTES)) {
        set.iter().for_each(|region| bytes[region as usize / 8] |= 1 << (region % 8));
    }
    let checksum = checksum_of(&block);
    block[CHECKSUM_START..].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// Replica metadata in a block, with its sequence number.
///
/// # Errors
/// If the block holds no replica metadata, or is damaged.
pub fn decode(block: &Block) -> Result<(ReplicaMetadata, u64), BlockFault> {
    if block[..MAGIC.len()] != MAGIC {
        return Err(BlockFault::Magic);
    }
    let found = u32::from_le_bytes(array(block, CHECKSUM_START));
    let expected = checksum_of(block);
    if found != expected {
        return Err(BlockFault::Checksum { found, expected });
    }
    let format = u32::from_le_bytes(array(block, FORMAT_START));
    if format != FORMAT {
        return Err(BlockFault::Format(format));
    }
    let sequence = u64::from_le_bytes(array(block, SEQUENCE_START));
    if sequence >= SEQUENCE_END {
        return Err(BlockFault::Sequence(sequence));
    }
    let mut metadata = ReplicaMetadata {
        epoch: u64::from_le_bytes(array(block, EPOCH_START)),
        ..ReplicaMetadata::default()
    };
    for (slot, replica_state) in metadata.replica_states.iter_mut().enumerate() {
        let value = block[REPLICA_STATES_START + slot];
        *replica_state = replica_state_of(value).ok_or(BlockFault::ReplicaState { slot, value })?;
    }
    metadata.number = u64::from_le_bytes(array(block, NUMBER_START));
    for (slot, taken) in metadata.taken.iter_mut().enumerate() {
        *taken = u64::from_le_bytes(array(block, TAKEN_START + slot * size_of::<u64>()));
    }
    let sets = std::iter::once(&mut metadata.dirty).chain(&mut metadata.out_of_sync);
    for (set, bytes) in sets.zip(block[SETS_START..].chunks_exact(SET_BYTES)) {
        *set = regions_in(bytes);
    }
    Ok((metadata, sequence))
}

fn checksum_of(block: &Block) -> u32 {
    crc32c::crc32c(&block[..CHECKSUM_START])
}

fn array<const N: usize>(block: &Block, start: usize) -> [u8; N] {
    block[start..start + N].try_into().expect("a field lies within its block")
}

fn replica_state_value(replica_state: ReplicaState) -> u8 {
    match replica_state {
        ReplicaState::Absent => 0,
        ReplicaState::InSync => 1,
        ReplicaState::Stale => 2,
    }
}

fn replica_state_of(value: u8) -> Option<ReplicaState> {
    [ReplicaState::Absent, ReplicaState::InSync, ReplicaState::Stale].get(usize::from(value)).copied()
}

/// The regions whose bits are set. Zero bytes are skipped, because most are zero and a volume may have many
/// files.
fn regions_in(bytes: &[u8]) -> RegionSet {
    let bits = |(index, byte): (u32, &u8)| {
        let byte = *byte;
        (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| index * 8 + bit)
    };
    (0..).zip(bytes).filter(|(_, byte)| **byte != 0).flat_map(bits).collect()
}

/// The newest replica metadata in a file. `None` if there is no file.
///
/// # Errors
/// If the file cannot be read, if neither block holds replica metadata, or if a later version wrote a block.
pub fn read(path: &Path) -> Result<Option<ReplicaMetadata>, StoreError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result.context("open", path)?,
    };
    let blocks = read_blocks(&file).context("read", path)?;
    let newest = newest(&blocks).context("understand", path)?;
    match newest {
        Newest::Block { metadata, .. } => Ok(Some(metadata)),
        Newest::None(faults) => Err(faults).context("understand", path),
    }
}

/// Writes replica metadata durably. It replaces the older or damaged block, or goes into a new file if there
/// is none.
///
/// # Errors
/// If the file cannot be written, or a later version wrote it.
pub fn write(path: &Path, metadata: &ReplicaMetadata) -> io::Result<()> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return write_anew(path, metadata),
        result => result?,
    };
    let (index, sequence) = match newest(&read_blocks(&file)?)? {
        Newest::Block { index, sequence, .. } => (BLOCKS - 1 - index, sequence + 1),
        Newest::None(_) => (0, 1),
    };
    file.write_all_at(&encode(metadata, sequence), (index * BLOCK_BYTES) as u64)?;
    file.sync_all()
}

/// Makes the file of replica metadata anew, durably, with any old content. A crash leaves the old or the new
/// file.
///
/// After a failed write or sync, the system may take pages for written that are not on the drive. A sync of
/// the old file then proves nothing, and a write over the other block could leave neither block whole. So the
/// old file is not touched any more.
///
/// # Errors
/// If the folder or file cannot be written, or a later version wrote the old file.
pub fn write_anew(path: &Path, metadata: &ReplicaMetadata) -> io::Result<()> {
    // An unreadable file is made anew all the same.
    if let Ok(blocks) = File::open(path).and_then(|file| read_blocks(&file)) {
        newest(&blocks)?;
    }
    let new = path.with_extension(NEW_SUFFIX);
    // A new file whose sync failed is not overwritten, because the system may take its pages for written.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    write_new(&new, metadata)?.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Makes a replica lack everything, durably. Its metadata knows nothing, not even the extent that it belongs
/// to.
///
/// # Errors
/// As for [`write_anew`].
pub fn forget(path: &Path) -> Result<(), StoreError> {
    write_anew(path, &ReplicaMetadata::default()).context("write", path)
}

/// Makes the file of replica metadata. The caller makes it durable.
pub fn write_new(path: &Path, metadata: &ReplicaMetadata) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut content = [0; BLOCKS * BLOCK_BYTES];
    content[..BLOCK_BYTES].copy_from_slice(&encode(metadata, 1));
    file.write_all_at(&content, 0)?;
    Ok(file)
}

/// Result of reading both blocks of a file.
enum Newest {
    Block { index: usize, sequence: u64, metadata: ReplicaMetadata },
    None(io::Error),
}

/// The newest block that holds replica metadata.
///
/// # Errors
/// If a later version wrote a block. Its content is unknown, and must be neither ignored nor overwritten.
fn newest(blocks: &[Block; BLOCKS]) -> io::Result<Newest> {
    let decoded = blocks.each_ref().map(decode);
    let foreign = decoded.iter().find_map(|block| match block {
        Err(fault @ BlockFault::Format(_)) => Some(*fault),
        _ => None,
    });
    if let Some(fault) = foreign {
        return Err(io::Error::other(fault));
    }
    let faults: Vec<String> = decoded
        .iter()
        .enumerate()
        .filter_map(|(index, block)| Some(format!("block {index}: {}", block.as_ref().err()?)))
        .collect();
    let whole = decoded.into_iter().enumerate().filter_map(|(index, block)| Some((index, block.ok()?)));
    Ok(match whole.max_by_key(|(_, (_, sequence))| *sequence) {
        Some((index, (metadata, sequence))) => Newest::Block { index, sequence, metadata },
        None => Newest::None(io::Error::other(format!("it holds no metadata: {}", faults.join("; ")))),
    })
}

/// Reads all blocks. The missing end of a short file reads as zeros.
fn read_blocks(file: &File) -> io::Result<[Block; BLOCKS]> {
    let mut blocks = [[0; BLOCK_BYTES]; BLOCKS];
    for (index, block) in blocks.iter_mut().enumerate() {
        read_up_to(file, block, (index * BLOCK_BYTES) as u64)?;
    }
    Ok(blocks)
}

/// Fills a buffer from an offset on as far as the file goes.
pub(crate) fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The path of the metadata beside the extent file with this index.
pub(crate) fn metadata_path(extents: &Path, index: ExtentIndex) -> PathBuf {
    extents.join(metadata_file_name(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn regions() -> impl Strategy<Value = RegionSet> {
        prop::collection::vec(0..REGIONS, 0..40).prop_map(|regions| regions.into_iter().collect())
    }

    fn all_metadata() -> impl Strategy<Value = ReplicaMetadata> {
        let replica_states = prop::array::uniform4(0u8..3);
        let out_of_sync = prop::array::uniform4(regions());
        let numbers = (any::<u64>(), any::<u64>(), any::<[u64; REPLICA_SLOTS_MAX]>());
        (numbers, replica_states, regions(), out_of_sync).prop_map(
            |(numbers, replica_states, dirty, out_of_sync)| {
                let (epoch, number, taken) = numbers;
                let replica_states = replica_states.map(|value| replica_state_of(value).unwrap());
                ReplicaMetadata { epoch, replica_states, dirty, out_of_sync, number, taken }
            },
        )
    }

    fn file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = metadata_path(folder.path(), ExtentIndex(7));
        (folder, path)
    }

    proptest! {
        #[test]
        fn replica_metadata_survives_encode_and_decode(metadata in all_metadata(), sequence in 0..SEQUENCE_END) {
            let block = encode(&metadata, sequence);
            prop_assert_eq!(decode(&block), Ok((metadata, sequence)));
        }

        #[test]
        fn flipped_byte_of_metadata_block_is_detected(metadata in all_metadata(), at in 0..BLOCK_BYTES, by in 1u8..) {
            let mut block = encode(&metadata, 5);
            block[at] ^= by;
            prop_assert!(decode(&block).is_err());
        }

        #[test]
        fn torn_metadata_write_leaves_previous_metadata(
            written in prop::collection::vec(all_metadata(), 1..5),
            torn in all_metadata(),
            cut in 0..BLOCK_BYTES,
        ) {
            let (_folder, path) = file();
            written.iter().for_each(|metadata| write(&path, metadata).unwrap());
            let newest = written.last().cloned();
            prop_assert_eq!(read(&path).unwrap(), newest.clone());
            let before = fs::read(&path).unwrap();
            write(&path, &torn).unwrap();
            let mut content = fs::read(&path).unwrap();
            let block = if before[..BLOCK_BYTES] == content[..BLOCK_BYTES] { BLOCK_BYTES } else { 0 };
            // Only the beginning of the new block was written.
            content[block + cut..block + BLOCK_BYTES].copy_from_slice(&before[block + cut..block + BLOCK_BYTES]);
            fs::write(&path, &content).unwrap();
            let found = read(&path).unwrap();
            prop_assert!(found == newest || found == Some(torn.clone()), "{found:?}");
            write(&path, &torn).unwrap();
            prop_assert_eq!(read(&path).unwrap(), Some(torn));
        }
    }

    #[test]
    fn missing_metadata_is_none_and_damaged_is_error() {
        let (_folder, path) = file();
        assert_eq!(read(&path).unwrap(), None);
        write(&path, &ReplicaMetadata { epoch: 3, ..ReplicaMetadata::default() }).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 2 * 4096, "room for both blocks");
        for content in [vec![], vec![0; 100], vec![7; 2 * BLOCK_BYTES]] {
            fs::write(&path, content).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("00000007.metadata") && error.contains("block 1"), "{error}");
        }
        write(&path, &ReplicaMetadata { epoch: 4, ..ReplicaMetadata::default() }).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().epoch, 4);
    }

    #[test]
    fn rewritten_metadata_leaves_old_file_untouched() {
        let (folder, path) = file();
        write(&path, &ReplicaMetadata { epoch: 3, ..ReplicaMetadata::default() }).unwrap();
        let (old, before) = (File::open(&path).unwrap(), fs::read(&path).unwrap());
        fs::write(folder.path().join("00000007.metadata.new"), [7; 100]).unwrap();
        write_anew(&path, &ReplicaMetadata { epoch: 4, ..ReplicaMetadata::default() }).unwrap();
        let mut left = vec![0; before.len()];
        read_up_to(&old, &mut left, 0).unwrap();
        assert_eq!((left, read(&path).unwrap().unwrap().epoch), (before, 4));
        write(&path, &ReplicaMetadata { epoch: 5, ..ReplicaMetadata::default() }).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().epoch, 5);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn newer_metadata_format_is_neither_ignored_nor_overwritten() {
        let (_folder, path) = file();
        write(&path, &ReplicaMetadata { epoch: 3, ..ReplicaMetadata::default() }).unwrap();
        let mut later = encode(&ReplicaMetadata { epoch: 9, ..ReplicaMetadata::default() }, 2);
        later[FORMAT_START] = 2;
        let checksum = checksum_of(&later);
        later[CHECKSUM_START..].copy_from_slice(&checksum.to_le_bytes());
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&later, BLOCK_BYTES as u64).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("it has format 2, not 1"));
        assert!(write(&path, &ReplicaMetadata::default()).is_err());
        assert!(write_anew(&path, &ReplicaMetadata::default()).is_err());
    }

    #[test]
    fn last_sequence_number_is_refused_and_written_over() {
        let (_folder, path) = file();
        let metadata = ReplicaMetadata { epoch: 5, ..ReplicaMetadata::default() };
        fs::write(&path, [encode(&metadata, 7), encode(&metadata, u64::MAX)].concat()).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().epoch, 5);
        for epoch in 6..9 {
            write(&path, &ReplicaMetadata { epoch, ..ReplicaMetadata::default() }).unwrap();
            assert_eq!(read(&path).unwrap().unwrap().epoch, epoch);
        }
    }

    #[test]
    fn invalid_replica_state_is_refused() {
        let mut block = encode(&ReplicaMetadata::default(), 1);
        block[REPLICA_STATES_START + 2] = 3;
        let checksum = checksum_of(&block);
        block[CHECKSUM_START..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(decode(&block), Err(BlockFault::ReplicaState { slot: 2, value: 3 }));
    }
}
