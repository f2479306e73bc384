//! Crash test: kill -9 at any instant, again and again on the same state folder, with a full check after
//! each.
//!
//! The kernel survives, and so does its page cache. The test shows that the daemon's own state is whole at
//! every instant: order of its steps, atomicity of its changes, and recovery.
//!
//! `WEIR_CRASH_ROUNDS` is the number of crashes (default 10). `WEIR_SEED` repeats the random choices.

mod commands;
mod writers;

use std::os::unix::net::UnixStream;

use crate::common::daemon::{Daemon, State};
use crate::common::nbd::Client;
use crate::common::random::Random;
use crate::common::{setting, wait_for_calls, wait_until};
use commands::{Commands, Expected};
use writers::{Region, Writer};

/// Volumes that the writers use and no command touches.
const WRITTEN: [&str; 2] = ["written-0", "written-1"];
/// Number of writers per volume.
const WRITERS_PER_VOLUME: u64 = 2;
/// Number of system calls within which a starting daemon is killed: about as many as a start makes.
const START_CALLS: u64 = 300;

#[test]
fn acknowledged_changes_survive_crashes_and_nothing_leaks() {
    let rounds = setting("WEIR_CRASH_ROUNDS", 10);
    let mut random = Random::seeded();
    let state = State::new();
    let daemon = state.start(&["--reactors", "2"]);
    WRITTEN.iter().for_each(|volume| daemon.create(volume, "2GiB"));
    let mut regions = all_regions();
    let mut expected = Expected::default();
    drop(daemon.kill());
    let (mut acknowledged, mut commands) = (0, 0);
    for round in 0..rounds {
        if round % 3 == 2 {
            crash_while_starting(&state, &mut random);
        }
        let daemon = serving_start(&state);
        check_state(&daemon, &mut expected);
        regions.iter_mut().for_each(|region| region.check(&daemon));
        let (written, answered) = work_until_killed(daemon, &mut regions, &mut expected, &mut random);
        (acknowledged, commands) = (acknowledged + written, commands + answered);
    }
    let daemon = serving_start(&state);
    check_state(&daemon, &mut expected);
    regions.iter_mut().for_each(|region| region.check(&daemon));
    daemon.stop();
    check_rebuild(&state, &mut expected);
    println!("{rounds} crashes, {acknowledged} acknowledged changes, {commands} commands");
}

fn all_regions() -> Vec<Region> {
    let per_volume = |volume: &&'static str| {
        let volume = *volume;
        (0..WRITERS_PER_VOLUME).map(move |number| Region::new(volume, number))
    };
    WRITTEN.iter().flat_map(per_volume).collect()
}

/// Starts the daemon and waits until a client has its first answer.
fn serving_start(state: &State) -> Daemon {
    let daemon = state.start(&["--reactors", "2"]);
    let mut client = Client::attach(&daemon.nbd_socket(), WRITTEN[0]);
    client.read(0, 4096).unwrap();
    client.disconnect();
    daemon
}

/// Kills a daemon during its recovery.
fn crash_while_starting(state: &State, random: &mut Random) {
    let daemon = Daemon::spawn(state, state.serve(&["--reactors", "2"]));
    // The kill comes after a random number of system calls, and at the latest when the daemon serves.
    let is_serving = || UnixStream::connect(state.path().join("api.sock")).is_ok();
    wait_for_calls(&daemon, random.below(START_CALLS), is_serving);
    daemon.kill();
}

/// Runs writers and commands at once, kills the daemon in between, and returns the numbers of acknowledged
/// writes and commands.
fn work_until_killed(
    daemon: Daemon,
    regions: &mut Vec<Region>,
    expected: &mut Expected,
    random: &mut Random,
) -> (u64, u64) {
    let writers: Vec<Writer> =
        regions.drain(..).map(|region| Writer::start(&daemon, region, random.next())).collect();
    let commands = Commands::start(daemon.state().clone(), std::mem::take(expected), random.next());
    let (writes, changes) = (20 + random.below(600), random.below(12));
    wait_until("there was some work", || {
        writers.iter().map(Writer::acknowledged).sum::<u64>() >= writes && commands.answered() >= changes
    });
    daemon.kill();
    let acknowledged = writers.iter().map(Writer::acknowledged).sum();
    regions.extend(writers.into_iter().map(Writer::finish));
    let answered = commands.answered();
    *expected = commands.finish();
    (acknowledged, answered)
}

/// Compares the daemon's lists with the acknowledged changes, and its files with its lists.
fn check_state(daemon: &Daemon, expected: &mut Expected) {
    expected.check(daemon, &WRITTEN);
    let status = daemon.json(&["status"]);
    assert_eq!(status["status"], "operational", "{status:#}");
    check_files(daemon);
}

/// Checks that exactly the files of existing volumes are present once all other space is reclaimed: nothing
/// half made, nothing left over.
fn check_files(daemon: &Daemon) {
    let background = || daemon.json(&["qos", "statistics", "background", "show"]);
    wait_until("all space is given back", || background()["items"].as_array().unwrap().is_empty());
    let list = daemon.json(&["volume", "list"]);
    let volumes = list["items"].as_array().unwrap();
    let mut wanted: Vec<String> = Vec::new();
    for volume in volumes {
        let id = volume["id"].as_str().unwrap();
        wanted.push(format!("{id}/record.json"));
        let extents = volume["size_bytes"].as_u64().unwrap().div_ceil(1 << 30);
        wanted.extend((0..extents).map(|extent| format!("{id}/extents/{extent:08}")));
        check_record(daemon.state(), id, volume);
    }
    wanted.sort();
    let mut found = Vec::new();
    let root = daemon.state().volumes();
    commands::list_files(&root, &root, &mut found);
    found.sort();
    assert_eq!(found, wanted, "the files are not those of the volumes that exist");
}

/// Checks that the record backup beside the extents agrees with the catalogue.
fn check_record(state: &State, id: &str, volume: &serde_json::Value) {
    let text = std::fs::read_to_string(state.volumes().join(id).join("record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["volume"]["name"], volume["name"]);
    assert_eq!(record["volume"]["size_bytes"], volume["size_bytes"], "{record:#}\n{volume:#}");
    let named = record["policy_group"]["name"].as_str();
    assert_eq!(named, volume["qos_policy_group"]["name"].as_str(), "{record:#}\n{volume:#}");
}

/// Checks that a catalogue lost after all the crashes can be rebuilt from the record backups.
fn check_rebuild(state: &State, expected: &mut Expected) {
    for entry in std::fs::read_dir(state.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("catalogue") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let daemon = state.start(&["--reactors", "2", "--rebuild-catalogue"]);
    expected.check_volumes(&daemon, &WRITTEN);
    daemon.stop();
}
