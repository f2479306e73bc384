//! FUSE mount: a filesystem of one file, mounted on a file.
//!
//! Whoever holds the device of the mount serves it. The mount ends once nobody holds the device, or nobody uses the
//! file. A mount below a block device is visible only until the file has its user: a mount that nobody serves for a while
//! holds up whoever looks at it, as `df` does.

use std::fs::{self, DirBuilder, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::busy::waiting;
use crate::device_users;
use crate::error::AttachError;
use crate::mount_table;

/// The device of the kernel's FUSE client.
const DEVICE: &str = "/dev/fuse";
/// Type of the filesystem, as the mount table shows it.
const KIND: &str = "fuse.weir";
/// Type of the root of the filesystem, in the kernel's octal form: a regular file.
const ROOT_MODE: &str = "100600";

/// Returns true if this host has FUSE.
pub fn is_available() -> bool {
    Path::new(DEVICE).exists()
}

/// Mounts a new filesystem at a file, which is created. `source` is shown in the mount table. Returns the device.
/// The mount is complete once a server reads from the device.
///
/// # Errors
/// If the host has no FUSE, the caller may not mount, or something is mounted there.
pub fn mount(place: &Path, source: &str) -> Result<OwnedFd, AttachError> {
    if let Some(folder) = place.parent() {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(AttachError::system("create", folder))?;
    }
    let created = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(place);
    created.map_err(AttachError::system("create", place))?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open(DEVICE, flags, Mode::empty());
    let device = device.map_err(AttachError::system("open", DEVICE))?;
    let options = format!("fd={},rootmode={ROOT_MODE},user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let options = std::ffi::CString::new(options).expect("the options have no zero byte");
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME;
    let mounted = rustix::mount::mount(source, place, KIND, flags, options.as_c_str());
    mounted.map_err(AttachError::system("mount", place))?;
    Ok(device)
}

/// Returns the identity of the file, as [`crate::loop_device::file_of`] does. The file must be served.
///
/// # Errors
/// If the file cannot be examined.
pub fn identity(place: &Path) -> Result<String, AttachError> {
    let found = rustix::fs::stat(place).map_err(AttachError::system("examine", place))?;
    let (major, minor) = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    Ok(format!("{major}:{minor}:{}", found.st_ino))
}

/// Returns the identity of the file that is mounted at a place; `None` if nothing is mounted there. The file must be
/// served.
///
/// # Errors
/// If the mount table or the file cannot be examined.
pub fn identity_of_mounted(place: &Path) -> Result<Option<String>, AttachError> {
    let mounts = mount_table::read().map_err(AttachError::system("read the mount table for", place))?;
    match mounts.iter().any(|mount| mount.place == place) {
        true => identity(place).map(Some),
        false => Ok(None),
    }
}

/// Ends a mount that nobody uses.
///
/// # Errors
/// If it is in use, or the caller may not unmount.
pub fn unmount(place: &Path) -> Result<(), AttachError> {
    waiting(|| match rustix::mount::unmount(place, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) => Err(AttachError::Busy {
            device: place.to_owned(),
            mounts: Vec::new(),
            users: device_users::users_of_file(place),
        }),
        ended => ended.map_err(AttachError::system("unmount", place)),
    })
}

/// Takes the mount out of sight and removes the file it was mounted on. It stays for whoever has opened the file. A
/// mount that is gone already is no error.
///
/// # Errors
/// If the caller may not unmount.
pub fn hide(place: &Path) -> Result<(), AttachError> {
    match rustix::mount::unmount(place, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
        // Nothing is mounted there, or there is nothing.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(error) => return Err(AttachError::system("unmount", place)(error)),
    }
    match fs::remove_file(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(AttachError::system("remove", place)(error))
        }
        _ => Ok(()),
    }
}
