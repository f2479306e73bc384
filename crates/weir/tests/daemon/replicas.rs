//! Volumes with several replicas, from outside: what is created, shown, refused, kept over a restart, and
//! deleted with the volume.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::common::daemon::{Daemon, State};
use crate::common::random::Random;
use serde_json::{Value, json};

/// Number of times that the daemon is killed.
const KILLS: u64 = 12;

/// Adds drives of class `high`, each with its own options.
fn add_drives(daemon: &Daemon, drives: &[(&str, &[&str])]) {
    for (name, more) in drives {
        let path = daemon.state().beside(name);
        std::fs::create_dir_all(&path).unwrap();
        let add = ["drive", "add", path.to_str().unwrap(), "--class", "high", "--no-measurement"];
        daemon.ok(&[&add, *more].concat());
    }
}

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

/// Returns the drives of each replica of a volume.
fn placed(volume: &Value) -> Vec<BTreeSet<String>> {
    let names = |replica: &Value| {
        let drives = replica["drives"].as_array().unwrap().iter();
        drives.map(|drive| drive["name"].as_str().unwrap().to_owned()).collect()
    };
    volume["placement"].as_array().unwrap().iter().map(names).collect()
}

/// Returns the names of the files in the volume's folders on a drive.
fn files(state: &State, drive: &str, volume: &Value) -> BTreeSet<String> {
    let folder: PathBuf = state.beside(drive).join("volumes").join(volume["id"].as_str().unwrap());
    let Ok(entries) = std::fs::read_dir(folder.join("extents")) else { return BTreeSet::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn replicas_are_shown_by_drive_kept_over_restart_and_deleted_with_volume() {
    let daemon = Daemon::fresh();
    add_drives(&daemon, &[("one", &[]), ("two", &[]), ("three", &[])]);
    for (name, spelling) in
        [("v2", "--repl=2"), ("v3", "-repl 3"), ("again", "--REPL 2"), ("long", "--replicas=2")]
    {
        daemon.ok(&words(&format!("volume create {name} --size 2 --io_priority high {spelling}")));
    }
    daemon.create("v1", "2");
    let volume = |daemon: &Daemon, name: &str| daemon.json(&["volume", "inspect", name]);
    assert_eq!(
        (&volume(&daemon, "v1")["replicas"], volume(&daemon, "v1").get("placement")),
        (&json!(1), None)
    );
    for (name, replicas) in [("v2", 2), ("v3", 3), ("again", 2), ("long", 2)] {
        let volume = volume(&daemon, name);
        assert_eq!(volume["replicas"], replicas, "{name}");
        assert_eq!(placed(&volume).len(), replicas, "{name}");
        assert_eq!(
            volume["ack_point"],
            format!("stable on each of {replicas} replicas that is in sync, at flush or FUA")
        );
    }
    let v3 = volume(&daemon, "v3");
    for drive in ["one", "two", "three"] {
        let expected = ["00000000", "00000000.metadata", "00000001", "00000001.metadata"];
        assert_eq!(files(daemon.state(), drive, &v3), expected.map(str::to_owned).into());
    }
    let (list, shown) = (daemon.ok(&["volume", "list"]), daemon.ok(&["volume", "inspect", "v2"]));
    assert!(list.contains("Replicas") && list.contains(" | "), "{list}");
    assert!(
        shown.contains("Replicas: 2\n")
            && shown.contains("Replica: 0 on ")
            && shown.contains("Replica: 1 on "),
        "{shown}"
    );
    let before = daemon.json(&["volume", "list"])["items"].clone();
    let daemon = daemon.kill().start(&[]);
    // The daemon serves while it still checks for pending moves and used space after a start.
    crate::common::wait_until("the list is as it was", || {
        daemon.json(&["volume", "list"])["items"] == before
    });
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]));
    let epoch_records = daemon.state().path().join("epoch-records");
    assert_eq!(std::fs::read_dir(&epoch_records).unwrap().count(), 4);
    for name in ["v2", "v3", "again", "long"] {
        daemon.ok(&["volume", "delete", name, "--wait"]);
    }
    assert_eq!(std::fs::read_dir(&epoch_records).unwrap().count(), 0);
    for drive in ["one", "two", "three"] {
        assert_eq!(std::fs::read_dir(daemon.state().beside(drive).join("volumes")).unwrap().count(), 0);
    }
    daemon.stop();
}

