//! The backup of the list of drives, beside the catalogue.
//!
//! It says where a lost catalogue can be rebuilt from, and to which installation the drives' markers belong.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_store::{format, write_file_durably};
use weir_types::{DriveId, Name};

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::catalogue::{Catalogue, Revision, Transaction};
use crate::core::Core;
use crate::error::{ControlError, Outcome, refuse_other_version};
use crate::model::pools::joined;
use crate::records::{DriveRecord, NodeRecord, PoolSettings, keys};

/// Name of the backup file in the state folder.
pub const DRIVES_FILE: &str = "drives.json";
/// Format version of [`DriveListBackup`].
const FORMAT: u32 = 1;
/// Pause before a failed write of the backup is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Content of the backup.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveListBackup {
    format: u32,
    #[serde(default = "format::first_reader")]
    minimum_reader: u32,
    node: NodeRecord,
    drives: Vec<DriveRecord>,
}

impl DriveListBackup {
    /// Decodes the content of the backup's file.
    ///
    /// # Errors
    /// In words, if this version does not understand it.
    pub fn decode(content: &[u8]) -> Result<DriveListBackup, String> {
        let value = serde_json::from_slice(content).map_err(|error| error.to_string())?;
        let backup: DriveListBackup = format::read(&value)?;
        match backup.format {
            FORMAT => Ok(backup),
            format => Err(format!("it has format {format}, not {FORMAT}")),
        }
    }
}

/// Why the backup is out of date.
#[derive(Debug)]
struct Fault {
    message: String,
    retry_at: Instant,
}

/// Writes the records of drives to the catalogue, and keeps their backup up to date.
pub struct DriveRecords {
    core: Arc<Core>,
    /// Held while the backup is written.
    writing: Mutex<()>,
    /// Why the backup is out of date.
    fault: Mutex<Option<Fault>>,
}

impl DriveRecords {
    pub(crate) fn new(core: Arc<Core>) -> DriveRecords {
        DriveRecords { core, writing: Default::default(), fault: Default::default() }
    }
}

impl DriveRecords {
    fn fault(&self) -> MutexGuard<'_, Option<Fault>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, written: &Outcome<()>) {
        let mut fault = self.fault();
        let Err(error) = written else {
            if fault.take().is_some() {
                tracing::info!("the backup of the list of drives is up to date again");
            }
            return;
        };
        if fault.is_none() {
            tracing::error!("the backup of the list of drives cannot be written: {error}");
        }
        *fault = Some(Fault { message: error.to_string(), retry_at: Instant::now() + RETRY_PAUSE });
    }
}

/// Brings the backup file up to date.
fn write(state: &Path, node: uuid::Uuid, drives: Vec<DriveRecord>) -> Outcome<()> {
    let backup = DriveListBackup {
        format: FORMAT,
        minimum_reader: format::MINIMUM_READER,
        node: NodeRecord { id: node },
        drives,
    };
    let path = state.join(DRIVES_FILE);
    let content = serde_json::to_vec_pretty(&backup).map_err(|error| {
        ControlError::internal(format!("cannot write {}: {error}", path.display())).caused_by(error)
    })?;
    if std::fs::read(&path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    Ok(write_file_durably(&path, &content)?)
}

/// Restores the list of drives from the backup into a new catalogue. A catalogue is new if none exists yet,
/// or if it was lost.
///
/// # Errors
/// Invalid if the backup cannot be read.
pub fn restore_lost(state: &Path, catalogue: &dyn Catalogue) -> Outcome<()> {
    if catalogue.get(keys::NODE)?.is_some() {
        return Ok(());
    }
    let path = state.join(DRIVES_FILE);
    let unusable = |why: String| {
        let path = path.display();
        ControlError::invalid(format!(
            "{path}, the backup of the list of drives, cannot be used: {why}; \
             move it away to start with the default drive alone"
        ))
    };
    let content = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        result => result.map_err(|error| unusable(error.to_string()))?,
    };
    let backup = DriveListBackup::decode(&content).map_err(unusable)?;
    tracing::warn!(
        drives = backup.drives.len(),
        "the catalogue is new: the list of drives is taken from its backup"
    );
    let mut transaction =
        Transaction::default().compare(keys::NODE, Revision::ABSENT).put(keys::NODE, &backup.node)?;
    for drive in &backup.drives {
        transaction = transaction.put(keys::drive(drive.id), drive)?;
    }
    catalogue.commit(transaction)?;
    Ok(())
}

