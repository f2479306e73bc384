//! Classes of service seen from outside: configured drives become pools by their measured performance.
//!
//! Volumes lie where their class is available, or report that it is not met. A volume on several drives keeps
//! its data.

use std::path::{Path, PathBuf};

use crate::common::daemon::{Daemon, State};
use crate::common::nbd::Client;
use crate::common::random::Random;
use serde_json::{Value, json};
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

/// A folder in memory, so that the storage below an emulated drive is always fast enough.
const MEMORY: &str = "/dev/shm";

/// Drives of the document on classes of service, in the order of its configuration: name, kind, and class.
const DRIVES: [(&str, &str, &str); 3] =
    [("xvdl", "ebs-standard", "low"), ("xvdn", "ebs-io1", "high"), ("xvdj", "ebs-gp2", "medium")];

/// Volumes of the document: its word for the class, name, resulting class, and drive.
const VOLUMES: [(&str, &str, &str, &str); 3] = [
    ("high", "test-high", "high", "xvdn"),
    ("med", "test-med", "medium", "xvdj"),
    ("low", "test-low", "low", "xvdl"),
];

/// A folder in memory.
fn memory_folder() -> TempDir {
    tempfile::Builder::new().prefix("weir-e2e-").tempdir_in(MEMORY).unwrap()
}

/// A configuration like that of the document, with directories for its devices.
fn configuration(state: &State, folder: &Path) -> PathBuf {
    let paths = DRIVES.map(|(name, ..)| folder.join(name));
    paths.iter().for_each(|path| std::fs::create_dir(path).unwrap());
    let kinds =
        paths.iter().zip(DRIVES).map(|(path, (_, kind, _))| (path.display().to_string(), kind.into()));
    let text = json!({
        "alertingurl": "",
        "clusterid": "cos-demo-cluster",
        "dataiface": "",
        "kvdb": ["etcd://localhost:4001"],
        "mgtiface": "",
        "storage": { "devices": paths, "emulate": Value::Object(kinds.collect()) },
        "zone": "a",
        "region": "us-west-1"
    });
    let path = state.beside("config.json");
    std::fs::write(&path, text.to_string()).unwrap();
    path
}

fn drives(daemon: &Daemon) -> Vec<Value> {
    daemon.json(&["drive", "list"])["items"].as_array().unwrap().clone()
}

fn wait_until_measured(daemon: &Daemon) {
    let is_measured =
        |drive: &Value| drive.get("measurement").is_some() && drive.get("measurement_progress").is_none();
    crate::common::wait_until("all drives are measured", || drives(daemon).iter().all(is_measured));
}

/// Words of the only line that begins with this word.
fn line<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found: Vec<_> = lines.filter(|words| words.first() == Some(&first)).collect();
    assert_eq!(found.len(), 1, "one line with '{first}' in {text}");
    found[0].clone()
}

