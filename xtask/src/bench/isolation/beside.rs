//! The same loads on the real disk: Weir, qemu-nbd on three files, and the kernel's BFQ with equal weights.
//!
//! Only Weir is judged, and only if the disk is what is short: on few cores the load itself takes most of the
//! processors, and then who gets less is decided by the kernel's scheduler of threads.

use std::path::Path;

use anyhow::Result;

use super::trial::{Figures, JOBS, JOBS_NOISY, REGION_BYTES, Trial};
use super::{Options, Pool, Table, VOLUMES};
use crate::report::Report;
use crate::tidy::repository_root;
use crate::world::fio::{Load, Target};
use crate::world::folder::Folder;
use crate::world::peers::Peer;
use crate::world::weighted::{WeightGroup, WeightedDevice};

/// From which part of the processors' time on they and not the disk are what is short.
const BUSY_EXHAUSTED: f64 = 0.9;
/// What volumes 2 and 3 must keep of what they had with equal loads.
const KEPT_MIN: f64 = 0.8;
/// Weight of each group under BFQ, its default.
const BFQ_WEIGHT: u32 = 100;

/// Equal loads, and one with 16 times the requests.
struct Pair {
    equal: Figures,
    noisy: Figures,
}

/// Measures all in turn.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let seconds = if options.is_quick { 2 } else { 8 };
    let disk = |name: &str| Folder::on_disk(options.disk.as_deref(), &repository_root(), name);
    let pool = Pool::start(options, disk("weir-bench-isolation-weir")?, false)?;
    let weir = measure(&pool.targets(), [0; 3], seconds, pool.folder.path())?;
    drop(pool);
    let folder = disk("weir-bench-isolation-peers")?;
    let qemu = measure_qemu(seconds, folder.path())?;
    let weighted = measure_weighted(seconds, folder.path());
    println!("on the real disk:");
    let mut table = Table::new(report);
    let mut add = |what: &str, pair: &Pair| {
        table.add(what, "equal", &pair.equal);
        table.add(what, "noisy", &pair.noisy);
    };
    add("weir", &weir);
    add("qemu-nbd", &qemu);
    if let Ok(pair) = &weighted {
        add("BFQ, weights equal", pair);
    }
    table.print();
    if let Err(error) = weighted {
        println!("left out: cgroup v1 BFQ weights ({error:#})\n");
    }
    for (name, pair) in [("weir", &weir), ("qemu-nbd", &qemu)] {
        println!("{name}: volumes 2 and 3 keep {:.2} of what they had", pair.noisy.kept(&pair.equal));
    }
    judge(&weir, report);
    Ok(())
}

fn measure(targets: &[Target; 3], offsets_bytes: [u64; 3], seconds: u64, folder: &Path) -> Result<Pair> {
    let trial = |jobs| Trial { targets, offsets_bytes, jobs, seconds }.run(folder);
    Ok(Pair { equal: trial([JOBS; 3])?, noisy: trial([JOBS_NOISY, JOBS, JOBS])? })
}

fn measure_qemu(seconds: u64, folder: &Path) -> Result<Pair> {
    let mut peers = Vec::new();
    for volume in VOLUMES {
        let file = folder.join(volume);
        let target = Target::File(file.clone());
        Load::fill(format!("fill-{volume}"), target, REGION_BYTES).run(folder)?;
        peers.push(Peer::qemu_nbd(folder, &format!("qemu-nbd-{volume}"), &file)?);
    }
    let targets = [0, 1, 2].map(|index: usize| peers[index].target());
    measure(&targets, [0; 3], seconds, folder)
}

/// Three parts of one device, because BFQ shares out a device.
fn measure_weighted(seconds: u64, folder: &Path) -> Result<Pair> {
    let file = folder.join("weighted");
    Load::fill("fill-weighted", Target::File(file.clone()), 3 * REGION_BYTES).run(folder)?;
    let device = WeightedDevice::new(&file)?;
    let groups = VOLUMES.map(|volume| WeightGroup::new(volume, BFQ_WEIGHT));
    let [first, second, third] = groups;
    let groups = [first?, second?, third?];
    let targets = [0, 1, 2].map(|index: usize| groups[index].target(device.path()));
    measure(&targets, [0, REGION_BYTES, 2 * REGION_BYTES], seconds, folder)
}

fn judge(weir: &Pair, report: &mut Report) {
    let kept = weir.noisy.kept(&weir.equal);
    if weir.noisy.busy.max(weir.equal.busy) >= BUSY_EXHAUSTED {
        println!("not judged on the real disk: the processors are what is short there, not the disk\n");
        return;
    }
    println!("what is short on the real disk is the disk: the processors have time left\n");
    let what = "real disk: volumes 2 and 3 keep at least 0.8 of what they had with equal loads";
    report.claim(what, format!("{kept:.2}"), kept >= KEPT_MIN);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(kept: f64, busy: f64) -> Result<()> {
        let figures = |iops: f64| Figures { iops: [iops; 3], p99_us: [1.0; 3], busy };
        let mut report = Report::new("test");
        judge(&Pair { equal: figures(1000.0), noisy: figures(1000.0 * kept) }, &mut report);
        report.finish(None)
    }

    #[test]
    fn a_loss_counts_only_where_the_disk_is_short() {
        assert!(judged(0.8, 0.5).is_ok());
        assert!(judged(0.79, 0.5).is_err());
        assert!(judged(0.1, 0.9).is_ok());
    }
}
