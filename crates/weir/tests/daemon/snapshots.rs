//! Snapshots and clones from outside, on filesystems with and without shared extents.
//!
//! * Every byte of a snapshot is compared while its volume is written to.
//! * The snapshots of a group are taken at one instant.
//! * The daemon is killed with kill -9 at any instant.
//! * Used space and freed space are checked.
//!
//! `WEIR_SNAPSHOTS` is the number of group snapshots under load. `WEIR_SNAPSHOT_KILLS` is the number of kills
//! while snapshots are taken. `WEIR_SEED` repeats the random choices.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::common::daemon::{Daemon, State};
use crate::common::loops::{self, Loop};
use crate::common::nbd::Client;
use crate::common::random::Random;
use crate::common::{setting, skip, wait_until};
use serde_json::Value;

const GIB: u64 = 1 << 30;
const BLOCK: u64 = 4096;
const DRIVES: [&str; 3] = ["one", "two", "three"];

/// Expected contents of a volume: one byte value per block.
#[derive(Clone, Default)]
struct Model(BTreeMap<u64, u8>);

impl Model {
    /// Writes random blocks of two extents.
    fn write(&mut self, client: &mut Client, random: &mut Random, count: u64) {
        self.write_to(client, random, count, 2);
    }

    /// Writes random blocks of the first extents.
    fn write_to(&mut self, client: &mut Client, random: &mut Random, count: u64, extents: u64) {
        for _ in 0..count {
            let offset = random.below(extents) * GIB + random.below(4096) * BLOCK;
            let value = 1 + random.below(255) as u8;
            client.write(offset, &[value; BLOCK as usize]).unwrap();
            self.0.insert(offset, value);
        }
    }

    /// Trims some blocks, which read as zeroes afterwards.
    fn trim(&mut self, client: &mut Client, random: &mut Random) {
        let offset = random.below(2) * GIB + random.below(64) * 64 * BLOCK;
        client.trim(offset, 64 * BLOCK as u32).unwrap();
        self.0.retain(|block, _| !(offset..offset + 64 * BLOCK).contains(block));
    }

    /// Compares all blocks that may have been written.
    fn check(&self, client: &mut Client, what: &str) {
        self.check_of(client, what, 2);
    }

    /// Compares all blocks of the first extents that may have been written.
    fn check_of(&self, client: &mut Client, what: &str, extents: u64) {
        const PIECE: u64 = 256 * BLOCK;
        for start in (0..extents).map(|extent| extent * GIB) {
            for offset in (start..start + 4096 * BLOCK).step_by(PIECE as usize) {
                let data = client.read(offset, PIECE as u32).unwrap();
                for (index, block) in data.chunks(BLOCK as usize).enumerate() {
                    let at = offset + index as u64 * BLOCK;
                    let expected = self.0.get(&at).copied().unwrap_or(0);
                    assert!(block.iter().all(|byte| *byte == expected), "{what}: block at {at}");
                }
            }
        }
    }
}

fn attach(daemon: &Daemon, export: &str) -> Client {
    Client::attach(&daemon.nbd_socket(), export)
}

/// Starts a daemon with one drive, whose filesystem supports shared extents.
fn with_sharing(bytes: u64) -> (Daemon, Loop) {
    let state = State::new();
    let device = Loop::of_size(&state, "device", bytes);
    let daemon = state.start(&[]);
    daemon.ok(&[
        "drive",
        "add",
        device.path(),
        "--format",
        "--name",
        "disk",
        "--class",
        "high",
        "--no-measurement",
    ]);
    (daemon, device)
}

