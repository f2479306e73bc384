//! Drives, some of them emulated: the rate that they deliver, the data that they keep, and the settings that
//! are refused.

use std::path::Path;
use std::process::Command;

use crate::common::daemon::{Daemon, State, WEIR};
use crate::common::nbd::{Client, FUA, READ, WRITE};
use crate::common::random::Random;
use crate::common::rates::Counted;
use crate::common::saturating::Saturating;

/// Requests in flight: enough to keep the drive busy through a stall of the machine of more than 0.1 s.
const DEPTH: u64 = 256;

/// Creates a folder beside the state folder.
fn folder(state: &State, name: &str) -> String {
    let path = state.beside(name);
    std::fs::create_dir_all(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Starts a daemon with an emulated drive named `emulated`. The drive is in memory, so that only its
/// parameters limit it.
fn with_emulated(parameters: &str) -> Daemon {
    let daemon = Daemon::fresh_in_memory();
    let path = folder(daemon.state(), "emulated");
    daemon.ok(&["drive", "add", &path, "--emulate", parameters, "--no-measurement"]);
    daemon
}

fn create_on(daemon: &Daemon, drive: &str, volume: &str) {
    daemon.ok(&["volume", "create", volume, "--size", "1GiB", "--drive", drive]);
}

/// Returns the duration of `work` by the daemon's clock, in seconds.
fn seconds_of(daemon: &Daemon, work: impl FnOnce()) -> f64 {
    Counted::all(daemon, &[]).during(work).seconds
}

#[test]
fn volumes_of_an_emulated_drive_share_its_rate() {
    let daemon = with_emulated("iops=1000,latency=2ms");
    create_on(&daemon, "emulated", "v1");
    create_on(&daemon, "emulated", "v2");
    let writer = Saturating::start_writing(&daemon, "v1", DEPTH, 4096);
    // The whole region must be written, because unwritten blocks are read without the drive.
    crate::common::wait_until("the first volume is written", || writer.count() > 5000);
    let counted = Counted::all(&daemon, &["v1", "v2"]);
    counted.keep_to(1000.0);
    writer.finish();
    let reader = Saturating::start(&daemon, "v1", DEPTH, 4096);
    let writer = Saturating::start_writing(&daemon, "v2", DEPTH, 4096);
    crate::common::wait_until("both volumes are served", || reader.count().min(writer.count()) > 500);
    counted.keep_to(1000.0);
    reader.finish();
    writer.finish();
}

#[test]
fn bandwidth_bounds_large_requests() {
    let daemon = with_emulated("iops=100000,bandwidth=20MB/s");
    create_on(&daemon, "emulated", "v1");
    let client = Saturating::start_writing(&daemon, "v1", 32, 65536);
    crate::common::wait_until("the volume is served", || client.count() > 100);
    Counted::all(&daemon, &["v1"]).keep_to(20e6 / 65536.0);
    client.finish();
}

#[test]
fn single_request_takes_service_time_and_latency() {
    let daemon = with_emulated("iops=200,latency=5ms");
    create_on(&daemon, "emulated", "v1");
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    client.write(0, &[1; 4096]).unwrap();
    let reads = || (0..20).for_each(|_| assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]));
    let seconds = seconds_of(&daemon, reads);
    // The bound is a little below 20 times 10 ms, because the reactor takes the time once per round.
    assert!(seconds >= 0.19, "20 reads took {seconds} s");
    // A flush takes no time slot of the drive.
    (0..20).for_each(|_| client.flush().unwrap());
    client.disconnect();
}

/// Returns the time in which a client reads blocks one after the other, in seconds.
fn read_blocks(daemon: &Daemon, client: &mut Client, blocks: impl Iterator<Item = u64>) -> f64 {
    let read = |block: u64| assert_eq!(client.read(block * 4096, 4096).unwrap(), [1; 4096]);
    seconds_of(daemon, || blocks.for_each(read))
}

#[test]
fn emulated_disk_seeks_for_random_but_not_sequential_reads() {
    let daemon = with_emulated("hdd-7200");
    create_on(&daemon, "emulated", "v1");
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    client.write(0, &[1; 1 << 20]).unwrap();
    let at_random = read_blocks(&daemon, &mut client, (0..100).map(|number| number * 37 % 256));
    // The bound is a little below 100 times 12.5 ms, because the reactor takes the time once per round.
    assert!(at_random >= 1.2, "100 reads at random took {at_random} s");
    // Both reads have the same overhead. Only seeks make them differ.
    crate::common::wait_until("reads in sequence are served without seeks", || {
        read_blocks(&daemon, &mut client, 0..100) * 10.0 < at_random * 9.0
    });
    let seconds = seconds_of(&daemon, || {
        for block in 0..20 {
            client.write(block * 4096, &[1; 4096]).unwrap();
            client.flush().unwrap();
        }
    });
    assert!(seconds >= 0.16, "20 flushes took {seconds} s");
    client.disconnect();
}

