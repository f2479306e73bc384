//! Attachments from outside: a volume as a block device of this host, with a filesystem in use on it.
//!
//! `WEIR_ATTACH_KILLS` is the number of kills of the daemon under a verified load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::attached::{
    AttachedFile, alone, assert_no_mount_in_sight, assert_nothing_left, can_be_tested, devices, visible_files,
};
use crate::common::daemon::{Daemon, State, end_keeper, keeper};
use crate::common::loops::Loop;
use crate::common::program::{find, has, tool};
use crate::common::{setting, wait_until};

const MIB: u64 = 1 << 20;

/// A device of a volume with a mount point. Dropping it ends all that is left of both, also of a failed test:
/// the I/O of a device whose daemon is gone would wait for ever.
struct Disk {
    state: State,
    path: String,
    point: PathBuf,
}

impl Disk {
    /// Attaches a volume.
    fn attach(daemon: &Daemon, volume: &str, more: &[&str]) -> Disk {
        let path = daemon.ok(&[&["attach", volume], more].concat()).trim().to_owned();
        let point = daemon.state().beside("mnt");
        fs::create_dir_all(&point).unwrap();
        Disk { state: daemon.state().clone(), path, point }
    }

    fn make_filesystem(&self) {
        tool("mkfs.ext4", &["-q", "-F", &self.path]);
    }

    fn mount(&self) {
        tool("mount", &[&self.path, self.point.to_str().unwrap()]);
    }

    fn unmount(&self) {
        tool("umount", &[self.point.to_str().unwrap()]);
    }

    fn check(&self) {
        tool("fsck.ext4", &["-f", "-n", &self.path]);
    }

    fn size_bytes(&self) -> u64 {
        tool("blockdev", &["--getsize64", &self.path]).trim().parse().unwrap()
    }

    /// Begins a verified load of so many bytes on the filesystem.
    fn start_load(&self, bytes: u64) -> std::process::Child {
        let mut command = Command::new(find("fio").unwrap());
        command.args(["--name=load", "--size=48M", "--rw=randwrite", "--bsrange=512-64k", "--direct=1"]);
        command.args(["--ioengine=libaio", "--iodepth=8", "--verify=crc32c", "--verify_fatal=1"]);
        command.arg(format!("--io_size={bytes}")).args(["--fsync=64", "--verify_state_save=0"]);
        command.arg(format!("--directory={}", self.point.display()));
        command.stdout(Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        end_keeper(&self.state.path());
        let _ = Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
        let device = fs::canonicalize(&self.path).unwrap_or_default();
        let _ = Command::new("losetup").arg("--detach").arg(device).stderr(Stdio::null()).status();
        for file in visible_files(&self.state) {
            let _ = Command::new("umount").arg("-l").arg(file).stderr(Stdio::null()).status();
        }
    }
}

fn only(daemon: &Daemon) -> Value {
    let list = daemon.json(&["attachment", "list"])["items"].clone();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    list[0].clone()
}

#[test]
fn filesystem_on_attached_volume_outlives_killed_daemons() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let state = State::new();
    let mut daemon = state.start(&[]);
    daemon.create("v1", "256MiB");
    let disk = Disk::attach(&daemon, "v1", &[]);
    disk.make_filesystem();
    disk.mount();
    let mut load = disk.start_load(300 * MIB);
    for _ in 0..setting("WEIR_ATTACH_KILLS", 5) {
        // Some requests of this daemon are carried out before it is killed.
        let written =
            || daemon.json(&["volume", "inspect", "v1"])["statistics"]["write"]["operations"].as_u64();
        wait_until("the daemon serves requests", || {
            written().unwrap() > 50 || load.try_wait().unwrap().is_some()
        });
        daemon = daemon.kill().start(&[]);
    }
    let status = load.wait().unwrap();
    assert!(status.success(), "fio: {status}");
    let message = daemon.refused(1, &["detach", "v1"]);
    assert!(message.contains("is in use: it is mounted at") && message.contains("/mnt"), "{message}");
    disk.unmount();
    disk.check();
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn attached_volume_grows_and_gives_space_back() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let daemon = State::new().start(&[]);
    daemon.create("v1", "64MiB");
    let disk = Disk::attach(&daemon, "v1", &[]);
    assert_eq!(disk.size_bytes(), 64 * MIB);
    let used = || daemon.json(&["volume", "show", "v1"])["used_bytes"].as_u64().unwrap();
    tool("dd", &["if=/dev/urandom", &format!("of={}", disk.path), "bs=1M", "count=64", "oflag=direct"]);
    wait_until("the data are counted", || used() >= 64 * MIB);
    tool("blkdiscard", &["--offset", "0", "--length", "33554432", &disk.path]);
    wait_until("the discarded half is free", || used() <= 33 * MIB);
    daemon.ok(&["volume", "resize", "v1", "--size", "128MiB"]);
    assert_eq!(disk.size_bytes(), 128 * MIB);
    // What would take the volume away is refused, also by force.
    daemon.ok(&["snapshot", "create", "v1@before"]);
    for command in [
        &["volume", "resize", "v1", "--size", "32MiB", "--force"] as &[&str],
        &["volume", "delete", "v1", "--force", "--with-snapshots"],
        &["volume", "modify", "v1", "--read-only", "true", "--force"],
        &["snapshot", "restore", "v1@before", "--force"],
    ] {
        let message = daemon.refused(1, command);
        assert!(message.contains("'weir detach v1' ends that first"), "{command:?}: {message}");
    }
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
    daemon.ok(&["snapshot", "restore", "v1@before"]);
}

