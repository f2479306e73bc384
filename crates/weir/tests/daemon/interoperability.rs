//! Interoperability: libnbd's tools, QEMU and fio work with the NBD server.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use crate::common::daemon::{Daemon, State};
use crate::common::load::Load;
use crate::common::nbd::Client;
use crate::common::program::{has, tool};
use crate::common::random::Random;
use crate::common::skip;
use serde_json::Value;

/// Writes random bytes into a new file.
fn random_file(path: &Path, mebibytes: u64) {
    let (mut file, mut random) = (File::create(path).unwrap(), Random::new(mebibytes));
    (0..mebibytes).for_each(|_| file.write_all(&random.bytes(1 << 20)).unwrap());
}

fn sha256(path: &Path) -> String {
    tool("sha256sum", &[path]).split(' ').next().unwrap().to_owned()
}

#[test]
fn nbdinfo_describes_a_volume() {
    if !has(&["nbdinfo"]) {
        return;
    }
    let daemon = Daemon::fresh();
    daemon.create("described", "3GiB");
    let text = tool("nbdinfo", &["--json", &daemon.uri("described")]);
    let info: Value = serde_json::from_str(&text).unwrap();
    let export = &info["exports"][0];
    assert_eq!(info["structured"], true, "{info:#}");
    assert_eq!(export["export-size"], 3u64 << 30);
    assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]));
    for ability in ["cache", "df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"] {
        assert_eq!(export[format!("can_{ability}")], true, "{ability}");
    }
    assert_eq!(export["is_read_only"], false);
    assert_eq!(export["block_size_minimum"], 1);
    assert_eq!(export["block_size_preferred"], 4096);
    assert_eq!(export["block_size_maximum"], 32 << 20);
}

