//! Tests of the ledger: tables of the arithmetic, and a comparison with an oracle that knows no tree.

use proptest::prelude::*;
use weir_types::{PolicyGroupId, Throughput, VolumeId};

use super::*;

/// A drive of 21 000 IOPS or 250 MB/s, with nothing over-committed and 5 % reserved.
const DRIVE: Measure = Measure {
    capacity: Some(Amount { iops: 21_000, bytes_per_second: 250_000_000 }),
    over_commit_percent: 100,
    reserve_percent: 5,
};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A level, for example `t:svm01`, `g:3` or `v:7`, with a floor.
fn level(text: &str, floor: Throughput) -> Level {
    let (kind, id) = text.split_once(':').unwrap();
    let number = || uuid::Uuid::from_u128(id.parse().unwrap());
    let scope = match kind {
        "t" => Scope::Tenant(name(id)),
        "g" => Scope::Group(PolicyGroupId(number())),
        _ => Scope::Volume(VolumeId(number())),
    };
    let terms = Terms { floor, ..Terms::default() };
    Level { scope, name: name(id), origin: Some(format!("policy of {text}")), is_bound: true, terms }
}

/// A volume by its levels, for example `t:svm01=1000IOPS g:3 v:7=5MB/s`.
fn volume(text: &str) -> (Name, Vec<Level>) {
    let levels = text.split(' ').map(|part| {
        let (scope, floor) = part.split_once('=').unwrap_or((part, "none"));
        level(scope, Throughput::parse(floor).unwrap())
    });
    (name("svm01"), levels.collect())
}

fn ledger(measure: Measure, volumes: &[&str]) -> Ledger {
    Ledger::new(measure, volumes.iter().map(|text| volume(text)))
}

fn amount(iops: u64, bytes_per_second: u64) -> Amount {
    Amount { iops, bytes_per_second }
}

#[test]
fn floor_counts_once_for_all_levels_below() {
    for (volumes, expected, rows) in [
        (&["v:1"][..], amount(0, 0), &[][..]),
        (&["v:1=500IOPS", "v:2=500IOPS", "v:3=2MB/s"], amount(1000, 2_000_000), &["1", "2", "3"]),
        (&["g:3=700IOPS v:1", "g:3=700IOPS v:2"], amount(700, 0), &["3"]),
        (&["g:3=700IOPS v:1=300IOPS", "g:3=700IOPS v:2=300IOPS"], amount(700, 0), &["3"]),
        // A tenant's floor contains all others, at any depth.
        (&["t:a=900IOPS g:3 v:1=300IOPS", "t:a=900IOPS g:4=500IOPS v:2"], amount(900, 0), &["a"]),
        (&["t:a g:3 v:1=300IOPS", "t:a g:4=500IOPS v:2"], amount(800, 0), &["4", "1"]),
        // A catalogue from before the tree was checked may hold this: the parts exceed the whole.
        (&["g:3=400IOPS v:1=300IOPS", "g:3=400IOPS v:2=300IOPS"], amount(600, 0), &["1", "2"]),
        // Floors of operations and of bytes do not contain each other.
        (&["g:3=400IOPS v:1=5MB/s", "g:3=400IOPS v:2"], amount(400, 5_000_000), &["3", "1"]),
        // Of both, the data plane enforces operations.
        (&["v:1=400IOPS,5MB/s"], amount(400, 0), &["1"]),
    ] {
        let ledger = ledger(DRIVE, volumes);
        assert_eq!(ledger.bound(), expected, "{volumes:?}");
        let names: Vec<_> = ledger.claims.iter().map(|claim| claim.name.as_str()).collect();
        assert_eq!(names, rows, "{volumes:?}");
    }
    let ledger = ledger(DRIVE, &["g:3=700IOPS v:1"]);
    let claim = Claim {
        tenant: name("svm01"),
        scope: Scope::Group(PolicyGroupId(uuid::Uuid::from_u128(3))),
        name: name("3"),
        origin: Some("policy of g:3".to_owned()),
        rate: Rate::Iops(700),
    };
    assert_eq!(ledger.claims, [claim]);
}

