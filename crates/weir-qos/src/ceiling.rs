//! The ceilings of one budget: up to six meters of which the one that frees last holds a request.

use weir_types::{Limits, Throughput};

use crate::meter::Meter;

/// Whether a request counts as a read or as a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes, discard and write-zeroes.
    Write,
}

/// What one request costs: one operation, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Which of the directional ceilings it falls under.
    pub direction: Direction,
    /// Bytes moved; zero for discard and write-zeroes.
    pub bytes: u64,
}

/// One limit of a budget, to blame a wait on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Operations per second of both directions.
    TotalOperations,
    /// Bytes per second of both directions.
    TotalBytes,
    /// Reads per second.
    ReadOperations,
    /// Bytes read per second.
    ReadBytes,
    /// Writes per second.
    WriteOperations,
    /// Bytes written per second.
    WriteBytes,
}

const DIMENSIONS: [Dimension; 6] = [
    Dimension::TotalOperations,
    Dimension::TotalBytes,
    Dimension::ReadOperations,
    Dimension::ReadBytes,
    Dimension::WriteOperations,
    Dimension::WriteBytes,
];

impl Dimension {
    /// What a request costs here; `None` if it does not fall under this limit.
    fn cost(self, cost: Cost) -> Option<u64> {
        use Dimension::{
            ReadBytes, ReadOperations, TotalBytes, TotalOperations, WriteBytes, WriteOperations,
        };
        match (self, cost.direction) {
            (TotalOperations, _) => Some(1),
            (ReadOperations, Direction::Read) | (WriteOperations, Direction::Write) => Some(1),
            (TotalBytes, _) => Some(cost.bytes),
            (ReadBytes, Direction::Read) | (WriteBytes, Direction::Write) => Some(cost.bytes),
            _ => None,
        }
    }

    fn rate(self, limits: &Limits) -> Option<u64> {
        let iops = |throughput: Throughput| throughput.iops;
        let bytes = |throughput: Throughput| throughput.bytes_per_second;
        match self {
            Dimension::TotalOperations => iops(limits.total),
            Dimension::TotalBytes => bytes(limits.total),
            Dimension::ReadOperations => iops(limits.read),
            Dimension::ReadBytes => bytes(limits.read),
            Dimension::WriteOperations => iops(limits.write),
            Dimension::WriteBytes => bytes(limits.write),
        }
    }
}

/// The instant at which a request may start, reserved for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The instant in nanoseconds; in the past or present if it may start at once.
    pub at_ns: u64,
    /// The limit that sets the instant, if the request has to wait.
    pub bound_by: Option<Dimension>,
}

/// The meters of one budget.
///
/// A slot is *reserved*: its cost is charged when it is given out, and the next slot lies after it. Several
/// volumes may therefore share one ceiling and take turns wherever their reactors run; the meters that do not
/// bind are charged early, by at most what is leased ahead.
#[derive(Clone, Debug)]
pub struct Ceiling {
    limits: Limits,
    meters: [Option<Meter>; 6],
}

impl Ceiling {
    /// A ceiling with no credit and no debt.
    pub fn new(limits: Limits, now_ns: u64) -> Ceiling {
        let meters = DIMENSIONS.map(|d| d.rate(&limits).map(|rate| Meter::new(rate, now_ns)));
        Ceiling { limits, meters }
    }

    /// The limits as they stand.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Reserves the next slot for a request.
    pub fn reserve(&mut self, now_ns: u64, cost: Cost) -> Slot {
        let mut slot = Slot { at_ns: now_ns, bound_by: None };
        for (dimension, meter) in DIMENSIONS.into_iter().zip(&mut self.meters) {
            let (Some(meter), Some(amount)) = (meter, dimension.cost(cost)) else { continue };
            meter.settle(now_ns);
            let ready_ns = meter.ready_ns();
            if ready_ns > slot.at_ns {
                slot = Slot { at_ns: ready_ns, bound_by: Some(dimension) };
            }
            meter.charge(amount);
        }
        slot
    }

