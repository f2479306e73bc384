//! Replica metadata: carrying out its writes, and their ends.

use crate::alarms::Alarm;
use crate::helper::{Job, MetadataError};
use crate::orphans::OrphanedIo;
use crate::reactor::Reactor;
use crate::replica_metadata::Answered;
use crate::stalls::NO_ANSWER;
use crate::token::{ReplicaIndex, VolumeIndex};
use std::sync::Arc;
use weir_store::replica_metadata::metadata_file_name;
use weir_volume::mirror::{MetadataAction, MetadataRequest, ReplicaMetadata, ReplicaState, Slots, Written};

impl Reactor {
    /// Begins writing the metadata of an extent's replicas.
    pub(crate) fn begin_metadata_write(&mut self, index: VolumeIndex, request: MetadataRequest) {
        let mut actions = Vec::new();
        let volume = &mut self.volumes[index];
        volume.operations.begin();
        volume.metadata.ask(request, &mut actions);
        self.act_on_metadata(index, actions);
    }

    fn act_on_metadata(&mut self, index: VolumeIndex, actions: Vec<MetadataAction>) {
        for action in actions {
            match action {
                MetadataAction::Record { extent, epoch, is_committed } => {
                    let path = self.volumes[index].epoch_records.clone();
                    self.io.helper.submit(Job::EpochRecord {
                        volume: index,
                        path,
                        extent,
                        epoch,
                        is_committed,
                    });
                }
                MetadataAction::Write { extent, slots, metadata, anew } => {
                    self.write_metadata(index, extent, (slots, anew), &metadata);
                }
                MetadataAction::GiveUp { extent, slots } => self.give_up_metadata_write(index, extent, slots),
                MetadataAction::Ended { extent, written } => self.end_note(index, extent, written),
            }
        }
    }

    /// Takes the result of writing the epoch record.
    pub(crate) fn epoch_recorded(
        &mut self,
        index: VolumeIndex,
        extent: u32,
        result: Result<(), MetadataError>,
    ) {
        let (mut actions, now_ns) = (Vec::new(), self.io.now_ns);
        let result = self.volumes[index].metadata_result(result);
        let volume = &mut self.volumes[index];
        volume.metadata.recorded(now_ns, extent, volume.mirror.in_service(extent), result, &mut actions);
        self.act_on_metadata(index, actions);
    }

    /// Records in the epoch record that the last in-sync replica of an extent failed.
    pub(crate) fn record_failure(&mut self, index: VolumeIndex, extent: u32) {
        let volume = &mut self.volumes[index];
        volume.operations.begin();
        let path = volume.epoch_records.clone();
        self.io.helper.submit(Job::Failure { volume: index, path, extent });
    }

    pub(crate) fn failure_recorded(
        &mut self,
        index: VolumeIndex,
        extent: u32,
        result: Result<(), MetadataError>,
    ) {
        let volume = &mut self.volumes[index];
        volume.operations.end();
        if let Err(error) = result {
            let message =
                format!("would be served again after a restart, though it failed: {}", error.message);
            let alarm = Alarm { volume: volume.id, drive: None, extent: extent.into(), message };
            self.io.alarms.raise(alarm);
        }
        self.settle_volume(index);
    }

    fn write_metadata(
        &mut self,
        index: VolumeIndex,
        extent: u32,
        (slots, anew): (Slots, Slots),
        metadata: &Arc<ReplicaMetadata>,
    ) {
        let now_ns = self.io.now_ns;
        let volume = &mut self.volumes[index];
        for slot in slots.iter() {
            let home =
                volume.line_of(slot, extent).expect("the mirror writes beside replicas that there are");
            let due_ns = volume.emulated.note(now_ns, home, extent);
            volume.metadata.expect(extent, now_ns.max(due_ns));
            let number = volume.operations.next_number();
            self.metadata_io.asked.insert((index, slot, extent), number);
            let (drive, directory) = (volume.files.homes[home].drive, &volume.files.homes[home].directory);
            let journaled = volume.journals.metadata_path(extent, slot);
            let path = journaled.unwrap_or_else(|| directory.join(metadata_file_name(extent.into())));
            let (replica, metadata) = (ReplicaIndex { volume: index, slot }, Arc::clone(metadata));
            let is_anew = anew.contains(slot);
            let job =
                Job::ReplicaMetadata { replica, extent, number, drive, path, metadata, is_anew, due_ns };
            self.io.helper.submit(job);
        }
    }