#[test]
fn fit_is_exact_to_one_operation_and_one_byte() {
    for (measure, volumes, fits, free) in [
        (DRIVE, &["v:1"][..], true, amount(19_950, 237_500_000)),
        (DRIVE, &["v:1=19950IOPS"], true, amount(0, 0)),
        (DRIVE, &["v:1=19951IOPS"], false, amount(0, 0)),
        (DRIVE, &["v:1=237500000B/s"], true, amount(0, 0)),
        (DRIVE, &["v:1=237500001B/s"], false, amount(0, 0)),
        // Half of the operations leave half of the bytes.
        (DRIVE, &["v:1=9975IOPS"], true, amount(9975, 118_750_000)),
        (DRIVE, &["v:1=9975IOPS", "v:2=118750000B/s"], true, amount(0, 0)),
        (DRIVE, &["v:1=9976IOPS", "v:2=118750000B/s"], false, amount(0, 0)),
        (DRIVE, &["v:1=9975IOPS", "v:2=118750001B/s"], false, amount(0, 0)),
        (Measure { reserve_percent: 0, ..DRIVE }, &["v:1=21000IOPS"], true, amount(0, 0)),
        (Measure { over_commit_percent: 150, ..DRIVE }, &["v:1=30450IOPS"], true, amount(0, 0)),
        (Measure { over_commit_percent: 150, ..DRIVE }, &["v:1=30451IOPS"], false, amount(0, 0)),
        (Measure { over_commit_percent: 10, reserve_percent: 50, ..DRIVE }, &["v:1"], false, amount(0, 0)),
        (Measure { over_commit_percent: 50, reserve_percent: 50, ..DRIVE }, &["v:1"], true, amount(0, 0)),
        (
            Measure { over_commit_percent: 50, reserve_percent: 50, ..DRIVE },
            &["v:1=1IOPS"],
            false,
            amount(0, 0),
        ),
    ] {
        let ledger = ledger(measure, volumes);
        assert_eq!((ledger.fits(), ledger.free()), (fits, Some(free)), "{measure:?} {volumes:?}");
    }
    let unknown = ledger(Measure { capacity: None, ..DRIVE }, &["v:1=1000000000IOPS"]);
    assert!(unknown.fits() && unknown.free().is_none() && unknown.reserve().is_none());
    // The reserve is rounded up, and the limit is rounded down.
    let small = Measure { capacity: Some(amount(30, 30)), over_commit_percent: 105, ..DRIVE };
    let small = ledger(small, &["v:1=29IOPS"]);
    assert_eq!(
        (small.reserve(), small.limit(), small.fits()),
        (Some(amount(2, 2)), Some(amount(31, 31)), true)
    );
}

