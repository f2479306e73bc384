//! Write journals from outside: acknowledged data survives kills and the loss of any drive, destaged or not,
//! and discarded data never returns.
//!
//! `WEIR_SEED` repeats the random choices. `WEIR_PROFILE_KILLS` is the number of kills while the I/O profile of a volume
//! changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::block_model::{BLOCK, BlockModel, GIB};
use crate::common::daemon::{Daemon, State};
use crate::common::extents::assert_alike;
use crate::common::mounts::Mount;
use crate::common::nbd::{Client, EIO, FUA, WRITE};
use crate::common::program::{PYTHON, has_libnbd, is_root};
use crate::common::random::Random;
use crate::common::{setting, skip, wait_until};
use serde_json::{Value, json};

/// Python driver of the random model, which lies beside this file.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/random_model.py");
/// Emulated disk without the delays that would only cost time here. Journals destage nothing while they are
/// nearly empty and in use.
const DISK: &str = "hdd-7200,iops=20000,seek=0,latency=100us,flush=0,bandwidth=1GB/s";
const DRIVES: [(&str, &str, &str); 9] = [
    ("flash1", "high", "nvme"),
    ("flash2", "high", "nvme"),
    ("flash3", "high", "nvme"),
    ("flash4", "high", "nvme"),
    ("disk1", "low", DISK),
    ("disk2", "low", DISK),
    ("disk3", "low", DISK),
    ("journal1", "journal", "nvme"),
    ("journal2", "journal", "nvme"),
];
/// Length from which a write may bypass a journal, in bytes.
const PIECE: u64 = 128 << 10;
/// Pieces that take three quarters of the smallest journal.
const PIECES: u64 = 384;
/// Configuration with the smallest journals, so that a test can fill them.
const CONFIGURATION: &str = "[storage]\njournal_size = \"64MiB\"\n";
/// Settings of a daemon with these journals.
const SETTINGS: [&str; 2] = ["--reactors", "2"];

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

fn start(state: &State) -> Daemon {
    let path = state.beside("weir.toml");
    std::fs::write(&path, CONFIGURATION).unwrap();
    state.start(&[&["--config", path.to_str().unwrap()], &SETTINGS[..]].concat())
}

/// Adds the drives with these names.
fn add_drives(daemon: &Daemon, names: &[&str]) {
    for (name, class, emulation) in DRIVES.iter().filter(|(name, ..)| names.contains(name)) {
        let path = daemon.state().beside(name);
        std::fs::create_dir_all(&path).unwrap();
        let add = ["add", path.to_str().unwrap(), "--emulate", emulation, "--no-measurement"];
        match *class {
            "journal" => daemon.ok(&[&["journal"], &add[..]].concat()),
            class => daemon.ok(&[&["drive"], &add[..], &["--class", class]].concat()),
        };
    }
}

/// Starts a daemon with four flash drives and three disks, and a hybrid volume of this many extents.
fn with_hybrid(extents: &str) -> Daemon {
    with_hybrid_on(&State::new(), extents)
}

fn with_hybrid_on(state: &State, extents: &str) -> Daemon {
    let daemon = start(state);
    add_drives(&daemon, &DRIVES.map(|(name, ..)| name));
    daemon.ok(&["volume", "create", "vol1", "--size", extents, "--template", "hybrid"]);
    daemon
}

fn inspect(daemon: &Daemon) -> Value {
    daemon.json(&["volume", "inspect", "vol1"])
}

fn journals(daemon: &Daemon) -> Vec<Value> {
    daemon.json(&["journal", "list"])["items"].as_array().unwrap().clone()
}

fn wait_for_replicas(daemon: &Daemon) {
    wait_until("all replicas to have everything", || {
        let volume = inspect(daemon);
        let replication = &volume["replication"];
        volume.get("moving").is_none() && replication["stale"] == 0 && replication["missing"] == 0
    });
}

fn wait_for_empty_journals(daemon: &Daemon) {
    wait_until("journals to be empty", || journals(daemon).iter().all(|journal| journal["is_empty"] == true));
}

