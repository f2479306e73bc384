//! Volumes under `fsx`, the file system exerciser: random reads, writes and punched holes at any alignment, each
//! read compared with all that was written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::attached::{AttachedFile, alone, assert_nothing_left, can_be_tested};
use crate::common::daemon::{Daemon, State};
use crate::common::program::{find, has, is_root, tool};
use crate::common::random::Random;
use crate::common::wait_until;

/// Small, so that operations meet each other.
const SIZE: &str = "8MiB";
/// Operations on each volume.
const OPERATIONS: &str = "3000";
/// The operations that a file of a network or FUSE filesystem without a cache permits.
const CONFIGURATION: &str = "blockmode = true
[opsize]
max = 300000
[weights]
read = 10
write = 10
punch_hole = 5
fsync = 1
fdatasync = 1
truncate = 0
mapread = 0
mapwrite = 0
";

/// Creates a volume of each kind, and returns their names.
fn volumes(daemon: &Daemon) -> [&'static str; 3] {
    for (drive, class) in
        [("one", "high"), ("two", "high"), ("three", "high"), ("four", "low"), ("five", "low")]
    {
        let path = daemon.state().beside(drive);
        fs::create_dir_all(&path).unwrap();
        daemon.ok(&["drive", "add", path.to_str().unwrap(), "--class", class, "--no-measurement"]);
    }
    let create = |name: &str, more: &[&str]| {
        daemon.ok(&[&["volume", "create", name, "--size", SIZE], more].concat());
    };
    create("single", &[]);
    create("mirrored", &["--io-priority", "low", "--replicas", "2"]);
    // Its writes pass through a journal.
    create("hybrid", &["--template", "hybrid"]);
    assert!(daemon.json(&["journal", "list"])["items"][0].is_object(), "there are journals");
    ["single", "mirrored", "hybrid"]
}

/// Runs fsx on a file or device.
fn exercise(state: &State, path: &Path) {
    let configuration = state.beside("fsx.toml");
    fs::write(&configuration, CONFIGURATION).unwrap();
    let seed = Random::seeded().next().to_string();
    let words = |path: &Path| path.to_str().unwrap().to_owned();
    let folder = words(configuration.parent().unwrap());
    tool("fsx", &["-N", OPERATIONS, "-S", &seed, "-f", &words(&configuration), "-P", &folder, &words(path)]);
}

/// A volume as a file, by libnbd's FUSE client.
struct NbdFuse {
    child: Child,
    file: PathBuf,
}

impl NbdFuse {
    fn mount(daemon: &Daemon, volume: &str) -> NbdFuse {
        let file = daemon.state().beside(&format!("{volume}.img"));
        fs::write(&file, "").unwrap();
        let mut command = Command::new(find("nbdfuse").unwrap());
        let child = command.arg(&file).arg(daemon.uri(volume)).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the file is as large as the volume", || fs::metadata(&file).unwrap().len() > 0);
        NbdFuse { child, file }
    }
}

impl Drop for NbdFuse {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.file).status();
        let _ = self.child.wait();
    }
}

#[test]
fn volumes_are_exercised_as_files_of_libnbd() {
    if !has(&["fsx", "nbdfuse"]) || !is_root() {
        return;
    }
    let daemon = Daemon::fresh_in_memory();
    for volume in volumes(&daemon) {
        let mounted = NbdFuse::mount(&daemon, volume);
        exercise(daemon.state(), &mounted.file);
    }
}

#[test]
fn volumes_are_exercised_as_files_of_their_own() {
    if !has(&["fsx"]) || !can_be_tested() {
        return;
    }
    let _alone = alone();
    let daemon = Daemon::fresh_in_memory();
    for volume in volumes(&daemon) {
        let attached = AttachedFile::of(&daemon, volume);
        exercise(daemon.state(), &attached.path);
        daemon.ok(&["detach", volume]);
    }
    assert_nothing_left(&daemon);
}
