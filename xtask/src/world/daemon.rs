//! Daemon under test, as an operator uses it: started from the shell, and controlled by its command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::fio::Target;
use super::process::Process;

/// Beginning of the daemon's first line.
const READY: &str = "weir is ready";

/// Option that skips the measurement of the new drive in the state folder. An older daemon does not know it.
const QUIET: &str = "--no-measurement";

/// Returns true if `weir serve` of this program knows an option.
fn takes(binary: &Path, option: &str) -> Result<bool> {
    let output = Command::new(binary).args(["serve", "--help"]).output();
    let output = output.with_context(|| format!("cannot run {}", binary.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(option))
}

/// Running daemon.
pub struct Daemon {
    binary: PathBuf,
    state: PathBuf,
    process: Process,
    is_talkative: bool,
}

impl Daemon {
    /// Starts a daemon on a state folder, with more arguments if any.
    pub fn start(binary: &Path, state: &Path, more: &[&str]) -> Result<Daemon> {
        Daemon::launch(binary, state, more, Process::start)
    }

    /// Starts a daemon on one core of the machine alone.
    pub fn start_on_core(core: usize, binary: &Path, state: &Path) -> Result<Daemon> {
        Daemon::launch(binary, state, &[], |name, folder, program, arguments| {
            Process::start_on_core(core, name, folder, program, arguments)
        })
    }

    /// Starts a daemon that can be left running.
    pub fn start_detached(binary: &Path, state: &Path, more: &[&str]) -> Result<Daemon> {
        Daemon::launch(binary, state, more, Process::start_detached)
    }

    fn launch(
        binary: &Path,
        state: &Path,
        more: &[&str],
        start: impl Fn(&str, &Path, &str, &[String]) -> Result<Process>,
    ) -> Result<Daemon> {
        std::fs::create_dir_all(state)?;
        let log_folder = state.parent().unwrap_or(state);
        let state_text = state.to_string_lossy();
        // A bench measures on purpose, and not beside a measurement of the drive in the state folder.
        let quiet = takes(binary, QUIET)?.then_some(QUIET);
        let words = ["serve", "--state", &state_text].into_iter().chain(quiet).chain(more.iter().copied());
        let arguments: Vec<String> = words.map(str::to_owned).collect();
        let mut process = start("weir", log_folder, &binary.to_string_lossy(), &arguments)?;
        process.wait_until(|process| process.output().lines().any(|line| line.starts_with(READY)))?;
        Ok(Daemon { binary: binary.to_owned(), state: state.to_owned(), process, is_talkative: false })
    }

    /// Prints every command and its output from now on.
    pub fn be_talkative(&mut self) {
        self.is_talkative = true;
    }

    /// Runs a command line, written as after the program's name. Returns its output.
    pub fn run(&self, line: &str) -> Result<String> {
        if self.is_talkative {
            println!("$ weir {line}");
        }
        let text = self.execute(line)?;
        if self.is_talkative && !text.trim().is_empty() {
            println!("{}", text.trim_end());
        }
        Ok(text)
    }

    /// Runs a command line that shows something and reads its JSON, without printing it.
    pub fn json(&self, line: &str) -> Result<Value> {
        let text = self.execute(&format!("{line} -o json"))?;
        serde_json::from_str(&text).with_context(|| format!("weir {line} printed no JSON"))
    }

    fn execute(&self, line: &str) -> Result<String> {
        let mut command = Command::new(&self.binary);
        command.args(line.split_whitespace()).env("WEIR_SERVER", self.server());
        let output = command.output().with_context(|| format!("cannot run weir {line}"))?;
        if !output.status.success() {
            bail!("weir {line}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the address at which the command line finds the daemon.
    pub fn server(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// Returns the socket of the API.
    pub fn socket(&self) -> PathBuf {
        self.state.join("api.sock")
    }

    /// Returns a volume as a client's target. The name is `NAME` or `TENANT/NAME`.
    pub fn volume(&self, name: &str) -> Target {
        Target::Nbd { socket: self.state.join("nbd.sock"), export: name.to_owned() }
    }

    /// Returns the process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
