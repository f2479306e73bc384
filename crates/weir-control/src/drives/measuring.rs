//! Measuring drives while they are in use, one measurement at a time on each drive.
//!
//! No change waits for a measurement. Its result is recorded when it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use weir_types::{Class, DriveId, Measurement, Name};

use super::super::Control;
use super::super::alarms::{ActiveAlarm, AlarmSource};
use super::super::catalogue::Transaction;
use super::super::error::{ControlError, Outcome};
use super::super::model::{list_names, refuse_other_version};
use super::super::records::{DriveRecord, VolumeRecord, keys};
use super::{Drive, DriveView, ModifyDrive};
use weir_engine::measure::{MeasureSpec, Measuring};
use weir_types::control_bounds::{CLASS_WAITS_MAX, REASONS_SHOWN_MAX};

/// Measurements that are running, or that ended and are not recorded yet: at most one for each drive.
#[derive(Default)]
pub struct Measurements {
    running: Mutex<BTreeMap<DriveId, Measuring>>,
    /// Notified whenever a measurement is recorded or abandoned.
    ended: Condvar,
    /// Number of requests that wait for `ended`.
    waiting: AtomicUsize,
}

/// How long a new volume waits for the measurement that decides whether its class is available.
///
/// The time is longer than a measurement takes even on a slow drive, and shorter than a client waits for an
/// answer.
const CLASS_WAIT_MAX: Duration = Duration::from_secs(90);

/// The class that a drive is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassChange {
    /// This class.
    To(Class),
    /// The class of the drive's latest measurement.
    Measured,
}

impl Measurements {
    fn running(&self) -> MutexGuard<'_, BTreeMap<DriveId, Measuring>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives whose measurement has ended.
    fn finished(&self) -> Vec<DriveId> {
        let running = self.running();
        running.iter().filter(|(_, measuring)| measuring.is_finished()).map(|(id, _)| *id).collect()
    }

    /// Stops the measurement of a drive, if there is one.
    ///
    /// # Errors
    /// Refused if the drive does not answer.
    pub(super) fn stop(&self, id: DriveId, name: &Name) -> Outcome<()> {
        let mut running = self.running();
        if running.get(&id).is_some_and(|measuring| !measuring.stop_and_wait()) {
            return Err(ControlError::refused(format!(
                "drive '{name}' is being measured and does not answer; try again when it does"
            )));
        }
        running.remove(&id);
        self.ended.notify_all();
        Ok(())
    }

    /// Stops all measurements. Measurements of drives that do not answer are left behind.
    fn stop_all(&self) {
        let mut running = self.running();
        running.values().for_each(Measuring::stop);
        running.clear();
        self.ended.notify_all();
    }

