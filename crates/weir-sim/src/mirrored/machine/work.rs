//! Kinds of operations in flight in the simulated machine. They know neither drives nor the mirror.

use std::sync::Arc;

use weir_types::ExtentIndex;
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{ChecksumWork, MirrorId, ReplicaMetadata, Slots};
use weir_volume::{Action, Generation};

use super::journal::Work;
use crate::disk::SyncPoint;

/// An operation that will be answered.
#[derive(Clone, Debug)]
pub(in crate::mirrored) enum Pending {
    Action(usize, Option<MirrorId>, Action),
    /// A sync covers the changes that existed when it began.
    Sync(usize, (ExtentIndex, Generation), SyncPoint),
    Record {
        extent: ExtentIndex,
        epoch: u64,
        is_committed: bool,
    },
    /// The record that the last replica in sync of an extent failed.
    Failure(ExtentIndex),
    Metadata {
        slot: usize,
        extent: ExtentIndex,
        metadata: Arc<ReplicaMetadata>,
        /// True if the write goes in place over metadata whose last write failed. If power fails during the
        /// write, both blocks of the metadata may be torn.
        is_over_doubtful: bool,
    },
    BeginSnapshot,
    Snapshot(Piece),
    ChecksumWork(ExtentIndex, Box<ChecksumWork>),
    Journal(Work),
}

impl Pending {
    /// Extent and replicas that the operation concerns.
    pub fn concerns(&self) -> Option<(ExtentIndex, Slots)> {
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

    /// True if the operation may use the file of an extent replica.
    pub fn touches(&self, extent: ExtentIndex, slot: usize) -> bool {
        match self {
            Pending::Action(at, _, action) => *at == slot && action.extent() == Some(extent),
            Pending::Sync(at, (of, _), _) => *at == slot && *of == extent,
            Pending::Failure(of)
            | Pending::Record { extent: of, .. }
            | Pending::Metadata { extent: of, .. }
            | Pending::ChecksumWork(of, _) => *of == extent,
            Pending::BeginSnapshot | Pending::Journal(_) => false,
            Pending::Snapshot(piece) => piece.extent == extent && piece.slots.contains(slot),
        }
    }

    /// True if the operation concerns a single replica.
    pub fn is_of_one(&self) -> bool {
        matches!(self, Pending::Action(..) | Pending::Sync(..))
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
pub(in crate::mirrored) struct Piece {
    pub extent: ExtentIndex,
    pub slots: Slots,
    pub offset: u32,
    pub length: u32,
}