/// Returns the files of each extent on all drives.
fn extent_files(state: &State) -> BTreeMap<String, Vec<PathBuf>> {
    let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (drive, ..) in DRIVES {
        for volume in std::fs::read_dir(state.beside(drive).join("volumes")).into_iter().flatten() {
            for entry in std::fs::read_dir(volume.unwrap().path().join("extents")).into_iter().flatten() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                if name.len() == 8 {
                    files.entry(name).or_default().push(entry.path());
                }
            }
        }
    }
    files
}

/// Checks the files of all replicas, and that each extent has this many replicas.
fn check_files(model: &BlockModel, state: &State, replicas: usize) {
    let files = extent_files(state);
    assert_eq!(files.len() as u64, model.extents);
    for (extent, paths) in (0..).zip(files.values()) {
        assert_eq!(paths.len(), replicas, "{paths:?}");
        for path in paths {
            let file = File::open(path).unwrap();
            let mut found = [0; BLOCK as usize];
            for (offset, value) in model.blocks.range(extent * GIB..(extent + 1) * GIB) {
                file.read_exact_at(&mut found, offset - extent * GIB).unwrap();
                assert!(found.iter().all(|byte| byte == value), "{} at {offset}", path.display());
            }
        }
    }
}

/// Compares all replicas of each extent byte by byte, and returns the number of replicas per extent.
fn compare_replicas(state: &State) -> Vec<usize> {
    extent_files(state).values().map(|paths| assert_alike(paths)).collect()
}

/// Reasons that may refuse a change of template while a drive is missing, or shortly after. A replica on the
/// drive may have been needed then.
const DRIVE_WAS_AWAY: [&str; 4] = [
    "extent replicas are missing",
    "wait for it, because it is missing",
    "the new replicas failed, and it is tried to use them again",
    "' cannot have class ",
];

/// Moves a drive's folder away. [`bring_back`] moves it back.
fn hide(state: &State, drive: &str) {
    std::fs::rename(state.beside(drive), state.beside(&format!("{drive}.away"))).unwrap();
}

fn bring_back(state: &State, drive: &str) {
    std::fs::rename(state.beside(&format!("{drive}.away")), state.beside(drive)).unwrap();
}

/// A clone and a restored volume have their content before their slow replicas do, and get journals as any new volume.
#[test]
fn clone_of_a_hybrid_volume_gets_journals() {
    let daemon = with_hybrid("1");
    let mut model = BlockModel::new(1);
    model.write(&mut Client::attach(&daemon.nbd_socket(), "vol1"), 200);
    daemon.ok(&["snapshot", "create", "vol1@s"]);
    daemon.ok(&["volume", "clone", "vol1", "clone1"]);
    daemon.ok(&["snapshot", "restore", "vol1@s"]);
    for name in ["clone1", "vol1"] {
        model.check_in(&daemon, name);
        wait_until("the slow replicas to be behind journals and in sync", || {
            let volume = daemon.json(&["volume", "inspect", name]);
            let of_volume = |journal: &&Value| journal["volume"] == name;
            let journaled: u64 =
                journals(&daemon).iter().filter(of_volume).map(|one| one["replicas"].as_u64().unwrap()).sum();
            volume.get("moving").is_none() && volume["replication"]["missing"] == 0 && journaled == 2
        });
        model.check_in(&daemon, name);
    }
    wait_for_empty_journals(&daemon);
    // All volumes and the snapshot have the same content.
    let files = compare_replicas(&daemon.stop());
    assert_eq!(files, [9]);
}

#[test]
fn acknowledged_writes_survive_kills_and_are_destaged() {
    survives_kills(with_hybrid("2"), 3, 4);
}

/// Starts a daemon with disks and two journal drives, and a volume of two extents on the disks with the I/O
/// profile `journal`.
fn with_profile(replicas: &str) -> Daemon {
    let daemon = start(&State::new());
    add_drives(&daemon, &["disk1", "disk2", "journal1", "journal2"]);
    let create = "volume create vol1 --size 2 --class low --io-profile journal --replicas";
    daemon.ok(&[&words(create)[..], &[replicas]].concat());
    daemon
}

