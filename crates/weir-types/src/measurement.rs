//! Measured figures of a drive, and its class with the deciding figure in words.
//!
//! This module only decides. It does not know how or when the figures were measured.

use serde::{Deserialize, Serialize};

use crate::bounds::{CLASS_LATENCY_NS_MAX, RATE_IOPS_MAX};
use crate::policy::Class;

/// Digits from which on a number is formatted in groups of three.
const GROUPED_DIGITS_MIN: usize = 5;

/// Measured figures of a drive in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredDirection {
    /// Operations per second on random blocks, with [`crate::bounds::MEASUREMENT_DEPTH`] in flight.
    pub iops: u64,
    /// Median latency of random blocks one at a time, in nanoseconds.
    pub latency_ns: u64,
    /// Median latency of random blocks with [`crate::bounds::MEASUREMENT_DEPTH`] in flight, in nanoseconds.
    pub deep_latency_ns: u64,
    /// Sequential bytes per second.
    pub bytes_per_second: u64,
}

/// Measured figures of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    /// Figures of reads.
    pub read: MeasuredDirection,
    /// Figures of writes.
    pub write: MeasuredDirection,
    /// Median latency of a flush after writes, in nanoseconds.
    pub flush_latency_ns: u64,
    /// Size of a random operation, in bytes.
    pub block_bytes: u64,
    /// Size of a sequential operation, in bytes.
    pub sequential_block_bytes: u64,
    /// Whether the operations bypassed the page cache. They cannot if the filesystem has no direct I/O or is
    /// in memory.
    pub is_direct: bool,
}

/// Figures that a drive must reach in both directions to be of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassThreshold {
    /// Minimum operations per second on random blocks of 4 KiB, 32 at a time; 1 to [`RATE_IOPS_MAX`].
    pub iops: u64,
    /// Maximum median latency of random blocks one at a time, in nanoseconds; 1 to [`CLASS_LATENCY_NS_MAX`].
    pub latency_ns: u64,
}

/// Thresholds of the classes. A drive below `medium` is `low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassThresholds {
    /// Threshold of class `high`.
    pub high: ClassThreshold,
    /// Threshold of class `medium`.
    pub medium: ClassThreshold,
}

/// Reason why thresholds cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdsError {
    /// A rate is out of range.
    #[error("{class}.iops = {iops} is not accepted; 1 to {RATE_IOPS_MAX} operations per second are")]
    Iops {
        /// The class.
        class: Class,
        /// The rate, in operations per second.
        iops: u64,
    },
    /// A latency is out of range.
    #[error("{class}.latency = {} is not accepted; 1ns to {} is", time(*latency_ns), time(CLASS_LATENCY_NS_MAX))]
    Latency {
        /// The class.
        class: Class,
        /// The latency in nanoseconds.
        latency_ns: u64,
    },
    /// The lower class requires as much as the higher one, or more.
    #[error(
        "medium must ask for less than high: medium.iops = {} must be less than high.iops = {}, and \
         medium.latency = {} at least high.latency = {}",
        .0.medium.iops, .0.high.iops, time(.0.medium.latency_ns), time(.0.high.latency_ns)
    )]
    Order(ClassThresholds),
}

impl Default for ClassThresholds {
    fn default() -> ClassThresholds {
        ClassThresholds {
            high: ClassThreshold { iops: 8000, latency_ns: 2_000_000 },
            medium: ClassThreshold { iops: 500, latency_ns: 10_000_000 },
        }
    }
}

impl ClassThreshold {
    fn check(&self, class: Class) -> Result<(), ThresholdsError> {
        let ClassThreshold { iops, latency_ns } = *self;
        if !(1..=RATE_IOPS_MAX).contains(&iops) {
            return Err(ThresholdsError::Iops { class, iops });
        }
        if !(1..=CLASS_LATENCY_NS_MAX).contains(&latency_ns) {
            return Err(ThresholdsError::Latency { class, latency_ns });
        }
        Ok(())
    }

