//! Job: a program of tests with its arguments, folder and environment, and its outcome.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::programs::Program;

/// Beginning of the line with which a test program ends.
const RESULT: &str = "test result: ok. ";
/// Beginning of the heading above what a failed test printed.
const TEST: &str = "---- ";
/// Words in the line before what a panic said.
const PANIC: &str = " panicked at ";
/// Longest cause, in characters.
const CAUSE_LENGTH_MAX: usize = 200;
/// Words before which a guest case's line says that it holds.
const HOLDS: &str = ": holds (";

/// Program to run.
pub struct Job {
    pub name: String,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
}

/// Result of a job, with everything that it printed.
pub struct Outcome {
    pub is_passed: bool,
    pub output: String,
}

impl Job {
    /// Creates a job that runs a program in a folder.
    pub fn new(name: String, program: PathBuf, arguments: &[&str], folder: &Path) -> Job {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Job { name, program, arguments, folder: folder.to_owned(), environment: Vec::new() }
    }

    /// Creates the job of a test program. cargo runs those in the folder of their package.
    pub fn of_program(program: &Program) -> Job {
        Job::new(program.name.clone(), program.path.clone(), &[], &program.folder)
    }

    /// Creates the job of the examples in the documentation of items.
    pub fn documentation(root: &Path) -> Job {
        let words = ["test", "--workspace", "--doc", "--quiet"];
        Job::new("documentation".to_owned(), env!("CARGO").into(), &words, root)
    }

    /// Creates the job of the guest cases, with the daemon that was built beside the tests.
    pub fn guest(root: &Path, daemon: &Path) -> Result<Job> {
        let program = std::env::current_exe().context("this program has no path")?;
        let environment = vec![("WEIR_BINARY", daemon.to_owned())];
        Ok(Job { environment, ..Job::new("guest".to_owned(), program, &["guest"], root) })
    }

    /// Runs the job to its end. Its output goes to a file in `logs`, and is returned.
    pub fn run(&self, logs: &Path) -> Result<Outcome> {
        let path = logs.join(self.name.replace(' ', "-")).with_extension("log");
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let status = command.status().with_context(|| format!("cannot run {}", self.program.display()))?;
        let output = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let output = String::from_utf8_lossy(&output).into_owned();
        Ok(Outcome { is_passed: status.success(), output })
    }
}

impl Outcome {
    /// Creates the outcome of a job that could not run.
    pub fn failed(why: String) -> Outcome {
        Outcome { is_passed: false, output: why }
    }

    /// Returns the number of tests that passed.
    pub fn summary(&self) -> String {
        let results = self.output.lines().filter_map(|line| line.strip_prefix(RESULT));
        let counts = results.filter_map(|result| result.split(' ').next()?.parse::<usize>().ok());
        let holding = self.output.lines().filter(|line| line.contains(HOLDS)).count();
        format!("{} passed", counts.sum::<usize>() + holding)
    }

    /// Returns a line for each test that failed: its name and the first line of what its panic said.
    pub fn causes(&self) -> Vec<String> {
        let mut causes = Vec::new();
        let mut test = None;
        let mut lines = self.output.lines();
        while let Some(line) = lines.next() {
            if let Some(heading) = line.strip_prefix(TEST) {
                test = heading.split(' ').next();
            } else if line.contains(PANIC)
                && let Some(test) = test.take()
            {
                let cause: String = lines.next().unwrap_or_default().chars().take(CAUSE_LENGTH_MAX).collect();
                causes.push(format!("{test}: {cause}"));
            }
        }
        causes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_of_all_kinds_are_counted() {
        let output =
            "test result: ok. 3 passed; 0 failed\ntest result: ok. 4 passed\nguest: ring: holds (2 s)\n";
        let outcome = Outcome { is_passed: true, output: output.to_owned() };
        assert_eq!(outcome.summary(), "8 passed");
    }

    #[test]
    fn failed_tests_have_the_first_line_of_their_panics_as_cause() {
        let output = "\n---- drives::a stdout ----\nlogged\n\nthread 'drives::a' (7) panicked at a.rs:1:2:\n\
                      assertion failed: x\nthread 'other' panicked at b.rs:1:2:\ny\n\n---- b stdout ----\nError\n";
        let outcome = Outcome { is_passed: false, output: output.to_owned() };
        assert_eq!(outcome.causes(), ["drives::a: assertion failed: x"]);
    }
}
