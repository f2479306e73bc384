//! Bad input: every fault is named, refused with the right exit status, and harms no data.
//!
//! The tests cover wrong words on the command line and in the configuration file, a full drive, and damaged
//! extent files.

mod mounted;

use std::path::{Path, PathBuf};

use crate::common::daemon::{Daemon, State};
use crate::common::load::Load;
use crate::common::nbd::{Client, EIO, ENOSPC, FLUSH, FUA, NO_HOLE, WRITE};
use crate::common::program::{find, is_root, run};
use crate::common::{wait_for, wait_until};
use mounted::Mounted;

/// Runs a command that must be refused, and checks that the message has all these words.
fn refused(daemon: &Daemon, code: i32, command: &str, words: &[&str]) {
    let arguments: Vec<&str> = command.split(' ').collect();
    let message = daemon.refused(code, &arguments);
    for word in words {
        assert!(message.contains(word), "'{command}' was answered without '{word}': {message}");
    }
}

#[test]
fn invalid_sizes_are_refused() {
    let daemon = Daemon::fresh();
    daemon.create("kept", "1GiB");
    let usage = ["is not a size", "512MiB"];
    refused(&daemon, 1, "volume create v --size 0", &["0", "4096"]);
    refused(&daemon, 1, "volume create v --size 4095B", &["4095", "4096"]);
    refused(&daemon, 1, "volume create v --size 1000001B", &["1000001", "999424", "1003520"]);
    refused(&daemon, 1, "volume create v --size 65TiB", &["64TiB"]);
    refused(&daemon, 2, "volume create v --size 99999999999TiB", &usage);
    for size in ["-1", "-1GiB", "one", "1X", "1.5.5GiB", "1e3", "", "0x10", "10%", "GiB"] {
        let message = daemon.refused(2, &["volume", "create", "v", "--size", size]);
        assert!(message.contains("is not a size"), "{size}: {message}");
    }
    refused(&daemon, 2, "volume create v", &["--size"]);
    refused(&daemon, 1, "volume resize kept --size 0", &["0", "4096"]);
    refused(&daemon, 1, "volume resize kept --size 5000B --force", &["5000"]);
    refused(&daemon, 1, "volume resize kept --size 4096B", &["--force"]);
    refused(&daemon, 4, "volume resize missing --size 4096B", &["missing"]);
    assert_eq!(names(&daemon), ["kept"]);
    assert_eq!(daemon.json(&["volume", "inspect", "kept"])["size_bytes"], 1 << 30);
}

