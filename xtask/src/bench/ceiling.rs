//! Ceiling bench: exactness of ceilings in a matrix of limits, queue depths and directions, judged by fio's
//! log of every request.
//!
//! The bench also checks whether idle time is saved up for a burst. Each volume also has a floor and a
//! weight. Above it is a shared group with a floor, a weight and a ceiling that is never reached.
//!
//! Cells of low rates run side by side on separate volumes, since they hardly load the machine. Cells of high
//! rates run alone.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::combination::{Combination, DEPTHS, LIMITS, Limit, PATTERNS, Verdict};
use super::{MIB, Options, Stage, peers};
use crate::numbers::ahead_of_schedule;
use crate::report::{Report, milliseconds, print_table};
use crate::world::fio::{Completion, Load, Log};
use crate::world::now_ms;

/// Size of each volume in bytes.
const VOLUME_BYTES: u64 = 64 * MIB;
/// Largest total requests per second of cells that run side by side.
const SIDE_BY_SIDE_RATE_MAX: f64 = 3000.0;
/// Largest number of cells that run side by side.
const SIDE_BY_SIDE_MAX: usize = 16;
/// Time that a load may take to start on a busy machine, in seconds.
const START_SECONDS: u64 = 5;
/// The same in a quick run.
const START_SECONDS_QUICK: u64 = 2;
/// Limit with which idle time is tested, in operations per second.
const IDLE_LIMIT_IOPS: u64 = 1000;

/// Length of the load of a cell.
#[derive(Clone, Copy)]
struct Times {
    /// Judged time, in seconds.
    seconds: u64,
    /// Time that the load may take to start, in seconds.
    start_seconds: u64,
}

/// Measures the matrix, the idle credit, and the peers.
pub fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("ceiling");
    let (seconds, start_seconds) = match (options.is_quick, options.is_in_turn) {
        (true, _) => (4, START_SECONDS_QUICK),
        // Rounds in turn add up.
        (false, true) => (10, START_SECONDS_QUICK),
        (false, false) => (30, START_SECONDS),
    };
    let stage = Stage::in_memory(options, "ceiling")?;
    stage.create_policy("above -min-throughput 900000IOPS -weight 200", super::WIDE, true)?;
    for index in 0..SIDE_BY_SIDE_MAX {
        stage.create_volume(&format!("v{index}"), VOLUME_BYTES)?;
        stage.create_policy(&format!("p{index} -parent above -weight 50"), "1IOPS", false)?;
    }
    let cells = reachable_cells(&stage, options)?;
    println!("{} cells are within reach of the unlimited client; {seconds} s each\n", cells.len());
    let mut rows = Vec::new();
    for batch in batches(cells) {
        rows.extend(measure_batch(&stage, &batch, Times { seconds, start_seconds }, &mut report)?);
    }
    print_matrix(rows);
    if !options.is_in_turn && options.cells.is_empty() {
        measure_idle_credit(&stage, &mut report)?;
        drop(stage);
        peers::measure(options, seconds, &mut report)?;
    }
    Ok(report)
}

/// Returns the cells whose client exceeds the limit by a fifth when nothing limits it.
fn reachable_cells(stage: &Stage, options: &Options) -> Result<Vec<Combination>> {
    let mut cells = Vec::new();
    for block_bytes in [4096, 64 << 10] {
        for depth in DEPTHS {
            for pattern in PATTERNS {
                let limits = LIMITS.into_iter().filter(|limit| limit.block_bytes() == block_bytes);
                let cells_of_load = limits.map(|limit| Combination { limit, depth, pattern });
                let wanted: Vec<_> = cells_of_load.filter(|cell| options.wants(&name_of(cell))).collect();
                if wanted.is_empty() {
                    continue;
                }
                let seconds = if options.is_quick { 1 } else { 3 };
                let load =
                    Load { pattern, block_bytes, depth, seconds, ..stage.load("free", "v0", VOLUME_BYTES) };
                let iops = load.run(stage.folder.path())?.iops;
                let is_within_reach = |cell: &Combination| iops >= 1.2 * cell.limit.requests_per_second();
                cells.extend(wanted.into_iter().filter(is_within_reach));
            }
        }
    }
    cells.sort_by(|a, b| a.limit.requests_per_second().total_cmp(&b.limit.requests_per_second()));
    Ok(cells)
}

