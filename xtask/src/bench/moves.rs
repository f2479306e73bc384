//! Moves bench: replicas move under load, from template to template and to another replica count.
//!
//! The bench compares the client's latency during a move with the latency before and after. It also checks
//! that a resync keeps the pace of its ceiling, and that a killed move continues and ends correctly. Only the
//! measured settings change: otherwise the resync runs under its default background policy. fio verifies its writes throughout.

mod kills;
mod under_ceiling;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{GIB, MIB, Options};
use crate::numbers::{between, percentile_us, rate};
use crate::report::{Report, grouped, milliseconds, print_table};
use crate::world::daemon::Daemon;
use crate::world::fio::{Completion, Load, Log};
use crate::world::folder::Folder;
use crate::world::now_ms;

/// Flash drives and disks: as many of each as an extent has replicas.
const DRIVES: [(&str, &str, &str); 2] = [("flash", "high", "nvme"), ("disk", "low", "hdd-7200")];
const DRIVES_OF_EACH: usize = 3;
/// Extents of the volume.
const EXTENTS: u64 = 2;
/// Area that the client writes, half in each extent. It is so large that a resync has few of its regions in
/// flight, as in a large volume.
const WORKED: Area = Area { start: GIB - 32 * MIB, bytes: 64 * MIB };
/// Requests that the client keeps outstanding.
const DEPTH: u32 = 4;
/// Largest growth of the 99th percentile while replicas move, as a factor.
const P99_RATIO_MAX: f64 = 2.0;
/// Pause after a change before the new state is measured, in milliseconds. Replies that the change delayed
/// are not counted there.
const SETTLE_MS: u64 = 500;

/// Part of the volume.
#[derive(Clone, Copy)]
struct Area {
    start: u64,
    bytes: u64,
}

/// Change of the placement or number of replicas.
struct Change {
    name: &'static str,
    command: &'static str,
    /// Replicas on flash and on disks after the change.
    replicas: [u64; 2],
    /// Approximate duration under load, in milliseconds. The kill comes within this time.
    lasts_ms: u64,
}

impl Change {
    const fn new(name: &'static str, command: &'static str, replicas: [u64; 2], lasts_ms: u64) -> Change {
        Change { name, command, replicas, lasts_ms }
    }
}

const CHANGES: [Change; 6] = [
    Change::new("nvme -> hybrid", "volume modify v --template hybrid", [1, 2], 20_000),
    Change::new("hybrid -> hdd", "volume modify v --template hdd", [0, 3], 12_000),
    Change::new("hdd -> nvme", "volume modify v --template nvme", [3, 0], 12_000),
    Change::new("3 replicas -> 1", "volume modify v --template none --repl 1", [1, 0], 100),
    Change::new("1 replica -> 3", "volume update v --repl 3", [3, 0], 1000),
    Change::new("3 replicas -> 1 again", "volume update v --repl 1", [1, 0], 100),
];

/// Daemon with the drives and the volume, which begins with three replicas on flash.
struct Stage {
    daemon: Option<Daemon>,
    folder: Folder,
    binary: PathBuf,
}

impl Stage {
    fn new(options: &Options) -> Result<Stage> {
        let folder = Folder::in_memory("weir-bench-moves")?;
        let mut stage = Stage { daemon: None, folder, binary: options.binary.clone() };
        stage.start()?;
        for (name, class, emulation) in DRIVES {
            for number in 1..=DRIVES_OF_EACH {
                let path = stage.folder.path().join(format!("{name}{number}"));
                std::fs::create_dir_all(&path)?;
                let how = format!("--class {class} --emulate {emulation} --no-measurement");
                stage.daemon().run(&format!("drive add {} {how}", path.display()))?;
            }
        }
        stage.daemon().run(&format!("volume create v --size {EXTENTS} --template nvme"))?;
        stage.write(WORKED, "crc32c")?;
        Ok(stage)
    }

    fn start(&mut self) -> Result<()> {
        let state = self.folder.path().join("state");
        self.daemon = Some(Daemon::start(&self.binary, &state, &["--reactors", "2"])?);
        Ok(())
    }

    /// Kills the daemon as a crash would, if it runs.
    fn kill(&mut self) {
        self.daemon = None;
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs but between a kill and the start after it")
    }

    /// Returns a load of random writes of an area, which fio verifies while it runs. It passes once over the
    /// area unless the caller sets a time.
    fn load(&self, name: &str, area: Area, checksum: &'static str) -> Load {
        Load {
            pattern: "randwrite",
            depth: DEPTH,
            seconds: 0,
            checksum: Some(checksum),
            extra: vec![format!("--offset={}", area.start)],
            ..Load::new(name, self.daemon().volume("v"), area.bytes)
        }
    }

    fn write(&self, area: Area, checksum: &'static str) -> Result<()> {
        self.load("write", area, checksum).run(self.folder.path()).map(drop)
    }

