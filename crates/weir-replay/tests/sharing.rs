//! Sharing under chance: thousands of random trees and loads, each with its own seed.

use weir_qos::Kind;
use weir_replay::chance::{Wanted, plan};
use weir_replay::oracle::{check_claims, check_no_idling, check_windows, entitlements};
use weir_replay::{History, Load, Plan, PlannedDrive, PlannedNode, run};
use weir_types::Terms;

const SECOND_NS: u64 = 1_000_000_000;

/// Trees of each kind; together more than ten thousand.
const TREES: u64 = 3500;

fn wanted(is_mixed: bool, is_changing: bool) -> Wanted {
    Wanted { leaves_max: 12, is_mixed, is_changing, duration_ns: 2 * SECOND_NS }
}

/// Plays random plans, and names the seed and the rule that it broke.
fn check(wanted: Wanted, check: impl Fn(&Plan, &History) -> Result<(), String>) {
    for seed in 0..TREES {
        let plan = plan(seed, wanted);
        let history = run(&plan);
        let verdict = check_windows(&plan, &history).and_then(|()| check(&plan, &history));
        verdict.unwrap_or_else(|broken| panic!("seed {seed}: {broken}\n{plan}"));
    }
}

#[test]
fn saturating_workload_gets_its_entitlement() {
    check(wanted(false, false), |plan, history| {
        let (from_ns, until_ns) = (SECOND_NS / 2, plan.duration_ns);
        let seconds = (until_ns - from_ns) as f64 / 1e9;
        for (node, entitled) in entitlements(plan).into_iter().enumerate() {
            if plan.nodes[node].load.is_none() {
                continue;
            }
            let got = history.answered(node, from_ns, until_ns) as f64;
            let wanted = entitled * seconds;
            if got < wanted * 0.999 - 4.0 {
                let all = entitlements(plan);
                let got = |n: usize| history.answered(n, from_ns, until_ns) as f64 / seconds;
                let rows: Vec<_> = all.iter().enumerate().map(|(n, e)| (n, *e, got(n))).collect();
                return Err(format!("leaf {node} is entitled to more: {rows:.1?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn floors_hold_without_starvation_or_idling_under_churn() {
    check(wanted(false, true), |plan, history| {
        check_claims(plan, history).and_then(|()| check_no_idling(plan, history))
    });
}

#[test]
fn no_window_at_any_level_exceeds_its_ceilings() {
    check(wanted(true, true), |_, _| Ok(()));
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..20 {
        let plan = plan(seed, wanted(true, true));
        assert_eq!(run(&plan).fingerprint(), run(&plan).fingerprint(), "seed {seed}");
    }
}

/// Two clients that always have requests open, on a drive that answers after `latency_ns`.
fn competing(iops: u64, latency_ns: u64) -> Plan {
    let load =
        |depth| Load { depth, kind: Kind::Read, bytes: 4096, think_ns: 0, active: vec![(0, u64::MAX)] };
    let node = |depth| PlannedNode { parent: None, terms: Terms::default(), load: Some(load(depth)) };
    let emulated = PlannedDrive { iops, bytes_per_second: u64::MAX, latency_ns, queue_target: None };
    Plan {
        nodes: vec![node(512), node(32)],
        planned_drive: Some(emulated),
        duration_ns: 20 * SECOND_NS,
        late_ns_max: 0,
        seed: 1,
    }
}

#[test]
fn queue_depth_is_as_small_as_the_drive_allows() {
    for (iops, latency_ns) in [(2000, 10_000), (21_000, 200_000), (100_000, 100_000), (1000, 20_000_000)] {
        let plan = competing(iops, latency_ns);
        let history = run(&plan);
        let needed = iops as f64 * latency_ns as f64 / 1e9 + 1.0;
        assert!(
            f64::from(history.depth) <= needed * 2.0 + 1.0,
            "{} of {needed} at {iops} IOPS",
            history.depth
        );
        let (from_ns, until_ns) = (10 * SECOND_NS, 19 * SECOND_NS);
        let each: Vec<f64> =
            (0..2).map(|node| history.answered(node, from_ns, until_ns) as f64 / 9.0).collect();
        assert!(each[0] + each[1] >= iops as f64 * 0.98, "{each:?} of {iops}");
        assert!((each[0] / each[1] - 1.0).abs() < 0.02, "{each:?} of {iops}");
    }
}
