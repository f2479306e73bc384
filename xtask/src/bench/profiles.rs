//! Profiles bench: synchronous writes of 4 KiB by I/O profile, where journal and pool share one disk, and beside
//! the bare file.
//!
//! Each write is followed by a flush, which the client waits for. Volumes are new for each load, so that a write goes
//! into space that holds no data yet. Only the bare file was written before.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::{GIB, Options, wait_for_empty_journals};
use crate::numbers::median;
use crate::report::{Report, grouped, print_table};
use crate::repository::repository_root;
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Target};
use crate::world::folder::{Folder, bytes_written_to_disk_of};

/// Rounds of each load, of which the median counts.
const ROUNDS: usize = 5;
/// Clients of the loads of many.
const CLIENTS: u32 = 32;
/// Volumes that share a journal drive.
const VOLUMES: u32 = 16;
/// Bytes that a load covers, over all of its volumes.
const BYTES: u64 = GIB;

/// What takes the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site {
    /// A file without Weir.
    BareFile,
    /// So many volumes with an I/O profile.
    Volumes(u32, &'static str),
}

/// A load and its results, one for each round.
struct Row {
    what: &'static str,
    site: Site,
    clients: u32,
    results: Vec<Figures>,
}

/// The result of one load.
#[derive(Clone, Copy, Debug)]
struct Figures {
    iops: f64,
    /// Processor time of the daemon for each write, in microseconds, with what follows until journals are empty.
    processor_us: f64,
    /// Bytes that the disk wrote for each byte of the clients, until journals are empty.
    amplification: f64,
}

const BARE: usize = 0;
const JOURNAL_ONE: usize = 2;
const NONE_MANY: usize = 3;
const JOURNAL_MANY: usize = 4;
const JOURNAL_ALONE: usize = 5;
const JOURNAL_SHARED: usize = 6;

fn rows() -> Vec<Row> {
    let row = |what, site, clients| Row { what, site, clients, results: Vec::new() };
    vec![
        row("bare file, written before, 1 client", Site::BareFile, 1),
        row("none, 1 client", Site::Volumes(1, "none"), 1),
        row("journal, 1 client", Site::Volumes(1, "journal"), 1),
        row("none, 32 clients", Site::Volumes(1, "none"), CLIENTS),
        row("journal, 32 clients", Site::Volumes(1, "journal"), CLIENTS),
        row("journal, one volume, 16 clients", Site::Volumes(1, "journal"), VOLUMES),
        row("journal, 16 volumes, 1 client each", Site::Volumes(VOLUMES, "journal"), VOLUMES),
    ]
}

impl Row {
    fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        median(self.results.iter().map(of))
    }

    fn iops(&self) -> f64 {
        self.median(|figures| figures.iops)
    }
}

/// Measures everything.
pub fn run(options: &Options) -> Result<Report> {
    let folder = Folder::on_disk(options.disk.as_deref(), &repository_root(), "weir-bench-profiles")?;
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("journal"))?;
    let mut daemon = Daemon::start(&options.binary, &path("state"), &["--reactors", "2"])?;
    daemon.run(&format!("journal add {} --no-measurement", path("journal").display()))?;
    let bare = path("bare");
    Load::fill("fill", Target::File(bare.clone()), BYTES).run(folder.path())?;
    let seconds = if options.is_quick { 2 } else { 8 };
    let mut rows = rows();
    for _ in 0..options.rounds(ROUNDS) {
        for row in &mut rows {
            let figures = match row.site {
                Site::BareFile => measure_bare(&bare, &folder, seconds)?,
                Site::Volumes(..) => measure_volumes(row, &mut daemon, &folder, seconds)?,
            };
            row.results.push(figures);
        }
    }
    Ok(judged(&rows))
}

fn load(name: String, target: Target, bytes: u64, seconds: u64) -> Load {
    Load { pattern: "randwrite", seconds, ..Load::new(name, target, bytes) }
}