/// Compares the pools and drives in `weir status` with the API.
fn check_status(daemon: &Daemon, folder: &Path) {
    let (text, pools) = (daemon.ok(&["status"]), daemon.json(&["pool", "list"])["items"].clone());
    for words in ["Weir is operational", "Local Storage Pool: 3 pools", "Local Storage Devices: 3 devices"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    for (number, (name, kind, class)) in DRIVES.iter().enumerate() {
        let pool = line(&text, &number.to_string());
        assert_eq!((pool[1], &pool[pool.len() - 3..]), (*class, &["online", "a", "us-west-1"][..]));
        let device = line(&text, &format!("{number}:1"));
        let path = folder.join(name).display().to_string();
        assert_eq!(device[1..5], [*name, &path, "emulated", kind]);
        assert_eq!(device[7], "online");
        let scanned_at = pools[number]["drives"][0]["scanned_at"].as_str().unwrap();
        assert_eq!((device[8], device[11], device[12]), (&scanned_at[8..10], &scanned_at[11..16], "UTC"));
    }
    // All three drives lie on one filesystem, which counts once.
    let size = line(&text, "0")[2..4].to_vec();
    assert_eq!(line(&text, "total")[2..4], size);
    assert_eq!(text.matches(&format!("Total Capacity  :  {}\n", size.join(" "))).count(), 1, "{text}");
    assert!(text.contains("Global Storage Pool\n        Total Used      :  "), "{text}");
    assert!(text.contains("Cluster ID: cos-demo-cluster\n"), "{text}");
    assert!(text.contains("kvdb 'etcd://localhost:4001' has no effect yet"), "{text}");
}

fn check_service(daemon: &Daemon, folder: &Path) {
    let text = daemon.ok(&["service", "drive", "show"]);
    let pools: Vec<&str> = text.split("Pool ID: ").skip(1).collect();
    assert_eq!(pools.len(), 3, "{text}");
    for ((number, pool), (name, kind, class)) in pools.iter().enumerate().zip(DRIVES) {
        assert!(pool.starts_with(&format!("{number}\n\tClass: {class}\n\tSize: ")), "{pool}");
        assert!(pool.contains("\tStatus: online\n\tHas metadata: no\n\tDrives:\n"), "{pool}");
        let path = folder.join(name).display().to_string();
        let is_shown = pool.contains(&format!("\t1: {path}, "));
        assert!(is_shown && pool.ends_with(&format!(", online, emulated {kind}\n")), "{pool}");
    }
}

/// State that must survive a restart: the identity, class and measurement of each drive, the pools, and the
/// placement of the volumes.
fn everything(daemon: &Daemon) -> Value {
    let fixed = |of: &Value, keys: &[&str]| keys.iter().map(|key| of[*key].clone()).collect::<Value>();
    let list = |noun: &str, keys: &[&str]| -> Value {
        let found = daemon.json(&[noun, "list"])["items"].clone();
        found.as_array().unwrap().iter().map(|of| fixed(of, keys)).collect()
    };
    json!({
        "drives": list("drive", &["id", "name", "path", "emulation", "class", "class_reason", "measurement"]),
        "pools": list("pool", &["number", "name", "class", "provisioned_bytes"]),
        "volumes": list("volume", &["id", "name", "drives", "class", "io_priority", "class_policy"]),
    })
}

#[test]
fn configured_drives_become_pools_and_volumes_get_class() {
    let (state, folder) = (State::new(), memory_folder());
    let config = configuration(&state, folder.path());
    let arguments = ["--reactors", "2", "--config", config.to_str().unwrap()];
    let daemon = state.start(&arguments);
    wait_until_measured(&daemon);
    check_status(&daemon, folder.path());
    check_service(&daemon, folder.path());
    for (index, (word, name, class, drive)) in VOLUMES.into_iter().enumerate() {
        let command = format!("volume create --io_priority {word} {name} --size 8");
        assert_eq!(daemon.ok(&command.split_whitespace().collect::<Vec<_>>()), format!("{name}\n"));
        let volume = daemon.json(&["volume", "inspect", name]);
        let placed = volume["drives"].as_array().unwrap();
        assert_eq!((placed.len(), &placed[0]["name"]), (1, &Value::from(drive)), "{volume:#}");
        assert_eq!((&volume["class"], &volume["io_priority"]), (&Value::from(class), &Value::from(class)));
        let mut client = Client::attach(&daemon.nbd_socket(), name);
        client.write(5 * GIB, &[index as u8 + 1; 8192]).unwrap();
        client.flush().unwrap();
        client.disconnect();
    }
    let shown = daemon.ok(&["volume", "inspect", "test-high"]);
    assert!(shown.contains("Class: high (as requested, strict)\n"), "{shown}");
    let before = everything(&daemon);
    let daemon = daemon.stop().start(&arguments);
    assert!(drives(&daemon).iter().all(|drive| drive.get("measurement_progress").is_none()));
    assert_eq!(everything(&daemon), before);
    for (index, (_, name, ..)) in VOLUMES.into_iter().enumerate() {
        let mut client = Client::attach(&daemon.nbd_socket(), name);
        assert_eq!(client.read(5 * GIB, 8192).unwrap(), [index as u8 + 1; 8192]);
        client.disconnect();
    }
    check_status(&daemon, folder.path());
    daemon.stop();
}

/// A daemon with drives of these names and classes, chosen by hand, in addition to the default drive.
fn with_drives(folder: &Path, drives: &[(&str, &str)]) -> Daemon {
    let daemon = Daemon::fresh();
    for (name, class) in drives {
        let path = folder.join(name);
        std::fs::create_dir(&path).unwrap();
        let path = path.to_str().unwrap();
        daemon.ok(&["drive", "add", path, "--class", class, "--no-measurement"]);
    }
    daemon
}

#[test]
fn unavailable_class_is_refused_or_reported_as_not_met() {
    let folder = memory_folder();
    let daemon = with_drives(folder.path(), &[("slow", "low")]);
    let create = ["volume", "create", "--io_priority", "high", "v1", "--size", "1"];
    for options in [&[] as &[&str], &["--class-policy", "strict"]] {
        let refused = daemon.refused(1, &[&create, options].concat());
        for words in [
            "a volume of 1GiB with class high cannot be had: there is pool 'default' (class not known",
            "free, pool 'low' with ",
            "free; --class-policy prefer takes another class",
        ] {
            assert!(refused.contains(words), "{words} in {refused}");
        }
    }
    let on_slow = daemon.refused(1, &[&create as &[&str], &["--drive", "slow"]].concat());
    assert!(on_slow.contains("drive 'slow' has class low, not high"), "{on_slow}");
    assert_eq!(daemon.json(&["volume", "list"])["items"], json!([]), "a refusal leaves nothing");
    daemon.ok(&[&create as &[&str], &["--class-policy", "prefer"]].concat());
    let shown = daemon.ok(&["volume", "inspect", "v1"]);
    assert!(shown.contains("Class: requested high, actual low (prefer)\n"), "{shown}");
    assert!(daemon.ok(&["volume", "list"]).contains("low (not high)"));
    let volume = daemon.json(&["volume", "inspect", "v1"]);
    assert_eq!((&volume["io_priority"], &volume["class"]), (&"high".into(), &"low".into()));
    let alarm = "volume v1, the class is not met: requested high, actual low";
    let status = daemon.ok(&["status"]);
    assert!(status.contains("Weir is degraded: 1 alarms") && status.contains(alarm), "{status}");
    let daemon = daemon.stop().start(&[]);
    assert!(daemon.ok(&["status"]).contains(alarm), "it follows from the records");
    daemon.ok(&["volume", "modify", "v1", "--io-priority", "low"]);
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]));
    daemon.ok(&["volume", "create", "v2", "--size", "1", "--io-priority", "low"]);
    let refused = daemon.refused(1, &["volume", "modify", "v2", "--io-priority", "high"]);
    assert!(refused.contains("volume 'v2' cannot have class high in 1 replica"), "{refused}");
    daemon.stop();
}

