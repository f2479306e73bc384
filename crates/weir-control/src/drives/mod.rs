//! Drives: directories that hold volumes, and block devices that are formatted and mounted for the same
//! purpose.
//!
//! The drive in the state folder always exists. Other drives are added and removed. A drive whose directory
//! or device is absent when the daemon starts is missing until it appears. Volumes whose only replica is on a
//! missing drive are not served, and an alarm says why. A drive is emptied before it is removed.

pub(crate) mod lost_writes;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use weir_store::{EarlierWrites, Marker, Store, StoreError};
use weir_types::control_bounds::DRIVES_MAX;
use weir_types::name::DEFAULT_DRIVE;
use weir_types::{Class, DriveId, DriveRole, Emulation, Name};

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::catalogue::{Catalogue, Revision, Transaction};
use crate::configuration::ConfiguredDrive;
use crate::core::Core;
use crate::core::locks::Change;
use crate::devices::{self, Devices, MadeDevice, Wanted};
use crate::drains::Drains;
use crate::drive_records::DriveRecords;
use crate::drive_view::{DriveView, drive_view};
use crate::error::{ControlError, Outcome, list_names};
use crate::figures::Figures;
use crate::measurements::{ClassChange, Measurements};
use crate::model::Drive;
use crate::model::pools::joined;
use crate::reclaims::Reclaims;
use crate::records::{DeviceRecord, DriveRecord, LostWrites, PoolSettings, VolumeRecord, keys};
use crate::space::StateSpace;

/// Name of the default drive's folder in the state folder.
const DEFAULT_FOLDER: &str = "drive";

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
    /// What the drive is used for.
    pub role: DriveRole,
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
            role: DriveRole::default(),
            class: None,
            zone: None,
            rack: None,
            measure: false,
        }
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
    devices::release_strangers(state, &records.iter().map(|record| record.id).collect());
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
pub(crate) enum Unused {
    /// The drive cannot be found or opened.
    #[error("{0}")]
    Missing(String),
    /// Writes to the drive were lost.
    #[error("{0}")]
    Lost(LostWrites),
}

/// Opens a drive whose earlier writes are not durable yet.
pub(crate) fn open_store(
    (state, catalogue): (&Path, &dyn Catalogue),
    node: uuid::Uuid,
    record: &mut DriveRecord,
    revision: &mut Revision,
) -> Result<EarlierWrites, Unused> {
    let store = if record.id == DriveId::DEFAULT {
        Store::open(record.path.clone())
    } else {
        devices::bring(state, catalogue, record, revision).map_err(Unused::Missing)?;
        Store::open_marked(record.path.clone(), &Marker::new(node, record.id))
    };
    let store = store.and_then(clean).and_then(|store| store.earlier_writes());
    store.map_err(|error| Unused::Missing(error.to_string()))
}

/// Makes durable the writes of an earlier daemon.
pub(crate) fn settle(earlier: EarlierWrites) -> Result<Store, Unused> {
    earlier.settle().map_err(|error| Unused::Lost(LostWrites::found(&error)))
}

/// Removes what a crash left behind and is small; space is given back later, in the background.
fn clean(store: Store) -> Result<Store, weir_store::StoreError> {
    store.remove_temporary_records()?;
    if let Err(error) = weir_store::remove_scratch(store.drive()) {
        tracing::warn!(drive = %store.drive().display(), %error, "the file of an earlier measurement stays");
    }
    Ok(store)
}

fn make_default_drive(state: &Path, catalogue: &dyn Catalogue) -> Outcome<()> {
    let key = keys::drive(DriveId::DEFAULT);
    if catalogue.range(keys::DRIVES)?.is_empty() {
        let name = Name::new(DEFAULT_DRIVE).map_err(|error| ControlError::internal(error.to_string()))?;
        let record =
            DriveRecord::new(DriveId::DEFAULT, name, state.join(DEFAULT_FOLDER), PoolSettings::default());
        catalogue.commit(Transaction::default().compare(&key, Revision::ABSENT).put(&key, &record)?)?;
    }
    Ok(())
}

/// Operations on drives.
pub struct Drives {
    pub(crate) core: Arc<Core>,
    pub(crate) space: Arc<StateSpace>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) drive_records: Arc<DriveRecords>,
    pub(crate) measurements: Arc<Measurements>,
    pub(crate) drains: Arc<Drains>,
    pub(crate) reclaims: Arc<Reclaims>,
    pub(crate) devices: Arc<Devices>,
}

impl Drives {
    /// Logs which drives are missing, and brings the backup of the list of drives up to date.
    pub(crate) fn report_drives(&self) {
        self.missing_drive_alarms().iter().for_each(|alarm| tracing::error!("{}", alarm.message));
        self.drive_records.update_drive_list_backup();
    }

