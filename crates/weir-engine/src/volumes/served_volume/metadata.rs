//! Replica metadata: what the writes of replica metadata and the rest of the volume need of each other.

use weir_engine_interface::Alarm;
use weir_types::ExtentIndex;
use weir_volume::mirror::{MetadataAction, MetadataRequest, ReplicaState};

use super::ServedVolume;
use crate::helper::MetadataError;
use crate::volumes::replica_metadata::{Answered, EndedWrite};
use crate::volumes::volume_desk::Desk;

impl ServedVolume {
    /// Begins to write the metadata of an extent's replicas.
    pub(super) fn begin_metadata(&mut self, request: MetadataRequest, desk: &mut Desk<'_>) {
        let (metadata, mut metadata_desk) = self.metadata(desk.io);
        for action in metadata.begin(request, &mut metadata_desk) {
            if self.act_on_metadata(action, desk) {
                // The caller works on the volume.
                desk.schedules.settle(self.index);
            }
        }
    }

    /// Carries out what the metadata decided, up to the end of a write, whose effects come before the rest.
    /// True if a write has ended.
    pub fn go_on_with_metadata(&mut self, desk: &mut Desk<'_>) -> bool {
        while let Some(action) = self.metadata.next_decided() {
            if self.act_on_metadata(action, desk) {
                return true;
            }
        }
        false
    }

    /// Carries out an action of the metadata. True if a write has ended.
    fn act_on_metadata(&mut self, action: MetadataAction, desk: &mut Desk<'_>) -> bool {
        let (metadata, mut metadata_desk) = self.metadata(desk.io);
        let ended = metadata.act(action, &mut metadata_desk);
        let has_ended = ended.is_some();
        ended.into_iter().for_each(|ended| self.end_metadata_write(ended, desk));
        has_ended
    }

    fn end_metadata_write(&mut self, ended: EndedWrite, desk: &mut Desk<'_>) {
        let EndedWrite { extent, written, reasons } = ended;
        let first = self.effects.len();
        self.mirror.metadata_written(extent, written, &mut self.effects);
        let is_told = self.reasons.note(&self.effects[first..], |slot| reasons.of(slot));
        if let (false, false, Some(reason)) = (written.is_committed, is_told, reasons.newest()) {
            // No replica fails for it, so the reason is about the metadata.
            self.metadata.alarm(extent);
            let message = format!("takes no change of its replicas and no write that needs one: {reason}");
            desk.io.alarms.raise(Alarm { volume: self.id, drive: None, extent, message });
        } else if written.is_committed && self.metadata.clear_alarm(extent) {
            self.clear_alarms_unless_stale(extent, desk);
        }
    }

    /// Clears the alarms of an extent, unless a replica of it is stale.
    pub(super) fn clear_alarms_unless_stale(&self, extent: ExtentIndex, desk: &mut Desk<'_>) {
        if !self.mirror.replica_states(extent).contains(&ReplicaState::Stale) {
            desk.io.alarms.clear_extent(self.id, extent);
        }
    }

    /// Takes the result of writing the epoch record.
    pub fn epoch_recorded(
        &mut self,
        extent: ExtentIndex,
        result: Result<(), MetadataError>,
        desk: &mut Desk<'_>,
    ) {
        let (metadata, mut desk) = self.metadata(desk.io);
        metadata.epoch_recorded(extent, result, &mut desk);
    }

    /// Takes the answer that the failure of an extent's last in-sync replica is on record, or is not.
    pub fn failure_recorded(
        &mut self,
        extent: ExtentIndex,
        result: Result<(), MetadataError>,
        desk: &mut Desk<'_>,
    ) {
        self.operations.end();
        if let Err(error) = result {
            let message =
                format!("would be served again after a restart, though it failed: {}", error.message);
            desk.io.alarms.raise(Alarm { volume: self.id, drive: None, extent, message });
        }
    }

    /// Takes a drive's answer to a write of replica metadata.
    pub fn metadata_written(&mut self, answered: Answered, desk: &mut Desk<'_>) {
        let (slot, number) = (answered.0.slot, answered.2);
        if !self.metadata.written(answered) {
            self.disk(desk).end_orphan(slot, number);
        }
    }
}
