//! Failures around the daemon, as clients, `status` and the operator see them.
//!
//! Each test is a row of a table in `docs/reference/failures.md`.

mod shown;
mod small;

use std::fs;
use std::path::Path;

use crate::common::daemon::{Daemon, State};
use crate::common::mounts::{Mount, fill_to_the_last_byte};
use crate::common::nbd::{Client, EIO, ENOSPC, WRITE};
use crate::common::program::{find, is_root};
use crate::common::wait_until;
use serde_json::Value;
use shown::{
    alarms, assert_shown, in_sync, is_told, stale, wait_for_drive, wait_until_refused, wait_until_served,
};
use small::{Full, assert_set_aside, full, on_one_filesystem};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Returns true if this process can create and mount filesystems.
fn can_mount() -> bool {
    let can = is_root() && find("mkfs.xfs").is_some() && find("mkfs.ext4").is_some();
    if !can {
        crate::common::skip("a filesystem of its own needs root, mkfs.xfs and mkfs.ext4");
    }
    can
}

fn add_drive(daemon: &Daemon, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    daemon.ok(&["drive", "add", folder.to_str().unwrap(), "--class", "high", "--no-measurement"]);
}

/// Starts a daemon with drives beside its state folder, and a volume of two extents with a replica on each
/// drive.
fn with_replicas(drives: &[&str]) -> Daemon {
    let daemon = Daemon::fresh();
    drives.iter().for_each(|drive| add_drive(&daemon, &daemon.state().beside(drive)));
    create(&daemon, drives.len());
    daemon
}

fn create(daemon: &Daemon, replicas: usize) {
    let replicas = replicas.to_string();
    daemon.ok(&["volume", "create", "vol1", "--size", "2", "--io-priority", "high", "--repl", &replicas]);
}

fn attach(daemon: &Daemon) -> Client {
    Client::attach(&daemon.nbd_socket(), "vol1")
}

/// Replicas a folder with all that it holds.
fn duplicate_folder(from: &Path, to: &Path) {
    crate::common::program::tool(
        "cp",
        &["-a", "--sparse=always", from.to_str().unwrap(), to.to_str().unwrap()],
    );
}

#[test]
fn volume_that_fills_the_state_filesystem_is_refused_space_before_the_state_folder() {
    if !can_mount() {
        return;
    }
    for kind in ["tmpfs", "ext4", "xfs"] {
        let Full { daemon, mount, mut client, end } = full(kind);
        client.flush().unwrap();
        assert_set_aside(&daemon, &mount, kind);
        // A killed daemon starts again.
        let daemon = daemon.kill().start(&[]);
        let mut client = attach(&daemon);
        assert_eq!(client.read((end - 1) * MIB, 4096).unwrap(), [0xaa; 4096]);
        // Written blocks can be overwritten.
        client.write(0, &[0xbb; 4096]).unwrap();
        // The next piece may have been reserved while there was still space.
        let next = (end + 1) * MIB;
        assert_eq!(client.write(next, &[0xbb; 4096]), Err(ENOSPC), "{kind}");
        client.trim(0, (4 * MIB) as u32).unwrap();
        wait_until("space that was discarded to be of use", || client.write(next, &[0xcc; 4096]).is_ok());
        daemon.stop();
    }
}

#[test]
fn write_to_shared_extents_is_refused_space_before_the_state_folder() {
    if !can_mount() {
        return;
    }
    // A small write to shared extents may cost the filesystem many times its size.
    for (length, stride) in [(MIB, MIB), (4096, 128 << 10)] {
        let Full { daemon, mount, mut client, end } = full("xfs").give_back(8);
        daemon.ok(&["snapshot", "create", "vol1@before"]);
        let mut write = |at| client.write(at * stride, &vec![0xbb; length as usize]);
        let refused = (0..end * MIB / stride).find(|at| write(*at) == Err(ENOSPC));
        assert!(refused.is_some_and(|at| at > 0), "{refused:?} of {end} MiB");
        assert_set_aside(&daemon, &mount, "xfs");
        // A block that is no longer shared can be overwritten.
        client.write(0, &[0xcc; 4096]).unwrap();
        let daemon = daemon.kill().start(&[]);
        assert_eq!(attach(&daemon).read(0, 4096).unwrap(), [0xcc; 4096]);
        let mut snapshot = Client::attach(&daemon.nbd_socket(), "vol1@before");
        assert_eq!(snapshot.read(0, 4096).unwrap(), [0xaa; 4096]);
        daemon.stop();
    }
}

