//! Drives: directories that hold volumes, and block devices that are formatted and mounted for the same
//! purpose.
//!
//! The drive in the state folder always exists. Other drives are added and removed. A drive whose directory
//! or device is absent when the daemon starts is missing until it appears. Volumes whose only replica is on a
//! missing drive are not served, and an alarm says why. A drive is emptied before it is removed.

mod absence;
mod class;
mod device;
mod drain;
mod list_backup;
mod lost_writes;
mod measuring;
mod place;
mod returning;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use weir_types::{Class, DriveId, Emulation, Name};

use super::alarms::{ActiveAlarm, AlarmSource};
use super::catalogue::{Catalogue, Transaction};
use super::error::{ControlError, Outcome};
use super::model::{Model, list_names};
use super::records::{DriveRecord, PoolSettings, VolumeRecord, keys};
use super::{Control, DatedUsage};
use crate::locks::Change;
use crate::startup::ConfiguredDrive;
pub(super) use absence::Absences;
pub use class::{ClassChoice, DatedMeasurement, Measured, MeasurementFailure};
pub use device::tables as system_tables;
pub use device::{DeviceRecord, Formats};
pub use drain::DrainView;
pub(super) use drain::Drains;
pub(super) use list_backup::ListBackup;
pub use list_backup::{DRIVES_FILE, DriveListBackup, restore_lost};
pub use lost_writes::LostWrites;
pub use measuring::{ClassChange, Measurements};
use weir_engine::measure::{self, Progress};
use weir_plan::failure_domain::FailureDomain;
use weir_store::{DriveUsage, EarlierWrites, Marker, Store, StoreError};
use weir_types::control_bounds::DRIVES_MAX;
use weir_types::name::DEFAULT_DRIVE;

/// Name of the default drive's folder in the state folder.
const DEFAULT_FOLDER: &str = "drive";

/// Space on the drives that are present, or the reason why it is unknown.
pub type Usages = BTreeMap<DriveId, Result<DriveUsage, String>>;

/// A drive as the daemon knows it.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Its record.
    pub record: DriveRecord,
    /// The catalogue's revision of the record.
    pub revision: u64,
    /// Its files, or the reason why they are missing.
    pub store: Result<Store, String>,
    /// Lost writes that no operator has accepted yet.
    pub lost_writes: Option<LostWrites>,
    /// Time when the drive was added, scanned by a starting daemon, or found again, whichever is latest.
    pub scanned_at: Timestamp,
}

/// Settings of a new drive.
#[derive(Clone, Debug)]
pub struct AddDrive {
    /// Absolute path of the directory, or of the block device that is to be formatted.
    pub path: PathBuf,
    /// Whether to make a filesystem on a block device.
    pub format: bool,
    /// Name of the drive; if `None`, the name of the directory or device.
    pub name: Option<Name>,
    /// Performance to emulate, if the drive is to be emulated.
    pub emulation: Option<Emulation>,
    /// Maximum number of operations in flight; if `None`, trials find it while volumes compete.
    pub queue_target: Option<u32>,
    /// Class of the drive; if `None`, the class of its first measurement.
    pub class: Option<Class>,
    /// Zone of the drive; if `None`, the zone of its node.
    pub zone: Option<Name>,
    /// Rack of the drive within the zone.
    pub rack: Option<Name>,
    /// Whether to measure the drive.
    pub measure: bool,
}

/// Changes to a drive; a field that is `None` changes nothing.
#[derive(Clone, Debug, Default)]
pub struct ModifyDrive {
    /// A new class, or the class of the latest measurement.
    pub class: Option<ClassChange>,
    /// A new zone; `Some(None)` means the zone of the node.
    pub zone: Option<Option<Name>>,
    /// A new rack; `Some(None)` means none.
    pub rack: Option<Option<Name>>,
    /// Version that the drive must have, or the change is refused.
    pub if_version: Option<u64>,
}

/// A drive as it is shown.
#[derive(Clone, Debug)]
pub struct DriveView {
    /// Its record.
    pub record: DriveRecord,
    /// Its version.
    pub version: u64,
    /// Space on it when it was last examined, or the reason why it is missing.
    pub usage: Result<DriveUsage, String>,
    /// Age of `usage`; `None` if the drive is missing.
    pub usage_age: Option<Duration>,
    /// True if files there can share extents, so that snapshots and clones take no space.
    pub can_share: bool,
    /// Number of volumes and snapshots on it.
    pub volumes: usize,
    /// Bytes that volumes may come to occupy there.
    pub provisioned_bytes: u64,
    /// Time when the drive was added, scanned by a starting daemon, or found again, whichever is latest.
    pub scanned_at: Timestamp,
    /// Why it has its class, or has none.
    pub class_reason: String,
    /// Progress of its measurement, while there is one.
    pub progress: Option<Progress>,
    /// Its failure domain: its own zone and rack, or else its node's.
    pub domain: FailureDomain,
    /// Progress of its drain, if it is draining.
    pub drain: Option<DrainView>,
}