    /// How much of the budget a request takes: the time in nanoseconds in which its tightest meter leaks the
    /// request's cost.
    pub fn span_ns(&self, cost: Cost) -> u64 {
        let spans = DIMENSIONS.into_iter().zip(&self.meters).filter_map(|(dimension, meter)| {
            let amount = u128::from(dimension.cost(cost)?);
            Some((amount * 1_000_000_000 / u128::from(meter.as_ref()?.rate())) as u64)
        });
        spans.max().unwrap_or(0)
    }

    /// Gives back a slot that was reserved and not used.
    pub fn cancel(&mut self, cost: Cost) {
        for (dimension, meter) in DIMENSIONS.into_iter().zip(&mut self.meters) {
            if let (Some(meter), Some(amount)) = (meter, dimension.cost(cost)) {
                meter.refund(amount);
            }
        }
    }

    /// Changes the limits. Meters that stay keep their credit or debt as [`Meter::change_rate`] says.
    /// Whoever holds a slot should cancel it and reserve again.
    pub fn change(&mut self, limits: Limits, now_ns: u64) {
        for (dimension, meter) in DIMENSIONS.into_iter().zip(&mut self.meters) {
            match (meter.as_mut(), dimension.rate(&limits)) {
                (Some(meter), Some(rate)) => meter.change_rate(rate, now_ns),
                (_, rate) => *meter = rate.map(|rate| Meter::new(rate, now_ns)),
            }
        }
        self.limits = limits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(total: &str, read: &str, write: &str) -> Limits {
        let parse = |text| Throughput::parse(text).unwrap();
        Limits { total: parse(total), read: parse(read), write: parse(write) }
    }

    const READ_4K: Cost = Cost { direction: Direction::Read, bytes: 4096 };
    const WRITE_1M: Cost = Cost { direction: Direction::Write, bytes: 1 << 20 };

    #[test]
    fn the_limit_reached_first_holds_and_is_named() {
        let mut ceiling = Ceiling::new(limits("1000IOPS,4096B/s", "none", "none"), 0);
        assert_eq!(ceiling.reserve(0, READ_4K), Slot { at_ns: 0, bound_by: None });
        let second = ceiling.reserve(0, READ_4K);
        assert_eq!(second, Slot { at_ns: 1_000_000_000, bound_by: Some(Dimension::TotalBytes) });
    }

    #[test]
    fn directions_are_limited_apart() {
        let mut ceiling = Ceiling::new(limits("none", "1IOPS", "1MiB/s"), 0);
        ceiling.reserve(0, READ_4K);
        assert_eq!(ceiling.reserve(0, WRITE_1M).at_ns, 0);
        assert_eq!(ceiling.reserve(0, WRITE_1M).bound_by, Some(Dimension::WriteBytes));
        assert_eq!(ceiling.reserve(0, READ_4K).bound_by, Some(Dimension::ReadOperations));
    }

    #[test]
    fn a_cancelled_slot_is_free_for_the_next() {
        let mut ceiling = Ceiling::new(limits("10IOPS", "none", "none"), 0);
        ceiling.reserve(0, READ_4K);
        assert_eq!(ceiling.reserve(0, READ_4K).at_ns, 100_000_000);
        ceiling.cancel(READ_4K);
        assert_eq!(ceiling.reserve(0, READ_4K).at_ns, 100_000_000);
    }

    #[test]
    fn a_request_larger_than_the_allowance_is_repaid_once() {
        let mut ceiling = Ceiling::new(limits("1MiB/s", "none", "none"), 0);
        let starts: Vec<u64> = (0..5).map(|_| ceiling.reserve(0, WRITE_1M).at_ns).collect();
        assert_eq!(starts, [0, 1_000_000_000, 2_000_000_000, 3_000_000_000, 4_000_000_000]);
    }
}
