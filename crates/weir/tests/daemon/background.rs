//! Background work seen from outside: space of deleted and shrunken volumes is reclaimed.
//!
//! The tests cover policies, concurrent clients, and kill -9.

use crate::common::daemon::{Daemon, State};
use crate::common::nbd::Client;
use crate::common::random::Random;
use crate::common::saturating::Saturating;
use crate::common::wait_until;
use serde_json::Value;

/// Number of kills before a reclaim may finish.
const KILLS_MIN: u64 = 3;
/// Ceiling that keeps reclaims from getting far.
const SLOWLY: &str = "1IOPS";

fn set_ceiling(daemon: &Daemon, ceiling: &str) {
    daemon.ok(&["qos", "background-policy", "modify", "--kind", "reclaim", "--max-throughput", ceiling]);
}

fn jobs(daemon: &Daemon) -> Vec<Value> {
    let list = daemon.json(&["qos", "statistics", "background", "show"]);
    list["items"].as_array().unwrap().clone()
}

fn wait_for_space(daemon: &Daemon) {
    wait_until("all space is given back", || jobs(daemon).is_empty());
}

/// A daemon with a drive named `drive1`.
fn with_drive(arguments: &[&str]) -> Daemon {
    let daemon = Daemon::fresh();
    let path = daemon.state().beside("drive1");
    std::fs::create_dir(&path).unwrap();
    daemon.ok(&[&["drive", "add", path.to_str().unwrap(), "--no-measurement"], arguments].concat());
    daemon
}

fn create_on(daemon: &Daemon, volume: &str, size: &str) {
    daemon.ok(&["volume", "create", volume, "--size", size, "--drive", "drive1"]);
}

#[test]
fn deleted_name_is_free_at_once_and_drive_stays_until_reclaim() {
    let daemon = with_drive(&[]);
    set_ceiling(&daemon, SLOWLY);
    create_on(&daemon, "v", "64GiB");
    daemon.ok(&["volume", "delete", "v"]);
    create_on(&daemon, "v", "2GiB");
    let job = jobs(&daemon).remove(0);
    assert_eq!(
        (&job["kind"], &job["drive"], &job["what"]),
        (&"reclaim".into(), &"drive1".into(), &"deleted volume v".into())
    );
    let shown = daemon.ok(&["status"]);
    assert!(shown.contains("Background Work:") && shown.contains("deleted volume v"), "{shown}");
    set_ceiling(&daemon, "none");
    daemon.ok(&["volume", "delete", "v", "--wait"]);
    wait_for_space(&daemon);
    set_ceiling(&daemon, SLOWLY);
    create_on(&daemon, "w", "64GiB");
    daemon.ok(&["volume", "delete", "w"]);
    let told = daemon.ok(&["drive", "remove", "drive1"]);
    assert!(told.contains("is being emptied, 0 extents and 1 pending deletion left"), "{told}");
    let is_there = || daemon.json(&["drive", "list"])["items"].as_array().unwrap().len() == 2;
    assert!(is_there(), "space is still to be given back there");
    daemon.ok(&["qos", "background-policy", "reset", "reclaim"]);
    crate::common::wait_until("the drive is gone", || !is_there());
    assert_eq!(std::fs::read_dir(daemon.state().beside("drive1")).unwrap().count(), 0);
    daemon.stop();
}

/// Number of volumes' folders, in any state.
fn folders(state: &State) -> usize {
    std::fs::read_dir(state.volumes()).unwrap().count()
}