/// Measures synchronous writes to a file, with the option of fio that costs least.
fn measure_bare(file: &Path, folder: &Folder, seconds: u64) -> Result<Figures> {
    let mut load = load("bare".to_owned(), Target::File(file.to_owned()), BYTES, seconds);
    load.extra.push("--sync=dsync".to_owned());
    let before = bytes_written_to_disk_of(folder.path())?;
    let outcome = load.run(folder.path())?;
    let written = bytes_written_to_disk_of(folder.path())? - before;
    let amplification = written as f64 / (outcome.requests * load.block_bytes) as f64;
    Ok(Figures { iops: outcome.iops, processor_us: 0.0, amplification })
}

/// Measures synchronous writes to new volumes, which have the clients in equal parts.
fn measure_volumes(row: &Row, daemon: &mut Daemon, folder: &Folder, seconds: u64) -> Result<Figures> {
    let Site::Volumes(count, profile) = row.site else { unreachable!("the bare file has no volumes") };
    let names: Vec<String> = (0..count).map(|number| format!("vol{number}")).collect();
    let create = |name: &String| daemon.run(&format!("volume create {name} --size 1 --io-profile {profile}"));
    names.iter().try_for_each(|name| create(name).map(|_| ()))?;
    let processor_seconds = daemon.process().processor_seconds()?;
    let written = bytes_written_to_disk_of(folder.path())?;
    let start = |name: &String| {
        let mut load = load(name.clone(), daemon.volume(name), BYTES / u64::from(count), seconds);
        load.jobs = row.clients / count;
        load.extra.push("--fsync=1".to_owned());
        load.start(folder.path())
    };
    let running: Vec<_> = names.iter().map(start).collect::<Result<_>>()?;
    let outcomes: Vec<_> = running.into_iter().map(|load| load.finish()).collect::<Result<_>>()?;
    wait_for_empty_journals(daemon)?;
    let written = bytes_written_to_disk_of(folder.path())? - written;
    let processor_seconds = daemon.process().processor_seconds()? - processor_seconds;
    names.iter().try_for_each(|name| daemon.run(&format!("volume delete {name} --wait")).map(|_| ()))?;
    let requests: u64 = outcomes.iter().map(|outcome| outcome.requests).sum();
    Ok(Figures {
        iops: outcomes.iter().map(|outcome| outcome.iops).sum(),
        processor_us: processor_seconds * 1e6 / requests as f64,
        amplification: written as f64 / (requests * 4096) as f64,
    })
}

fn judged(rows: &[Row]) -> Report {
    let mut report = Report::new("profiles");
    let shown = rows.iter().map(|row| {
        let (iops, processor_us) = (row.iops(), row.median(|figures| figures.processor_us));
        let amplification = row.median(|figures| figures.amplification);
        report.row(json!({
            "load": row.what, "iops": iops, "processor_us": processor_us, "amplification": amplification,
            "rounds": row.results.iter().map(|figures| figures.iops).collect::<Vec<_>>(),
        }));
        vec![row.what.to_owned(), grouped(iops), format!("{processor_us:.1}"), format!("{amplification:.2}")]
    });
    let shown: Vec<_> = shown.collect();
    print_table(&["load", "IOPS", "processor us", "written / asked"], shown);
    let mut claim = |what: &str, one: usize, other: usize, least: f64| {
        let ratio = rows[one].iops() / rows[other].iops();
        report.claim(format!("{what}: at least {least}"), format!("{ratio:.2}"), ratio >= least);
    };
    claim("journal with one client, of the bare file that was written before", JOURNAL_ONE, BARE, 0.9);
    claim("journal with 32 clients, of none", JOURNAL_MANY, NONE_MANY, 3.0);
    claim("16 volumes with a journal, of one with 16 clients", JOURNAL_SHARED, JOURNAL_ALONE, 0.8);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_can_fail() {
        let failed = |iops: [f64; 7]| {
            let mut rows = rows();
            for (row, iops) in rows.iter_mut().zip(iops) {
                row.results.push(Figures { iops, processor_us: 1.0, amplification: 1.0 });
            }
            judged(&rows).finish(None).err().map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(failed([100.0, 50.0, 90.0, 100.0, 300.0, 100.0, 80.0]), "");
        let message = failed([100.0, 50.0, 89.0, 100.0, 299.0, 100.0, 79.0]);
        assert!(message.contains("3 of 3"), "{message}");
    }
}
