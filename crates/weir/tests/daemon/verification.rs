//! Data verification: fio verifies a volume with three replicas while it writes, through drive failures.
//!
//! The drive returns errors, stalls, is removed and returns, or fills up, or two of three drives are lost.
//! Afterwards fio verifies the file of each remaining replica separately.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::common::daemon::{Daemon, State};
use crate::common::loops::Loop;
use crate::common::program::{find, has, is_root, run, tool};
use crate::common::random::Random;
use crate::common::wait_until;
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Bytes of one region of the dirty region log.
const REGION_BYTES: u64 = 256 << 10;
const DRIVES: [&str; 3] = ["one", "two", "three"];
/// Drive that fails.
const VICTIM: &str = "two";
/// Drive that replaces the failed one.
const SPARE: &str = "four";
/// Size of a separate filesystem for a drive, in bytes: enough for XFS.
const DEVICE_BYTES: u64 = 400 << 20;

/// Part of the volume that is written as a whole, each block once per pass.
#[derive(Clone, Copy)]
struct Area {
    start: u64,
    bytes: u64,
}

/// Area that is written before the failure, and never again.
const KEPT: Area = Area { start: 0, bytes: 8 * MIB };
/// Area that is written before the failure: the first half of [`MISSED`]. Its contents then have another
/// checksum, so that remains of it are told from later contents.
const OLD: Area = Area { start: 8 * MIB, bytes: 8 * MIB };
/// Area that is written only during the failure.
const MISSED: Area = Area { start: 8 * MIB, bytes: 16 * MIB };
/// Area that is written again and again, all the time.
const BUSY: Area = Area { start: 24 * MIB, bytes: 8 * MIB };

impl Area {
    /// Returns fio's arguments for random writes of the whole area, in an order that follows from a seed.
    ///
    /// fio reads each block back and verifies it soon after its write. fio also verifies which write a block
    /// belongs to: data from an earlier run is a wrong byte.
    fn work(self, checksum: &str, seed: u64) -> Vec<String> {
        let fixed = "--name=verified --rw=randwrite --bs=4k --iodepth=16 --verify_fatal=1 --verify_backlog=256 \
                     --verify_state_save=0 --thread";
        let mut arguments: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
        arguments.push(format!("--offset={}", self.start));
        arguments.push(format!("--size={}", self.bytes));
        arguments.extend([format!("--verify={checksum}"), format!("--randseed={seed}")]);
        arguments
    }

    /// Writes and verifies the area through the daemon.
    fn write(self, uri: &str, checksum: &str, seed: u64) {
        let mut arguments = self.work(checksum, seed);
        arguments.extend(["--ioengine=nbd".to_owned(), format!("--uri={uri}")]);
        fio(&arguments);
    }

    /// Verifies the area in the file of a replica, behind the daemon's back.
    fn verify(self, file: &Path, checksum: &str) {
        let mut arguments = self.work(checksum, 1);
        arguments.extend(["--ioengine=psync", "--verify_only", "--filename"].map(str::to_owned));
        arguments.push(file.to_str().unwrap().to_owned());
        fio(&arguments);
    }
}

/// Runs fio, which must see neither an error nor a wrong byte.
fn fio(arguments: &[String]) {
    let ran = run(Command::new(find("fio").unwrap()).args(arguments));
    let is_right = ran.code == Some(0) && ran.stdout.contains("err= 0") && !ran.stderr.contains("verify");
    assert!(is_right, "fio {arguments:?} ended with {:?}:\n{}{}", ran.code, ran.stdout, ran.stderr);
}