#[test]
fn acknowledged_writes_of_a_journaled_volume_survive_kills() {
    survives_kills(with_profile("1"), 1, 2);
}

#[test]
fn acknowledged_writes_of_a_journaled_volume_with_two_replicas_survive_kills() {
    survives_kills(with_profile("2"), 2, 4);
}

#[test]
fn journal_lies_on_the_journal_drive_that_has_room() {
    if !is_root() {
        return skip("a filesystem of its own needs root");
    }
    let daemon = start(&State::new());
    add_drives(&daemon, &["disk1", "journal1"]);
    let small = Mount::tmpfs(&daemon.state().beside("small"), 40);
    daemon.ok(&["journal", "add", small.point().to_str().unwrap(), "--no-measurement"]);
    // Drives of equal use are tried in the order of their identities, which are random.
    for volume in ["vol1", "vol2", "vol3", "vol4"] {
        let create = words("volume create --size 1 --class low --io-profile journal");
        daemon.ok(&[&create[..], &[volume]].concat());
    }
    assert!(journals(&daemon).iter().all(|journal| journal["drive"] == "journal1"));
    daemon.stop();
}

/// Fails if a start serves the slow files alone, which lack what the journal has not destaged.
#[test]
fn journaled_volume_waits_for_its_journal_drive() {
    let daemon = with_profile("1");
    let mut model = BlockModel::new(2);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 700);
    client.flush().unwrap();
    let drive = journals(&daemon)[0]["drive"].as_str().unwrap().to_owned();
    let state = daemon.kill();
    hide(&state, &drive);
    let daemon = start(&state);
    assert_eq!(inspect(&daemon)["health"], "offline");
    let refused = daemon.refused(1, &["drive", "remove", &drive]);
    assert!(refused.contains("no replica has everything without the write journal on it"), "{refused}");
    bring_back(&state, &drive);
    wait_until("the volume is served", || inspect(&daemon)["health"] == "online");
    model.check(&daemon);
    wait_for_empty_journals(&daemon);
    check_files(&model, &state, 1);
    daemon.stop();
}

/// Kills the daemon of a volume of two extents with these numbers of replicas, and of extent replicas behind
/// journals.
fn survives_kills(mut daemon: Daemon, replicas: usize, journaled: u64) {
    let mut model = BlockModel::new(2);
    let shown = journals(&daemon);
    let behind: u64 = shown.iter().map(|journal| journal["replicas"].as_u64().unwrap()).sum();
    assert_eq!(behind, journaled, "{shown:?}");
    for _ in 0..5 {
        let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
        model.write(&mut client, 700);
        client.flush().unwrap();
        daemon = start(&daemon.kill());
        model.check(&daemon);
    }
    if replicas > 1 {
        wait_for_replicas(&daemon);
    }
    wait_for_empty_journals(&daemon);
    check_files(&model, daemon.state(), replicas);
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]));
    let state = daemon.stop();
    let daemon = start(&state);
    model.check(&daemon);
    daemon.stop();
}

fn modify_profile(daemon: &Daemon, profile: &str) {
    daemon.ok(&["volume", "modify", "vol1", "--io-profile", profile]);
}

/// Changes the profile of a volume that is written, also before the last change has ended. A kill may hit a change at any
/// of its steps.
fn change_profile_under_kills(replicas: &str) {
    let mut daemon = start(&State::new());
    add_drives(&daemon, &["disk1", "disk2", "disk3", "journal1", "journal2"]);
    let create = "volume create vol1 --size 2 --class low --replicas";
    daemon.ok(&[&words(create)[..], &[replicas]].concat());
    let mut model = BlockModel::new(2);
    for round in 0..setting("WEIR_PROFILE_KILLS", 6) {
        modify_profile(&daemon, ["journal", "none"][round as usize % 2]);
        let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
        let writes = model.random.below(900);
        model.write(&mut client, writes);
        client.flush().unwrap();
        daemon = start(&daemon.kill());
        model.check(&daemon);
    }
    let replicas: usize = replicas.parse().unwrap();
    for (profile, journaled) in [("journal", 2 * replicas), ("none", 0)] {
        modify_profile(&daemon, profile);
        model.write(&mut Client::attach(&daemon.nbd_socket(), "vol1"), 300);
        wait_until("all replicas to be as the profile says", || inspect(&daemon).get("moving").is_none());
        let behind: u64 = journals(&daemon).iter().map(|journal| journal["replicas"].as_u64().unwrap()).sum();
        assert_eq!(behind, journaled as u64);
        model.check(&daemon);
    }
    check_files(&model, daemon.state(), replicas);
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]));
    daemon.stop();
}

