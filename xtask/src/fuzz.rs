//! Fuzzing (`cargo xtask fuzz`): runs the fuzz targets of `fuzz`, and prints one line for each.
//!
//! The targets are built as cargo-fuzz builds them, but without its program and without a sanitizer of
//! addresses: the decoders have no unsafe code. Whatever a run learns stays in the corpus below the target folder.

use std::fs::{self, File};
use std::io::{IsTerminal, Write, stdout};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::arguments::Arguments;
use crate::repository::{repository_root, target_folder};

/// Executions of each target, unless the command line says otherwise.
const EXECUTIONS: u64 = 1_000_000;
/// Memory of a target, in MiB. A decoder that takes more for an input of a few kilobytes is at fault.
const MEMORY_MIB: u32 = 1024;
/// Time of one execution, in seconds. Past that, the input counts as one that hangs the decoder.
const EXECUTION_SECONDS: u32 = 10;
/// Platform of the targets. With a platform of its own, no program of the build is instrumented.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// Targets that know the words of the NBD protocol.
const NBD_TARGETS: [&str; 2] = ["handshake", "requests"];

/// Flags of the compiler: counters in all code, compared values, and what the fuzzer reports of them.
const FLAGS: [&str; 8] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
    "-Ccodegen-units=1",
];

/// Builds and runs all targets, or one. Fails if one fails.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let executions = arguments.option("--executions")?.map(|text| text.parse()).transpose();
    let executions = executions.context("--executions takes a number")?.unwrap_or(EXECUTIONS);
    let wanted = arguments.word();
    arguments.finish()?;
    let root = repository_root();
    let targets = chosen(targets(&root)?, wanted.as_deref())?;
    let folder = target_folder().join("fuzz");
    build(&root, &folder, &targets)?;
    println!("{:<20} {:>10} {:>12} {:>8}  result", "target", "executions", "executions/s", "coverage");
    let mut failed = Vec::new();
    for target in &targets {
        show_progress(target)?;
        let outcome = execute(&root, &folder, target, executions)?;
        println!("{}", outcome.line(target));
        if !outcome.is_passed(executions) {
            failed.push(target.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}; the inputs are in {}", failed.join(", "), folder.join("artifacts").display());
    }
    Ok(())
}

/// Names of all targets: each is a file.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    Ok(names)
}

fn chosen(all: Vec<String>, wanted: Option<&str>) -> Result<Vec<String>> {
    match wanted {
        None => Ok(all),
        Some(wanted) if all.iter().any(|name| name == wanted) => Ok(vec![wanted.to_owned()]),
        Some(wanted) => bail!("no target is named '{wanted}'; these are: {}", all.join(", ")),
    }
}

fn build(root: &Path, folder: &Path, targets: &[String]) -> Result<()> {
    let status = Command::new("rustup")
        .args(["run", "nightly", "cargo", "build", "--release", "--quiet", "--target", PLATFORM])
        .arg("--manifest-path")
        .arg(root.join("fuzz/Cargo.toml"))
        .arg("--target-dir")
        .arg(folder)
        .args(targets.iter().flat_map(|target| ["--bin", target]))
        .env("RUSTFLAGS", FLAGS.join(" "))
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .status()
        .context("cannot run rustup")?;
    ensure!(
        status.success(),
        "the targets cannot be built; 'rustup toolchain install nightly' may be missing"
    );
    Ok(())
}

/// Names the target that runs, until its line replaces the name.
fn show_progress(target: &str) -> Result<()> {
    if stdout().is_terminal() {
        print!("{target} …\r");
        stdout().flush()?;
    }
    Ok(())
}

