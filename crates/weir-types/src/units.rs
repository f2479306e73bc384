//! Parsing and formatting of sizes and rates.
//!
//! A unit is a letter K, M, G, T or P. `GB` is a power of ten; `G`, `Gi` and `GiB` are the same power of two, as
//! in LVM, truncate and qemu-img.
//!
//! A size is shown with at most three significant digits, or exactly if it is a whole number of a unit with at
//! most four digits; [`Size::exact`] loses nothing. A rate is often a limit, so it is shown exactly;
//! [`ByteRate::short`] rounds it as a size. Output always has a unit, and can be parsed.

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

/// Name of a unit with its bytes.
type Unit = (&'static str, u64);

/// Units of powers of two, which sizes are shown in.
const BINARY_UNITS: [Unit; 6] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("PiB", 1 << 50)];
/// Units of powers of ten, which rates are shown in.
const DECIMAL_UNITS: [Unit; 6] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];
/// Letters of the units, each a thousand or 1024 times the one before.
const UNIT_LETTERS: &str = "kmgtp";
/// Significant digits of a rounded value.
const SIGNIFICANT_DIGITS: usize = 3;
/// Whole numbers of a unit below this are shown exactly.
const WHOLE_SHOWN_MAX: u64 = 9_999;
/// Digits after the point that are accepted.
const FRACTION_DIGITS_MAX: usize = 12;

impl Size {
    /// Parses a size; a bare number counts in `bare_unit_bytes` (volume sizes: GiB). A fraction is rounded to the
    /// nearest byte.
    ///
    /// # Errors
    /// If the text has no number, an unknown unit, a fraction of a byte, or overflows 64 bits.
    pub fn parse(text: &str, bare_unit_bytes: u64) -> Result<Size, UnitError> {
        let expected = "a size such as 8, 512MiB, 10G, 10GiB or 1TB (a bare number is in GiB for volumes)";
        let error = || UnitError::new(text, expected);
        let (number, unit) = split_number(text.trim()).ok_or_else(error)?;
        let unit_bytes = match unit {
            "" => bare_unit_bytes,
            _ => unit_bytes(unit).ok_or_else(error)?,
        };
        scale_rounded(number, unit_bytes).map(Size).ok_or_else(error)
    }

    /// Parses the size of a volume: a bare number counts in GiB. A size with a fraction or in powers of ten is
    /// rounded up to a multiple of `granule_bytes`, because 100GB, for example, is none.
    ///
    /// # Errors
    /// As [`Size::parse`].
    pub fn parse_rounded_up(text: &str, granule_bytes: u64) -> Result<Size, UnitError> {
        let size = Size::parse(text, 1 << 30)?;
        let (number, unit) = split_number(text.trim()).unwrap_or((text, ""));
        let is_decimal = unit.len() == 2 && unit.to_ascii_lowercase().ends_with('b');
        let is_rounded = is_decimal || number.contains('.');
        let rounded = size.0.checked_next_multiple_of(granule_bytes).filter(|_| is_rounded);
        Ok(rounded.map_or(size, Size))
    }

    /// The exact size in the shortest notation, for example `8GiB`, `10TB` or `4097B`.
    pub fn exact(self) -> String {
        exact(self.0, &BINARY_UNITS, &DECIMAL_UNITS)
    }
}

impl ByteRate {
    /// The rate for people: rounded to three digits, unless a notation with few digits is exact.
    pub fn short(self) -> String {
        let exact = short_exact(self.0, &DECIMAL_UNITS).or_else(|| short_exact(self.0, &BINARY_UNITS));
        format!("{}/s", exact.unwrap_or_else(|| rounded(self.0, &DECIMAL_UNITS)))
    }

    /// A measured rate for people: never more than three digits.
    pub fn measured(self) -> String {
        let is_short = |text: &String| text.bytes().filter(u8::is_ascii_digit).count() <= SIGNIFICANT_DIGITS;
        let exact = short_exact(self.0, &DECIMAL_UNITS).filter(is_short);
        format!("{}/s", exact.unwrap_or_else(|| rounded(self.0, &DECIMAL_UNITS)))
    }
}

