//! Bypass writes: large writes that go straight to the slow file. The module decides when a write may bypass
//! the log and handles its end. It knows only the blocks of records.

use weir_types::bounds::{JOURNAL_BYPASS_BYTES, JOURNAL_BYPASSES_MAX};

use super::Journal;
use crate::action::{Action, Fault, FileId, Request, SlowFault, Span, Ticket};

/// A bypass write in flight to the slow file.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassingBy {
    pub ticket: Ticket,
    pub span: Span,
    is_durable: bool,
}

impl Journal {
    /// Returns true if a write would bypass the journal now and therefore needs no checksum. The write is
    /// large, and the log has better use for its space.
    ///
    /// Recovery writes every record in the log to the slow file, in order. A record with a block of this
    /// write would therefore undo the write, even if its content was destaged long ago. A write that overlaps
    /// a record goes through the log, behind that record. A write that overlaps a waiting request also goes
    /// through the log, because a bypass would break their order.
    pub fn passes_by(&self, file: FileId, offset: u32, length: u32) -> bool {
        let is_small = length < JOURNAL_BYPASS_BYTES;
        let is_absorbed = self.log.fullness_per_mille() < self.geometry.absorbing_per_mille();
        if is_small || is_absorbed || self.passing_by.len() >= JOURNAL_BYPASSES_MAX {
            return false;
        }
        let span = Span::of(file, offset, length);
        let is_ahead = |request: &Request| request.span().overlaps(&span);
        !self.index.covers(span)
            && !self.waiting.iter().any(is_ahead)
            && !self.flying_requests.iter().any(is_ahead)
    }

    pub(super) fn pass_by(&mut self, request: Request, actions: &mut Vec<Action>) {
        let Request { ticket, file, offset, length, .. } = request;
        let is_durable = request.is_durable();
        self.passing_by.push(PassingBy { ticket, span: request.span(), is_durable });
        self.files.get_mut(file).under_way += 1;
        actions.push(Action::PassBy { ticket, file, offset, length, is_durable });
    }

    /// Ends a bypass write.
    pub(super) fn end_pass_by(
        &mut self,
        ticket: Ticket,
        result: Result<(), SlowFault>,
        actions: &mut Vec<Action>,
    ) {
        let index = self.passing_by.iter().position(|write| write.ticket == ticket);
        let write = self.passing_by.swap_remove(index.expect("a write that ends has begun"));
        let file = self.files.get_mut(write.span.file);
        file.under_way -= 1;
        // A failed write may have been carried out in part.
        if !write.is_durable || result.is_err() {
            file.changes += 1;
            file.passed_by = file.changes;
        }
        actions.push(Action::Done { ticket, result: result.map_err(Fault::Slow) });
        if matches!(result, Err(SlowFault::Broken | SlowFault::Unsupported)) {
            self.fail_file(write.span.file, actions);
        }
    }
}
