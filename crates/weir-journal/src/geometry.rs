//! Geometry of a journal's file: positions and limits of its parts. The module knows nothing of their
//! meaning.

use weir_types::bounds::{
    BLOCK_BYTES, JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, JOURNAL_RECORD_PAYLOAD_BYTES_MAX,
    JOURNAL_UNSTABLE_BYTES, PIECE_BYTES,
};

/// Number of blocks before the log.
pub const SUPERBLOCKS: u32 = 2;
/// Blocks of the largest record.
const RECORD_BLOCKS_MAX: u32 = 1 + (JOURNAL_RECORD_PAYLOAD_BYTES_MAX / BLOCK_BYTES) as u32;
/// Blocks of the largest record in the smallest log: one write of the largest size fits.
const RECORD_BLOCKS_LEAST: u32 = 1 + (PIECE_BYTES / BLOCK_BYTES) as u32;
/// Fullness of the log, in thousandths, below which the log takes large writes. A burst of large writes is
/// then as fast as small writes. A long run of large writes leaves half of the log to the writes that need it
/// more.
const ABSORBING_PER_MILLE: u32 = 500;
/// Blocks of the smallest log of a simulated journal.
const LOG_BLOCKS_MIN: u32 = 8 * RECORD_BLOCKS_LEAST;

/// The reason why a file cannot be a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a journal of {0} bytes; {JOURNAL_BYTES_MIN} (64 MiB) to {JOURNAL_BYTES_MAX} (16 GiB) in multiples of \
     {BLOCK_BYTES} are accepted"
)]
pub struct SizeError(pub u64);

/// The size of a journal and the limits that follow from the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    log_blocks: u32,
    absorbing_per_mille: u32,
}

impl Geometry {
    /// Returns the geometry of a file of this size.
    ///
    /// # Errors
    /// If the size is too small, too large, or not a multiple of a block.
    pub fn of_file(size_bytes: u64) -> Result<Geometry, SizeError> {
        let is_whole = size_bytes.is_multiple_of(BLOCK_BYTES);
        if !is_whole || !(JOURNAL_BYTES_MIN..=JOURNAL_BYTES_MAX).contains(&size_bytes) {
            return Err(SizeError(size_bytes));
        }
        let log_blocks = (size_bytes / BLOCK_BYTES) as u32 - SUPERBLOCKS;
        Ok(Geometry { log_blocks, absorbing_per_mille: ABSORBING_PER_MILLE })
    }

    /// Returns the geometry of a simulated journal which is soon full. Its log has this many blocks, or the
    /// smallest number that works. Large writes bypass the journal however empty the log is.
    pub fn tiny(log_blocks: u32) -> Geometry {
        Geometry { log_blocks: log_blocks.max(LOG_BLOCKS_MIN), absorbing_per_mille: 0 }
    }

    /// Returns the same geometry with another fullness, in thousandths, below which large writes go through
    /// the log.
    pub fn absorbing(self, absorbing_per_mille: u32) -> Geometry {
        Geometry { absorbing_per_mille, ..self }
    }

    /// Fullness of the log, in thousandths, below which large writes go through the log.
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

    /// Position of a log block in the file, in bytes.
    pub fn position_bytes(&self, block: u32) -> u64 {
        u64::from(SUPERBLOCKS + block) * BLOCK_BYTES
    }

    /// Position of the superblock of a generation in the file, in bytes.
    pub fn superblock_bytes(&self, generation: u64) -> u64 {
        generation % u64::from(SUPERBLOCKS) * BLOCK_BYTES
    }

    /// Blocks of the largest record, with its header.
    pub fn record_blocks_max(&self) -> u32 {
        (self.log_blocks / 16).clamp(RECORD_BLOCKS_LEAST, RECORD_BLOCKS_MAX)
    }

    /// Largest number of entries in the log. Each write has at least one block of payload. Entries without
    /// payload may take no more memory than writes.
    pub fn entries_max(&self) -> usize {
        self.log_blocks as usize
    }

    /// Number of unstable blocks from which on the journal syncs them unasked.
    pub fn unstable_blocks(&self) -> u32 {
        ((JOURNAL_UNSTABLE_BYTES / BLOCK_BYTES) as u32).min(self.log_blocks / 4)
    }

    /// Largest number of unstable blocks in the log.
    pub fn unstable_blocks_max(&self) -> u32 {
        2 * self.unstable_blocks()
    }

    /// Number of blocks after a record that recovery must search for a proof. If the record was ever stable
    /// and later records exist, one of them in this range began after the record was stable.
    pub fn proof_blocks(&self) -> u32 {
        (self.unstable_blocks_max() + 4 * self.record_blocks_max()).min(self.log_blocks)
    }

    /// Returns true if a record may begin at a block: the largest record fits before the end.
    pub fn may_begin(&self, block: u32) -> bool {
        block.checked_add(self.record_blocks_max()).is_some_and(|end| end <= self.log_blocks)
    }

    /// Returns where the next record begins after one of this many blocks, and the distance between both
    /// beginnings, in blocks.
    pub fn next(&self, block: u32, blocks: u32) -> (u32, u32) {
        if self.may_begin(block + blocks) { (block + blocks, blocks) } else { (0, self.log_blocks - block) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_error_names_size_and_limits() {
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