#[test]
fn stopped_daemon_leaves_the_device_to_the_next() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let state = State::new();
    let daemon = state.start(&[]);
    daemon.create("v1", "64MiB");
    let disk = Disk::attach(&daemon, "v1", &[]);
    disk.make_filesystem();
    disk.mount();
    let (file, data) = (disk.point.join("file"), vec![7; 1 << 20]);
    fs::write(&file, &data).unwrap();
    let before = only(&daemon);
    let state = daemon.stop();
    // Whoever looks at all devices and filesystems need not wait for a daemon.
    assert_no_mount_in_sight(&state);
    tool("losetup", &["--list", "--output", "NAME,BACK-MAJ:MIN,BACK-INO"]);
    // Nobody serves the device now: this write waits for the next daemon.
    let (late, content) = (disk.point.join("late"), data.clone());
    let writer = std::thread::spawn(move || {
        fs::write(&late, content).and_then(|()| fs::File::open(&late)?.sync_all())
    });
    let daemon = state.start(&[]);
    writer.join().unwrap().unwrap();
    assert_eq!(only(&daemon), before);
    assert_eq!(fs::read(&file).unwrap(), data);
    disk.unmount();
    disk.check();
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn attachment_without_its_keeper_is_cleared() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let state = State::new();
    let daemon = state.start(&[]);
    daemon.create("v1", "64MiB");
    let _disk = Disk::attach(&daemon, "v1", &[]);
    assert!(keeper(&daemon.state().path()).is_some());
    let state = daemon.kill();
    // As after a restart of the host: nobody has held the mount since.
    end_keeper(&state.path());
    let daemon = state.start(&[]);
    assert_nothing_left(&daemon);
    let again = Disk::attach(&daemon, "v1", &[]);
    again.make_filesystem();
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

/// A device like those of attachments, which another owner made: on a file whose mount nobody sees any more.
fn device_of_another_owner(state: &State) -> Loop {
    let (file, place) = (state.beside("file"), state.beside("place"));
    fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    fs::File::create(&place).unwrap();
    tool("mount", &["--bind", file.to_str().unwrap(), place.to_str().unwrap()]);
    let device = Loop::attach(&place, &[]);
    tool("umount", &["-l", place.to_str().unwrap()]);
    device
}

