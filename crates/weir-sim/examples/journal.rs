//! Runs many simulated worlds of a write journal.
//!
//! `cargo run --release -p weir-sim --example journal -- FIRST COUNT [forgetful]` runs COUNT seeds from FIRST
//! on. With `forgetful` the slow drive sometimes loses data that was not stable.

use weir_sim::journaled::{Report, Settings, run};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let usage = |_| "two numbers are accepted: the first seed and how many".to_owned();
    let mut next = |default| arguments.next().map_or(Ok(default), |text| text.parse::<u64>().map_err(usage));
    let (first, count) = (next(0)?, next(10_000)?);
    let is_forgetful = match arguments.next().as_deref() {
        None => false,
        Some("forgetful") => true,
        Some(other) => return Err(format!("'{other}' is no kind; forgetful is")),
    };
    let mut sum = Report::default();
    for seed in first..first + count {
        let settings = match is_forgetful {
            true => Settings::forgetful(seed),
            false if seed.is_multiple_of(3) => Settings::quiet(seed),
            false => Settings::all_at_once(seed),
        };
        let report = run(settings).map_err(|broken| format!("seed {seed}: {broken}"))?;
        // The order of the worlds counts, so that equal lines mean equal worlds.
        sum.trace_hash = sum.trace_hash.rotate_left(1) ^ report.trace_hash;
        sum.acknowledged += report.acknowledged;
        sum.failed += report.failed;
        sum.crashes += report.crashes;
        sum.records += report.records;
        sum.destaged += report.destaged;
        sum.passed_by += report.passed_by;
        sum.tail_moves += report.tail_moves;
        sum.full += report.full;
        sum.files_failed += report.files_failed;
        sum.forgotten += report.forgotten;
        sum.journals_failed += report.journals_failed;
        sum.absences += report.absences;
    }
    println!("{count} worlds: {sum:#?}");
    Ok(())
}
