//! A hung drive: a drive that does not answer delays only changes of objects on that drive.

use std::fs;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};

use crate::common::daemon::Daemon;
use crate::common::nbd::{Client, WRITE};
use crate::common::program::{is_root, tool};
use crate::common::{wait_for, wait_until};

/// Number of changes that wait for the drive: more than one per core, so more than the daemon's answering
/// threads.
const HELD_UP: usize = 12;
/// Number of deletions of one volume to which a client is attached.
const DELETIONS: usize = 30;

/// Separate filesystem that can be frozen. It is thawed and unmounted when it goes out of scope.
struct Frozen {
    mount: String,
}

impl Frozen {
    fn make(daemon: &Daemon, name: &str) -> Frozen {
        let (folder, image) = (daemon.state().beside(name), daemon.state().beside("image"));
        fs::create_dir_all(&folder).unwrap();
        fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
        tool("mkfs.xfs", &["-q", image.to_str().unwrap()]);
        let mount = folder.to_str().unwrap().to_owned();
        tool("mount", &["-o", "loop", image.to_str().unwrap(), &mount]);
        Frozen { mount }
    }

    fn freeze(&self) {
        tool("fsfreeze", &["--freeze", &self.mount]);
    }

    fn thaw(&self) {
        // Thawing a filesystem that is not frozen does no harm.
        let _ = Command::new("fsfreeze").args(["--unfreeze", &self.mount]).output();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        let _ = Command::new("umount").args(["-l", &self.mount]).output();
    }
}

/// Returns the number of daemon threads that wait for a device.
fn waiting_threads(daemon: &Daemon) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.process_id())).unwrap();
    let waits = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        status.rsplit(") ").next()?.starts_with('D').then_some(())
    };
    tasks.filter_map(waits).count()
}

fn spawn(daemon: &Daemon, arguments: &[&str]) -> Child {
    let mut command = daemon.state().command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Runs a command that must succeed. A command that hangs is abandoned.
fn answers(daemon: &Daemon, arguments: &[&str]) {
    let mut child = spawn(daemon, arguments);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        wait_for(&format!("{arguments:?} is answered"), || child.try_wait().unwrap())
    }));
    let _ = child.kill();
    let _ = child.wait();
    match ended {
        Ok(status) => assert!(status.success(), "{arguments:?}: {}", daemon.ok(arguments)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Requests a path of the API and returns the beginning of the answer.
fn get(daemon: &Daemon, path: &str) -> String {
    use std::io::{Read, Write};
    let mut socket = UnixStream::connect(daemon.state().path().join("api.sock")).unwrap();
    socket.set_read_timeout(Some(crate::common::TIMEOUT)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap_or_else(|error| panic!("{path} is not answered: {error}"));
    answer
}

fn read_everything(daemon: &Daemon) {
    for path in [
        "/v1/tenants",
        "/v1/volumes",
        "/v1/tenants/default/volumes/held0",
        "/v1/tenants/default/volumes/free0",
        "/v1/snapshots",
        "/v1/status",
        "/v1/drives",
        "/v1/drives/frozen",
        "/v1/pools",
        "/v1/background-jobs",
        "/v1/scrubs",
        "/v1/policies",
        "/metrics",
    ] {
        let answer = get(daemon, path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}

fn change_what_is_elsewhere(daemon: &Daemon) {
    answers(daemon, &["volume", "create", "free1", "--size", "1", "--drive", "free"]);
    answers(daemon, &["volume", "resize", "free1", "--size", "2"]);
    answers(daemon, &["volume", "modify", "free1", "--new-name", "free2"]);
    answers(daemon, &["snapshot", "create", "free2@once"]);
    answers(daemon, &["volume", "delete", "free2", "--with-snapshots"]);
    answers(daemon, &["qos", "policy-group", "create", "gold", "--max-throughput", "1000IOPS"]);
    answers(daemon, &["volume", "modify", "free0", "--qos-policy-group", "gold"]);
    answers(daemon, &["qos", "policy-group", "modify", "gold", "--max-throughput", "2000IOPS"]);
}

/// Freezes the drive, lets changes wait for it, and thaws it after all other requests were answered.
fn hold_up(daemon: &Daemon, drive: &Frozen) {
    for (volume, drive) in [("held0", "frozen"), ("free0", "free"), ("attached", "frozen")] {
        daemon.ok(&["volume", "create", volume, "--size", "1", "--drive", drive]);
    }
    let mut client = Client::attach(&daemon.nbd_socket(), "attached");
    client.write(0, &[1; 4096]).unwrap();
    drive.freeze();
    client.send(WRITE, 0, 0, 4096, &[2; 4096]).unwrap();
    let names: Vec<String> = (1..=HELD_UP).map(|number| format!("held{number}")).collect();
    let create =
        |name: &String| spawn(daemon, &["volume", "create", name, "--size", "1", "--drive", "frozen"]);
    let mut held: Vec<Child> = names.iter().map(create).collect();
    // The deletion is repeated while a client with a write in flight is attached, as an impatient operator
    // repeats it.
    let delete = |_| spawn(daemon, &["volume", "delete", "attached", "--force"]);
    let mut deletions: Vec<Child> = (0..DELETIONS).map(delete).collect();
    wait_until("a change waits for the drive", || waiting_threads(daemon) > 0);
    read_everything(daemon);
    change_what_is_elsewhere(daemon);
    read_everything(daemon);
    assert!(waiting_threads(daemon) > 0, "the drive has not answered meanwhile");
    for child in &mut held {
        assert_eq!(child.try_wait().unwrap(), None, "a change of the drive cannot have ended");
    }
    drive.thaw();
    for (child, name) in held.iter_mut().zip(&names) {
        let status = wait_for("a change goes on", || child.try_wait().unwrap());
        assert!(status.success(), "{name}");
        daemon.ok(&["volume", "delete", name]);
    }
    // One of them deletes the volume, unless all have timed out before.
    for child in &mut deletions {
        wait_for("a deletion ends", || child.try_wait().unwrap());
    }
    daemon.ok(&["volume", "delete", "attached", "--force", "--if-exists"]);
}

#[test]
fn hung_drive_delays_no_read_and_no_change_of_other_drives() {
    if !is_root() {
        return crate::common::skip("a filesystem of its own needs root");
    }
    let daemon = Daemon::fresh();
    let drive = Frozen::make(&daemon, "frozen");
    for name in ["frozen", "free"] {
        let path = daemon.state().beside(name);
        fs::create_dir_all(&path).unwrap();
        daemon.ok(&["drive", "add", path.to_str().unwrap(), "--no-measurement"]);
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| hold_up(&daemon, &drive)));
    drive.thaw();
    drop(daemon);
    drop(drive);
    outcome.unwrap();
}