/// Names of all volumes.
fn names(daemon: &Daemon) -> Vec<String> {
    let list = daemon.json(&["volume", "list"]);
    list["items"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn invalid_names_are_refused() {
    let daemon = Daemon::fresh();
    daemon.create("taken", "1GiB");
    let long = "n".repeat(129);
    for name in ["", "a b", "../up", ".hidden", "_x", "grün", "none", "a\nb", long.as_str()] {
        for command in [vec!["volume", "create", name, "--size", "1"], vec!["tenant", "create", name]] {
            let ran = daemon.state().weir(&command);
            assert!(matches!(ran.code, Some(1 | 2)), "{name:?}: {ran:?}");
            assert!(ran.stderr.contains("name") || ran.stderr.contains("value"), "{name:?}: {}", ran.stderr);
        }
        let ran = daemon.state().weir(&["volume", "modify", "taken", "--new-name", name]);
        assert!(matches!(ran.code, Some(1 | 2)), "{name:?}: {ran:?}");
    }
    refused(&daemon, 4, "volume create a/b --size 1", &["unknown tenant 'a'"]);
    refused(&daemon, 1, "volume create a/b --size 1 --tenant default", &["name"]);
    refused(&daemon, 1, "tenant create a/b", &["name"]);
    refused(&daemon, 1, "volume create taken --size 1", &["taken", "exists"]);
    daemon.ok(&["tenant", "create", "acme"]);
    refused(&daemon, 1, "tenant create acme", &["acme", "exists"]);
    // The same name in another tenant is another volume.
    daemon.ok(&["volume", "create", "taken", "--size", "1", "--tenant", "acme"]);
    daemon.create("third", "1");
    refused(&daemon, 1, "volume modify third --new-name taken", &["taken", "exists"]);
    assert_eq!(names(&daemon).len(), 3);
}

#[test]
fn missing_objects_are_named() {
    let daemon = Daemon::fresh();
    daemon.create("v", "1");
    refused(&daemon, 4, "volume create w --size 1 --tenant nobody", &["tenant", "nobody"]);
    refused(&daemon, 4, "volume create w --size 1 --qos-policy-group missing", &["policy group", "missing"]);
    refused(&daemon, 4, "volume modify v --qos-policy-group missing", &["policy group", "missing"]);
    refused(&daemon, 4, "volume inspect missing", &["volume", "missing"]);
    refused(&daemon, 4, "volume delete missing", &["volume", "missing"]);
    refused(&daemon, 4, "volume list --tenant nobody", &["nobody"]);
    refused(&daemon, 4, "tenant delete nobody", &["nobody"]);
    refused(&daemon, 4, "qos policy-group modify missing --max-throughput 1IOPS", &["missing"]);
    refused(&daemon, 4, "qos policy-group rename missing --new-name other", &["missing"]);
    refused(&daemon, 4, "qos policy-group delete missing", &["missing"]);
    // A policy group of another tenant does not exist for this volume.
    daemon.ok(&["tenant", "create", "acme"]);
    daemon.ok(&["qos", "policy-group", "create", "theirs", "--tenant", "acme", "--max-throughput", "1IOPS"]);
    refused(&daemon, 4, "volume modify v --qos-policy-group theirs", &["theirs"]);
    refused(&daemon, 2, "volume explode v", &["explode"]);
    refused(&daemon, 2, "volume create v --size 1 --colour blue", &["colour"]);
    refused(&daemon, 2, "volume create v --size 1 --io_priority best", &["best", "high", "medium", "low"]);
    assert_eq!(names(&daemon), ["v"]);
}

#[test]
fn policy_groups_and_tenants_in_use_stay() {
    let daemon = Daemon::fresh();
    daemon.ok(&["tenant", "create", "acme"]);
    daemon.ok(&["qos", "policy-group", "create", "bound", "--tenant", "acme", "--max-throughput", "10IOPS"]);
    daemon.ok(&["volume", "create", "v", "--size", "1", "--tenant", "acme", "--qos-policy-group", "bound"]);
    refused(&daemon, 1, "qos policy-group delete bound --tenant acme", &["bound", "v"]);
    refused(&daemon, 1, "qos policy-group create bound --tenant acme --max-throughput 1IOPS", &["exists"]);
    refused(&daemon, 1, "tenant delete acme", &["acme"]);
    refused(&daemon, 1, "tenant delete default", &["default"]);
    refused(&daemon, 1, "qos policy-group modify bound --tenant acme --is-shared false", &["shared"]);
    daemon.ok(&["volume", "modify", "v", "--tenant", "acme", "--qos-policy-group", "none"]);
    daemon.ok(&["qos", "policy-group", "delete", "bound", "--tenant", "acme"]);
    daemon.ok(&["volume", "delete", "v", "--tenant", "acme"]);
    daemon.ok(&["tenant", "delete", "acme"]);
}

#[test]
fn invalid_rates_are_refused() {
    let daemon = Daemon::fresh();
    daemon.ok(&["qos", "policy-group", "create", "kept", "--max-throughput", "100IOPS"]);
    let rates = [
        "1000",
        "-5IOPS",
        "-1MB/s",
        "0IOPS",
        "300MB",
        "5XB/s",
        "1IOPS,2IOPS",
        "",
        "fast",
        "99999999999999999999IOPS",
    ];
    for rate in rates.iter().chain(&["2000000000IOPS", "2000TB/s", "1.5IOPS", "10IOPS,", "NaNIOPS"]) {
        for verb in ["create", "modify"] {
            for limit in ["--max-throughput", "--max-read", "--max-write"] {
                let name = if verb == "create" { "new" } else { "kept" };
                let message = daemon.refused(2, &["qos", "policy-group", verb, name, limit, rate]);
                assert!(message.contains("IOPS") || message.contains("B/s"), "'{rate}': {message}");
            }
        }
    }
    let list = daemon.json(&["qos", "policy-group", "show"]);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["limits"]["total"]["iops"], 100);
}

/// The state that a refused floor must leave unchanged.
fn floors(daemon: &Daemon) -> [serde_json::Value; 4] {
    let read = |command: &str| daemon.json(&command.split(' ').collect::<Vec<_>>());
    let mut found =
        ["pool inspect em", "volume list", "tenant inspect default", "qos policy-group show"].map(read);
    // The space values are those of the filesystem, which other programs use too.
    found[0]["used_bytes"] = serde_json::Value::Null;
    found[0]["available_bytes"] = serde_json::Value::Null;
    found[0]["drives"][0]["used_bytes"] = serde_json::Value::Null;
    found[0]["drives"][0]["space_age_ns"] = serde_json::Value::Null;
    found
}

#[test]
fn floors_beyond_pool_capacity_are_refused() {
    let daemon = Daemon::fresh();
    let path = daemon.state().beside("em");
    std::fs::create_dir_all(&path).unwrap();
    let ok = |command: &str| daemon.ok(&command.split(' ').collect::<Vec<_>>());
    ok(&format!("drive add {} --no-measurement --emulate iops=21000,bandwidth=250MB/s", path.display()));
    ok("qos policy-group create five --min-throughput 5000IOPS --is-shared false");
    ok("qos policy-group create most --min-throughput 18000IOPS --is-shared true");
    ok("volume create v1 --size 1GiB --drive em --qos-policy-group five");
    ok("volume create v2 --size 1GiB --drive em");
    let file = daemon.state().beside("policies.yaml");
    let bound = "volumes:\n- name: v1\n  qos_policy_group: five\n- name: v2\n  qos_policy_group: most\n";
    std::fs::write(&file, bound).unwrap();
    let apply = format!("qos apply {}", file.display());
    let sum = [
        "pool 'em' would be over-committed: floors of 5000IOPS bound there plus 18000IOPS asked for plus 1050",
        "are 24050IOPS; its capacity of 21000IOPS times an over-commit of 100% is 21000IOPS; up to 14950IOPS",
    ];
    let before = floors(&daemon);
    for command in [
        "volume create v3 --size 1GiB --drive em --qos-policy-group most",
        "volume modify v2 --qos-policy-group most",
        &apply,
        &format!("{apply} --dry-run"),
    ] {
        refused(&daemon, 1, command, &sum);
        assert_eq!(floors(&daemon), before, "{command}");
    }
    refused(&daemon, 1, &apply, &["policies.yaml': line 4 (volumes entry 2): pool 'em' would be"]);
    let more = ["5000IOPS bound there plus 14951IOPS asked for", "are 21001IOPS"];
    refused(&daemon, 1, "qos policy-group modify five --min-throughput 19951IOPS", &more);
    refused(&daemon, 1, "pool modify em --over-commit 28%", &["5000IOPS bound there", "is 5880IOPS"]);
    refused(&daemon, 2, "pool modify em --over-commit 1.5", &["not a whole number of percent"]);
    refused(&daemon, 1, "pool modify em --reserve 51%", &["a reserve of 51% is not accepted; 0% to 50% is"]);
    refused(&daemon, 4, "pool inspect missing", &["unknown pool 'missing'; there are: default, em"]);
    assert_eq!(floors(&daemon), before);
    assert_eq!(daemon.json(&["status"])["status"], "operational");
    ok(&format!("{apply} --force"));
    let alarm = "pool 'em' is over-committed: floors of 23000IOPS bound there plus 1050IOPS reserved";
    assert!(ok("status").contains(alarm), "{}", ok("status"));
    let daemon = daemon.stop().start(&["--reactors", "2"]);
    assert!(daemon.ok(&["status"]).contains(alarm), "it stands after a restart");
    let told = daemon.ok(&["pool", "inspect", "em"]);
    for line in [
        "Capacity: 21000IOPS or 250MB/s\n",
        "Over-Commit: 100% of that: 21000IOPS or 250MB/s\n",
        "Floors Fit: over-committed, so that not all floors can be met at once: floors of 23000IOPS bound",
        "policy group most",
    ] {
        assert!(told.contains(line), "{line} in:\n{told}");
    }
    daemon.ok(&["pool", "modify", "em", "--over-commit", "115%"]);
    assert_eq!(daemon.json(&["status"])["status"], "operational");
    let unknown = daemon.ok(&["pool", "inspect", "default"]);
    for words in
        ["Capacity: not measured\n", "its capacity is not measured, so floors on it are not guaranteed"]
    {
        assert!(unknown.contains(words), "{words} in:\n{unknown}");
    }
    let list = daemon.ok(&["pool", "list"]);
    assert!(list.contains("not measured") && list.contains("115%") && list.contains("fits"), "{list}");
    daemon.stop();
}

#[test]
fn deletion_of_attached_volume_needs_force() {
    let daemon = Daemon::fresh();
    daemon.create("used", "1");
    let mut client = Client::attach(&daemon.nbd_socket(), "used");
    client.write(0, &[1; 4096]).unwrap();
    refused(&daemon, 1, "volume delete used", &["used", "connection", "--force"]);
    assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
    daemon.ok(&["volume", "delete", "used", "--force"]);
    assert!(client.is_ended());
    assert!(Client::try_attach(&daemon.nbd_socket(), "used").is_err());
}

#[test]
fn configuration_files_are_read_strictly() {
    let state = State::new();
    let refused = |name: &str, text: &str, words: &[&str]| {
        let path = state.beside(name);
        std::fs::write(&path, text).unwrap();
        let message = run(&mut state.serve(&["--config", path.to_str().unwrap()])).refused(1);
        words.iter().for_each(|word| assert!(message.contains(word), "without '{word}': {message}"));
    };
    refused("a.toml", "clusterid = \"c\"\n\nreactor = 2\n", &["a.toml", "reactor", "line 3"]);
    refused("b.toml", "[storage]\ndevice = []\n", &["b.toml", "device", "line 2"]);
    refused("c.json", "{\n  \"clusterid\": \"c\",\n  \"colour\": 1\n}\n", &["c.json", "colour", "line 3"]);
    refused("d.json", "{\n  \"reactors\": \"many\"\n}\n", &["many", "line 2"]);
    refused("e.toml", "reactors = \n", &["line 1"]);
    let emulate = "{\"storage\": {\"devices\": [\"/a\"], \"emulate\": {\"/a\": \"iops=0\"}}}";
    refused("f.json", emulate, &["storage.emulate./a", "'iops=0' is not from 1"]);
    let missing = state.beside("none.toml");
    let missing = run(&mut state.serve(&["--config", missing.to_str().unwrap()])).refused(1);
    assert!(missing.contains("none.toml"), "{missing}");
    run(&mut state.serve(&["--reactors", "0"])).refused(2);
    let many = state.beside("many.toml");
    std::fs::write(&many, "reactors = 5000\n").unwrap();
    let many = run(&mut state.serve(&["--config", many.to_str().unwrap()])).refused(2);
    assert!(many.contains("5000 reactors"), "{many}");
    run(&mut state.serve(&["--nbd-listen", "here"])).refused(2);
    run(&mut state.serve(&["--log-level", "=="])).refused(2);
    let without = run(std::process::Command::new(crate::common::daemon::WEIR).args([
        "status",
        "--server",
        "unix:/nonexistent",
    ]));
    assert!(without.refused(5).contains("/nonexistent"));
}

#[test]
fn second_daemon_on_same_state_is_refused() {
    let mut daemon = Daemon::fresh();
    let message = run(&mut daemon.state().serve(&[])).refused(1);
    assert!(message.contains("another") && message.contains(&daemon.process_id().to_string()), "{message}");
    daemon.create("v", "1");
    assert!(daemon.is_alive());
}

/// Writes until there is no space. Returns the offset of the refused write.
fn fill(client: &mut Client) -> u64 {
    let data = vec![0xaa; 1 << 20];
    for offset in (0..client.size).step_by(1 << 20) {
        match client.write(offset, &data) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, ENOSPC);
                return offset;
            }
        }
    }
    panic!("the drive was not full after {} bytes", client.size);
}