#[test]
fn profile_of_one_replica_changes_under_writes_and_kills() {
    change_profile_under_kills("1");
}

#[test]
fn profile_of_two_replicas_changes_under_writes_and_kills() {
    change_profile_under_kills("2");
}

#[test]
fn data_is_read_from_journals_and_disks_without_fast_replica() {
    let daemon = with_hybrid("1");
    let mut model = BlockModel::new(1);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 1500);
    client.zero(0, 1 << 28, 1 << 20).unwrap();
    client.trim((1 << 28) + (1 << 20), 1 << 20).unwrap();
    client.flush().unwrap();
    assert!(journals(&daemon).iter().any(|journal| journal["is_empty"] == false), "it is in use");
    let state = daemon.kill();
    let behind: BTreeSet<&str> = DRIVES
        .iter()
        .filter(|(drive, class, _)| *class == "high" && state.beside(drive).join("journals").exists())
        .map(|(drive, ..)| *drive)
        .collect();
    assert_eq!(behind.len(), 2, "each low replica has its journal on a drive of its own");
    let fast = DRIVES.iter().map(|(drive, ..)| *drive).find(|drive| {
        !behind.contains(drive) && std::fs::read_dir(state.beside(drive).join("volumes")).unwrap().count() > 0
    });
    let fast = fast.unwrap();
    assert!(fast.starts_with("flash"), "the fast replica is on none of these drives: {fast}");
    hide(&state, fast);
    let daemon = start(&state);
    model.check(&daemon);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 300);
    client.flush().unwrap();
    model.check(&daemon);
    bring_back(daemon.state(), fast);
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    model.check(&daemon);
    check_files(&model, daemon.state(), 3);
    daemon.stop();
}

#[test]
fn absent_journal_drive_is_awaited_and_lost_journal_replaced() {
    let mut daemon = with_hybrid("1");
    let mut model = BlockModel::new(1);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 600);
    client.flush().unwrap();
    let drive = journals(&daemon)[0]["drive"].as_str().unwrap().to_owned();
    let state = daemon.kill();
    hide(&state, &drive);
    daemon = start(&state);
    model.check(&daemon);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 300);
    client.flush().unwrap();
    bring_back(daemon.state(), &drive);
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    check_files(&model, daemon.state(), 3);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 600);
    client.flush().unwrap();
    let state = daemon.kill();
    let log = std::fs::read_dir(state.beside(&drive).join("journals")).unwrap().next().unwrap();
    let log = File::options().write(true).open(log.unwrap().path().join("log")).unwrap();
    log.write_all_at(&[0; 8192], 0).unwrap();
    let daemon = start(&state);
    model.check(&daemon);
    let alarms = daemon.json(&["status"])["alarms"].to_string();
    assert!(alarms.contains("a write journal of volume 'vol1' is lost"), "{alarms}");
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    model.check(&daemon);
    check_files(&model, daemon.state(), 3);
    daemon.stop();
}

