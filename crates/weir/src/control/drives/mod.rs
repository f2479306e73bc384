//! Drives: the directories that hold volumes, and block devices that are formatted and mounted to be such.
//!
//! The drive in the state folder always exists. Others are added and removed; one whose directory or device is not there
//! when the daemon starts is missing until it is: volumes of which it has the only replica are not served, and an alarm says
//! why. One that is removed is emptied first.

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
use super::bounds::DRIVES_MAX;
use super::catalogue::{Catalogue, Transaction};
use super::error::{ControlError, Outcome};
use super::model::{Model, list_names};
use super::records::{DEFAULT_DRIVE, DriveRecord, PoolSettings, VolumeRecord, keys};
use super::{Change, Control, DatedUsage};
use crate::config::ConfiguredDrive;
use crate::measure::{self, Progress};
pub(super) use absence::Absences;
pub use class::{ClassChoice, DatedMeasurement, Measured, MeasurementFailure};
pub use device::{DeviceRecord, Formats};
pub use drain::DrainView;
pub(super) use drain::Drains;
pub(super) use list_backup::ListBackup;
pub use list_backup::{DRIVES_FILE, restore_lost};
pub use lost_writes::LostWrites;
pub use measuring::{ClassChange, Measurements};
use weir_plan::failure_domain::FailureDomain;
use weir_store::{DriveUsage, EarlierWrites, Marker, Store, StoreError};

/// Name of the default drive's folder in the state folder.
const DEFAULT_FOLDER: &str = "drive";

/// Space on drives that are there, or why it cannot be told.
pub type Usages = BTreeMap<DriveId, Result<DriveUsage, String>>;

/// A drive as the daemon knows it.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Its record.
    pub record: DriveRecord,
    /// The catalogue's revision of that.
    pub revision: u64,
    /// Its files, or why they are not there.
    pub store: Result<Store, String>,
    /// Writes to it were lost, and nobody has accepted that yet.
    pub lost_writes: Option<LostWrites>,
    /// When it was added, last looked for by a daemon that started, or found again.
    pub scanned_at: Timestamp,
}

/// What a new drive should be.
#[derive(Clone, Debug)]
pub struct AddDrive {
    /// The directory, or the block device that is to be formatted, as an absolute path.
    pub path: PathBuf,
    /// Whether to make a filesystem on a block device.
    pub format: bool,
    /// The name; that of the directory or device if none is given.
    pub name: Option<Name>,
    /// How it should behave, if it is to be emulated.
    pub emulation: Option<Emulation>,
    /// Most operations to keep in flight; if `None`, as many as trials find while volumes compete.
    pub queue_target: Option<u32>,
    /// Its class, if it is not to be that of its first measurement.
    pub class: Option<Class>,
    /// The zone that it is in, if that is not its node's.
    pub zone: Option<Name>,
    /// The rack within the zone that it is in.
    pub rack: Option<Name>,
    /// Whether to measure it.
    pub measure: bool,
}

/// What should become different about a drive; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct ModifyDrive {
    /// Another class, or that of its latest measurement.
    pub class: Option<ClassChange>,
    /// Another zone, or that of its node.
    pub zone: Option<Option<Name>>,
    /// Another rack, or none.
    pub rack: Option<Option<Name>>,
    /// Refuse the change unless the drive has this version.
    pub if_version: Option<u64>,
}

/// A drive as it is shown.
#[derive(Clone, Debug)]
pub struct DriveView {
    /// Its record.
    pub record: DriveRecord,
    /// Its version.
    pub version: u64,
    /// Space on it as it was seen last, or why it is missing.
    pub usage: Result<DriveUsage, String>,
    /// How long ago that was seen; `None` if it is missing.
    pub usage_age: Option<Duration>,
    /// True if files there can share what they hold, so that snapshots and clones take no space.
    pub can_share: bool,
    /// Number of volumes and snapshots on it.
    pub volumes: usize,
    /// What volumes may come to occupy there, in bytes.
    pub provisioned_bytes: u64,
    /// When it was added, last looked for by a daemon that started, or found again.
    pub scanned_at: Timestamp,
    /// Why it has the class that it has, or has none.
    pub class_reason: String,
    /// How far its measurement is, while there is one.
    pub progress: Option<Progress>,
    /// Where it is: as it is said of it, and else where its node is.
    pub domain: FailureDomain,
    /// How far it is from being empty, if it is to be removed.
    pub drain: Option<DrainView>,
}

/// A folder that is to be a drive.
struct NewDrive {
    id: DriveId,
    name: Name,
    path: PathBuf,
    /// The block device that is mounted there, if it was formatted for that.
    device: Option<DeviceRecord>,
}

impl AddDrive {
    /// A drive at a path that asks for nothing, and not to be measured.
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
    /// Says that and why the drive is missing.
    pub fn unavailable(&self) -> String {
        let why = self.store.as_ref().err().map_or("", String::as_str);
        format!("drive '{}' at {} is missing: {why}", self.record.name, self.record.place().display())
    }
}

impl Model {
    /// The drives that hold extents of a volume, as far as they are known.
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

    /// A drive as it is shown, without what is said of its class.
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

