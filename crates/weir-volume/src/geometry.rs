//! Splitting of requests into operations.
//!
//! Reads and writes are split at multiples of [`PIECE_BYTES`], so that a piece fits one buffer and never
//! crosses an extent. All other requests are split at extents.

use weir_types::ExtentIndex;
use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES, PIECE_BYTES};

/// A part of a request that lies within one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the extent.
    pub extent: ExtentIndex,
    /// Offset in the extent, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub length: u32,
    /// Offset in the request, in bytes.
    pub position: u64,
}

/// First part of the range from `start` to `end` (volume offsets), split at multiples of `window_bytes`.
fn first_part(request_offset: u64, start: u64, end: u64, window_bytes: u64) -> Part {
    let window_end = (start / window_bytes + 1) * window_bytes;
    Part {
        extent: ExtentIndex::holding(start),
        offset: (start % EXTENT_BYTES) as u32,
        length: (window_end.min(end) - start) as u32,
        position: start - request_offset,
    }
}

/// Next piece of a read or write, `position` bytes into the request; `None` at its end.
///
/// Unaligned requests are split at half a piece: the other half of their buffer serves to read edges.
pub fn next_piece(offset: u64, length: u64, position: u64) -> Option<Part> {
    let is_aligned = offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
    let window_bytes = if is_aligned { PIECE_BYTES } else { PIECE_BYTES / 2 };
    let (start, end) = (offset + position, offset + length);
    (start < end).then(|| first_part(offset, start, end, window_bytes))
}

/// Next part of a range split at extents, `position` bytes into the request; `None` at its end.
pub fn next_extent(offset: u64, length: u64, position: u64) -> Option<Part> {
    let (start, end) = (offset + position, offset + length);
    (start < end).then(|| first_part(offset, start, end, EXTENT_BYTES))
}

/// Number of extents of a volume of `size_bytes`.
pub fn extent_count(size_bytes: u64) -> u32 {
    size_bytes.div_ceil(EXTENT_BYTES) as u32
}

/// Rounds down to whole blocks.
pub fn block_start(offset: u32) -> u32 {
    offset - offset % BLOCK_BYTES as u32
}

/// Rounds up to whole blocks.
pub fn block_end(offset: u32) -> u32 {
    offset.next_multiple_of(BLOCK_BYTES as u32)
}

/// Offset and length of the whole blocks that a range touches.
pub fn covering_blocks(offset: u32, length: u32) -> (u32, u32) {
    let start = block_start(offset);
    (start, block_end(offset + length) - start)
}

/// Splits a range of a request into a partial block, whole blocks and a partial block. Returns `(head_length,
/// middle_length, tail_length)` with `head + middle + tail = length`.
pub fn split_at_blocks(offset: u64, length: u64) -> (u64, u64, u64) {
    let head = (offset.next_multiple_of(BLOCK_BYTES) - offset).min(length);
    let tail = if head < length { (offset + length) % BLOCK_BYTES } else { 0 };
    (head, length - head - tail, tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_a_request_exactly(offset in 0u64..3 * EXTENT_BYTES, length in 1u64..5_000_000) {
            let mut position = 0;
            while let Some(part) = next_piece(offset, length, position) {
                prop_assert_eq!(part.position, position);
                prop_assert_eq!(part.extent.start_bytes() + u64::from(part.offset), offset + position);
                let (start, covered) = covering_blocks(part.offset, part.length);
                prop_assert!(u64::from(covered) <= PIECE_BYTES && u64::from(start) < EXTENT_BYTES);
                position += u64::from(part.length);
            }
            prop_assert_eq!(position, length);
        }

        #[test]
        fn blocks_split_exactly(offset in 0u64..100_000, length in 1u64..100_000) {
            let (head, middle, tail) = split_at_blocks(offset, length);
            prop_assert_eq!(head + middle + tail, length);
            prop_assert!(middle == 0 || (offset + head).is_multiple_of(BLOCK_BYTES));
            prop_assert!(middle.is_multiple_of(BLOCK_BYTES) && head < BLOCK_BYTES && tail < BLOCK_BYTES);
        }
    }
}
