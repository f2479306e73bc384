//! Adaptive terms, which follow a volume's size.
//!
//! This is a pure computation from sizes to [`Terms`]. It knows nothing of volumes, of the source of sizes,
//! or of when they change.

use serde::{Deserialize, Serialize};

use crate::bounds::{RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX};
use crate::policy::{Burst, InitialCredit, Limits, Terms, Throughput};

/// Bytes of a terabyte. Rates per TB count powers of ten.
pub const TERABYTE_BYTES: u64 = 1_000_000_000_000;

/// Bytes of the K in block sizes like `4K`. Block sizes are powers of two, so that a client with requests of
/// the named size reaches both ceilings at once. 1000 IOPS of 4K are 4.096 MB/s, which ONTAP's document
/// rounds to 4 MB/s.
pub const BLOCK_SIZE_K_BYTES: u32 = 1024;

/// Smallest block size of an adaptive policy, in bytes: a sector.
pub const BLOCK_SIZE_BYTES_MIN: u32 = 512;

/// Largest block size of an adaptive policy, in bytes: the size of the largest request.
pub const BLOCK_SIZE_BYTES_MAX: u32 = crate::bounds::REQUEST_BYTES_MAX;

/// Default time for which a full credit lasts, in seconds, as in NetApp Element.
pub const BURST_SECONDS_DEFAULT: u32 = 60;

/// Size of a volume that a rate follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Space {
    /// The provisioned size.
    AllocatedSpace,
    /// The occupied space.
    UsedSpace,
}

/// Meaning of the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeakMode {
    /// The peak is part of the ceiling: the greatest of expected rate, peak and absolute minimum, as in
    /// ONTAP.
    #[default]
    Ceiling,
    /// The peak is a burst rate. The expected rate is sustained, and the peak is reached on credit earned
    /// below it.
    Credits,
}

/// A policy whose ceilings follow a volume's size.
///
/// Computed rates are rounded to the nearest whole operation per second (a half up) and are at least 1.
/// Volumes have whole blocks, so a volume of "100 GB" is some bytes larger or smaller, and rounding gives it
/// the same rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptiveTerms {
    /// Expected operations per second for each TB, 1 to [`RATE_IOPS_MAX`].
    pub expected_iops_per_tb: u64,
    /// Peak operations per second for each TB, at least the expected rate.
    pub peak_iops_per_tb: u64,
    /// Size that the expected rate follows.
    #[serde(default = "allocated")]
    pub expected_space: Space,
    /// Size that the peak follows.
    #[serde(default = "used")]
    pub peak_space: Space,
    /// Minimum of the expected rate, in operations per second; 0 for none.
    #[serde(default)]
    pub absolute_iops_min: u64,
    /// Request size, in bytes, at which the ceilings in operations and in bytes are equal; `None` adds no
    /// ceiling in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Lower clamp of the ceilings, in operations per second, however small the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_min: Option<u64>,
    /// Upper clamp of the ceilings, in operations per second, however large the volume. It overrides all
    /// minimums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_max: Option<u64>,
    /// Meaning of the peak.
    #[serde(default)]
    pub peak_mode: PeakMode,
    /// Time for which a full credit lasts at the peak, in seconds. It has no effect unless the peak is on
    /// credit.
    #[serde(default = "peak_seconds")]
    pub peak_seconds: u32,
}

fn allocated() -> Space {
    Space::AllocatedSpace
}

fn used() -> Space {
    Space::UsedSpace
}

fn peak_seconds() -> u32 {
    BURST_SECONDS_DEFAULT
}

/// An adaptive policy that always exists and cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// Name of the policy. No other policy may have this name.
    pub name: &'static str,
    /// Terms of the policy.
    pub terms: AdaptiveTerms,
}

/// The adaptive policies that ONTAP ships, with its figures and its choice of sizes.
pub const BUILT_IN: [BuiltIn; 3] = [
    BuiltIn { name: "extreme", terms: AdaptiveTerms::new(6144, 12_288).at_least(1000) },
    BuiltIn { name: "performance", terms: AdaptiveTerms::new(2048, 4096).at_least(500) },
    BuiltIn { name: "value", terms: AdaptiveTerms::new(128, 512).at_least(75) },
];

