//! Mounts of drives: mounting their filesystems, and finding the devices that hold them.
//!
//! A drive's filesystem is found by its UUID, whatever the name of its device, and is mounted below the state
//! folder. It stays mounted when the daemon ends. This module does not know the content of a drive.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use uuid::Uuid;
use weir_store::StoreError;
use weir_types::DriveId;

use crate::devices::probe::{BlockDevice, number_at};
use crate::devices::tables::DeviceNumber;
use crate::error::list_names;
use crate::records::DriveRecord;

/// Name of the folder of mounts in the state folder.
const MOUNTS_FOLDER: &str = "mounts";

/// State of a mount point.
enum Place {
    /// Nothing is mounted.
    Bare,
    /// The filesystem on this device is mounted.
    Mounted(DeviceNumber),
    /// A filesystem is mounted that only returns errors: its device is gone, or the kernel shut it down.
    Dead,
}

/// Mount point of a drive.
pub fn folder(state: &Path, drive: DriveId) -> PathBuf {
    state.join(MOUNTS_FOLDER).join(drive.to_string())
}

/// Mounts the XFS filesystem of a device.
///
/// Reading changes nothing on it (`noatime`), and no file on it counts as a program or a device. Freed space
/// is not discarded at once (no `discard`): on many drives a discard delays other requests. `fstrim` discards
/// the space at a quiet time.
///
/// # Errors
/// If the folder cannot be created or the filesystem cannot be mounted.
pub fn mount(device: &Path, folder: &Path) -> Result<(), StoreError> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| StoreError { action, path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("create", folder))?;
    let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    let mounted = rustix::mount::mount(device, folder, "xfs", flags, None);
    mounted.map_err(|error| failed("mount", device)(error.into()))
}

/// Unmounts a drive's mount point, if something is mounted there, and removes the folder. If the filesystem
/// is still in use, it is detached now, and the kernel unmounts it when its last user has gone.
pub fn release(folder: &Path) {
    let unmounted = match rustix::mount::unmount(folder, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) => {
            tracing::warn!(folder = %folder.display(), "a process still uses a folder that is unmounted");
            rustix::mount::unmount(folder, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
        }
        result => result,
    };
    let removed = match unmounted {
        // Nothing is mounted there, or the folder does not exist.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => fs::remove_dir(folder),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "the place of a drive that is no more stays");
    }
}

/// Unmounts filesystems of drives that do not exist: of a removed drive, or of one whose format a killed
/// daemon did not finish.
pub fn release_strangers(state: &Path, drives: &BTreeSet<DriveId>) {
    let Ok(entries) = fs::read_dir(state.join(MOUNTS_FOLDER)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| Uuid::try_parse(name).ok()).map(DriveId);
        if id.is_some_and(|id| !drives.contains(&id)) {
            tracing::info!(folder = %entry.path().display(), "no drive is mounted here any more");
            release(&entry.path());
        }
    }
}

/// Mounts the filesystem of a drive that is a device, and updates the record with the mount point and the
/// device.
///
/// # Errors
/// The reason why the drive is missing, in words.
pub fn bring(state: &Path, record: &mut DriveRecord) -> Result<(), String> {
    let Some(device) = &mut record.device else { return Ok(()) };
    // The mount point follows the state folder, as the default drive does.
    record.path = folder(state, record.id);
    let number = match look(&record.path) {
        Place::Mounted(number) => number,
        there => {
            if matches!(there, Place::Dead) {
                release(&record.path);
            }
            let found = find(device.filesystem, &device.path)?;
            mount(&found.path, &record.path).map_err(|error| error.to_string())?;
            tracing::info!(drive = %record.name, device = %found.path.display(), "mounted");
            found.number
        }
    };
    let found = BlockDevice::with(number).map_err(|error| format!("device {number}: {error}"))?;
    device.is_rotational = found.is_rotational();
    device.path = found.path;
    Ok(())
}

/// State of a mount point. A mounted filesystem is on another device than the folder above it.
fn look(folder: &Path) -> Place {
    let outside = folder.parent().and_then(|parent| parent.metadata().ok()).map(|found| found.dev());
    match folder.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Place::Bare,
        Err(_) => Place::Dead,
        Ok(found) if Some(found.dev()) == outside => Place::Bare,
        Ok(found) if fs::read_dir(folder).is_ok() => Place::Mounted(found.dev().into()),
        Ok(_) => Place::Dead,
    }
}

/// The device with a filesystem: the last known one, or any other that has it now.
fn find(filesystem: Uuid, last: &Path) -> Result<BlockDevice, String> {
    let has = |device: &BlockDevice| {
        // A member of a RAID or a path of a multipath disk looks like the whole device.
        matches!(device.filesystem(), Ok(Some(found)) if found == filesystem) && !device.is_held()
    };
    let known = number_at(last).and_then(|number| BlockDevice::with(number).ok());
    if let Some(device) = known.filter(has) {
        return Ok(device);
    }
    let last = last.display();
    let all = BlockDevice::list().map_err(|error| format!("block devices cannot be listed: {error}"))?;
    let mut found: Vec<_> = all.into_iter().filter(has).collect();
    match (found.pop(), found.len()) {
        (Some(device), 0) => Ok(device),
        (None, _) => {
            Err(format!("no block device has the filesystem {filesystem}, which was last seen on {last}"))
        }
        (Some(device), _) => {
            let paths = list_names(found.iter().chain([&device]).map(|device| device.path.display()));
            Err(format!("several block devices have the filesystem {filesystem}: {paths}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_mount_point_is_bare_and_removed() {
        let state = tempfile::tempdir().unwrap();
        let drives = [1, 2].map(|number| DriveId(Uuid::from_u128(number)));
        let folders = drives.map(|drive| folder(state.path(), drive));
        for folder in &folders {
            assert!(matches!(look(folder), Place::Bare));
            fs::create_dir_all(folder).unwrap();
            assert!(matches!(look(folder), Place::Bare));
        }
        let stranger = folders[0].with_file_name("what-somebody-put-here");
        fs::create_dir(&stranger).unwrap();
        // A folder with content is left unchanged.
        fs::write(folders[0].join("file"), "").unwrap();
        release_strangers(state.path(), &BTreeSet::new());
        assert!(folders[0].exists() && !folders[1].exists() && stranger.exists());
        fs::create_dir(&folders[1]).unwrap();
        release_strangers(state.path(), &BTreeSet::from([drives[1]]));
        assert!(folders[1].exists());
        release(&folders[1]);
        release(&folders[1]);
        assert!(!folders[1].exists());
    }

    #[test]
    fn missing_device_is_reported() {
        let error = find(Uuid::from_u128(7), Path::new("/dev/no-such-device"));
        if let Err(error) = error {
            let expected =
                "no block device has the filesystem 00000000-0000-0000-0000-000000000007, which was last";
            assert!(error.starts_with(expected) || error.starts_with("block devices cannot"), "{error}");
        }
    }
}
