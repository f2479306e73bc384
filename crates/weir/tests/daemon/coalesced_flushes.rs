//! The I/O profile `db_remote` from outside: flushes are answered while two replicas hold the data, and acknowledged
//! writes survive kills of the daemon and the loss of a drive.
//!
//! `WEIR_SEED` repeats the random choices.

use serde_json::Value;

use crate::common::block_model::BlockModel;
use crate::common::daemon::{Daemon, State};
use crate::common::nbd::{Client, FUA, WRITE};
use crate::common::wait_until;

/// A window that does not end while a test looks at it.
const LONG: &str = "10s";

fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}

/// Starts a daemon with a drive in each of two zones, and a volume of two extents with a replica on each.
fn with_volume(options: &str) -> Daemon {
    let daemon = State::new().start(&[]);
    for zone in ["a", "b"] {
        let path = daemon.state().beside(&format!("drive-{zone}"));
        std::fs::create_dir_all(&path).unwrap();
        let add = format!("drive add {} --zone {zone} --class high --no-measurement", path.display());
        daemon.ok(&words(&add));
    }
    daemon.ok(&words(&format!("volume create vol1 --size 2 --class high --replicas 2 {options}")));
    daemon
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    let series = format!("{name}{{tenant=\"default\",volume=\"vol1\"}} ");
    let metrics = daemon.get_text("/metrics");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
    value.unwrap_or_else(|| panic!("{series} in:\n{metrics}")).parse::<f64>().unwrap() as u64
}

/// Flushes that were answered before they were carried out.
fn owed(daemon: &Daemon) -> u64 {
    counter(daemon, "weir_volume_coalesced_flushes_total")
}

fn inspect(daemon: &Daemon) -> Value {
    daemon.json(&["volume", "inspect", "vol1"])
}

/// The messages of alarms about coalesced flushes.
fn alarms(daemon: &Daemon) -> Vec<String> {
    let status = daemon.json(&["status"]);
    let alarms = status["alarms"].as_array().unwrap().iter();
    let about = alarms.filter(|alarm| alarm["code"] == "coalesced_flushes");
    about.map(|alarm| alarm["message"].as_str().unwrap().to_owned()).collect()
}

/// Writes and flushes until a flush is owed. The first flush after a start or a failure is carried out.
fn write_until_owed(model: &mut BlockModel, client: &mut Client, daemon: &Daemon) {
    let before = owed(daemon);
    wait_until("a flush is owed", || {
        model.write(client, 1);
        client.flush().unwrap();
        owed(daemon) > before
    });
}

#[test]
fn flushes_are_answered_first_and_carried_out_as_one() {
    let daemon = with_volume("--io-profile db_remote --flush-window 10s");
    let volume = inspect(&daemon);
    assert_eq!(volume["ack_point"], "memory of 2 replicas, stable within 10000 ms");
    assert_eq!(volume["flush_coalescing"]["window_seconds"], 10.0);
    let (mut model, mut client) = (BlockModel::new(2), Client::attach(&daemon.nbd_socket(), "vol1"));
    write_until_owed(&mut model, &mut client, &daemon);
    let before = owed(&daemon);
    for _ in 0..50 {
        model.write(&mut client, 3);
        client.flush().unwrap();
    }
    assert_eq!(owed(&daemon), before + 50);
    let rounds = || counter(&daemon, "weir_volume_coalesced_flush_rounds_total");
    let rounds_before = rounds();
    daemon.ok(&words("volume modify vol1 --flush-window 20ms"));
    wait_until("all flushes are carried out", || rounds() > rounds_before);
    assert!(rounds() * 10 < owed(&daemon), "{} flushes in {} rounds", owed(&daemon), rounds());
    write_until_owed(&mut model, &mut client, &daemon);
    let before = owed(&daemon);
    client.zero(FUA, 1 << 28, 1 << 20).unwrap();
    client.call(WRITE, FUA, 1 << 28, 4096, &[1; 4096]).unwrap().unwrap();
    assert_eq!(owed(&daemon), before, "a durable request waits for the drives");
    daemon.ok(&words("volume modify vol1 --coalesce-fua"));
    assert_eq!(inspect(&daemon)["flush_coalescing"]["coalesce_fua"], true);
    client.zero(FUA, 1 << 28, 1 << 20).unwrap();
    client.call(WRITE, FUA, 1 << 28, 4096, &[2; 4096]).unwrap().unwrap();
    let large = vec![3; 9 << 20];
    client.call(WRITE, FUA, 3 << 28, large.len() as u32, &large).unwrap().unwrap();
    assert_eq!(owed(&daemon), before + 3, "it counts as one without and a flush");
    daemon.ok(&words("volume modify vol1 --io-profile none"));
    assert!(inspect(&daemon).get("flush_coalescing").is_none());
    client.flush().unwrap();
    model.check(&daemon);
    daemon.stop();
}

