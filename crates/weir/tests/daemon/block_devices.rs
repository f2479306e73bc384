//! Raw block devices as drives: which devices are formatted and which are refused.
//!
//! The tests also check that data survive faults of the daemon and the device.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::Command;

use crate::common::daemon::{Daemon, State};
use crate::common::loops::{Loop, Partition, can_be_tested};
use crate::common::nbd::Client;
use crate::common::program::{find, tool};
use crate::common::random::Random;

const REACTORS: [&str; 2] = ["--reactors", "2"];

/// Adds a device as the drive `disk`.
fn format(daemon: &Daemon, device: &Loop) {
    daemon.ok(&["drive", "add", device.path(), "--format", "--name", "disk", "--no-measurement"]);
}

/// Makes the volume `v1` on the drive `disk` and fills it with data that are flushed.
fn fill(daemon: &Daemon) -> Vec<u8> {
    daemon.ok(&["volume", "create", "v1", "--size", "2GiB", "--drive", "disk"]);
    let data = Random::seeded().bytes(1 << 20);
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    // The volume has two extents.
    client.write(0, &data).unwrap();
    client.write(1 << 30, &data).unwrap();
    client.flush().unwrap();
    client.disconnect();
    data
}

fn assert_data(daemon: &Daemon, data: &[u8]) {
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    for offset in [0, 1 << 30] {
        assert!(client.read(offset, data.len() as u32).unwrap() == data, "wrong bytes at {offset}");
    }
    client.disconnect();
    assert_eq!(daemon.json(&["status"])["alarms"], serde_json::json!([]));
}

#[test]
fn block_device_is_formatted_used_and_removed() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let device = Loop::blank(&state, "image");
    let daemon = state.start(&REACTORS);
    let message = daemon.refused(1, &["drive", "add", device.path()]);
    let words = format!(
        "is a block device; 'weir drive add {} --format' makes an XFS filesystem on it",
        device.path()
    );
    assert!(message.contains(&words), "{message}");
    assert_eq!(device.signatures(), "");
    // The device is measured like a directory.
    assert_eq!(daemon.ok(&["drive", "add", device.path(), "--format"]), format!("{}\n", device.name()));
    let drive = daemon.json(&["drive", "show", device.name()]);
    assert!(drive["measurement"]["read"]["iops"].as_u64().unwrap() > 0, "{drive}");
    assert_eq!(drive["device"]["path"], device.path());
    let folder = state.path().join("mounts").join(drive["id"].as_str().unwrap());
    assert_eq!(drive["path"], folder.to_str().unwrap());
    assert_eq!(device.mounts(), [folder.to_str().unwrap()]);
    assert!(
        device.mount_options().contains(" xfs rw,nosuid,nodev,noexec,noatime,"),
        "{}",
        device.mount_options()
    );
    assert!(tool("xfs_info", &[&folder]).contains("reflink=1"));
    let size = drive["size_bytes"].as_u64().unwrap();
    assert!((300 << 20..400 << 20).contains(&size), "the filesystem and not the device: {size}");
    let media_type =
        if drive["device"]["is_rotational"] == true { "rotating device" } else { "solid-state device" };
    for command in [
        &["drive", "list"] as &[&str],
        &["drive", "show", device.name()],
        &["status"],
        &["service", "drive", "show"],
    ] {
        let shown = daemon.ok(command);
        assert!(shown.contains(device.path()) && shown.contains(media_type), "{command:?}: {shown}");
    }
    daemon.ok(&["volume", "create", "v1", "--size", "1GiB", "--drive", device.name()]);
    // The drive is drained first: its volume moves to another drive.
    daemon.ok(&["drive", "remove", device.name(), "--wait"]);
    assert_eq!(daemon.json(&["volume", "inspect", "v1"])["drives"][0]["name"], "default");
    daemon.ok(&["volume", "delete", "v1", "--wait"]);
    assert_eq!(device.mounts(), Vec::<String>::new());
    assert!(!folder.exists());
    tool("xfs_repair", &["-n", device.path()]);
    let message = daemon.refused(1, &["drive", "add", device.path(), "--format"]);
    assert!(message.contains("holds a filesystem (xfs, label 'weir')"), "{message}");
    device.wipe();
    format(&daemon, &device);
    assert_eq!(daemon.json(&["drive", "show", "disk"])["state"], "online");
}

