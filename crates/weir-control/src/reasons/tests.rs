//! Tests of the named cause and its description for each situation.

use weir_qos::{Dimension, Limit, Rate};
use weir_types::{Burst, InitialCredit, Limits, Name, PolicyGroupId, Scope, Terms, Throughput, VolumeId};

use super::*;
use crate::policy_changes::AdaptiveChange;
use crate::records::{GroupKind, PolicyGroupRecord};

const SECOND_NS: u64 = 1_000_000_000;

/// A span of two seconds with `[delayed, floors, queue, drive, other]` seconds of requests' time.
fn situation(operations: u64, seconds: [f64; 5]) -> Situation {
    let [delayed_ns, floors_ns, queue_ns, drive_ns, other_ns] =
        seconds.map(|seconds| (seconds * SECOND_NS as f64) as u64);
    Situation {
        volume: "v1".to_owned(),
        elapsed_ns: 2 * SECOND_NS,
        operations,
        time: TimeByCause { delayed_ns, floors_ns, queue_ns, drive_ns, other_ns },
        place: Place { drive: "em".to_owned(), weight: 100, portion: 0.5, ..Place::default() },
        ..Situation::default()
    }
}

fn scope(level: &str) -> (Scope, &'static str) {
    let id = uuid::Uuid::from_u128(1);
    match level {
        "tenant" => (Scope::Tenant(Name::new("svm01").unwrap()), "svm01"),
        "policy_group" => (Scope::Group(PolicyGroupId(id)), "policy1"),
        _ => (Scope::Volume(VolumeId(id)), "v1"),
    }
}

/// A limit of policy1 at this level that has held requests back since second 5, which is five seconds at
/// second 10.
fn binding(level: &str, dimension: Dimension, rate: Rate, value: u64, requests: u64) -> Binding {
    let (scope, name) = scope(level);
    let id = PolicyGroupId(uuid::Uuid::from_u128(1));
    let group = NamedGroup { id, name: "policy1".to_owned(), kind: GroupKind::Fixed, is_built_in: false };
    let limit = NamedLimit {
        scope,
        name: name.to_owned(),
        group: Some(group),
        limit: Limit { dimension, rate },
        value: Some(value),
        credit: None,
    };
    Binding { limit, requests, waited_ns: requests * 1000, since_ns: 5 * SECOND_NS }
}

fn explain(situation: Situation) -> Explanation {
    let finding = decide(&situation);
    let tenant = Name::new("default").unwrap();
    let sharers = NamedVolumes::default();
    Explanation { tenant, timestamp_ns: 10 * SECOND_NS, situation, finding, sharers, proposal: None }
}

/// Checks the words and the advice for a limit that holds most requests back, beside a weaker one.
fn check_ceiling(strongest: Binding, words: &str, change: &str) {
    let mut seen = situation(100, [9.0, 0.0, 0.0, 1.0, 0.1]);
    let weaker = binding("volume", Dimension::ReadBytes, Rate::Sustained, 1, 10);
    seen.bindings = vec![strongest.clone(), weaker];
    let explanation = explain(seen);
    assert_eq!(explanation.finding, Finding { cause: Cause::Ceiling, binding: Some(strongest) });
    let summary = summary(&explanation);
    assert!(summary.contains(words), "{words} in: {summary}");
    assert_eq!(advice(&explanation).unwrap(), change);
}

#[test]
fn ceilings_are_named_by_level() {
    for (level, words) in [
        ("volume", "the ceiling 50IOPS of the volume itself (policy group policy1), for 5.0 s so far."),
        ("policy_group", "the ceiling 50IOPS of shared policy group policy1, for"),
        ("tenant", "the ceiling 50IOPS of tenant svm01 (policy group policy1), for"),
    ] {
        let strongest = binding(level, Dimension::TotalOperations, Rate::Sustained, 50, 90);
        check_ceiling(strongest, words, "raise --max-throughput of policy group policy1 above 50IOPS");
    }
}