fn drive(daemon: &Daemon, name: &str) -> Value {
    let list = daemon.json(&["drive", "list"]);
    list["items"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
}

/// Returns the used bytes of a drive, measured after this call.
fn used_bytes(daemon: &Daemon, name: &str) -> u64 {
    let mut age_ns = 0;
    let mut used = 0;
    wait_until("the drive to tell its space anew", || {
        let drive = drive(daemon, name);
        let last_ns = std::mem::replace(&mut age_ns, drive["space_age_ns"].as_u64().unwrap());
        used = drive["used_bytes"].as_u64().unwrap();
        age_ns < last_ns
    });
    used
}

fn snapshot(daemon: &Daemon, name: &str) -> Value {
    let list = daemon.json(&["snapshot", "list"]);
    list["items"].as_array().unwrap().iter().find(|one| one["export_name"] == name).unwrap().clone()
}

/// Starts a daemon with a journal drive and small journals. Returns its settings too.
fn with_journals() -> (Daemon, [String; 2]) {
    let state = State::new();
    let path = state.beside("weir.toml").to_str().unwrap().to_owned();
    std::fs::write(&path, "[storage]\njournal_size = \"64MiB\"\n").unwrap();
    let settings = ["--config".to_owned(), path];
    let daemon = state.start(&words(&settings));
    add_journal_drive(&daemon);
    (daemon, settings)
}

fn add_journal_drive(daemon: &Daemon) {
    let journal = daemon.state().beside("journal1");
    std::fs::create_dir_all(&journal).unwrap();
    daemon.ok(&["journal", "add", journal.to_str().unwrap(), "--no-measurement"]);
}

fn words(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).collect()
}

fn wait_for_empty_journals(daemon: &Daemon) {
    wait_until("journals to be empty", || {
        let journals = daemon.json(&["journal", "list"]);
        journals["items"].as_array().unwrap().iter().all(|journal| journal["is_empty"] == true)
    });
}

fn create_journaled(daemon: &Daemon, name: &str, size: &str) {
    daemon.ok(&["volume", "create", name, "--size", size, "--io-profile", "journal"]);
}

/// Takes snapshots and clones of a busy volume, restores one, and compares every byte.
fn go_through_a_life(daemon: Daemon, settings: &[&str]) {
    let mut random = Random::seeded();
    let (mut now, mut client) = (Model::default(), attach(&daemon, "vol1"));
    let mut then: BTreeMap<String, Model> = BTreeMap::new();
    for number in 0..6 {
        now.write(&mut client, &mut random, 200);
        now.trim(&mut client, &mut random);
        let name = format!("vol1@s{number}");
        assert_eq!(daemon.ok(&["snapshot", "create", &name]).trim(), name);
        then.insert(name, now.clone());
    }
    now.write(&mut client, &mut random, 200);
    daemon.ok(&["volume", "clone", "vol1@s1", "old"]);
    daemon.ok(&["volume", "clone", "vol1", "new"]);
    let (mut old, mut new) = (then["vol1@s1"].clone(), now.clone());
    old.write(&mut attach(&daemon, "old"), &mut random, 300);
    new.write(&mut attach(&daemon, "new"), &mut random, 300);
    let refused = attach(&daemon, "vol1@s1").write(0, &[1; BLOCK as usize]);
    assert_eq!(refused, Err(1), "nobody writes to a snapshot");
    // All acknowledged data outlives the daemon.
    client.flush().unwrap();
    let daemon = daemon.kill().start(settings);
    let check_all = |daemon: &Daemon, now: &Model| {
        let clones = [("vol1", now), ("old", &old), ("new", &new)];
        clones.iter().for_each(|(name, model)| model.check(&mut attach(daemon, name), name));
        then.iter().for_each(|(name, model)| model.check(&mut attach(daemon, name), name));
    };
    check_all(&daemon, &now);
    let mut busy = attach(&daemon, "vol1");
    // A client is answered before it counts as attached. After a read it counts.
    busy.read(0, 4096).unwrap();
    assert!(daemon.refused(1, &["snapshot", "restore", "vol1@s3"]).contains("--force"));
    daemon.ok(&["snapshot", "restore", "vol1@s3", "--force"]);
    drop(busy);
    now = then["vol1@s3"].clone();
    check_all(&daemon, &now);
    now.write(&mut attach(&daemon, "vol1"), &mut random, 100);
    let daemon = daemon.kill().start(settings);
    check_all(&daemon, &now);
    daemon.stop();
}

