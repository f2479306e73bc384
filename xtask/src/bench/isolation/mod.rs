//! Isolation bench: three volumes on one pool without any ceiling.
//!
//! * Each volume has its share under any load of the others.
//! * Shares follow weights, and a floor takes precedence.
//!
//! The same load also runs through qemu-nbd, under BFQ, and on the real disk.

mod beside;
mod floor;
mod trial;

use anyhow::Result;

use super::Options;
use crate::report::{Report, print_table};
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Target};
use crate::world::folder::Folder;
use trial::{Figures, JOBS, JOBS_NOISY, REGION_BYTES, Trial};

/// Operations per second of the emulated drive: the rate of the document's filesystem.
const DRIVE_IOPS: f64 = 21_000.0;
/// Names of the volumes.
const VOLUMES: [&str; 3] = ["v1", "v2", "v3"];
/// Largest difference between a volume's rate and its share, in per cent of the share.
const SHARE_OFF_PER_CENT_MAX: f64 = 5.0;
/// Largest growth of the quiet volumes' 99th percentile, as a factor.
const P99_GROWTH_MAX: f64 = 1.5;
/// Fraction of the drive's rate that must be delivered.
const TOTAL_PART_MIN: f64 = 0.97;
/// Weights of the volumes, as in the policy groups that they are bound to.
const WEIGHTS: [u32; 3] = [400, 200, 100];

/// Daemon with three volumes, of each of which a part is written.
struct Pool {
    daemon: Daemon,
    folder: Folder,
}

impl Pool {
    /// Starts the daemon, with volumes on the emulated drive or else on the default drive in the folder.
    fn start(options: &Options, folder: Folder, is_emulated: bool) -> Result<Pool> {
        let daemon = Daemon::start(&options.binary, &folder.path().join("state"), &["--reactors", "2"])?;
        let mut place = "";
        if is_emulated {
            let directory = folder.path().join("drive");
            std::fs::create_dir_all(&directory)?;
            let emulated = format!("--emulate iops={DRIVE_IOPS},latency=200us --no-measurement");
            daemon.run(&format!("drive add {} --name emulated {emulated}", directory.display()))?;
            place = " --drive emulated";
        }
        for volume in VOLUMES {
            daemon.run(&format!("volume create {volume} --size 1{place}"))?;
            Load::fill(format!("fill-{volume}"), daemon.volume(volume), REGION_BYTES).run(folder.path())?;
        }
        Ok(Pool { daemon, folder })
    }

    fn targets(&self) -> [Target; 3] {
        VOLUMES.map(|volume| self.daemon.volume(volume))
    }

    fn bind(&self, volume: &str, policy: &str) -> Result<()> {
        self.daemon.run(&format!("volume modify -volume {volume} -qos-policy-group {policy}")).map(drop)
    }

    fn trial(&self, jobs: [u32; 3], seconds: u64) -> Result<Figures> {
        let trial = Trial { targets: &self.targets(), offsets_bytes: [0; 3], jobs, seconds };
        trial.run(self.folder.path())
    }
}

/// Rows of the table in progress, for people and for programs.
struct Table<'a> {
    report: &'a mut Report,
    rows: Vec<Vec<String>>,
}

impl Table<'_> {
    fn new(report: &mut Report) -> Table<'_> {
        Table { report, rows: Vec::new() }
    }

    fn add(&mut self, what: &str, load: &str, figures: &Figures) {
        self.report.row(figures.row(what, load));
        self.rows.push(figures.cells(what, load));
    }

    fn print(self) {
        print_table(&Figures::HEADINGS, self.rows);
    }
}

/// Measures everything.
pub fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("isolation");
    let pool = Pool::start(options, Folder::in_memory("weir-bench-isolation")?, true)?;
    let seconds = if options.is_quick { 3 } else { 10 };
    measure_equal(&pool, options.rounds(3), seconds, &mut report)?;
    measure_weights(&pool, seconds, &mut report)?;
    floor::run(&pool, 2 * seconds, &mut report)?;
    drop(pool);
    beside::run(options, &mut report)?;
    Ok(report)
}