/// A folder that is to become a drive.
struct NewDrive {
    id: DriveId,
    name: Name,
    path: PathBuf,
    /// The block device that is mounted there, if it was formatted for the drive.
    device: Option<DeviceRecord>,
}

impl AddDrive {
    /// A drive at a path with default settings and without a measurement.
    pub fn new(path: PathBuf) -> AddDrive {
        AddDrive {
            path,
            format: false,
            name: None,
            emulation: None,
            queue_target: None,
            class: None,
            zone: None,
            rack: None,
            measure: false,
        }
    }
}

impl Drive {
    /// A message that the drive is missing, with the reason.
    pub fn unavailable(&self) -> String {
        let why = self.store.as_ref().err().map_or("", String::as_str);
        format!("drive '{}' at {} is missing: {why}", self.record.name, self.record.place().display())
    }
}

impl Model {
    /// The known drives that hold extents of a volume.
    pub fn drives_of(&self, volume: &VolumeRecord) -> impl Iterator<Item = &DriveRecord> {
        let drives = volume.placement.holders(volume.size_bytes);
        drives.into_iter().filter_map(|drive| Some(&self.drives.get(&drive)?.record))
    }

    /// Finds a drive by its name.
    fn drive(&self, name: &Name) -> Outcome<&Drive> {
        let found = self.drives.values().find(|drive| drive.record.name == *name);
        found.ok_or_else(|| {
            let known = list_names(self.drives.values().map(|drive| &drive.record.name));
            ControlError::not_found(format!("unknown drive '{name}'; there are: {known}"))
        })
    }

    /// The drive of this name, for a new volume.
    pub fn usable_drive(&self, name: &Name) -> Outcome<&DriveRecord> {
        let drive = self.drive(name)?;
        match drive.store {
            Ok(_) if drive.record.is_draining => Err(ControlError::refused(format!(
                "drive '{name}' is being emptied, to be removed, and takes nothing more; 'drive remove {name} --cancel' \
                 keeps it"
            ))),
            Ok(_) => Ok(&drive.record),
            Err(_) => Err(ControlError::refused(drive.unavailable())),
        }
    }

    /// A drive as it is shown, without the explanation of its class.
    pub fn drive_view(&self, drive: &Drive, usages: &BTreeMap<DriveId, DatedUsage>) -> DriveView {
        let record = drive.record.clone();
        let known = usages.get(&record.id).filter(|_| drive.store.is_ok());
        let missing = || Err(drive.store.as_ref().err().cloned().unwrap_or_default());
        DriveView {
            usage: known.map_or_else(missing, |known| known.usage.clone()),
            usage_age: known.map(|known| known.age),
            can_share: drive.store.as_ref().is_ok_and(Store::can_share),
            volumes: self.volumes_on(record.id).count(),
            provisioned_bytes: self.provisioned_bytes(record.id),
            scanned_at: drive.scanned_at,
            class_reason: String::new(),
            progress: None,
            domain: self.domain_of(&record),
            drain: self.drain_view(&record),
            version: drive.revision,
            record,
        }
    }

    /// True if a drive can be used.
    pub fn is_there(&self, drive: DriveId) -> bool {
        self.drives.get(&drive).is_some_and(|drive| drive.store.is_ok())
    }

    /// Bytes that volumes may come to occupy on a drive. Snapshots do not grow: their data is in use already.
    pub fn provisioned_bytes(&self, drive: DriveId) -> u64 {
        let bytes = |volume: &VolumeRecord| volume.placement.bytes_on(drive, volume.size_bytes);
        self.volumes_on(drive).filter(|volume| volume.snapshot.is_none()).map(bytes).sum()
    }

    fn volumes_on(&self, drive: DriveId) -> impl Iterator<Item = &VolumeRecord> {
        let all = self.volumes.values().map(|volume| &volume.record);
        all.filter(move |volume| volume.placement.names(drive))
    }
}

