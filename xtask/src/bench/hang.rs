//! Hang bench: latency of API reads, and of changes on other drives, while changes and writes wait for a hung
//! drive.
//!
//! The same is measured while the drive answers. Block status needs a drive that hangs below the filesystem,
//! which only a guest has (`cargo xtask guest`).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{MIB, Options, Stage};
use crate::report::{Report, print_table};
use crate::world::http;
use crate::world::shared_disk::SharedDisk;
use crate::world::tools;

/// Size of the hanging drive in bytes: the minimum of XFS.
const DRIVE_BYTES: u64 = 300 * MIB;
/// Number of changes that wait for the drive: more than the daemon's answering threads.
const WAITING: usize = 12;
/// Largest difference between the longest answers with and without the hang.
const DELAY_MAX: Duration = Duration::from_millis(100);
/// Longest time until a change waits for the drive.
const TIMEOUT: Duration = Duration::from_secs(20);
/// API paths that are read.
const READS: [&str; 9] = [
    "/v1/tenants",
    "/v1/volumes",
    "/v1/tenants/default/volumes/held",
    "/v1/status",
    "/v1/drives",
    "/v1/drives/hanging",
    "/v1/pools",
    "/v1/statistics/volumes",
    "/metrics",
];

/// Longest answer of each kind.
#[derive(Clone, Copy, Default)]
struct Longest {
    read: Duration,
    change: Duration,
}

/// Filesystem that can be made to hang, and answers again when dropped.
struct HangingDrive {
    point: PathBuf,
    // This field comes last: dropping it unmounts the filesystem.
    _disk: SharedDisk,
}

impl HangingDrive {
    fn mount(folder: &Path) -> Result<HangingDrive> {
        let disk = SharedDisk::new(&folder.join("disk"), DRIVE_BYTES)?;
        let (device, point) = (disk.path().to_string_lossy().into_owned(), folder.join("hanging"));
        std::fs::create_dir_all(&point)?;
        tool("mkfs.xfs", &["-q", &device])?;
        tool("mount", &[&device, &point.to_string_lossy()])?;
        Ok(HangingDrive { point, _disk: disk })
    }

    fn hang(&self) -> Result<()> {
        tool("fsfreeze", &["--freeze", &self.point.to_string_lossy()])
    }

    fn answer(&self) -> Result<()> {
        tool("fsfreeze", &["--unfreeze", &self.point.to_string_lossy()])
    }
}

impl Drop for HangingDrive {
    fn drop(&mut self) {
        // The drive may not be hanging.
        let _ = self.answer();
    }
}

/// Measures while the drive answers and while it hangs.
pub fn run(options: &Options) -> Result<Report> {
    tools::require(&["mkfs.xfs", "mount", "fsfreeze"])?;
    let mut stage = Stage::in_memory(options, "hang")?;
    let drive = HangingDrive::mount(stage.folder.path())?;
    let free = stage.folder.path().join("free");
    std::fs::create_dir_all(&free)?;
    for path in [&drive.point, &free] {
        stage.daemon.run(&format!("drive add {} --no-measurement", path.display()))?;
    }
    stage.daemon.run("volume create held --size 1 --drive hanging")?;
    stage.daemon.run("volume create own --size 1 --drive free")?;
    let rounds = if options.is_quick { 5 } else { 50 };
    let answering = longest(&stage, rounds)?;
    let hanging = while_hanging(&mut stage, options, &drive, rounds)?;
    Ok(judge(answering, hanging))
}

/// Returns the longest answers while the drive hangs and changes and writes wait for it.
fn while_hanging(
    stage: &mut Stage,
    options: &Options,
    drive: &HangingDrive,
    rounds: usize,
) -> Result<Longest> {
    drive.hang()?;
    let mut waiting = Vec::new();
    for number in 0..WAITING {
        waiting.push(create_held(stage, options, number)?);
    }
    let process = stage.daemon.process().id();
    wait_for_a_waiting_thread(process)?;
    let found = longest(stage, rounds)?;
    let is_waiting = waiting_threads(process) > 0;
    drive.answer()?;
    for mut child in waiting {
        ensure!(child.wait()?.success(), "a change that waited for the drive failed");
    }
    ensure!(is_waiting, "the drive answered meanwhile");
    Ok(found)
}

/// Begins to create a volume on the hanging drive.
fn create_held(stage: &Stage, options: &Options, number: usize) -> Result<Child> {
    let mut command = Command::new(&options.binary);
    command.env("WEIR_SERVER", stage.daemon.server()).stdout(Stdio::null()).stdin(Stdio::null());
    let name = format!("held{number}");
    command.args(["volume", "create", &name, "--size", "1", "--drive", "hanging"]);
    command.spawn().context("cannot run weir")
}

/// Reads everything and changes objects on the other drive, repeatedly.
fn longest(stage: &Stage, rounds: usize) -> Result<Longest> {
    let socket = stage.folder.path().join("state/api.sock");
    let mut longest = Longest::default();
    for round in 0..rounds {
        for path in READS {
            longest.read = longest.read.max(http::get(&socket, path)?.1);
        }
        let size = 2 + round % 2;
        for change in [
            format!("volume resize own --size {size} --force"),
            "snapshot create own@once".to_owned(),
            "snapshot delete own@once".to_owned(),
        ] {
            let started = Instant::now();
            stage.daemon.run(&change)?;
            longest.change = longest.change.max(started.elapsed());
        }
    }
    Ok(longest)
}

fn judge(answering: Longest, hanging: Longest) -> Report {
    let mut report = Report::new("hang");
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let mut rows = Vec::new();
    for (what, answering, hanging) in [
        ("reads of the API", answering.read, hanging.read),
        ("changes of other drives", answering.change, hanging.change),
    ] {
        let delay = hanging.saturating_sub(answering);
        rows.push(vec![what.to_owned(), format!("{:.1}", ms(answering)), format!("{:.1}", ms(hanging))]);
        report.row(json!({"what": what, "answering_ms": ms(answering), "hanging_ms": ms(hanging)}));
        let limit = DELAY_MAX.as_millis();
        let claim = format!("{what}: delayed by a hanging drive by at most {limit} ms");
        report.claim(claim, format!("{:.1} ms", ms(delay)), delay <= DELAY_MAX);
    }
    print_table(&["longest, ms", "drive answers", "drive hangs"], rows);
    report
}

fn wait_for_a_waiting_thread(process: u32) -> Result<()> {
    let begun = Instant::now();
    while waiting_threads(process) == 0 {
        ensure!(begun.elapsed() < TIMEOUT, "nothing waits for the drive");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns the number of threads of a process that wait for a device.
fn waiting_threads(process: u32) -> usize {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let waits = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        status.rsplit(") ").next()?.starts_with('D').then_some(())
    };
    tasks.filter_map(waits).count()
}

fn tool(program: &str, arguments: &[&str]) -> Result<()> {
    let path = tools::find(program).with_context(|| format!("no {program}"))?;
    let output =
        Command::new(path).args(arguments).output().with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
