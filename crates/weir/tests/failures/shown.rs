//! What is told of drives, and of the replicas of the volume `vol1`, and waiting for it.

use crate::common::daemon::Daemon;
use crate::common::nbd::{Client, EIO};
use crate::common::wait_until;

/// Waits until the daemon has noticed that a drive is missing, or that it is back.
pub fn wait_for_drive(daemon: &Daemon, drive: &str, state: &str) {
    let words = format!("drive '{drive}' at ");
    let is_missing = || alarms(daemon).iter().any(|alarm| alarm.starts_with(&words));
    wait_until(&format!("drive '{drive}' to be {state}"), || is_missing() == (state == "missing"));
    assert_eq!(daemon.json(&["drive", "show", drive])["state"], state);
}

/// The messages of all alarms that stand.
pub fn alarms(daemon: &Daemon) -> Vec<String> {
    let status = daemon.json(&["status"]);
    let alarms = status["alarms"].as_array().unwrap().iter();
    alarms.map(|alarm| alarm["message"].as_str().unwrap().to_owned()).collect()
}

/// True if an alarm says this.
pub fn is_told(daemon: &Daemon, words: &str) -> bool {
    alarms(daemon).iter().any(|alarm| alarm.contains(words))
}

/// The list, an inspection and the metrics say the same of the volume's health, and of how many extent replicas are in
/// sync, stale and missing.
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

/// Replicas of extents that lack something.
pub fn stale(daemon: &Daemon) -> u64 {
    replicas(daemon, "stale")
}

/// Replicas of extents that have everything; those that are not stale may be missing still, while their drive is back.
pub fn in_sync(daemon: &Daemon) -> u64 {
    replicas(daemon, "in_sync")
}

fn replicas(daemon: &Daemon, state: &str) -> u64 {
    daemon.json(&["volume", "inspect", "vol1"])["replication"][state].as_u64().unwrap()
}

/// Waits until requests are answered: a drive is told as online just before its files are used again.
pub fn wait_until_served(client: &mut Client) {
    wait_until("requests to be answered", || client.read(0, 4096).is_ok());
}

/// Waits until requests are refused: a drive is told as missing just before its files are left alone.
pub fn wait_until_refused(client: &mut Client) {
    wait_until("requests to be refused", || client.read(0, 4096) == Err(EIO));
}
