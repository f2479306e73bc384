//! Checksum headers: changes wait until the checksums of their ranges are durably invalid.
//!
//! If headers cannot be written beside any replica in sync, no replica is failed for it. The changes that
//! wait for the headers fail. The headers are written again later, and before the next change that needs
//! them. This module does not know what the checksums are for.

use weir_types::ExtentIndex;

use super::change_order::ChangeOrder;
use super::extents::Extents;
use super::mirror_id::MirrorId;
use super::operation::{Operations, Stage};
use super::slots::Slots;
use super::steps::{Outcome, Step};
use crate::action::Fault;

/// The state that header writes may change.
pub(super) struct HeaderWrites<'a> {
    pub extents: &'a mut Extents,
    pub operations: &'a mut Operations,
    pub order: &'a ChangeOrder,
    pub outcome: Outcome<'a>,
}

impl HeaderWrites<'_> {
    /// Lets a change begin once the checksums of its range are durably invalid.
    pub fn invalidate(&mut self, id: MirrorId) {
        let operation = &mut self.operations[id];
        let request = operation.request;
        let extent = &mut self.extents[request.extent];
        let in_sync = extent.in_sync();
        let is_free = extent.checksums_mut().is_none_or(|checksums| {
            checksums.change(&request);
            checksums.is_free(&request, in_sync)
        });
        if is_free {
            return self.outcome.step(Step::BeginChange(id));
        }
        operation.stage = Stage::Invalidating;
        self.extents.write_checksum_headers(request.extent, self.outcome.effects);
    }

    /// Lets a change continue that waits until the checksums of its range are invalid, if it does.
    pub fn continue_change(&mut self, id: MirrorId) {
        if self.operations.is_in(id, Stage::Invalidating) {
            self.invalidate(id);
        }
    }

    /// Lets changes continue that wait until the checksums of their ranges are invalid.
    pub fn continue_all(&mut self, index: ExtentIndex) {
        if self.extents[index].checksums().is_some() {
            self.order.running(index).for_each(|id| self.outcome.steps.add(Step::Invalidate(id)));
        }
    }

    /// Handles the end of a header write. If another replica in sync has the headers, the replicas without
    /// them are failed.
    pub fn written(&mut self, index: ExtentIndex, failed: Slots, dropped: Slots) {
        let extent = &mut self.extents[index];
        let is_refused = !failed.is_empty() && extent.in_sync().without(failed).is_empty();
        let checksums = extent.checksums_mut().expect("an extent with headers has checksums");
        checksums.header_written(failed, dropped);
        self.extents.set_refused_headers(index, is_refused);
        if is_refused {
            self.fail_waiting(index);
        } else {
            self.outcome.step(Step::FailReplicas(index, failed));
            self.outcome.step(Step::WriteChecksumHeaders(index));
        }
        self.outcome.step(Step::InvalidateAll(index));
    }

    /// Fails changes that wait until the checksums of their ranges are invalid.
    fn fail_waiting(&mut self, index: ExtentIndex) {
        let waiting = self.order.running(index).filter(|id| self.operations.is_in(*id, Stage::Invalidating));
        waiting.for_each(|id| self.outcome.steps.add(Step::End(id, Err(Fault::Broken))));
    }
}