impl Control {
    /// The files of a drive.
    ///
    /// # Errors
    /// Refused if the drive is missing.
    pub(super) fn store(&self, drive: DriveId) -> Outcome<Store> {
        match self.model().drives.get(&drive) {
            Some(Drive { store: Ok(store), .. }) => Ok(store.clone()),
            Some(drive) => Err(ControlError::refused(drive.unavailable())),
            None => Err(ControlError::internal(format!("drive {drive} is not in the catalogue"))),
        }
    }

    /// The files of all drives that are present.
    pub(super) fn stores(&self) -> Vec<(DriveId, Store)> {
        let model = self.model();
        let store = |(id, drive): (&DriveId, &Drive)| Some((*id, drive.store.as_ref().ok()?.clone()));
        model.drives.iter().filter_map(store).collect()
    }

    /// Logs which drives are missing, and brings the backup of the list of drives up to date.
    pub(super) fn report_drives(&self) {
        self.missing_drive_alarms().iter().for_each(|alarm| tracing::error!("{}", alarm.message));
        self.update_drive_list_backup();
    }

    /// One alarm for each missing drive.
    pub(super) fn missing_drive_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.model();
        let missing = model.drives.values().filter(|drive| drive.store.is_err());
        let is_elsewhere = |volume: &&VolumeRecord| {
            volume.placement.is_covered(volume.size_bytes, |drive| model.is_there(drive))
        };
        let alarm = |drive: &Drive| {
            let volumes = model.volumes_on(drive.record.id);
            let (elsewhere, lost): (Vec<_>, Vec<_>) = volumes.partition(is_elsewhere);
            let others = match elsewhere.len() {
                0 => String::new(),
                count => format!(", {count} more have other replicas"),
            };
            let (why, lost) = (drive.unavailable(), lost.len());
            let remedy = lost_writes::remedy(drive, lost);
            let message = format!("{why}; its {lost} volumes are not served{others}: {remedy}");
            let source =
                if drive.lost_writes.is_some() { AlarmSource::LostWrites } else { AlarmSource::Drive };
            ActiveAlarm { source, drive: Some(drive.record.id), volume: None, extent: None, message }
        };
        missing.map(alarm).collect()
    }

    /// All drives: the default one first, then by name.
    pub fn drives(&self) -> Vec<DriveView> {
        let usages = self.known_usages();
        let mut views: Vec<_> = {
            let model = self.model();
            model.drives.values().map(|drive| model.drive_view(drive, &usages)).collect()
        };
        views.sort_by_key(|view| (view.record.id != DriveId::DEFAULT, view.record.name.clone()));
        views.into_iter().map(|view| self.with_hindrance(self.with_class(view))).collect()
    }

    /// One drive.
    ///
    /// # Errors
    /// Not found if no drive has that name.
    pub fn drive(&self, name: &Name) -> Outcome<DriveView> {
        let id = self.model().drive(name)?.record.id;
        let store: Vec<_> = self.store(id).into_iter().map(|store| (id, store)).collect();
        self.look_at_space(&store);
        let model = self.model();
        let view = model.drive_view(model.drive(name)?, &BTreeMap::from([(id, self.usage_of(id))]));
        Ok(self.with_hindrance(self.with_class(view)))
    }

    /// Space on all drives that are present, for a decision. It is current for drives that answer.
    pub(super) fn usages(&self) -> Usages {
        let stores = self.stores();
        self.look_at_space(&stores);
        stores.into_iter().map(|(drive, _)| (drive, self.usage_of(drive).usage)).collect()
    }

    /// Makes a directory a drive, or a block device that is formatted for it.
    ///
    /// # Errors
    /// Invalid if the directory cannot be used. Conflict if it is a drive already, or if the name is taken.
    /// Refused if it overlaps another drive or belongs to another installation. A block device is also
    /// invalid without a request to format it, and refused if it holds data or is in use.
    pub fn add_drive(&self, request: AddDrive) -> Outcome<DriveView> {
        if let Some(wanted) = device::wanted(&request.path)? {
            return self.add_device(request, &wanted);
        }
        let mut change = self.begin_drive_change()?;
        let path = change.beside(|| place::directory(&request.path))?;
        if request.format {
            return Err(ControlError::invalid(format!(
                "'{}' is a directory and cannot be formatted; with --format a block device is accepted",
                request.path.display()
            )));
        }
        let name = request.name.clone().map_or_else(|| place::name_of(&path), Ok)?;
        let id = change.beside(|| self.place_for(&path, &name))?;
        self.take_on(&mut change, request, NewDrive { id, name, path, device: None })
    }

    /// Turns a checked folder into the requested drive.
    fn take_on(&self, change: &mut Change<'_>, request: AddDrive, new: NewDrive) -> Outcome<DriveView> {
        let NewDrive { id, name, path, device } = new;
        let pool = PoolSettings { queue_target: request.queue_target, ..PoolSettings::default() };
        pool.check()?;
        let AddDrive { emulation, zone, rack, .. } = request;
        let new = new_record(id, name, path.clone(), pool);
        let record = DriveRecord { emulation, zone, rack, device, ..new };
        let record = match request.class {
            Some(class) => self.model().joined(record.with_chosen_class(class, &self.classes)),
            None => record,
        };
        let store = change.beside(|| {
            let store = Store::adopt_directory(path, &Marker::new(self.node, id))?;
            self.note_space(id, &store);
            Ok(store)
        });
        let store = store.map_err(|error: StoreError| {
            let path = request.path.display();
            ControlError::refused(format!("'{path}' cannot be a drive: {error}"))
        })?;
        let revision = match self.record_drive(&record) {
            Ok(revision) => revision,
            Err(error) => {
                // If this fails, the folder keeps its marker. The marker is of this installation and does no
                // harm.
                let _ = change.beside(|| store.dissolve());
                return Err(error);
            }
        };
        let name = record.name.clone();
        let files = store.clone();
        let scanned_at = record.created_at;
        let drive = Drive { record, revision, store: Ok(store), lost_writes: None, scanned_at };
        self.update(|model| model.drives.insert(id, drive));
        // A concurrent change may have written the backup without this drive.
        self.update_drive_list_backup();
        if request.measure {
            self.measure_new_drive(id);
        }
        change.beside(|| self.remove_leftovers(id, &files))?;
        self.drive(&name)
    }

    /// Makes drives of the directories that the configuration names and that are no drives yet.
    ///
    /// A directory that cannot become a drive is an alarm; the other drives serve all the same.
    pub(super) fn add_configured_drives(&self, drives: &[ConfiguredDrive]) {
        for ConfiguredDrive { path, emulation } in drives {
            let canonical = path.canonicalize();
            let is_known = |drive: &Drive| {
                let place = drive.record.place();
                place == *path || canonical.as_ref().is_ok_and(|canonical| place == *canonical)
            };
            if self.model().drives.values().any(is_known) {
                continue;
            }
            let (path, emulation) = (path.clone(), *emulation);
            let request = AddDrive { emulation, measure: true, ..AddDrive::new(path) };
            if let Err(error) = self.add_drive(request) {
                self.alarms.raise(format!("a drive of the configuration cannot be used: {error}"));
            }
        }
    }

    /// Refuses a path or name that is taken. Returns the identity of the new drive.
    fn place_for(&self, path: &Path, name: &Name) -> Outcome<DriveId> {
        let known: Vec<_> = self.model().drives.values().map(|drive| drive.record.clone()).collect();
        place::refuse_overlap(path, &known)?;
        self.refuse_name(name)?;
        place::identity(path, self.node, &known)
    }

    /// Refuses a name that a new drive cannot have, and a drive beyond the maximum.
    fn refuse_name(&self, name: &Name) -> Outcome<()> {
        if Class::ALL.iter().any(|class| class.to_string() == name.as_str()) {
            return Err(ControlError::invalid(format!(
                "'{name}' is the name of the pool of that class; choose another name with --name"
            )));
        }
        let (is_taken, known, gone) = {
            let model = self.model();
            let is_taken = model.drives.values().any(|drive| drive.record.name == *name);
            let gone = model.volumes.values().map(|volume| volume.record.placement.gone_count());
            (is_taken, model.drives.len(), gone.max().unwrap_or(0))
        };
        if is_taken {
            return Err(ControlError::conflict(format!(
                "drive '{name}' exists already; choose another name with --name"
            )));
        }
        if known >= DRIVES_MAX {
            return Err(ControlError::full(format!(
                "there are {DRIVES_MAX} drives already, which is the most"
            )));
        }
        // The slot of a removed drive is reused only after a restart of the daemon.
        if known + gone >= DRIVES_MAX {
            return Err(ControlError::full(format!(
                "there are {known} drives, and volumes were on {gone} more that were removed since the daemon started; \
                 {DRIVES_MAX} together is the most, and those that were removed count no more once it is started again"
            )));
        }
        self.refuse_reserved(name)
    }

    /// Writes the backup before the catalogue.
    ///
    /// A drive that only the backup knows is forgotten at the next start. A drive that only the catalogue
    /// knows would be lost with the catalogue.
    fn record_drive(&self, record: &DriveRecord) -> Outcome<u64> {
        self.write_drive_list_backup(Some(record))?;
        let key = keys::drive(record.id);
        let transaction = Transaction::default().compare(&key, 0).put(&key, record)?;
        let format = record.device.iter().map(|device| keys::device_format(device.filesystem));
        Ok(self.catalogue.commit(format.fold(transaction, Transaction::delete))?)
    }
}

