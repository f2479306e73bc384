//! A request to several replicas, or a replica step: how far it is, and what replicas have answered so far. It knows nothing of
//! what replicas are worth, nor of the order in which anything happens.

use super::extent::Slots;
use super::resync::Step;
use crate::action::{Content, Fault, Kind, OperationId, Request};

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Others that overlap it have to end.
    Waiting,
    /// What is said of its range has to be taken back.
    Invalidating,
    /// The metadata has to name it.
    Marking,
    /// Replicas are at it.
    Running,
    /// The metadata has to say which replicas missed it.
    Recording,
    /// It has ended, and the executor knows.
    Ended,
}

/// A request, or a replica step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub request: Request,
    pub stage: Stage,
    /// Operations of replicas that are under way.
    pub left: u32,
    pub succeeded: Slots,
    pub failed: Slots,
    /// Replicas that were asked while they were in sync.
    pub relied_on: Slots,
    pub fault: Option<Fault>,
    pub source: Option<(usize, OperationId)>,
    pub content: Content,
    /// What it replicas, if it is a replica step.
    pub step: Option<Step>,
    /// It examines a piece of a section that is being scrubbed.
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

    /// Takes note of what a replica has answered.
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

    /// Replicas will be asked once more.
    pub fn forget_answers(&mut self) {
        (self.succeeded, self.failed, self.relied_on) = Default::default();
        self.fault = None;
    }
}

/// Which of two faults the client is told, or what follows from is decided by: the one that promises least. A shortage
/// goes before a failure, because the replica that was short of something is still there, and the client may come again.
fn worse(known: Option<Fault>, fault: Fault) -> Fault {
    match known {
        Some(Fault::Unsupported) => Fault::Unsupported,
        Some(shortage @ (Fault::NoSpace | Fault::NoMemory | Fault::Away)) if fault == Fault::Broken => {
            shortage
        }
        _ => fault,
    }
}
