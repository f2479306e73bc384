//! Snapshots bench: snapshots of a volume of 100 GiB under a database-like load, and thirty of its clones in
//! use.
//!
//! The same load on reflinked plain files, without Weir, shows the best result that the filesystem allows.

mod clones;
mod plain;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::{GIB, Options};
use crate::numbers::percentile_us;
use crate::report::{Report, milliseconds, print_table};
use crate::repository::repository_root;
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Log, Outcome};
use crate::world::folder::Folder;
use crate::world::shared_disk::SharedDisk;

/// Capacity of the disk in bytes. It is less than the volumes' size, because volumes are thin.
const DISK_BYTES: u64 = 24 * GIB;
/// Bytes written of the large volume.
const WRITTEN_BYTES: u64 = 10 * GIB;
/// Bytes written of the other volume in its group: the whole area that the load uses.
const LOG_BYTES: u64 = GIB;
/// Longest delay that a snapshot may add to a write, in milliseconds.
const PAUSE_MS_MAX: f64 = 100.0;

/// Daemon on a disk with a filesystem that shares extents. The fields are dropped in order: the daemon ends
/// before the disk, and the disk before its folder. The mounted filesystem therefore need not be emptied.
struct Stage {
    daemon: Daemon,
    _disk: SharedDisk,
    folder: Folder,
}

impl Stage {
    fn new(options: &Options) -> Result<Stage> {
        let folder = Folder::on_disk(options.disk.as_deref(), &repository_root(), "weir-bench-snapshots")?;
        let disk = SharedDisk::new(&folder.path().join("disk"), DISK_BYTES)?;
        let daemon = Daemon::start(&options.binary, &folder.path().join("state"), &[])?;
        let device = disk.path().display();
        daemon.run(&format!("drive add {device} --format --name disk --class high --no-measurement"))?;
        Ok(Stage { daemon, _disk: disk, folder })
    }

    fn load(&self, volume: &str, size_bytes: u64) -> Load {
        Load::new(volume.replace('/', "-"), self.daemon.volume(volume), size_bytes)
    }

    /// Creates a volume of `size` GiB and writes `written_bytes` of it.
    fn create(&self, volume: &str, size: u32, written_bytes: u64) -> Result<()> {
        self.daemon.run(&format!("volume create {volume} --size {size} --io-priority high"))?;
        let fill = Load::fill(format!("fill-{volume}"), self.daemon.volume(volume), written_bytes);
        fill.run(self.folder.path()).map(drop)
    }
}

/// Measures clones, snapshots and plain files.
pub fn run(options: &Options) -> Result<Report> {
    let written = if options.is_quick { GIB } else { WRITTEN_BYTES };
    let mut report = Report::new("snapshots");
    clones::work_on_clones(options, written, &mut report)?;
    let seconds = if options.is_quick { [5, 5] } else { [20, 60] };
    let weir = snapshot_volumes(options, written, seconds, &mut report)?;
    let plain = plain::reflink_files(options, written, seconds)?;
    let rows = [("volumes", &weir), ("plain files", &plain)].map(|(what, course)| course.rows(what));
    print_table(&["data", "writes/s", "p50", "p99", "longest", "snapshots"], rows.into_iter().flatten());
    report.row(json!({"volumes": weir.to_json(), "plain_files": plain.to_json()}));
    weir.claim(&mut report);
    Ok(report)
}

fn clone_large(stage: &Stage, report: &mut Report) -> Result<()> {
    let began = Instant::now();
    stage.daemon.run("volume clone data twin")?;
    let seconds = began.elapsed().as_secs_f64();
    stage.daemon.run("volume delete twin --wait")?;
    report.row(json!({"clone_seconds": seconds}));
    report.claim("a clone of 100 GiB is ready within a second", format!("{seconds:.2} s"), seconds <= 1.0);
    Ok(())
}

/// Results of the first of two loads: alone, and with a snapshot of both volumes every second.
struct Course {
    quiet: Outcome,
    busy: Outcome,
    snapshots: u32,
    slowest_ms: f64,
}