fn execute(root: &Path, folder: &Path, target: &str, executions: u64) -> Result<Outcome> {
    let (corpus, artifacts) = (folder.join("corpus").join(target), folder.join("artifacts"));
    let log = folder.join(format!("{target}.log"));
    for path in [&corpus, &artifacts] {
        fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    let mut command = Command::new(folder.join(PLATFORM).join("release").join(target));
    command.arg(&corpus).arg(format!("-runs={executions}")).arg("-print_final_stats=1");
    command.arg(format!("-rss_limit_mb={MEMORY_MIB}")).arg(format!("-timeout={EXECUTION_SECONDS}"));
    command.arg(format!("-artifact_prefix={}/{target}-", artifacts.display()));
    if NBD_TARGETS.contains(&target) {
        command.arg(format!("-dict={}", root.join("fuzz/nbd.dict").display()));
    }
    let file = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).status();
    let status = status.with_context(|| format!("cannot run {target}"))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    Ok(Outcome { is_success: status.success(), ..Outcome::read(&text) })
}

/// Result of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    is_success: bool,
    executions: u64,
    executions_per_second: u64,
    /// Places in the code that were reached.
    coverage: u64,
    /// The fault in the fuzzer's words.
    fault: Option<String>,
}

impl Outcome {
    /// Reads the fuzzer's report.
    fn read(report: &str) -> Outcome {
        let statistic = |name: &str| {
            let line = report.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        let coverage = report.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip_while(|word| *word != "cov:");
            words.nth(1)?.parse::<u64>().ok()
        });
        let is_fault = |line: &&str| line.contains("panicked at") || line.starts_with("SUMMARY: ");
        Outcome {
            is_success: false,
            executions: statistic("stat::number_of_executed_units:"),
            executions_per_second: statistic("stat::average_exec_per_sec:"),
            coverage: coverage.max().unwrap_or(0),
            fault: report.lines().find(is_fault).map(str::to_owned),
        }
    }

    fn is_passed(&self, executions: u64) -> bool {
        self.is_success && self.executions >= executions
    }

    fn line(&self, target: &str) -> String {
        let result = match (&self.fault, self.is_success) {
            (None, true) => "passed",
            (fault, _) => fault.as_deref().unwrap_or("failed"),
        };
        format!(
            "{target:<20} {:>10} {:>12} {:>8}  {result}",
            self.executions, self.executions_per_second, self.coverage
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "INFO: seed corpus: files: 3\n#4\tINITED cov: 80 ft: 81 corp: 1/1b\n\
        #1000\tDONE   cov: 312 ft: 700 corp: 61/2Kb\nDone 1000 runs in 2 second(s)\n\
        stat::number_of_executed_units: 1000\nstat::average_exec_per_sec:     500\n";

    #[test]
    fn report_of_the_fuzzer_is_read() {
        let outcome = Outcome { is_success: true, ..Outcome::read(REPORT) };
        assert_eq!((outcome.executions, outcome.executions_per_second, outcome.coverage), (1000, 500, 312));
        assert!(outcome.is_passed(1000) && !outcome.is_passed(1001));
        assert!(outcome.line("units").ends_with("1000          500      312  passed"));
        let fault = "thread '<unnamed>' panicked at crates/a.rs:1:2:";
        let failed = Outcome::read(&format!("{fault}\n{REPORT}"));
        assert!(!failed.is_passed(1000) && failed.line("units").ends_with(fault));
    }

    #[test]
    fn unknown_target_is_refused_with_known_names() {
        let all = || vec!["trace".to_owned(), "units".to_owned()];
        assert_eq!(chosen(all(), Some("units")).unwrap(), ["units"]);
        assert_eq!(chosen(all(), None).unwrap(), all());
        let error = chosen(all(), Some("unit")).unwrap_err().to_string();
        assert!(error.contains("'unit'") && error.contains("trace, units"), "{error}");
    }

    #[test]
    fn every_target_has_an_entry_in_the_manifest() {
        let root = repository_root();
        let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        let mut entries: Vec<&str> =
            manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")).collect();
        entries.sort_unstable();
        let files: Vec<String> = targets(&root).unwrap().iter().map(|name| format!("{name}.rs\"")).collect();
        assert_eq!(entries, files);
    }
}