#[test]
fn read_only_volume_is_shown_and_refuses_changes() {
    if !has(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let daemon = Daemon::fresh();
    daemon.create("golden", "1GiB");
    let mut writer = Client::attach(&daemon.nbd_socket(), "golden");
    writer.write(0, &[7; 4096]).unwrap();
    let message = daemon.refused(1, &["volume", "modify", "golden", "--read-only", "true"]);
    assert!(message.contains("1 open connections") && message.contains("--force"), "{message}");
    writer.write(4096, &[8; 4096]).expect("a refused change changes nothing");
    daemon.ok(&["volume", "modify", "golden", "--read-only", "true", "--force"]);
    assert!(writer.is_ended(), "whoever could write is gone");
    let daemon = daemon.stop().start(&[]);
    let is_read_only = || {
        let text = tool("nbdinfo", &["--json", &daemon.uri("golden")]);
        serde_json::from_str::<Value>(&text).unwrap()["exports"][0]["is_read_only"] == true
    };
    assert!(is_read_only());
    assert_eq!(daemon.json(&["volume", "inspect", "golden"])["read_only"], true);
    let mut reader = Client::attach(&daemon.nbd_socket(), "golden");
    assert_eq!(reader.read(0, 4096).unwrap(), [7; 4096]);
    assert!(reader.write(0, &[9; 4096]).is_err());
    assert!(reader.trim(0, 4096).is_err());
    assert_eq!(reader.read(0, 4096).unwrap(), [7; 4096]);
    tool("qemu-io", &["-r", "-f", "raw", "-c", "read -P 7 0 4096", &daemon.uri("golden")]);
    daemon.ok(&["volume", "modify", "golden", "--read-only", "false"]);
    assert!(!is_read_only());
    Client::attach(&daemon.nbd_socket(), "golden").write(0, &[9; 4096]).unwrap();
}

#[test]
fn nbdinfo_maps_data_and_holes() {
    if !has(&["nbdinfo"]) {
        return;
    }
    let daemon = Daemon::fresh();
    daemon.create("mapped", "3GiB");
    let map = || -> Vec<(u64, u64, u64)> {
        let list: Value =
            serde_json::from_str(&tool("nbdinfo", &["--map", "--json", &daemon.uri("mapped")])).unwrap();
        let entry = |e: &Value| {
            (e["offset"].as_u64().unwrap(), e["length"].as_u64().unwrap(), e["type"].as_u64().unwrap())
        };
        list.as_array().unwrap().iter().map(entry).collect()
    };
    let covered = |map: &[(u64, u64, u64)]| map.iter().map(|entry| entry.1).sum::<u64>();
    let fresh = map();
    assert!(fresh.iter().all(|entry| entry.2 == 3), "{fresh:?}");
    assert_eq!(covered(&fresh), 3 << 30);
    let mut client = Client::attach(&daemon.nbd_socket(), "mapped");
    // This write crosses the boundary between the second and the third extent.
    client.write((2 << 30) - (4 << 20), &vec![1; 8 << 20]).unwrap();
    let written = map();
    let data: u64 = written.iter().filter(|entry| entry.2 == 0).map(|entry| entry.1).sum();
    assert!((8 << 20..=10 << 20).contains(&data), "{written:?}");
    assert_eq!(covered(&written), 3 << 30);
    client.trim((2 << 30) - (4 << 20), 8 << 20).unwrap();
    let trimmed = map();
    assert!(trimmed.iter().all(|entry| entry.2 == 3), "{trimmed:?}");
    assert_eq!(daemon.json(&["volume", "inspect", "mapped"])["used_bytes"], 0);
}

#[test]
fn list_shows_every_volume_with_its_tenant() {
    if !has(&["nbdinfo"]) {
        return;
    }
    let daemon = Daemon::fresh();
    daemon.create("plain", "1GiB");
    daemon.ok(&["tenant", "create", "acme"]);
    daemon.ok(&["volume", "create", "owned", "--tenant", "acme", "--size", "4096B"]);
    (0..200).for_each(|number| daemon.create(&format!("many-{number}"), "1MiB"));
    let list: Value = serde_json::from_str(&tool("nbdinfo", &["--list", "--json", &daemon.uri("")])).unwrap();
    let exports = list["exports"].as_array().unwrap();
    let size =
        |name: &str| exports.iter().find(|e| e["export-name"] == name).map(|e| e["export-size"].clone());
    assert_eq!(exports.len(), 202);
    assert_eq!(size("plain").unwrap(), 1u64 << 30);
    assert_eq!(size("acme/owned").unwrap(), 4096);
    assert!(size("owned").is_none() && size("many-199").is_some());
    let mut client = Client::attach(&daemon.nbd_socket(), "acme/owned");
    client.write(0, &[1; 4096]).unwrap();
    daemon.ok(&["volume", "delete", "plain"]);
    assert!(!tool("nbdinfo", &["--list", &daemon.uri("")]).contains("\"plain\""));
}

#[test]
fn nbdcopy_moves_a_gibibyte_both_ways() {
    if !has(&["nbdcopy", "sha256sum"]) {
        return;
    }
    let state = State::in_memory();
    let daemon = state.start(&["--reactors", "2"]);
    daemon.create("copied", "1GiB");
    let (source, target) = (state.beside("source"), state.beside("target"));
    random_file(&source, 1024);
    let uri = daemon.uri("copied");
    let four = "--connections=4";
    tool("nbdcopy", &[four, "--flush", source.to_str().unwrap(), &uri]);
    tool("nbdcopy", &[four, &uri, target.to_str().unwrap()]);
    assert_eq!(sha256(&source), sha256(&target));
    // The data is read once more from the drive, by another daemon.
    std::fs::remove_file(&target).unwrap();
    let daemon = daemon.stop().start(&["--reactors", "1"]);
    tool("nbdcopy", &[four, &daemon.uri("copied"), target.to_str().unwrap()]);
    assert_eq!(sha256(&source), sha256(&target));
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    if !has(&["qemu-img"]) {
        return;
    }
    let state = State::new();
    let daemon = state.start(&["--reactors", "2"]);
    daemon.create("disk", "256MiB");
    let (source, image, back) =
        (state.beside("source.raw"), state.beside("image.qcow2"), state.beside("back.raw"));
    random_file(&source, 48);
    // The source has data, a hole, and a little data at the very end.
    File::options().write(true).open(&source).unwrap().set_len((256 << 20) - 4096).unwrap();
    File::options().append(true).open(&source).unwrap().write_all(&[5; 4096]).unwrap();
    let (source, image, back) = (source.to_str().unwrap(), image.to_str().unwrap(), back.to_str().unwrap());
    let uri = daemon.uri("disk");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", source, image]);
    tool("qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", image, &uri]);
    let compare =
        |first: &str, second: &str| tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", first, second]);
    assert!(compare(source, &uri).contains("identical"));
    tool("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, back]);
    assert!(compare(source, back).contains("identical"));
    let map: Value =
        serde_json::from_str(&tool("qemu-img", &["map", "-f", "raw", "--output=json", &uri])).unwrap();
    let data: u64 = map
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["data"] == true)
        .map(|e| e["length"].as_u64().unwrap())
        .sum();
    assert!(((48 << 20) + 4096..(52 << 20)).contains(&data), "{map:#}");
    let used = daemon.json(&["volume", "inspect", "disk"])["used_bytes"].as_u64().unwrap();
    assert!(used < 56 << 20, "{used} bytes are used: the hole was not kept");
}

