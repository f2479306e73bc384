//! Requests of clients: reads from one replica, and changes of all replicas.
//!
//! * A read goes to the next replica until one succeeds.
//! * A change of an extent with several replicas is marked dirty. Each change goes to all replicas that must or can take
//!   it. [`acknowledgement`] ends it.
//!
//! This module does not know snapshots, checksums, resync steps and scrubs: a change comes here once it has
//! waited for them.
//!
//! [`acknowledgement`]: super::acknowledgement

use weir_types::ExtentIndex;

use super::change_order::ChangeOrder;
use super::extents::Extents;
use super::mirror_id::MirrorId;
use super::operation::{Operations, Stage};
use super::slots::Slots;
use super::steps::{Outcome, Step};
use crate::action::{Content, Fault, Kind};

/// The state that requests of clients may change.
pub(super) struct Requests<'a> {
    pub extents: &'a mut Extents,
    pub operations: &'a mut Operations,
    pub order: &'a mut ChangeOrder,
    pub outcome: Outcome<'a>,
}

impl Requests<'_> {
    /// Reads from the next replica that may be read and was not tried.
    pub fn read(&mut self, id: MirrorId) {
        let (request, failed) = (self.operations[id].request, self.operations[id].failed());
        let extent = &self.extents[request.extent];
        if extent.awaits_authoritative_replica(&request) && !extent.in_sync().is_empty() {
            self.order.hold_read(request.extent, id);
            return self.extents.write_metadata(request.extent, self.outcome.effects);
        }
        match extent.read_from(&request, failed) {
            Some(slot) => self.launch(id, Slots::one(slot)),
            None if self.starts_over(id) => self.read(id),
            None => self.finish(id, Err(self.operations[id].fault().unwrap_or(Fault::Broken))),
        }
    }

    /// Handles the last answer to a request.
    pub fn ended(&mut self, id: MirrorId) {
        let operation = &self.operations[id];
        match (operation.request.kind, operation.source()) {
            (Kind::Read, Some(_)) => self.finish(id, Ok(operation.content())),
            (Kind::Read, None) => self.read(id),
            _ => self.settle(id),
        }
    }

    /// Begins a change whose turn it is.
    pub fn begin_change(&mut self, id: MirrorId) {
        self.begin(id, self.extents[self.operations[id].request.extent].is_alone());
    }

    /// Begins a change whose turn it is, of an extent with one replica or with several.
    pub fn begin(&mut self, id: MirrorId, is_alone: bool) {
        if is_alone { self.change(id) } else { self.make_dirty(id) }
    }

    pub fn make_dirty(&mut self, id: MirrorId) {
        let operation = &mut self.operations[id];
        operation.stage = Stage::Marking;
        let request = operation.request;
        let extent = &mut self.extents[request.extent];
        if extent.make_dirty(&request) || extent.in_sync().is_empty() {
            self.change(id);
        } else {
            self.extents.write_metadata(request.extent, self.outcome.effects);
        }
    }

    /// Sends a change to all replicas that must or can take it.
    fn change(&mut self, id: MirrorId) {
        let request = self.operations[id].request;
        let extent = &self.extents[request.extent];
        match extent.in_sync().is_empty() {
            true => self.outcome.step(Step::End(id, Err(Fault::Broken))),
            false => self.launch(id, extent.targets(&request)),
        }
    }

    /// Starts an operation on several replicas.
    fn launch(&mut self, id: MirrorId, slots: Slots) {
        let operation = &mut self.operations[id];
        operation.run_on(slots, self.extents[operation.request.extent].in_sync());
        self.outcome.step(Step::Launch(id, slots));
    }

    /// True if the remaining replicas are asked once more, because a replica that was in sync when it was
    /// asked is not any more. Without the retry, a mere shortage on a remaining replica would reach the
    /// client as the failure of the other replica.
    pub fn starts_over(&mut self, id: MirrorId) -> bool {
        let operation = &mut self.operations[id];
        let in_sync = self.extents[operation.request.extent].in_sync();
        let can_start_over = !in_sync.is_empty() && !operation.relied_on().without(in_sync).is_empty();
        if can_start_over {
            operation.forget_answers();
        }
        can_start_over
    }

    /// Lets reads and changes of an extent continue that waited for its metadata.
    pub fn continue_all(&mut self, extent: ExtentIndex) {
        self.order.take_reads(extent).for_each(|id| self.outcome.steps.add(Step::Read(id)));
        self.order.running(extent).for_each(|id| self.outcome.steps.add(Step::Continue(id)));
    }

    /// Fails the reads that wait for replica metadata that could not be written.
    pub fn fail_held_reads(&mut self, extent: ExtentIndex) {
        self.order.take_reads(extent).for_each(|id| self.outcome.steps.add(Step::FailRead(id)));
    }

    /// Fails a read that waited for replica metadata that could not be written. It goes on if it need not
    /// wait any more.
    pub fn fail_held_read(&mut self, id: MirrorId) {
        let request = self.operations[id].request;
        match self.extents[request.extent].awaits_authoritative_replica(&request) {
            true => self.finish(id, Err(Fault::Broken)),
            false => self.read(id),
        }
    }

    /// Fails the changes that wait for replica metadata that could not be written.
    pub fn fail_waiting_changes(&mut self, extent: ExtentIndex, fault: Fault) {
        let operations = &self.operations;
        let waits =
            |id: &MirrorId| operations.is_in(*id, Stage::Marking) || operations.is_in(*id, Stage::Recording);
        let waiting = self.order.running(extent).filter(waits);
        waiting.for_each(|id| self.outcome.steps.add(Step::End(id, Err(fault))));
    }

    /// Lets waiting changes of an extent try again, in order.
    pub fn enqueue_waiting(&mut self, extent: ExtentIndex) {
        if self.order.has_waiting(extent) {
            self.order.take_waiting(extent).for_each(|id| self.outcome.steps.add(Step::Enqueue(id)));
        }
    }

    pub fn finish(&mut self, id: MirrorId, result: Result<Content, Fault>) {
        self.operations.finish(id, result, self.outcome.effects);
    }
}
