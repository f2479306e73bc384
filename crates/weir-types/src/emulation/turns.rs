//! Turn times and capacity of an emulated drive, computed exactly from its parameters. This module knows no
//! instants and no state of a drive.

use super::Emulation;
use crate::bounds::{
    EMULATED_PARALLEL_MAX, EMULATED_TIME_NS_MAX, PIECE_BYTES, RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX,
};

/// Nanoseconds of a second.
const SECOND_NS: u128 = 1_000_000_000;

/// Maximum number of parts into which a nanosecond is divided.
const PARTS_MAX: u128 = RATE_IOPS_MAX as u128 * RATE_BYTES_PER_SECOND_MAX as u128;

// The largest operation's time, with a seek, must fit 128 bits. So must the terms of a capacity.
const _: () = assert!(RATE_IOPS_MAX as u128 * SECOND_NS <= u128::MAX / (u64::MAX as u128 * 4));
const _: () = assert!(EMULATED_TIME_NS_MAX as u128 * PARTS_MAX <= u128::MAX / 4);
const _: () =
    assert!(PIECE_BYTES as u128 * SECOND_NS * PARTS_MAX <= u128::MAX / EMULATED_PARALLEL_MAX as u128);

/// Turns of a drive, counted in parts of a nanosecond. Every turn takes a whole number of parts.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Parts of a nanosecond: a multiple of both rates.
    parts_per_ns: u128,
    /// Minimum parts of an operation.
    operation_parts: u128,
    /// Parts of each byte of an operation.
    byte_parts: u128,
    /// Parts of a seek.
    seek_parts: u128,
}

/// Sustained rates of a drive under random operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Small operations per second, rounded down.
    pub iops: u64,
    /// Bytes per second, rounded down, of operations of [`PIECE_BYTES`], the largest possible size.
    pub bytes_per_second: u64,
}

impl Turns {
    /// Turns of a drive with these parameters.
    pub fn of(emulation: &Emulation) -> Turns {
        let iops = u128::from(emulation.iops.max(1));
        let bytes_per_second = u128::from(emulation.bytes_per_second.unwrap_or(1).max(1));
        let parts_per_ns = iops * bytes_per_second;
        Turns {
            parts_per_ns,
            operation_parts: SECOND_NS * bytes_per_second,
            byte_parts: if emulation.bytes_per_second.is_some() { SECOND_NS * iops } else { 0 },
            seek_parts: u128::from(emulation.seek_ns) * parts_per_ns,
        }
    }

    /// Parts of a nanosecond; at least 1.
    pub fn parts_per_ns(&self) -> u128 {
        self.parts_per_ns
    }

    /// Length of the turn of an operation that moves `bytes`, in parts of a nanosecond. `is_elsewhere` means
    /// that it does not begin where the previous one ended.
    pub fn turn_parts(&self, bytes: u64, is_elsewhere: bool) -> u128 {
        let moving = self.operation_parts.max(u128::from(bytes) * self.byte_parts);
        moving + if is_elsewhere { self.seek_parts } else { 0 }
    }
}

impl Emulation {
    /// Rates of the drive under random operations, with enough of them in flight.
    ///
    /// Turns follow each other, so the rate is `1 / turn` with `turn = max(1 / iops, bytes / bandwidth) +
    /// seek`. If at most `parallel` operations are in service, each occupies its place for `turn + latency`.
    /// Then the rate is at most `parallel / (latency + turn)`.
    pub fn capacity(&self) -> Capacity {
        let turns = Turns::of(self);
        let rate = |bytes: u64, amount: u64| {
            let turn = turns.turn_parts(bytes, true);
            let served = turn + u128::from(self.latency_ns) * turns.parts_per_ns;
            let in_second = u128::from(amount) * SECOND_NS * turns.parts_per_ns;
            let by_places = self.parallel.map(|operations| in_second * u128::from(operations) / served);
            let rate = by_places.unwrap_or(u128::MAX).min(in_second / turn);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Capacity { iops: rate(0, 1), bytes_per_second: rate(PIECE_BYTES, PIECE_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_the_rate_of_random_operations() {
        let mib = 1 << 20;
        for (text, iops, bytes_per_second) in [
            ("iops=21000", 21_000, 21_000 * PIECE_BYTES),
            ("iops=21000,bandwidth=250MB/s,latency=200us", 21_000, 250_000_000),
            ("iops=10,bandwidth=1GB/s", 10, 10 * PIECE_BYTES),
            // A turn is 1 ms, or 1 ms for the bytes, and 9 ms for the seek.
            ("iops=1000,seek=9ms", 100, 100 * PIECE_BYTES),
            ("iops=1000,bandwidth=125MiB/s,seek=9ms", 100, 100 * PIECE_BYTES),
            ("iops=1000,bandwidth=1MiB/s,seek=0s", 1000, mib),
            // 125 ms for the bytes and as much for the seek.
            ("iops=1000,bandwidth=1MiB/s,seek=125ms", 7, mib / 2),
            // Two at a time, each for 1 ms and 3 ms.
            ("iops=1000,latency=3ms,parallel=2", 500, 500 * PIECE_BYTES),
            ("iops=1000,latency=3ms,parallel=4", 1000, 1000 * PIECE_BYTES),
            ("iops=1000,latency=3ms,parallel=1024", 1000, 1000 * PIECE_BYTES),
            // 1 ms, 4 ms and 5 ms, one after the other; 125 ms for the bytes of large ones.
            ("iops=1000,seek=4ms,latency=5ms,parallel=1", 100, 100 * PIECE_BYTES),
            ("iops=1000,seek=4ms,latency=5ms,parallel=1,bandwidth=1MiB/s", 100, PIECE_BYTES * 1000 / 134),
            ("iops=1,seek=10s", 0, PIECE_BYTES / 11),
            ("iops=1000000000,bandwidth=1000GB/s,latency=10s,parallel=1024", 102, 102 * PIECE_BYTES + 52_428),
        ] {
            let expected = Capacity { iops, bytes_per_second };
            assert_eq!(Emulation::parse(text).unwrap().capacity(), expected, "{text}");
        }
    }
}