#[test]
fn device_of_another_owner_is_left_alone() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let foreign = {
        let _alone = alone();
        device_of_another_owner(&state)
    };
    let _alone = alone();
    let backing_file = Path::new("/sys/block").join(foreign.name()).join("loop/backing_file");
    assert_eq!(fs::read_to_string(&backing_file).unwrap(), "/\n");
    let daemon = state.start(&[]);
    daemon.create("v1", "64MiB");
    let _disk = Disk::attach(&daemon, "v1", &[]);
    assert_eq!(devices().len(), 1);
    let state = daemon.kill();
    end_keeper(&state.path());
    let daemon = state.start(&[]);
    assert_nothing_left(&daemon);
    assert_eq!(fs::read_to_string(&backing_file).unwrap(), "/\n");
}

#[test]
fn attachments_are_refused_in_words() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let daemon = State::new().start(&[]);
    daemon.create("v1", "64MiB");
    daemon.create("v2", "64MiB");
    daemon.refused(4, &["attach", "nowhere"]);
    let message = daemon.refused(1, &["detach", "v1"]);
    assert!(message.contains("volume 'v1' is not attached"), "{message}");
    daemon.ok(&["volume", "modify", "v2", "--read-only", "true"]);
    let message = daemon.refused(1, &["attach", "v2"]);
    assert!(message.contains("it can be attached with --read-only"), "{message}");
    let disk = Disk::attach(&daemon, "v2", &["--read-only", "--consumer", "a test"]);
    let attachment = only(&daemon);
    assert_eq!((&attachment["consumer"], &attachment["read_only"]), (&json!("a test"), &json!(true)));
    assert_eq!(tool("blockdev", &["--getro", &disk.path]).trim(), "1");
    let message = daemon.refused(1, &["attach", "v2", "--read-only"]);
    assert!(message.contains(&format!("is attached as {}", disk.path)), "{message}");
    let opened = fs::File::open(&disk.path).unwrap();
    let message = daemon.refused(1, &["detach", "v2"]);
    assert!(message.contains(&format!("(process {}) has opened it", std::process::id())), "{message}");
    drop(opened);
    daemon.ok(&["detach", "v2"]);
    assert_nothing_left(&daemon);
}

#[test]
fn device_outlives_the_mount_namespace_of_its_daemon() {
    if !can_be_tested() || !has(&["unshare"]) {
        return;
    }
    let _alone = alone();
    // A service of systemd has a mount namespace of its own in each of its lives, which follows the host.
    let start = |state: &State| {
        let served = state.serve(&[]);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=slave"]).arg(served.get_program()).args(served.get_args());
        Daemon::spawn(state, command).ready()
    };
    let state = State::new();
    let daemon = start(&state);
    daemon.create("v1", "64MiB");
    let message = daemon.refused(1, &["attach", "v1", "--method", "fuse-file"]);
    assert!(message.contains("mount namespace of its own"), "{message}");
    assert_eq!(daemon.json(&["attachment", "list"])["items"], json!([]));
    let disk = Disk::attach(&daemon, "v1", &[]);
    disk.make_filesystem();
    disk.mount();
    fs::write(disk.point.join("file"), "content").unwrap();
    let before = only(&daemon);
    // A mount of this namespace would be in the next one too, and stay there.
    disk.unmount();
    let daemon = start(&daemon.stop());
    assert_eq!(only(&daemon), before);
    disk.mount();
    assert_eq!(fs::read(disk.point.join("file")).unwrap(), b"content");
    disk.unmount();
    disk.check();
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
    daemon.ok(&["volume", "delete", "v1"]);
}

