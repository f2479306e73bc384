//! Limits of cgroups on a volume from outside: processes in cgroups use the file of an attached volume.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use weir_testkit::cgroup::Cgroup;

use crate::common::attached::{AttachedFile, alone, assert_nothing_left, can_be_tested};
use crate::common::daemon::{Daemon, State};
use crate::common::program::find;
use crate::common::{skip, wait_until};

fn cgroup(name: &str) -> Option<Cgroup> {
    let created = Cgroup::create(name);
    if let Err(error) = &created {
        skip(&format!("no cgroup can be created: {error}"));
    }
    created.ok()
}

fn folder(cgroup: &Cgroup) -> &str {
    cgroup.folder().to_str().unwrap()
}

/// A daemon with an attached volume `v1` and policy groups.
fn start(groups: &[(&str, &str)]) -> (Daemon, AttachedFile) {
    let daemon = State::new().start(&[]);
    daemon.create("v1", "64MiB");
    for (group, rate) in groups {
        daemon.ok(&["policy-group", "create", group, "--max-throughput", rate, "--is-shared", "false"]);
    }
    let attached = AttachedFile::of(&daemon, "v1");
    (daemon, attached)
}

/// Arguments of dd for reads or writes of 4 KiB, past the page cache or not.
fn arguments(file: &Path, count: u32, is_read: bool, is_direct: bool) -> Vec<String> {
    let file = file.display();
    let (input, output) = if is_read {
        (format!("{file}"), "/dev/null".to_owned())
    } else {
        ("/dev/zero".to_owned(), format!("{file}"))
    };
    let mut arguments =
        vec![format!("if={input}"), format!("of={output}"), "bs=4k".to_owned(), format!("count={count}")];
    arguments.push("conv=notrunc".to_owned());
    if is_direct {
        arguments.push(if is_read { "iflag=direct" } else { "oflag=direct" }.to_owned());
    }
    arguments
}

