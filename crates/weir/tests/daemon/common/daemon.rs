//! The real daemon, started for one test and killed with it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use super::mounts::unmount_below;
use super::program::{Ran, run};

/// The program under test.
pub const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// A folder in memory.
pub const MEMORY: &str = "/dev/shm";
/// Bytes of the end of the daemon's log that a failed test shows.
const LOG_SHOWN_BYTES: usize = 8000;

/// A state folder, which outlives the daemons that use it one after the other.
#[derive(Clone)]
pub struct State {
    folder: Arc<Folder>,
}

/// The folder of a test. What a test has left mounted in it would hold up its removal.
struct Folder(TempDir);

impl Folder {
    fn in_folder(parent: &Path) -> Folder {
        Folder(tempfile::Builder::new().prefix("weir-e2e-").tempdir_in(parent).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if state_in(self.0.path()).join("keeper.sock").exists() {
            end_keeper(&state_in(self.0.path()));
        }
        unmount_below(self.0.path());
    }
}

fn state_in(folder: &Path) -> PathBuf {
    folder.join("state")
}

impl State {
    /// A fresh folder. Its path is short, because sockets lie in it.
    pub fn new() -> State {
        State { folder: Arc::new(Folder::in_folder(&std::env::temp_dir())) }
    }

    /// State folder of the daemon.
    pub fn path(&self) -> PathBuf {
        state_in(self.folder.0.path())
    }

    /// A fresh folder in memory, for tests that must not wait for a disk.
    pub fn in_memory() -> State {
        State { folder: Arc::new(Folder::in_folder(Path::new(MEMORY))) }
    }

    /// A file beside the state folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.0.path().join(name)
    }

    /// Folder of all volumes' folders.
    pub fn volumes(&self) -> PathBuf {
        self.path().join("drive/volumes")
    }

    /// The command that runs a daemon here. The daemon does not measure the drive in the state folder, which
    /// would take a while. A full disk below the state folder is no alarm.
    pub fn serve(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(WEIR);
        command.arg("serve").arg("--state").arg(self.path()).arg("--no-measurement");
        command.arg("--pool-full-percent=100").args(arguments);
        if let Ok(method) = std::env::var("WEIR_IO_METHOD")
            && !arguments.contains(&"--io-method")
        {
            command.args(["--io-method", &method]);
        }
        command
    }

    /// Runs the command line against the daemon of this folder.
    pub fn weir(&self, arguments: &[&str]) -> Ran {
        run(&mut self.command(arguments))
    }

    /// The command line against the daemon of this folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let server = format!("unix:{}", self.path().join("api.sock").display());
        let mut command = Command::new(WEIR);
        command.env("WEIR_SERVER", server).args(arguments);
        command
    }

    /// Starts a daemon and waits until it is ready.
    pub fn start(&self, arguments: &[&str]) -> Daemon {
        Daemon::spawn(self, self.serve(arguments)).ready()
    }
}

/// A running daemon.
pub struct Daemon {
    state: State,
    child: Child,
    /// The line in which the daemon reports that it is ready.
    pub ready_line: String,
}

impl Daemon {
    /// A daemon with two reactors on a fresh state folder.
    pub fn fresh() -> Daemon {
        State::new().start(&["--reactors", "2"])
    }

    /// A daemon with two reactors and all its files in memory, so that it waits for no disk.
    pub fn fresh_in_memory() -> Daemon {
        State::in_memory().start(&["--reactors", "2"])
    }

