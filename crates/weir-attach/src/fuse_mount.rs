//! FUSE mount: a filesystem of one file, mounted on a file.
//!
//! Whoever holds the device of the mount serves it. The mount ends once nobody holds the device.

use std::fs::{self, DirBuilder, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::error::AttachError;

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

/// Unmounts the filesystem and removes the file it was mounted on. A filesystem that is gone already is no error.
/// With `is_forced`, one that is in use is taken out of sight, and ends with its last user.
///
/// # Errors
/// If the file is in use.
pub fn unmount(place: &Path, is_forced: bool) -> Result<(), AttachError> {
    let forced = if is_forced { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(place, UnmountFlags::NOFOLLOW | forced) {
        // Nothing is mounted there, or there is nothing.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(Errno::BUSY) => return Err(AttachError::Busy { device: place.to_owned(), mounts: Vec::new() }),
        Err(error) => return Err(AttachError::system("unmount", place)(error)),
    }
    match fs::remove_file(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(AttachError::system("remove", place)(error))
        }
        _ => Ok(()),
    }
}
