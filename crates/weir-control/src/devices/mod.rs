//! Block devices as drives: Weir makes an XFS filesystem on a device and mounts it. The folder is then a
//! drive like any other.
//!
//! Checking, formatting and mounting a device take time, and no other change waits for them: the device and
//! the drive's name are reserved. The catalogue records the format before the first write to the device. The
//! record is removed in the transaction that adds the drive. So a daemon that is killed in between leaves a
//! filesystem that a second try recognises as its own. This module does not know the content of a drive.

mod formats;
mod leftover;
mod mount;
mod probe;
mod program;
pub mod tables;
mod verdict;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;
use weir_types::{DriveId, Name};

use crate::catalogue::{Catalogue, Revision, Transaction};
use crate::core::Core;
use crate::devices::formats::{Formats, Formatting, UnfinishedFormat};
use crate::devices::probe::{BlockDevice, KnownDrive};
use crate::devices::program::MKFS_XFS;
use crate::error::{ControlError, Outcome};
use crate::model::Drive;
use crate::records::{DeviceRecord, DriveRecord, keys};

pub(crate) use mount::{release, release_strangers};

/// Label of new filesystems; XFS has room for 12 bytes.
const LABEL: &str = "weir";

/// What is set aside around a block that is written for the first time since a snapshot or clone, in blocks of 4 KiB of
/// the filesystem. XFS by itself sets 128 KiB aside, for minutes: random writes would fill a drive with 32 times what
/// they write.
const REFLINK: &str = "cowextsize=4";

/// Allocation groups of a filesystem that is large enough for them. Each group has its own locks, which are
/// held for the first write to a shared block. The default of XFS is four groups, so work on clones would
/// hold up work on the volume.
const GROUPS: u64 = 32;
/// Minimum size of an allocation group, in bytes: smaller groups split large files into many pieces.
const GROUP_BYTES_MIN: u64 = 512 << 20;
/// Maximum size of an allocation group, in bytes: from there on XFS makes as many groups as it needs.
const GROUP_BYTES_MAX: u64 = 1 << 40;

/// A device that was requested.
pub(crate) struct Wanted {
    device: BlockDevice,
    /// Name of the device in answers.
    shown: String,
}

/// The block device at a path, if there is one.
///
/// # Errors
/// Refused if the system does not know the device.
pub(crate) fn wanted(path: &Path) -> Outcome<Option<Wanted>> {
    let Some(number) = probe::number_at(path).filter(|_| path.is_absolute()) else { return Ok(None) };
    let named = path.display();
    let device = BlockDevice::with(number).map_err(|error| {
        ControlError::refused(format!("'{named}' is a block device that is not known: {error}"))
    })?;
    let shown = match device.path == path {
        true => format!("'{named}'"),
        false => format!("'{named}' ({})", device.path.display()),
    };
    Ok(Some(Wanted { device, shown }))
}

/// Mounts the filesystem of a drive if the drive is a device, and records changes in the catalogue.
///
/// # Errors
/// The reason why the drive is missing, in words.
pub fn bring(
    state: &Path,
    catalogue: &dyn Catalogue,
    record: &mut DriveRecord,
    revision: &mut Revision,
) -> Result<(), String> {
    let known = record.clone();
    let there = mount::bring(state, record);
    if *record != known {
        let key = keys::drive(record.id);
        let noted = Transaction::default().compare(&key, *revision).put(&key, record);
        match noted.and_then(|noted| catalogue.commit(noted)) {
            Ok(now) => *revision = now,
            // The path only helps to find the device, and the next start looks for it again.
            Err(error) => {
                tracing::warn!(drive = %record.name, %error, "where its device is could not be noted")
            }
        }
    }
    there
}

/// Layout of the data of a filesystem of this size, as options of `mkfs.xfs -d`.
fn data_options(size_bytes: u64) -> String {
    let is_fit = (GROUPS * GROUP_BYTES_MIN..GROUPS * GROUP_BYTES_MAX).contains(&size_bytes);
    if is_fit { format!("{REFLINK},agcount={GROUPS}") } else { REFLINK.to_owned() }
}

/// Makes filesystems on block devices and mounts them.
pub struct Devices {
    core: Arc<Core>,
    formats: Formats,
}

impl Devices {
    pub(crate) fn new(core: Arc<Core>) -> Devices {
        Devices { core, formats: Default::default() }
    }
}

impl Devices {
    /// Makes a filesystem on a device that is empty and not in use; returns its UUID.
    fn format(&self, Wanted { device, shown }: &Wanted) -> Outcome<Uuid> {
        let found = device.look(shown, &self.known_drives())?;
        let unfinished = formats::unfinished(&*self.core.catalogue)?;
        let unfinished: Vec<_> = unfinished.into_iter().map(|format| format.filesystem).collect();
        let leftover = verdict::allow(&found, &unfinished)?;
        if leftover.is_some() {
            leftover::refuse_used(device, shown, &mount::folder(&self.core.state, DriveId(Uuid::new_v4())))?;
        }
        let filesystem = leftover.unwrap_or_else(Uuid::new_v4);
        let begun = UnfinishedFormat { filesystem, device: device.path.clone(), begun_at: Timestamp::now() };
        formats::note(&*self.core.catalogue, &begun)?;
        let (path, metadata) = (device.path.to_string_lossy(), format!("reflink=1,uuid={filesystem}"));
        // No discard (`-K`): discarding a large drive may take minutes, and makes it faster for a time than
        // it is in use.
        let data = data_options(found.size_bytes);
        let mut arguments = vec!["-q", "-K", "-L", LABEL, "-m", &metadata, "-d", &data];
        // Without `-f`, mkfs itself checks again that the device is empty.
        arguments.extend(leftover.map(|_| "-f"));
        arguments.push(&path);
        tracing::info!(device = %path, %filesystem, "formatting");
        let made = MKFS_XFS.run(&arguments);
        made.map_err(|error| {
            ControlError::refused(format!("{shown} cannot be formatted: {error}")).caused_by(error)
        })?;
        Ok(filesystem)
    }

