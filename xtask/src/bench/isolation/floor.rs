//! Floor bench: a floor against a neighbour of overwhelming weight.
//!
//! Every second with demand delivers the floor. The neighbour gets the whole pool as soon as the demand ends.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::trial::{DEPTH, JOBS_NOISY, REGION_BYTES, SETTLE_MS};
use super::{DRIVE_IOPS, Pool};
use crate::numbers::{between, worst_window};
use crate::report::{Report, print_table};
use crate::world::fio::{Completion, Load, Log, Outcome};

/// Floor in operations per second, and fraction of it that every second must have.
const FLOOR_IOPS: f64 = 5000.0;
const FLOOR_PART_MIN: f64 = 0.95;
/// Requests that volume 2 keeps outstanding: enough to reach its floor at 6 ms an operation.
const FLOOR_DEPTH: u32 = 32;
/// Time until the neighbour must have the whole pool, and length of the judged time after it, in
/// milliseconds.
const TAKEOVER_MS: u64 = 100;
const ALONE_MS: u64 = 2000;
/// Width of the windows in this time in milliseconds, and largest relative difference of each from the whole
/// pool.
const WINDOW_MS: u64 = 100;
const WINDOW_TOLERANCE: f64 = 0.05;

/// Results of the loads.
struct Delivered {
    /// Completions of volume 2 in each whole second between its first and its last.
    seconds: Vec<usize>,
    /// Completions of volume 1 in the 100 ms furthest from the whole pool, before volume 2 began. The machine
    /// and not volume 2 causes this difference.
    worst_before: f64,
    /// Completions of volume 1 in the first 100 ms in which it must have the whole pool.
    first_alone: f64,
    /// Completions of volume 1 in the 100 ms furthest from the whole pool, while it must have the whole pool.
    worst_alone: f64,
}

/// Measures volume 2 without and with its floor.
pub fn run(pool: &Pool, seconds: u64, report: &mut Report) -> Result<()> {
    pool.daemon.run("qos policy-group create heavy --weight 10000 -is-shared false")?;
    pool.daemon.run("qos policy-group create floor --min-throughput 5000IOPS -is-shared false")?;
    pool.bind("v1", "heavy")?;
    let without = measure(pool, seconds.min(5))?;
    pool.bind("v2", "floor")?;
    let with = measure(pool, seconds)?;
    for volume in ["v1", "v2"] {
        pool.bind(volume, "none")?;
    }
    let cells = |name: &str, delivered: &Delivered| {
        let worst = delivered.seconds.iter().min().copied().unwrap_or(0);
        let mean = delivered.seconds.iter().sum::<usize>() / delivered.seconds.len().max(1);
        let windows = [delivered.worst_before, delivered.first_alone, delivered.worst_alone];
        let mut cells = vec![name.to_owned(), mean.to_string(), worst.to_string()];
        cells.extend(windows.map(|count| format!("{count:.0}")));
        cells
    };
    let headings =
        ["volume 2, weight 1 %", "IOPS", "worst second", "100 ms of volume 1: before", "just after", "after"];
    print_table(&headings, [cells("no floor", &without), cells("floor of 5000 IOPS", &with)]);
    judge(&with, report);
    Ok(())
}

fn measure(pool: &Pool, seconds: u64) -> Result<Delivered> {
    let load = |volume: &str, jobs, depth, seconds| Load {
        pattern: "randrw",
        depth,
        jobs,
        seconds,
        log: Log::SinceEpoch,
        ..Load::new(volume, pool.daemon.volume(volume), REGION_BYTES)
    };
    let neighbour = load("v1", JOBS_NOISY, DEPTH, seconds + 10).start(pool.folder.path())?;
    std::thread::sleep(Duration::from_millis(SETTLE_MS + ALONE_MS));
    let asking = load("v2", 1, FLOOR_DEPTH, seconds + 1).start(pool.folder.path())?;
    let (asking, neighbour) = (asking.finish()?, neighbour.finish()?);
    ensure!(asking.error == 0 && neighbour.error == 0, "a load failed");
    Ok(deliver(&asking, &neighbour))
}