/// Cuts the cells, sorted by rate, into groups that may run side by side.
fn batches(cells: Vec<Combination>) -> Vec<Vec<Combination>> {
    let mut batches: Vec<Vec<Combination>> = Vec::new();
    let rate_of =
        |batch: &[Combination]| batch.iter().map(|cell| cell.limit.requests_per_second()).sum::<f64>();
    for cell in cells {
        match batches.last_mut() {
            Some(batch)
                if batch.len() < SIDE_BY_SIDE_MAX
                    && rate_of(batch) + cell.limit.requests_per_second() <= SIDE_BY_SIDE_RATE_MAX =>
            {
                batch.push(cell);
            }
            _ => batches.push(vec![cell]),
        }
    }
    batches
}

/// Sets a ceiling on the volumes of a policy group, and half of it as their floor.
fn limit(stage: &Stage, index: usize, limit: Limit) -> Result<()> {
    let rates = format!("-max-throughput {} -min-throughput {}", limit.text(), limit.floor_text());
    stage.daemon.run(&format!("qos policy-group modify p{index} {rates}")).map(drop)
}

/// Row of the table.
type Row = (Combination, Verdict);

fn measure_batch(
    stage: &Stage,
    batch: &[Combination],
    Times { seconds, start_seconds }: Times,
    report: &mut Report,
) -> Result<Vec<Row>> {
    let mut running = Vec::new();
    for (index, cell) in batch.iter().enumerate() {
        limit(stage, index, cell.limit)?;
        stage.bind(&format!("v{index}"), &format!("p{index}"))?;
    }
    for (index, cell) in batch.iter().enumerate() {
        running.push(load_of(stage, index, cell, seconds).start(stage.folder.path())?);
    }
    // Requests behind a low limit would take minutes to complete at the end. They are released.
    wait_for(Duration::from_secs(seconds + 1 + start_seconds));
    let released_ms = now_ms();
    for index in 0..batch.len() {
        stage.bind(&format!("v{index}"), "none")?;
    }
    let mut rows = Vec::new();
    for (cell, running) in batch.iter().zip(running) {
        let outcome = running.finish()?;
        let completions = since_first(outcome.completions, released_ms, seconds)?;
        let verdict = cell.judge(&completions, seconds);
        record(report, cell, &verdict, outcome.error);
        rows.push((*cell, verdict));
    }
    Ok(rows)
}

fn load_of(stage: &Stage, index: usize, cell: &Combination, seconds: u64) -> Load {
    Load {
        pattern: cell.pattern,
        block_bytes: cell.limit.block_bytes(),
        depth: cell.depth,
        seconds: seconds + 1,
        log: Log::SinceEpoch,
        ..stage.load(&format!("cell{index}"), &format!("v{index}"), VOLUME_BYTES)
    }
}

/// Counts time from the first completion. Fails if the volumes were released before the judged time was over.
fn since_first(mut completions: Vec<Completion>, released_ms: u64, seconds: u64) -> Result<Vec<Completion>> {
    let first_ms = completions.first().map_or(0, |completion| completion.at_ms);
    ensure!(first_ms + (1 + seconds) * 1000 <= released_ms, "fio started too late: the machine is too busy");
    completions.iter_mut().for_each(|completion| completion.at_ms -= first_ms);
    Ok(completions)
}

fn wait_for(time: Duration) {
    let end = Instant::now() + time;
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}

fn record(report: &mut Report, cell: &Combination, verdict: &Verdict, error: i64) {
    let found = format!(
        "rate {:+.3} %, worst second {:+.2} %, ahead {:.0}, p99 {:.0} of {:.0} µs, error {error}",
        verdict.rate_off(),
        verdict.second_off(),
        verdict.ahead,
        verdict.p99_us,
        verdict.ideal_us,
    );
    report.row(json!({"cell": name_of(cell), "limit": cell.limit.text(), "depth": cell.depth, "pattern": cell.pattern,
        "completed": verdict.count, "expected": verdict.expected, "worst_second": verdict.worst_second,
        "ahead": verdict.ahead, "p50_us": verdict.p50_us, "p99_us": verdict.p99_us,
        "ideal_us": verdict.ideal_us, "error": error}));
    report.claim(name_of(cell), found, verdict.is_good() && error == 0);
}

