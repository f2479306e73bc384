//! Bursts from outside: credit is spent at the burst rate, ends when the arithmetic says, and outlives the daemon.
//!
//! Times are compared with each other only: how long requests take while there is credit, and after.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "ceilings/saturating.rs"]
mod saturating;

use std::time::{Duration, Instant};

use common::daemon::{Daemon, State};
use saturating::Saturating;

/// Requests beyond the ceiling that a full credit is good for: 4 s at 700 IOPS above it.
const CREDIT: u64 = 2800;
/// Requests at the burst rate after which a full credit is used up: it earns 100 while it spends 800.
const REQUESTS_OF_FULL_CREDIT: u64 = CREDIT * 800 / 700;

fn bursting() -> Daemon {
    let daemon = Daemon::fresh();
    daemon.create("v", "1GiB");
    let policy = "qos policy-group create p --max-throughput 100IOPS --burst 800IOPS --burst-seconds 4 \
                  --burst-credit full -is-shared false";
    daemon.ok(&policy.split_whitespace().collect::<Vec<_>>());
    daemon.ok(&["volume", "modify", "v", "--qos-policy-group", "p"]);
    daemon
}

/// How long each request takes from the moment when `from` are answered until `to` are.
fn pace(client: &Saturating, from: u64, to: u64) -> Duration {
    common::wait_until("the first requests are answered", || client.count() >= from);
    let (first, started) = (client.count(), Instant::now());
    common::wait_until("more requests are answered", || client.count() >= to);
    started.elapsed() / u32::try_from(client.count() - first).unwrap().max(1)
}

/// Spends half of the credit, ends the daemon by `end`, and looks whether the other half is left: no more than
/// `more_max` requests beyond it.
fn credit_goes_on(end: impl Fn(Daemon) -> State, more_max: u64) {
    let daemon = bursting();
    let client = Saturating::start(&daemon, "v", 32, 4096);
    let fast = pace(&client, 200, REQUESTS_OF_FULL_CREDIT / 2);
    let spent = client.finish();
    let daemon = end(daemon).start(&[]);
    let client = Saturating::start(&daemon, "v", 32, 4096);
    let left = REQUESTS_OF_FULL_CREDIT - spent;
    let still_fast = pace(&client, left / 4, left * 3 / 4);
    let slow = pace(&client, left + more_max, left + more_max + 100);
    client.finish();
    assert!(still_fast < slow / 3, "with credit {still_fast:?}, without {slow:?} a request");
    assert!(fast < slow / 3, "with credit {fast:?}, without {slow:?} a request");
}

#[test]
fn credit_outlives_a_daemon_that_ends() {
    // Beginning again takes a moment in which a little is earned.
    credit_goes_on(Daemon::stop, 400);
}

#[test]
fn credit_outlives_a_daemon_that_is_killed() {
    // What was spent in the last half second before the end is not known.
    credit_goes_on(Daemon::kill, 800);
}

#[test]
fn what_has_full_credit_at_the_start_uses_it_once() {
    let daemon = bursting();
    let client = Saturating::start_writing(&daemon, "v", 32, 4096);
    let fast = pace(&client, 200, REQUESTS_OF_FULL_CREDIT * 3 / 4);
    // A change of policy and back gives nothing.
    daemon.ok(&["volume", "modify", "v", "--qos-policy-group", "none"]);
    daemon.ok(&["volume", "modify", "v", "--qos-policy-group", "p"]);
    let after_change = client.count();
    let slow = pace(
        &client,
        after_change + REQUESTS_OF_FULL_CREDIT / 2,
        after_change + REQUESTS_OF_FULL_CREDIT / 2 + 100,
    );
    client.finish();
    assert!(fast < slow / 3, "with credit {fast:?}, without {slow:?} a request");
}