    /// What volumes may come to occupy on a drive, in bytes. Snapshots do not grow: what they keep is in use already.
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

    /// The files of all drives that are there.
    pub(super) fn stores(&self) -> Vec<(DriveId, Store)> {
        let model = self.model();
        let store = |(id, drive): (&DriveId, &Drive)| Some((*id, drive.store.as_ref().ok()?.clone()));
        model.drives.iter().filter_map(store).collect()
    }

    /// Tells which drives are missing, and keeps the replica of what drives there are up to date.
    pub(super) fn report_drives(&self) {
        self.missing_drive_alarms().iter().for_each(|alarm| tracing::error!("{}", alarm.message));
        self.update_drive_list_backup();
    }

    /// An alarm for each drive that is missing.
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
    /// Not found if there is none of that name.
    pub fn drive(&self, name: &Name) -> Outcome<DriveView> {
        let id = self.model().drive(name)?.record.id;
        let store: Vec<_> = self.store(id).into_iter().map(|store| (id, store)).collect();
        self.look_at_space(&store);
        let model = self.model();
        let view = model.drive_view(model.drive(name)?, &BTreeMap::from([(id, self.usage_of(id))]));
        Ok(self.with_hindrance(self.with_class(view)))
    }

    /// Space on all drives that are there, for a decision: as it is, where drives answer.
    pub(super) fn usages(&self) -> Usages {
        let stores = self.stores();
        self.look_at_space(&stores);
        stores.into_iter().map(|(drive, _)| (drive, self.usage_of(drive).usage)).collect()
    }

    /// Makes a directory a drive, or a block device that is formatted for that.
    ///
    /// # Errors
    /// Invalid if it is not a directory that can be used; conflict if it is a drive already or the name is
    /// taken; refused if it overlaps another drive or belongs to another installation; for a block device also
    /// invalid if it is not to be formatted, and refused if anything is on it or anybody uses it.
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

    /// Makes a folder that nothing speaks against the drive that was asked for.
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
                // It keeps its marker if this fails, which is of this installation and does no harm.
                let _ = change.beside(|| store.dissolve());
                return Err(error);
            }
        };
        let name = record.name.clone();
        let files = store.clone();
        let scanned_at = record.created_at;
        let drive = Drive { record, revision, store: Ok(store), lost_writes: None, scanned_at };
        self.update(|model| model.drives.insert(id, drive));
        // Another change may have written it meanwhile without this drive.
        self.update_drive_list_backup();
        if request.measure {
            self.measure_new_drive(id);
        }
        change.beside(|| self.remove_leftovers(id, &files))?;
        self.drive(&name)
    }

    /// Makes drives of directories that the configuration names, as far as they are none yet. One that cannot be is an
    /// alarm: the others serve all the same.
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

    /// Refuses what is taken, and answers the identity that the new drive should have.
    fn place_for(&self, path: &Path, name: &Name) -> Outcome<DriveId> {
        let known: Vec<_> = self.model().drives.values().map(|drive| drive.record.clone()).collect();
        place::refuse_overlap(path, &known)?;
        self.refuse_name(name)?;
        place::identity(path, self.node, &known)
    }

    /// Refuses a name that cannot be a new drive's, and one drive too many.
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
        // The place of a drive that was removed is used again only by another daemon.
        if known + gone >= DRIVES_MAX {
            return Err(ControlError::full(format!(
                "there are {known} drives, and volumes were on {gone} more that were removed since the daemon started; \
                 {DRIVES_MAX} together is the most, and those that were removed count no more once it is started again"
            )));
        }
        self.refuse_reserved(name)
    }

    /// Writes the replica first: a drive that only the replica knows is forgotten at the next start, but one that only
    /// the catalogue knows would be lost with it.
    fn record_drive(&self, record: &DriveRecord) -> Outcome<u64> {
        self.write_drive_list_backup(Some(record))?;
        let key = keys::drive(record.id);
        let transaction = Transaction::default().compare(&key, 0).put(&key, record)?;
        let format = record.device.iter().map(|device| keys::device_format(device.filesystem));
        Ok(self.catalogue.commit(format.fold(transaction, Transaction::delete))?)
    }
}

/// Opens all drives that the catalogue knows; makes the default one first, if there is to be one.
///
/// # Errors
/// If the folder of the default drive cannot be used; any other is missing then.
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
    // Only once all are open: whoever opens a filesystem after a failure there was told learns nothing of it.
    let settled = opened.into_iter().map(|(record, revision, found)| {
        let (store, lost_writes) = lost_writes::recorded(catalogue, &record, found.and_then(settle));
        (record.id, Drive { record, revision, store, lost_writes, scanned_at: Timestamp::now() })
    });
    Ok(settled.collect())
}

/// Why a drive is not used.
#[derive(Debug, thiserror::Error)]
enum Unused {
    /// It cannot be found, or not be opened.
    #[error("{0}")]
    Missing(String),
    /// Writes to it were lost.
    #[error("{0}")]
    Lost(LostWrites),
}

/// Opens a drive, on which what was written before is not durable yet.
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

/// Makes durable what an earlier daemon wrote.
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

/// A drive of which nothing is known yet.
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
