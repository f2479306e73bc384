//! Snapshots of a volume of 100 GiB under a database-like load, clones of it, and thirty of these at work beside it.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::{GIB, Options};
use crate::numbers::{median, percentile_us};
use crate::report::{Report, milliseconds, print_table};
use crate::repository::repository_root;
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Log, Outcome};
use crate::world::folder::Folder;
use crate::world::shared_disk::SharedDisk;

/// What the disk can hold: volumes are thin.
const DISK_BYTES: u64 = 24 * GIB;
/// What is written of the large volume.
const WRITTEN_BYTES: u64 = 10 * GIB;
/// Developers who each work on a clone, and what all of them may do together.
const CLONES: u32 = 30;
const CLONES_LIMIT: &str = "3000IOPS";
/// What nobody may be held up for by a snapshot.
const PAUSE_MS_MAX: f64 = 100.0;

/// A daemon on a disk that shares. The daemon ends before the disk does.
struct Stage {
    daemon: Daemon,
    folder: Folder,
    _disk: SharedDisk,
}

impl Stage {
    fn new(options: &Options) -> Result<Stage> {
        let folder = Folder::on_disk(options.disk.as_deref(), &repository_root(), "weir-bench-snapshots")?;
        let disk = SharedDisk::new(&folder.path().join("disk"), DISK_BYTES)?;
        let daemon = Daemon::start(&options.binary, &folder.path().join("state"), &[])?;
        let device = disk.path().display();
        daemon.run(&format!("drive add {device} --format --name disk --class high --no-measurement"))?;
        for (name, size) in [("data", 100), ("log", 8)] {
            daemon.run(&format!("volume create {name} --size {size} --io-priority high"))?;
        }
        Ok(Stage { daemon, folder, _disk: disk })
    }

    fn load(&self, volume: &str, size_bytes: u64) -> Load {
        Load::new(volume.replace('/', "-"), self.daemon.volume(volume), size_bytes)
    }

    fn fill(&self, volume: &str, bytes: u64) -> Result<()> {
        Load::fill(format!("fill-{volume}"), self.daemon.volume(volume), bytes)
            .run(self.folder.path())
            .map(drop)
    }
}

