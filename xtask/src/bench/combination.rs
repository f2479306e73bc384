//! Cell of the ceiling matrix: a limit, a queue depth and a direction, and the verdict on its log.

use crate::numbers::{ahead_of_schedule, between, is_near, off_per_cent, percentile_us, worst_window};
use crate::world::fio::Completion;

/// Limit of a cell, in one of two units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Operations per second, tested with requests of 4 KiB.
    Iops(u64),
    /// Mebibytes per second, tested with requests of 64 KiB.
    MebibytesPerSecond(u64),
}

impl Limit {
    /// Returns the limit as the command line writes it.
    pub fn text(self) -> String {
        match self {
            Limit::Iops(iops) => format!("{iops}IOPS"),
            Limit::MebibytesPerSecond(rate) => format!("{rate}MiB/s"),
        }
    }

    /// Returns a floor of half as many requests, as the command line writes it.
    pub fn floor_text(self) -> String {
        format!("{}IOPS", (self.requests_per_second() / 2.0).ceil())
    }

    /// Returns the size of the requests that test the limit, in bytes.
    pub fn block_bytes(self) -> u64 {
        match self {
            Limit::Iops(_) => 4096,
            Limit::MebibytesPerSecond(_) => 64 << 10,
        }
    }

    /// Returns the requests per second that the limit allows.
    pub fn requests_per_second(self) -> f64 {
        match self {
            Limit::Iops(iops) => iops as f64,
            Limit::MebibytesPerSecond(rate) => (rate * 16) as f64,
        }
    }
}

/// Limits of the matrix.
pub const LIMITS: [Limit; 8] = [
    Limit::Iops(1),
    Limit::Iops(100),
    Limit::Iops(1000),
    Limit::Iops(10_000),
    Limit::Iops(50_000),
    Limit::MebibytesPerSecond(1),
    Limit::MebibytesPerSecond(2),
    Limit::MebibytesPerSecond(3),
];
/// Queue depths of the matrix.
pub const DEPTHS: [u32; 3] = [1, 32, 256];
/// Directions of the matrix, by fio's names.
pub const PATTERNS: [&str; 3] = ["randread", "randwrite", "randrw"];

/// One cell.
#[derive(Clone, Copy, Debug)]
pub struct Combination {
    /// Limit of the cell.
    pub limit: Limit,
    /// Requests outstanding.
    pub depth: u32,
    /// Direction, by fio's name.
    pub pattern: &'static str,
}

/// Verdict on the log of one cell. The first second is left out, as the promise states.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Completions in the judged time.
    pub count: f64,
    /// Expected completions in the judged time.
    pub expected: f64,
    /// Completions in the worst second.
    pub worst_second: f64,
    /// Most requests that had completed ahead of schedule, from the first completion on.
    pub ahead: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
    /// Ideal value of both latencies, in microseconds.
    pub ideal_us: f64,
    rate: f64,
}

impl Combination {
    /// Judges `seconds` of a log, without its first second.
    pub fn judge(&self, completions: &[Completion], seconds: u64) -> Verdict {
        let rate = self.limit.requests_per_second();
        let (from_ms, to_ms) = (1000, 1000 + seconds * 1000);
        let ideal_us = f64::from(self.depth) / rate * 1e6;
        // Latencies rise to their level until as many requests have completed as are outstanding.
        let settled_ms = from_ms.max((ideal_us / 1000.0 * 1.2) as u64 + 100);
        let settled = between(completions, settled_ms, to_ms);
        Verdict {
            count: between(completions, from_ms, to_ms).len() as f64,
            expected: rate * seconds as f64,
            worst_second: worst_window(completions, from_ms, to_ms, 1000, rate),
            ahead: ahead_of_schedule(between(completions, 0, to_ms), rate),
            p50_us: percentile_us(settled, 50),
            p99_us: percentile_us(settled, 99),
            ideal_us,
            rate,
        }
    }
}

impl Verdict {
    /// Returns the difference between the delivered rate and the limit, in per cent.
    pub fn rate_off(&self) -> f64 {
        off_per_cent(self.count, self.expected)
    }

    /// Returns the difference between the worst second and the limit, in per cent.
    pub fn second_off(&self) -> f64 {
        off_per_cent(self.worst_second, self.rate)
    }

    /// Returns true if the whole time delivered the limit within 0.1 % or one request.
    pub fn is_rate_exact(&self) -> bool {
        is_near(self.count, self.expected, 0.001)
    }

    /// Returns true if every second delivered the limit within 1 % or one request.
    pub fn is_every_second_exact(&self) -> bool {
        is_near(self.worst_second, self.rate, 0.01)
    }

    /// Returns true if at most 100 ms' worth of requests, or one request, completed ahead of schedule.
    pub fn is_free_of_bursts(&self) -> bool {
        self.ahead <= (self.rate * 0.1).max(1.0)
    }

    /// Returns true if the 99th percentile is within 5 % or 150 µs of the ideal. An ideal of 3 s or more is
    /// not judged.
    pub fn is_delay_even(&self) -> bool {
        self.ideal_us >= 3e6 || (self.p99_us - self.ideal_us).abs() <= (self.ideal_us * 0.05).max(150.0)
    }

    /// Returns true if all checks pass.
    pub fn is_good(&self) -> bool {
        self.is_rate_exact()
            && self.is_every_second_exact()
            && self.is_free_of_bursts()
            && self.is_delay_even()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(step_ms: u64, count: u64, latency_ns: u64) -> Vec<Completion> {
        (0..count).map(|index| Completion { at_ms: index * step_ms, latency_ns }).collect()
    }

    #[test]
    fn perfect_limiter_passes_and_each_fault_is_detected() {
        let cell = Combination { limit: Limit::Iops(1000), depth: 32, pattern: "randread" };
        let perfect = steady(1, 12_000, 32_000_000);
        assert!(cell.judge(&perfect, 10).is_good());
        let mut short = perfect.clone();
        short.drain(5000..5011);
        assert!(!cell.judge(&short, 10).is_rate_exact());
        let mut burst = perfect.clone();
        burst.iter_mut().skip(3000).take(200).for_each(|c| c.at_ms = 3000);
        assert!(!cell.judge(&burst, 10).is_free_of_bursts());
        burst.iter_mut().skip(4000).take(20).for_each(|c| c.at_ms = 3990);
        assert!(!cell.judge(&burst, 10).is_every_second_exact());
        assert!(!cell.judge(&steady(1, 12_000, 40_000_000), 10).is_delay_even());
    }

    #[test]
    fn limits_in_bytes_count_requests() {
        assert_eq!(Limit::MebibytesPerSecond(3).requests_per_second(), 48.0);
        assert_eq!(Limit::MebibytesPerSecond(3).text(), "3MiB/s");
    }
}