#[test]
fn snapshots_keep_every_byte_with_shared_extents() {
    if !loops::can_be_tested() {
        return skip("block devices cannot be made here");
    }
    let (daemon, _device) = with_sharing(4 * GIB);
    daemon.ok(&["volume", "create", "vol1", "--size", "2", "--io-priority", "high"]);
    go_through_a_life(daemon, &[]);
}

#[test]
fn snapshots_keep_every_byte_without_shared_extents() {
    let daemon = Daemon::fresh();
    daemon.create("vol1", "2");
    go_through_a_life(daemon, &[]);
}

#[test]
fn snapshots_keep_every_byte_that_journals_hold() {
    let (daemon, settings) = with_journals();
    create_journaled(&daemon, "vol1", "2");
    go_through_a_life(daemon, &words(&settings));
}

/// The file of the volume lacks what its journal holds, so a snapshot of the file alone would be empty.
#[test]
fn snapshot_has_what_only_the_journal_holds() {
    let (daemon, _settings) = with_journals();
    create_journaled(&daemon, "vol1", "2");
    let (mut model, mut random) = (Model::default(), Random::seeded());
    model.write(&mut attach(&daemon, "vol1"), &mut random, 200);
    daemon.ok(&["snapshot", "create", "vol1@s"]);
    let journals = daemon.json(&["journal", "list"]);
    assert_eq!(journals["items"][0]["is_empty"], false, "{journals}");
    model.check(&mut attach(&daemon, "vol1@s"), "the snapshot");
    daemon.ok(&["volume", "clone", "vol1@s", "direct", "--io-profile", "none"]);
    daemon.ok(&["volume", "clone", "direct", "journaled", "--io-profile", "journal"]);
    for (name, profile) in [("direct", "none"), ("journaled", "journal")] {
        assert_eq!(daemon.json(&["volume", "inspect", name])["io_profile"], profile);
        model.check(&mut attach(&daemon, name), name);
    }
    // The journal of a clone takes writes into any block of a piece with data, so the piece has to have its space.
    let pieces: BTreeSet<u64> = model.0.keys().filter(|at| **at < GIB).map(|at| at >> 20).collect();
    let space = daemon.extent_file("journaled", 0).metadata().unwrap().blocks() * 512;
    assert!(space >= (pieces.len() as u64) << 20, "{space} bytes for {} pieces", pieces.len());
    // A pin that is not given back keeps a journal from ever getting empty.
    wait_for_empty_journals(&daemon);
    daemon.stop();
}

/// A journal writes to a file without reserving space, and a shared block needs new space for a write.
#[test]
fn snapshots_of_journaled_volumes_share_nothing() {
    if !loops::can_be_tested() {
        return skip("block devices cannot be made here");
    }
    let (daemon, _device) = with_sharing(4 * GIB);
    add_journal_drive(&daemon);
    daemon.ok(&[
        "volume",
        "create",
        "vol1",
        "--size",
        "1",
        "--io-priority",
        "high",
        "--io-profile",
        "journal",
    ]);
    let mut client = attach(&daemon, "vol1");
    (0..16_u64).for_each(|at| client.write(at << 20, &vec![7; 1 << 20]).unwrap());
    client.flush().unwrap();
    // What only the journal holds cannot be shared anyway.
    wait_for_empty_journals(&daemon);
    daemon.ok(&["snapshot", "create", "vol1@a"]);
    let found = snapshot(&daemon, "vol1@a");
    assert_eq!(
        (&found["used_bytes"], &found["unique_bytes"]),
        (&(16_u64 << 20).into(), &(16_u64 << 20).into())
    );
    // A clone without a journal may share. With one it may not.
    daemon.ok(&["volume", "clone", "vol1@a", "direct", "--io-profile", "none"]);
    daemon.ok(&["volume", "clone", "vol1@a", "journaled"]);
    let unique = |name: &str| daemon.json(&["volume", "inspect", name])["unique_bytes"].clone();
    assert_eq!((unique("direct"), unique("journaled")), (0.into(), (16_u64 << 20).into()));
    daemon.stop();
}