/// Measures it all.
pub fn run(options: &Options) -> Result<Report> {
    let stage = Stage::new(options)?;
    let written = if options.is_quick { GIB } else { WRITTEN_BYTES };
    stage.fill("data", written)?;
    stage.fill("log", GIB)?;
    let mut report = Report::new("snapshots");
    clone_large(&stage, &mut report)?;
    snapshot_under_load(&stage, options, written, &mut report)?;
    work_on_clones(&stage, options, written, &mut report)?;
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

/// Random writes, each eighth made stable, on both volumes of a group; without and with a snapshot of the group every
/// second.
fn snapshot_under_load(stage: &Stage, options: &Options, written: u64, report: &mut Report) -> Result<()> {
    let seconds = if options.is_quick { 5 } else { 60 };
    let quiet = write_both(stage, seconds, written, || Ok(()))?;
    let (mut count, mut slowest_ms) = (0, 0.0_f64);
    let began = Instant::now();
    let busy = write_both(stage, seconds, written, || {
        while began.elapsed() < Duration::from_secs(seconds) {
            let start = Instant::now();
            stage.daemon.run(&format!("snapshot create s{count} --group data,log"))?;
            slowest_ms = slowest_ms.max(start.elapsed().as_secs_f64() * 1e3);
            count += 1;
            std::thread::sleep(Duration::from_secs(1).saturating_sub(start.elapsed()));
        }
        Ok(())
    })?;
    let row = |name: &str, outcome: &Outcome| {
        let of = |per_cent| milliseconds(percentile_us(&outcome.completions, per_cent));
        vec![
            name.to_owned(),
            format!("{:.0}", outcome.iops),
            of(50),
            of(99),
            format!("{:.1} ms", longest_ms(outcome)),
        ]
    };
    print_table(
        &["data", "writes/s", "p50", "p99", "longest"],
        [row("alone", &quiet), row("with a snapshot of the group every second", &busy)],
    );
    let (quiet_ms, busy_ms) = (longest_ms(&quiet), longest_ms(&busy));
    report.row(json!({
        "snapshots": count, "slowest_snapshot_ms": slowest_ms,
        "longest_write_ms": {"alone": quiet_ms, "with_snapshots": busy_ms},
    }));
    let what = format!("{count} snapshots of the group: none takes longer than its second");
    report.claim(what, format!("{slowest_ms:.0} ms at most"), slowest_ms <= 1000.0);
    let what = format!("no write waits longer than {PAUSE_MS_MAX} ms more than without");
    report.claim(
        what,
        format!("{busy_ms:.1} ms, {quiet_ms:.1} ms alone"),
        busy_ms <= quiet_ms + PAUSE_MS_MAX,
    );
    (0..count).try_for_each(|number| {
        let delete = |volume| stage.daemon.run(&format!("snapshot delete {volume}@s{number}")).map(drop);
        delete("data").and_then(|()| delete("log"))
    })
}

/// What the load on the first volume of the group measured while something else went on.
fn write_both(
    stage: &Stage,
    seconds: u64,
    written: u64,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<Outcome> {
    let load = |volume: &str, bytes: u64, log: Log| Load {
        pattern: "randwrite",
        depth: 4,
        seconds,
        log,
        extra: vec!["--fsync=8".to_owned()],
        ..stage.load(volume, bytes)
    };
    let log = load("log", GIB, Log::None).start(stage.folder.path())?;
    let data = load("data", written, Log::SinceStart).start(stage.folder.path())?;
    meanwhile()?;
    let outcome = data.finish()?;
    log.finish()?;
    Ok(outcome)
}

fn longest_ms(outcome: &Outcome) -> f64 {
    let longest_ns = outcome.completions.iter().map(|completion| completion.latency_ns).max();
    longest_ns.unwrap_or(0) as f64 / 1e6
}

/// The volume alone, and while thirty clones of it do all that their policy lets them.
fn work_on_clones(stage: &Stage, options: &Options, written: u64, report: &mut Report) -> Result<()> {
    let (rounds, seconds) = if options.is_quick { (1, 2) } else { (5, 8) };
    let limit = format!("qos policy-group create dev -max-throughput {CLONES_LIMIT} -is-shared true");
    stage.daemon.run(&limit)?;
    for number in 0..CLONES {
        stage.daemon.run(&format!("volume clone data dev{number} --qos-policy-group dev"))?;
    }
    let (mut alone, mut beside, mut clones) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(load_parent(stage, written, seconds)?);
        let start = |number: u32| {
            let load = stage.load(&format!("dev{number}"), written);
            let mixed = Load { pattern: "randrw", depth: 4, seconds: seconds + 2, ..load };
            mixed.start(stage.folder.path())
        };
        let running: Vec<_> = (0..CLONES).map(start).collect::<Result<_>>()?;
        std::thread::sleep(Duration::from_secs(1));
        beside.push(load_parent(stage, written, seconds)?);
        let rates: Vec<Outcome> = running.into_iter().map(|load| load.finish()).collect::<Result<_>>()?;
        clones.push(rates.iter().map(|outcome| outcome.iops).sum::<f64>());
    }
    let of = |outcomes: &[Outcome], what: fn(&Outcome) -> f64| median(outcomes.iter().map(what));
    let row = |name: &str, outcomes: &[Outcome]| {
        let latency = |what| format!("{:.1}", of(outcomes, what));
        vec![
            name.to_owned(),
            format!("{:.0}", of(outcomes, |o| o.iops)),
            latency(|o| o.p50_us),
            latency(|o| o.p99_us),
        ]
    };
    print_table(&["parent", "IOPS", "p50 µs", "p99 µs"], [row("alone", &alone), row("beside", &beside)]);
    let moved = of(&beside, |o| o.p99_us) / of(&alone, |o| o.p99_us).max(1.0);
    let together = median(clones.iter().copied());
    report.row(json!({"p99_ratio": moved, "clones_iops": together}));
    let what = format!(
        "{CLONES} clones under one policy of {CLONES_LIMIT} leave the parent's 99th percentile within 20 %"
    );
    report.claim(what, format!("{:+.1} %", (moved - 1.0) * 100.0), moved <= 1.2);
    let what = format!("and get their {CLONES_LIMIT} together");
    report.claim(what, format!("{together:.0}"), (2850.0..=3150.0).contains(&together));
    Ok(())
}

fn load_parent(stage: &Stage, written: u64, seconds: u64) -> Result<Outcome> {
    let load = Load { pattern: "randrw", depth: 4, seconds, ..stage.load("data", written) };
    load.run(stage.folder.path())
}
