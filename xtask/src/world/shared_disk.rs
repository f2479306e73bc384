//! A block device whose filesystem can share what files hold: a loop device over a file on a disk, for a daemon to format.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::tools;

/// A loop device past the page cache over a new sparse file. What is mounted of it is unmounted when it goes.
pub struct SharedDisk {
    path: PathBuf,
}

impl SharedDisk {
    /// Makes a device of so many bytes, of a new file.
    ///
    /// # Errors
    /// If there are no loop devices, or they are not for this user.
    pub fn new(file: &Path, bytes: u64) -> Result<SharedDisk> {
        let create = || File::create(file)?.set_len(bytes);
        create().with_context(|| format!("cannot make {}", file.display()))?;
        let path = losetup(&["--find", "--show", "--direct-io=on", &file.to_string_lossy()])?;
        Ok(SharedDisk { path: path.into() })
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SharedDisk {
    fn drop(&mut self) {
        let path = self.path.to_string_lossy();
        // It may not be mounted, and nobody could do more.
        if let Some(unmount) = tools::find("umount") {
            let _ = Command::new(unmount).args(["--lazy", "--all-targets", &path]).output();
        }
        let _ = losetup(&["--detach", &path]);
    }
}

fn losetup(arguments: &[&str]) -> Result<String> {
    let program = tools::find("losetup").context("no losetup")?;
    let output = Command::new(&program).args(arguments).output().context("cannot run losetup")?;
    ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
