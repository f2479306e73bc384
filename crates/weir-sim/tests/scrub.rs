//! Scrubs under chance: no false alarm under any fault, and corruption is found and repaired where possible.

use weir_sim::mirrored::{Report, Sabotage, Settings, run};

fn check(seeds: std::ops::Range<u64>, settings: impl Fn(u64) -> Settings) -> Vec<Report> {
    let run_one = |seed| run(settings(seed)).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    seeds.map(run_one).collect()
}

fn sum(reports: &[Report], of: fn(&Report) -> u64) -> u64 {
    reports.iter().map(of).sum()
}

#[test]
fn scrub_gives_no_false_alarm_under_any_fault() {
    let reports = check(0..500, Settings::scrubbed);
    assert!(sum(&reports, |report| report.sections_validated) > 1000, "hardly any section was validated");
    assert!(sum(&reports, |report| report.crashes) > 500, "hardly any world crashed");
    let found = |report: &Report| report.blocks_found + report.blocks_damaged;
    assert_eq!(sum(&reports, found), 0, "all drives keep what they were given");
}

#[test]
fn last_in_sync_replica_survives_checksum_write_failure() {
    let refused = |seed| Settings {
        metadata_faults_per_ten_thousand: 400,
        breaks_per_ten_thousand: 15 * (seed % 2),
        ..Settings::scrubbed(seed)
    };
    let reports = check(0..200, refused);
    let refused = sum(&reports, |report| report.headers_refused);
    assert!(refused > 50, "only {refused} writes of checksums were refused by all replicas in sync");
}

#[test]
fn corruption_is_found_and_repaired_from_good_replica() {
    let reports = check(0..300, Settings::rotting);
    let (found, repaired) =
        (sum(&reports, |report| report.blocks_found), sum(&reports, |report| report.blocks_repaired));
    assert!(found > 500, "hardly anything rotted");
    assert!(repaired * 10 > found * 9, "of {found} bad blocks only {repaired} were repaired");
    assert!(sum(&reports, |report| report.blocks_damaged) > 500, "nothing was damaged in the only replica");
}

type Kind = fn(u64) -> Settings;

/// Worlds that once broke a promise.
///
/// * In 520 a write found one replica short of memory, and then the other one failed. The client was told of
///   that failure although the first replica was left.
/// * In 2030 a replica was resynced from a corrupt one, and the two outvoted the good one. Weir does not
///   promise otherwise, so these worlds leave the case out now.
/// * In 719 the replica on the faulty drive alone had the newest metadata after a power cut. All others were
///   resynced from it: left out as well.
/// * In 2233 a start found an older state of a replica in sync, and reached no other replica to compare. The
///   case is left out as well.
const ONCE_BROKEN: &[(Kind, u64)] = &[
    (Settings::scrubbed, 520),
    (Settings::rotting, 2030),
    (Settings::rotting, 719),
    (Settings::scrubbed, 2233),
];

#[test]
fn promises_hold_for_once_broken_seeds() {
    for (settings, seed) in ONCE_BROKEN {
        run(settings(*seed)).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn equal_seeds_give_equal_scrubs() {
    for seed in 0..20 {
        assert_eq!(run(Settings::rotting(seed)), run(Settings::rotting(seed)), "seed {seed}");
    }
}

#[test]
fn sabotage_is_detected_within_a_thousand_seeds() {
    let settings = |sabotage: Sabotage, seed| match sabotage {
        Sabotage::MendsFromBad => Settings { sabotage, ..Settings::rotting(seed) },
        _ => Settings { sabotage, ..Settings::scrubbed(seed) },
    };
    for sabotage in [Sabotage::ChecksumsStayValid, Sabotage::ChecksumsChanged, Sabotage::MendsFromBad] {
        let first = (0..1000).find(|seed| run(settings(sabotage, *seed)).is_err());
        assert!(first.is_some(), "{sabotage:?} is never noticed");
    }
}