#[test]
fn write_to_trimmed_range_is_refused_space_before_the_state_folder() {
    if !can_mount() {
        return;
    }
    for kind in ["tmpfs", "ext4", "xfs"] {
        let Full { daemon, mount, mut client, end } = full(kind);
        // The trims free half of each piece, and together more than the reserve of the state folder.
        (0..24).for_each(|piece| client.trim(piece * MIB, (MIB / 2) as u32).unwrap());
        let mut write = |offset, byte| client.write(offset, &vec![byte; (MIB / 2) as usize]);
        for more in 0..20 {
            let is_written = || write(end * MIB + more * MIB / 2, 0xcc).is_ok();
            wait_until("what was given back to be of use", is_written);
        }
        let refused = (0..24).find(|piece| write(piece * MIB, 0xbb) == Err(ENOSPC));
        assert!(refused.is_some(), "{kind}: there was space for everything twice");
        assert_set_aside(&daemon, &mount, kind);
        write(MIB / 2, 0xdd).unwrap();
        daemon.kill().start(&[]).stop();
    }
}

#[test]
fn concurrent_writes_leave_the_state_folder_its_space() {
    if !can_mount() {
        return;
    }
    for kind in ["tmpfs", "ext4", "xfs"] {
        let Full { daemon, mount, mut client, end } = full(kind).give_back(8);
        // Each write needs a piece of its own.
        let offsets = (end..).map(|piece| piece * MIB).take(200);
        for offset in offsets {
            client.send(WRITE, 0, offset, 4096, &[0xbb; 4096]).unwrap();
        }
        let errors: Vec<u32> = (0..200).map(|_| client.reply().unwrap().1).collect();
        assert!(errors.contains(&0) && errors.contains(&ENOSPC), "{kind}: {errors:?}");
        assert_set_aside(&daemon, &mount, kind);
        daemon.stop();
    }
}

#[test]
fn volumes_on_two_drives_of_one_filesystem_leave_the_state_folder_its_space() {
    if !can_mount() {
        return;
    }
    let (state, mount) = on_one_filesystem("tmpfs");
    let daemon = state.start(&["--reactors", "2"]);
    add_drive(&daemon, &daemon.state().path().join("other"));
    daemon.create("vol1", "1GiB");
    daemon.ok(&["volume", "create", "vol2", "--size", "1", "--io-priority", "high"]);
    let mut clients = ["vol1", "vol2"].map(|volume| Client::attach(&daemon.nbd_socket(), volume));
    let mut open = [true; 2];
    for piece in 0..64 {
        for (client, is_open) in clients.iter_mut().zip(&mut open) {
            *is_open &= client.write(piece * MIB, &vec![0xaa; MIB as usize]).is_ok();
        }
    }
    assert_eq!(open, [false; 2], "there was space for everything");
    assert_set_aside(&daemon, &mount, "tmpfs");
    daemon.stop();
}

#[test]
fn daemon_starts_and_deletes_on_a_completely_full_filesystem() {
    if !can_mount() {
        return;
    }
    for kind in ["tmpfs", "ext4", "xfs"] {
        for is_killed in [false, true] {
            let (state, mount) = on_one_filesystem(kind);
            let daemon = state.start(&["--reactors", "2"]);
            ["vol1", "vol2"].iter().for_each(|volume| daemon.create(volume, "1GiB"));
            let mut client = attach(&daemon);
            client.write(0, &vec![0xaa; 24 * MIB as usize]).unwrap();
            client.flush().unwrap();
            drop(client);
            let state = if is_killed { daemon.kill() } else { daemon.stop() };
            fill_to_the_last_byte(mount.point());
            let daemon = state.start(&["--reactors", "2"]);
            let mut client = attach(&daemon);
            assert_eq!(client.read(0, 4096).unwrap(), [0xaa; 4096], "{kind}");
            assert_eq!(client.write(64 * MIB, &[1; 4096]), Err(ENOSPC), "{kind}");
            client.trim(0, (4 * MIB) as u32).unwrap();
            assert_eq!(client.read(0, 4096).unwrap(), [0; 4096], "{kind}");
            drop(client);
            fill_to_the_last_byte(mount.point());
            daemon.ok(&["volume", "delete", "vol1", "--force", "--wait"]);
            // The space is reclaimed without a restart.
            let mut client = Client::attach(&daemon.nbd_socket(), "vol2");
            wait_until("the space to come back", || client.write(0, &[2; 4096]).is_ok());
            daemon.ok(&["tenant", "create", "acme"]);
            drop(client);
            daemon.stop();
        }
    }
}

