//! What attachments leave on the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::json;

use super::daemon::{Daemon, State, end_keeper};
use super::program::{has, is_root};
use super::skip;

/// True if this machine has the programs and rights to attach.
pub fn can_be_tested() -> bool {
    if !Path::new("/dev/fuse").exists() {
        skip("this machine has no FUSE");
        return false;
    }
    has(&["mkfs.ext4", "fsck.ext4", "losetup", "fio", "blkdiscard", "blockdev", "fstrim"]) && is_root()
}

/// Devices that were there before the test whose turn it is: other daemons serve them, or a killed run left them.
static DEVICES_BEFORE: Mutex<Vec<HiddenDevice>> = Mutex::new(Vec::new());

/// The right to attach. Devices of hidden mounts do not tell whose they are, so one test at a time has any, and those
/// from before it are not its own.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed has cleared what it made.
    let turn = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    *devices_before() = hidden_devices();
    turn
}

fn devices_before() -> MutexGuard<'static, Vec<HiddenDevice>> {
    DEVICES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files of mounts that are in sight.
pub fn visible_files(state: &State) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.path().join("attachments"));
    entries.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

/// A volume that is attached as a file. Dropping it ends what is left of it, also of a failed test: whoever looks at a
/// file whose daemon is gone would wait for ever.
pub struct AttachedFile {
    state: State,
    pub path: PathBuf,
}

impl AttachedFile {
    pub fn of(daemon: &Daemon, volume: &str) -> AttachedFile {
        let path = daemon.ok(&["attach", volume, "--method", "fuse-file"]);
        AttachedFile { state: daemon.state().clone(), path: PathBuf::from(path.trim()) }
    }
}

impl Drop for AttachedFile {
    fn drop(&mut self) {
        if visible_files(&self.state).is_empty() {
            return;
        }
        end_keeper(&self.state.path());
        for file in visible_files(&self.state) {
            let _ = Command::new("umount").arg("-l").arg(file).stderr(Stdio::null()).status();
        }
    }
}

/// A block device on a file of a hidden mount.
#[derive(PartialEq)]
struct HiddenDevice {
    path: PathBuf,
    /// The kernel's number of this use of the path: another use of it has a greater one.
    sequence: String,
}

impl HiddenDevice {
    fn at(path: PathBuf) -> Option<HiddenDevice> {
        let file = fs::read_to_string(path.join("loop/backing_file")).ok()?;
        let sequence = fs::read_to_string(path.join("diskseq")).ok()?;
        (file.trim_end() == "/").then_some(HiddenDevice { path, sequence })
    }
}

fn hidden_devices() -> Vec<HiddenDevice> {
    let entries = fs::read_dir("/sys/block").unwrap();
    entries.filter_map(|entry| HiddenDevice::at(entry.unwrap().path())).collect()
}

/// Block devices on files of hidden mounts that the test made whose turn it is.
pub fn devices() -> Vec<PathBuf> {
    let mut devices = hidden_devices();
    let before = devices_before();
    devices.retain(|device| !before.contains(device));
    devices.into_iter().map(|device| device.path).collect()
}

pub fn assert_no_mount_in_sight(state: &State) {
    assert_eq!(visible_files(state), Vec::<PathBuf>::new());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(state.path().to_str().unwrap()), "{mounts}");
}

/// Asserts that nothing of any attachment is left on the host.
pub fn assert_nothing_left(daemon: &Daemon) {
    assert_eq!(daemon.json(&["attachment", "list"])["items"], json!([]));
    assert_no_mount_in_sight(daemon.state());
    assert_eq!(devices(), Vec::<PathBuf>::new());
    let links = daemon.state().path().join("devices/default");
    assert!(!links.exists(), "{}", links.display());
}