/// Opens all drives that the catalogue knows. First makes the default drive, if there is to be one.
///
/// # Errors
/// If the folder of the default drive cannot be used. Any other drive that cannot be opened is missing.
pub fn open_all(
    state: &Path,
    catalogue: &dyn Catalogue,
    node: uuid::Uuid,
    has_default: bool,
) -> Outcome<BTreeMap<DriveId, Drive>> {
    if has_default {
        make_default_drive(state, catalogue)?;
    }
    let entries = catalogue.range(keys::DRIVES)?;
    let records: Vec<DriveRecord> = entries.iter().map(|entry| entry.decode()).collect::<Result<_, _>>()?;
    device::release_strangers(state, &records.iter().map(|record| record.id).collect());
    let mut opened = Vec::new();
    for (mut record, entry) in records.into_iter().zip(entries) {
        let mut revision = entry.revision;
        if record.id == DriveId::DEFAULT {
            record.path = state.join(DEFAULT_FOLDER);
            Store::open(record.path.clone())?;
        }
        let found = match lost_writes::known(catalogue, record.id)? {
            Some(lost) => Err(Unused::Lost(lost)),
            None => open_store((state, catalogue), node, &mut record, &mut revision),
        };
        opened.push((record, revision, found));
    }
    // Only once all drives are open, because drives can share a filesystem. A file that is opened after the
    // kernel reported a failed write learns nothing of the failure.
    let settled = opened.into_iter().map(|(record, revision, found)| {
        let (store, lost_writes) = lost_writes::recorded(catalogue, &record, found.and_then(settle));
        (record.id, Drive { record, revision, store, lost_writes, scanned_at: Timestamp::now() })
    });
    Ok(settled.collect())
}

