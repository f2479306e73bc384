//! Templates from outside: a volume moves from template to template under its clients, and the daemon is
//! killed in the middle of each move.
//!
//! At the end every replica lies where the template says and holds every byte.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::common::daemon::{Daemon, State};
use crate::common::nbd::Client;
use crate::common::wait_until;
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;
const BLOCK: usize = 4096;
const PIECE: usize = 256 << 10;
/// Extents of the volume.
const EXTENTS: u64 = 3;
/// Pieces written of each extent. The few of the first extent are soon moved, the others keep a slow move
/// busy.
const PIECES: [u64; EXTENTS as usize] = [2, 48, 48];
/// Resync ceiling at which the first extent takes a moment, and the others many seconds.
const SLOW: &str = "500kB/s";
/// Emulated disk without the delays that would only cost time here.
const DISK: &str = "hdd-7200,iops=20000,seek=0,latency=100us,flush=0,bandwidth=1GB/s";
const DRIVES: [(&str, &str, &str); 6] = [
    ("flash1", "high", "nvme"),
    ("flash2", "high", "nvme"),
    ("flash3", "high", "nvme"),
    ("disk1", "low", DISK),
    ("disk2", "low", DISK),
    ("disk3", "low", DISK),
];

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

fn add_drive(daemon: &Daemon, name: &str, class: &str, emulation: &str) {
    let path = daemon.state().beside(name);
    std::fs::create_dir_all(&path).unwrap();
    let add = ["drive", "add", path.to_str().unwrap(), "--class", class, "--emulate", emulation];
    daemon.ok(&[&add[..], &["--no-measurement"]].concat());
}

/// Starts a daemon with three flash drives and three disks.
fn with_drives() -> Daemon {
    let daemon = Daemon::fresh();
    DRIVES.iter().for_each(|(name, class, emulation)| add_drive(&daemon, name, class, emulation));
    daemon
}

fn inspect(daemon: &Daemon) -> Value {
    daemon.json(&["volume", "inspect", "vol1"])
}

fn extents_left(volume: &Value) -> u64 {
    volume["moving"]["extents_left"].as_u64().unwrap_or(0)
}

/// Returns the files of each extent, with the class of the drive of each.
fn extent_files(state: &State, volume: &Value) -> BTreeMap<String, Vec<(&'static str, PathBuf)>> {
    let mut files: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (drive, class, _) in DRIVES {
        let folder = state.beside(drive).join("volumes").join(volume["id"].as_str().unwrap()).join("extents");
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if !name.contains('.') {
                files.entry(name).or_default().push((class, entry.path()));
            }
        }
    }
    files
}

/// Expected contents of blocks: every byte is the number of writes to its block.
#[derive(Default)]
struct Blocks(BTreeMap<u64, u8>);

impl Blocks {
    /// Writes the first block of each piece again. The first time it writes the whole piece.
    fn write(&mut self, client: &mut Client) {
        for (extent, pieces) in (0..).zip(PIECES) {
            for offset in (0..pieces).map(|piece| extent * GIB + piece * PIECE as u64) {
                let value = self.0.get(&offset).copied().unwrap_or((offset / PIECE as u64 % 100) as u8 + 1);
                let length = if self.0.contains_key(&offset) { BLOCK } else { PIECE };
                client.write(offset, &vec![value.wrapping_add(1); length]).unwrap();
                self.0.insert(offset, value.wrapping_add(1));
            }
        }
    }

    fn check(&self, daemon: &Daemon) {
        let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
        for (offset, value) in &self.0 {
            assert_eq!(client.read(*offset, BLOCK as u32).unwrap(), [*value; BLOCK], "at {offset}");
        }
        client.disconnect();
    }

    /// Checks all blocks in the file of an extent replica.
    fn check_file(&self, extent: u64, path: &PathBuf) {
        let file = File::open(path).unwrap();
        let mut found = [0; BLOCK];
        for (offset, value) in self.0.range(extent * GIB..(extent + 1) * GIB) {
            file.read_exact_at(&mut found, offset - extent * GIB).unwrap();
            assert_eq!(found, [*value; BLOCK], "{} at {offset}", path.display());
        }
    }
}

