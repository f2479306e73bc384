//! Scrubs from outside: bytes are flipped in extent files behind the daemon's back.
//!
//! A scrub repairs them from a correct replica if there is one, and reports them otherwise. Effects of
//! clients or of a crash are never taken for bit rot. `WEIR_SCRUB_KILLS` is the number of kills during
//! scrubs. `WEIR_SEED` repeats the random choices.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::daemon::{Daemon, State};
use crate::common::load::Load;
use crate::common::nbd::Client;
use crate::common::program::{PYTHON, has_libnbd};
use crate::common::random::Random;
use crate::common::{setting, wait_until};
use serde_json::{Value, json};

/// Python driver of the random model, which lies beside this file.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/random_model.py");
const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

fn add_drive(daemon: &Daemon, name: &str) {
    let path = daemon.state().beside(name);
    std::fs::create_dir_all(&path).unwrap();
    daemon.ok(&["drive", "add", path.to_str().unwrap(), "--class", "high", "--no-measurement"]);
}

/// Starts a daemon with this many drives, and a volume with a replica on each.
fn with_replicas(replicas: usize, volume: &str, size: &str) -> Daemon {
    let daemon = Daemon::fresh();
    (0..replicas).for_each(|number| add_drive(&daemon, &format!("d{number}")));
    let repl = replicas.to_string();
    daemon.ok(&["volume", "create", volume, "--size", size, "--io-priority", "high", "--repl", &repl]);
    daemon
}

/// Returns the files of this name of all replicas of a volume: an extent, or a file beside it.
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

/// Changes some bytes of a file, as bit rot on a drive does.
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

/// Writes 1 MiB of random bytes at each of the offsets of a volume.
fn fill(daemon: &Daemon, volume: &str, places: &[u64]) -> Client {
    let (mut client, mut random) = (Client::attach(&daemon.nbd_socket(), volume), Random::seeded());
    places.iter().for_each(|place| client.write(*place, &random.bytes(MIB as usize)).unwrap());
    client.flush().unwrap();
    client
}

fn count(scrub: &Value, what: &str) -> u64 {
    scrub[what].as_u64().unwrap()
}

