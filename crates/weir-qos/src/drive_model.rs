//! The drive model: the drive time of operations, as far as the drive's abilities are known.

use weir_types::Emulation;
use weir_types::emulation::Capacity;

use crate::cost::{Direction, Kind};

/// The rates of a drive in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveRates {
    /// Small operations per second.
    pub iops: u64,
    /// Bytes per second of large operations.
    pub bytes_per_second: u64,
}

/// The rates of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveModel {
    /// Rates for reading.
    pub read: DriveRates,
    /// Rates for writing, discarding and zeroing.
    pub write: DriveRates,
}

impl DriveModel {
    /// Model of a drive of which nothing is known: the proportions of a common solid-state drive.
    pub const UNKNOWN: DriveModel =
        DriveModel::even(DriveRates { iops: 100_000, bytes_per_second: 2_000_000_000 });

    /// Returns the model of a drive that reads and writes equally fast.
    pub const fn even(rates: DriveRates) -> DriveModel {
        DriveModel { read: rates, write: rates }
    }

    /// Returns the model of an emulated drive, for operations at random places. The queue does not look at
    /// the place of an operation, so it cannot tell sequential operations apart.
    pub fn emulated(emulation: Emulation) -> DriveModel {
        let Capacity { iops, bytes_per_second } = emulation.capacity();
        DriveModel::even(DriveRates { iops, bytes_per_second })
    }

    /// Returns the drive time of an operation, in nanoseconds; at least 1. Small operations cost by their
    /// number, large ones by their bytes.
    pub fn cost_ns(&self, kind: Kind, bytes: u32) -> u32 {
        let rates = match kind.direction() {
            Direction::Read => self.read,
            Direction::Write => self.write,
        };
        let by_number = 1_000_000_000 / rates.iops.max(1);
        let by_bytes = u64::from(bytes) * 1_000_000_000 / rates.bytes_per_second.max(1);
        u32::try_from(by_number.max(by_bytes).max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_operations_cost_by_their_bytes() {
        let rates = DriveRates { iops: 10_000, bytes_per_second: 100_000_000 };
        let model = DriveModel { read: rates, write: DriveRates { iops: 5000, ..rates } };
        assert_eq!(model.cost_ns(Kind::Read, 4096), 100_000);
        assert_eq!(model.cost_ns(Kind::Write, 4096), 200_000);
        assert_eq!(model.cost_ns(Kind::Discard, 0), 200_000);
        assert_eq!(model.cost_ns(Kind::Read, 100_000), 1_000_000);
    }

    #[test]
    fn emulated_drive_costs_match_its_capacity() {
        for (text, small_ns, large_ns) in [
            ("iops=2000", 500_000, 500_000),
            ("iops=10000,bandwidth=128KiB/s,latency=1ms", 100_000, 1_000_000_000),
            ("iops=1000,bandwidth=128MiB/s,seek=9ms,latency=1ms", 10_000_000, 10_000_000),
            ("iops=1000,bandwidth=12800KiB/s,seek=10ms", 11_111_111, 20_000_000),
            ("iops=1000,latency=3ms,parallel=2", 2_000_000, 2_000_000),
        ] {
            let model = DriveModel::emulated(Emulation::parse(text).unwrap());
            assert_eq!(model.cost_ns(Kind::Read, 0), small_ns, "{text}");
            assert_eq!(model.cost_ns(Kind::Write, 128 << 10), large_ns, "{text}");
        }
    }
}