#[test]
fn failed_journal_is_replaced_without_client_errors() {
    let daemon = with_hybrid("1");
    let mut model = BlockModel::new(1);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 600);
    let drive = journals(&daemon)[0]["drive"].as_str().unwrap().to_owned();
    let log = std::fs::read_dir(daemon.state().beside(&drive).join("journals")).unwrap().next().unwrap();
    let log = File::options().write(true).open(log.unwrap().path().join("log")).unwrap();
    // Data that is not destaged yet can no longer be read.
    log.set_len(4096).unwrap();
    wait_until("the replica behind it to be made anew behind another", || {
        let journals = journals(&daemon);
        journals.len() == 2 && journals.iter().all(|journal| journal["drive"] != json!(drive))
    });
    model.write(&mut client, 300);
    model.check(&daemon);
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    check_files(&model, daemon.state(), 3);
    client.disconnect();
    let daemon = start(&daemon.kill());
    model.check(&daemon);
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]));
    daemon.stop();
}

#[test]
fn missing_slow_drive_does_not_block_full_journals() {
    // The state is in memory: so many sequential writes would take minutes on the machine's disk.
    let daemon = with_hybrid_on(&State::in_memory(), "2");
    let mut model = BlockModel::new(2);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 600);
    client.flush().unwrap();
    let state = daemon.kill();
    hide(&state, "disk1");
    let daemon = start(&state);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    // These writes are several times the size of the journals.
    model.write(&mut client, 30_000);
    client.flush().unwrap();
    model.check(&daemon);
    bring_back(daemon.state(), "disk1");
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    model.check(&daemon);
    check_files(&model, daemon.state(), 3);
    daemon.stop();
}

/// Writes all pieces from 128 KiB on at once, each with FUA. Returns the error of each, or 0, by its offset.
fn write_pieces(client: &mut Client, value: u8) -> BTreeMap<u64, u32> {
    let mut send = |offset| client.send(WRITE, FUA, offset, PIECE as u32, &[value; PIECE as usize]).unwrap();
    let sent: BTreeMap<u64, u64> = (1..=PIECES).map(|piece| (send(piece * PIECE), piece * PIECE)).collect();
    let answered = sent.iter().map(|_| client.reply().unwrap());
    answered.map(|(cookie, error)| (sent[&cookie], error)).collect()
}

/// The last replica stays in service while its slow drive is missing, because its journal takes writes. A large write that
/// bypasses the journal would go to the missing drive alone.
#[test]
fn write_that_bypasses_a_journal_is_refused_while_the_slow_drive_is_missing() {
    // A disk so slow that the journal fills.
    const SLOW: &str = "hdd-7200,iops=2000,seek=0,latency=100us,flush=0,bandwidth=10MB/s";
    let daemon = start(&State::in_memory());
    add_drives(&daemon, &["journal1"]);
    let slow = daemon.state().beside("slow");
    std::fs::create_dir(&slow).unwrap();
    let add = words("drive add --class low --no-measurement --emulate");
    daemon.ok(&[&add[..], &[SLOW, slow.to_str().unwrap()]].concat());
    daemon.ok(&words("volume create vol1 --size 1 --class low --io-profile journal"));
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    // A write that needs space of a missing drive is refused anyway, so all have their space before.
    assert!(write_pieces(&mut client, 1).values().all(|error| *error == 0));
    wait_for_empty_journals(&daemon);
    hide(daemon.state(), "slow");
    wait_until("the drive to be missing", || daemon.json(&["drive", "show", "slow"])["state"] == "missing");
    let mut written = BTreeSet::new();
    wait_until("a write to be refused", || {
        let answers = write_pieces(&mut client, 2);
        written.extend(answers.iter().filter(|(_, error)| **error == 0).map(|(offset, _)| *offset));
        answers.values().any(|error| *error == EIO)
    });
    assert!(!written.is_empty(), "large writes go to the journal while it has room");
    assert_eq!(client.write(0, &[2; BLOCK as usize]), Ok(()), "small writes go to the journal");
    bring_back(daemon.state(), "slow");
    wait_until("the drive to be back", || daemon.json(&["drive", "show", "slow"])["state"] == "online");
    for offset in (1..=PIECES).map(|piece| piece * PIECE) {
        let expected = if written.contains(&offset) { 2 } else { 1 };
        assert_eq!(client.read(offset, PIECE as u32).unwrap(), [expected; PIECE as usize], "at {offset}");
    }
    assert!(write_pieces(&mut client, 3).values().all(|error| *error == 0));
    daemon.stop();
}

