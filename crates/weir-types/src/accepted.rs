//! Checks of policy terms by themselves. Checks against other terms, as of a parent, belong to the code that
//! knows those terms.

use crate::adaptive::{AdaptiveTerms, BLOCK_SIZE_BYTES_MAX, BLOCK_SIZE_BYTES_MIN};
use crate::bounds::{
    BACKGROUND_DEADLINE_SECONDS_MAX, BURST_SECONDS_MAX, CHARGE_MAX, RATE_IOPS_MAX, REQUEST_BYTES_MAX,
    WEIGHT_MAX,
};
use crate::policy::{Burst, Limits, OperationSize, Terms, Throughput};
use crate::units::ByteRate;

/// One rate in its dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Operations per second.
    Iops(u64),
    /// Bytes per second.
    BytesPerSecond(u64),
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Rate::Iops(iops) => write!(f, "{iops}IOPS"),
            Rate::BytesPerSecond(bytes) => ByteRate(*bytes).fmt(f),
        }
    }
}

/// Requests that a rate applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads and writes together.
    Total,
    /// Reads.
    Read,
    /// Writes.
    Write,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::Total => "reads and writes together",
            Direction::Read => "reads",
            Direction::Write => "writes",
        })
    }
}

/// Reason why terms are not accepted. The message names the value and the accepted values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// The floor is set in both dimensions.
    #[error("floor {0} is in two dimensions; one of them is accepted")]
    FloorInTwoDimensions(Throughput),
    /// The floor is above the ceiling of the same group.
    #[error(
        "floor {floor} is above the ceiling {ceiling} of the same group; a floor up to {ceiling} is accepted"
    )]
    FloorAboveCeiling {
        /// The floor.
        floor: Rate,
        /// The ceiling.
        ceiling: Rate,
    },
    /// The burst has no ceiling in its dimension and direction.
    #[error("burst {burst} for {direction} has no ceiling that it could go above; set that ceiling too")]
    BurstWithoutCeiling {
        /// The burst rate.
        burst: Rate,
        /// Requests that the burst applies to.
        direction: Direction,
    },
    /// The burst rate is below the ceiling.
    #[error(
        "burst {burst} for {direction} is below the ceiling {ceiling}; a rate from {ceiling} is accepted"
    )]
    BurstBelowCeiling {
        /// The burst rate.
        burst: Rate,
        /// The ceiling.
        ceiling: Rate,
        /// Requests that the burst applies to.
        direction: Direction,
    },
    /// The burst has a length or credit but no rate.
    #[error("a burst needs a rate, such as 2000IOPS")]
    BurstWithoutRate,
    /// The burst length, in seconds, is out of range.
    #[error("a burst of {0} seconds is not accepted; 1 to {BURST_SECONDS_MAX} seconds are")]
    BurstSeconds(u32),
    /// The weight is out of range.
    #[error("weight {0} is not accepted; 1 to {WEIGHT_MAX} is")]
    Weight(u32),
    /// The deadline of background work, in seconds, is out of range.
    #[error(
        "a deadline of {0} seconds is not accepted; 1 to {BACKGROUND_DEADLINE_SECONDS_MAX} seconds (30 days) are"
    )]
    Deadline(u32),
    /// The operation size, in bytes, is out of range.
    #[error(
        "an operation size of {0} bytes is not accepted; 1 to {REQUEST_BYTES_MAX} bytes (such as 4KiB), 'curve' \
         and 'any' are"
    )]
    OperationSize(u32),
    /// The charge for a request without data, in operations, is out of range.
    #[error("a charge of {0} operations is not accepted; 0 to {CHARGE_MAX} is")]
    Charge(u32),
    /// The rate per TB, in operations per second, is out of range.
    #[error("{0} IOPS per TB is not accepted; 1 to {RATE_IOPS_MAX} is")]
    RatePerTerabyte(u64),
    /// The peak is below the expected rate.
    #[error("peak {peak} IOPS per TB is below the expected {expected}; {expected} or more is accepted")]
    PeakBelowExpected {
        /// The peak, in operations per second and TB.
        peak: u64,
        /// The expected rate, in operations per second and TB.
        expected: u64,
    },
    /// The absolute minimum or a clamp, in operations per second, is out of range.
    #[error("{0}IOPS is not accepted as a bound of the ceiling; 1IOPS to {RATE_IOPS_MAX}IOPS is")]
    CeilingBound(u64),
    /// The minimum of the ceiling is above its maximum.
    #[error(
        "a ceiling of at least {minimum}IOPS is above the ceiling of at most {maximum}IOPS; {maximum} or less is accepted"
    )]
    BoundsCrossed {
        /// The lower bound, in operations per second.
        minimum: u64,
        /// The upper bound, in operations per second.
        maximum: u64,
    },
    /// The block size, in bytes, is out of range.
    #[error(
        "a block size of {0} bytes is not accepted; {BLOCK_SIZE_BYTES_MIN} to {BLOCK_SIZE_BYTES_MAX} bytes \
         (such as 4K or 64K) and 'any' are"
    )]
    BlockSize(u32),
}

