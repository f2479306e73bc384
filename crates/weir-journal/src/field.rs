//! Numbers in blocks: little endian, at fixed places, with a checksum at the end. It knows no field by name.

use crate::Block;

/// Where the checksum lies.
pub(crate) const CHECKSUM_START: usize = size_of::<Block>() - 4;

/// Why a block holds nothing that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockFault {
    /// It is something else, or was never written.
    #[error("it does not begin as it should")]
    Magic,
    /// It was damaged, or was written in part.
    #[error("its checksum is {found:#010x} where its content has {expected:#010x}")]
    Checksum {
        /// What it says.
        found: u32,
        /// What its content has.
        expected: u32,
    },
    /// Another version wrote it.
    #[error("it has format {found}, where {expected} is accepted")]
    Format {
        /// What it says.
        found: u32,
        /// What is understood.
        expected: u32,
    },
    /// A number in it makes no sense.
    #[error("its {field} is {found}, which makes no sense there")]
    Field {
        /// Which number.
        field: &'static str,
        /// What it says.
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

/// Puts the checksum of the first bytes where it belongs; those behind them are zero.
pub(crate) fn write_checksum(block: &mut Block, length: usize) {
    let checksum = crate::checksum(&block[..length]);
    put(block, CHECKSUM_START, &checksum.to_le_bytes());
}

/// Checks what all blocks have: a magic, after it the version of their form, and a checksum of the first
/// bytes, with zeroes behind them.
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

/// An error about a field unless it is sound.
pub(crate) fn require(is_sound: bool, field: &'static str, found: impl Into<u64>) -> Result<(), BlockFault> {
    if is_sound { Ok(()) } else { Err(BlockFault::Field { field, found: found.into() }) }
}