#[test]
fn drive_without_parallelism_gains_nothing_from_queue_depth() {
    let daemon = with_emulated("iops=1000,latency=20ms,parallel=1");
    create_on(&daemon, "emulated", "v1");
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    let seconds = seconds_of(&daemon, || {
        for number in 0..10 {
            client.send(WRITE, 0, number * 4096, 4096, &[1; 4096]).unwrap();
        }
        (0..10).for_each(|_| assert_eq!(client.reply().unwrap().1, 0));
    });
    // The bound is a little below ten times 21 ms, because the reactor takes the time once per round.
    assert!(seconds >= 0.2, "10 writes took {seconds} s");
    client.disconnect();
}

#[test]
fn drive_kind_is_shown_with_its_parameters() {
    let daemon = with_emulated("ebs-io1");
    let near = folder(daemon.state(), "near");
    daemon.ok(&["drive", "add", &near, "--emulate", "ebs-io1,latency=1ms"]);
    let daemon = daemon.stop().start(&[]);
    let shown = daemon.ok(&["drive", "show", "emulated"]);
    for words in ["emulated ebs-io1\n", "Emulation: iops=10346,bandwidth=320MB/s,latency=483344ns\n"] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    let emulation = &daemon.json(&["drive", "show", "emulated"])["emulation"];
    assert_eq!(emulation["kind"], "ebs-io1");
    assert_eq!(emulation["latency_ns"], 483_344);
    let shown = daemon.ok(&["drive", "list"]);
    for words in ["emulated ebs-io1 ", "emulated iops=10346,bandwidth=320MB/s,latency=1ms "] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    assert!(daemon.json(&["drive", "show", "near"])["emulation"]["kind"].is_null());
}

#[test]
fn data_on_an_emulated_drive_is_read_back_and_survives_a_crash() {
    let daemon = with_emulated("iops=20000,bandwidth=500MB/s,latency=100us");
    create_on(&daemon, "emulated", "v1");
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    let mut expected = Random::seeded().bytes(1 << 20);
    client.write(0, &expected).unwrap();
    client.write(5001, &[7; 9000]).unwrap();
    expected[5001..14001].fill(7);
    client.zero(0, 20_480, 8192).unwrap();
    expected[20_480..28_672].fill(0);
    client.trim(65_536, 131_072).unwrap();
    expected[65_536..196_608].fill(0);
    client.flush().unwrap();
    client.call(WRITE, FUA, 300_000, 100, &[9; 100]).unwrap().unwrap();
    expected[300_000..300_100].fill(9);
    assert!(client.read(0, 1 << 20).unwrap() == expected, "wrong bytes");
    let before = daemon.json(&["drive", "list"]);
    let daemon = daemon.kill().start(&["--reactors", "1"]);
    assert_eq!(daemon.json(&["drive", "list"])["items"][1]["id"], before["items"][1]["id"]);
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    assert!(client.read(0, 1 << 20).unwrap() == expected, "wrong bytes after the crash");
    assert_eq!(daemon.json(&["status"])["alarms"], serde_json::json!([]));
    daemon.stop();
}

/// Sends requests that keep a drive busy for many times the test's timeout if each takes 11 s.
fn occupy(daemon: &Daemon, volume: &str) -> Client {
    let mut client = Client::attach(&daemon.nbd_socket(), volume);
    // No request begins where another ends, so each needs a seek.
    for number in 0..300 {
        client.send(WRITE, 0, number * 8192, 4096, &[3; 4096]).unwrap();
    }
    client.send(READ, 0, 0, 4096, &[]).unwrap();
    client
}

/// Waits until most requests of [`occupy`] are in flight.
fn wait_until_busy(daemon: &Daemon, volume: &str) {
    let statistics = || daemon.json(&["volume", "inspect", volume])["statistics"].clone();
    crate::common::wait_until("requests are in flight", || {
        statistics()["queue_depth"].as_u64().unwrap() > 200
    });
}

#[test]
fn delete_and_stop_do_not_wait_for_an_emulated_drive() {
    let daemon = with_emulated("iops=1,seek=10s");
    for volume in ["v1", "v2", "v3"] {
        create_on(&daemon, "emulated", volume);
    }
    let _deleted = occupy(&daemon, "v1");
    wait_until_busy(&daemon, "v1");
    daemon.ok(&["volume", "delete", "v1", "--force"]);
    let _protected = occupy(&daemon, "v2");
    daemon.ok(&["volume", "modify", "v2", "--read-only", "true", "--force"]);
    let mut last = occupy(&daemon, "v3");
    wait_until_busy(&daemon, "v3");
    daemon.stop();
    assert_eq!(last.reply().unwrap().1, 0, "what was received is answered");
}

