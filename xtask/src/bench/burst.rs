//! Burst bench: credit is earned while idle and spent at exactly the burst rate.
//!
//! The credit survives a restart of the daemon, and it is used up at the calculated time.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::{MIB, Options, Stage};
use crate::numbers::rate;
use crate::report::{Report, print_table};
use crate::world::daemon::Daemon;
use crate::world::fio::{Completion, Load, Log};

const VOLUME_BYTES: u64 = 64 * MIB;
/// Ceiling and burst rate, in operations per second.
const CEILING: f64 = 1000.0;
const BURST: f64 = 2000.0;
/// Window in which the end of the burst is detected, in milliseconds.
const WINDOW_MS: u64 = 1000;

/// Completions before and after the restart.
struct Runs {
    before: Vec<Completion>,
    after: Vec<Completion>,
}

/// Earns credit, spends half of it, restarts the daemon, and spends the rest.
pub fn run(options: &Options) -> Result<Report> {
    let mut stage = Stage::in_memory(options, "burst")?;
    let seconds = if options.is_quick { 8 } else { 60 };
    stage.create_volume("volume", VOLUME_BYTES)?;
    stage.daemon.run(&format!(
        "qos policy-group create burst -max-throughput {CEILING}IOPS --burst {BURST}IOPS \
         --burst-seconds {seconds} -is-shared false"
    ))?;
    stage.bind("volume", "burst")?;
    println!("{seconds} s of idling, which earn {seconds} s of burst");
    std::thread::sleep(Duration::from_secs(seconds));
    let before = load(&stage, "before", seconds / 2)?;
    stage.daemon.process().stop()?;
    stage.daemon = Daemon::start(&options.binary, &stage.folder.path().join("state"), &[])?;
    let after = load(&stage, "after", seconds)?;
    let mut report = Report::new("burst");
    judge(&Runs { before, after }, seconds, &mut report)?;
    Ok(report)
}

fn load(stage: &Stage, name: &str, seconds: u64) -> Result<Vec<Completion>> {
    let load = Load { depth: 32, seconds, log: Log::SinceEpoch, ..stage.load(name, "volume", VOLUME_BYTES) };
    Ok(load.run(stage.folder.path())?.completions)
}

fn judge(runs: &Runs, seconds: u64, report: &mut Report) -> Result<()> {
    let first_ms = runs.before.first().context("nothing was done before the restart")?.at_ms;
    let stopped_ms = runs.before.last().context("nothing was done before the restart")?.at_ms;
    let again_ms = runs.after.first().context("nothing was done after the restart")?.at_ms;
    let last_ms = runs.after.last().context("nothing was done after the restart")?.at_ms;
    // Credit counts in seconds at the burst rate. Idle time earns it at the ceiling's rate.
    let per_second = (BURST - CEILING) / CEILING;
    let used = runs.before.len() as f64 / CEILING - (stopped_ms - first_ms) as f64 / 1000.0;
    let earned = (again_ms - stopped_ms) as f64 / 1000.0;
    let expected = seconds as f64 - (used - earned) / per_second;
    let ends_ms = burst_end_ms(&runs.after).context("the burst did not end")?;
    let found = (ends_ms - again_ms) as f64 / 1000.0;
    // The last second is left out, because a load that ends sends fewer requests.
    let rates = [
        rate(&runs.before, first_ms + 1000, stopped_ms - WINDOW_MS),
        rate(&runs.after, again_ms + 1000, ends_ms - WINDOW_MS),
        rate(&runs.after, ends_ms + WINDOW_MS, last_ms - WINDOW_MS),
    ];
    let cells = rates
        .iter()
        .map(|rate| format!("{rate:.1}"))
        .chain([format!("{expected:.2}"), format!("{found:.2}")]);
    print_table(
        &["before", "after the restart", "without credit", "burst left, s", "found, s"],
        [cells.collect()],
    );
    report.row(json!({"rates": rates, "expected_seconds": expected, "found_seconds": found}));
    for (what, found, wanted) in [
        ("before the restart", rates[0], BURST),
        ("after it", rates[1], BURST),
        ("without credit", rates[2], CEILING),
    ] {
        let holds = (found / wanted - 1.0).abs() <= 0.01;
        report.claim(format!("{what}: {wanted} IOPS within 1 %"), format!("{found:.1}"), holds);
    }
    let what = "the credit is used up when the arithmetic says, within 1 % of what was earned";
    let holds = (found - expected).abs() <= seconds as f64 / 100.0;
    report.claim(what, format!("{found:.2} of {expected:.2} s"), holds);
    Ok(())
}

/// Returns the middle of the first window whose rate is less than half way from ceiling to burst.
fn burst_end_ms(log: &[Completion]) -> Option<u64> {
    let (first, last) = (log.first()?.at_ms, log.last()?.at_ms);
    let starts = (first..last.saturating_sub(WINDOW_MS)).step_by(20);
    let is_over = |&from: &u64| rate(log, from, from + WINDOW_MS) < (CEILING + BURST) / 2.0;
    starts.into_iter().find(is_over).map(|from| from + WINDOW_MS / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(from_ms: u64, to_ms: u64, per_ms: u64) -> impl Iterator<Item = Completion> {
        let one = |at_ms| Completion { at_ms, latency_ns: 1 };
        (from_ms..to_ms).flat_map(move |at_ms| (0..per_ms).map(move |_| one(at_ms)))
    }

    fn verdict(burst_ms: u64) -> Result<()> {
        let before = done(0, 4000, 2).collect();
        let after = done(5000, 5000 + burst_ms, 2).chain(done(5000 + burst_ms, 15_000, 1)).collect();
        let mut report = Report::new("test");
        judge(&Runs { before, after }, 8, &mut report).unwrap();
        report.finish(None)
    }

    #[test]
    fn burst_of_wrong_length_is_detected() {
        assert!(verdict(5000).is_ok());
        assert!(verdict(4800).is_err());
        assert!(verdict(5200).is_err());
    }
}
