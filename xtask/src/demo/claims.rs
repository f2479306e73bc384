//! Claims of the demo, judged by its own figures.
//!
//! No claim depends on the speed of the machine. Shares are parts of the delivered rate. A ceiling never lets
//! more through. Either the ceiling is reached, or the volume has as much as an unlimited volume with full
//! demand.

use super::phases::index::{
    EACH, EQUAL, HUNDRED_GB, NOISY, ONE_TB, TEN_TB, THOUSAND, TOGETHER, TWO_THOUSAND,
};
use super::{Logs, Window};
use crate::numbers::{Pace, off_per_cent, pace, rate};
use crate::report::Report;
use crate::world::fio::Completion;

/// Largest relative difference between a limited volume and its limit.
const TOLERANCE: f64 = 0.005;
/// Largest relative difference between volumes that share and their parts.
const SHARE_TOLERANCE: f64 = 0.05;
/// Volume that never has a limit and always has full demand.
const UNLIMITED: usize = 2;

/// Figures of the demo.
pub struct Counted<'a> {
    /// Completions of each volume.
    pub logs: &'a Logs,
    /// Counted time of each phase.
    pub windows: &'a [Window],
}

impl Counted<'_> {
    /// Returns the IOPS of each volume in a phase.
    pub fn rates(&self, phase: usize) -> [f64; 3] {
        let Window { from_ms, to_ms, .. } = self.windows[phase];
        std::array::from_fn(|volume| rate(&self.logs[volume], from_ms, to_ms))
    }

    /// Returns the common pace of volumes under a limit in a phase.
    fn pace(&self, phase: usize, volumes: &[usize], limit: f64) -> Pace {
        let Window { from_ms, to_ms, .. } = self.windows[phase];
        let all = volumes.iter().flat_map(|&volume| self.logs[volume].iter().copied());
        let mut all: Vec<Completion> = all.collect();
        all.sort_by_key(|completion| completion.at_ms);
        pace(&all, from_ms, to_ms, limit)
    }

    fn judge_shares(&self, report: &mut Report, what: &str, phase: usize, volumes: &[usize]) {
        let rates = self.rates(phase);
        let found: Vec<f64> = volumes.iter().map(|&volume| rates[volume]).collect();
        let delivered: f64 = found.iter().sum();
        let part = delivered / found.len() as f64;
        let is_part = |found: &f64| delivered > 0.0 && (found / part - 1.0).abs() <= SHARE_TOLERANCE;
        let text: Vec<String> = found.iter().map(|rate| format!("{rate:.0}")).collect();
        let text = format!("{} of {delivered:.0} delivered", text.join(", "));
        report.claim(format!("{what}, within 5 %"), text, found.iter().all(is_part));
    }

    fn judge_limit(&self, report: &mut Report, what: &str, (phase, volumes): (usize, &[usize]), limit: f64) {
        let found = self.pace(phase, volumes, limit);
        let unlimited = self.rates(phase)[UNLIMITED] * volumes.len() as f64 * (1.0 - SHARE_TOLERANCE);
        // A single request is more than the tolerance of a low limit.
        let slack = (limit * TOLERANCE).max(1.0);
        // Requests that passed the ceiling before the counted time do not count against the limit in it.
        let Window { from_ms, to_ms, let_through, .. } = self.windows[phase];
        let before: u64 = volumes.iter().map(|&volume| let_through[volume]).sum();
        let before = before as f64 * 1000.0 / (to_ms - from_ms) as f64;
        let is_kept = found.whole <= limit + slack + before;
        let is_reached = found.usual >= (limit - slack).min(unlimited);
        let mut text = format!("{:.1} ({:+.2} %)", found.usual, off_per_cent(found.usual, limit));
        if !is_kept {
            text += &format!(", {:.1} over the whole time", found.whole);
        }
        report.claim(format!("{what}, within 0.5 %"), text, is_kept && is_reached);
    }
}