fn name_of(cell: &Combination) -> String {
    format!("{} QD{} {}", cell.limit.text(), cell.depth, cell.pattern)
}

fn print_matrix(rows: Vec<Row>) {
    let headings =
        ["limit", "QD", "direction", "off %", "worst second %", "ahead", "p50 ms", "p99 ms", "ideal ms", ""];
    let rows = rows.into_iter().map(|(cell, verdict)| {
        vec![
            cell.limit.text(),
            cell.depth.to_string(),
            cell.pattern.trim_start_matches("rand").to_owned(),
            format!("{:+.3}", verdict.rate_off()),
            format!("{:+.2}", verdict.second_off()),
            format!("{:.0}", verdict.ahead),
            milliseconds(verdict.p50_us),
            milliseconds(verdict.p99_us),
            milliseconds(verdict.ideal_us),
            if verdict.is_good() { "good" } else { "NOT GOOD" }.to_owned(),
        ]
    });
    print_table(&headings, rows);
}

/// Checks the credit after 10 s of idle time, on a new connection and on an open one. At most 100 ms' worth
/// of requests may complete ahead of schedule.
fn measure_idle_credit(stage: &Stage, report: &mut Report) -> Result<()> {
    let limit = Limit::Iops(IDLE_LIMIT_IOPS);
    self::limit(stage, 0, limit)?;
    stage.bind("v0", "p0")?;
    let load =
        Load { depth: 256, seconds: 2, log: Log::SinceStart, ..stage.load("idle", "v0", VOLUME_BYTES) };
    load.run(stage.folder.path())?;
    wait_for(Duration::from_secs(10));
    let anew = load.run(stage.folder.path())?.completions;
    record_idle(report, "a new connection", &anew);
    let pause = ["--thinktime=10s", "--thinktime_blocks=2000"].map(str::to_owned).to_vec();
    let load = Load { seconds: 15, extra: pause, ..load };
    let all = load.run(stage.folder.path())?.completions;
    record_idle(report, "an open connection", after_longest_gap(&all));
    stage.bind("v0", "none")
}

fn record_idle(report: &mut Report, what: &str, completions: &[Completion]) {
    let rate = IDLE_LIMIT_IOPS as f64;
    let ahead = ahead_of_schedule(completions, rate);
    let what = format!("idle for 10 s, then {what} at {rate} IOPS: at most 100 ms' worth ahead of schedule");
    let found = format!("{ahead:.0} of {} requests", completions.len());
    report.claim(what, found, ahead <= rate * 0.1 && completions.len() > 500);
}

fn after_longest_gap(completions: &[Completion]) -> &[Completion] {
    let gaps = completions.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms);
    let longest = gaps.enumerate().max_by_key(|(_, gap)| *gap);
    longest.filter(|(_, gap)| *gap > 8000).map_or(&[], |(index, _)| &completions[index + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_rates_share_a_batch_and_high_rates_run_alone() {
        let cell = |iops| Combination { limit: Limit::Iops(iops), depth: 1, pattern: "randread" };
        let cells = [1, 1, 100, 1000, 1000, 1000, 10_000, 50_000].map(cell).to_vec();
        let sizes: Vec<usize> = batches(cells).iter().map(Vec::len).collect();
        assert_eq!(sizes, [5, 1, 1, 1]);
        assert_eq!(batches(vec![cell(1); 20]).iter().map(Vec::len).collect::<Vec<_>>(), [16, 4]);
    }

    #[test]
    fn completions_after_longest_gap_are_selected() {
        let at = |at_ms| Completion { at_ms, latency_ns: 1 };
        assert_eq!(after_longest_gap(&[at(0), at(1), at(10_001), at(10_002)]).len(), 2);
        assert_eq!(after_longest_gap(&[at(0), at(1)]).len(), 0);
    }

    #[test]
    fn load_released_too_early_is_refused() {
        let at = |at_ms| Completion { at_ms, latency_ns: 1 };
        assert_eq!(since_first(vec![at(5000), at(5001)], 10_000, 4).unwrap()[1].at_ms, 1);
        assert!(since_first(vec![at(5001)], 10_000, 4).is_err());
    }
}
