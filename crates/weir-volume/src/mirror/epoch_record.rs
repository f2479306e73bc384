//! The epoch record of a volume: for each extent the epoch that is allocated and the one that is committed, in a file of
//! whole blocks apart from all replicas. It knows bytes, and how they become durable.
//!
//! After a sync that failed the kernel takes the pages for written, and the next sync finds nothing to do. So a number is
//! written each time before it is synced, also where the file says it already.

use weir_types::bounds::BLOCK_BYTES;

use super::recovered_extent::EpochRecord;

/// Bytes of an extent's entry: no sector of a drive is so small that it could be torn.
const ENTRY_BYTES: u64 = 16;
/// Where in an entry the committed epoch is; the allocated one comes first.
const COMMITTED_START: usize = 8;

/// In the allocated epoch: the last replica in sync failed, and nobody knows what it holds.
const FAILED: u64 = 1 << 63;

/// Epochs that are set apart for each extent that takes the place of an earlier one: no metadata is written so often, and no
/// volume grows so often that they reach [`FAILED`].
const EPOCHS_OF_AN_EXTENT: u64 = 1 << 40;

/// A block of the record's file, aligned as direct I/O wants it.
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
    /// Why something could not be done.
    type Error;

    /// Reads a block; what the file lacks is zeroes.
    ///
    /// # Errors
    /// Those of the file.
    fn read(&mut self, block: u64) -> Result<RecordBlock, Self::Error>;

    /// Writes a block.
    ///
    /// # Errors
    /// Those of the file.
    fn write(&mut self, block: u64, content: &RecordBlock) -> Result<(), Self::Error>;

    /// Makes all blocks durable that were written.
    ///
    /// # Errors
    /// Those of the file: what was written before may be lost then.
    fn sync(&mut self) -> Result<(), Self::Error>;
}

/// Records an epoch of an extent durably, as allocated or as committed. A higher one that is recorded stays.
///
/// # Errors
/// Those of the file; then it may be recorded or not.
pub fn raise<B: RecordBlocks>(
    blocks: &mut B,
    extent: u32,
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

/// Records durably that the last replica in sync of an extent failed, and that nobody knows what it holds.
///
/// # Errors
/// Those of the file; then it may be recorded or not.
pub fn fail<B: RecordBlocks>(blocks: &mut B, extent: u32) -> Result<(), B::Error> {
    set_failed(blocks, extent, FAILED)
}

/// Takes back durably that the last replica in sync of an extent failed: somebody has decided to use what it holds.
///
/// # Errors
/// Those of the file; then it may be taken back or not.
pub fn accept<B: RecordBlocks>(blocks: &mut B, extent: u32) -> Result<(), B::Error> {
    set_failed(blocks, extent, 0)
}

fn set_failed<B: RecordBlocks>(blocks: &mut B, extent: u32, mark: u64) -> Result<(), B::Error> {
    let (block, start) = place_of(extent);
    let mut content = blocks.read(block)?;
    let allocated = number_at(&content, start) & !FAILED;
    put(&mut content, start, allocated | mark);
    blocks.write(block, &content)?;
    blocks.sync()
}

/// Writes the entries of all extents in a range durably, whatever was recorded of earlier ones.
///
/// # Errors
/// Those of the file.
pub fn begin<B: RecordBlocks>(
    blocks: &mut B,
    extents: std::ops::Range<u32>,
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
            next += 1;
        }
        blocks.write(block, &content)?;
    }
    blocks.sync()
}

/// The first epoch of extents that are to be made, by what is recorded of those that had their places. The numbers of an
/// extent's metadata begin with it too, so both are above all earlier ones: an older state of a drive may bring back a
/// replica from before the volume shrank, whose metadata must not be taken for the newest.
pub fn first_epoch(earlier: &[EpochRecord]) -> u64 {
    let highest = earlier.iter().map(|epoch_record| epoch_record.allocated).max().unwrap_or_default();
    highest.div_ceil(EPOCHS_OF_AN_EXTENT) * EPOCHS_OF_AN_EXTENT + 1
}

/// What is recorded of the first extents.
///
/// # Errors
/// Those of the file.
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

/// Number of blocks that so many extents need.
pub fn blocks_of(extents: u64) -> u64 {
    (extents * ENTRY_BYTES).div_ceil(BLOCK_BYTES)
}

/// The block that an extent's entry is in, and where it begins there.
fn place_of(extent: u32) -> (u64, usize) {
    let offset = u64::from(extent) * ENTRY_BYTES;
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

    /// A file behind a page cache that takes pages for written once a sync of them has failed.
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
        assert_eq!(raise(&mut file, 3, 7, true), Err(()));
        assert_eq!(raise(&mut file, 3, 7, true), Ok(()));
        file.lose_power();
        let recorded = read_all(&mut file, 4).unwrap();
        assert_eq!(recorded[3], EpochRecord { committed: 7, ..EpochRecord::default() });
    }

    #[test]
    fn failure_stays_recorded_until_it_is_accepted() {
        let mut file = Cached::default();
        raise(&mut file, 1, 4, false).unwrap();
        fail(&mut file, 1).unwrap();
        raise(&mut file, 1, 6, false).unwrap();
        file.lose_power();
        let failed = EpochRecord { allocated: 6, committed: 0, is_failed: true };
        assert_eq!(read_all(&mut file, 3).unwrap(), [EpochRecord::default(), failed, EpochRecord::default()]);
        accept(&mut file, 1).unwrap();
        file.lose_power();
        assert_eq!(read_all(&mut file, 2).unwrap()[1], EpochRecord { is_failed: false, ..failed });
    }

    #[test]
    fn entries_of_many_blocks_are_told_apart() {
        let mut file = Cached::default();
        begin(&mut file, 250..600, EpochRecord { allocated: 2, committed: 1, is_failed: false }).unwrap();
        raise(&mut file, 255, 9, false).unwrap();
        raise(&mut file, 256, 8, true).unwrap();
        raise(&mut file, 256, 3, true).unwrap();
        file.lose_power();
        let recorded = read_all(&mut file, 601).unwrap();
        let expected = |extent: u32| match extent {
            255 => EpochRecord { allocated: 9, committed: 1, is_failed: false },
            256 => EpochRecord { allocated: 2, committed: 8, is_failed: false },
            250..600 => EpochRecord { allocated: 2, committed: 1, is_failed: false },
            _ => EpochRecord::default(),
        };
        assert!(recorded.iter().copied().eq((0..601).map(expected)));
        assert_eq!((blocks_of(0), blocks_of(256), blocks_of(257)), (0, 1, 2));
    }

    #[test]
    fn epochs_of_extents_that_come_again_are_above_all_earlier_ones() {
        let recorded = |allocated| EpochRecord { allocated, ..EpochRecord::default() };
        assert_eq!((first_epoch(&[]), first_epoch(&[EpochRecord::default()])), (1, 1));
        let second = first_epoch(&[recorded(1), recorded(900)]);
        assert!(second > EPOCHS_OF_AN_EXTENT && second == first_epoch(&[recorded(1)]));
        assert_eq!(first_epoch(&[recorded(second + 5), recorded(3)]), second + EPOCHS_OF_AN_EXTENT);
    }
}
