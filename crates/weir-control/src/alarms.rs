//! Alarms: faults that an operator must see. The data plane reports faults that it meets, and a regular check
//! finds damaged extent files before a client reads them.

mod shown;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_types::{DriveId, VolumeId};

use super::Control;
pub(super) use shown::Since;
pub use shown::{Severity, ShownAlarm};
use weir_store::{ExtentFault, Faults};

/// Source of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmSource {
    /// The daemon, at its start or at a change.
    Control,
    /// The state folder, which cannot be written.
    Catalogue,
    /// The check that drives are present.
    Drive,
    /// A drive whose earlier writes could not be made durable.
    LostWrites,
    /// The check of extent files, every second, or more rarely if there are very many.
    ExtentCheck,
    /// An I/O that failed.
    DataPlane,
    /// The ledger of floors.
    Ledger,
    /// The class that a volume prefers.
    Class,
    /// The space of a pool.
    Space,
    /// The measurement of a drive.
    Measurement,
    /// The replicas of a volume.
    Replicas,
    /// A scrub of a volume.
    Scrub,
}

/// An active fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveAlarm {
    /// Source of the alarm.
    pub source: AlarmSource,
    /// Volume that the fault concerns, if any.
    pub volume: Option<VolumeId>,
    /// Drive that the fault concerns, if any.
    pub drive: Option<DriveId>,
    /// Extent within the volume that the fault concerns, if any.
    pub extent: Option<u64>,
    /// Description of the fault, in words.
    pub message: String,
}

/// Faults that control knows of.
#[derive(Default)]
pub(super) struct Alarms {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Faults of the daemon as a whole.
    general: Vec<String>,
    /// Volumes that could not be opened.
    volumes: BTreeMap<VolumeId, String>,
    /// Extent files that are damaged or missing, by volume.
    extents: BTreeMap<VolumeId, Vec<ExtentFault>>,
    /// Extent replicas that are not used, because of faults found when the volume was opened.
    replicas: BTreeMap<VolumeId, Vec<ExtentFault>>,
}

impl Alarms {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises a fault of the daemon as a whole, which stays active until the next start.
    pub fn raise(&self, message: String) {
        tracing::error!("{message}");
        let mut state = self.state();
        if !state.general.contains(&message) {
            state.general.push(message);
        }
    }

    /// Raises a fault of one volume, which stays active until the volume is deleted or the next start.
    pub fn raise_volume(&self, volume: VolumeId, message: String) {
        tracing::error!(%volume, "{message}");
        self.state().volumes.insert(volume, message);
    }

    /// Raises a fault of one volume, or clears the fault that was raised.
    pub fn set_volume(&self, volume: VolumeId, message: Option<String>) {
        let known = self.state().volumes.get(&volume).cloned();
        match message {
            Some(message) if known.as_ref() != Some(&message) => self.raise_volume(volume, message),
            None if known.is_some() => _ = self.state().volumes.remove(&volume),
            _ => {}
        }
    }

    /// Clears all faults of a volume that no longer exists.
    pub fn forget(&self, volume: VolumeId) {
        let mut state = self.state();
        state.volumes.remove(&volume);
        state.extents.remove(&volume);
        state.replicas.remove(&volume);
    }

    /// Raises faults of replicas of a volume that is being opened. They stay active until the volume is
    /// opened again.
    pub fn set_replicas(&self, volume: VolumeId, faults: Vec<ExtentFault>) {
        faults.iter().for_each(|fault| tracing::error!(%volume, extent = fault.extent, "{}", fault.message));
        self.state().replicas.insert(volume, faults);
    }

    /// Replaces the faults of a volume's extent files.
    pub fn set_extents(&self, volume: VolumeId, faults: Vec<ExtentFault>) {
        let mut state = self.state();
        if faults.is_empty() {
            if state.extents.remove(&volume).is_some() {
                tracing::info!(%volume, "the extent files are as they must be again");
            }
            return;
        }
        if state.extents.get(&volume) != Some(&faults) {
            faults
                .iter()
                .for_each(|fault| tracing::error!(%volume, extent = fault.extent, "{}", fault.message));
        }
        state.extents.insert(volume, faults);
    }

    /// Extents whose files are damaged or missing.
    pub fn faulty_extents(&self) -> Vec<(VolumeId, u64)> {
        let state = self.state();
        let all =
            state.extents.iter().flat_map(|(id, faults)| faults.iter().map(|fault| (*id, fault.extent)));
        all.collect()
    }

    /// True if no fault is active.
    #[cfg(test)]
    pub fn list_is_empty(&self) -> bool {
        self.list().is_empty()
    }

