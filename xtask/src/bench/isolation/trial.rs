//! Trial: three loads at once, and the result of each in the time in which all three ran.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::numbers::{between, median, percentile_us, rate};
use crate::report::{grouped, milliseconds};
use crate::world::fio::{Completion, Load, Log, Outcome, Target};
use crate::world::processor::ProcessorTime;

/// Bytes of each volume that are written first, and then loaded.
pub const REGION_BYTES: u64 = 128 << 20;
/// Document's load: two jobs, each with 256 requests outstanding.
pub const DEPTH: u32 = 256;
pub const JOBS: u32 = 2;
/// Jobs of the noisy volume: 16 times the requests of the others.
pub const JOBS_NOISY: u32 = 16 * JOBS;
/// Time for all loads to start and to settle, in milliseconds.
pub const SETTLE_MS: u64 = 2000;
/// Time that a load runs longer than the counted time, in seconds: for settling, and because loads start one
/// after another.
const MARGIN_SECONDS: u64 = 4;

/// Three targets, each loaded with its number of jobs.
pub struct Trial<'a> {
    pub targets: &'a [Target; 3],
    /// Offset in its target at which each load begins, in bytes.
    pub offsets_bytes: [u64; 3],
    pub jobs: [u32; 3],
    pub seconds: u64,
}

/// Results of three loads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub iops: [f64; 3],
    pub p99_us: [f64; 3],
    /// Fraction of the machine's processor time that was used, from 0 to 1.
    pub busy: f64,
}

impl Trial<'_> {
    /// Runs the loads. Their files go into `folder`.
    pub fn run(&self, folder: &Path) -> Result<Figures> {
        let mut running = Vec::new();
        for index in 0..3 {
            running.push(self.load(index).start(folder)?);
        }
        std::thread::sleep(std::time::Duration::from_millis(SETTLE_MS));
        let before = ProcessorTime::now()?;
        std::thread::sleep(std::time::Duration::from_secs(self.seconds));
        let busy = ProcessorTime::now()?.busy_since(before);
        let outcomes = running.into_iter().map(|running| running.finish()).collect::<Result<Vec<_>>>()?;
        ensure!(outcomes.iter().all(|outcome| outcome.error == 0), "a load failed");
        Ok(Figures { busy, ..measure(&outcomes, self.seconds) })
    }

    fn load(&self, index: usize) -> Load {
        Load {
            pattern: "randrw",
            depth: DEPTH,
            jobs: self.jobs[index],
            seconds: self.seconds + MARGIN_SECONDS,
            log: Log::SinceEpoch,
            extra: vec![format!("--offset={}", self.offsets_bytes[index])],
            ..Load::new(format!("load{}", index + 1), self.targets[index].clone(), REGION_BYTES)
        }
    }
}

/// Counts from the time when all loads have settled until the first load ends.
fn measure(outcomes: &[Outcome], seconds: u64) -> Figures {
    let at_ms = |completion: Option<&Completion>| completion.map_or(0, |completion| completion.at_ms);
    let firsts = outcomes.iter().map(|outcome| at_ms(outcome.completions.first()));
    let lasts = outcomes.iter().map(|outcome| at_ms(outcome.completions.last()));
    let from_ms = firsts.max().unwrap_or(0) + SETTLE_MS;
    let to_ms = (from_ms + seconds * 1000).min(lasts.min().unwrap_or(0));
    let mut figures = Figures::default();
    for (index, outcome) in outcomes.iter().enumerate() {
        figures.iops[index] = rate(&outcome.completions, from_ms, to_ms);
        figures.p99_us[index] = percentile_us(between(&outcome.completions, from_ms, to_ms), 99);
    }
    figures
}

impl Figures {
    /// Returns the median of several rounds, figure by figure.
    pub fn median(rounds: &[Figures]) -> Figures {
        let middle = |figure: &dyn Fn(&Figures) -> f64| median(rounds.iter().map(figure));
        Figures {
            iops: [0, 1, 2].map(|index| middle(&|figures| figures.iops[index])),
            p99_us: [0, 1, 2].map(|index| middle(&|figures| figures.p99_us[index])),
            busy: middle(&|figures| figures.busy),
        }
    }