#[test]
fn writes_after_snapshot_allocate_small_extents() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let device = Loop::blank(&state, "image");
    let daemon = state.start(&REACTORS);
    format(&daemon, &device);
    fill(&daemon);
    daemon.ok(&["volume", "clone", "v1", "v2"]);
    for volume in ["v1", "v2"] {
        let id = daemon.json(&["volume", "inspect", volume])["id"].as_str().unwrap().to_owned();
        let file = format!("{}/volumes/{id}/extents/00000001", device.mounts()[0]);
        let said = tool("xfs_io", &["-r", "-c", "cowextsize", &file]);
        assert!(said.starts_with("[16384]"), "{said}");
    }
}

#[test]
fn block_device_data_survive_restarts_kills_and_renames() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let mut device = Loop::blank(&state, "image");
    let daemon = state.start(&REACTORS);
    format(&daemon, &device);
    let data = fill(&daemon);
    let mounts = device.mounts();
    let state = daemon.stop();
    assert_eq!(device.mounts(), mounts, "it stays mounted");
    let daemon = state.start(&REACTORS);
    assert_data(&daemon, &data);
    let state = daemon.kill();
    let daemon = state.start(&REACTORS);
    assert_data(&daemon, &data);
    assert_eq!(device.mounts(), mounts, "it was mounted already");
    // As after a restart of the machine.
    let state = daemon.stop();
    tool("umount", &mounts);
    let daemon = state.start(&REACTORS);
    assert_data(&daemon, &data);
    let state = daemon.stop();
    tool("umount", &mounts);
    let renamed = device.again(&[]);
    assert_ne!(renamed.path(), device.path());
    std::mem::replace(&mut device, renamed).detach();
    let daemon = state.start(&REACTORS);
    assert_data(&daemon, &data);
    assert_eq!(daemon.json(&["drive", "show", "disk"])["device"]["path"], device.path());
    assert_eq!(device.mounts(), mounts);
    let state = daemon.kill();
    for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = fs::remove_file(state.path().join(file));
    }
    tool("umount", &mounts);
    let daemon = state.start(&["--rebuild-catalogue"]);
    assert_data(&daemon, &data);
    daemon.stop();
}

#[test]
fn configured_device_is_never_formatted_unasked() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let device = Loop::blank(&state, "image");
    let config = state.beside("config.json");
    fs::write(&config, serde_json::json!({"storage": {"devices": [device.path()]}}).to_string()).unwrap();
    let arguments = ["--config", config.to_str().unwrap()];
    let daemon = state.start(&arguments);
    let alarms = daemon.json(&["status"])["alarms"].to_string();
    assert!(alarms.contains(&format!("'weir drive add {} --format' makes", device.path())), "{alarms}");
    assert_eq!(device.signatures(), "");
    daemon.ok(&["drive", "add", device.path(), "--format", "--no-measurement"]);
    let daemon = daemon.stop().start(&arguments);
    assert_eq!(daemon.json(&["status"])["alarms"], serde_json::json!([]));
    assert_eq!(daemon.json(&["drive", "list"])["items"].as_array().unwrap().len(), 1);
    daemon.stop();
}

