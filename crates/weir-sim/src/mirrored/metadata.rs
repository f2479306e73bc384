//! Replica metadata and epoch records in the simulated machine.
//!
//! [`MetadataWrites`] decides the order of the writes, as in the daemon. Here, drives and the folder of the
//! epoch records are full, fail or answer late, and power fails between any two steps.

use std::sync::Arc;

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{
    Answer, MetadataAction, MetadataFault, MetadataRequest, ReplicaMetadata, ReplicaState, Written,
    epoch_record,
};
use weir_volume::{Action, Fault};

use super::MirrorWorld;
use super::settings::Sabotage;
use super::work::Pending;
use crate::requests::EXTENTS;

/// Duration of a step of the world, in nanoseconds, for code that reads a clock.
const STEP_NS: u64 = 100_000_000;
/// Steps after which metadata in flight is given up.
const STALL_STEPS: u64 = 100;

/// Place of metadata: the epoch records, or the replica metadata on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataPlace {
    Record,
    Drive(usize),
}

impl MirrorWorld {
    fn now_ns(&self) -> u64 {
        self.now * STEP_NS
    }

    /// Makes drives or the folder of the epoch records refuse metadata, or ends the refusal.
    pub(super) fn change_metadata_faults(&mut self) {
        let per_ten_thousand = self.settings.metadata_faults_per_ten_thousand;
        if per_ten_thousand == 0 {
            return;
        }
        let fault = match self.random.chance(1, 2) {
            true => MetadataFault::Shortage,
            false => MetadataFault::Broken,
        };
        let is_begun = self.random.chance(per_ten_thousand, 10_000);
        let place = match self.random.below(REPLICA_SLOTS_MAX as u64 + 1) as usize {
            REPLICA_SLOTS_MAX => MetadataPlace::Record,
            slot => MetadataPlace::Drive(slot),
        };
        if is_begun {
            *self.metadata_fault(place) = Some(fault);
        } else if self.random.chance(1, 60) {
            *self.metadata_fault(place) = None;
        }
    }

    fn metadata_fault(&mut self, place: MetadataPlace) -> &mut Option<MetadataFault> {
        match place {
            MetadataPlace::Record => &mut self.record.fault,
            MetadataPlace::Drive(slot) => &mut self.drives[slot].metadata_fault,
        }
    }

    /// Ends all refusals of metadata.
    pub(super) fn end_metadata_faults(&mut self) {
        self.record.fault = None;
        self.drives.iter_mut().for_each(|drive| drive.metadata_fault = None);
    }

    /// True if metadata with a new epoch is being written.
    pub(super) fn is_changing_epoch(&self) -> bool {
        self.pending.iter().any(|pending| match pending {
            Pending::Record { .. } => true,
            Pending::Metadata { extent, metadata, .. } => {
                metadata.epoch > self.epoch_record[*extent as usize].committed
            }
            _ => false,
        })
    }

    pub(super) fn ask_for_metadata(&mut self, request: MetadataRequest) -> Result<(), String> {
        let mut actions = Vec::new();
        let is_good = |slot: &usize| request.metadata.replica_states[*slot] == ReplicaState::InSync;
        self.relied_on.insert(request.extent, request.slots.iter().filter(is_good).collect());
        self.metadata.ask(request, &mut actions);
        self.act_on_metadata(actions)
    }

