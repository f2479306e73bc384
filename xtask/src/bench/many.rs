//! A thousand volumes in one daemon, all under policies and all idle: what they cost, and how fast the daemon
//! answers for all of them.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{Options, Stage};
use crate::numbers::median;
use crate::report::{Report, print_table};
use crate::world::http;

/// Volumes at full length, and in a quick run.
const VOLUMES: usize = 1000;
const VOLUMES_QUICK: usize = 200;
/// What one volume may cost of memory, in bytes.
const VOLUME_BYTES_MAX: u64 = 64 << 10;
/// How often each question is asked.
const QUESTIONS: usize = 9;
/// What is asked, how long the answer may take, and what its body holds for each volume.
const ANSWERS: [(&str, &str, Duration); 2] = [
    ("statistics of all volumes", "/v1/statistics/volumes", Duration::from_millis(100)),
    ("Prometheus scrape", "/metrics", Duration::from_millis(500)),
];

/// Makes the volumes and measures.
pub fn run(options: &Options) -> Result<Report> {
    let mut stage = Stage::in_memory(options, "many")?;
    let count = if options.is_quick { VOLUMES_QUICK } else { VOLUMES };
    stage.create_policy("own", "1000IOPS,100MB/s", false)?;
    stage.create_policy("shared", "50000IOPS", true)?;
    let before_bytes = stage.daemon.process().resident_bytes()?;
    for number in 0..count {
        let policy = if number % 2 == 0 { "own" } else { "shared" };
        let line = format!("volume create v{number} --size 1 --qos-policy-group {policy}");
        stage.daemon.run(&line)?;
    }
    let volume_bytes = (stage.daemon.process().resident_bytes()?.saturating_sub(before_bytes)) / count as u64;
    let core = idle_part_of_core(&mut stage, if options.is_quick { 3 } else { 30 })?;
    let mut report = Report::new("many");
    judge_cost(&mut report, count, volume_bytes, core);
    let socket = stage.folder.path().join("state/api.sock");
    for (what, path, longest) in ANSWERS {
        judge_answer(&mut report, &socket, (what, path, longest), count)?;
    }
    Ok(report)
}

/// The part of one core that the daemon uses while nobody asks for anything.
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
    report.claim(format!("{count} idle volumes use under 1 % of a core"), found, core < 0.01);
    let found = format!("{:.1} KiB", volume_bytes as f64 / 1024.0);
    report.claim("a volume takes under 64 KiB of memory", found, volume_bytes < VOLUME_BYTES_MAX);
}

fn judge_answer(
    report: &mut Report,
    socket: &Path,
    (what, path, longest): (&str, &str, Duration),
    count: usize,
) -> Result<()> {
    let mut times = Vec::new();
    let mut has_all = true;
    for _ in 0..QUESTIONS {
        let (body, elapsed) = http::get(socket, path)?;
        times.push(elapsed.as_secs_f64() * 1000.0);
        has_all &= body.contains(&format!("\"v{}\"", count - 1)) && body.contains("\"v0\"");
    }
    let middle = median(times);
    report.row(json!({"what": what, "milliseconds": middle}));
    let limit = longest.as_millis();
    let found = format!("{middle:.1} ms");
    report.claim(format!("{what}: within {limit} ms"), found, has_all && middle < limit as f64);
    Ok(())
}