/// Bytes of a unit: `B`, or a letter alone or with `i`, `iB` or `B` after it, in any case.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    if unit == "b" {
        return Some(1);
    }
    let exponent = UNIT_LETTERS.find(unit.chars().next()?)? as u32 + 1;
    match &unit[1..] {
        "" | "i" | "ib" => Some(1u64 << (10 * exponent)),
        "b" => Some(1_000u64.pow(exponent)),
        _ => None,
    }
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

/// Multiplies a decimal text by a unit of bytes, rounded to the nearest byte; `None` if it overflows.
fn scale_rounded(number: &str, unit: u64) -> Option<u64> {
    let exact = scale(number, unit);
    if exact.is_some() || unit == 1 {
        return exact;
    }
    let (whole, fraction) = number.split_once('.')?;
    if fraction.is_empty() || fraction.len() > FRACTION_DIGITS_MAX {
        return None;
    }
    let denominator = 10u128.pow(fraction.len() as u32);
    let numerator = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
    let rounded = u64::try_from((numerator + denominator / 2) / denominator).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(rounded)
}

/// Formats a count with the largest unit of `units` that keeps it whole.
pub(crate) fn write_whole(
    f: &mut std::fmt::Formatter<'_>,
    count: u64,
    units: &[(&str, u64)],
) -> std::fmt::Result {
    f.write_str(&whole(count, units))
}

fn whole(count: u64, units: &[(&str, u64)]) -> String {
    let is_whole = |unit: &&(&str, u64)| count != 0 && count.is_multiple_of(unit.1);
    match units.iter().rev().find(is_whole) {
        Some((name, unit)) => format!("{}{name}", count / unit),
        None => format!("{count}B"),
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(0, |log| log as usize + 1)
}

/// `count / 10^decimals` as a decimal number.
fn decimal(count: u128, decimals: usize) -> String {
    if decimals == 0 {
        return count.to_string();
    }
    let one = 10u128.pow(decimals as u32);
    format!("{}.{:0decimals$}", count / one, count % one)
}

/// The exact value in the largest unit that shows it in few digits; `None` if no unit does.
fn short_exact(bytes: u64, units: &[Unit]) -> Option<String> {
    if bytes == 0 {
        return Some("0B".to_owned());
    }
    units.iter().rev().filter(|(_, unit)| bytes >= *unit).find_map(|(name, unit)| {
        let whole = bytes / unit;
        if bytes.is_multiple_of(*unit) {
            return (whole <= WHOLE_SHOWN_MAX).then(|| format!("{whole}{name}"));
        }
        let decimals = SIGNIFICANT_DIGITS.checked_sub(digits(whole))?;
        let scaled = u128::from(bytes) * 10u128.pow(decimals as u32);
        let is_exact = scaled.is_multiple_of(u128::from(*unit));
        let number = is_exact.then(|| decimal(scaled / u128::from(*unit), decimals))?;
        Some(format!("{}{name}", number.trim_end_matches('0').trim_end_matches('.')))
    })
}

/// The value rounded to three significant digits.
fn rounded(bytes: u64, units: &[Unit]) -> String {
    // A value that would round to 1000 of a unit is shown in the next one.
    let is_left = |pair: &&[Unit]| u128::from(bytes) * 2 >= u128::from(pair[0].1) * 1_999;
    let (name, unit) = units.windows(2).rfind(is_left).map_or(&units[0], |pair| &pair[1]);
    let mut decimals = SIGNIFICANT_DIGITS.saturating_sub(digits(bytes / unit));
    let scaled = u128::from(bytes) * 10u128.pow(decimals as u32);
    let mut number = (scaled + u128::from(unit / 2)) / u128::from(*unit);
    if number >= 10u128.pow(SIGNIFICANT_DIGITS as u32) && decimals > 0 {
        (number, decimals) = (number / 10, decimals - 1);
    }
    format!("{}{name}", decimal(number, decimals))
}

fn exact(bytes: u64, first: &[Unit], second: &[Unit]) -> String {
    let short = short_exact(bytes, first).or_else(|| short_exact(bytes, second));
    short.unwrap_or_else(|| {
        let (first, second) = (whole(bytes, first), whole(bytes, second));
        if second.len() < first.len() { second } else { first }
    })
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = &BINARY_UNITS;
        f.pad(&short_exact(self.0, units).unwrap_or_else(|| rounded(self.0, units)))
    }
}

