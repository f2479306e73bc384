//! Docker from outside: a real engine, the plugin, and containers with fio. What is killed here is what operators
//! restart: the engine, the plugin and the daemon.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::common::attached::{alone, assert_nothing_left, can_be_tested};
use crate::common::daemon::{Daemon, State, WEIR};
use crate::common::program::{Ran, has, run, tool};
use crate::common::{setting, wait_until};
use weir_testkit::docker::{self, Engine, IMAGE, PLUGINS};
use weir_testkit::program::path;

fn programs_are_there() -> bool {
    can_be_tested() && has(&docker::PROGRAMS)
}

/// The plugin of a daemon.
struct Plugin(Child);

impl Plugin {
    fn start(daemon: &Daemon) -> Plugin {
        let folder = daemon.state().beside("plugin");
        let mut command = Command::new(WEIR);
        command.args(["docker-plugin", "--alias", "pxd", "--default-size", "64MiB", "--folder"]).arg(folder);
        command.env("WEIR_SERVER", format!("unix:{}", daemon.state().path().join("api.sock").display()));
        let plugin = Plugin(command.stderr(Stdio::inherit()).spawn().unwrap());
        wait_until("the plugin listens", || UnixStream::connect(Path::new(PLUGINS).join("pxd.sock")).is_ok());
        plugin
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Docker engine of a test.
struct Docker(Engine);

impl Docker {
    fn start(state: &State, more: &[&str]) -> Docker {
        Docker(Engine::start(&state.beside("docker"), more))
    }

    fn docker(&self, arguments: &[&str]) -> Ran {
        run(&mut self.0.command(arguments))
    }

    fn ok(&self, arguments: &[&str]) -> String {
        self.docker(arguments).ok()
    }

    /// Runs a container to its end.
    fn container(&self, volume: &str, command: &[&str]) -> Ran {
        let volume = format!("{volume}:/test");
        let run = ["run", "--rm", "--volume-driver=pxd", "-v", &volume, IMAGE];
        self.docker(&[&run[..], command].concat())
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the engine's log ends:\n{}", self.0.log_end());
        }
    }
}

/// A script for the image's busybox, which has this machine's path.
fn shell(script: &str) -> [String; 4] {
    [path("busybox"), "sh".to_owned(), "-c".to_owned(), script.to_owned()]
}

fn sh(docker: &Docker, volume: &str, script: &str) -> Ran {
    let words = shell(script);
    docker.container(volume, &words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Starts a container that has a volume until it is stopped.
fn start_sleeper(docker: &Docker, volume: &str, name: &str) {
    let (volume, words) = (format!("{volume}:/test"), shell("sleep 10000"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let run = ["run", "--detach", "--name", name, "--volume-driver=pxd", "-v", &volume, IMAGE];
    docker.ok(&[&run[..], &words].concat());
}

/// Calls the plugin as an engine does. Returns the answer with its head.
fn post(call: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(Path::new(PLUGINS).join("pxd.sock")).unwrap();
    let head = format!("POST /{call} HTTP/1.1\r\nHost: plugin\r\nConnection: close\r\n");
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// `WEIR_DOCKER_ROUNDS` is the number of rounds.
#[test]
fn twenty_volumes_are_mounted_and_unmounted_side_by_side() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let daemon = State::in_memory().start(&[]);
    let _plugin = Plugin::start(&daemon);
    let rounds = setting("WEIR_DOCKER_ROUNDS", 2);
    let use_volume = |number: usize| {
        let name = format!("v{number}");
        let done = |call: &str, caller: &str| {
            let answer = post(call, &format!("{{\"Name\": \"{name}\", \"ID\": \"{caller}\"}}"));
            assert!(answer.starts_with("HTTP/1.1 200"), "{call} {name}: {answer}");
            answer
        };
        done("VolumeDriver.Create", "");
        for round in 0..rounds {
            // Two callers of one volume; Docker repeats calls.
            for caller in ["one", "two", "two"] {
                assert!(done("VolumeDriver.Mount", caller).contains(&format!("/mounts/{name}")));
            }
            let file = daemon.state().beside("plugin/mounts").join(&name).join("file");
            assert_eq!(file.exists(), round > 0);
            fs::write(file, format!("{round}")).unwrap();
            for caller in ["two", "two", "one"] {
                done("VolumeDriver.Unmount", caller);
            }
        }
        done("VolumeDriver.Remove", "");
    };
    std::thread::scope(|scope| {
        for number in 0..20 {
            let use_volume = &use_volume;
            scope.spawn(move || use_volume(number));
        }
    });
    assert_nothing_left(&daemon);
    assert_eq!(daemon.json(&["volume", "list"])["items"], json!([]));
}

#[test]
fn containers_use_volumes_and_leave_nothing() {
    if !programs_are_there() {
        return;
    }
    let _alone = alone();
    let daemon = State::new().start(&[]);
    let drive = daemon.state().beside("slow");
    fs::create_dir(&drive).unwrap();
    daemon.ok(&["drive", "add", drive.to_str().unwrap(), "--class", "low", "--no-measurement"]);
    let _plugin = Plugin::start(&daemon);
    let docker = Docker::start(daemon.state(), &[]);
    // As the Portworx document does: the volume comes from the command line, and fio from a container.
    daemon.ok(&["volume", "create", "--io_priority", "low", "test-low", "--size", "256MiB"]);
    let fio = path("fio");
    let load = [
        &fio,
        "--blocksize=16k",
        "-directory=/test",
        "--filename=test",
        "--ioengine=libaio",
        "--readwrite=randrw",
        "--size=64M",
        "--name=test",
        "--verify=meta",
        "--do_verify=1",
        "--verify_pattern=0xDeadBeef",
        "--direct=1",
        "--gtod_reduce=1",
        "--iodepth=128",
        "--randrepeat=1",
        "--end_fsync=1",
    ];
    let output = docker.container("test-low", &load).ok();
    assert!(output.contains("err= 0"), "{output}");
    assert_nothing_left(&daemon);
    // Options beside the name and in the name are one and the same.
    docker.ok(&["volume", "create", "-d", "pxd", "-o", "size=64M", "-o", "io_priority=low", "v1"]);
    let inline = "size=64M,io_priority=low,name=v1";
    sh(&docker, "v1", "echo content > /test/file && sync").ok();
    assert_eq!(sh(&docker, inline, "cat /test/file").ok(), "content\n");
    let shown: Value = serde_json::from_str(&docker.ok(&["volume", "inspect", "v1"])).unwrap();
    assert_eq!(
        (shown[0]["Scope"].as_str(), shown[0]["Status"]["class"].as_str()),
        (Some("local"), Some("low"))
    );
    assert!(docker.ok(&["volume", "ls"]).contains("test-low"));
    // What the host has is not the container's.
    daemon.ok(&["attach", "v1"]);
    let refused = sh(&docker, "v1", "true").stderr;
    assert!(refused.contains("by 'weir attach'"), "{refused}");
    daemon.ok(&["detach", "v1"]);
    docker.ok(&["volume", "rm", "v1", "test-low"]);
    assert_eq!(daemon.json(&["volume", "list"])["items"], json!([]));
    assert_nothing_left(&daemon);
}

#[test]
fn volumes_that_cannot_be_had_are_refused_in_words() {
    if !programs_are_there() {
        return;
    }
    let _alone = alone();
    let daemon = State::new().start(&[]);
    let _plugin = Plugin::start(&daemon);
    let docker = Docker::start(daemon.state(), &[]);
    daemon.create("plain", "64MiB");
    for (arguments, why) in [
        (&["-o", "colour=red", "v2"] as &[&str], "'colour' is not an option of a volume"),
        (&["-o", "shared=true", "v2"], "asks for something that is not supported"),
        (&["-o", "fs=vfat", "v2"], "ext4 and xfs are"),
        (&["-o", "repl=3", "v2"], "replicas"),
        (&["-o", "size=1M", "-o", "fs=xfs", "v2"], "mkfs.xfs failed"),
    ] {
        let ran = docker.docker(&[&["volume", "create", "-d", "pxd"], arguments].concat());
        assert!(ran.code == Some(1) && ran.stderr.contains(why), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(
        daemon.json(&["volume", "list"])["items"].as_array().unwrap().len(),
        1,
        "nothing stays of what failed"
    );
    // An engine takes a volume that exists without a word. Whoever asks for another one is told.
    let call =
        |options: &str| post("VolumeDriver.Create", &format!("{{\"Name\": \"plain\", \"Opts\": {options}}}"));
    assert!(call(r#"{"size": "64MiB"}"#).ends_with("{}"));
    assert!(call(r#"{"size": "1G"}"#).contains("exists with another 'size'"));
    assert_nothing_left(&daemon);
}

#[test]
fn volume_of_two_containers_outlives_plugin_and_daemon() {
    if !programs_are_there() {
        return;
    }
    let _alone = alone();
    let mut daemon = State::new().start(&[]);
    let plugin = Plugin::start(&daemon);
    let docker = Docker::start(daemon.state(), &[]);
    for name in ["one", "two"] {
        start_sleeper(&docker, "shared", name);
    }
    let exec = |container: &str, script: &str| {
        let words = shell(script);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        docker.docker(&[&["exec", container][..], &words].concat())
    };
    exec("one", "echo 1 > /test/file && sync").ok();
    // For this, Docker mounts and unmounts in the name of the container, which runs on.
    let outside = daemon.state().beside("outside").display().to_string();
    docker.ok(&["cp", "one:/test/file", &outside]);
    assert_eq!(fs::read_to_string(outside).unwrap(), "1\n");
    docker.ok(&["rm", "--force", "two"]);
    assert_eq!(exec("one", "cat /test/file").ok(), "1\n");
    start_sleeper(&docker, "shared", "two");
    drop(plugin);
    daemon = daemon.kill().start(&[]);
    assert_eq!(exec("two", "cat /test/file").ok(), "1\n");
    let plugin = Plugin::start(&daemon);
    docker.ok(&["rm", "--force", "one"]);
    exec("two", "echo 2 > /test/file && sync").ok();
    let refused = docker.docker(&["volume", "rm", "shared"]).stderr;
    assert!(refused.contains("in use"), "{refused}");
    docker.ok(&["rm", "--force", "two"]);
    assert_nothing_left(&daemon);
    // Without a daemon the user is told so, at once, and nothing stays.
    let state = daemon.kill();
    let refused = sh(&docker, "shared", "true").stderr;
    assert!(refused.contains("is 'weir serve' running?"), "{refused}");
    drop(plugin);
    // A socket without a plugin is as good as none.
    let daemon = state.start(&[]);
    let _plugin = Plugin::start(&daemon);
    assert_eq!(sh(&docker, "shared", "cat /test/file").ok(), "2\n");
    docker.ok(&["volume", "rm", "shared"]);
    assert_nothing_left(&daemon);
}

#[test]
fn killed_engine_leaves_no_caller() {
    if !programs_are_there() {
        return;
    }
    let _alone = alone();
    let daemon = State::new().start(&[]);
    let _plugin = Plugin::start(&daemon);
    let mut docker = Docker::start(daemon.state(), &["--live-restore"]);
    start_sleeper(&docker, "v1", "one");
    // The container goes on without its engine, and the next engine knows it.
    docker.0.kill();
    docker.0.begin();
    let refused = docker.docker(&["volume", "rm", "v1"]).stderr;
    assert!(refused.contains("in use"), "{refused}");
    assert_eq!(sh(&docker, "v1", "echo content > /test/file; cat /test/file").ok(), "content\n");
    docker.ok(&["rm", "--force", "one"]);
    docker.ok(&["volume", "rm", "v1"]);
    assert_nothing_left(&daemon);
    // An engine that is killed and whose containers end without it never says that they have ended.
    start_sleeper(&docker, "v2", "two");
    let process = docker.ok(&["inspect", "--format", "{{.State.Pid}}", "two"]);
    docker.0.kill();
    tool("kill", &["-9", process.trim()]);
    // The plugin finds out by itself.
    wait_until("nothing stays attached", || daemon.json(&["attachment", "list"])["items"] == json!([]));
    assert_nothing_left(&daemon);
    docker.0.begin();
    docker.ok(&["rm", "--force", "two"]);
    docker.ok(&["volume", "rm", "v2"]);
}