#[test]
fn arithmetic_is_described() {
    let before = ledger(DRIVE, &["v:1=5000IOPS"]).bound();
    let after = ledger(DRIVE, &["v:1=5000IOPS", "v:2=18000IOPS"]);
    assert_eq!(
        after.arithmetic(before),
        "floors of 5000IOPS bound there plus 18000IOPS asked for plus 1050IOPS reserved for background work \
         are 24050IOPS; its capacity of 21000IOPS times an over-commit of 100% is 21000IOPS"
    );
    let remedy =
        "up to 14950IOPS more or an over-commit of 115% would be accepted, and --force records it as it is";
    assert_eq!(after.remedy(before), remedy);
    assert!(after.arithmetic(Amount::default()).starts_with("floors of 23000IOPS asked for plus 1050IOPS"));
    let bound = after.arithmetic(after.bound());
    assert!(bound.starts_with("floors of 23000IOPS bound there plus 1050IOPS reserved"), "{bound}");
    let remedy = "an over-commit of 115% would be accepted, and --force records it as it is";
    assert_eq!(after.remedy(after.bound()), remedy);
    let bytes = ledger(DRIVE, &["v:1=300MB/s"]).arithmetic(Amount::default());
    assert!(bytes.ends_with("its capacity of 250MB/s times an over-commit of 100% is 250MB/s"), "{bytes}");
    let mixed = ledger(DRIVE, &["v:1=5000IOPS", "v:2=190MB/s"]);
    assert_eq!(
        mixed.arithmetic(before),
        "floors of 5000IOPS bound there plus 190MB/s asked for are 25.1% and 80.0% of the 19950IOPS or \
         237500kB/s that floors may have, 105.1% together; those are its capacity of 21000IOPS or 250MB/s times \
         an over-commit of 100%, less 5% of it reserved for background work"
    );
    assert!(
        mixed.remedy(before).starts_with("up to 177976190B/s more or an over-commit of 105%"),
        "{}",
        mixed.remedy(before)
    );
    let nothing = ledger(Measure { over_commit_percent: 10, reserve_percent: 50, ..DRIVE }, &["v:1"]);
    assert_eq!(
        nothing.arithmetic(Amount::default()),
        "floors of 0IOPS bound there plus 10500IOPS reserved for background work are 10500IOPS; its capacity \
         of 21000IOPS times an over-commit of 10% is 2100IOPS"
    );
    let hopeless = ledger(DRIVE, &["v:1=999999999IOPS"]);
    assert_eq!(hopeless.remedy(hopeless.bound()), "--force records it as it is");
}

#[test]
fn over_committed_floors_can_only_be_reduced() {
    let with =
        |over_commit_percent, volumes: &[&str]| ledger(Measure { over_commit_percent, ..DRIVE }, volumes);
    let before = with(100, &["v:1=30000IOPS", "v:2=10MB/s"]);
    for (after, is_admissible) in [
        (with(100, &["v:1=30000IOPS", "v:2=10MB/s"]), true),
        (with(100, &["v:1=29999IOPS", "v:2=10MB/s"]), true),
        (with(100, &["v:1=30000IOPS"]), true),
        (with(110, &["v:1=30000IOPS", "v:2=10MB/s"]), true),
        (with(99, &["v:1=30000IOPS", "v:2=10MB/s"]), false),
        (with(100, &["v:1=30001IOPS", "v:2=10MB/s"]), false),
        (with(100, &["v:1=20000IOPS", "v:2=11MB/s"]), false),
        (with(100, &["v:1=10000IOPS", "v:2=11MB/s"]), true),
        (with(500, &["v:1=30001IOPS", "v:2=11MB/s"]), true),
    ] {
        assert_eq!(after.is_admissible_after(&before), is_admissible, "{after:?}");
    }
}

#[test]
fn claim_at_fault_is_the_first_that_does_not_fit() {
    let ledger = ledger(DRIVE, &["v:1=9000IOPS", "v:2=100MB/s", "v:3=3000IOPS", "v:4=1IOPS"]);
    let number = |claim: &Claim| claim.name.as_str().parse::<i32>().unwrap();
    let first = |order: &dyn Fn(&Claim) -> i32| ledger.first_beyond(order).map(number);
    assert_eq!(first(&number), Some(3));
    assert_eq!(first(&|claim| -number(claim)), Some(1));
    assert_eq!(self::ledger(DRIVE, &["v:1=9000IOPS"]).first_beyond(number), None);
}

/// The oracle's levels: each path from the top, with its floor.
type Floors = BTreeMap<Vec<Scope>, Throughput>;

/// The largest sum of floors over levels of which none is above another, found by trying all sets.
fn most(floors: &Floors, of: fn(&Throughput) -> u64) -> u64 {
    let set: Vec<_> = floors.iter().filter(|(_, floor)| of(floor) > 0).collect();
    let is_above = |a: &[Scope], b: &[Scope]| a.len() < b.len() && b.starts_with(a);
    (0u32..1 << set.len())
        .filter_map(|chosen| {
            let chosen: Vec<_> = (0..set.len()).filter(|i| chosen >> i & 1 == 1).map(|i| set[i]).collect();
            let is_nested = chosen.iter().any(|a| chosen.iter().any(|b| is_above(a.0, b.0)));
            (!is_nested).then(|| chosen.iter().map(|(_, floor)| of(floor)).sum())
        })
        .max()
        .unwrap_or(0)
}

