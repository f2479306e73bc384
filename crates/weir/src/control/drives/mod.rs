//! Drives: the directories that hold volumes.
//!
//! The drive in the state folder always exists. Others are added and removed; one whose directory is not there
//! when the daemon starts is missing until the next start: its volumes are not served, and an alarm says why.

mod class;
mod copy;
mod measuring;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use weir_types::{Class, DriveId, Emulation, Name, VolumeId};

use super::Control;
use super::background::refuse_cleanups;
use super::bounds::DRIVES_MAX;
use super::catalogue::{Catalogue, Transaction};
use super::error::{ControlError, Outcome};
use super::model::{Model, list_names};
use super::records::{DEFAULT_DRIVE, DriveRecord, PoolSettings, VolumeRecord, keys};
use crate::measure::{self, Progress};
use crate::store::{DriveUsage, Marker, Store};
pub use class::{ClassChoice, DatedMeasurement, Measured, MeasurementFailure};
pub use copy::{DRIVES_FILE, restore_lost};
pub use measuring::{ClassChange, Measurements};

/// Name of the default drive's folder in the state folder.
const DEFAULT_FOLDER: &str = "drive";

/// A drive as the daemon knows it.
#[derive(Debug)]
pub struct Drive {
    /// Its record.
    pub record: DriveRecord,
    /// The catalogue's revision of that.
    pub revision: u64,
    /// Its files, or why they are not there.
    pub store: Result<Store, String>,
}

/// What a new drive should be.
#[derive(Clone, Debug)]
pub struct AddDrive {
    /// The directory, as an absolute path.
    pub path: PathBuf,
    /// The name; that of the directory if none is given.
    pub name: Option<Name>,
    /// How it should behave, if it is to be emulated.
    pub emulation: Option<Emulation>,
    /// Most operations to keep in flight; if `None`, as many as trials find while volumes compete.
    pub queue_target: Option<u32>,
    /// Its class, if it is not to be that of its first measurement.
    pub class: Option<Class>,
    /// Whether to measure it.
    pub measure: bool,
}

/// A drive as it is shown.
#[derive(Clone, Debug)]
pub struct DriveView {
    /// Its record.
    pub record: DriveRecord,
    /// Space on it, or why it is missing.
    pub usage: Result<DriveUsage, String>,
    /// Number of volumes on it.
    pub volumes: usize,
    /// Sum of their sizes in bytes.
    pub provisioned_bytes: u64,
    /// Why it has the class that it has, or has none.
    pub class_reason: String,
    /// How far its measurement is, while there is one.
    pub progress: Option<Progress>,
}

impl AddDrive {
    /// A drive at a path that asks for nothing, and not to be measured.
    pub fn new(path: PathBuf) -> AddDrive {
        AddDrive { path, name: None, emulation: None, queue_target: None, class: None, measure: false }
    }
}

impl Drive {
    /// Says that and why the drive is missing.
    pub fn unavailable(&self) -> String {
        let why = self.store.as_ref().err().map_or("", String::as_str);
        format!("drive '{}' at {} is missing: {why}", self.record.name, self.record.path.display())
    }
}

impl Model {
    /// The drive that holds a volume.
    pub fn drive_of(&self, volume: &VolumeRecord) -> Option<&DriveRecord> {
        Some(&self.drives.get(&volume.drive)?.record)
    }

    /// Finds a drive by its name.
    fn drive(&self, name: &Name) -> Outcome<&Drive> {
        let found = self.drives.values().find(|drive| drive.record.name == *name);
        found.ok_or_else(|| {
            let known = list_names(self.drives.values().map(|drive| &drive.record.name));
            ControlError::not_found(format!("unknown drive '{name}'; there are: {known}"))
        })
    }

    /// The drive of this name, or the default one, for a new volume.
    pub fn usable_drive(&self, name: Option<&Name>) -> Outcome<DriveId> {
        let Some(name) = name else { return Ok(DriveId::DEFAULT) };
        let drive = self.drive(name)?;
        match drive.store {
            Ok(_) => Ok(drive.record.id),
            Err(_) => Err(ControlError::refused(drive.unavailable())),
        }
    }