#[test]
fn ceilings_are_named_by_dimension_and_rate() {
    for (dimension, rate, value, words, option) in [
        (Dimension::TotalOperations, Rate::Sustained, 50, "ceiling 50IOPS", "--max-throughput"),
        (Dimension::TotalBytes, Rate::Sustained, 300_000_000, "ceiling 300MB/s", "--max-throughput"),
        (Dimension::ReadOperations, Rate::Sustained, 70, "ceiling on reads 70IOPS", "--max-read"),
        (Dimension::ReadBytes, Rate::Sustained, 70_000, "ceiling on reads 70kB/s", "--max-read"),
        (Dimension::WriteOperations, Rate::Sustained, 80, "ceiling on writes 80IOPS", "--max-write"),
        (Dimension::WriteBytes, Rate::Sustained, 90_000, "ceiling on writes 90kB/s", "--max-write"),
        (Dimension::TotalOperations, Rate::Burst, 2000, "burst rate 2000IOPS", "--burst"),
        (Dimension::ReadOperations, Rate::Burst, 60, "burst rate of reads 60IOPS", "--burst-read"),
        (Dimension::WriteBytes, Rate::Burst, 1_000_000, "burst rate of writes 1MB/s", "--burst-write"),
    ] {
        let shown = words.rsplit(' ').next().unwrap();
        let change = format!("raise {option} of policy group policy1 above {shown}");
        check_ceiling(binding("policy_group", dimension, rate, value, 90), words, &change);
    }
}

#[test]
fn burst_summary_includes_its_credit() {
    for (rate, ns, words) in [
        (Rate::Burst, 31 * SECOND_NS, "; credit is left for 31.0 s."),
        (Rate::Sustained, 0, "; the burst credit is used up."),
    ] {
        let mut seen = situation(100, [9.0, 0.0, 0.0, 1.0, 0.1]);
        let mut held = binding("volume", Dimension::TotalOperations, rate, 100, 90);
        held.limit.credit = Some(Credit { ns, ns_max: 60 * SECOND_NS });
        seen.bindings = vec![held];
        let summary = summary(&explain(seen));
        assert!(summary.ends_with(words), "{summary}");
    }
}

#[test]
fn other_causes_are_named_by_the_longest_time() {
    let few = binding("volume", Dimension::TotalOperations, Rate::Sustained, 1000, 10);
    for (operations, seconds, cause, words, change) in [
        (
            100,
            [0.0, 5.0, 3.0, 4.0, 0.0],
            Cause::Floors,
            "others go first for their floors: v3.",
            "give it a floor with -min-throughput, or lower that of the others",
        ),
        (
            100,
            [0.0, 3.0, 5.0, 4.0, 0.0],
            Cause::Queue,
            "in the queue of drive em, beside v2, v3; its weight 100 gives it at least 50 %",
            "give it a weight above 100 or a floor",
        ),
        (
            100,
            [0.0, 0.0, 1.0, 9.0, 0.5],
            Cause::Drive,
            "Drive em takes most of the time",
            "use a faster drive than em",
        ),
        (
            100,
            [0.0, 0.0, 0.0, 1.9, 0.0],
            Cause::Drive,
            "Drive em",
            "send more requests at a time, or use a faster drive than em",
        ),
        (100, [0.2, 0.0, 0.0, 9.0, 0.0], Cause::Drive, "no limit binds it", "use a faster drive than em"),
        (
            100,
            [0.0, 0.0, 0.0, 1.0, 3.0],
            Cause::Other,
            "touch the same blocks",
            "send fewer requests at a time, or such that touch different blocks",
        ),
        (
            100,
            [0.1, 0.0, 0.0, 0.2, 0.0],
            Cause::Nothing,
            "offer less than it could do (0.15 requests",
            "send more requests at a time",
        ),
    ] {
        let mut seen = situation(operations, seconds);
        seen.bindings = if seconds[0] > 0.0 { vec![few.clone()] } else { vec![] };
        let neighbour = |name: &str, has_floor| Neighbour { name: name.to_owned(), has_floor };
        seen.place.neighbours = vec![neighbour("v2", false), neighbour("v3", true)];
        let explanation = explain(seen);
        assert_eq!(explanation.finding, Finding { cause, binding: None }, "{seconds:?}");
        let summary = summary(&explanation);
        assert!(summary.contains(words), "{summary}");
        assert_eq!(advice(&explanation).unwrap(), change);
    }
}

#[test]
fn ceiling_on_most_requests_outranks_a_slow_drive() {
    let mut seen = situation(100, [1.0, 0.0, 0.0, 9.0, 0.0]);
    seen.bindings = vec![binding("volume", Dimension::TotalOperations, Rate::Sustained, 50, 80)];
    assert_eq!(decide(&seen).cause, Cause::Ceiling);
    seen.bindings[0].requests = 20;
    assert_eq!(decide(&seen).cause, Cause::Drive);
}

#[test]
fn long_requests_differ_from_idleness() {
    let idle = explain(situation(0, [0.0; 5]));
    assert_eq!(idle.finding, Finding { cause: Cause::Idle, binding: None });
    assert_eq!((summary(&idle).as_str(), advice(&idle)), ("Nothing binds volume v1: no request came.", None));
    let at_drive = Situation { queue_depth: 3, ..situation(0, [0.0; 5]) };
    assert_eq!(decide(&at_drive).cause, Cause::Drive);
    let latest = binding("tenant", Dimension::TotalBytes, Rate::Sustained, 1_000_000, 1);
    let held = Situation { queue_depth_delayed: 3, latest: Some(latest.clone()), ..at_drive };
    assert_eq!(decide(&held), Finding { cause: Cause::Ceiling, binding: Some(latest) });
}

