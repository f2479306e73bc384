//! The meter: one rate, metered exactly.
//!
//! A meter is a bucket that fills with admitted requests and leaks at the limit's rate (the "leaky bucket as
//! a meter" of ITU-T I.371). A request may start when the level is zero or below. Its whole cost is then
//! added, so a request larger than any allowance leaves a debt that only time repays. Unused rate is saved as
//! credit, up to a bound.
//!
//! Level and leak are integers in billionths of one cost unit. In one nanosecond a rate of R per second leaks
//! exactly R billionths, so nothing is ever rounded away.

use weir_types::bounds::CEILING_CREDIT_NS;

/// Billionths of a cost unit in a millionth of one.
const BILLIONTHS_PER_MILLIONTH: i128 = 1000;

/// A limit of `rate` cost units (operations or bytes) per second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Debt (above zero) or credit (below), in billionths of a cost unit, as of `settled_ns`.
    level: Level,
    rate: u64,
    settled_ns: u64,
    credit: Credit,
}

/// A wide integer, aligned like its halves: with an alignment of 16 a node of the tree would take three cache
/// lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level {
    high: i64,
    low: u64,
}

impl Level {
    fn of(value: i128) -> Level {
        Level { high: (value >> 64) as i64, low: value as u64 }
    }

    fn value(self) -> i128 {
        (i128::from(self.high) << 64) | i128::from(self.low)
    }
}

/// The credit that a meter may save: `rate` units per second, for `ns_max` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Cost units per second.
    pub rate: u64,
    /// Largest credit, in nanoseconds at that rate.
    pub ns_max: u64,
}

impl Credit {
    /// Returns the credit that every ceiling may save, so that a late wake-up loses nothing.
    pub fn small(rate: u64) -> Credit {
        Credit { rate, ns_max: CEILING_CREDIT_NS }
    }

    /// Largest credit, in billionths of a cost unit.
    fn level_max(self) -> i128 {
        i128::from(self.rate) * i128::from(self.ns_max)
    }
}

impl Meter {
    /// Returns a meter without credit or debt that saves little. `rate` must be at least 1.
    pub fn new(rate: u64, now_ns: u64) -> Meter {
        Meter::with_credit(rate, Credit::small(rate), now_ns)
    }

    /// Returns a meter without credit or debt. `rate` must be at least 1.
    pub fn with_credit(rate: u64, credit: Credit, now_ns: u64) -> Meter {
        assert!(rate > 0, "a rate of zero would never admit anything");
        Meter { level: Level::default(), rate, settled_ns: now_ns, credit }
    }

    /// Limit in cost units per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Fills the credit.
    pub fn fill(&mut self) {
        self.level = Level::of(-self.credit.level_max());
    }

    /// Lets time pass. An instant before the last one counts as the last one.
    pub fn settle(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.settled_ns);
        if elapsed_ns == 0 {
            return;
        }
        self.settled_ns = now_ns;
        let leaked = i128::from(self.rate) * i128::from(elapsed_ns);
        self.level = Level::of((self.level.value() - leaked).max(-self.credit.level_max()));
    }

    /// Returns the first instant, counted from the last settling, at which a request may start.
    pub fn ready_ns(&self) -> u64 {
        match self.level.value() {
            ..=0 => self.settled_ns,
            level => self.settled_ns.saturating_add(div_ceil(level, self.rate)),
        }
    }

    /// Adds the cost of an admitted request, in millionths of a cost unit.
    pub fn charge(&mut self, millionths: u64) {
        self.level = Level::of(self.level.value() + i128::from(millionths) * BILLIONTHS_PER_MILLIONTH);
    }

    /// Forgets the debt. A floor does so after requests that it did not claim.
    pub fn forgive(&mut self) {
        self.level = Level::of(self.level.value().min(0));
    }

    /// Drops the credit.
    pub fn drop_credit(&mut self) {
        self.level = Level::of(self.level.value().max(0));
    }

    /// Changes the rate. Debt keeps its size and is repaid at the new rate, so that a change neither forgives
    /// nor adds debt. Credit keeps its length in time, as far as the new credit allows.
    pub fn change(&mut self, rate: u64, credit: Credit, now_ns: u64) {
        assert!(rate > 0, "a rate of zero would never admit anything");
        self.settle(now_ns);
        let mut level = self.level.value();
        if level < 0 && credit.rate != self.credit.rate {
            level = level * i128::from(credit.rate) / i128::from(self.credit.rate.max(1));
        }
        self.rate = rate;
        self.credit = credit;
        self.level = Level::of(level.max(-credit.level_max()));
    }

    /// Returns the credit, in nanoseconds at the credit's rate; 0 if there is debt.
    pub fn credit_ns(&self) -> u64 {
        let saved = (-self.level.value()).max(0);
        u64::try_from(saved / i128::from(self.credit.rate.max(1))).unwrap_or(u64::MAX)
    }

    /// Sets the credit, for example after a restart, as far as it may be saved. Debt is forgotten.
    pub fn set_credit_ns(&mut self, credit_ns: u64) {
        let saved = i128::from(self.credit.rate) * i128::from(credit_ns.min(self.credit.ns_max));
        self.level = Level::of(-saved);
    }

    /// Largest credit, in nanoseconds at the credit's rate.
    pub fn credit_ns_max(&self) -> u64 {
        self.credit.ns_max
    }
}

