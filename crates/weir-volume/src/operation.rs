//! The operations of a volume that are under way.

use crate::action::{EdgeRead, Kind, OperationId, Request};
use crate::geometry::{block_end, block_start, covering_blocks};
use weir_types::bounds::BLOCK_BYTES;

/// Progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Waits for its extent to open, for its range, or for space.
    Waiting,
    /// Its first, partial block is being read.
    HeadEdge,
    /// Its last, partial block is being read.
    TailEdge,
    /// Is being carried out; `done` bytes of its blocks are done.
    Running { done: u32 },
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub request: Request,
    pub stage: Stage,
}

impl Operation {
    /// Offset and length of the whole blocks that the operation touches.
    pub fn blocks(&self) -> (u32, u32) {
        covering_blocks(self.request.offset, self.request.length)
    }

    pub fn is_read(&self) -> bool {
        self.request.kind == Kind::Read
    }

    /// True if no other change may overlap it: it reads before it writes, or it changes the allocation.
    pub fn is_exclusive(&self) -> bool {
        match self.request.kind {
            Kind::Read => false,
            Kind::Write { .. } => self.has_head_edge() || self.has_tail_edge(),
            Kind::Release | Kind::Zero => true,
        }
    }

    pub fn overlaps(&self, other: &Operation) -> bool {
        let ((mine, my_length), (theirs, their_length)) = (self.blocks(), other.blocks());
        mine < theirs + their_length && theirs < mine + my_length
    }

    pub fn has_head_edge(&self) -> bool {
        !self.request.offset.is_multiple_of(BLOCK_BYTES as u32)
    }

    /// True if the last block is partial and is not the first block, which the head edge covers.
    pub fn has_tail_edge(&self) -> bool {
        let end = self.request.offset + self.request.length;
        let is_partial = !end.is_multiple_of(BLOCK_BYTES as u32);
        is_partial && !(self.has_head_edge() && block_start(self.request.offset) == block_start(end))
    }

    pub fn head_edge(&self) -> EdgeRead {
        EdgeRead { block_offset: block_start(self.request.offset), buffer_offset: 0 }
    }

    pub fn tail_edge(&self) -> EdgeRead {
        let (start, length) = self.blocks();
        let block_offset = block_end(start + length) - BLOCK_BYTES as u32;
        EdgeRead { block_offset, buffer_offset: block_offset - start }
    }
}

/// A slab of operations. A number is used again only after the executor has processed the end of its
/// operation. Until then it still names the executor's state of the ended operation.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    slots: Vec<Option<Operation>>,
    free: Vec<u32>,
    under_way: usize,
}

impl Operations {
    pub fn insert(&mut self, request: Request) -> OperationId {
        let operation = Some(Operation { request, stage: Stage::Waiting });
        self.under_way += 1;
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = operation;
                OperationId(index)
            }
            None => {
                self.slots.push(operation);
                OperationId(self.slots.len() as u32 - 1)
            }
        }
    }

    pub fn get(&self, id: OperationId) -> &Operation {
        self.slots[id.0 as usize].as_ref().expect("an operation is known until it is done")
    }

    /// All operations that are under way.
    pub fn iter(&self) -> impl Iterator<Item = &Operation> {
        self.slots.iter().flatten()
    }

    pub fn get_mut(&mut self, id: OperationId) -> &mut Operation {
        self.slots[id.0 as usize].as_mut().expect("an operation is known until it is done")
    }

    pub fn remove(&mut self, id: OperationId) -> Operation {
        self.under_way -= 1;
        self.slots[id.0 as usize].take().expect("an operation is done once")
    }

    /// Frees the number of an operation that was removed.
    pub fn release(&mut self, id: OperationId) {
        debug_assert!(self.slots[id.0 as usize].is_none(), "only an operation that has ended is forgotten");
        self.free.push(id.0);
    }

    pub fn len(&self) -> usize {
        self.under_way
    }
}