impl Throughput {
    /// The rates that are set.
    pub fn rates(&self) -> impl Iterator<Item = Rate> {
        self.iops.map(Rate::Iops).into_iter().chain(self.bytes_per_second.map(Rate::BytesPerSecond))
    }

    /// The rate that is set in the dimension of `rate`.
    pub fn alike(&self, rate: Rate) -> Option<Rate> {
        match rate {
            Rate::Iops(_) => self.iops.map(Rate::Iops),
            Rate::BytesPerSecond(_) => self.bytes_per_second.map(Rate::BytesPerSecond),
        }
    }
}

impl Rate {
    /// The number, in the unit of its dimension.
    pub fn value(self) -> u64 {
        match self {
            Rate::Iops(value) | Rate::BytesPerSecond(value) => value,
        }
    }

    /// A rate of the given value in the same dimension.
    pub fn with(self, value: u64) -> Rate {
        match self {
            Rate::Iops(_) => Rate::Iops(value),
            Rate::BytesPerSecond(_) => Rate::BytesPerSecond(value),
        }
    }
}

impl Limits {
    /// The ceilings by direction.
    pub fn directions(&self) -> [(Direction, Throughput); 3] {
        [(Direction::Total, self.total), (Direction::Read, self.read), (Direction::Write, self.write)]
    }
}

fn check_burst(limits: &Limits, burst: &Burst) -> Result<(), TermsError> {
    if burst.rates.is_unlimited() {
        return Err(TermsError::BurstWithoutRate);
    }
    if !(1..=BURST_SECONDS_MAX).contains(&burst.seconds) {
        return Err(TermsError::BurstSeconds(burst.seconds));
    }
    for ((direction, bursts), (_, ceilings)) in burst.rates.directions().into_iter().zip(limits.directions())
    {
        for burst in bursts.rates() {
            let Some(ceiling) = ceilings.alike(burst) else {
                return Err(TermsError::BurstWithoutCeiling { burst, direction });
            };
            if burst.value() < ceiling.value() {
                return Err(TermsError::BurstBelowCeiling { burst, ceiling, direction });
            }
        }
    }
    Ok(())
}

impl Terms {
    /// Refuses terms that make no sense, whatever their parent or siblings are.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), TermsError> {
        if self.floor.rates().count() > 1 {
            return Err(TermsError::FloorInTwoDimensions(self.floor));
        }
        for floor in self.floor.rates() {
            let ceiling = self.limits.total.alike(floor);
            if let Some(ceiling) = ceiling.filter(|ceiling| floor.value() > ceiling.value()) {
                return Err(TermsError::FloorAboveCeiling { floor, ceiling });
            }
        }
        if let Some(burst) = &self.burst {
            check_burst(&self.limits, burst)?;
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight.0) {
            return Err(TermsError::Weight(self.weight.0));
        }
        let charges = [self.charges.discard, self.charges.zeroes, self.charges.flush];
        if let Some(charge) = charges.into_iter().find(|charge| *charge > CHARGE_MAX) {
            return Err(TermsError::Charge(charge));
        }
        match self.operation_size {
            OperationSize::Bytes(bytes) if !(1..=REQUEST_BYTES_MAX).contains(&bytes) => {
                Err(TermsError::OperationSize(bytes))
            }
            _ => Ok(()),
        }
    }
}

