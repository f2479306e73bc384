//! Replica metadata and epoch records of the simulated daemon.
//!
//! [`MetadataWrites`] decides the order of the writes, as in the data plane. Here its actions become operations of the
//! machine, and their answers go back to it and to the mirror.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_types::ExtentIndex;
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{
    MetadataAction, MetadataRequest, MetadataWrites, ReplicaMetadata, ReplicaState, Slots, Written,
};

use super::Daemon;
use crate::mirrored::machine::Pending;
use crate::requests::EXTENTS;

/// Duration of a step of the world, in nanoseconds, for code that reads a clock.
const STEP_NS: u64 = 100_000_000;
/// Steps after which metadata in flight is given up.
const STALL_STEPS: u64 = 100;

/// Writes of metadata that are asked for and have not ended.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct MetadataQueue {
    writes: MetadataWrites,
    /// Replicas in sync, by extent, that must take the metadata in flight.
    relied_on: BTreeMap<ExtentIndex, Slots>,
}

impl MetadataQueue {
    pub fn is_idle(&self) -> bool {
        self.writes.is_idle()
    }

    /// Forgets extents from this one on, which were deleted.
    pub fn truncate(&mut self, first: u32) {
        self.writes.truncate(first);
        self.relied_on.split_off(&ExtentIndex(first));
    }

    /// Takes a request of the mirror.
    pub(super) fn ask(&mut self, request: MetadataRequest) -> Vec<MetadataAction> {
        let is_good = |slot: &usize| request.metadata.replica_states[*slot] == ReplicaState::InSync;
        self.relied_on.insert(request.extent, request.slots.iter().filter(is_good).collect());
        let mut actions = Vec::new();
        self.writes.ask(request, &mut actions);
        actions
    }
}

impl Daemon {
    /// Carries out what the writes of metadata want.
    pub(super) fn act_on_metadata(&mut self, actions: Vec<MetadataAction>) -> Result<(), String> {
        let now_ns = self.machine.now * STEP_NS;
        for action in actions {
            match action {
                MetadataAction::Record { extent, epoch, is_committed } => {
                    self.machine.operations.add(Pending::Record { extent, epoch, is_committed });
                }
                MetadataAction::Write { extent, slots, metadata, anew } => {
                    self.metadata.writes.expect(extent, now_ns);
                    for slot in slots.iter() {
                        let is_doubtful = self.machine.drives[slot].is_doubtful(extent);
                        let is_over_doubtful = !anew.contains(slot) && is_doubtful;
                        let metadata = Arc::clone(&metadata);
                        let write = Pending::Metadata { slot, extent, metadata, is_over_doubtful };
                        self.machine.operations.add(write);
                    }
                }
                MetadataAction::GiveUp { extent, slots } => self.give_up_writes(extent, slots),
                MetadataAction::Ended { extent, written } => self.metadata_ended(extent, written)?,
            }
        }
        Ok(())
    }

    fn give_up_writes(&mut self, extent: ExtentIndex, slots: Slots) {
        let given_up = self.machine.operations.take_those(|pending| match pending {
            Pending::Metadata { slot, extent: of, .. } => *of == extent && slots.contains(*slot),
            _ => false,
        });
        for (slot, pending) in slots.iter().zip(given_up) {
            self.machine.drives[slot].note_doubtful(extent, true);
            self.machine.orphan(slot, extent, pending);
        }
    }

    fn metadata_ended(&mut self, extent: ExtentIndex, written: Written) -> Result<(), String> {
        self.failures.metadata_failed(extent, written.failed);
        let mut effects = Vec::new();
        let replica_states = self.mirror.replica_states(extent);
        // Replicas in sync that have taken the metadata.
        let counts = |slot: usize| {
            let is_good = replica_states[slot] == ReplicaState::InSync && self.mirror.is_there(extent, slot);
            is_good && !written.failed.contains(slot)
        };
        let relied_on = self.metadata.relied_on.remove(&extent).unwrap_or_default();
        let is_taken = written.is_committed && relied_on.iter().any(counts);
        self.mirror.metadata_written(extent, written, &mut effects);
        if !is_taken {
            self.machine.report.metadata_refused += 1;
            self.failures.metadata_refused(extent, self.machine.now);
        }
        self.take(effects)
    }