#[test]
fn drive_settings_are_shown_and_survive_restart() {
    let daemon = with_emulated("iops=2000,bandwidth=250MB/s,latency=200us");
    let plain = folder(daemon.state(), "plain");
    daemon.ok(&["drive", "add", &plain, "--name", "second", "--no-measurement"]);
    create_on(&daemon, "emulated", "v1");
    create_on(&daemon, "second", "v2");
    daemon.create("v3", "1GiB");
    let words = "emulated iops=2000,bandwidth=250MB/s,latency=200us";
    for command in [
        &["drive", "list"] as &[&str],
        &["drive", "show", "emulated"],
        &["status"],
        &["volume", "list"],
        &["volume", "inspect", "v1"],
    ] {
        let shown = daemon.ok(command);
        assert!(shown.contains(words), "{command:?}: {shown}");
    }
    assert!(!daemon.ok(&["volume", "inspect", "v2"]).contains("emulated"));
    let list = daemon.ok(&["drive", "list"]);
    assert!(list.contains(&plain), "{list}");
    let drives = daemon.json(&["drive", "list"]);
    let daemon = daemon.stop().start(&[]);
    let mut after = daemon.json(&["drive", "list"]);
    for (index, drive) in after["items"].as_array_mut().unwrap().iter_mut().enumerate() {
        // These figures belong to the filesystem, which other programs use too.
        for key in ["used_bytes", "available_bytes", "space_age_ns"] {
            drive[key] = drives["items"][index][key].clone();
        }
    }
    assert_eq!(after, drives);
    assert_eq!(daemon.json(&["volume", "inspect", "v3"])["drives"][0]["name"], "default");
    daemon.ok(&["drive", "remove", "emulated", "--wait"]);
    assert!(!daemon.ok(&["volume", "inspect", "v1"]).contains("emulated"));
    assert_eq!(daemon.json(&["drive", "list"])["items"].as_array().unwrap().len(), 2);
}

/// Runs the command line in another folder.
fn weir_in(daemon: &Daemon, directory: &Path, arguments: &[&str]) -> crate::common::program::Ran {
    let server = format!("unix:{}", daemon.state().path().join("api.sock").display());
    let mut command = Command::new(WEIR);
    crate::common::program::run(command.env("WEIR_SERVER", server).current_dir(directory).args(arguments))
}

#[test]
fn invalid_drives_are_refused_with_reason() {
    let daemon = with_emulated("iops=100");
    let state = daemon.state().clone();
    let (emulated, free) = (folder(&state, "emulated"), folder(&state, "free"));
    let inner = folder(&state, "emulated/inner");
    let file = state.beside("file");
    std::fs::write(&file, "").unwrap();
    let (file, outer) = (file.to_str().unwrap(), Path::new(&free).parent().unwrap().to_str().unwrap());
    for (code, arguments, words) in [
        (1, vec!["/no/such/place"], "'/no/such/place' does not exist"),
        (1, vec![file], "is not a directory"),
        (1, vec![&emulated, "--name", "again"], "is drive 'emulated' already"),
        (1, vec![&inner], "is inside of drive 'emulated'"),
        (1, vec![outer, "--name", "all"], "holds drive"),
        // Not even root can create a file there.
        (1, vec!["/proc", "--name", "unwritable"], "'/proc' cannot be a drive: cannot create"),
        (1, vec![&free, "--name", "emulated"], "drive 'emulated' exists already"),
        (1, vec![&free, "--name", "a/b"], "name 'a/b' has the character"),
        (2, vec![&free, "--emulate", "iops=0"], "'iops=0' is not from 1 to 1000000000"),
        (2, vec![&free, "--emulate", "latency=1ms"], "(iops is required)"),
        (2, vec![&free, "--emulate", "iops=5,bandwidth=100"], "'100' is not a bandwidth"),
        (2, vec![&free, "--emulate", "floppy"], "or a kind of drive (ebs-io1, ebs-gp2,"),
        (2, vec![&free, "--emulate", "nvme,parallel=0"], "'parallel=0' is not from 1 to 1024"),
    ] {
        let message = daemon.refused(code, &[&["drive", "add"], arguments.as_slice()].concat());
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
    let message = daemon.refused(4, &["volume", "create", "v", "--size", "1", "--drive", "fast"]);
    assert!(message.contains("unknown drive 'fast'; there are: default, emulated"), "{message}");
    // A relative path starts at the folder in which the command runs.
    weir_in(&daemon, Path::new(outer), &["drive", "add", "free", "--no-measurement"]).ok();
    assert_eq!(
        daemon.json(&["drive", "show", "free"])["path"],
        std::fs::canonicalize(&free).unwrap().to_str().unwrap()
    );
    let other = State::new().start(&[]);
    let message = other.refused(1, &["drive", "add", &free]);
    assert!(message.contains("is a drive of another installation"), "{message}");
}
