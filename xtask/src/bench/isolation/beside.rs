//! Isolation on the real disk: the same loads on bare files, Weir, qemu-nbd on three files, and the kernel's
//! BFQ with equal weights.
//!
//! Only Weir is judged, and only if the processors are not the bottleneck. On few cores the load itself takes
//! most of them. The kernel's thread scheduler then decides the shares.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::trial::{Figures, JOBS, JOBS_NOISY, REGION_BYTES, Trial};
use super::{Options, Pool, Table, VOLUMES};
use crate::report::Report;
use crate::repository::repository_root;
use crate::world::fio::{Load, Target};
use crate::world::folder::Folder;
use crate::world::peers::{BlockGroup, Peer};
use crate::world::weighted::WeightedDevice;

/// Fraction of processor time from which on the processors and not the disk are the bottleneck.
const BUSY_EXHAUSTED: f64 = 0.9;
/// Fraction of their rate with equal loads that volumes 2 and 3 must keep.
const KEPT_MIN: f64 = 0.8;
/// Weight of each group under BFQ, its default.
const BFQ_WEIGHT: u32 = 100;

/// Server of three targets, with its results round by round.
struct Subject {
    name: &'static str,
    targets: [Target; 3],
    offsets_bytes: [u64; 3],
    equal: Vec<Figures>,
    noisy: Vec<Figures>,
}

impl Subject {
    fn new(name: &'static str, targets: [Target; 3], offsets_bytes: [u64; 3]) -> Subject {
        Subject { name, targets, offsets_bytes, equal: Vec::new(), noisy: Vec::new() }
    }

    fn measure(&mut self, seconds: u64, folder: &Path) -> Result<()> {
        let (targets, offsets_bytes) = (&self.targets, self.offsets_bytes);
        let trial = |jobs| Trial { targets, offsets_bytes, jobs, seconds }.run(folder);
        self.equal.push(trial([JOBS; 3])?);
        self.noisy.push(trial([JOBS_NOISY, JOBS, JOBS])?);
        Ok(())
    }

    /// Returns the medians with equal loads, and with a noisy one.
    fn pair(&self) -> [Figures; 2] {
        [Figures::median(&self.equal), Figures::median(&self.noisy)]
    }
}

/// Other ways to divide a disk, kept alive while they are measured.
struct Peers {
    qemu_nbd: [Peer; 3],
    weighted: Option<(WeightedDevice, [BlockGroup; 3])>,
}

impl Peers {
    fn start(folder: &Path, files: &[PathBuf; 3]) -> Result<Peers> {
        let qemu_nbd = start_qemu(folder, files)?;
        let weighted = start_weighted(folder);
        let weighted =
            weighted.inspect_err(|error| println!("left out: cgroup v1 BFQ weights ({error:#})\n")).ok();
        Ok(Peers { qemu_nbd, weighted })
    }

    fn subjects(&self) -> Vec<Subject> {
        let qemu_nbd = Subject::new("qemu-nbd", self.qemu_nbd.each_ref().map(Peer::target), [0; 3]);
        let weighted = self.weighted.iter().map(|(device, groups)| {
            let targets = groups.each_ref().map(|group| group.target(device.path()));
            Subject::new("BFQ, equal weights", targets, [0, REGION_BYTES, 2 * REGION_BYTES])
        });
        std::iter::once(qemu_nbd).chain(weighted).collect()
    }
}

/// Measures all subjects in turn.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let (rounds, seconds) = (options.rounds(3), if options.is_quick { 2 } else { 4 });
    let disk = |name: &str| Folder::on_disk(options.disk.as_deref(), &repository_root(), name);
    let pool = Pool::start(options, disk("weir-bench-isolation-weir")?, false)?;
    let folder = disk("weir-bench-isolation-peers")?;
    let files = fill_files(folder.path())?;
    let peers = if options.is_in_turn { None } else { Some(Peers::start(folder.path(), &files)?) };
    let mut subjects = vec![
        Subject::new("weir", pool.targets(), [0; 3]),
        Subject::new("bare files", files.map(Target::File), [0; 3]),
    ];
    subjects.extend(peers.iter().flat_map(Peers::subjects));
    for _ in 0..rounds {
        for subject in &mut subjects {
            subject.measure(seconds, folder.path())?;
        }
    }
    println!("on the real disk (medians of {rounds}):");
    let mut table = Table::new(report);
    for subject in &subjects {
        let [equal, noisy] = subject.pair();
        table.add(subject.name, "equal", &equal);
        table.add(subject.name, "noisy", &noisy);
    }
    table.print();
    for subject in &subjects {
        let [equal, noisy] = subject.pair();
        if noisy.total() > 0.0 {
            println!("{}: volumes 2 and 3 keep {:.2} of what they had", subject.name, noisy.kept(&equal));
        } else {
            println!("{}: one load only came to run when another had ended", subject.name);
        }
    }
    judge(subjects[0].pair(), report);
    Ok(())
}

fn fill_files(folder: &Path) -> Result<[PathBuf; 3]> {
    let files = VOLUMES.map(|volume| folder.join(volume));
    for (file, volume) in files.iter().zip(VOLUMES) {
        Load::fill(format!("fill-{volume}"), Target::File(file.clone()), REGION_BYTES).run(folder)?;
    }
    Ok(files)
}

fn start_qemu(folder: &Path, files: &[PathBuf; 3]) -> Result<[Peer; 3]> {
    let start = |index: usize| Peer::qemu_nbd(folder, &format!("qemu-nbd-{}", VOLUMES[index]), &files[index]);
    Ok([start(0)?, start(1)?, start(2)?])
}

/// Starts a device with three parts, one per group, because BFQ divides one device.
fn start_weighted(folder: &Path) -> Result<(WeightedDevice, [BlockGroup; 3])> {
    let file = folder.join("weighted");
    Load::fill("fill-weighted", Target::File(file.clone()), 3 * REGION_BYTES).run(folder)?;
    let device = WeightedDevice::new(&file)?;
    let group = |index: usize| BlockGroup::weighted(VOLUMES[index], BFQ_WEIGHT);
    Ok((device, [group(0)?, group(1)?, group(2)?]))
}

fn judge([equal, noisy]: [Figures; 2], report: &mut Report) {
    let busy = equal.busy.max(noisy.busy);
    if busy >= BUSY_EXHAUSTED {
        println!("not judged on the real disk: the processors are short ({:.0} % busy)\n", busy * 100.0);
        return;
    }
    println!("judged on the real disk: the processors have time left ({:.0} % busy)\n", busy * 100.0);
    let kept = noisy.kept(&equal);
    let what = "real disk: volumes 2 and 3 keep at least 0.8 of what they had with equal loads";
    report.claim(what, format!("{kept:.2}"), kept >= KEPT_MIN);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(kept: f64, busy: f64) -> Result<()> {
        let figures = |iops: f64| Figures { iops: [iops; 3], p99_us: [1.0; 3], busy };
        let mut report = Report::new("test");
        judge([figures(1000.0), figures(1000.0 * kept)], &mut report);
        report.finish(None)
    }

    #[test]
    fn loss_counts_only_if_the_disk_is_the_bottleneck() {
        assert!(judged(0.8, 0.5).is_ok());
        assert!(judged(0.79, 0.5).is_err());
        assert!(judged(0.1, 0.9).is_ok());
    }
}