/// Returns the message of a `weir serve` that fails to start.
fn refusal_to_start(state: &State) -> String {
    let ran = crate::common::program::run(&mut state.serve(&["--reactors", "1"]));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    ran.stderr
}

#[test]
fn lack_of_space_is_never_reported_as_a_damaged_catalogue() {
    if !can_mount() {
        return;
    }
    let (state, mount) = on_one_filesystem("tmpfs");
    let state = { state.start(&["--reactors", "1"]).stop() };
    // The reserve is gone, as after an operator has removed it.
    fs::remove_file(state.path().join("catalogue.reserve")).unwrap();
    let filler = fill_to_the_last_byte(mount.point());
    let message = refusal_to_start(&state);
    assert!(!message.contains("rebuild") && !message.contains("damaged"), "{message}");
    let words = format!("the filesystem at {} has 0B of", mount.point().display());
    assert!(message.contains(&words) && message.contains("remove files"), "{message}");
    fs::remove_file(filler).unwrap();
    state.start(&[]).stop();
}

#[test]
fn read_only_state_folder_stops_a_start_and_is_named() {
    if !can_mount() {
        return;
    }
    let (state, mount) = on_one_filesystem("ext4");
    let state = { state.start(&["--reactors", "1"]).stop() };
    mount.remount("ro");
    let message = refusal_to_start(&state);
    let words = format!("the filesystem at {} is mounted read-only", mount.point().display());
    assert!(message.contains(&words) && !message.contains("rebuild"), "{message}");
    mount.remount("rw");
    state.start(&[]).stop();
}

#[test]
fn drive_away_with_one_replica_fails_requests_until_it_is_back_unchanged() {
    let daemon = with_replicas(&["one"]);
    let mut client = attach(&daemon);
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    // This write is acknowledged but not flushed.
    client.write(4096, &[2; 4096]).unwrap();
    let (here, away) = (daemon.state().beside("one"), daemon.state().beside("away"));
    for round in 0..3 {
        fs::rename(&here, &away).unwrap();
        if round == 1 {
            // Reads fail before the daemon has noticed the absence too. The second extent was never opened.
            assert_eq!(client.read(GIB, 4096), Err(EIO));
        }
        wait_for_drive(&daemon, "one", "missing");
        let told = alarms(&daemon);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("drive 'one'"), "{told:?}");
        assert_shown(&daemon, "offline", None);
        let alarm = &daemon.json(&["status"])["alarms"][0];
        assert_eq!(alarm["severity"], "critical");
        assert!(alarm["at_risk"].as_str().unwrap().contains("answer EIO"), "{alarm}");
        assert!(alarm["remedy"].as_str().unwrap().contains("bring the drive back"), "{alarm}");
        wait_until_refused(&mut client);
        assert_eq!(&daemon.json(&["status"])["alarms"][0]["since"], &alarm["since"], "it is the same alarm");
        assert_eq!(client.write(8192, &[9; 4096]), Err(EIO));
        fs::rename(&away, &here).unwrap();
        wait_for_drive(&daemon, "one", "online");
        wait_until_served(&mut client);
        assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
        assert_eq!(client.read(4096, 4096).unwrap(), [2; 4096]);
        client.write(8192, &[3; 4096]).unwrap();
        client.flush().unwrap();
        assert_eq!(alarms(&daemon), [""; 0]);
        assert_shown(&daemon, "online", None);
    }
    client.write(GIB, &[4; 4096]).unwrap();
    let daemon = daemon.kill().start(&[]);
    let mut client = attach(&daemon);
    assert_eq!(client.read(8192, 4096).unwrap(), [3; 4096]);
    assert_eq!(client.read(4096, 4096).unwrap(), [2; 4096]);
    daemon.stop();
}

#[test]
fn filesystem_unmounted_under_one_replica_is_used_again_once_it_is_mounted() {
    if !can_mount() {
        return;
    }
    for kind in ["ext4", "xfs"] {
        let daemon = Daemon::fresh();
        let mount = Mount::image(daemon.state(), kind, &daemon.state().beside("one"), 320);
        add_drive(&daemon, mount.point());
        create(&daemon, 1);
        let mut client = attach(&daemon);
        client.write(0, &[1; 4096]).unwrap();
        mount.unmount();
        wait_for_drive(&daemon, "one", "missing");
        wait_until_refused(&mut client);
        mount.mount();
        wait_for_drive(&daemon, "one", "online");
        wait_until_served(&mut client);
        assert_eq!(client.read(0, 4096).unwrap(), [1; 4096], "{kind}");
        client.write(GIB, &[2; 4096]).unwrap();
        client.flush().unwrap();
        assert_eq!(alarms(&daemon), [""; 0]);
        drop(client);
        daemon.stop();
    }
}

