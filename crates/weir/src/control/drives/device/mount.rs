//! Mounting the filesystems of drives, and finding the devices that they are on.
//!
//! A drive's filesystem is mounted below the state folder by its UUID, whatever its device is called meanwhile, and
//! stays mounted when the daemon ends. It knows nothing of what is on it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use uuid::Uuid;
use weir_types::DriveId;

use super::super::super::model::list_names;
use super::super::super::records::DriveRecord;
use super::probe::{BlockDevice, number_at};
use super::tables::DeviceNumber;
use weir_store::StoreError;

/// Name of the folder, in the state folder, that drives are mounted in.
const MOUNTS_FOLDER: &str = "mounts";

/// What is at the place where a drive should be mounted.
enum Place {
    /// Nothing is mounted.
    Bare,
    /// The filesystem of this device.
    Mounted(DeviceNumber),
    /// A filesystem that only answers errors: its device is gone, or the kernel gave it up.
    Dead,
}

/// Where a drive is mounted.
pub fn folder(state: &Path, drive: DriveId) -> PathBuf {
    state.join(MOUNTS_FOLDER).join(drive.to_string())
}

/// Mounts the XFS filesystem of a device.
///
/// Reading changes nothing on it (`noatime`), and nothing on it is ever a program or a device. Space that is freed is
/// not told to the device at once (no `discard`): on many drives that holds up other requests, and `fstrim` does it
/// when it harms nobody.
///
/// # Errors
/// If the folder cannot be made or the filesystem not mounted.
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

/// Takes away what is mounted at a drive's place, if something is, and the place. If somebody is still there, it is
/// taken from sight now, and truly unmounted when they are gone.
pub fn release(folder: &Path) {
    let unmounted = match rustix::mount::unmount(folder, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) => {
            tracing::warn!(folder = %folder.display(), "somebody still uses what is unmounted");
            rustix::mount::unmount(folder, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
        }
        result => result,
    };
    let removed = match unmounted {
        // Nothing is mounted there, or nothing is there.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => fs::remove_dir(folder),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "the place of a drive that is no more stays");
    }
}

/// Takes away what is mounted for drives that there are not: of one that was removed, or never finished, when a daemon
/// was killed.
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

/// Sees to it that the filesystem of a drive that is a device is mounted, and that its record says where and which
/// device it is.
///
/// # Errors
/// Why the drive is missing, in words.
pub fn bring(state: &Path, record: &mut DriveRecord) -> Result<(), String> {
    let Some(device) = &mut record.device else { return Ok(()) };
    // The place follows the state folder, as the default drive does.
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

/// What is mounted at a place: it is on another device than the folder around it then.
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

/// The device that has a filesystem: the one that had it last, or whichever has it now.
fn find(filesystem: Uuid, last: &Path) -> Result<BlockDevice, String> {
    let has = |device: &BlockDevice| {
        // A part of a RAID or of several ways to one disk looks like the whole.
        matches!(device.filesystem(), Ok(Some(found)) if found == filesystem) && !device.is_held()
    };
    let known = number_at(last).and_then(|number| BlockDevice::with(number).ok());
    if let Some(device) = known.filter(has) {
        return Ok(device);
    }
    let last = last.display();
    let all = BlockDevice::all().map_err(|error| format!("block devices cannot be listed: {error}"))?;
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
    fn a_place_where_nothing_is_mounted_is_bare_and_goes_if_no_drive_has_it() {
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
        // What holds anything is left alone.
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
    fn a_device_that_is_not_there_is_told() {
        let error = find(Uuid::from_u128(7), Path::new("/dev/no-such-device"));
        if let Err(error) = error {
            let expected =
                "no block device has the filesystem 00000000-0000-0000-0000-000000000007, which was last";
            assert!(error.starts_with(expected) || error.starts_with("block devices cannot"), "{error}");
        }
    }
}