fn succeed(mut command: Command, arguments: &[String]) {
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The binding of a cgroup on `v1`.
fn bound(daemon: &Daemon, cgroup: &Cgroup) -> Value {
    let all = daemon.json(&["qos", "cgroup", "list", "v1"])["items"].clone();
    let found = all.as_array().unwrap().iter().find(|one| one["cgroup"] == folder(cgroup));
    found.unwrap_or_else(|| panic!("{all}")).clone()
}

fn bind(daemon: &Daemon, cgroup: &Cgroup, group: &str) {
    daemon.ok(&[
        "qos",
        "cgroup",
        "bind",
        "--volume",
        "v1",
        "--cgroup",
        folder(cgroup),
        "--qos-policy-group",
        group,
    ]);
}

#[test]
fn processes_of_a_cgroup_are_limited_and_others_are_not() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let Some(slow) = cgroup("weir-e2e-slow") else { return };
    let (daemon, attached) = start(&[("twenty", "20IOPS"), ("ample", "1000000IOPS")]);
    bind(&daemon, &slow, "twenty");
    for (is_read, is_direct) in [(true, true), (true, false), (false, true), (false, false)] {
        let kind = if is_read { "read" } else { "write" };
        let before = bound(&daemon, &slow)[kind].clone();
        let dd = arguments(&attached.path, 11, is_read, is_direct);
        succeed(slow.command("dd"), &dd);
        // Others are not held up, and are not counted.
        succeed(Command::new("dd"), &dd);
        let after = bound(&daemon, &slow)[kind].clone();
        let grown = |key: &str| after[key].as_u64().unwrap() - before[key].as_u64().unwrap();
        assert_eq!((grown("operations"), grown("bytes")), (11, 11 * 4096), "{kind} direct: {is_direct}");
        // Each of them but the first waits for a twentieth of a second since the one before.
        assert!(grown("delayed_ns") >= 9 * 50_000_000 / 2, "{kind} direct: {is_direct}: {after}");
    }
    // The limits of a policy group that changes, and of another one, are in effect at once.
    daemon.ok(&["policy-group", "modify", "twenty", "--max-throughput", "1000000IOPS"]);
    let delayed = bound(&daemon, &slow)["read"]["delayed_ns"].clone();
    succeed(slow.command("dd"), &arguments(&attached.path, 100, true, true));
    daemon.ok(&["policy-group", "modify", "twenty", "--max-throughput", "20IOPS"]);
    bind(&daemon, &slow, "ample");
    succeed(slow.command("dd"), &arguments(&attached.path, 100, true, true));
    let after = bound(&daemon, &slow);
    assert_eq!(
        (&after["policy_group"], &after["read"]["delayed_ns"]),
        (&"ample".into(), &delayed),
        "{after}"
    );
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn process_cannot_hide_in_a_cgroup_of_any_name() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let Some(slow) = cgroup("weir-e2e-named") else { return };
    let (daemon, attached) = start(&[("hundred", "100IOPS")]);
    bind(&daemon, &slow, "hundred");
    // Whoever may create cgroups below chooses their names.
    let inner = slow.below(std::ffi::OsStr::from_bytes(b"\xff: x")).unwrap();
    succeed(inner.command("dd"), &arguments(&attached.path, 5, true, true));
    assert_eq!(bound(&daemon, &slow)["read"]["operations"], 5);
    drop(inner);
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn request_that_waits_for_its_cgroup_runs_once_the_limit_ends() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let Some(slow) = cgroup("weir-e2e-waiting") else { return };
    // This limit makes the program run for a quarter of an hour.
    let (daemon, attached) = start(&[("one", "1IOPS")]);
    bind(&daemon, &slow, "one");
    let mut dd = slow.command("dd");
    let mut waiting =
        dd.args(arguments(&attached.path, 1000, true, true)).stderr(Stdio::null()).spawn().unwrap();
    let delayed = || daemon.json(&["volume", "inspect", "v1"])["statistics"]["queue_depth_delayed"].as_u64();
    wait_until("a request waits", || delayed() == Some(1));
    // It goes on waiting while another cgroup comes and goes, and while the daemon is replaced.
    let other = cgroup("weir-e2e-other").unwrap();
    bind(&daemon, &other, "one");
    daemon.ok(&["qos", "cgroup", "unbind", "--volume", "v1", "--cgroup", folder(&other)]);
    let daemon = daemon.kill().start(&[]);
    let delayed = || daemon.json(&["volume", "inspect", "v1"])["statistics"]["queue_depth_delayed"].as_u64();
    wait_until("a request waits again", || delayed() == Some(1));
    assert!(waiting.try_wait().unwrap().is_none());
    daemon.ok(&["qos", "cgroup", "unbind", "--volume", "v1", "--cgroup", folder(&slow)]);
    assert!(waiting.wait().unwrap().success());
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn deep_queue_of_a_limited_cgroup_holds_nobody_else_up() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let Some(slow) = cgroup("weir-e2e-deep") else { return };
    let (daemon, attached) = start(&[("one", "1IOPS")]);
    bind(&daemon, &slow, "one");
    let mut load = slow.command(find("fio").unwrap().to_str().unwrap());
    load.args([
        "--name=deep",
        "--rw=randrw",
        "--bs=128k",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=200",
    ]);
    load.args([
        "--thread=1",
        "--time_based",
        "--runtime=3600",
        &format!("--filename={}", attached.path.display()),
    ]);
    let mut load = load.stdout(Stdio::null()).spawn().unwrap();
    let delayed = || daemon.json(&["volume", "inspect", "v1"])["statistics"]["queue_depth_delayed"].as_u64();
    wait_until("all of its requests wait", || delayed() >= Some(199));
    let answered = || {
        let bound = bound(&daemon, &slow);
        bound["read"]["operations"].as_u64().unwrap() + bound["write"]["operations"].as_u64().unwrap()
    };
    let before = answered();
    // If each of these waited for one of those, this would take many minutes.
    for is_read in [true, false] {
        let mut dd = arguments(&attached.path, 300, is_read, true);
        dd.retain(|argument| argument != "bs=4k");
        dd.push("bs=128k".to_owned());
        succeed(Command::new("dd"), &dd);
    }
    assert!(answered() < before + 300);
    load.kill().unwrap();
    daemon.ok(&["qos", "cgroup", "unbind", "--volume", "v1", "--cgroup", folder(&slow)]);
    load.wait().unwrap();
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn process_that_comes_into_a_cgroup_comes_under_its_limit() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let Some(slow) = cgroup("weir-e2e-comes") else { return };
    let (daemon, attached) = start(&[("hundred", "100IOPS")]);
    bind(&daemon, &slow, "hundred");
    let mut command = Command::new(find("fio").unwrap());
    command.args([
        "--name=reader",
        "--rw=randread",
        "--bs=4k",
        "--direct=1",
        "--ioengine=psync",
        "--thread=1",
    ]);
    command.args(["--time_based", "--runtime=3600", &format!("--filename={}", attached.path.display())]);
    let mut reader = command.stdout(Stdio::null()).spawn().unwrap();
    let read =
        || daemon.json(&["volume", "inspect", "v1"])["statistics"]["read"]["operations"].as_u64().unwrap();
    let of_cgroup = || bound(&daemon, &slow)["read"]["operations"].as_u64().unwrap();
    wait_until("it reads", || read() > 100);
    assert_eq!(of_cgroup(), 0);
    slow.take(&reader).unwrap();
    wait_until("its requests are counted", || of_cgroup() > 10);
    reader.kill().unwrap();
    reader.wait().unwrap();
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn cgroups_are_refused_in_words() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let Some(outer) = cgroup("weir-e2e-outer") else { return };
    let (daemon, _attached) = start(&[("slow", "100IOPS")]);
    daemon.ok(&["policy-group", "create", "common", "--max-throughput", "1IOPS", "--is-shared", "true"]);
    let inner = outer.folder().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let inner = inner.to_str().unwrap();
    let refused = |cgroup: &str, group: &str, why: &str| {
        let arguments =
            ["qos", "cgroup", "bind", "--volume", "v1", "--cgroup", cgroup, "--policy-group", group];
        let code = if why.contains("unknown") { 4 } else { 1 };
        let message = daemon.refused(code, &arguments);
        assert!(message.contains(why), "{message}");
    };
    refused("/sys/fs/cgroup/nowhere", "slow", "cannot examine /sys/fs/cgroup/nowhere");
    refused("/proc", "slow", "/proc is no cgroup");
    refused(folder(&outer), "nobody", "unknown policy group 'nobody'");
    refused(folder(&outer), "common", "is shared; a cgroup can be bound to one that is not shared");
    bind(&daemon, &outer, "slow");
    refused(inner, "slow", "is above this one");
    let message = daemon.refused(1, &["policy-group", "delete", "slow"]);
    assert!(message.contains("limits cgroups on the volumes: v1"), "{message}");
    // The binding goes with the volume.
    daemon.ok(&["detach", "v1"]);
    daemon.ok(&["volume", "delete", "v1"]);
    daemon.ok(&["policy-group", "delete", "slow"]);
    std::fs::remove_dir(inner).unwrap();
    assert_nothing_left(&daemon);
}