    /// Waits until none of the drives is being measured, at most for [`CLASS_WAIT_MAX`].
    ///
    /// It does not wait at all while too many requests wait already.
    fn wait_for(&self, drives: &[DriveId]) {
        let is_admitted = self.waiting.fetch_add(1, Ordering::Relaxed) < CLASS_WAITS_MAX;
        if is_admitted {
            let running = self.running();
            let is_running =
                |running: &mut BTreeMap<_, _>| drives.iter().any(|drive| running.contains_key(drive));
            // The caller looks at the drives' classes afterwards, so a timeout needs no result.
            drop(self.ended.wait_timeout_while(running, CLASS_WAIT_MAX, is_running));
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Control {
    /// Measures a drive again. The call does not wait for the result.
    ///
    /// # Errors
    /// Not found if no drive has that name. Refused if the drive is missing. Conflict if it is being
    /// measured. Internal if the system has no thread left.
    pub fn measure_drive(&self, name: &Name) -> Outcome<DriveView> {
        {
            let _change = self.begin_change();
            let (id, reason) = {
                let model = self.model();
                let drive = model.drive(name)?;
                (drive.record.id, drive.store.is_err().then(|| drive.unavailable()))
            };
            if let Some(reason) = reason {
                return Err(ControlError::refused(reason));
            }
            self.begin_measurement(id)?;
        }
        self.drive(name)
    }

    /// Starts to measure a drive that is present.
    fn begin_measurement(&self, id: DriveId) -> Outcome<()> {
        let (name, emulation) = {
            let model = self.model();
            let drive = model.drives.get(&id);
            let record = drive.map(|drive| &drive.record);
            let record = record.ok_or_else(|| ControlError::internal(format!("drive {id} is not known")))?;
            (record.name.clone(), record.emulation)
        };
        let folder = self.store(id)?.drive().to_owned();
        let mut running = self.measurements.running();
        if let Some(measuring) = running.get(&id) {
            let percent = measuring.progress().percent;
            return Err(ControlError::conflict(format!(
                "drive '{name}' is being measured already, {percent}% of that are done; one measurement at a time is"
            )));
        }
        let measuring = Measuring::start(MeasureSpec { folder, emulation });
        running.insert(id, measuring.map_err(|error| ControlError::internal(error.to_string()))?);
        Ok(())
    }

    /// Measures a drive that was just added. A failure is recorded and is not an error, because the drive
    /// exists.
    pub(super) fn measure_new_drive(&self, id: DriveId) {
        if let Err(error) = self.begin_measurement(id) {
            self.record_measurement(id, Err(error.message));
        }
    }

    /// Measures the drive in the state folder if it is unmeasured, has no class and holds no volume, as on a
    /// fresh installation.
    pub(crate) fn measure_fresh_default(&self) {
        let is_fresh = {
            let model = self.model();
            model.drives.get(&DriveId::DEFAULT).is_some_and(|drive| {
                let is_unknown = drive.record.class.is_none() && drive.record.measured.is_empty();
                drive.store.is_ok() && is_unknown && model.volumes_on(DriveId::DEFAULT).next().is_none()
            })
        };
        if is_fresh {
            self.measure_new_drive(DriveId::DEFAULT);
        }
    }

    /// Waits for the measurements of drives without a class, if no drive has one of the wanted classes. The
    /// caller holds no lock.
    pub(crate) fn wait_for_classes(&self, wanted: &[Class]) {
        let (present, unknown): (Vec<_>, Vec<_>) = {
            let model = self.model();
            let records = model.drives.values().map(|drive| (drive.record.id, drive.record.class));
            records.partition(|(_, class)| class.is_some())
        };
        let is_present = |wanted: &Class| present.iter().any(|(_, class)| *class == Some(*wanted));
        if !wanted.iter().all(is_present) && !unknown.is_empty() {
            let unknown: Vec<DriveId> = unknown.into_iter().map(|(drive, _)| drive).collect();
            self.measurements.wait_for(&unknown);
        }
    }

    /// Why drives are not of a class, in words, for a refusal.
    pub(crate) fn why_not(&self, wanted: Class) -> String {
        let records: Vec<DriveRecord> =
            self.model().drives.values().map(|drive| drive.record.clone()).collect();
        let others = records.iter().filter(|record| record.class != Some(wanted)).take(REASONS_SHOWN_MAX);
        let reason = |record: &DriveRecord| {
            let is_measured = self.measurements.running().contains_key(&record.id);
            let reason = match (is_measured, record.class) {
                (true, None) => "it is being measured".to_owned(),
                _ => record.class_reason(&self.classes),
            };
            format!("; drive '{}': {reason}", record.name)
        };
        others.map(reason).collect()
    }

    /// Records the results of all measurements that have ended.
    pub fn settle_measurements(&self) {
        for id in self.measurements.finished() {
            let _change = self.begin_change();
            // A drive that was removed in between has no measurement.
            let found = self.measurements.running().get_mut(&id).map(Measuring::outcome);
            if let Some(found) = found {
                self.record_measurement(id, found.map_err(|error| error.to_string()));
            }
            // The entry goes last, so that a waiter that sees the end also sees the result.
            self.measurements.running().remove(&id);
            self.measurements.ended.notify_all();
        }
    }

    /// Ends all measurements. Nothing of them stays behind.
    pub fn stop_measurements(&self) {
        self.settle_measurements();
        self.measurements.stop_all();
    }

    fn record_measurement(&self, id: DriveId, found: Result<Measurement, String>) {
        let Some(record) = self.model().drives.get(&id).map(|drive| drive.record.clone()) else { return };
        let name = record.name.clone();
        let record = record.with_measurement(found, Timestamp::now(), &self.classes);
        tracing::info!(drive = %name, "measured: {}", record.class_reason(&self.classes));
        if let Some(alarm) = record.class_alarm(&self.classes) {
            tracing::warn!("{alarm}");
        }
        if let Err(error) = self.save_drive(record) {
            self.alarms.raise(format!("what drive '{name}' was measured to be cannot be recorded: {error}"));
        }
    }

    /// Writes the record of a drive.
    pub(super) fn save_drive(&self, record: DriveRecord) -> Outcome<()> {
        let record = self.model().joined(record);
        let id = record.id;
        let revision = self.model().drives.get(&id).map(|drive| drive.revision);
        let revision = revision.ok_or_else(|| ControlError::internal(format!("drive {id} is not known")))?;
        let key = keys::drive(id);
        let transaction = Transaction::default().compare(&key, revision).put(&key, &record)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| {
            if let Some(drive) = model.drives.get_mut(&id) {
                (drive.record, drive.revision) = (record, revision);
            }
        });
        self.update_drive_list_backup();
        Ok(())
    }

    /// Changes a drive's class, zone or rack. The class is given by hand, or is the one of the latest
    /// measurement.
    ///
    /// The content of the drive stays where it is.
    ///
    /// # Errors
    /// Not found if no drive has that name. Refused if the class would change while volumes are on the drive,
    /// which are named. Refused if the measured class is requested and there is no measurement. Conflict if
    /// the drive has another version than requested.
    pub fn modify_drive(&self, name: &Name, request: ModifyDrive) -> Outcome<DriveView> {
        {
            let _change = self.begin_change();
            let old = self.drive_at(name, request.if_version)?;
            let mut new = match request.class {
                Some(change) => self.reclassified(&old, change)?,
                None => old.clone(),
            };
            self.refuse_other_class(&old, &new)?;
            new.zone = request.zone.unwrap_or(new.zone);
            new.rack = request.rack.unwrap_or(new.rack);
            if new != old {
                self.save_drive(new)?;
            }
        }
        self.drive(name)
    }

    /// The record of a drive that is to be changed, if the drive has the requested version.
    pub(super) fn drive_at(&self, name: &Name, if_version: Option<u64>) -> Outcome<DriveRecord> {
        let model = self.model();
        let drive = model.drive(name)?;
        refuse_other_version(format!("drive '{name}'"), drive.revision, if_version)?;
        Ok(drive.record.clone())
    }

    fn reclassified(&self, old: &DriveRecord, change: ClassChange) -> Outcome<DriveRecord> {
        match change {
            ClassChange::To(class) => Ok(old.clone().with_chosen_class(class, &self.classes)),
            ClassChange::Measured => old.clone().with_measured_class(&self.classes).ok_or_else(|| {
                let name = &old.name;
                ControlError::refused(format!(
                    "drive '{name}' was not measured yet, so it has no class to take; \
                     'weir drive measure {name}' measures it, and 'low', 'medium' and 'high' are accepted"
                ))
            }),
        }
    }

    /// Refuses a change of class while volumes are on the drive, because they were placed by class. A first
    /// class is always accepted.
    fn refuse_other_class(&self, old: &DriveRecord, new: &DriveRecord) -> Outcome<()> {
        let (Some(is), Some(wanted)) = (old.class, new.class) else { return Ok(()) };
        let model = self.model();
        let volumes = list_names(model.volumes_on(old.id).map(VolumeRecord::export_name));
        if is == wanted || volumes.is_empty() {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "drive '{}' is {is} and cannot become {wanted} while it has the volumes: {volumes}; delete them first",
            old.name
        )))
    }

    /// Adds to the view why the drive has its class, and the progress of its measurement.
    pub(super) fn with_class(&self, view: DriveView) -> DriveView {
        let progress = self.measurements.running().get(&view.record.id).map(Measuring::progress);
        let class_reason = match (progress, view.record.class) {
            (Some(_), None) => "being measured".to_owned(),
            _ => view.record.class_reason(&self.classes),
        };
        DriveView { class_reason, progress, ..view }
    }

    /// One alarm for each drive whose latest measurement gives another class than the drive has.
    ///
    /// The alarm follows from the records alone: it survives a restart and ends with its cause.
    pub(crate) fn measurement_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.model();
        let alarm = |drive: &Drive| {
            let message = drive.record.class_alarm(&self.classes)?;
            Some(ActiveAlarm {
                source: AlarmSource::Measurement,
                drive: None,
                volume: None,
                extent: None,
                message,
            })
        };
        model.drives.values().filter_map(alarm).collect()
    }
}
