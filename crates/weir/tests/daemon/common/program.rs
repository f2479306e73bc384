//! Running Weir and other programs, with a time limit.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

pub use weir_testkit::program::find;

/// The interpreter that has libnbd's module.
pub const PYTHON: &str = "/usr/bin/python3";
/// Time for one run of a program after which it counts as hung.
const RUN_LIMIT: Duration = Duration::from_secs(900);

/// Number of system calls with which a process has read or written. 0 if it has ended.
pub fn calls(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let counts = text.lines().filter_map(|line| line.split_once(": "));
    let calls = counts.filter(|(name, _)| matches!(*name, "syscr" | "syscw"));
    calls.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

/// True if all programs exist. Otherwise prints loudly that they are missing, or fails in continuous
/// integration.
pub fn has(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| find(program).is_none()).collect();
    if !missing.is_empty() {
        super::skip(&format!("{} not found; 'make setup' installs it", missing.join(", ")));
    }
    missing.is_empty()
}

/// True if libnbd's Python module exists. See [`has`].
pub fn has_libnbd() -> bool {
    let is_there = Path::new(PYTHON).is_file()
        && Command::new(PYTHON).args(["-c", "import nbd"]).stderr(Stdio::null()).status().unwrap().success();
    if !is_there {
        super::skip("libnbd's Python module not found; 'make setup' installs it");
    }
    is_there
}

/// True if the tests run as root. See [`has`].
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        super::skip("this test mounts a filesystem and must be run as root");
    }
    is_root
}

/// Output and exit status of a program.
#[derive(Debug)]
pub struct Ran {
    /// Exit status. `None` if a signal ended the program.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Standard output of a run that must have succeeded.
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "the command failed: {}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Whether a change was made. It may be refused or unfinished only for one of `reasons`.
    pub fn done_unless(self, reasons: &[&str]) -> bool {
        let is_done = self.code == Some(0);
        let is_excused = self.code == Some(1) && reasons.iter().any(|reason| self.stderr.contains(reason));
        assert!(is_done || is_excused, "the command failed: {}{}", self.stdout, self.stderr);
        is_done
    }

    /// Standard error of a run that must have ended with this exit status.
    pub fn refused(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "another end was expected: {}{}", self.stdout, self.stderr);
        self.stderr
    }
}

/// Runs a program to its end.
///
/// # Panics
/// If the program cannot be started or does not end.
pub fn run(command: &mut Command) -> Ran {
    let shown = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    let id = child.id();
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(RUN_LIMIT) else {
        // The program is a child of this process and not reaped yet, so its process number is still valid.
        let process = rustix::process::Pid::from_raw(id.cast_signed()).expect("a process has a number");
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        panic!("{shown} did not end within {RUN_LIMIT:?}");
    };
    let Output { status, stdout, stderr } = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// Runs another program that must succeed. Returns its standard output.
pub fn tool(program: &str, arguments: &[impl AsRef<OsStr>]) -> String {
    let path = find(program).unwrap_or_else(|| panic!("{program} not found"));
    let ran = run(Command::new(path).args(arguments));
    assert_eq!(ran.code, Some(0), "{program} failed:\n{}\n{}", ran.stdout, ran.stderr);
    ran.stdout
}
