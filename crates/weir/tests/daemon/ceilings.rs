//! Ceilings on busy volumes: bound, changed, shared and released without an error or a reconnect.
//!
//! The benches measure how exact ceilings are. These tests check, by the daemon's own clock, that ceilings
//! are never exceeded and eventually reached.

use crate::common::daemon::Daemon;
use crate::common::load::Load;
use crate::common::nbd::{Client, READ};
use crate::common::rates::{Counted, pass_seconds};
use crate::common::saturating::Saturating;
use crate::common::wait_until;
use serde_json::Value;

/// Totals of a volume's requests.
fn statistics(daemon: &Daemon, volume: &str) -> Value {
    daemon.json(&["volume", "inspect", volume])["statistics"].clone()
}

fn number(value: &Value, path: &[&str]) -> u64 {
    path.iter()
        .fold(value, |value, key| &value[key])
        .as_u64()
        .unwrap_or_else(|| panic!("{path:?} in {value:#}"))
}

fn limit(daemon: &Daemon, group: &str, rate: &str) {
    daemon.ok(&["qos", "policy-group", "modify", group, "--max-throughput", rate]);
}

fn bind(daemon: &Daemon, volume: &str, group: &str) {
    daemon.ok(&["volume", "modify", volume, "--qos-policy-group", group]);
}

/// A daemon with two volumes that have data at their beginning, and policy groups that no volume has yet.
fn scene(groups: &[(&str, &str, &str)]) -> Daemon {
    let daemon = Daemon::fresh_in_memory();
    for volume in ["v1", "v2"] {
        daemon.create(volume, "1GiB");
        let mut client = Client::attach(&daemon.nbd_socket(), volume);
        client.write(0, &vec![1; 16 << 20]).unwrap();
        client.disconnect();
    }
    for (name, rate, shared) in groups {
        daemon.ok(&["qos", "policy-group", "create", name, "--max-throughput", rate, "--is-shared", shared]);
    }
    daemon
}

#[test]
fn ceiling_is_bound_changed_and_released_under_load() {
    let daemon = scene(&[("p", "200IOPS", "false")]);
    let client = Saturating::start(&daemon, "v1", 32, 4096);
    let counted = Counted::all(&daemon, &["v1"]);
    counted.exceed(500.0);
    bind(&daemon, "v1", "p");
    counted.keep_to(200.0);
    limit(&daemon, "p", "50IOPS");
    counted.keep_to(50.0);
    limit(&daemon, "p", "400IOPS");
    counted.keep_to(400.0);
    // 1 MB/s is 244 requests of 4 KiB.
    limit(&daemon, "p", "100000IOPS,1MB/s");
    counted.keep_to(1e6 / 4096.0);
    bind(&daemon, "v1", "none");
    counted.exceed(500.0);
    client.finish();
    let after = statistics(&daemon, "v1");
    assert_eq!(number(&after, &["read", "errors"]), 0);
    assert!(number(&after, &["read", "delayed"]) > 500);
    assert!(number(&after, &["read", "delayed_ns"]) > 1_000_000_000);
}

#[test]
fn ceiling_of_direction_limits_only_that_direction() {
    let daemon = scene(&[]);
    daemon.ok(&["qos", "policy-group", "create", "w", "--max-write", "50IOPS", "--is-shared", "false"]);
    bind(&daemon, "v1", "w");
    let reads = Saturating::start(&daemon, "v1", 8, 4096);
    let writes = Saturating::start_writing(&daemon, "v1", 8, 4096);
    let (of_reads, of_writes) = (Counted::only(&daemon, "v1", "read"), Counted::only(&daemon, "v1", "write"));
    of_writes.keep_to(50.0);
    of_reads.exceed(100.0);
    daemon.ok(&["qos", "policy-group", "modify", "w", "--max-write", "none", "--max-read", "100IOPS"]);
    of_reads.keep_to(100.0);
    of_writes.exceed(100.0);
    assert!(reads.finish() > 0 && writes.finish() > 0);
}

#[test]
fn shared_policy_group_is_one_budget() {
    let daemon = scene(&[("both", "300IOPS", "true")]);
    bind(&daemon, "v1", "both");
    bind(&daemon, "v2", "both");
    let first = Saturating::start(&daemon, "v1", 32, 4096);
    let second = Saturating::start(&daemon, "v2", 32, 4096);
    Counted::all(&daemon, &["v1", "v2"]).keep_to(300.0);
    let one = Counted::all(&daemon, &["v1"]);
    wait_until("one of two has about half", || {
        let span = one.during(|| one.wait_for(300));
        (75.0..225.0).contains(&(span.answered as f64 / span.seconds))
    });
    second.finish();
    one.keep_to(300.0);
    limit(&daemon, "both", "100IOPS");
    one.keep_to(100.0);
    first.finish();
}

