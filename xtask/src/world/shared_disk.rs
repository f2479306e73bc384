//! Block device whose filesystem supports shared extents: a loop device over a file on a disk, for a daemon
//! to format.

use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{interrupt, tools};

/// Bytes that are written at once.
const CHUNK_BYTES: usize = 4 << 20;

/// Loop device without the page cache, over a new file that is written in full. Writes to the device
/// therefore allocate nothing beneath it, as on a disk. Its filesystems are unmounted when it is dropped.
pub struct SharedDisk {
    path: PathBuf,
}

impl SharedDisk {
    /// Creates a device of this size over a new file in a new folder.
    ///
    /// First it removes the remains of killed earlier runs, whose names differ only in their numbers.
    ///
    /// # Errors
    /// If there are no loop devices, or this user may not use them.
    pub fn new(file: &Path, bytes: u64) -> Result<SharedDisk> {
        release_leftovers(file)?;
        write_zeroes(file, bytes).with_context(|| format!("cannot make {}", file.display()))?;
        let path = losetup(&["--find", "--show", "--direct-io=on", &file.to_string_lossy()])?;
        interrupt::remember_device(Path::new(&path));
        Ok(SharedDisk { path: path.into() })
    }

    /// Returns the path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn write_zeroes(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = File::create(path)?;
    std::io::copy(&mut std::io::repeat(0).take(bytes), &mut BufWriter::with_capacity(CHUNK_BYTES, &file))?;
    file.sync_all()
}

impl Drop for SharedDisk {
    fn drop(&mut self) {
        interrupt::forget_device(&self.path);
        release(&self.path);
    }
}

/// Unmounts the filesystems of a loop device, and detaches it: at once, or when its last user ends.
pub fn release(device: &Path) {
    let path = device.to_string_lossy();
    thaw(&path);
    // The device may not be mounted. Other failures cannot be handled here.
    if let Some(unmount) = tools::find("umount") {
        let _ = Command::new(unmount).args(["--lazy", "--all-targets", &path]).output();
    }
    let _ = losetup(&["--detach", &path]);
}

/// Thaws the filesystems of a device. A frozen filesystem cannot be unmounted, and its users wait for ever.
fn thaw(device: &str) {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mounted =
        mounts.lines().filter_map(|line| line.strip_prefix(device)?.strip_prefix(' ')?.split(' ').next());
    for point in mounted {
        if let Some(fsfreeze) = tools::find("fsfreeze") {
            // The filesystem is seldom frozen.
            let _ = Command::new(fsfreeze).args(["--unfreeze", point]).output();
        }
    }
}

/// Removes the devices and folders of runs that ended without doing so.
fn release_leftovers(file: &Path) -> Result<()> {
    let listed = losetup(&["--list", "--noheadings", "--output", "NAME,BACK-FILE"])?;
    let of_runs = listed.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let of_runs = of_runs.map(|(device, behind)| (device, behind.trim()));
    for (device, behind) in of_runs.filter(|(_, behind)| is_leftover(Path::new(behind), file, is_running)) {
        release(Path::new(device));
        if let Some(folder) = Path::new(behind).parent().filter(|folder| folder.exists()) {
            std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
    }
    Ok(())
}

/// Returns true if `behind` belongs to an earlier run that has ended. Its path is that of `file`,
/// `NAME-PID/FILE`, with the id of another process.
fn is_leftover(behind: &Path, file: &Path, is_running: impl Fn(u32) -> bool) -> bool {
    let parts = |path: &Path| {
        let name = path.file_name()?.to_str()?.split(' ').next()?.to_owned();
        let (run, process) = path.parent()?.file_name()?.to_str()?.rsplit_once('-')?;
        Some((name, run.to_owned(), process.parse::<u32>().ok()?))
    };
    match (parts(behind), parts(file)) {
        (Some((name, run, process)), Some((own_name, own_run, _))) => {
            name == own_name && run == own_run && !is_running(process)
        }
        _ => false,
    }
}

fn is_running(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

fn losetup(arguments: &[&str]) -> Result<String> {
    let program = tools::find("losetup").context("no losetup")?;
    let output = Command::new(&program).args(arguments).output().context("cannot run losetup")?;
    ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_remains_of_ended_runs_are_removed() {
        let own = Path::new("/var/tmp/weir-bench-snapshots-77/disk");
        let is_leftover = |behind: &str| is_leftover(Path::new(behind), own, |process| process == 77);
        assert!(is_leftover("/var/tmp/weir-bench-snapshots-12/disk"));
        assert!(is_leftover("/tmp/weir-bench-snapshots-12/disk (deleted)"));
        for other in [
            "/var/tmp/weir-bench-snapshots-77/disk",
            "/var/tmp/weir-bench-other-12/disk",
            "/var/tmp/weir-bench-snapshots-12/image",
            "/var/tmp/weir-bench-snapshots/disk",
            "/disk",
        ] {
            assert!(!is_leftover(other), "{other}");
        }
    }
}