/// Why a drive is not used.
#[derive(Debug, thiserror::Error)]
enum Unused {
    /// The drive cannot be found or opened.
    #[error("{0}")]
    Missing(String),
    /// Writes to the drive were lost.
    #[error("{0}")]
    Lost(LostWrites),
}

/// Opens a drive whose earlier writes are not durable yet.
fn open_store(
    (state, catalogue): (&Path, &dyn Catalogue),
    node: uuid::Uuid,
    record: &mut DriveRecord,
    revision: &mut u64,
) -> Result<EarlierWrites, Unused> {
    let store = if record.id == DriveId::DEFAULT {
        Store::open(record.path.clone())
    } else {
        device::bring(state, catalogue, record, revision).map_err(Unused::Missing)?;
        Store::open_marked(record.path.clone(), &Marker::new(node, record.id))
    };
    let store = store.and_then(clean).and_then(|store| store.earlier_writes());
    store.map_err(|error| Unused::Missing(error.to_string()))
}

/// Makes durable the writes of an earlier daemon.
fn settle(earlier: EarlierWrites) -> Result<Store, Unused> {
    earlier.settle().map_err(|error| Unused::Lost(LostWrites::found(&error)))
}

/// Removes what a crash left behind and is small; space is given back later, in the background.
fn clean(store: Store) -> Result<Store, weir_store::StoreError> {
    store.remove_temporary_records()?;
    if let Err(error) = measure::remove_leftover(store.drive()) {
        tracing::warn!(drive = %store.drive().display(), %error, "the file of an earlier measurement stays");
    }
    Ok(store)
}

fn make_default_drive(state: &Path, catalogue: &dyn Catalogue) -> Outcome<()> {
    let key = keys::drive(DriveId::DEFAULT);
    if catalogue.range(keys::DRIVES)?.is_empty() {
        let name = Name::new(DEFAULT_DRIVE).map_err(|error| ControlError::internal(error.to_string()))?;
        let record = new_record(DriveId::DEFAULT, name, state.join(DEFAULT_FOLDER), PoolSettings::default());
        catalogue.commit(Transaction::default().compare(&key, 0).put(&key, &record)?)?;
    }
    Ok(())
}

/// The record of a drive with default settings.
fn new_record(id: DriveId, name: Name, path: PathBuf, pool: PoolSettings) -> DriveRecord {
    let created_at = Timestamp::now();
    DriveRecord {
        is_draining: false,
        id,
        name,
        path,
        device: None,
        emulation: None,
        class: None,
        measured: Measured::default(),
        pool,
        zone: None,
        rack: None,
        created_at,
    }
}