/// Runs commands in one qemu-io on a volume. A pattern that does not match fails the run.
fn qemu_io(daemon: &Daemon, volume: &str, commands: &[&str]) {
    let uri = daemon.uri(volume);
    let mut arguments = vec!["-f", "raw", "-d", "unmap", &uri];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    let printed = tool("qemu-io", &arguments);
    let is_wrong = ["failed", "error", "Pattern verification"].iter().any(|word| printed.contains(word));
    assert!(!is_wrong, "{printed}");
}

#[test]
fn qemu_io_patterns_read_back() {
    if !has(&["qemu-io"]) {
        return;
    }
    let daemon = Daemon::fresh();
    daemon.create("patterns", "2GiB");
    qemu_io(
        &daemon,
        "patterns",
        &[
            "write -P 0x11 0 1M",
            "write -P 0x22 -f 1M 1M",
            "flush",
            "read -P 0x11 0 1M",
            "read -P 0x22 1M 1M",
            // These requests are unaligned and cross the boundary between two extents.
            "write -P 0x33 1073741313 1021",
            "read -P 0x33 1073741313 1021",
            "write -P 0x44 1073676289 131072",
            "read -P 0x44 1073676289 131072",
            "read -P 0 1073807361 512",
            // Zeroes are written with space kept, with space freed, and with FUA.
            "write -z 64k 64k",
            "read -P 0 64k 64k",
            "write -z -u 256k 256k",
            "read -P 0 256k 256k",
            "write -z -f 1000 5000",
            "read -P 0 1000 5000",
            "read -P 0x11 6000 1000",
            "read -P 0x11 0 1000",
            // Whole blocks and parts of blocks are discarded.
            "discard 1M 512k",
            "read -P 0 1M 512k",
            "read -P 0x22 1572864 512k",
            "discard 1573000 5000",
            "read -P 0x22 1572864 136",
            "aio_write -P 0x55 4M 1M",
            "aio_write -P 0x66 5M 1M",
            "aio_flush",
            "read -P 0x55 4M 1M",
            "read -P 0x66 5M 1M",
        ],
    );
    let daemon = daemon.stop().start(&["--reactors", "2"]);
    qemu_io(
        &daemon,
        "patterns",
        &["read -P 0x44 1073676289 131072", "read -P 0x66 5M 1M", "read -P 0 1M 512k"],
    );
}

/// Runs fio's NBD engine on a volume. fio verifies the data that it writes.
fn fio(daemon: &Daemon, volume: &str, options: &[&str]) {
    let engine = format!("--uri={}", daemon.uri(volume));
    let mut arguments = vec!["--name=job", "--ioengine=nbd", &engine, "--verify=crc32c", "--verify_fatal=1"];
    arguments.extend(["--do_verify=1", "--verify_state_save=0", "--rw=randwrite", "--size=96M"]);
    arguments.extend(options);
    let printed = tool("fio", &arguments);
    assert!(printed.contains("err= 0"), "{printed}");
}

