//! Replicas that move under load: from template to template, and to another number of replicas. What it does to a client's
//! latency, beside the same volume before and after; and whether a move that is killed goes on and ends right.
//!
//! Nothing is set but what is to be measured: replicas are brought up to date under the policy that background work has by
//! default. fio verifies what it writes throughout.

mod kills;

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

/// Drives like flash and drives like disks: as many of each as an extent has replicas.
const DRIVES: [(&str, &str, &str); 2] = [("flash", "high", "nvme"), ("disk", "low", "hdd-7200")];
const DRIVES_OF_EACH: usize = 3;
/// Extents of the volume.
const EXTENTS: u64 = 2;
/// What is written of it, half in each extent: so much that few of its regions are being copied at a time, as few of a
/// large volume are.
const WORKED: Area = Area { start: GIB - 32 * MIB, bytes: 64 * MIB };
/// Requests of the client that are outstanding.
const DEPTH: u32 = 4;
/// How much the 99th percentile may grow while replicas move.
const P99_RATIO_MAX: f64 = 2.0;
/// What passes after a change before the state after it is measured, in milliseconds: answers that the change held up are
/// not counted there.
const SETTLE_MS: u64 = 500;

/// A part of the volume.
#[derive(Clone, Copy)]
struct Area {
    start: u64,
    bytes: u64,
}

/// A change of where replicas are, or of how many.
struct Change {
    name: &'static str,
    command: &'static str,
    /// Replicas on drives like flash, and on those like disks, afterwards.
    replicas: [u64; 2],
    /// About how long it takes under load, in milliseconds: within that it is killed.
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

/// A daemon with these drives and the volume, which begins with three replicas on flash.
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

    /// Random writes of an area, verified while they go on; once over it unless the caller says how long.
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

    /// Has fio verify what an area holds: whole blocks, each where it belongs, of a write with this checksum.
    fn verify(&self, area: Area, checksum: &'static str) -> Result<()> {
        let mut load = Load { pattern: "write", depth: 16, ..self.load("verify", area, checksum) };
        load.extra.push("--verify_only=1".to_owned());
        load.run(self.folder.path()).map(drop).context("wrong bytes")
    }

    fn inspect(&self) -> Result<Value> {
        self.daemon().json("volume inspect v")
    }
}

/// A span of time, by the clock of fio's log.
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

/// Measures it all.
pub fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("moves");
    measure_latency(options, &mut report)?;
    kills::run(options, &mut report)?;
    Ok(report)
}

/// One client at work all the time: for a while in each state, and through the changes between them.
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

/// The 99th percentile while replicas move, as a multiple of that of the slower of the states before and after.
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

/// What was copied so far to bring replicas up to date; nothing is told of a volume that never had several.
fn bytes_resynced(volume: &Value) -> u64 {
    volume["replication"]["bytes_resynced"].as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_two_states_is_what_counts() {
        let holds = |p99_us: [f64; 3]| {
            let mut report = Report::new("test");
            judge(&CHANGES[0], p99_us, &mut report);
            report.finish(None).is_ok()
        };
        assert!(holds([100.0, 200.0, 100.0]) && !holds([100.0, 201.0, 100.0]));
        assert!(holds([100.0, 2000.0, 1000.0]) && holds([1000.0, 2000.0, 100.0]));
    }
}