    /// The first figure that misses the threshold, in words; `None` if no figure does.
    fn shortfall(&self, found: &Measurement) -> Option<String> {
        let directions = [("reads", &found.read), ("writes", &found.write)];
        let few = directions.iter().find(|(_, direction)| direction.iops < self.iops);
        let few = few.map(|(what, direction)| {
            let (iops, wanted) = (grouped(direction.iops), grouped(self.iops));
            format!("{iops} random {what} a second, fewer than {wanted}")
        });
        let late = || directions.iter().find(|(_, direction)| direction.latency_ns > self.latency_ns);
        few.or_else(|| {
            let (what, direction) = late()?;
            let (latency, wanted) = (time(direction.latency_ns), time(self.latency_ns));
            Some(format!("random {what} one at a time take {latency}, longer than {wanted}"))
        })
    }

    /// A text that says that all figures reach the threshold.
    fn reached(&self, found: &Measurement) -> String {
        let Measurement { read, write, .. } = found;
        format!(
            "{} random reads and {} random writes a second, at least {} each; one at a time they take {} and {}, \
             at most {}",
            grouped(read.iops),
            grouped(write.iops),
            grouped(self.iops),
            time(read.latency_ns),
            time(write.latency_ns),
            time(self.latency_ns)
        )
    }
}

impl ClassThresholds {
    /// Checks the ranges, and that a lower class requires less.
    ///
    /// # Errors
    /// If a value is not accepted. The error names the value and the accepted values.
    pub fn checked(self) -> Result<ClassThresholds, ThresholdsError> {
        let ClassThresholds { high, medium } = &self;
        high.check(Class::High)?;
        medium.check(Class::Medium)?;
        match medium.iops < high.iops && medium.latency_ns >= high.latency_ns {
            true => Ok(self),
            false => Err(ThresholdsError::Order(self)),
        }
    }

    /// Class of a drive with these figures, and the reason in words. The reason names the figures that reach
    /// the class, or the first one that misses the next higher class.
    pub fn classify(&self, found: &Measurement) -> (Class, String) {
        let (class, mut reason) = match (self.high.shortfall(found), self.medium.shortfall(found)) {
            (None, _) => (Class::High, format!("high: {}", self.high.reached(found))),
            (Some(why), None) => (Class::Medium, format!("medium and not high: {why}")),
            (Some(_), Some(why)) => (Class::Low, format!("low and not medium: {why}")),
        };
        if !found.is_direct {
            reason.push_str("; measured without direct I/O: its filesystem has none, or is memory");
        }
        (class, reason)
    }
}

/// A number for humans: `5783`, `70 312`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    if digits.len() < GROUPED_DIGITS_MIN {
        return digits;
    }
    let needs_gap = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    let with_gap = |(at, digit): (usize, char)| [needs_gap(at).then_some(' '), Some(digit)];
    digits.chars().enumerate().flat_map(with_gap).flatten().collect()
}

