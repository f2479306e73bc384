//! Reasons of waiting: `qos explain` names the right cause in staged situations, and latencies by cause agree
//! with the clients' measurements.

mod measured;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::daemon::Daemon;
use crate::common::nbd::{Client, WRITE};
use crate::common::saturating::Saturating;
use crate::common::wait_until;
use measured::{least_ns, measure};
use serde_json::{Value, json};

/// Requests in flight: more than a shared drive keeps in flight.
const DEEP: u64 = 128;

/// Starts a daemon with an emulated drive and volumes on it, some of them in tenant `svm01`.
fn scene(emulation: &str, volumes: &[&str]) -> Daemon {
    let daemon = Daemon::fresh_in_memory();
    let path = daemon.state().beside("em");
    std::fs::create_dir_all(&path).unwrap();
    daemon.ok(&["drive", "add", path.to_str().unwrap(), "--emulate", emulation, "--no-measurement"]);
    daemon.ok(&["tenant", "create", "svm01"]);
    for volume in volumes {
        let options = ["--size", "1GiB", "--drive", "em"];
        daemon.ok(&[&["volume", "create"][..], &named(volume), &options].concat());
    }
    daemon
}

/// Creates a policy group with these options.
fn group(daemon: &Daemon, name: &str, options: &str) {
    let mut arguments = vec!["qos", "policy-group", "create", name];
    arguments.extend(options.split_whitespace());
    daemon.ok(&arguments);
}

fn bind(daemon: &Daemon, volume: &str, group: &str) {
    daemon.ok(&["volume", "modify", volume, "--qos-policy-group", group]);
}

/// Returns the options that name a volume, which is written `NAME` or `TENANT/NAME`.
fn named(volume: &str) -> [&str; 3] {
    let (tenant, name) = volume.split_once('/').unwrap_or(("default", volume));
    [name, "--tenant", tenant]
}

/// Waits until the explanation of a volume has these fields, and returns it.
fn explained(daemon: &Daemon, volume: &str, expected: Value) -> Value {
    let explain = [&["qos", "explain"][..], &named(volume), &["--interval", "0.5"]].concat();
    let mut last = Value::Null;
    let mut is_as_expected = || {
        last = daemon.json(&explain);
        expected.as_object().unwrap().iter().all(|(field, value)| last[field] == *value)
    };
    let mut tries = 0;
    wait_until(&format!("{volume} is explained by {expected}"), || {
        tries += 1;
        let is_right = is_as_expected();
        if !is_right && tries % 10 == 0 {
            eprintln!("{volume}: {}", daemon.ok(&explain));
        }
        is_right
    });
    check_shares(&last);
    last
}

/// Checks that the shares cover all time, and that a binding limit began in the past.
fn check_shares(explanation: &Value) {
    let shares = explanation["shares"].as_object().unwrap().values();
    let sum: f64 = shares.map(|share| share.as_f64().unwrap()).sum();
    let has_requests = explanation["operations"].as_u64().unwrap() > 0;
    assert!((sum - 1.0).abs() < 1e-6 || (!has_requests && sum == 0.0), "{explanation:#}");
    if explanation["cause"] == "ceiling" {
        assert!(explanation["since_ns"].as_u64() <= explanation["timestamp_ns"].as_u64(), "{explanation:#}");
    }
}

/// Parts of a request's latency, by cause.
const CAUSES: [&str; 5] = ["delayed_ns", "floors_ns", "queue_ns", "drive_ns", "other_ns"];

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Checks for every volume that the causes add up to the latency, in totals and in the table's means.
fn check_totals(daemon: &Daemon, volumes: &[&str]) {
    for volume in volumes {
        let statistics = &daemon.json(&[&["volume", "inspect"][..], &named(volume)].concat())["statistics"];
        for kind in ["read", "write", "other"] {
            let kind = &statistics[kind];
            let sum: u64 = CAUSES.iter().map(|cause| number(&kind[cause])).sum();
            assert_eq!(sum, number(&kind["latency_sum_ns"]), "{volume}: {kind:#}");
            let sizes: u64 = kind["size_counts"].as_array().unwrap().iter().map(number).sum();
            assert_eq!(sizes, number(&kind["operations"]), "{volume}: {kind:#}");
        }
    }
}

