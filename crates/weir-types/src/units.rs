//! Parsing and formatting of sizes and rates.
//!
//! kB, MB, GB and TB are powers of ten; KiB, MiB, GiB and TiB powers of two. Output is canonical and always
//! has a unit.

use crate::bounds::{RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX};
use crate::policy::Throughput;

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A rate in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRate(pub u64);

/// Reason why a text is not a size or a rate. The message names the value and the accepted values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{value}' is not {expected}")]
pub struct UnitError {
    /// The refused text.
    pub value: String,
    /// Accepted notation.
    pub expected: String,
}

impl UnitError {
    pub(crate) fn new(value: &str, expected: impl Into<String>) -> UnitError {
        UnitError { value: value.to_owned(), expected: expected.into() }
    }
}

/// Unit suffixes of sizes with their bytes, in lower case. The whole suffix must be equal.
const SIZE_UNITS: [(&str, u64); 10] = [
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
];

impl Size {
    /// Parses a size; a bare number counts in `bare_unit_bytes` (volume sizes: GiB).
    ///
    /// # Errors
    /// If the text has no number, an unknown unit, is not a whole number of bytes, or overflows 64 bits.
    pub fn parse(text: &str, bare_unit_bytes: u64) -> Result<Size, UnitError> {
        let expected = "a size such as 8, 512MiB, 10GiB or 1TB (a bare number is in GiB for volumes)";
        let error = || UnitError::new(text, expected);
        let (number, unit) = split_number(text.trim()).ok_or_else(error)?;
        let unit_bytes = match unit {
            "" => bare_unit_bytes,
            _ => unit_bytes(unit).ok_or_else(error)?,
        };
        scale(number, unit_bytes).map(Size).ok_or_else(error)
    }
}

fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes)
}

/// Splits `10.5MB` into `10.5` and `MB`; `None` without a leading digit.
pub(crate) fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    number.starts_with(|c: char| c.is_ascii_digit()).then_some((number, unit.trim_start()))
}

/// Parses a whole number of digits alone; `None` for a sign, or if the number does not fit.
pub fn whole_number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Multiplies a decimal text by a unit; `None` unless the product is a whole 64-bit number.
pub(crate) fn scale(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 12 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if fraction.is_empty() {
        return (!number.ends_with('.')).then_some(whole);
    }
    let numerator = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
    let denominator = 10u128.pow(fraction.len() as u32);
    if !numerator.is_multiple_of(denominator) {
        return None;
    }
    whole.checked_add(u64::try_from(numerator / denominator).ok()?)
}

/// Formats a count of bytes with the largest unit of `units` that keeps it whole.
pub(crate) fn write_whole(
    f: &mut std::fmt::Formatter<'_>,
    bytes: u64,
    units: &[(&str, u64)],
) -> std::fmt::Result {
    let whole = |unit: &&(&str, u64)| bytes != 0 && bytes.is_multiple_of(unit.1);
    match units.iter().rev().find(whole) {
        Some((name, unit)) => write!(f, "{}{name}", bytes / unit),
        None => write!(f, "{bytes}B"),
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1u64 << 40)];
        write_whole(f, self.0, &units)
    }
}

impl std::fmt::Display for ByteRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimal = [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000u64)];
        let binary = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1u64 << 30)];
        let is_binary = self.0.is_multiple_of(1 << 10) && !self.0.is_multiple_of(1_000_000);
        write_whole(f, self.0, if is_binary { &binary } else { &decimal })?;
        f.write_str("/s")
    }
}

impl Throughput {
    /// Parses `10000IOPS`, `300MB/s`, both joined by a comma, or `none` (also `0` and `INF`) for no ceiling.
    ///
    /// # Errors
    /// If a rate has no unit, is not positive, exceeds the largest accepted rate, or a dimension is named
    /// twice.
    pub fn parse(text: &str) -> Result<Throughput, UnitError> {
        if matches!(text.trim().to_ascii_lowercase().as_str(), "none" | "0" | "inf") {
            return Ok(Throughput::default());
        }
        let mut throughput = Throughput::default();
        for part in text.split(',') {
            let (slot, rate) = parse_rate(part.trim(), &mut throughput)?;
            if slot.replace(rate).is_some() {
                return Err(UnitError::new(text, "a pair of different rates such as 10000IOPS,300MB/s"));
            }
        }
        Ok(throughput)
    }
}

