//! Clone of the committed tree, with a build folder of its own, in which faults are planted.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Longest run of a command that must catch a fault. A command that a fault makes hang has not caught it.
const COMMAND_LIMIT: Duration = Duration::from_secs(15 * 60);
/// Pause between two checks of a running command.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Result of a cargo command.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command built and passed.
    Passed,
    /// The command built and failed.
    Failed,
    /// The command did not end in time.
    Hung,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Outcome::Passed => "passes",
            Outcome::Failed => "fails",
            Outcome::Hung => "does not end",
        })
    }
}

/// Clone of the repository.
pub struct Clone {
    tree: PathBuf,
    build: PathBuf,
}

impl Clone {
    /// Creates the clone in `target/sabotage`, or updates it to the current commit.
    ///
    /// # Errors
    /// If git fails.
    pub fn of_head(root: &Path) -> Result<Clone> {
        let folder = root.join("target/sabotage");
        let (tree, build) = (folder.join("tree"), folder.join("build"));
        std::fs::create_dir_all(&folder)?;
        if !tree.join(".git").exists() {
            git(&folder, &["clone", "--quiet", "--shared", &root.to_string_lossy(), "tree"])?;
        }
        git(&tree, &["fetch", "--quiet", "origin", "HEAD"])?;
        git(&tree, &["checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"])?;
        git(&tree, &["clean", "--quiet", "--force", "-d"])?;
        Ok(Clone { tree, build })
    }

    /// Plants a fault.
    ///
    /// # Errors
    /// If the patch does not fit the tree any more.
    pub fn apply(&self, patch: &str) -> Result<()> {
        let mut command = Command::new("git");
        command.args(["apply", "-"]).current_dir(&self.tree).stdin(Stdio::piped());
        let mut child = command.spawn().context("cannot run git")?;
        child.stdin.take().expect("its input is a pipe").write_all(patch.as_bytes())?;
        if !child.wait()?.success() {
            bail!("the patch does not fit the tree: make it anew");
        }
        Ok(())
    }

    /// Removes a planted fault.
    ///
    /// # Errors
    /// If git fails.
    pub fn restore(&self) -> Result<()> {
        git(&self.tree, &["checkout", "--quiet", "--force", "."])
    }

    /// Builds a cargo command separately and then runs it. A tree that does not compile catches nothing.
    ///
    /// # Errors
    /// If the command cannot be built or started.
    pub fn cargo(&self, arguments: &[String]) -> Result<Outcome> {
        let mut command = self.command("build.log")?;
        command.args(build_of(arguments));
        if !command.status().context("cannot run cargo")?.success() {
            let log = self.build.with_file_name("build.log");
            bail!("cargo {} does not build: see {}", arguments.join(" "), log.display());
        }
        let child = self.command("run.log")?.args(arguments).spawn().context("cannot run cargo")?;
        wait(child)
    }

    fn command(&self, log: &str) -> Result<Command> {
        let output = std::fs::File::create(self.build.with_file_name(log))?;
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.build).env_remove("WEIR_BINARY");
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(command)
    }
}

/// Returns the cargo command that builds another cargo command's programs. Programs that xtask builds itself
/// consist of the daemon's crates.
fn build_of(arguments: &[String]) -> Vec<&str> {
    let own = arguments.iter().map(String::as_str).take_while(|argument| *argument != "--");
    match arguments.first().map(String::as_str) {
        Some("xtask") => vec!["build", "--package", "weir", "--package", "xtask"],
        Some("run") => std::iter::once("build").chain(own.skip(1)).collect(),
        _ => own.chain(["--no-run"]).collect(),
    }
}

fn wait(mut child: Child) -> Result<Outcome> {
    let start = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(if status.success() { Outcome::Passed } else { Outcome::Failed }),
            None if start.elapsed() > COMMAND_LIMIT => {
                child.kill()?;
                child.wait()?;
                return Ok(Outcome::Hung);
            }
            None => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    let status =
        Command::new("git").args(arguments).current_dir(folder).status().context("cannot run git")?;
    if !status.success() {
        bail!("git {} failed in {}", arguments.join(" "), folder.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(command: &str) -> String {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        build_of(&words).join(" ")
    }

    #[test]
    fn commands_are_built_without_being_run() {
        assert_eq!(
            built("test -p weir-sim --test mirror moves"),
            "test -p weir-sim --test mirror moves --no-run"
        );
        assert_eq!(built("run -p weir-sim --example mirror -- 0 9"), "build -p weir-sim --example mirror");
        assert_eq!(built("xtask guest run"), "build --package weir --package xtask");
    }
}
