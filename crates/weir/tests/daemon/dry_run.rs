//! The dry run: it predicts the measured rates, and it can apply other policies to a recording.

use std::path::PathBuf;
use std::thread::JoinHandle;

use crate::common::daemon::{Daemon, State, WEIR};
use crate::common::program::{Ran, find, has, run};
use serde_json::Value;

/// Largest difference between predicted and measured operations per second, as a fraction.
const IOPS_TOLERANCE: f64 = 0.03;
/// Largest difference between predicted and measured delay, as a fraction.
const DELAY_TOLERANCE: f64 = 0.1;

/// Starts a daemon with two volumes on an emulated drive.
///
/// One volume has a ceiling of its own under the shared ceiling of a group. The other has only the group's
/// ceiling. Every machine delivers more than the ceilings allow. The clients keep so many requests
/// outstanding that stalls of a tenth of a second do no harm.
fn limited() -> Daemon {
    let daemon = Daemon::fresh_in_memory();
    let path = daemon.state().beside("emulated");
    std::fs::create_dir_all(&path).unwrap();
    let emulated = ["--emulate", "iops=20000,latency=500us", "--no-measurement"];
    daemon.ok(&[&["drive", "add", path.to_str().unwrap()], &emulated[..]].concat());
    let create = ["qos", "policy-group", "create"];
    daemon.ok(&[&create[..], &["both", "--max-throughput", "600IOPS", "--is-shared", "true"]].concat());
    let capped = ["capped", "--max-throughput", "160IOPS", "--is-shared", "false", "--parent", "both"];
    daemon.ok(&[&create[..], &capped].concat());
    for (volume, group) in [("v1", "capped"), ("v2", "both")] {
        let place = ["--size", "1GiB", "--drive", "emulated", "--qos-policy-group", group];
        daemon.ok(&[&["volume", "create", volume], &place[..]].concat());
    }
    daemon
}

/// Runs fio on both volumes at once for this many seconds.
fn start_fio(daemon: &Daemon, seconds: u32) -> JoinHandle<Ran> {
    let mut command = std::process::Command::new(find("fio").unwrap());
    command.args(["--ioengine=nbd", "--time_based=1", "--size=64M", "--randrepeat=1"]);
    command.arg(format!("--runtime={seconds}"));
    for (volume, pattern) in
        [("v1", ["--rw=randrw", "--iodepth=32"]), ("v2", ["--rw=randwrite", "--iodepth=96"])]
    {
        command.arg(format!("--name={volume}")).arg(format!("--uri={}", daemon.uri(volume)));
        command.arg("--bs=4k").args(pattern);
    }
    std::thread::spawn(move || run(&mut command))
}

/// Waits until both volumes have requests.
fn wait_until_busy(daemon: &Daemon) {
    let depth =
        |volume| daemon.json(&["volume", "inspect", volume])["statistics"]["queue_depth"].as_u64().unwrap();
    crate::common::wait_until("both volumes are busy", || depth("v1") > 8 && depth("v2") > 16);
}

/// Runs a dry run, which needs no daemon.
fn simulate(arguments: &[&str]) -> Ran {
    let arguments = [&["qos", "simulate"], arguments].concat();
    run(std::process::Command::new(WEIR).env("WEIR_SERVER", "unix:/nowhere").args(arguments))
}

fn predict(arguments: &[&str]) -> Value {
    serde_json::from_str(&simulate(&[arguments, &["-o", "json"]].concat()).ok()).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Returns the mean time that requests waited before they were sent to the drive.
fn delay(figures: &Value) -> f64 {
    ["ceilings_mean_ns", "queue_mean_ns", "floors_mean_ns"]
        .into_iter()
        .map(|name| number(&figures[name]))
        .sum()
}

fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    eprintln!("{what}: {found:.1} of {expected:.1}");
    assert!(
        (found / expected - 1.0).abs() <= tolerance,
        "{what}: {found} is not within {tolerance} of {expected}"
    );
}

