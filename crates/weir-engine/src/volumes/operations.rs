//! Operations: what is under way on a volume, what it is for, and the memory that it uses.
//!
//! An operation of the mirror spans all replicas and has an [`Owner`]; a replica's part of it has a
//! [`Context`]. This module knows neither files nor drives.

use std::collections::BTreeMap;
use std::ops::Range;

use weir_qos::Cost;
use weir_reactor::{Buffer, BufferPool, Payload, Target};
use weir_types::ExtentIndex;
use weir_volume::geometry::Part;
use weir_volume::mirror::MirrorId;
use weir_volume::mirror::stall::Waiting;
use weir_volume::{Generation, OperationId};

use crate::memory::{Memory, fresh};
use crate::operation_time::OperationTime;
use crate::space_count::TakenSpace;
use crate::token::{AskNumber, Ticket};
use crate::volumes::orphans::{OrphanedIo, OrphanedIos};

/// Purpose of a mirror operation, which spans all replicas.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// The operation serves a part of a client's request.
    Client(Ticket),
    /// The operation resyncs an extent replica.
    Resync { extent: ExtentIndex, slot: usize },
    /// The operation examines a piece of an extent.
    Scrubbing { extent: ExtentIndex },
}

/// A mirror operation.
pub struct Owner {
    pub purpose: Purpose,
    /// The part of the request that the operation serves.
    pub part: Part,
    /// The operation's memory, unless a replica's operation has it.
    pub memory: Option<Memory>,
    /// Size of the memory in bytes.
    memory_bytes: usize,
    /// Range of the payload with its checksum, once a replica needed it.
    checksum: Option<(Range<usize>, u32)>,
    /// Time of the slowest of its replicas' operations.
    pub spent: OperationTime,
}

impl Owner {
    pub fn new(purpose: Purpose, part: Part, memory: Option<Memory>) -> Owner {
        let memory_bytes = memory.as_ref().map_or(0, Memory::capacity);
        Owner { purpose, part, memory, memory_bytes, checksum: None, spent: OperationTime::default() }
    }

    /// Takes over the results of a replica's operation that has ended.
    fn gather(&mut self, context: &mut Context) {
        if context.spent.total_ns() >= self.spent.total_ns() {
            self.spent = context.spent;
        }
        // A private duplicate, which a replica had to change, is not the requested memory.
        if self.memory.is_none() {
            self.memory = context.memory.take();
        }
    }

    /// True if the payload is for one replica alone, and is not shared by all.
    fn is_for_one(&self, has_others: bool) -> bool {
        !has_others || !matches!(self.purpose, Purpose::Client(_))
    }

    /// A shared payload for the write of one of several replicas.
    fn share_payload(&mut self) -> Option<Payload> {
        let (one, other) = self.memory.take()?.into_filled().share();
        self.memory = Some(one.into());
        Some(other)
    }
}

/// An operation on one replica.
pub struct Context {
    /// Unique number, unlike the operation's index, which is reused.
    pub number: AskNumber,
    pub owner: MirrorId,
    pub extent: ExtentIndex,
    /// When the drive was asked for the current action, in nanoseconds; 0 before.
    pub asked_ns: u64,
    /// The home whose drive queue the operation uses.
    pub home: usize,
    /// The operation's own memory, while the kernel does not have it.
    pub memory: Option<Memory>,
    /// Cost in the drive queue, once the operation arrived there.
    pub cost: Option<Cost>,
    /// Counted space that the operation takes.
    pub space: Option<TakenSpace>,
    /// When the operation arrived at the drive, or in the drive queue, in nanoseconds.
    pub at_drive_since_ns: u64,
    pub spent: OperationTime,
}

impl Context {
    /// Records that the drive is asked for the operation, which may take counted space.
    pub fn ask(&mut self, asked_ns: u64, space: Option<TakenSpace>) -> AskNumber {
        self.asked_ns = asked_ns;
        // Space that an earlier, finished part took stays counted until the whole operation ends.
        if space.is_some() {
            self.space = space;
        }
        self.number
    }
}

/// A request to a file that belongs to no operation.
struct Asked {
    extent: ExtentIndex,
    generation: Generation,
    since_ns: u64,
    /// Counted space that the request takes.
    space: Option<TakenSpace>,
}