/// Checks that each extent has replicas of exactly these classes, and that each replica holds all blocks.
fn assert_placed(daemon: &Daemon, blocks: &Blocks, template: &str, classes: &[&str]) {
    let volume = inspect(daemon);
    assert_eq!((&volume["template"], &volume["replicas"]), (&json!(template), &json!(classes.len())));
    assert_eq!(volume.get("moving"), None);
    let in_sync = EXTENTS * classes.len() as u64;
    wait_until("all replicas to have everything", || inspect(daemon)["replication"]["in_sync"] == in_sync);
    wait_until("journals to be empty", || {
        let journals = daemon.json(&["journal", "list"])["items"].clone();
        journals.as_array().unwrap().iter().all(|journal| journal["is_empty"] == true)
    });
    let class_of = |drive: &Value| {
        let name = drive["name"].as_str().unwrap();
        DRIVES.iter().find(|(drive, ..)| *drive == name).unwrap().1
    };
    for replica in volume["placement"].as_array().unwrap() {
        for drive in replica["drives"].as_array().unwrap() {
            assert!(classes.contains(&class_of(drive)), "{replica}");
        }
    }
    let files = extent_files(daemon.state(), &volume);
    assert_eq!(files.len() as u64, EXTENTS);
    for (extent, (name, replicas)) in (0..).zip(files) {
        let mut found: Vec<&str> = replicas.iter().map(|(class, _)| *class).collect();
        found.sort_unstable();
        assert_eq!(found, classes, "extent {name} of {volume}");
        replicas.iter().for_each(|(_, path)| blocks.check_file(extent, path));
    }
}

#[test]
fn volume_moves_between_templates_through_kills() {
    let mut daemon = with_drives();
    daemon.ok(&words("volume create vol1 --size 3 --template nvme"));
    let mut blocks = Blocks::default();
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    blocks.write(&mut client);
    client.flush().unwrap();
    assert_placed(&daemon, &blocks, "nvme", &["high"; 3]);
    let pace = format!("qos background-policy modify resync --max-throughput {SLOW}");
    let moves: [(&str, &[&str]); 3] =
        [("hybrid", &["high", "low", "low"]), ("hdd", &["low"; 3]), ("nvme", &["high"; 3])];
    for (template, classes) in moves {
        daemon.ok(&words(&pace));
        daemon.ok(&["volume", "modify", "vol1", "--template", template]);
        wait_until("the first extent is moved and the others are not", || {
            let volume = inspect(&daemon);
            let left = extents_left(&volume);
            assert!(volume.get("moving").is_some(), "it is over before it could be interrupted: {volume}");
            assert!(volume["replication"]["in_sync"].as_u64().unwrap() >= 3 * EXTENTS, "{volume}");
            // The count is zero until the daemon has counted the extents.
            (1..EXTENTS).contains(&left)
        });
        blocks.write(&mut client);
        daemon = daemon.kill().start(&["--reactors", "2"]);
        let volume = inspect(&daemon);
        assert_eq!(
            (&volume["template"], volume.get("moving").is_some()),
            (&json!(template), true),
            "{volume}"
        );
        blocks.check(&daemon);
        daemon.ok(&words("qos background-policy reset resync"));
        client = Client::attach(&daemon.nbd_socket(), "vol1");
        blocks.write(&mut client);
        daemon.ok(&["volume", "modify", "vol1", "--template", template, "--wait"]);
        blocks.write(&mut client);
        client.flush().unwrap();
        assert_placed(&daemon, &blocks, template, classes);
        blocks.check(&daemon);
    }
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]));
    client.disconnect();
    daemon.stop();
}