#[test]
fn absent_drive_is_invisible_to_clients_of_three_replicas_and_is_resynced() {
    let daemon = with_replicas(&["one", "two", "three"]);
    let mut client = attach(&daemon);
    client.write(0, &[1; 4096]).unwrap();
    for drive in ["one", "three"] {
        let (here, away) = (daemon.state().beside(drive), daemon.state().beside("away"));
        fs::rename(&here, &away).unwrap();
        wait_for_drive(&daemon, drive, "missing");
        for place in (0..2 * GIB).step_by(64 * MIB as usize) {
            client.write(place + 4096, &[2; 4096]).unwrap();
        }
        client.flush().unwrap();
        // There is one alarm for the drive and one for the data at risk, not one for each extent.
        let told = alarms(&daemon);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|alarm| alarm.contains(drive)), "{told:?}");
        assert_shown(&daemon, "degraded", Some([4, 0, 2]));
        // The ceiling keeps the resync so slow that stale replicas can be observed.
        let policy = ["qos", "background-policy"];
        daemon.ok(&[&policy[..], &["modify", "resync", "--max-throughput", "1IOPS"]].concat());
        fs::rename(&away, &here).unwrap();
        wait_for_drive(&daemon, drive, "online");
        wait_until("the replicas there to be back", || stale(&daemon) == 2);
        assert_shown(&daemon, "degraded", Some([4, 2, 0]));
        daemon.ok(&[&policy[..], &["reset", "resync"]].concat());
        wait_until("the replicas to be up to date", || stale(&daemon) == 0);
        assert_shown(&daemon, "online", Some([6, 0, 0]));
        assert_eq!(alarms(&daemon), [""; 0]);
    }
    assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
    daemon.stop();
}

#[test]
fn all_drives_away_with_three_replicas_fail_requests_until_they_are_back() {
    let drives = ["one", "two", "three"];
    let daemon = with_replicas(&drives);
    let folders = |drive| (daemon.state().beside(drive), daemon.state().beside(&format!("away-{drive}")));
    let mut client = attach(&daemon);
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    // This write is acknowledged but not flushed.
    client.write(4096, &[2; 4096]).unwrap();
    for round in 0..3 {
        for (here, away) in drives.map(folders) {
            fs::rename(here, away).unwrap();
        }
        if round == 1 {
            // Reads fail before the daemon has noticed the absence too. The second extent was never opened.
            assert_eq!(client.read(GIB, 4096), Err(EIO));
        }
        drives.iter().for_each(|drive| wait_for_drive(&daemon, drive, "missing"));
        wait_until_refused(&mut client);
        assert_eq!(client.write(8192, &[9; 4096]), Err(EIO));
        assert_shown(&daemon, "offline", Some([0, 0, 6]));
        for (here, away) in drives.map(folders).into_iter().rev() {
            fs::rename(away, here).unwrap();
        }
        drives.iter().for_each(|drive| wait_for_drive(&daemon, drive, "online"));
        wait_until("the replicas to be up to date", || in_sync(&daemon) == 6);
        assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
        assert_eq!(client.read(4096, 4096).unwrap(), [2; 4096]);
        client.write(8192, &[3; 4096]).unwrap();
        client.flush().unwrap();
        wait_until("all to be well", || alarms(&daemon).is_empty());
        assert_shown(&daemon, "online", Some([6, 0, 0]));
    }
    let daemon = daemon.kill().start(&[]);
    let mut client = attach(&daemon);
    assert_eq!(client.read(4096, 4096).unwrap(), [2; 4096]);
    assert_eq!(client.read(8192, 4096).unwrap(), [3; 4096]);
    daemon.stop();
}

