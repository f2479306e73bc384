//! The superblock: the identity of a journal's file, and the beginning of its log. The module knows nothing
//! of the log's content.

use weir_types::JournalId;

use crate::Block;
pub use crate::field::BlockFault;
use crate::field::{self, array, number32, number64, put, require};
use crate::geometry::Geometry;

/// First bytes of a superblock.
const MAGIC: [u8; 8] = *b"WEIRJRNL";
/// Version of the on-disk format of a journal.
pub const FORMAT: u32 = 2;

const FORMAT_START: usize = 8;
const LOG_BLOCKS_START: usize = 12;
const JOURNAL_START: usize = 16;
const GENERATION_START: usize = 32;
const LIFE_START: usize = 40;
const LIFE_BEGAN_START: usize = 48;
const TAIL_START: usize = 56;
const STABLE_START: usize = 64;
const POSITION_START: usize = 72;

/// The fields of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the journal.
    pub journal: JournalId,
    /// Number of blocks of the log.
    pub log_blocks: u32,
    /// Generation: one more with each superblock that is written.
    pub generation: u64,
    /// Life: one more with each recovery.
    pub life: u64,
    /// Sequence number of the first record of this life.
    pub life_began: u64,
    /// Sequence number of the oldest record that counts, or of the next one if there is none.
    pub tail: u64,
    /// Block of the log where that record begins.
    pub tail_position: u32,
    /// Highest sequence number that was stable when the superblock was written.
    pub stable: u64,
}

impl Superblock {
    /// Encodes the superblock into a block.
    pub fn encode(&self, block: &mut Block) {
        block.fill(0);
        put(block, 0, &MAGIC);
        put(block, FORMAT_START, &FORMAT.to_le_bytes());
        put(block, LOG_BLOCKS_START, &self.log_blocks.to_le_bytes());
        put(block, JOURNAL_START, &self.journal.bytes());
        put(block, GENERATION_START, &self.generation.to_le_bytes());
        put(block, LIFE_START, &self.life.to_le_bytes());
        put(block, LIFE_BEGAN_START, &self.life_began.to_le_bytes());
        put(block, TAIL_START, &self.tail.to_le_bytes());
        put(block, STABLE_START, &self.stable.to_le_bytes());
        put(block, POSITION_START, &self.tail_position.to_le_bytes());
        field::write_checksum(block, field::CHECKSUM_START);
    }

    /// Decodes a superblock.
    ///
    /// # Errors
    /// If the block is no superblock, was damaged, is of another version, or makes no sense.
    pub fn decode(block: &Block) -> Result<Superblock, BlockFault> {
        field::check(block, &MAGIC, FORMAT, field::CHECKSUM_START)?;
        let superblock = Superblock {
            journal: JournalId::from_bytes(array(block, JOURNAL_START)),
            log_blocks: number32(block, LOG_BLOCKS_START),
            generation: number64(block, GENERATION_START),
            life: number64(block, LIFE_START),
            life_began: number64(block, LIFE_BEGAN_START),
            tail: number64(block, TAIL_START),
            tail_position: number32(block, POSITION_START),
            stable: number64(block, STABLE_START),
        };
        superblock.check()?;
        Ok(superblock)
    }

    fn check(&self) -> Result<(), BlockFault> {
        let geometry = Geometry::tiny(self.log_blocks);
        require(geometry.log_blocks() == self.log_blocks, "number of blocks", self.log_blocks)?;
        require(
            geometry.file_bytes() <= weir_types::bounds::JOURNAL_BYTES_MAX,
            "number of blocks",
            self.log_blocks,
        )?;
        require(geometry.may_begin(self.tail_position), "position of the tail", self.tail_position)?;
        // Numbers that grow by one never come near their end.
        for (field, number) in
            [("generation", self.generation), ("life", self.life), ("stable record", self.stable)]
        {
            require(number < u64::MAX / 2, field, number)?;
        }
        require((1..=self.stable + 1).contains(&self.tail), "tail", self.tail)?;
        require((1..=self.stable + 1).contains(&self.life_began), "first record of its life", self.life_began)
    }
}

/// Returns the superblocks of a new journal. They are written durably to the beginning of its file before the
/// first recovery. Other content of the file does not matter, because the journal's identity is new.
pub fn format(journal: JournalId, geometry: Geometry) -> [Block; 2] {
    [0, 1].map(|generation| {
        let log_blocks = geometry.log_blocks();
        let (life, life_began, tail, tail_position, stable) = (0, 1, 1, 0, 0);
        let superblock =
            Superblock { journal, log_blocks, generation, life, life_began, tail, tail_position, stable };
        let mut block = [0; size_of::<Block>()];
        superblock.encode(&mut block);
        block
    })
}
