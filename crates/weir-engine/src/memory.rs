//! Memory of an operation while the kernel does not hold it: unfilled or filled.

use weir_reactor::{Buffer, BufferPool, Carried, Payload, Target, Unfilled};
use weir_types::bounds::{BLOCK_BYTES, PIECE_BYTES};
use weir_volume::geometry::{Part, covering_blocks};

/// Memory that an operation reads into or writes from. Only filled bytes can be written to a drive or sent
/// to a client.
pub enum Memory {
    /// Memory to read into, with the bytes that were read so far.
    Unfilled(Unfilled),
    /// Memory with the bytes to write.
    Filled(Payload),
}

impl Memory {
    /// The pool memory that a drive's operation carried, if it carried any.
    pub fn of(carried: Carried) -> Option<Memory> {
        match carried {
            Carried::Unfilled(memory) => Some(Memory::Unfilled(memory)),
            Carried::Buffer(buffer) => Some(buffer.into()),
            Carried::Shared(buffer) => Some(Memory::Filled(Payload::Shared(buffer))),
            Carried::Nothing | Carried::Bytes(_) | Carried::Batch(_) => None,
        }
    }

    /// Size of the memory in bytes, filled or not.
    pub fn capacity(&self) -> usize {
        match self {
            Memory::Unfilled(memory) => memory.capacity(),
            Memory::Filled(payload) => payload.capacity(),
        }
    }

    /// The filled bytes.
    pub fn filled(&self) -> &[u8] {
        match self {
            Memory::Unfilled(memory) => memory.filled(),
            Memory::Filled(payload) => payload,
        }
    }

    /// Memory to read into, unless others share it.
    pub fn into_unfilled(self) -> Option<Unfilled> {
        match self {
            Memory::Unfilled(memory) => Some(memory),
            Memory::Filled(payload) => payload.into_own().map(Buffer::reuse),
        }
    }

    /// The filled bytes, to be written or sent.
    pub fn into_filled(self) -> Payload {
        match self {
            Memory::Unfilled(memory) => Payload::Own(memory.completed()),
            Memory::Filled(payload) => payload,
        }
    }

    /// Target of a read: the memory from its start, or for an edge a part of a filled buffer.
    pub fn into_target(self, is_edge: bool) -> Option<Target> {
        match (self, is_edge) {
            (Memory::Filled(payload), true) => payload.into_own().map(Target::Buffer),
            (Memory::Unfilled(_), true) => None,
            (memory, false) => memory.into_unfilled().map(Target::Unfilled),
        }
    }
}

impl From<Unfilled> for Memory {
    fn from(memory: Unfilled) -> Memory {
        Memory::Unfilled(memory)
    }
}

impl From<Buffer> for Memory {
    fn from(buffer: Buffer) -> Memory {
        Memory::Filled(Payload::Own(buffer))
    }
}

impl From<Payload> for Memory {
    fn from(payload: Payload) -> Memory {
        Memory::Filled(payload)
    }
}

/// Memory for one more buffer. If the pool is exhausted, the memory is allocated outside of it. An
/// operation on one replica must not fail while another succeeds, or the replicas would differ.
pub fn fresh(bytes: usize, pool: &BufferPool) -> Unfilled {
    let own = || BufferPool::new(PIECE_BYTES as usize).ok()?.take(bytes);
    let memory = pool.take(bytes.max(BLOCK_BYTES as usize)).or_else(own);
    memory.expect("the system has memory for one more buffer")
}

/// Offset of the spare block in the buffer of an unaligned write.
pub fn scratch_start(part: Part) -> usize {
    let (_, covered) = covering_blocks(part.offset, part.length);
    covered as usize
}