/// Nested tenants, groups and volumes with floors of either kind.
fn volumes() -> impl Strategy<Value = Vec<(Name, Vec<Level>)>> {
    let floor = prop_oneof![
        Just(Throughput::default()),
        (1u64..9000).prop_map(|iops| Throughput { iops: Some(iops), bytes_per_second: None }),
        (1u64..90_000_000).prop_map(|bytes| Throughput { iops: None, bytes_per_second: Some(bytes) }),
    ];
    let path = (0u8..2, prop::collection::vec(1u8..4, 0..3));
    (prop::collection::vec(path, 0..6), prop::collection::vec(floor, 12)).prop_map(|(paths, floors)| {
        let enter = |(index, (tenant, groups)): (usize, (u8, Vec<u8>))| {
            let mut levels = vec![level(&format!("t:{tenant}"), floors[usize::from(tenant)])];
            for group in groups {
                // No group stands under itself, and each group has one floor wherever it stands.
                if levels.iter().all(|level| level.name.as_str() != format!("{}", group + 10)) {
                    levels.push(level(&format!("g:{}", group + 10), floors[usize::from(group) + 2]));
                }
            }
            levels.push(level(&format!("v:{}", index + 20), floors[index + 6]));
            (name(&tenant.to_string()), levels)
        };
        paths.into_iter().enumerate().map(enter).collect()
    })
}

proptest! {
    #[test]
    fn claims_and_their_fit_agree_with_an_oracle(
        volumes in volumes(),
        capacity in (100u64..60_000, 1_000_000u64..600_000_000),
        over_commit_percent in 10u32..=1000,
        reserve_percent in 0u32..=50,
    ) {
        let mut floors = Floors::new();
        for (_, levels) in &volumes {
            for depth in 1..=levels.len() {
                let path = levels[..depth].iter().map(|level| level.scope.clone()).collect();
                floors.insert(path, levels[depth - 1].terms.floor);
            }
        }
        let capacity = amount(capacity.0, capacity.1);
        let measure = Measure { capacity: Some(capacity), over_commit_percent, reserve_percent };
        let ledger = Ledger::new(measure, volumes);
        let bound = ledger.bound();
        prop_assert_eq!(bound.iops, most(&floors, |floor| floor.iops.unwrap_or(0)));
        prop_assert_eq!(bound.bytes_per_second, most(&floors, |floor| floor.bytes_per_second.unwrap_or(0)));
        // As parts of a second of the drives' time. Rounding may cost an operation or a byte, and never adds
        // any.
        let part = |amount: Amount| {
            amount.iops as f64 / capacity.iops as f64
                + amount.bytes_per_second as f64 / capacity.bytes_per_second as f64
        };
        let taken = part(bound) + f64::from(reserve_percent) / 100.0;
        let there = f64::from(over_commit_percent) / 100.0;
        let left = (there - f64::from(reserve_percent) / 100.0).abs();
        let rounding = 4.0 * part(amount(1, 1)) * (1.0 + there / left);
        prop_assert!(!ledger.fits() || taken <= there + 1e-9, "{} of {}", taken, there);
        prop_assert!(ledger.fits() || taken > there - rounding, "{} of {}", taken, there);
        // The free amount fits, and one more does not.
        let free = ledger.free().unwrap();
        if ledger.fits() {
            for (more, fits) in [
                (amount(free.iops, 0), true),
                (amount(0, free.bytes_per_second), true),
                (amount(free.iops + 1, 0), false),
                (amount(0, free.bytes_per_second + 1), false),
            ] {
                prop_assert_eq!(measure.fits(bound.plus(more)), fits, "{:?} more", more);
            }
        }
    }
}
