//! Block devices: who uses one, and holding one so that it cannot be mounted.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::busy::waiting;
use crate::device_users;
use crate::error::AttachError;
use crate::mount_table::{self, DeviceNumber};

/// Opens a device that nobody uses so that it cannot be mounted meanwhile. Whoever has just used it gets a moment.
///
/// # Errors
/// If it is in use.
pub fn open_unused(device: &Path) -> Result<OwnedFd, AttachError> {
    waiting(|| open_alone(device))
}

/// Opens a device so that it cannot be mounted meanwhile. Refuses one that is mounted, that another device or program
/// holds alone, or that a process has opened.
fn open_alone(device: &Path) -> Result<OwnedFd, AttachError> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(device, flags, Mode::empty()) {
        Ok(alone) if device_users::users_of(number_of(device)).is_empty() => Ok(alone),
        Ok(_) | Err(Errno::BUSY) => Err(busy(device)),
        Err(error) => Err(AttachError::system("open", device)(error)),
    }
}

/// The places where a device is mounted, in the mount namespace of the caller.
///
/// # Errors
/// If the device or the mount table cannot be examined.
pub fn mounts_of(device: &Path) -> Result<Vec<PathBuf>, AttachError> {
    let found = rustix::fs::stat(device).map_err(AttachError::system("examine", device))?;
    let number = DeviceNumber::of(found.st_rdev);
    mount_table::places_of(number).map_err(AttachError::system("read the mount table for", device))
}

/// The error that a device is in use.
pub(crate) fn busy(device: &Path) -> AttachError {
    let number = number_of(device);
    let mounts = mount_table::places_of(DeviceNumber::of(number)).unwrap_or_default();
    AttachError::Busy { device: device.to_owned(), mounts, users: device_users::users_of(number) }
}

/// The folder where the kernel shows the attributes of a device.
pub(crate) fn attributes_of(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

fn number_of(device: &Path) -> u64 {
    rustix::fs::stat(device).map(|found| found.st_rdev).unwrap_or_default()
}
