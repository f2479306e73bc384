//! Where things lie in a journal's file, and how much of each there may be; it knows nothing of what they
//! mean.

use weir_types::bounds::{
    BLOCK_BYTES, JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, JOURNAL_RECORD_PAYLOAD_BYTES_MAX,
    JOURNAL_UNSTABLE_BYTES, PIECE_BYTES,
};

/// Blocks before the log.
pub const SUPERBLOCKS: u32 = 2;
/// Blocks of the largest record.
const RECORD_BLOCKS_MAX: u32 = 1 + (JOURNAL_RECORD_PAYLOAD_BYTES_MAX / BLOCK_BYTES) as u32;
/// Blocks of the largest record in the smallest log: one write of the largest size fits.
const RECORD_BLOCKS_LEAST: u32 = 1 + (PIECE_BYTES / BLOCK_BYTES) as u32;
/// How much of a log may be in use, in thousandths, for it to take large writes: a burst of them is as fast as small ones
/// then, and one that goes on leaves half of the log to what needs it more.
const ABSORBING_PER_MILLE: u32 = 500;
/// Blocks of the smallest log of an imagined journal.
const LOG_BLOCKS_MIN: u32 = 8 * RECORD_BLOCKS_LEAST;

/// Why a file cannot be a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a journal of {0} bytes; {JOURNAL_BYTES_MIN} (64 MiB) to {JOURNAL_BYTES_MAX} (16 GiB) in multiples of \
     {BLOCK_BYTES} are accepted"
)]
pub struct SizeError(pub u64);

/// The size of a journal and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    log_blocks: u32,
    absorbing_per_mille: u32,
}

impl Geometry {
    /// That of a file of so many bytes.
    ///
    /// # Errors
    /// If it is too small, too large, or has a part of a block.
    pub fn of_file(size_bytes: u64) -> Result<Geometry, SizeError> {
        let is_whole = size_bytes.is_multiple_of(BLOCK_BYTES);
        if !is_whole || !(JOURNAL_BYTES_MIN..=JOURNAL_BYTES_MAX).contains(&size_bytes) {
            return Err(SizeError(size_bytes));
        }
        let log_blocks = (size_bytes / BLOCK_BYTES) as u32 - SUPERBLOCKS;
        Ok(Geometry { log_blocks, absorbing_per_mille: ABSORBING_PER_MILLE })
    }

    /// That of an imagined journal which is soon full: a log of so many blocks, or the least that works. Large writes
    /// pass by it however empty it is.
    pub fn tiny(log_blocks: u32) -> Geometry {
        Geometry { log_blocks: log_blocks.max(LOG_BLOCKS_MIN), absorbing_per_mille: 0 }
    }

    /// The same, where large writes go through the log while less of it is in use than this, in thousandths.
    pub fn absorbing(self, absorbing_per_mille: u32) -> Geometry {
        Geometry { absorbing_per_mille, ..self }
    }

    /// How much of the log may be in use, in thousandths, for large writes to go through it all the same.
    pub fn absorbing_per_mille(&self) -> u32 {
        self.absorbing_per_mille
    }

    /// Blocks of the log.
    pub fn log_blocks(&self) -> u32 {
        self.log_blocks
    }

    /// Size of the file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        u64::from(SUPERBLOCKS + self.log_blocks) * BLOCK_BYTES
    }

    /// Where a block of the log lies in the file, in bytes.
    pub fn position_bytes(&self, block: u32) -> u64 {
        u64::from(SUPERBLOCKS + block) * BLOCK_BYTES
    }

    /// Where the superblock of a generation lies in the file, in bytes.
    pub fn superblock_bytes(&self, generation: u64) -> u64 {
        generation % u64::from(SUPERBLOCKS) * BLOCK_BYTES
    }

    /// Blocks of the largest record, with its header.
    pub fn record_blocks_max(&self) -> u32 {
        (self.log_blocks / 16).clamp(RECORD_BLOCKS_LEAST, RECORD_BLOCKS_MAX)
    }

    /// Most entries in the log: each write has a block of payload at least, and entries without any are to
    /// take no more memory than those.
    pub fn entries_max(&self) -> usize {
        self.log_blocks as usize
    }

    /// Blocks of records that are not stable, from which on they are synced unasked.
    pub fn unstable_blocks(&self) -> u32 {
        ((JOURNAL_UNSTABLE_BYTES / BLOCK_BYTES) as u32).min(self.log_blocks / 4)
    }

    /// Most blocks of records that are not stable.
    pub fn unstable_blocks_max(&self) -> u32 {
        2 * self.unstable_blocks()
    }

    /// Blocks behind a record in which there is one that was begun when it was stable, if it ever was and
    /// there is any.
    pub fn proof_blocks(&self) -> u32 {
        (self.unstable_blocks_max() + 4 * self.record_blocks_max()).min(self.log_blocks)
    }

    /// True if a record may begin there: the largest one would fit before the end.
    pub fn may_begin(&self, block: u32) -> bool {
        block.checked_add(self.record_blocks_max()).is_some_and(|end| end <= self.log_blocks)
    }

    /// Where the record begins that follows one of so many blocks, and how many blocks lie between the
    /// beginnings.
    pub fn next(&self, block: u32, blocks: u32) -> (u32, u32) {
        if self.may_begin(block + blocks) { (block + blocks, blocks) } else { (0, self.log_blocks - block) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_refused_in_words() {
        for bytes in [0, JOURNAL_BYTES_MIN - 4096, JOURNAL_BYTES_MIN + 1, JOURNAL_BYTES_MAX + 4096] {
            let words = Geometry::of_file(bytes).unwrap_err().to_string();
            assert!(words.contains(&bytes.to_string()) && words.contains("64 MiB"), "{words}");
        }
        assert_eq!(Geometry::of_file(JOURNAL_BYTES_MIN).unwrap().file_bytes(), JOURNAL_BYTES_MIN);
        let largest = Geometry::of_file(JOURNAL_BYTES_MAX).unwrap();
        assert_eq!(largest.file_bytes(), JOURNAL_BYTES_MAX);
        assert_eq!(largest.record_blocks_max(), 257);
        assert!(u64::from(largest.proof_blocks()) * BLOCK_BYTES <= 37 << 20);
    }

    #[test]
    fn every_next_record_fits() {
        let geometry = Geometry::tiny(600);
        let largest = geometry.record_blocks_max();
        for block in (0..600).filter(|block| geometry.may_begin(*block)) {
            for blocks in 1..=largest {
                let (next, claim) = geometry.next(block, blocks);
                assert!(geometry.may_begin(next) && (blocks..2 * largest).contains(&claim));
                assert_eq!((block + claim) % 600, next);
            }
        }
    }
}