/// `rate_per_tb` for a size in bytes, rounded to the nearest whole number.
fn scaled(rate_per_tb: u64, bytes: u64) -> u64 {
    let half = u128::from(TERABYTE_BYTES / 2);
    let nearest = (u128::from(rate_per_tb) * u128::from(bytes) + half) / u128::from(TERABYTE_BYTES);
    u64::try_from(nearest).unwrap_or(u64::MAX)
}

impl AdaptiveTerms {
    /// Terms with these two rates per TB and defaults for all else.
    pub const fn new(expected_iops_per_tb: u64, peak_iops_per_tb: u64) -> AdaptiveTerms {
        AdaptiveTerms {
            expected_iops_per_tb,
            peak_iops_per_tb,
            expected_space: Space::AllocatedSpace,
            peak_space: Space::UsedSpace,
            absolute_iops_min: 0,
            block_size_bytes: None,
            ceiling_iops_min: None,
            ceiling_iops_max: None,
            peak_mode: PeakMode::Ceiling,
            peak_seconds: BURST_SECONDS_DEFAULT,
        }
    }

    /// The same terms with an absolute minimum.
    pub const fn at_least(self, absolute_iops_min: u64) -> AdaptiveTerms {
        AdaptiveTerms { absolute_iops_min, ..self }
    }

    /// True if the terms change with the space that the volume occupies.
    pub fn follows_used_space(&self) -> bool {
        [self.expected_space, self.peak_space].contains(&Space::UsedSpace)
    }

    /// Terms of a volume with these sizes.
    pub fn terms(&self, allocated_bytes: u64, used_bytes: u64) -> Terms {
        let bytes = |space| match space {
            Space::AllocatedSpace => allocated_bytes,
            Space::UsedSpace => used_bytes,
        };
        let expected =
            scaled(self.expected_iops_per_tb, bytes(self.expected_space)).max(self.absolute_iops_min);
        let peak = scaled(self.peak_iops_per_tb, bytes(self.peak_space)).max(expected);
        let (sustained, peak) = (self.clamped(expected), self.clamped(peak));
        match self.peak_mode {
            PeakMode::Ceiling => Terms::limited(self.limits(peak)),
            PeakMode::Credits => Terms {
                burst: (peak > sustained).then(|| self.burst(peak)),
                ..Terms::limited(self.limits(sustained))
            },
        }
    }

    /// The rate within the clamps and within the range of limits.
    fn clamped(&self, iops: u64) -> u64 {
        let raised = iops.max(self.ceiling_iops_min.unwrap_or(1));
        raised.min(self.ceiling_iops_max.unwrap_or(RATE_IOPS_MAX)).clamp(1, RATE_IOPS_MAX)
    }

    /// The ceiling in operations, and the ceiling in bytes that the block size adds.
    fn limits(&self, iops: u64) -> Limits {
        let bytes = |block: u32| iops.saturating_mul(u64::from(block)).clamp(1, RATE_BYTES_PER_SECOND_MAX);
        let bytes_per_second = self.block_size_bytes.map(bytes);
        Limits { total: Throughput { iops: Some(iops), bytes_per_second }, ..Limits::default() }
    }

    fn burst(&self, peak: u64) -> Burst {
        let initial_credit = InitialCredit::Empty;
        Burst { rates: self.limits(peak), seconds: self.peak_seconds, initial_credit }
    }
}

/// Parses a rate per size: `1000`, `1000/TB`, `1000IOPS/TB` or `1IOPS/GB`. A bare number counts per TB.
///
/// `None` for any other text, and for rates that are not a whole number of operations per second and TB from
/// 1 to [`RATE_IOPS_MAX`].
pub fn parse_iops_per_tb(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (rate, unit) = text.split_once('/').unwrap_or((&text, "tb"));
    let unit_per_tb: u64 = match unit.trim() {
        "tb" => 1,
        "gb" => 1000,
        _ => return None,
    };
    let rate = rate.trim().strip_suffix("iops").unwrap_or(rate).trim();
    let (whole, fraction) = rate.split_once('.').unwrap_or((rate, ""));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !(fraction.is_empty() || is_number(fraction)) || fraction.len() > 3 {
        return None;
    }
    // In thousandths, so that 0.5/GB is exact.
    let thousandths = format!("{whole}{fraction:0<3}").parse::<u64>().ok()?.checked_mul(unit_per_tb)?;
    let is_whole = thousandths.is_multiple_of(1000) && !rate.ends_with('.');
    Some(thousandths / 1000).filter(|rate| is_whole && (1..=RATE_IOPS_MAX).contains(rate))
}

