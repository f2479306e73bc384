//! Measuring drives while they are in use, one measurement at a time on each drive.
//!
//! No change waits for a measurement. Its result is recorded when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use weir_engine_interface::measure::{MeasureSpec, RunningMeasurement};
use weir_types::control_bounds::{CLASS_WAITS_MAX, REASONS_SHOWN_MAX};
use weir_types::{Class, DriveId, DriveRole, Measurement, Name};

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::core::Core;
use crate::drive_records::DriveRecords;
use crate::drive_view::DriveView;
use crate::error::{ControlError, Outcome};
use crate::model::Drive;
use crate::records::DriveRecord;

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

/// Measurements that are running, or that ended and are not recorded yet: at most one for each drive.
pub struct Measurements {
    core: Arc<Core>,
    drive_records: Arc<DriveRecords>,
    running: Mutex<BTreeMap<DriveId, Box<dyn RunningMeasurement>>>,
    /// Notified whenever a measurement is recorded or abandoned.
    ended: Condvar,
    /// Number of requests that wait for `ended`.
    waiting: AtomicUsize,
}

impl Measurements {
    pub(crate) fn new(core: Arc<Core>, drive_records: Arc<DriveRecords>) -> Measurements {
        Measurements {
            core,
            drive_records,
            running: Default::default(),
            ended: Default::default(),
            waiting: Default::default(),
        }
    }
}

impl Measurements {
    fn running(&self) -> MutexGuard<'_, BTreeMap<DriveId, Box<dyn RunningMeasurement>>> {
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
    pub(crate) fn stop(&self, id: DriveId, name: &Name) -> Outcome<()> {
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
        running.values().for_each(|measuring| measuring.stop());
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

impl Measurements {
    /// Starts to measure a drive that is present.
    pub(crate) fn begin_measurement(&self, id: DriveId) -> Outcome<()> {
        let (name, emulation) = {
            let model = self.core.model();
            let drive = model.drives.get(&id);
            let record = drive.map(|drive| &drive.record);
            let record = record.ok_or_else(|| ControlError::internal(format!("drive {id} is not known")))?;
            (record.name.clone(), record.emulation)
        };
        let folder = self.core.store(id)?.drive().to_owned();
        let mut running = self.running();
        if let Some(measuring) = running.get(&id) {
            let percent = measuring.progress().percent;
            return Err(ControlError::conflict(format!(
                "drive '{name}' is being measured already, {percent}% of that are done; one measurement at a time is"
            )));
        }
        let measuring = self.core.engine.measure(MeasureSpec { folder, emulation });
        running.insert(
            id,
            measuring.map_err(|error| ControlError::internal(error.to_string()).caused_by(error))?,
        );
        Ok(())
    }

    /// Measures a drive that was just added. A failure is recorded and is not an error, because the drive
    /// exists.
    pub(crate) fn measure_new_drive(&self, id: DriveId) {
        if let Err(error) = self.begin_measurement(id) {
            self.record_measurement(id, Err(error.message));
        }
    }

    /// Measures the drive in the state folder if it is unmeasured, has no class and holds no volume, as on a
    /// fresh installation.
    pub(crate) fn measure_fresh_default(&self) {
        let is_fresh = {
            let model = self.core.model();
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
            let model = self.core.model();
            let records = model.drives.values().map(|drive| &drive.record);
            let records = records.filter(|record| record.role == DriveRole::Data);
            let records = records.map(|record| (record.id, record.class));
            records.partition(|(_, class)| class.is_some())
        };
        let is_present = |wanted: &Class| present.iter().any(|(_, class)| *class == Some(*wanted));
        if !wanted.iter().all(is_present) && !unknown.is_empty() {
            let unknown: Vec<DriveId> = unknown.into_iter().map(|(drive, _)| drive).collect();
            self.wait_for(&unknown);
        }
    }

    /// Why drives are not of a class, in words, for a refusal.
    pub(crate) fn why_not(&self, wanted: Class) -> String {
        let records: Vec<DriveRecord> =
            self.core.model().drives.values().map(|drive| drive.record.clone()).collect();
        let is_other = |record: &&DriveRecord| record.role == DriveRole::Data && record.class != Some(wanted);
        let others = records.iter().filter(is_other).take(REASONS_SHOWN_MAX);
        let reason = |record: &DriveRecord| {
            let is_measured = self.running().contains_key(&record.id);
            let reason = match (is_measured, record.class) {
                (true, None) => "it is being measured".to_owned(),
                _ => record.class_reason(&self.core.classes),
            };
            format!("; drive '{}': {reason}", record.name)
        };
        others.map(reason).collect()
    }

    /// Records the results of all measurements that have ended.
    pub fn settle_measurements(&self) {
        for id in self.finished() {
            let _change = self.core.begin_change();
            // A drive that was removed in between has no measurement.
            let found = self.running().get_mut(&id).map(|measuring| measuring.outcome());
            if let Some(found) = found {
                self.record_measurement(id, found.map_err(|error| error.to_string()));
            }
            // The entry goes last, so that a waiter that sees the end also sees the result.
            self.running().remove(&id);
            self.ended.notify_all();
        }
    }

    /// Ends all measurements. Nothing of them stays behind.
    pub fn stop_measurements(&self) {
        self.settle_measurements();
        self.stop_all();
    }

    fn record_measurement(&self, id: DriveId, found: Result<Measurement, String>) {
        let Some(record) = self.core.model().drives.get(&id).map(|drive| drive.record.clone()) else {
            return;
        };
        let name = record.name.clone();
        let record = record.with_measurement(found, Timestamp::now(), &self.core.classes);
        tracing::info!(drive = %name, "measured: {}", record.class_reason(&self.core.classes));
        if let Some(alarm) = record.class_alarm(&self.core.classes) {
            tracing::warn!("{alarm}");
        }
        if let Err(error) = self.drive_records.save_drive(record) {
            self.core
                .alarms
                .raise(format!("what drive '{name}' was measured to be cannot be recorded: {error}"));
        }
    }

    /// The drives that are being measured.
    pub(crate) fn in_progress(&self) -> BTreeSet<DriveId> {
        self.running().keys().copied().collect()
    }

    /// Adds to the view why the drive has its class, and the progress of its measurement.
    pub(crate) fn with_class(&self, view: DriveView) -> DriveView {
        let progress = self.running().get(&view.record.id).map(|measuring| measuring.progress());
        let class_reason = match (progress, view.record.class) {
            (Some(_), None) => "being measured".to_owned(),
            _ => view.record.class_reason(&self.core.classes),
        };
        DriveView { class_reason, progress, ..view }
    }

    /// One alarm for each drive whose latest measurement gives another class than the drive has.
    ///
    /// The alarm follows from the records alone: it survives a restart and ends with its cause.
    pub(crate) fn measurement_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.core.model();
        let alarm = |drive: &Drive| {
            let message = drive.record.class_alarm(&self.core.classes)?;
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
