//! One rate, metered exactly.
//!
//! A meter is a bucket that fills with what is admitted and leaks at the limit's rate (the "leaky bucket as
//! a meter" of ITU-T I.371). A request may start when the level is zero or below; its whole cost is then
//! added, so a request larger than any allowance leaves a debt that time alone repays. Level and leak are
//! integers in billionths of one cost unit: in one nanosecond a rate of R per second leaks exactly R of
//! them, so nothing is ever rounded away.

use weir_types::bounds::CEILING_CREDIT_NS;

/// Parts of one cost unit.
const BILLION: i128 = 1_000_000_000;

/// A limit of `rate` cost units (operations or bytes) per second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    rate: u64,
    /// What is owed (above zero) or saved (below), in billionths of a cost unit, as of `settled_ns`.
    level: i128,
    settled_ns: u64,
}

impl Meter {
    /// A meter without credit or debt. `rate` must be at least 1.
    pub fn new(rate: u64, now_ns: u64) -> Meter {
        assert!(rate > 0, "a rate of zero would never admit anything");
        Meter { rate, level: 0, settled_ns: now_ns }
    }

    /// The limit in cost units per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Lets time pass. An instant before the last one counts as the last one.
    pub fn settle(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.settled_ns);
        if elapsed_ns == 0 {
            return;
        }
        self.settled_ns = now_ns;
        let leaked = i128::from(self.rate) * i128::from(elapsed_ns);
        self.level = (self.level - leaked).max(-self.credit_max());
    }

    /// Most that may be saved: what the rate gives in [`CEILING_CREDIT_NS`].
    fn credit_max(&self) -> i128 {
        i128::from(self.rate) * i128::from(CEILING_CREDIT_NS)
    }

    /// The first instant, counted from the last settling, at which a request may start.
    pub fn ready_ns(&self) -> u64 {
        if self.level <= 0 {
            return self.settled_ns;
        }
        let rate = i128::from(self.rate);
        let wait_ns = (self.level + rate - 1) / rate;
        self.settled_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX))
    }

    /// Adds the cost of an admitted request.
    pub fn charge(&mut self, cost: u64) {
        self.level += i128::from(cost) * BILLION;
    }

    /// Takes back the cost of a request that was admitted but never started.
    pub fn refund(&mut self, cost: u64) {
        self.level = (self.level - i128::from(cost) * BILLION).max(-self.credit_max());
    }

    /// Changes the rate. Debt keeps its size, so that a change neither gives anything away nor takes it, and is
    /// repaid at the new rate; credit is cut to what the new rate may save.
    pub fn change_rate(&mut self, rate: u64, now_ns: u64) {
        assert!(rate > 0, "a rate of zero would never admit anything");
        self.settle(now_ns);
        self.rate = rate;
        self.level = self.level.max(-self.credit_max());
    }

    /// What is owed, in cost units rounded down; negative if credit is saved.
    pub fn balance(&self) -> i128 {
        self.level.div_euclid(BILLION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Starts of a client that always wants more, waking `late_ns(n)` after each ready instant.
    fn saturate(rate: u64, cost: u64, count: usize, late_ns: impl Fn(usize) -> u64) -> Vec<u64> {
        let mut meter = Meter::new(rate, 0);
        let mut now_ns = 0;
        (0..count)
            .map(|n| {
                meter.settle(now_ns);
                let ready_ns = meter.ready_ns();
                now_ns = if ready_ns > now_ns { ready_ns + late_ns(n) } else { now_ns };
                meter.settle(now_ns);
                meter.charge(cost);
                now_ns
            })
            .collect()
    }

    #[test]
    fn a_saturating_client_gets_exactly_its_rate() {
        for rate in [1, 3, 7, 100, 1000, 3000, 999_983, 1_000_000] {
            let starts = saturate(rate, 1, 10_000, |_| 0);
            let last = *starts.last().unwrap();
            let exact = 9_999u128 * 1_000_000_000 / u128::from(rate);
            assert!(u128::from(last).abs_diff(exact) <= 1, "rate {rate}: {last} instead of {exact}");
        }
    }

    #[test]
    fn lateness_is_caught_up() {
        let starts = saturate(1000, 1, 10_001, |n| (n as u64 * 7919) % 2_000_000);
        assert!(starts[10_000].abs_diff(10_000_000_000) <= 2_000_000, "{}", starts[10_000]);
    }

    #[test]
    fn an_idle_meter_saves_no_more_than_its_credit() {
        let mut meter = Meter::new(1000, 0);
        meter.settle(10_000_000_000);
        let mut burst = 0;
        while meter.ready_ns() <= 10_000_000_000 {
            meter.charge(1);
            burst += 1;
        }
        assert_eq!(burst, 1 + 1000 * CEILING_CREDIT_NS / 1_000_000_000);
    }

    #[test]
    fn a_new_meter_has_no_burst() {
        let mut meter = Meter::new(1000, 5);
        assert_eq!(meter.ready_ns(), 5);
        meter.charge(1);
        assert_eq!(meter.ready_ns(), 1_000_005);
    }

    #[test]
    fn a_changed_rate_neither_forgives_nor_adds_debt() {
        let mut meter = Meter::new(1, 0);
        meter.charge(1);
        for n in 0..1000 {
            meter.change_rate(1 + n % 2, 0);
        }
        assert_eq!(meter.ready_ns(), 500_000_000);
        meter.change_rate(1000, 0);
        assert_eq!(meter.ready_ns(), 1_000_000);
    }

    proptest! {
        /// Against the definition: in no window does more start than rate × length + credit + one request.
        #[test]
        fn no_window_exceeds_the_limit(
            rate in 1u64..2_000_000,
            steps in prop::collection::vec((0u64..30_000_000, 1u64..5000), 2..200),
        ) {
            let mut meter = Meter::new(rate, 0);
            let (mut now_ns, mut started) = (0u64, Vec::new());
            for (gap_ns, cost) in steps {
                now_ns += gap_ns;
                meter.settle(now_ns);
                now_ns = now_ns.max(meter.ready_ns());
                meter.settle(now_ns);
                meter.charge(cost);
                started.push((now_ns, cost));
            }
            for first in 0..started.len() {
                let mut sum = 0u128;
                for &(at_ns, cost) in &started[first..] {
                    // The last request of a window may start as soon as everything before it is paid.
                    let window_ns = u128::from(at_ns - started[first].0 + CEILING_CREDIT_NS);
                    prop_assert!(sum * 1_000_000_000 <= u128::from(rate) * window_ns);
                    sum += u128::from(cost);
                }
            }
        }
    }
}