#[test]
fn acknowledged_writes_survive_kills() {
    let mut daemon = with_volume(&format!("--io-profile db_remote --flush-window {LONG} --coalesce-fua"));
    let mut model = BlockModel::new(2);
    for _ in 0..5 {
        let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
        model.write(&mut client, 300);
        write_until_owed(&mut model, &mut client, &daemon);
        let before = owed(&daemon);
        wait_until("durable requests are coalesced, also after a restart", || {
            client.call(WRITE, FUA, 3 << 29, 4096, &[7; 4096]).unwrap().unwrap();
            owed(&daemon) > before
        });
        daemon = daemon.kill().start(&[]);
        model.check(&daemon);
        let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
        assert_eq!(client.read(3 << 29, 4096).unwrap(), [7; 4096]);
    }
    wait_until("replicas are in sync again", || alarms(&daemon).is_empty());
    daemon.stop();
}

#[test]
fn flushes_are_carried_out_when_a_drive_goes_and_owed_again_when_it_is_back() {
    let daemon = with_volume(&format!("--io-profile db_remote --flush-window {LONG}"));
    let (mut model, mut client) = (BlockModel::new(2), Client::attach(&daemon.nbd_socket(), "vol1"));
    write_until_owed(&mut model, &mut client, &daemon);
    let (here, away) = (daemon.state().beside("drive-a"), daemon.state().beside("drive-a.away"));
    std::fs::rename(&here, &away).unwrap();
    wait_until("the alarm is there", || !alarms(&daemon).is_empty());
    assert!(alarms(&daemon)[0].contains("one replica in sync"), "{:?}", alarms(&daemon));
    model.write(&mut client, 100);
    client.flush().unwrap();
    let before = owed(&daemon);
    model.write(&mut client, 100);
    client.flush().unwrap();
    assert_eq!(owed(&daemon), before, "with one replica, a flush waits for its drive");
    let state = daemon.kill();
    let daemon = state.start(&[]);
    model.check(&daemon);
    std::fs::rename(&away, &here).unwrap();
    wait_until("the alarm is gone", || alarms(&daemon).is_empty());
    let mut client = Client::attach(&daemon.nbd_socket(), "vol1");
    write_until_owed(&mut model, &mut client, &daemon);
    let events = daemon.json(&["event", "list"]).to_string();
    assert!(events.contains("alarm_raised") && events.contains("alarm_cleared"), "{events}");
    model.check(&daemon);
    daemon.stop();
}

#[test]
fn shared_failure_domain_is_refused_unless_it_is_allowed() {
    let daemon = with_volume("");
    let profiles = || {
        let volume = inspect(&daemon);
        (volume["io_profile"].clone(), volume["derived_io_profile"].clone())
    };
    assert_eq!(profiles(), ("auto".into(), "db_remote".into()));
    daemon.ok(&words("drive modify drive-b --zone a"));
    wait_until("the profile follows", || profiles() == ("auto".into(), "none".into()));
    // Events are looked for once a second.
    wait_until("an event tells it", || {
        daemon.ok(&words("drive modify drive-b --zone b"));
        daemon.ok(&words("drive modify drive-b --zone a"));
        daemon.json(&["event", "list"]).to_string().contains("the I/O profile 'auto' amounts to")
    });
    wait_until("the profile follows", || profiles() == ("auto".into(), "none".into()));
    let refused = daemon.refused(1, &words("volume modify vol1 --io-profile db_remote"));
    assert!(refused.contains("--allow-shared-failure-domain accepts that"), "{refused}");
    daemon.ok(&words("volume modify vol1 --io-profile db_remote --allow-shared-failure-domain"));
    let volume = inspect(&daemon);
    assert_eq!(volume["flush_coalescing"]["allow_shared_failure_domain"], true);
    assert_eq!(volume["ack_point"], "memory of 2 replicas, stable within 100 ms");
    let refused = daemon.refused(1, &words("volume modify vol1 --flush-window 11s"));
    assert!(refused.contains("1 to 10000 ms are"), "{refused}");
    let (mut model, mut client) = (BlockModel::new(2), Client::attach(&daemon.nbd_socket(), "vol1"));
    write_until_owed(&mut model, &mut client, &daemon);
    daemon.stop();
}
