//! Removing drives in use: a drive is drained under load, and the daemon is killed during the drain.
//!
//! Clients see neither an error nor a wrong byte.

use crate::common::daemon::Daemon;
use crate::common::load::Load;
use crate::common::nbd::Client;
use crate::common::program::{is_root, tool};
use crate::common::random::Random;
use crate::common::wait_until;
use serde_json::Value;

const GIB: u64 = 1 << 30;
/// Bytes of one piece that is written and verified.
const PIECE_BYTES: usize = 64 << 10;

fn add_drive(daemon: &Daemon, name: &str, class: &str) {
    let path = daemon.state().beside(name);
    std::fs::create_dir_all(&path).unwrap();
    daemon.ok(&["drive", "add", path.to_str().unwrap(), "--class", class, "--no-measurement"]);
}

fn with_drives(names: &[&str]) -> Daemon {
    let daemon = Daemon::fresh();
    names.iter().for_each(|name| add_drive(&daemon, name, "high"));
    daemon
}

fn create(daemon: &Daemon, volume: &str, gib: &str, replicas: &str) {
    let what = ["volume", "create", volume, "--size", gib, "--io-priority", "high", "--repl", replicas];
    daemon.ok(&what);
}

/// Data written to a volume, piece by piece.
struct Written {
    random: Random,
    volume: &'static str,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Written {
    /// Writes four random pieces of each extent.
    fn to(daemon: &Daemon, volume: &'static str, extents: u64) -> Written {
        let mut written = Written { random: Random::seeded(), volume, pieces: Vec::new() };
        let mut client = Client::attach(&daemon.nbd_socket(), volume);
        for extent in 0..extents {
            // The pieces start at 32 MiB, because a load uses the range before.
            for place in 1..=4 {
                let offset =
                    extent * GIB + place * (32 << 20) + written.random.below(64) * PIECE_BYTES as u64;
                let data = written.random.bytes(PIECE_BYTES);
                client.write(offset, &data).unwrap();
                written.pieces.push((offset, data));
            }
        }
        client.flush().unwrap();
        client.disconnect();
        written
    }

    fn check(&self, daemon: &Daemon) {
        let mut client = Client::attach(&daemon.nbd_socket(), self.volume);
        for (offset, data) in &self.pieces {
            let found = client.read(*offset, PIECE_BYTES as u32).unwrap();
            assert!(found == *data, "wrong bytes at {offset} of {}", self.volume);
        }
        client.disconnect();
    }
}

/// Returns the drive from the list, or `None` if it is not listed.
fn listed(daemon: &Daemon, name: &str) -> Option<Value> {
    let list = daemon.json(&["drive", "list"]);
    list["items"].as_array().unwrap().iter().find(|drive| drive["name"] == name).cloned()
}

/// Returns the number of extent replicas left on a draining drive, or `None` if the drive is gone.
fn left(daemon: &Daemon, name: &str) -> Option<u64> {
    listed(daemon, name).map(|drive| drive["drain"]["extents_left"].as_u64().expect("it leaves"))
}

fn files_in(daemon: &Daemon, drive: &str) -> usize {
    std::fs::read_dir(daemon.state().beside(drive)).unwrap().count()
}

fn set_resync_ceiling(daemon: &Daemon, ceiling: &str) {
    daemon.ok(&["qos", "background-policy", "modify", "resync", "--max-throughput", ceiling]);
}

#[test]
fn drain_under_load_survives_kill_and_keeps_every_byte() {
    let daemon = with_drives(&["one", "two", "three"]);
    create(&daemon, "single", "6", "1");
    create(&daemon, "double", "4", "2");
    let written = [Written::to(&daemon, "single", 6), Written::to(&daemon, "double", 4)];
    let start =
        |daemon: &Daemon| ["single", "double"].map(|volume| Load::start(&daemon.nbd_socket(), volume, GIB));
    let loads = start(&daemon);
    set_resync_ceiling(&daemon, "2IOPS");
    let told = daemon.ok(&["drive", "remove", "one"]);
    assert!(told.contains("drive 'one' is being emptied") && told.contains("extents left"), "{told}");
    let before = left(&daemon, "one").expect("it holds something");
    loads.iter().for_each(Load::advances);
    let shown = daemon.ok(&["drive", "list"]);
    assert!(shown.contains("online, draining, "), "{shown}");
    assert!(daemon.ok(&["drive", "inspect", "one"]).contains("State: online, draining, "));
    wait_until("an extent has left", || left(&daemon, "one").is_some_and(|left| left < before));
    loads.into_iter().for_each(|load| assert!(load.finish() > 0));
    let daemon = daemon.kill().start(&["--reactors", "2"]);
    written.iter().for_each(|written| written.check(&daemon));
    let loads = start(&daemon);
    daemon.ok(&["qos", "background-policy", "reset", "resync"]);
    daemon.ok(&["drive", "remove", "one", "--wait"]);
    loads.iter().for_each(Load::advances);
    assert_eq!((listed(&daemon, "one"), files_in(&daemon, "one")), (None, 0));
    loads.into_iter().for_each(|load| assert!(load.finish() > 0));
    written.iter().for_each(|written| written.check(&daemon));
    assert_eq!(daemon.json(&["status"])["alarms"], serde_json::json!([]));
    // A background resync updates the other replicas that the kill left stale.
    wait_until("all replicas to be up to date", || {
        daemon.json(&["volume", "inspect", "double"]).get("moving").is_none()
    });
    // The next daemon finds the same state.
    let daemon = daemon.stop().start(&["--reactors", "1"]);
    written.iter().for_each(|written| written.check(&daemon));
    assert_eq!(daemon.json(&["status"])["alarms"], serde_json::json!([]));
    let replicas = daemon.json(&["volume", "inspect", "double"])["replication"]["in_sync"].clone();
    assert_eq!(replicas, 8);
    daemon.stop();
}

