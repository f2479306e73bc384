//! Volumes with copies under chance: thousands of worlds, each with its own seed.

use weir_sim::mirrored::{Report, Sabotage, Settings, run};

fn settings(seed: u64) -> Settings {
    Settings {
        seed,
        copies: 1 + (seed % 3) as usize,
        steps: 1500,
        depth: 16,
        full_per_mille: 0,
        breaks_per_ten_thousand: 0,
        moves_per_mille: 0,
        without_placement: None,
        sabotage: Sabotage::None,
    }
}

fn all_at_once(seed: u64) -> Settings {
    let full_per_mille = if seed.is_multiple_of(2) { 10 } else { 0 };
    let moves_per_mille = if seed.is_multiple_of(3) { 0 } else { 4 };
    let without_placement = seed.is_multiple_of(5).then_some(1);
    Settings {
        full_per_mille,
        breaks_per_ten_thousand: 15,
        moves_per_mille,
        without_placement,
        ..settings(seed)
    }
}

/// Runs worlds and says which seed broke a promise.
fn check(worlds: u64, settings: impl Fn(u64) -> Settings) -> Vec<Report> {
    let run_one = |seed| run(settings(seed)).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    (0..worlds).map(run_one).collect()
}

fn sum(reports: &[Report], of: fn(&Report) -> u64) -> u64 {
    reports.iter().map(of).sum()
}

#[test]
fn copies_are_one_volume_through_power_cuts() {
    let reports = check(300, settings);
    assert!(reports.iter().all(|report| report.failed == 0));
    assert!(sum(&reports, |report| report.crashes) > 300, "hardly any world crashed");
    assert!(sum(&reports, |report| report.copied) > 300, "hardly anything was made up for");
}

#[test]
fn promises_hold_whatever_drives_do() {
    let reports = check(600, all_at_once);
    assert!(sum(&reports, |report| report.standings) > 1000, "hardly any copy was lost or gained");
    assert!(sum(&reports, |report| report.acknowledged) > 150_000);
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..20 {
        assert_eq!(run(all_at_once(seed)), run(all_at_once(seed)), "seed {seed}");
    }
}

#[test]
fn mistakes_are_noticed_within_a_thousand_seeds() {
    for sabotage in [Sabotage::NotesLate, Sabotage::SkipsRegions, Sabotage::ReadsStale] {
        let is_noticed = |seed| run(Settings { sabotage, ..all_at_once(seed) }).is_err();
        let first = (0..1000).find(|seed| is_noticed(*seed));
        assert!(first.is_some(), "{sabotage:?} is never noticed");
    }
}