    fn list(&self) -> Vec<ActiveAlarm> {
        let state = self.state();
        let alarm = |source, volume, extent, message: &String| ActiveAlarm {
            source,
            volume,
            drive: None,
            extent,
            message: message.clone(),
        };
        let general = state.general.iter().map(|m| alarm(AlarmSource::Control, None, None, m));
        let volumes = state.volumes.iter().map(|(id, m)| alarm(AlarmSource::Control, Some(*id), None, m));
        let faults_of = |source, faults: &BTreeMap<VolumeId, Vec<ExtentFault>>| {
            let all = faults.iter().flat_map(|(id, faults)| faults.iter().map(move |fault| (*id, fault)));
            let alarms = all.map(|(id, fault)| alarm(source, Some(id), Some(fault.extent), &fault.message));
            alarms.collect::<Vec<_>>()
        };
        let extents = faults_of(AlarmSource::ExtentCheck, &state.extents);
        let replicas = faults_of(AlarmSource::Replicas, &state.replicas);
        general.chain(volumes).chain(extents).chain(replicas).collect()
    }
}

impl Control {
    /// All active faults.
    pub fn alarms(&self) -> Vec<ActiveAlarm> {
        let mut alarms = self.alarms.list();
        alarms.extend(self.data_plane.alarms().into_iter().map(|alarm| ActiveAlarm {
            source: AlarmSource::DataPlane,
            volume: Some(alarm.volume),
            drive: alarm.drive,
            extent: Some(alarm.extent),
            message: self.with_drive_name(alarm.drive, alarm.message),
        }));
        alarms.extend(self.state_alarms());
        alarms.extend(self.missing_drive_alarms());
        alarms.extend(self.record_backup_alarms());
        alarms.extend(self.drain_alarms());
        alarms.extend(self.over_commit_alarms());
        alarms.extend(self.measurement_alarms());
        alarms.extend(self.class_alarms());
        alarms.extend(self.replica_alarms());
        alarms.extend(self.move_alarms());
        alarms.extend(self.scrub_alarms());
        alarms
    }

    /// The message of an alarm, with the name of the drive if the alarm concerns one.
    fn with_drive_name(&self, drive: Option<DriveId>, message: String) -> String {
        let model = self.model();
        match drive.and_then(|drive| model.drives.get(&drive)) {
            Some(drive) => format!("{message}, on drive '{}'", drive.record.name),
            None => message,
        }
    }

    /// Raises a fault of the daemon as a whole.
    pub fn raise_alarm(&self, message: String) {
        self.alarms.raise(message);
    }

    /// Checks the extent files of all volumes once.
    pub fn check_extent_files(&self) {
        self.look_for_absences();
        let volumes: Vec<_> = self.model().volumes.keys().copied().collect();
        volumes.into_iter().for_each(|id| self.check_files_of(id));
        // The start time of each alarm is recorded here, even if no client asks for alarms.
        self.shown_alarms();
    }

    fn check_files_of(&self, id: VolumeId) {
        if self.extent_faults(id).is_empty() {
            return self.alarms.set_extents(id, Vec::new());
        }
        // A resize or a deletion during the check makes the result meaningless. The second check runs while
        // no change has the volume, so a fault is raised only for extents that should exist. It also runs
        // before a deletion clears all faults.
        let Some(mut change) = self.try_volume_change(&[id], &[]) else { return };
        change.beside(|| {
            let mut faults = self.extent_faults(id);
            // A drive may have gone during the check. Its files are away then, and not damaged.
            faults.retain(|(drive, _)| self.is_in_place(*drive));
            self.fail_replicas(id, &faults);
            let mut shown = Faults::default();
            faults.into_iter().for_each(|(_, fault)| shown.push(fault));
            self.alarms.set_extents(id, shown.into_vec());
        });
    }

    /// Fails replicas with damaged extent files in the data plane. The next write would extend a file that
    /// was shortened, and the lost data would read as zeroes.
    fn fail_replicas(&self, volume: VolumeId, faults: &[(DriveId, ExtentFault)]) {
        let placement = match self.model().volumes.get(&volume) {
            Some(volume) => volume.record.placement.clone(),
            None => return,
        };
        for (drive, fault) in faults {
            let slot = placement.replicas_of(fault.extent).find(|(_, other)| other == drive);
            if let (Some((slot, _)), Ok(extent)) = (slot, u32::try_from(fault.extent)) {
                self.data_plane.fail_replica(volume, (extent, slot), fault.message.clone());
            }
        }
    }
}
