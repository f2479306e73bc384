//! Hybrid bench: all-NVMe, hybrid and all-disk volumes with three replicas, compared on the drives of the
//! document's test.
//!
//! The drives are twelve NVMe SSDs and twelve disks of 7200 rpm, emulated. The rows are those of the
//! document's figures 3 to 7.
//!
//! Writes are measured on new volumes with empty journals: they are the burst that journals of the usual size
//! absorb. Each stream passes over the same half of a journal repeatedly. A longer stream is only as fast as
//! the disks.

use anyhow::Result;
use serde_json::json;

use super::{GIB, MIB, Options, wait_for_empty_journals};
use crate::numbers::median;
use crate::report::{Report, grouped, print_table};
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Outcome};
use crate::world::folder::Folder;

/// Drives of each kind.
const DRIVES: usize = 12;
/// Volumes, each by the name of its template.
const VOLUMES: [&str; 3] = ["nvme", "hybrid", "hdd"];
/// Streams of each load except those of single requests, each in an extent of its own.
const STREAMS: u32 = 4;
/// Bytes that each stream covers.
const STREAM_BYTES: u64 = 256 * MIB;
/// Rounds of each load, of which the median counts.
const ROUNDS: usize = 3;

/// Unit of a load's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Microseconds,
    Iops,
    MegabytesPerSecond,
}

/// Row of a figure.
struct Row {
    figure: u32,
    what: &'static str,
    pattern: &'static str,
    block_bytes: u64,
    depth: u32,
    jobs: u32,
    unit: Unit,
    /// Promised ratio of hybrid to all-NVMe: at least this part of a rate, or at most this multiple of a
    /// latency.
    promised: Option<f64>,
}

const fn row(figure: u32, what: &'static str, pattern: &'static str, promised: Option<f64>) -> Row {
    Row { figure, what, pattern, block_bytes: 4096, depth: 8, jobs: STREAMS, unit: Unit::Iops, promised }
}

/// Returns a row with one request at a time.
const fn single(what: &'static str, pattern: &'static str) -> Row {
    Row { depth: 1, jobs: 1, unit: Unit::Microseconds, ..row(3, what, pattern, Some(1.1)) }
}

/// Returns a row with large requests.
const fn wide(figure: u32, what: &'static str, pattern: &'static str, promised: Option<f64>) -> Row {
    let (block_bytes, depth) = if figure == 7 { (MIB, 2) } else { (64 << 10, 8) };
    Row { block_bytes, depth, unit: Unit::MegabytesPerSecond, ..row(figure, what, pattern, promised) }
}

const ROWS: [Row; 9] = [
    single("random reads, one at a time", "randread"),
    single("random writes, one at a time", "randwrite"),
    row(4, "random reads", "randread", Some(0.95)),
    row(4, "random writes", "randwrite", Some(0.5)),
    row(5, "random reads and writes", "randrw", None),
    wide(6, "random reads of 64 KiB", "randread", None),
    wide(6, "random writes of 64 KiB", "randwrite", None),
    wide(7, "sequential reads", "read", Some(0.95)),
    wide(7, "sequential writes", "write", Some(0.95)),
];

impl Row {
    fn writes(&self) -> bool {
        !self.pattern.ends_with("read")
    }

    fn load(&self, daemon: &Daemon, volume: &str, seconds: u64) -> Load {
        let name = format!("{volume}-{}-{}", self.pattern, self.figure);
        let mut load = Load::new(name, daemon.volume(volume), STREAM_BYTES);
        (load.pattern, load.block_bytes) = (self.pattern, self.block_bytes);
        (load.depth, load.jobs, load.seconds) = (self.depth, self.jobs, seconds);
        load.extra.push(format!("--offset_increment={GIB}"));
        load
    }

    fn value(&self, outcome: &Outcome) -> f64 {
        match self.unit {
            Unit::Microseconds => outcome.p50_us,
            Unit::Iops => outcome.iops,
            Unit::MegabytesPerSecond => outcome.iops * self.block_bytes as f64 / 1e6,
        }
    }

    fn unit(&self) -> &'static str {
        match self.unit {
            Unit::Microseconds => "us, median",
            Unit::Iops => "IOPS",
            Unit::MegabytesPerSecond => "MB/s",
        }
    }

    fn holds(&self, ratio: f64) -> bool {
        let Some(promised) = self.promised else { return true };
        if self.unit == Unit::Microseconds { ratio <= promised } else { ratio >= promised }
    }
}

