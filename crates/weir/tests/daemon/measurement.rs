//! Drive measurement: drives are measured when they are added, and sorted into classes by the measured rates.

use std::path::{Path, PathBuf};

use crate::common::daemon::{Daemon, MEMORY, State, WEIR};
use crate::common::mounts::Mount;
use serde_json::Value;
use tempfile::TempDir;

/// Creates a folder in memory.
fn memory_folder() -> TempDir {
    tempfile::Builder::new().prefix("weir-e2e-").tempdir_in(MEMORY).unwrap()
}

/// Creates a folder on the disk, beside the state folder.
fn disk_folder(state: &State, name: &str) -> PathBuf {
    let path = state.beside(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Adds a drive with this name and these options, and waits for its measurement unless the options skip it.
fn add(daemon: &Daemon, path: &Path, name: &str, options: &str) {
    let mut arguments = vec!["drive", "add", path.to_str().unwrap(), "--name", name];
    arguments.extend(options.split_whitespace());
    assert_eq!(daemon.ok(&arguments).trim(), name);
}

fn drive(daemon: &Daemon, name: &str) -> Value {
    daemon.json(&["drive", "show", name])
}

/// Returns the alarms about measurements.
fn alarms(daemon: &Daemon) -> Vec<String> {
    let status = daemon.json(&["status"]);
    let alarms = status["alarms"].as_array().unwrap().iter();
    let message = |alarm: &Value| alarm["message"].as_str().unwrap().to_owned();
    alarms.filter(|alarm| alarm["code"] == "measurement").map(message).collect()
}

#[test]
fn emulated_drive_has_the_class_of_its_parameters() {
    let daemon = Daemon::fresh();
    let folder = memory_folder();
    for (parameters, class, words) in [
        ("iops=10346,latency=483us", "high", "at least 8000 each"),
        ("iops=12000,latency=1ms", "high", "at most 2ms"),
        ("iops=40000,bandwidth=1GB/s,latency=100us", "high", "at least 8000 each"),
        ("iops=5783,latency=367us", "medium", "random reads a second, fewer than 8000"),
        ("iops=5000", "medium", "random reads a second, fewer than 8000"),
        ("iops=20000,latency=3ms", "medium", "medium and not high: "),
        ("iops=20000,bandwidth=10MB/s", "medium", "random reads a second, fewer than 8000"),
        ("iops=89,latency=12ms", "low", "random reads a second, fewer than 500"),
        ("iops=350", "low", "random reads a second, fewer than 500"),
        ("iops=800,latency=20ms", "low", "random reads one at a time take"),
    ] {
        let name = parameters.replace(['=', ',', '/'], "-");
        let path = folder.path().join(&name);
        std::fs::create_dir(&path).unwrap();
        add(&daemon, &path, &name, &format!("--emulate {parameters}"));
        let found = drive(&daemon, &name);
        let reason = found["class_reason"].as_str().unwrap();
        assert!(found["class"] == class && reason.contains(words), "{parameters}: {found:#}");
        assert!(reason.starts_with(class), "{reason}");
        assert_eq!(names(&path), ["volumes", "weir-drive.json"]);
    }
    assert_eq!(daemon.json(&["status"])["alarms"], serde_json::json!([]));
    daemon.stop();
}

#[test]
fn memory_drives_are_measured_and_give_class_reasons() {
    let daemon = Daemon::fresh_in_memory();
    let folder = memory_folder();
    add(&daemon, folder.path(), "memory", "");
    daemon.ok(&["drive", "measure", "default"]);
    for name in ["memory", "default"] {
        let found = drive(&daemon, name);
        let (class, reason) = (found["class"].as_str().unwrap(), found["class_reason"].as_str().unwrap());
        assert!(reason.starts_with(class), "{found:#}");
        for direction in ["read", "write"] {
            let figures = &found["measurement"][direction];
            for figure in ["iops", "latency_ns", "deep_latency_ns", "bytes_per_second"] {
                assert!(figures[figure].as_u64().unwrap() > 0, "{figure} in {found:#}");
            }
        }
        let shown = daemon.ok(&["drive", "show", name]);
        assert!(shown.contains(&format!("Class: {class}")) && shown.contains("Random Reads: "), "{shown}");
        assert!(daemon.ok(&["drive", "list"]).contains(class));
    }
    let memory = drive(&daemon, "memory");
    assert_eq!(memory["measurement"]["is_direct"], false);
    assert!(memory["class_reason"].as_str().unwrap().contains("without direct I/O"), "{memory:#}");
    daemon.stop();
}

/// Starts a daemon as a new installation does, in memory, where every drive has class high.
fn install(state: &State, storage: &str) -> Daemon {
    let path = state.beside("weir.toml");
    let classes = "[classes.high]\niops = 2\nlatency = '9s'\n[classes.medium]\niops = 1\nlatency = '10s'\n";
    std::fs::write(&path, format!("{classes}{storage}")).unwrap();
    let mut command = std::process::Command::new(WEIR);
    command.args(["serve", "--reactors", "2", "--config"]).arg(path).arg("--state").arg(state.path());
    Daemon::spawn(state, command).ready()
}

#[test]
fn documented_command_works_on_fresh_installation() {
    let state = State::in_memory();
    let daemon = install(&state, "");
    assert!(drive(&daemon, "default")["measurement_progress"].is_object());
    let command = "volume create --io_priority high test-high --size 8";
    assert_eq!(daemon.ok(&command.split_whitespace().collect::<Vec<_>>()), "test-high\n");
    let found = drive(&daemon, "default");
    assert!(found["class"] == "high" && found["measurement"].is_object(), "{found:#}");
    let daemon = install(&daemon.stop(), "");
    let again = drive(&daemon, "default");
    assert_eq!((&again["measurement"], again.get("measurement_progress")), (&found["measurement"], None));
    daemon.stop();
}

#[test]
fn default_drive_measurement_can_be_disabled() {
    let state = State::in_memory();
    let daemon = install(&state, "[storage]\nmeasure_default = false\n");
    let found = drive(&daemon, "default");
    assert_eq!((found.get("class"), found.get("measurement_progress")), (None, None));
    let command = "volume create --io_priority high test-high --size 8";
    let refused = daemon.refused(1, &command.split_whitespace().collect::<Vec<_>>());
    assert!(
        refused.contains("; drive 'default': not measured yet; 'weir drive measure default'"),
        "{refused}"
    );
    daemon.stop();
}

/// Starts a daemon whose class high begins at this many operations per second, at any latency.
fn start_with_high_from(state: &State, iops: u64) -> Daemon {
    let text = format!(
        "[classes.high]\niops = {iops}\nlatency = '5s'\n[classes.medium]\niops = 5\nlatency = '10s'\n"
    );
    let path = state.beside("weir.toml");
    std::fs::write(&path, text).unwrap();
    state.start(&["--reactors", "2", "--config", path.to_str().unwrap()])
}

#[test]
fn class_mismatch_is_alarm_until_resolved() {
    let state = State::new();
    let folder = memory_folder();
    let daemon = start_with_high_from(&state, 50);
    add(&daemon, folder.path(), "d1", "--emulate iops=500");
    assert_eq!(drive(&daemon, "d1")["class"], "high");
    let daemon = start_with_high_from(&daemon.stop(), 100_000);
    let found = alarms(&daemon);
    assert!(found.len() == 1 && found[0].contains("drive 'd1' is recorded as high"), "{found:?}");
    assert!(found[0].contains("medium and not high: "), "{found:?}");
    daemon.ok(&["drive", "measure", "d1"]);
    assert_eq!((&drive(&daemon, "d1")["class"], alarms(&daemon).len()), (&Value::from("high"), 1));
    let daemon = start_with_high_from(&daemon.stop(), 50);
    daemon.ok(&["drive", "measure", "d1", "--wait"]);
    assert_eq!(alarms(&daemon), [""; 0], "it fits again");
    let daemon = start_with_high_from(&daemon.stop(), 100_000);
    daemon.ok(&["drive", "modify", "d1", "--class", "auto"]);
    assert_eq!((&drive(&daemon, "d1")["class"], alarms(&daemon)), (&Value::from("medium"), vec![]));
    daemon.ok(&["volume", "create", "v1", "--size", "1GiB", "--drive", "d1"]);
    let refused = daemon.refused(1, &["drive", "modify", "d1", "--class", "high"]);
    assert!(refused.contains("cannot become high while it has the volumes: v1"), "{refused}");
    daemon.stop();
}

#[test]
fn chosen_class_overrides_measurement() {
    let daemon = Daemon::fresh();
    let folder = memory_folder();
    add(&daemon, folder.path(), "d1", "--emulate iops=300 --class high");
    let found = drive(&daemon, "d1");
    let reason = found["class_reason"].as_str().unwrap();
    assert_eq!(found["class"], "high");
    assert!(reason.starts_with("chosen by hand; measured as low and not medium: "), "{reason}");
    assert!(found["measurement"].is_object() && alarms(&daemon).is_empty());
    daemon.ok(&["drive", "modify", "d1", "--class", "auto"]);
    assert_eq!(drive(&daemon, "d1")["class"], "low");
    let unmeasured = disk_folder(daemon.state(), "unmeasured");
    add(&daemon, &unmeasured, "d2", "--class medium --no-measurement");
    let found = drive(&daemon, "d2");
    assert_eq!((&found["class"], found.get("measurement")), (&Value::from("medium"), None));
    assert_eq!(found["class_reason"], "chosen by hand; not measured");
    daemon.stop();
}

/// Starts a daemon with a drive whose measurement takes minutes and is in progress.
fn with_endless_measurement(path: &Path) -> Daemon {
    let daemon = Daemon::fresh();
    add(&daemon, path, "slow", "--emulate iops=1,latency=10s --no-wait");
    let is_measuring = || drive(&daemon, "slow")["measurement_progress"].is_object();
    crate::common::wait_until("the drive is being measured", is_measuring);
    daemon
}

/// Returns the names of a folder's entries.
fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn kill_during_measurement_leaves_no_files() {
    let folder = memory_folder();
    let daemon = with_endless_measurement(folder.path());
    let state = daemon.kill();
    // A daemon leaves this file if it is killed between creating and unlinking it.
    std::fs::write(folder.path().join("weir-measurement.scratch"), [7; 9000]).unwrap();
    let daemon = state.start(&[]);
    assert_eq!(names(folder.path()), ["volumes", "weir-drive.json"]);
    let found = drive(&daemon, "slow");
    assert_eq!((found.get("class"), found.get("measurement_progress")), (None, None));
    assert!(found["class_reason"].as_str().unwrap().starts_with("not measured yet"), "{found:#}");
    daemon.ok(&["drive", "remove", "slow"]);
    assert_eq!(names(folder.path()), [""; 0]);
    daemon.stop();
}

#[test]
fn running_measurement_blocks_no_command() {
    let folder = memory_folder();
    let daemon = with_endless_measurement(folder.path());
    daemon.ok(&["volume", "create", "v1", "--size", "1GiB", "--drive", "slow"]);
    daemon.ok(&["volume", "delete", "v1"]);
    // The current phase of the measurement depends on how long the steps before took.
    let phase = drive(&daemon, "slow")["measurement_progress"]["phase"].clone();
    assert!(phase.is_string(), "it has ended: {phase}");
    let shown = daemon.ok(&["drive", "show", "slow"]);
    assert!(shown.contains("% done: "), "{shown}");
    // The daemon must stop cleanly and before the measurement ends. The wait in `stop` has a limit.
    daemon.stop();
    assert_eq!(names(folder.path()), ["volumes", "weir-drive.json"]);
    let other = memory_folder();
    let daemon = with_endless_measurement(other.path());
    daemon.ok(&["drive", "remove", "slow"]);
    assert_eq!(names(other.path()), [""; 0]);
    daemon.stop();
}

#[test]
fn invalid_measure_commands_are_refused_with_accepted_values() {
    let folder = memory_folder();
    let daemon = with_endless_measurement(folder.path());
    let free = disk_folder(daemon.state(), "free");
    let free = free.to_str().unwrap();
    for (code, arguments, words) in [
        (1, vec!["drive", "measure", "slow"], "drive 'slow' is being measured already"),
        (4, vec!["drive", "measure", "fast"], "unknown drive 'fast'; there are: default, slow"),
        (
            4,
            vec!["drive", "modify", "fast", "--class", "low"],
            "unknown drive 'fast'; there are: default, slow",
        ),
        (1, vec!["drive", "modify", "slow", "--class", "auto"], "drive 'slow' was not measured yet"),
        (2, vec!["drive", "modify", "slow", "--class", "fast"], "low, medium, high, auto"),
        (2, vec!["drive", "modify", "slow"], "--class"),
        (2, vec!["drive", "add", free, "--class", "fast"], "low, medium, high"),
        (2, vec!["drive", "add", free, "--class", "auto"], "low, medium, high"),
        (2, vec!["drive", "measure", "slow", "--wait", "--no-wait"], "cannot be used with"),
    ] {
        let message = daemon.refused(code, &arguments);
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
    let shown = drive(&daemon, "default");
    assert!(shown["class_reason"].as_str().unwrap().contains("'weir drive measure default'"), "{shown:#}");
    daemon.stop();
}

#[test]
fn full_drive_is_usable_and_says_why_it_has_no_class() {
    if !crate::common::program::is_root() {
        return;
    }
    let daemon = Daemon::fresh();
    let small = Mount::tmpfs(&disk_folder(daemon.state(), "small"), 16);
    add(&daemon, small.point(), "small", "");
    let found = drive(&daemon, "small");
    let reason = found["class_reason"].as_str().unwrap();
    assert!(found.get("class").is_none() && reason.contains("there is no room to measure in: "), "{found:#}");
    let refused = daemon.refused(1, &["drive", "measure", "small"]);
    assert!(refused.contains("drive 'small' could not be measured: there is no room"), "{refused}");
    daemon.ok(&["volume", "create", "v1", "--size", "1GiB", "--drive", "small"]);
    daemon.stop();
}
