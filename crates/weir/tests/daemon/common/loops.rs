//! Loop devices: block devices backed by files, and detached whenever a test ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::daemon::State;
use crate::common::program::{find, has, is_root, tool};
use crate::common::wait_until;

/// Default size of a device: enough for an XFS filesystem.
const SIZE_BYTES: u64 = 400 << 20;

/// True if this machine has the programs and rights for these tests.
pub fn can_be_tested() -> bool {
    has(&[
        "mkfs.xfs",
        "mkfs.ext4",
        "mkswap",
        "losetup",
        "wipefs",
        "addpart",
        "delpart",
        "xfs_io",
        "xfs_info",
        "xfs_repair",
    ]) && is_root()
}

/// A loop device. Dropping it unmounts its filesystem and detaches it.
pub struct Loop {
    path: PathBuf,
    image: PathBuf,
}

impl Loop {
    /// An empty device.
    pub fn blank(state: &State, name: &str) -> Loop {
        Loop::of_size(state, name, SIZE_BYTES)
    }

    /// An empty device of another size.
    pub fn of_size(state: &State, name: &str, bytes: u64) -> Loop {
        let image = state.beside(name);
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        Loop::attach(&image, &["--direct-io=on"])
    }

    /// A further device of the same file.
    pub fn again(&self, options: &[&str]) -> Loop {
        Loop::attach(&self.image, options)
    }

    /// A device of a file or of another device.
    pub fn attach(image: &Path, options: &[&str]) -> Loop {
        let arguments = ["--find", "--show"].iter().chain(options).copied();
        let arguments: Vec<_> = arguments.chain(image.to_str()).collect();
        Loop { path: tool("losetup", &arguments).trim().into(), image: image.to_owned() }
    }

    pub fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Name of the device without folders.
    pub fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }

    /// Mount points of the device.
    pub fn mounts(&self) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        fields.filter(|fields| fields[0] == self.path()).map(|fields| fields[1].to_owned()).collect()
    }

    /// Line of the device's mount, with its options.
    pub fn mount_options(&self) -> String {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.lines().find(|line| line.starts_with(&format!("{} ", self.path()))).unwrap().to_owned()
    }

    /// Signatures on the device, as `wipefs` lists them.
    pub fn signatures(&self) -> String {
        tool("wipefs", &["--no-act", "--noheadings", "--output", "TYPE", self.path()])
    }

    /// Detaches the device and waits for the end. A program that probes the device keeps it for a moment.
    pub fn detach(self) {
        let backing = Path::new("/sys/block").join(self.name()).join("loop/backing_file");
        let image = self.image.clone();
        drop(self);
        let is_attached =
            || fs::read_to_string(&backing).is_ok_and(|text| Path::new(text.trim_end()) == image);
        wait_until("the device is detached", || !is_attached());
    }

    /// Removes all signatures, as an operator would.
    pub fn wipe(&self) {
        tool("wipefs", &["--all", self.path()]);
    }
}

/// Runs a program that may fail. True if it succeeded.
fn try_to(program: &str, arguments: &[&str]) -> bool {
    let output = find(program).map(|program| Command::new(program).args(arguments).output());
    output.is_some_and(|output| output.is_ok_and(|output| output.status.success()))
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.mounts().iter().for_each(|place| _ = try_to("umount", &["-l", place]));
        try_to("losetup", &["--detach", self.path()]);
    }
}

/// A partition of a device, without a partition table.
pub struct Partition<'device> {
    device: &'device Loop,
}

impl Partition<'_> {
    /// The first partition of a device, which covers almost all of it.
    pub fn of(device: &Loop) -> Partition<'_> {
        tool("addpart", &[device.path(), "1", "2048", "700000"]);
        Partition { device }
    }

    pub fn path(&self) -> String {
        format!("{}p1", self.device.path())
    }
}

impl Drop for Partition<'_> {
    fn drop(&mut self) {
        try_to("umount", &["-l", &self.path()]);
        // A program that probes the partition keeps it for a moment.
        let remove = || try_to("delpart", &[self.device.path(), "1"]);
        if !remove() && !std::thread::panicking() {
            wait_until("the partition is gone", remove);
        }
    }
}
