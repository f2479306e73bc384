//! Replicas bench: a volume of three replicas, compared with fio writing three files at once.

use anyhow::Result;
use serde_json::json;

use super::{GIB, Options};
use crate::numbers::median;
use crate::report::{Report, grouped, print_table};
use crate::repository::repository_root;
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Target};
use crate::world::folder::Folder;

/// Replicas of the volume, and files of the peer.
const REPLICAS: usize = 3;
/// Requests in flight by default.
const DEPTH: u32 = 32;
/// Requests in flight at the volume, and at each file. The best depth counts for both.
///
/// A write to three replicas ends when the slowest replica has ended. A volume therefore needs more requests
/// in flight than three independent writers to keep a disk equally busy.
const DEPTHS: [u32; 3] = [32, 64, 128];
/// Least fraction of the peer's rate.
const RATE_LEAST: f64 = 0.9;

/// Measures everything.
pub fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("replicas");
    let disk = Folder::on_disk(options.disk.as_deref(), &repository_root(), "weir-bench-replicas")?;
    compare_with_files(options, &disk, &mut report)?;
    Ok(report)
}

fn size_bytes(options: &Options) -> u64 {
    if options.is_quick { GIB / 4 } else { GIB }
}

/// Compares random writes to three replicas with random writes to three files at once, in turn.
fn compare_with_files(options: &Options, disk: &Folder, report: &mut Report) -> Result<()> {
    let path = disk.path();
    let daemon = Daemon::start(&options.binary, &path.join("state"), &["--reactors", "2"])?;
    for number in 0..REPLICAS {
        let drive = path.join(format!("drive{number}"));
        std::fs::create_dir_all(&drive)?;
        daemon.run(&format!("drive add {} --class high --no-measurement", drive.display()))?;
    }
    daemon.run(&format!("volume create volume --size 1 --io-priority high --repl {REPLICAS}"))?;
    let size_bytes = size_bytes(options);
    let mut volume = random_writes("volume", daemon.volume("volume"), size_bytes, options);
    let mut files = random_writes("files", Target::File(path.join("file")), size_bytes, options);
    (files.jobs, files.target) = (REPLICAS as u32, Target::File(path.join("file")));
    // Each job has a file of its own.
    files.extra.push(format!("--filename_format={}/file.$jobnum", path.display()));
    Load::fill("fill", daemon.volume("volume"), size_bytes).run(path)?;
    for number in 0..REPLICAS {
        Load::fill("fill", Target::File(path.join(format!("file.{number}"))), size_bytes).run(path)?;
    }
    let mut rows = Vec::new();
    let mut best = [0.0_f64; 2];
    for depth in DEPTHS {
        (volume.depth, files.depth) = (depth, depth);
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..options.rounds(5) {
            rates[0].push(volume.run(path)?.iops);
            rates[1].push(files.run(path)?.iops / REPLICAS as f64);
        }
        let [replicas, files] = rates.map(median);
        best = [best[0].max(replicas), best[1].max(files)];
        rows.push(vec![depth.to_string(), grouped(replicas), grouped(files)]);
        report.row(json!({"depth": depth, "replicas_iops": replicas, "files_iops": files}));
    }
    print_table(&["random writes of 4 KiB, in flight", "three replicas", "fio, each of three files"], rows);
    let [replicas, files] = best;
    let ratio = replicas / files;
    let what =
        format!("three replicas at best: at least {RATE_LEAST} of what fio gets on three files at once");
    report.claim(what, format!("{ratio:.3}"), ratio >= RATE_LEAST);
    Ok(())
}

fn random_writes(name: &str, target: Target, size_bytes: u64, options: &Options) -> Load {
    let seconds = if options.is_quick { 2 } else { 5 };
    Load { pattern: "randwrite", depth: DEPTH, seconds, ..Load::new(name, target, size_bytes) }
}
