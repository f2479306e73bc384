//! The volume under chance: thousands of worlds, each with its own seed.

use weir_sim::{Report, Settings, run};

fn settings(seed: u64) -> Settings {
    Settings { seed, requests: 1500, depth: 24, full_per_mille: 0, broken_per_ten_thousand: 0 }
}

/// Runs worlds, and names the seed that broke a promise.
fn check(worlds: u64, settings: impl Fn(u64) -> Settings) -> Vec<Report> {
    let run_one = |seed| run(settings(seed)).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    (0..worlds).map(run_one).collect()
}

#[test]
fn acknowledged_writes_are_read_back_and_flushed_writes_survive_crashes() {
    let reports = check(100, settings);
    assert!(reports.iter().all(|report| report.failed == 0));
    assert!(reports.iter().map(|report| report.crashes).sum::<u64>() > 100, "hardly any world crashed");
    assert!(reports.iter().map(|report| report.acknowledged).sum::<u64>() > 30_000);
}

#[test]
fn promises_hold_on_full_and_failing_drives() {
    let faulty = |seed| Settings { full_per_mille: 30, broken_per_ten_thousand: 5, ..settings(seed) };
    let reports = check(100, faulty);
    assert!(reports.iter().any(|report| report.failed > 0), "no fault was ever injected");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..20 {
        let twice = [run(settings(seed)), run(settings(seed))];
        assert_eq!(twice[0], twice[1], "seed {seed}");
    }
    assert_ne!(run(settings(1)), run(settings(2)));
}