/// Divides a positive level by a rate, rounding up; in 64 bits where that is enough, which is much faster.
fn div_ceil(level: i128, rate: u64) -> u64 {
    match u64::try_from(level) {
        Ok(level) => level.div_ceil(rate),
        Err(_) => u64::try_from((level + i128::from(rate) - 1) / i128::from(rate)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::MILLIONTHS;
    use proptest::prelude::*;

    /// Returns the starts of a client that always has more requests, and wakes `late_ns(n)` after each ready
    /// instant.
    fn saturate(rate: u64, cost: u64, count: usize, late_ns: impl Fn(usize) -> u64) -> Vec<u64> {
        let mut meter = Meter::new(rate, 0);
        let mut now_ns = 0;
        (0..count)
            .map(|n| {
                meter.settle(now_ns);
                let ready_ns = meter.ready_ns();
                now_ns = if ready_ns > now_ns { ready_ns + late_ns(n) } else { now_ns };
                meter.settle(now_ns);
                meter.charge(cost * MILLIONTHS);
                now_ns
            })
            .collect()
    }

    #[test]
    fn saturating_client_gets_exactly_its_rate() {
        for rate in [1, 3, 7, 100, 1000, 3000, 999_983, 1_000_000] {
            let starts = saturate(rate, 1, 10_000, |_| 0);
            let last = *starts.last().unwrap();
            let exact = 9_999u128 * 1_000_000_000 / u128::from(rate);
            assert!(u128::from(last).abs_diff(exact) <= 1, "rate {rate}: {last} instead of {exact}");
        }
    }

    #[test]
    fn late_wake_ups_lose_nothing() {
        let starts = saturate(1000, 1, 10_001, |n| (n as u64 * 7919) % 2_000_000);
        assert!(starts[10_000].abs_diff(10_000_000_000) <= 2_000_000, "{}", starts[10_000]);
    }

    #[test]
    fn idle_meter_saves_no_more_than_its_credit() {
        let mut meter = Meter::new(1000, 0);
        meter.settle(10_000_000_000);
        let mut burst = 0;
        while meter.ready_ns() <= 10_000_000_000 {
            meter.charge(MILLIONTHS);
            burst += 1;
        }
        assert_eq!(burst, 1 + 1000 * CEILING_CREDIT_NS / 1_000_000_000);
    }

    #[test]
    fn a_new_meter_has_no_burst() {
        let mut meter = Meter::new(1000, 5);
        assert_eq!(meter.ready_ns(), 5);
        meter.charge(MILLIONTHS);
        assert_eq!(meter.ready_ns(), 1_000_005);
    }

    #[test]
    fn rate_change_neither_forgives_nor_adds_debt() {
        let mut meter = Meter::new(1, 0);
        meter.charge(MILLIONTHS);
        for n in 0..1000 {
            meter.change(1 + n % 2, Credit::small(1 + n % 2), 0);
        }
        assert_eq!(meter.ready_ns(), 500_000_000);
        meter.change(1000, Credit::small(1000), 0);
        assert_eq!(meter.ready_ns(), 1_000_000);
    }

    #[test]
    fn burst_lasts_as_long_as_its_credit() {
        let minute = Credit { rate: 1000, ns_max: 60_000_000_000 };
        let mut meter = Meter::with_credit(1000, minute, 0);
        meter.settle(60_000_000_000);
        assert_eq!(meter.credit_ns(), 60_000_000_000);
        // Twice the rate for a minute, with one request each half millisecond, uses the credit up.
        let mut now_ns = 60_000_000_000;
        while meter.ready_ns() <= now_ns {
            meter.charge(MILLIONTHS);
            now_ns += 500_000;
            meter.settle(now_ns);
        }
        assert!(now_ns.abs_diff(120_000_000_000) <= 1_000_000, "{now_ns}");
    }

    #[test]
    fn credit_keeps_its_length_through_changes() {
        let mut meter = Meter::with_credit(1000, Credit { rate: 1000, ns_max: 60_000_000_000 }, 0);
        meter.settle(30_000_000_000);
        meter.change(500, Credit { rate: 3000, ns_max: 90_000_000_000 }, 30_000_000_000);
        assert_eq!(meter.credit_ns(), 30_000_000_000);
        meter.change(500, Credit { rate: 3000, ns_max: 10_000_000_000 }, 30_000_000_000);
        assert_eq!(meter.credit_ns(), 10_000_000_000);
    }

    proptest! {
        /// The definition of a limit: in no window does more start than rate × length + credit + one request.
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
                meter.charge(cost * MILLIONTHS);
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
