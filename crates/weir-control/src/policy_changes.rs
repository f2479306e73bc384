//! Changes of policy terms: a field that is `None` keeps its value.
//!
//! A new policy is a change of the default terms.

use weir_types::adaptive::BURST_SECONDS_DEFAULT;
use weir_types::{
    AdaptiveTerms, Burst, InitialCredit, Limits, OperationSize, PeakMode, Space, Terms, Throughput, Weight,
};

/// New rates. Each pair replaces the old one as a whole; an empty pair removes the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsChange {
    /// Rates of reads and writes together.
    pub total: Option<Throughput>,
    /// Rates of reads.
    pub read: Option<Throughput>,
    /// Rates of writes.
    pub write: Option<Throughput>,
}

impl LimitsChange {
    fn applied(&self, limits: Limits) -> Limits {
        Limits {
            total: self.total.unwrap_or(limits.total),
            read: self.read.unwrap_or(limits.read),
            write: self.write.unwrap_or(limits.write),
        }
    }
}

/// A change of the terms of a policy group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TermsChange {
    /// New ceilings.
    pub limits: LimitsChange,
    /// New floor.
    pub floor: Option<Throughput>,
    /// New burst rates; a burst without any rate is removed.
    pub burst: LimitsChange,
    /// New time that a full credit lasts, in seconds.
    pub burst_seconds: Option<u32>,
    /// New initial credit of a workload.
    pub initial_credit: Option<InitialCredit>,
    /// New weight.
    pub weight: Option<u32>,
    /// New size of the unit in which reads and writes count as operations.
    pub operation_size: Option<OperationSize>,
    /// New number of operations that a discard counts as.
    pub discard: Option<u32>,
    /// New number of operations that a write of zeroes counts as.
    pub zeroes: Option<u32>,
    /// New number of operations that a flush counts as.
    pub flush: Option<u32>,
}

impl TermsChange {
    /// Returns the terms after the change.
    pub fn applied(&self, terms: Terms) -> Terms {
        let mut charges = terms.charges;
        charges.discard = self.discard.unwrap_or(charges.discard);
        charges.zeroes = self.zeroes.unwrap_or(charges.zeroes);
        charges.flush = self.flush.unwrap_or(charges.flush);
        Terms {
            limits: self.limits.applied(terms.limits),
            burst: self.applied_burst(terms.burst),
            floor: self.floor.unwrap_or(terms.floor),
            weight: self.weight.map_or(terms.weight, Weight),
            operation_size: self.operation_size.unwrap_or(terms.operation_size),
            charges,
        }
    }

    fn applied_burst(&self, burst: Option<Burst>) -> Option<Burst> {
        let was = burst.unwrap_or(Burst {
            rates: Limits::default(),
            seconds: BURST_SECONDS_DEFAULT,
            initial_credit: InitialCredit::default(),
        });
        let rates = self.burst.applied(was.rates);
        let asks_without_rate = self.burst == LimitsChange::default()
            && (self.burst_seconds.is_some() || self.initial_credit.is_some());
        // A request for a burst without a rate is kept, so that the check refuses it instead of losing it.
        (!rates.is_unlimited() || asks_without_rate).then(|| Burst {
            rates,
            seconds: self.burst_seconds.unwrap_or(was.seconds),
            initial_credit: self.initial_credit.unwrap_or(was.initial_credit),
        })
    }
}

/// A change of an adaptive policy group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdaptiveChange {
    /// New expected rate, in operations per second and TB.
    pub expected_iops_per_tb: Option<u64>,
    /// New peak rate, in operations per second and TB.
    pub peak_iops_per_tb: Option<u64>,
    /// New size that the expected rate follows.
    pub expected_space: Option<Space>,
    /// New size that the peak rate follows.
    pub peak_space: Option<Space>,
    /// New minimum of the expected rate; 0 for none.
    pub absolute_iops_min: Option<u64>,
    /// New block size in bytes, or none.
    pub block_size_bytes: Option<Option<u32>>,
    /// New minimum of the ceilings, or none.
    pub ceiling_iops_min: Option<Option<u64>>,
    /// New maximum of the ceilings, or none.
    pub ceiling_iops_max: Option<Option<u64>>,
    /// New meaning of the peak.
    pub peak_mode: Option<PeakMode>,
    /// New time that a full credit lasts at the peak, in seconds.
    pub peak_seconds: Option<u32>,
}

impl AdaptiveChange {
    /// Returns the terms after the change.
    pub fn applied(&self, terms: AdaptiveTerms) -> AdaptiveTerms {
        AdaptiveTerms {
            expected_iops_per_tb: self.expected_iops_per_tb.unwrap_or(terms.expected_iops_per_tb),
            peak_iops_per_tb: self.peak_iops_per_tb.unwrap_or(terms.peak_iops_per_tb),
            expected_space: self.expected_space.unwrap_or(terms.expected_space),
            peak_space: self.peak_space.unwrap_or(terms.peak_space),
            absolute_iops_min: self.absolute_iops_min.unwrap_or(terms.absolute_iops_min),
            block_size_bytes: self.block_size_bytes.unwrap_or(terms.block_size_bytes),
            ceiling_iops_min: self.ceiling_iops_min.unwrap_or(terms.ceiling_iops_min),
            ceiling_iops_max: self.ceiling_iops_max.unwrap_or(terms.ceiling_iops_max),
            peak_mode: self.peak_mode.unwrap_or(terms.peak_mode),
            peak_seconds: self.peak_seconds.unwrap_or(terms.peak_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(text: &str) -> Option<Throughput> {
        Some(Throughput::parse(text).unwrap())
    }

    fn total(text: &str) -> LimitsChange {
        LimitsChange { total: rates(text), ..LimitsChange::default() }
    }

    #[test]
    fn change_keeps_fields_that_it_does_not_name() {
        let first = TermsChange {
            limits: total("1000IOPS"),
            burst: total("2000IOPS"),
            burst_seconds: Some(9),
            discard: Some(4),
            ..TermsChange::default()
        };
        let first = first.applied(Terms::default());
        assert_eq!(first.burst.unwrap().seconds, 9);
        let second = TermsChange {
            floor: rates("5IOPS"),
            weight: Some(7),
            initial_credit: Some(InitialCredit::Full),
            ..TermsChange::default()
        };
        let second = second.applied(first);
        assert_eq!((second.limits, second.charges), (first.limits, first.charges));
        let burst = second.burst.unwrap();
        assert_eq!((burst.rates.total.iops, burst.initial_credit), (Some(2000), InitialCredit::Full));
        let removal = TermsChange { burst: total("none"), floor: rates("none"), ..TermsChange::default() };
        let third = removal.applied(second);
        assert_eq!((third.burst, third.floor, third.weight), (None, Throughput::default(), Weight(7)));
    }

    #[test]
    fn burst_without_a_rate_is_refused() {
        let change = TermsChange { burst_seconds: Some(9), ..TermsChange::default() };
        assert!(change.applied(Terms::default()).check().is_err());
    }
}
