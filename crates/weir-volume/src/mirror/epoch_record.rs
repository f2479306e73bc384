//! The epoch record of a volume: the allocated and the committed epoch of each extent, in a file of whole
//! blocks apart from all replicas.
//!
//! This module knows the bytes, and how they become durable. After a failed sync the kernel takes the pages
//! for clean, and the next sync finds nothing to do. So a number is written each time before it is synced,
//! even if the file has it already.

use weir_types::ExtentIndex;
use weir_types::bounds::BLOCK_BYTES;

/// Bytes of an extent's entry. It lies within one sector of any drive, so it is never torn.
const ENTRY_BYTES: u64 = 16;
/// Offset of the committed epoch in an entry. The allocated epoch comes first.
const COMMITTED_START: usize = 8;

/// Flag in the allocated epoch: the last replica in sync failed, and its content is unknown.
const FAILED: u64 = 1 << 63;

/// Epochs reserved for each extent that takes the place of an earlier one. Metadata is never written so
/// often, and no volume grows so often, that epochs reach [`FAILED`].
const EPOCHS_OF_AN_EXTENT: u64 = 1 << 40;

/// The epoch record of an extent: durable values kept apart from all its replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochRecord {
    /// Highest allocated epoch: no metadata has a higher one. It is written before replica metadata with a
    /// new epoch. Without it, two starts that each miss the other's replica could write different metadata
    /// with the same epoch.
    pub allocated: u64,
    /// Highest committed epoch of metadata that counts (see
    /// [`ReplicaMetadata::counts_beside`](super::ReplicaMetadata::counts_beside)). It is written after that
    /// metadata, and before the metadata is relied on. Without it, a replica that returns alone could take
    /// itself for the newest.
    pub committed: u64,
    /// True if the last replica in sync failed with unknown content: it is not served before an operator
    /// decides.
    pub is_failed: bool,
}

/// A block of the record's file, aligned for direct I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4096))]
pub struct RecordBlock(pub [u8; BLOCK_BYTES as usize]);

impl Default for RecordBlock {
    fn default() -> RecordBlock {
        RecordBlock([0; BLOCK_BYTES as usize])
    }
}

/// The file of an epoch record.
pub trait RecordBlocks {
    /// Error of a file operation.
    type Error;

    /// Reads a block. Bytes beyond the end of the file are zeroes.
    ///
    /// # Errors
    /// Errors of the file.
    fn read(&mut self, block: u64) -> Result<RecordBlock, Self::Error>;

    /// Writes a block.
    ///
    /// # Errors
    /// Errors of the file.
    fn write(&mut self, block: u64, content: &RecordBlock) -> Result<(), Self::Error>;

    /// Makes all written blocks durable.
    ///
    /// # Errors
    /// Errors of the file. Blocks that were written before may then be lost.
    fn sync(&mut self) -> Result<(), Self::Error>;
}

/// Records an epoch of an extent durably, as allocated or as committed. A higher recorded epoch stays.
///
/// # Errors
/// Errors of the file. The epoch may then be recorded or not.
pub fn raise<B: RecordBlocks>(
    blocks: &mut B,
    extent: ExtentIndex,
    epoch: u64,
    is_committed: bool,
) -> Result<(), B::Error> {
    let (block, start) = place_of(extent);
    let mut content = blocks.read(block)?;
    let start = if is_committed { start + COMMITTED_START } else { start };
    let known = number_at(&content, start);
    put(&mut content, start, (known & FAILED) | (known & !FAILED).max(epoch));
    blocks.write(block, &content)?;
    blocks.sync()
}

/// Records durably that the last replica in sync of an extent failed with unknown content.
///
/// # Errors
/// Errors of the file. The failure may then be recorded or not.
pub fn fail<B: RecordBlocks>(blocks: &mut B, extent: ExtentIndex) -> Result<(), B::Error> {
    set_failed(blocks, extent, FAILED)
}

