//! The cost of a request: operations and bytes under a policy, and drive time.

use weir_types::{Charges, OperationSize};

/// The direction that a request counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes, and everything else that is charged.
    Write,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Gives space back.
    Discard,
    /// Writes zeroes without data.
    Zeroes,
    /// Makes earlier writes stable.
    Flush,
}

impl Kind {
    /// Returns the direction whose ceilings cover the kind.
    pub fn direction(self) -> Direction {
        match self {
            Kind::Read => Direction::Read,
            Kind::Write | Kind::Discard | Kind::Zeroes | Kind::Flush => Direction::Write,
        }
    }
}

/// The cost of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Kind of the request.
    pub kind: Kind,
    /// Whether this is the first piece of the request. Later pieces of a split request count no operation.
    pub is_first: bool,
    /// Bytes moved; zero for requests without data.
    pub bytes: u32,
    /// Drive time that the request takes, in nanoseconds; zero where drives are not what is shared.
    pub drive_ns: u32,
}

impl Cost {
    /// Returns the cost of a whole request, where drives are not what is shared.
    pub fn of(kind: Kind, bytes: u32) -> Cost {
        Cost { kind, is_first: true, bytes, drive_ns: 0 }
    }
}

/// Millionths of one operation: the finest unit that is counted.
pub const MILLIONTHS: u64 = 1_000_000;

/// NetApp's published cost curve for Element: kibibytes, and hundredths of the cost of 4 KiB.
const CURVE: [(u64, u64); 9] = [
    (4, 100),
    (8, 160),
    (16, 270),
    (32, 500),
    (64, 1000),
    (128, 1950),
    (256, 3900),
    (512, 7600),
    (1024, 15_000),
];

/// Returns the millionths of an operation that a read or write of `bytes` counts as.
fn data_operations(size: OperationSize, bytes: u64) -> u64 {
    match size {
        OperationSize::Any => MILLIONTHS,
        OperationSize::Bytes(unit) => (bytes * MILLIONTHS / u64::from(unit.max(1))).max(MILLIONTHS),
        OperationSize::Curve => curve_operations(bytes),
    }
}

/// Interpolates linearly between the published points; after the last point the cost grows in proportion.
fn curve_operations(bytes: u64) -> u64 {
    const PER_HUNDREDTH: u64 = MILLIONTHS / 100;
    let (last_kib, last_cost) = CURVE[CURVE.len() - 1];
    if bytes >= last_kib << 10 {
        return bytes * last_cost / (last_kib << 10) * PER_HUNDREDTH;
    }
    let above = CURVE.iter().position(|(kib, _)| bytes <= kib << 10).unwrap_or(CURVE.len() - 1);
    if above == 0 {
        return MILLIONTHS;
    }
    let ((from_kib, from_cost), (to_kib, to_cost)) = (CURVE[above - 1], CURVE[above]);
    let (from, to) = (from_kib << 10, to_kib << 10);
    from_cost * PER_HUNDREDTH + (bytes - from) * (to_cost - from_cost) * PER_HUNDREDTH / (to - from)
}

/// How a policy counts requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counting {
    /// Operation size for reads and writes.
    pub operation_size: OperationSize,
    /// Charges for all other requests.
    pub charges: Charges,
}

impl Counting {
    /// Returns the millionths of an operation that a request counts as.
    pub fn operations(&self, cost: Cost) -> u64 {
        if !cost.is_first {
            return 0;
        }
        match cost.kind {
            Kind::Read | Kind::Write => data_operations(self.operation_size, cost.bytes.into()),
            Kind::Discard => u64::from(self.charges.discard) * MILLIONTHS,
            Kind::Zeroes => u64::from(self.charges.zeroes) * MILLIONTHS,
            Kind::Flush => u64::from(self.charges.flush) * MILLIONTHS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(operation_size: OperationSize, kib: u32) -> u64 {
        Counting { operation_size, ..Counting::default() }.operations(Cost::of(Kind::Read, kib << 10))
    }

    #[test]
    fn large_request_counts_as_several_operations() {
        assert_eq!(count(OperationSize::Any, 1024), MILLIONTHS);
        assert_eq!(count(OperationSize::Bytes(4096), 1), MILLIONTHS);
        assert_eq!(count(OperationSize::Bytes(4096), 6), MILLIONTHS * 3 / 2);
        assert_eq!(count(OperationSize::Bytes(4096), 1024), 256 * MILLIONTHS);
    }

    #[test]
    fn cost_curve_matches_the_published_points() {
        for (kib, hundredths) in CURVE {
            assert_eq!(count(OperationSize::Curve, kib as u32), hundredths * MILLIONTHS / 100, "{kib} KiB");
        }
        assert_eq!(count(OperationSize::Curve, 1), MILLIONTHS);
        assert_eq!(count(OperationSize::Curve, 12), 2_150_000);
        assert_eq!(count(OperationSize::Curve, 2048), 300 * MILLIONTHS);
    }

    #[test]
    fn requests_without_data_cost_the_policy_charges() {
        let charges = Charges { discard: 3, zeroes: 2, flush: 0 };
        let counting = Counting { operation_size: OperationSize::Bytes(512), charges };
        let count = |kind| counting.operations(Cost::of(kind, 0)) / MILLIONTHS;
        assert_eq!([Kind::Discard, Kind::Zeroes, Kind::Flush].map(count), [3, 2, 0]);
    }
}