#[test]
fn drive_away_over_a_restart_is_used_again_once_it_is_back() {
    for drives in [&["one"][..], &["one", "two", "three"]] {
        let daemon = with_replicas(drives);
        let mut client = attach(&daemon);
        client.write(0, &[1; 4096]).unwrap();
        client.flush().unwrap();
        drop(client);
        let (here, away) = (daemon.state().beside("one"), daemon.state().beside("away"));
        let state = daemon.stop();
        fs::rename(&here, &away).unwrap();
        let daemon = state.start(&[]);
        wait_for_drive(&daemon, "one", "missing");
        match drives.len() {
            1 => assert!(Client::try_attach(&daemon.nbd_socket(), "vol1").is_err()),
            _ => assert_eq!(attach(&daemon).read(0, 4096).unwrap(), [1; 4096]),
        }
        fs::rename(&away, &here).unwrap();
        wait_for_drive(&daemon, "one", "online");
        wait_until("the volume to be served", || Client::try_attach(&daemon.nbd_socket(), "vol1").is_ok());
        assert_eq!(attach(&daemon).read(0, 4096).unwrap(), [1; 4096]);
        if drives.len() > 1 {
            wait_until("the replicas to be up to date", || in_sync(&daemon) == 6);
        }
        assert_eq!(alarms(&daemon), [""; 0]);
        daemon.stop();
    }
}

#[test]
fn drive_swapped_for_an_empty_one_is_missing_and_never_written() {
    for drives in [&["one"][..], &["one", "two", "three"]] {
        let daemon = with_replicas(drives);
        let mut client = attach(&daemon);
        client.write(0, &[1; 4096]).unwrap();
        let (here, away) = (daemon.state().beside("one"), daemon.state().beside("away"));
        fs::rename(&here, &away).unwrap();
        fs::create_dir(&here).unwrap();
        wait_for_drive(&daemon, "one", "missing");
        if drives.len() == 1 {
            wait_until_refused(&mut client);
        }
        let expected = if drives.len() == 1 { Err(EIO) } else { Ok(()) };
        assert_eq!(client.write(4096, &[2; 4096]), expected);
        assert_eq!(client.write(GIB, &[2; 4096]), expected);
        assert_eq!(fs::read_dir(&here).unwrap().count(), 0, "nothing is made in a folder that is no drive");
        fs::remove_dir(&here).unwrap();
        fs::rename(&away, &here).unwrap();
        wait_for_drive(&daemon, "one", "online");
        wait_until_served(&mut client);
        assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
        client.write(4096, &[3; 4096]).unwrap();
        if drives.len() > 1 {
            wait_until("the replicas to be up to date", || in_sync(&daemon) == 6);
        }
        assert_eq!(alarms(&daemon), [""; 0]);
        daemon.stop();
    }
}

#[test]
fn drive_that_returns_in_an_older_state_is_refused_with_one_replica_and_resynced_with_three() {
    for drives in [&["one"][..], &["one", "two", "three"]] {
        let daemon = with_replicas(drives);
        let mut client = attach(&daemon);
        client.write(0, &[1; 4096]).unwrap();
        client.flush().unwrap();
        let (here, away) = (daemon.state().beside("one"), daemon.state().beside("away"));
        let old = daemon.state().beside("old");
        duplicate_folder(&here, &old);
        client.write(0, &[2; 4096]).unwrap();
        client.flush().unwrap();
        fs::rename(&here, &away).unwrap();
        wait_for_drive(&daemon, "one", "missing");
        fs::rename(&old, &here).unwrap();
        wait_for_drive(&daemon, "one", "online");
        if drives.len() == 1 {
            assert_eq!(client.read(0, 4096), Err(EIO), "it holds less than was acknowledged");
            wait_until("it is told why", || is_told(&daemon, "is not the file that was open"));
        } else {
            let volume = || daemon.json(&["volume", "inspect", "vol1"]);
            let is_settled =
                |volume: &Value| volume.get("moving").is_none() && volume["replication"]["in_sync"] == 6;
            wait_until("the replica to be made anew", || is_settled(&volume()));
            ["two", "three"]
                .iter()
                .for_each(|drive| fs::remove_dir_all(daemon.state().beside(drive)).unwrap());
            ["two", "three"].iter().for_each(|drive| wait_for_drive(&daemon, drive, "missing"));
            assert_eq!(client.read(0, 4096).unwrap(), [2; 4096]);
        }
        drop(client);
        daemon.stop();
    }
}

/// Starts and stops a daemon with three equal replicas of a volume, whose files are closed. Also returns a
/// folder with an older state of the first replica.
fn with_an_older_state() -> (State, std::path::PathBuf) {
    let daemon = with_replicas(&["one", "two", "three"]);
    attach(&daemon).write(0, &[1; 4096]).unwrap();
    let state = daemon.stop();
    let old = state.beside("old");
    duplicate_folder(&state.beside("one"), &old);
    let daemon = state.start(&[]);
    attach(&daemon).write(0, &[2; 4096]).unwrap();
    (daemon.stop(), old)
}

