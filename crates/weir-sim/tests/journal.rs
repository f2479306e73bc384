//! Journals under chance: thousands of worlds, each with its own seed.

use weir_sim::journaled::{Report, Sabotage, Settings, run};

/// Runs worlds, and names the seed that broke a promise.
fn check(worlds: u64, settings: impl Fn(u64) -> Settings) -> Vec<Report> {
    let run_one = |seed| run(settings(seed)).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    (0..worlds).map(run_one).collect()
}

fn sum(reports: &[Report], of: fn(&Report) -> u64) -> u64 {
    reports.iter().map(of).sum()
}

#[test]
fn synced_data_survives_power_cuts_and_reads_back() {
    let reports = check(400, Settings::quiet);
    assert!(reports.iter().all(|report| report.failed == 0));
    assert!(sum(&reports, |report| report.crashes) > 1000, "hardly any world crashed");
    assert!(sum(&reports, |report| report.destaged) > 10_000, "hardly anything was destaged to slow files");
    assert!(sum(&reports, |report| report.passed_by) > 1000, "hardly anything passed by");
    assert!(sum(&reports, |report| report.tail_moves) > 1000, "space was hardly used again");
}

#[test]
fn promises_hold_under_drive_faults() {
    let reports = check(800, Settings::all_at_once);
    assert!(sum(&reports, |report| report.files_failed) > 500, "hardly any file failed");
    assert!(sum(&reports, |report| report.forgotten) > 1000, "hardly any file was forgotten");
    assert!(sum(&reports, |report| report.journals_failed) > 50, "hardly any journal failed");
    assert!(sum(&reports, |report| report.acknowledged) > 200_000);
}

#[test]
fn data_lost_by_slow_drive_is_destaged_again() {
    let reports = check(400, Settings::forgetful);
    assert!(sum(&reports, |report| report.absences) > 3000, "slow drives hardly went away");
    assert!(sum(&reports, |report| report.tail_moves) > 500, "space was hardly used again");
}

type Kind = fn(u64) -> Settings;

/// Worlds that once seemed to break a promise.
///
/// * In 2588 a sync failed and the daemon was killed. The checker took the remaining data for stable, and a
///   power cut then rightly lost it.
/// * In 118 a file that failed was taken out of the batch. Its records went before it was recorded that the
///   file lacks them.
/// * In 2033 a sync waited for a slow file that was never synced again.
const ONCE_BROKEN: &[(Kind, u64)] =
    &[(Settings::all_at_once, 2588), (Settings::all_at_once, 118), (Settings::forgetful, 2033)];

/// Worlds of each kind that every run makes anew.
const FRESH_WORLDS: u64 = 20;

#[test]
fn promises_hold_for_fresh_seeds() {
    let first = weir_testkit::seed::fresh();
    let kinds: [fn(u64) -> Settings; 3] = [Settings::quiet, Settings::all_at_once, Settings::forgetful];
    for (settings, seed) in
        kinds.into_iter().flat_map(|kind| (0..FRESH_WORLDS).map(move |seed| (kind, first + seed)))
    {
        run(settings(seed)).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn promises_hold_for_once_broken_seeds() {
    for (kind, seed) in ONCE_BROKEN {
        run(kind(*seed)).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..20 {
        assert_eq!(run(Settings::all_at_once(seed)), run(Settings::all_at_once(seed)), "seed {seed}");
    }
}

#[test]
fn sabotage_is_detected_within_a_thousand_seeds() {
    for sabotage in [
        Sabotage::SyncsNoSlowFile,
        Sabotage::SyncsNoJournal,
        Sabotage::SuperblockLate,
        Sabotage::PassesByRecords,
        Sabotage::ReadsUnpinned,
        Sabotage::StartsUnfenced,
    ] {
        let is_noticed = |seed| run(Settings { sabotage, ..Settings::quiet(seed) }).is_err();
        let first = (0..1000).find(|seed| is_noticed(*seed));
        assert!(first.is_some(), "{sabotage:?} is never noticed");
    }
    let sabotage = Sabotage::ForgetsUnnoticed;
    let is_noticed = |seed| run(Settings { sabotage, ..Settings::forgetful(seed) }).is_err();
    assert!((0..1000).any(is_noticed), "{sabotage:?} is never noticed");
}