/// A time for humans: `750ns`, `81us`, `2ms`, `12.3ms`, `1.5s`.
pub fn time(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        ..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => return format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (whole, hundredths) = (ns / unit_ns, ns % unit_ns * 100 / unit_ns);
    let fraction = format!("{hundredths:02}");
    match fraction.trim_end_matches('0') {
        "" => format!("{whole}{unit}"),
        fraction => format!("{whole}.{fraction}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A drive with these reads and writes per second, and these latencies one at a time.
    fn found(iops: (u64, u64), latency_ns: (u64, u64)) -> Measurement {
        let direction =
            |iops, latency_ns| MeasuredDirection { iops, latency_ns, ..MeasuredDirection::default() };
        let (read, write) = (direction(iops.0, latency_ns.0), direction(iops.1, latency_ns.1));
        Measurement { read, write, is_direct: true, ..Measurement::default() }
    }

    #[test]
    fn published_thresholds_hold_and_deciding_figure_is_named() {
        use Class::{High, Low, Medium};
        let thresholds = ClassThresholds::default().checked().unwrap();
        for (iops, latency_ns, class, words) in [
            (
                (70_312, 41_200),
                (80_000, 120_000),
                High,
                "high: 70 312 random reads and 41 200 random writes a second",
            ),
            ((8000, 8000), (2 * MS, 2 * MS), High, "at least 8000 each; one at a time they take 2ms and 2ms"),
            (
                (7999, 8000),
                (0, 0),
                Medium,
                "medium and not high: 7999 random reads a second, fewer than 8000",
            ),
            (
                (8000, 7999),
                (0, 0),
                Medium,
                "medium and not high: 7999 random writes a second, fewer than 8000",
            ),
            ((9000, 9000), (2 * MS + 1, 0), Medium, "random reads one at a time take 2ms, longer than 2ms"),
            ((9000, 9000), (0, 3 * MS), Medium, "random writes one at a time take 3ms, longer than 2ms"),
            ((500, 500), (10 * MS, 10 * MS), Medium, "500 random reads a second, fewer than 8000"),
            ((499, 500), (0, 0), Low, "low and not medium: 499 random reads a second, fewer than 500"),
            ((90_000, 499), (0, 0), Low, "low and not medium: 499 random writes a second, fewer than 500"),
            (
                (600, 600),
                (0, 10 * MS + 10_000),
                Low,
                "random writes one at a time take 10.01ms, longer than 10ms",
            ),
            ((0, 0), (0, 0), Low, "low and not medium: 0 random reads a second"),
        ] {
            let (decided, reason) = thresholds.classify(&found(iops, latency_ns));
            assert!(
                decided == class && reason.contains(words),
                "{iops:?} {latency_ns:?}: {decided} {reason}"
            );
        }
    }

    #[test]
    fn missing_direct_io_is_reported() {
        let buffered = Measurement { is_direct: false, ..found((9000, 9000), (MS, MS)) };
        let (class, reason) = ClassThresholds::default().classify(&buffered);
        assert!(
            class == Class::High && reason.ends_with("its filesystem has none, or is memory"),
            "{reason}"
        );
    }

    #[test]
    fn invalid_thresholds_error_names_the_value() {
        let thresholds = |high: (u64, u64), medium: (u64, u64)| {
            let threshold = |(iops, latency_ns)| ClassThreshold { iops, latency_ns };
            ClassThresholds { high: threshold(high), medium: threshold(medium) }.checked()
        };
        for (high, medium, words) in [
            ((0, MS), (5, MS), "high.iops = 0 is not accepted; 1 to 1000000000"),
            ((9, MS), (2_000_000_000, MS), "medium.iops = 2000000000 is not accepted"),
            ((9, 0), (5, MS), "high.latency = 0ns is not accepted; 1ns to 10s is"),
            ((9, MS), (5, 10_000 * MS + 1), "medium.latency = 10s is not accepted"),
            ((9, MS), (9, MS), "medium.iops = 9 must be less than high.iops = 9"),
            ((9, 2 * MS), (5, MS), "medium.latency = 1ms at least high.latency = 2ms"),
        ] {
            let error = thresholds(high, medium).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(thresholds((9, MS), (8, MS)).is_ok());
    }

    #[test]
    fn numbers_and_times_are_formatted_for_humans() {
        for (number, text) in [(0, "0"), (9999, "9999"), (10_000, "10 000"), (1_234_567, "1 234 567")] {
            assert_eq!(grouped(number), text);
        }
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (81_234, "81us"),
            (2 * MS, "2ms"),
            (12_345_678, "12.34ms"),
            (1_050_000_000, "1.05s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    proptest! {
        #[test]
        fn faster_drive_is_never_of_a_lower_class(
            iops in (0u64..20_000, 0u64..20_000),
            latency_ns in (0u64..20 * MS, 0u64..20 * MS),
            more in 0u64..10_000,
            less_ns in 0u64..10 * MS,
        ) {
            let thresholds = ClassThresholds::default();
            let faster_ns = (latency_ns.0.saturating_sub(less_ns), latency_ns.1.saturating_sub(less_ns));
            let better = found((iops.0 + more, iops.1 + more), faster_ns);
            let (class, _) = thresholds.classify(&found(iops, latency_ns));
            prop_assert!(thresholds.classify(&better).0 >= class);
        }
    }
}
