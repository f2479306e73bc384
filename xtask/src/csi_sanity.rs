//! The conformance test of CSI drivers (`cargo xtask csi-sanity`): csi-sanity of the Kubernetes project against `weir csi`.
//!
//! All specs run with filesystems, with block devices, and with filesystems while the daemon is killed midway. The
//! program is built from its Go module; Go must be there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::arguments::Arguments;
use crate::report::Report;
use crate::repository::{repository_root, target_folder};
use crate::world::daemon::Daemon;
use crate::world::folder::Folder;
use crate::world::process::Process;
use crate::world::tools;

/// The program as a Go module.
const MODULE: &str = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.6.0";
/// Specs after which the daemon is killed in the last run.
const SPECS_BEFORE_KILL: usize = 30;
/// Mark of a spec that has ended, in the output.
const ENDED: char = '•';
/// Size of volumes in the tests, and the size to which they grow, in bytes.
const VOLUME_BYTES: u64 = 128 << 20;
const GROWN_BYTES: u64 = 256 << 20;

/// How the specs run.
struct Round {
    name: &'static str,
    access_type: &'static str,
    is_daemon_killed: bool,
}

const ROUNDS: [Round; 3] = [
    Round { name: "filesystem", access_type: "mount", is_daemon_killed: false },
    Round { name: "block", access_type: "block", is_daemon_killed: false },
    Round { name: "filesystem, and the daemon is killed", access_type: "mount", is_daemon_killed: true },
];

/// What a run came to.
struct Outcome {
    /// The line of the program with its counts.
    summary: String,
    /// Specs that were skipped, with the reason.
    skipped: Vec<String>,
    /// Specs that failed.
    failed: Vec<String>,
}

/// Runs all rounds.
pub fn run(arguments: Arguments) -> Result<()> {
    arguments.finish()?;
    ensure!(rustix::process::geteuid().is_root(), "this needs root: volumes are attached and mounted");
    let root = repository_root();
    let (sanity, binary) = (build()?, tools::weir_binary(&root)?);
    let mut report = Report::new("csi-sanity");
    for round in &ROUNDS {
        println!("== {}", round.name);
        let outcome = run_round(round, &sanity, &binary)?;
        for spec in &outcome.skipped {
            println!("skipped: {spec}");
        }
        for spec in &outcome.failed {
            println!("failed: {spec}");
        }
        let holds = outcome.failed.is_empty() && outcome.summary.contains(" 0 Failed");
        report.claim(format!("{}: all specs pass", round.name), outcome.summary, holds);
    }
    report.finish(None)
}

/// Builds the program, unless it is there.
fn build() -> Result<PathBuf> {
    let folder = target_folder().join("csi");
    let program = folder.join("csi-sanity");
    if program.exists() {
        return Ok(program);
    }
    println!("building {MODULE}");
    let status = Command::new(tools::go()).args(["install", MODULE]).env("GOBIN", &folder).status();
    let status = status.context("cannot run go, which builds csi-sanity")?;
    if !status.success() {
        bail!("cannot build csi-sanity: {status}");
    }
    Ok(program)
}

fn run_round(round: &Round, sanity: &Path, binary: &Path) -> Result<Outcome> {
    let folder = Folder::in_memory("weir-csi-sanity")?;
    let state = folder.path().join("state");
    let mut daemon = Some(Daemon::start(binary, &state, &[])?);
    let attributes = folder.path().join("mutable.yaml");
    std::fs::write(&attributes, "policy_group: none\n")?;
    let server = format!("unix:{}", state.join("api.sock").display());
    let endpoint = format!("unix://{}", folder.path().join("csi.sock").display());
    let arguments = ["csi", "--server", &server, "--endpoint", &endpoint].map(str::to_owned);
    let mut driver = Process::start("driver", folder.path(), &binary.to_string_lossy(), &arguments)?;
    let socket = folder.path().join("csi.sock");
    driver.wait_until(|_| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
    let place = |name: &str| folder.path().join(name).display().to_string();
    let sanity_arguments = [
        format!("--csi.endpoint={endpoint}"),
        format!("--csi.mountdir={}", place("mount")),
        format!("--csi.stagingdir={}", place("staging")),
        format!("--csi.testvolumeaccesstype={}", round.access_type),
        format!("--csi.testvolumesize={VOLUME_BYTES}"),
        format!("--csi.testvolumeexpandsize={GROWN_BYTES}"),
        format!("--csi.testvolumemutableparameters={}", attributes.display()),
        "--ginkgo.v".to_owned(),
        "--ginkgo.no-color".to_owned(),
    ];
    let program = sanity.to_string_lossy();
    let mut sanity = Process::start("sanity", folder.path(), &program, &sanity_arguments)?;
    if round.is_daemon_killed {
        let ended = |output: &str| output.matches(ENDED).count();
        sanity.wait_until(|sanity| ended(&sanity.output()) >= SPECS_BEFORE_KILL)?;
        // Dropped, it is killed.
        drop(daemon.take());
        daemon = Some(Daemon::start(binary, &state, &[])?);
    }
    // Its status says only whether a spec failed, and the summary says which.
    let _ = sanity.wait(Duration::from_secs(600));
    unmount_all(folder.path());
    drop(daemon);
    read(&sanity.output())
}

/// Unmounts what a spec that failed has left, while the daemon still serves it.
fn unmount_all(folder: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
    for place in places.filter(|place| place.starts_with(folder)) {
        let _ = Command::new("umount").arg(place).status();
    }
}

/// Reads the output of the program.
fn read(output: &str) -> Result<Outcome> {
    let lines = || output.lines().map(str::trim);
    let summary = lines().rfind(|line| line.contains(" Passed | "));
    let summary = summary.with_context(|| format!("csi-sanity did not end: {}", last_lines(output)))?;
    let failed = lines().filter(|line| line.contains("[FAIL] ")).map(str::to_owned).collect();
    Ok(Outcome { summary: summary.to_owned(), skipped: skipped(output), failed })
}

/// The specs that were skipped: the name follows the mark, and the reason follows the name.
fn skipped(output: &str) -> Vec<String> {
    let mut lines = output.lines().map(str::trim);
    let mut found = Vec::new();
    while lines.by_ref().any(|line| line.starts_with("S [SKIPPED]")) {
        let name = lines.next().unwrap_or_default();
        let reason = lines.by_ref().find_map(|line| line.strip_prefix("[SKIPPED] ")).unwrap_or_default();
        found.push(format!("{name}: {reason}"));
    }
    found
}

fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_failures_are_read() {
        let output = "S [SKIPPED] [0.001 seconds]\nsome spec\nfile.go:7\n\n  [SKIPPED] no reason\n\
            [FAIL] Node Service NodePublishVolume [It] should fail\n\
            FAIL! -- 80 Passed | 1 Failed | 1 Pending | 21 Skipped\n";
        let outcome = read(output).unwrap();
        assert_eq!((outcome.failed.len(), &*outcome.skipped[0]), (1, "some spec: no reason"));
        assert!(outcome.summary.contains("| 1 Failed"));
        assert!(read("panic").is_err());
    }
}