/// Parses one rate. Returns the rate and the field of `throughput` that it belongs to.
fn parse_rate<'a>(
    part: &str,
    throughput: &'a mut Throughput,
) -> Result<(&'a mut Option<u64>, u64), UnitError> {
    let expected = "a rate with its unit, such as 1000IOPS, 300MB/s, 10MiB/s or 1000IOPS,300MB/s";
    let error = || UnitError::new(part, expected);
    let (number, unit) = split_number(part).ok_or_else(error)?;
    let unit = unit.to_ascii_lowercase();
    if unit == "iops" {
        let rate = scale(number, 1).ok_or_else(error)?;
        return Ok((&mut throughput.iops, in_range(part, rate, RATE_IOPS_MAX, "IOPS")?));
    }
    let unit = unit.strip_suffix("/s").or(unit.strip_suffix("ps")).ok_or_else(error)?;
    let rate = scale(number, unit_bytes(unit).ok_or_else(error)?).ok_or_else(error)?;
    let rate = in_range(part, rate, RATE_BYTES_PER_SECOND_MAX, "B/s")?;
    Ok((&mut throughput.bytes_per_second, rate))
}

fn in_range(part: &str, rate: u64, max: u64, unit: &str) -> Result<u64, UnitError> {
    if (1..=max).contains(&rate) {
        return Ok(rate);
    }
    Err(UnitError::new(part, format!("a rate from 1{unit} to {max}{unit}")))
}

impl std::fmt::Display for Throughput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.iops, self.bytes_per_second) {
            (None, None) => f.write_str("none"),
            (Some(iops), None) => write!(f, "{iops}IOPS"),
            (None, Some(bytes)) => ByteRate(bytes).fmt(f),
            (Some(iops), Some(bytes)) => write!(f, "{iops}IOPS,{}", ByteRate(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(text: &str) -> Option<u64> {
        Size::parse(text, 1 << 30).ok().map(|s| s.0)
    }

    #[test]
    fn sizes_read_as_documented() {
        let gib = 1u64 << 30;
        for (text, bytes) in [
            ("8", 8 * gib),
            ("0", 0),
            ("4096B", 4096),
            ("512MiB", gib / 2),
            ("1.5GiB", gib + gib / 2),
            ("1TB", 1_000_000_000_000),
            ("10 GiB", 10 * gib),
            ("1gib", gib),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for bad in ["", "-1", "1X", "1G", "GiB", "1.", "1.0000000001KiB", "99999999999TiB", "1e9"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn rates_read_as_documented() {
        let read = |text: &str| Throughput::parse(text).ok().map(|t| (t.iops, t.bytes_per_second));
        assert_eq!(read("10000IOPS,300MB/s"), Some((Some(10_000), Some(300_000_000))));
        assert_eq!(read("300MB/s, 10000iops"), Some((Some(10_000), Some(300_000_000))));
        assert_eq!(read("2MiB/s"), Some((None, Some(2 << 20))));
        assert_eq!(read("none"), Some((None, None)));
        for bad in ["1000", "-5IOPS", "0IOPS", "1IOPS,2IOPS", "300MB", "2000000000IOPS", "5XB/s", ","] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn formatted_sizes_and_rates_parse_back(iops in 1u64..=RATE_IOPS_MAX, bytes in 1u64..=RATE_BYTES_PER_SECOND_MAX) {
            let both = Throughput { iops: Some(iops), bytes_per_second: Some(bytes) };
            prop_assert_eq!(Throughput::parse(&both.to_string()), Ok(both));
            prop_assert_eq!(Size::parse(&Size(bytes).to_string(), 1), Ok(Size(bytes)));
        }
    }
}