    /// Answers a write of an epoch record.
    pub(super) fn answer_record(
        &mut self,
        extent: ExtentIndex,
        epoch: u64,
        is_committed: bool,
    ) -> Result<(), String> {
        let result = self.machine.write_record(extent, epoch, is_committed);
        let records = &mut self.machine.records;
        if is_committed && records.note_committed(extent, epoch, result.is_err()) {
            self.machine.doubt();
        }
        let (mut actions, now_ns) = (Vec::new(), self.machine.now * STEP_NS);
        let in_service = self.mirror.in_service(extent);
        self.metadata.writes.recorded(now_ns, extent, in_service, result, &mut actions);
        self.act_on_metadata(actions)
    }

    /// Answers a write of replica metadata.
    pub(super) fn answer_metadata(
        &mut self,
        slot: usize,
        extent: ExtentIndex,
        metadata: &ReplicaMetadata,
    ) -> Result<(), String> {
        let result = self.machine.write_metadata(slot, extent, metadata);
        let mut actions = Vec::new();
        self.metadata.writes.written(extent, slot, result, &mut actions);
        self.act_on_metadata(actions)
    }

    /// Retries writes of metadata that failed.
    pub fn retry_metadata(&mut self) -> Result<(), String> {
        let (mut actions, mut effects) = (Vec::new(), Vec::new());
        let now_ns = self.machine.now * STEP_NS;
        self.metadata.writes.retry(now_ns, &mut actions);
        self.act_on_metadata(actions)?;
        self.mirror.retry_refused(&mut effects);
        self.take(effects)
    }

    /// Gives up writes of metadata that take too long.
    pub fn give_up_metadata(&mut self) -> Result<(), String> {
        let mut actions = Vec::new();
        let before_ns = self.machine.now.saturating_sub(STALL_STEPS) * STEP_NS;
        let in_sync = |extent: ExtentIndex| self.mirror.in_sync(extent);
        self.metadata.writes.give_up_stalled(before_ns, in_sync, &mut actions);
        self.act_on_metadata(actions)
    }

    /// Extents that must not be served after a crash now. Their last replica in sync failed with unknown
    /// content, and the failure is recorded.
    pub fn failed_for_good(&self) -> Vec<ExtentIndex> {
        let is_unknown = |extent: ExtentIndex| {
            let replica_states = self.mirror.replica_states(extent);
            let is_good = |slot: &usize| replica_states[*slot] == ReplicaState::InSync;
            let is_unknown = |slot: usize| self.failures.is_unknown((slot, extent));
            (0..REPLICA_SLOTS_MAX).filter(is_good).any(is_unknown)
        };
        let is_recorded = |extent: ExtentIndex| !self.machine.operations.has_failure(extent);
        let is_lost = |extent: &ExtentIndex| self.mirror.is_lost(*extent);
        ExtentIndex::first(EXTENTS)
            .filter(is_lost)
            .filter(|extent| is_unknown(*extent) && is_recorded(*extent))
            .collect()
    }

    /// Checks that no extent in `failed` is served, and then accepts all recorded failures as an operator
    /// would. True if any failure was recorded.
    pub fn accept_failures(&mut self, failed: &[ExtentIndex]) -> Result<bool, String> {
        let served = |extent: &&ExtentIndex| !self.mirror.is_lost(**extent);
        if let Some(extent) = failed.iter().find(served) {
            return Err(format!("extent {extent} is served though its last replica failed before the start"));
        }
        Ok(self.machine.records.accept_failures())
    }
}
