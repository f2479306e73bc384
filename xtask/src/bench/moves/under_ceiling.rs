//! Resync under a ceiling: a replica is added to a volume that no client uses.
//!
//! Nothing but the ceiling wakes the resync, so it takes longer than the ceiling gives if a time is lost.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use super::{Area, Stage, bytes_resynced};
use crate::bench::{MIB, Options};
use crate::report::Report;

/// Ceiling of resync on each drive, in bytes per second.
const CEILING_BYTES_PER_SECOND: u64 = 40_000_000;
/// Area that has data.
const WRITTEN: Area = Area { start: 0, bytes: 128 * MIB };
/// Largest time of the resync, as a multiple of the time that the ceiling gives.
const RATIO_MAX: f64 = 1.25;
/// Smallest time: the ceiling lets a part go at once.
const RATIO_MIN: f64 = 0.9;

/// Adds a replica under the ceiling.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let stage = Stage::new(options)?;
    let daemon = stage.daemon();
    daemon.run("volume modify v --template none --repl 1 --wait")?;
    stage.write(WRITTEN, "crc32c")?;
    let ceiling = format!("{}MB/s", CEILING_BYTES_PER_SECOND / 1_000_000);
    daemon.run(&format!("background-policy modify resync --max-throughput {ceiling}"))?;
    let (before, begun) = (bytes_resynced(&stage.inspect()?), Instant::now());
    daemon.run("volume update v --repl 2 --wait")?;
    let seconds = begun.elapsed().as_secs_f64();
    let resynced = bytes_resynced(&stage.inspect()?).saturating_sub(before);
    let given_seconds = resynced as f64 / CEILING_BYTES_PER_SECOND as f64;
    report.row(json!({
        "change": "1 replica -> 2 under a ceiling", "seconds": seconds, "bytes_resynced": resynced,
        "bytes_per_second_max": CEILING_BYTES_PER_SECOND,
    }));
    report.claim(
        format!("a resync of an idle volume under {ceiling} takes the time that its ceiling gives"),
        format!("{} MiB in {seconds:.1} s of {given_seconds:.1} s", resynced / MIB),
        resynced >= WRITTEN.bytes && (RATIO_MIN..=RATIO_MAX).contains(&(seconds / given_seconds)),
    );
    Ok(())
}