#[test]
fn absent_device_is_missing_drive_until_it_returns() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let device = Loop::blank(&state, "image");
    let daemon = state.start(&REACTORS);
    format(&daemon, &device);
    let data = fill(&daemon);
    let shown = daemon.json(&["drive", "show", "disk"]);
    let filesystem = shown["device"]["filesystem"].as_str().unwrap().to_owned();
    let state = daemon.stop();
    tool("umount", &device.mounts());
    let path = device.path().to_owned();
    device.detach();
    let away = state.beside("away");
    fs::rename(state.beside("image"), &away).unwrap();
    let daemon = state.start(&REACTORS);
    let drive = daemon.json(&["drive", "show", "disk"]);
    assert_eq!(drive["state"], "missing");
    let words = format!("no block device has the filesystem {filesystem}, which was last seen on {path}");
    assert_eq!(drive["reason"], words);
    let alarms = daemon.json(&["status"])["alarms"].to_string();
    assert!(alarms.contains(&words) && alarms.contains("volumes out of service: 1"), "{alarms}");
    assert!(Client::try_attach(&daemon.nbd_socket(), "v1").is_err());
    daemon.create("v2", "1GiB");
    // A returned device is still the drive, and cannot be added again.
    let device = Loop::attach(&away, &[]);
    let message = daemon.refused(1, &["drive", "add", device.path(), "--format", "--name", "again"]);
    assert!(message.contains("is drive 'disk' already, or a duplicate of it"), "{message}");
    let daemon = daemon.stop().start(&REACTORS);
    assert_data(&daemon, &data);
    daemon.stop();
}

#[test]
fn shut_down_filesystem_is_remounted_at_next_start() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let device = Loop::blank(&state, "image");
    let daemon = state.start(&REACTORS);
    format(&daemon, &device);
    let data = fill(&daemon);
    let mounts = device.mounts();
    // As when the device or the power is lost: unflushed data are gone.
    tool("xfs_io", &["-x", "-c", "shutdown", &mounts[0]]);
    let daemon = daemon.kill().start(&REACTORS);
    assert_data(&daemon, &data);
    assert_eq!(device.mounts(), mounts);
    daemon.stop();
}

/// Message of `drive add --format` for a device that it refuses.
fn refusal(daemon: &Daemon, path: &str) -> String {
    daemon.refused(1, &["drive", "add", path, "--format", "--name", "refused"])
}

/// Writes a table with one Linux partition of 1 MiB.
fn write_partition_table(device: &Loop) {
    let mut sector = [0; 512];
    sector[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 1, 1, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::File::options().write(true).open(device.path()).unwrap().write_all(&sector).unwrap();
}

#[test]
fn used_or_unsuitable_devices_are_refused_with_cause() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let daemon = state.start(&REACTORS);
    let device = Loop::blank(&state, "image");
    tool("mkfs.ext4", &["-q", "-L", "precious", device.path()]);
    let check = |path: &str, words: &str| {
        let message = refusal(&daemon, path);
        assert!(message.contains(path) && message.contains(words), "{path}: {message}");
    };
    check(device.path(), "holds a filesystem (ext4, label 'precious'); if nothing of that is needed");
    let point = state.beside("point");
    fs::create_dir(&point).unwrap();
    tool("mount", &[device.path(), point.to_str().unwrap()]);
    check(device.path(), &format!("is mounted at {}", point.display()));
    let directory = point.join("drive");
    fs::create_dir(&directory).unwrap();
    daemon.ok(&["drive", "add", directory.to_str().unwrap(), "--no-measurement"]);
    check(device.path(), &format!("holds drive 'drive' at {}", directory.display()));
    daemon.ok(&["drive", "remove", "drive"]);
    tool("umount", &[&point]);
    device.wipe();
    tool("mkswap", &[device.path()]);
    check(device.path(), "holds a signature (swap)");
    device.wipe();
    write_partition_table(&device);
    check(device.path(), "holds a partition table (dos)");
    device.wipe();
    let small = Loop::of_size(&state, "small", 299 << 20);
    check(small.path(), "has 299MiB; an XFS filesystem needs 300MiB at least");
    let guarded = Loop::attach(&state.beside("small"), &["--read-only"]);
    check(guarded.path(), "is read-only");
    let folder = state.beside("folder");
    fs::create_dir(&folder).unwrap();
    check(folder.to_str().unwrap(), "is a directory and cannot be formatted");
    check("/dev/null", "is not a directory; an existing directory or block device is accepted");
    // None of the refused commands has written to the device.
    assert_eq!(device.signatures(), "");
    format(&daemon, &device);
}