/// What is under way on one replica.
#[derive(Default)]
struct SlotOperations {
    contexts: Vec<Option<Context>>,
    /// Requests to open, allocate in or sync a file, by number.
    asked: BTreeMap<AskNumber, Asked>,
}

/// What is under way on a volume.
#[derive(Default)]
pub struct Operations {
    slots: Vec<SlotOperations>,
    owners: Vec<Option<Owner>>,
    /// Flushes under way by number; `None` marks a free number.
    flushes: Vec<Option<Ticket>>,
    last_number: u64,
    /// Orphaned I/O that has not returned.
    orphans: OrphanedIos,
    /// Number of operations of the ring and the helper that have not returned.
    outstanding: usize,
}

impl Operations {
    /// Makes room for this number of replicas.
    pub fn set_slots(&mut self, slots: usize) {
        self.slots.resize_with(slots.max(self.slots.len()), SlotOperations::default);
    }

    /// The ring or the helper was asked for something, which will return.
    pub fn begin(&mut self) {
        self.outstanding += 1;
    }

    /// Something has returned.
    pub fn end(&mut self) {
        self.outstanding -= 1;
    }

    /// True if all that the ring and the helper were asked for has returned.
    pub fn is_quiet(&self) -> bool {
        self.outstanding == 0
    }

    /// Number of operations that have not returned.
    #[cfg(test)]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Adds I/O that was given up and has not returned.
    pub fn orphan(&mut self, slot: usize, number: AskNumber, io: OrphanedIo) {
        self.orphans.add(slot, number, io);
    }

    /// Removes orphaned I/O that has returned.
    pub fn end_orphan(&mut self, slot: usize, number: AskNumber) -> Option<OrphanedIo> {
        let ended = self.orphans.remove(slot, number)?;
        self.end();
        Some(ended)
    }

    /// True if orphaned I/O may still reach a replica of an extent.
    pub fn has_orphans_of(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.orphans.has_any_of(extent, slot)
    }

    pub fn set_owner(&mut self, id: MirrorId, owner: Owner) {
        let index = id.0 as usize;
        if self.owners.len() <= index {
            self.owners.resize_with(index + 1, || None);
        }
        self.owners[index] = Some(owner);
    }

    pub fn owner(&mut self, id: MirrorId) -> &mut Owner {
        self.owners[id.0 as usize].as_mut().expect("an operation has an owner until it is done")
    }

    /// Creates the context of a replica's operation, if it has none yet.
    pub fn begin_operation(
        &mut self,
        (slot, extent): (usize, ExtentIndex),
        operation: OperationId,
        owner: MirrorId,
        home: usize,
    ) {
        let number = self.next_number();
        let (contexts, index) = (&mut self.slots[slot].contexts, operation.0 as usize);
        if contexts.len() <= index {
            contexts.resize_with(index + 1, || None);
        }
        contexts[index].get_or_insert_with(|| Context {
            number,
            owner,
            extent,
            asked_ns: 0,
            home,
            memory: None,
            cost: None,
            space: None,
            at_drive_since_ns: 0,
            spent: OperationTime::default(),
        });
    }

    pub fn next_number(&mut self) -> AskNumber {
        self.last_number += 1;
        AskNumber(self.last_number)
    }

    /// Records a request to open, allocate in or sync the file of an extent replica, with its time and the
    /// space that it takes.
    pub fn ask(
        &mut self,
        slot: usize,
        (extent, generation): (ExtentIndex, Generation),
        (since_ns, space): (u64, Option<TakenSpace>),
    ) -> AskNumber {
        let number = self.next_number();
        let asked = Asked { extent, generation, since_ns, space };
        self.slots[slot].asked.insert(number, asked);
        number
    }

    /// A file's request was answered. Answers the file's generation; `None` if the request was given up
    /// before.
    pub fn answered(&mut self, slot: usize, number: AskNumber) -> Option<Generation> {
        self.slots[slot].asked.remove(&number).map(|asked| asked.generation)
    }

