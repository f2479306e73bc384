//! Runs many simulated worlds of a replicated volume.
//!
//! `cargo run --release -p weir-sim --example mirror -- FIRST COUNT [KIND]` runs COUNT seeds from FIRST on.
//! KIND is a constructor of `Settings`, or `all`, which is the default. The run reports every world that
//! breaks a promise, with its seed.

use weir_sim::mirrored::{Report, Settings, run};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let usage = |_| "two numbers are accepted: the first seed and how many".to_owned();
    let mut next = |default| arguments.next().map_or(Ok(default), |text| text.parse::<u64>().map_err(usage));
    let (first, count) = (next(0)?, next(10_000)?);
    let settings = match arguments.next().as_deref() {
        None | Some("all") => Settings::all_at_once,
        Some("scrubbed") => Settings::scrubbed,
        Some("rotting") => Settings::rotting,
        Some("snapshotted") => Settings::snapshotted,
        Some("stalled") => Settings::stalled,
        Some("absent") => Settings::absent,
        Some("moved") => Settings::moved,
        Some("killed") => Settings::killed,
        Some("mixed") => Settings::mixed,
        Some("resized") => Settings::resized,
        Some("doubtful") => Settings::doubtful,
        Some("journaled") => Settings::journaled,
        Some("reprofiled") => Settings::reprofiled,
        Some("coalesced") => Settings::coalesced,
        Some(other) => {
            let kinds = "all, scrubbed, rotting, snapshotted, stalled, absent, moved, killed, mixed, resized, doubtful, journaled, reprofiled and coalesced";
            return Err(format!("'{other}' is no kind; {kinds} are"));
        }
    };
    let (mut sum, mut broken) = (Report::default(), 0);
    for seed in first..first + count {
        let report = match run(settings(seed)) {
            Ok(report) => report,
            Err(why) => {
                eprintln!("seed {seed}: {why}");
                broken += 1;
                continue;
            }
        };
        // The order of the worlds counts, so that equal lines mean equal worlds.
        sum.trace_hash = sum.trace_hash.rotate_left(1) ^ report.trace_hash;
        sum.acknowledged += report.acknowledged;
        sum.failed += report.failed;
        sum.crashes += report.crashes;
        sum.kills += report.kills;
        sum.resizes += report.resizes;
        sum.copied += report.copied;
        sum.replica_states += report.replica_states;
        sum.snapshots += report.snapshots;
        sum.moves += report.moves;
        sum.metadata_refused += report.metadata_refused;
        sum.doubtful_answers += report.doubtful_answers;
        sum.invalidated += report.invalidated;
        sum.journals_failed += report.journals_failed;
        sum.destaged += report.destaged;
        sum.given_up += report.given_up;
        sum.late_writes += report.late_writes;
        sum.sections_scrubbed += report.sections_scrubbed;
        sum.sections_validated += report.sections_validated;
        sum.blocks_found += report.blocks_found;
        sum.blocks_repaired += report.blocks_repaired;
        sum.blocks_damaged += report.blocks_damaged;
    }
    tell(count, &sum);
    if broken == 0 { Ok(()) } else { Err(format!("{broken} of {count} worlds broke a promise")) }
}

/// Prints the sum of the reports of all worlds.
fn tell(count: u64, sum: &Report) {
    println!(
        "{count} worlds: {} requests acknowledged, {} failed, {} crashes ({} kills), {} resizes, {} regions copied, {} changes of replica states, \
         {} snapshots",
        sum.acknowledged,
        sum.failed,
        sum.crashes,
        sum.kills,
        sum.resizes,
        sum.copied,
        sum.replica_states,
        sum.snapshots
    );
    println!(
        "{} writes of metadata refused; {} replicas added or given up for moves; {} pieces of work given up, {} writes among them that came later; \
         {} doubtful answers",
        sum.metadata_refused, sum.moves, sum.given_up, sum.late_writes, sum.doubtful_answers
    );
    println!(
        "{} pieces destaged, {} replicas invalidated, {} journals failed; {} sections scrubbed, {} validated; {} bad blocks, {} repaired; {} damaged",
        sum.destaged,
        sum.invalidated,
        sum.journals_failed,
        sum.sections_scrubbed,
        sum.sections_validated,
        sum.blocks_found,
        sum.blocks_repaired,
        sum.blocks_damaged
    );
    println!("hash of all traces: {:016x}", sum.trace_hash);
}