    /// Takes a drive's answer to a write of replica metadata.
    pub(crate) fn metadata_answered(&mut self, due_ns: u64, answered: Answered) {
        let is_ending = self.io.is_stopping || self.volumes[answered.0.volume].is_ending();
        if due_ns > self.io.now_ns && !is_ending {
            self.metadata_io.count += 1;
            self.metadata_io.held.insert((due_ns, self.metadata_io.count), answered);
        } else {
            self.metadata_written(answered);
        }
    }

    fn metadata_written(&mut self, (replica, extent, number, result): Answered) {
        let ReplicaIndex { volume: index, slot } = replica;
        let key = (index, slot, extent);
        if self.metadata_io.asked.get(&key) != Some(&number) {
            self.is_orphaned(replica, number);
            return;
        }
        self.metadata_io.asked.remove(&key);
        let mut actions = Vec::new();
        let result = self.volumes[index].metadata_result(result);
        self.volumes[index].metadata.written(extent, slot, result, &mut actions);
        self.act_on_metadata(index, actions);
    }

    /// Retries failed writes. The caller has to carry out the volume's effects.
    pub(crate) fn retry_metadata(&mut self, index: VolumeIndex) {
        let mut actions = Vec::new();
        let volume = &mut self.volumes[index];
        volume.metadata.retry(self.io.now_ns, &mut actions);
        if !volume.is_ending() && !self.io.is_stopping {
            volume.mirror.retry_refused(&mut volume.effects);
        }
        self.act_on_metadata(index, actions);
    }

    /// Gives up writes of replica metadata that were due before `before_ns`, if in-sync replicas have the
    /// metadata. The replicas that have not answered fail.
    pub(crate) fn give_up_metadata_io(&mut self, index: VolumeIndex, before_ns: u64) {
        let mut actions = Vec::new();
        let volume = &mut self.volumes[index];
        let in_sync = |extent: u32| volume.mirror.in_sync(extent);
        volume.metadata.give_up_stalled(before_ns, in_sync, &mut actions);
        self.act_on_metadata(index, actions);
    }

    fn give_up_metadata_write(&mut self, index: VolumeIndex, extent: u32, slots: Slots) {
        let volume = &mut self.volumes[index];
        for slot in slots.iter() {
            let number = self.metadata_io.asked.remove(&(index, slot, extent));
            let number = number.expect("only what a drive was asked for is given up");
            volume.operations.begin();
            volume.operations.orphan(slot, number, OrphanedIo { extent, queued: None, space: None });
        }
        volume.fault_message = Some(NO_ANSWER.to_owned());
    }

    fn end_note(&mut self, index: VolumeIndex, extent: u32, written: Written) {
        let volume = &mut self.volumes[index];
        volume.operations.end();
        volume.mirror.metadata_written(extent, written, &mut volume.effects);
        self.carry_out(index);
        // If no replica failed, the message is about the metadata.
        let volume = &mut self.volumes[index];
        if let (false, Some(message)) = (written.is_committed, volume.fault_message.take()) {
            volume.metadata_alarms.insert(extent);
            let message = format!("takes no change of its replicas and no write that needs one: {message}");
            let alarm = Alarm { volume: volume.id, drive: None, extent: extent.into(), message };
            self.io.alarms.raise(alarm);
        } else if written.is_committed && volume.metadata_alarms.remove(&extent) {
            let (id, replica_states) = (volume.id, volume.mirror.replica_states(extent));
            if !replica_states.contains(&ReplicaState::Stale) {
                self.io.alarms.clear_extent(id, extent);
            }
        }
        self.settle_volume(index);
    }

    /// Passes on held answers that are due, or all of them if the daemon ends.
    pub(crate) fn pass_on_due_metadata(&mut self) {
        let by_ns = if self.io.is_stopping { u64::MAX } else { self.io.now_ns };
        while let Some(first) = self.metadata_io.held.first_entry().filter(|entry| entry.key().0 <= by_ns) {
            let (_, answered) = first.remove_entry();
            self.metadata_written(answered);
        }
    }
}