#[test]
fn replica_with_outdated_metadata_is_resynced_in_full() {
    for is_running in [true, false] {
        let (state, old) = with_an_older_state();
        let (here, away) = (state.beside("one"), state.beside("away"));
        let daemon = if is_running {
            let daemon = state.start(&[]);
            fs::rename(&here, &away).unwrap();
            wait_for_drive(&daemon, "one", "missing");
            fs::rename(&old, &here).unwrap();
            wait_for_drive(&daemon, "one", "online");
            daemon
        } else {
            fs::rename(&here, &away).unwrap();
            fs::rename(&old, &here).unwrap();
            state.start(&[])
        };
        let mut client = attach(&daemon);
        assert_eq!(client.read(0, 4096).unwrap(), [2; 4096]);
        let volume = || daemon.json(&["volume", "inspect", "vol1"])["replication"].clone();
        wait_until("the replicas to be in sync", || volume()["in_sync"] == 6 && volume()["stale"] == 0);
        for drive in ["two", "three"] {
            // The daemon may write there at this moment, so the folder is renamed and not deleted.
            fs::rename(daemon.state().beside(drive), daemon.state().beside(&format!("gone-{drive}")))
                .unwrap();
            wait_for_drive(&daemon, drive, "missing");
        }
        assert_eq!(client.read(0, 4096).unwrap(), [2; 4096]);
        drop(client);
        daemon.stop();
    }
}

#[test]
fn snapshot_deleted_while_its_drive_is_away_is_reclaimed_once_it_is_back() {
    let daemon = with_replicas(&["one"]);
    let mut client = attach(&daemon);
    (0..8).for_each(|piece| client.write(piece * 64 * MIB, &[1; 4096]).unwrap());
    drop(client);
    daemon.ok(&["snapshot", "create", "vol1@s1"]);
    // The ceiling keeps the reclaim so slow that the kill interrupts it.
    let policy = ["qos", "background-policy", "modify", "reclaim", "--max-throughput", "1IOPS"];
    daemon.ok(&policy);
    daemon.ok(&["snapshot", "delete", "vol1@s1"]);
    let (here, away) = (daemon.state().beside("one"), daemon.state().beside("away"));
    let state = daemon.kill();
    fs::rename(&here, &away).unwrap();
    let daemon = state.start(&[]);
    let jobs = || daemon.json(&["status"])["background"].as_array().map_or(0, Vec::len);
    assert_eq!(jobs(), 1, "its space is still to be given back");
    fs::rename(&away, &here).unwrap();
    wait_for_drive(&daemon, "one", "online");
    daemon.ok(&["qos", "background-policy", "reset", "reclaim"]);
    wait_until("the space to be given back", || jobs() == 0);
    assert_eq!(fs::read_dir(here.join("volumes")).unwrap().count(), 1);
    daemon.stop();
}

/// Starts a daemon whose state folder has a filesystem of its own, with a volume on a drive elsewhere and a
/// client of that volume.
fn with_state_apart(kind: &str) -> (Daemon, Mount, Client) {
    let (state, mount) = on_one_filesystem(kind);
    let daemon = state.start(&["--reactors", "1"]);
    add_drive(&daemon, &daemon.state().beside("one"));
    create(&daemon, 1);
    let mut client = attach(&daemon);
    client.write(0, &[1; 4096]).unwrap();
    (daemon, mount, client)
}

/// Checks that reads, flushes and writes succeed, also writes where nothing was written before.
fn is_served(client: &mut Client, value: u8) {
    for offset in [0, GIB + u64::from(value) * MIB] {
        client.write(offset, &[value; 4096]).unwrap();
        client.flush().unwrap();
        assert_eq!(client.read(offset, 4096).unwrap(), [value; 4096]);
    }
}

/// Makes every operation on a filesystem fail, as on a disk that no longer answers.
fn fail_disk(mount: &Mount) {
    crate::common::program::tool("xfs_io", &["-x", "-c", "shutdown", mount.point().to_str().unwrap()]);
}

/// Starts a daemon with one drive on a disk of its own and other drives beside its state folder. A volume has
/// a replica on each drive.
fn with_a_disk(others: &[&str]) -> (Daemon, Mount, Client) {
    let daemon = Daemon::fresh();
    let mount = Mount::image(daemon.state(), "xfs", &daemon.state().beside("one"), 320);
    add_drive(&daemon, mount.point());
    others.iter().for_each(|drive| add_drive(&daemon, &daemon.state().beside(drive)));
    create(&daemon, others.len() + 1);
    let mut client = attach(&daemon);
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    (daemon, mount, client)
}

