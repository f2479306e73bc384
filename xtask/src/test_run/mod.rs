//! All tests (`cargo xtask test`): builds them once, and then runs two test programs at a time.
//!
//! cargo runs test programs one after the other. Those of the daemon wait most of the time, while those of the
//! simulator compute: side by side they take about the time of the longer ones. The guest cases keep all cores
//! busy by themselves, and run last.

mod job;
pub mod programs;

use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::arguments::Arguments;
use crate::repository::{repository_root, target_folder};
use crate::world::side_by_side::work_on;
use job::{Job, Outcome};

/// Jobs that run at once.
const JOBS_AT_ONCE: usize = 2;
/// Jobs that take minutes. They begin first, so that none of them runs alone at the end.
const LONG_JOBS: [&str; 3] = ["weir daemon", "weir-sim mirror", "weir-sim journal"];

/// Builds and runs all tests. All of them run, even if one fails.
pub fn run(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    let root = repository_root();
    let built = programs::build(&root)?;
    let folder = target_folder().join("tests");
    std::fs::create_dir_all(&folder)?;
    let mut jobs: Vec<Job> = built.programs.iter().map(Job::of_program).collect();
    jobs.push(Job::documentation(&root));
    let guest = Job::guest(&root, &built.daemon)?;
    let count = jobs.len() + 1;
    let mut failed = run_all(in_order(jobs), &folder);
    failed.extend(run_all([guest].into(), &folder));
    if failed.is_empty() {
        println!("{count} of {count} test programs pass");
        return Ok(());
    }
    // The end of a long log is what a reader sees first.
    failed.iter().flat_map(|failed| &failed.causes).for_each(|cause| println!("{cause}"));
    let names: Vec<_> = failed.into_iter().map(|failed| failed.name).collect();
    bail!("{} of {count} test programs fail: {}", names.len(), names.join(", "))
}

/// A job that failed.
struct Failed {
    name: String,
    /// A line for each test of it that failed.
    causes: Vec<String>,
}

/// Puts the long jobs first.
fn in_order(mut jobs: Vec<Job>) -> Vec<Job> {
    let rank = |job: &Job| LONG_JOBS.iter().position(|long| *long == job.name).unwrap_or(LONG_JOBS.len());
    jobs.sort_by_key(rank);
    jobs
}

/// Runs the jobs, some at once, and reports each as it ends. Returns those that fail.
fn run_all(jobs: Vec<Job>, folder: &Path) -> Vec<Failed> {
    let failed = Mutex::new(Vec::new());
    work_on(jobs, JOBS_AT_ONCE, &|job: Job| {
        let begun = Instant::now();
        let outcome = job.run(folder).unwrap_or_else(|error| Outcome::failed(format!("{error:#}")));
        println!("{}", report(&job.name, &outcome, begun.elapsed().as_secs()));
        if !outcome.is_passed {
            let (name, causes) = (job.name, outcome.causes());
            failed.lock().expect("nobody panics with the list in hand").push(Failed { name, causes });
        }
    });
    failed.into_inner().expect("nobody panics with the list in hand")
}

/// Returns a line for a passed job, and all output of a failed one.
fn report(name: &str, outcome: &Outcome, seconds: u64) -> String {
    match outcome.is_passed {
        true => format!("pass  {name}: {} ({seconds} s)", outcome.summary()),
        false => format!("{}\nFAIL  {name} ({seconds} s)", outcome.output.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        Job::new(name.to_owned(), "sh".into(), &["-c", script], Path::new("."))
    }

    #[test]
    fn all_jobs_run_and_failed_ones_are_named() {
        let folder = std::env::temp_dir().join(format!("xtask-tests-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let jobs = [shell("one", "exit 1"), shell("two", "echo fine"), shell("three", "no-such-program")];
        let failed = run_all(jobs.into(), &folder);
        let mut failed: Vec<_> = failed.into_iter().map(|failed| failed.name).collect();
        failed.sort();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(failed, ["one", "three"]);
    }

    #[test]
    fn long_jobs_begin_first() {
        let jobs = ["weir-qos", "weir-sim mirror", "weir daemon"].map(|name| shell(name, "")).into();
        let names: Vec<_> = in_order(jobs).into_iter().map(|job| job.name).collect();
        assert_eq!(names, ["weir daemon", "weir-sim mirror", "weir-qos"]);
    }

    #[test]
    fn output_is_shown_of_failures_only() {
        let outcome =
            |is_passed| Outcome { is_passed, output: "test result: ok. 3 passed; 0 failed".to_owned() };
        assert_eq!(report("a", &outcome(true), 7), "pass  a: 3 passed (7 s)");
        assert!(report("a", &outcome(false), 7).starts_with("test result"));
    }
}
