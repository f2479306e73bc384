//! Attach bench: the cost of an attached volume, beside other ways to make a file of a volume or an image.
//!
//! All stand on files in memory. The processor time is that of the whole machine, because a block device also costs the
//! time of the kernel's threads. The client's part is the same for all.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;

use super::{MIB, Options};
use crate::numbers::median;
use crate::report::{Report, grouped, print_table};
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Target};
use crate::world::folder::Folder;
use crate::world::process::Process;
use crate::world::processor::ProcessorTime;
use crate::world::tools;

/// Size of each file in bytes.
const FILE_BYTES: u64 = 256 * MIB;
/// Part of the best peer's requests per processor second that an attached volume must reach. One turn differs from the
/// next by some per cent.
const OF_BEST_PEER_MIN: f64 = 0.97;

/// A workload: random requests of 4 KiB.
struct Workload {
    name: &'static str,
    pattern: &'static str,
    depth: u32,
}

const WORKLOADS: [Workload; 4] = [
    Workload { name: "read, QD1", pattern: "randread", depth: 1 },
    Workload { name: "write, QD1", pattern: "randwrite", depth: 1 },
    Workload { name: "read, QD32", pattern: "randread", depth: 32 },
    Workload { name: "write, QD32", pattern: "randwrite", depth: 32 },
];

/// A file or block device that is measured.
struct Subject {
    name: &'static str,
    place: PathBuf,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The file without anything in between.
    Bare,
    Weir,
    Peer,
}

/// Results of one turn, or medians of several.
#[derive(Clone, Copy)]
struct Figures {
    iops: f64,
    /// Requests per second of processor time.
    per_processor_second: f64,
}

/// A peer's process, whose mount ends with it.
struct Mounted {
    _process: Process,
    place: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.place).status();
    }
}

/// Runs everything.
pub fn run(options: &Options) -> Result<Report> {
    tools::require(&["nbdfuse", "losetup", "umount"])?;
    let folder = Folder::in_memory("weir-bench-attach")?;
    let daemon = Daemon::start(&options.binary, &folder.path().join("state"), &[])?;
    let mut subjects =
        vec![Subject { name: "bare file", place: folder.path().join("bare"), role: Role::Bare }];
    for (name, volume, method) in
        [("weir, file", "file", "fuse-file"), ("weir, block device", "device", "fuse")]
    {
        daemon.run(&format!("volume create {volume} --size {}MiB", FILE_BYTES / MIB))?;
        let place = PathBuf::from(daemon.run(&format!("attach {volume} --method {method}"))?.trim());
        subjects.push(Subject { name, place, role: Role::Weir });
    }
    daemon.run(&format!("volume create nbdfuse --size {}MiB", FILE_BYTES / MIB))?;
    let peers = [nbdfuse(folder.path(), &daemon)?, qemu(folder.path())?];
    for (name, peer) in ["nbdfuse, of a volume", "QEMU's FUSE export"].into_iter().zip(&peers) {
        subjects.push(Subject { name, place: peer.place.clone(), role: Role::Peer });
    }
    for subject in &subjects {
        Load::fill("fill", Target::File(subject.place.clone()), FILE_BYTES).run(folder.path())?;
    }
    let mut report = Report::new("attach");
    let mut rows = Vec::new();
    for workload in &WORKLOADS {
        let figures = measure(workload, &subjects, folder.path(), options)?;
        rows.extend(table(workload, &subjects, &figures));
        judge(workload, &subjects, &figures, &mut report);
    }
    print_table(&["workload", "what", "IOPS", "of bare", "requests per CPU second"], rows);
    drop(peers);
    for volume in ["file", "device"] {
        daemon.run(&format!("detach {volume}"))?;
    }
    Ok(report)
}

/// libnbd's FUSE client of a volume.
fn nbdfuse(folder: &Path, daemon: &Daemon) -> Result<Mounted> {
    let socket = daemon.socket().with_file_name("nbd.sock");
    let uri = format!("nbd+unix:///nbdfuse?socket={}", socket.display());
    mount(folder, "nbdfuse", |place| vec![place, uri])
}