/// Expected content of a volume.
struct Written {
    random: Random,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Written {
    /// Writes one range within each of these extents, and one across the border to the previous extent.
    fn write(&mut self, daemon: &Daemon, extents: std::ops::Range<u64>) {
        let mut client = Client::attach(&daemon.nbd_socket(), "spread");
        for extent in extents {
            let begin = extent * GIB;
            for (offset, bytes) in
                [(begin + (extent + 1) * 65_536, 65_536), (begin.saturating_sub(4096), 8192)]
            {
                let data = self.random.bytes(bytes);
                client.write(offset, &data).unwrap();
                self.pieces.push((offset, data));
            }
        }
        client.flush().unwrap();
        client.disconnect();
    }

    /// Forgets the data beyond `end`.
    fn cut(&mut self, end: u64) {
        for (offset, data) in &mut self.pieces {
            data.truncate(end.saturating_sub(*offset) as usize);
        }
        self.pieces.retain(|(_, data)| !data.is_empty());
    }

    fn check(&self, daemon: &Daemon) {
        let mut client = Client::attach(&daemon.nbd_socket(), "spread");
        for (offset, data) in &self.pieces {
            assert!(client.read(*offset, data.len() as u32).unwrap() == *data, "wrong bytes at {offset}");
        }
        client.disconnect();
    }
}

/// Provisioned part of the volume on each of the two drives, in GiB.
fn provisioned(daemon: &Daemon) -> [u64; 2] {
    ["one", "two"]
        .map(|name| daemon.json(&["drive", "show", name])["provisioned_bytes"].as_u64().unwrap() / GIB)
}

#[test]
fn volume_on_two_drives_survives_crashes_and_resizes() {
    let folder = memory_folder();
    let daemon = with_drives(folder.path(), &[("one", "high"), ("two", "high"), ("slow", "low")]);
    daemon.ok(&["volume", "create", "spread", "--size", "4", "--io-priority", "high"]);
    assert_eq!(provisioned(&daemon), [2, 2]);
    let mut written = Written { random: Random::seeded(), pieces: Vec::new() };
    written.write(&daemon, 0..4);
    let daemon = daemon.kill().start(&["--reactors", "1"]);
    written.check(&daemon);
    daemon.ok(&["volume", "resize", "spread", "--size", "7"]);
    let [one, two] = provisioned(&daemon);
    assert_eq!((one + two, one.abs_diff(two)), (7, 1));
    written.check(&daemon);
    written.write(&daemon, 4..7);
    let daemon = daemon.kill().start(&["--reactors", "2"]);
    written.check(&daemon);
    daemon.ok(&["volume", "resize", "spread", "--size", "3", "--force"]);
    written.cut(3 * GIB);
    written.check(&daemon);
    daemon.ok(&["volume", "resize", "spread", "--size", "6"]);
    let mut client = Client::attach(&daemon.nbd_socket(), "spread");
    for extent in 3..6 {
        let offset = extent * GIB + (extent + 1) * 65_536;
        assert!(client.read(offset, 65_536).unwrap() == [0; 65_536], "what was cut off is back at {offset}");
    }
    client.disconnect();
    let daemon = daemon.kill().start(&["--reactors", "2"]);
    written.check(&daemon);
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]));
    daemon.ok(&["volume", "delete", "spread", "--wait"]);
    daemon.ok(&["drive", "remove", "one"]);
    daemon.stop();
}