#[test]
fn killed_keeper_is_replaced_while_the_daemon_runs() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let state = State::new();
    let daemon = state.start(&[]);
    daemon.create("v1", "64MiB");
    let disk = Disk::attach(&daemon, "v1", &[]);
    disk.make_filesystem();
    disk.mount();
    let old = keeper(&state.path());
    end_keeper(&state.path());
    wait_until("there is another keeper", || keeper(&state.path()).is_some_and(|new| Some(new) != old));
    wait_until("it has the mount", || log_of(&state).contains("is replaced"));
    // The daemon asks the new keeper under the lock that the replacement holds.
    daemon.create("v2", "64MiB");
    daemon.ok(&["attach", "v2"]);
    daemon.ok(&["detach", "v2"]);
    let daemon = daemon.kill().start(&[]);
    fs::write(disk.point.join("file"), "content").unwrap();
    disk.unmount();
    disk.check();
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn volume_is_mounted_with_a_new_filesystem_and_nothing_is_overwritten() {
    if !can_be_tested() || !has(&["mkfs.xfs", "blkid"]) {
        return;
    }
    let _alone = alone();
    let daemon = State::new().start(&[]);
    daemon.create("v1", "64MiB");
    daemon.create("v2", "512MiB");
    let folder = daemon.state().beside("place");
    let place = folder.to_str().unwrap();
    // Without a filesystem, and without an order to make one.
    let message = daemon.refused(1, &["attach", "v1", "--mount", place]);
    assert!(message.contains("has no filesystem; '--fs ext4'"), "{message}");
    assert_nothing_left(&daemon);
    assert_eq!(daemon.ok(&["attach", "v1", "--mount", place, "--fs", "ext4"]).trim(), place);
    fs::write(folder.join("file"), "content").unwrap();
    // A folder that is mounted on, or has files, hides nothing.
    for (place, why) in
        [(place, "something is mounted there"), (folder.parent().unwrap().to_str().unwrap(), "it has files")]
    {
        let message = daemon.refused(1, &["attach", "v2", "--mount", place, "--fs", "xfs"]);
        assert!(message.contains(why), "{message}");
    }
    let message = daemon.refused(1, &["detach", "v1"]);
    assert!(message.contains(&format!("it is mounted at {place}")), "{message}");
    daemon.ok(&["detach", "v1", "--unmount"]);
    assert_nothing_left(&daemon);
    // What is there stays, and is no place for another filesystem.
    let message = daemon.refused(1, &["attach", "v1", "--mount", place, "--fs", "xfs"]);
    assert!(message.contains("has ext4, not xfs; nothing is made over it"), "{message}");
    daemon.ok(&["attach", "v1", "--mount", place, "--fs", "ext4"]);
    assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "content");
    daemon.ok(&["detach", "v1", "--unmount"]);
    daemon.ok(&["volume", "modify", "v1", "--read-only", "true"]);
    daemon.ok(&["attach", "v1", "--read-only", "--mount", place]);
    assert!(fs::write(folder.join("file"), "other").is_err());
    daemon.ok(&["detach", "v1", "--unmount"]);
    // A volume can be too small for a filesystem, and the program says so.
    daemon.create("v3", "8MiB");
    let message = daemon.refused(1, &["attach", "v3", "--mount", place, "--fs", "xfs"]);
    assert!(message.contains("mkfs.xfs failed"), "{message}");
    daemon.ok(&["attach", "v2", "--mount", place, "--fs", "xfs"]);
    daemon.ok(&["detach", "v2", "--unmount"]);
    assert_nothing_left(&daemon);
}