#[test]
fn ceilings_are_named_at_each_level_and_dimension() {
    let daemon = scene("iops=4000", &["v1", "v2", "svm01/t1"]);
    for (name, options) in [
        ("own", "--max-throughput 100IOPS --is-shared false"),
        ("together", "--max-throughput 120IOPS"),
        ("reads", "--max-read 60IOPS --is-shared false"),
        ("bytes", "--max-throughput 1MB/s --is-shared false"),
        ("writebytes", "--max-write 900kB/s --max-read 1GB/s --is-shared false"),
        ("top", "--max-throughput 80IOPS --tenant svm01"),
        ("below", "--max-throughput 500IOPS --parent together --is-shared false"),
    ] {
        group(&daemon, name, options);
    }
    let writer = Saturating::start_writing(&daemon, "v1", 16, 65_536);
    let beside = Saturating::start_writing(&daemon, "v2", 16, 4096);
    let ceiling = |scope: &str, name: &str, group: &str, limit: &str, value: u64| {
        json!({"cause": "ceiling", "scope": scope, "name": name, "policy_group": group, "limit": limit,
               "rate": "sustained", "value": value})
    };
    bind(&daemon, "v1", "own");
    let found = explained(&daemon, "v1", ceiling("volume", "v1", "own", "iops", 100));
    assert_eq!(found["advice"], "raise --max-throughput of policy group own above 100IOPS");
    let told = daemon.ok(&["qos", "explain", "v1", "--interval", "0.5"]);
    let command =
        told.lines().find_map(|line| line.trim().strip_prefix("weir ")).expect("a command is proposed");
    assert_eq!(command, "policy-group modify own --max-throughput 200IOPS");
    daemon.ok(&command.split(' ').collect::<Vec<_>>());
    explained(&daemon, "v1", ceiling("volume", "v1", "own", "iops", 200));
    bind(&daemon, "v1", "together");
    bind(&daemon, "v2", "together");
    let found = explained(&daemon, "v1", ceiling("policy_group", "together", "together", "iops", 120));
    assert_eq!(found["sharers"], json!({"count": 1, "names": ["v2"]}));
    let told = daemon.ok(&["qos", "explain", "v1", "--interval", "0.5"]);
    let proposal = "\n  weir policy-group modify together --max-throughput 240IOPS\n";
    assert!(told.contains(proposal) && told.contains("The limit is shared with: v2.\n"), "{told}");
    daemon.patch("/v1/tenants/default/policy-groups/together", &found["proposal"]["fixed"]);
    explained(&daemon, "v1", ceiling("policy_group", "together", "together", "iops", 240));
    bind(&daemon, "v1", "below");
    explained(&daemon, "v1", ceiling("policy_group", "together", "together", "iops", 240));
    bind(&daemon, "v2", "none");
    bind(&daemon, "v1", "bytes");
    explained(&daemon, "v1", ceiling("volume", "v1", "bytes", "bytes_per_second", 1_000_000));
    bind(&daemon, "v1", "writebytes");
    explained(&daemon, "v1", ceiling("volume", "v1", "writebytes", "write_bytes_per_second", 900_000));
    bind(&daemon, "v1", "none");
    writer.finish();
    let reader = Saturating::start(&daemon, "v1", 16, 4096);
    bind(&daemon, "v1", "reads");
    explained(&daemon, "v1", ceiling("volume", "v1", "reads", "read_iops", 60));
    daemon.ok(&["tenant", "modify", "svm01", "--qos-policy-group", "top"]);
    let third = Saturating::start_writing(&daemon, "svm01/t1", 16, 4096);
    explained(&daemon, "svm01/t1", ceiling("tenant", "svm01", "top", "iops", 80));
    let metrics = metrics(&daemon);
    for series in [
        "weir_volume_bound_seconds_total{tenant=\"default\",volume=\"v1\",scope=\"policy_group\",name=\"together\",\
         limit=\"iops\",rate=\"sustained\"}",
        "weir_volume_bound_seconds_total{tenant=\"svm01\",volume=\"t1\",scope=\"tenant\",name=\"svm01\",\
         limit=\"iops\",rate=\"sustained\"}",
        "weir_volume_effective_limit_iops{tenant=\"svm01\",volume=\"t1\",direction=\"total\"} 80.0",
        "weir_volume_effective_limit_iops{tenant=\"default\",volume=\"v1\",direction=\"read\"} 60.0",
    ] {
        assert!(metrics.contains(series), "{series} in:\n{metrics}");
    }
    for client in [beside, reader, third] {
        client.finish();
    }
    check_totals(&daemon, &["v1", "v2", "svm01/t1"]);
}

