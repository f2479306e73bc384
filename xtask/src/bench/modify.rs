//! Modify bench: changes of a limit under load. Each change takes effect within 100 ms, and a thousand in a
//! row do no harm.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{MIB, Options, Stage};
use crate::numbers::{off_per_cent, rate, worst_window};
use crate::report::{Report, print_table};
use crate::world::fio::{Completion, Load, Log};
use crate::world::now_ms;

const VOLUME_BYTES: u64 = 64 * MIB;
/// Limits in turn, in operations per second: down and up, by little and by much.
const STEPS: [u64; 6] = [10_000, 1000, 20_000, 2000, 2500, 500];
/// Longest time until a change takes effect, in milliseconds.
const HOLDS_WITHIN_MS: u64 = 100;
/// Number of changes in a row.
const CHANGES: u64 = 1000;

/// Change of a limit: the time of the command's answer, and the new limit.
struct Change {
    answered_ms: u64,
    iops: u64,
}

/// Measures single changes and many changes in a row.
pub fn run(options: &Options) -> Result<Report> {
    let stage = Stage::in_memory(options, "modify")?;
    stage.create_policy("p", "5000IOPS", false)?;
    stage.create_volume("v", VOLUME_BYTES)?;
    stage.bind("v", "p")?;
    let blank = stage.load("load", "v", VOLUME_BYTES);
    let load = Load { pattern: "randrw", depth: 32, seconds: 120, log: Log::SinceEpoch, ..blank };
    let mut running = load.start(stage.folder.path())?;
    std::thread::sleep(Duration::from_secs(2));
    let step_seconds = if options.is_quick { 1 } else { 3 };
    let mut changes = Vec::new();
    for iops in STEPS {
        changes.push(change(&stage, iops)?);
        std::thread::sleep(Duration::from_secs(step_seconds));
    }
    let hammering = hammer(&stage, if options.is_quick { CHANGES / 10 } else { CHANGES })?;
    std::thread::sleep(Duration::from_secs(2));
    running.stop();
    let outcome = running.finish()?;
    let mut report = Report::new("modify");
    judge_steps(&changes, &outcome.completions, step_seconds * 1000, &mut report);
    let after = rate(&outcome.completions, hammering.answered_ms + 100, hammering.answered_ms + 1600);
    let is_exact = (after / hammering.iops as f64 - 1.0).abs() <= 0.01;
    let what = "after many modifies in a row the last one holds within 1 %";
    report.claim(what, format!("{after:.1} of {}", hammering.iops), is_exact);
    // fio reports its interruption as no error, and a lost connection or a failed request as an error.
    report.claim(
        "no error and no reconnect",
        format!("fio's error is {}", outcome.error),
        outcome.error == 0,
    );
    Ok(report)
}

fn change(stage: &Stage, iops: u64) -> Result<Change> {
    stage.daemon.run(&format!("qos policy-group modify p -max-throughput {iops}IOPS"))?;
    Ok(Change { answered_ms: now_ms(), iops })
}

/// Makes many changes as fast as commands run. The last one must take effect.
fn hammer(stage: &Stage, count: u64) -> Result<Change> {
    for index in 0..count {
        change(stage, 1000 + index % 7 * 1000)?;
    }
    change(stage, 3000)
}

fn judge_steps(changes: &[Change], completions: &[Completion], step_ms: u64, report: &mut Report) {
    let mut rows = Vec::new();
    for change in changes {
        let expected = change.iops as f64 / 10.0;
        let from = change.answered_ms + HOLDS_WITHIN_MS;
        let to = change.answered_ms + step_ms - 50;
        let first = rate(completions, from, from + 100) / 10.0;
        let worst = worst_window(completions, from, to, 100, expected);
        let overall = rate(completions, from, to);
        // Times are logged in whole milliseconds, so that a window may gain or lose a millisecond's worth.
        let tolerance = (expected * 0.02).max(change.iops as f64 / 1000.0).max(1.0);
        let is_held = (worst - expected).abs() <= tolerance;
        report.row(
            json!({"limit_iops": change.iops, "first_100_ms": first, "worst_100_ms": worst, "rate": overall}),
        );
        let what = format!(
            "modified to {} IOPS: every 100 ms, from 100 ms after the answer on, is right",
            change.iops
        );
        report.claim(what, format!("worst {worst:.0} of {expected:.0}"), is_held);
        rows.push(vec![
            change.iops.to_string(),
            format!("{first:.0}"),
            format!("{worst:.0}"),
            format!("{expected:.0}"),
            format!("{:+.3}", off_per_cent(overall, change.iops as f64)),
        ]);
    }
    print_table(&["modified to IOPS", "first 100 ms", "worst 100 ms", "ideal", "off %"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_change_is_detected() {
        let verdict = |late_ms: u64| {
            let early = (0..1000 + late_ms).flat_map(|at_ms| [at_ms, at_ms]);
            let all = early.chain(1000 + late_ms..3000).map(|at_ms| Completion { at_ms, latency_ns: 1 });
            let mut report = Report::new("test");
            let changes = [Change { answered_ms: 1000, iops: 1000 }];
            judge_steps(&changes, &all.collect::<Vec<_>>(), 2000, &mut report);
            report.finish(None).is_ok()
        };
        assert!(verdict(0) && verdict(90) && !verdict(150));
    }
}