/// Repairs the disk and restarts the daemon on it. The filesystem is mounted again, because the kernel keeps
/// the failed one while files of it are open.
fn mended(daemon: Daemon, mount: &Mount) -> Daemon {
    let state = daemon.stop();
    mount.unmount();
    mount.mount();
    state.start(&[])
}

#[test]
fn failed_disk_under_one_replica_fails_requests_until_repaired() {
    if !can_mount() {
        return;
    }
    let (daemon, mount, mut client) = with_a_disk(&[]);
    daemon.create("own", "1GiB");
    let mut other = Client::attach(&daemon.nbd_socket(), "own");
    fail_disk(&mount);
    assert_eq!(client.read(0, 4096), Err(EIO));
    assert_eq!(client.write(GIB, &[2; 4096]), Err(EIO));
    wait_until("the alarm", || is_told(&daemon, "Input/output error"));
    other.write(0, &[3; 4096]).unwrap();
    other.flush().unwrap();
    drop((client, other));
    let daemon = mended(daemon, &mount);
    assert_eq!(attach(&daemon).read(0, 4096).unwrap(), [1; 4096]);
    assert_eq!(alarms(&daemon), [""; 0]);
    daemon.stop();
}

#[test]
fn failed_disk_under_one_of_three_replicas_is_invisible_to_clients() {
    if !can_mount() {
        return;
    }
    let (daemon, mount, mut client) = with_a_disk(&["two", "three"]);
    fail_disk(&mount);
    is_served(&mut client, 2);
    wait_until("the alarm", || is_told(&daemon, "on drive 'one'"));
    is_served(&mut client, 3);
    drop(client);
    let daemon = mended(daemon, &mount);
    let mut client = attach(&daemon);
    is_served(&mut client, 4);
    wait_until("the replicas to be up to date", || stale(&daemon) == 0 && alarms(&daemon).is_empty());
    let replication = &daemon.json(&["volume", "inspect", "vol1"])["replication"];
    assert_eq!((&replication["in_sync"], &replication["missing"]), (&6.into(), &0.into()), "{replication}");
    daemon.stop();
}

#[test]
fn state_folder_that_becomes_full_refuses_changes_and_no_request() {
    if !can_mount() {
        return;
    }
    let (daemon, mount, mut client) = with_state_apart("xfs");
    let filler = fill_to_the_last_byte(mount.point());
    is_served(&mut client, 2);
    let refused = daemon.refused(1, &["volume", "create", "other", "--size", "1", "--io-priority", "high"]);
    assert!(refused.contains("full") && refused.contains("free: remove files"), "{refused}");
    wait_until("the alarm", || is_told(&daemon, "the state folder cannot be written"));
    is_served(&mut client, 3);
    daemon.ok(&["volume", "delete", "vol1", "--force"]);
    fs::remove_file(filler).unwrap();
    wait_until("no alarm", || !is_told(&daemon, "the state folder cannot be written"));
    daemon.ok(&["volume", "create", "other", "--size", "1", "--io-priority", "high"]);
    daemon.stop();
}

#[test]
fn volume_that_gets_replicas_while_the_state_folder_is_full_is_served() {
    if !can_mount() {
        return;
    }
    let (daemon, mount, mut client) = with_state_apart("xfs");
    add_drive(&daemon, &daemon.state().beside("two"));
    daemon.ok(&["volume", "modify", "vol1", "--repl", "2"]);
    let filler = fill_to_the_last_byte(mount.point());
    (2..6).for_each(|value| is_served(&mut client, value));
    fs::remove_file(filler).unwrap();
    wait_until("each extent to have two replicas in sync", || {
        let volume = daemon.json(&["volume", "inspect", "vol1"]);
        volume["replication"]["in_sync"] == 4 && volume.get("moving").is_none()
    });
    is_served(&mut client, 6);
    wait_until("all to be well", || alarms(&daemon).is_empty());
    daemon.stop();
}

#[test]
fn state_folder_that_fails_while_running_refuses_changes_and_no_request() {
    if !can_mount() {
        return;
    }
    let (daemon, mount, mut client) = with_state_apart("xfs");
    fail_disk(&mount);
    is_served(&mut client, 2);
    let refused = daemon.refused(1, &["volume", "create", "other", "--size", "1", "--io-priority", "high"]);
    assert!(refused.contains("the disk that holds the catalogue failed"), "{refused}");
    assert!(is_told(&daemon, "the disk that holds the catalogue failed"));
    let again = daemon.refused(1, &["volume", "create", "other", "--size", "1", "--io-priority", "high"]);
    assert_eq!(again, refused, "what failed once is not tried again");
    is_served(&mut client, 3);
    drop(client);
    let state = daemon.stop();
    mount.unmount();
    mount.mount();
    let daemon = state.start(&["--reactors", "1"]);
    assert_eq!(attach(&daemon).read(0, 4096).unwrap(), [3; 4096]);
    assert_eq!(daemon.json(&["volume", "list"])["items"].as_array().unwrap().len(), 1);
    daemon.stop();
}

