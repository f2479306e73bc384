//! Cost of an attached volume, beside other ways to make a file of a volume or an image: here, or in a guest.
//!
//! All stand on files in memory. The processor time is that of the whole machine, because a block device also costs the
//! time of the kernel's threads. The client's part is the same for all.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;

use super::daemon::Daemon;
use super::fio::{Load, Target};
use super::folder::Folder;
use super::process::Process;
use super::processor::ProcessorTime;
use super::tools;
use crate::numbers::median;
use crate::report::{Report, grouped, print_table};

const MIB: u64 = 1 << 20;

/// How much is measured.
pub struct Length {
    /// Size of each file in bytes.
    file_bytes: u64,
    rounds: usize,
    /// Seconds of each turn.
    seconds: u64,
}

impl Length {
    /// Enough to judge by.
    pub const FULL: Length = Length { file_bytes: 256 * MIB, rounds: 5, seconds: 4 };
    /// Too short to judge by.
    pub const QUICK: Length = Length { file_bytes: 256 * MIB, rounds: 1, seconds: 2 };
    /// A guest without hardware virtualisation is slow, and has little memory.
    pub const IN_GUEST: Length = Length { file_bytes: 32 * MIB, rounds: 3, seconds: 3 };
}

/// Programs that make a file of a volume or of an image.
pub const PEERS: [&str; 2] = ["nbdfuse", "qemu-storage-daemon"];
/// What is measured of Weir: a name, the name of a volume, and the method.
const OWN: [(&str, &str, &str); 4] = [
    ("weir, file", "file", "fuse-file"),
    ("weir, block device by FUSE", "fuse", "fuse"),
    ("weir, block device by ublk", "ublk", "ublk"),
    ("weir, block device by NBD", "nbd", "nbd"),
];

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
    /// A block device of Weir without FUSE.
    WithoutFuse,
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

/// Measures whatever this host has.
pub fn measure_all(binary: &Path, length: &Length) -> Result<Report> {
    tools::require(&["losetup", "umount"])?;
    tools::require(&PEERS)?;
    let folder = Folder::in_memory("weir-bench-attach")?;
    let daemon = Daemon::start(binary, &folder.path().join("state"), &[])?;
    let size = format!("{}MiB", length.file_bytes / MIB);
    let mut subjects =
        vec![Subject { name: "bare file", place: folder.path().join("bare"), role: Role::Bare }];
    let mut attached = Vec::new();
    for (name, volume, method) in OWN {
        daemon.run(&format!("volume create {volume} --size {size}"))?;
        let role = if method.starts_with("fuse") { Role::Weir } else { Role::WithoutFuse };
        match daemon.run(&format!("attach {volume} --method {method}")) {
            Ok(place) => {
                subjects.push(Subject { name, place: PathBuf::from(place.trim()), role });
                attached.push(volume);
            }
            // Not every kernel has every driver; every one has FUSE.
            Err(error) if role == Role::WithoutFuse => println!("{name}: not here: {error:#}"),
            Err(error) => return Err(error),
        }
    }
    daemon.run(&format!("volume create nbdfuse --size {size}"))?;
    let peers = [nbdfuse(folder.path(), &daemon, length)?, qemu(folder.path(), length)?];
    for (name, peer) in ["nbdfuse, of a volume", "QEMU's FUSE export"].into_iter().zip(&peers) {
        subjects.push(Subject { name, place: peer.place.clone(), role: Role::Peer });
    }
    for subject in &subjects {
        Load::fill("fill", Target::File(subject.place.clone()), length.file_bytes).run(folder.path())?;
    }
    let mut report = Report::new("attach");
    let mut rows = Vec::new();
    for workload in &WORKLOADS {
        let figures = measure(workload, &subjects, folder.path(), length)?;
        rows.extend(table(workload, &subjects, &figures));
        judge(workload, &subjects, &figures, &mut report);
    }
    print_table(&["workload", "what", "IOPS", "of bare", "requests per CPU second"], rows);
    drop(peers);
    for volume in attached {
        daemon.run(&format!("detach {volume}"))?;
    }
    Ok(report)
}

/// libnbd's FUSE client of a volume.
fn nbdfuse(folder: &Path, daemon: &Daemon, length: &Length) -> Result<Mounted> {
    let socket = daemon.socket().with_file_name("nbd.sock");
    let uri = format!("nbd+unix:///nbdfuse?socket={}", socket.display());
    mount(folder, "nbdfuse", length, |place| vec![place, uri])
}

/// QEMU's storage daemon, which exports an image by FUSE.
fn qemu(folder: &Path, length: &Length) -> Result<Mounted> {
    let image = folder.join("image");
    std::fs::File::create(&image)?.set_len(length.file_bytes)?;
    let file = format!("driver=file,node-name=file,filename={},aio=io_uring", image.display());
    mount(folder, "qemu-storage-daemon", length, |place| {
        let export = format!("type=fuse,id=export,node-name=file,mountpoint={place},writable=on");
        ["--blockdev", &file, "--export", &export].map(str::to_owned).to_vec()
    })
}

/// Starts a program that mounts a file, and waits until the file has its size.
fn mount(
    folder: &Path,
    program: &str,
    length: &Length,
    arguments: impl FnOnce(String) -> Vec<String>,
) -> Result<Mounted> {
    let place = folder.join(format!("{program}.img"));
    std::fs::write(&place, "")?;
    let mut process = Process::start(program, folder, program, &arguments(place.display().to_string()))?;
    process.wait_until(|_| std::fs::metadata(&place).is_ok_and(|file| file.len() == length.file_bytes))?;
    Ok(Mounted { _process: process, place })
}

/// Measures all subjects in turn, for several rounds.
fn measure(
    workload: &Workload,
    subjects: &[Subject],
    folder: &Path,
    length: &Length,
) -> Result<Vec<Figures>> {
    let mut all: Vec<Vec<Figures>> = subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..length.rounds {
        for (figures, subject) in all.iter_mut().zip(subjects) {
            figures.push(turn(workload, subject, folder, length)?);
        }
    }
    let median_of = |figures: &Vec<Figures>| Figures {
        iops: median(figures.iter().map(|one| one.iops)),
        per_processor_second: median(figures.iter().map(|one| one.per_processor_second)),
    };
    Ok(all.iter().map(median_of).collect())
}

fn turn(workload: &Workload, subject: &Subject, folder: &Path, length: &Length) -> Result<Figures> {
    let target = Target::File(subject.place.clone());
    let Workload { pattern, depth, .. } = *workload;
    let load =
        Load { pattern, depth, seconds: length.seconds, ..Load::new("load", target, length.file_bytes) };
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