/// QEMU's storage daemon, which exports an image by FUSE.
fn qemu(folder: &Path) -> Result<Mounted> {
    let image = folder.join("image");
    std::fs::File::create(&image)?.set_len(FILE_BYTES)?;
    let file = format!("driver=file,node-name=file,filename={},aio=io_uring", image.display());
    mount(folder, "qemu-storage-daemon", |place| {
        let export = format!("type=fuse,id=export,node-name=file,mountpoint={place},writable=on");
        ["--blockdev", &file, "--export", &export].map(str::to_owned).to_vec()
    })
}

/// Starts a program that mounts a file, and waits until the file has its size.
fn mount(folder: &Path, program: &str, arguments: impl FnOnce(String) -> Vec<String>) -> Result<Mounted> {
    let place = folder.join(format!("{program}.img"));
    std::fs::write(&place, "")?;
    let mut process = Process::start(program, folder, program, &arguments(place.display().to_string()))?;
    process.wait_until(|_| std::fs::metadata(&place).is_ok_and(|file| file.len() == FILE_BYTES))?;
    Ok(Mounted { _process: process, place })
}

/// Measures all subjects in turn, for several rounds.
fn measure(
    workload: &Workload,
    subjects: &[Subject],
    folder: &Path,
    options: &Options,
) -> Result<Vec<Figures>> {
    let (rounds, seconds) = if options.is_quick { (1, 2) } else { (5, 4) };
    let mut all: Vec<Vec<Figures>> = subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (figures, subject) in all.iter_mut().zip(subjects) {
            figures.push(turn(workload, subject, folder, seconds)?);
        }
    }
    let median_of = |figures: &Vec<Figures>| Figures {
        iops: median(figures.iter().map(|one| one.iops)),
        per_processor_second: median(figures.iter().map(|one| one.per_processor_second)),
    };
    Ok(all.iter().map(median_of).collect())
}

fn turn(workload: &Workload, subject: &Subject, folder: &Path, seconds: u64) -> Result<Figures> {
    let target = Target::File(subject.place.clone());
    let Workload { pattern, depth, .. } = *workload;
    let load = Load { pattern, depth, seconds, ..Load::new("load", target, FILE_BYTES) };
    let (begun, before) = (Instant::now(), ProcessorTime::now()?);
    let outcome = load.run(folder).with_context(|| format!("on {}", subject.name))?;
    let busy = ProcessorTime::now()?.busy_since(before);
    let processors = available_parallelism()?.get() as f64;
    let processor_seconds = busy * begun.elapsed().as_secs_f64() * processors;
    Ok(Figures { iops: outcome.iops, per_processor_second: outcome.requests as f64 / processor_seconds })
}

fn table(workload: &Workload, subjects: &[Subject], figures: &[Figures]) -> Vec<Vec<String>> {
    let bare = figures[0].iops;
    let row = |(subject, figures): (&Subject, &Figures)| {
        vec![
            workload.name.to_owned(),
            subject.name.to_owned(),
            grouped(figures.iops),
            format!("{:.2}", figures.iops / bare),
            grouped(figures.per_processor_second),
        ]
    };
    subjects.iter().zip(figures).map(row).collect()
}

fn judge(workload: &Workload, subjects: &[Subject], figures: &[Figures], report: &mut Report) {
    let of = |role: Role| {
        let all = subjects.iter().zip(figures).filter(move |(subject, _)| subject.role == role);
        all.map(|(_, figures)| figures.per_processor_second).fold(0.0, f64::max)
    };
    for (subject, figures) in subjects.iter().zip(figures) {
        report.row(json!({"workload": workload.name, "what": subject.name, "iops": figures.iops,
            "requests_per_processor_second": figures.per_processor_second}));
    }
    let (weir, peer) = (of(Role::Weir), of(Role::Peer));
    report.claim(
        format!(
            "{}: through FUSE at least as many requests per processor second as the best peer",
            workload.name
        ),
        format!("{:.2} of the peer's {}", weir / peer, grouped(peer)),
        weir >= peer * OF_BEST_PEER_MIN,
    );
}