fn metrics(daemon: &Daemon) -> String {
    daemon.get_text("/metrics")
}

#[test]
fn burst_is_explained_with_its_credit() {
    let daemon = scene("iops=4000", &["v1"]);
    let options = "--max-throughput 50IOPS --burst 100IOPS --burst-credit full --is-shared false";
    group(&daemon, "long", &format!("{options} --burst-seconds 600"));
    group(&daemon, "short", &format!("{options} --burst-seconds 1"));
    bind(&daemon, "v1", "long");
    let client = Saturating::start_writing(&daemon, "v1", 16, 4096);
    let limit = |rate: &str, value: u64| json!({"cause": "ceiling", "scope": "volume", "name": "v1", "limit": "iops", "rate": rate, "value": value});
    let bursting = explained(&daemon, "v1", limit("burst", 100));
    assert_eq!(number(&bursting["credit_ns_max"]), 600_000_000_000);
    assert!(number(&bursting["credit_ns"]) > 0, "{bursting:#}");
    let metrics = metrics(&daemon);
    let labels = "{tenant=\"default\",volume=\"v1\",limit=\"iops\"}";
    assert!(metrics.contains(&format!("weir_volume_burst_credit_seconds_max{labels} 600.0")), "{metrics}");
    assert!(metrics.contains(&format!("weir_volume_burst_credit_seconds{labels} ")), "{metrics}");
    bind(&daemon, "v1", "short");
    let exhausted = explained(&daemon, "v1", limit("sustained", 50));
    assert!(exhausted["summary"].as_str().unwrap().contains("the burst credit is used up"), "{exhausted:#}");
    client.finish();
    check_totals(&daemon, &["v1"]);
}

#[test]
fn explain_distinguishes_idle_drive_queue_and_floors() {
    let daemon = scene("iops=1000,latency=1ms", &["v1", "v2"]);
    group(&daemon, "floor", "--min-throughput 800IOPS --is-shared false");
    explained(&daemon, "v1", json!({"cause": "idle", "operations": 0}));
    group(&daemon, "pace", "--max-throughput 50IOPS --is-shared false");
    bind(&daemon, "v2", "pace");
    let paced = Paced::start(&daemon, "v1", "v2");
    explained(&daemon, "v1", json!({"cause": "nothing"}));
    paced.finish();
    bind(&daemon, "v2", "none");
    let alone = Saturating::start_writing(&daemon, "v1", 8, 4096);
    let by_drive = explained(&daemon, "v1", json!({"cause": "drive", "drive": "em"}));
    assert_eq!(by_drive["advice"], "use a faster drive than em");
    alone.finish();
    let (one, other) = (deep(&daemon, "v1"), deep(&daemon, "v2"));
    wait_until("both volumes are served", || one.count().min(other.count()) > DEEP);
    let queue = explained(&daemon, "v1", json!({"cause": "queue", "portion": 0.5, "weight": 100}));
    assert_eq!(queue["neighbours"], json!([{"volume": "v2", "has_floor": false}]));
    bind(&daemon, "v2", "floor");
    let floors = explained(&daemon, "v1", json!({"cause": "floors"}));
    assert_eq!(floors["neighbours"], json!([{"volume": "v2", "has_floor": true}]));
    check_tables(&daemon);
    one.finish();
    other.finish();
    check_totals(&daemon, &["v1", "v2"]);
    let gauges =
        |daemon: &Daemon| daemon.json(&["volume", "inspect", "v1"])["statistics"]["queue_depth"].clone();
    wait_until("nothing is under way any more", || gauges(&daemon) == 0);
}

