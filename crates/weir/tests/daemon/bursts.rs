//! Bursts seen from outside: credit is spent, lasts as long as calculated, and survives a restart of the
//! daemon.

use crate::common::daemon::{Daemon, State};
use crate::common::rates::{Counted, pass_seconds};
use crate::common::saturating::Saturating;
use crate::common::wait_until;

/// Full credit, in seconds at the burst rate. A daemon that is away for a minute earns less than one second.
const FULL_SECONDS: f64 = 4.0;
/// The ceiling.
const CEILING_IOPS: f64 = 10.0;

fn bursting() -> Daemon {
    let daemon = Daemon::fresh_in_memory();
    daemon.create("v", "1GiB");
    let policy = "qos policy-group create p --max-throughput 10IOPS --burst 800IOPS --burst-seconds 4 \
                  --burst-credit full -is-shared false";
    daemon.ok(&policy.split_whitespace().collect::<Vec<_>>());
    daemon.ok(&["volume", "modify", "v", "--qos-policy-group", "p"]);
    daemon
}

/// Credit that the volume has, in seconds at the burst rate.
fn credit(daemon: &Daemon) -> f64 {
    let metrics = daemon.get_text("/metrics");
    let series = "weir_volume_burst_credit_seconds{tenant=\"default\",volume=\"v\",limit=\"iops\"} ";
    let value = metrics.lines().find_map(|line| line.strip_prefix(series));
    value.unwrap_or_else(|| panic!("{series} in:\n{metrics}")).parse().unwrap()
}

/// Spends half of the credit, ends the daemon by `end`, and checks that the other half is left.
fn credit_goes_on(end: impl Fn(Daemon) -> State) {
    let daemon = bursting();
    assert!(credit(&daemon) > 0.99 * FULL_SECONDS);
    let client = Saturating::start_writing(&daemon, "v", 32, 4096);
    wait_until("half of the credit is spent", || credit(&daemon) < FULL_SECONDS / 2.0);
    client.finish();
    // The daemon saves the credit every half second.
    pass_seconds(&daemon, 3);
    let left = credit(&daemon);
    let daemon = end(daemon).start(&[]);
    let found = credit(&daemon);
    assert!((left - 0.1..FULL_SECONDS * 0.9).contains(&found), "{left} s were left, {found} s are there");
    daemon.stop();
}

#[test]
fn credit_survives_shutdown_and_start() {
    credit_goes_on(Daemon::stop);
}

#[test]
fn credit_survives_kill_and_start() {
    credit_goes_on(Daemon::kill);
}

#[test]
fn initial_full_credit_is_used_only_once() {
    let daemon = bursting();
    let client = Saturating::start_writing(&daemon, "v", 32, 4096);
    let counted = Counted::all(&daemon, &["v"]);
    let span = counted.during(|| wait_until("the credit is used up", || credit(&daemon) < 0.1));
    // Credit pays for requests beyond the ceiling.
    let most = span.most(CEILING_IOPS) + FULL_SECONDS * 800.0;
    assert!((span.answered as f64) <= most, "{span:?}, at most {most}");
    // A change of policy and back gives no credit.
    daemon.ok(&["volume", "modify", "v", "--qos-policy-group", "none"]);
    daemon.ok(&["volume", "modify", "v", "--qos-policy-group", "p"]);
    assert!(credit(&daemon) < FULL_SECONDS / 2.0, "{}", credit(&daemon));
    wait_until("the credit is used up again", || credit(&daemon) < 0.1);
    // A tenth of a second at the burst rate may be left.
    counted.wait_for(100);
    counted.keep_to(CEILING_IOPS);
    client.finish();
}
