//! The table of operations that the kernel is working on: the owner of all memory that it may touch.

use crate::buffer::Buffer;
use crate::descriptor::Descriptor;
use crate::send::SendBatch;

/// What an operation carried and gives back when it ends.
#[derive(Default)]
pub enum Carried {
    /// Nothing.
    #[default]
    Nothing,
    /// The buffer of a read, write or payload receive.
    Buffer(Buffer),
    /// The bytes of a receive.
    Bytes(Box<[u8]>),
    /// The batch of a send.
    Batch(Box<SendBatch>),
}

/// One operation in flight.
pub(crate) struct Operation<T> {
    pub token: T,
    pub carried: Carried,
    /// Keeps the file or socket open.
    pub _descriptor: Option<Descriptor>,
}

/// A slab of operations; an index is reused only after its operation was taken out.
pub(crate) struct InFlight<T> {
    slots: Vec<Option<Operation<T>>>,
    free: Vec<u32>,
}

impl<T> InFlight<T> {
    pub fn new() -> InFlight<T> {
        InFlight { slots: Vec::new(), free: Vec::new() }
    }

    pub fn insert(&mut self, operation: Operation<T>) -> u64 {
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index as usize] = Some(operation);
        u64::from(index)
    }

    pub fn remove(&mut self, index: u64) -> Operation<T> {
        let operation = self.slots[index as usize].take();
        self.free.push(index as u32);
        operation.expect("the kernel answers every operation once")
    }

    /// The batch of an operation, for laying out its vectors where they will stay.
    pub fn carried_mut(&mut self, index: u64) -> &mut Carried {
        let operation = self.slots[index as usize].as_mut();
        &mut operation.expect("the operation was just inserted").carried
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Carried {
    /// Bytes of a send that went out before the kernel was asked for the rest.
    pub(crate) fn bytes_before(&self) -> u32 {
        match self {
            Carried::Batch(batch) => batch.sent_bytes as u32,
            _ => 0,
        }
    }

    /// The pooled buffer of a file operation or payload.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Carried::Buffer(buffer) => Some(buffer),
            _ => None,
        }
    }
}
