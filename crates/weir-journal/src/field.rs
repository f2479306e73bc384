//! Encoding of on-disk blocks: little-endian numbers at fixed places, with a checksum at the end. The module
//! knows no field by name.

use crate::Block;

/// Byte position of the checksum in a block.
pub(crate) const CHECKSUM_START: usize = size_of::<Block>() - 4;

/// The reason why a block holds nothing usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockFault {
    /// The block is of another kind, or was never written.
    #[error("it does not begin as it should")]
    Magic,
    /// The block was damaged, or was written in part.
    #[error("its checksum is {found:#010x} where its content has {expected:#010x}")]
    Checksum {
        /// Checksum stored in the block.
        found: u32,
        /// Checksum of the block's content.
        expected: u32,
    },
    /// Another version wrote the block.
    #[error("it has format {found}, where {expected} is accepted")]
    Format {
        /// Format stored in the block.
        found: u32,
        /// Format that this version accepts.
        expected: u32,
    },
    /// A number in the block makes no sense.
    #[error("its {field} is {found}, which makes no sense there")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        found: u64,
    },
}

pub(crate) fn put(block: &mut Block, start: usize, bytes: &[u8]) {
    block[start..start + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn array<const N: usize>(block: &Block, start: usize) -> [u8; N] {
    block[start..start + N].try_into().expect("a field lies within its block")
}

pub(crate) fn number32(block: &Block, start: usize) -> u32 {
    u32::from_le_bytes(array(block, start))
}

pub(crate) fn number64(block: &Block, start: usize) -> u64 {
    u64::from_le_bytes(array(block, start))
}

/// Stores the checksum of the first `length` bytes in its place. The bytes between them and the checksum are
/// zero.
pub(crate) fn write_checksum(block: &mut Block, length: usize) {
    let checksum = crate::checksum(&block[..length]);
    put(block, CHECKSUM_START, &checksum.to_le_bytes());
}

/// Checks the parts that all blocks share: the magic, the format version after it, the checksum, and the
/// zeroes. The checksum covers the first `length` bytes; zeroes follow them.
pub(crate) fn check(block: &Block, magic: &[u8; 8], format: u32, length: usize) -> Result<(), BlockFault> {
    if block[..magic.len()] != *magic {
        return Err(BlockFault::Magic);
    }
    let (found, expected) = (number32(block, CHECKSUM_START), crate::checksum(&block[..length]));
    if found != expected {
        return Err(BlockFault::Checksum { found, expected });
    }
    let stray = block[length..CHECKSUM_START].iter().find(|byte| **byte != 0);
    require(stray.is_none(), "byte behind its content", stray.copied().unwrap_or(0))?;
    match number32(block, magic.len()) {
        found if found == format => Ok(()),
        found => Err(BlockFault::Format { found, expected: format }),
    }
}

/// Returns an error about a field unless the field is sound.
pub(crate) fn require(is_sound: bool, field: &'static str, found: impl Into<u64>) -> Result<(), BlockFault> {
    if is_sound { Ok(()) } else { Err(BlockFault::Field { field, found: found.into() }) }
}
