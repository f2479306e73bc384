//! Requests of the simulated client that have no answer yet. They know neither drives nor the journal.

use weir_journal::{Pin, Request};

use crate::Stamp;

/// A request without an answer yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub file: usize,
    pub incarnation: u32,
    pub began: u64,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Change { request: Request, stamp: Stamp },
    Sync,
}

/// A client's read, which takes several steps.
#[derive(Debug)]
pub(super) struct Read {
    pub file: usize,
    pub incarnation: u32,
    pub block: u32,
    pub began: u64,
    /// Parts still to be read: offset in the buffer, source file, first block and block count. The source
    /// `None` is the journal.
    pub parts: Vec<(u32, Option<usize>, u32, u32)>,
    pub buffer: Vec<Stamp>,
    pub pin: Option<Pin>,
}
