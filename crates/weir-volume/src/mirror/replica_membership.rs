//! Replicas that come, go, fail and return while the volume is in use: whether a change can begin now, and
//! when it is durable.
//!
//! This module does not know why a replica comes or goes, and touches no file.

use weir_types::ExtentIndex;
use weir_types::bounds::EXTENT_BYTES;

use super::effect::Effect;
use super::extents::Extents;
use super::flushes::Flushes;
use super::operation::Operations;
use super::replica_metadata::{ReplicaMetadata, ReplicaState, ReplicaStates};
use super::replicas::Replicas;
use super::steps::{Outcome, Step};
use crate::action::{Kind, Remains};

/// A change of a replica of an extent.
#[derive(Clone, Copy, Debug)]
pub enum ReplicaChange<'a> {
    /// The replica comes. Its file is there and holds nothing.
    Add,
    /// The replica goes.
    Remove,
    /// The replica could not be reached and is there again, with this metadata beside it.
    Rejoin(&'a ReplicaMetadata),
}

/// What the executor knows of the files of a replica that is to change.
#[derive(Clone, Copy, Debug)]
pub struct FileState {
    /// Operations on an earlier file of the replica were given up, and a drive may still carry them out.
    pub has_orphaned_io: bool,
    /// The replica can be attached to the journal that it is to be behind, or is to be behind none.
    pub can_attach: bool,
}

/// The state that changes of replicas may change.
pub(super) struct ReplicaChanges<'a> {
    pub extents: &'a mut Extents,
    pub operations: &'a mut Operations,
    pub replicas: &'a mut Replicas,
    pub flushes: &'a mut Flushes,
    pub outcome: Outcome<'a>,
}

impl ReplicaChanges<'_> {
    /// Begins a change of a replica of an extent. False if it cannot begin now: orphaned I/O may still reach the file of a
    /// replica that comes, or no replica in sync would be left.
    pub fn begin(
        &mut self,
        extent: ExtentIndex,
        slot: usize,
        change: ReplicaChange<'_>,
        files: FileState,
    ) -> bool {
        let may_come = !files.has_orphaned_io && files.can_attach;
        match change {
            ReplicaChange::Add => {
                let can_add = may_come && self.can_add(extent, slot);
                if can_add {
                    self.add(extent, slot);
                }
                can_add
            }
            ReplicaChange::Remove => self.remove(extent, slot),
            ReplicaChange::Rejoin(found) => may_come && self.rejoin(extent, slot, found),
        }
    }

    /// True if a replica of an extent can be added in a slot: no operation of an earlier replica is left
    /// there.
    fn can_add(&self, index: ExtentIndex, slot: usize) -> bool {
        let is_free = self.extents.within(index).is_some_and(|extent| extent.can_add(slot));
        is_free && self.replicas.has_answered(slot, index)
    }

    /// Adds a replica of an extent whose files exist and are empty.
    fn add(&mut self, index: ExtentIndex, slot: usize) {
        self.make_room(slot + 1);
        self.extents[index].add(slot);
        self.renew(index, slot);
    }

    /// Takes back a replica of an extent that can be reached again, with its old data and with this metadata
    /// beside it. Returns false if the replica is already there, is unknown or has no other to resync from.
    /// Returns false as well if earlier operations on it are still under way.
    fn rejoin(&mut self, index: ExtentIndex, slot: usize, found: &ReplicaMetadata) -> bool {
        let can_rejoin = self.extents.within(index).is_some_and(|extent| extent.can_rejoin(slot));
        if !can_rejoin || !self.replicas.has_answered(slot, index) {
            return false;
        }
        self.make_room(slot + 1);
        self.extents[index].rejoin(slot, found);
        // Reads that failed on it before may use it again.
        let reads = self.operations.iter_all_mut();
        let reads = reads.filter(|one| one.request.extent == index && one.request.kind == Kind::Read);
        reads.for_each(|read| read.forgive(slot));
        self.renew(index, slot);
        true
    }

    /// Removes a replica of an extent; false if it is the last that has everything. If power fails before the
    /// removal is durable, it may still be the replica that counts.
    fn remove(&mut self, index: ExtentIndex, slot: usize) -> bool {
        let has_other = self.extents[index].in_sync().has_other(slot);
        if has_other {
            self.extents[index].remove(slot);
            self.extents.write_metadata(index, self.outcome.effects);
            self.outcome.step(Step::PayFlushes);
        }
        has_other
    }

    /// Handles the failure of a replica of an extent.
    pub fn failed(&mut self, index: ExtentIndex, slot: usize, remains: Remains) {
        self.flushes.note_failed_replica(slot, index);
        let extent = &mut self.extents[index];
        extent.fail(slot);
        let replica_state = extent.replica_states()[slot];
        // No replica is left beside which metadata could record the failure.
        let was_last = replica_state == ReplicaState::InSync && extent.in_sync().is_empty();
        if replica_state != ReplicaState::Absent {
            self.outcome.effect(Effect::ReplicaFailed { slot, extent: index, remains });
        }
        if was_last && remains == Remains::Unknown {
            self.outcome.effect(Effect::RecordFailure { extent: index });
        }
        self.extents.write_metadata(index, self.outcome.effects);
        self.outcome.step(Step::PayFlushes);
        self.outcome.step(Step::ContinueAll(index));
        self.outcome.step(Step::InvalidateAll(index));
    }

    /// Uses the files of a replica that has come.
    fn renew(&mut self, index: ExtentIndex, slot: usize) {
        self.replicas.renew(slot, index);
        self.flushes.forget_failed_replica(slot, index);
        self.extents.write_metadata(index, self.outcome.effects);
        self.extents.write_checksum_headers(index, self.outcome.effects);
    }

    /// Ensures that the volume has this number of replica slots.
    pub fn make_room(&mut self, slots: usize) {
        self.replicas.make_room(slots, u64::from(self.extents.count()) * EXTENT_BYTES);
    }
}

/// A change that has begun and is not durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedChange {
    extent: ExtentIndex,
    slot: usize,
    is_there_after: bool,
}

impl AwaitedChange {
    /// The change of a replica.
    pub fn new((extent, slot): (ExtentIndex, usize), change: ReplicaChange<'_>) -> AwaitedChange {
        AwaitedChange { extent, slot, is_there_after: !matches!(change, ReplicaChange::Remove) }
    }

    /// The replica that changes, by its extent and number.
    pub fn replica(&self) -> (ExtentIndex, usize) {
        (self.extent, self.slot)
    }

    /// Whether the change has come about, now that the replica states of an extent are durably these; `None` if that is
    /// not known yet. Without states, no replica of the extent is in sync any more, and the change ends without effect.
    /// The change of a replica that goes begins anew while its file is needed: a read or a journal may still reach it.
    pub fn outcome(
        &self,
        extent: ExtentIndex,
        replica_states: Option<&ReplicaStates>,
        is_file_needed: impl FnOnce() -> bool,
    ) -> Option<bool> {
        if extent != self.extent {
            return None;
        }
        let Some(replica_states) = replica_states else { return Some(false) };
        let is_there = replica_states[self.slot] != ReplicaState::Absent;
        (is_there == self.is_there_after).then(|| self.is_there_after || !is_file_needed())
    }

    /// True if it waits for a replica to come that no metadata could be written for.
    pub fn is_refused_by(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.is_there_after && (self.extent, self.slot) == (extent, slot)
    }
}