impl Course {
    /// Runs random writes with a flush after each eighth write.
    ///
    /// They run first alone and then while `snapshot`, which receives a number, is called every second.
    fn run(
        folder: &Path,
        [data, log]: [Load; 2],
        [quiet_seconds, busy_seconds]: [u64; 2],
        snapshot: impl Fn(u32) -> Result<()>,
    ) -> Result<Course> {
        let load = |load: Load, seconds: u64, log: Log| {
            let extra = [load.extra, vec!["--fsync=8".to_owned()]].concat();
            Load { pattern: "randwrite", depth: 4, seconds, log, extra, ..load }
        };
        let write_both = |seconds: u64, meanwhile: &mut dyn FnMut() -> Result<()>| {
            let other = load(log.clone(), seconds, Log::None).start(folder)?;
            let logged = load(data.clone(), seconds, Log::SinceStart).start(folder)?;
            meanwhile()?;
            let outcome = logged.finish()?;
            other.finish()?;
            anyhow::Ok(outcome)
        };
        let quiet = write_both(quiet_seconds, &mut || Ok(()))?;
        let (mut snapshots, mut slowest_ms) = (0, 0.0_f64);
        let busy = write_both(busy_seconds, &mut || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(busy_seconds) {
                let start = Instant::now();
                snapshot(snapshots)?;
                slowest_ms = slowest_ms.max(start.elapsed().as_secs_f64() * 1e3);
                snapshots += 1;
                std::thread::sleep(Duration::from_secs(1).saturating_sub(start.elapsed()));
            }
            Ok(())
        })?;
        Ok(Course { quiet, busy, snapshots, slowest_ms })
    }

    fn rows(&self, what: &str) -> [Vec<String>; 2] {
        let row = |name: String, outcome: &Outcome, snapshots: String| {
            let of = |per_cent| format!("{} ms", milliseconds(percentile_us(&outcome.completions, per_cent)));
            let longest = format!("{:.1} ms", longest_ms(outcome));
            vec![name, format!("{:.0}", outcome.iops), of(50), of(99), longest, snapshots]
        };
        let snapshots = format!("{}, at most {:.0} ms", self.snapshots, self.slowest_ms);
        [
            row(format!("{what}, alone"), &self.quiet, "-".to_owned()),
            row(format!("{what}, a snapshot every second"), &self.busy, snapshots),
        ]
    }

    fn to_json(&self) -> Value {
        json!({
            "snapshots": self.snapshots, "slowest_snapshot_ms": self.slowest_ms,
            "longest_write_ms": {"alone": longest_ms(&self.quiet), "with_snapshots": longest_ms(&self.busy)},
            "writes_per_second": {"alone": self.quiet.iops, "with_snapshots": self.busy.iops},
        })
    }

    fn claim(&self, report: &mut Report) {
        let (count, slowest_ms) = (self.snapshots, self.slowest_ms);
        let what = format!("{count} snapshots of the group: none takes longer than its second");
        report.claim(what, format!("{slowest_ms:.0} ms at most"), slowest_ms <= 1000.0);
        let (quiet_ms, busy_ms) = (longest_ms(&self.quiet), longest_ms(&self.busy));
        let what = format!("no write waits longer than {PAUSE_MS_MAX} ms more than without");
        report.claim(
            what,
            format!("{busy_ms:.1} ms, {quiet_ms:.1} ms alone"),
            busy_ms <= quiet_ms + PAUSE_MS_MAX,
        );
    }
}

fn longest_ms(outcome: &Outcome) -> f64 {
    let longest_ns = outcome.completions.iter().map(|completion| completion.latency_ns).max();
    longest_ns.unwrap_or(0) as f64 / 1e6
}

/// Takes snapshots of a group of a large volume and a small one.
fn snapshot_volumes(
    options: &Options,
    written: u64,
    seconds: [u64; 2],
    report: &mut Report,
) -> Result<Course> {
    let stage = Stage::new(options)?;
    stage.create("data", 100, written)?;
    stage.create("log", 8, LOG_BYTES)?;
    clone_large(&stage, report)?;
    let loads = [stage.load("data", written), stage.load("log", LOG_BYTES)];
    let snapshot =
        |number: u32| stage.daemon.run(&format!("snapshot create s{number} --group data,log")).map(drop);
    Course::run(stage.folder.path(), loads, seconds, snapshot)
}
