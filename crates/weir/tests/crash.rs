//! kill -9 at any instant, again and again on the same state folder, and a check of everything after each.
//!
//! The kernel survives, and with it what it holds of written files; what is tested is that the daemon's own
//! state is whole at every instant: order of its steps, atomicity of its changes, and recovery.
//!
//! `WEIR_CRASH_ROUNDS` is the number of crashes (default 10), `WEIR_SEED` repeats the choices.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

#[path = "crash/commands.rs"]
mod commands;
#[path = "crash/writers.rs"]
mod writers;

use std::os::unix::net::UnixStream;

use commands::{Commands, Expected};
use common::daemon::{Daemon, State};
use common::nbd::Client;
use common::random::Random;
use common::{setting, wait_for_calls, wait_until};
use writers::{Region, Writer};

/// Volumes that are written to, which no command touches.
const WRITTEN: [&str; 2] = ["written-0", "written-1"];
/// Clients that write to each of them.
const WRITERS_PER_VOLUME: u64 = 2;
/// Calls within which a daemon that starts is killed: about as many as a start makes.
const START_CALLS: u64 = 300;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_leaks() {
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

/// Kills a daemon in its recovery.
fn crash_while_starting(state: &State, random: &mut Random) {
    let daemon = Daemon::spawn(state, state.serve(&["--reactors", "2"]));
    // The instant of the crash is what is chosen, until it serves.
    let is_serving = || UnixStream::connect(state.path().join("api.sock")).is_ok();
    wait_for_calls(&daemon, random.below(START_CALLS), is_serving);
    daemon.kill();
}

/// Writes and changes things from all sides, kills the daemon somewhere in between, and answers how many
/// changes of data and how many commands it had acknowledged.
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

/// Compares what the daemon says exists with what it acknowledged, and its files with what it says.
fn check_state(daemon: &Daemon, expected: &mut Expected) {
    expected.check(daemon, &WRITTEN);
    let status = daemon.json(&["status"]);
    assert_eq!(status["status"], "operational", "{status:#}");
    check_files(daemon);
}

/// Exactly the files of the volumes that exist are there, as soon as the daemon has given back the space of others:
/// nothing half made, nothing left over.
fn check_files(daemon: &Daemon) {
    let background = || daemon.json(&["qos", "statistics", "background", "show"]);
    wait_until("all space is given back", || background()["jobs"].as_array().unwrap().is_empty());
    let list = daemon.json(&["volume", "list"]);
    let volumes = list["volumes"].as_array().unwrap();
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

/// The replica beside the extents says what the catalogue says.
fn check_record(state: &State, id: &str, volume: &serde_json::Value) {
    let text = std::fs::read_to_string(state.volumes().join(id).join("record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["volume"]["name"], volume["name"]);
    assert_eq!(record["volume"]["size_bytes"], volume["size_bytes"], "{record:#}\n{volume:#}");
    let named = record["policy_group"]["name"].as_str();
    assert_eq!(named, volume["qos_policy_group"]["name"].as_str(), "{record:#}\n{volume:#}");
}

/// After all the crashes, a catalogue that is lost altogether can be made anew from the replicas.
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