#[test]
fn fio_verifies_mixed_block_sizes() {
    if !has(&["fio"]) {
        return;
    }
    let daemon = Daemon::fresh();
    daemon.create("mixed", "256MiB");
    let sizes = "--bssplit=512/10:1k/10:3k/10:4k/30:8k/10:64k/20:256k/10";
    fio(&daemon, "mixed", &[sizes, "--iodepth=32", "--io_size=96M"]);
    // Offsets are multiples of 512 bytes, so that adjacent requests share blocks.
    fio(&daemon, "mixed", &["--bs=512,512", "--blockalign=512", "--iodepth=64", "--size=4M", "--fsync=100"]);
    fio(&daemon, "mixed", &["--bsrange=512-256k", "--bs_unaligned", "--iodepth=16", "--io_size=64M"]);
    fio(&daemon, "mixed", &["--bs=4k", "--iodepth=32", "--rw=randrw", "--size=32M", "--verify_backlog=512"]);
    // Every client of this engine accepts replies in any order. An error would have ended the client.
    let errors = &daemon.json(&["volume", "inspect", "mixed"])["statistics"]["write"]["errors"];
    assert_eq!(*errors, 0);
}

#[test]
fn new_connections_see_resized_volume() {
    let daemon = Daemon::fresh();
    let socket = daemon.nbd_socket();
    daemon.create("growing", "1GiB");
    let mut old = Client::attach(&socket, "growing");
    old.write((1 << 30) - 4096, &[1; 4096]).unwrap();
    daemon.ok(&["volume", "resize", "growing", "--size", "3GiB"]);
    let mut new = Client::attach(&socket, "growing");
    assert_eq!((old.size, new.size), (1 << 30, 3 << 30));
    new.write((3 << 30) - 4096, &[2; 4096]).unwrap();
    assert_eq!(new.read((1 << 30) - 4096, 8192).unwrap()[..4096], [1; 4096]);
    assert_eq!(old.read((1 << 30) - 4096, 4096).unwrap(), [1; 4096]);
    new.disconnect();
    let message = daemon.refused(1, &["volume", "resize", "growing", "--size", "1GiB"]);
    assert!(message.contains("--force"), "{message}");
    daemon.ok(&["volume", "resize", "growing", "--size", "1GiB", "--force"]);
    let mut small = Client::attach(&socket, "growing");
    assert_eq!(small.size, 1 << 30);
    assert_eq!(small.read((1 << 30) - 4096, 4096).unwrap(), [1; 4096]);
    // Data beyond the shrunk end does not return.
    daemon.ok(&["volume", "resize", "growing", "--size", "3GiB"]);
    let mut large = Client::attach(&socket, "growing");
    assert_eq!(large.read((3 << 30) - 4096, 4096).unwrap(), [0; 4096]);
}

#[test]
fn regrown_tail_reads_as_zeroes() {
    let daemon = Daemon::fresh();
    let socket = daemon.nbd_socket();
    daemon.create("tail", "100MiB");
    let mut client = Client::attach(&socket, "tail");
    client.write(50 << 20, &vec![1; 20 << 20]).unwrap();
    client.disconnect();
    daemon.ok(&["volume", "resize", "tail", "--size", "60MiB", "--force"]);
    daemon.ok(&["volume", "resize", "tail", "--size", "100MiB"]);
    let mut client = Client::attach(&socket, "tail");
    assert!(client.read(50 << 20, 10 << 20).unwrap().iter().all(|&byte| byte == 1));
    assert!(client.read(60 << 20, 20 << 20).unwrap().iter().all(|&byte| byte == 0));
    client.write(65 << 20, &[3; 4096]).unwrap();
    assert_eq!(client.read(65 << 20, 4096).unwrap(), [3; 4096]);
}