/// Fills the drive by one volume, and checks that all other work goes on, and all work once there is space.
fn survive_a_full_drive(mounted: &Mounted) {
    let daemon = mounted.state.start(&["--reactors", "2", "--pool-full-percent", "95"]);
    let socket = daemon.nbd_socket();
    daemon.create("greedy", "2GiB");
    daemon.create("modest", "1GiB");
    let mut modest = Client::attach(&socket, "modest");
    modest.write(0, &vec![1; 1 << 20]).unwrap();
    let mut greedy = Client::attach(&socket, "greedy");
    let end = fill(&mut greedy);
    assert!(end > 10 << 20, "full after {end} bytes");
    // Further writes of several kinds are refused, and break no volume.
    for _ in 0..20 {
        let _ = greedy.write(end, &vec![1; 1 << 20]);
    }
    let _ = greedy.call(WRITE, FUA, 1 << 30, 4096, &[1; 4096]).unwrap();
    let zeroed = greedy.zero(NO_HOLE, 1 << 30, 256 << 20);
    assert_eq!(zeroed, Err(ENOSPC), "space cannot be kept that is not there");
    greedy.call(FLUSH, 0, 0, 0, &[]).unwrap().expect("what was written can be made stable");
    let (whole, last) = (greedy.read(0, 1 << 20).unwrap(), greedy.read(end - (1 << 20), 1 << 20).unwrap());
    assert!(whole.iter().chain(&last).all(|&byte| byte == 0xaa));
    modest.write(4096, &[2; 8192]).unwrap();
    assert_eq!(modest.read(4096, 8192).unwrap(), [2; 8192]);
    // The status has an alarm that the pool is full, and no other alarm.
    let alarms = || daemon.json(&["status"])["alarms"].clone();
    wait_until("status tells that the pool is full", || alarms()[0].is_object());
    let alarms = alarms();
    let message = alarms[0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("pool 'default' is") && message.contains("full"), "{alarms}");
    assert_eq!(alarms.as_array().unwrap().len(), 1, "{alarms}");
    // The daemon may refuse to create objects, but with a message and without leftovers.
    for (number, command) in [["tenant", "create"], ["qos policy-group", "create"]].iter().enumerate() {
        let words = format!("{} {} t{number}", command[0], command[1]);
        let ran = daemon.state().weir(&words.split(' ').collect::<Vec<_>>());
        assert!(matches!(ran.code, Some(0 | 1)), "{ran:?}");
    }
    greedy.trim(0, 8 << 20).unwrap();
    wait_for("writes go on", || greedy.write(end, &[3; 4096]).ok());
    greedy.trim(0, end as u32).unwrap();
    // The free space beside a state folder is updated now and then, and records take some of it in between.
    wait_until("what was discarded can be written again", || fill(&mut greedy) + (8 << 20) >= end);
    // Deletion works even if the catalogue has no space either, because deletion frees space.
    daemon.ok(&["volume", "delete", "greedy", "--force", "--wait"]);
    daemon.create("after", "1GiB");
    let mut after = Client::attach(&socket, "after");
    wait_for("writes of another volume", || after.write(0, &vec![4; 10 << 20]).ok());
    assert_eq!(modest.read(4096, 8192).unwrap(), [2; 8192]);
    drop((after, modest));
    let daemon = daemon.stop().start(&["--reactors", "2"]);
    assert_eq!(names(&daemon), ["after", "modest"]);
    assert_eq!(daemon.json(&["status"])["status"], "operational");
    daemon.stop();
}

