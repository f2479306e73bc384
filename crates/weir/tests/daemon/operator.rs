//! The operator's contract: changes and errors as objects, exit statuses, confirmation before data is
//! destroyed, and consistent states everywhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;

use crate::common::daemon::{Daemon, State, WEIR};
use crate::common::loops::{self, Loop};
use crate::common::nbd::Client;
use crate::common::program::{PYTHON, Ran, find, has, run, tool};
use crate::common::wait_until;
use serde_json::{Value, json};

/// Python script that runs a command at a pseudo-terminal and types an answer. It prints the command's output
/// and exit status.
const AT_TERMINAL: &str = "
import os, pty, sys
answer, arguments = sys.argv[1], sys.argv[2:]
process, terminal = pty.fork()
if process == 0:
    os.execv(arguments[0], arguments)
os.write(terminal, answer.encode())
shown = b''
while True:
    try:
        piece = os.read(terminal, 4096)
    except OSError:
        break
    if not piece:
        break
    shown += piece
sys.stdout.write(shown.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
";

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Adds drives of class high.
fn add_drives(daemon: &Daemon, names: &[&str]) {
    for name in names {
        let path = daemon.state().beside(name);
        std::fs::create_dir_all(&path).unwrap();
        daemon.ok(&["drive", "add", path.to_str().unwrap(), "--class", "high", "--no-measurement"]);
    }
}

fn volume(daemon: &Daemon, name: &str) -> Value {
    daemon.json(&["volume", "inspect", name])
}

#[test]
fn changes_and_errors_are_reported_as_objects() {
    let daemon = Daemon::fresh();
    let made = daemon.json(&words("volume create v --size 1"));
    assert_eq!(
        (&made["name"], &made["size_bytes"], &made["health"]),
        (&json!("v"), &json!(1 << 30), &json!("online"))
    );
    let changed = daemon.json(&words("volume modify v --new-name w"));
    assert_eq!((&changed["id"], &changed["name"]), (&made["id"], &json!("w")));
    let group = daemon.json(&words("qos policy-group create p --max-throughput 10IOPS"));
    assert_eq!(group["limits"]["total"]["iops"], 10);
    let error = |code: i32, command: &str| {
        let Ran { stdout, stderr, .. } = {
            let ran = daemon.state().weir(&words(command));
            assert_eq!(ran.code, Some(code), "{command}: {ran:?}");
            ran
        };
        assert_eq!(stdout, "", "{command}");
        let error = object(&stderr)["error"].clone();
        assert_eq!(error["exit_status"], code);
        (error["code"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    };
    let (kind, message) = error(4, "volume inspect v -o json");
    assert!(kind == "not_found" && message.contains("unknown volume 'v'"), "{message}");
    assert_eq!(error(4, "volume delete v -o json").0, "not_found");
    assert_eq!(error(1, "volume create w --size 1 -o json").0, "conflict");
    assert_eq!(error(1, "volume resize w --size 4096B -o json").0, "refused");
    assert_eq!(error(2, "volume create -o json").0, "usage");
    assert_eq!(daemon.json(&words("volume delete w")), json!({"result": "removed"}));
    let state = daemon.stop();
    let gone = state.weir(&words("volume list -o json"));
    assert_eq!((gone.code, &object(&gone.stderr)["error"]["code"]), (Some(5), &json!("no_daemon")));
}

#[test]
fn if_not_exists_and_if_exists_make_commands_idempotent() {
    let daemon = Daemon::fresh();
    for command in
        ["volume create v --size 1", "tenant create t", "qos policy-group create p --max-throughput 5IOPS"]
    {
        let conditional = format!("{command} --if-not-exists");
        let first = daemon.json(&words(&conditional));
        assert_eq!(daemon.json(&words(&conditional))["name"], first["name"], "{command}");
        daemon.refused(1, &words(command));
    }
    let other_size = daemon.refused(1, &words("volume create v --size 2 --if-not-exists"));
    assert!(other_size.contains("exists"), "{other_size}");
    for _ in 0..2 {
        daemon.ok(&words("snapshot create v@s --if-not-exists"));
    }
    daemon.ok(&words("snapshot delete v@s"));
    for command in ["snapshot delete v@s", "volume delete v", "tenant delete t", "qos policy-group delete p"]
    {
        let conditional = format!("{command} --if-exists");
        daemon.ok(&words(&conditional));
        assert_eq!(daemon.json(&words(&conditional)), json!({"result": "absent"}), "{command}");
        daemon.refused(4, &words(command));
    }
}

/// Runs a command at a terminal and types an answer to its question.
fn typed(daemon: &Daemon, answer: &str, command: &str) -> Ran {
    let server = format!("unix:{}", daemon.state().path().join("api.sock").display());
    let mut terminal = Command::new(PYTHON);
    terminal.args(["-c", AT_TERMINAL, answer, WEIR]).args(words(command)).env("WEIR_SERVER", &server);
    run(&mut terminal)
}

#[test]
fn terminal_confirms_before_data_is_destroyed() {
    if !has(&["python3"]) {
        return;
    }
    let daemon = Daemon::fresh();
    let typed = |answer: &str, command: &str| typed(&daemon, answer, command);
    daemon.create("v", "1");
    daemon.ok(&words("snapshot create v@s"));
    for (command, question) in [
        ("snapshot restore v@s", "Restore 'v@s' and lose what was written to 'v' since? [y/N]"),
        ("volume delete v --with-snapshots", "Delete volume 'v' and all its data? [y/N]"),
    ] {
        let refused = typed("n\n", command);
        assert!(refused.code == Some(1) && refused.stdout.contains(question), "{refused:?}");
        assert!(refused.stdout.contains("nothing was changed"), "{refused:?}");
        assert_eq!(volume(&daemon, "v")["snapshots"], 1);
        let done = typed("y\n", command);
        assert!(done.code == Some(0) && done.stdout.contains(question), "{done:?}");
    }
    daemon.refused(4, &words("volume inspect v"));
    daemon.create("v", "1");
    let unasked = typed("n\n", "volume delete v --yes");
    assert!(unasked.code == Some(0) && !unasked.stdout.contains("[y/N]"), "{unasked:?}");
    // A program without a terminal is not asked.
    daemon.create("v", "1");
    daemon.ok(&words("snapshot create v@s"));
    daemon.ok(&words("snapshot restore v@s"));
    let unasked = typed("n\n", "snapshot restore v@s --yes");
    assert!(unasked.code == Some(0) && !unasked.stdout.contains("[y/N]"), "{unasked:?}");
    daemon.ok(&words("volume delete v --with-snapshots"));
}

#[test]
fn terminal_confirms_before_device_is_formatted() {
    if !loops::can_be_tested() || !has(&["python3"]) {
        return;
    }
    let daemon = Daemon::fresh();
    let device = Loop::blank(daemon.state(), "device");
    let add = format!("drive add {} --format --name disk --no-measurement", device.path());
    let question = format!("Format '{}', which destroys what is on it? [y/N]", device.path());
    let refused = typed(&daemon, "n\n", &add);
    assert!(refused.code == Some(1) && refused.stdout.contains(&question), "{refused:?}");
    assert_eq!(device.signatures(), "");
    daemon.refused(4, &words("drive show disk"));
    let done = typed(&daemon, "y\n", &add);
    assert!(done.code == Some(0) && done.stdout.contains(&question), "{done:?}");
    daemon.ok(&words("drive remove disk --wait"));
    device.wipe();
    let unasked = typed(&daemon, "n\n", &format!("{add} --yes"));
    assert!(unasked.code == Some(0) && !unasked.stdout.contains("[y/N]"), "{unasked:?}");
    daemon.stop();
}

#[test]
fn missing_drive_is_shown_consistently() {
    let daemon = Daemon::fresh();
    add_drives(&daemon, &["one", "two", "three"]);
    daemon.ok(&words("volume create double --size 3 --io-priority high --repl 3"));
    for (name, drive) in [("on-one", "one"), ("on-two", "two")] {
        daemon.ok(&["volume", "create", name, "--size", "1", "--drive", drive]);
    }
    let state = daemon.stop();
    std::fs::rename(state.beside("one"), state.beside("away")).unwrap();
    let daemon = state.start(&["--reactors", "1"]);
    wait_until("nothing is planned any more", || volume(&daemon, "double").get("moving").is_none());
    let double = volume(&daemon, "double");
    assert_eq!((&double["health"], &double["extents_degraded"]), (&json!("degraded"), &json!(3)));
    let replicas = &double["replication"];
    assert_eq!((&replicas["in_sync"], &replicas["missing"]), (&json!(6), &json!(3)), "{replicas}");
    assert!(double["used_bytes"].is_u64(), "other replicas tell it: {double}");
    assert_eq!(volume(&daemon, "on-one")["health"], "offline");
    assert_eq!(volume(&daemon, "on-two")["health"], "online");
    let list = daemon.ok(&["volume", "list"]);
    let state_of = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    for (name, state) in [("double", " degraded "), ("on-one", " offline "), ("on-two", " online ")] {
        assert!(state_of(name).contains(state), "{name} is not{state}in:\n{list}");
    }
    let told = daemon.ok(&["volume", "inspect", "double"]);
    let extents = "State: degraded: 3 extents with too few replicas in sync\n";
    assert!(told.contains(extents) && told.contains("Extent Replicas: 6 in sync, 3 missing\n"), "{told}");
    assert!(!told.contains("Moving:"), "nothing moves: {told}");
    let pool = daemon.json(&["pool", "inspect", "high"]);
    assert_eq!(pool["state"], "degraded");
    assert!(pool["used_bytes"].as_u64().unwrap() > 0);
    assert!(daemon.ok(&["pool", "list"]).contains("degraded, missing: one"));
}

/// Mounts an XFS filesystem with reflink support where a daemon keeps all its state.
fn with_state_on_xfs() -> (State, Loop) {
    let state = State::new();
    let device = Loop::blank(&state, "device");
    tool("mkfs.xfs", &["-q", "-m", "reflink=1", device.path()]);
    std::fs::create_dir_all(state.path()).unwrap();
    let folder = state.path();
    tool("mount", &[device.path(), folder.to_str().unwrap()]);
    (state, device)
}

#[test]
fn default_drive_with_reflink_is_shown_from_first_start() {
    if !loops::can_be_tested() {
        return;
    }
    let (state, device) = with_state_on_xfs();
    let shares = |daemon: &Daemon| daemon.json(&["drive", "show", "default"])["shares_space"].clone();
    let daemon = state.start(&["--reactors", "1"]);
    assert_eq!(shares(&daemon), true, "it is found by trying, and at the first start too");
    daemon.stop();
    let daemon = state.start(&["--reactors", "1"]);
    assert_eq!(shares(&daemon), true);
    snapshot_without_space(&daemon);
    daemon.stop();
    drop(device);
}

/// Takes a snapshot of much more data than there is free space.
fn snapshot_without_space(daemon: &Daemon) {
    daemon.create("v", "1GiB");
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    (0..128).for_each(|piece| client.write(piece << 20, &[7; 1 << 20]).unwrap());
    client.flush().unwrap();
    let folder = daemon.state().path();
    let space = rustix::fs::statvfs(&folder).unwrap();
    let filler_bytes = space.f_bavail * space.f_frsize - (64 << 20);
    tool("fallocate", &["-l", &filler_bytes.to_string(), folder.join("filler").to_str().unwrap()]);
    daemon.ok(&words("snapshot create v@s"));
    client.write(0, &[8; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(Client::attach(&daemon.nbd_socket(), "v@s").read(0, 4096).unwrap(), [7; 4096]);
    assert_eq!(client.read(0, 4096).unwrap(), [8; 4096]);
    client.disconnect();
}

/// Returns the audit lines from the log of a daemon that logs JSON.
fn audit_lines(state: &State) -> Vec<Value> {
    let log = std::fs::read_to_string(state.beside("log")).unwrap();
    let lines = log.lines().map(object);
    lines.filter(|line| line["target"] == "audit").collect()
}

#[test]
fn every_change_has_one_audit_line_and_reads_have_none() {
    // Audit lines are logged at the log level `error` too.
    let daemon = State::new().start(&["--reactors", "1", "--log-format", "json", "--log-level", "error"]);
    daemon.create("v", "1");
    daemon.ok(&["volume", "list"]);
    daemon.ok(&words("volume modify v --new-name w"));
    daemon.refused(4, &words("volume delete absent"));
    daemon.refused(1, &words("volume create w --size 1"));
    daemon.ok(&words("volume delete w"));
    let lines = audit_lines(daemon.state());
    let who = format!("uid={} gid=", rustix::process::geteuid().as_raw());
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            assert!(line["timestamp"].is_string() && text("who").starts_with(&who), "{line}");
            (text("method"), text("object"), text("result"))
        })
        .collect();
    let expected = [
        ("POST", "/v1/tenants/default/volumes", "done"),
        ("PATCH", "/v1/tenants/default/volumes/v", "done"),
        ("DELETE", "/v1/tenants/default/volumes/absent", "not_found"),
        ("POST", "/v1/tenants/default/volumes", "conflict"),
        ("DELETE", "/v1/tenants/default/volumes/w", "done"),
    ];
    assert_eq!(told.len(), expected.len(), "{lines:?}");
    for ((method, object, result), expected) in told.iter().zip(expected) {
        let object = object.split('?').next().unwrap();
        assert_eq!((method.as_str(), object, result.as_str()), expected);
    }
    assert!(lines[0]["request"].as_str().unwrap().contains("\"name\":\"v\""), "{}", lines[0]);
}

#[test]
fn audit_line_has_the_log_format() {
    let daemon = State::new().start(&["--reactors", "1", "--log-format", "text"]);
    daemon.create("v", "1");
    let log = std::fs::read_to_string(daemon.state().beside("log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(" change who=")).collect();
    let who = format!("uid={} gid=", rustix::process::geteuid().as_raw());
    assert!(
        lines.len() == 1
            && ["/v1/tenants/default/volumes", "done", &who].iter().all(|word| lines[0].contains(word)),
        "{log}"
    );
    daemon.stop();
}

/// Returns the API's answer to a request over its socket.
fn ask_api(daemon: &Daemon, head: &str) -> String {
    let mut stream = UnixStream::connect(daemon.state().path().join("api.sock")).unwrap();
    write!(stream, "{head}Host: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn change_of_an_outdated_version_is_refused() {
    let daemon = Daemon::fresh();
    let made = daemon.json(&words("volume create v --size 1"))["version"].to_string();
    let changed =
        daemon.json(&[&words("volume modify v --read-only true --if-version")[..], &[&made]].concat());
    let now = changed["version"].to_string();
    assert_ne!(now, made);
    let refused =
        daemon.refused(1, &[&words("volume modify v --read-only false --if-version")[..], &[&made]].concat());
    assert!(refused.contains(&format!("has version {now}")), "{refused}");
    let refused = daemon.refused(1, &["volume", "delete", "v", "--if-version", &made, "-o", "json"]);
    assert_eq!(object(&refused)["error"]["code"], "version_mismatch");
    let shown = ask_api(&daemon, "GET /v1/tenants/default/volumes/v HTTP/1.1\r\n");
    assert!(shown.to_lowercase().contains(&format!("etag: \"{now}\"")), "{shown}");
    let by_query =
        ask_api(&daemon, &format!("DELETE /v1/tenants/default/volumes/v?if_version={made} HTTP/1.1\r\n"));
    assert!(by_query.starts_with("HTTP/1.1 412"), "{by_query}");
    let by_header = ask_api(
        &daemon,
        &format!("DELETE /v1/tenants/default/volumes/v HTTP/1.1\r\nIf-Match: \"{made}\"\r\n"),
    );
    assert!(by_header.starts_with("HTTP/1.1 412"), "{by_header}");
    assert_eq!(volume(&daemon, "v")["version"].to_string(), now);
    let done = ask_api(
        &daemon,
        &format!("DELETE /v1/tenants/default/volumes/v HTTP/1.1\r\nIf-Match: \"{now}\"\r\n"),
    );
    assert!(done.starts_with("HTTP/1.1 204"), "{done}");
}

#[test]
fn refused_request_has_an_audit_line() {
    let daemon = State::new().start(&["--reactors", "1", "--log-format", "json", "--log-level", "error"]);
    let foreign =
        ask_api(&daemon, "POST /v1/tenants/default/volumes HTTP/1.1\r\nOrigin: https://evil.example\r\n");
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let lines = audit_lines(daemon.state());
    let told = |name: &str| lines[0][name].as_str().unwrap_or_default();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(
        (told("method"), told("object"), told("result")),
        ("POST", "/v1/tenants/default/volumes", "refused")
    );
    let who = format!("uid={} gid=", rustix::process::geteuid().as_raw());
    assert!(told("who").starts_with(&who) && lines[0]["status"] == 403, "{lines:?}");
    assert!(told("reason").contains("https://evil.example"), "{lines:?}");
}

#[test]
fn scrub_is_reported_as_an_object() {
    let daemon = Daemon::fresh();
    for name in ["v", "w"] {
        daemon.create(name, "1MiB");
    }
    let names = |told: &Value| -> Vec<String> {
        let scrubs = told["items"].as_array().unwrap();
        scrubs.iter().map(|scrub| scrub["volume"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&daemon.json(&words("scrub start v w"))), ["v", "w"]);
    let ended = daemon.json(&words("scrub start v w --wait"));
    assert_eq!(names(&ended), ["v", "w"]);
    assert!(ended["items"].as_array().unwrap().iter().all(|scrub| scrub["state"] == "completed"), "{ended}");
    assert_eq!(names(&daemon.json(&words("scrub cancel v"))), ["v"]);
    assert_eq!(names(&daemon.json(&words("scrub list"))), ["v", "w"]);
}

#[test]
fn log_level_changes_online() {
    let daemon = State::new().start(&["--reactors", "1", "--log-level", "warn"]);
    assert_eq!(daemon.ok(&words("service log-level")), "warn\n");
    assert_eq!(daemon.ok(&words("service log-level debug")), "debug\n");
    assert_eq!(daemon.ok(&words("service log-level")), "debug\n");
    let refused = daemon.refused(1, &words("service log-level loud=loud"));
    assert!(refused.contains("is accepted"), "{refused}");
    assert_eq!(daemon.ok(&words("service log-level")), "debug\n");
}

/// Returns the notifications that the service manager has received so far.
fn notifications(socket: &UnixDatagram) -> Vec<String> {
    let mut told = Vec::new();
    let mut bytes = [0; 256];
    while let Ok(length) = socket.recv(&mut bytes) {
        told.extend(String::from_utf8_lossy(&bytes[..length]).lines().map(str::to_owned));
    }
    told
}

#[test]
fn service_manager_is_notified_of_ready_alive_and_stopping() {
    let state = State::new();
    let path = state.beside("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut command = state.serve(&["--reactors", "1"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000").env_remove("WATCHDOG_PID");
    let daemon = Daemon::spawn(&state, command).ready();
    let mut told = Vec::new();
    wait_until("the daemon is ready and alive", || {
        told.extend(notifications(&socket));
        ["READY=1", "WATCHDOG=1"].iter().all(|word| told.iter().any(|other| other == word))
    });
    assert!(!told.contains(&"STOPPING=1".to_owned()), "{told:?}");
    daemon.stop();
    assert!(notifications(&socket).contains(&"STOPPING=1".to_owned()));
}

/// Returns the unit file of the repository, with the program under test in it.
fn unit() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/weir.service");
    let unit = std::fs::read_to_string(path).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/weir serve "), "{unit}");
    unit.replace("/usr/bin/weir", WEIR)
}

#[test]
fn unit_file_starts_the_daemon_and_restricts_it() {
    let unit = unit();
    for line in [
        "Type=notify",
        "WatchdogSec=",
        "NoNewPrivileges=yes",
        "ProtectSystem=",
        "SystemCallFilter=",
        "Restart=",
    ] {
        assert!(unit.lines().any(|other| other.starts_with(line)), "{line} in:\n{unit}");
    }
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut arguments = start.split(' ');
    let mut command = Command::new(arguments.next().unwrap());
    run(command.args(arguments).arg("--help")).ok();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.service");
    std::fs::write(&path, unit).unwrap();
    // Without systemd, the checks above must suffice.
    if find("systemd-analyze").is_some() {
        tool("systemd-analyze", &["verify", path.to_str().unwrap()]);
    }
}

#[test]
fn unreachable_daemon_has_its_own_exit_status() {
    let state = State::new();
    for command in ["volume list", "volume delete v", "status"] {
        let message = state.weir(&words(command)).refused(5);
        assert!(message.contains("cannot reach the daemon"), "{message}");
    }
}

/// Asks for a class that no drive has, which is an alarm.
fn raise_alarm(daemon: &Daemon) {
    daemon.ok(&words("volume create slow --size 1 --class high --class-policy prefer"));
}

#[test]
fn alarms_are_listed_and_shown() {
    let daemon = Daemon::fresh();
    assert_eq!(daemon.json(&words("alarm list"))["items"], json!([]));
    raise_alarm(&daemon);
    let list = daemon.json(&words("alarm list --severity warning --code class"))["items"].clone();
    assert_eq!((list.as_array().unwrap().len(), &list[0]["object"]["name"]), (1, &json!("slow")));
    assert_eq!(daemon.json(&words("alarm list --severity critical"))["items"], json!([]));
    let id = list[0]["id"].as_str().unwrap();
    assert_eq!(daemon.json(&["alarm", "show", id]), list[0]);
    for text in [daemon.ok(&["alarm", "inspect", id]), daemon.ok(&words("alarm list"))] {
        assert!(text.contains("volume slow") && text.contains("requested high"), "{text}");
    }
    let daemon = daemon.stop().start(&["--reactors", "1"]);
    assert_eq!(daemon.json(&["alarm", "show", id])["id"], id, "it is the same alarm after a restart");
    daemon.stop();
}

#[test]
fn events_are_listed_and_followed() {
    let daemon = Daemon::fresh();
    let mut command = daemon.state().command(&words("event list --follow -o json"));
    let mut follower = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = move || object(&lines.next().unwrap().unwrap());
    assert_eq!(next()["code"], "daemon_started");
    raise_alarm(&daemon);
    let (changed, raised) = (next(), next());
    assert_eq!((&changed["code"], &changed["object"]["name"]), (&json!("changed"), &json!("slow")));
    assert_eq!((&raised["code"], &raised["severity"]), (&json!("alarm_raised"), &json!("warning")));
    let after = changed["sequence"].to_string();
    let later = daemon.json(&[&words("event list --severity warning --after")[..], &[&after]].concat());
    assert_eq!(later["items"], json!([raised]));
    let text = daemon.ok(&words("event list"));
    assert!(text.contains("daemon_started") && text.contains("volume slow"), "{text}");
    let daemon = daemon.stop().start(&["--reactors", "1"]);
    let mut later = next();
    while later["code"] != "daemon_started" {
        later = next();
    }
    assert!(later["sequence"].as_u64() > raised["sequence"].as_u64(), "the follower waited for the daemon");
    follower.kill().unwrap();
    follower.wait().unwrap();
    daemon.stop();
}

#[test]
fn volume_of_a_tenant_is_named_as_it_is_printed() {
    let daemon = Daemon::fresh();
    daemon.ok(&words("tenant create shop"));
    daemon.ok(&words("volume create shop/db --size 1"));
    let volume = daemon.json(&words("volume show shop/db"));
    assert_eq!((&volume["tenant"], &volume["name"]), (&json!("shop"), &json!("db")));
    daemon.ok(&words("snapshot create shop/db@first"));
    assert_eq!(daemon.json(&words("snapshot list shop/db"))["items"][0]["name"], "first");
    assert_eq!(daemon.json(&words("scrub show shop/db"))["volume"], "db");
    assert_eq!(daemon.json(&words("journal show shop/db"))["items"], json!([]));
    daemon.ok(&words("volume delete shop/db --with-snapshots"));
    daemon.stop();
}