#[test]
fn state_folder_that_becomes_read_only_refuses_changes_and_no_request() {
    if !can_mount() {
        return;
    }
    let (daemon, mount, mut client) = with_state_apart("ext4");
    // The kernel does the same when it finds a filesystem of this kind damaged.
    let point = mount.point().to_str().unwrap();
    crate::common::program::tool("mount", &["-o", "remount,abort", point]);
    is_served(&mut client, 2);
    daemon.refused(1, &["volume", "create", "other", "--size", "1", "--io-priority", "high"]);
    wait_until("the alarm", || is_told(&daemon, "the state folder cannot be written"));
    let names: Vec<_> = daemon.json(&["volume", "list"])["items"].as_array().unwrap().clone();
    assert_eq!(names.len(), 1, "what can be read is read");
    is_served(&mut client, 3);
    drop(client);
    let state = daemon.stop();
    mount.unmount();
    mount.mount();
    let daemon = state.start(&["--reactors", "1"]);
    assert_eq!(attach(&daemon).read(0, 4096).unwrap(), [3; 4096]);
    daemon.ok(&["volume", "create", "other", "--size", "1", "--io-priority", "high"]);
    daemon.stop();
}

#[test]
fn replica_that_fails_while_the_state_folder_is_read_only_fails_writes() {
    if !can_mount() {
        return;
    }
    let (state, mount) = on_one_filesystem("ext4");
    let daemon = state.start(&["--reactors", "1"]);
    ["one", "two", "three"].iter().for_each(|drive| add_drive(&daemon, &daemon.state().beside(drive)));
    create(&daemon, 3);
    let mut client = attach(&daemon);
    client.write(0, &[1; 4096]).unwrap();
    crate::common::program::tool("mount", &["-o", "remount,abort", mount.point().to_str().unwrap()]);
    client.write(4096, &[2; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(client.write(GIB, &[2; 4096]), Err(ENOSPC), "it is the first in this extent since the start");
    fs::rename(daemon.state().beside("one"), daemon.state().beside("away")).unwrap();
    wait_for_drive(&daemon, "one", "missing");
    assert_eq!(client.write(0, &[3; 4096]), Err(ENOSPC), "nothing can record that a replica misses it");
    assert_eq!(client.flush(), Err(EIO));
    assert_eq!(client.read(4096, 4096), Err(EIO), "replicas may differ in a dirty region");
    assert_eq!(client.read(512 * MIB, 4096).unwrap(), [0; 4096], "other reads go on");
    drop(client);
    let state = daemon.stop();
    mount.unmount();
    mount.mount();
    fs::rename(state.beside("away"), state.beside("one")).unwrap();
    let daemon = state.start(&["--reactors", "1"]);
    is_served(&mut attach(&daemon), 4);
    wait_until("all to be well", || alarms(&daemon).is_empty());
    daemon.stop();
}

#[test]
fn default_drive_away_fails_its_own_volumes_until_it_is_back() {
    let daemon = with_replicas(&["one"]);
    daemon.create("own", "1GiB");
    let mut own = Client::attach(&daemon.nbd_socket(), "own");
    own.write(0, &[5; 4096]).unwrap();
    let mut other = attach(&daemon);
    let (folder, elsewhere) = (daemon.state().path().join("drive"), daemon.state().beside("elsewhere"));
    fs::rename(&folder, &elsewhere).unwrap();
    wait_for_drive(&daemon, "default", "missing");
    assert_eq!(own.try_read(0, 4096).unwrap(), Err(EIO));
    is_served(&mut other, 2);
    daemon.ok(&["volume", "create", "more", "--size", "1", "--io-priority", "high"]);
    fs::rename(&elsewhere, &folder).unwrap();
    wait_for_drive(&daemon, "default", "online");
    wait_until("the volume is served again", || own.try_read(0, 4096).unwrap().is_ok());
    assert_eq!(own.read(0, 4096).unwrap(), [5; 4096]);
    daemon.stop();
}
