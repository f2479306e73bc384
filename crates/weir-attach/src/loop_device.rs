//! Loop devices: a file becomes a block device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::block_device::{attributes_of, busy, open_unused};
use crate::busy::waiting;
use crate::error::AttachError;

/// The program of util-linux that sets loop devices up.
const LOSETUP: &str = "losetup";
/// It ends with the daemon: one that outlived it would make a device that nobody knows.
const ENDS_WITH_CALLER: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", LOSETUP];
/// Logical block size of the device in bytes: what every filesystem takes.
const SECTOR_BYTES: &str = "512";

/// Returns the path of a device that is on no file. Another program may get it first.
///
/// # Errors
/// If there is no free device.
pub fn free() -> Result<PathBuf, AttachError> {
    Ok(PathBuf::from(losetup(&["--find"])?.trim()))
}

/// Puts a device on a file, with direct I/O, so that no data is cached twice. False if another program has got the
/// device.
///
/// # Errors
/// If the file cannot be used.
pub fn attach(device: &Path, file: &Path, is_read_only: bool) -> Result<bool, AttachError> {
    let (path, file) = (device.to_string_lossy(), file.to_string_lossy());
    let mut arguments = vec!["--direct-io=on", "--sector-size", SECTOR_BYTES];
    arguments.extend(is_read_only.then_some("--read-only"));
    arguments.extend([&*path, &*file]);
    match losetup(&arguments) {
        Ok(_) => Ok(true),
        Err(_) if is_on_file(device) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the device as large as its file is now. The file must be served.
///
/// # Errors
/// If the device is gone.
pub fn resize(device: &Path) -> Result<(), AttachError> {
    // Older kernels take the size that they saw last: this lets them look at the file.
    file_of(device)?;
    losetup(&["--set-capacity", &device.to_string_lossy()]).map(drop)
}

/// Gives a device back that nobody uses. `file` is the identity of its file ([`file_of`]).
///
/// # Errors
/// If the device is in use.
pub fn detach(device: &Path, file: &str) -> Result<(), AttachError> {
    let alone = open_unused(device)?;
    // While this waited, the device may have gone with its last user, and come back as another program's. Now it stays.
    if file_of(device)?.as_deref() != Some(file) {
        return Ok(());
    }
    release(device)?;
    drop(alone);
    // The kernel keeps a device for a user that came meanwhile. Otherwise, another program may have it already.
    waiting(|| if file_of(device)?.as_deref() == Some(file) { Err(busy(device)) } else { Ok(()) })
}

/// Gives a device back as soon as its last user has gone. One that is not on the file with this identity is no error.
///
/// # Errors
/// If the system refuses.
pub fn detach_later(device: &Path, file: &str) -> Result<(), AttachError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let held = match rustix::fs::open(device, flags, Mode::empty()) {
        // The device is not there, or is on no file.
        Err(Errno::NOENT | Errno::NXIO) => return Ok(()),
        held => held.map_err(AttachError::system("open", device))?,
    };
    let found = file_of(device)?;
    let released = if found.as_deref() == Some(file) { release(device) } else { Ok(()) };
    drop(held);
    released
}

fn release(device: &Path) -> Result<(), AttachError> {
    losetup(&["--detach", &device.to_string_lossy()]).map(drop)
}

/// Returns the identity of the file that the device is on, as the kernel has it: filesystem and inode. It is the
/// same in every mount namespace, unlike the path. `None` if the device is on no file. The kernel may ask the file,
/// so it must be served.
///
/// # Errors
/// If the kernel could not be asked.
pub fn file_of(device: &Path) -> Result<Option<String>, AttachError> {
    if !is_on_file(device) {
        return Ok(None);
    }
    let columns = ["--list", "--noheadings", "--raw", "--output", "BACK-MAJ:MIN,BACK-INO"];
    let device = device.to_string_lossy();
    let arguments: Vec<&str> = columns.into_iter().chain([&*device]).collect();
    Ok(identity_in(&losetup(&arguments)?))
}

/// Reads the two columns of an identity. util-linux pads the first one with spaces, and writes those in its raw form.
fn identity_in(columns: &str) -> Option<String> {
    let columns = columns.replace("\\x20", " ");
    let identity = columns.split_whitespace().collect::<Vec<_>>().join(":");
    (!identity.is_empty()).then_some(identity)
}

/// True if the device goes with its last user: [`detach`] has met one that came meanwhile.
pub fn is_leaving(device: &Path) -> bool {
    fs::read_to_string(attributes_of(device).join("loop/autoclear")).is_ok_and(|flag| flag.trim_end() == "1")
}

fn is_on_file(device: &Path) -> bool {
    // Only such a device has this folder.
    attributes_of(device).join("loop").exists()
}

fn losetup(arguments: &[&str]) -> Result<String, AttachError> {
    let failed = |words: String| AttachError::Program { program: LOSETUP, words };
    let mut command = Command::new(ENDS_WITH_CALLER[0]);
    command.args(&ENDS_WITH_CALLER[1..]);
    let output = command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(failed(words.lines().map(str::trim).collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_read_with_and_without_padding() {
        for columns in ["0:41 1\n", "\\x20\\x200:41\\x20 1\n", "  0:41      1\n"] {
            assert_eq!(identity_in(columns).as_deref(), Some("0:41:1"), "{columns:?}");
        }
        assert_eq!(identity_in(" \n"), None);
    }
}