/// Adds every claim to the report.
pub fn judge(counted: &Counted<'_>, report: &mut Report) {
    let all = [0, 1, 2];
    counted.judge_shares(report, "each volume has a third of what is delivered", EQUAL, &all);
    let what = "each keeps its third beside 16 times as many requests, unlimited";
    counted.judge_shares(report, what, NOISY, &all);
    for (phase, limit) in [(THOUSAND, 1000.0), (TWO_THOUSAND, 2000.0)] {
        counted.judge_limit(report, &format!("vol1 at {limit} IOPS"), (phase, &[0]), limit);
        let what = format!("vol2 and vol3 have halves of what vol1 leaves at {limit} IOPS");
        counted.judge_shares(report, &what, phase, &all[1..]);
    }
    counted.judge_limit(report, "vol1 at 2000 IOPS of its own", (EACH, &[0]), 2000.0);
    counted.judge_limit(report, "vol2 at 2000 IOPS of its own", (EACH, &[1]), 2000.0);
    counted.judge_limit(report, "vol1 and vol2 together at 3000 IOPS", (TOGETHER, &[0, 1]), 3000.0);
    counted.judge_limit(report, "vol2 of 100 GB at 1500 IOPS per TB", (HUNDRED_GB, &[1]), 150.0);
    counted.judge_limit(report, "vol2 of 1 TB at 1500 IOPS per TB", (ONE_TB, &[1]), 1500.0);
    let what = "vol2 of 10 TB may do 15000 and has as much as vol3";
    counted.judge_shares(report, what, TEN_TB, &all[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rates = [[f64; 3]; 10];
    const PHASE_MS: u64 = 4000;

    /// Rates on a machine that delivers 7000 IOPS.
    const RATES: Rates = [
        [2333.0; 3],
        [2400.0, 2300.0, 2300.0],
        [2333.0; 3],
        [1000.0, 3000.0, 3000.0],
        [2000.0, 2500.0, 2500.0],
        [2000.0, 2000.0, 3000.0],
        [1500.0, 1500.0, 4000.0],
        [3000.0, 150.0, 3850.0],
        [2750.0, 1500.0, 2750.0],
        [2333.0, 2333.0, 2333.0],
    ];

    fn completions(rates: &Rates, volume: usize) -> Vec<Completion> {
        let phase = |(index, rates): (usize, &[f64; 3])| {
            let (start_ms, rate) = (index as u64 * PHASE_MS, rates[volume]);
            let count = (rate * PHASE_MS as f64 / 1000.0).round() as u64;
            let at_ms = move |number: u64| start_ms + (number as f64 * 1000.0 / rate) as u64;
            (0..count).map(move |number| Completion { at_ms: at_ms(number), latency_ns: 1 })
        };
        rates.iter().enumerate().flat_map(phase).collect()
    }

    fn failures(change: impl Fn(&mut Rates)) -> bool {
        let mut rates = RATES;
        change(&mut rates);
        let logs: Logs = std::array::from_fn(|volume| completions(&rates, volume));
        let window = |index: u64| {
            let from_ms = index * PHASE_MS;
            Window { begin_ms: from_ms, from_ms, to_ms: from_ms + PHASE_MS, let_through: [0; 3] }
        };
        let windows: Vec<Window> = (0..10).map(window).collect();
        let mut report = Report::new("test");
        judge(&Counted { logs: &logs, windows: &windows }, &mut report);
        report.finish(None).is_err()
    }

    #[test]
    fn each_claim_can_fail() {
        assert!(!failures(|_| {}));
        assert!(failures(|rates| rates[0][2] = 2000.0));
        assert!(failures(|rates| rates[1] = [6000.0, 500.0, 500.0]));
        assert!(failures(|rates| rates[3][0] = 1008.0));
        assert!(failures(|rates| rates[3][2] = 2000.0));
        assert!(failures(|rates| rates[4][0] = 1980.0));
        assert!(failures(|rates| rates[5][1] = 1000.0));
        assert!(failures(|rates| rates[6][1] = 2000.0));
        assert!(failures(|rates| rates[7][1] = 153.0));
        assert!(failures(|rates| rates[8][1] = 150.0));
        assert!(failures(|rates| rates[9][1] = 1500.0));
        assert!(failures(|rates| rates[0] = [0.0; 3]));
    }

    #[test]
    fn claims_hold_at_any_machine_speed() {
        // The machine is faster than the limits, as fast as some of them, and slower than any of them.
        for delivered in [20_000.0, 3000.0, 300.0] {
            let fair = |limits: [f64; 3]| {
                let mut left = delivered;
                let mut order = [0, 1, 2];
                order.sort_by(|&a, &b| limits[a].total_cmp(&limits[b]));
                let mut rates = [0.0; 3];
                for (taken, volume) in order.into_iter().enumerate() {
                    rates[volume] = limits[volume].min(left / (3 - taken) as f64);
                    left -= rates[volume];
                }
                rates
            };
            let all = f64::INFINITY;
            assert!(!failures(|rates| {
                *rates = [
                    fair([all; 3]),
                    fair([all; 3]),
                    fair([all; 3]),
                    fair([1000.0, all, all]),
                    fair([2000.0, all, all]),
                    fair([2000.0, 2000.0, all]),
                    fair([1500.0, 1500.0, all]),
                    fair([3000.0, 150.0, all]),
                    fair([3000.0, 1500.0, all]),
                    fair([3000.0, 15_000.0_f64.max(delivered), all]),
                ];
            }));
        }
    }
}