/// Removes the record of a failure durably, because an operator has decided to use the content of the last
/// replica.
///
/// # Errors
/// Errors of the file. The failure may then be removed or not.
pub fn accept<B: RecordBlocks>(blocks: &mut B, extent: ExtentIndex) -> Result<(), B::Error> {
    set_failed(blocks, extent, 0)
}

fn set_failed<B: RecordBlocks>(blocks: &mut B, extent: ExtentIndex, mark: u64) -> Result<(), B::Error> {
    let (block, start) = place_of(extent);
    let mut content = blocks.read(block)?;
    let allocated = number_at(&content, start) & !FAILED;
    put(&mut content, start, allocated | mark);
    blocks.write(block, &content)?;
    blocks.sync()
}

/// Writes the entries of all extents in a range durably, and overwrites entries of earlier extents.
///
/// # Errors
/// Errors of the file.
pub fn begin<B: RecordBlocks>(
    blocks: &mut B,
    extents: std::ops::Range<ExtentIndex>,
    epoch_record: EpochRecord,
) -> Result<(), B::Error> {
    let mut next = extents.start;
    while next < extents.end {
        let (block, _) = place_of(next);
        let mut content = blocks.read(block)?;
        while next < extents.end && place_of(next).0 == block {
            let (_, start) = place_of(next);
            put(&mut content, start, epoch_record.allocated);
            put(&mut content, start + COMMITTED_START, epoch_record.committed);
            next = next.next();
        }
        blocks.write(block, &content)?;
    }
    blocks.sync()
}

/// First epoch of new extents, from the entries of earlier extents in their places.
///
/// The numbers of an extent's metadata begin with this epoch too, so both exceed all earlier ones. An older
/// state of a drive may bring back a replica from before a shrink. Its metadata must not be taken for the
/// newest.
pub fn first_epoch(earlier: &[EpochRecord]) -> u64 {
    let highest = earlier.iter().map(|epoch_record| epoch_record.allocated).max().unwrap_or_default();
    highest.div_ceil(EPOCHS_OF_AN_EXTENT) * EPOCHS_OF_AN_EXTENT + 1
}

/// Entries of the given number of extents, from the first on.
///
/// # Errors
/// Errors of the file.
pub fn read_all<B: RecordBlocks>(blocks: &mut B, extents: u64) -> Result<Vec<EpochRecord>, B::Error> {
    let per_block = BLOCK_BYTES / ENTRY_BYTES;
    let mut found = Vec::new();
    for block in 0..extents.div_ceil(per_block) {
        let content = blocks.read(block)?;
        let entry = |start: usize| {
            let (allocated, committed) =
                (number_at(&content, start), number_at(&content, start + COMMITTED_START));
            EpochRecord { allocated: allocated & !FAILED, committed, is_failed: allocated & FAILED != 0 }
        };
        found.extend((0..BLOCK_BYTES as usize).step_by(ENTRY_BYTES as usize).map(entry));
    }
    found.truncate(usize::try_from(extents).unwrap_or(usize::MAX));
    Ok(found)
}

/// Number of blocks for the entries of the given number of extents.
pub fn blocks_of(extents: u64) -> u64 {
    (extents * ENTRY_BYTES).div_ceil(BLOCK_BYTES)
}

/// Block of an extent's entry, and offset of the entry in it.
fn place_of(extent: ExtentIndex) -> (u64, usize) {
    let offset = u64::from(extent.0) * ENTRY_BYTES;
    (offset / BLOCK_BYTES, (offset % BLOCK_BYTES) as usize)
}

fn number_at(block: &RecordBlock, start: usize) -> u64 {
    u64::from_le_bytes(block.0[start..start + 8].try_into().expect("half an entry is a number"))
}