impl DriveRecords {
    /// Writes the backup, with a drive that is about to be recorded.
    pub(crate) fn write_drive_list_backup(&self, new: Option<&DriveRecord>) -> Outcome<()> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut drives: Vec<_> =
            self.core.model().drives.values().map(|drive| drive.record.clone()).collect();
        drives.extend(new.cloned());
        let written = write(&self.core.state, self.core.node, drives);
        self.note(&written);
        written
    }

    /// Writes the backup after the catalogue.
    ///
    /// The catalogue is what counts, so a failed write is an alarm and not an error.
    pub(crate) fn update_drive_list_backup(&self) {
        // A failure is stored, logged and retried.
        let _ = self.write_drive_list_backup(None);
    }

    /// Retries a failed write of the backup.
    pub(crate) fn retry_drive_list_backup(&self) {
        if self.fault().as_ref().is_some_and(|fault| fault.retry_at <= Instant::now()) {
            self.update_drive_list_backup();
        }
    }

    /// The alarm, if the backup is out of date.
    pub(crate) fn drive_list_backup_alarm(&self) -> Option<ActiveAlarm> {
        let message = self.fault().as_ref()?.message.clone();
        let message = format!(
            "the backup of the list of drives is out of date: {message}; the catalogue has the changes, and the backup is \
             written once that is possible"
        );
        let source = AlarmSource::Control;
        Some(ActiveAlarm { source, drive: None, volume: None, extent: None, message })
    }

    /// Writes the record of a drive.
    pub(crate) fn save_drive(&self, record: DriveRecord) -> Outcome<()> {
        let record = joined(&self.core.model(), record);
        let id = record.id;
        let revision = self.core.model().drives.get(&id).map(|drive| drive.revision);
        let revision = revision.ok_or_else(|| ControlError::internal(format!("drive {id} is not known")))?;
        let key = keys::drive(id);
        let transaction = Transaction::default().compare(&key, revision).put(&key, &record)?;
        let revision = self.core.catalogue.commit(transaction)?;
        self.core.update(|model| {
            if let Some(drive) = model.drives.get_mut(&id) {
                (drive.record, drive.revision) = (record, revision);
            }
        });
        self.update_drive_list_backup();
        Ok(())
    }

    /// The record of a drive that is to be changed, if the drive has the requested version.
    pub(crate) fn drive_at(&self, name: &Name, if_version: Option<u64>) -> Outcome<DriveRecord> {
        let model = self.core.model();
        let drive = model.drive(name)?;
        refuse_other_version(format!("drive '{name}'"), drive.revision.0, if_version)?;
        Ok(drive.record.clone())
    }

    /// Writes the backup before the catalogue.
    ///
    /// A drive that only the backup knows is forgotten at the next start. A drive that only the catalogue
    /// knows would be lost with the catalogue.
    pub(crate) fn record_drive(&self, record: &DriveRecord) -> Outcome<Revision> {
        self.write_drive_list_backup(Some(record))?;
        let key = keys::drive(record.id);
        let transaction = Transaction::default().compare(&key, Revision::ABSENT).put(&key, record)?;
        let format = record.device.iter().map(|device| keys::device_format(device.filesystem));
        Ok(self.core.catalogue.commit(format.fold(transaction, Transaction::delete))?)
    }

    /// Writes a pool's settings with its drives.
    pub(crate) fn save_pool(&self, drives: &[(DriveId, PoolSettings)]) -> Outcome<()> {
        let changed: Vec<(DriveRecord, Revision)> = {
            let model = self.core.model();
            let change = |(id, pool): &(DriveId, PoolSettings)| {
                let drive = model.drives.get(id)?;
                Some((DriveRecord { pool: *pool, ..drive.record.clone() }, drive.revision))
            };
            drives.iter().filter_map(change).collect()
        };
        let mut transaction = Transaction::default();
        for (record, revision) in &changed {
            let key = keys::drive(record.id);
            transaction = transaction.compare(&key, *revision).put(&key, record)?;
        }
        let revision = self.core.catalogue.commit(transaction)?;
        self.core.update(|model| {
            for (record, _) in changed {
                if let Some(drive) = model.drives.get_mut(&record.id) {
                    (drive.record, drive.revision) = (record, revision);
                }
            }
        });
        self.update_drive_list_backup();
        Ok(())
    }
}