impl AdaptiveTerms {
    /// Refuses terms that make no sense.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), TermsError> {
        let is_rate = |rate: &u64| (1..=RATE_IOPS_MAX).contains(rate);
        let (expected, peak) = (self.expected_iops_per_tb, self.peak_iops_per_tb);
        if let Some(rate) = [expected, peak].into_iter().find(|rate| !is_rate(rate)) {
            return Err(TermsError::RatePerTerabyte(rate));
        }
        if peak < expected {
            return Err(TermsError::PeakBelowExpected { peak, expected });
        }
        let absolute = Some(self.absolute_iops_min).filter(|minimum| *minimum > 0);
        let minima = [absolute, self.ceiling_iops_min];
        let mut bounds = minima.into_iter().chain([self.ceiling_iops_max]).flatten();
        if let Some(bound) = bounds.find(|bound| !is_rate(bound)) {
            return Err(TermsError::CeilingBound(bound));
        }
        let maximum = self.ceiling_iops_max.unwrap_or(RATE_IOPS_MAX);
        if let Some(minimum) = minima.into_iter().flatten().find(|minimum| *minimum > maximum) {
            return Err(TermsError::BoundsCrossed { minimum, maximum });
        }
        if !(1..=BURST_SECONDS_MAX).contains(&self.peak_seconds) {
            return Err(TermsError::BurstSeconds(self.peak_seconds));
        }
        match self.block_size_bytes {
            Some(bytes) if !(BLOCK_SIZE_BYTES_MIN..=BLOCK_SIZE_BYTES_MAX).contains(&bytes) => {
                Err(TermsError::BlockSize(bytes))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::BUILT_IN;
    use crate::{Charges, InitialCredit, Weight};

    fn rates(text: &str) -> Throughput {
        Throughput::parse(text).unwrap()
    }

    fn limited(total: &str) -> Terms {
        Terms::limited(Limits { total: rates(total), ..Limits::default() })
    }

    fn bursting(total: &str, rates: Limits, seconds: u32) -> Terms {
        let burst = Burst { rates, seconds, initial_credit: InitialCredit::Empty };
        Terms { burst: Some(burst), ..limited(total) }
    }

    fn total(text: &str) -> Limits {
        Limits { total: rates(text), ..Limits::default() }
    }

    #[test]
    fn sound_terms_are_accepted() {
        for terms in [
            Terms::default(),
            Terms { floor: rates("1000IOPS"), ..limited("1000IOPS") },
            Terms { floor: rates("9MB/s"), ..limited("1000IOPS") },
            bursting("1000IOPS,10MB/s", total("1000IOPS"), 1),
            bursting("1000IOPS", total("2000IOPS"), BURST_SECONDS_MAX),
            Terms { weight: Weight(WEIGHT_MAX), operation_size: OperationSize::Curve, ..Terms::default() },
        ] {
            assert_eq!(terms.check(), Ok(()), "{terms:?}");
        }
        BUILT_IN.iter().for_each(|built_in| assert_eq!(built_in.terms.check(), Ok(())));
    }

    #[test]
    fn terms_error_names_value_and_accepted_range() {
        let read = Limits { read: rates("5MB/s"), ..Limits::default() };
        let sized = |bytes| Terms { operation_size: OperationSize::Bytes(bytes), ..Terms::default() };
        let weighted = |weight| Terms { weight: Weight(weight), ..Terms::default() };
        let charged = Charges { discard: CHARGE_MAX + 1, ..Charges::default() };
        for (terms, words) in [
            (
                Terms { floor: rates("1IOPS,1MB/s"), ..Terms::default() },
                "floor 1IOPS,1MB/s is in two dimensions",
            ),
            (
                Terms { floor: rates("1001IOPS"), ..limited("1000IOPS") },
                "floor 1001IOPS is above the ceiling 1000IOPS of the same group; a floor up to 1000IOPS",
            ),
            (
                bursting("1000IOPS", total("9MB/s"), 9),
                "burst 9MB/s for reads and writes together has no ceiling",
            ),
            (bursting("1000IOPS", read, 9), "burst 5MB/s for reads has no ceiling"),
            (
                bursting("1000IOPS", total("999IOPS"), 9),
                "burst 999IOPS for reads and writes together is below the ceiling 1000IOPS",
            ),
            (bursting("1000IOPS", Limits::default(), 9), "a burst needs a rate"),
            (
                bursting("1IOPS", total("2IOPS"), 0),
                "a burst of 0 seconds is not accepted; 1 to 3600 seconds are",
            ),
            (bursting("1IOPS", total("2IOPS"), 3601), "a burst of 3601 seconds"),
            (weighted(0), "weight 0 is not accepted; 1 to 10000 is"),
            (weighted(WEIGHT_MAX + 1), "weight 10001 is not accepted"),
            (sized(0), "an operation size of 0 bytes is not accepted"),
            (Terms { charges: charged, ..Terms::default() }, "a charge of 1001 operations"),
        ] {
            let error = terms.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn adaptive_terms_error_names_value_and_accepted_range() {
        let sound = AdaptiveTerms::new(1000, 1500);
        assert_eq!(sound.check(), Ok(()));
        for (terms, words) in [
            (AdaptiveTerms::new(0, 5), "0 IOPS per TB is not accepted; 1 to 1000000000 is"),
            (AdaptiveTerms::new(1000, 999), "peak 999 IOPS per TB is below the expected 1000"),
            (sound.at_least(RATE_IOPS_MAX + 1), "1000000001IOPS is not accepted"),
            (AdaptiveTerms { ceiling_iops_max: Some(0), ..sound }, "0IOPS is not accepted"),
            (AdaptiveTerms { ceiling_iops_max: Some(74), ..sound.at_least(75) }, "at least 75IOPS is above"),
            (AdaptiveTerms { peak_seconds: 0, ..sound }, "a burst of 0 seconds"),
            (AdaptiveTerms { block_size_bytes: Some(0), ..sound }, "a block size of 0 bytes is not accepted"),
        ] {
            let error = terms.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
