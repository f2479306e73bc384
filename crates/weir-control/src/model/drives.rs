//! Drives in the model: their records, their open folders, and the volumes on them.

use jiff::Timestamp;
use weir_engine_interface::OpenVolume;
use weir_plan::failure_domain::FailureDomain;
use weir_store::Store;
use weir_types::{Class, ClassPolicy, DriveId, Name, VolumeId};

use crate::catalogue::Revision;
use crate::error::{ControlError, Outcome, list_names};
use crate::model::Model;
use crate::records::{DriveRecord, LostWrites, VolumeRecord};

/// A drive as the daemon knows it.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Its record.
    pub record: DriveRecord,
    /// The catalogue's revision of the record.
    pub revision: Revision,
    /// Its files, or the reason why they are missing.
    pub store: Result<Store, String>,
    /// Lost writes that no operator has accepted yet.
    pub lost_writes: Option<LostWrites>,
    /// Time when the drive was added, scanned by a starting daemon, or found again, whichever is latest.
    pub scanned_at: Timestamp,
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
    pub(crate) fn drive(&self, name: &Name) -> Outcome<&Drive> {
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

    /// True if a drive can be used.
    pub fn is_there(&self, drive: DriveId) -> bool {
        self.drives.get(&drive).is_some_and(|drive| drive.store.is_ok())
    }

    /// Bytes that volumes and their write journals may come to occupy on a drive. Snapshots do not grow: their data is in
    /// use already.
    pub fn provisioned_bytes(&self, drive: DriveId) -> u64 {
        let bytes = |volume: &VolumeRecord| volume.placement.bytes_on(drive, volume.size_bytes);
        let of_volumes: u64 =
            self.volumes_on(drive).filter(|volume| volume.snapshot.is_none()).map(bytes).sum();
        of_volumes + self.journal_bytes(drive)
    }

    /// Size of the write journals on a drive, of volumes that are served.
    fn journal_bytes(&self, drive: DriveId) -> u64 {
        let may_have_one = |id: &VolumeId| {
            let record = self.volumes.get(id).map(|volume| &volume.record);
            record.is_some_and(VolumeRecord::may_have_journals)
        };
        let of_volume = |open: &OpenVolume| open.statistics().journals.size_bytes_on(drive);
        self.open.iter().filter(|(id, _)| may_have_one(id)).map(|(_, open)| of_volume(open)).sum()
    }

    pub(crate) fn volumes_on(&self, drive: DriveId) -> impl Iterator<Item = &VolumeRecord> {
        let all = self.volumes.values().map(|volume| &volume.record);
        all.filter(move |volume| volume.placement.names(drive))
    }

    /// True if a drive is draining.
    pub(crate) fn is_draining(&self, drive: DriveId) -> bool {
        self.drives.get(&drive).is_some_and(|drive| drive.record.is_draining)
    }

    /// Class of a volume: the lowest class of its drives; `None` if a drive has no class.
    pub(crate) fn class_of(&self, volume: &VolumeRecord) -> Option<Class> {
        let classes: Option<Vec<Class>> = self.drives_of(volume).map(|drive| drive.class).collect();
        classes?.into_iter().min()
    }

    /// True if a volume has the class that it requests.
    pub(crate) fn has_its_class(&self, volume: &VolumeRecord) -> bool {
        // A snapshot stays on the drives of its volume.
        let is_bound = volume.class_policy != ClassPolicy::Any && volume.snapshot.is_none();
        !is_bound || self.class_of(volume) == Some(volume.io_priority)
    }

    /// Failure domain of a drive: its own zone and rack. A drive without a zone has the zone of its node.
    pub(crate) fn domain_of(&self, drive: &DriveRecord) -> FailureDomain {
        FailureDomain {
            zone: drive.zone.as_ref().map(Name::to_string).or_else(|| self.zone.clone()),
            rack: drive.rack.as_ref().map(Name::to_string),
        }
    }
}
