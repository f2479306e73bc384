//! Operations in flight in the simulated machine, and requests without an answer yet. They know neither drives nor the
//! mirror.

use std::sync::Arc;

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{ChecksumWork, MirrorId, ReplicaMetadata, Slots};
use weir_volume::{Action, Generation, Request};

use super::journal::Work;
use crate::Stamp;
use crate::disk::SyncPoint;

/// An operation that will be answered.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Action(usize, Option<MirrorId>, Action),
    /// A sync covers the changes that existed when it began.
    Sync(usize, (u32, Generation), SyncPoint),
    Record {
        extent: u32,
        epoch: u64,
        is_committed: bool,
    },
    /// The record that the last replica in sync of an extent failed.
    Failure(u32),
    Metadata {
        slot: usize,
        extent: u32,
        metadata: Arc<ReplicaMetadata>,
        /// True if the write goes in place over metadata whose last write failed. If power fails during the
        /// write, both blocks of the metadata may be torn.
        is_over_doubtful: bool,
    },
    BeginSnapshot,
    Snapshot(Piece),
    ChecksumWork(u32, Box<ChecksumWork>),
    Journal(Work),
}

impl Pending {
    /// Extent and replicas that the operation concerns.
    pub fn concerns(&self) -> Option<(u32, Slots)> {
        match self {
            Pending::Action(slot, _, action) => Some((action.extent()?, std::iter::once(*slot).collect())),
            Pending::Sync(slot, (extent, _), _) => Some((*extent, std::iter::once(*slot).collect())),
            Pending::Metadata { slot, extent, .. } => Some((*extent, std::iter::once(*slot).collect())),
            Pending::ChecksumWork(extent, work) => Some((*extent, slots_of(work))),
            Pending::Snapshot(piece) => Some((piece.extent, piece.slots)),
            Pending::BeginSnapshot | Pending::Failure(_) | Pending::Record { .. } | Pending::Journal(_) => {
                None
            }
        }
    }

    /// True if the operation concerns a single replica.
    pub fn is_of_one(&self) -> bool {
        matches!(self, Pending::Action(..) | Pending::Sync(..))
    }
}

/// A request without an answer yet.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub request: Request,
    pub stamp: Stamp,
    pub began: u64,
    /// Instant at which an authoritative replica last failed the request.
    pub failed_at: u64,
}

/// Orphaned I/O: no caller waits for it, and the drive may still carry it out.
#[derive(Clone, Debug)]
pub(super) struct Orphan {
    pub slot: usize,
    pub extent: u32,
    pub work: Pending,
    /// Data that the operation writes, if it writes.
    pub buffer: Vec<Stamp>,
}

impl Orphan {
    pub fn is_metadata(&self) -> bool {
        matches!(self.work, Pending::Metadata { .. })
    }
}

fn slots_of(work: &ChecksumWork) -> Slots {
    match work {
        ChecksumWork::Load { slots, .. } | ChecksumWork::Store { slots, .. } => *slots,
        ChecksumWork::WriteHeaders(headers) => {
            (0..REPLICA_SLOTS_MAX).filter(|slot| headers[*slot].is_some()).collect()
        }
    }
}

/// A piece that the executor must add to the snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub extent: u32,
    pub slots: Slots,
    pub offset: u32,
    pub length: u32,
}
