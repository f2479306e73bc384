//! The pace of background work: the rate that its deadline needs, and the rate that its ceiling allows.
//!
//! In all other respects background work is a workload: it waits in a drive queue with a weight. Work with a
//! deadline also has a floor.

use weir_types::bounds::RATE_IOPS_MAX;
use weir_types::{BackgroundPolicy, Limits, Terms};

use crate::ceiling::Ceiling;
use crate::cost::{Cost, Counting, Direction};

/// Interval at which a floor is adjusted to the needed rate, in nanoseconds; far below the shortest deadline.
pub const FLOOR_INTERVAL_NS: u64 = 100_000_000;

/// The part of the time until a deadline that is kept in reserve (one sixteenth). The end of the work is
/// reported and recorded a little later.
const RESERVE_PART: i64 = 16;

/// Returns the instant at which work that began at `begun_ns` is due, a little before its deadline.
pub fn due_ns(begun_ns: i64, deadline_seconds: u32) -> i64 {
    let span_ns = i64::from(deadline_seconds) * 1_000_000_000;
    begun_ns.saturating_add(span_ns - span_ns / RESERVE_PART)
}

/// Returns the rate, in operations per second, at which all work is done in time; `None` if nothing is left.
/// Each item of `work` has the operations left and the instant at which they are due, in order of execution.
/// Late work is due at the next interval.
pub fn rate_needed(now_ns: u64, work: impl IntoIterator<Item = (u64, i64)>) -> Option<u64> {
    let now_ns = i64::try_from(now_ns).unwrap_or(i64::MAX);
    let mut before = 0u64;
    let rate_for = |(left, due_ns): (u64, i64)| {
        before = before.saturating_add(left);
        let time_ns = due_ns.saturating_sub(now_ns).max(FLOOR_INTERVAL_NS as i64);
        (u128::from(before) * 1_000_000_000).div_ceil(time_ns as u128)
    };
    let highest = work.into_iter().map(rate_for).max()?;
    let highest = u64::try_from(highest).unwrap_or(RATE_IOPS_MAX).min(RATE_IOPS_MAX);
    (highest > 0).then_some(highest)
}

/// How fast one kind of background work may go on one drive.
#[derive(Clone, Debug)]
pub struct Pace {
    policy: BackgroundPolicy,
    ceiling: Ceiling,
}

fn ceilings(policy: &BackgroundPolicy) -> Terms {
    Terms::limited(Limits { total: policy.ceiling, ..Limits::default() })
}

impl Pace {
    /// Returns the pace of a policy, without credit or debt.
    pub fn new(policy: BackgroundPolicy, now_ns: u64) -> Pace {
        Pace { policy, ceiling: Ceiling::new(&ceilings(&policy), now_ns) }
    }

    /// Policy of the pace.
    pub fn policy(&self) -> &BackgroundPolicy {
        &self.policy
    }

    /// Replaces the policy. Debt stays.
    pub fn change(&mut self, policy: BackgroundPolicy, now_ns: u64) {
        self.ceiling.change(&ceilings(&policy), now_ns);
        self.policy = policy;
    }

    /// Returns the first instant at which the work may issue another operation.
    pub fn ready_ns(&self) -> u64 {
        // Only the total of both directions is limited.
        self.ceiling.ready_ns(Direction::Write).0
    }

    /// Charges an operation that the work issues.
    pub fn asked(&mut self, now_ns: u64, cost: Cost) {
        self.ceiling.charge(now_ns, cost, &Counting::default());
    }

