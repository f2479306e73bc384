//! Alarms: faults that an operator must see. The data plane reports faults that it meets, and a regular check
//! finds damaged extent files before a client reads them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_store::ExtentFault;
use weir_types::{DriveId, ExtentIndex, VolumeId};

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
    /// Flushes of a volume that should be owed and are not.
    CoalescedFlushes,
    /// A scrub of a volume.
    Scrub,
    /// The fullness of a write journal, or the speed of a journal drive.
    Journal,
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
    pub extent: Option<ExtentIndex>,
    /// Description of the fault, in words.
    pub message: String,
}

/// Faults that control knows of.
#[derive(Default)]
pub(crate) struct Alarms {
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
        faults
            .iter()
            .for_each(|fault| tracing::error!(%volume, extent = fault.extent.0, "{}", fault.message));
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
                .for_each(|fault| tracing::error!(%volume, extent = fault.extent.0, "{}", fault.message));
        }
        state.extents.insert(volume, faults);
    }

    /// Extents whose files are damaged or missing.
    pub fn faulty_extents(&self) -> Vec<(VolumeId, ExtentIndex)> {
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

    pub(crate) fn list(&self) -> Vec<ActiveAlarm> {
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
