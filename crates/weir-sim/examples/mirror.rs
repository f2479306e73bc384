//! Many worlds of a volume with copies: `cargo run --release -p weir-sim --example mirror -- FIRST COUNT`.

use weir_sim::mirrored::{Report, Sabotage, Settings, run};

fn settings(seed: u64) -> Settings {
    Settings {
        seed,
        copies: 1 + (seed % 3) as usize,
        steps: 1500,
        depth: 16,
        full_per_mille: if seed.is_multiple_of(2) { 10 } else { 0 },
        breaks_per_ten_thousand: 15,
        moves_per_mille: if seed.is_multiple_of(3) { 0 } else { 4 },
        without_placement: seed.is_multiple_of(5).then_some(1),
        sabotage: Sabotage::None,
    }
}

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let usage = |_| "two numbers are accepted: the first seed and how many".to_owned();
    let mut next = |default| arguments.next().unwrap_or(Ok(default)).map_err(usage);
    let (first, count) = (next(0)?, next(10_000)?);
    let mut sum = Report::default();
    for seed in first..first + count {
        let report = run(settings(seed)).map_err(|broken| format!("seed {seed}: {broken}"))?;
        sum.acknowledged += report.acknowledged;
        sum.failed += report.failed;
        sum.crashes += report.crashes;
        sum.copied += report.copied;
        sum.standings += report.standings;
    }
    println!(
        "{count} worlds: {} requests acknowledged, {} failed, {} crashes, {} regions copied, {} changes of standing",
        sum.acknowledged, sum.failed, sum.crashes, sum.copied, sum.standings
    );
    Ok(())
}
