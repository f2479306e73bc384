//! Peers of the ceiling bench: QEMU's throttle group, nbdkit's rate filter, and the block controller of
//! cgroup version 1 on the bare file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use super::combination::{Combination, Limit, Verdict};
use super::{MIB, Options};
use crate::report::{Report, milliseconds, print_table};
use crate::repository::repository_root;
use crate::world::fio::{Load, Log, Target};
use crate::world::folder::{Folder, disk_of};
use crate::world::peers::{BlockGroup, Peer};

/// Size of each file in bytes.
const FILE_BYTES: u64 = 64 * MIB;
/// Limits and queue depths with which the peers are tested.
const CELLS: [(Limit, u32); 4] = [
    (Limit::Iops(1000), 1),
    (Limit::Iops(1000), 32),
    (Limit::MebibytesPerSecond(1), 1),
    (Limit::MebibytesPerSecond(1), 32),
];

/// Peer that is ready for its load, with the guard that keeps it alive.
struct Subject {
    name: &'static str,
    cell: Combination,
    target: Target,
    _keep: Keep,
}

/// Guard that ends a peer after its test.
enum Keep {
    Server { _peer: Peer },
    Group { _group: BlockGroup },
}

/// Measures all peers side by side: their rates are low.
pub fn measure(options: &Options, seconds: u64, report: &mut Report) -> Result<()> {
    let memory = Folder::in_memory("weir-bench-peers")?;
    let disk = Folder::on_disk(options.disk.as_deref(), &repository_root(), "weir-bench-peers")?;
    let mut subjects = Vec::new();
    for (index, (limit, depth)) in CELLS.into_iter().enumerate() {
        let cell = Combination { limit, depth, pattern: "randread" };
        subjects.extend(start_all(index, cell, memory.path(), disk.path())?);
    }
    let mut running = Vec::new();
    for (index, subject) in subjects.iter().enumerate() {
        let load = load_of(index, subject, seconds);
        running.push(load.start(memory.path())?);
    }
    let mut rows = Vec::new();
    for (subject, running) in subjects.iter().zip(running) {
        let verdict = subject.cell.judge(&running.finish()?.completions, seconds);
        report.row(row_of(subject, &verdict));
        rows.push(cells_of(subject, &verdict));
    }
    let headings =
        ["peer", "limit", "QD", "off %", "worst second %", "ahead", "p50 ms", "p99 ms", "ideal ms"];
    println!("the peers, reading, side by side (blkio on disk, the others in memory):");
    print_table(&headings, rows);
    Ok(())
}

fn load_of(index: usize, subject: &Subject, seconds: u64) -> Load {
    Load {
        block_bytes: subject.cell.limit.block_bytes(),
        depth: subject.cell.depth,
        seconds: seconds + 1,
        log: Log::SinceStart,
        ..Load::new(format!("peer{index}"), subject.target.clone(), FILE_BYTES)
    }
}

fn start_all(index: usize, cell: Combination, memory: &Path, disk: &Path) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    let limit = match cell.limit {
        Limit::Iops(iops) => format!("x-iops-total={iops}"),
        Limit::MebibytesPerSecond(rate) => format!("x-bps-total={}", rate * MIB),
    };
    let file = filled(memory, &format!("qemu{index}"))?;
    let peer = Peer::qemu_throttle(memory, &format!("qemu-throttle{index}"), &file, &limit)?;
    let target = peer.target();
    subjects.push(Subject { name: "QEMU throttle group", cell, target, _keep: Keep::Server { _peer: peer } });
    if let Limit::MebibytesPerSecond(rate) = cell.limit {
        let file = filled(memory, &format!("nbdkit{index}"))?;
        let peer = Peer::nbdkit_rate(memory, &format!("nbdkit-rate{index}"), &file, rate * MIB)?;
        let target = peer.target();
        subjects.push(Subject { name: "nbdkit rate", cell, target, _keep: Keep::Server { _peer: peer } });
    }
    subjects.extend(start_block_group(index, cell, disk)?);
    Ok(subjects)
}

/// Starts a peer under the block controller. Returns `None`, with a message, if the machine has no usable
/// controller.
fn start_block_group(index: usize, cell: Combination, disk: &Path) -> Result<Option<Subject>> {
    let file = filled(disk, &format!("blkio{index}"))?;
    let Some(device) = disk_of(&file).filter(|_| BlockGroup::is_available()) else {
        println!("left out: cgroup v1 blkio (no such controller, or the file is on no single disk)");
        return Ok(None);
    };
    let (unit, rate) = match cell.limit {
        Limit::Iops(iops) => ("iops", iops),
        Limit::MebibytesPerSecond(rate) => ("bps", rate * MIB),
    };
    let group = BlockGroup::new(&format!("cell{index}"), &device, unit, rate)?;
    let target = group.target(&file);
    Ok(Some(Subject { name: "cgroup v1 blkio", cell, target, _keep: Keep::Group { _group: group } }))
}

fn filled(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    Load::fill(format!("fill-{name}"), Target::File(path.clone()), FILE_BYTES).run(folder)?;
    Ok(path)
}

fn row_of(subject: &Subject, verdict: &Verdict) -> serde_json::Value {
    json!({"peer": subject.name, "limit": subject.cell.limit.text(), "depth": subject.cell.depth,
        "completed": verdict.count, "expected": verdict.expected, "worst_second": verdict.worst_second,
        "ahead": verdict.ahead, "p50_us": verdict.p50_us, "p99_us": verdict.p99_us, "ideal_us": verdict.ideal_us})
}

fn cells_of(subject: &Subject, verdict: &Verdict) -> Vec<String> {
    vec![
        subject.name.to_owned(),
        subject.cell.limit.text(),
        subject.cell.depth.to_string(),
        format!("{:+.3}", verdict.rate_off()),
        format!("{:+.2}", verdict.second_off()),
        format!("{:.0}", verdict.ahead),
        milliseconds(verdict.p50_us),
        milliseconds(verdict.p99_us),
        milliseconds(verdict.ideal_us),
    ]
}