    fn act_on_metadata(&mut self, actions: Vec<MetadataAction>) -> Result<(), String> {
        for action in actions {
            match action {
                MetadataAction::Record { extent, epoch, is_committed } => {
                    self.pending.push(Pending::Record { extent, epoch, is_committed });
                }
                MetadataAction::Write { extent, slots, metadata, anew } => {
                    self.metadata.expect(extent, self.now_ns());
                    slots.iter().for_each(|slot| {
                        let is_over_doubtful =
                            !anew.contains(slot) && self.drives[slot].doubtful.contains(&extent);
                        let metadata = Arc::clone(&metadata);
                        self.pending.push(Pending::Metadata { slot, extent, metadata, is_over_doubtful });
                    });
                }
                MetadataAction::GiveUp { extent, slots } => {
                    let is_meant = |pending: &mut Pending| match pending {
                        Pending::Metadata { slot, extent: of, .. } => *of == extent && slots.contains(*slot),
                        _ => false,
                    };
                    let given_up: Vec<Pending> = self.pending.extract_if(.., is_meant).collect();
                    for (slot, pending) in slots.iter().zip(given_up) {
                        self.note_doubtful(slot, extent, true);
                        self.orphan(slot, extent, pending);
                    }
                }
                MetadataAction::Ended { extent, written } => self.metadata_ended(extent, written)?,
            }
        }
        Ok(())
    }

    fn metadata_ended(&mut self, extent: u32, written: Written) -> Result<(), String> {
        self.failures.metadata_failed(extent, written.failed);
        let mut effects = Vec::new();
        let replica_states = self.mirror.replica_states(extent);
        // Replicas in sync that have taken the metadata.
        let counts = |slot: usize| {
            let is_good = replica_states[slot] == ReplicaState::InSync && self.mirror.is_there(extent, slot);
            is_good && !written.failed.contains(slot)
        };
        let relied_on = self.relied_on.remove(&extent).unwrap_or_default();
        let is_taken = written.is_committed && relied_on.iter().any(counts);
        self.mirror.metadata_written(extent, written, &mut effects);
        if !is_taken {
            self.report.metadata_refused += 1;
            self.failures.metadata_refused(extent, self.now);
        }
        self.take(effects)
    }

    /// Answers a write of an epoch record.
    pub(super) fn answer_record(
        &mut self,
        extent: u32,
        epoch: u64,
        is_committed: bool,
    ) -> Result<(), String> {
        let result = self.record(extent, epoch, is_committed);
        if is_committed {
            self.note_recorded(extent, epoch, result.is_err());
        }
        let mut actions = Vec::new();
        let in_service = self.mirror.in_service(extent);
        self.metadata.recorded(self.now_ns(), extent, in_service, result, &mut actions);
        self.act_on_metadata(actions)
    }

    fn record(&mut self, extent: u32, epoch: u64, is_committed: bool) -> Result<(), MetadataFault> {
        self.record.is_kept = self.random.chance(1, 2);
        let fault = self.record.fault;
        self.record.fault = fault.or_else(|| self.record_error());
        let result = epoch_record::raise(&mut self.record, extent, epoch, is_committed);
        self.record.fault = fault;
        self.epoch_record = self.record.found();
        result
    }

    /// Answers the record that the last replica of an extent failed. The record is retried if it fails.
    pub(super) fn answer_failure(&mut self, extent: u32) {
        self.record.is_kept = self.random.chance(1, 2);
        if epoch_record::fail(&mut self.record, extent).is_err() {
            self.pending.push(Pending::Failure(extent));
        }
    }

    /// Notes that a failed change left the content of a replica unknown.
    pub(super) fn note_unknown(&mut self, slot: usize, action: &Action, answer: &Answer) {
        let is_change = matches!(action, Action::Write { .. } | Action::Release { .. } | Action::Zero { .. });
        if let (true, Some(extent), Answer::Completed(_, Err(Fault::Broken))) =
            (is_change, action.extent(), answer)
        {
            self.failures.content_unknown((slot, extent));
        }
    }

    /// Extents that must not be served after a crash now. Their last replica in sync failed with unknown
    /// content, and the failure is recorded.
    pub(super) fn failed_for_good(&self) -> Vec<u32> {
        let is_unknown = |extent: u32| {
            let replica_states = self.mirror.replica_states(extent);
            let is_good = |slot: &usize| replica_states[*slot] == ReplicaState::InSync;
            let is_unknown = |slot: usize| self.failures.is_unknown((slot, extent));
            (0..REPLICA_SLOTS_MAX).filter(is_good).any(is_unknown)
        };
        let is_recorded = |extent: u32| {
            !self.pending.iter().any(|pending| matches!(pending, Pending::Failure(of) if *of == extent))
        };
        let is_lost = |extent: &u32| self.mirror.is_lost(*extent);
        (0..EXTENTS).filter(is_lost).filter(|extent| is_unknown(*extent) && is_recorded(*extent)).collect()
    }

