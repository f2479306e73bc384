//! Part buffers: how large the buffer for a part of a request is, and where the part lies in it.

use weir_types::bounds::BLOCK_BYTES;
use weir_volume::geometry::{Part, covering_blocks};

/// Buffer size for a part: its blocks, and a spare block if edges have to be read.
pub fn buffer_bytes(part: Part) -> usize {
    let (_, covered) = covering_blocks(part.offset, part.length);
    let spare = if covered == part.length { 0 } else { BLOCK_BYTES as usize };
    covered as usize + spare
}

/// Offset of the part's first byte in its buffer.
pub fn skew(part: Part) -> usize {
    part.offset as usize % BLOCK_BYTES as usize
}
