//! Mirror operations: a request to several replicas, a resync step or a piece of a scrub, with its progress
//! and the answers so far.
//!
//! This module knows nothing of replica states or of the order of events.

use std::ops::{Index, IndexMut};

use super::effect::Effect;
use super::mirror_id::MirrorId;
use super::slots::Slots;
use crate::action::{Content, Fault, Kind, OperationId, Request};

/// Progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waits for the end of overlapping operations.
    Waiting,
    /// Waits until checksums of its range are durably invalid.
    Invalidating,
    /// Waits until the metadata names its regions as dirty.
    Marking,
    /// Is being carried out by replicas.
    Running,
    /// Waits until the metadata names the replicas that missed it.
    Recording,
    /// Has ended, and the executor has been told.
    Ended,
}

/// Origin of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// A client asked for it.
    Client,
    /// It transfers a region to a replica.
    Resync(ResyncStep),
    /// It examines a piece of a section that is being scrubbed.
    Scrub,
}

/// A resync step: the transfer of one region to one replica, piece by piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResyncStep {
    /// Target replica.
    pub slot: usize,
    /// Incarnation of the target's slot when the step began.
    pub incarnation: u64,
    pub region: u32,
    /// Bytes of the region that are done.
    pub done: u32,
    /// Replicas that these bytes were read from.
    pub sources: Slots,
    /// Current move of the step.
    pub move_: ResyncMove,
}

/// Move of a resync step: one operation of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResyncMove {
    /// The source is being read.
    Read,
    /// The data is being written to the target.
    Write,
    /// The source has a hole, and the target's space is being given back.
    Release,
}

/// A request, a resync step or a piece of a scrub.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub request: Request,
    pub stage: Stage,
    pub work: Work,
    /// Range of the current move: offset in the extent and length in bytes.
    part: (u32, u32),
    /// Number of replica operations that are under way.
    left: u32,
    succeeded: Slots,
    failed: Slots,
    /// Replicas that were in sync when they were asked.
    relied_on: Slots,
    fault: Option<Fault>,
    source: Option<(usize, OperationId)>,
    content: Content,
}

impl Operation {
    /// An operation that has not begun.
    pub fn new(request: Request, work: Work) -> Operation {
        Operation {
            request,
            stage: Stage::Waiting,
            work,
            part: (request.offset, request.length),
            left: 0,
            succeeded: Slots::default(),
            failed: Slots::default(),
            relied_on: Slots::default(),
            fault: None,
            source: None,
            content: Content::Data,
        }
    }

    /// Its range in the extent: offset and length in bytes.
    pub fn range(&self) -> (u32, u32) {
        (self.request.offset, self.request.length)
    }

    /// Operation of a replica that is the current move.
    pub fn current_move(&self) -> Request {
        let (offset, length) = self.part;
        Request { offset, length, ..self.request }
    }

    /// True if a client asked for it.
    pub fn is_of_client(&self) -> bool {
        matches!(self.work, Work::Client)
    }

    /// Resync step that the operation carries out, if it is one.
    pub fn resync_step(&self) -> Option<ResyncStep> {
        if let Work::Resync(step) = self.work { Some(step) } else { None }
    }

    /// Replicas that carried it out.
    pub fn succeeded(&self) -> Slots {
        self.succeeded
    }

    /// Replicas that failed to carry it out.
    pub fn failed(&self) -> Slots {
        self.failed
    }

    /// Replicas that were in sync when they were asked.
    pub fn relied_on(&self) -> Slots {
        self.relied_on
    }

    /// Fault to report, if any replica failed.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Replica and operation whose buffer holds the data that was read.
    pub fn source(&self) -> Option<(usize, OperationId)> {
        self.source
    }

    /// Content that was read.
    pub fn content(&self) -> Content {
        self.content
    }

    /// Begins to run on replicas, of which some are in sync. The count is complete before the first start:
    /// an operation that ends at once must not look like the last.
    pub fn run_on(&mut self, slots: Slots, in_sync: Slots) {
        self.stage = Stage::Running;
        self.left += slots.len() as u32;
        self.rely_on(slots.both(in_sync));
    }

