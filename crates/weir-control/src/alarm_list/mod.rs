//! Alarms of all components in one list, and the regular check that finds damaged extent files before a client reads
//! them.

mod of_records;
mod shown;

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_store::{ExtentFault, Faults};
use weir_types::{DriveId, VolumeId};

use crate::absences::Absences;
use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::coalesced_flushes::{self, CoalescedFlushes};
use crate::core::Core;
use crate::drains::Drains;
use crate::drive_records::DriveRecords;
use crate::drives::Drives;
use crate::extents::Extents;
use crate::health::{FailedExtents, health};
use crate::journals::Journals;
use crate::measurements::Measurements;
use crate::moves::Moves;
use crate::placing::Placing;
use crate::pools::Pools;
use crate::records::{VolumeRecord, VolumeState};
use crate::replica_alarms::{close_replicas, missing_replicas};
use crate::scrubs::Scrubs;
use crate::space::StateSpace;

pub(crate) use of_records::OfRecords;
pub(crate) use shown::Since;
pub use shown::{Severity, ShownAlarm};

/// Collects the alarms of all components.
pub struct AlarmList {
    pub(crate) core: Arc<Core>,
    pub(crate) space: Arc<StateSpace>,
    pub(crate) drives: Arc<Drives>,
    pub(crate) drive_records: Arc<DriveRecords>,
    pub(crate) drains: Arc<Drains>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) measurements: Arc<Measurements>,
    pub(crate) placing: Arc<Placing>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) journals: Arc<Journals>,
    pub(crate) coalesced_flushes: Arc<CoalescedFlushes>,
    pub(crate) scrubs: Arc<Scrubs>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) absences: Arc<Absences>,
    /// Start time of each active alarm.
    pub(crate) since: Since,
    pub(crate) of_records: OfRecords,
}

impl AlarmList {
    /// All active faults.
    pub fn alarms(&self) -> Vec<ActiveAlarm> {
        let mut alarms = self.core.alarms.list();
        alarms.extend(self.core.engine.alarms().into_iter().map(|alarm| ActiveAlarm {
            source: AlarmSource::DataPlane,
            volume: Some(alarm.volume),
            drive: alarm.drive,
            extent: Some(alarm.extent),
            message: self.with_drive_name(alarm.drive, alarm.message),
        }));
        alarms.extend(self.space.state_alarms());
        alarms.extend(self.drives.missing_drive_alarms());
        alarms.extend(self.core.record_backup_alarms());
        alarms.extend(self.drive_records.drive_list_backup_alarm());
        alarms.extend(self.drains.drain_alarms());
        alarms.extend(self.measurements.measurement_alarms());
        alarms.extend(self.placing.full_pool_alarms());
        alarms.extend(self.record_alarms());
        alarms.extend(self.moves.move_alarms());
        alarms.extend(self.journals.full_journal_alarms());
        alarms.extend(self.scrubs.scrub_alarms());
        alarms.extend(self.coalesced_flush_alarms());
        alarms
    }

    /// One alarm for each volume whose flushes wait for drives although its I/O profile lets them be owed.
    fn coalesced_flush_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.core.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        let owing =
            volumes.filter(|volume| volume.state == VolumeState::Online && volume.is_promised_coalescing());
        let alarm = |volume: &VolumeRecord| {
            // Only extents that always had one replica can be in the set, and these have one anyway.
            let extents_alone = health(&model, volume, &FailedExtents::new()).extents_alone;
            Some(ActiveAlarm {
                source: AlarmSource::CoalescedFlushes,
                drive: None,
                volume: Some(volume.id),
                extent: None,
                message: match self.coalesced_flushes.broken_promise(&model, volume) {
                    Some(why) => why.to_owned(),
                    None => coalesced_flushes::words_if_alone(extents_alone)?,
                },
            })
        };
        owing.filter_map(alarm).collect()
    }

    /// The message of an alarm, with the name of the drive if the alarm concerns one.
    fn with_drive_name(&self, drive: Option<DriveId>, message: String) -> String {
        let model = self.core.model();
        match drive.and_then(|drive| model.drives.get(&drive)) {
            Some(drive) => format!("{message}, on drive '{}'", drive.record.name),
            None => message,
        }
    }

    /// Raises a fault of the daemon as a whole.
    pub fn raise_alarm(&self, message: String) {
        self.core.alarms.raise(message);
    }

    /// Checks the extent files of all volumes once.
    pub fn check_extent_files(&self) {
        self.absences.look_for_absences();
        let volumes: Vec<_> = self.core.model().volumes.keys().copied().collect();
        volumes.into_iter().for_each(|id| self.check_files_of(id));
        // The start time of each alarm is recorded here, even if no client asks for alarms.
        self.shown_alarms();
    }

    fn check_files_of(&self, id: VolumeId) {
        if self.extents.extent_faults(id).is_empty() {
            return self.core.alarms.set_extents(id, Vec::new());
        }
        // A resize or a deletion during the check makes the result meaningless. The second check runs while
        // no change has the volume, so a fault is raised only for extents that should exist. It also runs
        // before a deletion clears all faults.
        let Some(mut change) = self.core.try_volume_change(&[id], &[]) else { return };
        change.beside(|| {
            let mut faults = self.extents.extent_faults(id);
            // A drive may have gone during the check. Its files are away then, and not damaged.
            faults.retain(|(drive, _)| self.core.is_in_place(*drive));
            self.fail_replicas(id, &faults);
            let mut shown = Faults::default();
            faults.into_iter().for_each(|(_, fault)| shown.push(fault));
            self.core.alarms.set_extents(id, shown.into_vec());
        });
    }

    /// Fails replicas with damaged extent files in the data plane. The next write would extend a file that
    /// was shortened, and the lost data would read as zeroes.
    fn fail_replicas(&self, volume: VolumeId, faults: &[(DriveId, ExtentFault)]) {
        let placement = match self.core.model().volumes.get(&volume) {
            Some(volume) => volume.record.placement.clone(),
            None => return,
        };
        for (drive, fault) in faults {
            let slot = placement.replicas_of(fault.extent).find(|(_, other)| other == drive);
            if let Some((slot, _)) = slot {
                self.core.engine.fail_replica(volume, (fault.extent, slot), fault.message.clone());
            }
        }
    }

    /// One alarm for each volume with replicas on missing drives, and one if replicas share a failure domain.
    ///
    /// The alarms follow from the records, the drives and the moving volumes alone.
    fn replica_alarms(&self, moving: &BTreeSet<VolumeId>) -> Vec<ActiveAlarm> {
        let model = self.core.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        let copied =
            volumes.filter(|volume| volume.state == VolumeState::Online && volume.placement.has_replicas());
        let messages = copied.flat_map(|volume| {
            // The placement during a move is temporary.
            let is_moving = moving.contains(&volume.id);
            let close = if is_moving { None } else { close_replicas(&model, volume) };
            let messages = [missing_replicas(&model, volume), close];
            messages.into_iter().flatten().map(|message| (volume.id, message))
        });
        let alarm = |(volume, message)| ActiveAlarm {
            source: AlarmSource::Replicas,
            drive: None,
            volume: Some(volume),
            extent: None,
            message,
        };
        messages.map(alarm).collect()
    }
}
