//! Many worlds of a volume with copies: `cargo run --release -p weir-sim --example mirror -- FIRST COUNT`.

use weir_sim::mirrored::{Report, Settings, run};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let usage = |_| "two numbers are accepted: the first seed and how many".to_owned();
    let mut next = |default| arguments.next().unwrap_or(Ok(default)).map_err(usage);
    let (first, count) = (next(0)?, next(10_000)?);
    let mut sum = Report::default();
    for seed in first..first + count {
        let report = run(Settings::captured(seed)).map_err(|broken| format!("seed {seed}: {broken}"))?;
        sum.acknowledged += report.acknowledged;
        sum.failed += report.failed;
        sum.crashes += report.crashes;
        sum.copied += report.copied;
        sum.standings += report.standings;
        sum.captures += report.captures;
    }
    println!(
        "{count} worlds: {} requests acknowledged, {} failed, {} crashes, {} regions copied, {} changes of standing, \
         {} captures",
        sum.acknowledged, sum.failed, sum.crashes, sum.copied, sum.standings, sum.captures
    );
    Ok(())
}