    /// One alarm for each missing drive.
    pub(crate) fn missing_drive_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.core.model();
        let missing = model.drives.values().filter(|drive| drive.store.is_err());
        let is_elsewhere = |volume: &&VolumeRecord| {
            volume.placement.is_covered(volume.size_bytes, |drive| model.is_there(drive))
        };
        let alarm = |drive: &Drive| {
            let volumes = model.volumes_on(drive.record.id);
            let (elsewhere, lost): (Vec<_>, Vec<_>) = volumes.partition(is_elsewhere);
            let others = match elsewhere.len() {
                0 => String::new(),
                count => format!(", with other replicas: {count}"),
            };
            let (why, lost) = (drive.unavailable(), lost.len());
            let remedy = lost_writes::remedy(drive, lost);
            let message = match drive.record.role {
                DriveRole::Data => format!("{why}; volumes out of service: {lost}{others}; {remedy}"),
                DriveRole::Journal => {
                    format!("{why}; replicas whose write journals it has are out of service; {remedy}")
                }
            };
            let source =
                if drive.lost_writes.is_some() { AlarmSource::LostWrites } else { AlarmSource::Drive };
            ActiveAlarm { source, drive: Some(drive.record.id), volume: None, extent: None, message }
        };
        missing.map(alarm).collect()
    }

    /// All drives: the default one first, then by name.
    pub fn drives(&self) -> Vec<DriveView> {
        let usages = self.figures.known_usages();
        let mut views: Vec<_> = {
            let model = self.core.model();
            model.drives.values().map(|drive| drive_view(&model, drive, &usages)).collect()
        };
        views.sort_by_key(|view| (view.record.id != DriveId::DEFAULT, view.record.name.clone()));
        views.into_iter().map(|view| self.drains.with_hindrance(self.measurements.with_class(view))).collect()
    }

    /// The drives that are drained or measured now, without their usage.
    pub(crate) fn busy_drives(&self) -> Vec<DriveView> {
        let measured = self.measurements.in_progress();
        let is_busy = |drive: &&Drive| drive.record.is_draining || measured.contains(&drive.record.id);
        let views: Vec<_> = {
            let model = self.core.model();
            let busy = model.drives.values().filter(is_busy);
            busy.map(|drive| drive_view(&model, drive, &BTreeMap::new())).collect()
        };
        views.into_iter().map(|view| self.drains.with_hindrance(self.measurements.with_class(view))).collect()
    }

    /// One drive.
    ///
    /// # Errors
    /// Not found if no drive has that name.
    pub fn drive(&self, name: &Name) -> Outcome<DriveView> {
        let id = self.core.model().drive(name)?.record.id;
        let store: Vec<_> = self.core.store(id).into_iter().map(|store| (id, store)).collect();
        self.figures.look_at_space(&store);
        let model = self.core.model();
        let view = drive_view(&model, model.drive(name)?, &BTreeMap::from([(id, self.figures.usage_of(id))]));
        Ok(self.drains.with_hindrance(self.measurements.with_class(view)))
    }

    /// Makes a directory a drive, or a block device that is formatted for it.
    ///
    /// # Errors
    /// Invalid if the directory cannot be used. Conflict if it is a drive already, or if the name is taken.
    /// Refused if it overlaps another drive or belongs to another installation. A block device is also
    /// invalid without a request to format it, and refused if it holds data or is in use.
    pub fn add_drive(&self, request: AddDrive) -> Outcome<DriveView> {
        if let Some(wanted) = devices::wanted(&request.path)? {
            return self.add_device(request, &wanted);
        }
        let mut change = self.core.begin_drive_change()?;
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
        let AddDrive { emulation, role, zone, rack, .. } = request;
        let new = DriveRecord::new(id, name, path.clone(), pool);
        let record = DriveRecord { emulation, role, zone, rack, device, ..new };
        let record = match request.class {
            Some(class) => joined(&self.core.model(), record.with_chosen_class(class, &self.core.classes)),
            None => record,
        };
        let store = change.beside(|| {
            let store = Store::adopt_directory(path, &Marker::new(self.core.node, id))?;
            self.figures.note_space(id, &store);
            self.space.count_drive(id, &store);
            Ok(store)
        });
        let store = store.map_err(|error: StoreError| {
            let path = request.path.display();
            ControlError::refused(format!("'{path}' cannot be a drive: {error}"))
        })?;
        let revision = match self.drive_records.record_drive(&record) {
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
        self.core.update(|model| model.drives.insert(id, drive));
        // A concurrent change may have written the backup without this drive.
        self.drive_records.update_drive_list_backup();
        if request.measure {
            self.measurements.measure_new_drive(id);
        }
        change.beside(|| self.reclaims.remove_leftovers(id, &files))?;
        self.drive(&name)
    }

    /// Makes drives of the directories that the configuration names and that are no drives yet.
    ///
    /// A directory that cannot become a drive is an alarm; the other drives serve all the same.
    pub(crate) fn add_configured_drives(&self, drives: &[ConfiguredDrive]) {
        for ConfiguredDrive { path, emulation } in drives {
            let canonical = path.canonicalize();
            let is_known = |drive: &Drive| {
                let place = drive.record.place();
                place == *path || canonical.as_ref().is_ok_and(|canonical| place == *canonical)
            };
            if self.core.model().drives.values().any(is_known) {
                continue;
            }
            let (path, emulation) = (path.clone(), *emulation);
            let request = AddDrive { emulation, measure: true, ..AddDrive::new(path) };
            if let Err(error) = self.add_drive(request) {
                self.core.alarms.raise(format!("a drive of the configuration cannot be used: {error}"));
            }
        }
    }

    /// Refuses a path or name that is taken. Returns the identity of the new drive.
    fn place_for(&self, path: &Path, name: &Name) -> Outcome<DriveId> {
        let known: Vec<_> = self.core.model().drives.values().map(|drive| drive.record.clone()).collect();
        place::refuse_overlap(path, &known)?;
        self.refuse_name(name)?;
        place::identity(path, self.core.node, &known)
    }

    /// Refuses a name that a new drive cannot have, and a drive beyond the maximum.
    fn refuse_name(&self, name: &Name) -> Outcome<()> {
        if Class::ALL.iter().any(|class| class.to_string() == name.as_str()) {
            return Err(ControlError::invalid(format!(
                "'{name}' is the name of the pool of that class; choose another name with --name"
            )));
        }
        let (is_taken, known, gone) = {
            let model = self.core.model();
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
        self.devices.refuse_reserved(name)
    }

    /// Measures a drive again. The call does not wait for the result.
    ///
    /// # Errors
    /// Not found if no drive has that name. Refused if the drive is missing. Conflict if it is being
    /// measured. Internal if the system has no thread left.
    pub fn measure_drive(&self, name: &Name) -> Outcome<DriveView> {
        {
            let _change = self.core.begin_change();
            let (id, reason) = {
                let model = self.core.model();
                let drive = model.drive(name)?;
                (drive.record.id, drive.store.is_err().then(|| drive.unavailable()))
            };
            if let Some(reason) = reason {
                return Err(ControlError::refused(reason));
            }
            self.measurements.begin_measurement(id)?;
        }
        self.drive(name)
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
            let _change = self.core.begin_change();
            let old = self.drive_records.drive_at(name, request.if_version)?;
            let mut new = match request.class {
                Some(change) => self.reclassified(&old, change)?,
                None => old.clone(),
            };
            self.refuse_other_class(&old, &new)?;
            new.zone = request.zone.unwrap_or(new.zone);
            new.rack = request.rack.unwrap_or(new.rack);
            if new != old {
                self.drive_records.save_drive(new)?;
            }
        }
        self.drive(name)
    }

    fn reclassified(&self, old: &DriveRecord, change: ClassChange) -> Outcome<DriveRecord> {
        match change {
            ClassChange::To(class) => Ok(old.clone().with_chosen_class(class, &self.core.classes)),
            ClassChange::Measured => old.clone().with_measured_class(&self.core.classes).ok_or_else(|| {
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
        let model = self.core.model();
        let volumes = list_names(model.volumes_on(old.id).map(VolumeRecord::export_name));
        if is == wanted || volumes.is_empty() {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "drive '{}' is {is} and cannot become {wanted} while it has the volumes: {volumes}; delete them first",
            old.name
        )))
    }
}

impl Drives {
    /// Adds a block device, which is formatted and mounted. Other changes do not wait for that.
    fn add_device(&self, request: AddDrive, wanted: &Wanted) -> Outcome<DriveView> {
        if !request.format {
            return Err(wanted.refuse_unasked());
        }
        let name = request.name.clone().map_or_else(|| place::name_of(wanted.device_path()), Ok)?;
        PoolSettings { queue_target: request.queue_target, ..PoolSettings::default() }.check()?;
        let _formatting = {
            let _change = self.core.begin_drive_change()?;
            self.refuse_name(&name)?;
            self.devices.reserve(wanted, &name)?
        };
        let MadeDevice { id, path, record } = self.devices.make(wanted)?;
        let new = NewDrive { id, name, path: path.clone(), device: Some(record) };
        let mut change = self.core.begin_drive_change()?;
        let added = self.take_on(&mut change, request, new);
        if !self.core.model().drives.contains_key(&id) {
            devices::release(&path);
        }
        added
    }

    /// Removes an empty drive, or begins to empty it. Returns the identity of the drive.
    ///
    /// # Errors
    /// Refused if what lies on the drive can go nowhere else.
    pub fn remove_drive(&self, name: &Name, if_version: Option<u64>) -> Outcome<DriveId> {
        self.drains.begin_removal(name, if_version)
    }

    /// Ends the drain of a drive: it stays.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind) without the drive.
    pub fn keep_drive(&self, name: &Name, if_version: Option<u64>) -> Outcome<DriveView> {
        self.drains.cancel_removal(name, if_version)?;
        self.drive(name)
    }
}
