//! Conversion between the policy terms of the API and those of all other crates.

use weir_types::{self as ours, Terms};

use super::{AdaptiveTerms, BurstTerms, Charges, InitialCredit, OperationSize, PeakMode, PolicyTerms, Space};

/// Defines both conversions between an enum of control and an API enum with the same variants.
macro_rules! alike {
    ($ours:ty, $theirs:ident, $($name:ident),+) => {
        impl From<$theirs> for $ours {
            fn from(value: $theirs) -> $ours {
                match value { $($theirs::$name => <$ours>::$name),+ }
            }
        }
        impl From<$ours> for $theirs {
            fn from(value: $ours) -> $theirs {
                match value { $(<$ours>::$name => $theirs::$name),+ }
            }
        }
    };
}

alike!(ours::InitialCredit, InitialCredit, Empty, Full);
alike!(ours::Space, Space, AllocatedSpace, UsedSpace);
alike!(ours::PeakMode, PeakMode, Ceiling, Credits);

impl From<OperationSize> for ours::OperationSize {
    fn from(size: OperationSize) -> ours::OperationSize {
        match size {
            OperationSize::Any => ours::OperationSize::Any,
            OperationSize::Curve => ours::OperationSize::Curve,
            OperationSize::Bytes(bytes) => ours::OperationSize::Bytes(bytes),
        }
    }
}

impl From<ours::OperationSize> for OperationSize {
    fn from(size: ours::OperationSize) -> OperationSize {
        match size {
            ours::OperationSize::Any => OperationSize::Any,
            ours::OperationSize::Curve => OperationSize::Curve,
            ours::OperationSize::Bytes(bytes) => OperationSize::Bytes(bytes),
        }
    }
}

impl From<Terms> for PolicyTerms {
    fn from(terms: Terms) -> PolicyTerms {
        let ours::Charges { discard, zeroes, flush } = terms.charges;
        PolicyTerms {
            limits: terms.limits.into(),
            burst: terms.burst.map(|burst| BurstTerms {
                rates: burst.rates.into(),
                seconds: burst.seconds,
                initial_credit: burst.initial_credit.into(),
            }),
            floor: terms.floor.into(),
            weight: terms.weight.0,
            operation_size: terms.operation_size.into(),
            charges: Charges { discard, zeroes, flush },
        }
    }
}

impl From<ours::AdaptiveTerms> for AdaptiveTerms {
    fn from(terms: ours::AdaptiveTerms) -> AdaptiveTerms {
        AdaptiveTerms {
            expected_iops_per_tb: terms.expected_iops_per_tb,
            peak_iops_per_tb: terms.peak_iops_per_tb,
            expected_space: terms.expected_space.into(),
            peak_space: terms.peak_space.into(),
            absolute_iops_min: terms.absolute_iops_min,
            block_size_bytes: terms.block_size_bytes,
            ceiling_iops_min: terms.ceiling_iops_min,
            ceiling_iops_max: terms.ceiling_iops_max,
            peak_mode: terms.peak_mode.into(),
            burst_seconds: terms.peak_seconds,
        }
    }
}