fn deliver(asking: &Outcome, neighbour: &Outcome) -> Delivered {
    let at_ms = |completion: Option<&Completion>| completion.map_or(0, |completion| completion.at_ms);
    let log = &asking.completions;
    let (first_ms, last_ms) = (at_ms(log.first()), at_ms(log.last()));
    let starts = (first_ms..=last_ms.saturating_sub(1000)).step_by(1000);
    let seconds = starts.map(|start| between(log, start, start + 1000).len()).collect();
    let alone_ms = last_ms + TAKEOVER_MS;
    let expected = DRIVE_IOPS * WINDOW_MS as f64 / 1000.0;
    let worst = |from_ms, to_ms| worst_window(&neighbour.completions, from_ms, to_ms, WINDOW_MS, expected);
    Delivered {
        seconds,
        worst_before: worst(at_ms(neighbour.completions.first()) + SETTLE_MS, first_ms),
        first_alone: worst(alone_ms, alone_ms + WINDOW_MS),
        worst_alone: worst(alone_ms, alone_ms + ALONE_MS),
    }
}

fn judge(delivered: &Delivered, report: &mut Report) {
    let worst = delivered.seconds.iter().min().copied().unwrap_or(0) as f64;
    report.row(json!({"what": "weir, floor", "seconds": delivered.seconds, "worst_second": worst,
        "worst_100_ms_alone": delivered.worst_alone}));
    let what = "floor of 5000 IOPS: at least 0.95 of it in every second in which it is asked for";
    report.claim(
        what,
        format!("worst of {} seconds {worst:.0}", delivered.seconds.len()),
        worst >= FLOOR_PART_MIN * FLOOR_IOPS,
    );
    let expected = DRIVE_IOPS * WINDOW_MS as f64 / 1000.0;
    let off = (delivered.worst_alone / expected - 1.0).abs();
    let what = "100 ms after it is no longer asked for, every 100 ms of the neighbour within 5 % of the pool";
    report.claim(
        what,
        format!("worst {:.0} of {expected:.0}", delivered.worst_alone),
        off <= WINDOW_TOLERANCE,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(from_ms: u64, to_ms: u64, each: impl Fn(u64) -> u64) -> Outcome {
        let times = (from_ms..to_ms).flat_map(|at_ms| (0..each(at_ms)).map(move |_| at_ms));
        let completions = times.map(|at_ms| Completion { at_ms, latency_ns: 1 }).collect();
        Outcome { requests: 0, iops: 0.0, p50_us: 0.0, p99_us: 0.0, error: 0, completions }
    }

    fn judged(asking: impl Fn(u64) -> u64, neighbour: impl Fn(u64) -> u64) -> Result<()> {
        let mut report = Report::new("test");
        judge(&deliver(&outcome(1000, 5000, asking), &outcome(0, 8000, neighbour)), &mut report);
        report.finish(None)
    }

    #[test]
    fn second_below_floor_is_detected() {
        assert!(judged(|_| 5, |at_ms| if at_ms < 5000 { 16 } else { 21 }).is_ok());
        assert!(judged(|at_ms| if (3000..3100).contains(&at_ms) { 0 } else { 5 }, |_| 21).is_err());
    }

    #[test]
    fn late_takeover_of_the_pool_is_detected() {
        assert!(judged(|_| 5, |at_ms| if at_ms < 5090 { 16 } else { 21 }).is_ok());
        assert!(judged(|_| 5, |at_ms| if at_ms < 5190 { 16 } else { 21 }).is_err());
    }

    #[test]
    fn missing_demand_is_no_delivered_floor() {
        assert!(judged(|_| 0, |_| 21).is_err());
    }
}
