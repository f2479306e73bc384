//! A Docker engine with a folder of its own, and an image of this machine's fio and busybox.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::program::path;
use crate::wait::wait_until;

/// Name of the image.
pub const IMAGE: &str = "weir-test/fio";
/// Folder where every Docker engine looks for plugins.
pub const PLUGINS: &str = "/run/docker/plugins";
/// Programs that an engine and its image need.
pub const PROGRAMS: [&str; 5] = ["dockerd", "docker", "fio", "busybox", "tar"];

/// A Docker engine.
pub struct Engine {
    folder: PathBuf,
    process: Option<Child>,
    more: Vec<String>,
}

impl Engine {
    /// Starts an engine in a folder, with more options, and makes the image.
    ///
    /// # Panics
    /// If a program fails.
    pub fn start(folder: &Path, more: &[&str]) -> Engine {
        Engine::try_start(folder, more).unwrap_or_else(|why| panic!("dockerd has ended: {why}"))
    }

    /// Starts an engine as [`Engine::start`] does, where it can run.
    ///
    /// # Errors
    /// The end of its log, if it ends at once.
    ///
    /// # Panics
    /// If another program fails.
    pub fn try_start(folder: &Path, more: &[&str]) -> Result<Engine, String> {
        let more = more.iter().map(|option| (*option).to_owned()).collect();
        let mut engine = Engine { folder: folder.to_owned(), process: None, more };
        fs::create_dir_all(folder).expect("the folder can be created");
        engine.try_begin()?;
        engine.import();
        Ok(engine)
    }

    /// Starts the engine on what an earlier one left.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn begin(&mut self) {
        self.try_begin().unwrap_or_else(|why| panic!("dockerd has ended: {why}"));
    }

    fn try_begin(&mut self) -> Result<(), String> {
        let place = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new(path("dockerd"));
        command.args(["--iptables=false", "--bridge=none", "--storage-driver=vfs", "-H", &self.socket()]);
        command.args([
            "--data-root",
            &place("data"),
            "--exec-root",
            &place("exec"),
            "--pidfile",
            &place("pid"),
        ]);
        let log = File::options().append(true).create(true).open(place("log")).expect("a log can be written");
        command.args(&self.more).stdout(Stdio::null()).stderr(log);
        let mut process = command.spawn().expect("dockerd can be started");
        let mut has_ended = false;
        wait_until("the engine answers", || {
            has_ended = process.try_wait().is_ok_and(|status| status.is_some());
            has_ended || self.run(&["version"]).status.success()
        });
        self.process = Some(process).filter(|_| !has_ended);
        if has_ended { Err(self.last_line()) } else { Ok(()) }
    }

    fn last_line(&self) -> String {
        self.log_end().lines().last().unwrap_or_default().to_owned()
    }

    /// Kills the engine as a crash would.
    ///
    /// # Panics
    /// If it is killed already.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the engine runs");
        process.kill().expect("it can be killed");
        process.wait().expect("it has ended");
        // Where nobody collects ended processes, the next engine would take them for running ones.
        for name in ["pid", "exec/containerd/containerd.pid"] {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    /// A command of the engine's client.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(path("docker"));
        command.args(["-H", &self.socket()]).args(arguments);
        command
    }

    /// Runs a command of the engine's client to its end.
    ///
    /// # Panics
    /// If the client cannot be started.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().expect("docker can be started")
    }

    /// The last lines of the engine's log.
    pub fn log_end(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn socket(&self) -> String {
        format!("unix://{}", self.folder.join("docker.sock").display())
    }

    /// Makes the image. The programs have the same paths in it as on this machine.
    fn import(&self) {
        let root = self.folder.join("root");
        for program in ["fio", "busybox"] {
            let program = path(program);
            let libraries = Command::new("ldd").arg(&program).output().expect("ldd can be started");
            let libraries = String::from_utf8_lossy(&libraries.stdout).into_owned();
            let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
            for file in libraries.chain([program.as_str()]).map(Path::new) {
                let into = root.join(file.strip_prefix("/").expect("it is an absolute path"));
                fs::create_dir_all(into.parent().expect("it lies in a folder")).expect("it can be created");
                fs::copy(file, into).expect("a program can be copied");
            }
        }
        let archive = self.folder.join("root.tar").display().to_string();
        let packed = Command::new(path("tar")).arg("-C").arg(&root).args(["-cf", &archive, "."]).status();
        assert!(packed.is_ok_and(|status| status.success()), "tar failed");
        let imported = self.run(&["import", &archive, IMAGE]);
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let containers = self.run(&["ps", "--all", "--quiet"]).stdout;
        for container in String::from_utf8_lossy(&containers).split_whitespace() {
            self.run(&["rm", "--force", container]);
        }
        if let Some(mut process) = self.process.take() {
            let _ = Command::new("kill").arg(process.id().to_string()).status();
            let _ = process.wait();
        }
        // Containers whose engine did not end them, and what they have mounted.
        let folder = self.folder.display().to_string();
        let _ = Command::new("pkill").args(["-9", "-f", &format!("containerd-shim.*{folder}")]).status();
    }
}