    /// Has fio verify an area: whole blocks, each in its place, from a write with this checksum.
    fn verify(&self, area: Area, checksum: &'static str) -> Result<()> {
        let mut load = Load { pattern: "write", depth: 16, ..self.load("verify", area, checksum) };
        load.extra.push("--verify_only=1".to_owned());
        load.run(self.folder.path()).map(drop).context("wrong bytes")
    }

    fn inspect(&self) -> Result<Value> {
        self.daemon().json("volume inspect v")
    }
}

/// Time span by the clock of fio's log.
#[derive(Clone, Copy)]
struct Span {
    from_ms: u64,
    to_ms: u64,
}

impl Span {
    fn p99_us(self, completions: &[Completion]) -> f64 {
        percentile_us(between(completions, self.from_ms, self.to_ms), 99)
    }
}

/// Measures latency and kills.
pub fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("moves");
    measure_latency(options, &mut report)?;
    under_ceiling::run(options, &mut report)?;
    kills::run(options, &mut report)?;
    Ok(report)
}

/// Runs one client all the time: for a while in each state, and through the changes between the states.
fn measure_latency(options: &Options, report: &mut Report) -> Result<()> {
    let seconds = if options.is_quick { 3 } else { 12 };
    let stage = Stage::new(options)?;
    let load = stage.load("client", WORKED, "crc32c");
    let load = Load { seconds: 900, log: Log::SinceEpoch, ..load };
    let mut running = load.start(stage.folder.path())?;
    let rest = || {
        std::thread::sleep(Duration::from_millis(SETTLE_MS));
        let from_ms = now_ms();
        std::thread::sleep(Duration::from_secs(seconds));
        Span { from_ms, to_ms: now_ms() }
    };
    std::thread::sleep(Duration::from_secs(1));
    let (mut states, mut moves) = (vec![rest()], Vec::new());
    for change in &CHANGES {
        let (copied, from_ms) = (bytes_resynced(&stage.inspect()?), now_ms());
        stage.daemon().run(&format!("{} --wait", change.command))?;
        let span = Span { from_ms, to_ms: now_ms() };
        ensure!(!running.has_ended()?, "fio saw an error or a wrong byte during '{}'", change.name);
        moves.push((span, bytes_resynced(&stage.inspect()?).saturating_sub(copied)));
        states.push(rest());
    }
    running.stop();
    let outcome = running.finish()?;
    let rows = CHANGES.iter().zip(&moves).enumerate().map(|(index, (change, (span, copied)))| {
        let p99_us = [states[index], *span, states[index + 1]].map(|span| span.p99_us(&outcome.completions));
        let of_second = rate(&outcome.completions, span.from_ms, span.to_ms);
        judge(change, p99_us, report);
        let seconds = (span.to_ms - span.from_ms) as f64 / 1000.0;
        report.row(json!({
            "change": change.name, "p99_us": {"before": p99_us[0], "moving": p99_us[1], "after": p99_us[2]},
            "seconds": seconds, "bytes_resynced": copied,
        }));
        let mut cells = vec![change.name.to_owned(), format!("{seconds:.1}"), format!("{}", copied / MIB)];
        cells.push(grouped(of_second));
        cells.extend(p99_us.map(milliseconds));
        cells.push(format!("{:.2}", ratio(p99_us)));
        cells
    });
    println!("4 KiB random writes, {DEPTH} at a time, each read back and verified; 99th percentiles:");
    let headings = ["change", "s", "MiB copied", "IOPS", "before ms", "moving ms", "after ms", "ratio"];
    print_table(&headings, rows.collect::<Vec<_>>());
    report.claim(
        "no error and no wrong byte",
        format!("fio's error is {}", outcome.error),
        outcome.error == 0,
    );
    Ok(())
}

/// Returns the 99th percentile during the move, as a multiple of the larger one of the states before and
/// after.
fn ratio([before_us, moving_us, after_us]: [f64; 3]) -> f64 {
    moving_us / before_us.max(after_us).max(1.0)
}

fn judge(change: &Change, p99_us: [f64; 3], report: &mut Report) {
    let what = format!(
        "{}: the 99th percentile is at most {P99_RATIO_MAX} times that of the slower of the states before and after",
        change.name
    );
    report.claim(what, format!("{:.2}", ratio(p99_us)), ratio(p99_us) <= P99_RATIO_MAX);
}

/// Returns the bytes resynced so far, or 0 for a volume that never had several replicas.
fn bytes_resynced(volume: &Value) -> u64 {
    volume["replication"]["bytes_resynced"].as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn move_is_compared_with_the_slower_state() {
        let holds = |p99_us: [f64; 3]| {
            let mut report = Report::new("test");
            judge(&CHANGES[0], p99_us, &mut report);
            report.finish(None).is_ok()
        };
        assert!(holds([100.0, 200.0, 100.0]) && !holds([100.0, 201.0, 100.0]));
        assert!(holds([100.0, 2000.0, 1000.0]) && holds([1000.0, 2000.0, 100.0]));
    }
}