#[test]
fn missing_replica_is_not_destaged_to_until_it_returns() {
    let daemon = with_hybrid("1");
    let mut model = BlockModel::new(1);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 300);
    client.flush().unwrap();
    let paths = extent_files(daemon.state()).into_values().flatten().collect::<Vec<_>>();
    let has_replica = |disk: &&str| paths.iter().any(|path| path.starts_with(daemon.state().beside(disk)));
    let disk = ["disk1", "disk2", "disk3"].into_iter().find(has_replica).unwrap();
    hide(daemon.state(), disk);
    // Idle journals are destaged. Writing continues until the daemon knows that the disk is missing.
    wait_until("its replica to be out of service", || {
        model.write(&mut client, 30);
        inspect(&daemon)["replication"]["missing"] == 1
    });
    model.write(&mut client, 300);
    client.flush().unwrap();
    // Writing has stopped for both journals. The one whose disk is present has destaged everything.
    wait_until("a journal to be empty", || journals(&daemon).iter().any(|one| one["is_empty"] == true));
    assert!(journals(&daemon).iter().any(|one| one["is_empty"] == false), "something was destaged to {disk}");
    bring_back(daemon.state(), disk);
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    model.check(&daemon);
    check_files(&model, daemon.state(), 3);
    daemon.stop();
}

#[test]
fn damaged_slow_replica_is_rebuilt() {
    let daemon = with_hybrid("1");
    let mut model = BlockModel::new(1);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 300);
    client.flush().unwrap();
    client.disconnect();
    let files = extent_files(daemon.state()).remove("00000000").unwrap();
    let slow = files.iter().find(|path| path.display().to_string().contains("disk")).unwrap();
    File::options().write(true).open(slow).unwrap().set_len(4096).unwrap();
    // Only a scrub reads this file.
    daemon.ok(&words("scrub start vol1 --wait"));
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    daemon.ok(&words("scrub start vol1 --wait"));
    model.check(&daemon);
    check_files(&model, daemon.state(), 3);
    daemon.stop();
}

#[test]
fn random_model_agrees_while_journals_fill_and_templates_change() {
    if !has_libnbd() {
        return;
    }
    let daemon = with_hybrid("3");
    let operations = setting("WEIR_MODEL_OPERATIONS", 3000).to_string();
    let seed = Random::seeded().next().to_string();
    let mut command = Command::new(PYTHON);
    command.args([MODEL, &daemon.uri("vol1"), &seed, &operations, "structured"]);
    let mut client = command.stdout(Stdio::null()).spawn().unwrap();
    let mut random = Random::seeded();
    let mut changes = 0;
    while client.try_wait().unwrap().is_none() {
        let template = random.pick(&["nvme", "hybrid", "hybrid", "hdd"]).to_owned();
        let modify = ["volume", "modify", "vol1", "--template", template, "--wait"];
        changes += u64::from(daemon.state().weir(&modify).done_unless(&DRIVE_WAS_AWAY));
        let drive = random.pick(&["flash1", "flash3", "disk2"]).to_owned();
        hide(daemon.state(), drive);
        daemon.ok(&["volume", "list"]);
        bring_back(daemon.state(), drive);
    }
    assert!(client.wait().unwrap().success());
    assert!(changes > 0, "no change was made under the client");
    let modify = words("volume modify vol1 --template hybrid --wait");
    wait_until("the drive is back", || daemon.state().weir(&modify).done_unless(&DRIVE_WAS_AWAY));
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    assert_eq!(compare_replicas(daemon.state()), [3, 3, 3]);
    daemon.stop();
}