    /// Checks that no extent in `failed` is served, and then accepts all recorded failures as an operator
    /// would. True if any failure was recorded.
    pub(super) fn accept_failures(&mut self, failed: &[u32]) -> Result<bool, String> {
        let served = |extent: &&u32| !self.mirror.is_lost(**extent);
        if let Some(extent) = failed.iter().find(served) {
            return Err(format!("extent {extent} is served though its last replica failed before the start"));
        }
        let dirty = (0..).zip(self.record.found()).filter(|(_, epoch_record)| epoch_record.is_failed);
        let dirty: Vec<u32> = dirty.map(|(extent, _)| extent).collect();
        for extent in &dirty {
            epoch_record::accept(&mut self.record, *extent).expect("nothing fails after a start");
        }
        Ok(!dirty.is_empty())
    }

    /// Answers a write of replica metadata.
    pub(super) fn answer_metadata(
        &mut self,
        slot: usize,
        extent: u32,
        metadata: &Arc<ReplicaMetadata>,
    ) -> Result<(), String> {
        self.end_earlier_metadata(slot);
        let drive = &self.drives[self.metadata_home(slot)];
        let is_gone = drive.is_broken || drive.is_absent;
        let fault = if is_gone { Some(MetadataFault::Broken) } else { drive.metadata_fault };
        let is_torn = fault == Some(MetadataFault::Broken) && !is_gone && self.random.chance(1, 2);
        self.note_doubtful(slot, extent, fault.is_some());
        let is_lied_about = self.settings.sabotage == Sabotage::MetadataLate && self.random.chance(1, 2);
        if (fault.is_none() || is_torn) && !is_lied_about {
            self.drives[slot].all_metadata[extent as usize] = Some(ReplicaMetadata::clone(metadata));
        }
        let mut actions = Vec::new();
        self.metadata.written(extent, slot, fault.map_or(Ok(()), Err), &mut actions);
        self.act_on_metadata(actions)
    }

    /// Retries writes of metadata that failed.
    pub(super) fn retry_metadata(&mut self) -> Result<(), String> {
        let (mut actions, mut effects) = (Vec::new(), Vec::new());
        self.metadata.retry(self.now_ns(), &mut actions);
        self.act_on_metadata(actions)?;
        self.mirror.retry_refused(&mut effects);
        self.take(effects)
    }

    /// Gives up writes of metadata that take too long.
    pub(super) fn give_up_metadata(&mut self) -> Result<(), String> {
        let mut actions = Vec::new();
        let before_ns = self.now.saturating_sub(STALL_STEPS) * STEP_NS;
        let in_sync = |extent: u32| self.mirror.in_sync(extent);
        self.metadata.give_up_stalled(before_ns, in_sync, &mut actions);
        self.act_on_metadata(actions)
    }

    /// Crashes during a write of metadata: it may be written or not.
    pub(super) fn write_metadata_or_not(&mut self, pending: Pending) {
        match pending {
            Pending::Record { extent, epoch, is_committed } if self.random.chance(1, 2) => {
                // The caller of the write no longer exists.
                let _ = self.record(extent, epoch, is_committed);
            }
            Pending::Failure(extent) => self.answer_failure(extent),
            Pending::Metadata { slot, extent, is_over_doubtful: true, .. } if self.random.chance(1, 2) => {
                self.drives[slot].all_metadata[extent as usize] = None;
            }
            Pending::Metadata { slot, extent, metadata, .. }
                if !self.drives[self.metadata_home(slot)].is_broken && self.random.chance(1, 2) =>
            {
                self.drives[slot].all_metadata[extent as usize] = Some(ReplicaMetadata::clone(&metadata));
            }
            _ => {}
        }
    }
}