#[test]
fn daemon_killed_as_it_attaches_or_detaches_leaves_nothing_unknown() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let state = State::new();
    let mut daemon = state.start(&[]);
    daemon.create("v1", "64MiB");
    let link = state.path().join("devices/default/v1");
    for round in 0..setting("WEIR_ATTACH_KILLS", 5) * 4 {
        let is_attached = link.exists();
        let command = if is_attached { "detach" } else { "attach" };
        let mut change =
            state.command(&[command, "v1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Each round ends it at another step.
        wait_until("a step is done", || {
            let is_done = match round % 8 {
                0 | 1 => true,
                2 | 3 => visible_files(&state).is_empty() == is_attached,
                4 | 5 => devices().is_empty() == is_attached,
                _ => link.exists() != is_attached,
            };
            is_done || change.try_wait().unwrap().is_some()
        });
        daemon = daemon.kill().start(&[]);
        change.wait().unwrap();
        let known = daemon.json(&["attachment", "list"])["items"].as_array().unwrap().len();
        assert_eq!(known, devices().len(), "round {round}");
        assert_no_mount_in_sight(&state);
    }
    if !devices().is_empty() {
        daemon.ok(&["detach", "v1"]);
    }
    assert_nothing_left(&daemon);
}

#[test]
fn device_whose_user_the_daemon_cannot_see_goes_with_that_user() {
    if !can_be_tested() || !has(&["setpriv"]) {
        return;
    }
    let _alone = alone();
    let state = State::new();
    let served = state.serve(&[]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]);
    command.arg(served.get_program()).args(served.get_args());
    let daemon = Daemon::spawn(&state, command).ready();
    daemon.create("v1", "64MiB");
    let disk = Disk::attach(&daemon, "v1", &[]);
    let opened = fs::File::open(&disk.path).unwrap();
    let message = daemon.refused(1, &["detach", "v1"]);
    assert!(message.contains("is in use"), "{message}");
    // The device may become another program's from now on: nothing leads to it.
    assert!(only(&daemon).get("device").is_none() && !Path::new(&disk.path).exists());
    let message = daemon.refused(1, &["detach", "v1", "--unmount"]);
    assert!(message.contains("is in use"), "{message}");
    let daemon = daemon.kill().start(&[]);
    assert!(only(&daemon).get("device").is_none() && !Path::new(&disk.path).exists());
    drop(opened);
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn file_of_a_volume_outlives_killed_daemons_and_grows() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let state = State::new();
    let mut daemon = state.start(&[]);
    daemon.create("v1", "64MiB");
    let attached = AttachedFile::of(&daemon, "v1");
    let mut command = Command::new(find("fio").unwrap());
    command.args(["--name=load", "--size=48M", "--rw=randwrite", "--bsrange=512-64k", "--ioengine=psync"]);
    command.args(["--numjobs=1", "--verify=crc32c", "--verify_fatal=1", "--io_size=100M", "--fsync=64"]);
    command.args(["--verify_state_save=0", &format!("--filename={}", attached.path.display())]);
    let mut load = command.stdout(Stdio::null()).spawn().unwrap();
    for _ in 0..setting("WEIR_ATTACH_KILLS", 5) {
        let written =
            || daemon.json(&["volume", "inspect", "v1"])["statistics"]["write"]["operations"].as_u64();
        wait_until("the daemon serves requests", || {
            written().unwrap() > 50 || load.try_wait().unwrap().is_some()
        });
        daemon = daemon.kill().start(&[]);
    }
    assert!(load.wait().unwrap().success());
    daemon.ok(&["volume", "resize", "v1", "--size", "128MiB"]);
    assert_eq!(fs::metadata(&attached.path).unwrap().len(), 128 * MIB);
    let opened = fs::File::open(&attached.path).unwrap();
    let message = daemon.refused(1, &["detach", "v1"]);
    assert!(message.contains(&format!("(process {}) has opened it", std::process::id())), "{message}");
    drop(opened);
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn file_is_known_below_another_name_of_the_state_folder_and_where_others_mount_it() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let state = State::new();
    let real = state.beside("real");
    fs::create_dir_all(&real).unwrap();
    std::os::unix::fs::symlink(&real, state.path()).unwrap();
    let daemon = state.start(&[]);
    daemon.create("v1", "64MiB");
    let attached = AttachedFile::of(&daemon, "v1");
    let opened = fs::File::open(&attached.path).unwrap();
    let before = only(&daemon);
    let daemon = daemon.kill().start(&[]);
    assert_eq!(only(&daemon), before);
    let message = daemon.refused(1, &["detach", "v1"]);
    assert!(message.contains(&format!("(process {}) has opened it", std::process::id())), "{message}");
    drop(opened);
    // Docker mounts the file of '-v FILE:/disk' so.
    let elsewhere = state.beside("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    tool("mount", &["--bind", attached.path.to_str().unwrap(), elsewhere.to_str().unwrap()]);
    let message = daemon.refused(1, &["detach", "v1"]);
    tool("umount", &[elsewhere.to_str().unwrap()]);
    assert!(message.contains(&format!("it is mounted at {}", elsewhere.display())), "{message}");
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

fn log_of(state: &State) -> String {
    fs::read_to_string(state.beside("log")).unwrap()
}