#[test]
fn tcp_clients_are_served() {
    if !has(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let state = State::new();
    let daemon = state.start(&["--reactors", "2", "--nbd-listen", "tcp:127.0.0.1:0"]);
    daemon.create("far", "64MiB");
    let uri = format!("nbd://{}/far", daemon.tcp_address());
    let (source, target) = (state.beside("source"), state.beside("target"));
    random_file(&source, 64);
    tool("nbdcopy", &[source.to_str().unwrap(), &uri]);
    tool("nbdcopy", &[&uri, target.to_str().unwrap()]);
    assert!(std::fs::read(&source).unwrap() == std::fs::read(&target).unwrap());
}

#[test]
fn volumes_on_different_reactors_are_served_side_by_side() {
    let state = State::new();
    let daemon = state.start(&["--reactors", "3"]);
    let names: Vec<String> = (0..6).map(|number| format!("volume-{number}")).collect();
    names.iter().for_each(|name| daemon.create(name, "32MiB"));
    let socket = daemon.nbd_socket();
    let loads: Vec<Load> = names.iter().map(|name| Load::start(&socket, name, 0)).collect();
    (0..5).for_each(|_| loads.iter().for_each(Load::advances));
    let working = reactors_at_work(&daemon);
    loads.into_iter().for_each(|load| assert!(load.finish() > 0));
    if working.is_empty() {
        return skip("the kernel does not tell what threads do");
    }
    assert_eq!(working.len(), 3, "{working:?}");
    daemon.stop();
}

/// Returns the names of reactor threads that have used processor time.
fn reactors_at_work(daemon: &Daemon) -> Vec<String> {
    let tasks = format!("/proc/{}/task", daemon.process_id());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
        let (mut name, mut switches) = (String::new(), String::new());
        let _ = File::open(entry.path().join("comm")).and_then(|mut file| file.read_to_string(&mut name));
        let _ =
            File::open(entry.path().join("status")).and_then(|mut file| file.read_to_string(&mut switches));
        let count = switches.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let is_busy = count.and_then(|text| text.trim().parse::<u64>().ok()).is_some_and(|count| count > 10);
        if name.starts_with("weir-reactor") && is_busy {
            names.push(name.trim().to_owned());
        }
    }
    names
}

#[test]
fn sigterm_drains_and_ends_cleanly() {
    let daemon = Daemon::fresh();
    daemon.create("drained", "1GiB");
    let mut client = Client::attach(&daemon.nbd_socket(), "drained");
    let data = Random::new(1).bytes(1 << 20);
    for piece in 0..16u64 {
        client.send(crate::common::nbd::WRITE, 0, piece << 20, 1 << 20, &data).unwrap();
    }
    // The first reply shows that the daemon has begun with the requests.
    let mut answered = vec![client.reply().unwrap()];
    daemon.terminate();
    while let Ok(reply) = client.reply() {
        answered.push(reply);
    }
    let state = daemon.state().clone();
    assert!(daemon.wait().success());
    assert!(!state.path().join("nbd.sock").exists() && !state.path().join("api.sock").exists());
    assert!(answered.iter().all(|(_, error)| *error == 0 || *error == 108), "{answered:?}");
    let daemon = state.start(&["--reactors", "2"]);
    let mut client = Client::attach(&daemon.nbd_socket(), "drained");
    for (cookie, _) in answered.iter().filter(|(_, error)| *error == 0) {
        // Cookies count from 2 on.
        assert!(client.read((cookie - 2) << 20, 1 << 20).unwrap() == data);
    }
}

#[test]
fn sigterm_ends_daemon_with_clients_held_by_ceiling() {
    let daemon = Daemon::fresh();
    daemon.create("slow", "1GiB");
    daemon.ok(&["qos", "policy-group", "create", "one", "--max-throughput", "1IOPS"]);
    daemon.ok(&["volume", "modify", "slow", "--qos-policy-group", "one"]);
    let mut client = Client::attach(&daemon.nbd_socket(), "slow");
    for _ in 0..200 {
        client.send(crate::common::nbd::READ, 0, 0, 4096, &[]).unwrap();
    }
    daemon.terminate();
    assert!(daemon.wait().success());
}