    fn volumes_on(&self, drive: DriveId) -> impl Iterator<Item = &VolumeRecord> {
        self.volumes.values().map(|volume| &volume.record).filter(move |volume| volume.drive == drive)
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

    /// Bytes that a volume occupies; `None` if its files cannot be examined.
    pub(super) fn used_bytes(&self, volume: &VolumeRecord) -> Option<u64> {
        self.store(volume.drive).ok()?.used_bytes(volume.id).ok()
    }

    /// Tells which drives are missing, and keeps the copy of what drives there are up to date.
    pub(super) fn report_drives(&self) {
        let missing: Vec<String> = {
            let model = self.model();
            let missing = model.drives.values().filter(|drive| drive.store.is_err());
            let alarm = |drive: &Drive| {
                let volumes = model.volumes_on(drive.record.id).count();
                let remedy = "bring it back and start the daemon anew";
                format!("{}; its {volumes} volumes are not served: {remedy}", drive.unavailable())
            };
            missing.map(alarm).collect()
        };
        missing.into_iter().for_each(|message| self.alarms.raise(message));
        if let Err(error) = self.write_drive_copy(None) {
            self.alarms.raise(format!("the copy of the list of drives is not up to date: {error}"));
        }
    }

    /// All drives: the default one first, then by name.
    pub fn drives(&self) -> Vec<DriveView> {
        let mut views = {
            let model = self.model();
            model.drives.values().map(|drive| view(&model, drive)).collect::<Vec<_>>()
        };
        views.sort_by_key(|view| (view.record.id != DriveId::DEFAULT, view.record.name.clone()));
        views.into_iter().map(|view| self.with_class(self.with_usage(view))).collect()
    }

    /// One drive.
    ///
    /// # Errors
    /// Not found if there is none of that name.
    pub fn drive(&self, name: &Name) -> Outcome<DriveView> {
        let view = {
            let model = self.model();
            view(&model, model.drive(name)?)
        };
        Ok(self.with_class(self.with_usage(view)))
    }

    /// Looks at the drive's filesystem, which may take its time, while nobody waits for the model.
    fn with_usage(&self, view: DriveView) -> DriveView {
        let Ok(store) = self.store(view.record.id) else { return view };
        DriveView { usage: store.usage().map_err(|error| error.to_string()), ..view }
    }

    /// Makes a directory a drive.
    ///
    /// # Errors
    /// Invalid if it is not a directory that can be used; conflict if it is a drive already or the name is
    /// taken; refused if it overlaps another drive or belongs to another installation.
    pub fn add_drive(&self, request: AddDrive) -> Outcome<DriveView> {
        let _change = self.begin_change();
        let path = place::directory(&request.path)?;
        let name = request.name.map_or_else(|| place::name_of(&path), Ok)?;
        let id = self.place_for(&path, &name)?;
        let pool = PoolSettings { queue_target: request.queue_target, ..PoolSettings::default() };
        pool.check()?;
        let record = DriveRecord { emulation: request.emulation, ..new_record(id, name, path.clone(), pool) };
        let record = match request.class {
            Some(class) => record.with_chosen_class(class, &self.classes),
            None => record,
        };
        let store = Store::adopt_directory(path, &Marker::new(self.node, id)).map_err(|error| {
            let path = request.path.display();
            ControlError::refused(format!("'{path}' cannot be a drive: {error}"))
        })?;
        let revision = match self.record_drive(&record) {
            Ok(revision) => revision,
            Err(error) => {
                // It keeps its marker if this fails, which is of this installation and does no harm.
                let _ = store.dissolve();
                return Err(error);
            }
        };
        let name = record.name.clone();
        let files = store.clone();
        self.update(|model| model.drives.insert(id, Drive { record, revision, store: Ok(store) }));
        if request.measure {
            self.measure_new_drive(id);
        }
        self.clean_up_leftovers(id, &files)?;
        self.drive(&name)
    }

    /// Refuses what is taken, and answers the identity that the new drive should have.
    fn place_for(&self, path: &Path, name: &Name) -> Outcome<DriveId> {
        let known: Vec<_> = self.model().drives.values().map(|drive| drive.record.clone()).collect();
        place::refuse_overlap(path, &known)?;
        if known.iter().any(|drive| drive.name == *name) {
            return Err(ControlError::conflict(format!(
                "drive '{name}' exists already; choose another name with --name"
            )));
        }
        if known.len() >= DRIVES_MAX {
            return Err(ControlError::full(format!(
                "there are {DRIVES_MAX} drives already, which is the most"
            )));
        }
        place::identity(path, self.node, &known)
    }

    /// Writes the copy first: a drive that only the copy knows is forgotten at the next start, but one that only
    /// the catalogue knows would be lost with it.
    fn record_drive(&self, record: &DriveRecord) -> Outcome<u64> {
        self.write_drive_copy(Some(record))?;
        let key = keys::drive(record.id);
        Ok(self.catalogue.commit(Transaction::default().compare(&key, 0).put(&key, record)?)?)
    }

    fn write_drive_copy(&self, new: Option<&DriveRecord>) -> Outcome<()> {
        let mut drives: Vec<_> = self.model().drives.values().map(|drive| drive.record.clone()).collect();
        drives.extend(new.cloned());
        copy::write(&self.state, self.node, drives)
    }

    /// Writes the copy after the catalogue, which is what counts.
    pub(super) fn bring_drive_copy_up_to_date(&self) {
        if let Err(error) = self.write_drive_copy(None) {
            tracing::warn!(%error, "the copy of the list of drives is brought up to date at the next start");
        }
    }

    /// Gives a drive's directory back.
    ///
    /// # Errors
    /// Refused for the default drive and while volumes are on it, which are named.
    pub fn remove_drive(&self, name: &Name) -> Outcome<()> {
        let _change = self.begin_change();
        let (id, revision, store) = {
            let model = self.model();
            let drive = model.drive(name)?;
            refuse_used(&model, &drive.record)?;
            (drive.record.id, drive.revision, drive.store.clone())
        };
        self.measurements.stop(id, name)?;
        let key = keys::drive(id);
        let cleanups: Vec<_> = self.model().cleanups_on(id).map(|(volume, _)| volume).collect();
        let removal = Transaction::freeing_space().compare(&key, revision).delete(&key);
        let forget = |removal: Transaction, volume: &VolumeId| removal.delete(keys::volume(*volume));
        self.catalogue.commit(cleanups.iter().fold(removal, forget))?;
        self.update(|model| {
            model.drives.remove(&id);
            model.cleanups.retain(|_, cleanup| cleanup.drive != id);
        });
        self.data_plane.forget_drive(id);
        self.bring_drive_copy_up_to_date();
        if let Ok(Err(error)) = store.map(|store| store.dissolve()) {
            tracing::warn!(drive = %name, %error, "something stays in the folder of a drive that was removed");
        }
        Ok(())
    }
}

fn refuse_used(model: &Model, drive: &DriveRecord) -> Outcome<()> {
    let name = &drive.name;
    if drive.id == DriveId::DEFAULT {
        return Err(ControlError::refused(format!("drive '{name}' always exists and cannot be removed")));
    }
    let volumes = list_names(model.volumes_on(drive.id).map(VolumeRecord::export_name));
    if !volumes.is_empty() {
        return Err(ControlError::refused(format!(
            "drive '{name}' still has the volumes: {volumes}; delete them first"
        )));
    }
    refuse_cleanups(model, drive.id, name)
}

/// A view without what must be read from the drive, and without what is said of its class.
fn view(model: &Model, drive: &Drive) -> DriveView {
    let record = drive.record.clone();
    DriveView {
        usage: Err(drive.store.as_ref().err().cloned().unwrap_or_default()),
        class_reason: String::new(),
        progress: None,
        volumes: model.volumes_on(record.id).count(),
        provisioned_bytes: model.volumes_on(record.id).map(|volume| volume.size_bytes).sum(),
        record,
    }
}

/// Opens all drives that the catalogue knows.
///
/// # Errors
/// If the default drive cannot be used; any other is missing then.
pub fn open_all(
    state: &Path,
    catalogue: &dyn Catalogue,
    node: uuid::Uuid,
) -> Outcome<BTreeMap<DriveId, Drive>> {
    make_default_drive(state, catalogue)?;
    let mut drives = BTreeMap::new();
    for entry in catalogue.range(keys::DRIVES)? {
        let mut record: DriveRecord = entry.decode()?;
        let store = if record.id == DriveId::DEFAULT {
            record.path = state.join(DEFAULT_FOLDER);
            Ok(Store::open(record.path.clone()).and_then(clean)?)
        } else {
            let marker = Marker::new(node, record.id);
            let store = Store::open_marked(record.path.clone(), &marker).and_then(clean);
            store.map_err(|error| error.to_string())
        };
        drives.insert(record.id, Drive { record, revision: entry.revision, store });
    }
    Ok(drives)
}

/// Removes what a crash left behind and is small; space is given back later, in the background.
fn clean(store: Store) -> Result<Store, crate::store::StoreError> {
    store.remove_temporary_records()?;
    if let Err(error) = measure::remove_leftover(store.drive()) {
        tracing::warn!(drive = %store.drive().display(), %error, "the file of an earlier measurement stays");
    }
    Ok(store)
}

fn make_default_drive(state: &Path, catalogue: &dyn Catalogue) -> Outcome<()> {
    let key = keys::drive(DriveId::DEFAULT);
    if catalogue.get(&key)?.is_none() {
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
        id,
        name,
        path,
        emulation: None,
        class: None,
        measured: Measured::default(),
        pool,
        created_at,
    }
}
