//! Mirror operations: a request to several replicas or a resync step, with its progress and the answers so
//! far.
//!
//! This module knows nothing of replica states or of the order of events.

use super::extent::Slots;
use super::resync::Step;
use crate::action::{Content, Fault, Kind, OperationId, Request};

/// Progress of a request.
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

/// A request or a resync step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub request: Request,
    pub stage: Stage,
    /// Number of replica operations that are under way.
    pub left: u32,
    pub succeeded: Slots,
    pub failed: Slots,
    /// Replicas that were in sync when they were asked.
    pub relied_on: Slots,
    pub fault: Option<Fault>,
    pub source: Option<(usize, OperationId)>,
    pub content: Content,
    /// Resync step that this operation carries out, if it is one.
    pub step: Option<Step>,
    /// True if the operation examines a piece of a section that is being scrubbed.
    pub is_scrub: bool,
}

impl Operation {
    pub fn new(request: Request, step: Option<Step>) -> Operation {
        Operation {
            request,
            stage: Stage::Waiting,
            left: 0,
            succeeded: Slots::default(),
            failed: Slots::default(),
            relied_on: Slots::default(),
            fault: None,
            source: None,
            content: Content::Data,
            step,
            is_scrub: false,
        }
    }

    pub fn range(&self) -> (u32, u32) {
        (self.request.offset, self.request.length)
    }

    /// Takes the answer of a replica.
    pub fn answered(&mut self, slot: usize, inner: OperationId, result: Result<Content, Fault>) {
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