#[test]
fn drain_is_cancelled_and_drives_are_swapped_online() {
    let daemon = with_drives(&["one", "two"]);
    create(&daemon, "vol1", "4", "1");
    let written = Written::to(&daemon, "vol1", 4);
    let load = Load::start(&daemon.nbd_socket(), "vol1", 0);
    set_resync_ceiling(&daemon, "1B/s");
    daemon.ok(&["drive", "remove", "one"]);
    let refused = daemon.refused(1, &["volume", "create", "v", "--size", "1", "--drive", "one"]);
    assert!(refused.contains("drive 'one' is being emptied, to be removed"), "{refused}");
    daemon.ok(&["drive", "remove", "one", "--cancel"]);
    daemon.ok(&["qos", "background-policy", "reset", "resync"]);
    assert!(listed(&daemon, "one").unwrap().get("drain").is_none());
    load.advances();
    // The volume knows its drives by their position. Each new name is therefore a new drive to it.
    for (drain, new) in [("one", "three"), ("two", "one"), ("three", "two"), ("one", "four")] {
        if daemon.state().beside(new).exists() {
            assert_eq!(files_in(&daemon, new), 0);
        }
        add_drive(&daemon, new, "high");
        daemon.ok(&["drive", "remove", drain, "--wait"]);
        load.advances();
        written.check(&daemon);
    }
    assert!(load.finish() > 0);
    daemon.ok(&["volume", "resize", "vol1", "--size", "6"]);
    written.check(&daemon);
    assert_eq!(daemon.json(&["status"])["alarms"], serde_json::json!([]));
    let daemon = daemon.kill().start(&[]);
    written.check(&daemon);
    daemon.stop();
}

#[test]
fn drive_with_the_last_replica_is_not_removed() {
    let daemon = with_drives(&["one", "two", "three"]);
    create(&daemon, "safe", "3", "2");
    create(&daemon, "alone", "3", "1");
    let safe = Written::to(&daemon, "safe", 3);
    let state = daemon.stop();
    std::fs::rename(state.beside("one"), state.beside("away")).unwrap();
    let daemon = state.start(&[]);
    let refused = daemon.refused(1, &["drive", "remove", "one"]);
    let words = "it has the only replica that has everything of extents of: alone; bring it back first";
    assert!(refused.contains("drive 'one' at ") && refused.contains(words), "{refused}");
    let unserved = daemon.refused(1, &["drive", "remove", "two"]);
    assert!(unserved.contains("volumes that are not served: alone;"), "{unserved}");
    // Once its removal loses no data, a missing drive can be removed without coming back.
    std::fs::rename(daemon.state().beside("away"), daemon.state().beside("one")).unwrap();
    wait_until("the drive is back", || listed(&daemon, "one").is_some_and(|one| one["state"] == "online"));
    daemon.ok(&["volume", "delete", "alone", "--wait"]);
    let state = daemon.stop();
    std::fs::remove_dir_all(state.beside("one")).unwrap();
    let daemon = state.start(&[]);
    daemon.ok(&["drive", "remove", "one", "--wait"]);
    safe.check(&daemon);
    let volume = daemon.json(&["volume", "inspect", "safe"]);
    assert_eq!(
        (&volume["replication"]["in_sync"], daemon.json(&["status"])["alarms"].clone()),
        (&6.into(), serde_json::json!([]))
    );
    daemon.stop();
}

#[test]
fn drain_without_room_is_refused_with_missing_bytes() {
    if !is_root() {
        return crate::common::skip("a filesystem of its own needs root");
    }
    let daemon = with_drives(&["large"]);
    let small = daemon.state().beside("small");
    std::fs::create_dir_all(&small).unwrap();
    tool("mount", &["-t", "tmpfs", "-o", "size=32m", "none", small.to_str().unwrap()]);
    fill_more_than_fits(&daemon);
}

fn fill_more_than_fits(daemon: &Daemon) {
    create(daemon, "vol1", "1", "1");
    add_drive(daemon, "small", "high");
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    for piece in 0..48_u64 {
        client.write(piece << 20, &vec![piece as u8; 1 << 20]).unwrap();
    }
    client.flush().unwrap();
    let refused = daemon.refused(1, &["drive", "remove", "large", "--wait"]);
    for words in [
        "drive 'large' cannot be emptied: ",
        "are to be moved of: vol1;",
        "free: small; ",
        "are missing: add a drive, or delete what is not needed",
    ] {
        assert!(refused.contains(words), "{words} in {refused}");
    }
    assert!(listed(daemon, "large").unwrap().get("drain").is_none());
    client.trim(0, 32 << 20).unwrap();
    client.flush().unwrap();
    daemon.ok(&["drive", "remove", "large", "--wait"]);
    assert_eq!(client.read(40 << 20, 4096).unwrap(), [40; 4096]);
    client.disconnect();
}