#[test]
fn impossible_replica_count_is_refused_with_remedy() {
    let daemon = Daemon::fresh();
    add_drives(
        &daemon,
        &[("a1", &["--zone", "a"]), ("a2", &["--zone", "a"]), ("b1", &["--zone=b", "--rack=r1"])],
    );
    let refused = |code: i32, command: &str, expected: &str| {
        let message = daemon.refused(code, &words(command));
        assert!(message.contains(expected), "{command}: {message}");
    };
    let create = "volume create v --size 1 --io_priority high";
    for bad in ["0", "4", "-1", "two"] {
        refused(2, &format!("{create} --repl {bad}"), "--replicas");
    }
    refused(1, &format!("{create} --repl 3"), "are in 2 zones; up to 2 would be accepted");
    refused(1, &format!("{create} --repl 2 --drive a1"), "drive 'a1' can hold one of 2 replicas");
    refused(1, "volume create v --size 1 --io_priority low --repl 2", "on 1 drive, pool 'high' with");
    refused(1, "drive modify a1 --zone a/b", "a/b");
    refused(2, "drive modify a1", "--zone");
    assert_eq!(daemon.json(&["volume", "list"])["items"], json!([]), "nothing was made");
    daemon.ok(&words(&format!("{create} --repl 2")));
    let zones = placed(&daemon.json(&["volume", "inspect", "v"]));
    assert!(zones.contains(&["b1".to_owned()].into()), "{zones:?}");
    daemon.ok(&words("volume create forced --size 1 --io_priority high --repl 3 --force"));
    let alarms = daemon.json(&["status"])["alarms"].clone();
    assert_eq!((alarms.as_array().unwrap().len(), &alarms[0]["code"]), (1, &json!("replicas")), "{alarms}");
    daemon.ok(&words("drive modify a2 --zone c"));
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]), "they are in three zones now");
    let shown = daemon.json(&["drive", "show", "b1"]);
    assert_eq!((&shown["zone"], &shown["rack"]), (&json!("b"), &json!("r1")));
    daemon.ok(&words("drive modify b1 --rack none"));
    assert_eq!(daemon.json(&["drive", "show", "b1"]).get("rack"), None);
    let table = daemon.ok(&["drive", "list"]);
    assert!(table.contains("Zone") && table.contains("Rack"), "{table}");
    daemon.stop();
}

#[test]
fn drive_without_zone_is_in_the_zone_of_its_node() {
    let state = State::new();
    let config = state.beside("config.json");
    std::fs::write(&config, r#"{"zone": "here"}"#).unwrap();
    let daemon = state.start(&["--config", config.to_str().unwrap()]);
    add_drives(&daemon, &[("one", &[]), ("two", &[])]);
    assert_eq!(daemon.json(&["drive", "show", "one"])["zone"], "here");
    // All drives have the zone of the node, and no drive has another one. The zones therefore restrict
    // nothing.
    daemon.ok(&words("volume create v --size 1 --io_priority high --repl 2"));
    daemon.ok(&words("drive modify one --zone there"));
    daemon.ok(&words("volume create w --size 1 --io_priority high --repl 2"));
    daemon.ok(&words("drive modify two --zone there"));
    let message = daemon.refused(1, &words("volume create x --size 1 --io_priority high --repl 2"));
    assert!(message.contains("are in 1 zone;"), "{message}");
    daemon.ok(&words("drive modify two --zone none"));
    assert_eq!(daemon.json(&["drive", "show", "two"])["zone"], "here");
    daemon.stop();
}

#[test]
fn replicated_volume_survives_a_missing_drive() {
    let daemon = Daemon::fresh();
    add_drives(&daemon, &[("one", &[]), ("two", &[])]);
    daemon.ok(&words("volume create v --size 3 --io_priority high --repl 2"));
    let state = daemon.stop();
    std::fs::rename(state.beside("two"), state.beside("away")).unwrap();
    let daemon = state.start(&[]);
    let alarms = daemon.json(&["status"])["alarms"].clone();
    let message = |alarm: &Value| alarm["message"].as_str().unwrap().to_owned();
    let messages: Vec<String> = alarms.as_array().unwrap().iter().map(message).collect();
    let has = |words: &str| messages.iter().any(|message| message.contains(words));
    assert!(has("3 of the 6 replicas of its extents are missing, on: two"), "{messages:?}");
    assert!(has("volumes out of service: 0, with other replicas: 1"), "{messages:?}");
    assert!(!has("cannot be served"), "{messages:?}");
    for refused in ["volume resize v --size 4", "volume delete v"] {
        assert!(daemon.refused(1, &words(refused)).contains("drive 'two'"));
    }
    let state = daemon.stop();
    std::fs::rename(state.beside("away"), state.beside("two")).unwrap();
    let daemon = state.start(&[]);
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]));
    daemon.stop();
}