    /// Starts a daemon without waiting for it.
    pub fn spawn(state: &State, mut command: Command) -> Daemon {
        let log = File::options().create(true).append(true).open(state.beside("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        Daemon { state: state.clone(), child, ready_line: String::new() }
    }

    /// Waits for the line in which the daemon reports that it is ready.
    pub fn ready(mut self) -> Daemon {
        let stdout = self.child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut self.ready_line).unwrap();
        assert!(
            self.ready_line.starts_with("weir is ready"),
            "the daemon did not start: {}",
            self.ready_line
        );
        self
    }

    /// The state folder.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The process of the daemon.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The socket for NBD clients.
    pub fn nbd_socket(&self) -> PathBuf {
        self.state.path().join("nbd.sock")
    }

    /// The TCP address for NBD clients.
    ///
    /// # Panics
    /// If the daemon does not listen on TCP.
    pub fn tcp_address(&self) -> String {
        let address = self.ready_line.split_once("nbd tcp:").expect("it listens on TCP").1;
        address.split(',').next().unwrap().trim().to_owned()
    }

    /// The address of an export for programs that take one.
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.nbd_socket().display())
    }

    /// Runs a command that must succeed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.state.weir(arguments).ok()
    }

    /// Runs a command that must be refused with this exit status. Returns the message.
    pub fn refused(&self, code: i32, arguments: &[&str]) -> String {
        self.state.weir(arguments).refused(code)
    }

    /// Runs a command that must succeed and reads its JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.extend(["-o", "json"]);
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// The answer of the API to a GET.
    pub fn get_text(&self, path: &str) -> String {
        self.client().get(format!("http://localhost{path}")).send().unwrap().text().unwrap()
    }

    /// Changes an object by the API.
    pub fn patch(&self, path: &str, body: &Value) {
        let response = self.client().patch(format!("http://localhost{path}")).json(body).send().unwrap();
        let status = response.status();
        assert!(status.is_success(), "{path} {body}: {status} {}", response.text().unwrap_or_default());
    }

    fn client(&self) -> reqwest::blocking::Client {
        let client = reqwest::blocking::Client::builder().no_proxy().timeout(super::TIMEOUT);
        client.unix_socket(self.state.path().join("api.sock")).build().unwrap()
    }

    /// The answer of the API to a GET, as JSON.
    pub fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.get_text(path)).unwrap()
    }

    /// Number of system calls with which the daemon has read or written a file or pipe. It shows the progress
    /// of the daemon independently of time. 0 once the daemon has ended.
    pub fn calls(&self) -> u64 {
        super::program::calls(self.process_id())
    }

    /// Creates a volume.
    pub fn create(&self, name: &str, size: &str) {
        self.ok(&["volume", "create", name, "--size", size]);
    }

    /// One of the extent files of a volume.
    pub fn extent_file(&self, volume: &str, extent: u32) -> PathBuf {
        let id = self.json(&["volume", "inspect", volume])["id"].as_str().unwrap().to_owned();
        self.state.volumes().join(id).join("extents").join(format!("{extent:08}"))
    }

    /// Memory that the daemon's process holds, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process_id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// True while the process runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills the daemon as a crash would.
    pub fn kill(mut self) -> State {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.state.clone()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for the end of a process that was told to end.
    pub fn wait(mut self) -> ExitStatus {
        super::wait_for("the daemon has ended", || self.child.try_wait().unwrap())
    }

    /// Ends the daemon as an operator would. Returns the state folder.
    pub fn stop(self) -> State {
        let state = self.state.clone();
        self.terminate();
        assert!(self.wait().success(), "the daemon must end cleanly");
        state
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // A mount without a daemon would hold up whoever removes its folder.
            end_keeper(&self.state.path());
            eprintln!("the daemon's log ends:\n{}", end_of(&self.state.beside("log")));
        }
    }
}

/// Process of the keeper of a state folder, if there is one.
pub fn keeper(state: &Path) -> Option<String> {
    let asked = format!("keeper --socket {}", state.join("keeper.sock").display());
    let output = Command::new("pgrep").args(["-f", &asked]).output().unwrap();
    let process = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    (!process.is_empty()).then_some(process)
}

/// Kills the keeper of a state folder, if there is one. That ends the mounts that no daemon serves.
pub fn end_keeper(state: &Path) {
    if let Some(keeper) = keeper(state) {
        let _ = Command::new("kill").args(["-9", &keeper]).output();
    }
}

fn end_of(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let _ = file.read_to_end(&mut bytes);
    }
    let start = bytes.len().saturating_sub(LOG_SHOWN_BYTES);
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}