/// Parses a block size: `8K`, `16K`, `32K`, `64K` and other numbers of K (1024 bytes, see
/// [`BLOCK_SIZE_K_BYTES`]). A size with its unit, like `4KiB`, is accepted too. `any` or `none` means no
/// bandwidth ceiling.
///
/// `None` for any other text.
pub fn parse_block_size(text: &str) -> Option<Option<u32>> {
    let lower = text.trim().to_ascii_lowercase();
    if matches!(lower.as_str(), "any" | "none") {
        return Some(None);
    }
    let bytes = match lower.strip_suffix('k') {
        Some(number) => {
            crate::units::whole_number::<u64>(number)?.checked_mul(u64::from(BLOCK_SIZE_K_BYTES))?
        }
        None => crate::Size::parse(&lower, 0).ok()?.0,
    };
    let bytes = u32::try_from(bytes).ok()?;
    (BLOCK_SIZE_BYTES_MIN..=BLOCK_SIZE_BYTES_MAX).contains(&bytes).then_some(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GB: u64 = 1_000_000_000;
    const TB: u64 = 1000 * GB;

    /// The example policy of ONTAP's document.
    fn document() -> AdaptiveTerms {
        AdaptiveTerms { peak_space: Space::AllocatedSpace, ..AdaptiveTerms::new(1000, 1500) }
    }

    fn iops(terms: Terms) -> u64 {
        terms.limits.total.iops.unwrap()
    }

    #[test]
    fn figures_of_ontap_document_hold() {
        assert_eq!(iops(document().terms(100 * GB, 0)), 150);
        assert_eq!(iops(document().terms(10 * TB, 0)), 15_000);
        let credits = AdaptiveTerms { peak_mode: PeakMode::Credits, ..document() }.terms(10 * TB, 0);
        assert_eq!((iops(credits), credits.burst.unwrap().rates.total.iops), (10_000, Some(15_000)));
        let block_size_bytes = parse_block_size("4K").unwrap();
        let sized = AdaptiveTerms { block_size_bytes, ..AdaptiveTerms::new(1000, 1000) }.terms(TB, 0);
        assert_eq!(sized.limits.total.bytes_per_second, Some(4_096_000));
    }

    #[test]
    fn built_in_policies_match_ontap() {
        for (name, full, empty) in [
            ("extreme", [12_288, 122_880, 1_228_800], [6144, 61_440, 614_400]),
            ("performance", [4096, 40_960, 409_600], [2048, 20_480, 204_800]),
            ("value", [512, 5120, 51_200], [128, 1280, 12_800]),
        ] {
            let terms = BUILT_IN.iter().find(|built_in| built_in.name == name).unwrap().terms;
            for (index, size) in [TB, 10 * TB, 100 * TB].into_iter().enumerate() {
                assert_eq!(iops(terms.terms(size, size)), full[index], "{name} of {size} bytes, full");
                assert_eq!(iops(terms.terms(size, 0)), empty[index], "{name} of {size} bytes, empty");
            }
            assert_eq!(iops(terms.terms(GB, 0)), terms.absolute_iops_min, "{name}");
            assert!(terms.follows_used_space());
        }
    }

    #[test]
    fn rates_follow_their_space_and_round_to_nearest() {
        let half_used = |expected_space, peak_space| {
            let terms = AdaptiveTerms { expected_space, peak_space, ..AdaptiveTerms::new(1000, 1500) };
            iops(terms.terms(2 * TB, TB))
        };
        use Space::{AllocatedSpace, UsedSpace};
        assert_eq!(half_used(AllocatedSpace, UsedSpace), 2000, "the expected rate is above the peak");
        assert_eq!(half_used(UsedSpace, UsedSpace), 1500);
        assert_eq!(half_used(UsedSpace, AllocatedSpace), 3000);
        for bytes in [99_999_997_952, 100 * GB, 100_000_002_048] {
            assert_eq!(iops(document().terms(bytes, 0)), 150, "{bytes} bytes are 100 GB in whole blocks");
        }
        assert_eq!(iops(document().terms(TB / 1000, 0)), 2, "1.5 is 2");
        assert_eq!(iops(document().terms(TB / 1000 - 1, 0)), 1);
        assert_eq!(iops(document().terms(1, 0)), 1);
        assert_eq!(iops(AdaptiveTerms::new(1, 1).terms(0, 0)), 1, "never nothing");
        assert!(!document().follows_used_space());
    }

    #[test]
    fn clamps_bound_ceilings_and_maximum_overrides_minimums() {
        let clamped =
            AdaptiveTerms { ceiling_iops_min: Some(300), ceiling_iops_max: Some(5000), ..document() };
        assert_eq!(iops(clamped.terms(100 * GB, 0)), 300);
        assert_eq!(iops(clamped.terms(TB, 0)), 1500);
        assert_eq!(iops(clamped.terms(10 * TB, 0)), 5000);
        assert_eq!(iops(clamped.at_least(9000).terms(TB, 0)), 5000);
        let credits = AdaptiveTerms { peak_mode: PeakMode::Credits, ..clamped };
        assert_eq!(credits.terms(100 * GB, 0).burst, None, "sustained and peak are the same");
    }

    #[test]
    fn rates_per_size_parse_in_ontap_notation() {
        for (text, rate) in [
            ("1000", Some(1000)),
            ("1000/TB", Some(1000)),
            ("1000IOPS/TB", Some(1000)),
            ("1IOPS/GB", Some(1000)),
            ("1.5/gb", Some(1500)),
            ("0.001/GB", Some(1)),
            ("0", None),
            ("0.0001/GB", None),
            ("1.5", None),
            ("1.", None),
            ("-1", None),
            ("1000/MB", None),
            ("1000MB/s", None),
            ("", None),
            ("99999999999999999999", None),
            ("1000000001", None),
        ] {
            assert_eq!(parse_iops_per_tb(text), rate, "{text}");
        }
    }

    #[test]
    fn block_sizes_parse_in_ontap_notation() {
        for (text, size) in [
            ("ANY", Some(None)),
            ("4k", Some(Some(4096))),
            ("64K", Some(Some(64 << 10))),
            ("4KiB", Some(Some(4096))),
            ("0K", None),
            ("4", None),
            ("64GiB", None),
            ("large", None),
        ] {
            assert_eq!(parse_block_size(text), size, "{text}");
        }
    }

    proptest! {
        #[test]
        fn ceiling_is_the_greatest_rate_and_grows_with_size(
            expected in 1u64..=RATE_IOPS_MAX,
            extra in 0u64..=RATE_IOPS_MAX,
            allocated in 0u64..=crate::bounds::VOLUME_SIZE_BYTES_MAX,
            used in 0u64..=crate::bounds::VOLUME_SIZE_BYTES_MAX,
            minimum in 0u64..=1_000_000,
            more in 0u64..=TB,
        ) {
            let peak = (expected + extra).min(RATE_IOPS_MAX);
            let adaptive = AdaptiveTerms::new(expected, peak).at_least(minimum);
            let exact = |rate: u64, bytes: u64| {
                let product = u128::from(rate) * u128::from(bytes);
                let (whole, rest) = (product / u128::from(TB), product % u128::from(TB));
                whole + u128::from(rest * 2 >= u128::from(TB))
            };
            let greatest = exact(expected, allocated).max(exact(peak, used)).max(u128::from(minimum));
            let found = iops(adaptive.terms(allocated, used));
            prop_assert_eq!(u128::from(found), greatest.clamp(1, u128::from(RATE_IOPS_MAX)));
            prop_assert!(iops(adaptive.terms(allocated + more, used + more)) >= found);
            let credits = AdaptiveTerms { peak_mode: PeakMode::Credits, ..adaptive }.terms(allocated, used);
            let burst = credits.burst.map_or(iops(credits), |burst| burst.rates.total.iops.unwrap());
            prop_assert_eq!(burst, found);
        }
    }
}