#[test]
fn full_drive_refuses_writes_and_recovers() {
    if !is_root() {
        return;
    }
    // Only the drive is full. The catalogue lies elsewhere.
    survive_a_full_drive(&Mounted::drive(96));
}

#[test]
fn full_state_filesystem_refuses_writes_and_recovers() {
    if !is_root() {
        return;
    }
    survive_a_full_drive(&Mounted::state(96));
}

/// A kind of damage to an extent file, with its repair.
type Damage = (&'static str, fn(&Path), fn(&Path));

const DAMAGES: [Damage; 4] = [
    ("shortened", |file| resize(file, 4096), |file| resize(file, 1 << 30)),
    ("emptied", |file| resize(file, 0), |file| resize(file, 1 << 30)),
    (
        "removed",
        |file| std::fs::remove_file(file).unwrap(),
        |file| {
            std::fs::File::create_new(file).unwrap().set_len(1 << 30).unwrap();
        },
    ),
    (
        "replaced",
        |file| {
            std::fs::rename(file, file.with_extension("aside")).unwrap();
            std::fs::create_dir(file).unwrap();
        },
        |file| {
            std::fs::remove_dir(file).unwrap();
            std::fs::rename(file.with_extension("aside"), file).unwrap();
        },
    ),
];

fn resize(file: &Path, bytes: u64) {
    std::fs::File::options().write(true).open(file).unwrap().set_len(bytes).unwrap();
}

/// A volume of three extents with data in each, and another volume.
fn with_data(daemon: &Daemon) {
    daemon.create("damaged", "3GiB");
    daemon.create("whole", "1GiB");
    let mut client = Client::attach(&daemon.nbd_socket(), "damaged");
    for extent in 0..3u64 {
        client.write((extent << 30) + (8 << 20), &vec![extent as u8 + 1; 1 << 20]).unwrap();
    }
    client.flush().unwrap();
    client.disconnect();
}

/// Checks that the second extent fails with an alarm that names it, and that other extents are served.
fn check_damage(daemon: &Daemon, what: &str) {
    wait_until(&format!("status tells of the {what} extent"), || {
        let status = daemon.json(&["status"]);
        let alarms = status["alarms"].as_array().unwrap();
        alarms.iter().any(|alarm| alarm["object"]["name"] == "damaged" && alarm["extent"] == 1)
    });
    let status = daemon.json(&["status"]);
    assert_eq!(status["status"], "degraded");
    assert!(status["alarms"].as_array().unwrap().iter().all(|alarm| alarm["extent"] == 1), "{status:#}");
    assert!(daemon.ok(&["status"]).contains("damaged"));
    let mut client = Client::attach(&daemon.nbd_socket(), "damaged");
    let place = |extent: u64| (extent << 30) + (8 << 20);
    wait_until("the extent is out of service", || client.read(place(1), 4096) == Err(EIO));
    assert_eq!(client.read(place(1) + (100 << 20), 4096), Err(EIO), "no hole may be made up");
    assert_eq!(client.write(place(1), &[9; 4096]), Err(EIO));
    assert_eq!(client.zero(0, place(1), 1 << 20), Err(EIO));
    // A request to two extents fails as a whole. A simple reply that has begun cannot report an error, so the
    // connection ends instead.
    let mut crossing = Client::attach(&daemon.nbd_socket(), "damaged");
    assert!(!matches!(crossing.try_read((1 << 30) - 4096, 8192), Ok(Ok(_))));
    for extent in [0, 2] {
        assert!(client.read(place(extent), 1 << 20).unwrap().iter().all(|&byte| byte == extent as u8 + 1));
        client.write(place(extent) + (16 << 20), &[7; 4096]).unwrap();
    }
    client.disconnect();
}

#[test]
fn extent_file_damaged_during_service_is_a_fault() {
    for (what, damage, _) in DAMAGES {
        let daemon = Daemon::fresh();
        with_data(&daemon);
        let load = Load::start(&daemon.nbd_socket(), "whole", 0);
        let file = daemon.extent_file("damaged", 1);
        damage(&file);
        check_damage(&daemon, what);
        load.advances();
        load.finish();
        daemon.create("another", "1GiB");
        daemon.ok(&["volume", "delete", "damaged"]);
        if what == "replaced" {
            // Weir did not make this folder, so it does not remove it.
            wait_until("what is in the way is told", || {
                daemon.ok(&["status"]).contains("cannot be given back yet: cannot remove")
            });
            std::fs::remove_dir(pending_deletion(&file)).unwrap();
        }
        wait_until(&format!("all is well without the {what} extent"), || {
            daemon.json(&["status"])["status"] == "operational"
        });
        daemon.stop();
    }
}

/// The path of an extent file while the deletion of its volume is pending.
fn pending_deletion(file: &Path) -> PathBuf {
    let volume = file.ancestors().nth(2).unwrap();
    PathBuf::from(format!("{}.deleted", volume.display())).join(file.strip_prefix(volume).unwrap())
}

#[test]
fn extent_file_damaged_while_stopped_is_a_fault() {
    for (what, damage, repair) in DAMAGES {
        let daemon = Daemon::fresh();
        with_data(&daemon);
        let file = daemon.extent_file("damaged", 1);
        let state = daemon.stop();
        damage(&file);
        let daemon = state.start(&["--reactors", "2"]);
        check_damage(&daemon, what);
        let load = Load::start(&daemon.nbd_socket(), "whole", 0);
        load.advances();
        load.finish();
        let state = daemon.stop();
        repair(&file);
        let daemon = state.start(&["--reactors", "2"]);
        assert_eq!(daemon.json(&["status"])["status"], "operational", "{what}");
        let mut client = Client::attach(&daemon.nbd_socket(), "damaged");
        client.write((1 << 30) + (8 << 20), &[5; 4096]).unwrap();
        assert_eq!(client.read((1 << 30) + (8 << 20), 4096).unwrap(), [5; 4096]);
        daemon.stop();
    }
}

#[test]
fn volume_may_have_more_extents_than_descriptors() {
    if find("prlimit").is_none() {
        return crate::common::skip("prlimit not found");
    }
    let state = State::new();
    let mut command = std::process::Command::new(find("prlimit").unwrap());
    command.arg("--nofile=256:4096").arg(crate::common::daemon::WEIR);
    command
        .args(["serve", "--reactors", "2", "--no-measurement", "--pool-full-percent=100", "--state"])
        .arg(state.path());
    let daemon = Daemon::spawn(&state, command).ready();
    daemon.create("wide", "400GiB");
    let mut client = Client::attach(&daemon.nbd_socket(), "wide");
    for extent in 0..400u64 {
        client
            .write(extent << 30, &[1; 4096])
            .unwrap_or_else(|error| panic!("extent {extent}: error {error}"));
    }
    assert_eq!(daemon.json(&["status"])["status"], "operational");
}
