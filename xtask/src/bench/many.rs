//! Bench of many volumes: ten thousand volumes in one daemon, all under policies and all idle.
//!
//! It measures their cost, the time and memory of an answer for all volumes, and whether a change waits for
//! this answer.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::{Options, Stage};
use crate::numbers::median;
use crate::report::{Report, print_table};
use crate::world::http;

/// Volumes at full length, and in a quick run.
const VOLUMES: usize = 10_000;
const VOLUMES_QUICK: usize = 200;
/// Largest memory cost of one volume, in bytes.
const VOLUME_BYTES_MAX: u64 = 64 << 10;
/// Largest fraction of a core that all idle volumes may use.
const IDLE_PART_MAX: f64 = 0.02;
/// Number of repetitions of each question.
const QUESTIONS: usize = 9;
/// Longest time of an answer for all volumes.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Largest growth of the daemon's memory during an answer for all volumes, in bytes.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// Longest time of a change while these answers are in progress.
const CHANGE_MAX: Duration = Duration::from_millis(100);
/// Questions and their API paths.
const ANSWERS: [(&str, &str); 3] = [
    ("list of all volumes", "/v1/volumes"),
    ("statistics of all volumes", "/v1/statistics/volumes"),
    ("Prometheus scrape", "/metrics"),
];

/// Creates the volumes and measures.
pub fn run(options: &Options) -> Result<Report> {
    let mut stage = Stage::in_memory(options, "many")?;
    let count = if options.is_quick { VOLUMES_QUICK } else { VOLUMES };
    stage.create_policy("own", "1000IOPS,100MB/s", false)?;
    stage.create_policy("shared", "50000IOPS", true)?;
    let before_bytes = stage.daemon.process().resident_bytes()?;
    let socket = stage.folder.path().join("state/api.sock");
    for number in 0..count {
        let policy = if number % 2 == 0 { "own" } else { "shared" };
        http::create_volume(&socket, &format!("v{number}"), policy)?;
    }
    let volume_bytes = (stage.daemon.process().resident_bytes()?.saturating_sub(before_bytes)) / count as u64;
    let core = idle_part_of_core(&mut stage, if options.is_quick { 3 } else { 30 })?;
    let mut report = Report::new("many");
    judge_cost(&mut report, count, volume_bytes, core);
    for (what, path) in ANSWERS {
        judge_answer(&mut report, &mut stage, (what, path), count)?;
    }
    judge_changes(&mut report, &stage, &socket)?;
    Ok(report)
}

/// Returns the fraction of one core that the daemon uses without any requests.
fn idle_part_of_core(stage: &mut Stage, seconds: u64) -> Result<f64> {
    std::thread::sleep(Duration::from_secs(1));
    let before = stage.daemon.process().processor_seconds()?;
    std::thread::sleep(Duration::from_secs(seconds));
    Ok((stage.daemon.process().processor_seconds()? - before) / seconds as f64)
}

fn judge_cost(report: &mut Report, count: usize, volume_bytes: u64, core: f64) {
    report.row(json!({"volumes": count, "bytes_per_volume": volume_bytes, "idle_part_of_core": core}));
    let cells =
        [count.to_string(), format!("{:.1}", volume_bytes as f64 / 1024.0), format!("{:.2}", core * 100.0)];
    print_table(&["volumes", "KiB each", "idle, % of a core"], [cells.to_vec()]);
    let found = format!("{:.2} %", core * 100.0);
    report.claim(format!("{count} idle volumes use under 2 % of a core"), found, core < IDLE_PART_MAX);
    let found = format!("{:.1} KiB", volume_bytes as f64 / 1024.0);
    report.claim("a volume takes under 64 KiB of memory", found, volume_bytes < VOLUME_BYTES_MAX);
}

fn judge_answer(
    report: &mut Report,
    stage: &mut Stage,
    (what, path): (&str, &str),
    count: usize,
) -> Result<()> {
    let socket = stage.folder.path().join("state/api.sock");
    let before_bytes = stage.daemon.process().resident_bytes()?;
    let (mut times, mut has_all, mut most_bytes) = (Vec::new(), true, 0);
    for _ in 0..QUESTIONS {
        let (body, elapsed) = watched(
            || http::get_all(&socket, path),
            || {
                most_bytes = most_bytes.max(stage.daemon.process().resident_bytes().unwrap_or(0));
            },
        )?;
        times.push(elapsed.as_secs_f64() * 1000.0);
        has_all &= body.contains(&format!("\"v{}\"", count - 1)) && body.contains("\"v0\"");
    }
    let (middle, added) = (median(times), most_bytes.saturating_sub(before_bytes));
    report.row(json!({"what": what, "milliseconds": middle, "added_bytes": added}));
    let limit = ANSWER_MAX.as_millis();
    let found = format!("{middle:.1} ms");
    report.claim(format!("{what}: within {limit} ms"), found, has_all && middle < limit as f64);
    let found = format!("{:.1} MiB", added as f64 / f64::from(1 << 20));
    report.claim(format!("{what}: in 32 MiB of added memory"), found, added < ANSWER_BYTES_MAX);
    Ok(())
}

/// Runs `work` in a thread and calls `look` repeatedly until the work is done.
fn watched<T: Send>(work: impl FnOnce() -> T + Send, mut look: impl FnMut()) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(work);
        while !thread.is_finished() {
            look();
            std::thread::sleep(Duration::from_millis(1));
        }
        thread.join().expect("asking does not panic")
    })
}

/// Changes the policy of a volume repeatedly while scrapes run.
fn judge_changes(report: &mut Report, stage: &Stage, socket: &Path) -> Result<()> {
    let is_over = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| -> Result<Duration> {
        let scrape = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                http::get(socket, "/metrics")?;
            }
            Ok(())
        });
        let longest = longest_change(stage);
        is_over.store(true, Ordering::Relaxed);
        scrape.join().expect("a scrape does not panic")?;
        longest
    })?;
    report.row(json!({"what": "change beside scrapes", "longest_ms": longest.as_millis() as u64}));
    let found = format!("{} ms at most", longest.as_millis());
    report.claim("a change beside a running scrape: within 100 ms", found, longest < CHANGE_MAX);
    Ok(())
}

fn longest_change(stage: &Stage) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    for policy in ["shared", "own"].into_iter().cycle().take(20 * QUESTIONS) {
        let started = Instant::now();
        stage.bind("v0", policy)?;
        longest = longest.max(started.elapsed());
    }
    Ok(longest)
}
