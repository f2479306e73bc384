//! Acknowledgement: all replicas that a change went to have answered. When does it end, and with which result?
//!
//! A change is acknowledged once the metadata names the replicas that missed it. If no replica in sync has it, it begins
//! anew or fails. A change that a drive cannot carry out fails too. This module does not know how a change reaches the
//! replicas, or its answer the client: the engine's `clients/serving.rs` sends that.

use super::mirror_id::MirrorId;
use super::operation::{Operation, Stage};
use super::replica_metadata::ReplicaState;
use super::requests::Requests;
use super::steps::Step;
use crate::action::{Content, Fault};

impl Requests<'_> {
    /// Decides the result of a change that all replicas have answered.
    pub fn settle(&mut self, id: MirrorId) {
        let operation = &self.operations[id];
        if operation.failed().is_empty() {
            return self.outcome.step(Step::End(id, Ok(Content::Data)));
        }
        let (request, failed, fault) = (operation.request, operation.failed(), operation.fault());
        let states = self.extents[request.extent].replica_states();
        let has_failed = !operation.succeeded().iter().any(|slot| states[slot] == ReplicaState::InSync);
        if has_failed && fault != Some(Fault::Unsupported) && self.starts_over(id) {
            return self.make_dirty(id);
        }
        if has_failed || fault == Some(Fault::Unsupported) {
            // The change was not acknowledged, but replicas may differ now.
            self.extents[request.extent].diverge(&request);
            return self.outcome.step(Step::End(id, Err(fault.unwrap_or(Fault::Broken))));
        }
        self.extents[request.extent].miss(failed, &request);
        self.operations[id].stage = Stage::Recording;
        self.extents.write_metadata(request.extent, self.outcome.effects);
        self.outcome.step(Step::PayFlushes);
        self.outcome.step(Step::ContinueAll(request.extent));
    }

    /// Lets a change continue that waited for the metadata, if it did.
    pub fn continue_change(&mut self, id: MirrorId) {
        let Some(Operation { request, stage, .. }) = self.operations.known(id).copied() else { return };
        let extent = &self.extents[request.extent];
        let is_lost = extent.in_sync().is_empty();
        match stage {
            Stage::Marking | Stage::Recording if is_lost => {
                self.outcome.step(Step::End(id, Err(Fault::Broken)));
            }
            // The replicas that can take the change may differ from those at the time it was marked.
            Stage::Marking => self.begin_change(id),
            Stage::Recording if extent.is_lost_to(self.operations[id].failed(), &request) => {
                self.outcome.step(Step::End(id, Ok(Content::Data)));
            }
            _ => {}
        }
    }

    /// Acknowledges a change, or fails it, and lets the changes begin that waited for it.
    pub fn acknowledge(&mut self, id: MirrorId, result: Result<Content, Fault>) {
        let extent = self.operations[id].request.extent;
        self.order.end_change(extent, id);
        self.finish(id, result);
        self.enqueue_waiting(extent);
    }
}