/// Scrubs a volume and returns the result.
fn scrub(daemon: &Daemon, volume: &str) -> Value {
    daemon.ok(&["scrub", "start", volume, "--wait"]);
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
fn damaged_replica_of_three_is_repaired_by_majority() {
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
fn checksum_decides_between_two_replicas_and_without_one_none_is_changed() {
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
    // Data written since the last scrub has no checksum.
    client.write(20 * BLOCK as u64, &[7; BLOCK]).unwrap();
    client.flush().unwrap();
    rot(&files[1], 30 * BLOCK as u64);
    let message = daemon.refused(1, &["scrub", "start", "vol1", "--wait"]);
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
fn damaged_single_replica_is_reported_until_overwritten_and_still_read() {
    let daemon = with_replicas(1, "vol1", "1");
    drop(fill(&daemon, "vol1", &[0, 40 * MIB]));
    let volume = inspect(&daemon, "vol1");
    assert_eq!(extent_files(daemon.state(), &volume, "00000000.checksums").len(), 0, "it was never scrubbed");
    assert_nothing_found(&scrub(&daemon, "vol1"));
    let files = extent_files(daemon.state(), &volume, "00000000");
    rot(&files[0], 40 * MIB + 4096);
    rot(&files[0], 40 * MIB + 8192);
    let rotten = block_of(&files[0], 40 * MIB + 4096);
    daemon.refused(1, &["scrub", "start", "vol1", "--wait"]);
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
    daemon.refused(1, &["scrub", "start", "vol1", "--wait"]);
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
fn scrub_under_random_load_reports_no_false_damage() {
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
fn kill_during_scrub_causes_no_false_damage() {
    let mut random = Random::seeded();
    let mut daemon = with_replicas(2, "vol1", "1");
    let mut checksummed = 0;
    for _ in 0..setting("WEIR_SCRUB_KILLS", 8) {
        let load = Load::start(&daemon.nbd_socket(), "vol1", random.below(3) * 16 * MIB);
        load.advances();
        daemon.ok(&["scrub", "start", "vol1"]);
        let pieces = random.below(40);
        let is_far = |daemon: &Daemon| {
            let scrub = inspect(daemon, "vol1")["scrub"].clone();
            scrub["state"] != "running" || count(&scrub, "blocks_checked") >= pieces * 32
        };
        wait_until("the scrub has begun", || is_far(&daemon));
        let state = daemon.kill();
        // The kill ended the client of the load, which is no fault of the daemon.
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

/// Waits until all replicas are in sync.
fn settle(daemon: &Daemon) {
    let has_none =
        |what: &str| inspect(daemon, "vol1")["replication"].get(what).is_none_or(|count| *count == 0);
    let is_settled = || has_none("stale") && has_none("missing");
    wait_until("all replicas to have everything", is_settled);
}

#[test]
fn scrubs_are_started_listed_awaited_and_cancelled() {
    let daemon = with_replicas(1, "vol1", "1");
    daemon.ok(&["volume", "create", "vol2", "--size", "1"]);
    drop(fill(&daemon, "vol1", &[0, 32 * MIB, 64 * MIB]));
    assert_eq!(daemon.json(&["scrub", "list"])["items"][0]["state"], "never");
    assert_eq!(inspect(&daemon, "vol1").get("scrub"), None);
    daemon.ok(&["qos", "background-policy", "modify", "scrub", "--max-throughput", "2IOPS"]);
    daemon.ok(&["scrub", "start", "vol1"]);
    daemon.ok(&["scrub", "start", "--volume", "vol1"]);
    let jobs = daemon.json(&["qos", "statistics", "background", "show"])["items"].clone();
    assert_eq!((jobs.as_array().unwrap().len(), &jobs[0]["kind"]), (1, &json!("scrub")), "{jobs}");
    assert_eq!(jobs[0]["what"], "scrub of volume vol1");
    assert!(daemon.ok(&["status"]).contains("scrub of volume vol1"));
    let table = daemon.ok(&["scrub", "list"]);
    assert!(table.contains("running") && table.contains("never scrubbed"), "{table}");
    daemon.ok(&["scrub", "cancel", "vol1"]);
    daemon.ok(&["scrub", "cancel", "vol1"]);
    assert_eq!(inspect(&daemon, "vol1")["scrub"]["state"], "cancelled");
    daemon.ok(&["qos", "background-policy", "reset", "scrub"]);
    let table = daemon.ok(&["scrub", "start", "--all", "--wait"]);
    assert_eq!(table.matches("completed").count(), 2, "{table}");
    let list = daemon.json(&["scrub", "list"])["items"].clone();
    assert_eq!(daemon.json(&["scrub", "show", "vol2"]), list[1]);
    assert!(daemon.ok(&["scrub", "show", "vol2"]).contains("State: completed\n"));
    assert!(daemon.ok(&["scrub", "list", "-o", "wide"]).contains("Checksummed"));
    assert!(daemon.refused(4, &["scrub", "show", "nothing"]).contains("unknown volume 'nothing'"));
    let daemon = daemon.stop().start(&[]);
    assert_eq!(daemon.json(&["scrub", "list"])["items"], list, "it is kept");
    assert!(daemon.refused(4, &["scrub", "start", "nothing"]).contains("unknown volume 'nothing'"));
    daemon.refused(2, &["scrub"]);
    daemon.refused(2, &["scrub", "start", "vol1", "--all"]);
    daemon.stop();
}

#[test]
fn scrub_does_not_block_changes_of_its_volume() {
    let daemon = with_replicas(2, "vol1", "2");
    drop(fill(&daemon, "vol1", &[0, 32 * MIB, 1024 * MIB]));
    daemon.ok(&["qos", "background-policy", "modify", "scrub", "--max-throughput", "2IOPS"]);
    daemon.ok(&["scrub", "start", "vol1"]);
    daemon.ok(&["volume", "modify", "vol1", "--read-only", "true"]);
    daemon.ok(&["volume", "modify", "vol1", "--read-only", "false"]);
    daemon.ok(&["volume", "resize", "vol1", "--size", "3"]);
    assert_eq!(inspect(&daemon, "vol1")["scrub"]["state"], "running");
    daemon.ok(&["volume", "modify", "vol1", "--repl", "1", "--wait"]);
    daemon.ok(&["volume", "modify", "vol1", "--repl", "2", "--wait"]);
    daemon.ok(&["volume", "resize", "vol1", "--size", "1", "--force"]);
    let is_interrupted = || inspect(&daemon, "vol1")["scrub"]["state"] == "interrupted";
    wait_until("the scrub of a volume that became smaller has ended", is_interrupted);
    daemon.ok(&["scrub", "start", "vol1"]);
    daemon.ok(&["volume", "modify", "vol1", "--new-name", "vol2"]);
    assert_eq!(inspect(&daemon, "vol2")["scrub"]["state"], "running");
    daemon.ok(&["volume", "delete", "vol2", "--wait"]);
    assert_eq!(alarms(&daemon), [""; 0]);
    daemon.stop();
}

#[test]
fn checksums_follow_their_replicas() {
    let daemon = with_replicas(2, "vol1", "2");
    drop(fill(&daemon, "vol1", &[0, 512 * MIB, 1024 * MIB]));
    scrub(&daemon, "vol1");
    let volume = inspect(&daemon, "vol1");
    let checksums = |name: &str| extent_files(daemon.state(), &volume, name).len();
    assert_eq!((checksums("00000000.checksums"), checksums("00000001.checksums")), (2, 2));
    // Half of the first extent stays. Data written after it grew again is not compared with the old
    // checksums.
    daemon.ok(&["volume", "resize", "vol1", "--size", "520MiB", "--force"]);
    daemon.ok(&["volume", "resize", "vol1", "--size", "2"]);
    assert_eq!(checksums("00000001.checksums"), 0);
    assert_nothing_found(&scrub(&daemon, "vol1"));
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    client.write(1024 * MIB, &[3; BLOCK]).unwrap();
    scrub(&daemon, "vol1");
    // A removed replica takes its checksums along, and a new replica has none.
    daemon.ok(&["volume", "modify", "vol1", "--repl", "1", "--wait"]);
    assert_eq!((checksums("00000000.checksums"), checksums("00000000")), (1, 1));
    daemon.ok(&["volume", "modify", "vol1", "--repl", "2", "--wait"]);
    assert_eq!((checksums("00000000.checksums"), checksums("00000000")), (1, 2));
    assert_nothing_found(&scrub(&daemon, "vol1"));
    assert_eq!(checksums("00000000.checksums"), 2);
    drop(client);
    daemon.ok(&["volume", "delete", "vol1", "--force", "--wait"]);
    assert_eq!(checksums("00000000.checksums"), 0);
    assert_eq!(daemon.json(&["scrub", "list"])["items"], json!([]));
    daemon.stop();
}