#[test]
fn devices_in_use_are_refused_under_any_name() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let daemon = state.start(&REACTORS);
    let device = Loop::blank(&state, "image");
    let check = |path: &str, words: &str| {
        let message = refusal(&daemon, path);
        assert!(message.contains(words), "{path}: {message}");
    };
    let holder = Loop::attach(device.path().as_ref(), &[]);
    check(device.path(), &format!("is used by {}", holder.name()));
    holder.detach();
    let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
    let held = fs::File::options().read(true).custom_flags(exclusive).open(device.path()).unwrap();
    check(device.path(), "is in use: a process has it open exclusively");
    drop(held);
    let partition = Partition::of(&device);
    tool("mkfs.ext4", &["-q", &partition.path()]);
    let point = state.beside("point");
    fs::create_dir(&point).unwrap();
    tool("mount", &[partition.path().as_str(), point.to_str().unwrap()]);
    let at = format!("is mounted at {}", point.display());
    check(device.path(), &format!("has the partition {}, which {at}", partition.path()));
    tool("umount", &[&point]);
    tool("wipefs", &["--all", &partition.path()]);
    daemon.ok(&["drive", "add", &partition.path(), "--format", "--name", "part", "--no-measurement"]);
    let words = format!("has the partition {}, which is drive 'part' already", partition.path());
    check(device.path(), &words);
    daemon.ok(&["drive", "remove", "part"]);
    drop(partition);
    device.wipe();
    format(&daemon, &device);
    check(device.path(), "is drive 'disk' already");
    let link = state.beside("by-id");
    std::os::unix::fs::symlink(device.path(), &link).unwrap();
    check(link.to_str().unwrap(), &format!("by-id' ({}) is drive 'disk' already", device.path()));
    let partition = Partition::of(&device);
    check(&partition.path(), &format!("is a partition of {}, which is drive 'disk' already", device.path()));
    drop(partition);
    let twin = device.again(&["--read-only"]);
    check(twin.path(), "is drive 'disk' already, or a duplicate of it");
    let mounts = device.mounts();
    let message = daemon.refused(1, &["drive", "add", &mounts[0], "--name", "inner"]);
    assert!(message.contains("is drive 'disk' already"), "{message}");
}

/// A daemon whose mkfs, after it has made a filesystem, creates the file `made` and waits for the file `go`.
fn start_with_waiting_mkfs(state: &State) -> Daemon {
    let wait = "while [ ! -e '{go}' ]; do sleep 0.01; done";
    start_with_mkfs(state, &format!("'{{mkfs}}' \"$@\" || exit\n: >'{{made}}'\n{wait}\n"))
}

/// A daemon with another mkfs: a script, in which `{mkfs}` is the real one, and `{made}` and `{go}` are
/// files.
fn start_with_mkfs(state: &State, script: &str) -> Daemon {
    let folder = state.beside("bin");
    fs::create_dir(&folder).unwrap();
    let (made, go) = (state.beside("made"), state.beside("go"));
    let mut text = format!("#!/bin/sh\n{script}");
    for (word, path) in [("{mkfs}", find("mkfs.xfs").unwrap()), ("{made}", made), ("{go}", go)] {
        text = text.replace(word, path.to_str().unwrap());
    }
    let script = folder.join("mkfs.xfs");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command: Command = state.serve(&REACTORS);
    command.env("PATH", format!("{}:{path}", folder.display()));
    Daemon::spawn(state, command).ready()
}

/// Creates the file `go` on drop, so that mkfs ends.
struct Go<'state>(&'state State);

impl Drop for Go<'_> {
    fn drop(&mut self) {
        let _ = fs::write(self.0.beside("go"), "");
    }
}

/// Formats a device, and calls `act` after the filesystem is made and before the daemon knows it.
fn while_formatting(daemon: &Daemon, device: &Loop, act: impl FnOnce()) {
    let (state, path) = (daemon.state().clone(), device.path().to_owned());
    let made = state.beside("made");
    std::thread::scope(|scope| {
        let adding = scope
            .spawn(|| state.weir(&["drive", "add", &path, "--format", "--name", "disk", "--no-measurement"]));
        // mkfs must end even if a test fails, or the thread would never end.
        let _go = Go(&state);
        crate::common::wait_until("the filesystem is made", || made.exists() || adding.is_finished());
        act();
    });
}

