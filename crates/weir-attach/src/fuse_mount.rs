//! FUSE mount: a filesystem of one file, mounted on a file.
//!
//! Whoever holds the device of the mount serves it. The mount ends once nobody holds the device, or nobody uses the
//! file. A mount below a block device is visible only until the file has its user: a mount that nobody serves for a while
//! holds up whoever looks at it, as `df` does.

use std::fs::{self, DirBuilder};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::busy::waiting;
use crate::device_users;
use crate::error::AttachError;
use crate::mount_table::{self, DeviceNumber};

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

/// Mounts a new filesystem at a node, which is created. `source` is shown in the mount table. Returns the device.
/// The mount is complete once a server reads from the device.
///
/// # Errors
/// If the host has no FUSE, the caller may not mount, or something is mounted there.
pub fn mount(place: &Path, source: &str) -> Result<OwnedFd, AttachError> {
    if let Some(folder) = place.parent() {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(AttachError::system("create", folder))?;
    }
    // A socket cannot be opened: while nothing is mounted there, nobody takes it for the volume.
    match rustix::fs::mknodat(CWD, place, FileType::Socket, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(AttachError::system("create", place)(error)),
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open(DEVICE, flags, Mode::empty());
    let device = device.map_err(AttachError::system("open", DEVICE))?;
    let options = format!(
        "fd={},rootmode={ROOT_MODE},user_id=0,group_id=0,allow_other,default_permissions",
        device.as_raw_fd()
    );
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
    let real = real_place(place);
    match mounts.iter().any(|mount| mount.place == real) {
        true => identity(place).map(Some),
        false => Ok(None),
    }
}

/// Ends a mount that nobody uses.
///
/// # Errors
/// If it is in use, or the caller may not unmount.
pub fn unmount(place: &Path) -> Result<(), AttachError> {
    let real = real_place(place);
    let found = rustix::fs::stat(place).map_err(AttachError::system("examine", place))?;
    let device = DeviceNumber::of(found.st_dev);
    let busy = || {
        let mounts = mount_table::places_of(device).unwrap_or_default();
        let mounts = mounts.into_iter().filter(|mount| *mount != real).collect();
        let users = device_users::users_of_file(&real);
        AttachError::Busy { device: place.to_owned(), mounts, users }
    };
    // Whoever has it mounted elsewhere, as a container has, does not hold this mount.
    if mount_table::is_mounted_elsewhere(device, &real) {
        return Err(busy());
    }
    waiting(|| match rustix::mount::unmount(place, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) => Err(busy()),
        ended => ended.map_err(AttachError::system("unmount", place)),
    })
}

/// The place as the kernel's tables have it: without links in its path.
fn real_place(place: &Path) -> PathBuf {
    let folder = place.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(place.file_name()).map_or_else(|| place.to_owned(), |(folder, name)| folder.join(name))
}

/// True if the caller sees that nothing is mounted at the place of a mount, as one in another mount namespace does.
/// Without the right to look, the answer is false.
pub fn is_out_of_sight(place: &Path) -> bool {
    match fs::metadata(place) {
        Ok(found) => !found.is_file(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
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