#[test]
fn members_of_unshared_policy_group_have_own_budgets() {
    let daemon = scene(&[("each", "150IOPS", "false")]);
    bind(&daemon, "v1", "each");
    bind(&daemon, "v2", "each");
    let first = Saturating::start(&daemon, "v1", 16, 4096);
    let second = Saturating::start(&daemon, "v2", 16, 4096);
    Counted::all(&daemon, &["v1"]).keep_to(150.0);
    Counted::all(&daemon, &["v2"]).keep_to(150.0);
    // The volumes do not share one budget of 150 IOPS.
    Counted::all(&daemon, &["v1", "v2"]).keep_to(300.0);
    assert!(first.finish() > 0 && second.finish() > 0);
}

#[test]
fn policy_changes_under_load_lose_no_request() {
    let daemon = scene(&[("p", "1000IOPS", "false"), ("q", "900IOPS", "true")]);
    bind(&daemon, "v1", "p");
    let socket = daemon.nbd_socket();
    // The loads write and read back, so that a lost or doubled request is detected.
    let loads = [Load::start(&socket, "v1", 64 << 20), Load::start(&socket, "v1", 128 << 20)];
    let client = Saturating::start(&daemon, "v1", 32, 4096);
    for number in 0..1000u32 {
        match number % 10 {
            8 => bind(&daemon, "v1", "q"),
            9 => bind(&daemon, "v1", if number % 20 == 9 { "p" } else { "none" }),
            _ => limit(&daemon, "p", &format!("{}IOPS,{}MB/s", 500 + number * 7 % 5000, 10 + number % 90)),
        }
        if number % 200 == 0 {
            loads.iter().for_each(Load::advances);
        }
    }
    bind(&daemon, "v1", "p");
    limit(&daemon, "p", "300IOPS");
    loads.into_iter().for_each(|load| assert!(load.finish() > 0));
    Counted::all(&daemon, &["v1"]).keep_to(300.0);
    client.finish();
    let after = statistics(&daemon, "v1");
    assert_eq!(number(&after, &["read", "errors"]) + number(&after, &["write", "errors"]), 0);
    wait_until("no request is left", || number(&statistics(&daemon, "v1"), &["queue_depth"]) == 0);
}

#[test]
fn statistics_show_delayed_requests() {
    let daemon = scene(&[("p", "50IOPS", "false")]);
    bind(&daemon, "v1", "p");
    let client = Saturating::start(&daemon, "v1", 64, 4096);
    wait_until("requests are held back", || {
        let now = statistics(&daemon, "v1");
        number(&now, &["queue_depth_delayed"]) > 50 && number(&now, &["queue_depth"]) > 50
    });
    let show = ["qos", "statistics", "volume", "performance", "show", "--interval", "1", "--iterations", "2"];
    let table = daemon.ok(&show);
    assert!(table.contains("v1") && table.contains("Delayed"), "{table}");
    client.finish();
    let now = statistics(&daemon, "v1");
    let (delayed, by_drive) = (number(&now, &["read", "delayed_ns"]), number(&now, &["read", "drive_ns"]));
    assert!(delayed > by_drive, "{delayed} ns delayed, {by_drive} ns served");
    let other = statistics(&daemon, "v2");
    assert_eq!(number(&other, &["write", "delayed"]), 0);
}

#[test]
fn idle_volume_saves_no_burst_without_policy() {
    let daemon = scene(&[("p", "100IOPS", "false")]);
    bind(&daemon, "v1", "p");
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    client.read(0, 4096).unwrap();
    // The test needs an idle volume.
    pass_seconds(&daemon, 2);
    let span = Counted::all(&daemon, &["v1"]).during(|| {
        for _ in 0..64 {
            client.send(READ, 0, 0, 4096, &[]).unwrap();
        }
        for _ in 0..64 {
            client.reply().unwrap();
            std::io::Read::read_exact(&mut client.stream, &mut [0; 4096]).unwrap();
        }
    });
    // The volume may have saved at most 100 ms of its rate.
    assert!(span.most(100.0) >= 64.0, "64 requests were answered in {span:?}");
}

#[test]
fn request_above_allowance_is_served_and_charged() {
    let daemon = scene(&[("p", "1MB/s", "false")]);
    bind(&daemon, "v1", "p");
    let mut client = Client::attach(&daemon.nbd_socket(), "v1");
    // The first request runs at once. The second waits for the 4 MiB of the first, the third for both.
    let span = Counted::all(&daemon, &["v1"]).during(|| {
        (0..3).for_each(|_| assert_eq!(client.read(0, 4 << 20).unwrap().len(), 4 << 20));
    });
    assert!(span.seconds >= 8.0, "{span:?}");
    bind(&daemon, "v1", "none");
    assert_eq!(client.read(0, 4 << 20).unwrap().len(), 4 << 20);
}