#[test]
fn formatting_blocks_no_other_command() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let (device, other) = (Loop::blank(&state, "image"), Loop::blank(&state, "other"));
    let daemon = start_with_waiting_mkfs(&state);
    while_formatting(&daemon, &device, || {
        daemon.create("v2", "1GiB");
        daemon.ok(&["volume", "resize", "v2", "--size", "2GiB"]);
        let message = refusal(&daemon, device.path());
        assert!(message.contains("is being formatted already, as drive 'disk'"), "{message}");
        let message = daemon.refused(1, &["drive", "add", other.path(), "--format", "--name", "disk"]);
        assert!(message.contains("drive 'disk' is being made"), "{message}");
        let folder = state.beside("folder");
        fs::create_dir(&folder).unwrap();
        let message = daemon.refused(1, &["drive", "add", folder.to_str().unwrap(), "--name", "disk"]);
        assert!(message.contains("drive 'disk' is being made"), "{message}");
    });
    assert_eq!(daemon.json(&["drive", "show", "disk"])["device"]["path"], device.path());
    assert_eq!(other.signatures(), "");
    let data = fill(&daemon);
    assert_data(&daemon, &data);
    daemon.stop();
}

#[test]
fn format_can_be_repeated_after_kill() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let device = Loop::blank(&state, "image");
    let daemon = start_with_waiting_mkfs(&state);
    while_formatting(&daemon, &device, || {
        let process = rustix::process::Pid::from_raw(daemon.process_id() as i32).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    });
    let state = daemon.kill();
    assert_eq!(device.signatures().trim(), "xfs");
    // As if the daemon had been killed a little later.
    let stranger = state.path().join("mounts").join(uuid::Uuid::new_v4().to_string());
    fs::create_dir_all(&stranger).unwrap();
    tool("mount", &[device.path(), stranger.to_str().unwrap()]);
    let daemon = state.start(&REACTORS);
    assert!(!stranger.exists() && device.mounts().is_empty());
    assert_eq!(daemon.json(&["drive", "list"])["items"].as_array().unwrap().len(), 1);
    // A foreign filesystem is not taken for the unfinished one.
    let foreign = Loop::blank(&state, "foreign");
    tool("mkfs.xfs", &["-q", "-L", "weir", foreign.path()]);
    let message = refusal(&daemon, foreign.path());
    assert!(message.contains("holds a filesystem (xfs, label 'weir')"), "{message}");
    // Nor is the unfinished one, if another program used it since.
    let point = state.beside("point");
    fs::create_dir(&point).unwrap();
    let store = |change: &dyn Fn()| {
        tool("mount", &[device.path(), point.to_str().unwrap()]);
        change();
        tool("umount", &[&point]);
    };
    store(&|| fs::write(point.join("letter"), "").unwrap());
    let message = refusal(&daemon, device.path());
    assert!(message.contains("never became one, and it holds 'letter'"), "{message}");
    assert!(device.mounts().is_empty());
    store(&|| fs::remove_file(point.join("letter")).unwrap());
    format(&daemon, &device);
    let data = fill(&daemon);
    let daemon = daemon.kill().start(&REACTORS);
    assert_data(&daemon, &data);
    daemon.stop();
}

#[test]
fn failed_format_has_cause_and_can_be_repeated() {
    if !can_be_tested() {
        return;
    }
    let state = State::new();
    let device = Loop::blank(&state, "image");
    // As if mkfs was ended after its start: at byte 126 XFS records that mkfs is at work.
    let cut_short = "for device; do :; done\n'{mkfs}' \"$@\"\n\
        printf '\\001' | dd of=\"$device\" bs=1 seek=126 conv=notrunc status=none\necho 'no more' >&2\nexit 7\n";
    let daemon = start_with_mkfs(&state, cut_short);
    let message = refusal(&daemon, device.path());
    assert!(message.contains("cannot be formatted: mkfs.xfs failed: no more"), "{message}");
    assert_eq!(daemon.json(&["drive", "list"])["items"].as_array().unwrap().len(), 1);
    let daemon = daemon.stop().start(&REACTORS);
    format(&daemon, &device);
    let data = fill(&daemon);
    assert_data(&daemon, &data);
    daemon.stop();
}