/// Creates, grows, shrinks and deletes volumes until the daemon is gone.
fn churn(state: &State, round: u64) {
    for number in 0.. {
        let name = format!("v{round}-{number}");
        let create = format!("volume create {name} --size 3 --io_priority high --repl {}", 2 + number % 2);
        let grow = format!("volume resize {name} --size 20");
        let shrink = format!("volume resize {name} --size 2 --force");
        let delete = format!("volume delete {name}");
        for command in [create, grow, shrink, delete].into_iter().take(3 + number % 2) {
            if state.weir(&words(&command)).code != Some(0) {
                return;
            }
        }
    }
}

/// Checks that the replicas of all volumes are complete, and that no other files exist.
fn assert_whole(daemon: &Daemon, drives: &[&str]) {
    assert_eq!(daemon.json(&["status"])["alarms"], json!([]));
    let jobs = || daemon.json(&words("qos statistics background show"))["items"].clone();
    crate::common::wait_until("space is given back", || jobs() == json!([]));
    let volumes = daemon.json(&["volume", "list"])["items"].as_array().unwrap().clone();
    for volume in &volumes {
        let replicas = volume["replicas"].as_u64().unwrap();
        let extents = volume["size_bytes"].as_u64().unwrap() >> 30;
        let files: Vec<String> =
            drives.iter().flat_map(|drive| files(daemon.state(), drive, volume)).collect();
        for extent in 0..extents {
            for name in [format!("{extent:08}"), format!("{extent:08}.metadata")] {
                let found = files.iter().filter(|file| **file == name).count() as u64;
                assert_eq!(found, replicas, "{name} of {volume}");
            }
        }
        assert_eq!(files.len() as u64, 2 * replicas * extents, "{files:?} of {volume}");
    }
    let epoch_records = std::fs::read_dir(daemon.state().path().join("epoch-records"));
    assert_eq!(epoch_records.map_or(0, Iterator::count), volumes.len());
}

#[test]
fn kill_at_any_instant_leaves_complete_replicas_or_none() {
    let (state, drives) = (State::new(), ["one", "two", "three"]);
    let mut daemon = state.start(&[]);
    add_drives(&daemon, &drives.map(|name| (name, &[] as &[&str])));
    let mut random = Random::seeded();
    for round in 0..KILLS {
        let churned = state.clone();
        let churning = std::thread::spawn(move || churn(&churned, round));
        // The kill may interrupt any step.
        crate::common::wait_for_calls(&daemon, random.below(1500), || churning.is_finished());
        daemon.kill();
        churning.join().unwrap();
        daemon = state.start(&[]);
        assert_whole(&daemon, &drives);
    }
    let volumes = daemon.json(&["volume", "list"])["items"].clone();
    assert_ne!(volumes, json!([]), "the rounds did too little to mean anything");
}
