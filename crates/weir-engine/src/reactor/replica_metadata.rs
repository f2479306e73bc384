//! Replica metadata: what a volume and its metadata need of each other.

use weir_engine_interface::Alarm;
use weir_volume::mirror::{MetadataAction, ReplicaState};

use crate::helper::MetadataError;
use crate::reactor::Reactor;
use crate::replica_metadata::{Answered, Desk, EndedWrite, VolumeMetadata};
use crate::token::VolumeIndex;

impl Reactor {
    /// Lets the metadata of a volume work, and carries out what it decides, in order.
    pub(crate) fn with_metadata(
        &mut self,
        index: VolumeIndex,
        work: impl FnOnce(&mut VolumeMetadata, &mut Desk<'_>) -> Vec<MetadataAction>,
    ) {
        let (metadata, mut desk) = self.volumes[index].metadata(&mut self.io);
        for action in work(metadata, &mut desk) {
            let (metadata, mut desk) = self.volumes[index].metadata(&mut self.io);
            if let Some(ended) = metadata.act(action, &mut desk) {
                self.end_metadata_write(index, ended);
            }
        }
    }

    /// Takes the answer that the failure of an extent's last in-sync replica is on record, or is not.
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

    /// Takes a drive's answer to a write of replica metadata, now or when the emulated drive would have
    /// answered.
    pub(crate) fn metadata_answered(&mut self, due_ns: u64, answered: Answered) {
        let is_ending = self.io.is_stopping || self.volumes[answered.0.volume].is_ending();
        match due_ns > self.io.now_ns && !is_ending {
            true => self.held_metadata.hold(due_ns, answered),
            false => self.metadata_written(answered),
        }
    }

    fn metadata_written(&mut self, answered: Answered) {
        let (replica, number) = (answered.0, answered.2);
        match self.volumes[replica.volume].metadata.written(answered) {
            Some(actions) => self.with_metadata(replica.volume, |_, _| actions),
            None => _ = self.is_orphaned(replica, number),
        }
    }

    fn end_metadata_write(&mut self, index: VolumeIndex, ended: EndedWrite) {
        let EndedWrite { extent, written, message } = ended;
        let volume = &mut self.volumes[index];
        let of_others = std::mem::replace(&mut volume.fault_message, message);
        volume.mirror.metadata_written(extent, written, &mut volume.effects);
        self.carry_out(index);
        // If no replica failed, the message is about the metadata.
        let volume = &mut self.volumes[index];
        let message = std::mem::replace(&mut volume.fault_message, of_others);
        if let (false, Some(message)) = (written.is_committed, message) {
            volume.metadata.alarm(extent);
            let message = format!("takes no change of its replicas and no write that needs one: {message}");
            let alarm = Alarm { volume: volume.id, drive: None, extent: extent.into(), message };
            self.io.alarms.raise(alarm);
        } else if written.is_committed && volume.metadata.clear_alarm(extent) {
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
        while let Some(answered) = self.held_metadata.take_due(by_ns) {
            self.metadata_written(answered);
        }
    }
}