/// Measures three equal loads, and one load with 16 times the requests, in turn.
fn measure_equal(pool: &Pool, rounds: usize, seconds: u64, report: &mut Report) -> Result<()> {
    let (mut equal, mut noisy) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        equal.push(pool.trial([JOBS; 3], seconds)?);
        noisy.push(pool.trial([JOBS_NOISY, JOBS, JOBS], seconds)?);
    }
    let (equal, noisy) = (Figures::median(&equal), Figures::median(&noisy));
    println!("three volumes on an emulated drive of 21 000 IOPS, 4 KiB, no ceiling (medians of {rounds}):");
    let mut table = Table::new(report);
    table.add("weir", "equal", &equal);
    table.add("weir", "noisy", &noisy);
    table.print();
    judge_equal(&equal, &noisy, report);
    Ok(())
}

fn judge_equal(equal: &Figures, noisy: &Figures, report: &mut Report) {
    for (load, figures) in [("equal loads", equal), ("volume 1 with 16 times the requests", noisy)] {
        claim_shares(&format!("{load}: each a third within 5 %"), figures, [1.0; 3], report);
        let part = figures.total() / DRIVE_IOPS;
        let what = format!("{load}: together at least 0.97 of what the drive can do");
        report.claim(what, format!("{part:.3}"), part >= TOTAL_PART_MIN);
    }
    let growth = noisy.p99_growth(equal);
    let what = "99th percentile of volumes 2 and 3 at most 1.5 times that of equal loads";
    report.claim(what, format!("{growth:.2} times"), growth <= P99_GROWTH_MAX);
}

fn claim_shares(what: &str, figures: &Figures, weights: [f64; 3], report: &mut Report) {
    let off = figures.worst_off_per_cent(weights);
    report.claim(what, format!("worst {off:+.2} %"), off.abs() <= SHARE_OFF_PER_CENT_MAX);
}

/// Measures weights 4:2:1, with the noise once on the largest weight and once on the smallest.
fn measure_weights(pool: &Pool, seconds: u64, report: &mut Report) -> Result<()> {
    for (volume, weight) in VOLUMES.iter().zip(WEIGHTS) {
        pool.daemon.run(&format!("qos policy-group create w{weight} --weight {weight} -is-shared false"))?;
        pool.bind(volume, &format!("w{weight}"))?;
    }
    let heavy = pool.trial([JOBS_NOISY, JOBS, JOBS], seconds)?;
    let light = pool.trial([JOBS, JOBS, JOBS_NOISY], seconds)?;
    for volume in VOLUMES {
        pool.bind(volume, "none")?;
    }
    println!("the same with weights 4:2:1:");
    let mut table = Table::new(report);
    table.add("weir, weights", "noisy volume 1", &heavy);
    table.add("weir, weights", "noisy volume 3", &light);
    table.print();
    let weights = WEIGHTS.map(f64::from);
    claim_shares("weights 4:2:1, noisy volume 1: shares within 5 %", &heavy, weights, report);
    claim_shares("weights 4:2:1, noisy volume 3: shares within 5 %", &light, weights, report);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(equal: Figures, noisy: Figures) -> String {
        let mut report = Report::new("test");
        judge_equal(&equal, &noisy, &mut report);
        report.finish(None).err().map_or_else(String::new, |error| error.to_string())
    }

    fn figures(iops: [f64; 3], p99_us: f64) -> Figures {
        Figures { iops, p99_us: [p99_us; 3], busy: 0.5 }
    }

    #[test]
    fn equal_thirds_of_the_drive_pass() {
        assert_eq!(failures(figures([7000.0; 3], 10.0), figures([7300.0, 6800.0, 6900.0], 15.0)), "");
    }

    #[test]
    fn excess_share_and_long_tail_are_detected() {
        let error = failures(figures([7000.0; 3], 10.0), figures([7700.0, 6650.0, 6650.0], 15.1));
        assert!(error.contains("2 of 5"), "{error}");
    }

    #[test]
    fn idle_drive_is_detected() {
        let error = failures(figures([7000.0; 3], 10.0), figures([6700.0; 3], 10.0));
        assert!(error.contains("1 of 5"), "{error}");
    }
}