    /// Sets the space that a file's request takes until it is answered.
    pub fn set_space(&mut self, slot: usize, number: AskNumber, space: Option<TakenSpace>) {
        if let Some(asked) = self.slots[slot].asked.get_mut(&number) {
            asked.space = space;
        }
    }

    /// True if a file's request is neither answered nor given up.
    pub fn is_asked(&self, slot: usize, number: AskNumber) -> bool {
        self.slots[slot].asked.contains_key(&number)
    }

    /// Gives up all requests to the file of an extent replica that belong to no operation.
    pub fn give_up_asked(&mut self, slot: usize, extent: ExtentIndex) {
        let given_up = self.slots[slot].asked.extract_if(.., |_, asked| asked.extent == extent);
        let orphaned = |asked: Asked| OrphanedIo { extent, queued: None, space: asked.space };
        given_up.for_each(|(number, asked)| self.orphans.add(slot, number, orphaned(asked)));
    }

    /// True if the answer with this number to a replica's operation is still wanted.
    pub fn is_wanted(&self, slot: usize, operation: OperationId, number: AskNumber) -> bool {
        let context = self.slots[slot].contexts.get(operation.0 as usize).and_then(Option::as_ref);
        context.is_some_and(|context| context.number == number)
    }

    /// Replicas of extents that owe an answer for too long. `is_silent`: the drive of a home has answered
    /// nothing for too long.
    pub fn stalled(&self, now_ns: u64, is_silent: impl Fn(usize) -> bool) -> Vec<(usize, ExtentIndex)> {
        let mut stalled = Vec::new();
        let waiting = |context: &Context| match context.asked_ns {
            0 => Waiting::Queued {
                since_ns: context.at_drive_since_ns,
                is_drive_silent: is_silent(context.home),
            },
            asked_ns => Waiting::Asked(asked_ns),
        };
        for (slot, replica) in self.slots.iter().enumerate() {
            let operations = replica.contexts.iter().flatten();
            let operations = operations.map(|context| (context.extent, waiting(context)));
            let others = replica.asked.values().map(|asked| (asked.extent, Waiting::Asked(asked.since_ns)));
            let late = operations.chain(others).filter(|(_, waiting)| waiting.is_late(now_ns));
            stalled.extend(late.map(|(extent, _)| (slot, extent)));
        }
        stalled.sort_unstable();
        stalled.dedup();
        stalled
    }

    /// Gives up all operations under way on an extent replica. Answers these operations, each of which has
    /// to fail. Their later completions are orphaned I/O.
    pub fn give_up(&mut self, slot: usize, extent: ExtentIndex, pool: &BufferPool) -> Vec<OperationId> {
        self.give_up_asked(slot, extent);
        let replica = &mut self.slots[slot];
        let mut operations = Vec::new();
        for (index, context) in (0..).zip(&mut replica.contexts) {
            let Some(context) = context.take_if(|context| context.extent == extent) else { continue };
            operations.push(OperationId(index));
            let queued = context.cost.map(|cost| (context.home, cost));
            self.orphans.add(slot, context.number, OrphanedIo { extent, queued, space: context.space });
            let owner = self.owners[context.owner.0 as usize].as_mut();
            let owner = owner.expect("an operation has an owner until it is done");
            // The memory does not come back, so another replica's operation needs new memory.
            let bytes = owner.memory_bytes;
            if owner.memory.is_none() && bytes > 0 {
                owner.memory = Some(fresh(bytes, pool).into());
            }
        }
        operations
    }

    /// A replica's operation has ended, if it ever began; its owner takes over the results.
    pub fn end_operation(&mut self, slot: usize, operation: OperationId) {
        let Some(ended) = self.slots[slot].contexts.get_mut(operation.0 as usize) else { return };
        let Some(context) = ended else { return };
        let owner = self.owners[context.owner.0 as usize].as_mut();
        owner.expect("an operation has an owner until it is done").gather(context);
        *ended = None;
    }

    pub fn context(&mut self, slot: usize, operation: OperationId) -> &mut Context {
        let context = self.slots[slot].contexts[operation.0 as usize].as_mut();
        context.expect("an operation has a context until it is done")
    }