impl std::fmt::Display for ByteRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/s", exact(self.0, &DECIMAL_UNITS, &BINARY_UNITS))
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

    /// The rates for people: bytes per second are rounded unless a short notation is exact. The notation that
    /// `Display` writes is always exact.
    pub fn short(&self) -> String {
        let iops = self.iops.map(|iops| format!("{iops}IOPS"));
        let bytes = self.bytes_per_second.map(|bytes| ByteRate(bytes).short());
        let set: Vec<String> = iops.into_iter().chain(bytes).collect();
        if set.is_empty() { "none".to_owned() } else { set.join(",") }
    }

    /// The rates for people, with the exact ones after them if they are rounded.
    pub fn long(&self) -> String {
        let (short, exact) = (self.short(), self.to_string());
        if short == exact { short } else { format!("{short} ({exact})") }
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
    let rate = scale_rounded(number, unit_bytes(unit).ok_or_else(error)?).ok_or_else(error)?;
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
            ("10G", 10 * gib),
            ("10Gi", 10 * gib),
            ("10g", 10 * gib),
            ("10GB", 10_000_000_000),
            ("4K", 4096),
            ("4kB", 4000),
            ("1.5M", 3 << 19),
            ("2Ti", 2 << 40),
            ("3P", 3 << 50),
            ("1PB", 1_000_000_000_000_000),
            // A fraction of a byte is rounded, so that a shown size can be typed.
            ("9.09TiB", 9_994_560_696_484),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for bad in ["", "-1", "1X", "1GBB", "1iB", "1Gb/s", "GiB", "1.", "1.5B", "99999999999TiB", "1e9"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn rates_read_as_documented() {
        let read = |text: &str| Throughput::parse(text).ok().map(|t| (t.iops, t.bytes_per_second));
        assert_eq!(read("10000IOPS,300MB/s"), Some((Some(10_000), Some(300_000_000))));
        assert_eq!(read("300MB/s, 10000iops"), Some((Some(10_000), Some(300_000_000))));
        assert_eq!(read("2MiB/s"), Some((None, Some(2 << 20))));
        assert_eq!(read("2M/s"), Some((None, Some(2 << 20))));
        assert_eq!(read("2Mi/s"), Some((None, Some(2 << 20))));
        assert_eq!(read("none"), Some((None, None)));
        for bad in ["1000", "-5IOPS", "0IOPS", "1IOPS,2IOPS", "300MB", "2000000000IOPS", "5XB/s", ","] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_and_rates_are_shown_as_a_person_writes_them() {
        for (bytes, shown) in [
            (0, "0B"),
            (1, "1B"),
            (4097, "4097B"),
            (12_345, "12.1KiB"),
            (8 << 30, "8GiB"),
            (3 << 29, "1.5GiB"),
            (1000 << 30, "1000GiB"),
            (2049 << 20, "2049MiB"),
            (9_765_625_000 << 10, "9.09TiB"),
            ((1 << 40) - 1, "1.00TiB"),
            (1013 * (1 << 30) + 1, "0.989TiB"),
            ((9 << 40) + 1, "9.00TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), shown, "{bytes}");
        }
        for (bytes, shown) in [
            (300_000_000, "300MB/s"),
            (9_946_139, "9.95MB/s"),
            (10 << 20, "10MiB/s"),
            (1_500_000_000, "1.5GB/s"),
            (999_999, "1.00MB/s"),
            (980_001, "980kB/s"),
            (12_345_678, "12.3MB/s"),
        ] {
            assert_eq!(ByteRate(bytes).short(), shown, "{bytes}");
        }
        assert_eq!(ByteRate(1_234_000_000).measured(), "1.23GB/s");
        assert_eq!(
            (ByteRate(0).measured(), ByteRate(20_000_000).measured()),
            ("0B/s".into(), "20MB/s".into())
        );
        assert_eq!(
            (ByteRate(9_946_139).to_string(), ByteRate(237_500_000).to_string()),
            ("9946139B/s".into(), "237500kB/s".into())
        );
        let limit = |bytes| Throughput { iops: Some(5), bytes_per_second: Some(bytes) };
        assert_eq!(limit(12_345_678).short(), "5IOPS,12.3MB/s");
        assert_eq!(limit(12_345_678).long(), "5IOPS,12.3MB/s (5IOPS,12345678B/s)");
        assert_eq!(limit(300_000_000).long(), "5IOPS,300MB/s");
        assert_eq!(
            (Size(10_000_000_000_000).exact(), Size(12_345).exact()),
            ("10TB".into(), "12345B".into())
        );
    }

    #[test]
    fn volume_size_is_rounded_up_unless_it_is_exact() {
        let size = |text| Size::parse_rounded_up(text, 4096).ok().map(|size| size.0);
        assert_eq!(size("8"), Some(8 << 30));
        assert_eq!(size("100GB"), Some(100_000_002_048));
        assert_eq!(size("10G"), Some(10 << 30));
        assert_eq!(size("4097B"), Some(4097), "an exact size is not changed");
        assert_eq!(size("9.09TiB").map(|bytes| bytes % 4096), Some(0));
    }

    proptest! {
        #[test]
        fn exact_sizes_and_rates_parse_back(iops in 1u64..=RATE_IOPS_MAX, bytes in 1u64..=RATE_BYTES_PER_SECOND_MAX) {
            let both = Throughput { iops: Some(iops), bytes_per_second: Some(bytes) };
            prop_assert_eq!(Throughput::parse(&both.to_string()), Ok(both));
            prop_assert_eq!(Size::parse(&Size(bytes).exact(), 1), Ok(Size(bytes)));
        }

        #[test]
        fn shown_sizes_and_rates_parse_to_within_their_rounding(
            bits in 0u32..50, low in any::<u64>(), whole in 1u64..10_000, unit in 0usize..6,
        ) {
            let bytes = (1 << bits) | (low & ((1 << bits) - 1));
            let is_near = |shown: u64| shown.abs_diff(bytes) <= bytes / 199 + 1;
            let shown = Size(bytes).to_string();
            let significant = shown.trim_start_matches(['0', '.']).bytes().filter(u8::is_ascii_digit).count();
            prop_assert!(significant <= 4, "{}", shown);
            prop_assert!(is_near(Size::parse(&shown, 1).unwrap().0), "{} for {}", shown, bytes);
            let rate = ByteRate(bytes).short();
            let measured = ByteRate(bytes).measured();
            prop_assert!(is_near(Size::parse(measured.trim_end_matches("/s"), 1).unwrap().0), "{}", measured);
            if let Ok(read) = Throughput::parse(&rate) {
                prop_assert!(is_near(read.bytes_per_second.unwrap()), "{} for {}", rate, bytes);
            } else {
                prop_assert!(bytes > RATE_BYTES_PER_SECOND_MAX / 2, "{}", rate);
            }
            if let Some(bytes) = whole.checked_mul(BINARY_UNITS[unit].1) {
                prop_assert_eq!(Size::parse(&Size(bytes).to_string(), 1), Ok(Size(bytes)));
            }
            let bytes = whole * DECIMAL_UNITS[unit.min(4)].1;
            let shown = ByteRate(bytes).short();
            prop_assert_eq!(Size::parse(shown.trim_end_matches("/s"), 1), Ok(Size(bytes)));
        }
    }
}