#[test]
fn read_preference_of_template_applies_at_once() {
    let daemon = Daemon::fresh();
    add_drive(&daemon, "flash1", "high", "nvme");
    add_drive(&daemon, "disk1", "low", DISK);
    daemon.ok(&words("template create slow-reads --replicas high,low --read-from low"));
    daemon.ok(&words("volume create vol1 --size 1 --template slow-reads"));
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    client.write(0, &[1; BLOCK]).unwrap();
    client.flush().unwrap();
    // The replicas are made different behind the daemon's back, so that a read shows its source.
    for (class, path) in extent_files(daemon.state(), &inspect(&daemon)).remove("00000000").unwrap() {
        let mark = if class == "high" { 7 } else { 3 };
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&[mark; BLOCK], 0).unwrap();
        file.sync_all().unwrap();
    }
    let mut read = || client.read(0, BLOCK as u32).unwrap()[0];
    assert_eq!((read(), read(), read()), (3, 3, 3));
    daemon.ok(&words("template modify slow-reads --read-from fastest"));
    assert_eq!((read(), read(), read()), (7, 7, 7));
    daemon.ok(&words("template modify slow-reads --read-from low"));
    assert_eq!((read(), read(), read()), (3, 3, 3));
    daemon.ok(&words("volume modify vol1 --template none"));
    assert_eq!((read(), read(), read()), (7, 7, 7), "nobody says otherwise any more");
    daemon.stop();
}

#[test]
fn templates_are_listed_validated_and_persisted() {
    let daemon = with_drives();
    daemon.ok(&words("template create mixed --replicas high,med --read_from HIGH"));
    let refused = |code: i32, command: &str, expected: &str| {
        let message = daemon.refused(code, &words(command));
        assert!(message.contains(expected), "{command}: {message}");
    };
    refused(2, "template create t --replicas fast,low", "'fast' is no class");
    refused(2, "template create t --replicas high,high,high,high", "1 to 3 classes are accepted");
    refused(1, "template create Hybrid --replicas high", "is built in");
    refused(1, "template create none --replicas high", "none");
    refused(1, "template create t --replicas high --read-from low", "of which none of its replicas");
    refused(1, "template modify nvme --read-from high", "is built in and stays as it is");
    refused(
        1,
        "volume create vol1 --size 1 --template mixed",
        "a replica on class medium, which cannot be had",
    );
    refused(4, "volume create vol1 --size 1 --template other", "there are: hdd, hybrid, mixed, nvme");
    refused(2, "volume create vol1 --size 1 --template nvme --repl 2", "cannot be used with");
    assert_eq!(daemon.json(&["volume", "list"])["items"], json!([]), "nothing was made");
    daemon.ok(&words("template modify mixed --replicas high,low"));
    daemon.ok(&words("volume create vol1 --size 1 --template mixed"));
    refused(2, "volume modify vol1 --template nvme --repl 2", "--replicas goes with '--template none' alone");
    refused(1, "volume modify vol1 --repl 3", "follows template 'mixed'");
    refused(1, "volume modify vol1 --io-priority high", "--template none");
    refused(1, "template delete mixed", "followed by the volumes: vol1");
    refused(1, "template modify mixed --replicas high,med", "class medium in 1 replica");
    let (list, shown) = (daemon.ok(&["volume", "list"]), daemon.ok(&["volume", "inspect", "vol1"]));
    assert!(list.contains("Template") && list.contains(" mixed "), "{list}");
    assert!(shown.contains("Template: mixed\n"), "{shown}");
    assert!(shown.contains("Class: low (the lowest, by template 'mixed')\n"), "{shown}");
    let table = daemon.ok(&["template", "list"]);
    for row in
        ["hybrid   low,low,high   high", "mixed    high,low       high", "nvme     high,high,high fastest"]
    {
        assert!(table.contains(row), "{table}");
    }
    assert!(daemon.ok(&["template", "inspect", "hybrid"]).contains("Read From: high\n"));
    let before = daemon.json(&["template", "list"]);
    let daemon = daemon.kill().start(&[]);
    assert_eq!(daemon.json(&["template", "list"]), before);
    daemon.ok(&words("volume modify vol1 --template none --repl 1 --wait"));
    daemon.ok(&words("template delete mixed"));
    assert_eq!(daemon.json(&["volume", "inspect", "vol1"]).get("template"), None);
    daemon.stop();
}
