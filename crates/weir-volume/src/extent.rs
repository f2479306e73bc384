//! State of one extent.

use std::collections::VecDeque;

use weir_types::bounds::{ALLOCATION_BYTES, EXTENT_BYTES};

use crate::action::{Generation, OperationId};
use crate::flush::ExtentSync;

/// Allocation pieces of one extent.
const PIECES: usize = (EXTENT_BYTES / ALLOCATION_BYTES) as usize;

/// One bit for each allocation piece of an extent: set if the piece may hold data. A clear bit means that the
/// piece was never written, or was given back as a whole. The piece then reads as zeroes without I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationMap([u64; PIECES / 64]);

impl Default for AllocationMap {
    fn default() -> Self {
        AllocationMap([0; PIECES / 64])
    }
}

impl AllocationMap {
    /// True if the piece may hold data.
    pub fn may_hold_data(&self, piece: u32) -> bool {
        self.0[piece as usize / 64] & (1 << (piece % 64)) != 0
    }

    /// Marks a piece as possibly holding data.
    pub fn set(&mut self, piece: u32) {
        self.0[piece as usize / 64] |= 1 << (piece % 64);
    }

    fn clear(&mut self, piece: u32) {
        self.0[piece as usize / 64] &= !(1 << (piece % 64));
    }

    /// Marks every piece that a range of bytes touches.
    pub fn set_range(&mut self, offset: u32, length: u32) {
        touched_pieces(offset, length).for_each(|piece| self.set(piece));
    }

    /// Clears the pieces that lie wholly in a range of bytes.
    pub fn clear_within(&mut self, offset: u32, length: u32) {
        let piece_bytes = ALLOCATION_BYTES as u32;
        let (first, end) = (offset.div_ceil(piece_bytes), (offset + length) / piece_bytes);
        (first..end).for_each(|piece| self.clear(piece));
    }

    /// True if no piece that a range of bytes touches may hold data.
    pub fn is_hole(&self, offset: u32, length: u32) -> bool {
        !touched_pieces(offset, length).any(|piece| self.may_hold_data(piece))
    }
}

/// Allocation pieces that a range of bytes touches.
fn touched_pieces(offset: u32, length: u32) -> std::ops::RangeInclusive<u32> {
    piece_of(offset)..=piece_of(offset + length - 1)
}

/// Allocation piece of an offset.
pub(crate) fn piece_of(offset: u32) -> u32 {
    offset / ALLOCATION_BYTES as u32
}

/// State of an extent's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The file was not needed yet.
    Closed,
    /// The file is being opened.
    Opening,
    /// The file is open, and its map is known.
    Ready,
    /// The extent fails every operation.
    Failed,
}

/// One extent.
#[derive(Debug)]
pub(crate) struct Extent {
    pub generation: Generation,
    pub state: State,
    pub map: AllocationMap,
    /// Pieces whose space is being reserved.
    pub allocating: Vec<u32>,
    /// Operations that cannot proceed yet, in the order of their arrival.
    pub waiting: VecDeque<OperationId>,
    /// Operations in progress that change a range.
    pub writing: Vec<OperationId>,
    /// Number of operations in `writing` and `waiting` that need their range exclusively.
    pub exclusive: u32,
    /// Whether a flush must consider this extent.
    pub is_touched: bool,
    pub sync: ExtentSync,
}

impl Extent {
    pub fn new(generation: Generation) -> Extent {
        Extent {
            generation,
            state: State::Closed,
            map: AllocationMap::default(),
            allocating: Vec::new(),
            waiting: VecDeque::new(),
            writing: Vec::new(),
            exclusive: 0,
            is_touched: false,
            sync: ExtentSync::default(),
        }
    }
}
