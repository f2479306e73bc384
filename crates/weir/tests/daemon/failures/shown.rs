//! Reported states of drives and of the replicas of volume `vol1`, and waits for them.

use crate::common::daemon::Daemon;
use crate::common::nbd::{Client, EIO};
use crate::common::wait_until;

/// Waits until the daemon reports this state of a drive, for example missing or online.
pub fn wait_for_drive(daemon: &Daemon, drive: &str, state: &str) {
    let words = format!("drive '{drive}' at ");
    let is_missing = || alarms(daemon).iter().any(|alarm| alarm.starts_with(&words));
    wait_until(&format!("drive '{drive}' to be {state}"), || is_missing() == (state == "missing"));
    assert_eq!(daemon.json(&["drive", "show", drive])["state"], state);
}

/// Returns the messages of all active alarms.
pub fn alarms(daemon: &Daemon) -> Vec<String> {
    let status = daemon.json(&["status"]);
    let alarms = status["alarms"].as_array().unwrap().iter();
    alarms.map(|alarm| alarm["message"].as_str().unwrap().to_owned()).collect()
}

/// Returns true if an active alarm contains these words.
pub fn is_told(daemon: &Daemon, words: &str) -> bool {
    alarms(daemon).iter().any(|alarm| alarm.contains(words))
}

/// Asserts that list, inspection and metrics agree on the volume's health. They must also agree on the
/// numbers of extent replicas in sync, stale and missing.
pub fn assert_shown(daemon: &Daemon, health: &str, replicas: Option<[u64; 3]>) {
    let volume = daemon.json(&["volume", "inspect", "vol1"]);
    assert_eq!(volume["health"], health, "{volume}");
    let list = daemon.ok(&["volume", "list"]);
    let line = list.lines().find(|line| line.starts_with("vol1")).unwrap();
    assert!(line.contains(&format!(" {health} ")), "{line}");
    let metrics = daemon.get_text("/metrics");
    let metric = |name: &str| {
        let start = format!("weir_volume_{name}{{tenant=\"default\",volume=\"vol1\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&start));
        value.unwrap_or_else(|| panic!("no {start}in {metrics}")).parse::<f64>().unwrap() as u64
    };
    assert_eq!(metric("online"), u64::from(health != "offline"));
    assert_eq!(metric("degraded"), u64::from(health != "online"));
    let Some(expected) = replicas else { return };
    let states = ["in_sync", "stale", "missing"];
    assert_eq!(states.map(|state| volume["replication"][state].as_u64().unwrap()), expected, "{volume}");
    assert_eq!(states.map(|state| metric(&format!("extent_replicas_{state}"))), expected);
}

/// Returns the number of stale extent replicas.
pub fn stale(daemon: &Daemon) -> u64 {
    replicas(daemon, "stale")
}

/// Returns the number of extent replicas in sync. The others may still be missing, not stale, while their
/// drive comes back.
pub fn in_sync(daemon: &Daemon) -> u64 {
    replicas(daemon, "in_sync")
}

fn replicas(daemon: &Daemon, state: &str) -> u64 {
    daemon.json(&["volume", "inspect", "vol1"])["replication"][state].as_u64().unwrap()
}

/// Waits until requests are answered: a drive is reported online just before its files are used again.
pub fn wait_until_served(client: &mut Client) {
    wait_until("requests to be answered", || client.read(0, 4096).is_ok());
}

/// Waits until requests are refused: a drive is reported missing just before its files are no longer used.
pub fn wait_until_refused(client: &mut Client) {
    wait_until("requests to be refused", || client.read(0, 4096) == Err(EIO));
}