#[test]
fn snapshots_keep_every_byte_on_each_replica() {
    let daemon = Daemon::fresh();
    for name in DRIVES {
        let path = daemon.state().beside(name);
        std::fs::create_dir_all(&path).unwrap();
        daemon.ok(&["drive", "add", path.to_str().unwrap(), "--class", "high", "--no-measurement"]);
    }
    daemon.ok(&["volume", "create", "vol1", "--size", "2", "--io-priority", "high", "--repl", "3"]);
    let mut random = Random::seeded();
    let (mut model, mut client) = (Model::default(), attach(&daemon, "vol1"));
    model.write(&mut client, &mut random, 300);
    daemon.ok(&["snapshot", "create", "vol1@s"]);
    let then = model.clone();
    model.write(&mut client, &mut random, 300);
    client.flush().unwrap();
    drop(client);
    // Each replica is checked alone, without the two other drives.
    let mut state = daemon.stop();
    for kept in DRIVES {
        let away: Vec<&str> = DRIVES.into_iter().filter(|name| *name != kept).collect();
        let swap = |state: &State, from: &str, to: &str| {
            let path = |name: &str, suffix: &str| state.beside(&format!("{name}{suffix}"));
            away.iter().for_each(|name| std::fs::rename(path(name, from), path(name, to)).unwrap());
        };
        swap(&state, "", "-away");
        let alone = state.start(&[]);
        then.check(&mut attach(&alone, "vol1@s"), kept);
        state = alone.stop();
        swap(&state, "-away", "");
    }
    let daemon = state.start(&[]);
    then.check(&mut attach(&daemon, "vol1@s"), "snapshot");
    model.check(&mut attach(&daemon, "vol1"), "volume");
    daemon.stop();
}

/// Writes a number to one volume and, after its acknowledgement, to the other, at a new offset each time.
/// Stops when told to, or when the daemon is gone.
fn write_in_order(mut clients: [Client; 2], is_over: &AtomicBool, written: &AtomicU64) {
    for number in 0.. {
        if is_over.load(Relaxed) {
            return;
        }
        let offset = (number % 1024) * 64 * BLOCK;
        let block = (number + 1).to_le_bytes().repeat(BLOCK as usize / 8);
        for client in &mut clients {
            if client.call(crate::common::nbd::WRITE, 0, offset, BLOCK as u32, &block).is_err() {
                return;
            }
        }
        written.store(number + 1, Relaxed);
    }
}

/// Returns the last number that was written in order, and checks that no earlier number is missing.
fn last_number(client: &mut Client) -> u64 {
    let number = |place: u64, client: &mut Client| {
        let data = client.read(place * 64 * BLOCK, BLOCK as u32).unwrap();
        u64::from_le_bytes(data[..8].try_into().unwrap())
    };
    let all: Vec<u64> = (0..1024).map(|place| number(place, client)).collect();
    let last = all.iter().copied().max().unwrap();
    for (place, found) in (0..).zip(all) {
        let newest = (0..=last).rev().find(|number| *number > 0 && (number - 1) % 1024 == place);
        assert_eq!(found, newest.unwrap_or(0), "place {place} where {last} is the last");
    }
    last
}

const GROUP: [&str; 2] = ["first", "second"];

#[test]
fn group_snapshots_share_one_instant() {
    let daemon = Daemon::fresh();
    GROUP.iter().for_each(|name| daemon.create(name, "1"));
    take_group_snapshots(daemon);
}

