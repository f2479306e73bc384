//! Docker from outside: a real engine, the plugin, and containers with fio. What is killed here is what operators
//! restart: the engine, the plugin and the daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::attached::{alone, assert_nothing_left, can_be_tested};
use crate::common::daemon::{Daemon, State, WEIR};
use crate::common::program::{Ran, find, has, run, tool};
use crate::common::wait_until;

/// Name of the image in the tests.
const IMAGE: &str = "weir-test/fio";
/// Folder where every Docker engine looks for plugins.
const PLUGINS: &str = "/run/docker/plugins";

fn programs_are_there() -> bool {
    can_be_tested() && has(&["dockerd", "docker", "busybox", "tar"])
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
        wait_until("the plugin listens", || {
            std::os::unix::net::UnixStream::connect(Path::new(PLUGINS).join("pxd.sock")).is_ok()
        });
        plugin
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Docker engine with a folder of its own.
struct Docker {
    folder: PathBuf,
    engine: Option<Child>,
    more: Vec<&'static str>,
}

impl Docker {
    fn start(state: &State, more: &[&'static str]) -> Docker {
        let mut docker = Docker { folder: state.beside("docker"), engine: None, more: more.to_vec() };
        fs::create_dir_all(&docker.folder).unwrap();
        docker.begin();
        docker.import();
        docker
    }

    fn socket(&self) -> String {
        format!("unix://{}", self.folder.join("docker.sock").display())
    }

    /// Starts the engine on what an earlier one left.
    fn begin(&mut self) {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new(find("dockerd").unwrap());
        command.args(["--iptables=false", "--bridge=none", "--storage-driver=vfs", "-H", &self.socket()]);
        command.args(["--data-root", &path("data"), "--exec-root", &path("exec"), "--pidfile", &path("pid")]);
        command.args(&self.more);
        let log = fs::File::options().append(true).create(true).open(path("log")).unwrap();
        self.engine = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        wait_until("the engine answers", || self.docker(&["version"]).code == Some(0));
    }

    /// Kills the engine as a crash would.
    fn kill(&mut self) {
        let mut engine = self.engine.take().unwrap();
        engine.kill().unwrap();
        engine.wait().unwrap();
        let _ = fs::remove_file(self.folder.join("pid"));
    }

    fn docker(&self, arguments: &[&str]) -> Ran {
        run(Command::new(find("docker").unwrap()).args(["-H", &self.socket()]).args(arguments))
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

    /// Ends what a failed test leaves, also of containers without an engine.
    fn clear(&self) {
        let folder = self.folder.parent().unwrap().display().to_string();
        let _ = Command::new("pkill").args(["-9", "-f", &format!("containerd-shim.*{folder}")]).status();
        let _ = Command::new("pkill").args(["-9", "-f", "sh -c sleep 10000"]).status();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for place in places.filter(|place| place.starts_with(&folder)) {
            let _ = Command::new("umount").args(["-l", place]).status();
        }
    }

    /// Makes an image of this machine's fio and busybox.
    fn import(&self) {
        let root = self.folder.join("root");
        for program in ["fio", "busybox"] {
            let path = find(program).unwrap();
            let libraries = run(Command::new("ldd").arg(&path)).stdout;
            let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
            for file in libraries.map(PathBuf::from).chain([path.clone()]) {
                let into = root.join(file.strip_prefix("/").unwrap());
                fs::create_dir_all(into.parent().unwrap()).unwrap();
                fs::copy(&file, into).unwrap();
            }
        }
        let archive = self.folder.join("root.tar").display().to_string();
        tool("tar", &["-C", root.to_str().unwrap(), "-cf", &archive, "."]);
        self.ok(&["import", &archive, IMAGE]);
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let containers = self.docker(&["ps", "--all", "--quiet"]).stdout;
        for container in containers.split_whitespace() {
            let _ = self.docker(&["rm", "--force", container]);
        }
        if let Some(mut engine) = self.engine.take() {
            let _ = Command::new("kill").arg(engine.id().to_string()).status();
            let _ = engine.wait();
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(30).collect();
            eprintln!("the engine's log ends:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"));
            self.clear();
        }
    }
}

fn busybox(script: &str) -> [&str; 4] {
    ["/bin/busybox", "sh", "-c", script]
}

/// The path of busybox in the image is that of this machine.
fn shell(script: &str) -> Vec<String> {
    let mut words: Vec<String> = busybox(script).map(str::to_owned).to_vec();
    words[0] = find("busybox").unwrap().display().to_string();
    words
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
    let fio = find("fio").unwrap().display().to_string();
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
        3,
        "nothing stays of what failed"
    );
    // An engine takes a volume that exists without a word. Whoever asks for another one is told.
    let call = |options: &str| {
        let body = format!("{{\"Name\": \"plain\", \"Opts\": {options}}}");
        let socket = Path::new(PLUGINS).join("pxd.sock").display().to_string();
        tool("curl", &["-s", "--unix-socket", &socket, "-d", &body, "http://plugin/VolumeDriver.Create"])
    };
    assert_eq!(call(r#"{"size": "64MiB"}"#), "{}");
    assert!(call(r#"{"size": "1G"}"#).contains("exists with another 'size'"));
    // What the host has is not the container's.
    daemon.ok(&["attach", "v1"]);
    let refused = sh(&docker, "v1", "true").stderr;
    assert!(refused.contains("by 'weir attach'"), "{refused}");
    daemon.ok(&["detach", "v1"]);
    docker.ok(&["volume", "rm", "v1", "test-low"]);
    assert_eq!(daemon.json(&["volume", "list"])["items"].as_array().unwrap().len(), 1);
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
    docker.kill();
    docker.begin();
    let refused = docker.docker(&["volume", "rm", "v1"]).stderr;
    assert!(refused.contains("in use"), "{refused}");
    assert_eq!(sh(&docker, "v1", "echo content > /test/file; cat /test/file").ok(), "content\n");
    docker.ok(&["rm", "--force", "one"]);
    docker.ok(&["volume", "rm", "v1"]);
    assert_nothing_left(&daemon);
    // An engine that is killed and whose containers end without it never says that they have ended.
    start_sleeper(&docker, "v2", "two");
    let process = docker.ok(&["inspect", "--format", "{{.State.Pid}}", "two"]);
    docker.kill();
    tool("kill", &["-9", process.trim()]);
    docker.begin();
    docker.ok(&["rm", "--force", "two"]);
    docker.ok(&["volume", "rm", "v2"]);
    assert_nothing_left(&daemon);
}