#[test]
fn pool_refuses_volumes_beyond_over_provisioning() {
    let folder = memory_folder();
    let daemon = with_drives(folder.path(), &[("fast", "high")]);
    let size_bytes = daemon.json(&["pool", "inspect", "high"])["size_bytes"].as_u64().unwrap();
    let too_large = format!("{}GiB", size_bytes / GIB + 1);
    daemon.ok(&["pool", "modify", "high", "--over-provision", "100%"]);
    let shown = daemon.ok(&["pool", "inspect", "high"]);
    assert!(shown.contains("Over-Provisioning: at most 100% of its size\n"), "{shown}");
    let create = ["volume", "create", "v1", "--io-priority", "high", "--size"];
    for options in [&[] as &[&str], &["--drive", "fast"]] {
        let refused = daemon.refused(1, &[&create as &[&str], &[&too_large], options].concat());
        assert!(refused.contains("cannot be had") && refused.contains("of it provisionable"), "{refused}");
    }
    daemon.ok(&[&create as &[&str], &["1"]].concat());
    let refused = daemon.refused(1, &["volume", "resize", "v1", "--size", &too_large]);
    assert!(refused.contains("more cannot be had: there is pool 'high' with "), "{refused}");
    daemon.ok(&["pool", "modify", "high", "--over-provision", "none"]);
    daemon.ok(&["volume", "resize", "v1", "--size", &too_large]);
    daemon.stop();
}
