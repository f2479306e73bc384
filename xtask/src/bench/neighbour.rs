//! Neighbour bench: a volume under a low limit receives far more requests than the limit allows.
//!
//! The daemon's memory stays bounded, and an unlimited neighbour hardly notices.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{MIB, Options, Stage};
use crate::numbers::median;
use crate::report::{Report, grouped, print_table};
use crate::world::fio::{Load, Outcome};

const VOLUME_BYTES: u64 = 256 * MIB;
/// Connections of the attacker.
const CONNECTIONS: u32 = 16;
/// Source file with the daemon's stated bounds.
const BOUNDS: &str = include_str!("../../../crates/weir-types/src/bounds.rs");
/// Memory for everything else that grows with connections and requests, in bytes.
const SLACK_BYTES: u64 = 8 << 20;

/// Measures the neighbour alone and beside the attacker, in turn.
pub fn run(options: &Options) -> Result<Report> {
    let mut stage = Stage::in_memory(options, "neighbour")?;
    stage.create_policy("slow", "1MB/s", false)?;
    for volume in ["attacked", "neighbour"] {
        stage.create_volume(volume, VOLUME_BYTES)?;
    }
    let (rounds, seconds) = if options.is_quick { (1, 2) } else { (5, 8) };
    let (mut alone, mut beside, mut grown) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        alone.push(load_neighbour(&stage, seconds)?);
        stage.bind("attacked", "slow")?;
        let before = stage.daemon.process().resident_bytes()?;
        let mut attacker = attack(&stage, seconds + 4).start(stage.folder.path())?;
        std::thread::sleep(Duration::from_secs(2));
        let early = stage.daemon.process().resident_bytes()?;
        beside.push(load_neighbour(&stage, seconds)?);
        let late = stage.daemon.process().resident_bytes()?;
        grown = early.max(late).saturating_sub(before).max(grown);
        attacker.stop();
        stage.bind("attacked", "none")?;
        attacker.finish()?;
    }
    let mut report = Report::new("neighbour");
    judge(&alone, &beside, grown, &mut report);
    Ok(report)
}

fn load_neighbour(stage: &Stage, seconds: u64) -> Result<Outcome> {
    let load = Load { depth: 8, seconds, ..stage.load("neighbour", "neighbour", VOLUME_BYTES) };
    load.run(stage.folder.path())
}

fn attack(stage: &Stage, seconds: u64) -> Load {
    Load {
        pattern: "randwrite",
        block_bytes: MIB,
        depth: 32,
        jobs: CONNECTIONS,
        seconds,
        ..stage.load("attack", "attacked", VOLUME_BYTES)
    }
}

/// Returns the largest growth of the daemon's memory: the buffers of every connection, including the
/// neighbour's.
fn growth_bytes_max() -> u64 {
    let each = bound_bytes("CONNECTION_BUFFER_BYTES_MAX") + bound_bytes("RECEIVE_BUFFER_BYTES");
    u64::from(CONNECTIONS + 1) * each + SLACK_BYTES
}

/// Returns a bound that the daemon's sources state as `N << M`.
fn bound_bytes(name: &str) -> u64 {
    let line = BOUNDS.lines().find(|line| line.starts_with(&format!("pub const {name}:")));
    let (number, shift) =
        line.and_then(|line| line.split_once(" = ")?.1.split_once(" << ")).expect("bounds are shifts");
    let parse = |text: &str| text.trim_end_matches(';').parse::<u64>().expect("bounds are numbers");
    parse(number) << parse(shift)
}

fn judge(alone: &[Outcome], beside: &[Outcome], grown: u64, report: &mut Report) {
    let of = |outcomes: &[Outcome], what: fn(&Outcome) -> f64| median(outcomes.iter().map(what));
    let row = |name: &str, outcomes: &[Outcome]| {
        let latency = |what| format!("{:.1}", of(outcomes, what));
        vec![name.to_owned(), grouped(of(outcomes, |o| o.iops)), latency(|o| o.p50_us), latency(|o| o.p99_us)]
    };
    print_table(&["neighbour", "IOPS", "p50 µs", "p99 µs"], [row("alone", alone), row("beside", beside)]);
    let moved = of(beside, |o| o.p99_us) / of(alone, |o| o.p99_us).max(1.0);
    let megabytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / MIB as f64);
    report.row(json!({"p99_ratio": moved, "grown_bytes": grown}));
    let what = "99th percentile of the neighbour moves by at most 20 %";
    report.claim(what, format!("{:+.1} %", (moved - 1.0) * 100.0), moved <= 1.2);
    let what = format!("the daemon grows by at most {}", megabytes(growth_bytes_max()));
    report.claim(what, megabytes(grown), grown <= growth_bytes_max());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_bounds_are_parsed() {
        assert!(bound_bytes("RECEIVE_BUFFER_BYTES") >= 128 << 10);
        assert!(growth_bytes_max() < 1 << 30);
    }
}
