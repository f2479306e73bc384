//! Loop devices: a file becomes a block device.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::AttachError;
use crate::mount_table;

/// The program of util-linux that sets loop devices up.
const LOSETUP: &str = "losetup";
/// Logical block size of the device in bytes: what every filesystem takes.
const SECTOR_BYTES: &str = "512";

/// Makes a loop device on a file, with direct I/O, so that no data is cached twice. Returns its path.
///
/// # Errors
/// If there is no free device, or the file cannot be used.
pub fn attach(file: &Path, is_read_only: bool) -> Result<PathBuf, AttachError> {
    let file = file.to_string_lossy();
    let mut arguments = vec!["--find", "--show", "--direct-io=on", "--sector-size", SECTOR_BYTES];
    arguments.extend(is_read_only.then_some("--read-only"));
    arguments.push(&file);
    Ok(PathBuf::from(losetup(&arguments)?.trim()))
}

/// Makes the device as large as its file is now.
///
/// # Errors
/// If the device is gone.
pub fn resize(device: &Path) -> Result<(), AttachError> {
    losetup(&["--set-capacity", &device.to_string_lossy()]).map(drop)
}

/// Gives a device back that nobody uses.
///
/// # Errors
/// If the device is in use.
pub fn detach(device: &Path) -> Result<(), AttachError> {
    refuse_busy(device)?;
    losetup(&["--detach", &device.to_string_lossy()]).map(drop)
}

/// Gives a device back as soon as its last user has gone.
///
/// # Errors
/// If the system refuses.
pub fn detach_later(device: &Path) -> Result<(), AttachError> {
    losetup(&["--detach", &device.to_string_lossy()]).map(drop)
}

/// Returns the identity of the file that the device is on, as the kernel has it: filesystem and inode. It is the
/// same in every mount namespace, unlike the path. `None` if the device is on no file. The kernel asks the file, so
/// it must be served.
///
/// # Errors
/// If the kernel could not be asked.
pub fn file_of(device: &Path) -> Result<Option<String>, AttachError> {
    let name = device.file_name().unwrap_or_default();
    // Only a device that is on a file has this folder.
    if !Path::new("/sys/block").join(name).join("loop").exists() {
        return Ok(None);
    }
    let columns = ["--list", "--noheadings", "--raw", "--output", "BACK-MAJ:MIN,BACK-INO"];
    let device = device.to_string_lossy();
    let arguments: Vec<&str> = columns.into_iter().chain([&*device]).collect();
    let identity = losetup(&arguments)?.trim().replace(' ', ":");
    Ok((!identity.is_empty()).then_some(identity))
}

/// Returns the device that is on this file, if the file is in the mount namespace of the caller.
///
/// # Errors
/// If the list of devices cannot be read.
pub fn on(file: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        // A device without a file has no such entry.
        let found = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        // The kernel says so of a file that was unlinked or unmounted.
        if Path::new(found.trim_end().trim_end_matches(" (deleted)")) == file {
            return Ok(Some(Path::new("/dev").join(entry.file_name())));
        }
    }
    Ok(None)
}

/// Refuses a device that is mounted, or that another device or program holds alone.
fn refuse_busy(device: &Path) -> Result<(), AttachError> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(device, flags, Mode::empty()) {
        Ok(_) => Ok(()),
        Err(Errno::BUSY) => {
            let number = rustix::fs::stat(device).map(|found| found.st_rdev).unwrap_or_default();
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            let mounts = mount_table::mounts_of(major, minor).unwrap_or_default();
            Err(AttachError::Busy { device: device.to_owned(), mounts })
        }
        Err(error) => Err(AttachError::system("open", device)(error)),
    }
}

fn losetup(arguments: &[&str]) -> Result<String, AttachError> {
    let failed = |words: String| AttachError::Program { program: LOSETUP, words };
    let mut command = Command::new(LOSETUP);
    let output = command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(failed(words.lines().map(str::trim).collect::<Vec<_>>().join("; ")))
}
