//! Parts of a mirror: the owners of its state, and which of them each kind of work may change.
//!
//! Each kind of work borrows the parts that it needs for one event, together with the outcome of the event.
//! The mirror alone sees all parts.

use super::change_order::ChangeOrder;
use super::checksum_headers::HeaderWrites;
use super::effect::Effect;
use super::extents::Extents;
use super::flush_coalescing::FlushCoalescing;
use super::flushes::Flushes;
use super::metadata_results::MetadataResults;
use super::operation::Operations;
use super::replica_membership::ReplicaChanges;
use super::replicas::Replicas;
use super::requests::Requests;
use super::resync::Resync;
use super::scrub::Scrub;
use super::snapshot_in_progress::{SnapshotState, SnapshotWork};
use super::steps::{Outcome, Steps};

/// The owners of a mirror's state.
#[derive(Debug)]
pub(super) struct Parts {
    pub replicas: Replicas,
    pub extents: Extents,
    pub operations: Operations,
    pub order: ChangeOrder,
    pub flushes: Flushes,
    pub coalescing: FlushCoalescing,
    pub snapshot: SnapshotState,
    /// Steps that follow from the event that is being handled.
    pub steps: Steps,
}

impl Parts {
    /// For requests of clients.
    pub fn requests<'a>(&'a mut self, effects: &'a mut Vec<Effect>) -> Requests<'a> {
        let Parts { extents, operations, order, steps, .. } = self;
        Requests { extents, operations, order, outcome: Outcome { effects, steps } }
    }

    /// For resync and promotion.
    pub fn resync<'a>(&'a mut self, effects: &'a mut Vec<Effect>) -> Resync<'a> {
        let Parts { extents, operations, replicas, order, flushes, steps, .. } = self;
        Resync { extents, operations, replicas, order, flushes, outcome: Outcome { effects, steps } }
    }

    /// For scrubs.
    pub fn scrub<'a>(&'a mut self, effects: &'a mut Vec<Effect>) -> Scrub<'a> {
        let Parts { extents, operations, replicas, order, flushes, steps, .. } = self;
        Scrub { extents, operations, replicas, order, flushes, outcome: Outcome { effects, steps } }
    }

    /// For checksum headers.
    pub fn headers<'a>(&'a mut self, effects: &'a mut Vec<Effect>) -> HeaderWrites<'a> {
        let Parts { extents, operations, order, steps, .. } = self;
        HeaderWrites { extents, operations, order, outcome: Outcome { effects, steps } }
    }

    /// For results of metadata writes and for the dirty region log.
    pub fn metadata<'a>(&'a mut self, effects: &'a mut Vec<Effect>) -> MetadataResults<'a> {
        let Parts { extents, operations, order, flushes, steps, .. } = self;
        MetadataResults { extents, operations, order, flushes, outcome: Outcome { effects, steps } }
    }

    /// For replicas that come, go, fail and return.
    pub fn replica_changes<'a>(&'a mut self, effects: &'a mut Vec<Effect>) -> ReplicaChanges<'a> {
        let Parts { extents, operations, replicas, flushes, steps, .. } = self;
        ReplicaChanges { extents, operations, replicas, flushes, outcome: Outcome { effects, steps } }
    }

    /// For the snapshot in progress.
    pub fn snapshot_work<'a>(&'a mut self, effects: &'a mut Vec<Effect>) -> SnapshotWork<'a> {
        let Parts { snapshot: state, extents, operations, order, steps, .. } = self;
        SnapshotWork { state, extents, order, operations, outcome: Outcome { effects, steps } }
    }
}
