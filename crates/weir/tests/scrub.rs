//! Scrubs from outside: bytes that are flipped in the files behind the daemon's back are found and repaired where a good
//! replica can be told, and named where none can; and nothing that clients or a crash leave is taken for rot.
//!
//! `WEIR_SCRUB_KILLS` is how often the daemon is killed while it scrubs; `WEIR_SEED` repeats the choices.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::daemon::{Daemon, State};
use common::load::Load;
use common::nbd::Client;
use common::program::{PYTHON, has_libnbd};
use common::random::Random;
use common::{setting, wait_until};
use serde_json::{Value, json};

/// The driver beside this file.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/random_model.py");
const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

fn add_drive(daemon: &Daemon, name: &str) {
    let path = daemon.state().beside(name);
    std::fs::create_dir_all(&path).unwrap();
    daemon.ok(&["drive", "add", path.to_str().unwrap(), "--class", "high", "--no-measurement"]);
}

/// A daemon with as many drives, and a volume with so many replicas on them.
fn with_replicas(replicas: usize, volume: &str, size: &str) -> Daemon {
    let daemon = Daemon::fresh();
    (0..replicas).for_each(|number| add_drive(&daemon, &format!("d{number}")));
    let repl = replicas.to_string();
    daemon.ok(&["volume", "create", volume, "--size", size, "--io-priority", "high", "--repl", &repl]);
    daemon
}

/// The files of an extent of a volume, one for each replica, or what lies beside them.
fn extent_files(state: &State, volume: &Value, name: &str) -> Vec<PathBuf> {
    let id = volume["id"].as_str().unwrap();
    let drives = std::fs::read_dir(state.beside("")).unwrap();
    let file = |drive: PathBuf| drive.join("volumes").join(id).join("extents").join(name);
    let mut files: Vec<_> = drives.map(|drive| file(drive.unwrap().path())).collect();
    files.retain(|file| file.exists());
    files.sort();
    files
}

fn inspect(daemon: &Daemon, volume: &str) -> Value {
    daemon.json(&["volume", "inspect", volume])
}

/// Has some bytes of a file change, as no drive should.
fn rot(file: &PathBuf, offset: u64) {
    let file = File::options().read(true).write(true).open(file).unwrap();
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, offset).unwrap();
    file.write_all_at(&bytes.map(|byte| byte ^ 0x55), offset).unwrap();
    file.sync_all().unwrap();
}

fn block_of(file: &PathBuf, offset: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    File::open(file).unwrap().read_exact_at(&mut block, offset).unwrap();
    block
}

/// Fills the first MiB of some places of a volume with bytes that are nowhere the same.
fn fill(daemon: &Daemon, volume: &str, places: &[u64]) -> Client {
    let (mut client, mut random) = (Client::attach(&daemon.nbd_socket(), volume), Random::seeded());
    places.iter().for_each(|place| client.write(*place, &random.bytes(MIB as usize)).unwrap());
    client.flush().unwrap();
    client
}

fn count(scrub: &Value, what: &str) -> u64 {
    scrub[what].as_u64().unwrap()
}

/// Scrubs a volume, and answers what came of it.
fn scrub(daemon: &Daemon, volume: &str) -> Value {
    daemon.ok(&["scrub", volume, "--wait"]);
    inspect(daemon, volume)["scrub"].clone()
}

fn assert_nothing_found(scrub: &Value) {
    let found = ["blocks_found", "blocks_unrepairable", "damaged_blocks"].map(|what| count(scrub, what));
    assert_eq!(found, [0, 0, 0], "a false alarm: {scrub}");
}