#[test]
fn adaptive_and_built_in_groups_are_raised_by_their_own_options() {
    let mut seen = situation(100, [9.0, 0.0, 0.0, 1.0, 0.1]);
    let mut held = binding("volume", Dimension::TotalOperations, Rate::Sustained, 150, 90);
    let group = held.limit.group.as_mut().unwrap();
    group.kind = GroupKind::Adaptive;
    seen.bindings = vec![held];
    let change = advice(&explain(seen.clone())).unwrap();
    assert_eq!(
        change,
        "raise --peak-iops of adaptive policy group policy1, whose ceiling is 150IOPS at this size"
    );
    seen.bindings[0].limit.group.as_mut().unwrap().is_built_in = true;
    let change = advice(&explain(seen)).unwrap();
    assert_eq!(change, "bind it to another group: adaptive policy group policy1 cannot be changed");
}

/// A group with these ceilings, burst rates and floor.
fn group(ceilings: &str, burst: &str, floor: &str) -> PolicyGroupRecord {
    let rates = |text: &str| Throughput::parse(text).unwrap();
    let limits = |text: &str| Limits { total: rates(text), ..Limits::default() };
    let burst = Burst { rates: limits(burst), seconds: 60, initial_credit: InitialCredit::Empty };
    let burst = Some(burst).filter(|burst| !burst.rates.is_unlimited());
    PolicyGroupRecord {
        id: PolicyGroupId(uuid::Uuid::from_u128(1)),
        number: 1,
        tenant: Name::new("default").unwrap(),
        name: Name::new("policy1").unwrap(),
        terms: Terms { burst, floor: rates(floor), ..Terms::limited(limits(ceilings)) },
        is_shared: true,
        parent: None,
        adaptive: None,
        generation: 1,
        created_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

/// The change for a volume whose sizes do not matter.
fn change(situation: &Situation, finding: &Finding, group: &PolicyGroupRecord) -> Option<Change> {
    proposal::change(situation, finding, group, Sizes::default())
}

fn found(cause: Cause, binding: Option<Binding>) -> Finding {
    Finding { cause, binding }
}

#[test]
fn proposal_doubles_the_ceiling_that_binds_and_keeps_the_other() {
    let rates = |text: &str| Throughput::parse(text).unwrap();
    let seen = situation(2000, [9.0, 0.0, 0.0, 1.0, 0.1]);
    for (ceilings, burst, (dimension, rate, value), expected) in [
        ("100IOPS", "none", (Dimension::TotalOperations, Rate::Sustained, 100), ("200IOPS", None)),
        (
            "100IOPS,3MB/s",
            "none",
            (Dimension::TotalOperations, Rate::Sustained, 100),
            ("200IOPS,3MB/s", None),
        ),
        (
            "100IOPS,3MB/s",
            "none",
            (Dimension::TotalBytes, Rate::Sustained, 3_000_000),
            ("100IOPS,6MB/s", None),
        ),
        (
            "100IOPS",
            "150IOPS",
            (Dimension::TotalOperations, Rate::Sustained, 100),
            ("200IOPS", Some("200IOPS")),
        ),
        ("100IOPS", "300IOPS", (Dimension::TotalOperations, Rate::Sustained, 100), ("200IOPS", None)),
    ] {
        let finding = found(Cause::Ceiling, Some(binding("volume", dimension, rate, value, 90)));
        let proposed = change(&seen, &finding, &group(ceilings, burst, "none"));
        let (ceilings, burst) = (rates(expected.0), expected.1.map(rates));
        assert_eq!(proposed, Some(Change::Ceilings { direction: None, ceilings, burst }));
    }
    let burst = binding("volume", Dimension::TotalOperations, Rate::Burst, 150, 90);
    let proposed = change(&seen, &found(Cause::Ceiling, Some(burst)), &group("100IOPS", "150IOPS", "none"));
    assert_eq!(proposed, Some(Change::Burst { direction: None, rates: rates("300IOPS") }));
    let reads = binding("volume", Dimension::ReadOperations, Rate::Sustained, 60, 90);
    let proposed = change(&seen, &found(Cause::Ceiling, Some(reads)), &group("none", "none", "none"));
    let direction = Some(weir_qos::Direction::Read);
    assert_eq!(proposed, Some(Change::Ceilings { direction, ceilings: rates("120IOPS"), burst: None }));
}

#[test]
fn proposal_stays_within_the_bounds() {
    let seen = situation(2000, [9.0, 0.0, 0.0, 1.0, 0.1]);
    let most = weir_types::bounds::RATE_IOPS_MAX;
    let limit = binding("volume", Dimension::TotalOperations, Rate::Sustained, most, 90);
    let greatest = group(&format!("{most}IOPS"), "none", "none");
    assert_eq!(change(&seen, &found(Cause::Ceiling, Some(limit)), &greatest), None);
    let mut heaviest = group("none", "none", "none");
    heaviest.terms.weight = weir_types::Weight(6000);
    let weighed = |group: &PolicyGroupRecord| change(&seen, &found(Cause::Queue, None), group);
    assert_eq!(weighed(&heaviest), Some(Change::Weight(10_000)));
    heaviest.terms.weight = weir_types::Weight(10_000);
    assert_eq!(weighed(&heaviest), None);
    for cause in [Cause::Drive, Cause::Other, Cause::Nothing, Cause::Idle] {
        assert_eq!(change(&seen, &found(cause, None), &group("none", "none", "none")), None);
    }
}

#[test]
fn proposed_floor_is_at_most_the_ceiling() {
    let rates = |text: &str| Throughput::parse(text).unwrap();
    let seen = situation(2000, [0.0, 9.0, 0.0, 1.0, 0.1]);
    for (ceilings, floor, expected) in [
        ("1500IOPS", "none", Some("1500IOPS")),
        ("none", "none", Some("2000IOPS")),
        ("none", "3MB/s", Some("6MB/s")),
        ("100IOPS", "100IOPS", None),
    ] {
        let proposed = change(&seen, &found(Cause::Floors, None), &group(ceilings, "none", floor));
        assert_eq!(proposed, expected.map(|floor| Change::Floor(rates(floor))), "{ceilings} {floor}");
    }
}

#[test]
fn proposal_for_an_adaptive_group_raises_the_ceiling_by_the_smallest_change() {
    let seen = situation(2000, [9.0, 0.0, 0.0, 1.0, 0.1]);
    let plain = weir_types::AdaptiveTerms::new(1000, 1500);
    let credits = weir_types::AdaptiveTerms { peak_mode: weir_types::PeakMode::Credits, ..plain };
    let capped = weir_types::AdaptiveTerms { ceiling_iops_max: Some(90), ..plain };
    let (expected, peak) = (Some(2000), Some(3000));
    let rates = |expected_iops_per_tb, peak_iops_per_tb| AdaptiveChange {
        expected_iops_per_tb,
        peak_iops_per_tb,
        ..AdaptiveChange::default()
    };
    let no_block_size = AdaptiveChange { block_size_bytes: Some(None), ..AdaptiveChange::default() };
    let minimum = AdaptiveChange { absolute_iops_min: Some(1000), ..rates(expected, peak) };
    let maximum = AdaptiveChange { ceiling_iops_max: Some(Some(180)), ..rates(expected, peak) };
    let sustained = (Dimension::TotalOperations, Rate::Sustained);
    for (terms, used_bytes, (dimension, rate), expected) in [
        (plain, 100_000_000_000, sustained, rates(None, peak)),
        (plain, 1_000_000, sustained, rates(expected, peak)),
        (plain.at_least(500), 1_000_000, sustained, minimum),
        (capped, 100_000_000_000, sustained, maximum),
        (credits, 100_000_000_000, sustained, rates(expected, peak)),
        (credits, 100_000_000_000, (Dimension::TotalOperations, Rate::Burst), rates(None, peak)),
        (plain, 0, (Dimension::TotalBytes, Rate::Sustained), no_block_size),
    ] {
        let finding = found(Cause::Ceiling, Some(binding("volume", dimension, rate, 150, 90)));
        let grows = PolicyGroupRecord { adaptive: Some(terms), ..group("none", "none", "none") };
        let sizes = Sizes { allocated_bytes: 100_000_000_000, used_bytes };
        let change = proposal::change(&seen, &finding, &grows, sizes);
        assert_eq!(change, Some(Change::Adaptive(expected)), "{terms:?} {rate:?}");
    }
}

#[test]
fn built_in_groups_are_never_proposed() {
    let seen = situation(2000, [9.0, 0.0, 0.0, 1.0, 0.1]);
    let limit = binding("volume", Dimension::TotalBytes, Rate::Sustained, 150, 90);
    let all = crate::model::built_in::BuiltInGroups::default();
    let finding = found(Cause::Ceiling, Some(limit));
    assert!(all.records().all(|group| change(&seen, &finding, group).is_none()));
}