fn beside(daemon: &Daemon, name: &str) -> (PathBuf, String) {
    let path = daemon.state().beside(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

/// Records both volumes while fio runs.
fn record(daemon: &Daemon) -> String {
    let fio = start_fio(daemon, 16);
    wait_until_busy(daemon);
    let (_, trace) = beside(daemon, "load.trace");
    let said = daemon.ok(&["volume", "record", "v1", "default/v2", "--output", &trace, "--seconds", "8"]);
    assert!(said.contains("requests of 8.0 s are in") && !said.contains("cut short"), "{said}");
    fio.join().unwrap().ok();
    trace
}

/// Records until only the ceilings held the clients back. A busy machine sometimes holds them back too.
fn record_at_ceilings(daemon: &Daemon) -> (String, Value) {
    let mut recorded = None;
    crate::common::wait_until("clients have what their ceilings allow", || {
        let trace = record(daemon);
        let prediction = predict(&["--trace", &trace]);
        let iops = |index: usize| number(&prediction["volumes"][index]["recorded"]["iops"]);
        let is_at_ceilings = iops(0) >= 0.985 * 160.0 && iops(1) >= 0.985 * 440.0;
        recorded = Some((trace, prediction));
        is_at_ceilings
    });
    recorded.unwrap()
}

#[test]
fn dry_run_predicts_a_fio_recording_and_other_policies() {
    if !has(&["fio"]) {
        return;
    }
    let daemon = limited();
    let (trace, prediction) = record_at_ceilings(&daemon);
    for volume in prediction["volumes"].as_array().unwrap() {
        let (predicted, recorded) = (&volume["predicted"], &volume["recorded"]);
        let iops = |figures: &Value| number(&figures["iops"]);
        assert_near("IOPS", iops(predicted), iops(recorded), IOPS_TOLERANCE);
        assert_near("mean delay", delay(predicted), delay(recorded), DELAY_TOLERANCE);
    }
    // The volume with a ceiling of its own waits for both ceilings. The report names the one that released it
    // last.
    let bound = prediction["volumes"][1]["predicted"]["bound_by"].clone();
    assert_eq!((&bound["name"], &bound["limit"]), (&"both".into(), &"total 600IOPS".into()));
    let (file, policies) = beside(&daemon, "policies.yaml");
    let exported = daemon.ok(&["qos", "export"]);
    let _folder = daemon.stop();
    std::fs::write(&file, exported.replace("iops: 600", "iops: 300").replace("iops: 160", "iops: 80"))
        .unwrap();
    let other = predict(&["--trace", &trace, "--policies", &policies]);
    let iops = |prediction: &Value, index: usize| number(&prediction["volumes"][index]["predicted"]["iops"]);
    assert_near("the volume under its lower ceiling", iops(&other, 0), 80.0, IOPS_TOLERANCE);
    assert_near("the rest of the lower shared ceiling", iops(&other, 1), 220.0, IOPS_TOLERANCE);
    let slower = predict(&["--trace", &trace, "--drive", "iops=500"]);
    assert_near("both on a slower drive", iops(&slower, 0) + iops(&slower, 1), 500.0, IOPS_TOLERANCE);
    assert!(number(&slower["volumes"][1]["predicted"]["queue_mean_ns"]) > 1e6, "{slower}");
    let table = simulate(&["--trace", &trace]).ok();
    assert!(table.contains("policy group both: total 600IOPS") && table.contains("recorded"), "{table}");
}

#[test]
fn recording_is_bounded_and_exclusive() {
    let daemon = Daemon::fresh();
    daemon.create("v1", "1GiB");
    let (path, trace) = beside(&daemon, "small.trace");
    let load = crate::common::load::Load::start(&daemon.nbd_socket(), "v1", 0);
    let command = ["volume", "record", "v1", "--output", &trace, "--seconds", "600", "--limit", "20KiB"];
    let said = daemon.ok(&command);
    assert!(said.contains("cut short: the file has become as large as it may"), "{said}");
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(((20 << 10) - 72..=20 << 10).contains(&bytes), "{bytes}");
    let prediction = predict(&["--trace", &trace]);
    assert!(number(&prediction["volumes"][0]["predicted"]["requests"]) > 100.0, "{prediction}");
    load.finish();
    let refused_with = |code: i32, arguments: &[&str], words: &str| {
        let said = daemon.refused(code, &[&["volume", "record"], arguments].concat());
        assert!(said.contains(words), "{said}");
    };
    let refused = |arguments: &[&str], words: &str| refused_with(1, arguments, words);
    let (missing, missing_text) = beside(&daemon, "missing.trace");
    refused_with(4, &["v2", "--output", &missing_text, "--seconds", "1"], "unknown volume 'v2'");
    assert!(!missing.exists());
    refused(&["v1", "v1", "--output", &missing_text, "--seconds", "1"], "named twice");
    refused(&["v1", "--output", &missing_text, "--seconds", "1", "--limit", "10"], "cannot be made");
    refused(&["v1", "--output", "/nowhere/x", "--seconds", "1"], "cannot write '/nowhere/x'");
    daemon.refused(2, &["volume", "record", "v1", "--output", &trace, "--seconds", "601"]);
    let both = ["first.trace", "second.trace"].map(|name| {
        let (state, (_, path)) = (daemon.state().clone(), beside(&daemon, name));
        std::thread::spawn(move || {
            state.weir(&["volume", "record", "v1", "--output", &path, "--seconds", "5"])
        })
    });
    let ends = both.map(|thread| thread.join().unwrap());
    let refused: Vec<_> = ends.iter().filter(|ran| ran.code == Some(1)).collect();
    assert_eq!(refused.len(), 1, "{ends:?}");
    assert!(refused[0].stderr.contains("another recording is under way"), "{ends:?}");
    daemon.ok(&["volume", "record", "v1", "--output", &trace, "--seconds", "1"]);
}

#[test]
fn synthetic_loads_share_a_drive_by_weight_without_daemon() {
    let state = State::new();
    let folder = state.beside("files");
    std::fs::create_dir_all(&folder).unwrap();
    let policies = folder.join("policies.yaml");
    std::fs::write(
        &policies,
        "policy_groups:\n- name: heavy\n  weight: 300\n- name: slow\n  limits: {total: {iops: 500}}\nvolumes:\n- {name: vol1, qos_policy_group: heavy}\n- {name: vol3, qos_policy_group: slow}\n- {name: elsewhere, tenant: svm01}\n",
    )
    .unwrap();
    let policies = policies.to_str().unwrap();
    let spec = "vol1:depth=256,read=70%;vol2:depth=256;vol3:depth=8,think=1ms";
    let load = ["--synthetic", spec, "--drive", "iops=20500,latency=200us", "--seconds", "5"];
    let prediction = predict(&[&load[..], &["--policies", policies]].concat());
    for (index, expected) in [15_000.0, 5000.0, 500.0].into_iter().enumerate() {
        let iops = number(&prediction["volumes"][index]["predicted"]["iops"]);
        assert_near("IOPS", iops, expected, IOPS_TOLERANCE);
    }
    assert_eq!(
        prediction,
        predict(&[&load[..], &["--policies", policies]].concat()),
        "one run is like another"
    );
}

#[test]
fn invalid_simulation_is_refused_with_reason() {
    let state = State::new();
    let folder = state.beside("files");
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (no_trace, drive) = (file("no.trace", "hello"), ["--drive", "iops=1000"]);
    let bad = file("bad.yaml", "policy_groups:\n- name: a\n  weight: 0\n");
    let unknown = file("unknown.yaml", "volumes:\n- {name: vol1, qos_policy_group: b}\n");
    for (code, arguments, words) in [
        (2, vec!["--drive", "iops=1000"], "--trace"),
        (2, vec!["--synthetic", "vol1"], "--drive"),
        (2, vec!["--synthetic", "vol1:depth=x", "--drive", "iops=5"], "'depth=x' is not from 1 to 1024"),
        (2, vec!["--trace", &no_trace, "--synthetic", "vol1"], "cannot be used with"),
        (2, vec!["--trace", &no_trace, "--seconds", "5"], "cannot be used with"),
        (1, vec!["--trace", &no_trace], "it is not a trace"),
        (1, vec!["--trace", "/nowhere"], "cannot read the trace '/nowhere'"),
        (
            1,
            [&drive[..], &["--synthetic", "vol1", "--policies", &bad]].concat(),
            "line 2 (policy_groups entry 1)",
        ),
        (1, [&drive[..], &["--synthetic", "vol1", "--policies", &unknown]].concat(), "no policy group 'b'"),
    ] {
        let said = simulate(&arguments).refused(code);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
