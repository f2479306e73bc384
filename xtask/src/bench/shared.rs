//! Shared budget bench: two saturating volumes split a budget in halves, and one volume alone has all of it.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{MIB, Options, Stage};
use crate::numbers::{is_near, off_per_cent, rate, worst_window};
use crate::report::{Report, print_table};
use crate::world::fio::{Completion, Load, Log, Outcome};

const VOLUME_BYTES: u64 = 64 * MIB;
/// Shared limit in operations per second.
const LIMIT: f64 = 3000.0;
/// Longest time until the other volume uses the budget of a stopped one, in milliseconds.
const TAKEOVER_MS: u64 = 200;

/// Measures both volumes together, and one alone.
pub fn run(options: &Options) -> Result<Report> {
    let stage = Stage::in_memory(options, "shared")?;
    let seconds = if options.is_quick { 5 } else { 30 };
    stage.create_policy("both", "3000IOPS", true)?;
    for volume in ["left", "right"] {
        stage.create_volume(volume, VOLUME_BYTES)?;
        stage.bind(volume, "both")?;
    }
    let load = |volume: &str, seconds| Load {
        depth: 32,
        seconds,
        log: Log::SinceEpoch,
        ..stage.load(volume, volume, VOLUME_BYTES)
    };
    let left = load("left", seconds + 6).start(stage.folder.path())?;
    let right = load("right", seconds + 2).start(stage.folder.path())?;
    std::thread::sleep(Duration::from_secs(1));
    let mut report = Report::new("shared");
    judge(&left.finish()?, &right.finish()?, seconds, &mut report);
    Ok(report)
}

fn judge(left: &Outcome, right: &Outcome, seconds: u64, report: &mut Report) {
    let (left_log, right_log) = (&left.completions, &right.completions);
    let first = |log: &[Completion]| log.first().map_or(0, |completion| completion.at_ms);
    let start = first(left_log).max(first(right_log)) + 1000;
    let end = start + seconds * 1000;
    let rates = [rate(left_log, start, end), rate(right_log, start, end)];
    let sum = rates[0] + rates[1];
    let stopped = right_log.last().map_or(0, |completion| completion.at_ms);
    let alone_from = stopped + TAKEOVER_MS;
    let alone = rate(left_log, alone_from, alone_from + 2000);
    let worst = worst_window(left_log, alone_from, alone_from + 2000, 100, LIMIT / 10.0);
    let headings = ["", "IOPS", "off %"];
    let line = |name: &str, found: f64, wanted: f64| {
        vec![name.to_owned(), format!("{found:.1}"), format!("{:+.3}", off_per_cent(found, wanted))]
    };
    print_table(
        &headings,
        [
            line("left", rates[0], LIMIT / 2.0),
            line("right", rates[1], LIMIT / 2.0),
            line("together", sum, LIMIT),
            line("left alone", alone, LIMIT),
        ],
    );
    report.row(json!({"left": rates[0], "right": rates[1], "alone": alone, "worst_100_ms_alone": worst}));
    let is_sum_exact = is_near(sum * seconds as f64, LIMIT * seconds as f64, 0.001);
    report.claim("two saturating volumes: sum within 0.1 %", format!("{sum:.2}"), is_sum_exact);
    let are_halves = rates.iter().all(|half| (half / (LIMIT / 2.0) - 1.0).abs() <= 0.02);
    report.claim("each half within 2 %", format!("{:.1} and {:.1}", rates[0], rates[1]), are_halves);
    let what = "200 ms after one stops, every 100 ms of the other within 2 % of all";
    report.claim(
        what,
        format!("worst {worst:.0} of {:.0}", LIMIT / 10.0),
        is_near(worst, LIMIT / 10.0, 0.02),
    );
    report.claim(
        "no errors",
        format!("{} and {}", left.error, right.error),
        left.error == 0 && right.error == 0,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(from_ms: u64, per_ms: [u64; 2], change_ms: u64, to_ms: u64) -> Outcome {
        let counts = (from_ms..to_ms).map(|at_ms| (at_ms, per_ms[usize::from(at_ms >= change_ms)]));
        let all =
            counts.flat_map(|(at_ms, count)| (0..count).map(move |_| Completion { at_ms, latency_ns: 1 }));
        Outcome { requests: 0, iops: 0.0, p50_us: 0.0, p99_us: 0.0, error: 0, completions: all.collect() }
    }

    /// Rates of 2 and 1 per ms have the right total but are no halves.
    #[test]
    fn unequal_halves_are_seen() {
        let mut report = Report::new("test");
        judge(&outcome(0, [2, 3], 8000, 12_000), &outcome(0, [1, 0], 8000, 12_000), 5, &mut report);
        let error = report.finish(None).unwrap_err().to_string();
        assert!(error.contains("1 of 4"), "{error}");
    }
}