/// Thread that writes the busy area again and again.
struct Busy {
    is_over: Arc<AtomicBool>,
    runs: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Busy {
    fn start(uri: String) -> Busy {
        let (is_over, runs) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&runs));
        let mut random = Random::seeded();
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                BUSY.write(&uri, "crc32c", random.next() >> 1);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Busy { is_over, runs, thread }
    }

    /// Waits until the whole area was written once more.
    fn goes_round(&self) {
        // The current run began before.
        let target = self.runs.load(Ordering::Relaxed) + 2;
        wait_until("all of the busy area is written again", || {
            assert!(!self.thread.is_finished(), "fio saw an error or a wrong byte");
            self.runs.load(Ordering::Relaxed) >= target
        });
    }

    fn finish(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn inspect(daemon: &Daemon) -> Value {
    daemon.json(&["volume", "inspect", "vol1"])
}

fn count(daemon: &Daemon, what: &str) -> u64 {
    inspect(daemon)["replication"][what].as_u64().unwrap()
}

/// Failure of drives while fio runs.
trait Misfortune {
    /// Begins the failure. Replicas become stale now or with the next write.
    fn begin(&self, daemon: &Daemon);
    /// Ends the failure.
    fn end(&self, daemon: &Daemon);
}

fn add_drive(daemon: &Daemon, name: &str) {
    let path = daemon.state().beside(name);
    std::fs::create_dir_all(&path).unwrap();
    daemon.ok(&["drive", "add", path.to_str().unwrap(), "--class", "high", "--no-measurement"]);
}

/// Starts a daemon with three drives, whose folders may be filesystems, and a volume with a replica on each.
fn with_replicas(state: &State) -> Daemon {
    let daemon = state.start(&["--reactors", "2"]);
    DRIVES.iter().for_each(|drive| add_drive(&daemon, drive));
    daemon.ok(&["volume", "create", "vol1", "--size", "1", "--io-priority", "high", "--repl", "3"]);
    for area in [KEPT, OLD, BUSY] {
        area.write(&daemon.uri("vol1"), "md5", 1);
    }
    // A clean stop records that all data is stable on every replica.
    let daemon = daemon.stop().start(&["--reactors", "2"]);
    assert_eq!(count(&daemon, "stale"), 0);
    daemon
}

/// Returns the file of the replica on a drive.
fn replica_on(state: &State, drive: &str, volume: &Value) -> PathBuf {
    let folder = state.beside(drive).join("volumes").join(volume["id"].as_str().unwrap());
    folder.join("extents/00000000")
}

/// Verifies each remaining replica separately, and compares the replicas with each other.
fn verify_replicas(daemon: &Daemon, drives: &[&str]) {
    let volume = inspect(daemon);
    for drive in drives {
        let file = replica_on(daemon.state(), drive, &volume);
        KEPT.verify(&file, "md5");
        MISSED.verify(&file, "crc32c");
        BUSY.verify(&file, "crc32c");
    }
    let first = replica_on(daemon.state(), drives[0], &volume);
    for drive in &drives[1..] {
        tool("cmp", &[&first, &replica_on(daemon.state(), drive, &volume)]);
    }
}

/// Runs fio before, during and after a failure, and checks that all data is correct at the end. Returns the
/// number of bytes resynced.
fn is_survived(state: &State, misfortune: &dyn Misfortune, drives_left: &[&str]) -> u64 {
    let daemon = with_replicas(state);
    let busy = Busy::start(daemon.uri("vol1"));
    busy.goes_round();
    let before = count(&daemon, "bytes_resynced");
    misfortune.begin(&daemon);
    MISSED.write(&daemon.uri("vol1"), "crc32c", 7);
    wait_until("a replica is out of service", || count(&daemon, "in_sync") < DRIVES.len() as u64);
    busy.goes_round();
    misfortune.end(&daemon);
    let left = drives_left.len() as u64;
    wait_until("all replicas that are left have everything", || count(&daemon, "in_sync") == left);
    busy.goes_round();
    let copied = count(&daemon, "bytes_resynced") - before;
    busy.finish();
    verify_replicas(&daemon, drives_left);
    println!("{copied} bytes were copied, {} regions", copied / REGION_BYTES);
    daemon.stop();
    copied
}

/// Separate filesystem for a drive's folder.
struct Filesystem {
    mount: String,
    /// Device of the filesystem, which is unmounted when the device goes out of scope.
    _device: Loop,
}

impl Filesystem {
    fn new(state: &State) -> Filesystem {
        let mount = state.beside(VICTIM);
        std::fs::create_dir_all(&mount).unwrap();
        let mount = mount.to_str().unwrap().to_owned();
        let device = Loop::of_size(state, "image", DEVICE_BYTES);
        tool("mkfs.xfs", &["-q", device.path()]);
        tool("mount", &[device.path(), &mount]);
        Filesystem { mount, _device: device }
    }
}

/// Failure: the drive answers every request with an error, until another drive replaces it.
struct Errors(Filesystem);

impl Misfortune for Errors {
    fn begin(&self, _: &Daemon) {
        tool("xfs_io", &["-x", "-c", "shutdown", &self.0.mount]);
    }

    fn end(&self, daemon: &Daemon) {
        add_drive(daemon, SPARE);
    }
}

/// Failure: the drive does not answer.
struct Stall(Filesystem);

impl Misfortune for Stall {
    fn begin(&self, _: &Daemon) {
        tool("fsfreeze", &["--freeze", &self.0.mount]);
    }

    fn end(&self, _: &Daemon) {
        tool("fsfreeze", &["--unfreeze", &self.0.mount]);
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        // Thawing a filesystem that is not frozen does no harm. A frozen filesystem cannot be unmounted.
        let _ = Command::new(find("fsfreeze").unwrap()).args(["--unfreeze", &self.0.mount]).output();
    }
}

/// Failure: the drive is removed, and returns unchanged.
struct Removal;

impl Misfortune for Removal {
    fn begin(&self, daemon: &Daemon) {
        let state = daemon.state();
        std::fs::rename(state.beside(VICTIM), state.beside("away")).unwrap();
        wait_until("the replica is found missing", || count(daemon, "in_sync") == 2);
    }

    fn end(&self, daemon: &Daemon) {
        let state = daemon.state();
        std::fs::rename(state.beside("away"), state.beside(VICTIM)).unwrap();
    }
}

/// Failure: the drive's filesystem is full until space is freed.
struct Fullness(PathBuf);

impl Misfortune for Fullness {
    fn begin(&self, _: &Daemon) {
        let mut filler = File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
    }

    fn end(&self, _: &Daemon) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Fullness {
    fn drop(&mut self) {
        let _ = Command::new(find("umount").unwrap()).arg("-l").arg(&self.0).output();
    }
}

/// Failure: two drives are lost for good.
struct Loss;

impl Misfortune for Loss {
    fn begin(&self, daemon: &Daemon) {
        for drive in &DRIVES[..2] {
            std::fs::remove_dir_all(daemon.state().beside(drive)).unwrap();
        }
        wait_until("both replicas are found missing", || count(daemon, "in_sync") == 1);
    }

    fn end(&self, _: &Daemon) {}
}

#[test]
fn fio_verifies_while_a_drive_returns_errors() {
    if !has(&["fio", "mkfs.xfs", "xfs_io"]) || !is_root() {
        return;
    }
    let state = State::new();
    let errors = Errors(Filesystem::new(&state));
    is_survived(&state, &errors, &[DRIVES[0], DRIVES[2], SPARE]);
}

#[test]
fn fio_verifies_while_a_drive_stalls() {
    if !has(&["fio", "mkfs.xfs", "fsfreeze"]) || !is_root() {
        return;
    }
    let state = State::new();
    let stall = Stall(Filesystem::new(&state));
    is_survived(&state, &stall, &DRIVES);
}

#[test]
fn fio_verifies_while_a_drive_is_away_and_only_dirty_regions_are_resynced() {
    if !has(&["fio"]) {
        return;
    }
    let changed = MISSED.bytes + BUSY.bytes;
    assert_eq!(
        is_survived(&State::new(), &Removal, &DRIVES),
        changed,
        "what was changed meanwhile, and no more"
    );
}

#[test]
fn fio_verifies_while_a_filesystem_is_full() {
    if !has(&["fio"]) || !is_root() {
        return;
    }
    let state = State::new();
    let small = state.beside(VICTIM);
    std::fs::create_dir_all(&small).unwrap();
    tool("mount", &["-t", "tmpfs", "-o", "size=48m", "none", small.to_str().unwrap()]);
    is_survived(&state, &Fullness(small), &DRIVES);
}

#[test]
fn fio_verifies_after_loss_of_two_of_three_replicas() {
    if !has(&["fio"]) {
        return;
    }
    is_survived(&State::new(), &Loss, &DRIVES[2..]);
}