#[test]
fn requests_in_flight_are_explained_before_any_reply() {
    let daemon = scene("iops=1000,latency=10s", &["v1"]);
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    for number in 0..3u64 {
        client.send(WRITE, 0, number * 4096, 4096, &[1; 4096]).unwrap();
    }
    let statistics = || daemon.json(&["volume", "inspect", "v1"])["statistics"].clone();
    wait_until("requests under way are counted", || number(&statistics()["queue_depth"]) == 3);
    assert_eq!(number(&statistics()["write"]["operations"]), 0);
    let by_drive = explained(&daemon, "v1", json!({"cause": "drive", "operations": 0}));
    assert!(by_drive["summary"].as_str().unwrap().starts_with("Drive em"), "{by_drive:#}");
}

fn deep(daemon: &Daemon, volume: &str) -> Saturating {
    Saturating::start_writing(daemon, volume, DEEP, 4096)
}

/// Checks the tables by cause and of characteristics while both volumes write 4 KiB with many requests in
/// flight.
fn check_tables(daemon: &Daemon) {
    let show = |what, volume| {
        daemon.json(&[
            "qos",
            "statistics",
            "volume",
            what,
            "show",
            volume,
            "--iterations",
            "1",
            "--interval",
            "1",
        ])
    };
    let latency = show("latency", "v1");
    let row = &latency["volumes"][0];
    let parts = CAUSES.iter().map(|cause| number(&row[cause.replace("_ns", "_mean_ns")]));
    assert_eq!(parts.sum::<u64>(), number(&row["latency_mean_ns"]), "{latency:#}");
    assert_eq!(latency["volumes"].as_array().unwrap().len(), 1);
    let of = &show("characteristics", "v2")["volumes"][0];
    assert_eq!((number(&of["request_bytes_mean"]), &of["read_share"]), (4096, &json!(0.0)));
    assert_eq!(of["size_shares"], json!([1.0, 0.0, 0.0, 0.0, 0.0]));
    let table = daemon.ok(&["qos", "statistics", "volume", "latency", "show"]);
    for title in ["-total-", "QoS Max", "QoS Min", "Queue", "Drive", "Other", "v2"] {
        assert!(table.contains(title), "{title} in:\n{table}");
    }
}

/// Latencies that the daemon reports, compared with those that clients measure. The run mixes a ceiling, a
/// floor and a busy neighbour on a slow drive.
///
/// The daemon never reports more than the clients measure. It reports at least the latency that ceiling and
/// drive cause on the fastest machine.
#[test]
fn latency_by_cause_agrees_with_clients() {
    let daemon = scene("iops=100", &["v1", "v2", "v3"]);
    group(&daemon, "slow", "--max-throughput 20IOPS --is-shared false");
    group(&daemon, "floor", "--min-throughput 30IOPS --is-shared false");
    bind(&daemon, "v1", "slow");
    bind(&daemon, "v2", "floor");
    let runs = [("v1", 32, 96), ("v2", 96, 224), ("v3", 96, 224)];
    let clients = runs.map(|(volume, depth, count)| (volume, measure(&daemon, volume, depth, count)));
    let told = clients.map(|(volume, client)| {
        let measured = client.join().unwrap() as f64;
        let write = &daemon.json(&["volume", "inspect", volume])["statistics"]["write"];
        let told = CAUSES.iter().map(|cause| number(&write[cause])).sum::<u64>() as f64;
        assert!(told <= measured, "{volume}: {told} ns are told, {measured} measured: {write:#}");
        told
    });
    // A backlog that waited through a stall of the machine may catch up a little.
    let is_enough = |told: f64, least: f64| told >= 0.98 * least;
    assert!(is_enough(told[0], least_ns(32, 96, 20)), "{told:?}");
    assert!(is_enough(told[1] + told[2], least_ns(192, 448, 100)), "{told:?}");
    check_totals(&daemon, &["v1", "v2", "v3"]);
}

/// Client that leaves its volume idle most of the time.
struct Paced {
    is_over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Paced {
    /// Starts the client. Before each next write it waits for a write to another volume, whose ceiling sets
    /// the rate.
    fn start(daemon: &Daemon, volume: &str, metronome: &str) -> Paced {
        let mut client = Client::attach(&daemon.nbd_socket(), volume);
        let mut metronome = Client::attach(&daemon.nbd_socket(), metronome);
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                client.write(0, &[1; 4096]).unwrap();
                metronome.write(0, &[1; 4096]).unwrap();
            }
            client.disconnect();
            metronome.disconnect();
        });
        Paced { is_over, thread }
    }

    fn finish(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