#[test]
fn group_snapshots_of_journaled_volumes_share_one_instant() {
    let (daemon, _settings) = with_journals();
    GROUP.iter().for_each(|name| create_journaled(&daemon, name, "1"));
    take_group_snapshots(daemon);
}

/// Takes snapshots of two busy volumes, and compares the order of the writes in them.
fn take_group_snapshots(daemon: Daemon) {
    let names = GROUP;
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = setting("WEIR_SNAPSHOTS", 20);
    std::thread::scope(|scope| {
        let clients = names.map(|name| attach(&daemon, name));
        scope.spawn(|| write_in_order(clients, &is_over, &written));
        let mut before = 0;
        for number in 0..count {
            let name = format!("s{number}");
            daemon.ok(&["snapshot", "create", &name, "--group", "first,second"]);
            let last = names.map(|volume| last_number(&mut attach(&daemon, &format!("{volume}@{name}"))));
            assert!(last[0] == last[1] || last[0] == last[1] + 1, "{last:?} are not of one instant");
            assert!(last[1] >= before, "what was acknowledged before is not in it");
            before = last[1];
            names
                .iter()
                .for_each(|volume| _ = daemon.ok(&["snapshot", "delete", &format!("{volume}@{name}")]));
        }
        is_over.store(true, Relaxed);
    });
    assert!(written.into_inner() > count, "hardly anything was written");
    daemon.stop();
}

#[test]
fn kill_leaves_complete_snapshot_groups_or_none() {
    let daemon = Daemon::fresh();
    GROUP.iter().for_each(|name| daemon.create(name, "1"));
    kill_during_group_snapshots(daemon, &[]);
}

#[test]
fn kill_leaves_complete_snapshot_groups_of_journaled_volumes_or_none() {
    let (daemon, settings) = with_journals();
    GROUP.iter().for_each(|name| create_journaled(&daemon, name, "1"));
    kill_during_group_snapshots(daemon, &words(&settings));
}

fn kill_during_group_snapshots(mut daemon: Daemon, settings: &[&str]) {
    let mut random = Random::seeded();
    let names = GROUP;
    for round in 0..setting("WEIR_SNAPSHOT_KILLS", 8) {
        let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let state = std::thread::scope(|scope| {
            let clients = names.map(|name| attach(&daemon, name));
            scope.spawn(|| write_in_order(clients, &is_over, &written));
            let mut create = daemon.state().command(&[
                "snapshot",
                "create",
                &format!("s{round}"),
                "--group",
                "first,second",
            ]);
            let mut create = create.spawn().unwrap();
            // The kill may hit the creation at any of its steps.
            let enough = written.load(Relaxed) + random.below(400);
            wait_until("some more to be written", || written.load(Relaxed) >= enough);
            is_over.store(true, Relaxed);
            let state = daemon.kill();
            create.wait().unwrap();
            state
        });
        daemon = state.start(settings);
        let list = daemon.json(&["snapshot", "list"]);
        let exports = list["items"].as_array().unwrap().iter();
        let exports: Vec<String> =
            exports.map(|one| one["export_name"].as_str().unwrap().to_owned()).collect();
        for export in exports.iter().filter_map(|export| export.strip_prefix("first@")) {
            let last = names.map(|volume| last_number(&mut attach(&daemon, &format!("{volume}@{export}"))));
            assert!(last[0] == last[1] || last[0] == last[1] + 1, "{last:?} are not of one instant");
        }
        assert_eq!(exports.len() % 2, 0, "{exports:?}");
        wait_until("what was half made to be given back", || {
            std::fs::read_dir(daemon.state().volumes()).unwrap().count() == names.len() + exports.len()
        });
    }
    daemon.stop();
}