#[test]
fn regrown_volume_behind_journals_holds_no_old_data() {
    let mut daemon = with_hybrid("2");
    let mut model = BlockModel::new(2);
    // The volume is shrunk to whole extents, and into the middle of an extent.
    for (mebibytes, is_killed) in [(1024, false), (1124, false), (1024, true), (1124, true)] {
        let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
        model.write(&mut client, 900);
        client.flush().unwrap();
        client.disconnect();
        daemon.ok(&["volume", "resize", "vol1", "--size", &format!("{mebibytes}MiB"), "--force"]);
        daemon.ok(&words("volume resize vol1 --size 2"));
        let is_cut = |offset: u64| offset >= mebibytes << 20;
        model.blocks.iter_mut().filter(|(offset, _)| is_cut(**offset)).for_each(|(_, value)| *value = 0);
        if is_killed {
            daemon = start(&daemon.kill());
        }
        model.check(&daemon);
    }
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    check_files(&model, daemon.state(), 3);
    daemon.stop();
}

#[test]
fn journals_follow_templates_and_leave_removed_drives() {
    let daemon = with_hybrid("1");
    let mut model = BlockModel::new(1);
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    model.write(&mut client, 300);
    for template in ["nvme", "hybrid", "hdd", "hybrid"] {
        daemon.ok(&["volume", "modify", "vol1", "--template", template, "--wait"]);
        model.write(&mut client, 200);
        model.check(&daemon);
        let replicas: u64 =
            journals(&daemon).iter().map(|journal| journal["replicas"].as_u64().unwrap()).sum();
        match template {
            "nvme" => wait_until("journals to be given up", || journals(&daemon).is_empty()),
            "hybrid" => assert_eq!(replicas, 2, "{:?}", journals(&daemon)),
            _ => {}
        }
    }
    let drive = journals(&daemon)[0]["drive"].as_str().unwrap().to_owned();
    daemon.ok(&["drive", "remove", &drive, "--wait"]);
    let left = journals(&daemon);
    assert!(left.iter().all(|journal| journal["drive"] != json!(drive)), "{left:?}");
    assert!(!daemon.state().beside(&drive).join("journals").exists());
    model.write(&mut client, 200);
    client.flush().unwrap();
    wait_for_replicas(&daemon);
    wait_for_empty_journals(&daemon);
    model.check(&daemon);
    check_files(&model, daemon.state(), 3);
    client.disconnect();
    daemon.ok(&words("volume delete vol1 --force"));
    for (drive, ..) in DRIVES {
        let journals = daemon.state().beside(drive).join("journals");
        assert!(std::fs::read_dir(journals).map_or(0, Iterator::count) == 0, "{drive}");
    }
    daemon.stop();
}

#[test]
fn removal_blocked_by_a_journal_is_refused_at_once() {
    let daemon = start(&State::new());
    add_drives(&daemon, &["flash1", "flash2", "flash3", "disk1", "disk2"]);
    daemon.ok(&words("volume create vol1 --size 1 --template hybrid"));
    let drive = journals(&daemon)[0]["drive"].as_str().unwrap().to_owned();
    let remove = ["drive", "remove", &drive, "--wait"];
    let refused = daemon.refused(1, &remove);
    let why = format!("drive '{drive}' cannot be emptied: the write journal of volume 'vol1' on it");
    assert!(refused.contains(&why) && refused.contains("add a drive of class low"), "{refused}");
    add_drives(&daemon, &["disk3"]);
    daemon.ok(&remove);
    assert!(journals(&daemon).iter().all(|journal| journal["drive"] != drive.as_str()));
    wait_for_replicas(&daemon);
    daemon.stop();
}

#[test]
fn metrics_of_journals_name_their_volume_as_those_of_volumes_do() {
    let daemon = start(&State::new());
    add_drives(&daemon, &["disk1", "journal1"]);
    daemon.ok(&words("tenant create svm01"));
    daemon.ok(&words("volume create vol1 --tenant svm01 --size 1 --class low --io-profile journal"));
    let metrics = daemon.get_text("/metrics");
    for family in ["weir_volume_size_bytes{", "weir_journal_size_bytes{"] {
        let series = format!("{family}tenant=\"svm01\",volume=\"vol1\"");
        assert!(metrics.contains(&series), "{series} in:\n{metrics}");
    }
    daemon.stop();
}