    /// Charges bytes that an operation has moved, or given back, and that were unknown when it was issued.
    pub fn moved(&mut self, now_ns: u64, cost: Cost, bytes: u32) {
        self.ceiling.charge(now_ns, Cost { is_first: false, bytes, ..cost }, &Counting::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Kind;
    use proptest::prelude::*;
    use weir_types::Throughput;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn rate_is_remaining_work_by_remaining_time() {
        let due_ns = 11 * SECOND_NS as i64;
        assert_eq!(rate_needed(SECOND_NS, [(1000, due_ns)]), Some(100));
        assert_eq!(rate_needed(6 * SECOND_NS, [(1000, due_ns)]), Some(200));
        assert_eq!(rate_needed(6 * SECOND_NS, [(1, due_ns)]), Some(1), "rounded up");
        assert_eq!(rate_needed(0, [(0, due_ns)]), None);
        assert_eq!(rate_needed(0, []), None);
        for late_ns in [11, 12, 1000].map(|seconds| seconds * SECOND_NS) {
            assert_eq!(rate_needed(late_ns, [(1000, due_ns)]), Some(10_000), "at once");
        }
        assert_eq!(rate_needed(u64::MAX, [(u64::MAX, i64::MIN)]), Some(RATE_IOPS_MAX));
    }

    #[test]
    fn earlier_work_counts_towards_later_deadlines() {
        let second = |seconds: i64| seconds * SECOND_NS as i64;
        assert_eq!(rate_needed(0, [(100, second(100)), (100, second(10))]), Some(20));
        assert_eq!(rate_needed(0, [(100, second(1)), (100, second(100))]), Some(100));
    }

    #[test]
    fn due_instant_keeps_a_reserve() {
        assert_eq!(due_ns(-5, 16), 15 * SECOND_NS as i64 - 5);
        assert!(due_ns(i64::MAX, 1) == i64::MAX, "far away, and no overflow");
    }

    fn ceiling(text: &str) -> Pace {
        let ceiling = Throughput::parse(text).unwrap();
        Pace::new(BackgroundPolicy { ceiling, ..BackgroundPolicy::default() }, 0)
    }

    fn discard() -> Cost {
        Cost::of(Kind::Discard, 0)
    }

    /// Returns the number of operations that start within some seconds if each gives back this many bytes.
    fn operations(pace: &mut Pace, seconds: u64, bytes: u32) -> u64 {
        let (mut now_ns, mut count) = (0, 0);
        loop {
            now_ns = pace.ready_ns().max(now_ns);
            if now_ns >= seconds * SECOND_NS {
                return count;
            }
            pace.asked(now_ns, discard());
            pace.moved(now_ns, discard(), bytes);
            count += 1;
        }
    }

    #[test]
    fn tightest_limit_applies() {
        assert_eq!(operations(&mut ceiling("100IOPS"), 10, 64 << 20), 1000);
        assert_eq!(operations(&mut ceiling("64MiB/s"), 10, 64 << 20), 10);
        assert_eq!(operations(&mut ceiling("100IOPS,64MiB/s"), 10, 64 << 20), 10);
        assert_eq!(operations(&mut ceiling("5IOPS,64MiB/s"), 10, 4096), 50);
        assert_eq!(ceiling("none").ready_ns(), 0);
    }

    #[test]
    fn debt_survives_a_change_of_policy() {
        let mut pace = ceiling("1IOPS");
        pace.asked(0, discard());
        pace.change(BackgroundPolicy { ceiling: Throughput::parse("2IOPS").unwrap(), ..*pace.policy() }, 0);
        assert_eq!(pace.ready_ns(), SECOND_NS / 2);
        pace.change(BackgroundPolicy::default(), 0);
        assert_eq!(pace.ready_ns(), 0);
    }

    proptest! {
        /// Work that gets exactly the computed floor, adjusted at every interval, is done in time.
        #[test]
        fn needed_rate_meets_every_deadline(
            pieces in prop::collection::vec((0u64..100_000, 1u32..5000, 0i64..1000), 1..8),
        ) {
            let due = |(left, deadline, age): (u64, u32, i64)| {
                let begun_ns = -age.min(i64::from(deadline) / 2) * SECOND_NS as i64;
                (left, due_ns(begun_ns, deadline), begun_ns + i64::from(deadline) * SECOND_NS as i64)
            };
            let mut work: Vec<_> = pieces.into_iter().map(due).collect();
            let (mut now_ns, mut parts) = (0u64, 0u128);
            while let Some(rate) = rate_needed(now_ns, work.iter().map(|(left, due_ns, _)| (*left, *due_ns))) {
                now_ns += FLOOR_INTERVAL_NS;
                parts += u128::from(rate) * u128::from(FLOOR_INTERVAL_NS);
                let mut done = (parts / u128::from(SECOND_NS)) as u64;
                parts %= u128::from(SECOND_NS);
                for (left, _, deadline_ns) in work.iter_mut().filter(|(left, ..)| *left > 0) {
                    let now_done = done.min(*left);
                    (*left, done) = (*left - now_done, done - now_done);
                    // The last adjustment may be an interval late.
                    prop_assert!(*left == 0 || (now_ns as i64) < *deadline_ns + 2 * FLOOR_INTERVAL_NS as i64);
                }
            }
        }
    }
}
