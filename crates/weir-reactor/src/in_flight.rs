//! The table of operations that the kernel is working on: the owner of all memory that it may touch.

use std::ops::{Deref, Range};
use std::rc::Rc;

use crate::buffer::{Buffer, Unfilled};
use crate::descriptor::Descriptor;
use crate::send::SendBatch;

/// What an operation carried and gives back when it ends.
#[derive(Default)]
pub enum Carried {
    /// Nothing.
    #[default]
    Nothing,
    /// The memory of a read or payload receive: what was moved counts as filled.
    Unfilled(Unfilled),
    /// The buffer of a write, or of a read over a part of it.
    Buffer(Buffer),
    /// The buffer of a write that others are made from too.
    Shared(Rc<Buffer>),
    /// The bytes of a receive.
    Bytes(Box<[u8]>),
    /// The batch of a send.
    Batch(Box<SendBatch>),
}

/// What writes are made from: a buffer of their own, or one that others are made from too.
#[derive(Debug)]
pub enum Payload {
    /// Its own.
    Own(Buffer),
    /// One that others hold too. Nobody can change it meanwhile.
    Shared(Rc<Buffer>),
}

/// What reads are made into.
#[derive(Debug)]
pub enum Target {
    /// Memory that is being filled: it has what was read, and nothing behind that.
    Unfilled(Unfilled),
    /// A part of a buffer that has something there already.
    Buffer(Buffer),
}

/// One operation in flight.
pub(crate) struct Operation<T> {
    pub token: T,
    pub carried: Carried,
    /// Keeps the file or socket open.
    pub descriptor: Option<Descriptor>,
}

impl<T> Operation<T> {
    fn is_on_drive(&self) -> bool {
        self.descriptor.as_ref().is_some_and(Descriptor::is_on_drive)
    }
}

/// A slab of operations; an index is reused only after its operation was taken out.
pub(crate) struct InFlight<T> {
    slots: Vec<Option<Operation<T>>>,
    free: Vec<u32>,
    /// Operations that wait for drives.
    on_drive: usize,
    /// One of those has ended since [`InFlight::take_drive_use`] was asked.
    has_drive_ended: bool,
}

impl<T> InFlight<T> {
    pub fn new() -> InFlight<T> {
        InFlight { slots: Vec::new(), free: Vec::new(), on_drive: 0, has_drive_ended: false }
    }

    pub fn insert(&mut self, operation: Operation<T>) -> u64 {
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.on_drive += usize::from(operation.is_on_drive());
        self.slots[index as usize] = Some(operation);
        u64::from(index)
    }

    pub fn remove(&mut self, index: u64) -> Operation<T> {
        let operation = self.slots[index as usize].take();
        let operation = operation.expect("the kernel answers every operation once");
        self.free.push(index as u32);
        if operation.is_on_drive() {
            self.on_drive -= 1;
            self.has_drive_ended = true;
        }
        operation
    }

    /// The batch of an operation, for laying out its vectors where they will stay.
    pub fn carried_mut(&mut self, index: u64) -> &mut Carried {
        let operation = self.slots[index as usize].as_mut();
        &mut operation.expect("the operation was just inserted").carried
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if an operation waits for drives or has done so since the last time this was asked.
    pub fn take_drive_use(&mut self) -> bool {
        std::mem::take(&mut self.has_drive_ended) || self.on_drive > 0
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

    /// So many bytes were moved.
    pub(crate) fn moved(&mut self, count: u32) {
        if let Carried::Unfilled(memory) = self {
            memory.was_filled(count as usize);
        }
    }

    /// The memory of a payload receive.
    pub fn into_unfilled(self) -> Option<Unfilled> {
        match self {
            Carried::Unfilled(memory) => Some(memory),
            _ => None,
        }
    }

    /// What was read into.
    pub fn into_target(self) -> Option<Target> {
        match self {
            Carried::Unfilled(memory) => Some(Target::Unfilled(memory)),
            Carried::Buffer(buffer) => Some(Target::Buffer(buffer)),
            _ => None,
        }
    }

    /// What a write was made from.
    pub fn into_payload(self) -> Option<Payload> {
        match self {
            Carried::Buffer(buffer) => Some(Payload::Own(buffer)),
            Carried::Shared(buffer) => Some(Payload::Shared(buffer)),
            _ => None,
        }
    }
}

impl Target {
    /// Where the kernel is to read to.
    pub(crate) fn range(&mut self, range: Range<usize>) -> &mut [u8] {
        match self {
            Target::Unfilled(memory) => memory.refill(range),
            Target::Buffer(buffer) => &mut buffer[range],
        }
    }

    /// Has zeroes in a range, as though they had been read.
    ///
    /// # Panics
    /// If something before the range was not filled, or it does not fit.
    pub fn zero(&mut self, range: Range<usize>) {
        let count = range.len();
        self.range(range).fill(0);
        if let Target::Unfilled(memory) = self {
            memory.was_filled(count);
        }
    }
}

impl From<Unfilled> for Target {
    fn from(memory: Unfilled) -> Target {
        Target::Unfilled(memory)
    }
}

impl From<Buffer> for Target {
    fn from(buffer: Buffer) -> Target {
        Target::Buffer(buffer)
    }
}

impl From<Target> for Carried {
    fn from(target: Target) -> Carried {
        match target {
            Target::Unfilled(memory) => Carried::Unfilled(memory),
            Target::Buffer(buffer) => Carried::Buffer(buffer),
        }
    }
}

impl Payload {
    /// Bytes of the memory that it holds.
    pub fn capacity(&self) -> usize {
        match self {
            Payload::Own(buffer) => buffer.capacity(),
            Payload::Shared(buffer) => buffer.capacity(),
        }
    }

    /// A second hold on it: from now on nobody can change it, until one is left.
    pub fn share(self) -> (Payload, Payload) {
        let shared = match self {
            Payload::Own(buffer) => Rc::new(buffer),
            Payload::Shared(buffer) => buffer,
        };
        (Payload::Shared(Rc::clone(&shared)), Payload::Shared(shared))
    }

    /// The buffer, if nobody else holds it.
    pub fn into_own(self) -> Option<Buffer> {
        match self {
            Payload::Own(buffer) => Some(buffer),
            Payload::Shared(buffer) => Rc::into_inner(buffer),
        }
    }
}

impl Deref for Payload {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Payload::Own(buffer) => buffer,
            Payload::Shared(buffer) => buffer,
        }
    }
}

impl From<Buffer> for Payload {
    fn from(buffer: Buffer) -> Payload {
        Payload::Own(buffer)
    }
}

impl From<Payload> for Carried {
    fn from(payload: Payload) -> Carried {
        match payload {
            Payload::Own(buffer) => Carried::Buffer(buffer),
            Payload::Shared(buffer) => Carried::Shared(buffer),
        }
    }
}
