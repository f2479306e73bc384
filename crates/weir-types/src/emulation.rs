//! The parameters of an emulated drive: what it pretends to be, whatever it lies on.

use serde::{Deserialize, Serialize};

use crate::bounds::{EMULATED_LATENCY_NS_MAX, RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX};
use crate::policy::Throughput;
use crate::units::{ByteRate, UnitError, scale, split_number, write_whole};

/// What would be accepted as a whole.
const EXPECTED: &str = "a list such as iops=21000,bandwidth=250MB/s,latency=200us (iops is required)";

/// Units of latencies with their nanoseconds.
const TIME_UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// How an emulated drive behaves: one operation after the other, each taking `1 / iops` or the time that its
/// bytes need, whichever is longer; each is answered `latency_ns` after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulation {
    /// Operations per second, 1 to [`RATE_IOPS_MAX`].
    pub iops: u64,
    /// Bytes per second, 1 to [`RATE_BYTES_PER_SECOND_MAX`]; `None` for as many as the operations carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Time from the end of an operation's turn to its answer, in nanoseconds, up to
    /// [`EMULATED_LATENCY_NS_MAX`].
    #[serde(default)]
    pub latency_ns: u64,
}

impl Emulation {
    /// Checks the ranges.
    ///
    /// # Errors
    /// If a value is not accepted; it is named with what would be.
    pub fn checked(self) -> Result<Emulation, UnitError> {
        in_range("iops", self.iops, 1..=RATE_IOPS_MAX, |iops| iops.to_string())?;
        if let Some(rate) = self.bytes_per_second {
            in_range("bandwidth", rate, 1..=RATE_BYTES_PER_SECOND_MAX, |rate| ByteRate(rate).to_string())?;
        }
        in_range("latency", self.latency_ns, 0..=EMULATED_LATENCY_NS_MAX, |ns| Latency(ns).to_string())?;
        Ok(self)
    }

    /// Reads `iops=21000,bandwidth=250MB/s,latency=200us` in any order; without a latency it is 0, without a
    /// bandwidth only operations count.
    ///
    /// # Errors
    /// If `iops` is missing, a parameter is unknown or named twice, or a value is not accepted.
    pub fn parse(text: &str) -> Result<Emulation, UnitError> {
        let (mut iops, mut bandwidth, mut latency_ns) = (None, None, None);
        for part in text.split(',').map(str::trim) {
            let (key, value) = part.split_once('=').ok_or_else(|| UnitError::new(part, EXPECTED))?;
            let value = value.trim();
            let is_repeated = match key.trim().to_ascii_lowercase().as_str() {
                "iops" => iops.replace(parse_iops(value)?).is_some(),
                "bandwidth" => bandwidth.replace(parse_bandwidth(value)?).is_some(),
                "latency" => latency_ns.replace(parse_time(value)?).is_some(),
                _ => return Err(UnitError::new(key, "one of iops, bandwidth and latency")),
            };
            if is_repeated {
                return Err(UnitError::new(text, "a list that names each parameter once"));
            }
        }
        let iops = iops.ok_or_else(|| UnitError::new(text, EXPECTED))?;
        let bytes_per_second = bandwidth.flatten();
        Emulation { iops, bytes_per_second, latency_ns: latency_ns.unwrap_or(0) }.checked()
    }
}

fn in_range(
    what: &str,
    value: u64,
    range: std::ops::RangeInclusive<u64>,
    written: fn(u64) -> String,
) -> Result<(), UnitError> {
    if range.contains(&value) {
        return Ok(());
    }
    let expected = format!("from {} to {}", written(*range.start()), written(*range.end()));
    Err(UnitError::new(&format!("{what}={}", written(value)), expected))
}

fn parse_iops(text: &str) -> Result<u64, UnitError> {
    let number = text.to_ascii_lowercase();
    let number = number.strip_suffix("iops").unwrap_or(&number).trim_end();
    number.parse().map_err(|_| UnitError::new(text, "a whole number of operations per second, such as 21000"))
}

fn parse_bandwidth(text: &str) -> Result<Option<u64>, UnitError> {
    match Throughput::parse(text) {
        Ok(Throughput { iops: None, bytes_per_second }) => Ok(bytes_per_second),
        _ => Err(UnitError::new(text, "a bandwidth from 1B/s to 1TB/s with its unit, such as 250MB/s")),
    }
}

/// Reads a latency or another time such as `200us` or `1.5ms`, in nanoseconds.
///
/// # Errors
/// If it has no unit, or is not a whole number of nanoseconds.
pub fn parse_time(text: &str) -> Result<u64, UnitError> {
    let error = || UnitError::new(text, "a latency with its unit (ns, us, ms or s), such as 200us");
    let (number, unit) = split_number(text).ok_or_else(error)?;
    if unit.is_empty() && number == "0" {
        return Ok(0);
    }
    let unit = unit.to_ascii_lowercase();
    let (_, unit_ns) = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
    scale(number, *unit_ns).ok_or_else(error)
}

/// A latency in nanoseconds, as it is written.
struct Latency(u64);

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { f.write_str("0s") } else { write_whole(f, self.0, &TIME_UNITS) }
    }
}

impl std::fmt::Display for Emulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "iops={}", self.iops)?;
        if let Some(rate) = self.bytes_per_second {
            write!(f, ",bandwidth={}", ByteRate(rate))?;
        }
        match self.latency_ns {
            0 => Ok(()),
            ns => write!(f, ",latency={}", Latency(ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn emulation(iops: u64, bytes_per_second: Option<u64>, latency_ns: u64) -> Emulation {
        Emulation { iops, bytes_per_second, latency_ns }
    }

    #[test]
    fn parameters_read_as_documented() {
        for (text, expected) in [
            ("iops=21000", emulation(21_000, None, 0)),
            ("iops=21000,bandwidth=250MB/s,latency=200us", emulation(21_000, Some(250_000_000), 200_000)),
            ("Latency = 1.5ms, IOPS=100IOPS", emulation(100, None, 1_500_000)),
            ("iops=1,bandwidth=none,latency=0", emulation(1, None, 0)),
            ("bandwidth=1MiB/s,iops=5,latency=10s", emulation(5, Some(1 << 20), 10_000_000_000)),
        ] {
            assert_eq!(Emulation::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_accepted() {
        for (text, words) in [
            ("", "'' is not a list such as iops=21000"),
            ("latency=1ms", "(iops is required)"),
            ("21000", "'21000' is not a list such as"),
            ("iops=0", "'iops=0' is not from 1 to 1000000000"),
            ("iops=-5", "'-5' is not a whole number of operations per second"),
            ("iops=1e3", "'1e3' is not a whole number"),
            ("iops=5,iops=6", "names each parameter once"),
            ("iops=5,speed=7", "'speed' is not one of iops, bandwidth and latency"),
            ("iops=5,bandwidth=250", "'250' is not a bandwidth"),
            ("iops=5,bandwidth=5IOPS", "'5IOPS' is not a bandwidth"),
            ("iops=5,latency=200", "'200' is not a latency with its unit"),
            ("iops=5,latency=11s", "'latency=11s' is not from 0s to 10s"),
        ] {
            let error = Emulation::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            iops in 1u64..=RATE_IOPS_MAX,
            bytes in prop::option::of(1u64..=RATE_BYTES_PER_SECOND_MAX),
            latency_ns in 0u64..=EMULATED_LATENCY_NS_MAX,
        ) {
            let written = emulation(iops, bytes, latency_ns);
            prop_assert_eq!(Emulation::parse(&written.to_string()), Ok(written));
        }
    }
}