    /// The context of a replica's operation, and its owner.
    pub fn context_and_owner(&mut self, slot: usize, operation: OperationId) -> (&mut Context, &mut Owner) {
        let context = self.slots[slot].contexts[operation.0 as usize].as_mut();
        let context = context.expect("an operation has a context until it is done");
        let owner = self.owners[context.owner.0 as usize].as_mut();
        (context, owner.expect("an operation has an owner until it is done"))
    }

    /// The target of a read, on its way to the kernel. An edge is read over a part of a buffer, which
    /// changes the buffer. With other replicas, the replica therefore gets a private duplicate of it.
    pub fn lend_target(
        &mut self,
        slot: usize,
        operation: OperationId,
        is_edge: bool,
        pool: &BufferPool,
    ) -> Target {
        let is_shared = is_edge && self.slots.len() > 1;
        let (context, owner) = self.context_and_owner(slot, operation);
        let memory = match (context.memory.take(), is_shared) {
            (Some(memory), _) => Some(memory),
            (None, false) => owner.memory.take(),
            (None, true) => owner.memory.as_ref().map(|memory| duplicate(memory.filled(), pool).into()),
        };
        let target = memory.and_then(|memory| memory.into_target(is_edge));
        target.expect("memory is lent once at a time, and nobody else holds what is read into")
    }

    /// The checksum of a range of an operation's payload. Replicas that share the payload compute it once.
    pub fn checksum_of(&mut self, slot: usize, operation: OperationId, range: &Range<usize>) -> u32 {
        let has_others = self.slots.len() > 1;
        let (context, owner) = self.context_and_owner(slot, operation);
        let known = owner.checksum.as_ref().filter(|(of, _)| of == range && context.memory.is_none());
        if let Some((_, checksum)) = known {
            return *checksum;
        }
        let memory = context.memory.as_ref().or(owner.memory.as_ref());
        let memory = memory.expect("a write has memory until it is done");
        let checksum = weir_journal::checksum(&memory.filled()[range.clone()]);
        if context.memory.is_none() && !owner.is_for_one(has_others) {
            owner.checksum = Some((range.clone(), checksum));
        }
        checksum
    }

    /// The payload of a write, on its way to the kernel.
    pub fn lend_payload(&mut self, slot: usize, operation: OperationId) -> Payload {
        let has_others = self.slots.len() > 1;
        let (context, owner) = self.context_and_owner(slot, operation);
        let is_for_one = owner.is_for_one(has_others);
        let payload = match context.memory.take() {
            Some(memory) => Some(memory.into_filled()),
            None if is_for_one => owner.memory.take().map(Memory::into_filled),
            None => owner.share_payload(),
        };
        payload.expect("a write has memory until it is done")
    }

    /// Fills the memory of an operation that has read a hole with zeroes.
    pub fn zero_memory(&mut self, id: MirrorId) {
        let owner = self.owner(id);
        let memory = owner.memory.take().and_then(Memory::into_unfilled);
        let memory = memory.expect("nobody else has the memory of what read a hole");
        owner.memory = Some(memory.zeroed().into());
    }

    /// Adds a flush and answers its number.
    pub fn add_flush(&mut self, ticket: Ticket) -> u32 {
        let free = self.flushes.iter().position(Option::is_none);
        let number = free.unwrap_or(self.flushes.len());
        if number == self.flushes.len() {
            self.flushes.push(None);
        }
        self.flushes[number] = Some(ticket);
        number as u32
    }

    /// A flush has ended. Answers its request.
    pub fn end_flush(&mut self, flush: u32) -> Ticket {
        self.flushes[flush as usize].take().expect("a flush ends once")
    }

    /// Ends a mirror operation and takes its state. For a read, `source` is the replica's operation that
    /// has the data.
    pub fn take_owner(&mut self, id: MirrorId, source: Option<(usize, OperationId)>) -> Owner {
        if let Some((slot, operation)) = source {
            self.end_operation(slot, operation);
        }
        self.owners[id.0 as usize].take().expect("an operation is done once")
    }
}

/// A new buffer with the same content.
fn duplicate(payload: &[u8], pool: &BufferPool) -> Buffer {
    fresh(payload.len(), pool).filled_from(payload)
}