/// Measures everything.
pub fn run(options: &Options) -> Result<Report> {
    let folder = Folder::in_memory("weir-bench-hybrid")?;
    let daemon = Daemon::start(&options.binary, &folder.path().join("state"), &["--reactors", "2"])?;
    add_drives(&daemon, &folder)?;
    VOLUMES.iter().try_for_each(|volume| create(&daemon, &folder, volume))?;
    println!("{}", daemon.run("journal list")?);
    let (seconds, rounds) = if options.is_quick { (2, 1) } else { (5, ROUNDS) };
    let mut report = Report::new("hybrid");
    let mut rows = Vec::new();
    for row in &ROWS {
        let values = measure(row, &daemon, &folder, (seconds, rounds))?;
        let shown = values.map(grouped);
        let head = vec![row.figure.to_string(), row.what.to_owned(), row.unit().to_owned()];
        rows.push([head, shown.to_vec(), vec![format!("{:.2}", values[1] / values[0])]].concat());
        judge(row, values, &mut report);
    }
    print_table(&["figure", "load", "in", "nvme", "hybrid", "hdd", "hybrid / nvme"], rows);
    Ok(report)
}

fn add_drives(daemon: &Daemon, folder: &Folder) -> Result<()> {
    for (kind, class) in [("nvme", "high"), ("hdd-7200", "low")] {
        for number in 0..DRIVES {
            let path = folder.path().join(format!("{kind}-{number}"));
            std::fs::create_dir_all(&path)?;
            let path = path.display();
            daemon.run(&format!("drive add {path} --class {class} --no-measurement --emulate {kind}"))?;
        }
    }
    Ok(())
}

/// Creates a volume and writes all bytes that loads touch.
fn create(daemon: &Daemon, folder: &Folder, volume: &str) -> Result<()> {
    daemon.run(&format!("volume create {volume} --size {STREAMS} --template {volume}"))?;
    let mut fill = Load::fill(format!("fill-{volume}"), daemon.volume(volume), STREAM_BYTES);
    fill.jobs = STREAMS;
    fill.extra.push(format!("--offset_increment={GIB}"));
    fill.run(folder.path())?;
    wait_for_empty_journals(daemon)
}

/// Returns the medians of all volumes, which are measured in turn. A volume is created anew after each load
/// that writes.
fn measure(
    row: &Row,
    daemon: &Daemon,
    folder: &Folder,
    (seconds, rounds): (u64, usize),
) -> Result<[f64; VOLUMES.len()]> {
    let mut values: [Vec<f64>; VOLUMES.len()] = Default::default();
    for _ in 0..rounds {
        for (volume, values) in VOLUMES.iter().zip(&mut values) {
            values.push(row.value(&row.load(daemon, volume, seconds).run(folder.path())?));
            if row.writes() {
                daemon.run(&format!("volume delete {volume} --force"))?;
                create(daemon, folder, volume)?;
            }
        }
    }
    Ok(values.map(median))
}

fn judge(row: &Row, values: [f64; VOLUMES.len()], report: &mut Report) {
    let [nvme, hybrid, hdd] = values;
    let ratio = hybrid / nvme;
    report.row(json!({
        "figure": row.figure, "load": row.what, "in": row.unit(), "nvme": nvme, "hybrid": hybrid, "hdd": hdd,
    }));
    if let Some(promised) = row.promised {
        let bound = if row.unit == Unit::Microseconds { "at most" } else { "at least" };
        let what = format!("hybrid {}: {bound} {promised} of all-NVMe", row.what);
        report.claim(what, format!("{ratio:.3}"), row.holds(ratio));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_can_fail() {
        let failed = |ratio: f64| {
            let mut report = Report::new("test");
            ROWS.iter().for_each(|row| judge(row, [100.0, 100.0 * ratio, 1.0], &mut report));
            report.finish(None).err().map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(failed(1.0), "");
        assert!(failed(0.9).contains("3 of 6"), "{}", failed(0.9));
        assert!(failed(0.4).contains("4 of 6"));
        assert!(failed(1.2).contains("2 of 6"));
    }
}