fn alarms(daemon: &Daemon) -> Vec<String> {
    let status = daemon.json(&["status"]);
    let alarms = status["alarms"].as_array().unwrap().iter();
    alarms.map(|alarm| alarm["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn of_three_replicas_the_one_that_rotted_is_repaired_by_the_others() {
    let daemon = with_replicas(3, "vol1", "2");
    let mut client = fill(&daemon, "vol1", &[0, 64 * MIB, 1024 * MIB]);
    let before = client.read(64 * MIB, MIB as u32).unwrap();
    let files = extent_files(daemon.state(), &inspect(&daemon, "vol1"), "00000000");
    assert_eq!(files.len(), 3);
    let places: Vec<u64> = [3, 4, 200].map(|block| 64 * MIB + block * BLOCK as u64).to_vec();
    places.iter().for_each(|place| rot(&files[1], place + 17));
    let found = scrub(&daemon, "vol1");
    let counts = ["blocks_found", "blocks_repaired", "blocks_unrepairable"].map(|what| count(&found, what));
    assert_eq!((counts, &found["state"]), ([3, 3, 0], &json!("completed")), "{found}");
    assert!(count(&found, "blocks_checked") >= 3 * 3 * 256, "{found}");
    for place in &places {
        assert!(block_of(&files[1], *place) == block_of(&files[0], *place));
    }
    assert!(client.read(64 * MIB, MIB as u32).unwrap() == before);
    assert_nothing_found(&scrub(&daemon, "vol1"));
    assert_eq!(alarms(&daemon), [""; 0]);
    daemon.stop();
}

#[test]
fn of_two_replicas_the_one_that_matches_its_checksum_is_good_and_without_one_nobody_can_tell() {
    let daemon = with_replicas(2, "vol1", "1");
    let mut client = fill(&daemon, "vol1", &[0, 100 * MIB]);
    let files = extent_files(daemon.state(), &inspect(&daemon, "vol1"), "00000000");
    let first = scrub(&daemon, "vol1");
    assert_nothing_found(&first);
    assert!(count(&first, "checksummed_bytes") >= 2 * 16 * MIB, "{first}");
    rot(&files[0], 5);
    rot(&files[1], 100 * MIB + 8192);
    let found = scrub(&daemon, "vol1");
    assert_eq!((count(&found, "blocks_found"), count(&found, "blocks_repaired")), (2, 2), "{found}");
    assert!(block_of(&files[0], 0) == block_of(&files[1], 0));
    // What was written since has no checksum.
    client.write(20 * BLOCK as u64, &[7; BLOCK]).unwrap();
    client.flush().unwrap();
    rot(&files[1], 30 * BLOCK as u64);
    let message = daemon.refused(1, &["scrub", "vol1", "--wait"]);
    assert!(message.contains("no replica is known to be good: 1"), "{message}");
    let differing = (block_of(&files[0], 30 * BLOCK as u64), block_of(&files[1], 30 * BLOCK as u64));
    assert!(differing.0 != differing.1, "both are left as they are");
    let alarm = alarms(&daemon);
    assert!(alarm.len() == 1 && alarm[0].contains("replicas differ in 1 block of 4096 bytes"), "{alarm:?}");
    assert!(alarm[0].contains("at offset 122880 of the volume"), "{alarm:?}");
    let damaged = inspect(&daemon, "vol1")["scrub"]["damaged"].clone();
    assert_eq!(damaged, json!([{"offset": 122_880, "length": 4096, "is_undecided": true}]));
    client.write(30 * BLOCK as u64, &[9; BLOCK]).unwrap();
    assert_eq!(alarms(&daemon), [""; 0], "it was overwritten");
    assert_nothing_found(&scrub(&daemon, "vol1"));
    daemon.stop();
}

#[test]
fn a_single_replica_that_rotted_is_named_until_it_is_overwritten_and_no_read_error_is_invented() {
    let daemon = with_replicas(1, "vol1", "1");
    drop(fill(&daemon, "vol1", &[0, 40 * MIB]));
    let volume = inspect(&daemon, "vol1");
    assert_eq!(extent_files(daemon.state(), &volume, "00000000.checksums").len(), 0, "it was never scrubbed");
    assert_nothing_found(&scrub(&daemon, "vol1"));
    let files = extent_files(daemon.state(), &volume, "00000000");
    rot(&files[0], 40 * MIB + 4096);
    rot(&files[0], 40 * MIB + 8192);
    let rotten = block_of(&files[0], 40 * MIB + 4096);
    daemon.refused(1, &["scrub", "vol1", "--wait"]);
    let is_named = |daemon: &Daemon| {
        let alarms = alarms(daemon);
        let words = "no replica has what was written in 2 blocks of 4096 bytes, the first at offset 41947136 of the volume";
        assert!(alarms.len() == 1 && alarms[0].contains(words), "{alarms:?}");
        let shown = daemon.ok(&["volume", "inspect", "vol1"]);
        assert!(shown.contains("Damaged: 2 blocks: 8KiB at 41947136"), "{shown}");
        let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
        assert!(client.read(40 * MIB + 4096, BLOCK as u32).unwrap() == rotten, "it is left as it is");
        client.write(40 * MIB, &[1; BLOCK]).unwrap();
    };
    is_named(&daemon);
    let daemon = daemon.kill().start(&[]);
    is_named(&daemon);
    daemon.refused(1, &["scrub", "vol1", "--wait"]);
    is_named(&daemon);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    client.zero(0, 40 * MIB + 4096, 8192).unwrap();
    assert_eq!(alarms(&daemon), [""; 0]);
    assert_nothing_found(&scrub(&daemon, "vol1"));
    let daemon = daemon.kill().start(&[]);
    assert_eq!(alarms(&daemon), [""; 0]);
    assert_nothing_found(&scrub(&daemon, "vol1"));
    daemon.stop();
}

#[test]
fn random_operations_during_scrubs_are_served_and_nothing_is_taken_for_rot() {
    if !has_libnbd() {
        return;
    }
    for replicas in [1, 2] {
        let daemon = with_replicas(replicas, "subject", "3");
        let clock = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let (seed, operations) = (setting("WEIR_SEED", clock).to_string(), "3000");
        let mut model = Command::new(PYTHON);
        model.args([MODEL, &daemon.uri("subject"), &seed, operations, "structured"]);
        let mut model = model.stdout(Stdio::null()).spawn().unwrap();
        let mut scrubs = 0;
        let status = loop {
            assert_nothing_found(&scrub(&daemon, "subject"));
            scrubs += 1;
            if let Some(status) = model.try_wait().unwrap() {
                break status;
            }
        };
        assert!(status.success(), "WEIR_SEED={seed}, {scrubs} scrubs");
        assert_nothing_found(&scrub(&daemon, "subject"));
        assert_eq!(alarms(&daemon), [""; 0]);
        daemon.stop();
    }
}

#[test]
fn a_daemon_that_is_killed_while_it_scrubs_takes_nothing_for_rot_afterwards() {
    let mut random = Random::seeded();
    let mut daemon = with_replicas(2, "vol1", "1");
    let mut checksummed = 0;
    for _ in 0..setting("WEIR_SCRUB_KILLS", 8) {
        let load = Load::start(&daemon.nbd_socket(), "vol1", random.below(3) * 16 * MIB);
        load.advances();
        daemon.ok(&["scrub", "vol1"]);
        let pieces = random.below(40);
        let is_far = |daemon: &Daemon| {
            let scrub = inspect(daemon, "vol1")["scrub"].clone();
            scrub["state"] != "running" || count(&scrub, "blocks_checked") >= pieces * 32
        };
        wait_until("the scrub has begun", || is_far(&daemon));
        let state = daemon.kill();
        // Its client was cut off, which is no fault of the daemon's.
        drop(load);
        daemon = state.start(&["--reactors", "2"]);
        let interrupted = inspect(&daemon, "vol1");
        assert_ne!(interrupted["scrub"]["state"], "running", "a scrub does not go on by itself");
        settle(&daemon);
        let found = scrub(&daemon, "vol1");
        assert_nothing_found(&found);
        checksummed = count(&found, "checksummed_bytes");
    }
    assert!(checksummed >= 16 * MIB);
    let daemon = daemon.kill().start(&[]);
    assert_eq!(
        count(&inspect(&daemon, "vol1")["scrub"], "checksummed_bytes"),
        checksummed,
        "what is at rest stays checksummed"
    );
    daemon.stop();
}

/// Waits until all replicas have everything.
fn settle(daemon: &Daemon) {
    let has_none =
        |what: &str| inspect(daemon, "vol1")["replication"].get(what).is_none_or(|count| *count == 0);
    let is_settled = || has_none("stale") && has_none("missing");
    wait_until("all replicas to have everything", is_settled);
}

#[test]
fn scrubs_are_begun_shown_waited_for_and_given_up() {
    let daemon = with_replicas(1, "vol1", "1");
    daemon.ok(&["volume", "create", "vol2", "--size", "1"]);
    drop(fill(&daemon, "vol1", &[0, 32 * MIB, 64 * MIB]));
    assert_eq!(daemon.json(&["scrub", "list"])["scrubs"][0]["state"], "never");
    assert_eq!(inspect(&daemon, "vol1").get("scrub"), None);
    daemon.ok(&["qos", "background-policy", "modify", "scrub", "--max-throughput", "2IOPS"]);
    daemon.ok(&["scrub", "vol1"]);
    daemon.ok(&["scrub", "--volume", "vol1"]);
    let jobs = daemon.json(&["qos", "statistics", "background", "show"])["jobs"].clone();
    assert_eq!((jobs.as_array().unwrap().len(), &jobs[0]["kind"]), (1, &json!("scrub")), "{jobs}");
    assert_eq!(jobs[0]["what"], "scrub of volume vol1");
    assert!(daemon.ok(&["status"]).contains("scrub of volume vol1"));
    let table = daemon.ok(&["scrub", "list"]);
    assert!(table.contains("running") && table.contains("never scrubbed"), "{table}");
    daemon.ok(&["scrub", "--cancel", "vol1"]);
    daemon.ok(&["scrub", "--cancel", "vol1"]);
    assert_eq!(inspect(&daemon, "vol1")["scrub"]["state"], "cancelled");
    daemon.ok(&["qos", "background-policy", "reset", "scrub"]);
    let table = daemon.ok(&["scrub", "--all", "--wait"]);
    assert_eq!(table.matches("completed").count(), 2, "{table}");
    let list = daemon.json(&["scrub", "list"])["scrubs"].clone();
    let daemon = daemon.stop().start(&[]);
    assert_eq!(daemon.json(&["scrub", "list"])["scrubs"], list, "it is kept");
    assert!(daemon.refused(4, &["scrub", "nothing"]).contains("unknown volume 'nothing'"));
    daemon.refused(2, &["scrub"]);
    daemon.refused(2, &["scrub", "vol1", "--all"]);
    daemon.stop();
}

#[test]
fn a_scrub_gives_way_to_changes_of_its_volume_and_of_its_replicas() {
    let daemon = with_replicas(2, "vol1", "2");
    drop(fill(&daemon, "vol1", &[0, 32 * MIB, 1024 * MIB]));
    daemon.ok(&["qos", "background-policy", "modify", "scrub", "--max-throughput", "2IOPS"]);
    daemon.ok(&["scrub", "vol1"]);
    daemon.ok(&["volume", "modify", "vol1", "--read-only", "true"]);
    daemon.ok(&["volume", "modify", "vol1", "--read-only", "false"]);
    daemon.ok(&["volume", "resize", "vol1", "--size", "3"]);
    assert_eq!(inspect(&daemon, "vol1")["scrub"]["state"], "running");
    daemon.ok(&["volume", "modify", "vol1", "--repl", "1", "--wait"]);
    daemon.ok(&["volume", "modify", "vol1", "--repl", "2", "--wait"]);
    daemon.ok(&["volume", "resize", "vol1", "--size", "1", "--force"]);
    let is_interrupted = || inspect(&daemon, "vol1")["scrub"]["state"] == "interrupted";
    wait_until("the scrub of a volume that became smaller has ended", is_interrupted);
    daemon.ok(&["scrub", "vol1"]);
    daemon.ok(&["volume", "modify", "vol1", "--new-name", "vol2"]);
    assert_eq!(inspect(&daemon, "vol2")["scrub"]["state"], "running");
    daemon.ok(&["volume", "delete", "vol2", "--wait"]);
    assert_eq!(alarms(&daemon), [""; 0]);
    daemon.stop();
}

#[test]
fn checksums_go_with_what_they_are_of() {
    let daemon = with_replicas(2, "vol1", "2");
    drop(fill(&daemon, "vol1", &[0, 512 * MIB, 1024 * MIB]));
    scrub(&daemon, "vol1");
    let volume = inspect(&daemon, "vol1");
    let checksums = |name: &str| extent_files(daemon.state(), &volume, name).len();
    assert_eq!((checksums("00000000.checksums"), checksums("00000001.checksums")), (2, 2));
    // Half of the first extent stays, and what is written there after it grew is not compared with what was before.
    daemon.ok(&["volume", "resize", "vol1", "--size", "520MiB", "--force"]);
    daemon.ok(&["volume", "resize", "vol1", "--size", "2"]);
    assert_eq!(checksums("00000001.checksums"), 0);
    assert_nothing_found(&scrub(&daemon, "vol1"));
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    client.write(1024 * MIB, &[3; BLOCK]).unwrap();
    scrub(&daemon, "vol1");
    // A replica that is given up takes them along, and one that is made has none.
    daemon.ok(&["volume", "modify", "vol1", "--repl", "1", "--wait"]);
    assert_eq!((checksums("00000000.checksums"), checksums("00000000")), (1, 1));
    daemon.ok(&["volume", "modify", "vol1", "--repl", "2", "--wait"]);
    assert_eq!((checksums("00000000.checksums"), checksums("00000000")), (1, 2));
    assert_nothing_found(&scrub(&daemon, "vol1"));
    assert_eq!(checksums("00000000.checksums"), 2);
    drop(client);
    daemon.ok(&["volume", "delete", "vol1", "--force", "--wait"]);
    assert_eq!(checksums("00000000.checksums"), 0);
    assert_eq!(daemon.json(&["scrub", "list"])["scrubs"], json!([]));
    daemon.stop();
}