/// The clone is killed while its journal is half made, when the journal is complete, or when its files are.
#[test]
fn kill_leaves_a_complete_clone_of_a_journaled_volume_or_nothing() {
    let (mut daemon, settings) = with_journals();
    create_journaled(&daemon, "vol1", "1");
    let (mut model, mut random) = (Model::default(), Random::seeded());
    model.write_to(&mut attach(&daemon, "vol1"), &mut random, 50, 1);
    let entries = |path: PathBuf| -> Vec<String> {
        let entries = std::fs::read_dir(path).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut count = 1;
    for round in 0..setting("WEIR_SNAPSHOT_KILLS", 6) {
        let journals = daemon.state().beside("journal1").join("journals");
        let volumes = daemon.state().volumes();
        let mut create = daemon.state().command(&["volume", "clone", "vol1", &format!("clone{round}")]);
        let mut create = create.spawn().unwrap();
        let is_complete =
            |names: Vec<String>| names.iter().filter(|name| !name.contains('.')).count() > count;
        wait_until("the clone to be so far", || match round % 3 {
            0 => entries(journals.clone()).len() > count,
            1 => is_complete(entries(journals.clone())),
            _ => is_complete(entries(volumes.clone())),
        });
        let state = daemon.kill();
        create.wait().unwrap();
        daemon = state.start(&words(&settings));
        let list = daemon.json(&["volume", "list"]);
        let names: Vec<&str> =
            list["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        count = names.len();
        for name in names {
            model.check_of(&mut attach(&daemon, name), name, 1);
        }
        wait_until("what was half made to be given back", || {
            entries(journals.clone()).len() == count && entries(volumes.clone()).len() == count
        });
    }
    daemon.stop();
}

#[test]
fn shared_extents_take_no_space_and_unique_ones_are_freed() {
    if !loops::can_be_tested() {
        return skip("block devices cannot be made here");
    }
    let (daemon, _device) = with_sharing(4 * GIB);
    daemon.ok(&["volume", "create", "vol1", "--size", "2", "--io-priority", "high"]);
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let write = |export: &str, from: u64, mib: u64, value: u8| {
        let mut client = attach(&daemon, export);
        (0..mib).for_each(|at| client.write((from + at) << 20, &vec![value; 1 << 20]).unwrap());
        client.flush().unwrap();
    };
    write("vol1", 0, 64, 1);
    let alone = used_bytes(&daemon, "disk");
    for name in ["vol1@a", "vol1@b"] {
        daemon.ok(&["snapshot", "create", name]);
    }
    daemon.ok(&["volume", "clone", "vol1@b", "twin"]);
    let shared = used_bytes(&daemon, "disk");
    assert!(mib(shared - alone) < 8, "{} MiB for nothing", mib(shared - alone));
    let of = |name: &str, what: &str| snapshot(&daemon, name)[what].as_u64().unwrap();
    assert_eq!((of("vol1@a", "used_bytes"), of("vol1@a", "unique_bytes")), (64 << 20, 0));
    // From here on only the snapshots share the first 16 MiB.
    write("vol1", 0, 16, 2);
    write("twin", 0, 16, 3);
    assert_eq!(of("vol1@a", "unique_bytes"), 0);
    daemon.ok(&["snapshot", "delete", "vol1@b"]);
    wait_until("the second snapshot's space to be back", || of("vol1@a", "unique_bytes") == 16 << 20);
    let inspect = |name: &str| daemon.json(&["volume", "inspect", name]);
    assert_eq!(inspect("twin")["unique_bytes"], 16 << 20);
    assert_eq!(inspect("twin")["cloned_from"], "vol1@b");
    let before = used_bytes(&daemon, "disk");
    daemon.ok(&["snapshot", "delete", "vol1@a"]);
    let freed = || mib(before.saturating_sub(used_bytes(&daemon, "disk")));
    wait_until("what only the snapshot held to come free", || (15..=18).contains(&freed()));
    daemon.ok(&["volume", "delete", "vol1", "--wait"]);
    daemon.ok(&["volume", "delete", "twin", "--wait"]);
    let left = || mib(used_bytes(&daemon, "disk").saturating_sub(alone.saturating_sub(64 << 20)));
    wait_until("everything to come free", || left() < 8);
    daemon.stop();
}
