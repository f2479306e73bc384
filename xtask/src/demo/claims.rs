//! What the demo claims to show, judged by its own figures.

use super::Rates;
use super::phases::index::{EACH, EQUAL, NOISY, THOUSAND, TOGETHER, TWO_THOUSAND};
use crate::numbers::off_per_cent;
use crate::report::Report;

/// How far a limited volume may be from its limit.
const TOLERANCE: f64 = 0.005;
/// Part of their first rate that the quiet volumes must have again.
const RESTORED: f64 = 0.9;

/// Adds every claim to the report.
pub fn judge(rates: &Rates, report: &mut Report) {
    let noisy = rates[NOISY];
    let found = format!("{:.0} beside {:.0} and {:.0}", noisy[0], noisy[1], noisy[2]);
    report.claim("vol1 takes most of the IOPS when noisy", found, noisy[0] > noisy[1] + noisy[2]);
    for (phase, limit) in [(THOUSAND, 1000.0), (TWO_THOUSAND, 2000.0)] {
        for volume in [1, 2] {
            let part = rates[phase][volume] / rates[EQUAL][volume].max(1.0);
            let what = format!("vol{} has its service back beside vol1 at {limit} IOPS", volume + 1);
            report.claim(what, format!("{part:.2} of its first rate"), part >= RESTORED);
        }
        judge_limit(report, &format!("vol1 at {limit} IOPS"), rates[phase][0], limit);
    }
    judge_limit(report, "vol1 at 2000 IOPS of its own", rates[EACH][0], 2000.0);
    judge_limit(report, "vol2 at 2000 IOPS of its own", rates[EACH][1], 2000.0);
    judge_limit(
        report,
        "vol1 and vol2 together at 3000 IOPS",
        rates[TOGETHER][0] + rates[TOGETHER][1],
        3000.0,
    );
}

fn judge_limit(report: &mut Report, what: &str, found: f64, limit: f64) {
    let text = format!("{found:.1} ({:+.2} %)", off_per_cent(found, limit));
    report.claim(format!("{what}, within 0.5 %"), text, (found / limit - 1.0).abs() <= TOLERANCE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(change: impl Fn(&mut Rates)) -> bool {
        let mut rates = vec![
            [7000.0; 3],
            [18_000.0, 1000.0, 1000.0],
            [10_000.0, 5000.0, 5000.0],
            [1000.0, 9000.0, 9000.0],
            [2004.0, 9000.0, 9000.0],
            [2000.0, 2000.0, 15_000.0],
            [1500.0, 1500.0, 15_000.0],
        ];
        change(&mut rates);
        let mut report = Report::new("test");
        judge(&rates, &mut report);
        report.finish(None).is_err()
    }

    #[test]
    fn each_claim_can_fail() {
        assert!(!failures(|_| {}));
        assert!(failures(|rates| rates[1] = [7000.0; 3]));
        assert!(failures(|rates| rates[3][0] = 1006.0));
        assert!(failures(|rates| rates[3][2] = 6000.0));
        assert!(failures(|rates| rates[4][0] = 1980.0));
        assert!(failures(|rates| rates[5][1] = 1000.0));
        assert!(failures(|rates| rates[6][1] = 2000.0));
    }
}