    /// Returns the operations per second of all three loads.
    pub fn total(&self) -> f64 {
        self.iops.iter().sum()
    }

    /// Returns the largest difference between a load and the share of its weight, in per cent of the share.
    pub fn worst_off_per_cent(&self, weights: [f64; 3]) -> f64 {
        let sum: f64 = weights.iter().sum();
        let off =
            |index: usize| (self.iops[index] / (self.total().max(1.0) * weights[index] / sum) - 1.0) * 100.0;
        [0, 1, 2].map(off).into_iter().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0)
    }

    /// Returns the larger growth of the 99th percentiles of volumes 2 and 3, as a factor.
    pub fn p99_growth(&self, before: &Figures) -> f64 {
        [1, 2].map(|index| self.p99_us[index] / before.p99_us[index].max(1.0)).into_iter().fold(0.0, f64::max)
    }

    /// Returns the smaller fraction of their former rate that volumes 2 and 3 keep.
    pub fn kept(&self, before: &Figures) -> f64 {
        [1, 2]
            .map(|index| self.iops[index] / before.iops[index].max(1.0))
            .into_iter()
            .fold(f64::MAX, f64::min)
    }

    /// Headings of a table of figures.
    pub const HEADINGS: [&'static str; 10] = [
        "what",
        "load",
        "IOPS 1",
        "IOPS 2",
        "IOPS 3",
        "together",
        "p99 ms 1",
        "p99 ms 2",
        "p99 ms 3",
        "CPU busy %",
    ];

    /// Returns a line of the table.
    pub fn cells(&self, what: &str, load: &str) -> Vec<String> {
        let mut cells = vec![what.to_owned(), load.to_owned()];
        cells.extend(self.iops.iter().map(|&iops| grouped(iops)));
        cells.push(grouped(self.total()));
        cells.extend(self.p99_us.iter().map(|&p99_us| milliseconds(p99_us)));
        cells.push(format!("{:.0}", self.busy * 100.0));
        cells
    }

    /// Returns a row for programs.
    pub fn row(&self, what: &str, load: &str) -> Value {
        json!({"what": what, "load": load, "iops": self.iops, "p99_us": self.p99_us, "busy": self.busy})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(from_ms: u64, to_ms: u64, latency_ns: u64) -> Outcome {
        let completions = (from_ms..to_ms).map(|at_ms| Completion { at_ms, latency_ns }).collect();
        Outcome { requests: 0, iops: 0.0, p50_us: 0.0, p99_us: 0.0, error: 0, completions }
    }

    #[test]
    fn only_time_with_all_loads_counts() {
        let outcomes = [outcome(0, 9000, 1000), outcome(500, 9000, 2000), outcome(1000, 4000, 3000)];
        let figures = measure(&outcomes, 5);
        assert!(figures.iops.iter().all(|iops| (iops - 1000.0).abs() < 2.0), "{:?}", figures.iops);
        assert_eq!(figures.p99_us, [1.0, 2.0, 3.0]);
    }

    #[test]
    fn shares_are_judged_by_weight() {
        let figures = Figures { iops: [400.0, 200.0, 100.0], ..Figures::default() };
        assert!(figures.worst_off_per_cent([4.0, 2.0, 1.0]).abs() < 1e-9);
        assert!((figures.worst_off_per_cent([1.0; 3]) - 5.0 / 7.0 * 100.0).abs() < 1e-9);
    }

    #[test]
    fn the_worse_of_the_two_neighbours_counts() {
        let before = Figures { iops: [1.0, 100.0, 100.0], p99_us: [1.0, 10.0, 10.0], busy: 0.0 };
        let after = Figures { iops: [1.0, 90.0, 80.0], p99_us: [99.0, 20.0, 10.0], busy: 0.0 };
        assert_eq!((after.kept(&before), after.p99_growth(&before)), (0.8, 2.0));
    }
}
