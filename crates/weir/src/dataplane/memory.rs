//! The memory of an operation while the kernel does not have it: still to be filled, or filled.

use weir_reactor::{Buffer, Carried, Payload, Target, Unfilled};

/// What an operation reads into or is made from. Only what was filled can be written to a drive or sent to a client.
pub(super) enum Memory {
    /// It is to be read into, and has what was read so far.
    Unfilled(Unfilled),
    /// It has what is written.
    Filled(Payload),
}

impl Memory {
    /// What an operation of a drive had, if it had memory of the pool.
    pub fn of(carried: Carried) -> Option<Memory> {
        match carried {
            Carried::Unfilled(memory) => Some(Memory::Unfilled(memory)),
            Carried::Buffer(buffer) => Some(buffer.into()),
            Carried::Shared(buffer) => Some(Memory::Filled(Payload::Shared(buffer))),
            Carried::Nothing | Carried::Bytes(_) | Carried::Batch(_) => None,
        }
    }

    /// Bytes of it, filled or not.
    pub fn capacity(&self) -> usize {
        match self {
            Memory::Unfilled(memory) => memory.capacity(),
            Memory::Filled(payload) => payload.capacity(),
        }
    }

    /// What was filled.
    pub fn filled(&self) -> &[u8] {
        match self {
            Memory::Unfilled(memory) => memory.filled(),
            Memory::Filled(payload) => payload,
        }
    }

    /// What is to be read into, unless others have it too.
    pub fn into_unfilled(self) -> Option<Unfilled> {
        match self {
            Memory::Unfilled(memory) => Some(memory),
            Memory::Filled(payload) => payload.into_own().map(Buffer::reuse),
        }
    }

    /// What is written or sent: nothing but what was filled.
    pub fn into_filled(self) -> Payload {
        match self {
            Memory::Unfilled(memory) => Payload::Own(memory.completed()),
            Memory::Filled(payload) => payload,
        }
    }

    /// Where a read goes: into it from its start, or an edge over a part of what it has.
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
