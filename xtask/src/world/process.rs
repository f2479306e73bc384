//! Processes that this program started: they end with it, and their use of processor and memory can be read.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::time::{clock_getcpuclockid, clock_gettime};
use rustix::process::{Pid, Signal, kill_process};

/// Longest time until a program is ready, or has ended. Only a program that hangs reaches it.
const READY_MAX: Duration = Duration::from_secs(120);

/// Process that is ended when dropped.
pub struct Process {
    name: String,
    child: Child,
    output: PathBuf,
    is_kept: bool,
}

impl Process {
    /// Starts a program with its output in `folder/NAME.log`. The program dies with this one, however this
    /// one ends.
    pub fn start(name: &str, folder: &Path, program: &str, arguments: &[String]) -> Result<Process> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program]).args(arguments);
        Process::spawn(name, folder, command)
    }

    /// Starts a program on one core of the machine alone.
    pub fn start_on_core(
        core: usize,
        name: &str,
        folder: &Path,
        program: &str,
        arguments: &[String],
    ) -> Result<Process> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "--cpu-list", &core.to_string(), program]);
        command.args(arguments);
        Process::spawn(name, folder, command)
    }

    /// Starts a program that may outlive this one, if kept.
    pub fn start_detached(name: &str, folder: &Path, program: &str, arguments: &[String]) -> Result<Process> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        Process::spawn(name, folder, command)
    }

    fn spawn(name: &str, folder: &Path, mut command: Command) -> Result<Process> {
        let output = folder.join(format!("{name}.log"));
        let file =
            std::fs::File::create(&output).with_context(|| format!("cannot create {}", output.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Process { name: name.to_owned(), child, output, is_kept: false })
    }

    /// Returns the process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output of the process so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// Waits until `is_ready` is true. Fails if the process ends first, or after [`READY_MAX`].
    pub fn wait_until(&mut self, is_ready: impl Fn(&Process) -> bool) -> Result<()> {
        let start = Instant::now();
        while !is_ready(self) {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}: {}", self.name, self.output().trim());
            }
            if start.elapsed() > READY_MAX {
                bail!("{} is not ready after {READY_MAX:?}: {}", self.name, self.output().trim());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns true if the process has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for the end of the process. Kills it and fails if the end takes longer than `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("{} ended with {status}: {}", self.name, self.output().trim()),
                None if start.elapsed() > timeout => {
                    self.kill();
                    bail!("{} did not end within {timeout:?}", self.name);
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // A process that has ended already needs no signal.
        let _ = id.map(|id| kill_process(id, signal));
    }

    /// Leaves the process running when dropped.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Asks the process to end, and kills it if it does not.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM);
        self.wait(READY_MAX)
    }

    fn kill(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns the processor time of all threads, including ended ones, user and system together.
    pub fn processor_time(&self) -> Result<Duration> {
        let id = nix::unistd::Pid::from_raw(i32::try_from(self.id())?);
        let time = clock_getcpuclockid(id).and_then(clock_gettime);
        Ok(time.with_context(|| format!("{} has no processor time", self.name))?.into())
    }

    /// Returns the processor time in seconds.
    pub fn processor_seconds(&self) -> Result<f64> {
        Ok(self.processor_time()?.as_secs_f64())
    }

    /// Returns the memory in use, in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        number.map(|kibibytes| kibibytes * 1024).context("the process has no memory")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_kept {
            self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_only_while_the_process_runs() {
        let folder = std::env::temp_dir();
        let name = format!("weir-busy-{}", std::process::id());
        let arguments = ["-c", "while :; do :; done"].map(str::to_owned);
        let mut process = Process::start(&name, &folder, "sh", &arguments).unwrap();
        let used = |process: &Process| process.processor_time().unwrap();
        process.wait_until(|process| used(process) > Duration::from_millis(20)).unwrap();
        process.signal(Signal::STOP);
        let state = format!("/proc/{}/stat", process.id());
        process.wait_until(|_| std::fs::read_to_string(&state).unwrap().contains(") T ")).unwrap();
        assert_eq!(used(&process), used(&process));
        drop(process);
        std::fs::remove_file(folder.join(format!("{name}.log"))).unwrap();
    }

    #[test]
    fn process_ends_with_its_guard() {
        let folder = std::env::temp_dir();
        let name = format!("weir-sleep-{}", std::process::id());
        let process = Process::start(&name, &folder, "sleep", &["60".to_owned()]).unwrap();
        let path = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(path.exists());
        drop(process);
        assert!(!path.exists());
        std::fs::remove_file(folder.join(format!("{name}.log"))).unwrap();
    }
}