    /// All drives, with the facts that show whether a device is in use.
    fn known_drives(&self) -> Vec<KnownDrive> {
        let drives: Vec<_> = {
            let model = self.core.model();
            let drive = |drive: &Drive| (drive.record.clone(), drive.store.is_ok());
            model.drives.values().map(drive).collect()
        };
        let known = |(record, is_there): (DriveRecord, bool)| {
            // At the path of a missing drive there may be something else.
            let found = record.path.metadata().ok().filter(|_| is_there);
            KnownDrive {
                name: record.name,
                folder: record.path,
                filesystem: record.device.map(|device| device.filesystem),
                number: found.map(|found| found.dev().into()),
            }
        };
        drives.into_iter().map(known).collect()
    }

    /// Refuses a name that a drive under construction will have.
    pub(crate) fn refuse_reserved(&self, name: &Name) -> Outcome<()> {
        match self.formats.names().contains(name) {
            true => Err(ControlError::conflict(format!(
                "drive '{name}' is being made; choose another name with --name"
            ))),
            false => Ok(()),
        }
    }
}

impl Devices {
    /// Reserves a device and the name of its drive, until the answer is dropped.
    ///
    /// # Errors
    /// Refused if the device is being formatted already.
    pub(crate) fn reserve(&self, wanted: &Wanted, name: &Name) -> Outcome<Formatting<'_>> {
        self.formats.begin(&wanted.shown, wanted.device.number, name.clone())
    }

    /// Formats a device and mounts it, as the folder of a new drive.
    ///
    /// # Errors
    /// Refused if the device is in use, or cannot be formatted or mounted.
    pub(crate) fn make(&self, wanted: &Wanted) -> Outcome<MadeDevice> {
        let Wanted { device, shown } = wanted;
        let filesystem = self.format(wanted)?;
        let id = DriveId(Uuid::new_v4());
        let path = mount::folder(&self.core.state, id);
        mount::mount(&device.path, &path).map_err(|error| {
            ControlError::refused(format!("{shown} was formatted, but {error}")).caused_by(error)
        })?;
        let is_rotational = device.is_rotational();
        let record = DeviceRecord { path: device.path.clone(), filesystem, is_rotational };
        Ok(MadeDevice { id, path, record })
    }
}

/// A device with a new filesystem, mounted as the folder of a drive.
pub(crate) struct MadeDevice {
    pub id: DriveId,
    pub path: PathBuf,
    pub record: DeviceRecord,
}

impl Wanted {
    /// Path of the device.
    pub(crate) fn device_path(&self) -> &Path {
        &self.device.path
    }

    /// Refusal of a device that nobody asked to format.
    pub(crate) fn refuse_unasked(&self) -> ControlError {
        verdict::refuse_unasked(&self.shown, &self.device.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::PoolSettings;
    use weir_types::DriveId;

    fn record(device: Option<DeviceRecord>) -> DriveRecord {
        let new = DriveRecord::new(
            DriveId(Uuid::from_u128(1)),
            Name::new("d1").unwrap(),
            "/srv/d1".into(),
            PoolSettings::default(),
        );
        DriveRecord { device, ..new }
    }

    #[test]
    fn device_survives_serialisation_and_is_absent_in_old_records() {
        let device =
            DeviceRecord { path: "/dev/sdb".into(), filesystem: Uuid::from_u128(2), is_rotational: true };
        let on_device = record(Some(device));
        let value = serde_json::to_value(&on_device).unwrap();
        assert_eq!(serde_json::from_value::<DriveRecord>(value).unwrap(), on_device);
        assert_eq!(on_device.place(), Path::new("/dev/sdb"));
        let value = serde_json::to_value(record(None)).unwrap();
        assert!(value.get("device").is_none());
        let directory = serde_json::from_value::<DriveRecord>(value).unwrap();
        assert_eq!((directory.place(), &directory.device), (Path::new("/srv/d1"), &None));
    }

    #[test]
    fn drive_without_its_device_is_missing_and_a_folder_drive_is_unchanged() {
        let state = tempfile::tempdir().unwrap();
        let mut directory = record(None);
        assert_eq!(mount::bring(state.path(), &mut directory), Ok(()));
        assert_eq!(directory.path, Path::new("/srv/d1"));
        let device = DeviceRecord {
            path: "/dev/no-such-device".into(),
            filesystem: Uuid::from_u128(2),
            is_rotational: false,
        };
        let mut missing = record(Some(device.clone()));
        assert!(mount::bring(state.path(), &mut missing).is_err());
        assert_eq!(missing.device, Some(device), "it is still looked for where it was");
        assert_eq!(missing.path, mount::folder(state.path(), missing.id));
        assert!(!missing.path.exists(), "nothing is made where the drive should be");
    }

    #[test]
    fn path_of_no_block_device_is_no_device() {
        for path in ["/", "/dev/null", "/no/such/place", "relative"] {
            assert!(wanted(Path::new(path)).unwrap().is_none(), "{path}");
        }
    }

    #[test]
    fn large_filesystem_has_more_allocation_groups() {
        let few = ["cowextsize=4"; 3];
        assert_eq!([300 << 20, (16 << 30) - 1, 32 << 40].map(data_options), few);
        let many = ["cowextsize=4,agcount=32"; 2];
        assert_eq!([16 << 30, (32 << 40) - 1].map(data_options), many);
    }
}
