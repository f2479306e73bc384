//! What the demo claims to show, judged by its own figures.

use super::phases::index::{
    EACH, EQUAL, HUNDRED_GB, NOISY, ONE_TB, TEN_TB, THOUSAND, TOGETHER, TWO_THOUSAND,
};
use super::{DRIVE_IOPS, Rates};
use crate::numbers::off_per_cent;
use crate::report::Report;

/// How far a limited volume may be from its limit.
const TOLERANCE: f64 = 0.005;
/// How far volumes that share may be from their parts.
const SHARE_TOLERANCE: f64 = 0.05;

/// Adds every claim to the report.
pub fn judge(rates: &Rates, report: &mut Report) {
    let third = DRIVE_IOPS / 3.0;
    judge_shares(report, "each volume has a third of the drive", &rates[EQUAL], third);
    judge_shares(
        report,
        "each keeps its third beside 16 times as many requests, unlimited",
        &rates[NOISY],
        third,
    );
    for (phase, limit) in [(THOUSAND, 1000.0), (TWO_THOUSAND, 2000.0)] {
        judge_limit(report, &format!("vol1 at {limit} IOPS"), rates[phase][0], limit);
        let what = format!("vol2 and vol3 have halves of what vol1 leaves at {limit} IOPS");
        judge_shares(report, &what, &rates[phase][1..], (DRIVE_IOPS - limit) / 2.0);
    }
    judge_limit(report, "vol1 at 2000 IOPS of its own", rates[EACH][0], 2000.0);
    judge_limit(report, "vol2 at 2000 IOPS of its own", rates[EACH][1], 2000.0);
    judge_limit(
        report,
        "vol1 and vol2 together at 3000 IOPS",
        rates[TOGETHER][0] + rates[TOGETHER][1],
        3000.0,
    );
    judge_limit(report, "vol2 of 100 GB at 1500 IOPS per TB", rates[HUNDRED_GB][1], 150.0);
    judge_limit(report, "vol2 of 1 TB at 1500 IOPS per TB", rates[ONE_TB][1], 1500.0);
    let what = "vol2 of 10 TB may do 15000 and has half of what vol1 leaves";
    judge_shares(report, what, &rates[TEN_TB][1..], (DRIVE_IOPS - 3000.0) / 2.0);
}

fn judge_shares(report: &mut Report, what: &str, found: &[f64], share: f64) {
    let is_share = |found: &f64| (found / share - 1.0).abs() <= SHARE_TOLERANCE;
    let text: Vec<String> = found.iter().map(|rate| format!("{rate:.0}")).collect();
    let found_text = format!("{} of {share:.0}", text.join(", "));
    report.claim(format!("{what}, within 5 %"), found_text, found.iter().all(is_share));
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
            [7100.0, 6950.0, 6950.0],
            [7000.0; 3],
            [1000.0, 10_000.0, 10_000.0],
            [2004.0, 9500.0, 9500.0],
            [2000.0, 2000.0, 17_000.0],
            [1500.0, 1500.0, 18_000.0],
            [3000.0, 150.0, 17_850.0],
            [3000.0, 1500.0, 16_500.0],
            [3000.0, 9000.0, 9000.0],
        ];
        change(&mut rates);
        let mut report = Report::new("test");
        judge(&rates, &mut report);
        report.finish(None).is_err()
    }

    #[test]
    fn each_claim_can_fail() {
        assert!(!failures(|_| {}));
        assert!(failures(|rates| rates[0][2] = 6000.0));
        assert!(failures(|rates| rates[1] = [18_000.0, 1500.0, 1500.0]));
        assert!(failures(|rates| rates[3][0] = 1006.0));
        assert!(failures(|rates| rates[3][2] = 6000.0));
        assert!(failures(|rates| rates[4][0] = 1980.0));
        assert!(failures(|rates| rates[5][1] = 1000.0));
        assert!(failures(|rates| rates[6][1] = 2000.0));
        assert!(failures(|rates| rates[7][1] = 152.0));
        assert!(failures(|rates| rates[8][1] = 150.0));
        assert!(failures(|rates| rates[9][1] = 1500.0));
    }
}
