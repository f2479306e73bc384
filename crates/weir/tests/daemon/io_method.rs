//! Threads in place of io_uring: chosen by the operator, or where a container forbids io_uring.
//!
//! The whole suite runs with them if `WEIR_IO_METHOD=threads` is set.

use std::fs;
use std::process::Stdio;

use serde_json::json;

use crate::common::attached::{alone, assert_nothing_left, can_be_tested};
use crate::common::daemon::{State, WEIR};
use crate::common::program::{has, tool};
use crate::common::rates::Counted;
use crate::common::saturating::Saturating;
use crate::common::wait_until;
use weir_testkit::docker::{self, Engine, IMAGE};

/// A daemon on whose behalf threads work.
const THREADS: [&str; 4] = ["--reactors", "2", "--io-method", "threads"];

/// Writes to a volume by NBD, or verifies what was written before.
fn fio(socket: &str, volume: &str, more: &[&str]) {
    let uri = format!("--uri=nbd+unix:///{volume}?socket={socket}");
    let mut arguments = vec!["--name=job", "--ioengine=nbd", &uri, "--rw=randwrite", "--bsrange=512-128k"];
    arguments.extend(["--bs_unaligned", "--iodepth=32", "--size=64M", "--verify=crc32c", "--verify_fatal=1"]);
    arguments.extend(["--verify_state_save=0", "--randseed=7"]);
    arguments.extend(more);
    let printed = tool("fio", &arguments);
    assert!(printed.contains("err= 0"), "{printed}");
}

#[test]
fn threads_keep_data_and_limits() {
    if !has(&["fio"]) {
        return;
    }
    let daemon = State::new().start(&THREADS);
    let status = daemon.json(&["status"]);
    assert_eq!(
        (&status["io_method"], &status["io_method_reason"]),
        (&json!("threads"), &json!("it is configured"))
    );
    assert!(daemon.ok(&["status"]).contains("I/O: threads (it is configured)"));
    // Three replicas, each in a folder of its own.
    for name in ["a", "b", "c"] {
        let folder = daemon.state().beside(name);
        fs::create_dir(&folder).unwrap();
        daemon.ok(&["drive", "add", folder.to_str().unwrap(), "--class", "high", "--no-measurement"]);
    }
    daemon.ok(&["volume", "create", "v1", "--size", "128MiB", "--repl", "3", "--io-priority", "high"]);
    fio(daemon.nbd_socket().to_str().unwrap(), "v1", &["--fsync=100", "--end_fsync=1"]);
    let daemon = daemon.kill().start(&THREADS);
    fio(daemon.nbd_socket().to_str().unwrap(), "v1", &["--verify_only"]);
    daemon.ok(&["qos", "policy-group", "create", "p", "--max-throughput", "200IOPS"]);
    daemon.ok(&["volume", "modify", "v1", "--qos-policy-group", "p"]);
    let client = Saturating::start(&daemon, "v1", 32, 4096);
    Counted::all(&daemon, &["v1"]).keep_to(200.0);
    drop(client);
    assert!(daemon.stop().path().exists());
}

#[test]
fn threads_serve_attached_volumes_but_no_ublk() {
    if !can_be_tested() || !has(&["fio"]) {
        return;
    }
    let _alone = alone();
    let daemon = State::new().start(&THREADS);
    daemon.create("v1", "128MiB");
    let message = daemon.refused(1, &["attach", "v1", "--method", "ublk"]);
    assert!(message.contains("ublk needs io_uring, which the daemon does not use"), "{message}");
    let device = daemon.ok(&["attach", "v1", "--method", "fuse"]);
    let device = device.trim();
    let reason = daemon.json(&["attachment", "list"])["items"][0]["method"].clone();
    assert_eq!(reason, "fuse");
    let mut arguments =
        vec!["--name=job", "--ioengine=libaio", "--direct=1", "--rw=randwrite", "--bsrange=4k-64k"];
    let filename = format!("--filename={device}");
    arguments.extend(["--iodepth=16", "--size=32M", "--verify=crc32c", "--verify_fatal=1", "--fsync=50"]);
    arguments.extend(["--verify_state_save=0", &filename]);
    assert!(tool("fio", &arguments).contains("err= 0"));
    daemon.ok(&["detach", "v1"]);
    assert_nothing_left(&daemon);
}

#[test]
fn container_without_io_uring_is_served_by_threads() {
    if !can_be_tested() || !has(&docker::PROGRAMS) {
        return;
    }
    let _alone = alone();
    let state = State::new();
    let engine = Engine::start(&state.beside("docker"), &[]);
    // As the profile of newer engines does; older ones still allow io_uring.
    let calls = ["io_uring_setup", "io_uring_enter", "io_uring_register"];
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": calls, "action": "SCMP_ACT_ERRNO", "errnoRet": 1}],
    });
    let profile_file = state.beside("profile.json");
    fs::write(&profile_file, profile.to_string()).unwrap();
    fs::create_dir(state.path()).unwrap();
    let profile = format!("seccomp={}", profile_file.display());
    let folder = format!("{0}:{0}", state.path().display());
    let program = format!("{WEIR}:{WEIR}:ro");
    let mut command = engine.command(&["run", "--rm", "--name=weir", "--security-opt", &profile]);
    command.args(["-v", &folder, "-v", &program, "-v", "/usr:/usr:ro", "-v", "/lib:/lib:ro"]);
    command.args(["-v", "/lib64:/lib64:ro", IMAGE, WEIR, "serve", "--no-measurement", "--state"]);
    let mut container = command.arg(state.path()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("the daemon in the container answers", || {
        assert!(container.try_wait().unwrap().is_none(), "the container has ended");
        state.weir(&["status"]).code == Some(0)
    });
    let status: serde_json::Value =
        serde_json::from_str(&state.weir(&["status", "-o", "json"]).ok()).unwrap();
    assert_eq!(status["io_method"], "threads");
    let reason = status["io_method_reason"].as_str().unwrap();
    assert!(reason.contains("a container's seccomp profile blocks it"), "{reason}");
    state.weir(&["volume", "create", "v1", "--size", "128MiB"]).ok();
    fio(state.path().join("nbd.sock").to_str().unwrap(), "v1", &["--fsync=100"]);
    assert!(engine.run(&["stop", "weir"]).status.success());
    container.wait().unwrap();
}