#[test]
fn reclaim_survives_kills_and_touches_no_other_volume() {
    let mut random = Random::seeded();
    let mut daemon = Daemon::fresh();
    // This ceiling keeps the reclaim far from its end until it was killed a few times.
    set_ceiling(&daemon, "2IOPS");
    daemon.create("kept", "3GiB");
    let data = random.bytes(1 << 20);
    let offsets = [0u64, 1 << 30, (3 << 30) - (1 << 20)];
    let mut client = Client::attach(&daemon.nbd_socket(), "kept");
    offsets.iter().for_each(|offset| client.write(*offset, &data).unwrap());
    client.flush().unwrap();
    for name in ["a", "b"] {
        daemon.create(name, "150GiB");
    }
    daemon.ok(&["volume", "delete", "a"]);
    daemon.ok(&["volume", "delete", "b"]);
    let mut kills = 0;
    while !jobs(&daemon).is_empty() {
        if kills == KILLS_MIN {
            set_ceiling(&daemon, "200IOPS");
        }
        // Random delay before the crash.
        (0..random.below(8)).for_each(|_| drop(jobs(&daemon)));
        daemon = daemon.kill().start(&["--reactors", "2"]);
        kills += 1;
        let names = daemon.json(&["volume", "list"]);
        assert_eq!(names["items"].as_array().unwrap().len(), 1, "{names:#}");
    }
    assert!(kills >= KILLS_MIN, "killed {kills} times before it was done");
    assert_eq!(folders(daemon.state()), 1);
    let mut client = Client::attach(&daemon.nbd_socket(), "kept");
    offsets.iter().for_each(|offset| assert!(client.read(*offset, 1 << 20).unwrap() == data, "{offset}"));
    assert_eq!(daemon.json(&["status"])["alarms"], serde_json::json!([]));
    daemon.stop();
}

#[test]
fn shrunken_data_is_never_read_again() {
    let daemon = Daemon::fresh();
    set_ceiling(&daemon, SLOWLY);
    daemon.create("v", "64GiB");
    let old = [9; 4096];
    let offsets: Vec<u64> = (0..4).map(|extent| (extent << 30) + (700 << 20)).collect();
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    offsets.iter().for_each(|offset| client.write(*offset, &old).unwrap());
    client.disconnect();
    daemon.ok(&["volume", "resize", "v", "--size", "512MiB", "--force"]);
    daemon.ok(&["volume", "resize", "v", "--size", "64GiB"]);
    let check = |daemon: &Daemon| {
        let mut client = Client::attach(&daemon.nbd_socket(), "v");
        offsets.iter().for_each(|offset| assert_eq!(client.read(*offset, 4096).unwrap(), [0; 4096]));
        client.disconnect();
    };
    check(&daemon);
    assert_eq!(jobs(&daemon).len(), 1);
    let daemon = daemon.kill().start(&["--reactors", "2"]);
    check(&daemon);
    set_ceiling(&daemon, "none");
    wait_for_space(&daemon);
    check(&daemon);
    assert_eq!(folders(daemon.state()), 1);
    daemon.stop();
}

#[test]
fn busy_volume_keeps_most_of_drive_during_reclaim() {
    // The drive is so slow that the neighbour always has requests waiting, however late it learns of answers.
    let daemon = with_drive(&["--emulate", "iops=200"]);
    create_on(&daemon, "busy", "1GiB");
    create_on(&daemon, "doomed", "64GiB");
    let writer = Saturating::start_writing(&daemon, "busy", 64, 4096);
    wait_until("the neighbour is served", || writer.count() > 100);
    let before = writer.count();
    daemon.ok(&["volume", "delete", "doomed", "--wait"]);
    let meanwhile = writer.count() - before;
    // By its weight a reclaim has one operation for ten of a tenant's.
    assert!(meanwhile >= 64 * 5, "{meanwhile} requests were served beside 64 operations of a reclaim");
    writer.finish();
    daemon.stop();
}

#[test]
fn shutdown_does_not_wait_for_reclaim() {
    let daemon = with_drive(&["--emulate", "iops=1,latency=1s"]);
    create_on(&daemon, "v", "300GiB");
    daemon.ok(&["volume", "delete", "v"]);
    wait_until("it has begun", || jobs(&daemon).iter().any(|job| job["state"] == "running"));
    let daemon = daemon.stop().start(&["--reactors", "1"]);
    assert_eq!(jobs(&daemon).len(), 1);
    daemon.stop();
}

