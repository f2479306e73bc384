//! Many worlds of a journal: `cargo run --release -p weir-sim --example journal -- FIRST COUNT`.

use weir_sim::journaled::{Report, Settings, run};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let usage = |_| "two numbers are accepted: the first seed and how many".to_owned();
    let mut next = |default| arguments.next().unwrap_or(Ok(default)).map_err(usage);
    let (first, count) = (next(0)?, next(10_000)?);
    let mut sum = Report::default();
    for seed in first..first + count {
        let settings =
            if seed.is_multiple_of(3) { Settings::quiet(seed) } else { Settings::all_at_once(seed) };
        let report = run(settings).map_err(|broken| format!("seed {seed}: {broken}"))?;
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
    }
    println!("{count} worlds: {sum:#?}");
    Ok(())
}