fn put(block: &mut RecordBlock, start: usize, number: u64) {
    block.0[start..start + 8].copy_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// A file behind a page cache that takes pages for clean once a sync of them has failed.
    #[derive(Default)]
    struct Cached {
        pages: BTreeMap<u64, RecordBlock>,
        dirty: BTreeSet<u64>,
        durable: BTreeMap<u64, RecordBlock>,
        fails: bool,
    }

    impl RecordBlocks for Cached {
        type Error = ();

        fn read(&mut self, block: u64) -> Result<RecordBlock, ()> {
            Ok(self.pages.get(&block).copied().unwrap_or_default())
        }

        fn write(&mut self, block: u64, content: &RecordBlock) -> Result<(), ()> {
            self.pages.insert(block, *content);
            self.dirty.insert(block);
            Ok(())
        }

        fn sync(&mut self) -> Result<(), ()> {
            let dirty = std::mem::take(&mut self.dirty);
            if std::mem::take(&mut self.fails) {
                return Err(());
            }
            dirty.into_iter().for_each(|block| _ = self.durable.insert(block, self.pages[&block]));
            Ok(())
        }
    }

    impl Cached {
        fn lose_power(&mut self) {
            (self.pages, self.dirty) = (self.durable.clone(), BTreeSet::new());
        }
    }

    #[test]
    fn epoch_whose_sync_failed_is_written_again() {
        let mut file = Cached { fails: true, ..Cached::default() };
        assert_eq!(raise(&mut file, ExtentIndex(3), 7, true), Err(()));
        assert_eq!(raise(&mut file, ExtentIndex(3), 7, true), Ok(()));
        file.lose_power();
        let recorded = read_all(&mut file, 4).unwrap();
        assert_eq!(recorded[3], EpochRecord { committed: 7, ..EpochRecord::default() });
    }

    #[test]
    fn failure_stays_recorded_until_it_is_accepted() {
        let mut file = Cached::default();
        raise(&mut file, ExtentIndex(1), 4, false).unwrap();
        fail(&mut file, ExtentIndex(1)).unwrap();
        raise(&mut file, ExtentIndex(1), 6, false).unwrap();
        file.lose_power();
        let failed = EpochRecord { allocated: 6, committed: 0, is_failed: true };
        assert_eq!(read_all(&mut file, 3).unwrap(), [EpochRecord::default(), failed, EpochRecord::default()]);
        accept(&mut file, ExtentIndex(1)).unwrap();
        file.lose_power();
        assert_eq!(read_all(&mut file, 2).unwrap()[1], EpochRecord { is_failed: false, ..failed });
    }

    #[test]
    fn entries_of_many_blocks_are_told_apart() {
        let mut file = Cached::default();
        let extents = ExtentIndex(250)..ExtentIndex(600);
        let begun = EpochRecord { allocated: 2, committed: 1, is_failed: false };
        begin(&mut file, extents, begun).unwrap();
        raise(&mut file, ExtentIndex(255), 9, false).unwrap();
        raise(&mut file, ExtentIndex(256), 8, true).unwrap();
        raise(&mut file, ExtentIndex(256), 3, true).unwrap();
        file.lose_power();
        let recorded = read_all(&mut file, 601).unwrap();
        let expected = |extent: ExtentIndex| match extent {
            ExtentIndex(255) => EpochRecord { allocated: 9, committed: 1, is_failed: false },
            ExtentIndex(256) => EpochRecord { allocated: 2, committed: 8, is_failed: false },
            ExtentIndex(250..600) => begun,
            _ => EpochRecord::default(),
        };
        assert!(recorded.iter().copied().eq(ExtentIndex::first(601).map(expected)));
        assert_eq!((blocks_of(0), blocks_of(256), blocks_of(257)), (0, 1, 2));
    }

    #[test]
    fn epochs_of_regrown_extents_exceed_all_earlier_ones() {
        let recorded = |allocated| EpochRecord { allocated, ..EpochRecord::default() };
        assert_eq!((first_epoch(&[]), first_epoch(&[EpochRecord::default()])), (1, 1));
        let second = first_epoch(&[recorded(1), recorded(900)]);
        assert!(second > EPOCHS_OF_AN_EXTENT && second == first_epoch(&[recorded(1)]));
        assert_eq!(first_epoch(&[recorded(second + 5), recorded(3)]), second + EPOCHS_OF_AN_EXTENT);
    }
}
