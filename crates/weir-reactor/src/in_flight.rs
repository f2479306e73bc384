//! The table of operations in flight: the owner of all memory that the kernel may touch.

use std::ops::{Deref, Range};
use std::rc::Rc;

use crate::buffer::{Buffer, Unfilled};
use crate::descriptor::Descriptor;
use crate::send::SendBatch;

/// The memory that an operation carries and returns when it ends.
#[derive(Default)]
pub enum Carried {
    /// Nothing.
    #[default]
    Nothing,
    /// The memory of a read or payload receive; moved bytes count as filled.
    Unfilled(Unfilled),
    /// The buffer of a write, or of a read over a part of it.
    Buffer(Buffer),
    /// The buffer of a write, shared with other writes.
    Shared(Rc<Buffer>),
    /// The bytes of a receive.
    Bytes(Box<[u8]>),
    /// The batch of a send.
    Batch(Box<SendBatch>),
}

/// The source of a write: a buffer of its own, or a shared one.
#[derive(Debug)]
pub enum Payload {
    /// The write's own buffer.
    Own(Buffer),
    /// A buffer that others hold too. No holder can change it in that time.
    Shared(Rc<Buffer>),
}

/// The target of a read.
#[derive(Debug)]
pub enum Target {
    /// Memory that is being filled: it has the bytes read, and nothing after them.
    Unfilled(Unfilled),
    /// A part of a buffer that already has content there.
    Buffer(Buffer),
}

/// One operation in flight.
pub(crate) struct Operation<T> {
    pub token: T,
    pub carried: Carried,
    /// Descriptor, held to keep the file or socket open.
    pub descriptor: Option<Descriptor>,
}

impl<T> Operation<T> {
    fn is_on_drive(&self) -> bool {
        self.descriptor.as_ref().is_some_and(Descriptor::is_on_drive)
    }

    fn is_with_driver(&self) -> bool {
        self.descriptor.as_ref().is_some_and(Descriptor::is_block_server)
    }
}

/// A slab of operations; an index is reused only after its operation was taken out.
pub(crate) struct InFlight<T> {
    slots: Vec<Option<Operation<T>>>,
    free: Vec<u32>,
    /// Number of operations that wait for a drive.
    on_drive: usize,
    /// Number of operations that wait for requests to a block device.
    with_driver: usize,
    /// Whether an operation on a drive has ended since the last call of [`InFlight::take_drive_use`].
    has_drive_ended: bool,
}

impl<T> InFlight<T> {
    pub fn new() -> InFlight<T> {
        InFlight { slots: Vec::new(), free: Vec::new(), on_drive: 0, with_driver: 0, has_drive_ended: false }
    }

    pub fn insert(&mut self, operation: Operation<T>) -> u64 {
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.on_drive += usize::from(operation.is_on_drive());
        self.with_driver += usize::from(operation.is_with_driver());
        self.slots[index as usize] = Some(operation);
        u64::from(index)
    }

    pub fn remove(&mut self, index: u64) -> Operation<T> {
        let operation = self.slots[index as usize].take();
        let operation = operation.expect("the kernel answers every operation once");
        self.free.push(index as u32);
        self.with_driver -= usize::from(operation.is_with_driver());
        if operation.is_on_drive() {
            self.on_drive -= 1;
            self.has_drive_ended = true;
        }
        operation
    }

    /// Returns the batch of an operation, to lay out its vectors where they will stay.
    pub fn carried_mut(&mut self, index: u64) -> &mut Carried {
        let operation = self.slots[index as usize].as_mut();
        &mut operation.expect("the operation was just inserted").carried
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Number of operations that end by themselves, or when they are cancelled. The others wait for requests to a block
    /// device; they have no memory, and end with the ring.
    pub fn ending(&self) -> usize {
        self.len() - self.with_driver
    }

    /// Number of operations that wait for requests to a block device.
    pub fn with_driver(&self) -> usize {
        self.with_driver
    }

    /// Returns true if an operation waits for a drive or has done so since the last call.
    pub fn take_drive_use(&mut self) -> bool {
        std::mem::take(&mut self.has_drive_ended) || self.on_drive > 0
    }
}

impl Carried {
    /// Returns the bytes of a send that went out before the kernel was asked for the rest.
    pub(crate) fn bytes_before(&self) -> u32 {
        match self {
            Carried::Batch(batch) => batch.sent_bytes as u32,
            _ => 0,
        }
    }

    /// Counts bytes that were moved.
    pub(crate) fn moved(&mut self, count: u32) {
        if let Carried::Unfilled(memory) = self {
            memory.was_filled(count as usize);
        }
    }

    /// Returns the memory of a payload receive.
    pub fn into_unfilled(self) -> Option<Unfilled> {
        match self {
            Carried::Unfilled(memory) => Some(memory),
            _ => None,
        }
    }

    /// Returns the target of a read.
    pub fn into_target(self) -> Option<Target> {
        match self {
            Carried::Unfilled(memory) => Some(Target::Unfilled(memory)),
            Carried::Buffer(buffer) => Some(Target::Buffer(buffer)),
            _ => None,
        }
    }

    /// Returns the source of a write.
    pub fn into_payload(self) -> Option<Payload> {
        match self {
            Carried::Buffer(buffer) => Some(Payload::Own(buffer)),
            Carried::Shared(buffer) => Some(Payload::Shared(buffer)),
            _ => None,
        }
    }
}

impl Target {
    /// Returns the range that the kernel reads into.
    pub(crate) fn range(&mut self, range: Range<usize>) -> &mut [u8] {
        match self {
            Target::Unfilled(memory) => memory.refill(range),
            Target::Buffer(buffer) => &mut buffer[range],
        }
    }

    /// Fills a range with zeroes, as though they had been read.
    ///
    /// # Panics
    /// If bytes before the range were not filled, or the range does not fit.
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
    /// Capacity of the payload's memory, in bytes.
    pub fn capacity(&self) -> usize {
        match self {
            Payload::Own(buffer) => buffer.capacity(),
            Payload::Shared(buffer) => buffer.capacity(),
        }
    }

    /// Returns two holds on the payload: nothing can change it until only one is left.
    pub fn share(self) -> (Payload, Payload) {
        let shared = match self {
            Payload::Own(buffer) => Rc::new(buffer),
            Payload::Shared(buffer) => buffer,
        };
        (Payload::Shared(Rc::clone(&shared)), Payload::Shared(shared))
    }

    /// Returns the buffer, if there is no other hold on it.
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