    /// Begins a move on one replica: an operation on a part of the range. The whole range stays reserved:
    /// while the operation runs, no other may change it.
    pub fn run_move(&mut self, kind: Kind, part: (u32, u32)) {
        self.stage = Stage::Running;
        self.left += 1;
        self.request.kind = kind;
        self.part = part;
        (self.succeeded, self.source, self.content) = (Slots::default(), None, Content::Data);
    }

    /// Relies on replicas: if one of them fails, the others are asked again.
    pub fn rely_on(&mut self, slots: Slots) {
        self.relied_on = self.relied_on.either(slots);
    }

    /// Takes the answer of a replica. True if it was the last.
    pub fn answered(&mut self, slot: usize, inner: OperationId, result: Result<Content, Fault>) -> bool {
        self.left -= 1;
        match result {
            Ok(content) => {
                if self.request.kind == Kind::Read {
                    (self.content, self.source) = (content, Some((slot, inner)));
                }
                self.succeeded.insert(slot);
            }
            Err(fault) => {
                self.failed.insert(slot);
                self.fault = Some(worse(self.fault, fault));
            }
        }
        self.left == 0
    }

    /// Lets go of the buffer that was read into.
    pub fn take_source(&mut self) -> Option<(usize, OperationId)> {
        self.source.take()
    }

    /// Forgets a fault that was dealt with in another way.
    pub fn forget_fault(&mut self) {
        self.fault = None;
    }

    /// Forgets that a replica failed, because it is there again.
    pub fn forgive(&mut self, slot: usize) {
        self.failed.remove(slot);
    }

    /// Forgets all answers, because the replicas are asked once more.
    pub fn forget_answers(&mut self) {
        (self.succeeded, self.failed, self.relied_on) = Default::default();
        self.fault = None;
    }
}

/// Returns the fault that promises less, which is reported to the client and decides what follows. A shortage
/// takes precedence over a failure: the replica with the shortage is still there, and the client may retry.
fn worse(known: Option<Fault>, fault: Fault) -> Fault {
    match known {
        Some(Fault::Unsupported) => Fault::Unsupported,
        Some(shortage @ (Fault::NoSpace | Fault::NoMemory | Fault::Away)) if fault == Fault::Broken => {
            shortage
        }
        _ => fault,
    }
}

/// The operations of a mirror that are not forgotten. A number is used again only after that.
#[derive(Debug, Default)]
pub(super) struct Operations {
    slab: Vec<Option<Operation>>,
    free: Vec<u32>,
}

impl Operations {
    /// Adds an operation.
    pub fn add(&mut self, operation: Operation) -> MirrorId {
        let number = self.free.pop().unwrap_or(self.slab.len() as u32);
        if number as usize == self.slab.len() {
            self.slab.push(None);
        }
        self.slab[number as usize] = Some(operation);
        MirrorId(number)
    }

    /// An operation; `None` if it was forgotten.
    pub fn known(&self, id: MirrorId) -> Option<&Operation> {
        self.slab[id.0 as usize].as_ref()
    }

    /// True if an operation is in a stage.
    pub fn is_in(&self, id: MirrorId, stage: Stage) -> bool {
        self.known(id).is_some_and(|operation| operation.stage == stage)
    }

    /// All operations.
    pub fn iter_all_mut(&mut self) -> impl Iterator<Item = &mut Operation> {
        self.slab.iter_mut().flatten()
    }

    /// Number of operations.
    pub fn count(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Ends an operation, which is forgotten once the executor has acted on the effect.
    pub fn finish(&mut self, id: MirrorId, result: Result<Content, Fault>, effects: &mut Vec<Effect>) {
        let operation = &mut self[id];
        operation.stage = Stage::Ended;
        let source = operation.source.filter(|_| result.is_ok());
        effects.push(Effect::Done { operation: id, result, source });
    }

    /// Forgets an operation that has ended.
    pub fn forget(&mut self, id: MirrorId) -> Operation {
        let operation = self.slab[id.0 as usize].take().expect("an operation is forgotten once");
        self.free.push(id.0);
        operation
    }
}

impl Index<MirrorId> for Operations {
    type Output = Operation;

    fn index(&self, id: MirrorId) -> &Operation {
        self.slab[id.0 as usize].as_ref().expect("an operation is known until it is forgotten")
    }
}

impl IndexMut<MirrorId> for Operations {
    fn index_mut(&mut self, id: MirrorId) -> &mut Operation {
        self.slab[id.0 as usize].as_mut().expect("an operation is known until it is forgotten")
    }
}
