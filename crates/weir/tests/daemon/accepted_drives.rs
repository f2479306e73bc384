//! Drives on which writes were lost, and drives that were removed while they were away: the data behind them
//! once they are used again.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::daemon::{Daemon, State};
use crate::common::extents::assert_alike;
use crate::common::nbd::Client;
use crate::common::wait_until;
use serde_json::{Value, json};
use weir_control::catalogue::{Catalogue, SqliteCatalogue, Transaction};
use weir_control::records::{LostWrites, keys};
use weir_types::DriveId;

const BLOCK: usize = 4096;
/// Where a changed replica differs from all others, in bytes: clients write nothing there.
const STALE_OFFSET: u64 = 12_345 * BLOCK as u64;

fn add_drives(daemon: &Daemon, names: &[&str], class: &str) {
    for name in names {
        let path = daemon.state().beside(name);
        fs::create_dir_all(&path).unwrap();
        daemon.ok(&["drive", "add", path.to_str().unwrap(), "--class", class, "--no-measurement"]);
    }
}

fn inspect(daemon: &Daemon) -> Value {
    daemon.json(&["volume", "inspect", "vol1"])
}

/// Waits until all replicas are in place and in sync.
fn settle(daemon: &Daemon) {
    wait_until("all replicas to have everything", || {
        let volume = inspect(daemon);
        let is_zero = |what: &str| volume["replication"][what].as_u64() == Some(0);
        volume.get("moving").is_none() && is_zero("stale") && is_zero("missing")
    });
}

/// The file of the volume's first extent on a drive.
fn extent_on(state: &State, drive: &str, volume: &Value) -> PathBuf {
    let id = volume["id"].as_str().unwrap();
    state.beside(drive).join("volumes").join(id).join("extents/00000000")
}

/// The drives that have the first extent.
fn homes<'a>(state: &State, drives: &[&'a str], volume: &Value) -> Vec<&'a str> {
    drives.iter().copied().filter(|drive| extent_on(state, drive, volume).exists()).collect()
}

/// Changes a replica as if a write was lost. No metadata tells of it, so only a full resync finds it.
fn change(path: &Path) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(&[7; BLOCK], STALE_OFFSET).unwrap();
}

fn is_changed(path: &Path) -> bool {
    let mut block = [1; BLOCK];
    fs::File::open(path).unwrap().read_exact_at(&mut block, STALE_OFFSET).unwrap();
    block != [0; BLOCK]
}

/// Records that writes to a drive were lost.
fn lose_writes(state: &State, drive: &Value) {
    let catalogue = SqliteCatalogue::open(&state.path().join("catalogue.sqlite")).unwrap();
    let drive = DriveId(drive["id"].as_str().unwrap().parse().unwrap());
    let lost = json!({ "message": "input/output error", "found_at": "2026-01-01T00:00:00Z" });
    let lost: LostWrites = serde_json::from_value(lost).unwrap();
    catalogue.commit(Transaction::default().put(keys::lost_writes(drive), &lost).unwrap()).unwrap();
}

fn write(daemon: &Daemon) {
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    client.write(0, &[1; BLOCK]).unwrap();
    client.flush().unwrap();
}

#[test]
fn replica_on_accepted_drive_is_resynced_in_full() {
    let drives = ["one", "two", "three"];
    let daemon = Daemon::fresh();
    add_drives(&daemon, &drives, "high");
    daemon.ok(&["volume", "create", "vol1", "--size", "1", "--io-priority", "high", "--repl", "3"]);
    write(&daemon);
    let (volume, drive) = (inspect(&daemon), daemon.json(&["drive", "show", "two"]));
    let state = daemon.stop();
    let files = drives.map(|drive| extent_on(&state, drive, &volume));
    change(&files[1]);
    lose_writes(&state, &drive);
    let daemon = state.start(&[]);
    assert_eq!(daemon.json(&["drive", "show", "two"])["state"], "missing");
    daemon.ok(&["drive", "accept", "two"]);
    settle(&daemon);
    daemon.stop();
    assert_eq!(assert_alike(&files), 3);
}

#[test]
fn replica_behind_journal_on_accepted_drive_is_resynced_in_full() {
    let (fast, slow) = (["f1", "f2", "f3"], ["s1", "s2"]);
    let daemon = Daemon::fresh();
    add_drives(&daemon, &fast, "high");
    add_drives(&daemon, &slow, "low");
    daemon.ok(&["volume", "create", "vol1", "--size", "1", "--template", "hybrid"]);
    let volume = inspect(&daemon);
    let shown = fast.map(|drive| daemon.json(&["drive", "show", drive]));
    let state = daemon.stop();
    // The drives with a journal and no replica lose writes: everything behind them may be stale.
    let own = homes(&state, &fast, &volume);
    let journals: Vec<_> = fast.iter().zip(&shown).filter(|(drive, _)| !own.contains(drive)).collect();
    let files: Vec<PathBuf> =
        own.iter().chain(&slow).map(|drive| extent_on(&state, drive, &volume)).collect();
    files[1..].iter().for_each(|path| change(path));
    journals.iter().for_each(|(_, drive)| lose_writes(&state, drive));
    let daemon = state.start(&[]);
    journals.iter().for_each(|(drive, _)| _ = daemon.ok(&["drive", "accept", drive]));
    settle(&daemon);
    // The journals destage what was resynced a moment later.
    wait_until("the changed blocks to be replaced", || !files.iter().any(|path| is_changed(path)));
    daemon.stop();
    assert_eq!(assert_alike(&files), 3);
}

/// Fails if the open volume takes the added drive for the one that was away, or writes at its old path.
#[test]
fn drive_removed_while_away_is_used_at_its_new_path() {
    let daemon = Daemon::fresh();
    add_drives(&daemon, &["one", "two", "three"], "high");
    daemon.ok(&["volume", "create", "vol1", "--size", "1", "--io-priority", "high", "--repl", "2"]);
    let state = |drive: &str| daemon.json(&["drive", "show", drive])["state"].clone();
    let volume = inspect(&daemon);
    let held = homes(daemon.state(), &["one", "two", "three"], &volume);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    client.write(0, &[1; BLOCK]).unwrap();
    fs::rename(daemon.state().beside(held[0]), daemon.state().beside("elsewhere")).unwrap();
    wait_until("the drive to be missing", || state(held[0]) == "missing");
    daemon.ok(&["drive", "remove", held[0]]);
    let is_gone = |drive: &str| {
        let drives = daemon.json(&["drive", "list"]);
        !drives["items"].as_array().unwrap().iter().any(|other| other["name"] == drive)
    };
    wait_until("the drive to be removed", || is_gone(held[0]));
    add_drives(&daemon, &["elsewhere"], "high");
    daemon.ok(&["drive", "remove", held[1]]);
    wait_until("the other drive to be removed", || is_gone(held[1]));
    settle(&daemon);
    client.write(BLOCK as u64, &[2; BLOCK]).unwrap();
    drop(client);
    let volume = inspect(&daemon);
    let stopped = daemon.stop();
    assert!(!stopped.beside(held[0]).exists(), "nothing is made at the old path");
    let places = homes(&stopped, &["one", "two", "three", "elsewhere"], &volume);
    assert!(places.contains(&"elsewhere"), "{places:?}");
    let files: Vec<PathBuf> = places.iter().map(|drive| extent_on(&stopped, drive, &volume)).collect();
    assert_eq!(assert_alike(&files), 2);
}