#[test]
fn reclaim_with_deadline_overrides_weight() {
    let daemon = with_drive(&["--emulate", "iops=500"]);
    daemon.ok(&["qos", "background-policy", "modify", "reclaim", "--weight", "1", "--deadline", "1s"]);
    create_on(&daemon, "busy", "1GiB");
    create_on(&daemon, "doomed", "200GiB");
    let writer = Saturating::start_writing(&daemon, "busy", 64, 4096);
    wait_until("the neighbour is served", || writer.count() > 100);
    let before = writer.count();
    daemon.ok(&["volume", "delete", "doomed", "--wait"]);
    let meanwhile = writer.count() - before;
    // By weight alone the ratio would be a hundred to one.
    assert!(meanwhile <= 200 * 25, "{meanwhile} requests were served beside 200 operations of a reclaim");
    writer.finish();
    daemon.stop();
}

/// Background policies without their version numbers.
fn without_versions(mut policies: serde_json::Value) -> serde_json::Value {
    for policy in policies["items"].as_array_mut().unwrap() {
        policy.as_object_mut().unwrap().remove("version");
    }
    policies
}

#[test]
fn background_policies_are_checked_and_survive_restart() {
    let daemon = Daemon::fresh();
    for (code, arguments, words) in [
        (2, &["modify", "reclaim", "--min-throughput", "5IOPS"] as &[&str], "--min-throughput"),
        (2, &["modify", "backup", "--weight", "5"], "[possible values: reclaim, resync, scrub]"),
        (2, &["modify", "--weight", "5"], "required"),
        (2, &["modify", "reclaim"], "required"),
        (2, &["modify", "reclaim", "--deadline", "soon"], "'soon' is not a deadline from 1s to 30d"),
        (2, &["modify", "reclaim", "--max-throughput", "5"], "'5' is not a rate with its unit"),
        (1, &["modify", "reclaim", "--weight", "0"], "weight 0 is not accepted; 1 to 10000 is"),
        (1, &["modify", "reclaim", "--weight", "10001"], "weight 10001 is not accepted"),
    ] {
        let message = daemon.refused(code, &[&["qos", "background-policy"], arguments].concat());
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
    let changes = ["--weight", "50", "--max-throughput", "100IOPS,5MB/s", "--deadline", "1h"];
    daemon.ok(&[&["qos", "background-policy", "modify", "reclaim"], &changes as &[&str]].concat());
    let show = ["qos", "background-policy", "show"];
    let shown = daemon.ok(&show);
    assert!(["50", "100IOPS,5MB/s", "1h", "false"].iter().all(|word| shown.contains(word)), "{shown}");
    let before = without_versions(daemon.json(&show));
    let file = daemon.state().beside("policies.yaml");
    std::fs::write(&file, daemon.ok(&["qos", "export"])).unwrap();
    daemon.ok(&["qos", "background-policy", "reset", "reclaim"]);
    let applied = daemon.ok(&["qos", "apply", file.to_str().unwrap()]);
    for field in ["ceiling.iops none -> 100", "deadline_seconds none -> 3600", "weight 10 -> 50"] {
        assert!(applied.contains(field), "{field} in {applied}");
    }
    assert!(applied.starts_with("~ background policy reclaim: "), "{applied}");
    assert_eq!(without_versions(daemon.json(&show)), before);
    let daemon = daemon.kill().start(&["--reactors", "2"]);
    assert_eq!(without_versions(daemon.json(&show)), before);
    daemon.ok(&["qos", "background-policy", "modify", "reclaim", "--deadline", "none"]);
    assert!(daemon.json(&show)["items"][0].get("deadline_seconds").is_none());
    daemon.ok(&["qos", "background-policy", "reset", "--kind", "reclaim"]);
    let built_in = &daemon.json(&show)["items"][0];
    assert_eq!((&built_in["weight"], &built_in["is_built_in"]), (&10.into(), &true.into()));
    daemon.stop();
}
